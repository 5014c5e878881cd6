"""Workers as real processes, to be killed with real signals; nothing that is started here outlives its test."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.errors import BridgeError
from tests.forks import Fork, may_have
from tests.processes import rss_of
from tests.robustness import scripted_worker

__all__ = ["EVALUATION_SERVICE", "WorkerProcess", "Workshop", "count_lines", "until", "workshop"]

EVALUATION_SERVICE = "crucible_bridge.v1.EvaluationService"
"""As health knows it."""
TEST_SECONDS = 100.0
"""For what is done inside a workshop, unless it says otherwise: a test that hangs fails, and its workers are killed."""
READY_SECONDS = 60.0
"""For a worker to serve, on a machine that has other things to do; a bound, not an expectation."""
LOCK_FILES = ("experiment_loggers.lock", "follows.lock", "owners.lock", "parts.lock", "prepare.lock")
"""Files of a state directory by which workers tell each other what they have."""
POLL_SECONDS = 0.005
"""How often a condition outside of this process is looked at."""
LOG_TAIL_BYTES = 4096
"""Of a worker's log, in the message of a test that fails."""

_SCRIPT = Path(scripted_worker.__file__)


def database_of(state_dir: Path) -> str | None:
    """The URL of the journal of workers of a state directory; None where it is a file there."""
    return None


class WorkerProcess:
    """A worker, and a client of it. Made by `Workshop.launch`."""

    def __init__(
        self, process: subprocess.Popen[bytes] | Fork, ready_file: Path, log_file: Path, go_file: Path | None = None
    ) -> None:
        self.process = process
        """The process."""
        self.log_file = log_file
        """What it writes to stdout and stderr."""
        self.ready_file = ready_file
        """Where it writes its address."""
        self._go_file = go_file
        self._address = ""
        self._bridge: Bridge | None = None
        self._clients = contextlib.AsyncExitStack()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    @property
    def address(self) -> str:
        """Where it listens."""
        assert self._address, "it is not ready"
        return self._address

    @property
    def bridge(self) -> Bridge:
        """A client of it."""
        assert self._bridge is not None, "it is not ready"
        return self._bridge

    async def ready(self) -> WorkerProcess:
        """Wait until it serves; one that stands by begins now."""
        self.go()
        async with asyncio.timeout(READY_SECONDS):
            while not self.ready_file.exists():
                assert self.alive, f"the worker ended with {self.process.returncode} at its start:\n{self.log_tail()}"
                await asyncio.sleep(POLL_SECONDS)
        self._address = self.ready_file.read_text()
        self._bridge = await self._clients.enter_async_context(crucible_bridge.connect(self._address))
        return self

    def go(self) -> None:
        """Let it begin, where it stands by."""
        if self._go_file is not None:
            self._go_file.touch()

    def kill(self) -> None:
        """SIGKILL, and wait for its end: the kernel has given its locks back then."""
        self.process.kill()
        self.process.wait()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """SIGSTOP, and SIGCONT at the end; a process that is killed meanwhile stays dead."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM."""
        self.process.send_signal(signal.SIGTERM)

    async def exit_code(self, seconds: float) -> int:
        """Wait for its end."""
        await until(lambda: not self.alive, seconds)
        return self.process.wait()

    def rss(self) -> int:
        """Its resident memory in bytes."""
        return rss_of(self.pid)

    @contextlib.contextmanager
    def limited(self, resource_limit: int, value: int) -> Iterator[None]:
        """Lower one of its resource limits meanwhile, such as RLIMIT_NOFILE."""
        before = resource.prlimit(self.pid, resource_limit)
        resource.prlimit(self.pid, resource_limit, (value, before[1]))
        try:
            yield
        finally:
            resource.prlimit(self.pid, resource_limit, before)

    def unable_to_write(self) -> contextlib.AbstractContextManager[None]:
        """Every write of it to a file fails meanwhile, much as on a full disk (EFBIG)."""
        return self.limited(resource.RLIMIT_FSIZE, 0)

    async def is_serving(self, service: str = EVALUATION_SERVICE) -> bool:
        """What health says of a service."""
        return await self.bridge.worker.health(service)

    def log_tail(self) -> str:
        """The last lines of its log."""
        return self.log_file.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")

    async def close(self) -> None:
        """End it by force if need be, and every client of it."""
        self.kill()
        await self._clients.aclose()


@dataclasses.dataclass(kw_only=True)
class Workshop:
    """Starts workers on one state directory. Made by `workshop`."""

    folder: Path
    """Of this test."""
    models: Mapping[str, Mapping[str, Any]]
    """Scripted models by name; see `scripted_worker`. Those that are started later see what is put here."""
    limits: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Of the workers, where the defaults will not do."""
    data_roots: tuple[Path, ...] = ()
    """JSONL data sets lie below these."""
    inspect_roots: tuple[Path, ...] = ()
    """Files with tasks of Inspect lie below these."""
    log_dir: Path | None = None
    """Where an Inspect log of each evaluation is written, if anywhere."""
    state_dir: Path
    """Where the journal lies."""
    journal: str | None = None
    """The URL of the journal's database, where the state directory has none."""
    servers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Base URLs of OpenAI-compatible servers that the workers use, by name."""
    resume_interrupted: bool = False
    """Whether workers resume evaluations without a call for them."""
    grading_processes: int = 0
    """Processes that grade math; without them a worker starts sooner, and has no math."""
    code_sandboxes: int | None = None
    """Programs that a worker runs at once; as many as it likes if None."""
    clock_ahead_seconds: float = 0.0
    """How wrong the machine's clock is for the workers that are started from now on."""
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Variables that they get in addition."""
    workers: list[WorkerProcess] = dataclasses.field(default_factory=list)
    """All that were started, in order."""

    def launch(self, *, standby: bool = False) -> WorkerProcess:
        """Start a worker without waiting for it; with `standby`, it touches nothing before `ready` is called."""
        number = len(self.workers)
        ready_file, log_file = self.folder / f"ready-{number}", self.folder / f"worker-{number}.log"
        go_file = self.folder / f"go-{number}"
        configuration = {
            "ready_file": str(ready_file),
            "state_dir": str(self.state_dir),
            "journal": self.journal or database_of(self.state_dir),
            "servers": dict(self.servers),
            "resume_interrupted": self.resume_interrupted,
            "grading_processes": self.grading_processes,
            "code_sandboxes": self.code_sandboxes,
            "data_roots": list(map(str, self.data_roots)),
            "inspect_roots": list(map(str, self.inspect_roots)),
            "log_dir": None if self.log_dir is None else str(self.log_dir),
            "limits": dict(self.limits),
            "standby": str(go_file) if standby else None,
            "clock_ahead_seconds": self.clock_ahead_seconds,
            "models": {name: dict(fields) for name, fields in self.models.items()},
        }
        if not self.environment and may_have(os.environ):
            process = Fork(scripted_worker.main, configuration, argv=[str(_SCRIPT)], out=log_file, err=log_file)
        else:
            with log_file.open("wb") as log:
                process = subprocess.Popen(
                    [sys.executable, _SCRIPT, json.dumps(configuration)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **self.environment},
                )
        self.workers.append(WorkerProcess(process, ready_file, log_file, go_file if standby else None))
        return self.workers[-1]

    async def start(self) -> WorkerProcess:
        """Start a worker and wait until it serves."""
        return await self.launch().ready()

    async def start_several(self, count: int) -> list[WorkerProcess]:
        """Start workers side by side."""
        launched = [self.launch() for _ in range(count)]
        return [await worker.ready() for worker in launched]

    @property
    def survivor(self) -> WorkerProcess:
        """A worker that nobody has killed."""
        return next(worker for worker in self.workers if worker.alive)

    @property
    def tracebacks(self) -> list[str]:
        """Logs in which a worker tells of a bug of its own."""
        logs = [worker.log_file.read_text(errors="replace") for worker in self.workers]
        return [log for log in logs if "Traceback" in log]


@contextlib.asynccontextmanager
async def workshop(
    folder: Path,
    models: Mapping[str, Mapping[str, Any]],
    *,
    state_dir: Path | None = None,
    seconds: float = TEST_SECONDS,
    **fields: Any,
) -> AsyncIterator[Workshop]:
    """Start workers inside the block; whatever still runs at its end is killed, and every one of them reaped."""
    made = Workshop(folder=folder, models=models, state_dir=state_dir or folder / "state", **fields)
    try:
        async with asyncio.timeout(seconds):
            yield made
        assert not made.tracebacks, made.tracebacks[0][-LOG_TAIL_BYTES:]
    finally:
        for worker in made.workers:
            await worker.close()


async def until(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    """Wait for a condition outside of this process; a coroutine function that is refused is asked again."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            found = condition()
            if await found if asyncio.iscoroutine(found) else found:
                return
        except BridgeError as error:
            if time.monotonic() > deadline:
                raise TimeoutError("the condition was never met") from error
        if time.monotonic() > deadline:
            raise TimeoutError("the condition was never met")
        await asyncio.sleep(POLL_SECONDS)


def count_lines(path: Path) -> int:
    """Lines of a call file: model calls so far, of every process that was given it."""
    return path.read_bytes().count(b"\n") if path.exists() else 0
