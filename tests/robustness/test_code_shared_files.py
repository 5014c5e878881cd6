"""Files that a program shares with the machine: it can neither lock them, nor set their times, nor watch them.

Its sandbox shows Python, `/usr`, packages and four devices of the machine. Its own files are in `/tmp` alone.
"""

from __future__ import annotations

import fcntl
import os
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from crucible_bridge.types import Assertions, CodeItem, Verdict
from crucible_worker.grading.code import sandbox
from crucible_worker.grading.code.images import CodeImage
from crucible_worker.grading.code.sandbox import Isolation
from tests import needs
from tests.service.code_kit import SMALL, code_grader, needs_sandbox

pytestmark = [pytest.mark.asyncio, needs_sandbox]

DEBIAN_PYTHON = Path("/usr/bin/python3")
TEST = Assertions("assert f(1) == 'fine'")

LOCKS = """
import fcntl, os, struct
def f(x):
    read_lock = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
    with open("/packages/shared.py") as file:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.fcntl(file, fcntl.F_SETLK, read_lock)
        fcntl.fcntl(file, fcntl.F_SETLKW, read_lock)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, read_lock)
        fcntl.fcntl(file, fcntl.F_OFD_SETLKW, read_lock)
    return 'fine'
"""
"""Each would wait, or raise, if it reached the file, which the machine has locked."""

TIMES = """
import ctypes, os
NOW = (1 << 30) - 1
libc = ctypes.CDLL(None)
def tried(what, *arguments):
    try: what(*arguments)
    except (OSError, AttributeError): pass
def f(x):
    devices = ["/dev/" + name for name in ("null", "zero", "random", "urandom")]
    found = []
    for path in [*devices, "/packages/shared.py", os.__file__, "/usr/bin", "/sandbox", "/dev", "/"]:
        before = os.stat(path)
        raw, at_now, at_one = path.encode(), (ctypes.c_long * 4)(0, NOW, 0, NOW), (ctypes.c_long * 4)(1, 1, 1, 1)
        tried(os.utime, path)
        tried(os.utime, path, (1, 1))
        for times in (None, at_now, at_one):
            libc.utimensat(-100, raw, times, 0)
            libc.utimes(raw, times)
            libc.futimesat(-100, raw, times)
            libc.utime(raw, times)
        libc.chown(raw, -1, -1)
        libc.lchown(raw, -1, -1)
        libc.fchownat(-100, raw, -1, -1, 0)
        fd = os.open(path, os.O_RDONLY)
        for times in (None, at_now, at_one): libc.futimens(fd, times)
        libc.fchown(fd, -1, -1)
        os.close(fd)
        after = os.stat(path)
        if (before.st_mtime_ns, before.st_ctime_ns) != (after.st_mtime_ns, after.st_ctime_ns): found.append(path)
    return found or 'fine'
"""

WATCHES = """
import errno, fcntl, os
def refused(path, command, argument):
    fd = os.open(path, os.O_RDONLY)
    try: fcntl.fcntl(fd, command, argument)
    except OSError as error: return error.errno == errno.EPERM
    finally: os.close(fd)
def f(x):
    open("/tmp/own", "w").close()
    leases = [refused(path, fcntl.F_SETLEASE, fcntl.F_RDLCK) for path in ("/tmp/own", "/packages/shared.py")]
    return 'fine' if all(leases) and refused("/usr/lib", fcntl.F_NOTIFY, fcntl.DN_ACCESS) else leases
"""

OWN = """
import fcntl, mailbox, os, pathlib, shutil, sqlite3, tarfile, tempfile, time
def f(x):
    folder = tempfile.mkdtemp()
    path = pathlib.Path(folder, "a")
    path.touch()
    path.touch()
    path.write_text("b")
    shutil.copy2(path, folder + "/c")
    shutil.copytree(folder, folder + "/d")
    shutil.move(folder + "/d", folder + "/e")
    with tarfile.open(folder + "/f.tar", "w") as archive: archive.add(path, "g")
    with tarfile.open(folder + "/f.tar") as archive: archive.extractall(folder + "/h")
    with open(path, "r+") as one, open(path) as two:
        fcntl.flock(one, fcntl.LOCK_EX)
        fcntl.lockf(one, fcntl.LOCK_EX)
        fcntl.lockf(one, fcntl.LOCK_UN)
        fcntl.flock(one, fcntl.LOCK_UN)
    with sqlite3.connect(folder + "/i") as database:
        database.execute("CREATE TABLE j (k)")
        database.execute("INSERT INTO j VALUES ('b')")
    with sqlite3.connect(folder + "/i") as database:
        rows = database.execute("SELECT k FROM j").fetchall()
    box = mailbox.mbox(folder + "/m")
    box.lock()
    box.add("text")
    box.unlock()
    os.chmod(path, 0o600)
    texts = [pathlib.Path(folder, name).read_text() for name in ("a", "c", "e/c", "h/g")]
    recent = abs(path.stat().st_mtime - time.time()) < 3600
    return 'fine' if texts == ["b"] * 4 and rows == [("b",)] and recent else (texts, rows)
"""


@pytest.fixture(params=["as this user", "in a user namespace"])
def image(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[CodeImage]:
    """Packages of the machine, of which it has locked one, for sandboxes of both kinds.

    In a user namespace the program's user owns them.
    """
    rootless = request.param == "in a user namespace"
    if rootless and os.geteuid() != 0:
        pytest.skip(needs.ROOT)
    if rootless and not DEBIAN_PYTHON.exists():
        pytest.skip(needs.MISSING["python3"])
    with tempfile.TemporaryDirectory(prefix="crucible-images-") as made:
        folder = Path(made)
        folder.chmod(0o755)  # for the user that builds the sandbox
        (folder / "shared.py").touch()
        if rootless:
            monkeypatch.setattr(sandbox, "_may_mount", lambda: False)
            monkeypatch.setattr(sandbox, "_python", lambda: str(DEBIAN_PYTHON.resolve()))
            monkeypatch.setattr(sandbox, "_outside_usr", lambda folders: iter(()))
            for path in (folder, folder / "shared.py"):
                os.chown(path, sandbox.NOBODY, sandbox.NOBODY)
            assert Isolation.of_this_process().rootless
        with open(folder / "shared.py", "r+b") as one, open(folder / "shared.py", "r+b") as other:
            fcntl.flock(one, fcntl.LOCK_EX)
            fcntl.fcntl(other, fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
            yield CodeImage(name="shared", directory=folder)


@pytest.mark.parametrize("program", [LOCKS, TIMES, WATCHES, OWN], ids=["locks", "times", "watches", "own"])
async def test_what_a_program_does_reaches_its_own_files_alone(image: CodeImage, program: str) -> None:
    """Locks of files are granted and reach none of them, times stay, and ordinary programs work."""
    async with code_grader(1, [image]) as grader:
        grade = await grader.grade(CodeItem(response=program, tests=(TEST,)), SMALL, image)

    assert grade.verdict is Verdict.CORRECT, grade.reason
