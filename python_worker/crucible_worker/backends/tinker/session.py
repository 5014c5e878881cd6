"""The session at one service that its models share: made once, with bounds on concurrency and on stalls."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition, Unavailable
from crucible_bridge.reasons import Reason
from crucible_worker.backends.tinker.services import TinkerService
from crucible_worker.util.tasks import retrieve_error

if TYPE_CHECKING:
    from crucible_worker.backends.tinker.client import Service

__all__ = ["CLOSE_SECONDS", "CONNECT_SECONDS", "Shared", "TinkerSession", "in_thread"]

_T = TypeVar("_T")

# Objects that are made once for all callers, and blocking functions that make them.


class Shared(Generic[_T]):
    """An object that is made when it is first needed; if that fails, the next caller tries again.

    Args:
        make: makes it. It continues when the waiting callers are cancelled, as others may come.
    """

    def __init__(self, make: Callable[[], Awaitable[_T]]) -> None:
        self._make = make
        self._making: asyncio.Future[_T] | None = None

    @property
    def made(self) -> _T | None:
        """The object if it is made already, else None."""
        making = self._making
        if making is None or not making.done() or making.cancelled() or making.exception() is not None:
            return None
        return making.result()

    async def get(self) -> _T:
        """The object, made if necessary."""
        if self._making is None:
            self._making = asyncio.ensure_future(self._make())
            self._making.add_done_callback(self._finished)
        return await asyncio.shield(self._making)

    def drop(self) -> None:
        """Forget it, so that the next caller makes a new one; stops one that is being made."""
        making, self._making = self._making, None
        if making is not None:
            making.cancel()

    def _finished(self, making: asyncio.Future[_T]) -> None:
        # Retrieving the exception also keeps asyncio from logging it.
        if (making.cancelled() or making.exception() is not None) and self._making is making:
            self._making = None


def in_thread(function: Callable[[], _T], *, leftover: Callable[[_T], object] = lambda _: None) -> asyncio.Future[_T]:
    """Call a function that may block for minutes, in a daemon thread, which does not delay the end of the process.

    Args:
        function: what to call.
        leftover: called with the result if no caller waits for it any longer.
    """
    outcome: Future[_T] = Future()

    def run() -> None:
        try:
            result = function()
        except BaseException as error:
            if outcome.set_running_or_notify_cancel():
                outcome.set_exception(error)
        else:
            if outcome.set_running_or_notify_cancel():
                outcome.set_result(result)
            else:
                leftover(result)

    threading.Thread(target=run, name="tinker", daemon=True).start()
    return asyncio.wrap_future(outcome)


CONNECT_SECONDS = 60.0
"""Seconds until a session must be made; the library would try for five minutes."""

CLOSE_SECONDS = 0.5
"""Seconds to finish a session; after that, the service ends it for lack of its heartbeat."""


class TinkerSession:
    """A service, and the session at it; making one sends nothing.

    Args:
        service: its settings.
        library: makes the tinker library's client of `base_url` and `api_key`; the library's own if None.
    """

    def __init__(
        self,
        service: TinkerService,
        library: Callable[..., Any] | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.service = service
        self._environment = environment
        self._library = library
        self._session: Shared[Service] = Shared(self._connect)
        self._turns = asyncio.Semaphore(service.max_in_flight)
        self._answered = float("-inf")
        self._key = ""
        self._closed = False

    async def ready(self) -> Service:
        """The session, made if necessary.

        Raises:
            FailedPrecondition: the extra is not installed, or the key cannot be read or is of another kind.
            BackendError: the service cannot be reached, or refuses the key.
        """
        if self._closed:
            raise Unavailable("the tinker backend is closed", reason=Reason.BACKEND_CLOSED, retryable=False)
        return await self._session.get()

    async def call(self, begin: Callable[[], Future[_T]], model: str, *, cancel: bool = True) -> _T:
        """Call the service, once it is ready.

        Args:
            begin: begins the call.
            model: its name, for errors.
            cancel: whether the call is cancelled when its caller is; otherwise it is left running.

        Raises:
            BridgeError: there is no answer; see `client.of_error`.
        """
        async with self._turns:
            waiting = self._started(begin, model)
            try:
                await self._wait(waiting)
            finally:
                if cancel and not waiting.done():
                    waiting.cancel()
            try:
                return waiting.result()
            except asyncio.CancelledError:  # by the library: its session was closed during the call
                raise BackendError(f"{self._where} cancelled the call", reason=Reason.BACKEND_CANCELLED) from None
            except Exception as error:
                raise self._failure(error, model) from None

    async def aclose(self) -> None:
        """Finish the session; calls under way fail. Idempotent."""
        self._closed = True
        made = self._session.made
        self._session.drop()
        if made is not None:
            closing = asyncio.wrap_future(made.close())
            closing.add_done_callback(retrieve_error)
            with contextlib.suppress(TimeoutError, Exception):  # nothing could be done about an error here
                async with asyncio.timeout(CLOSE_SECONDS):
                    await closing

    def key(self) -> str:
        """The service's key, read from its file or variable.

        Raises:
            FailedPrecondition: it does not exist, or is not a key (BACKEND_KEY).
        """
        try:
            return self.service.key(self._environment)
        except ValueError as error:
            raise FailedPrecondition(str(error), reason=Reason.BACKEND_KEY) from None

    @property
    def _where(self) -> str:
        return f"Tinker service {self.service.name!r}"

    def _started(self, begin: Callable[[], Future[_T]], model: str) -> asyncio.Future[_T]:
        try:
            waiting = asyncio.wrap_future(begin())
        except Exception as error:
            raise self._failure(error, model) from None
        waiting.add_done_callback(retrieve_error)
        return waiting

    async def _wait(self, waiting: asyncio.Future[Any]) -> None:
        """Wait until the call is done, or until the service has answered no call for too long."""
        now, stall = asyncio.get_running_loop().time, self.service.stall_seconds
        began = now()
        while not waiting.done():
            left = max(began, self._answered) + stall - now()
            if left <= 0:
                message = f"{self._where} has answered no call for {stall:g} s"
                raise BackendError(message, reason=Reason.BACKEND_TIMEOUT)
            await asyncio.wait((waiting,), timeout=left)
        self._answered = now()

    async def _connect(self) -> Service:
        self._key = self.key()
        seconds = min(CONNECT_SECONDS, self.service.stall_seconds)
        try:
            async with asyncio.timeout(seconds):
                return await in_thread(self._make, leftover=lambda made: made.close())
        except TimeoutError:
            message = f"{self._where} opened no session within {seconds:g} s"
            raise BackendError(message, reason=Reason.BACKEND_UNREACHABLE) from None

    def _make(self) -> Service:
        module = importlib.import_module("crucible_worker.backends.tinker.client")
        library = {} if self._library is None else {"library": self._library}
        try:
            return module.Service(self.service, self._key, **library)
        except Exception as error:
            raise self._failure(error, "") from None

    def _failure(self, error: Exception, model: str) -> BridgeError:
        if isinstance(error, BridgeError):
            return error
        failures = importlib.import_module("crucible_worker.backends.tinker.client")  # imports the library
        return failures.of_error(error, self.service.name, model, self._key)
