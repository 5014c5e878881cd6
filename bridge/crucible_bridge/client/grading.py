"""GradingService, typed."""

# The timeout is not measured here: it travels to the worker as gRPC's deadline.
# ruff: noqa: ASYNC109

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from crucible_bridge.client.calls import Calls
from crucible_bridge.client.plain_calls import PlainGradingCalls
from crucible_bridge.codec import code, rubric
from crucible_bridge.codec import grades as answers
from crucible_bridge.codec import grading as codec
from crucible_bridge.codec.fields import child
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    DEFAULT_JUDGE_SAMPLING,
    BatchLimits,
    CodeGrades,
    CodeItem,
    CodeLimits,
    ExtractAnswerRequest,
    ExtractCodeRequest,
    ExtractedAnswer,
    ExtractedProgram,
    Grade,
    GradeCodeRequest,
    GradeItem,
    GradeMathRequest,
    GradeRubricRequest,
    MathGrades,
    MathPolicy,
    ModelRef,
    RubricCriterion,
    RubricGrades,
    RubricItem,
    SamplingParams,
    ScoreOptions,
    Scorer,
    ScoreRequest,
    TextScorer,
    TextScorerKind,
    bounds,
    parse_model,
)
from crucible_bridge.v1 import grading_pb2_grpc

__all__ = ["GradingClient", "Pair"]

T = TypeVar("T")

Pair = tuple[str | Iterable[str], str]
"""A target, or several of which any is right, and an answer."""


class GradingClient(PlainGradingCalls):
    """Answers, graded by the worker."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._stub: Any = grading_pb2_grpc.GradingServiceStub(calls.channel)

    async def grade_math(
        self,
        items: Iterable[GradeItem | Pair],
        policy: MathPolicy | None = None,
        *,
        timeout: float | None = None,
    ) -> MathGrades:
        """Whether answers equal their targets, as mathematics.

        Args:
            items: GradeItems, or pairs of target (or targets) and answer.
            policy: what counts as equivalent; `MathPolicy()` if None.
            timeout: seconds for the call.

        Returns:
            A grade for each item, in order; an item that cannot be graded has the verdict UNDECIDED or ERROR.

        Raises:
            InvalidField: there is no item, there are too many, or one is malformed; the field names it.
        """
        request = GradeMathRequest(items=_items(items), policy=policy or MathPolicy())
        message = codec.grade_math_request_to_v1(request)
        return await self._calls.unary(self._stub.GradeMath, message, answers.math_grades_from_v1, timeout)

    async def extract_answers(
        self, responses: Iterable[str], *, timeout: float | None = None
    ) -> tuple[ExtractedAnswer, ...]:
        """Extract the answers from responses, for `grade_math`; one for each response, in order.

        Args:
            responses: what a model answered.
            timeout: seconds for the call.

        Raises:
            InvalidField: there is no response, or there are too many.
        """
        texts = _sequence(responses, "responses", "texts")
        message = codec.extract_answer_request_to_v1(ExtractAnswerRequest(responses=texts))
        return await self._calls.unary(self._stub.ExtractAnswer, message, answers.extracted_answers_from_v1, timeout)

    async def score(
        self,
        items: Iterable[GradeItem | Pair],
        options: ScoreOptions | Scorer | TextScorerKind,
        *,
        timeout: float | None = None,
    ) -> tuple[Grade, ...]:
        """Scores of answers, as texts.

        Args:
            items: GradeItems, or pairs of target (or targets) and answer.
            options: how to score; a scorer alone has its default threshold, a name ("f1") that text scorer's defaults.
            timeout: seconds for the call.

        Returns:
            A grade for each item, in order; an item that cannot be scored has the verdict UNDECIDED or ERROR.

        Raises:
            InvalidField: there is no item, there are too many, or something is malformed; the field names it.
        """
        message = codec.score_request_to_v1(ScoreRequest(items=_items(items), options=_options(options)))
        return await self._calls.unary(self._stub.Score, message, answers.scores_from_v1, timeout)

    async def grade_code(
        self,
        items: Iterable[CodeItem],
        *,
        limits: CodeLimits | None = None,
        k: Iterable[int] = (),
        image: str = "",
        timeout: float | None = None,
    ) -> CodeGrades:
        """Whether programs are right: the worker runs them against tests, in sandboxes.

        Args:
            items: responses, each with its tests.
            limits: resources of a program in each test; `CodeLimits()` if None.
            k: values of k for pass@k over the problems that items name.
            image: packages that programs and tests can import: one of `code_images` of `get_info`; none if empty.
            timeout: seconds for the call.

        Returns:
            A grade for each item, in order, and the results per problem.

        Raises:
            InvalidField: there is no item, there are too many, or one is malformed; the field names it.
                    Likewise if the worker has no such image.
            FailedPrecondition: the worker cannot run programs in a sandbox (reason NO_SANDBOX).
        """
        programs = _sequence(items, "items", "items")
        request = GradeCodeRequest(
            items=programs, limits=limits or CodeLimits(), k=_sequence(k, "k", "numbers"), image=image
        )
        message = code.grade_code_request_to_v1(request)
        return await self._calls.unary(self._stub.GradeCode, message, code.code_grades_from_v1, timeout)

    async def extract_code(
        self, responses: Iterable[str], names: Iterable[str] = (), *, timeout: float | None = None
    ) -> tuple[ExtractedProgram, ...]:
        """Extract the programs from responses, for `grade_code`; one for each response, in order.

        Args:
            responses: what a model answered.
            names: what the programs must define, as tests name it; the last block that defines one is extracted.
            timeout: seconds for the call.

        Raises:
            InvalidField: there is no response, there are too many, or a name is blank.
        """
        request = ExtractCodeRequest(
            responses=_sequence(responses, "responses", "texts"), names=_sequence(names, "names", "names")
        )
        message = code.extract_code_request_to_v1(request)
        return await self._calls.unary(self._stub.ExtractCode, message, answers.extracted_programs_from_v1, timeout)

    async def grade_rubric(
        self,
        judge: ModelRef | str,
        items: Iterable[RubricItem],
        criteria: Iterable[RubricCriterion],
        *,
        threshold: float = bounds.GRADE_RUBRIC_REQUEST_THRESHOLD_DEFAULT,
        sampling: SamplingParams = DEFAULT_JUDGE_SAMPLING,
        renderer: str = "auto",
        limits: BatchLimits | None = None,
        timeout: float | None = None,
    ) -> RubricGrades:
        """Grades that a judge model gives to responses, by weighted criteria.

        Args:
            judge: the model that judges, a reference or "openai:SERVER/MODEL", "local:PATH", ...
            items: responses, each with its question; or pairs of them, which are compared in both orders.
            criteria: what is judged.
            threshold: a score of at least this is CORRECT.
            sampling: how the judge is sampled.
            renderer: how the judge is prompted, like the evaluators' option of that name.
            limits: bounds of the batch.
            timeout: seconds for the call. At its end all results are lost; `limits.deadline_ms` keeps them.

        Returns:
            A grade for each item, in order, with the tokens that were spent. A judgement that cannot be read is
            an ERROR of its item.

        Raises:
            InvalidField: there is no item or criterion, there are too many, or one is malformed; the field names it.
            NotFound: there is no such judge.
            FailedPrecondition: it cannot be opened here, or cannot sample.
            DeadlineExceeded: it was not ready in time.
            BackendError: it could not be loaded.
        """
        request = GradeRubricRequest(
            judge=_judge(judge),
            items=_sequence(items, "items", "items"),
            criteria=_sequence(criteria, "criteria", "criteria"),
            threshold=threshold,
            sampling=sampling,
            renderer=renderer,
            limits=limits or BatchLimits(),
        )
        message = rubric.grade_rubric_request_to_v1(request)
        return await self._calls.unary(self._stub.GradeRubric, message, rubric.rubric_grades_from_v1, timeout)


def _judge(judge: ModelRef | str) -> ModelRef:
    if not isinstance(judge, str):
        return judge
    try:
        return parse_model(judge)
    except InvalidField as error:
        raise InvalidField("judge", error.message, reason=error.reason) from error


def _items(items: Iterable[GradeItem | Pair]) -> tuple[GradeItem, ...]:
    return tuple(
        item if isinstance(item, GradeItem) else _item(item, f"items[{index}]")
        for index, item in enumerate(_sequence(items, "items", "items"))
    )


def _item(pair: Any, field: str) -> GradeItem:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise InvalidField(field, f"is a {type(pair).__name__}, neither a GradeItem nor a pair of target and answer")
    target, answer = pair
    if not isinstance(answer, str):
        raise InvalidField(child(field, "answer"), f"is {type(answer).__name__}, not text")
    targets = (target,) if isinstance(target, str) else _sequence(target, child(field, "targets"), "texts")
    return GradeItem(answer=answer, targets=targets)


def _sequence(values: Iterable[T], field: str, of: str) -> tuple[T, ...]:
    """The values, if they are several. One text would be read as its characters, a mapping without its values."""
    if isinstance(values, str):
        raise InvalidField(field, f"is one text, not a sequence of {of}")
    if isinstance(values, bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidField(field, f"is {type(values).__name__}, not a sequence of {of}")
    return tuple(values)


def _options(options: ScoreOptions | Scorer | TextScorerKind) -> ScoreOptions:
    if isinstance(options, ScoreOptions):
        return options
    return ScoreOptions(scorer=TextScorer(kind=options) if isinstance(options, str) else options)
