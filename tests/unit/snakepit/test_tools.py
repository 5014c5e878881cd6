"""Tools of a worker: what they share with its calls, and what they are beside them."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from crucible_bridge.errors import (
    DeadlineExceeded,
    InvalidField,
    NotFound,
    ResourceExhausted,
    Unavailable,
)
from crucible_bridge.types import ModelInput
from crucible_bridge.v1 import events_pb2
from crucible_worker.backends.distributions import Measured, Wanted
from crucible_worker.config import Settings
from crucible_worker.server import Worker
from crucible_worker.snakepit.catalogue import TOOLS
from crucible_worker.snakepit.results import Output, to_json
from crucible_worker.snakepit.tools import LARGE_BYTES, ToolCall, Tools
from crucible_worker.testing import STALL, ScriptedModel
from crucible_worker.testing.worker import scripted_build
from tests.tables import rows
from tests.unit.snakepit.tools_kit import MODEL, refused, run, tools_of

NLL: dict[str, Any] = {"model": f"embedded:{MODEL}", "evaluators": "nll", "dataset": [{"input": "a", "target": "b"}]}


@pytest.fixture
async def tools() -> AsyncIterator[Tools]:
    """The tools of a worker that grades no math."""
    async with tools_of() as tools:
        yield tools


def until(seconds: float) -> ToolCall:
    """A call whose caller waits for so long."""
    return ToolCall(deadline=asyncio.get_running_loop().time() + seconds)


async def stream(tools: Tools, name: str, call: ToolCall | None = None, **parameters: Any) -> list[dict[str, Any]]:
    """All chunks of a stream."""
    return [chunk async for chunk in tools.stream(name, parameters, {}, call or ToolCall())]


async def test_what_was_recorded_of_snakepit_runs(tools: Tools):
    """Parameters as Snakepit 0.13 was seen to send them, binary ones among them, are a call."""
    binary = {
        "logprobs": np.array([-1, -2, -0.5, -3], "<f4").tobytes(),
        "mask": b"\1\1\0\1",
        "training": np.array([-1.1, -1.9, -0.5, -3.5], "<f4").tobytes(),
    }
    described = {name: {"dtype": "u8" if name == "mask" else "f32", "shape": [4]} for name in binary}
    result = await run(tools, "kl_sample_train", binary, tensors=described)

    assert result.value["action_tokens"] == 3
    assert result.value["metrics"]["optim/kl_sample_train_v1"] == pytest.approx(1 / 6)
    assert result.binary is None


async def test_an_unknown_tool_is_named(tools: Tools):
    """A tool that is not there is NotFound by its name, whether it is executed or streamed."""
    for asked in (run(tools, "evaluat"), stream(tools, "evaluat")):
        with pytest.raises(NotFound, match="no tool 'evaluat'") as error:
            await asked
        assert error.value.reason == "UNKNOWN_TOOL"


async def test_a_stream_is_streamed_and_an_answer_is_not(tools: Tools):
    """What answers once is no stream, and the other way round."""
    with pytest.raises(InvalidField, match="'subscribe', which answers with a stream"):
        await run(tools, "subscribe")
    with pytest.raises(InvalidField, match="'get_info', which answers once"):
        await stream(tools, "get_info")


@rows("tool", [*(tool.name for tool in TOOLS), "list_tools"])
async def test_every_tool_refuses_what_it_does_not_know(tools: Tools, tool: str):
    """A parameter that no tool has is refused by its name, or what else is wrong is said first."""
    call = stream(tools, tool, unknown_to_all=1) if tools.streaming(tool) else run(tools, tool, unknown_to_all=1)
    with pytest.raises(InvalidField) as error:
        await call

    assert error.value.field == "unknown_to_all" or "not given" in error.value.message


async def test_errors_are_those_of_the_call(tools: Tools):
    """What the call refuses, the tool refuses alike, by the names that the caller used."""
    missing = await refused(tools, "get_evaluation", evaluation_id="nope")
    renamed = await refused(tools, "score", pairs=[{"pred": "a", "gold": []}], options="f1")
    advantages = {"logprobs": [-1.0], "mask": [1], "advantages": ["NaN"], "base": [-1.0], "coef": "NaN"}
    short = await refused(tools, "mean_nll", logprobs=[-1.0], weights=[1], lengths=[2])

    assert (missing.reason, missing.field) == ("UNKNOWN_EVALUATION", "evaluation_id")
    assert renamed.field == "pairs[0].targets"
    assert short.field == "logprobs"
    assert (await refused(tools, "incorporate_kl_penalty", **advantages)).field == "coef"


async def test_a_name_twice_is_refused(tools: Tools):
    """A parameter under two of its names is not guessed at."""
    error = await refused(tools, "score", items=[], pairs=[], options="f1")

    assert (error.field, error.message) == ("pairs", "is given with items, which is the same")


async def test_a_group_may_name_what_it_has_not(tools: Tools):
    """Names of a group, a trajectory or a transition that are null do not count: structs have them all."""
    transition = {"ob": 3, "ac": [4], "reward": 1.0, "metrics": None, "episode_done": None}
    group = {"trajectories": [{"transitions": [transition], "final_ob": None}]}
    nulls = dict.fromkeys(("trajectories_G", "final_rewards", "final_rewards_G", "metrics", "metrics_G", "tags"))

    plain = await run(tools, "trajectory_metrics", groups=[group])
    assert await run(tools, "trajectory_metrics", groups=[{**nulls, **group}]) == plain


async def test_advantages_come_back_as_they_came(tools: Tools):
    """Advantages have the form of those given: numbers, lists of them, or bytes with their lengths."""
    one: dict[str, Any] = {"logprobs": [-1.0, -2.0], "mask": [1, 1], "advantages": [0.5, 1.5], "base": [-1.0, -2.0]}
    several = {name: [numbers[:1], numbers[1:]] for name, numbers in one.items()}
    whole = {
        "data": [
            {"model_input": [1, 2], "loss_fn_inputs": {name: one[name] for name in ("logprobs", "mask", "advantages")}}
        ],
        "base": [one["base"]],
    }

    async def asked(**parameters: Any) -> Any:
        return await run(tools, "incorporate_kl_penalty", coef=0.5, **parameters)

    assert (await asked(**one)).value["advantages"] == [0.5, 1.5]
    assert (await asked(**several)).value["advantages"] == [[0.5], [1.5]]
    assert (await asked(**whole)).value["advantages"] == [[0.5, 1.5]]
    result = await asked(**several, result_format="binary")
    assert result.value["lengths"] == [1, 1]
    assert result.metadata == {"result_format": "binary", "dtype": "f64", "shape": "[2]"}
    np.testing.assert_array_equal(np.frombuffer(result.binary or b"", "<f8"), [0.5, 1.5])


async def test_rollouts_come_back_as_arrays(tools: Tools):
    """Tokens and log-probabilities of a sample are numbers, or bytes with their place among all of them."""
    evaluator = {"kind": "rollout", "options": {"intermediates": True}}
    dataset = [{"input": "ab", "target": "AB"}, {"input": "c", "target": "C"}]
    await run(
        tools,
        "evaluate",
        evaluation_id="e",
        model=f"embedded:{MODEL}",
        evaluators=[evaluator],
        dataset=dataset,
        sampling={"max_tokens": 4},
    )

    async def turns(**parameters: Any) -> Any:
        result = await run(tools, "get_samples", evaluation_id="e", **parameters)
        samples = result.value["samples"]
        return [sample["group"]["trajectories"][0]["transitions"][0] for sample in samples], result.binary

    numbers, _ = await turns()
    described, binary = await turns(result_format="binary")

    assert [turn["observation"] for turn in numbers] == [[97, 98], [99]]
    assert [turn["action"] for turn in numbers] == [[65, 66], [67]]
    assert [turn["reward"] for turn in numbers] == [1.0, 1.0]
    for turn, plain in zip(described, numbers):
        for name, dtype in (("observation", "<i4"), ("action", "<i4"), ("action_logprobs", "<f4")):
            place = turn[name]
            found = np.frombuffer(binary, dtype, count=place["shape"][0], offset=place["offset"])
            assert found.tolist() == plain[name]


async def test_an_undefined_penalty_has_no_advantages(tools: Tools):
    """Where the penalty is undefined, advantages are empty, whatever the form."""
    given = {"logprobs": [["NaN"]], "mask": [[1]], "advantages": [[0.5]], "base": [[-1.0]], "coef": 0.5}
    result = await run(tools, "incorporate_kl_penalty", **given)

    assert result.value["advantages"] == []
    assert "NaN" in result.value["undefined"]["kl_policy_base"]


async def test_log_probabilities_of_nothing_are_text(tools: Tools):
    """Minus infinity, which JSON has not, comes back as text."""
    impossible = ScriptedModel(logprob=lambda token, position: -np.inf)
    async with tools_of(impossible) as tools:
        result = await run(tools, "compute_logprobs", model=f"embedded:{MODEL}", sequences=[[1, 2]])

    assert result.value["sequences"][0]["logprobs"] == ["-Infinity"]
    assert b"Infinity" in result.json()


async def test_teachers_are_rows_in_place_of_the_model(tools: Tools):
    """Their models are text, as a model is."""
    async with tools_of(ScriptedModel()) as tools:
        alone = await run(tools, "compute_logprobs", model=f"embedded:{MODEL}", sequences=[[1, 2]])
        teachers = [{"model": f"embedded:{MODEL}", "weight": 2}, {"model": f"embedded:{MODEL}", "items": [0]}]
        result = await run(tools, "compute_logprobs", teachers=teachers, sequences=[[1, 2]])

    assert result.value["sequences"][0]["logprobs"] == pytest.approx(alone.value["sequences"][0]["logprobs"])
    assert len(result.value["teachers"]) == 2


async def test_a_penalty_against_teachers_knows_its_data_sets(tools: Tools):
    """The reverse KL has no mean subtracted, and a key for each data set; two of them need two sequences."""
    given = {"logprobs": [[-1.0, -2.0], [-3.0]], "mask": [[1, 0], [1]], "advantages": [[0.5, 0.5], [0.5]]}
    teachers = {"base": [[-0.5, -9.0], [-1.0]], "coef": 2.0, "reverse_kl": True}

    value = (await run(tools, "incorporate_kl_penalty", **given, **teachers, datasets=["a", "b"])).value
    plain = (await run(tools, "incorporate_kl_penalty", **given, **teachers)).value
    error = await refused(tools, "incorporate_kl_penalty", **given, **teachers, datasets=["a"])

    assert value["advantages"] == [[1.5, 0.5], [4.5]]
    assert value["metrics"] == {"teacher_kl": -1.25, "teacher_kl/dataset_a": -0.5, "teacher_kl/dataset_b": -2.0}
    assert plain["metrics"] == {"teacher_kl": -1.25}
    assert error.field == "datasets"


@dataclasses.dataclass(kw_only=True)
class Likely(ScriptedModel):
    """Knows its likeliest tokens: the number of the token's place, and the ones after it."""

    share: float
    """The probability of the first; of each further one, half of the one before."""

    async def compute_distributions(self, prompt: ModelInput, wanted: Wanted) -> Measured:
        places = np.arange(prompt.tokens().size)[-wanted.last :, None]
        values = np.log(self.share * 0.5 ** np.arange(wanted.top_k))
        tokens = (places + np.arange(wanted.top_k)).astype(np.int32)
        targets = None if wanted.targets is None else np.log(self.share * 0.5 ** (wanted.targets - places))
        return Measured(
            logprobs=np.full(wanted.last, -1.0),
            top_tokens=tokens,
            top_logprobs=np.broadcast_to(values, tokens.shape),
            target_logprobs=targets,
        )


async def test_the_likeliest_tokens_are_columns():
    """Of one model or of teachers: of the last tokens, or of a continuation alone, and as bytes if they are wanted."""
    asked = {"items": [{"model_input": [5, 6, 7], "continuation": [8]}], "top_k": 2}
    async with tools_of(Likely(share=0.5)) as tools:
        (last,) = (
            await run(tools, "compute_logprobs", model=f"embedded:{MODEL}", sequences=[[5, 6, 7]], top_k=2, last_n=1)
        ).value["sequences"]
        teachers = [{"model": f"embedded:{MODEL}", "weight": 3}, {"model": f"embedded:{MODEL}"}]
        mixed = await run(tools, "compute_logprobs", teachers=teachers, **asked, result_format="binary")

    assert (last["first"], last["top_tokens"]) == (2, [[2, 3]])
    np.testing.assert_allclose(last["top_logprobs"], np.log([[0.5, 0.25]]))
    (found,) = mixed.value["sequences"]
    assert (found["first"], found["top_tokens"]["shape"]) == (3, [1, 2])
    place = found["top_tokens"]["offset"]
    assert np.frombuffer(mixed.binary or b"", "<i4", count=2, offset=place).tolist() == [3, 4]


async def test_the_correlation_id_is_the_evaluations(tools: Tools):
    """An evaluation without a correlation id has the call's, one with an own keeps it, an overlong one is left out."""
    for own, of_call, expected in (("", "c-1", "c-1"), ("mine", "c-1", "mine"), ("", "c" * 300, "")):
        value = (await run(tools, "evaluate", call=ToolCall(correlation_id=of_call), **NLL, correlation_id=own)).value
        assert value["evaluation"]["request"]["correlation_id"] == expected


async def test_a_call_ends_before_its_caller_gives_up():
    """Shortly before its deadline a call says so, with the evaluation, which goes on."""
    async with tools_of(ScriptedModel(fault=lambda call: STALL)) as tools:
        await run(tools, "start_evaluation", **NLL, evaluation_id="e")
        with pytest.raises(DeadlineExceeded) as error:
            await run(tools, "evaluate", call=until(0.2), **NLL, evaluation_id="e")

        assert error.value.metadata == {"evaluation_id": "e"}
        state = (await run(tools, "get_evaluation", evaluation_id="e")).value["evaluation"]["state"]
        assert state in ("queued", "running")


async def test_tools_are_admitted_like_calls():
    """What a service has open, by whatever door, counts towards its limit."""
    async with tools_of(ScriptedModel(fault=lambda call: STALL), max_calls_per_service=1) as tools:
        waiting = asyncio.ensure_future(run(tools, "evaluate", **NLL, evaluation_id="e"))
        await asyncio.sleep(0)
        with pytest.raises(ResourceExhausted) as error:
            await run(tools, "list_evaluators")
        assert error.value.reason == "TOO_MANY_CALLS"
        assert (await run(tools, "get_info")).value["worker"]["calls"] == 1
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await run(tools, "get_info")).value["worker"]["calls"] == 0


async def test_the_work_of_tools_is_bounded_like_that_of_calls():
    """A tool of grading with more work than may be open is refused while another one waits."""
    items = [{"response": "Air scatters blue light.", "question": "Why is the sky blue?"}] * 2
    asked = {"judge": f"embedded:{MODEL}", "items": items, "criteria": [{"name": "right", "description": "Is it?"}]}
    model = ScriptedModel(fault=lambda call: STALL)
    async with tools_of(model, max_grading_work=40) as tools:
        waiting = asyncio.ensure_future(run(tools, "grade_rubric", **asked))
        async with asyncio.timeout(30):
            while not model.calls:
                await asyncio.sleep(0.001)
        with pytest.raises(ResourceExhausted) as error:
            await run(tools, "grade_rubric", **asked)
        assert (error.value.reason, error.value.retryable) == ("TOO_MANY_CALLS", True)
        waiting.cancel()


async def test_a_drain_ends_what_waits(tmp_path: Any):
    """A worker that drains ends streams and calls of tools, and refuses new ones."""
    settings = Settings(port=0, state_dir=tmp_path, grading_processes=0).validate()
    model = ScriptedModel(fault=lambda call: STALL)
    async with Worker(settings, build=scripted_build({MODEL: model})) as worker:
        tools = worker.tools
        waiting = [
            asyncio.ensure_future(run(tools, "evaluate", **NLL, evaluation_id="e")),
            asyncio.ensure_future(stream(tools, "subscribe")),
        ]
        while (await run(tools, "get_info")).value["worker"]["running"] == 0:
            await asyncio.sleep(0.001)
        interrupted = (await run(tools, "drain")).value["interrupted"]
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        refusal = await refused(tools, "list_evaluators")

    assert interrupted == ["e"]
    assert [getattr(end, "reason", end) for end in (*ends, refusal)] == ["DRAINING"] * 3
    assert isinstance(refusal, Unavailable)


async def test_a_stream_ends_with_its_reader(tools: Tools):
    """Closing a stream ends the call behind it, also while it waits for its reader."""
    await run(tools, "evaluate", **NLL)
    chunks = tools.stream("subscribe", {}, {}, ToolCall())
    first = await anext(chunks)
    open_calls = (await run(tools, "get_info")).value["worker"]["calls"]
    await chunks.aclose()

    assert first["events"]
    assert open_calls == 1
    assert (await run(tools, "get_info")).value["worker"]["calls"] == 0


async def test_a_stream_ends_at_its_deadline(tools: Tools):
    """A stream whose caller has a deadline says so shortly before."""
    with pytest.raises(DeadlineExceeded):
        await stream(tools, "subscribe", until(0.05))


async def test_a_stream_loses_nothing_at_its_end(tools: Tools):
    """The last chunk of a stream arrives, whether its reader is fast or slow."""
    await run(tools, "evaluate", **NLL, evaluation_id="e")
    for pause in (0, 0.01):
        kinds: list[str] = []
        async for chunk in tools.stream("watch_evaluation", {"evaluation_id": "e"}, {}, ToolCall()):
            await asyncio.sleep(pause)
            kinds += [event["kind"] for event in chunk["events"]]
        assert kinds[-2:] == ["evaluation_complete", "evaluation_stop"]


def test_events_of_unknown_kinds_are_left_out():
    """A newer worker of the journal may write kinds that have no name here: the rest is sent, and the position."""
    events = [events_pb2.Event(kind=kind, sequence=n) for n, kind in enumerate((99, 13, 1), 1)]  # type: ignore[arg-type]
    batch = events_pb2.EventBatch(events=events, log_id="log", through_sequence=3)

    told = to_json(batch, Output("json"))

    assert [(event["sequence"], event["kind"]) for event in told["events"]] == [
        (2, "evaluator_start"),
        (3, "evaluation_start"),
    ]
    assert told["through_sequence"] == 3


async def test_a_stream_is_json(tools: Tools):
    """Chunks of a stream are JSON: another form is refused, not forgotten."""
    with pytest.raises(InvalidField) as error:
        await stream(tools, "subscribe", until_now=True, result_format="msgpack")

    assert error.value.field == "result_format"


async def test_a_stream_fails_as_its_call_does(tools: Tools):
    """What a stream is refused for is raised at its first chunk."""
    with pytest.raises(NotFound) as error:
        await stream(tools, "watch_evaluation", evaluation_id="nope")

    assert error.value.reason == "UNKNOWN_EVALUATION"


async def test_large_parameters_and_answers_leave_the_loop_alone(tools: Tools):
    """Reading large parameters, and writing large answers, is a thread's work."""
    threads: list[str] = []

    class Iterated(list[Any]):
        def __iter__(self) -> Any:
            threads.append(threading.current_thread().name)
            return super().__iter__()

    # Each response comes back as an answer that is as long.
    responses = Iterated([r"\boxed{" + "1" * LARGE_BYTES + "}"])
    result = await run(tools, "extract_answer", call=ToolCall(large=True), responses=responses)

    assert threads[0].startswith("messages")
    assert len(result.value["answers"][0]["answer"]) == LARGE_BYTES


async def test_a_small_call_stays_where_it_is(tools: Tools):
    """A small call is neither handed to a thread nor to another task."""
    seen: list[Any] = []

    class Seen(list[Any]):
        def __iter__(self) -> Any:
            seen.append((threading.current_thread(), asyncio.current_task()))
            return super().__iter__()

    await run(tools, "classification_metrics", predictions=Seen(["a"]), targets=["a"])

    assert seen == [(threading.main_thread(), asyncio.current_task())]


async def test_a_deadline_that_has_passed_is_one(tools: Tools):
    """A call that comes too late ends at once."""
    with pytest.raises(DeadlineExceeded):
        await run(tools, "evaluate", call=until(-5), **NLL)
