"""How a judge grades items by criteria: the question, how its answer is read, and the grade from it."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
from crucible_worker.grading.judge.texts import Fence, digest_mark, says_nothing
from crucible_worker.rendering import answer_of, ask

__all__ = [
    "BOTH_ORDERS",
    "JUDGED",
    "MAX_CRITERIA",
    "MAX_JUDGED_CHARS",
    "MAX_JUDGEMENT_CHARS",
    "MAX_REASON_CHARS",
    "NO_CONTENT",
    "PRIOR",
    "BadJudgement",
    "Judge",
    "Rubric",
    "Said",
    "pair_question",
    "preferences_of",
    "question",
    "scores_of",
    "share",
    "spent",
    "too_long",
    "weighted",
]


# The questions to a judge by criteria, and how its answer is read.
#
# A judge answers with a JSON object, `{"<criterion>": {"reason": "...", "score": 7}, ...}`, or for two responses
# `{"<criterion>": {"reason": "...", "better": "A"}, ...}`. Other text may precede it, and it may be in a code block.
# The object at the end of the answer counts, and must have exactly these keys. Anything else is not a judgement: a
# score is never guessed. An object that also occurs in a judged text does not count, because a weak judge repeats what
# it read.

MAX_CRITERIA = 32
"""Criteria of one rubric."""
MAX_JUDGEMENT_CHARS = 65_536
"""Characters of a judge's answer, without its reasoning."""
MAX_REASON_CHARS = 300
"""Characters of a reason in the result."""

_MAX_OBJECTS = 512  # braces that are tried as the beginning of the object: no valid answer has more
_MAX_READ = 16 * MAX_JUDGEMENT_CHARS  # characters that are read for that: objects within objects are read again
_LAYOUT = re.compile(r"[\s|]+")  # may differ when a judge repeats a text: `| ` at the beginning of each line
_PREFERENCES = {"a": 1.0, "tie": 0.5, "b": 0.0}


class BadJudgement(Exception):
    """A judge's answer is not a judgement; the message says why, and continues a sentence about it."""


def question(
    asked: str, response: str, references: Sequence[str], criteria: Sequence[RubricCriterion], fence: Fence
) -> str:
    """The question to a judge about one response."""
    scales = [f", from {_number(criterion.min)} to {_number(criterion.max)}" for criterion in criteria]
    form = {
        criterion.name: f"<number from {_number(criterion.min)} to {_number(criterion.max)}>" for criterion in criteria
    }
    texts = [*_shown(asked, references, fence), fence.text("response", response)]
    opening = "A response is to be judged by criteria, each by itself."
    return _question(opening, texts, criteria, scales, "score", form, fence)


def pair_question(
    asked: str, a: str, b: str, references: Sequence[str], criteria: Sequence[RubricCriterion], fence: Fence
) -> str:
    """The question to a judge about two responses."""
    form = {criterion.name: '"<A, B or tie>"' for criterion in criteria}
    texts = [*_shown(asked, references, fence), fence.text("response A", a), fence.text("response B", b)]
    opening = "Two responses are to be compared by criteria, each by itself: which one is the better?"
    return _question(opening, texts, criteria, [""] * len(criteria), "better", form, fence)


def scores_of(said: str, criteria: Sequence[RubricCriterion], shown: Sequence[str] = ()) -> tuple[CriterionScore, ...]:
    """The scores that a judge gives, within their scales, in the order of the criteria.

    Args:
        said: the judge's answer.
        criteria: the criteria of the question.
        shown: the texts in its prompt: a judgement that occurs in one of them is not the judge's.

    Raises:
        BadJudgement: the answer has no valid scores.
    """
    found: list[CriterionScore] = []
    for criterion, (value, reason) in zip(criteria, _entries(said, criteria, "score", shown)):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadJudgement(f"gives {criterion.name!r} a score that is not a number")
        # A whole number may be too large for a float.
        score = min(max(value, criterion.min), criterion.max)
        found.append(
            CriterionScore(
                name=criterion.name,
                score=float(score) + 0.0,  # turns -0.0 into 0.0
                reason=_short(reason),
                clamped=score != value,
            )
        )
    return tuple(found)


def preferences_of(
    said: str, criteria: Sequence[RubricCriterion], shown: Sequence[str] = ()
) -> tuple[CriterionScore, ...]:
    """Which response a judge prefers by each criterion: 1 for A, 0 for B, 0.5 for a tie; arguments as for `scores_of`.

    Raises:
        BadJudgement: it does not say.
    """
    found: list[CriterionScore] = []
    for criterion, (value, reason) in zip(criteria, _entries(said, criteria, "better", shown)):
        preference = _PREFERENCES.get(value.lower()) if isinstance(value, str) else None
        if preference is None:
            raise BadJudgement(f'says of {criterion.name!r} neither "A" nor "B" nor "tie"')
        found.append(CriterionScore(name=criterion.name, score=preference, reason=_short(reason)))
    return tuple(found)


def share(criterion: RubricCriterion, score: float) -> float:
    """A score as a share of its scale, in [0, 1]."""
    return (score - criterion.min) / (criterion.max - criterion.min)


def weighted(criteria: Sequence[RubricCriterion], shares: Sequence[float]) -> float:
    """The mean of shares by the criteria's weights, in [0, 1]."""
    _, exponent = math.frexp(max(criterion.weight for criterion in criteria))
    # Scaled to at most 1 each, so that no sum is infinite, and by a power of two, so that none is rounded.
    weights = [math.ldexp(criterion.weight, -exponent) for criterion in criteria]
    whole = math.fsum(weight * part for weight, part in zip(weights, shares)) / math.fsum(weights)
    return min(max(whole, 0.0), 1.0)


def _shown(asked: str, references: Sequence[str], fence: Fence) -> list[str]:
    texts = [fence.text("question", asked)] if asked.strip() else []
    for number, reference in enumerate(references, start=1):
        title = "reference answer" if len(references) == 1 else f"reference answer {number}"
        texts.append(fence.text(title, reference))
    return texts


def _question(
    opening: str,
    texts: Sequence[str],
    criteria: Sequence[RubricCriterion],
    scales: Sequence[str],
    key: str,
    form: Mapping[str, str],
    fence: Fence,
) -> str:
    listed = "".join(
        f"- {json.dumps(criterion.name, ensure_ascii=False)}{scale}: {criterion.description}\n"
        for criterion, scale in zip(criteria, scales)
    )
    entries = ", ".join(
        f'{json.dumps(name, ensure_ascii=False)}: {{"reason": "<one short sentence>", "{key}": {value}}}'
        for name, value in form.items()
    )
    return (
        f"{opening}\n{fence.told()}\n\nCriteria:\n{listed}\n{''.join(texts)}{fence.end()}\n"
        f"Answer with one JSON object in this form, with exactly these keys, and nothing behind it:\n{{{entries}}}\n"
    )


def _number(value: float) -> str:
    return f"{value:.15g}"


def _entries(said: str, criteria: Sequence[RubricCriterion], key: str, shown: Sequence[str]) -> list[tuple[Any, str]]:
    """The value of a key for each criterion, with the reason."""
    judged, before, source = _last_object(said)
    if missing := [criterion.name for criterion in criteria if criterion.name not in judged]:
        raise BadJudgement(f"lacks {missing[0]!r}")
    if len(judged) > len(criteria):
        raise BadJudgement("has keys that are not criteria")
    entries: list[tuple[Any, str]] = []
    for criterion in criteria:
        entry = judged[criterion.name]
        if not isinstance(entry, dict) or entry.keys() != {"reason", key} or not isinstance(entry["reason"], str):
            raise BadJudgement(f'has under {criterion.name!r} something other than "reason" and "{key}"')
        entries.append((entry[key], entry["reason"]))
    if _begun(before, criteria):
        raise BadJudgement("follows one that does not end")
    again = _LAYOUT.sub("", source)
    if any("{" in text and again in _LAYOUT.sub("", text) for text in shown):
        raise BadJudgement("occurs in a judged text")
    return entries


def _last_object(said: str) -> tuple[dict[str, Any], str, str]:
    """The JSON object at the end of a text, the text before it, and the object's source."""
    if len(said) > MAX_JUDGEMENT_CHARS:
        raise BadJudgement(f"is longer than {MAX_JUDGEMENT_CHARS:,} characters")
    text = said.rstrip().removesuffix("```").rstrip()
    decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
    start, read = len(text), 0
    # Search backwards: an object inside the last one ends before the text does, so the first match is the whole object.
    for _ in range(_MAX_OBJECTS):
        start = text.rfind("{", 0, start)
        if start < 0 or read > _MAX_READ:
            break
        try:
            found, end = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            read += error.pos - start
            continue
        except (ValueError, RecursionError):  # digits without end, or objects within objects without end
            break
        if end == len(text):
            return found, text[:start], text[start:]
        read += end - start
    raise BadJudgement("does not end with a JSON object")


def _begun(before: str, criteria: Sequence[RubricCriterion]) -> bool:
    """Whether a judgement begins in a text and does not end in it.

    What begins within that one may be a quotation of what is judged, with the judge's own words as its end.
    """
    names = "|".join(re.escape(criterion.name) for criterion in criteria)
    opening = re.compile(rf'\{{\s*"(?:{names})"\s*:')
    decoder = json.JSONDecoder()
    found = opening.search(before)
    while found is not None:
        try:
            _, end = decoder.raw_decode(before, found.start())
        except (ValueError, RecursionError):
            return True
        found = opening.search(before, end)
    return False


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise BadJudgement("has a key twice")
    return found


def _no_constant(name: str) -> Any:
    raise BadJudgement(f"has {name}, which JSON does not allow")


def _short(reason: str) -> str:
    text = " ".join(reason.split())
    return text if len(text) <= MAX_REASON_CHARS else text[: MAX_REASON_CHARS - 3] + "..."


# How items are judged: what is decided without a judge, the question to the judge, and the grade from its answers.

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
