"""Models that do not answer at all: their calls wait until they answer again, for a bounded time.

    12:00:01  call fails, is tried again, fails at its last try
    12:00:04  the model is asked whether it is available: it is not, so an outage begins
    12:00:04  no call of this model continues, and no sample runs out of time
    12:00:13  it is available again: the calls that failed are made again, with all of their tries

If the model is available at 12:00:04, the error is that of the call. An outage that lasts too long interrupts the
evaluation.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import structlog

from crucible_bridge.errors import BridgeError
from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import ModelRef, OpenAIModel, Problem, TinkerModel
from crucible_worker.backends.base import Model
from crucible_worker.util.error_reporter import logged
from crucible_worker.util.held_paths import format_own_model
from crucible_worker.util.timeouts import TimeoutQueue

__all__ = [
    "ASK_SECONDS",
    "FIRST_WAIT_SECONDS",
    "MAX_WAIT_SECONDS",
    "ModelOutages",
    "Outage",
    "OutageListener",
    "gone",
    "service_of",
]

FIRST_WAIT_SECONDS = 1.0
"""Seconds until a model that is not available is asked again; doubled each time, and drawn between half and all of it.
"""
MAX_WAIT_SECONDS = 15.0
"""Longest such wait, unless the model's server names another time."""
ASK_SECONDS = 30.0
"""A model that does not say within this time whether it is available is not."""

_log = structlog.get_logger(__name__)


@dataclasses.dataclass(slots=True, kw_only=True)
class Outage:
    """A model that does not answer."""

    name: str
    """What does not answer, as users know it: "server lab"."""
    message: str
    """The last error."""
    since_ns: int
    """When it was noticed, Unix time."""
    over: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    """Set at its end."""

    @property
    def waiting_for(self) -> str:
        """In words: "server lab since 22:57:03 UTC"."""
        return f"{self.name} since {time.strftime('%H:%M:%S', time.gmtime(self.since_ns / 1e9))} UTC"


class OutageListener(Protocol):
    """Whoever runs the samples."""

    def model_away(self, outage: Outage) -> None:
        """An outage has begun."""

    def model_back(self, outage: Outage) -> None:
        """It is over."""

    def model_gone(self, outage: Outage) -> None:
        """It has lasted too long."""


class ModelOutages:
    """The outages of the models of one attempt; used in one event loop."""

    def __init__(
        self,
        listener: OutageListener,
        alarms: TimeoutQueue,
        *,
        seconds: float,
        name_of: Callable[[Model], str],
    ) -> None:
        """See the module.

        Args:
            listener: receives each outage.
            alarms: of the samples; no time passes for them during an outage.
            seconds: how long one may last.
            name_of: returns what a model is called.
        """
        self._listener, self._alarms, self._seconds, self._name_of = listener, alarms, seconds, name_of
        self._asking: dict[int, asyncio.Task[Outage | None]] = {}
        self._answered: dict[int, float] = {}
        self._probing: set[asyncio.Task[None]] = set()
        self._closed = False
        self._now: dict[int, Outage] = {}

    @property
    def now(self) -> Mapping[int, Outage]:
        """Those under way."""
        return self._now

    def answered(self, model: Model) -> None:
        """A call of a model has succeeded."""
        self._answered[id(model)] = time.monotonic()

    async def over(self, model: Model) -> None:
        """Wait for the end of a model's outage, if there is one."""
        if (outage := self._now.get(id(model))) is not None:
            await outage.over.wait()

    async def began(self, model: Model, error: BridgeError, tried: float) -> bool:
        """Find whether an error that a call keeps is that of an outage, and if so, wait for its end.

        Args:
            model: the model.
            error: of the call's last try.
            tried: when that try began, by `time.monotonic`.

        Returns:
            Whether there was an outage, so that the call is to be made again.
        """
        key = id(model)
        if key not in self._now:
            if self._closed or self._answered.get(key, tried) > tried:
                return False
            if key not in self._asking:
                # Calls that fail together share an answer, and the cancellation of one does not affect the others.
                self._asking[key] = asyncio.create_task(self._ask(model, error))
                self._asking[key].add_done_callback(lambda _: self._asking.pop(key, None))
            asking = self._asking[key]
            await asyncio.wait([asking])
            outage = None if asking.cancelled() else asking.result()
            if outage is None:
                return self._closed  # then no call is let through any more
            await outage.over.wait()
        else:
            await self._now[key].over.wait()
        return True

    def close(self) -> None:
        """End all waits."""
        self._closed = True
        for task in (*self._asking.values(), *self._probing):
            task.cancel()
        for outage in self._now.values():
            outage.over.set()
        self._now.clear()

    async def _ask(self, model: Model, error: BridgeError) -> Outage | None:
        if (found := await _unavailable(model)) is None or self._closed:
            return None
        outage = Outage(name=self._name_of(model), message=found.message, since_ns=time.time_ns())
        _log.warning("model_away", model=outage.name, reason=found.reason, error=found.message)
        if not self._now:
            self._alarms.freeze()
        self._now[id(model)] = outage
        self._listener.model_away(outage)
        task = asyncio.create_task(self._wait(model, outage, error.retry_after))
        self._probing.add(task)
        task.add_done_callback(self._probing.discard)
        return outage

    async def _wait(self, model: Model, outage: Outage, named: float | None) -> None:
        """Ask until the model is available, or the outage has lasted too long."""
        ends, wait = time.monotonic() + self._seconds, FIRST_WAIT_SECONDS
        while (left := ends - time.monotonic()) > 0:
            await asyncio.sleep(min(left, max(random.uniform(wait / 2, wait), named or 0.0)))
            wait = min(2 * wait, MAX_WAIT_SECONDS)
            found = await _unavailable(model)
            if found is None:
                self._end(model, outage)
                return
            named, outage.message = found.retry_after, found.message
        _log.warning("model_gone", model=outage.name, seconds=self._seconds, error=outage.message)
        self._listener.model_gone(outage)

    def _end(self, model: Model, outage: Outage) -> None:
        seconds = (time.time_ns() - outage.since_ns) / 1e9
        _log.info("model_back", model=outage.name, seconds=round(seconds, 1))
        self._now.pop(id(model), None)
        self.answered(model)
        if not self._now:
            self._alarms.go_on()
        self._listener.model_back(outage)
        outage.over.set()


def gone(outage: Outage, seconds: float) -> Problem:
    """Why an evaluation is interrupted by an outage that lasted so long."""
    message = f"{outage.name} did not answer for outage_seconds, {seconds:g}: {outage.message}"
    return Problem(reason=Reason.MODEL_OUTAGE, message=shorten(message, MAX_PROBLEM_BYTES), retryable=True)


def service_of(model: ModelRef) -> str:
    """What answers for a model, as users know it: "server lab", or the model itself."""
    match model:
        case OpenAIModel():
            return f"server {model.server}"
        case TinkerModel():
            return f"service {model.service}" if model.service else "the Tinker service"
        case _:
            return f"model {format_own_model(model)}"


async def _unavailable(model: Model) -> BridgeError | None:
    """Why a model is not available; None if it is, or if it answers with what is no matter of time."""
    try:
        async with asyncio.timeout(ASK_SECONDS):
            await model.available()
    except TimeoutError:
        return BridgeError(f"did not say within {ASK_SECONDS:g} s whether it is available")
    except BridgeError as error:
        return error if error.retryable else None
    except Exception as error:  # of a user's backend: the call's own error counts
        logged(_log, "availability_unknown", error)
    return None
