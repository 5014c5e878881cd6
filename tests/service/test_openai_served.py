"""What a server serves, and how: the probe of an evaluation, names of models, and the server's sampling parameters."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crucible_bridge.client import Bridge
from crucible_bridge.errors import BridgeError, FailedPrecondition
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Datum,
    Evaluation,
    EvaluationState,
    ModelInput,
    OpenAIModel,
    ReportFormat,
    Sample,
    SamplingParams,
    ServerEngine,
    Verdict,
)
from crucible_worker.backends.openai.backend import OpenAIBackend
from crucible_worker.backends.openai.bodies import NEUTRAL
from crucible_worker.backends.openai.connection import PROBE_TEXT
from crucible_worker.backends.openai.servers import OpenAIServer
from crucible_worker.exports.every_eval_ever import SamplesFile, description_of
from crucible_worker.exports.inspect_log import Counts, header_of
from tests import needs
from tests.service.evaluation_kit import samples_of
from tests.service.openai_kit import (
    Fault,
    Reply,
    Request,
    ScriptedServer,
    answer,
    continued,
    refusal,
    remote,
    shout,
    worker_on,
)
from tests.tables import rows

needs.modules("aiohttp")

PARAMS = SamplingParams(max_tokens=4)
STANDARD = {"max_tokens", "temperature", "model", "prompt", "messages"}


def listing(owner: str, *names: str):
    """Answers in upper case, and lists models of an owner."""

    def script(request: Request) -> Reply:
        if request.method == "GET":
            known = [{"id": name, "owned_by": owner} for name in names or ("m",)]
            return Reply({"data": known}) if request.path == "/models" else refusal(404)
        return answer(request, request.text.upper() if isinstance(request.text, str) else "x")

    return script


def named(script, name: str):
    """The same, with a name of the model in each answer."""

    def renamed(request: Request) -> Reply:
        reply = script(request)
        return reply if request.method == "GET" else Reply({**reply.body, "model": name})

    return renamed


async def evaluated(bridge: Bridge, **fields: Any) -> Evaluation:
    """An evaluation of one sample by `accuracy`."""
    known = {"evaluators": ["accuracy"], "dataset": [Sample(id="s", input="a", targets=("A",))]}
    asked: Any = {**known, "evaluation_id": "e", "sampling": PARAMS, **fields}
    return await bridge.evaluation.evaluate(model="openai:s/m", **asked)


@rows(("owner", "program"), [("vllm", "vllm"), ("sglang", "sglang"), ("llamacpp", "llama.cpp")])
async def test_neutral_parameters_are_sent_where_the_server_has_others(owner: str, program: str):
    """In chats, text and tokens: vLLM and SGLang take them from the model's files, llama.cpp has its own defaults."""
    async with remote(listing(owner)) as (server, model):
        await model.load()
        await model.sample_text("hi", PARAMS)
        await model.sample_text(Conversation((ChatMessage("user", "hi"),)), PARAMS)
        await model.sample(ModelInput.of([1, 2]), PARAMS)
        chosen = SamplingParams(max_tokens=4, temperature=0.5, top_p=0.9, top_k=7)
        await model.sample_text("hi", chosen)
    *neutral, last = [request.body for request in server.asked]
    assert [{key: body[key] for key in body.keys() - STANDARD} for body in neutral] == [NEUTRAL[program]] * 3
    assert {key: last[key] for key in last.keys() - STANDARD} == {**NEUTRAL[program], "top_p": 0.9, "top_k": 7}


@rows(
    ("owner", "settings", "told"),
    [
        ("openai", {}, "unknown"),
        ("", {}, "unknown"),
        ("vllm", {"program": "other"}, "unknown"),
        ("vllm", {"program": "openai"}, "none"),
        ("openai", {"program": "vllm"}, "sent"),
        ("openai", {"program": "transformers"}, "partly_sent"),
    ],
)
async def test_a_field_is_sent_only_to_a_program_that_has_it(owner: str, settings: Mapping[str, Any], told: str):
    """The settings decide, else the server's own list; what may apply all the same is recorded."""
    async with remote(listing(owner), **settings) as (server, model):
        await model.load()
        await model.find_engine()
        await model.sample_text("hi", PARAMS)
    (body,) = [request.body for request in server.asked]
    assert body.keys() - STANDARD == NEUTRAL.get(settings.get("program", ""), {}).keys()
    assert model.engine is not None
    assert model.engine.sampling_defaults == told


async def test_what_a_server_shows_is_recorded(tmp_path: Path):
    """Names of the model, tokens of the probe's prompt and stop strings; the probe is none of the samples' requests."""
    script = named(listing("vllm"), "m")
    async with ScriptedServer(script, named(continued, "m")).serving() as server, worker_on(server, tmp_path) as bridge:
        evaluation = await evaluated(bridge)
        again = await bridge.evaluation.get_evaluation("e")
        shown = await bridge.evaluation.generate_report(["e"], ReportFormat.MARKDOWN)
    assert evaluation.engine == again.engine
    assert evaluation.engine == ServerEngine(
        name="vllm",
        requested_name="m",
        served_names=("m",),
        sampling_defaults="sent",
        probe_prompt_tokens=1,
        stop_strings="applied",
    )
    assert evaluation.usage is not None
    assert (evaluation.usage.calls, len(server.asked), len(server.probes)) == (1, 1, 1)
    assert "prompt of 1 tokens, stop strings applied" in shown
    assert "served model" not in shown


def probed(text: str, **fields: Any):
    """Answers the probe so."""
    return lambda request: answer(request, text, **fields)


@rows(
    ("probe", "stop_strings"),
    [
        (probed(" 5"), "applied"),
        (probed(" 5,"), "kept"),
        (probed(" 5, 6, 7", finish_reason="length"), "ignored"),
        (probed(" 5, 6, 7"), "ignored"),
        (probed(" five", finish_reason="length"), "unknown"),
        (probed(""), "unknown"),
        (probed("", stop_reason=","), "applied"),
        (lambda request: refusal(400) if "stop" in request.body else answer(request, " 5"), "refused"),
        (lambda request: refusal(400) if "messages" in request.body else answer(request, " 5"), "applied"),
    ],
)
async def test_the_probe_shows_what_stop_strings_do(probe, stop_strings: str):
    """They end a text and are left out of it, or not; a refused form of the probe is sent in another one."""
    async with ScriptedServer(shout, probe).serving() as server:
        backend = OpenAIBackend([OpenAIServer(name="s", base_url=server.url)])
        model = await backend.open(OpenAIModel("s", "m"))
        await model.load()
        await model.find_engine()
        await backend.aclose()
    assert model.engine is not None
    assert (model.engine.stop_strings, model.engine.probe_problem) == (stop_strings, None)
    assert {request.text for request in server.probes} == {PROBE_TEXT}
    assert len(server.probes) <= 3


@pytest.mark.parametrize(
    ("reply", "reason"),
    [(refusal(500), "BACKEND_FAILED"), (refusal(404), "UNKNOWN_MODEL"), (Fault.DROP, "BACKEND_CONNECTION_LOST")],
)
async def test_a_probe_that_fails_costs_nothing(tmp_path: Path, reply, reason: str):
    """The evaluation is the same, and says why it has no answer of the probe."""
    async with ScriptedServer(shout, lambda request: reply).serving() as server, worker_on(server, tmp_path) as bridge:
        evaluation = await evaluated(bridge)
    assert evaluation.metrics.values["accuracy"] == 1.0
    assert evaluation.engine is not None
    assert evaluation.engine.probe_problem is not None
    assert evaluation.engine.probe_problem.reason == reason
    assert evaluation.engine.stop_strings == ""


async def test_a_probe_without_an_answer_ends(monkeypatch: pytest.MonkeyPatch):
    """A server that does not answer it in time holds no evaluation up."""
    monkeypatch.setattr("crucible_worker.backends.openai.connection.PROBE_SECONDS", 0.1)
    async with ScriptedServer(shout, lambda request: Fault.STALL).serving() as server:
        backend = OpenAIBackend([OpenAIServer(name="s", base_url=server.url)])
        model = await backend.open(OpenAIModel("s", "m"))
        await model.load()
        await model.find_engine()
        await backend.aclose()
    assert model.engine is not None
    assert model.engine.probe_problem is not None
    assert model.engine.probe_problem.reason == "BACKEND_TIMEOUT"


OTHERS = [
    (named(listing("vllm"), "big"), named(continued, "big"), "answered as big; requested was m"),
    (listing("vllm", "big", "small"), continued, "the server lists big, small; requested was m"),
]


@pytest.mark.parametrize(("script", "probe", "says"), OTHERS, ids=["answers", "list"])
async def test_another_name_is_told_everywhere(tmp_path: Path, script, probe, says: str):
    """In every report and export; the evaluation is that of the server's model."""
    async with ScriptedServer(script, probe).serving() as server, worker_on(server, tmp_path) as bridge:
        evaluation = await evaluated(bridge)
        reports = [await bridge.evaluation.generate_report(["e"], form) for form in ReportFormat]
    assert evaluation.state is EvaluationState.COMPLETED
    assert all(says in text for text in reports)
    samples = SamplesFile(io.BytesIO(), evaluation, {})
    described = json.loads(description_of(evaluation, {}, version="1", organization="us", samples=samples))
    assert described["model_info"]["additional_details"]["another_model"] == says
    assert header_of(evaluation, "1", Counts())["eval"]["metadata"]["another_model"] == says


@pytest.mark.parametrize(("script", "probe", "says"), OTHERS, ids=["answers", "list"])
async def test_another_name_is_refused_where_the_settings_want_that(tmp_path: Path, script, probe, says: str):
    """Before the first sample, with both names; a call of ModelService is refused by its answer."""
    async with (
        ScriptedServer(script, probe).serving() as server,
        worker_on(server, tmp_path, require_served_name=True) as bridge,
    ):
        evaluation = await evaluated(bridge)
    assert evaluation.state is EvaluationState.FAILED
    assert evaluation.problem is not None
    assert evaluation.problem.reason == "SERVED_NAME_DIFFERS"
    assert evaluation.problem.message.startswith("model 'm' was requested")
    assert "'big'" in evaluation.problem.message
    assert server.asked == []


async def test_an_answer_of_another_name_is_refused():
    """Whatever the server answered before: a judge and ModelService are refused, too."""
    async with remote(named(listing("vllm"), "big"), require_served_name=True) as (_, model):
        await model.load()
        says = "'m' was requested, and server 's' answers in the name of 'big'"
        with pytest.raises(BridgeError, match=says) as caught:
            await model.sample_text("hi", PARAMS)
    assert (caught.value.reason, caught.value.retryable) == ("SERVED_NAME_DIFFERS", False)
    async with remote(named(listing("vllm"), "m"), require_served_name=True) as (_, model):
        await model.load()
        await model.find_engine()
        assert (await model.sample_text("hi", PARAMS))[0].text == "HI"


async def test_the_probe_is_sent_to_each_replica():
    """One with another model, or another template, is found although the others are right."""
    right, wrong = named(continued, "m"), named(lambda request: answer(request, " 5, 6"), "big")

    def longer(request: Request) -> Reply:
        reply = wrong(request)
        return Reply({**reply.body, "usage": {"prompt_tokens": 9, "completion_tokens": 1}})

    async with (
        ScriptedServer(listing("vllm"), right).serving() as one,
        ScriptedServer(listing("vllm"), longer).serving() as other,
    ):
        backend = OpenAIBackend([OpenAIServer(name="s", base_urls=(one.url, other.url))])
        model = await backend.open(OpenAIModel("s", "m"))
        await model.load()
        await model.find_engine()
        await backend.aclose()
    engine = model.engine
    assert engine is not None
    assert (engine.served_names, engine.stop_strings) == (("big", "m"), "ignored")
    assert engine.probe_prompt_tokens is None
    assert engine.probe_problem is not None
    assert engine.probe_problem.message.startswith("replicas count 1 and 9 tokens")


def scored(value: float, prompt_tokens: int | None = None):
    """Returns a log-probability for each token of a prompt, and counts so many tokens of it."""

    def script(request: Request) -> Reply:
        if request.method == "GET":
            return Reply({"data": []})
        tokens = request.body["prompt"]
        entries = [None, *({str(token): {"logprob": value}} for token in tokens[1:])]
        reply = answer(request, "x", prompt_logprobs=entries)
        count = len(tokens) if prompt_tokens is None else prompt_tokens
        return Reply({**reply.body, "usage": {"prompt_tokens": count, "completion_tokens": 1}})

    return script


DATUM = Datum(
    model_input=ModelInput.of([5, 6, 7]),
    loss_fn_inputs={"target_tokens": np.array([6, 7, 8]), "weights": np.ones(3, np.float32)},
)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (scored(0.5), "IMPOSSIBLE_LOGPROBS"),
        (scored(0.0), "IMPOSSIBLE_LOGPROBS"),
        (scored(-1.0, 2), "PROMPT_DIFFERS"),
        (scored(-1.0, 5), "PROMPT_DIFFERS"),
    ],
)
async def test_log_probabilities_that_cannot_be_are_no_metric(tmp_path: Path, script, reason: str):
    """The evaluator fails with the reason before its first sample, and the evaluation records it."""
    async with ScriptedServer(script).serving() as server, worker_on(server, tmp_path) as bridge:
        evaluation = await evaluated(bridge, evaluators=["nll"], dataset=[Sample(id="s", input=DATUM)])
        results = await samples_of(bridge)
    assert "nll" not in evaluation.metrics.values
    (result,) = evaluation.results
    assert result.problem is not None
    assert result.problem.reason == reason
    assert evaluation.engine is not None
    assert evaluation.engine.logprobs == reason
    assert [one for one in results if one.verdict is not Verdict.ERROR] == []


async def test_a_longer_prompt_that_is_truncated_is_an_error_of_its_sample(tmp_path: Path):
    """The probe fits into what the server reads, and a sample does not: it is an ERROR, and part of no metric."""
    async with ScriptedServer(scored(-1.0, 3)).serving() as server, worker_on(server, tmp_path) as bridge:
        evaluation = await evaluated(bridge, evaluators=["nll"], dataset=[Sample(id="s", input=DATUM)])
        (result,) = await samples_of(bridge)
    assert "nll" not in evaluation.metrics.values
    assert result.verdict is Verdict.ERROR
    assert result.problem is not None
    assert result.problem.reason == "PROMPT_DIFFERS"
    assert evaluation.engine is not None
    assert evaluation.engine.logprobs == "measured"


@rows(
    ("script", "reason"),
    [(scored(0.5), "IMPOSSIBLE_LOGPROBS"), (scored(-1.0, 1), "PROMPT_DIFFERS")],
)
async def test_calls_of_model_service_get_no_such_numbers(tmp_path: Path, script, reason: str):
    """ComputeLogprobs has a problem in the item's place, and a call for a metric fails."""
    datum = Datum(
        model_input=ModelInput.of([1, 2]),
        loss_fn_inputs={"target_tokens": np.array([2, 3]), "logprobs": np.array([-1.0, -1.0]), "mask": np.ones(2)},
    )
    async with ScriptedServer(script).serving() as server, worker_on(server, tmp_path) as bridge:
        scores = await bridge.models.compute_logprobs("openai:s/m", [[1, 2, 3]])
        with pytest.raises(FailedPrecondition) as caught:
            await bridge.metrics.compute_kl_post_update([datum], "openai:s/m")
    assert scores.sequences[0].problem is not None
    assert scores.sequences[0].problem.reason == reason
    assert caught.value.reason == reason


async def test_tokens_that_a_server_truncates_are_not_answered(tmp_path: Path):
    """The answer to another prompt than the one that was sent is an error, whatever it says."""

    def script(request: Request) -> Reply:
        if request.method == "GET":
            return Reply({"data": []})
        return Reply({**answer(request, "x").body, "usage": {"prompt_tokens": 1, "completion_tokens": 1}})

    async with ScriptedServer(script).serving() as server, worker_on(server, tmp_path) as bridge:
        sampled = await bridge.models.sample("openai:s/m", [ModelInput.of([1, 2])], PARAMS)
        (same,) = (await bridge.models.sample("openai:s/m", [ModelInput.of([1])], PARAMS)).items
    assert sampled.items[0].problem is not None
    assert sampled.items[0].problem.reason == "PROMPT_DIFFERS"
    assert same.problem is None
