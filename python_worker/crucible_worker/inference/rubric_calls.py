"""Direct calls to a judge: a batch of responses; each item gets a grade or a problem."""

from __future__ import annotations

import dataclasses
import re
import secrets

from crucible_bridge.errors import BridgeError, FailedPrecondition, InvalidField
from crucible_bridge.problems import at_field
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Grade,
    GradeRubricRequest,
    OrchestratorModel,
    Problem,
    RubricGrade,
    RubricGrades,
    RubricItem,
    SamplingParams,
    Verdict,
)
from crucible_worker.backends.base import ANSWERING, Model
from crucible_worker.grading.judge.rubric import MAX_CRITERIA, Judge, Rubric, spent
from crucible_worker.grading.judge.texts import MARK_CHARS
from crucible_worker.inference.batches import Ask, ask_all
from crucible_worker.inference.model_calls import Backends, bounds_of
from crucible_worker.inference.retries import sample_seed
from crucible_worker.rendering import RENDERER_PATTERN, check_renderer
from crucible_worker.util.limits import WorkerLimits

__all__ = ["ask_rubric"]


async def ask_rubric(
    backends: Backends, request: GradeRubricRequest, *, limits: WorkerLimits, received: float
) -> RubricGrades:
    """Grade responses by a judge.

    The mark that delimits responses is random for each request: the author of a response cannot know it.

    Args:
        backends: by the kind of reference that they open.
        request: the call's.
        limits: the worker's.
        received: time of receipt by the event loop's clock; the deadline counts from it.

    Raises:
        InvalidField: there are too many items or criteria, the judge is the orchestrator's, the renderer is none, or a
            bound is beyond the worker's.
        BridgeError: see `ask_all`, the judge's at `judge`.
    """
    bounds = bounds_of(request.limits, len(request.items), "items", limits=limits, received=received)
    _check(request)
    rubric = Rubric(criteria=request.criteria, threshold=request.threshold)
    mark = secrets.token_hex(MARK_CHARS // 2)

    def asker(model: Model) -> Ask[RubricItem, RubricGrade]:
        if model.capabilities.isdisjoint(ANSWERING):
            raise FailedPrecondition("does not sample", reason=Reason.MISSING_CLIENT, field="judge")

        async def ask(index: int, item: RubricItem) -> RubricGrade:
            judge = Judge(model=model, sampling=_seeded(request.sampling, index), renderer=request.renderer)
            try:
                return await rubric.grade(item, judge, mark)
            except BridgeError as error:
                # The judge's prompt is made from the item: it is no field that the caller knows.
                field = "judge" if error.field == "judge.model" else f"items[{index}]"
                raise at_field(error, field, own=error.field) from error

        return ask

    answers = await ask_all(backends, request.judge, request.items, asker, bounds=bounds, field="judge")
    grades = tuple(
        _failed(item, result) if isinstance(result, Problem) else result
        for item, result in zip(request.items, answers.results)
    )
    prompt_tokens, completion_tokens = spent(grades)
    return RubricGrades(
        grades=grades,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        judge_fingerprint=answers.model_fingerprint,
        usage=answers.usage,
    )


def _check(request: GradeRubricRequest) -> None:
    if len(request.criteria) > MAX_CRITERIA:
        raise InvalidField("criteria", f"has {len(request.criteria):,}, at most {MAX_CRITERIA:,} are accepted")
    if isinstance(request.judge, OrchestratorModel):
        raise InvalidField("judge", "is the orchestrator's model, and a judge must be a model of the worker")
    if re.search(RENDERER_PATTERN, request.renderer) is None:
        raise InvalidField("renderer", f"is {request.renderer[:60]!r}, which is no renderer")
    check_renderer(request.renderer)


def _seeded(sampling: SamplingParams, index: int) -> SamplingParams:
    """How the judge is sampled for an item: each gets a different seed if sampling is random."""
    if sampling.temperature == 0:
        return sampling
    seed = secrets.randbits(63) if sampling.seed is None else sample_seed(sampling.seed, str(index), 0)
    return dataclasses.replace(sampling, seed=seed)


def _failed(item: RubricItem, problem: Problem) -> RubricGrade:
    return RubricGrade(grade=Grade(id=item.id, verdict=Verdict.ERROR, reason=problem.message, problem=problem))
