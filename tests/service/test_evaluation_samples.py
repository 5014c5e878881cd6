"""What becomes of single samples: time-outs, retries, bad answers, and how many are asked at once."""

import asyncio
import json
import math
from typing import Any

import pytest

from crucible_bridge.errors import BackendError, InvalidField, Unavailable
from crucible_bridge.events import EventKind
from crucible_bridge.types import EvaluationState, Limits, Sample, Verdict
from crucible_worker.grading.text import ExactMatch
from crucible_worker.inference.retries import ATTEMPTS_PER_CALL, MIN_RETRIES
from crucible_worker.testing import STALL, ScriptedModel, run_worker
from crucible_worker.util.limits import WorkerLimits
from tests.service.evaluation_kit import (
    HeldModel,
    accuracy,
    asked,
    failing,
    log_of,
    nll,
    numbered,
    rig,
    samples_of,
    state_of,
    verdicts_of,
)
from tests.tables import rows


def failing_at_first(times, **options):
    """A fault: each prompt fails so many times, then no more."""
    seen: dict[str, int] = {}

    def fault(call):
        seen[call.text] = seen.get(call.text, 0) + 1
        return failing(**options)(call) if seen[call.text] <= times else None

    return fault


async def test_retryable_error_is_asked_again():
    """A retryable error, then success: the calls are counted, and there is one SAMPLE_COMPLETE with attempt 1."""
    async with rig(ScriptedModel(fault=failing_at_first(2, retryable=True, retry_after=0.001))) as r:
        evaluation = await r.evaluation.evaluate(asked())
        samples = await samples_of(r.worker.bridge)
        events = await log_of(r.worker.bridge, kinds=[EventKind.SAMPLE_COMPLETE])

    assert evaluation.metrics.values["accuracy"] == 1.0
    assert [sample.attempts for sample in samples] == [3, 3]
    assert [event.metadata["attempt"] for event in events] == ["1", "1"]


async def test_error_that_is_final_is_not_asked_again():
    """A non-retryable error is asked once: ERROR with its reason, field and message."""

    def fault(call):
        return InvalidField("prompt", "is nonsense", reason="NONSENSE") if call.text == "a" else None

    async with rig(ScriptedModel(fault=fault)) as r:
        await r.evaluation.evaluate(asked())
        broken, sound = await samples_of(r.worker.bridge)

    assert (broken.verdict, broken.attempts, broken.score) == (Verdict.ERROR, 1, None)
    assert broken.problem is not None
    assert (broken.problem.reason, broken.problem.field, broken.problem.message) == (
        "NONSENSE",
        "prompt",
        "is nonsense",
    )
    assert not broken.problem.retryable
    assert sound.verdict is Verdict.CORRECT


async def test_one_call_is_made_a_bounded_number_of_times():
    """A call that fails every time is made ATTEMPTS_PER_CALL times, then the sample is an ERROR that may be retried."""
    async with rig(ScriptedModel(fault=failing("a", retryable=True, retry_after=0.0))) as r:
        await r.evaluation.evaluate(asked())
        broken, sound = await samples_of(r.worker.bridge)

    assert (broken.attempts, sound.attempts) == (ATTEMPTS_PER_CALL, 1)
    assert broken.problem is not None
    assert (broken.problem.reason, broken.problem.retryable) == ("BACKEND_DOWN", True)


async def test_each_sample_has_its_own_tries():
    """Many that fail do not take the tries of those that come later: these may be answered by then."""
    count = 20
    async with rig(ScriptedModel(fault=failing(retryable=True, retry_after=0.0))) as r:
        evaluation = await r.evaluation.evaluate(asked(dataset=numbered(count)))

    assert r.model.counts["sample"] == count * ATTEMPTS_PER_CALL
    assert evaluation.results[0].n_errors == count
    assert evaluation.state is EvaluationState.COMPLETED


@pytest.mark.parametrize(("count", "budget"), [(20, MIN_RETRIES), (100, 30)])
async def test_repeated_answers_of_an_attempt_have_a_budget(count: int, budget: int):
    """A model whose answers cannot be used is asked once a sample, and as often again as the budget says."""

    def fault(call: Any) -> BackendError:
        return BackendError("says nonsense", reason="BACKEND_ANSWER", retry_after=0.0)

    async with rig(ScriptedModel(fault=fault)) as r:
        evaluation = await r.evaluation.evaluate(asked(dataset=numbered(count)))

    assert r.model.counts["sample"] == count + min(budget, count)
    assert evaluation.results[0].n_errors == count


async def test_retry_after_is_honoured():
    """The next try does not come before the backend wants it."""
    times = []
    loop = asyncio.get_running_loop()

    def fault(call):
        times.append(loop.time())
        return BackendError("busy", retry_after=0.15) if len(times) == 1 else None

    async with rig(ScriptedModel(fault=fault)) as r:
        await r.evaluation.evaluate(asked(dataset=numbered(1)))

    assert len(times) == 2
    # The backoff of a first retry is drawn from 0.05 to 0.1 s: below what was asked for.
    assert times[1] - times[0] >= 0.15


async def test_sample_time_out_is_an_error_of_the_sample():
    """A sample that takes longer than sample_timeout_ms is ERROR, SAMPLE_TIMEOUT, worth a retry; the others stand."""
    async with rig(ScriptedModel(fault=lambda call: STALL if call.text == "a" else None)) as r:
        evaluation = await r.evaluation.evaluate(asked(limits=Limits(sample_timeout_ms=50, max_unscored=1)))
        stalled, sound = await samples_of(r.worker.bridge)

    assert evaluation.state is EvaluationState.COMPLETED
    assert (stalled.verdict, sound.verdict) == (Verdict.ERROR, Verdict.CORRECT)
    assert stalled.problem is not None
    assert (stalled.problem.reason, stalled.problem.retryable) == ("SAMPLE_TIMEOUT", True)
    assert r.model.counts["in_flight"] == 0


async def test_sample_time_out_covers_its_retries():
    """Retries happen inside the sample's time: a backend that wants a longer wait ends it at once, with its reason."""
    async with rig(ScriptedModel(fault=failing("a", retryable=True, retry_after=60.0))) as r:
        await r.evaluation.evaluate(asked(limits=Limits(sample_timeout_ms=50)))
        stalled, _ = await samples_of(r.worker.bridge)

    assert stalled.problem is not None
    assert stalled.problem.reason == "BACKEND_DOWN"
    assert stalled.attempts == 1


async def test_a_sample_that_gets_further_outlives_the_default_time():
    """Neither the worker's default time of a sample nor that of a stall ends one whose models keep answering."""
    seconds = 3.0
    spec = accuracy(grader="rubric", grader_options={"judge": "embedded:j"})
    judge = ScriptedModel(
        answer=lambda _: json.dumps({"correct": {"reason": "So.", "score": 1}}), latency=0.6 * seconds
    )
    models = {"m": ScriptedModel(latency=0.6 * seconds), "j": judge}
    limits = WorkerLimits(default_sample_timeout_seconds=seconds, default_stall_timeout_seconds=seconds)
    async with run_worker(models, limits=limits) as worker:
        evaluation = await worker.bridge.evaluation.evaluate(asked(evaluators=[spec], dataset=numbered(1)))
        (result,) = await samples_of(worker.bridge)

    assert (evaluation.state, result.problem) == (EvaluationState.COMPLETED, None)
    assert result.duration_ns > seconds * 1e9


async def test_stall_fails_the_evaluation():
    """When no sample is done for stall_timeout_ms: FAILED, STALLED; what was done is kept, calls are cancelled."""
    async with rig(ScriptedModel(fault=lambda call: STALL if call.text == "b" else None)) as r:
        evaluation = await r.evaluation.evaluate(asked(limits=Limits(stall_timeout_ms=1_000)))
        verdicts = await verdicts_of(r.worker.bridge)

    assert state_of(evaluation) == (EvaluationState.FAILED, "STALLED")
    assert (verdicts, evaluation.done, evaluation.metrics.values) == ([Verdict.CORRECT], 1, {})
    assert r.model.counts["in_flight"] == 0


async def test_progress_keeps_a_slow_evaluation_from_stalling():
    """Samples that come one by one, each within stall_timeout_ms, are no stall, however long all of them take."""
    async with rig(ScriptedModel(latency=0.05)) as r:
        evaluation = await r.evaluation.evaluate(
            asked(dataset=numbered(8), limits=Limits(concurrency=1, stall_timeout_ms=300))
        )

    assert evaluation.state is EvaluationState.COMPLETED
    assert evaluation.duration_ns > 300e6


@rows(
    ("limits", "worker", "peak"),
    [
        (Limits(concurrency=1), {}, 1),
        (Limits(concurrency=3), {}, 3),
        (Limits(), {"default_concurrency": 2}, 2),
        (Limits(concurrency=4), {"max_concurrency": 4, "default_concurrency": 1}, 4),
        (Limits(concurrency=1000), {}, 12),
    ],
)
async def test_concurrency_is_kept(limits, worker, peak):
    """As many samples at once as the request says, or the worker's default, and not one more."""
    async with rig(ScriptedModel(latency=0.01), **worker) as r:
        await r.evaluation.evaluate(asked(dataset=numbered(12), limits=limits))

    assert r.model.counts["peak"] == peak


async def test_cancel_stops_model_calls():
    """After a cancel no model call starts, and those in flight are cancelled."""
    async with rig(HeldModel()) as r:
        await r.evaluation.start_evaluation(asked(dataset=numbered(20), limits=Limits(concurrency=4)))
        await r.model.asked.wait()
        evaluation = await r.evaluation.cancel_evaluation("e")
        r.model.let_go.set()
        await r.told(EventKind.EVALUATION_STOP)

        assert evaluation.state is EvaluationState.CANCELLED
        assert r.model.counts["sample"] == 4
        assert await samples_of(r.worker.bridge) == []


async def test_samples_tell_what_the_model_said():
    """A result has output, what was graded, stop_reason, tokens, time and number of calls."""
    async with rig(ScriptedModel(answer=lambda prompt: f"it is {prompt}")) as r:
        await r.evaluation.evaluate(asked(dataset=[Sample(id="x", input="a", targets=("it is a",))]))
        (sample,) = await samples_of(r.worker.bridge)

    assert (sample.sample_id, sample.output, sample.stop_reason) == ("x", "it is a", "stop")
    assert (sample.output_tokens, sample.attempts, sample.score) == (7, 1, 1.0)
    assert sample.duration_ns > 0
    assert sample.method


async def test_prompt_longer_than_the_context_is_an_error_and_never_cut():
    """ERROR with the reason, asked once, with its whole prompt; the others are measured."""
    async with rig(ScriptedModel(context_length=3)) as r:
        evaluation = await r.evaluation.evaluate(
            asked(dataset=[Sample(input="long", targets=("LONG",)), Sample(input="abc", targets=("ABC",))])
        )
        long, short = await samples_of(r.worker.bridge)

    assert long.problem is not None
    assert (long.verdict, long.problem.reason, long.output) == (Verdict.ERROR, "PROMPT_TOO_LONG", "")
    assert short.verdict is Verdict.CORRECT
    assert evaluation.results[0].n_errors == 1
    assert r.model.counts["sample"] == 2


async def test_every_sample_failing_leaves_accuracy_undefined():
    """No sample scored: accuracy is undefined with that reason, accuracy_strict 0; the evaluation is COMPLETED."""
    async with rig(ScriptedModel(fault=failing())) as r:
        evaluation = await r.evaluation.evaluate(asked(evaluators=["accuracy", "nll"]))

    assert evaluation.state is EvaluationState.COMPLETED
    assert evaluation.metrics.undefined["accuracy"] == "no sample was scored"
    assert evaluation.metrics.undefined["nll"] == "no sample was scored"
    assert evaluation.metrics.values == {"accuracy_strict": 0.0}
    assert [(result.n_scored, result.n_errors) for result in evaluation.results] == [(0, 2), (0, 2)]


@rows(
    ("value", "verdict", "reason"),
    [(math.nan, Verdict.ERROR, "NAN_LOGPROB"), (math.inf, Verdict.ERROR, "IMPOSSIBLE_LOGPROBS")],
)
@rows("client", ["training", "sampling"])
async def test_log_probability_that_is_no_number_is_an_error(value, verdict, reason, client):
    """NaN or +inf: the sample is ERROR with that reason, not retried, and the mean is that of the others."""
    model = ScriptedModel(logprob=lambda token, position: value if token == ord("A") else -2.0)
    async with rig(model) as r:
        evaluation = await r.evaluation.evaluate(asked(evaluators=[nll(client=client)]))
        broken, _ = await samples_of(r.worker.bridge)

    assert broken.problem is not None
    assert (broken.verdict, broken.problem.reason, broken.problem.retryable) == (verdict, reason, False)
    assert broken.attempts == 1
    assert evaluation.metrics.values == {"nll": 2.0}
    assert (evaluation.results[0].n_scored, evaluation.results[0].n_errors) == (1, 1)


async def test_impossible_token_leaves_nll_undefined():
    """Minus infinity is a measurement: the sample is MEASURED without a score, and nll is undefined with the count."""
    async with rig(ScriptedModel(logprob=lambda token, position: -math.inf if token == ord("A") else -2.0)) as r:
        evaluation = await r.evaluation.evaluate(asked(evaluators=["nll"]))
        impossible, _ = await samples_of(r.worker.bridge)

    assert (impossible.verdict, impossible.score, impossible.problem) == (Verdict.MEASURED, None, None)
    assert evaluation.metrics.values == {}
    assert "-inf" in evaluation.metrics.undefined["nll"]
    assert evaluation.results[0].n_unscored == 0


class Panic(BaseException):
    """What a library that is not written in Python may raise."""


@pytest.mark.parametrize("error", [ZeroDivisionError, Panic])
async def test_a_bug_of_the_model_is_an_error_of_its_sample(error):
    """What is no BridgeError becomes ERROR without its text, which may hold anything; the worker lives."""

    class Broken(ScriptedModel):
        async def sample(self, prompt, params, num_samples=1):
            raise error("a secret")

    async with rig(Broken()) as r:
        evaluation = await r.evaluation.evaluate(asked())
        samples = await samples_of(r.worker.bridge)

    assert evaluation.state is EvaluationState.COMPLETED
    assert {sample.problem.reason for sample in samples if sample.problem} == {"EVALUATOR_FAILED"}
    assert "secret" not in str(samples)


async def test_a_cancelled_await_costs_its_own_sample_alone(monkeypatch):
    """A grader that ends like a cancellation that no one asked for is an error of that sample; the others are run."""
    judge = ExactMatch.grade

    async def grade(self, response, targets, choices=()):
        if response == "Q0":
            raise asyncio.CancelledError
        return await judge(self, response, targets, choices)

    monkeypatch.setattr(ExactMatch, "grade", grade)
    async with rig() as r:
        request = asked(dataset=numbered(10), limits=Limits(concurrency=1, max_unscored=1))
        evaluation = await r.evaluation.evaluate(request)
        samples = await samples_of(r.worker.bridge)

    assert evaluation.state is EvaluationState.COMPLETED
    assert [sample.verdict for sample in samples] == [Verdict.ERROR] + [Verdict.CORRECT] * 9
    assert samples[0].problem is not None
    assert (samples[0].problem.reason, samples[0].problem.retryable) == ("EVALUATOR_FAILED", False)


class Unloadable(ScriptedModel):
    """Cannot be loaded."""

    retryable = True

    async def load(self) -> None:
        """Count, and fail.

        Raises:
            BackendError: always.
        """
        await super().load()
        raise BackendError("cannot be read", reason="BACKEND_LOAD", retryable=self.retryable, retry_after=0.0)


async def test_model_that_cannot_be_loaded_fails_the_evaluation():
    """A load that fails for good is FAILED with the backend's reason; no sample is asked."""
    model = Unloadable()
    model.retryable = False
    async with rig(model) as r:
        evaluation = await r.evaluation.evaluate(asked())

    assert state_of(evaluation) == (EvaluationState.FAILED, "BACKEND_LOAD")
    assert (r.model.loads, r.model.calls) == (1, 0)


async def test_model_that_cannot_be_loaded_now_is_waited_for():
    """A load that fails with what may pass is an outage: in the end the evaluation is interrupted, and can resume."""
    async with rig(Unloadable(), outage_seconds=0.2) as r:
        with pytest.raises(Unavailable, match="waited too long for model embedded:m"):
            await r.evaluation.evaluate(asked())
        evaluation = await r.evaluation.get_evaluation("e")

    assert (evaluation.state, evaluation.problem) == (EvaluationState.INTERRUPTED, None)
    assert r.model.calls == 0
