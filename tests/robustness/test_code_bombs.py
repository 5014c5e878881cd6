"""Programs that take all they can get: each fails, and the program beside it and those after it notice nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from crucible_bridge.types import Assertions, CodeLimits, Verdict
from crucible_worker.grading.code.grader import CodeGrader
from crucible_worker.grading.code.sandbox import SCRATCH_BYTES
from tests.service.code_kit import SMALL, code_grader, graded, needs_sandbox

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_sandbox]

BOUNDS = CodeLimits(timeout_ms=700, memory_mb=64)
TEST = Assertions("assert f(1) == 'fine'")
NEIGHBOUR = "import time\nfor _ in range(40): time.sleep(0.01)\ndef f(x): return 'fine'\n"

BOMBS = {
    "forks": "import os\nwhile True: os.fork()",
    "forks and goes on": "import os\ndef f(x):\n    while True:\n        try: os.fork()\n        except OSError: pass",
    "starts processes": "import multiprocessing\ndef f(x):\n    while True: multiprocessing.Process(target=f).start()",
    "starts threads": """
import threading, time
def f(x):
    threading.stack_size(65536)
    while True: threading.Thread(target=time.sleep, args=(60,)).start()
""",
    "takes memory": "def f(x):\n    held = []\n    while True: held.append(bytearray(1 << 20))",
    "takes memory at once": "def f(x): return 'a' * (1 << 40)",
    "maps memory": "import mmap\ndef f(x): return [mmap.mmap(-1, 1 << 26) for _ in range(1000)]",
    "shares memory": """
from multiprocessing import shared_memory
def f(x): shared_memory.SharedMemory(create=True, size=1 << 30)
""",
    "fills files without names": """
import os
def f(x):
    for n in range(60):
        fd = os.memfd_create(str(n))
        for _ in range(16): os.write(fd, b"0" * (1 << 20))
    return "fine"
""",
    "fills the disk": """
def f(x):
    for n in range(1000):
        with open(f"/tmp/{n}", "wb") as file:
            for _ in range(10): file.write(b"0" * (1 << 20))
    return "fine"
""",
    "fills a file": """
import os
def f(x):
    with open('/tmp/a', 'wb') as file: file.truncate(1 << 40)
    return 'fine'
""",
    "opens files": "def f(x):\n    held = [open('/dev/null') for _ in range(100_000)]\n    return 'fine'",
    "computes without end": "def f(x): return 9 ** 9 ** 9",
    "computes by threads": """
import threading
def spin():
    while True: pass
def f(x):
    for _ in range(20): threading.Thread(target=spin).start()
    spin()
""",
    "closes its ears": """
import signal
for n in range(1, 65):
    try: signal.signal(n, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: pass
""",
    "calls out": "import socket\ndef f(x):\n    socket.create_connection(('1.1.1.1', 53), 1)\n    return 'fine'",
    "calls the host": "import socket\ndef f(x):\n    socket.socket(40, 1).connect((2, 22))\n    return 'fine'",
    "calls itself by network": """
import socket
def f(x):
    socket.socket().bind(('127.0.0.1', 0))
    return 'fine'
""",
    "writes outside": "def f(x):\n    open('/usr/lib/crucible', 'w').write('x')\n    return 'fine'",
    "writes at the root": "def f(x):\n    open('/crucible', 'w').write('x')\n    return 'fine'",
    "mounts": """
import ctypes
def f(x): return 'fine' if ctypes.CDLL(None).mount(b'n', b'/tmp', b'tmpfs', 0, 0) == 0 else ''
""",
    "leaves its namespaces": """
import ctypes
def f(x): return 'fine' if ctypes.CDLL(None).unshare(0x10000000) == 0 else ''
""",
    "becomes root": "import os\ndef f(x):\n    os.setuid(0)\n    return 'fine'",
    "hinders its parent": """
import resource
def f(x):
    resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))
    return 'fine'
""",
    "slows its parent": "import os\ndef f(x):\n    os.setpriority(os.PRIO_USER, 0, 19)\n    return 'fine'",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def grader() -> AsyncIterator[CodeGrader]:
    """Two places: one for the bomb, one for its neighbour."""
    async with code_grader(2) as grader:
        yield grader


@pytest.mark.parametrize("name", BOMBS)
async def test_a_bomb_hurts_nobody_but_itself(grader: CodeGrader, name: str):
    """It is wrong; who runs beside it is right."""
    bomb, neighbour = await asyncio.gather(
        graded(grader, BOMBS[name], TEST, limits=BOUNDS), graded(grader, NEIGHBOUR, TEST, limits=CodeLimits())
    )

    assert bomb.verdict is Verdict.INCORRECT
    assert bomb.reason
    assert neighbour.verdict is Verdict.CORRECT, neighbour.reason


async def test_files_of_a_program_are_gone_with_it(grader: CodeGrader):
    """Each begins with an empty folder, whatever the last one did to it."""
    leaves = (
        "import os\nopen('/tmp/a', 'w').close()\nos.mkdir('/tmp/b')\nos.chmod('/tmp/b', 0)\ndef f(x): return 'fine'"
    )
    finds = "import os\nnames = os.listdir('/tmp')\nopen('/tmp/c', 'w').close()\ndef f(x): return names or 'fine'"

    for program in (leaves, finds, finds, leaves, finds):
        assert (await graded(grader, program, TEST)).verdict is Verdict.CORRECT


async def test_a_program_may_write_what_its_folder_holds(grader: CodeGrader):
    """And no byte more."""
    program = "def f(size):\n    with open('/tmp/a', 'wb') as file: file.write(b'0' * size)\n    return 'fine'"
    fits = Assertions(f"assert f({SCRATCH_BYTES}) == 'fine'")
    beyond = Assertions(f"assert f({SCRATCH_BYTES + 1}) == 'fine'")

    assert (await graded(grader, program, fits)).verdict is Verdict.CORRECT
    assert (await graded(grader, program, beyond)).verdict is Verdict.INCORRECT


async def test_a_program_may_use_threads_and_signals_of_its_own(grader: CodeGrader):
    """What ordinary programs do is not in the way."""
    program = """
import asyncio, concurrent.futures, signal, tempfile, os
heard = []
signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
async def main():
    return await asyncio.to_thread(lambda: 'fine')
def f(x):
    os.kill(os.getpid(), signal.SIGUSR1)
    with concurrent.futures.ThreadPoolExecutor(4) as pool, tempfile.TemporaryFile() as file:
        file.write(b'1')
        assert list(pool.map(abs, [-1, 2])) == [1, 2]
    return asyncio.run(main()) if heard else 'deaf'
"""

    assert (await graded(grader, program, TEST)).verdict is Verdict.CORRECT


async def test_nothing_of_the_worker_is_to_be_seen(grader: CodeGrader, monkeypatch: pytest.MonkeyPatch):
    """Neither its environment, nor its files, nor its processes; and the program is nobody."""
    monkeypatch.setenv("CRUCIBLE_TEST_SECRET", "visible")
    program = f"""
import os
def f(x):
    seen = [name for name in ('/proc', '/home', '/var', '/etc/passwd', {str(Path.cwd())!r}) if os.path.exists(name)]
    if os.getuid() < 60000 or os.getpid() > 1000 or 'visible' in os.environ.values():
        seen.append((os.getuid(), os.getpid(), dict(os.environ)))
    return seen or 'fine'
"""

    grade = await graded(grader, program, Assertions("assert f(1) == 'fine'"), limits=SMALL)

    assert grade.verdict is Verdict.CORRECT, grade.reason
