"""The best steps of a plan when workers die: each is reported once, in the order of steps."""

from __future__ import annotations

from pathlib import Path

from crucible_bridge.events import EventKind
from crucible_bridge.types import (
    Dataset,
    EvaluationPlan,
    EvaluatorSpec,
    Goal,
    Limits,
    Patience,
    PlannedEvaluation,
    Sample,
    SamplingParams,
)
from tests.robustness.evidence import log_of
from tests.robustness.harness import WorkerProcess, count_lines, until, workshop

BETTER = 4
"""Steps of which each is better than the one before."""
EQUAL = 2
"""Steps after them, which are not better than the last of these."""
KILLED = (1, 2, 4)
"""Steps whose worker is killed: during the evaluation, or when it has just ended."""
WHOLE_SECONDS = 300.0
"""For the test: each of its workers may take a while to start."""


def _models(folder: Path) -> dict[str, dict[str, object]]:
    """Each model reads longer prompts than the one before; what is too long for it is not scored."""
    calls = {"latency": 0.01, "call_file": str(folder / "calls")}
    return {f"m{step}": {**calls, "context_length": 10 * (step + 1)} for step in range(BETTER)}


def _plan() -> EvaluationPlan:
    samples = tuple(Sample(id=f"s{n}", input="a" * (n + 1), targets=("A" * (n + 1),)) for n in range(10 * BETTER))
    planned = PlannedEvaluation(
        evaluators=(EvaluatorSpec(kind="accuracy", options={"grader": "exact_match"}),),
        dataset=Dataset.of(samples),
        sampling=SamplingParams(max_tokens=100),
        limits=Limits(max_unscored_share=1.0),
    )
    patience = Patience(metric="accuracy_strict", goal=Goal.HIGHER, patience=EQUAL)
    return EvaluationPlan(plan_id="p", run_id="run", eval_every=1, evaluations=(planned,), patience=patience)


async def _ended(worker: WorkerProcess, evaluation_id: str) -> None:
    async with worker.bridge.evaluation.watch_evaluation(evaluation_id, without_samples=True) as stream:
        async for _ in stream:
            pass


async def _reported(worker: WorkerProcess) -> list[tuple[EventKind, int | None]]:
    log = await log_of(worker.bridge)
    return [(event.kind, event.step) for event in log if event.kind in (EventKind.RUN_BEST, EventKind.RUN_PLATEAU)]


async def test_each_best_step_is_reported_once(tmp_path: Path):
    """Whether the worker is killed while it evaluates, or between the evaluation's end and the look at its plan."""
    async with workshop(tmp_path, _models(tmp_path), seconds=WHOLE_SECONDS) as shop:
        worker, spare = await shop.start(), shop.launch()
        await worker.bridge.evaluation.register_plan(_plan())
        for step in range(BETTER + EQUAL):
            model = f"embedded:m{min(step, BETTER - 1)}"
            before = count_lines(tmp_path / "calls")
            (started,) = await worker.bridge.evaluation.notify_step("p", step, model)
            name = started.evaluation.evaluation_id
            if step in KILLED:
                if step % 2:
                    await until(lambda before=before: count_lines(tmp_path / "calls") > before)
                else:
                    await _ended(worker, name)
                worker.kill()
                worker, spare = await spare.ready(), shop.launch()
                await worker.bridge.evaluation.notify_step("p", step, model)
            await _ended(worker, name)

        async def all_reported() -> bool:
            return (EventKind.RUN_PLATEAU, BETTER + EQUAL - 1) in await _reported(worker)

        await until(all_reported, 60)
        best = [(EventKind.RUN_BEST, step) for step in range(BETTER)]
        assert await _reported(worker) == [*best, (EventKind.RUN_PLATEAU, BETTER + EQUAL - 1)]
