"""Workers in one process have nothing in common: each evaluates with its own parts, and refuses what it lacks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading

import pytest

from crucible_bridge.errors import Code
from crucible_bridge.types import EvaluateRequest, Sample, SamplingParams, Verdict
from crucible_worker.testing import ScriptedModel
from crucible_worker.util.limits import WorkerLimits
from tests.service.code_kit import needs_sandbox
from tests.service.evaluation_kit import accuracy, asked, refused, rig, samples_of

MATH = Sample(input="x+1", targets=("1+x", "X + 1"))
"""Right as mathematics alone, whatever case the model answers in."""


def _math(**fields: object) -> EvaluateRequest:
    return asked(evaluators=[accuracy(grader="math")], dataset=[MATH], **fields)


def _code() -> EvaluateRequest:
    return asked(
        evaluators=[accuracy(grader="code")],
        dataset=[Sample(input="an identity", targets=("assert f(1) == 1",))],
        sampling=SamplingParams(max_tokens=100),
    )


@pytest.mark.parametrize("call", ["evaluate", "start_evaluation"])
async def test_an_evaluation_that_needs_processes_is_refused_where_there_are_none(call: str) -> None:
    """When it is requested, as GradeMath is, before any sample; also where a judge would be asked second."""
    judged = accuracy(grader="rubric", grader_options={"judge": "embedded:m", "first": "math"})
    async with rig(grading_processes=0) as r:
        for request in (_math(), asked(evaluators=[judged])):
            await refused(getattr(r.evaluation, call)(request), Code.FAILED_PRECONDITION, "NO_GRADING_POOL")

    assert r.model.calls == 0


@needs_sandbox
async def test_an_evaluation_that_runs_programs_is_refused_where_none_may_run() -> None:
    """As GradeCode is, even if another worker of the process runs programs."""
    async with rig(code_sandboxes=1), rig(code_sandboxes=0) as r:
        await refused(r.evaluation.evaluate(_code()), Code.FAILED_PRECONDITION, "NO_SANDBOX")


async def test_a_worker_that_ends_takes_nothing_from_another_one() -> None:
    """Its processes are its own; neither has those of the worker that started last."""
    async with rig(grading_processes=2) as first:
        async with rig(grading_processes=2) as second:
            await second.evaluation.evaluate(_math())
            (of_second,) = await samples_of(second.worker.bridge)
        await first.evaluation.evaluate(_math())
        (of_first,) = await samples_of(first.worker.bridge)
        async with rig(grading_processes=0) as third:
            await refused(third.evaluation.evaluate(_math()), Code.FAILED_PRECONDITION, "NO_GRADING_POOL")

    assert (of_first.verdict, of_second.verdict) == (Verdict.CORRECT, Verdict.CORRECT)


@needs_sandbox
def test_workers_on_two_event_loops_evaluate_at_the_same_time() -> None:
    """Each with its own places, which belong to its loop."""
    both = threading.Barrier(2)

    async def evaluated() -> Verdict:
        async with rig(ScriptedModel(answer=lambda asked: "def f(x): return x"), code_sandboxes=1) as r:
            await asyncio.to_thread(both.wait)
            await r.evaluation.evaluate(_code())
            (sample,) = await samples_of(r.worker.bridge)
            await asyncio.to_thread(both.wait)
        return sample.verdict

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        found = [threads.submit(asyncio.run, evaluated()) for _ in range(2)]

        assert [each.result() for each in found] == [Verdict.CORRECT] * 2


def test_workers_on_two_event_loops_grade_by_their_own_settings() -> None:
    """Their processes start at the same time; the one that is left grades on, and neither loop reports an error."""
    both, first_ended = threading.Barrier(2), threading.Event()
    errors: list[object] = []

    async def graded(first: bool) -> tuple[list[Verdict], int]:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        limits = WorkerLimits(max_grading_items=2 if first else 5)
        model = ScriptedModel(answer=lambda asked: asked.upper() if first else "no")
        await asyncio.to_thread(both.wait)
        async with rig(model, grading_processes=2, limits=limits) as r:
            await r.evaluation.evaluate(_math())
            found = [sample.verdict for sample in await samples_of(r.worker.bridge)]
            await asyncio.to_thread(both.wait)
            if not first:
                await asyncio.to_thread(first_ended.wait)
                grades = (await r.worker.bridge.grading.grade_math([("1/2", "0.5"), ("1/2", "0.6")])).grades
                found += [grade.verdict for grade in grades]
            items = dict((await r.worker.bridge.worker.get_info()).limits)["max_grading_items"]
        if first:
            first_ended.set()
        return found, int(items)

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        running = [threads.submit(asyncio.run, graded(first)) for first in (True, False)]
        (of_first, of_second) = [each.result() for each in running]

    assert of_first == ([Verdict.CORRECT], 2)
    assert of_second == ([Verdict.INCORRECT, Verdict.CORRECT, Verdict.INCORRECT], 5)
    assert errors == []
