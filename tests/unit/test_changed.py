"""What `make check` chooses and runs for files that were changed."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import changed
from tests.changed import Project
from tests.tables import rows

FILES = {
    "bridge/crucible_bridge/__init__.py": "from crucible_bridge.arrays import pack as pack\n",
    "bridge/crucible_bridge/arrays.py": "def pack(): ...\n",
    "bridge/crucible_bridge/codec/data.py": "from .. import arrays\n",
    "bridge/crucible_bridge/v1/made_pb2.py": "import crucible_bridge.arrays\n",
    "python_worker/crucible_worker/rpc/grading.py": "",
    "python_worker/crucible_worker/rpc/chain.py": "",
    "python_worker/crucible_worker/server/__init__.py": "from crucible_worker.rpc import chain\n",
    "tests/kit.py": "import crucible_worker.rpc.chain\n",
    "tests/cases/math/few.jsonl": "",
    "tests/unit/bridge/test_arrays.py": "",
    "tests/unit/bridge/test_public.py": "import crucible_bridge\n",
    "tests/unit/bridge/test_packing.py": "from crucible_bridge import pack\n",
    "tests/unit/bridge/codec/test_data.py": "",
    "tests/unit/server/test_server.py": "",
    "tests/unit/test_math.py": 'FOLDER = Path(__file__).parents[1] / "cases" / "math"\n',
    "tests/unit/test_mathematicians.py": 'GRADER = "math"\n',
    "tests/unit/test_docs.py": "",
    "tests/unit/test_report.py": 'load("_report.py")\n',
    "tests/service/test_grading_calls.py": "",
    "tests/service/test_rpc_chain.py": "",
    "tests/service/test_starting.py": "from tests.kit import start\n",
    "tests/wire/conftest.py": "",
    "tests/wire/test_client.py": "",
    "benchmarks/_report.py": "",
    "README.md": "",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project of a few files."""
    for name, source in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return tmp_path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The commands that are run; those of `ruff` fail."""
    commands: list[Sequence[str]] = []

    def passes(command: Sequence[str], root: Path) -> bool:
        commands.append(command)
        return command[0] != "ruff"

    monkeypatch.setattr(changed, "_passes", passes)
    return commands


@rows(
    ("file", "tests"),
    [
        ("tests/unit/test_math.py", {"unit/test_math.py"}),
        ("tests/unit/gone/test_gone.py", set()),
        # Those named as it is, those that import it, where it is exported too, and those of what imports it.
        (
            "bridge/crucible_bridge/arrays.py",
            {"unit/bridge/test_arrays.py", "unit/bridge/test_packing.py", "unit/bridge/codec/test_data.py"},
        ),
        ("python_worker/crucible_worker/rpc/grading.py", {"service/test_grading_calls.py"}),
        # By a module of the tests, and as what imports it.
        (
            "python_worker/crucible_worker/rpc/chain.py",
            {"service/test_rpc_chain.py", "service/test_starting.py", "unit/server/test_server.py"},
        ),
        ("tests/kit.py", {"service/test_starting.py"}),
        ("tests/cases/math/few.jsonl", {"unit/test_math.py"}),
        ("benchmarks/_report.py", {"unit/test_report.py"}),
        ("README.md", {"unit/test_docs.py"}),
        ("tests/wire/conftest.py", {"wire"}),
        ("Makefile", set()),
    ],
)
def test_tests_of_a_file(root: Path, file: str, tests: set[str]):
    """By who imports it, and by its name."""
    assert Project(root).tests_of(file) == {f"tests/{test}" for test in tests}


def test_importers_are_typed_with_what_was_changed(root: Path):
    """What was changed may break them; generated modules are not looked at."""
    project = Project(root)

    importers = project.existing(project.importers(["bridge/crucible_bridge/arrays.py"]))

    assert importers == [
        "bridge/crucible_bridge/__init__.py",
        "bridge/crucible_bridge/codec/data.py",
        "tests/unit/bridge/test_packing.py",
    ]


def test_every_check_runs_though_one_fails(root: Path, run: list[Sequence[str]], capsys: pytest.CaptureFixture[str]):
    """Lint, types and tests; the tests are named first, and what failed last."""
    assert changed.main(["--processes=3", "python_worker/crucible_worker/rpc/chain.py"], root) == 1

    chain, server, kit = (
        "python_worker/crucible_worker/rpc/chain.py",
        "python_worker/crucible_worker/server/__init__.py",
        "tests/kit.py",
    )
    tests = ["tests/service/test_rpc_chain.py", "tests/service/test_starting.py"]
    tests += ["tests/unit/server/test_server.py"]
    assert run == [
        ["ruff", "check", chain],
        ["ruff", "format", "--check", chain],
        ["pyright", chain, server, kit],
        ["pytest", "-q", "--numprocesses=3", "--dist=worksteal", *tests],
    ]
    said = capsys.readouterr().out.splitlines()
    assert said == [f"Tests of {chain}:", *(f"  {test}" for test in tests), "Failed: ruff, ruff"]


@pytest.mark.parametrize(
    ("file", "commands"),
    [
        ("Makefile", []),
        ("README.md", [["pytest", "-q", "--numprocesses=0", "--dist=worksteal", "tests/unit/test_docs.py"]]),
    ],
)
def test_what_is_no_module_is_not_linted(root: Path, run: list[Sequence[str]], file: str, commands: list[list[str]]):
    """Its tests are run, if it has some; one module of them needs no further process."""
    (root / "Makefile").touch()

    assert changed.main([file], root) == 0
    assert run == commands


def test_without_files_what_is_not_committed_is_checked(root: Path, run: list[Any]):
    """Changed, staged and new files; files that git ignores are not."""

    def git(*arguments: str) -> None:
        named = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
        subprocess.run(["git", "-C", root, *named, *arguments], check=True, capture_output=True)

    (root / ".gitignore").write_text("*.log\n")
    git("init")
    git("add", ".")
    git("commit", "-m", "all")
    assert changed.changed(root) == []
    assert changed.main([], root) == 0
    assert run == []

    (root / "README.md").write_text("more")
    (root / "tests/kit.py").unlink()
    (root / "new.py").touch()
    (root / "staged.py").touch()
    (root / "some.log").touch()
    git("add", "staged.py")

    assert changed.changed(root) == ["README.md", "new.py", "staged.py", "tests/kit.py"]


def test_a_file_that_is_not_there_is_named(root: Path, capsys: pytest.CaptureFixture[str]):
    """With the cure."""
    with pytest.raises(SystemExit):
        changed.main(["README.md", "nowhere.py"], root)

    assert (
        "FILES names nowhere.py, which is not there: name files from the root, as git does" in capsys.readouterr().err
    )


@pytest.mark.parametrize(("argument", "passes"), [("--version", True), ("--no-such-option", False)])
def test_a_command_passes_if_it_exits_with_0(tmp_path: Path, argument: str, passes: bool):
    """The tools are those of this environment."""
    assert changed._passes(["ruff", argument], tmp_path) is passes
