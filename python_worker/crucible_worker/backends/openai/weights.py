"""Whether a server has the same weights at the end of an evaluation as at its start, though none shows its weights.

A fixed prompt is measured at each replica: the log-probabilities of its tokens depend on all weights. Two measurements
are not equal bit for bit, as a GPU computes a prompt in batches with others. So the mean of their differences counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_worker.backends.openai.connection import DECISIVE, ServerConnection
from crucible_worker.backends.openai.scoring import Scorer

__all__ = [
    "PROBE",
    "TOLERANCE",
    "LogprobsOfProbe",
    "distance",
    "measure",
    "measure_all",
    "refuse_change",
    "refuse_difference",
    "told_of_distance",
]

PROBE: tuple[int, ...] = (
    *(40, 71, 33, 86, 52, 97, 65, 110, 38, 79, 44, 101, 58, 92, 36, 83),
    *(107, 49, 74, 60, 95, 41, 88, 54, 112, 67, 35, 99, 46, 81, 63, 90),
)
"""The prompt: ids that every vocabulary has, in an order that no text has, so that no token is certain."""

TOLERANCE = 0.125
"""Largest mean difference of two measurements of the same weights, in nats for each token.

bfloat16 has 8 significant bits: logits from 16 to 32 are multiples of 0.125, and those from 8 to 16 of 0.0625. Another
batch rounds a logit to the next multiple at worst, up or down, and the mean over all tokens stays below one step. Other
training steps of a model differ by more as soon as a run has learned; a single step of it may differ by less.
"""

LogprobsOfProbe = tuple[float, ...]
"""Log-probabilities of all tokens of the prompt but the first, nats."""


class HasConnections(Protocol):
    """One server, or replicas of it."""

    async def connections(self, *, serving: bool = True) -> Mapping[str, ServerConnection]:
        """The connection to each replica, by its name."""
        ...


async def measure(connection: ServerConnection, model: str) -> LogprobsOfProbe:
    """Measure the prompt at one replica.

    Raises:
        FailedPrecondition: the server returns no log-probabilities of a prompt (NO_PROMPT_LOGPROBS).
        BackendError: there is no valid answer.
    """

    async def ask(body: dict[str, Any], tokens: int) -> dict[str, Any]:
        return await connection.ask("/completions", body, model, tokens=tokens)

    scores = await Scorer(connection.server.name, model, ask).score(PROBE)
    return tuple(score for score in scores[1:] if score is not None)


async def measure_all(connection: HasConnections, model: str) -> Mapping[str, LogprobsOfProbe]:
    """Measure the prompt at each replica that serves; those that are gone meanwhile are left out.

    Raises:
        FailedPrecondition: a server returns no log-probabilities of a prompt (NO_PROMPT_LOGPROBS).
        BackendError: no replica answers.
    """
    replicas = dict(await connection.connections())
    found = await asyncio.gather(*(measure(one, model) for one in replicas.values()), return_exceptions=True)
    measured: dict[str, LogprobsOfProbe] = {}
    absent: BaseException | None = None
    for name, result in zip(replicas, found, strict=True):
        if not isinstance(result, BaseException):
            measured[name] = result
        elif isinstance(result, BridgeError) and result.reason in DECISIVE:
            absent = result
        else:
            raise result
    if not measured:
        if absent is None:
            raise BackendError("no replica of the server serves", reason=Reason.BACKEND_UNREACHABLE, retryable=True)
        raise absent
    return measured


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """Mean difference of two measurements, nats for each token; infinite if they have not the same length."""
    if len(one) != len(other) or not one:
        return float("inf")
    return sum(abs(left - right) for left, right in zip(one, other, strict=True)) / len(one)


def told_of_distance(before: Mapping[str, LogprobsOfProbe], now: Mapping[str, LogprobsOfProbe]) -> str:
    """How two measurements of a server differ, in words; empty if they agree.

    A replica without a measurement before is compared with any other one: all have the same weights.
    """
    some = next(iter(before.values()))
    for name, measured in now.items():
        if (far := distance(before.get(name, some), measured)) > TOLERANCE:
            return (
                f"the log-probabilities of a fixed prompt at {name} differ by {far:.3g} nats a token, more than "
                f"{TOLERANCE:g}"
            )
    return ""


def refuse_difference(server: str, model: str, measured: Mapping[str, LogprobsOfProbe]) -> None:
    """Refuse replicas whose weights differ.

    Raises:
        FailedPrecondition: two of them differ (REPLICAS_DIFFER).
    """
    first = dict([next(iter(measured.items()))])
    if what := told_of_distance(first, measured):
        raise FailedPrecondition(
            f"the replicas of server {server!r} do not serve the same weights as {model!r}: {what} from those at "
            f"{next(iter(first))}",
            reason=Reason.REPLICAS_DIFFER,
        )


def refuse_change(server: str, model: str, what: str) -> None:
    """Refuse an evaluation if something has changed.

    Args:
        server: its name.
        model: name of the model.
        what: how it differs; empty if it does not.

    Raises:
        FailedPrecondition: it has changed (MODEL_CHANGED).
    """
    if what:
        raise FailedPrecondition(
            f"the model {model!r} of server {server!r} changed while it was evaluated: {what}. Its results are of "
            "different weights: start another evaluation, and let nothing load weights meanwhile",
            reason=Reason.MODEL_CHANGED,
            field="model",
        )
