"""What servers refuse in requests: learned from their refusals, sent in another way, and recorded."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.errors import BridgeError
from crucible_bridge.types import (
    BuiltinDataset,
    Dataset,
    EvaluatorSpec,
    OpenAIModel,
    SamplingParams,
    ServerEngine,
)
from crucible_worker.backends.openai.backend import OpenAIBackend
from crucible_worker.backends.openai.servers import OpenAIServer
from crucible_worker.exports.every_eval_ever import _generation
from crucible_worker.exports.inspect_log import Counts, header_of
from crucible_worker.reports.as_json import evaluation_as_json
from crucible_worker.reports.facts import facts_of
from tests import needs
from tests.service.openai_kit import Reply, Request, ScriptedServer, answer, remote, shout, worker_on
from tests.tables import rows

needs.modules("aiohttp")

PARAMS = SamplingParams(max_tokens=4)
MODEL = OpenAIModel("s", "m")


async def error_of(call) -> BridgeError:
    """The error that a call ends with."""
    with pytest.raises(BridgeError) as caught:
        await call
    return caught.value


def refused(message: str, param: str | None = None, code: str | None = None, status: int = 400) -> Reply:
    """A refusal as OpenAI puts it."""
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return Reply({"error": error}, status)


NO_MAX_TOKENS = refused(
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    "max_tokens",
    "unsupported_parameter",
)
NO_TEMPERATURE = refused(
    "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported.",
    "temperature",
    "unsupported_value",
)
NO_STOP = refused("Unsupported parameter: 'stop' is not supported with this model.", "stop", "unsupported_parameter")


def reasoning_model(request: Request) -> Reply:
    """Refuses as OpenAI's reasoning models do, one parameter at a time."""
    if request.method == "GET":
        return Reply({"data": []})
    if "max_tokens" in request.body:
        return NO_MAX_TOKENS
    if request.body.get("temperature", 1) != 1:
        return NO_TEMPERATURE
    if "stop" in request.body:
        return NO_STOP
    return shout(request)


async def test_what_a_server_refuses_is_learned_from_the_refusal():
    """A later name is used, a temperature is left out, and stop strings are; what it accepts is sent as before."""
    async with remote(reasoning_model) as (server, model):
        (first,) = await model.sample_text("hi", SamplingParams(max_tokens=4, stop=("\n",)))
        (second,) = await model.sample_text("you", SamplingParams(max_tokens=4, temperature=1.0))
        engine = model.engine
    assert (first.text, second.text) == ("HI", "YOU")
    assert [sorted(request.body.keys() - {"model", "prompt"}) for request in server.asked] == [
        ["max_tokens", "stop", "temperature"],
        ["max_completion_tokens", "stop", "temperature"],
        ["max_completion_tokens", "stop"],
        ["max_completion_tokens"],
        ["max_completion_tokens", "temperature"],
    ]
    assert engine == ServerEngine(
        requested_name="m",
        sampling_defaults="unknown",
        not_applied=("temperature",),
        sent_as={"max_tokens": "max_completion_tokens", "stop": ""},
    )


async def test_the_probe_is_sent_without_what_a_server_refuses():
    """A reasoning model answers it; what the probe alone had to leave out is none of the evaluation's parameters."""
    async with remote(reasoning_model) as (server, model):
        server.probe = reasoning_model
        await model.load()
        await model.find_engine()
        probed, before = model.engine, len(server.probes)
        await model.sample_text("hi", SamplingParams(max_tokens=4, temperature=1.0))
        engine = model.engine
    assert probed is not None
    assert (probed.stop_strings, probed.probe_problem, probed.probe_prompt_tokens) == ("refused", None, 1)
    assert (probed.not_applied, probed.sent_as) == ((), {})
    assert before == 4
    assert sorted(server.asked[-1].body) == ["max_completion_tokens", "model", "prompt", "temperature"]
    assert engine is not None
    assert (engine.not_applied, engine.sent_as) == ((), {"max_tokens": "max_completion_tokens"})


async def test_nothing_is_guessed_from_a_name():
    """A model that is called as one of OpenAI's gets what every model gets."""
    async with ScriptedServer(shout).serving() as server:
        backend = OpenAIBackend([OpenAIServer(name="s", base_url=server.url)])
        model = await backend.open(OpenAIModel("s", "o3-mini"))
        await model.sample_text("hi", PARAMS)
        await backend.aclose()
    assert server.asked[0].body == {"model": "o3-mini", "prompt": "hi", "max_tokens": 4, "temperature": 0.0}
    assert model.engine is None


@rows("count", [1, 100])
async def test_each_request_is_refused_once_at_most(count: int):
    """The first one learns while the others wait; later ones are not refused at all."""
    async with remote(reasoning_model, max_connections=100) as (server, model):
        server.answering.clear()
        asked = [asyncio.create_task(model.sample_text(f"q{index}", PARAMS)) for index in range(count)]
        while len(server.asked) < count:
            await asyncio.sleep(0.001)
        server.answering.set()
        answers = [answer.text for (answer,) in await asyncio.gather(*asked)]
        learning = len(server.asked)
        await asyncio.gather(*(model.sample_text("later", PARAMS) for _ in range(count)))
    assert answers == [f"Q{index}" for index in range(count)]
    assert learning == 2 * count + 1
    assert len(server.asked) == learning + count


async def test_a_request_that_is_cancelled_while_it_learns_breaks_no_other():
    """The next one learns in its place."""
    stalls = asyncio.Event()

    def script(request: Request) -> Reply:
        if request.method == "POST" and request.text == "first" and "max_tokens" not in request.body:
            stalls.set()
            server.answering.clear()
        return reasoning_model(request)

    async with remote(script) as (server, model):
        first = asyncio.create_task(model.sample_text("first", PARAMS))
        await asyncio.wait_for(stalls.wait(), 30)
        second = asyncio.create_task(model.sample_text("second", PARAMS))
        await asyncio.sleep(0)
        first.cancel()
        server.answering.set()
        (answer,) = await asyncio.wait_for(second, 30)
    assert answer.text == "SECOND"


@rows(
    ("reply", "params", "named"),
    [
        (
            refused("Unsupported parameter: 'top_p' is not supported.", "top_p", "unsupported_parameter"),
            SamplingParams(max_tokens=4, top_p=0.5, temperature=1.0),
            "leave top_p out",
        ),
        (
            refused(
                "max_tokens is too large: 4. This model supports at most 2; see max_completion_tokens.", "max_tokens"
            ),
            PARAMS,
            "too large",
        ),
        (
            refused("Invalid 'temperature': decimal above maximum value.", "temperature", "decimal_above_max_value"),
            PARAMS,
            "above maximum",
        ),
        (refused("`temperature` and `top_p` cannot both be specified for this model."), PARAMS, "cannot both"),
        (refused("Unsupported parameter: 'max_tokens'.", "max_tokens", "unsupported_parameter"), PARAMS, "max_tokens"),
        (refused("Unsupported parameter: 'prompt'.", "prompt", "unsupported_parameter"), PARAMS, "prompt"),
        (refused("Unsupported parameter: 'user'.", "user", "unsupported_parameter"), PARAMS, "user"),
    ],
    ids=["top_p", "too large", "range", "both", "no other name", "prompt", "not sent"],
)
async def test_every_other_refusal_stays_one(reply: Reply, params: SamplingParams, named: str):
    """What would change the measurement, or is a fault of the value, is refused once, with the server's words."""
    async with remote(lambda _: reply) as (server, model):
        error = await error_of(model.sample_text("hi", params))
    assert (error.reason, error.retryable, len(server.asked)) == ("BACKEND_REFUSED", False, 1)
    assert named in error.message
    assert model.engine is None


@rows(
    "reply",
    [
        Reply(
            {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]},
            422,
        ),
        refused("Unrecognized request argument supplied: 'seed'"),
        refused("seed: not supported", "seed", "unsupported_parameter"),
    ],
    ids=["fastapi", "text", "code"],
)
async def test_a_refused_seed_is_left_out_and_recorded(reply: Reply):
    """Servers name a parameter in several ways."""

    def script(request: Request) -> Reply:
        return reply if "seed" in (request.body or ()) else shout(request)

    async with remote(script) as (server, model):
        params = SamplingParams(max_tokens=4, temperature=1.0, seed=3)
        assert (await model.sample_text("hi", params))[0].text == "HI"
        engine = model.engine
    assert (len(server.asked), engine) == (
        2,
        ServerEngine(requested_name="m", sampling_defaults="unknown", not_applied=("seed",)),
    )


async def test_another_temperature_is_tried():
    """A value that was not refused is sent: one refusal says nothing of the others."""
    async with remote(reasoning_model) as (server, model):
        for temperature in (0.0, 0.5, 1.0, 0.0):
            await model.sample_text("hi", SamplingParams(max_tokens=4, temperature=temperature))
    sent = [request.body.get("temperature") for request in server.asked]
    assert sent == [0.0, 0.0, None, 0.5, None, 1.0, None]


async def test_an_evaluation_says_that_a_temperature_was_not_applied(tmp_path: Path):
    """The record, reports and exports name it, and no export has the temperature that was requested."""
    async with ScriptedServer(reasoning_model).serving() as server, worker_on(server, tmp_path) as bridge:
        evaluation = await bridge.evaluation.evaluate(
            model=MODEL,
            evaluators=["accuracy"],
            dataset=Dataset(source=BuiltinDataset("arithmetic"), limit=3),
            sampling=PARAMS,
        )
        again = await bridge.evaluation.get_evaluation(evaluation.evaluation_id)
    text = "temperature was not applied, max_tokens was sent as max_completion_tokens: the server refuses it"
    expected = ServerEngine(
        requested_name="m",
        sampling_defaults="unknown",
        probe_prompt_tokens=1,
        stop_strings="applied",
        not_applied=("temperature",),
        sent_as={"max_tokens": "max_completion_tokens"},
    )
    assert evaluation.engine == again.engine == expected
    assert facts_of(evaluation)["sampling refused"] == text
    data: dict[str, Any] = evaluation_as_json(evaluation)["engine"]
    assert (data["not_applied"], data["sent_as"]) == (["temperature"], {"max_tokens": "max_completion_tokens"})
    header = header_of(evaluation, "1", Counts())["eval"]
    assert "temperature" not in header["model_generate_config"]
    assert header["metadata"]["engine"]["not_applied"] == ["temperature"]
    described = _generation(evaluation)
    assert "temperature" not in described["generation_args"]
    assert described["additional_details"]["sampling_refused"] == text


async def test_a_judge_whose_temperature_was_not_applied_is_named(tmp_path: Path):
    """Its answers are part of the measurement: the evaluation names it by the option that it stands in."""

    def script(request: Request) -> Reply:
        if request.method == "GET" or request.body["model"] != "judge":
            return shout(request)
        if "temperature" in request.body:
            return NO_TEMPERATURE
        return answer(request, json.dumps({"correct": {"reason": "So it is.", "score": 5}}))

    options = {"judge": "openai:s/judge", "criteria": [{"name": "correct", "description": "Is it right?"}]}
    async with ScriptedServer(script).serving() as server, worker_on(server, tmp_path) as bridge:
        evaluation = await bridge.evaluation.evaluate(
            model=MODEL,
            evaluators=[EvaluatorSpec(kind="rubric", options=options)],
            dataset=Dataset(source=BuiltinDataset("arithmetic"), limit=2),
            sampling=PARAMS,
        )
    assert evaluation.engine is not None
    assert evaluation.engine.not_applied == ("judge: temperature",)
    assert facts_of(evaluation)["sampling refused"].startswith("judge: temperature was not applied")
