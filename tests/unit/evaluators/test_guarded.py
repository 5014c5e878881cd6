"""What becomes of an evaluator of a user that fails, or gives what none gives."""

import asyncio
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from crucible_bridge.errors import BackendError, FailedPrecondition, InternalError, InvalidField
from crucible_bridge.types import (
    Metrics,
    Problem,
    Sample,
    ToolCall,
    Trajectory,
    TrajectoryGroup,
    Transition,
    UnparsedToolCall,
    Verdict,
)
from crucible_worker.evaluators.base import Outcome
from crucible_worker.evaluators.installed import MAX_MEASUREMENTS, MAX_OUTPUT_BYTES, GuardedEvaluator
from tests.tables import rows
from tests.unit.evaluators.doubles import Double, context

FINE = Outcome(verdict=Verdict.CORRECT, score=1.0)
UNSCORED = {"verdict": Verdict.UNDECIDED, "score": None}


class Doing:
    """An evaluator whose every method does one thing."""

    repeats = 1

    def __init__(self, do: Callable[[], Any]) -> None:
        self.do = do

    def check(self, model: Any) -> None:
        self.do()

    def check_sample(self, sample: Any) -> None:
        self.do()

    async def run(self, sample: Any, context: Any) -> Any:
        return self.do()

    def aggregate(self, results: Any) -> Any:
        return self.do()


def _guarded(do: Callable[[], Any], *keys: str) -> GuardedEvaluator:
    return GuardedEvaluator(name="it", evaluator=Doing(do), repeats=1, keys=keys or ("a", "b@<k>"))


def _raising(error: BaseException) -> GuardedEvaluator:
    def do() -> None:
        raise error

    return _guarded(do)


async def _ran(**fields: Any) -> Outcome:
    outcome = Outcome(**{"verdict": Verdict.CORRECT, "score": 1.0, **fields})
    return await _guarded(lambda: outcome).run(Sample(input="a"), context(Double()))


async def test_an_outcome_is_kept_as_it_is() -> None:
    """Numbers of numpy become Python's, which the journal takes; everything else stays."""
    problem = Problem(reason="UNSURE", message="two answers", retryable=True)

    scored = await _ran(
        score=np.float32(0.5), measurements={"x": np.int64(2)}, output="said", output_tokens=np.int64(3)
    )
    unscored = await _ran(**UNSCORED, problem=problem)
    turn = Transition(observation_tokens=1, action_tokens=2, reward=0.5)
    group = TrajectoryGroup(trajectories=(Trajectory(transitions=(turn,)),))

    assert scored == Outcome(
        verdict=Verdict.CORRECT, score=0.5, output="said", output_tokens=3, measurements={"x": 2.0}
    )
    assert {type(scored.score), type(scored.measurements["x"])} == {float}
    assert type(scored.output_tokens) is int
    assert unscored.problem == problem
    assert (await _ran(group=group)).group is group


@rows(
    ("fields", "says"),
    [
        ({"verdict": "correct"}, "gave the verdict 'correct'"),
        ({"score": None}, "said correct with score None"),
        ({"score": True}, "said correct with score True"),
        ({"score": "1"}, "said correct with score 1"),
        ({**UNSCORED, "score": 0.5}, "said undecided with score 0.5"),
        ({"output": b"said"}, "that is no text"),
        ({"method": None}, "that is no text"),
        ({"output_tokens": -1}, "gave -1 output tokens"),
        ({"output_tokens": 1.5}, "gave 1.5 output tokens"),
        ({"group": []}, "gave a list, not a TrajectoryGroup"),
        ({"group": TrajectoryGroup(trajectories=(None,))}, "gave rollouts that are none"),  # type: ignore[arg-type]
        ({"group": TrajectoryGroup(trajectories=(), tags=(1,))}, "gave rollouts that are none"),  # type: ignore[arg-type]
        ({"measurements": [1.0]}, "measurements that are not"),
        ({"measurements": {1: 1.0}}, "measurements that are not"),
        ({"measurements": {"x": "1"}}, "measurements that are not"),
        ({"measurements": {str(index): 1.0 for index in range(MAX_MEASUREMENTS + 1)}}, "measurements that are not"),
    ],
)
async def test_an_outcome_that_is_none_is_an_error_of_that_sample(fields: dict[str, Any], says: str) -> None:
    """It says what is wrong with it, and nothing of it is kept."""
    with pytest.raises(InternalError, match="the evaluator 'it'") as caught:
        await _ran(**fields)

    assert says in caught.value.message
    assert caught.value.reason == "EVALUATOR_FAILED"


@pytest.mark.parametrize("given", [None, 1.0, {"verdict": Verdict.CORRECT}])
async def test_something_else_than_an_outcome_is_an_error(given: object) -> None:
    """Its type is told."""
    with pytest.raises(InternalError, match=f"gave a {type(given).__name__}, not an Outcome"):
        await _guarded(lambda: given).run(Sample(input="a"), context(Double()))


async def test_what_is_too_long_is_cut_and_surrogates_are_replaced() -> None:
    """At the limits and no earlier: what the journal keeps is text of bounded size."""
    at_most = await _ran(output="x" * MAX_OUTPUT_BYTES, measurements={str(i): 1.0 for i in range(MAX_MEASUREMENTS)})
    beyond = await _ran(output="x" * (MAX_OUTPUT_BYTES + 1), method="m" * 2_000, extracted="a\ud800b")

    assert at_most.output == "x" * MAX_OUTPUT_BYTES
    assert len(at_most.measurements) == MAX_MEASUREMENTS
    assert len(beyond.output.encode()) == MAX_OUTPUT_BYTES
    assert len(beyond.method.encode()) == 1_000
    assert beyond.extracted == "a\ufffdb"

    called = await _ran(
        tool_calls=(ToolCall(name="f", arguments='{"a": "\ud800"}', id="\ud800"),),
        unparsed_tool_calls=(UnparsedToolCall(text="\ud800", error="e"),),
    )
    assert called.tool_calls == (ToolCall(name="f", arguments='{"a": "\ufffd"}', id="\ufffd"),)
    assert called.unparsed_tool_calls == (UnparsedToolCall(text="\ufffd", error="e"),)


async def test_an_unscored_outcome_has_a_reason() -> None:
    """Where the evaluator gives none, that is said; a scored one has none."""
    without = await _ran(**UNSCORED)
    nonsense = await _ran(verdict=Verdict.ERROR, score=None, problem="broken")
    scored = await _ran(problem=Problem(reason="X", message="x"))

    assert without.problem == Problem(reason="UNDECIDED", message="the evaluator it gave no reason")
    assert nonsense.problem is not None
    assert nonsense.problem.reason == "ERROR"
    assert scored.problem is None


async def test_its_own_refusals_stand() -> None:
    """A BridgeError is what the evaluator says it is."""
    error = BackendError("is out of order", reason="BACKEND_DOWN", retryable=True)
    with pytest.raises(BackendError, match="out of order"):
        await _raising(error).run(Sample(input="a"), context(Double()))
    with pytest.raises(InvalidField, match="input"):
        _raising(InvalidField("input", "is empty")).check_sample(Sample(input="a"))


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()])
async def test_it_can_end_neither_the_worker_nor_the_evaluation(error: BaseException) -> None:
    """What would pass through every handler above becomes the ERROR of that sample."""
    with pytest.raises(InternalError, match=r"wanted to exit|was cancelled by what it waited for"):
        await _raising(error).run(Sample(input="a"), context(Double()))


async def test_it_is_cancelled_when_the_evaluation_is() -> None:
    """A cancellation that somebody asked for passes through."""
    began = asyncio.Event()

    class Waiting(Doing):
        async def run(self, sample: Any, context: Any) -> Any:
            began.set()
            await asyncio.Event().wait()

    guarded = GuardedEvaluator(name="it", evaluator=Waiting(lambda: None), repeats=1, keys=("a",))
    task = asyncio.create_task(guarded.run(Sample(input="a"), context(Double())))
    await began.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("error", [ValueError("oh"), SystemExit("oh")])
def test_checks_that_fail_are_refusals(error: BaseException) -> None:
    """Of the evaluator for a model, of the request for a sample: BAD_EVALUATOR, with what went wrong."""
    with pytest.raises(FailedPrecondition, match=r"'it' cannot check a model: .*: oh") as model:
        _raising(error).check(Double())
    with pytest.raises(FailedPrecondition, match=r"'it' cannot check a sample: .*: oh") as sample:
        _raising(error).check_sample(Sample(input="a"))

    assert (model.value.reason, sample.value.reason) == ("BAD_EVALUATOR", "BAD_EVALUATOR")


def test_keys_are_those_that_it_announces() -> None:
    """One that is left out is undefined, one that is not finite too; what is in angle brackets may be anything."""
    given = Metrics({"a": math.nan, "b@1": np.float64(0.5)}, {"b@2": "too few"})

    metrics = _guarded(lambda: given, "a", "b@<k>", "c").aggregate([])

    assert metrics.values == {"b@1": 0.5}
    assert metrics.undefined == {"a": "is nan, not finite", "b@2": "too few", "c": "the evaluator gave none"}


@rows(
    ("given", "says"),
    [
        ({"a": 1.0}, "gave a dict, not Metrics"),
        (Metrics({"a": 1.0, "other": 1.0}), "gave the key 'other', which its keys do not declare: they are a"),
        (Metrics({"a": 1.0}, {"b": "undefined"}), "gave the key 'b', which its keys do not declare: they are a"),
        (Metrics({"b@": 1.0}), "gave the key 'b@'"),
        (Metrics({1: 1.0}), "gave the key '1'"),  # pyright: ignore[reportArgumentType] - what foreign code may do
    ],
)
def test_metrics_that_are_none_fail_the_evaluator(given: object, says: str) -> None:
    """Keys that were not announced could be those of another evaluator of the request."""
    with pytest.raises(InternalError) as caught:
        _guarded(lambda: given).aggregate([])

    assert says in caught.value.message
    assert caught.value.reason == "EVALUATOR_FAILED"


def test_it_cannot_exit_while_it_counts() -> None:
    """That fails the evaluator, and leaves the worker alone."""
    with pytest.raises(InternalError, match="wanted to exit: SystemExit: 3"):
        _raising(SystemExit(3)).aggregate([])
