"""What the demo makes of a worker that cannot run it, and of evaluations that fail."""

from typing import Any, cast

import pytest

from crucible_bridge import Bridge
from crucible_bridge.types import (
    BackendInfo,
    BuiltinDataset,
    Dataset,
    EmbeddedModel,
    EvaluateRequest,
    Evaluation,
    EvaluationState,
    EvaluatorResult,
    EvaluatorSpec,
    Metrics,
    Problem,
    WorkerInfo,
)
from crucible_worker.cli import demo as module


class _Worker:
    """Says what it is told to; warm at the second look."""

    def __init__(self, *backends: BackendInfo) -> None:
        self.looks = 0
        self._info = WorkerInfo(worker_id="w", version="0", backends=backends)

    async def health(self, service: str) -> bool:
        self.looks += 1
        return self.looks > 1

    async def get_info(self) -> WorkerInfo:
        return self._info


class _Bridge:
    def __init__(self, worker: _Worker) -> None:
        self.worker = worker


async def _models(*backends: BackendInfo) -> Any:
    return await module._models(cast(Bridge, _Bridge(_Worker(*backends))))


async def test_every_embedded_checkpoint_is_a_step():
    """The worker says which there are; the step is in the name."""
    assert await _models(BackendInfo(name="embedded", models=("sums@5", "sums@70"))) == [("sums@5", 5), ("sums@70", 70)]


async def test_without_the_extra_the_reason_is_told():
    """What the worker says to install is what the user reads."""
    with pytest.raises(module._DemoFailed, match="install the extra"):
        await _models(BackendInfo(name="embedded", models=("sums@5",), unavailable="install the extra"))


async def test_a_worker_without_embedded_models_is_refused():
    """There is nothing to show then."""
    with pytest.raises(module._DemoFailed, match="has none"):
        await _models(BackendInfo(name="local"))


def _evaluation(state: EvaluationState, *, problem: Problem | None = None, of: Problem | None = None) -> Evaluation:
    spec = EvaluatorSpec(kind="nll")
    request = EvaluateRequest(
        step=5, model=EmbeddedModel("sums@5"), evaluators=(spec,), dataset=Dataset(source=BuiltinDataset("sums"))
    )
    results = (EvaluatorResult(evaluator=spec, metrics=Metrics({}), problem=of),)
    return Evaluation(evaluation_id="e", state=state, request=request, results=results, problem=problem)


@pytest.mark.parametrize(
    "evaluation",
    [
        _evaluation(EvaluationState.FAILED, problem=Problem(reason="R", message="told why")),
        _evaluation(EvaluationState.COMPLETED, of=Problem(reason="R", message="told why")),
        _evaluation(EvaluationState.CANCELLED, problem=Problem(reason="R", message="told why")),
    ],
)
def test_an_evaluation_that_did_not_succeed_fails_the_demo(evaluation: Evaluation):
    """The step, its state and the reason are told; one evaluator that failed is enough."""
    with pytest.raises(module._DemoFailed, match=rf"step 5 is {evaluation.state.value}: told why"):
        module._refuse_failure(evaluation)


def test_an_evaluation_that_succeeded_passes():
    """Nothing is refused without a reason."""
    module._refuse_failure(_evaluation(EvaluationState.COMPLETED))
