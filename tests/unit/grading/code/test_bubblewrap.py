"""What a sandbox is built of, and what is said where none can be."""

import os
from pathlib import Path

import pytest

from crucible_bridge.errors import FailedPrecondition
from crucible_worker.grading.code import sandbox
from crucible_worker.grading.code.sandbox import NOBODY, Isolation, advice, find_bubblewrap, sources


def wall(monkeypatch: pytest.MonkeyPatch, *, user: int, may_mount: bool) -> Isolation:
    """As a process of that user, with or without the right to mount, would build it."""
    monkeypatch.setattr(sandbox, "find_bubblewrap", lambda: "/usr/bin/bwrap")
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(sandbox, "_may_mount", lambda: may_mount)
    return Isolation.of_this_process()


def test_where_bubblewrap_is_missing_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Programs are never run without a sandbox."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(FailedPrecondition, match="apt install bubblewrap") as caught:
        find_bubblewrap()

    assert caught.value.reason == "NO_SANDBOX"


@pytest.mark.parametrize(
    "said",
    [
        "bwrap: No permissions to create new namespace, likely because the kernel does not allow it",
        "bwrap: Creating new namespace failed: Operation not permitted",
        "bwrap: setting up uid map: Permission denied",
    ],
)
def test_where_namespaces_are_not_allowed_it_is_said_what_to_allow(said: str):
    """In Docker, on Ubuntu, and elsewhere; what bubblewrap said comes first."""
    told = advice(f"a line before\n{said}\n")

    assert told.startswith(said)
    assert "--security-opt seccomp=unconfined" in told
    assert "kernel.apparmor_restrict_unprivileged_userns" in told


def test_anything_else_is_told_as_it_was_said():
    """And that nothing was said, where that is so."""
    assert advice("bwrap: Can't find source path /x") == "bwrap: Can't find source path /x"
    assert advice(" \n") == "it ended without a word"


@pytest.mark.parametrize(("user", "may_mount"), [(0, True), (0, False), (1000, False)])
def test_no_sandbox_has_what_programs_could_do_harm_with(monkeypatch: pytest.MonkeyPatch, user: int, may_mount: bool):
    """Whoever builds it: no network, no processes of others, nothing of the environment, one folder to write to."""
    built = wall(monkeypatch, user=user, may_mount=may_mount)

    words = built.command(9, {"/sandbox/a.py": 8})

    for word in ("--unshare-net", "--unshare-pid", "--unshare-ipc", "--as-pid-1", "--new-session", "--clearenv"):
        assert word in words
    assert words[words.index("--cap-drop") + 1] == "ALL"
    assert {"--bind", "--proc", "--dev", "--share-net"}.isdisjoint(words)
    assert words[words.index("--remount-ro") + 1] == "/"
    assert built.user >= 65520


def test_a_process_without_the_right_to_mount_uses_a_user_namespace(monkeypatch: pytest.MonkeyPatch):
    """Root becomes nobody first, as no limit of processes binds root; others stay who they are."""
    root = wall(monkeypatch, user=0, may_mount=False)
    assert root.rootless
    assert root.runs_as == NOBODY

    other = wall(monkeypatch, user=1000, may_mount=False)
    assert other.rootless
    assert other.runs_as is None
    words = other.command(9, {})
    assert words[words.index("--uid") + 1] == str(NOBODY)
    assert "--cap-add" not in words


def test_root_that_may_mount_hands_over_to_users_without_any(monkeypatch: pytest.MonkeyPatch):
    """Neighbours have different ones: limits of processes are counted by user."""
    first = wall(monkeypatch, user=0, may_mount=True)
    second = wall(monkeypatch, user=0, may_mount=True)

    assert not first.rootless
    assert first.user != second.user
    words = first.command(9, {})
    kept = [words[at + 1] for at, word in enumerate(words) if word == "--cap-add"]
    assert kept == ["CAP_SETUID", "CAP_SETGID"]
    assert "--unshare-user" not in words


def test_what_runs_inside_needs_the_standard_library_alone():
    """Every module is carried in; none imports more than is there."""
    carried = sources()

    assert "/sandbox/crucible_worker/grading/code/inside/zygote.py" in carried
    for path, text in carried.items():
        for line in text.decode().splitlines():
            if line.startswith(("import crucible", "from crucible")):
                module = line.split()[1].replace(".", "/")
                assert {f"/sandbox/{module}.py", f"/sandbox/{module}/__init__.py"} & carried.keys(), (path, line)
