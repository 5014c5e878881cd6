"""Followed runs and their checkpoints in the journal.

What happens to a checkpoint and the event of it are one transaction: so each is there once, however workers end.
"""

from __future__ import annotations

import dataclasses
import enum
import time
from collections.abc import Callable, Sequence

from crucible_bridge.errors import AlreadyExists, NotFound
from crucible_bridge.events import Event
from crucible_bridge.reasons import Reason
from crucible_bridge.types import EvaluationState
from crucible_worker.journal.queries import Reads
from crucible_worker.journal.store import Transaction

__all__ = [
    "CheckpointRow",
    "CheckpointState",
    "FollowRow",
    "StepState",
    "begin",
    "checkpoint_rows",
    "end",
    "find_follow",
    "find_follow_of",
    "open_follows",
    "place_of_model",
    "record",
    "step_states",
]

_OPEN = "('held', 'started')"


class CheckpointState(enum.StrEnum):
    """What has happened to a checkpoint."""

    HELD = "held"
    """It is going to be evaluated."""
    STARTED = "started"
    """The plan was notified of it."""
    RELEASED = "released"
    """Its evaluations have ended, and nothing reads it."""
    SKIPPED = "skipped"
    """It is not evaluated."""

    @property
    def is_open(self) -> bool:
        """Whether something is still to be done."""
        return self in (CheckpointState.HELD, CheckpointState.STARTED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FollowRow:
    """The row of a followed run; see the schema for the meaning of the columns."""

    run_id: str
    plan_id: str
    directory: str
    hold_folder: str
    policy: str
    every: int
    name_pattern: str
    marker: str
    base_model: str
    mark: bool
    by_command: bool
    number: int = 0
    ended_ns: int = 0

    @property
    def ended(self) -> bool:
        """Whether no further checkpoint is wanted."""
        return self.ended_ns > 0

    def differs_from(self, other: FollowRow) -> list[str]:
        """The fields in which two rows differ, besides number and end."""
        names = [field.name for field in dataclasses.fields(self) if field.name not in ("number", "ended_ns")]
        return [name for name in names if getattr(self, name) != getattr(other, name)]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRow:
    """The row of a checkpoint; see the schema for the meaning of the columns."""

    name: str
    identity: str
    step: int
    state: CheckpointState
    source: str
    path: str
    model: str
    held: str
    held_identity: str
    written_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class StepState:
    """The state of an evaluation of a step."""

    evaluation_id: str
    number: int
    state: EvaluationState | None
    """None if the evaluation was removed."""


_COLUMNS = ", ".join(
    (
        *("run_id", "plan_id", "directory", "hold_folder", "policy", "every", "name_pattern", "marker", "base_model"),
        *("mark", "by_command"),
    )
)


def find_follow(source: Reads, run_id: str) -> FollowRow | None:
    """The followed run of an id; None if it was never followed."""
    return _follow(source, "run_id = ?", run_id)


def find_follow_of(source: Reads, number: int) -> FollowRow | None:
    """A followed run by its number; None if it was removed."""
    return _follow(source, "number = ?", number)


def open_follows(source: Reads) -> list[FollowRow]:
    """The followed runs of which something is still to be done."""
    found = source.execute(
        f"""SELECT number FROM follows WHERE ended_ns = 0 OR EXISTS (
                SELECT 1 FROM followed_checkpoints WHERE follow = number AND state IN {_OPEN}) ORDER BY number"""
    ).fetchall()
    rows = [find_follow_of(source, number) for (number,) in found]
    return [row for row in rows if row is not None]


def begin(transaction: Transaction, wanted: FollowRow, is_free: Callable[[int], bool]) -> tuple[FollowRow, bool]:
    """Follow a run, or resume; returns the row, and whether the run was followed already.

    A run that is followed in another way than before, after its end, begins anew: its checkpoints are forgotten. What a
    command follows has ended with the command, which `is_free` tells by the row's number.

    Raises:
        AlreadyExists: it is followed in another way just now.
    """
    row = find_follow(transaction, wanted.run_id)
    if row is not None:
        differs = row.differs_from(wanted)
        if differs and not row.ended and not (row.by_command and is_free(row.number)):
            raise AlreadyExists(
                f"is {row.run_id!r}, which is followed with another {', '.join(differs)}: end that first (UnfollowRun)",
                reason=Reason.OTHER_FOLLOW,
                field="run_id",
                metadata={"differs": ", ".join(differs)},
            )
        if not differs:
            transaction.execute("UPDATE follows SET ended_ns = 0 WHERE number = ?", (row.number,))
            return dataclasses.replace(row, ended_ns=0), not row.ended
        transaction.execute("DELETE FROM follows WHERE number = ?", (row.number,))
    values = [getattr(wanted, name) for name in _COLUMNS.split(", ")]
    (number,) = transaction.execute(
        f"INSERT INTO follows ({_COLUMNS}) VALUES ({', '.join('?' * len(values))}) RETURNING number", tuple(values)
    ).fetchone()
    return dataclasses.replace(wanted, number=number), False


def end(transaction: Transaction, run_id: str) -> bool:
    """End the following of a run; returns whether it was followed until now.

    Raises:
        NotFound: it was never followed.
    """
    row = find_follow(transaction, run_id)
    if row is None:
        raise NotFound(
            f"is {run_id!r}: no directory was ever followed for this run", reason=Reason.UNKNOWN_FOLLOW, field="run_id"
        )
    if row.ended:
        return False
    transaction.execute("UPDATE follows SET ended_ns = ? WHERE number = ?", (time.time_ns(), row.number))
    return True


def checkpoint_rows(source: Reads, number: int) -> list[CheckpointRow]:
    """The checkpoints of a followed run, by step."""
    names = [field.name for field in dataclasses.fields(CheckpointRow)]
    rows = source.execute(
        f"SELECT {', '.join(names)} FROM followed_checkpoints WHERE follow = ? ORDER BY step, name", (number,)
    ).fetchall()
    found = [CheckpointRow(**dict(zip(names, row, strict=True))) for row in rows]
    return [dataclasses.replace(row, state=CheckpointState(row.state)) for row in found]


def record(transaction: Transaction, number: int, row: CheckpointRow, events: Sequence[Event] = ()) -> bool:
    """Record how a checkpoint stands, and append the events of that; False if the followed run was removed.

    Recorded once: if the checkpoint stands so already, nothing is appended.
    """
    if find_follow_of(transaction, number) is None:
        return False
    before = transaction.execute(
        "SELECT state FROM followed_checkpoints WHERE follow = ? AND name = ? AND identity = ?",
        (number, row.name, row.identity),
    ).fetchone()
    if before is not None and before[0] == row.state:
        return True
    values = (number, *dataclasses.astuple(row))
    transaction.execute(f"INSERT OR REPLACE INTO followed_checkpoints VALUES ({', '.join('?' * len(values))})", values)
    if events:
        transaction.append(0, events)
    return True


def step_states(source: Reads, plan_id: str, steps: Sequence[int]) -> dict[int, list[StepState]]:
    """The evaluations of each of these steps, in the order of the plan's parts."""
    found: dict[int, list[StepState]] = {}
    for step in steps:
        rows = source.execute(
            """SELECT plan_steps.evaluation_id, number, state FROM plan_steps
               LEFT JOIN evaluations ON evaluations.evaluation_id = plan_steps.evaluation_id
               WHERE plan_id = ? AND plan_steps.step = ? ORDER BY part""",
            (plan_id, step),
        ).fetchall()
        states = {
            name: StepState(name, number or 0, None if state is None else EvaluationState(state))
            for name, number, state in rows
        }
        found[step] = list(states.values())
    return found


def _follow(source: Reads, condition: str, value: object) -> FollowRow | None:
    row = source.execute(f"SELECT {_COLUMNS}, number, ended_ns FROM follows WHERE {condition}", (value,)).fetchone()
    if row is None:
        return None
    named = dict(zip((*_COLUMNS.split(", "), "number", "ended_ns"), row, strict=True))
    named |= {name: bool(named[name]) for name in ("mark", "by_command")}
    return FollowRow(**named)


def place_of_model(source: Reads, plan_id: str, model: str) -> tuple[str, str] | None:
    """The followed directory of a plan's run, and the checkpoint in it that was evaluated as a model.

    None if no followed run has evaluated that model.
    """
    return source.execute(
        """SELECT follows.directory, checkpoints.source FROM follows
           JOIN followed_checkpoints AS checkpoints ON checkpoints.follow = follows.number
           WHERE follows.plan_id = ? AND checkpoints.model = ? LIMIT 1""",
        (plan_id, model),
    ).fetchone()
