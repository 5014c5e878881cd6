"""The host's side of a process with one tokenizer: one thread calls it, and kills it if it takes too long."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.bounds import HostBounds
from crucible_worker.backends.local.host.fork_server import Child
from crucible_worker.backends.local.host.text_child import IMPORT_COOKBOOK, LOAD
from crucible_worker.children.frames import TooLong, receive
from crucible_worker.children.messages import error_from_map, pack, unpack

__all__ = ["CHARS_PER_SECOND", "COOKBOOK_OPS", "TextProcess"]

CHARS_PER_SECOND = 250_000
"""A text gets a second more for each so many characters: a slow tokenizer reads twice as many per second."""
COOKBOOK_OPS = ("render", "parse")
"""Requests that tinker-cookbook answers."""
_IMPORT_SECONDS = 120.0
"""Further seconds for the import of tinker-cookbook, which no checkpoint causes."""

_log = logging.getLogger(__name__)


class TextProcess:
    """Texts of one tokenizer. If a request exceeds its time, it fails and the process is killed.

    Waiting requests then get the error that the model is not open. The caller opens it again, which reads the files
    again and starts another process.

    Args:
        child: used only by this object.
        bounds: of each request.
        answer: sends a result or an error for the request of that id.
    """

    def __init__(self, child: Child, bounds: HostBounds, answer: Callable[[int, Any], None]) -> None:
        self._child = child
        self._bounds = bounds
        self._answer = answer
        self._waiting: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self._changed = threading.Condition()
        self._dead = False
        self._cookbook = False

    @property
    def dead(self) -> bool:
        """Whether it no longer answers."""
        return self._dead

    def load(self, name: str, fields: dict[str, Any]) -> Any:
        """Load a tokenizer. Requests are accepted afterwards.

        Args:
            name: of the model, for errors.
            fields: what the child loads.

        Returns:
            The child's answer; if it is false, there is no tokenizer, and the process is ended.

        Raises:
            FailedPrecondition: the model is refused, or exceeds a limit.
        """
        seconds = self._bounds.max_checkpoint_seconds
        found = None
        try:
            found = self._ask({"op": LOAD, **fields}, seconds)
        except TimeoutError:
            raise _refused(name, f"cannot be read in {seconds:g} s (max_checkpoint_seconds)") from None
        except EOFError:
            bound = self._bounds.max_rendering_bytes
            raise _refused(name, f"cannot be read in {bound:,} bytes (max_rendering_bytes)") from None
        finally:
            if found:
                threading.Thread(target=self._run, name="texts", daemon=True).start()
            else:
                self.close()
                self._child.close()
        return found

    def submit(self, identity: int, message: dict[str, Any]) -> None:
        """Accept a request; it is answered in any case.

        Raises:
            FailedPrecondition: the process has ended (MODEL_NOT_OPEN).
        """
        with self._changed:
            if self._dead:
                raise _not_open()
            self._waiting[identity] = message
            self._changed.notify()

    def abort(self, identity: int) -> None:
        """Drop a request that has not begun."""
        with self._changed:
            self._waiting.pop(identity, None)

    def close(self) -> None:
        """End the process, whatever it does."""
        with self._changed:
            if self._dead:
                return
            self._dead = True
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._child.pidfd, signal.SIGKILL)
            self._changed.notify()

    def _run(self) -> None:
        while (request := self._next()) is not None:
            identity, message = request
            try:
                result = self._result(message)
            except BridgeError as error:
                result = error
            self._answer(identity, result)
        with self._changed:
            waiting, self._waiting = self._waiting, OrderedDict()
        for identity in waiting:
            self._answer(identity, _not_open())
        self._child.close()

    def _next(self) -> tuple[int, dict[str, Any]] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._dead or self._waiting)
            return None if self._dead else self._waiting.popitem(last=False)

    def _result(self, message: dict[str, Any]) -> Any:
        seconds = self._bounds.max_rendering_seconds + _chars(message) / CHARS_PER_SECOND
        try:
            if message["op"] in COOKBOOK_OPS and not self._cookbook:
                self._ask({"op": IMPORT_COOKBOOK}, _IMPORT_SECONDS)
                self._cookbook = True
            return self._ask(message, seconds)
        except TimeoutError:
            why, retryable = f"take longer than {seconds:g} s (max_rendering_seconds)", False
        except EOFError:
            # Out of memory in a library's own code, or killed by chance: only another attempt can show it.
            bound = self._bounds.max_rendering_bytes
            why, retryable = f"ended their process, or need more than {bound:,} bytes (max_rendering_bytes)", True
        if self._dead:
            return _not_open()
        _log.warning("the tokenizer or chat template of a checkpoint %s", why)
        self.close()
        return BackendError(
            f"the model's tokenizer or chat template {why}", reason=Reason.RENDERING_LIMIT, retryable=retryable
        )

    def _ask(self, message: dict[str, Any], seconds: float) -> Any:
        """Send a request and wait for its answer.

        Raises:
            TimeoutError: it takes longer.
            EOFError: the process has ended.
            BridgeError: the process answers with it.
        """
        until = time.monotonic() + seconds
        try:
            self._child.endpoint.settimeout(seconds)
            self._child.endpoint.sendall(pack(message))
            body = receive(self._child.endpoint, until=until)
        except (ConnectionError, TooLong) as error:
            raise EOFError from error
        if body is None:
            raise EOFError
        answer = unpack(body)
        if (error := answer.get("error")) is not None:
            raise error_from_map(error)
        return answer["result"]


def _chars(message: dict[str, Any]) -> int:
    match message["op"]:
        case "encode":
            return sum(map(len, message["texts"]))
        case "decode" | "decode_answer":
            return len(message["tokens"])
        case "decode_all":
            return sum(map(len, message["sequences"]))
        case "parse":
            return len(message["response"]["text"]) + len(message["response"]["tokens"])
        case _:
            return sum(len(one["content"]) for one in message["messages"])


def _not_open() -> FailedPrecondition:
    return FailedPrecondition("the model is not open", reason=Reason.MODEL_NOT_OPEN)


def _refused(name: str, why: str) -> FailedPrecondition:
    return FailedPrecondition(f"the configuration or tokenizer of {name!r} {why}", reason=Reason.MODEL_REFUSED)
