"""Sequences that several models measure together: each has the weighted mean of its teachers' probabilities.

With p_t a token's probability for teacher t of a sequence, and w_t the teacher's share, divided by the sum of them all:

    logprob = log(sum over t of w_t * p_t)

The likeliest tokens are taken from those that are among the likeliest of one teacher at least. What the others say of
these is asked in a second round, so that every value of a column is exact.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from crucible_bridge.errors import BridgeError, InvalidField
from crucible_bridge.problems import at_field, problem_of
from crucible_bridge.types import (
    LogprobsAnswer,
    LogprobsItem,
    LogprobsRequest,
    Problem,
    SequenceLogprobs,
    Teacher,
    TeacherAnswer,
)
from crucible_worker.backends.distributions import NO_TOKEN, ordered
from crucible_worker.inference.batches import BatchBounds, BatchResults, ask_all, each
from crucible_worker.inference.logprobs import items_of, logprobs_ask
from crucible_worker.inference.model_calls import Backends, ColumnBudget, bounds_of, check_top, result_or_problem
from crucible_worker.journal.usage import UsageSum
from crucible_worker.util.limits import WorkerLimits

__all__ = ["ask_teachers", "chosen_items", "likeliest", "mixed"]

_FIRST = "the teacher was ready"
_SECOND = "the teacher measured the likeliest tokens of the others"
"""What a deadline is over before, in each round."""

Parts = dict[int, SequenceLogprobs]
"""What each teacher of a sequence measured, by the teacher's index."""


async def ask_teachers(
    backends: Backends, request: LogprobsRequest, *, limits: WorkerLimits, received: float
) -> LogprobsAnswer:
    """Log-probabilities of the measured tokens of every sequence, by its teachers together.

    Args:
        backends: by the kind of reference that they open.
        request: the call's, with teachers.
        limits: the worker's.
        received: time of receipt by the event loop's clock; the deadline counts from it.

    Raises:
        InvalidField: there is no sequence, or too many; a bound is beyond the worker's; a teacher's items are wrong, or
            a sequence has no teacher.
    """
    name, items = items_of(request)
    bounds = bounds_of(request.limits, len(items), name, limits=limits, received=received)
    check_top(request.top_k, "top_k", limits)
    chosen = chosen_items(request.teachers, len(items), name, most=limits.max_teachers)
    asking = _TeacherCalls(backends, request, bounds=bounds, room_bytes=limits.max_message_bytes)
    found = [_agreed(parts, f"{name}[{index}]") for index, parts in enumerate(await asking.round(items, chosen))]
    weights = [teacher.weight for teacher in request.teachers]
    results = await asyncio.to_thread(lambda: [_combined(parts, weights) for parts in found])
    if request.top_k:
        several = {index: parts for index, parts in enumerate(found) if isinstance(parts, dict) and len(parts) > 1}
        results = await _with_likeliest(asking, items, several, results)
    teachers = asking.answers()
    return LogprobsAnswer(
        sequences=tuple(result_or_problem(SequenceLogprobs, result) for result in results),
        usage=UsageSum.of(teacher.usage for teacher in teachers).usage,
        teachers=teachers,
    )


async def _with_likeliest(
    asking: _TeacherCalls,
    items: Sequence[LogprobsItem | Problem],
    several: dict[int, Parts],
    results: list[SequenceLogprobs | Problem],
) -> list[SequenceLogprobs | Problem]:
    """Results with the likeliest tokens of sequences that have several teachers, after a second round of questions."""
    candidates = await asyncio.to_thread(lambda: {index: _candidates(parts) for index, parts in several.items()})
    places = [index for index, table in candidates.items() if table.size]
    questions: list[LogprobsItem | Problem] = list(items)
    for index in places:
        item, rows = items[index], len(candidates[index])
        if isinstance(item, LogprobsItem):  # those of other kinds have no parts
            questions[index] = dataclasses.replace(item, targets=candidates[index], last_n=rows)
    chosen: list[list[int]] = [[] for _ in asking.request.teachers]
    for index in places:
        for teacher in several[index]:
            chosen[teacher].append(index)
    again = await asking.round(questions, chosen, second=True)
    weights = [teacher.weight for teacher in asking.request.teachers]
    wanted = asking.request.top_k or 0

    def complete(index: int, result: SequenceLogprobs | Problem) -> SequenceLogprobs | Problem:
        if index not in several or isinstance(result, Problem):
            return result
        tables: list[np.ndarray] = []
        for part in again[index].values():
            if isinstance(part, Problem):
                return _of_likeliest(part)
            if part.target_logprobs is not None:
                tables.append(part.target_logprobs)
        width = min(wanted, max(_width(part) for part in several[index].values()))
        if not tables:  # no row is measured, or no teacher names a token
            rows = 0 if result.logprobs is None else len(result.logprobs)
            tokens, logprobs = np.full((rows, width), NO_TOKEN, np.int32), np.full((rows, width), -np.inf)
        else:
            shares = [weights[teacher] for teacher in again[index]]
            tokens, logprobs = likeliest(candidates[index], mixed(tables, shares), width)
        return dataclasses.replace(result, top_tokens=tokens, top_logprobs=logprobs)

    return await asyncio.to_thread(lambda: [complete(index, result) for index, result in enumerate(results)])


class _TeacherCalls:
    """Asks the teachers of one request, all at once.

    Args:
        backends: by the kind of reference that they open.
        request: the request.
        bounds: what each teacher may take.
        room_bytes: bytes that the values of a teacher may take.
    """

    def __init__(self, backends: Backends, request: LogprobsRequest, *, bounds: BatchBounds, room_bytes: int) -> None:
        self.request = request
        self._backends, self._bounds, self._room_bytes = backends, bounds, room_bytes
        self._answers: list[list[BatchResults[SequenceLogprobs]]] = [[] for _ in request.teachers]

    async def round(
        self, items: Sequence[LogprobsItem | Problem], chosen: Sequence[Sequence[int]], *, second: bool = False
    ) -> list[dict[int, SequenceLogprobs | Problem]]:
        """Ask every teacher for the items that it measures.

        Args:
            items: those of the request, each with what is asked of it.
            chosen: for each teacher the indices of its items.
            second: whether the likeliest tokens are known by now.

        Returns:
            For each item the results by the index of the teacher.
        """
        request = dataclasses.replace(self.request, top_k=None) if second else self.request
        found: list[dict[int, SequenceLogprobs | Problem]] = [{} for _ in items]

        async def ask(teacher: int) -> None:
            places = chosen[teacher]
            if places:
                asked = [items[place] for place in places]
                results = await self._ask(request, teacher, asked, places, _SECOND if second else _FIRST)
                for place, result in zip(places, results, strict=True):
                    given = isinstance(items[place], Problem)
                    found[place][teacher] = result if given else _named(result, f"teachers[{teacher}]")

        await each(len(chosen), ask, len(chosen))
        return [dict(sorted(parts.items())) for parts in found]

    def answers(self) -> tuple[TeacherAnswer, ...]:
        """What each teacher took so far."""
        return tuple(
            TeacherAnswer(
                model_fingerprint=answers[0].model_fingerprint if answers else "",
                usage=UsageSum.of(answer.usage for answer in answers).usage,
            )
            for answers in self._answers
        )

    async def _ask(
        self,
        request: LogprobsRequest,
        teacher: int,
        items: Sequence[LogprobsItem | Problem],
        places: Sequence[int],
        awaited: str,
    ) -> Sequence[SequenceLogprobs | Problem]:
        """One teacher's results; an error about all of them is the problem of each."""
        room, field = ColumnBudget(self._room_bytes), f"teachers[{teacher}].model"
        asker = functools.partial(logprobs_ask, request, items, room=room, places=places)
        model = self.request.teachers[teacher].model
        try:
            answers = await ask_all(
                self._backends, model, items, asker, bounds=self._bounds, field=field, awaited=awaited
            )
        except BridgeError as error:
            return [problem_of(at_field(error, field, own="model") if error.field == "model" else error)] * len(items)
        self._answers[teacher].append(answers)
        return answers.results


def mixed(values: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    """The logarithm of the weighted mean of probabilities, float64, of the shape of each array.

    Args:
        values: one array of log-probabilities per teacher, nats, all of one shape; NaN is passed on.
        weights: one per teacher, above 0. They are divided by their sum.
    """
    if len(values) == 1:
        return values[0]
    shares = np.log(weights) - np.log(np.max(weights))
    shares -= np.log(np.exp(shares).sum())  # no overflow, whatever the weights
    total = values[0] + shares[0]
    with np.errstate(invalid="ignore"):  # NaN is passed on
        for share, others in zip(shares[1:], values[1:]):
            np.logaddexp(total, others + share, out=total)
    return total


def likeliest(candidates: np.ndarray, logprobs: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The likeliest of the candidates in each row, by falling log-probability and then by id.

    Args:
        candidates: token ids of shape (rows, m), each once in its row; -1 is none.
        logprobs: theirs, of the same shape; ignored beside -1.
        width: how many are returned, at most.

    Returns:
        Tokens, int32, and log-probabilities, float64, both of shape (rows, at most width); -inf beside -1.
    """
    tokens, values = ordered(candidates, np.where(candidates == NO_TOKEN, -np.inf, logprobs))
    return tokens[:, :width].copy(), values[:, :width].copy()


def _candidates(parts: Parts) -> np.ndarray:
    """Tokens that one teacher at least names in a row, each once, shape (rows, m), int64; -1 is none."""
    named = [part.top_tokens for part in parts.values() if part.top_tokens is not None]
    tokens = np.sort(np.concatenate(named, axis=1, dtype=np.int64), axis=1)
    tokens[:, 1:][tokens[:, 1:] == tokens[:, :-1]] = NO_TOKEN
    tokens = -np.sort(-tokens, axis=1)  # those of -1 last
    most = int((tokens != NO_TOKEN).sum(axis=1).max(initial=0))
    return tokens[:, :most]


def _width(part: SequenceLogprobs) -> int:
    return 0 if part.top_tokens is None else part.top_tokens.shape[1]


def _combined(parts: Parts | Problem, weights: Sequence[float]) -> SequenceLogprobs | Problem:
    """The result of a sequence without the likeliest tokens; of one teacher, that one's result."""
    if isinstance(parts, Problem):
        return parts
    results, shares = list(parts.values()), [weights[teacher] for teacher in parts]
    if len(results) == 1:
        return results[0]
    targets = [part.target_logprobs for part in results if part.target_logprobs is not None]
    return SequenceLogprobs(
        logprobs=mixed([part.logprobs for part in results if part.logprobs is not None], shares),
        first=results[0].first,
        tokens=results[0].tokens,
        target_logprobs=mixed(targets, shares) if targets else None,
    )


def _agreed(parts: dict[int, SequenceLogprobs | Problem], field: str) -> Parts | Problem:
    """What the teachers of a sequence measured, or why they cannot be combined."""
    found: Parts = {}
    for teacher, part in parts.items():
        if isinstance(part, Problem):
            return part
        found[teacher] = part
    first, *others = found
    for other in others:
        if found[other].tokens != found[first].tokens or found[other].first != found[first].first:
            message = f"has other tokens for teachers[{other}] than for teachers[{first}]: they need one tokenizer"
            return problem_of(InvalidField(field, f"{message}, or give token ids"))
    return found


def _of_likeliest(problem: Problem) -> Problem:
    """A problem of the second round without the path of targets, which the worker made of the likeliest tokens."""
    field, found, _ = problem.field.partition(".targets")
    if not found:
        return problem
    message = f"{problem.message}: top_k of several teachers needs one vocabulary"
    return dataclasses.replace(problem, field=field, message=message)


def _named(result: SequenceLogprobs | Problem, teacher: str) -> SequenceLogprobs | Problem:
    """A result whose problem says which teacher has it."""
    if not isinstance(result, Problem) or result.field.startswith(teacher):
        return result
    if result.field == "model":
        return dataclasses.replace(result, field=f"{teacher}.model")
    return dataclasses.replace(result, message=f"{teacher}: {result.message}")


def chosen_items(teachers: Sequence[Teacher], count: int, name: str, *, most: int) -> list[list[int]]:
    """For each teacher the indices of its sequences.

    Raises:
        InvalidField: there are too many teachers, an index is wrong, or a sequence has no teacher.
    """
    if len(teachers) > most:
        raise InvalidField("teachers", f"has {len(teachers):,}, at most {most:,} are accepted (max_teachers)")
    for index, teacher in enumerate(teachers):
        field = f"teachers[{index}].items"
        # One more than there are tells, however many are given: the event loop does not wait for the others.
        first = teacher.items[: count + 1]
        for place in first:
            if not 0 <= place < count:
                raise InvalidField(field, f"has {place}, {name} has {count:,} entries")
        if len(set(first)) != len(first):
            raise InvalidField(field, "has an index twice")
    chosen = [list(teacher.items) or list(range(count)) for teacher in teachers]
    known = {place for places in chosen for place in places}
    if missing := [place for place in range(count) if place not in known]:
        raise InvalidField("teachers", f"leave out {name}[{missing[0]}]: each of them needs a teacher")
    return chosen
