"""Grades math: the answer is extracted from the response, and compared with the targets in killable processes.

Decisions in this module need no mathematics: answers written like a target, integers, repeated questions.
"""

from __future__ import annotations

import asyncio
import dataclasses
import string
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import structlog

from crucible_bridge.errors import BridgeError
from crucible_bridge.problems import problem_of
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Grade, GradeItem, MathPolicy, Problem, Verdict, bounds
from crucible_worker.grading import base
from crucible_worker.grading.base import MAX_INLINE_CHARS, MAX_TEXT_BYTES, Cache, blank_target, exceeds
from crucible_worker.grading.characters import with_plain_digits
from crucible_worker.grading.children import MEMORY_BYTES, ChildResult
from crucible_worker.grading.choice import CHOICE, choices_that_are, names_of, names_several, options_of
from crucible_worker.grading.enclosed import has_box, json_answer, last_tagged, may_hold_tag
from crucible_worker.grading.extract import extract, spoken
from crucible_worker.grading.math.judging import Judgement, Question, give_up, judge, prove, search
from crucible_worker.grading.math.literal import LITERAL, literally
from crucible_worker.grading.numbers import last_numerals
from crucible_worker.grading.pool import CLOCK_FACTOR, MAX_DEATHS, SLOW_SECONDS, GradingPool
from crucible_worker.grading.qualification import ruled_out_in_line
from crucible_worker.grading.scope import declines
from crucible_worker.util.error_reporter import logged, with_id
from crucible_worker.util.options import Flat
from crucible_worker.util.tasks import SharedLock

__all__ = [
    "MAX_TARGETS",
    "POLICY_VERSION",
    "WHOLE_MARGIN",
    "ChoiceQuestion",
    "Labelled",
    "MathGrader",
    "MathOptions",
    "graded_alone",
    "whole_of",
    "with_factorial",
]

POLICY_VERSION = "5"
"""Version of the rules and defaults of equality; it changes whenever a verdict may change."""
MAX_TARGETS = 64
"""Targets of one item; with more it is UNDECIDED."""
WHOLE_MARGIN = 100
"""A response is compared as a whole where it is this much longer than twice a target at most."""
CACHED_ENTRIES, CACHED_CHARS = 65_536, 8 * 1024 * 1024
"""Cached questions with their results, and their total characters."""

_MAX_CACHED_QUESTION = 2_000  # characters; longer ones are rarely repeated
# Items in a pass of the event loop, of all calls together: a millisecond or two. A call has a part of them at a time.
_ITEMS_A_PASS, _ITEMS_A_TURN = 200, 50
_WHOLE = "whole"

MAX_ROUNDING_DIGITS = bounds.MATH_POLICY_ROUNDING_DIGITS_MOST
"""Decimals that a double stores."""

_DEFAULTS = MathPolicy()
_RULES: Mapping[str, Mapping[str, Any]] = {
    "rounding_digits": {"minimum": bounds.MATH_POLICY_ROUNDING_DIGITS_LEAST, "maximum": MAX_ROUNDING_DIGITS}
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MathOptions:
    """The answer in the response equals a target as mathematics."""

    policy: Annotated[MathPolicy, Flat(rules=_RULES)] = _DEFAULTS
    """What counts as equivalent."""


@dataclasses.dataclass(frozen=True, slots=True)
class _ExtractedQuestion:
    """The question of an item, once its answer is extracted."""

    question: Question
    extraction: str
    duration_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Searched:
    """The answer that a child extracted from a response."""

    answer: str
    extraction: str
    said: str
    """The response without its reasoning, if it is short."""
    duration_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Verdict:
    """The result for a question."""

    judgement: Judgement
    duration_ns: int = 0
    problem: Problem | None = None
    lasting: bool = True
    """Whether the same question would get the same result again."""


class MathGrader:
    """Judges whether answers equal their targets, as mathematics.

    Args:
        pool: the processes that compute; started at the first question that needs them, unless they run already.
        policy: what counts as equivalent unless a batch sets another.
    """

    def __init__(self, pool: GradingPool, policy: MathPolicy | None = None) -> None:
        self._pool = pool
        self._policy = _DEFAULTS if policy is None else policy
        self._cache: Cache[Question, Judgement] = Cache(max_entries=CACHED_ENTRIES, max_size=CACHED_CHARS)
        self._turns = SharedLock(_ITEMS_A_PASS)
        self._log = structlog.get_logger("crucible_worker.grading")

    async def grade(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> base.Grade:
        """Judge one response; if the targets name choices, by the choice that its answer is."""
        return await graded_alone(self.grade_batch, response, targets, choices)

    def labelled(self, labels: Sequence[str]) -> base.Grader:
        """See `base.ReadsLabels`."""
        return Labelled(self.grade_batch, labels)

    async def grade_batch(self, items: Sequence[GradeItem], policy: MathPolicy | None = None) -> list[Grade]:
        """Judge items; each has its grade, in order, and an error in one does not affect the others.

        A grade is UNDECIDED if there is no target, if a target has no value or is over `MAX_TEXT_BYTES`, or if the
        mathematics takes too much time or memory. An answer over `MAX_TEXT_BYTES` is wrong if the targets are small. A
        failure on our side is an ERROR with a problem.
        """
        policy = self._policy if policy is None else policy
        grades: dict[int, Grade] = {}
        asked: dict[Question, list[tuple[int, _ExtractedQuestion]]] = {}
        searched = await self._searched(items)
        for index, item in enumerate(items):
            if index % _ITEMS_A_TURN == 0:
                await self._turns.take(min(_ITEMS_A_TURN, len(items) - index))
            reading = _read(item, policy, searched.get(index))
            if isinstance(reading, Grade):
                grades[index] = reading
            elif (known := self._known(reading.question)) is not None:
                grades[index] = _grade(item, reading, _Verdict(known))
            else:
                asked.setdefault(reading.question, []).append((index, reading))
        found = await self._judged(list(asked)) if asked else []
        for index, ((question, askers), answer) in enumerate(zip(asked.items(), found)):
            if index % _ITEMS_A_TURN == 0:
                await self._turns.take(min(_ITEMS_A_TURN, len(found) - index))
            if answer.lasting:
                self._keep(question, answer.judgement)
            for index, reading in askers:
                grades[index] = _grade(items[index], reading, answer)
        return [grades[index] for index in range(len(items))]

    async def _searched(self, items: Sequence[GradeItem]) -> dict[int, _Searched | _Verdict]:
        """Answers that children extract from long responses, by item index: here this would delay other requests."""
        long = {
            index: item.response
            for index, item in enumerate(items)
            if item.response is not None and len(item.response) > MAX_INLINE_CHARS and not exceeds((item.response,))
        }
        if not long:
            return {}
        try:
            answers = await self._pool.map(search, list(long.values()), len)
        except BridgeError as error:
            return dict.fromkeys(long, _failed(error))
        return {index: self._search_result(answer) for index, answer in zip(long, answers)}

    def _search_result(self, answer: ChildResult) -> _Searched | _Verdict:
        if answer.value is None:
            return self._found(answer)
        text, how, said = answer.value
        return _Searched(text, how, said, answer.duration_ns)

    def _known(self, question: Question) -> Judgement | None:
        """The grade that is known at once."""
        verdict = literally(question.targets, question.answer, question.policy)
        whole = question.whole and literally(question.targets, question.whole, question.policy)
        if whole is Verdict.CORRECT:
            verdict = whole
        if verdict is not None:
            return _LITERAL[verdict]
        return self._cache.get(question)

    def _keep(self, question: Question, judgement: Judgement) -> None:
        size = _weight(question)
        if size <= _MAX_CACHED_QUESTION:
            self._cache.put(question, judgement, size + len(judgement.reason))

    async def _judged(self, questions: Sequence[Question]) -> list[_Verdict]:
        try:
            answers = await self._pool.map(judge, questions, _weight)
        except BridgeError as error:
            return [_failed(error)] * len(questions)
        found = list(map(self._found, answers))
        pending = [index for index, each in enumerate(found) if each.judgement.pending]
        for index, settled in zip(pending, await asyncio.gather(*(self._settled(found[index]) for index in pending))):
            found[index] = settled
        return found

    async def _settled(self, found: _Verdict) -> _Verdict:
        """The result of a question that needs a proof."""
        try:
            proof = await self._pool.run(prove, found.judgement.pending)
            settled = self._found(proof)
            if proof.lost:
                (left,) = await self._pool.map(give_up, (found.judgement.pending,))
                settled = _without_proof(self._found(left), settled)
        except BridgeError as error:
            return _failed(error)
        return dataclasses.replace(settled, duration_ns=found.duration_ns + settled.duration_ns)

    def _found(self, answer: ChildResult) -> _Verdict:
        if answer.error:
            error_id = logged(self._log, "grader_failed", error=None, what=answer.error, trace=answer.trace)
            problem = Problem(reason=Reason.GRADER_FAILED, message=with_id("the grader failed", error_id))
            return _Verdict(_NOTHING, answer.duration_ns, problem, lasting=False)
        if answer.lost:
            return _Verdict(_LOST[answer.lost], answer.duration_ns, lasting=False)
        return _Verdict(answer.value, answer.duration_ns)


async def graded_alone(
    grade_batch: Callable[[Sequence[GradeItem]], Awaitable[list[Grade]]],
    response: str,
    targets: Sequence[str],
    choices: Sequence[str],
    labels: Sequence[str] = (),
) -> base.Grade:
    """One response, judged by a function that judges batches; if the targets name choices, by the choice that it is."""
    (grade,) = await grade_batch((GradeItem(response=response, targets=tuple(targets)),))
    grade = await chosen(grade_batch, grade, response, targets, choices, labels)
    told = grade if grade.problem is None else dataclasses.replace(grade, reason=grade.problem.message)
    return base.Grade.of(told)


async def chosen(
    grade_batch: Callable[[Sequence[GradeItem]], Awaitable[list[Grade]]],
    grade: Grade,
    response: str,
    targets: Sequence[str],
    choices: Sequence[str],
    labels: Sequence[str],
) -> Grade:
    """The grade of a response by the choice that its answer is, if the targets name choices; otherwise `grade`."""
    asked = ChoiceQuestion.of(targets, choices, labels) if grade.problem is None and grade.extracted else None
    if asked is None:
        return grade
    if options := options_of(response, grade.extracted, choices, labels):
        return asked.of_places(dataclasses.replace(grade, method=CHOICE, reason=""), options)
    return asked.grade(grade, await grade_batch(asked.items(grade.extracted)))


@dataclasses.dataclass(frozen=True, slots=True)
class Labelled:
    """Judges responses to a sample whose choices have labels, by a function that judges batches."""

    grade_batch: Callable[[Sequence[GradeItem]], Awaitable[list[Grade]]]
    """The function."""
    labels: Sequence[str]
    """The labels."""

    async def grade(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> base.Grade:
        """As `graded_alone` does."""
        return await graded_alone(self.grade_batch, response, targets, choices, self.labels)


def _read(item: GradeItem, policy: MathPolicy, searched: _Searched | _Verdict | None) -> _ExtractedQuestion | Grade:
    """Extract the answer, unless a child has; a grade if there is no question to ask."""
    text, targets = item.text, item.targets
    if not targets:
        return _undecided(item, "there is no target")
    if len(targets) > MAX_TARGETS:
        return _undecided(item, f"there are {len(targets):,} targets, at most {MAX_TARGETS} are read")
    if exceeds(targets):
        return _undecided(item, f"the targets are longer than {MAX_TEXT_BYTES:,} bytes")
    if (blank := blank_target(targets)) is not None:
        return _undecided(item, "the target is empty" if len(targets) == 1 else f"target {blank} is empty")
    if exceeds((text,)):
        return _ExtractedQuestion(Question(targets, "", policy, unsent=True), "", 0)
    if isinstance(searched, _Verdict):
        return _grade(item, _ExtractedQuestion(Question(targets, "", policy), "", 0), searched)
    if searched is not None:
        answer = with_factorial(searched.answer, searched.said, targets)
        question = Question(targets, answer, policy, whole_of(searched.said, answer, targets))
        return _ExtractedQuestion(question, searched.extraction, searched.duration_ns)
    if item.response is None:
        return _ExtractedQuestion(Question(targets, text, policy), _WHOLE, 0)
    started = time.thread_time_ns()  # processor time of other tasks does not count for this item
    text = with_plain_digits(text)
    extracted, said = extract(text), spoken(text)
    answer = with_factorial(extracted.answer, said, targets)
    question = Question(targets, answer, policy, whole_of(said, answer, targets))
    taken = time.thread_time_ns() - started
    return _ExtractedQuestion(question, extracted.how, taken)


def with_factorial(answer: str, said: str, targets: Sequence[str]) -> str:
    """An answer with the exclamation mark after it in its response, if a target has a factorial: "it is 7!"."""
    if not answer[-1:].isdigit() or not any("!" in target for target in targets):
        return answer
    end = said.rfind(answer) + len(answer)
    return f"{answer}!" if end >= len(answer) and said[end : end + 1] == "!" else answer


def whole_of(said: str, answer: str, targets: Sequence[str]) -> str:
    """The text of a response, if it may be a target itself: it has a similar length, and is more than its answer.

    One with a box, an answer tag or a JSON object marks its answer, and only that counts, unless the response is
    written like a target.
    """
    said = said.strip(" \n")  # a tab may be the rest of a command
    short = said != answer and len(said) <= 2 * max(map(len, targets)) + WHOLE_MARGIN
    if not short or said in targets:
        return said if short else ""
    return "" if has_box(said) or _is_enclosed(said) or _is_dismissed(said) else said


def _is_dismissed(said: str) -> bool:
    """Whether a short response rules out its last number, or says that it has no answer: "12 seems wrong"."""
    if " " not in said:
        return False
    return declines(said) or any(
        ruled_out_in_line(said, number.start, number.start + len(number.text)) for number in last_numerals(said, 1)
    )


def _is_enclosed(said: str) -> bool:
    return ('"' in said and json_answer(said)[0] is not None) or (
        may_hold_tag(said) and last_tagged(said)[0] is not None
    )


def _weight(question: Question) -> int:
    return len(question.answer) + len(question.whole) + sum(map(len, question.targets))


def _undecided(item: GradeItem, reason: str) -> Grade:
    return Grade(id=item.id, verdict=Verdict.UNDECIDED, reason=reason)


def _failed(error: BridgeError) -> _Verdict:
    return _Verdict(_NOTHING, problem=problem_of(error), lasting=False)


def _without_proof(left: _Verdict, lost: _Verdict) -> _Verdict:
    """The result without a proof, and why there is none."""
    if left.judgement is _NOTHING or left.judgement in _LOST.values():
        return lost
    reason = "; ".join(filter(None, (left.judgement.reason, lost.judgement.reason)))
    judgement = dataclasses.replace(left.judgement, reason=reason)
    return _Verdict(judgement, left.duration_ns + lost.duration_ns, lasting=False)


def _grade(item: GradeItem, reading: _ExtractedQuestion, found: _Verdict) -> Grade:
    judgement = found.judgement
    return Grade(
        id=item.id,
        verdict=Verdict.ERROR if judgement.verdict is None else judgement.verdict,
        score=_SCORES.get(judgement.verdict),
        extracted=reading.question.answer,
        extraction=reading.extraction,
        method=judgement.method,
        reason=judgement.reason,
        duration_ns=reading.duration_ns + found.duration_ns,
        problem=found.problem,
    )


_SCORES: Mapping[Verdict | None, float] = {Verdict.CORRECT: 1.0, Verdict.INCORRECT: 0.0}
_LITERAL = {
    Verdict.CORRECT: Judgement(Verdict.CORRECT, LITERAL, ""),
    Verdict.INCORRECT: Judgement(Verdict.INCORRECT, LITERAL, "another integer"),
}
_NOTHING = Judgement(None, "", "")
_LOST: Mapping[str, Judgement] = {
    "timeout": Judgement(Verdict.UNDECIDED, "limit", f"it took longer than {SLOW_SECONDS:g} s of processor time"),
    "stalled": Judgement(
        Verdict.UNDECIDED,
        "limit",
        f"it took longer than {CLOCK_FACTOR * SLOW_SECONDS:g} s and got less than {SLOW_SECONDS:g} s of processor time",
    ),
    "memory": Judgement(Verdict.UNDECIDED, "limit", f"it needed more than {MEMORY_BYTES // 2**20:,} MiB"),
    "died": Judgement(Verdict.UNDECIDED, "limit", f"the process that computed it died, {MAX_DEATHS} times"),
}


# Questions with choices: which choice an answer is, by its letter, its text, or a value that is equal to it.


@dataclasses.dataclass(frozen=True, slots=True)
class ChoiceQuestion:
    """The choices of the question."""

    choices: Sequence[str]
    """Their texts."""
    expected: frozenset[int]
    """The right ones, by index."""
    names: Mapping[str, int]
    """Their letters and their labels."""

    @classmethod
    def of(cls, targets: Sequence[str], choices: Sequence[str], labels: Sequence[str] = ()) -> ChoiceQuestion | None:
        """The question whose right choices are the targets; None if a target is none of the choices, or two of them."""
        if not choices or exceeds(choices):
            return None
        named = [choices_that_are(target, choices, labels) for target in targets]
        if not named or any(len(places) != 1 for places in named):
            return None
        return cls(choices, frozenset[int]().union(*named), names_of(len(choices), labels))

    def items(self, answer: str) -> list[GradeItem]:
        """An answer next to each letter or label of a choice, and then next to the text of each."""
        return [GradeItem(answer=answer, targets=(target,)) for target in (*self.names, *self.choices)]

    def of_places(self, found: Grade, named: Iterable[int]) -> Grade:
        """The grade of an answer that names these choices, at least one."""
        places = frozenset(named)
        if places <= self.expected or not places & self.expected:
            return _scored(found, right=places <= self.expected)
        several = names_several(", ".join(string.ascii_uppercase[place] for place in sorted(places)))
        scored = {name: getattr(several, name) for name in ("verdict", "score", "method", "reason", "problem")}
        return dataclasses.replace(found, **scored)

    def grade(self, found: Grade, grades: Sequence[Grade]) -> Grade:
        """The grade of an answer from the grades of `items`."""
        places, count = tuple(self.names.values()), len(self.names)
        by_letter = frozenset(places[place] for place in _right(grades[:count]))
        by_text = frozenset(_right(grades[count:]))
        if len(by_text) > 1:
            # 5 is both 5 km and 5 cm if units may be missing: the choice with the same text is meant.
            by_text = by_text & choices_that_are(found.extracted, self.choices) or by_text
        named = by_letter & by_text or by_letter | by_text
        duration = found.duration_ns + sum(grade.duration_ns for grade in grades)
        found = dataclasses.replace(found, method=CHOICE, reason="", duration_ns=duration)
        if named and (named <= self.expected or not named & self.expected):
            return _scored(found, right=named <= self.expected)
        if named:  # the choices have two readings, not the response
            letters = ", ".join(string.ascii_uppercase[place] for place in sorted(named))
            return _left_open(found, f"the answer is several of the choices: {letters}")
        for grade in grades:
            if grade.verdict is Verdict.ERROR:
                return grade
        undecided = next((grade for grade in grades if grade.verdict is Verdict.UNDECIDED), None)
        if undecided is not None:
            return _left_open(found, undecided.reason)
        return dataclasses.replace(_scored(found, right=False), reason="the answer is none of the choices")


def _right(grades: Sequence[Grade]) -> Iterator[int]:
    return (place for place, grade in enumerate(grades) if grade.verdict is Verdict.CORRECT)


def _scored(found: Grade, *, right: bool) -> Grade:
    verdict = Verdict.CORRECT if right else Verdict.INCORRECT
    return dataclasses.replace(found, verdict=verdict, score=float(right))


def _left_open(found: Grade, reason: str) -> Grade:
    return dataclasses.replace(found, verdict=Verdict.UNDECIDED, score=None, reason=reason)
