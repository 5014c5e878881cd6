"""The first process of a sandbox: it has loaded common imports of programs, and forks one child for each run.

It never reads a program. An order on its control socket brings limits, a role, and the file descriptors of the run. The
child gives up what it must not have, and receives its work over the run's own channel. When the child has ended, the
answer reports how, and whether it has written files. The worker ends the sandbox by closing the control socket.
"""

from __future__ import annotations

import array
import builtins
import ctypes
import errno
import fcntl
import functools
import gc
import importlib
import importlib.util
import json
import mmap
import os
import platform
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from crucible_worker.grading.code.inside import examiner, program
from crucible_worker.grading.code.inside.given_names import builtins_with_names
from crucible_worker.grading.code.inside.wire import MAX_ORDER_BYTES, READY, SCRATCH

__all__ = ["address_space", "confine", "main", "prepare"]

# The privileges that a process gives up before it runs a program: memory, files, processes, most system calls.
#
# The sandbox around it has no network, file system or other processes. This filter prevents the remaining harm inside:
# a program may start threads, but neither processes nor other programs, so that it cannot evade a memory limit and
# nothing remains running. It may send signals only to itself.
#
# A lock on a file reaches everyone who has that file, even if it was only read: Python's own files are those of the
# machine. No other process can have a file of the program, so locks are granted without a lock being taken. The devices
# in /dev are the machine's too, and a mount that is read-only would not let a program use them: so no times are set.

_INTERPRETER_BYTES = 96 * 1024 * 1024  # address space of Python and its libraries, before a program is loaded
_THREADS = 256
_OPEN_FILES = 64
_STACK_BYTES = 64 * 1024 * 1024  # recursion of C code, such as pickle or re
_FILE_BYTES = 16 * 1024 * 1024
_LARGEST_PAGES = 2**40 // mmap.PAGESIZE

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _PR_SET_DUMPABLE, _FILTER_MODE = 38, 22, 4, 2
_CLONE_THREAD = 0x00010000
_AF_UNIX = 1

# struct seccomp_data: nr, arch, instruction pointer, arguments; the low half of an argument comes first.
_NUMBER, _ARCHITECTURE, _ARGUMENT = 0, 4, 16
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_X32 = 0x40000000  # system calls of another kind on x86_64

_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

_NEVER = {
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "setpriority": (141, 140),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
    "process_madvise": (440, 440),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "personality": (135, 92),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # Memory that no process limit counts, or that remains after the process.
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    # They set times, of a file that the program may write or, if they change no owner, of any file.
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "chown": (92, None),
    "lchown": (94, None),
    "fchown": (93, 55),
    "fchownat": (260, 54),
}

_FLOCK, _FCNTL, _UTIMENSAT = (73, 32), (72, 25), (280, 88)
_LOCKS = (fcntl.F_SETLK, fcntl.F_SETLKW, fcntl.F_OFD_SETLK, fcntl.F_OFD_SETLKW)
_WATCHES = (fcntl.F_SETLEASE, fcntl.F_NOTIFY)
"""A lease makes others wait who open the file; a notification tells what they do in a folder."""

_CLONE, _CLONE3, _KILL, _TGKILL, _SOCKET, _PRLIMIT = (56, 220), (435, 435), (62, 129), (234, 131), (41, 198), (302, 261)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def prepare() -> None:
    """Prepare, once, what is the same for every child.

    Raises:
        OSError: there is no filter for this machine.
    """
    _fixed()
    _library()


def confine(memory_bytes: int, cpu_seconds: int) -> None:
    """Give up what a program must not have, for the rest of the process's life.

    Args:
        memory_bytes: address space in addition to Python's own.
        cpu_seconds: processor time after which the kernel ends it.

    Raises:
        OSError: the kernel refuses a limit or the filter.
    """
    _limit(resource.RLIMIT_AS, _INTERPRETER_BYTES + memory_bytes)
    _limit(resource.RLIMIT_CPU, cpu_seconds)
    _limit(resource.RLIMIT_STACK, _STACK_BYTES)
    _limit(resource.RLIMIT_FSIZE, _FILE_BYTES)
    _limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
    _limit(resource.RLIMIT_NPROC, _THREADS)
    _limit(resource.RLIMIT_CORE, 0)
    library = _library()
    _checked(library.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))
    _checked(library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    instructions = _filter(os.getpid())
    program = _Program(len(instructions) // 8, instructions)
    _checked(library.prctl(_PR_SET_SECCOMP, _FILTER_MODE, ctypes.byref(program), 0, 0))


def address_space() -> int:
    """The address space of this process: the lowest limit at which it can get one more page, as there is no /proc."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    low, high = 0, _LARGEST_PAGES
    try:
        while high - low > 1:
            middle = (low + high) // 2
            resource.setrlimit(resource.RLIMIT_AS, (middle * mmap.PAGESIZE, hard))
            if _page_fits():
                high = middle
            else:
                low = middle
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    return low * mmap.PAGESIZE


def _page_fits() -> bool:
    try:
        mmap.mmap(-1, mmap.PAGESIZE).close()
    except (OSError, MemoryError):
        return False
    return True


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (bound, bound))


def _checked(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _filter(pid: int) -> bytes:
    """The filter of system calls, as instructions of classic BPF."""
    first, column = _fixed()
    deny, allow = _answer(_ERRNO | errno.EPERM), _answer(_ALLOW)
    parts = [first]
    for numbers, test, value in (
        (_CLONE, _ANY_BIT, _CLONE_THREAD),
        (_KILL, _EQUAL, pid),
        (_TGKILL, _EQUAL, pid),
        (_SOCKET, _EQUAL, _AF_UNIX),
        (_PRLIMIT, _EQUAL, 0),
    ):
        parts += [_jump(_EQUAL, numbers[column], 0, 4), _load(_ARGUMENT), _jump(test, value, 0, 1), allow, deny]
    return b"".join((*parts, allow))


@functools.cache
def _fixed() -> tuple[bytes, int]:
    """The rules of the filter for every child, and the column with this machine's numbers."""
    machine = platform.machine()
    if machine not in _MACHINES:
        raise OSError(errno.ENOSYS, f"no filter of system calls for {machine}")
    architecture, column = _MACHINES[machine]
    deny = _answer(_ERRNO | errno.EPERM)
    parts = [_load(_ARCHITECTURE), _jump(_EQUAL, architecture, 1, 0), deny, _load(_NUMBER)]
    parts += [_jump(_AT_LEAST, _X32, 0, 1), deny]
    for numbers in _NEVER.values():
        number = numbers[column]
        if number is not None:
            parts += [_jump(_EQUAL, number, 0, 1), deny]
    done = _answer(_ERRNO)  # the error 0: success
    parts += [_jump(_EQUAL, _FLOCK[column], 0, 1), done]
    # Without times it is refused: Path.touch then opens the file. With times it does nothing, so that copies succeed.
    parts += [_jump(_EQUAL, _UTIMENSAT[column], 0, 4), _load(_ARGUMENT + 16), _jump(_EQUAL, 0, 0, 1), deny, done]
    commands = [(command, done) for command in _LOCKS] + [(command, deny) for command in _WATCHES]
    parts += [_jump(_EQUAL, _FCNTL[column], 0, 2 + 2 * len(commands)), _load(_ARGUMENT + 8)]
    for command, answer in commands:
        parts += [_jump(_EQUAL, command, 0, 1), answer]
    parts.append(_answer(_ALLOW))
    # The C library falls back to clone, whose flags the filter can check.
    parts += [_jump(_EQUAL, _CLONE3[column], 0, 1), _answer(_ERRNO | errno.ENOSYS)]
    return b"".join(parts), column


def _load(offset: int) -> bytes:
    return struct.pack("HBBI", _LOAD, 0, 0, offset)


def _jump(test: int, value: int, where_so: int, where_not: int) -> bytes:
    return struct.pack("HBBI", test, where_so, where_not, value)


def _answer(value: int) -> bytes:
    return struct.pack("HBBI", _RETURN, 0, 0, value)


_MAX_FDS = 3  # the channel, and standard input and output of a program that has them
_PRELOADED = (
    *("abc", "bisect", "calendar", "cmath", "collections", "copy", "dataclasses", "datetime", "decimal", "enum"),
    *("fractions", "functools", "hashlib", "heapq", "io", "itertools", "json", "math", "operator", "queue", "random"),
    *("re", "statistics", "string", "textwrap", "threading", "time", "traceback", "typing", "unicodedata"),
)
_PACKAGES = ("numpy", "numpy.random", "pytest", "sortedcontainers")  # a third of a second that runs need not spend
_ROLES: dict[str, Callable[[socket.socket], None]] = {
    "program": program.serve_calls,
    "script": program.run_script,
    "tests": examiner.examine,
}


def main(control_fd: int, user: int | None, packages: str | None = None) -> NoReturn:
    """Serve orders until the control socket is closed.

    Args:
        control_fd: the socket.
        user: the user to become, if the sandbox was built by root.
        packages: folder of packages that programs can import in addition to Python's own modules.
    """
    if user is not None:
        os.setgroups(())
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    # As init of the namespace: signals without a handler here cannot reach it from inside.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in _PRELOADED:
        importlib.import_module(module)
    _add_exits()
    builtins_with_names()  # prepared for the children
    loaded_bytes = 0 if packages is None else _load_packages(packages)
    # On the descriptors, whatever a child does to them: this saves each child a third of a millisecond.
    sys.stdin, sys.stdout, sys.stderr = _streams()
    prepare()
    # Garbage collections would write to every page that is shared with the children.
    gc.collect()
    gc.freeze()
    control = socket.socket(fileno=control_fd)
    _prove_confinement()
    since = os.stat(SCRATCH).st_ctime_ns
    control.send(READY)
    while True:
        order, fds = _received(control)
        if not order:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            _run(control, {**order, "memory_bytes": order["memory_bytes"] + loaded_bytes}, fds)
        for fd in fds:
            os.close(fd)
        code = _ended(pid, control)
        # Its change time records every change of the folder: new or removed entries, its mode.
        touched = os.stat(SCRATCH).st_ctime_ns != since
        control.send(json.dumps({"code": code, "touched": touched}).encode())


def _load_packages(folder: str) -> int:
    """Add packages to the path, and load slow ones; returns the address space that they take."""
    sys.path.append(folder)  # after Python's own modules
    before = address_space()
    for name in _PACKAGES:
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            continue
        try:
            importlib.import_module(name)
        except Exception as error:
            told = " ".join(str(error).split())[:200]
            os.write(2, f"{name} of the image cannot be imported: {type(error).__name__}: {told}".encode())
            os._exit(1)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(0)  # the same program, the same grade
    return address_space() - before


def _prove_confinement() -> None:
    """Exit with an error if the kernel cannot confine: later the programs would seem to fail."""
    pid = os.fork()
    if pid == 0:
        try:
            confine(1 << 30, 1)
        except OSError as error:
            os.write(2, f"programs cannot be confined: {error}".encode())
            os._exit(1)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        os._exit(1)


def _ended(pid: int, control: socket.socket) -> int:
    """Wait for a child; if the control socket closes before, end with everything that runs here."""
    child = os.pidfd_open(pid)
    watched = select.poll()
    watched.register(child, select.POLLIN)
    watched.register(control, select.POLLIN)
    # The kernel's signal at a parent's death does not reach another user's process; the socket's end does.
    if any(fd == control.fileno() for fd, _ in watched.poll()):
        os._exit(0)
    os.close(child)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _received(control: socket.socket) -> tuple[dict[str, Any], Sequence[int]]:
    data, ancillary, _, _ = control.recvmsg(MAX_ORDER_BYTES, socket.CMSG_SPACE(_MAX_FDS * array.array("i").itemsize))
    fds = array.array("i")
    for _, _, passed in ancillary:
        fds.frombytes(passed)
    return (json.loads(data) if data else {}), fds


def _run(control: socket.socket, order: dict[str, Any], fds: Sequence[int]) -> NoReturn:
    """Be the child: never returns, whatever happens."""
    try:
        # Not before it is out of reach: the control socket is the zygote's alone.
        control.close()
        quiet = os.open(os.devnull, os.O_RDWR)
        os.dup2(fds[1] if len(fds) > 1 else quiet, 0)
        os.dup2(fds[2] if len(fds) > 2 else quiet, 1)
        os.dup2(quiet, 2)
        for fd in (quiet, *fds[1:]):
            os.close(fd)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        confine(order["memory_bytes"], order["cpu_seconds"])
        _ROLES[order["role"]](socket.socket(fileno=fds[0]))
    except BaseException:  # the worker sees that the channel ends too early
        os._exit(1)
    os._exit(0)


def _streams() -> tuple[Any, Any, Any]:
    return (
        open(0, encoding="utf-8", errors="surrogateescape", closefd=False),
        open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False),
        open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False),
    )


def _add_exits() -> None:
    """The names that Python's site module would add, which is not loaded here."""
    import _sitebuiltins  # part of CPython, used only by site

    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "end-of-file"))
