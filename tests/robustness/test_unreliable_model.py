"""A model that fails in every way: its samples end all the same, every call is counted, and few are in vain."""

from __future__ import annotations

import collections
import dataclasses
import math
import random

import pytest

from crucible_bridge.errors import BackendError, BridgeError
from crucible_bridge.types import EvaluationState, EvaluatorSpec, Limits, Sample, SamplingParams, Verdict
from crucible_worker.inference.retries import ATTEMPTS_PER_CALL
from crucible_worker.testing import STALL, Call, ScriptedModel, Stall, run_worker
from tests.service.evaluation_kit import samples_of

SAMPLES = 5_000
MOST_CALLS = 1.4
"""Calls at most, as a share of the samples."""
MOST_ERRORS = 0.1
"""Likewise of samples that have no verdict: some 2 % of the calls cannot be made good."""
SAMPLE_TIMEOUT_MS = 2_000
"""A stall costs a sample this."""
SAMPLES_OF_ALL = 2_000
"""Of each of ten evaluators."""
FAILED, STALLED, GARBAGE, LIMITED, REFUSED = "DOWN", "SAMPLE_TIMEOUT", "BACKEND_ANSWER", "LIMITED", "REFUSED"


@dataclasses.dataclass
class Faults:
    """Fails 10 %, stalls 1 %, talks nonsense 1 %, is limited 1 % and refuses 1 % for good; remembers what it did."""

    rng: random.Random = dataclasses.field(default_factory=lambda: random.Random(7))
    told: dict[str, list[str]] = dataclasses.field(default_factory=lambda: collections.defaultdict(list))
    """Of each prompt, what became of its calls, in order."""

    def __call__(self, call: Call) -> BridgeError | Stall | None:
        draw = self.rng.randrange(100)
        kind = FAILED if draw < 10 else {10: STALLED, 11: GARBAGE, 12: LIMITED, 13: REFUSED}.get(draw, "")
        self.told[call.text].append(kind)
        match kind:
            case "DOWN":
                return BackendError("is down", reason=FAILED)
            case "SAMPLE_TIMEOUT":
                return STALL
            case "BACKEND_ANSWER":
                return BackendError("said nonsense", reason=GARBAGE)
            case "LIMITED":
                return BackendError("has had enough", reason=LIMITED, retry_after=0.01)
            case "REFUSED":
                return BackendError("will not have this", reason=REFUSED, retryable=False)
        return None


async def test_every_sample_ends_and_every_call_is_counted(tmp_path):
    """Each sample is right, or an error that says why; no call follows one that cannot help, or a stall."""
    faults = Faults()
    model = ScriptedModel(fault=faults)
    samples = [Sample(id=f"s{index}", input=f"q{index}", targets=(f"Q{index}",)) for index in range(SAMPLES)]
    async with run_worker({"m": model}, state_dir=tmp_path) as worker:
        evaluation = await worker.bridge.evaluation.evaluate(
            model="embedded:m",
            evaluators=["accuracy"],
            dataset=samples,
            sampling=SamplingParams(max_tokens=8),
            limits=Limits(concurrency=100, sample_timeout_ms=SAMPLE_TIMEOUT_MS),
        )
        results = {result.sample_id: result for result in await samples_of(worker.bridge, evaluation.evaluation_id)}
    assert evaluation.state is EvaluationState.COMPLETED
    assert len(results) == SAMPLES
    assert model.calls == sum(result.attempts for result in results.values())
    assert SAMPLES < model.calls <= MOST_CALLS * SAMPLES
    for sample in samples:
        result, told = results[sample.id], faults.told[str(sample.input)]
        *before, last = told
        assert result.attempts == len(told) <= ATTEMPTS_PER_CALL
        assert not {REFUSED, STALLED} & set(before)
        if result.problem is None:
            assert (result.verdict, last) == (Verdict.CORRECT, "")
        else:
            # Its time may be over while it waits for its next try, or for a busy machine.
            assert (result.verdict, result.problem.reason) in {(Verdict.ERROR, last), (Verdict.ERROR, STALLED)}
    (counted,) = evaluation.results
    errors = sum(result.verdict is Verdict.ERROR for result in results.values())
    in_vain = [sample for sample in samples if faults.told[str(sample.input)][-1]]
    assert len(in_vain) <= MOST_ERRORS * SAMPLES
    assert (counted.n, counted.n_errors, counted.n_scored) == (SAMPLES, errors, SAMPLES - errors)


def evaluators() -> tuple[EvaluatorSpec, ...]:
    """Ten, of every kind that can be asked about a text with a target and choices."""
    return (
        EvaluatorSpec(kind="accuracy", name="a", options={"grader": "exact_match"}),
        EvaluatorSpec(kind="bits_per_byte"),
        EvaluatorSpec(kind="multiple_choice", name="byte", options={"measure": "per_byte"}),
        EvaluatorSpec(kind="multiple_choice", name="letters", options={"form": "letters"}),
        EvaluatorSpec(kind="next_token_accuracy"),
        EvaluatorSpec(kind="nll"),
        EvaluatorSpec(kind="pass_at_k", options={"grader": "exact_match", "ks": [1, 2], "samples_per_prompt": 2}),
        EvaluatorSpec(kind="perplexity"),
        EvaluatorSpec(kind="rl_test_set", options={"grader": "exact_match", "group_size": 2}),
        EvaluatorSpec(kind="rollout", options={"grader": "contains", "samples_per_prompt": 2}),
    )


async def test_ten_evaluators_of_one_request_end_and_count_everything():
    """What fails is an error and counts nowhere: each metric is that of a model which is right whenever it answers."""
    model = ScriptedModel(
        fault=Faults(),
        trained=False,
        logprob=lambda token, position: -50.0 if chr(token) in "BCWX" else -2.0,
        likeliest=lambda token, position: token,
    )
    samples = [
        # Its letter is A, the only one that is likely.
        Sample(id=f"s{index}", input=f"q{index}", targets=(f"Q{index}",), choices=(f"Q{index}", "W", "X"))
        for index in range(SAMPLES_OF_ALL)
    ]
    async with run_worker({"m": model}) as worker:
        evaluation = await worker.bridge.evaluation.evaluate(
            model="embedded:m",
            evaluators=evaluators(),
            dataset=samples,
            sampling=SamplingParams(max_tokens=8, temperature=1.0),
            limits=Limits(concurrency=200, sample_timeout_ms=SAMPLE_TIMEOUT_MS, max_unscored_share=1.0),
        )
        results = await samples_of(worker.bridge, evaluation.evaluation_id)
    assert evaluation.state is EvaluationState.COMPLETED
    assert model.calls == sum(result.attempts for result in results)
    for counted in evaluation.results:
        own = [result for result in results if result.evaluator == counted.evaluator.label]
        errors = [result for result in own if result.verdict is Verdict.ERROR]
        assert counted.problem is None
        assert (counted.n, counted.n_errors, counted.n_scored) == (len(own), len(errors), len(own) - len(errors))
        assert len(own) == SAMPLES_OF_ALL * counted.evaluator.options.get("samples_per_prompt", 1)
        assert {error.problem.reason for error in errors if error.problem} <= {
            FAILED,
            STALLED,
            GARBAGE,
            LIMITED,
            REFUSED,
        }
        # A machine that is busy with other things may let any sample's time run out.
        in_vain = [error for error in errors if error.problem and error.problem.reason != STALLED]
        assert len(in_vain) <= MOST_ERRORS * len(own)
        assert 0 < len(errors) < len(own)
    values = evaluation.metrics.values
    ones = {"a/accuracy", "byte/accuracy", "letters/accuracy", "pass@1", "pass@2"}
    ones |= {"next_token_accuracy", "score_mean", "env/all/reward/total"}
    assert {key: values[key] for key in ones} == dict.fromkeys(ones, 1.0)
    assert (values["nll"], values["perplexity"]) == (2.0, math.exp(2))
    assert values["bits_per_byte"] == pytest.approx(2 / math.log(2))
