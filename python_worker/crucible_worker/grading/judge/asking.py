"""How items are judged: what is decided without a judge, the question to the judge, and the grade from its answers."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence

from crucible_bridge.errors import BackendError, BridgeError
from crucible_bridge.problems import MAX_PROBLEM_BYTES, at_field, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Conversation,
    CriterionScore,
    Grade,
    Problem,
    RubricCriterion,
    RubricGrade,
    RubricItem,
    SamplingParams,
    Verdict,
)
from crucible_worker.backends.base import Model
from crucible_worker.backends.metering import known_sum
from crucible_worker.grading.judge.content import says_nothing
from crucible_worker.grading.judge.fence import Fence, digest_mark
from crucible_worker.grading.judge.rubric import (
    MAX_REASON_CHARS,
    BadJudgement,
    pair_question,
    preferences_of,
    question,
    scores_of,
    share,
    weighted,
)
from crucible_worker.rendering import answer_of, ask

__all__ = [
    "BOTH_ORDERS",
    "JUDGED",
    "MAX_JUDGED_CHARS",
    "NO_CONTENT",
    "PRIOR",
    "Judge",
    "Rubric",
    "Said",
    "spent",
    "too_long",
]

MAX_JUDGED_CHARS = 100_000
"""Characters of all texts of one judgement; with more, an item is UNDECIDED. A shorter context allows fewer."""

JUDGED, BOTH_ORDERS = "judged", "both orders"
NO_CONTENT, PRIOR = "no content", "prior"
"""The values of `method`."""

_SHOWN_CHARS = 200  # of an answer that is not a judgement


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """An answer of a judge."""

    text: str
    """Without its reasoning."""
    prompt_tokens: int | None
    """Tokens of the question; None if its server counts them and does not report them."""
    completion_tokens: int | None
    """Tokens of the answer, with its reasoning; None if its server does not report them."""
    cut: bool
    """Whether the answer was truncated at its token limit."""

    def shown(self, limit: int) -> str:
        """Its last `limit` characters, for the problem of an answer that is not a judgement."""
        end = self.text.strip()[-limit:]
        return f"{end!r}, which was truncated at max_tokens" if self.cut else repr(end)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A model that judges."""

    model: Model
    """It."""
    sampling: SamplingParams
    """How it is sampled."""
    renderer: str = "auto"
    """How its prompt is rendered."""

    async def ask(self, question: str | Conversation) -> Said:
        """Let it answer.

        Raises:
            BridgeError: the query failed, or did not return exactly one answer (BACKEND_ANSWER); the path begins at
                `judge`, because another model answers the same sample.
        """
        try:
            asked = await ask(self.model, question, self.sampling, renderer=self.renderer)
        except BridgeError as error:
            raise at_field(error, "judge") from error
        if len(asked.answers) != 1:
            message = f"was asked for one answer and gave {len(asked.answers)}"
            raise BackendError(message, reason=Reason.BACKEND_ANSWER, field="judge", retryable=False)
        (found,) = asked.answers
        answer = found.sequence
        return Said(
            text=answer_of(found.answer, self.renderer),
            prompt_tokens=answer.prompt_tokens if asked.prompt is None else asked.prompt.tokens().size,
            completion_tokens=answer.output_tokens,
            cut=answer.stop_reason == "length",
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """The criteria, and the score from which a response is right."""

    criteria: tuple[RubricCriterion, ...]
    """One or more."""
    threshold: float
    """A score of at least this is CORRECT, one below it PARTIAL, and 0 INCORRECT."""

    async def grade(self, item: RubricItem, judge: Judge, mark: str | None = None) -> RubricGrade:
        """Judge an item.

        Args:
            item: the item to judge.
            judge: the model that judges.
            mark: in the lines that separate the texts; a digest of the texts if None.

        Raises:
            BridgeError: the query of the judge failed.
        """
        started = time.perf_counter_ns()
        decided = self._without_judge(item)
        found = await self._judged(item, judge, mark) if decided is None else decided
        grade = dataclasses.replace(found.grade, id=item.id, duration_ns=time.perf_counter_ns() - started)
        return dataclasses.replace(found, grade=grade)

    def _without_judge(self, item: RubricItem) -> RubricGrade | None:
        """Decide what needs no model: it costs no token, and no text can influence it."""
        if item.prior is Verdict.INCORRECT:
            return _unasked(_grade(Verdict.INCORRECT, 0.0, PRIOR))
        texts = _texts(item)
        if reason := too_long(texts):
            return _unasked(Grade(verdict=Verdict.UNDECIDED, reason=reason))
        if says_nothing(item.response, item.references):
            return self._refused(item, 0.0, "the response has no content")
        if item.other is not None and says_nothing(item.other, item.references):
            return self._refused(item, 1.0, "the other response has no content")
        return None

    def _refused(self, item: RubricItem, score: float, reason: str) -> RubricGrade:
        criteria = tuple(
            CriterionScore(name=criterion.name, score=criterion.min if item.other is None else score, reason=reason)
            for criterion in self.criteria
        )
        verdict = Verdict.CORRECT if score else Verdict.INCORRECT
        return _unasked(_grade(verdict, score, NO_CONTENT, reason), criteria)

    async def _judged(self, item: RubricItem, judge: Judge, mark: str | None) -> RubricGrade:
        fence = Fence(mark or digest_mark(_texts(item)))
        said = [await judge.ask(asked) for asked in self._questions(item, fence)]
        grade, scores = self._found(item, said)
        prompt_tokens, completion_tokens = spent(said)
        return RubricGrade(
            grade=grade, criteria=scores, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens
        )

    def _found(self, item: RubricItem, said: Sequence[Said]) -> tuple[Grade, tuple[CriterionScore, ...]]:
        try:
            scores, shares = self._read([one.text for one in said], _texts(item))
        except BadJudgement as wrong:
            return _invalid(str(wrong), said), ()
        score = weighted(self.criteria, shares)
        verdict = Verdict.CORRECT if score >= self.threshold else Verdict.PARTIAL if score > 0 else Verdict.INCORRECT
        clamped = [found.name for found in scores if found.clamped]
        reason = f"moved to its scale: {', '.join(clamped)}" if clamped else ""
        return _grade(verdict, score, JUDGED if item.other is None else BOTH_ORDERS, reason), scores

    def _questions(self, item: RubricItem, fence: Fence) -> list[str]:
        if item.other is None:
            return [question(item.question, item.response, item.references, self.criteria, fence)]
        # Judges prefer one of the two positions.
        orders = ((item.response, item.other), (item.other, item.response))
        return [pair_question(item.question, *order, item.references, self.criteria, fence) for order in orders]

    def _read(self, said: Sequence[str], shown: Sequence[str]) -> tuple[tuple[CriterionScore, ...], list[float]]:
        """Scores of the criteria, and each as a share of its scale."""
        if len(said) == 1:
            scores = scores_of(said[0], self.criteria, shown)
            return scores, [share(criterion, found.score) for criterion, found in zip(self.criteria, scores)]
        before, behind = (preferences_of(one, self.criteria, shown) for one in said)
        scores = tuple(
            CriterionScore(
                name=first.name,
                score=(first.score + 1 - second.score) / 2,
                reason=f"{first.reason} / {second.reason}"[:MAX_REASON_CHARS],
            )
            for first, second in zip(before, behind)
        )
        return scores, [found.score for found in scores]


def spent(said: Iterable[Said | RubricGrade]) -> tuple[int | None, int | None]:
    """Tokens of questions and of answers; None for those of which one is not known."""
    counts = [(one.prompt_tokens, one.completion_tokens) for one in said]
    return known_sum(prompt for prompt, _ in counts), known_sum(completion for _, completion in counts)


def too_long(texts: Sequence[str]) -> str:
    """Why texts are not shown to a judge; empty if they may be shown."""
    count = sum(map(len, texts))
    if count <= MAX_JUDGED_CHARS:
        return ""
    return f"the texts have {count:,} characters, a judge is shown at most {MAX_JUDGED_CHARS:,}"


def _texts(item: RubricItem) -> list[str]:
    return [item.question, item.response, *item.references, *(() if item.other is None else (item.other,))]


def _grade(verdict: Verdict, score: float, method: str, reason: str = "") -> Grade:
    return Grade(verdict=verdict, score=score, method=method, reason=reason)


def _unasked(grade: Grade, criteria: tuple[CriterionScore, ...] = ()) -> RubricGrade:
    return RubricGrade(grade=grade, criteria=criteria, prompt_tokens=0, completion_tokens=0)


def _invalid(wrong: str, said: Sequence[Said]) -> Grade:
    ends = " and ".join(one.shown(_SHOWN_CHARS) for one in said)
    message = shorten(f"the judgement {wrong}: {ends}", MAX_PROBLEM_BYTES)
    problem = Problem(reason=Reason.INVALID_JUDGEMENT, message=message)
    return Grade(verdict=Verdict.ERROR, method=JUDGED, reason=message, problem=problem)
