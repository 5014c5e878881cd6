"""Processes with one tokenizer each: how a host forks them, what runs in one, and the thread that calls it.

The thread kills its process if an answer takes too long.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import resource
import signal
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.host.texts import Texts
from crucible_worker.backends.local.protocol import HostBounds
from crucible_worker.children import fork_server
from crucible_worker.children.fork_server import MAX_PACKET_BYTES, packet, packet_from
from crucible_worker.children.frames import TooLong, receive
from crucible_worker.children.lifetime import die_with, limit_growth
from crucible_worker.children.messages import error_from_map, error_to_map, pack, unpack
from crucible_worker.rendering import tinker_cookbook

__all__ = [
    "CHARS_PER_SECOND",
    "COOKBOOK_OPS",
    "IMPORT_COOKBOOK",
    "LOAD",
    "LOADERS",
    "MAX_TOKENIZERS",
    "Child",
    "ForkServerEnded",
    "HostForkServer",
    "Load",
    "TextEngine",
    "TextProcess",
    "import_architecture",
    "serve",
]


# Children of the host: forked from a process that has only imported transformers.
#
# An import of transformers takes seconds and 250 MB, a fork of that process milliseconds and little memory. The host
# itself cannot fork, as it has threads by then.

_MAX_NAME_BYTES = 1_000


class ForkServerEnded(Exception):
    """Raised when the fork server has ended: only another host gets a new one."""


class Child:
    """A forked process, and this end of its socket."""

    def __init__(self, endpoint: socket.socket, pidfd: int) -> None:
        self.endpoint = endpoint
        """A blocking socket; a child ends at the end of its input."""
        self.pidfd = pidfd
        """Signals by it reach only this process, and no later one with the same id."""

    def close(self) -> None:
        """Close the socket and the pidfd; a child that still runs ends when it reads."""
        self.endpoint.close()
        os.close(self.pidfd)


class HostForkServer:
    """Forks children that run one function. The main thread must make it, before there are other threads.

    Args:
        run: what a child does with its end of the socket; the child ends when it returns or raises.
        prepare: called with the name that a child is forked for, before it is forked.
    """

    def __init__(
        self, run: Callable[[socket.socket], None], prepare: Callable[[str], None] = lambda name: None
    ) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._last_number = 0
        self._forking = threading.Lock()
        parent = os.getpid()
        if os.fork() == 0:
            try:
                die_with(parent)
                # Above all the channel to the worker: only the host may have its end.
                number = theirs.fileno()
                os.closerange(3, number)
                os.closerange(number + 1, os.sysconf("SC_OPEN_MAX"))
                fork_server.ForkServer(theirs, lambda end, _: run(end), prepare=prepare).serve()
            finally:
                os._exit(1)
        theirs.close()

    def fork(self, name: str) -> Child:
        """Fork a child that is prepared for a name; threads wait for each other.

        Raises:
            ForkServerEnded: it was killed, or could not fork.
        """
        with self._forking:
            return self._fork(name)

    def _fork(self, name: str) -> Child:
        ours, theirs = socket.socketpair()
        self._last_number += 1
        told = name.encode(errors="replace")[:_MAX_NAME_BYTES].decode(errors="replace")
        with theirs, contextlib.suppress(ConnectionError):
            order = packet(op="start", number=self._last_number, name=told)
            socket.send_fds(self._control, [order], [theirs.fileno()])
            while (received := socket.recv_fds(self._control, MAX_PACKET_BYTES, 1))[0]:
                news = packet_from(received[0])
                if news["number"] == self._last_number:
                    if news["op"] == "started":
                        return Child(ours, received[1][0])
                    break
        ours.close()
        raise ForkServerEnded


def import_architecture(model_type: str) -> None:
    """Import once what all children of an architecture would import."""
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

    # If the library does not know the type, or cannot import it, the child refuses it and reports why.
    with contextlib.suppress(Exception):
        MODEL_FOR_CAUSAL_LM_MAPPING[CONFIG_MAPPING[model_type]]


# Runs in a child of a host, with one tokenizer and chat template, until it is killed.
#
# Its memory is bounded; the host bounds its time. The first request loads the tokenizer, within the same bounds.

LOAD = "load"
"""The first request: load a tokenizer."""
IMPORT_COOKBOOK = "import_cookbook"
"""The request that comes before the first one to a renderer of tinker-cookbook."""

Load = Callable[[dict[str, Any], int], tuple[Texts | None, Any]]
"""Loads what the first request names, with `max_rendered_chars`; returns its texts, or None, and the answer."""


def serve(endpoint: socket.socket, *, bounds: HostBounds, load: Load) -> None:
    """Answer requests until the host closes its end."""
    limit_growth(bounds.max_rendering_bytes, resource.RLIMIT_DATA, resource.RLIMIT_AS)
    texts: Texts | None = None
    while (body := receive(endpoint)) is not None:
        message = unpack(body)
        try:
            if message["op"] == LOAD:
                texts, result = load(message, bounds.max_rendered_chars)
            elif message["op"] == IMPORT_COOKBOOK:
                result = tinker_cookbook.preload()
            else:
                assert texts is not None
                result = texts.answer(message)
            frame = pack({"result": result})
        except Exception as error:  # any error is an answer; the child continues
            frame = pack({"error": error_to_map(_error_of(error, bounds.max_rendering_bytes))})
        endpoint.sendall(frame)


def _error_of(error: Exception, max_bytes: int) -> BridgeError:
    if isinstance(error, BridgeError):
        return error
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return BackendError(
            f"the tokenizer or chat template needs more than {max_bytes:,} bytes of memory (max_rendering_bytes)",
            reason=Reason.RENDERING_LIMIT,
            retryable=False,
        )
    _log.error("a request failed", exc_info=error)
    return BackendError(f"the tokenizer failed: {type(error).__name__}", reason=Reason.MODEL_FAILED, retryable=False)


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
            except Exception as error:  # any error is an answer: a request without one would wait for ever
                _log.error("a request failed", exc_info=error)
                why = f"the model's tokenizer failed: {type(error).__name__}"
                result = BackendError(why, reason=Reason.MODEL_FAILED, retryable=False)
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
            schemas = sum(len(parameters) for _, _, parameters, *_ in message.get("tools", ()))
            return schemas + sum(len(content) for _, content, *_ in message["messages"])


def _not_open() -> FailedPrecondition:
    return FailedPrecondition("the model is not open", reason=Reason.MODEL_NOT_OPEN)


def _refused(name: str, why: str) -> FailedPrecondition:
    return FailedPrecondition(f"the configuration or tokenizer of {name!r} {why}", reason=Reason.MODEL_REFUSED)


# Tokenizers without a model: each has a separate process.

MAX_TOKENIZERS = 16
"""Most processes with a tokenizer; the least recently used one is ended."""
LOADERS = 4
"""Tokenizers that are loaded at once: fetching one may take a minute."""


@dataclasses.dataclass(frozen=True, slots=True)
class _OpenTexts:
    texts: TextProcess
    facts: dict[str, Any]


class TextEngine:
    """Accepts requests from the pipe's thread; the threads of the processes answer them.

    Args:
        bounds: of the processes.
        fork_server: makes them.
        answer: sends a result or an error; called from several threads.
    """

    def __init__(self, bounds: HostBounds, fork_server: HostForkServer, answer: Callable[[int, Any], None]) -> None:
        self._bounds = bounds
        self._fork_server = fork_server
        self._answer = answer
        self._opened: OrderedDict[str, _OpenTexts] = OrderedDict()
        self._lock = threading.Lock()
        self._loaders = ThreadPoolExecutor(LOADERS, thread_name_prefix="loader")

    def submit(self, message: dict[str, Any]) -> None:
        """Accept a request; it is answered in any case."""
        identity, op = message["id"], message["op"]
        try:
            match op:
                case "open":
                    self._loaders.submit(self._load, identity, message)
                case "ping":
                    self._answer(identity, None)
                case "abort":
                    with self._lock:
                        opened = list(self._opened.values())
                    for one in opened:
                        one.texts.abort(identity)
                case _:
                    self._texts(message["model"]).submit(identity, message)
        except Exception as error:  # any error is an answer; the host continues
            self._answer(identity, _error_of_engine(error))

    def _texts(self, model: str) -> TextProcess:
        with self._lock:
            opened = self._opened.get(model)
            if opened is None:
                raise FailedPrecondition("the model is not open", reason=Reason.MODEL_NOT_OPEN)
            self._opened.move_to_end(model)
            return opened.texts

    def _load(self, identity: int, message: dict[str, Any]) -> None:
        try:
            facts = self._facts(message)
        except ForkServerEnded:
            _log.exception("the fork server has ended, and so does the host")
            os._exit(1)
        except Exception as error:  # any error is an answer; the host continues
            self._answer(identity, _error_of_engine(error))
        else:
            self._answer(identity, facts)

    def _facts(self, message: dict[str, Any]) -> dict[str, Any]:
        model = message["model"]
        if (opened := self._living(model)) is not None:
            return opened.facts
        texts = TextProcess(self._fork_server.fork(""), self._bounds, self._answer)
        facts = texts.load(message["name"], message["load"])
        if not facts:
            raise FailedPrecondition(f"{message['name']!r} has no tokenizer", reason=Reason.NO_TOKENIZER)
        with self._lock:
            other = self._opened.get(model)
            if other is not None and not other.texts.dead:  # loaded by another thread meanwhile
                texts.close()
                return other.facts
            self._opened[model] = _OpenTexts(texts, facts)
            self._opened.move_to_end(model)
            while len(self._opened) > MAX_TOKENIZERS:
                self._opened.popitem(last=False)[1].texts.close()
        return facts

    def _living(self, model: str) -> _OpenTexts | None:
        with self._lock:
            opened = self._opened.get(model)
        return None if opened is None or opened.texts.dead else opened


def _error_of_engine(error: Exception) -> BridgeError:
    if isinstance(error, BridgeError):
        return error
    _log.error("a request failed", exc_info=error)
    return BackendError(f"the tokenizer failed: {type(error).__name__}", reason=Reason.MODEL_FAILED, retryable=False)
