"""Plans when workers die, and when several are told of one step."""

from __future__ import annotations

import asyncio
from pathlib import Path

from crucible_bridge.client import StartedEvaluation
from crucible_bridge.types import EvaluationPlan, EvaluationState, EvaluatorSpec, PlannedEvaluation
from tests.robustness.evidence import check_events, check_interrupted_run, log_of, request
from tests.robustness.harness import WorkerProcess, count_lines, until, workshop

STEPS = 10
SAMPLES = 60
"""Of each evaluation."""
KILLED_AFTER = (2, 5)
"""Steps after which the worker that was told of them is killed, while their evaluations run."""
LATENCY, CONCURRENCY = 0.04, 4
"""Of a model call, seconds, and calls at once: an evaluation takes 0.6 s, and is at work when its worker is killed."""


def _models(folder: Path) -> dict[str, dict[str, object]]:
    return {"m": {"latency": LATENCY, "call_file": str(folder / "calls")}}


def _plan() -> EvaluationPlan:
    """Both kinds on one data set, and a frequent one that is an evaluation of its own."""
    whole = request("unused", samples=SAMPLES, concurrency=CONCURRENCY)

    def planned(*kinds: str, name: str | None = None, prefix: str = "") -> PlannedEvaluation:
        specs = tuple(EvaluatorSpec(kind=kind, name=name) for kind in kinds)
        return PlannedEvaluation(
            evaluators=specs, dataset=whole.dataset, sampling=whole.sampling, limits=whole.limits, metric_prefix=prefix
        )

    return EvaluationPlan(
        plan_id="p",
        run_id="run",
        eval_every=1,
        evaluations=(planned("nll"), planned("nll", prefix="own/")),
        infrequent_eval_every=5,
        infrequent_evaluations=(planned("accuracy"),),
    )


async def _told(worker: WorkerProcess, step: int) -> tuple[StartedEvaluation, ...]:
    return await worker.bridge.evaluation.notify_step("p", step, "embedded:m", last=step == STEPS - 1)


async def test_a_plan_outlives_its_workers(tmp_path):
    """The successor of a killed worker knows the plan, and goes on with a step told again; no sample is repeated."""
    async with workshop(tmp_path, _models(tmp_path)) as shop:
        worker, spare = await shop.start(), shop.launch()
        registered = await worker.bridge.evaluation.register_plan(_plan())
        ids: list[str] = []
        for step in range(STEPS):
            before = count_lines(tmp_path / "calls")
            started = await _told(worker, step)
            ids += [one.evaluation.evaluation_id for one in started]
            if step in KILLED_AFTER:
                await until(lambda before=before: count_lines(tmp_path / "calls") > before)
                worker.kill()
                worker, spare = await spare.ready(), shop.launch()
                again = await worker.bridge.evaluation.register_plan(_plan())
                assert (again.fingerprint, again.existed) == (registered.fingerprint, True)
                retold = await _told(worker, step)
                assert [(one.evaluation.evaluation_id, one.existed) for one in retold] == [
                    (one.evaluation.evaluation_id, True) for one in started
                ]
        assert len(ids) == len(set(ids)) == 2 * STEPS
        # Those that ran beside a killed step's are told again too; ended ones are as they were.
        for step in range(STEPS):
            await _told(worker, step)
        bridge = worker.bridge
        ended = [await until_ended(worker, name) for name in ids]
        log = await log_of(bridge)
        check_events(log)
        attempts = []
        for evaluation in ended:
            check_interrupted_run(log, evaluation, SAMPLES)
            attempts.append(evaluation.attempt)
        assert max(attempts) > 1, "no kill hit"
        both = [evaluation.evaluation_id for evaluation in ended if len(evaluation.results) == 2]
        assert both == ["p-step-0-0", "p-step-5-0", "p-step-9-0"]
        assert len((await bridge.evaluation.list_evaluations(run_id="run")).items) == len(ids)


async def until_ended(worker: WorkerProcess, evaluation_id: str):
    """Wait for an evaluation to end well."""
    async with worker.bridge.evaluation.watch_evaluation(evaluation_id, without_samples=True) as stream:
        async for _ in stream:
            pass
    evaluation = await worker.bridge.evaluation.get_evaluation(evaluation_id)
    assert evaluation.state is EvaluationState.COMPLETED
    return evaluation


async def test_workers_that_are_told_of_one_step_at_once_start_it_once(tmp_path):
    """Two workers, each told twice, with and without `last`: every part of the plan is evaluated once."""
    async with workshop(tmp_path, _models(tmp_path)) as shop:
        pool = await shop.start_several(2)
        registered = await asyncio.gather(
            *(worker.bridge.evaluation.register_plan(_plan()) for worker in pool for _ in range(2))
        )
        assert sorted(one.existed for one in registered) == [False, True, True, True]
        for step in range(1, 4):
            before = count_lines(tmp_path / "calls")
            told = await asyncio.gather(
                *(
                    worker.bridge.evaluation.notify_step("p", step, "embedded:m", last=last)
                    for worker in pool
                    for last in (False, True)
                )
            )
            started = [one.evaluation.evaluation_id for answer in told for one in answer if not one.existed]
            assert len(started) == len(set(started))
            assert {one.evaluation.evaluation_id for answer in told for one in answer} == set(started)
            ended = [await until_ended(pool[0], name) for name in started]
            specs = sorted(
                evaluation.request.metric_prefix + result.evaluator.kind
                for evaluation in ended
                for result in evaluation.results
            )
            assert specs == ["accuracy", "nll", "own/nll"]
            assert count_lines(tmp_path / "calls") - before == 3 * SAMPLES
        check_events(await log_of(pool[1].bridge))
