"""Sandboxes: how bubblewrap isolates one, one run in it at a time, and the fixed number of them that a worker has."""

from __future__ import annotations

import array
import asyncio
import contextlib
import dataclasses
import fnmatch
import itertools
import json
import os
import re
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import structlog

from crucible_bridge.errors import BridgeError, FailedPrecondition, InvalidField, Unavailable, clipped
from crucible_bridge.reasons import Reason
from crucible_worker.children.process import Channel as Frames
from crucible_worker.children.process import Process
from crucible_worker.grading.code.images import CodeImage
from crucible_worker.grading.code.inside.wire import MAX_ORDER_BYTES, READY, SCRATCH, pack
from crucible_worker.util.error_reporter import SHORTAGES
from crucible_worker.util.parsing import uncollected

__all__ = [
    "LARGE_BYTES",
    "MAX_PLACES",
    "NOBODY",
    "SCRATCH_BYTES",
    "START_SECONDS",
    "HasImages",
    "Isolation",
    "Left",
    "Sandbox",
    "SandboxChannel",
    "SandboxLimits",
    "SandboxSlot",
    "SandboxSlots",
    "advice",
    "default_places",
    "find_bubblewrap",
    "no_sandbox",
    "none_wanted",
    "sources",
]


# The isolation of a sandbox: the options of bubblewrap, and what to do if it is missing or not permitted.
#
# A sandbox has separate namespaces for users, processes, mounts, the network, IPC and the host's name. It sees Python,
# `/usr` and the libraries, all read-only, and one small folder in memory. It has no `/proc`, so that containers need
# not unmask theirs.
#
# A worker that runs as root and may mount builds the sandbox as root, wherever Python is installed, and the zygote
# drops root. Any other worker builds it in a user namespace; root in a container first becomes the user nobody.

NOBODY = 65534
"""User and group of programs in a user namespace: of no real user, and never root, to whom no limit applies."""
SCRATCH_BYTES = 16 * 1024 * 1024
"""Size of the folder that programs can write to."""

INSTALL = "bubblewrap is not installed: apt install bubblewrap (Debian, Ubuntu), dnf install bubblewrap (Fedora)"

_PACKAGE = "crucible_worker"
_INSIDE = "/sandbox"
_PACKAGES = "/packages"
_SHOWN = {"": "", "/children": "frames.py", "/grading": "", "/grading/code": "", "/grading/code/inside": "*.py"}
"""Folders of the package that exist inside, and which of their modules."""
_START = "from crucible_worker.grading.code.inside.zygote import main; main({}, {}, {!r})"
_UNUSED_IDS = range(65520, 65534)  # not used by Debian or systemd; the kernel counts limits by user
_CAP_SYS_ADMIN = 21
_ENVIRONMENT = {
    "HOME": SCRATCH,
    "LANG": "C.UTF-8",
    "PATH": "/usr/bin:/bin",
    # Sets of texts have the same order each time: the same program gets the same grade.
    "PYTHONHASHSEED": "0",
    "PYTHONPATH": _INSIDE,
    "TZ": "UTC",
}
_ENVIRONMENT_OF_IMAGES = {
    # The threads of numpy's libraries do not outlive a fork, and each takes address space.
    **dict.fromkeys(("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
}
_numbers = itertools.count()


def find_bubblewrap() -> str:
    """The path of bubblewrap.

    Raises:
        FailedPrecondition: it is not installed (reason NO_SANDBOX).
    """
    found = shutil.which("bwrap", path=os.environ.get("PATH") or os.defpath)
    if found is None:
        raise no_sandbox(INSTALL)
    return found


def no_sandbox(message: str) -> FailedPrecondition:
    """The error if programs cannot be run: they never run without a sandbox."""
    return FailedPrecondition(f"programs cannot be run in a sandbox here: {message}", reason=Reason.NO_SANDBOX)


def none_wanted() -> FailedPrecondition:
    """The error of a worker that is configured to run no programs."""
    return FailedPrecondition("this worker runs no programs: --code-sandboxes is 0", reason=Reason.NO_SANDBOX)


def advice(said: str) -> str:
    """What to do about a sandbox that did not start, from its output."""
    said = said.strip().splitlines()[-1][:300] if said.strip() else "it ended without a word"
    if any(word in said for word in ("namespace", "not permitted", "Permission denied", "setting up uid map")):
        return (
            f"{said}. User namespaces must be allowed: in Docker, run the container with --security-opt "
            "seccomp=unconfined --security-opt apparmor=unconfined; on Ubuntu 24.04, sysctl "
            "kernel.apparmor_restrict_unprivileged_userns=0; elsewhere, sysctl user.max_user_namespaces above 0. As "
            "root, Python must be in a folder that all users may read"
        )
    return said


def sources() -> Mapping[str, bytes]:
    """The modules that run inside, by their path there."""
    from importlib import resources  # not before the first sandbox

    found: dict[str, bytes] = {}
    for folder, wanted in _SHOWN.items():
        path = f"{_INSIDE}/{_PACKAGE}{folder}"
        found[f"{path}/__init__.py"] = b""
        modules = resources.files(f"{_PACKAGE}{folder.replace('/', '.')}")
        for module in sorted(modules.iterdir(), key=lambda module: module.name):
            if fnmatch.fnmatch(module.name, wanted):
                found[f"{path}/{module.name}"] = module.read_bytes()
    return found


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """How one sandbox is built."""

    bubblewrap: str
    """The program."""
    rootless: bool
    """In a user namespace, which maps a user to the worker's; if false, as root, which the zygote drops."""
    user: int
    """The user of programs, inside."""
    packages: Path | None = None
    """Folder of packages that can be imported inside."""

    @classmethod
    def of_this_process(cls, packages: Path | None = None) -> Isolation:
        """The wall that this process can build.

        Args:
            packages: folder of packages that can be imported inside.

        Raises:
            FailedPrecondition: bubblewrap is missing (reason NO_SANDBOX).
        """
        rootless = os.geteuid() != 0 or not _may_mount()
        user = NOBODY if rootless else _UNUSED_IDS[next(_numbers) % len(_UNUSED_IDS)]
        return cls(bubblewrap=find_bubblewrap(), rootless=rootless, user=user, packages=packages)

    def command(self, control: int, files: Mapping[str, int]) -> list[str]:
        """The command line.

        Args:
            control: file descriptor of the zygote's control socket.
            files: file descriptors whose content becomes a file inside, by its path.
        """
        words = [self.bubblewrap, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
        words += ["--cap-drop", "ALL"]
        if self.rootless:
            words += ["--unshare-user", "--uid", str(self.user), "--gid", str(self.user)]
        else:
            words += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        words += ["--as-pid-1", "--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv"]
        for name, value in {**_ENVIRONMENT, **(_ENVIRONMENT_OF_IMAGES if self.packages else {})}.items():
            words += ["--setenv", name, value]
        if self.packages:
            words += ["--ro-bind", os.path.realpath(self.packages), _PACKAGES]
        words += [*_system(), "--perms", "0755", "--dir", "/dev"]
        for device in ("null", "zero", "random", "urandom"):
            words += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
        for path, fd in files.items():
            words += ["--perms", "0444", "--ro-bind-data", str(fd), path]
        words += ["--perms", "1777", "--size", str(SCRATCH_BYTES), "--tmpfs", SCRATCH, "--chdir", SCRATCH]
        start = _START.format(control, None if self.rootless else self.user, _PACKAGES if self.packages else None)
        return [*words, "--remount-ro", "/", "--", _python(), "-s", "-S", "-B", "-P", "-c", start]

    @property
    def runs_as(self) -> int | None:
        """The user that bubblewrap runs as; None if the worker's."""
        return NOBODY if self.rootless and os.geteuid() == 0 else None


def _may_mount() -> bool:
    status = Path("/proc/self/status").read_text()
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> _CAP_SYS_ADMIN & 1)


def _python() -> str:
    """The interpreter that a virtual environment links to."""
    return os.path.realpath(sys.executable)


def _system() -> Iterator[str]:
    """Options that mount Python and its libraries at the same paths as here."""
    yield from ("--ro-bind", "/usr", "/usr")
    for name in ("/bin", "/lib", "/lib32", "/lib64"):
        if os.path.islink(name):
            yield from ("--symlink", os.readlink(name), name)
        elif os.path.isdir(name):
            yield from ("--ro-bind", name, name)
    yield from ("--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache")
    for folder in _outside_usr((sys.base_prefix, sys.base_exec_prefix, str(Path(_python()).parent))):
        # The folders above it are as closed as they are here, except for this path.
        for parent in reversed(Path(folder).parents[:-1]):
            yield from ("--perms", "0755", "--dir", str(parent))
        yield from ("--ro-bind", folder, folder)


def _outside_usr(folders: Sequence[str]) -> Iterator[str]:
    return iter(dict.fromkeys(os.path.realpath(each) for each in folders if not f"{each}/".startswith("/usr/")))


# One sandbox: a zygote inside bubblewrap, and one run in it at a time.

START_SECONDS = 10.0
"""Time for a sandbox to be ready; it takes a tenth of a second on an idle machine."""

SETTLE_SECONDS = 0.25
"""Time for a child to end after its last message; then it is killed."""

LARGE_BYTES = 64 * 1024
"""Messages from here on would block the event loop for milliseconds."""

KILL_SECONDS = 2.0
"""Time for a sandbox to be gone; it takes milliseconds."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """Limits of a run, which the kernel enforces."""

    memory_bytes: int
    """Address space beyond what Python takes."""
    cpu_seconds: int
    """Processor time of all its threads together."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """How a run's process ended."""

    code: int
    """Its exit status; below zero the signal that killed it."""
    touched: bool
    """Whether it changed the writable folder."""

    @property
    def told(self) -> str:
        """The end in words."""
        if self.code >= 0:
            return f"exited with {self.code}"
        known = {number.value: number.name for number in signal.Signals}
        return f"was killed by {known.get(-self.code, f'signal {-self.code}')}"


class SandboxChannel:
    """The worker's end of a run's channel. The program writes what comes out of it; only its size is checked."""

    def __init__(self, channel: Frames) -> None:
        self._channel = channel
        self.size = 0
        """Bytes of the last message."""

    @property
    def large(self) -> bool:
        """Whether the last message is so large that a thread must process it."""
        return self.size >= LARGE_BYTES

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        """A channel over a socket, which is closed with the channel."""
        return cls(await Frames.over(end))

    def send(self, message: Any) -> None:
        """Send without waiting; only an answer shows whether it was read."""
        self._channel.send(pack(message))

    async def receive(self, max_bytes: int) -> Any:
        """The next message; None if none comes any more, or it is not valid.

        Raises:
            ValueError: it is longer than `max_bytes`.
        """
        data = await self._channel.receive(max_bytes)
        if data is None:
            return None
        try:
            self.size = len(data)
            return await asyncio.to_thread(_parsed, data) if self.large else _parsed(data)
        except (ValueError, RecursionError):
            return None

    def close(self) -> None:
        """Close the channel: nothing more will be sent."""
        self._channel.close()


class Sandbox:
    """A zygote that waits for orders, and whose whole process namespace ends with it."""

    def __init__(self, process: Process, control: socket.socket) -> None:
        self._process, self._control = process, control
        self._busy = False
        self.lost = False
        """Whether it has ended without `kill`."""

    @classmethod
    async def start(cls, wall: Isolation) -> Self:
        """Start one and wait until it is ready.

        Raises:
            FailedPrecondition: it does not start (reason NO_SANDBOX); the message says what to do.
            OSError: the system has no room at the moment.
        """
        control, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.setblocking(False)
        with contextlib.ExitStack() as files, inner, contextlib.ExitStack() as unless_spawned:
            unless_spawned.callback(control.close)
            told = files.enter_context(_memory_file(b""))
            given = {path: files.enter_context(_memory_file(data)) for path, data in sources().items()}
            words = wall.command(inner.fileno(), {path: file.fileno() for path, file in given.items()})
            try:
                fds = (inner.fileno(), *(file.fileno() for file in given.values()))
                process = Process.spawn(words, {}, fds, errors=told, user=wall.runs_as)
            except OSError as error:
                if error.errno in SHORTAGES:
                    raise
                raise no_sandbox(advice(str(error))) from error
            unless_spawned.pop_all()
            inner.close()
            sandbox = cls(process, control)
            try:
                await sandbox._ready()
            except BaseException as error:
                await sandbox.kill()
                if not isinstance(error, _NotReady):
                    raise
                told.seek(0)
                said = told.read().decode(errors="replace")
                raise no_sandbox(advice(said or str(error))) from None
        return sandbox

    @property
    def alive(self) -> bool:
        """Whether it can take an order."""
        return self._control.fileno() >= 0 and not self._busy

    async def run(self, role: str, bounds: SandboxLimits, streams: Sequence[int] = ()) -> SandboxChannel:
        """Begin a run: one child, which communicates over the channel.

        Args:
            role: "program", "script" or "tests".
            bounds: its limits.
            streams: standard input and output of a script.
        """
        assert not self._busy
        ours, theirs = socket.socketpair()
        order = json.dumps({"role": role, **dataclasses.asdict(bounds)}).encode()
        assert len(order) <= MAX_ORDER_BYTES
        fds = array.array("i", (theirs.fileno(), *streams))
        with theirs:
            self._busy = True
            with contextlib.suppress(OSError):  # a zygote that is gone: the channel ends at once
                self._control.sendmsg([order], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        return await SandboxChannel.over(ours)

    async def settled(self, seconds: float = SETTLE_SECONDS) -> Left | None:
        """Wait for the end of the run; None if it has not ended by itself, or the zygote has gone."""
        try:
            async with asyncio.timeout(seconds):
                answer = await asyncio.get_running_loop().sock_recv(self._control, MAX_ORDER_BYTES)
        except TimeoutError:
            return None
        except OSError:
            answer = b""
        if not answer:
            self.lost = True
            return None
        told = json.loads(answer)
        self._busy = False
        return Left(code=told["code"], touched=told["touched"])

    async def kill(self) -> None:
        """End the sandbox with all that runs in it, and wait until it is gone. Idempotent."""
        if self._control.fileno() < 0:
            return
        # This ends the zygote; it is the init of its namespace, so the kernel ends everything else there.
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(KILL_SECONDS):
                    await self._process.ended()
            await self._process.end()
        finally:
            self._control.close()

    async def _ready(self) -> None:
        try:
            async with asyncio.timeout(START_SECONDS):
                said = await asyncio.get_running_loop().sock_recv(self._control, MAX_ORDER_BYTES)
        except TimeoutError:
            raise _NotReady(f"it was not ready within {START_SECONDS:g} s") from None
        if said != READY:
            raise _NotReady("")


def _parsed(data: bytes) -> Any:
    with uncollected(len(data)):
        return json.loads(data, parse_constant=_refused)


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


class _NotReady(Exception):
    """The zygote did not start."""


def _memory_file(data: bytes) -> Any:
    """A file without a name, for another process to read."""
    file = os.fdopen(os.memfd_create("sandbox"), "w+b", buffering=0)
    file.write(data)
    file.seek(0)
    return file


# Places where programs are run: a fixed number, each with a sandbox for programs and one for tests.
#
# A sandbox serves one run after the other while runs leave nothing in it. If a run did not end by itself, or wrote
# files, its sandbox is ended with everything in it, and another takes its place. Nothing is started before the first
# program.
#
# Sandboxes with an image are separate from those without. A place keeps those of the image that was requested last.

MAX_PLACES = 64
"""The most places of one worker."""
DEFAULT_MAX_PLACES = 4
"""The most places of a worker without the option: there may be many workers on a machine."""

_PROGRAMS, _TESTS = "programs", "tests"
_Kind = tuple[CodeImage | None, str]


def default_places() -> int:
    """Default number of places of a worker: one for each core, at most `DEFAULT_MAX_PLACES`."""
    return min(len(os.sched_getaffinity(0)), DEFAULT_MAX_PLACES)


class SandboxSlot:
    """Runs one program at a time, and its tests."""

    def __init__(self) -> None:
        self._sandboxes: dict[_Kind, Sandbox] = {}
        self._ended: dict[_Kind, Left] = {}
        self._image: CodeImage | None = None
        self._condemned = self._closed = False

    async def use(self, image: CodeImage | None) -> None:
        """Run what follows with the packages of an image, or without any."""
        self._image = image
        if image is not None:
            for kind in [kind for kind in self._sandboxes if kind[0] not in (None, image)]:
                await self._sandboxes.pop(kind).kill()

    async def prepare(self, *, tests: bool = False) -> None:
        """Start what is needed, so that no run pays for it.

        Raises:
            FailedPrecondition: sandboxes do not start here (reason NO_SANDBOX).
            Unavailable: the place is closed (reason GRADING_CLOSED).
        """
        for name in (_PROGRAMS, _TESTS) if tests else (_PROGRAMS,):
            self._check_open()
            kind = self._image, name
            if kind not in self._sandboxes:
                directory = None if self._image is None else self._image.directory
                self._sandboxes[kind] = await Sandbox.start(Isolation.of_this_process(directory))
        if self._closed:  # meanwhile
            await self.discard()
            raise _closed()

    @contextlib.asynccontextmanager
    async def running(
        self, role: str, bounds: SandboxLimits, streams: Sequence[int] = ()
    ) -> AsyncIterator[SandboxChannel]:
        """A run in its sandbox, see `Sandbox.run`; the channel is closed at the end, which a program may ignore.

        Raises:
            Unavailable: the place is closed (reason GRADING_CLOSED).
        """
        self._check_open()
        sandbox = self._sandboxes[self._image, _TESTS if role == "tests" else _PROGRAMS]
        channel = await sandbox.run(role, bounds, streams)
        try:
            yield channel
        finally:
            channel.close()

    async def program_left(self) -> Left | None:
        """How the program's process ended; None if it has not, or its sandbox ended first.

        Raises:
            Unavailable: the place is closed (reason GRADING_CLOSED).
        """
        self._check_open()
        kind = self._image, _PROGRAMS
        if kind not in self._ended and (left := await self._sandboxes[kind].settled()) is not None:
            self._ended[kind] = left
        return self._ended.get(kind)

    @property
    def lost(self) -> bool:
        """Whether a sandbox has ended by itself. No program can cause that: the machine did."""
        return any(sandbox.lost for sandbox in self._sandboxes.values())

    def condemn(self) -> None:
        """The run here has used up its time: `restore` does not wait for it."""
        self._condemned = True

    async def restore(self) -> None:
        """Prepare the place for the next program: nothing of the last one is left."""
        condemned, self._condemned = self._condemned, False
        for kind, sandbox in list(self._sandboxes.items()):
            left = self._ended.pop(kind, None)
            if left is None and not (sandbox.alive or condemned):
                left = await sandbox.settled()
            if not sandbox.alive or (left is not None and left.touched):
                del self._sandboxes[kind]
                await sandbox.kill()

    async def discard(self) -> None:
        """End its sandboxes; the next program has new ones."""
        while self._sandboxes:
            _, sandbox = self._sandboxes.popitem()
            await sandbox.kill()

    async def aclose(self) -> None:
        """End its sandboxes, for good."""
        self._closed = True
        await self.discard()

    def _check_open(self) -> None:
        if self._closed:
            raise _closed()


class HasImages:
    """What runs programs that may import images.

    Args:
        images: the images.
    """

    def __init__(self, images: Iterable[CodeImage]) -> None:
        self._images = {image.name: image for image in images}

    @property
    def images(self) -> Sequence[str]:
        """Names of the images."""
        return tuple(self._images)

    def image(self, name: str, field: str) -> CodeImage | None:
        """The image of a name; None for the empty name.

        Raises:
            InvalidField: it does not exist; the error is at `field`.
        """
        if name and name not in self._images:
            known = f"there are {', '.join(self._images)}" if self._images else "this worker has none (--code-image)"
            raise InvalidField(field, f"{clipped(name)} is not an image of this worker; {known}")
        return self._images.get(name)


class SandboxSlots(HasImages):
    """All places of a worker. Belongs to the event loop that uses it first.

    Args:
        count: how many; `default_places` if None.
        images: folders of packages that programs may import.
    """

    def __init__(self, count: int | None = None, images: Iterable[CodeImage] = ()) -> None:
        self.count = default_places() if count is None else count
        """How many."""
        if not 1 <= self.count <= MAX_PLACES:
            raise ValueError(f"{count} places, 1 to {MAX_PLACES} are accepted")
        super().__init__(images)
        self._places = [SandboxSlot() for _ in range(self.count)]
        self._free: asyncio.Queue[SandboxSlot] = asyncio.Queue()
        for place in self._places:
            self._free.put_nowait(place)
        self._restoring: set[asyncio.Task[None]] = set()
        self._closed = False
        self._log = structlog.get_logger("crucible_worker.grading")

    @contextlib.asynccontextmanager
    async def place(self, image: CodeImage | None = None) -> AsyncIterator[SandboxSlot]:
        """A place for one caller alone, with an image's packages or none; the longest wait is served first.

        Raises:
            Unavailable: the places are closed (reason GRADING_CLOSED).
        """
        place = await self._free.get()
        try:
            if self._closed:
                raise _closed()
            await place.use(image)
            yield place
            # Sandboxes may have been ended during the run: its result then says nothing about the program.
            if self._closed:
                raise _closed()
        finally:
            # The caller does not wait for it, and its cancellation does not stop it.
            task = asyncio.create_task(self._restored(place))
            self._restoring.add(task)
            task.add_done_callback(self._restoring.discard)

    async def aclose(self) -> None:
        """End every sandbox; callers that wait for a place are refused. Idempotent."""
        self._closed = True
        while self._restoring:
            await asyncio.wait(self._restoring)
        await asyncio.gather(*(place.aclose() for place in self._places))

    async def _restored(self, place: SandboxSlot) -> None:
        try:
            await place.restore()
        except (OSError, BridgeError) as error:
            self._log.error("sandbox_not_restored", reason=str(error))
            await place.discard()
        finally:
            self._free.put_nowait(place)


def _closed() -> Unavailable:
    return Unavailable("this worker grades no more", reason=Reason.GRADING_CLOSED)
