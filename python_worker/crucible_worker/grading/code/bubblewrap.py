"""The isolation of a sandbox: the options of bubblewrap, and what to do if it is missing or not permitted.

A sandbox has separate namespaces for users, processes, mounts, the network, IPC and the host's name. It sees Python,
`/usr` and the libraries, all read-only, and one small folder in memory. It has no `/proc`, so that containers need not
unmask theirs.

A worker that runs as root and may mount builds the sandbox as root, wherever Python is installed, and the zygote drops
root. Any other worker builds it in a user namespace; root in a container first becomes the user nobody.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import itertools
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_worker.grading.code.inside.frames import SCRATCH

__all__ = ["NOBODY", "SCRATCH_BYTES", "Isolation", "advice", "find_bubblewrap", "no_sandbox", "none_wanted", "sources"]

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
