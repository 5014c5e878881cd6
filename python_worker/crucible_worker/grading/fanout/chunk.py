"""A chunk of answers on its way to a node of the cluster, and the grades on their way back.

The order is a pickle: what Ray sends to its nodes it pickles anyway, and unions of dataclasses have no other form. The
reply is plain data of declared types, so a worker unpickles nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import operator
import pickle
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_type_hints

import msgspec

from crucible_bridge.errors import BridgeError
from crucible_bridge.types import CodeItem, CodeLimits, Grade, GradeItem, MathPolicy, Problem, ScoreOptions, Verdict
from crucible_worker.children.messages import decoded, encoded, error_from_map, error_to_map
from crucible_worker.grading.code.images import CodeImage
from crucible_worker.grading.math.grader import POLICY_VERSION

__all__ = [
    "ChunkOrder",
    "Item",
    "Kind",
    "ProgramRules",
    "Rules",
    "grades_of",
    "order_from",
    "refusal",
    "release",
    "reply",
    "sent",
]


@functools.cache
def release() -> str:
    """The version of the distribution, and that of the math grader's rules: verdicts are equal where releases are."""
    return f"{importlib.metadata.version('crucible-bridge')} (rules of mathematics {POLICY_VERSION})"


Kind: TypeAlias = Literal["math", "text", "code"]
"""What is graded."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRules:
    """How programs are run."""

    limits: CodeLimits
    """Limits of each test."""
    image: CodeImage | None = None
    """The image with the packages that can be imported; its folder is there on every node."""


Item: TypeAlias = GradeItem | CodeItem
Rules: TypeAlias = MathPolicy | ScoreOptions | ProgramRules


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChunkOrder:
    """A chunk to be graded."""

    kind: Kind
    """What is graded."""
    items: Sequence[Item]
    """One or more."""
    rules: Rules
    """How."""


_FIELDS = tuple(field.name for field in dataclasses.fields(Grade))
_HINTS = get_type_hints(Grade, localns={"Verdict": Verdict, "Problem": Problem})
_Row = tuple[*(_HINTS[name] for name in _FIELDS)]
_REPLY = msgspec.msgpack.Decoder(tuple[list[_Row], dict[str, Any] | None])
_row_of = operator.attrgetter(*_FIELDS)


def sent(order: ChunkOrder) -> bytes:
    """An order as it travels."""
    return pickle.dumps(order, protocol=pickle.HIGHEST_PROTOCOL)


def order_from(body: bytes) -> ChunkOrder:
    """The order that `sent` was given. Only for a process of the cluster, which runs what its drivers send."""
    return pickle.loads(body)


def reply(grades: Sequence[Grade]) -> bytes:
    """The grades of an order's items, in their order."""
    return encoded(([_row_of(grade) for grade in grades], None))


def refusal(error: BridgeError) -> bytes:
    """The reply of a node that cannot grade."""
    return encoded(([], error_to_map(error)))


def grades_of(order: ChunkOrder, body: bytes) -> list[Grade]:
    """The grades in a reply, one for each item.

    Raises:
        BridgeError: the node cannot grade.
        ValueError: it is no reply to this order.
    """
    rows, error = decoded(body, _REPLY)
    if error is not None:
        raise error_from_map(error)
    if len(rows) != len(order.items):
        raise ValueError(f"{len(rows)} grades of {len(order.items)} answers")
    return [Grade(**dict(zip(_FIELDS, row))) for row in rows]
