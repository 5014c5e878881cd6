"""What the calls of evaluations may cost: each call waits at the gate once a bound is reached.

    limits: max_cost 10, max_run_cost 40       of an evaluation, and of all evaluations of its run together
    a call is answered                         its cost is added at once, whatever becomes of its sample
    10.02 of max_cost 10                       no call begins; the evaluation is paused, with this reason
    resume with max_cost 20                    the calls that wait begin

So a bound is exceeded at most by the calls in flight. The sums are recorded with each batch of samples, with every
answer so far: after the death of a worker, what is not in them are the answers since the last batch.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Evaluation, Limits, ModelPrice, ModelRef, Problem, format_model
from crucible_worker.backends.metering import Charged
from crucible_worker.journal import Transaction
from crucible_worker.journal.queries import EvaluationRow, Reads
from crucible_worker.util.prices import cost_of, price_of
from crucible_worker.util.tasks import TimeoutQueue

__all__ = [
    "Amount",
    "Bounds",
    "BudgetListener",
    "CostBudget",
    "RunBudgets",
    "bounds_of",
    "create",
    "is_of_run",
    "note_spent",
    "raise_bounds",
    "read_budget",
    "refuse_unpriced",
    "waiting_of_run",
    "waits_for_budget",
    "writing",
]

T = TypeVar("T")

_LARGER = "a larger "


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What may be spent; None is no bound."""

    max_cost: float | None = None
    """Cost of the evaluation."""
    max_output_tokens: int | None = None
    """Tokens that models generate for it."""
    max_run_cost: float | None = None
    """Cost of all evaluations of its run with such a bound."""
    max_run_output_tokens: int | None = None
    """Tokens that models generate for these."""

    @property
    def of_cost(self) -> str:
        """The name of a bound of the cost; empty without one."""
        return next((name for name in ("max_cost", "max_run_cost") if getattr(self, name) is not None), "")

    @property
    def of_run(self) -> bool:
        """Whether there is a bound of the run."""
        return self.max_run_cost is not None or self.max_run_output_tokens is not None


@dataclasses.dataclass(frozen=True, slots=True)
class Amount:
    """What calls took."""

    cost: float = 0.0
    """By the prices of the workers that made them."""
    output_tokens: int = 0
    """Generated tokens."""

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.cost + other.cost, self.output_tokens + other.output_tokens)

    def at_least(self, other: Amount) -> Amount:
        """The larger numbers of both: what is spent only grows."""
        return Amount(max(self.cost, other.cost), max(self.output_tokens, other.output_tokens))


def bounds_of(limits: Limits) -> Bounds | None:
    """The bounds of a request; None if it has none."""
    found = Bounds(**{name: getattr(limits, name) for name in _NAMES})
    return None if found == Bounds() else found


_NAMES = tuple(field.name for field in dataclasses.fields(Bounds))


def is_of_run(name: str) -> bool:
    """Whether a bound is that of a run."""
    return name in _NAMES[2:]


def refuse_unpriced(bounds: Bounds | None, models: Iterable[ModelRef], prices: tuple[ModelPrice, ...]) -> None:
    """Refuse a bound of the cost where a model has no price.

    Raises:
        FailedPrecondition: one has none (NO_PRICE).
    """
    if bounds is None or not (name := bounds.of_cost):
        return
    for model in map(format_model, models):
        if price_of(model, prices) is None:
            raise FailedPrecondition(
                f"is given, and {model} has no price at this worker: set one with --price "
                f"'{model}=prompt:P,output:Q', per million tokens",
                reason=Reason.NO_PRICE,
                field=f"limits.{name}",
            )


def _reached(bounds: Bounds, own: Amount, run: Amount) -> tuple[str, float, float] | None:
    """The bound that is reached, what is spent of it, and the bound; None if none is reached."""
    for name, most, spent in (
        ("max_cost", bounds.max_cost, own.cost),
        ("max_output_tokens", bounds.max_output_tokens, own.output_tokens),
        ("max_run_cost", bounds.max_run_cost, run.cost),
        ("max_run_output_tokens", bounds.max_run_output_tokens, run.output_tokens),
    ):
        if most is not None and spent >= most:
            return name, spent, most
    return None


def _in_words(reached: tuple[str, float, float] | None) -> str:
    """What an evaluation waits for; empty if no bound is reached."""
    if reached is None:
        return ""
    name, spent, most = reached
    return f"{_LARGER}{name}: {spent:,.10g} of {most:,.10g} are spent"


def waits_for_budget(evaluation: Evaluation) -> bool:
    """Whether an evaluation is paused because one of its bounds is reached."""
    return evaluation.paused and evaluation.waiting_for.startswith(f"{_LARGER}max_")


# In the journal.


def create(transaction: Transaction, number: int, run_id: str, bounds: Bounds | None) -> None:
    """Record the bounds of a new evaluation; the largest one that was given for its run counts."""
    if bounds is None:
        return
    transaction.execute(
        "INSERT OR REPLACE INTO evaluation_budgets VALUES (?, ?, ?, ?, ?, 0, 0, '')",
        (number, *(getattr(bounds, name) for name in _NAMES)),
    )
    for name in _NAMES[2:]:
        if run_id and getattr(bounds, name) is not None:
            transaction.execute(
                f"UPDATE evaluation_budgets SET {name} = (SELECT MAX({name}) FROM evaluation_budgets {_OF_RUN})"
                " WHERE number = ?",
                (run_id, number),
            )


_OF_RUN = "WHERE number IN (SELECT number FROM evaluations WHERE run_id = ?)"


def read_budget(source: Reads, number: int) -> tuple[Bounds, Amount] | None:
    """The bounds of an evaluation, and what it has spent; None if it has no bounds."""
    sql = f"SELECT {', '.join(_NAMES)}, cost, output_tokens FROM evaluation_budgets WHERE number = ?"
    if (row := source.execute(sql, (number,)).fetchone()) is None:
        return None
    return Bounds(**dict(zip(_NAMES, row[: len(_NAMES)], strict=True))), Amount(*row[len(_NAMES) :])


def _run_spent(source: Reads, run_id: str) -> dict[int, Amount]:
    """What the evaluations of a run with such bounds have spent as far as it is recorded, by number."""
    sql = f"SELECT number, cost, output_tokens FROM evaluation_budgets {_OF_RUN}"
    return {number: Amount(cost, tokens) for number, cost, tokens in source.execute(sql, (run_id,))}


def waiting_of_run(source: Reads, row: EvaluationRow) -> list[int]:
    """The other evaluations of a run that its bounds keep from continuing, by number."""
    if not row.run_id:
        return []
    sql = f"SELECT number FROM evaluation_budgets {_OF_RUN} AND number <> ? AND spent LIKE ?"
    found = source.execute(sql, (row.run_id, row.number, f"{_LARGER}max_run_%"))
    return [number for (number,) in found]


def note_spent(transaction: Transaction, number: int, spent: str) -> None:
    """Record which bound is reached; empty for none."""
    transaction.execute("UPDATE evaluation_budgets SET spent = ? WHERE number = ?", (spent, number))


def raise_bounds(transaction: Transaction, row: EvaluationRow, given: Mapping[str, float | int]) -> None:
    """Replace bounds by those that a call gives, then refuse to continue while one of them is reached.

    Raises:
        FailedPrecondition: a bound is reached (BUDGET_SPENT), or the evaluation has no such bound.
    """
    found = read_budget(transaction, row.number)
    for name, value in given.items():
        if found is None or getattr(found[0], name) is None:
            raise FailedPrecondition(
                f"is given, and {row.evaluation_id!r} began without such a bound",
                reason=Reason.FAILED_PRECONDITION,
                field=name,
            )
        own = name in _NAMES[:2] or not row.run_id
        where, of = ("WHERE number = ?", row.number) if own else (_OF_RUN, row.run_id)
        transaction.execute(
            f"UPDATE evaluation_budgets SET {name} = ? {where} AND {name} IS NOT NULL",
            (value, of),
        )
    if (found := read_budget(transaction, row.number)) is None:
        return
    bounds, own = found
    run = own if not row.run_id else sum(_run_spent(transaction, row.run_id).values(), Amount())
    if (reached := _reached(bounds, own, run)) is not None:
        name, spent, most = reached
        raise FailedPrecondition(
            f"must be larger: {row.evaluation_id!r} has spent {spent:,.10g} of {most:,.10g}",
            reason=Reason.BUDGET_SPENT,
            field=name,
        )
    note_spent(transaction, row.number, "")


# At work.


class BudgetListener(Protocol):
    """The attempt."""

    def budget_spent(self, why: str) -> None:
        """A bound is reached: no call begins until the pause has ended."""

    def usage_unknown(self, problem: Problem) -> None:
        """A model does not say what its answers take."""


class RunBudgets:
    """The budgets of the attempts of one worker, by run."""

    def __init__(self) -> None:
        """Start without attempts."""
        self._of: dict[str, Mapping[int, CostBudget]] = {}
        self._lock = threading.Lock()

    def at_work(self, run_id: str) -> Mapping[int, CostBudget]:
        """Those of a run, by the number of the evaluation."""
        return self._of.get(run_id, {})

    def enter(self, budget: CostBudget) -> None:
        """Add the budget of an attempt that begins."""
        if budget.run_id:
            with self._lock:
                self._of[budget.run_id] = {**self.at_work(budget.run_id), budget.number: budget}

    def leave(self, budget: CostBudget) -> None:
        """Remove that of an attempt that has ended."""
        with self._lock:
            left = {number: one for number, one in self.at_work(budget.run_id).items() if one is not budget}
            for other in left.values():
                other.recorded = {**other.recorded, budget.number: budget.spent}
            if left:
                self._of[budget.run_id] = left
            else:
                self._of.pop(budget.run_id, None)

    def read(self, budget: CostBudget, recorded: Mapping[int, Amount]) -> None:
        """Apply what the journal's writer has read."""
        with self._lock:
            known = budget.recorded
            budget.recorded = {
                number: amount.at_least(known.get(number, amount)) for number, amount in recorded.items()
            }


class CostBudget:
    """Of one attempt, in one event loop."""

    def __init__(
        self,
        row: EvaluationRow,
        bounds: Bounds,
        spent: Amount,
        *,
        prices: tuple[ModelPrice, ...],
        siblings: RunBudgets,
        listener: BudgetListener,
        timeouts: TimeoutQueue,
    ) -> None:
        """See the module.

        Args:
            row: the evaluation.
            bounds: as they are recorded.
            spent: by earlier attempts.
            prices: of models.
            siblings: those of this worker.
            listener: the attempt.
            timeouts: of the samples; no time passes for them while calls wait.
        """
        self.run_id = row.run_id
        """The run that it belongs to; may be empty."""
        self.spent = spent
        """By this evaluation so far."""
        self.number = row.number
        """Of the evaluation."""
        self.recorded: Mapping[int, Amount] = {}
        """By the evaluations of the run, by number, as it was read the last time."""
        self._bounds, self._prices = bounds, prices
        self._siblings, self._listener, self._timeouts = siblings, listener, timeouts
        self.waiting = 0
        """Calls that wait."""
        self._opened: asyncio.Event | None = None
        self._closed = False

    @property
    def reached(self) -> str:
        """Which bound is reached, in words; empty if none is."""
        run = self.spent
        if self._bounds.of_run and self.run_id:
            here = self._siblings.at_work(self.run_id)
            others = [one.spent for one in here.values() if one is not self]
            others += [amount for number, amount in self.recorded.items() if number not in here]
            run = sum(others, run if self.number in here else Amount())
        return _in_words(_reached(self._bounds, self.spent, run))

    def charged(self, model: ModelRef) -> Charged:
        """The function that a meter calls with each answer of a model."""
        name = format_model(model)
        price = price_of(name, self._prices)
        costs = bool(self._bounds.of_cost)
        counts = self._bounds.max_output_tokens is not None or self._bounds.max_run_output_tokens is not None

        def charge(prompt: int | None, output: int | None, cached: int | None) -> None:
            paid = price if costs else None
            if (output is None and (counts or (paid is not None and paid.output > 0))) or (
                prompt is None and paid is not None and paid.prompt > 0
            ):
                message = (
                    f"{name} does not say how many tokens its answers take, so that no bound of cost or tokens can be "
                    "kept: let its server report `usage`, or evaluate without a bound"
                )
                self._listener.usage_unknown(Problem(reason=Reason.USAGE_NOT_REPORTED, message=message))
            cost = 0.0 if price is None else cost_of(prompt or 0, output or 0, cached or 0, price)
            self.spent += Amount(cost, output or 0)

        return charge

    async def room(self) -> None:
        """Wait until no bound is reached; the first call that finds one reached pauses the evaluation."""
        while not self._closed and (why := self.reached):
            if self._opened is None:
                self._opened = asyncio.Event()
                self._timeouts.freeze()
                self._listener.budget_spent(why)
            self.waiting += 1
            try:
                await self._opened.wait()
            finally:
                self.waiting -= 1

    def reopen(self) -> None:
        """Let calls that wait look again whether a bound is reached."""
        if self._opened is not None:
            opened, self._opened = self._opened, None
            self._timeouts.go_on()
            opened.set()

    def close(self) -> None:
        """End all waits: no further call is let through."""
        self._closed = True
        self.reopen()

    def write(self, transaction: Transaction) -> None:
        """Record what is spent, and read the present bounds, and what others of the run have spent."""
        if (found := read_budget(transaction, self.number)) is not None:
            self._bounds = found[0]
        spent = self.spent
        transaction.execute(
            """UPDATE evaluation_budgets SET cost = ?, output_tokens = ?,
               spent = CASE WHEN spent = '' THEN '' ELSE COALESCE(?, spent) END WHERE number = ?""",
            (spent.cost, spent.output_tokens, self.reached or None, self.number),
        )
        if self._bounds.of_run and self.run_id:
            self._siblings.read(self, _run_spent(transaction, self.run_id))


def writing(budget: CostBudget | None, write: Callable[[Transaction], T]) -> Callable[[Transaction], T]:
    """The same, which also records what is spent."""
    if budget is None:
        return write

    def both(transaction: Transaction) -> T:
        budget.write(transaction)
        return write(transaction)

    return both
