"""A model that fails in every way: its samples end all the same, every call is counted, and few are in vain."""

from __future__ import annotations

import collections
import dataclasses
import random

from crucible_bridge.errors import BackendError, BridgeError
from crucible_bridge.types import EvaluationState, Limits, Sample, SamplingParams, Verdict
from crucible_worker.runs.calls import ATTEMPTS_PER_CALL
from crucible_worker.testing import STALL, Call, ScriptedModel, Stall, run_worker
from tests.service.evaluation_kit import samples_of

SAMPLES = 5_000
MOST_CALLS = 1.4
"""Calls at most, as a share of the samples."""
MOST_ERRORS = 0.1
"""Likewise of samples that have no verdict: some 2 % of the calls cannot be made good."""
SAMPLE_TIMEOUT_MS = 2_000
"""A stall costs a sample this."""
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
    assert errors <= MOST_ERRORS * SAMPLES
    assert (counted.n, counted.n_errors, counted.n_scored) == (SAMPLES, errors, SAMPLES - errors)
