"""The process that grades for this one, as its parent sees it: one for each place where grading runs.

It is started by the name of a module at the first request, from any thread. Requests and answers are frames on a
socket: the length of a body, a number that the answer repeats, and the body, JSON. The first frame has the settings.
Two threads write and read, so no caller waits for the socket, and no signal is used. If the process dies, another one
is started, and what it had not answered is sent again. It ends with this process, however this one ends; after a fork
the child begins anew.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import itertools
import json
import os
import queue
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from crucible_bridge import errors
from crucible_bridge.errors import BridgeError, FailedPrecondition, InvalidField, Unavailable
from crucible_bridge.reasons import Reason

__all__ = [
    "BY_ADDRESS",
    "END_SECONDS",
    "HEADER",
    "IN_CHILDREN",
    "MAX_BODY_BYTES",
    "GradingProcess",
    "exactly",
    "grades_of",
    "shared",
]

HEADER = struct.Struct("<IQ")
"""Length of the body, bytes, and number."""
MAX_BODY_BYTES = 256 * 1024 * 1024
"""A longer body is a sign of a broken socket."""
END_SECONDS = 3.0
"""How long the end of this process waits for the end of the other one, before it is killed."""
MAX_DEATHS = 3
"""After so many deaths of the process a request has failed."""

IN_CHILDREN = "crucible_worker.grading.reward_process"
"""Grades in killable children of its own."""
BY_ADDRESS = "crucible_bridge.rewards.by_address"
"""Sends what is to be graded to workers."""


def exactly(end: socket.socket, count: int) -> bytes | None:
    """So many bytes of a blocking socket; None at its end."""
    data = bytearray()
    while len(data) < count:
        part = end.recv(min(count - len(data), 1 << 20))
        if not part:
            return None
        data += part
    return bytes(data)


def grades_of(body: bytes) -> list[tuple[str, float | None, str, str, str]]:
    """The grades in an answer: verdict, score, method, reason and extracted answer of each item.

    Raises:
        BridgeError: the request failed.
    """
    answer: dict[str, Any] = json.loads(body)
    if (fields := answer.get("error")) is None:
        return answer["grades"]
    kind: type[BridgeError] = getattr(errors, fields["kind"])
    error = kind.__new__(kind)
    # Bypasses the subclasses' constructors, which take their arguments in different orders.
    BridgeError.__init__(
        error, fields["message"], field=fields["field"], reason=fields["reason"], retryable=fields["retryable"]
    )
    raise error


class _Request:
    """A request that waits for its answer."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.answer: Future[bytes] = Future()
        self.deaths = 0


class _Started:
    """A started process, and this end of its socket."""

    def __init__(self, module: str, settings: bytes) -> None:
        ours, theirs = socket.socketpair()
        # What this process imports the other one can import too.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with theirs:
            number = theirs.fileno()
            # -P: the directory that this process happens to be in is no place to import from.
            command = [sys.executable, "-P", "-m", module, str(number), str(os.getpid())]
            try:
                self.popen = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=2,
                    env=environment,
                    pass_fds=(number,),
                    # A terminal's Ctrl-C does not reach it.
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        self.end = ours
        self.outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.send(0, settings)
        threading.Thread(target=self._write, name="crucible-rewards-out", daemon=True).start()

    def send(self, number: int, body: bytes) -> None:
        """Have a frame written."""
        self.outgoing.put(HEADER.pack(len(body), number) + body)

    def receive(self) -> tuple[int, bytes] | None:
        """The next frame; None at the end."""
        with contextlib.suppress(OSError):
            if (header := exactly(self.end, HEADER.size)) is not None:
                length, number = HEADER.unpack(header)
                if length <= MAX_BODY_BYTES and (body := exactly(self.end, length)) is not None:
                    return number, body
        return None

    def shut(self) -> None:
        """Close this end: the process then ends by itself."""
        self.outgoing.put(None)
        with contextlib.suppress(OSError):
            self.end.shutdown(socket.SHUT_RDWR)

    def ended(self) -> int:
        """Wait for its end, and kill it with its group if that takes too long; its exit status."""
        self.shut()
        try:
            return self.popen.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.popen.pid, signal.SIGKILL)
            return self.popen.wait()

    def forget(self) -> None:
        """After a fork, in the child: it belongs to the parent, and this copy of its socket must not keep it alive."""
        self.end.close()
        self.popen.returncode = 0

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # its end is read from the socket
            while (data := self.outgoing.get()) is not None:
                self.end.sendall(data)


class GradingProcess:
    """One process of a module, started when it is needed.

    Args:
        module: its name; it calls `serving.serve`.
        settings: for the process, JSON.
    """

    def __init__(self, module: str, settings: bytes) -> None:
        self._module, self._settings = module, settings
        self._lock = threading.Lock()
        self._waiting: dict[int, _Request] = {}
        self._numbers = itertools.count(1)
        self._started: _Started | None = None
        self._over = False

    @property
    def pid(self) -> int | None:
        """Of the running process; None if there is none."""
        started = self._started
        return None if started is None else started.popen.pid

    def ask(self, request: Mapping[str, Any]) -> Future[bytes]:
        """Send a request; the future has the body of the answer, for `grades_of`.

        Raises:
            FailedPrecondition: the module's package is not installed.
            Unavailable: no process can be started.
        """
        made = _Request(json.dumps(request).encode("ascii"))
        if len(made.body) > MAX_BODY_BYTES:
            raise InvalidField("responses", f"have {len(made.body):,} bytes, at most {MAX_BODY_BYTES:,} are sent")
        with self._lock:
            number = next(self._numbers)
            started = self._running()
            self._waiting[number] = made
            started.send(number, made.body)
        return made.answer

    def end(self) -> None:
        """End the process; requests that wait have failed. Idempotent."""
        with self._lock:
            self._over, started = True, self._started
        if started is not None:
            started.ended()

    def forget(self) -> None:
        """See `_Started.forget`."""
        if self._started is not None:
            self._started.forget()

    def _running(self) -> _Started:
        """The process, started if there is none. Called with the lock."""
        if self._started is None:
            if self._over:
                raise Unavailable("this program ends", reason=Reason.GRADING_CLOSED, retryable=False)
            if importlib.util.find_spec(self._module.partition(".")[0]) is None:
                raise FailedPrecondition(
                    "grading in this process needs crucible_worker, which is not installed: install crucible-bridge "
                    'with its worker, or name a worker by address="HOST:PORT"',
                    reason=Reason.EXTRA_NOT_INSTALLED,
                )
            try:
                self._started = _Started(self._module, self._settings)
            except OSError as error:
                message = f"the process that grades does not start: {error}"
                raise Unavailable(message, reason=Reason.GRADING_POOL) from error
            threading.Thread(target=self._read, args=(self._started,), name="crucible-rewards-in", daemon=True).start()
        return self._started

    def _read(self, started: _Started) -> None:
        while (frame := started.receive()) is not None:
            number, body = frame
            with self._lock:
                request = self._waiting.pop(number, None)
            if request is not None and request.answer.set_running_or_notify_cancel():
                request.answer.set_result(body)
        status = started.ended()
        started.end.close()
        message = f"the process that grades has ended with status {status}"
        with self._lock:
            self._started = None
            failed = self._failed()
            if self._waiting:
                try:
                    again = self._running()
                except BridgeError as error:
                    message = error.message
                    failed += self._waiting.values()
                    self._waiting.clear()
                else:
                    for number, request in self._waiting.items():
                        again.send(number, request.body)
        for request in failed:
            if request.answer.set_running_or_notify_cancel():
                request.answer.set_exception(Unavailable(message, reason=Reason.GRADING_POOL))

    def _failed(self) -> list[_Request]:
        """Requests that are not sent again: the process has died too often over them, or the program ends."""
        failed: list[_Request] = []
        for number, request in list(self._waiting.items()):
            request.deaths += 1
            if request.deaths >= MAX_DEATHS or self._over or request.answer.cancelled():
                failed.append(self._waiting.pop(number))
        return failed


# Those of this process, by module and settings: every reward that grades in the same place shares one.
_processes: dict[tuple[str, bytes], GradingProcess] = {}
_inherited: list[GradingProcess] = []
_lock = threading.Lock()


def shared(module: str, settings: Mapping[str, Any]) -> GradingProcess:
    """The process of a module and its settings; nothing is started."""
    written = json.dumps(settings, sort_keys=True).encode("ascii")
    with _lock:
        found = _processes.get((module, written))
        if found is None:
            found = _processes[module, written] = GradingProcess(module, written)
        return found


def _begin_anew() -> None:
    """In the child of a fork: its parent's processes are not its own, and a thread of the parent may hold a lock."""
    global _lock
    _lock = threading.Lock()
    _inherited.extend(_processes.values())  # kept: their locks and threads are the parent's
    for process in _processes.values():
        process.forget()
    _processes.clear()


def _end_all() -> None:
    for process in list(_processes.values()):
        process.end()


os.register_at_fork(after_in_child=_begin_anew)
atexit.register(_end_all)
