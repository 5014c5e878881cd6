"""What a worker needs, and what it can use, on this machine: checks for `doctor`."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib.metadata
import os
import platform
import re
import shutil
import socket
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from crucible_worker.backends.builtin import BUILTIN
from crucible_worker.cli.probe import ProbeFailed, probe, target
from crucible_worker.config import Settings
from crucible_worker.grading.code.images import CodeImage
from crucible_worker.history.resumptions import waiting_text
from crucible_worker.journal.schema import JOURNAL_FILE, SCHEMA_VERSION, prepare

__all__ = ["DoctorCheck", "run_checks"]

HEALTH_SECONDS = 2.0
"""Time limit for a listener at the address to answer whether it is a healthy worker."""

_SERVICE = "crucible_bridge.v1.EvaluationService"

_WAL_VERSION = slice(18, 20)
"""Bytes of SQLite's header that are 2 if the file is in WAL mode (fileformat2, 1.3)."""

_DISTRIBUTION = "crucible-bridge"

_TOOLS = {
    "buf": "check changes of protos (the dev extra brings it)",
    "nvidia-smi": "see a GPU's load",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DoctorCheck:
    """One check."""

    name: str
    """What."""
    ok: bool
    """Whether the check passed."""
    required: bool
    """Whether a worker cannot serve without it."""
    detail: str
    """What the check found, or what is wrong."""
    purpose: str
    """What it is for."""


def run_checks(settings: Settings) -> Iterator[DoctorCheck]:
    """Make all checks, one after the other; a failed check does not stop the next ones.

    Nothing is left on disk: an existing journal is only read; without one, a temporary one is tried in a
    temporary folder on the same file system.
    """
    yield _check("python", platform.python_version, "run at all: 3.11 or later", required=True)
    for package in (_DISTRIBUTION, *_requirements("")):
        yield _check(package, lambda name=package: _version(name), "serve", required=True)
    yield _check("state directory", lambda: _usable(settings.state_dir), "keep evaluations", required=True)
    if (url := settings.journal) is None:
        yield _check("sqlite", lambda: _wal(settings.state_dir), "keep evaluations, shared by workers", required=True)
        yield _check("journal", lambda: _journal(settings.state_dir), "keep evaluations", required=True)
    else:
        yield from _packages("postgres", "keep evaluations", required=True)
        yield _check("journal", lambda: _database(url), "keep evaluations, shared by workers", required=True)
    yield _check("address", lambda: _address(settings), "serve there", required=True)
    if (tls := settings.tls) is not None:
        yield _check("certificate", lambda: _certificate(*tls), "serve with TLS", required=True)
    yield from _packages("datasets", "read data sets of the hub")
    yield from _packages("text", "score BLEU and ROUGE")
    yield from _packages("inspect", "run tasks of Inspect AI")
    yield _check("grading", lambda: _grading(settings), "grade math, in separate processes")
    yield _check("sandbox", lambda: _sandbox(settings), "run programs that are to be graded")
    for backend in (entry.load() for entry in BUILTIN):
        for extra, purpose in backend.extras:
            yield from _packages(extra, purpose)
        for check in backend.checks():
            yield _check(check.name, check.look, check.purpose)
    for tool, purpose in _TOOLS.items():
        yield _check(tool, lambda name=tool: _tool(name), purpose)


def _packages(extra: str, purpose: str, *, required: bool = False) -> Iterator[DoctorCheck]:
    """Whether the distributions of an extra are installed."""
    for package in _requirements(extra):
        yield _check(package, lambda name=package: _version(name, f"[{extra}]"), purpose, required=required)


def _check(name: str, look: Callable[[], str], purpose: str, *, required: bool = False) -> DoctorCheck:
    from crucible_bridge.errors import BridgeError

    try:
        return DoctorCheck(name=name, ok=True, required=required, detail=look(), purpose=purpose)
    except _Missing as missing:
        detail = str(missing)
    except (OSError, sqlite3.Error, BridgeError) as error:
        detail = str(error)
    return DoctorCheck(name=name, ok=False, required=required, detail=detail, purpose=purpose)


class _Missing(Exception):
    """A check failed; the text says what to do."""


def _requirements(extra: str) -> list[str]:
    """Names of the distributions that this one requires, always or for an extra."""
    marker = f'; extra == "{extra}"' if extra else ""
    found = [line.replace("'", '"') for line in importlib.metadata.requires(_DISTRIBUTION) or ()]
    wanted = [line for line in found if line.endswith(marker) and (extra or ";" not in line)]
    return [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in wanted]


def _version(package: str, extra: str = "") -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise _Missing(f"not installed: pip install '{_DISTRIBUTION}{extra}'") from None


def _usable(folder: Path) -> str:
    if folder.is_dir():
        if not os.access(folder, os.W_OK | os.X_OK):
            raise _Missing(f"{folder} cannot be written to")
        return str(folder)
    parent = _nearest(folder)
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise _Missing(f"{folder} cannot be created in {parent}")
    return f"{folder}, to be created"


def _nearest(folder: Path) -> Path:
    """The folder, or its nearest ancestor that exists."""
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


def _wal(state_dir: Path) -> str:
    """Checks for WAL, which file systems without shared memory maps, such as many network ones, do not support."""
    if (state_dir / JOURNAL_FILE).exists():
        with (state_dir / JOURNAL_FILE).open("rb") as journal:
            header = journal.read(_WAL_VERSION.stop)
        mode = "wal" if header[_WAL_VERSION] == b"\2\2" else "no"
    else:
        with (
            _scratch(state_dir) as scratch,
            contextlib.closing(sqlite3.connect(scratch / "wal.db")) as connection,
        ):
            mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            connection.execute("CREATE TABLE probe (x)")
            connection.commit()
    if mode != "wal":
        raise _Missing(f"{sqlite3.sqlite_version} has no WAL on this file system; choose another --state-dir")
    return f"{sqlite3.sqlite_version}, WAL"


def _journal(state_dir: Path) -> str:
    path = state_dir / JOURNAL_FILE
    if not path.exists():
        with _scratch(state_dir) as scratch:
            prepare(scratch)
        return "none yet"
    if not os.access(path, os.R_OK | os.W_OK):
        raise _Missing(f"{path} cannot be read and written")
    # Without a log there is only the file. It must be opened as immutable: otherwise SQLite creates an empty log.
    immutable = "" if path.with_name(f"{JOURNAL_FILE}-wal").exists() else "&immutable=1"
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{immutable}", uri=True)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if not 0 < version <= SCHEMA_VERSION:
            raise _Missing(f"{path} is of version {version}, this worker writes {SCHEMA_VERSION}")
        (count,) = connection.execute("SELECT count(*) FROM evaluations").fetchone()
        known = (
            connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'evaluation_graders'").fetchone() is not None
        )
        waiting = waiting_text(connection, known)
    older = f"; of version {version}, brought to {SCHEMA_VERSION} at the next start" if version < SCHEMA_VERSION else ""
    return f"{path}, evaluations: {count:,}{older}{waiting and f'; {waiting}'}"


def _database(url: str) -> str:
    """Only looks: nothing is created in the database."""
    from crucible_worker.journal.store import without_password

    try:
        from crucible_worker.journal.postgres.store import look
    except ModuleNotFoundError as error:
        raise _Missing(f"{error.name} is not installed") from None
    return f"{without_password(url)}, {look(url, waiting_text)}"


@contextlib.contextmanager
def _scratch(state_dir: Path) -> Iterator[Path]:
    """A folder on the state directory's file system, removed afterwards."""
    with tempfile.TemporaryDirectory(dir=_nearest(state_dir), prefix=".doctor-") as scratch:
        yield Path(scratch)


def _address(settings: Settings) -> str:
    """Free, or used by a healthy worker: then there is nothing to fix."""
    try:
        return _free(settings)
    except (OSError, _Missing):
        try:
            healthy = probe(settings, _SERVICE, seconds=HEALTH_SECONDS, ca=settings.tls_cert).ready
        except ProbeFailed:  # the listener is not a worker: the result is only that the address is taken
            healthy = None
        if healthy is None:
            raise
    if not healthy:
        raise _Missing(f"{target(settings)}: a worker uses the address, and reports that it cannot evaluate (yet)")
    return f"{target(settings)}: a healthy worker serves there already"


def _free(settings: Settings) -> str:
    if settings.unix_socket is not None:
        if settings.unix_socket.exists():
            raise _Missing(f"{settings.unix_socket} exists already, and no healthy worker answers")
        if not os.access(settings.unix_socket.parent, os.W_OK):
            raise _Missing(f"{settings.unix_socket.parent} is not a folder that can be written to")
        return f"unix:{settings.unix_socket}"
    family, kind, protocol, _, address = socket.getaddrinfo(
        settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with contextlib.closing(socket.socket(family, kind, protocol)) as probe:
        # Like the server: a port that a worker used until a moment ago is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
    return f"{settings.host}:{settings.port}"


def _certificate(chain: Path, key: Path) -> str:
    """Whether it can be used, and for how long."""
    from crucible_worker.server.credentials import Certificate, StartError

    try:
        certificate = Certificate(chain, key)
    except StartError as error:
        raise _Missing(str(error)) from None
    if certificate.days_left() < 0:
        raise _Missing(f"{certificate}: renew it; a worker reads it again by itself")
    return str(certificate)


def _grading(settings: Settings) -> str:
    """Grade an answer as a worker would; the processes end afterwards."""
    if settings.grading_processes == 0:
        return "none configured: grading_processes is 0"
    if settings.fanout is not None:
        return asyncio.run(_graded_by_cluster(settings.fanout))
    return asyncio.run(_graded(settings.grading_processes))


async def _graded(processes: int | None) -> str:
    from crucible_bridge.types import GradeItem, MathPolicy, Verdict
    from crucible_worker.grading.math.grader import MathGrader
    from crucible_worker.grading.pool import GradingPool

    pool = GradingPool(processes)
    try:
        await pool.start()
        (grade,) = await MathGrader(pool).grade_batch([GradeItem(answer="x(x+1)", targets=("x^2+x",))], MathPolicy())
    finally:
        await pool.aclose()
    if grade.verdict is not Verdict.CORRECT:
        raise _Missing(f"x(x+1) was graded {grade.verdict} against x^2+x: {grade.reason}")
    return f"sympy {_version('sympy')}, {pool.children} processes"


async def _graded_by_cluster(address: str) -> str:
    from crucible_worker.grading.fanout.fanout import Fanout
    from crucible_worker.grading.fanout.graders import check_installed

    check_installed()
    fanout = Fanout(address, 1)
    try:
        await fanout.start()
        return f"Ray {_version('ray')}, {fanout.cores} processors of the cluster {address}"
    finally:
        await fanout.aclose()


def _sandbox(settings: Settings) -> str:
    """Run a program as a worker would; nothing of it remains."""
    if settings.code_sandboxes == 0:
        return "none configured: code_sandboxes is 0"
    return asyncio.run(_ran(settings.code_images))


async def _ran(images: Sequence[CodeImage]) -> str:
    from crucible_bridge.types import CallTest, CodeItem, CodeLimits, Verdict
    from crucible_worker.grading.code.grader import CodeGrader
    from crucible_worker.grading.code.sandbox import Isolation, SandboxSlots

    wall, places = Isolation.of_this_process(), SandboxSlots(1, images)
    test = CallTest(function="f", arguments_json="[1]", expected_json="2")
    item = CodeItem(response="def f(x): return x + 1", tests=(test,))
    try:
        grades = [await CodeGrader(places).grade(item, CodeLimits(), image) for image in (None, *images)]
    finally:
        await places.aclose()
    for grade in grades:
        if grade.verdict is not Verdict.CORRECT:
            raise _Missing(f"f(1) of x + 1 was graded {grade.verdict}: {grade.reason}")
    named = "".join(f", image {image.name}" for image in images)
    return f"{wall.bubblewrap}, {'in a user namespace' if wall.rootless else 'built as root'}{named}"


def _tool(name: str) -> str:
    beside_python = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    found = shutil.which(name, path=beside_python)
    if found is None:
        raise _Missing("not found")
    return found
