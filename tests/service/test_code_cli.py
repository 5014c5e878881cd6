"""`crucible-worker grade --code` and what doctor says of sandboxes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.errors import InvalidField
from crucible_worker.cli.checks import DoctorCheck, run_checks
from crucible_worker.cli.grade import batches_of
from crucible_worker.config import Settings
from crucible_worker.grading.code import sandbox
from crucible_worker.grading.code.images import CodeImage
from tests import commands
from tests.service.code_kit import needs_sandbox

TEST = "assert f(1) == 1"


def grade(folder: Path, records: list[Any], *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Grade programs into `graded.jsonl`."""
    (folder / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    files = (f"--input={folder / 'in.jsonl'}", f"--output={folder / 'graded.jsonl'}")
    return commands.run("grade", "--code", *files, *arguments, env={**os.environ, **environment}, seconds=60)


def found(folder: Path, monkeypatch: pytest.MonkeyPatch, sandboxes: int | None, *images: CodeImage) -> DoctorCheck:
    """What doctor says of the sandbox."""
    monkeypatch.setattr("crucible_worker.backends.local.backend._torch_device", lambda: "CPU")
    settings = Settings(port=0, state_dir=folder, grading_processes=0, code_sandboxes=sandboxes, code_images=images)
    return next(check for check in run_checks(settings) if check.name == "sandbox")


@needs_sandbox
def test_every_program_gets_its_verdict(tmp_path: Path):
    """In order; a line whose gold is no test is no record."""
    done = grade(
        tmp_path,
        [
            {"id": "a", "response": "```python\ndef f(x): return x\n```", "gold": TEST},
            {
                "id": "b",
                "pred": "def f(x): return 1",
                "gold": [TEST, {"function": "f", "arguments": [2], "expected": 2}],
            },
            {"id": "c", "response": "    return x", "gold": [{"prefix": "def f(x):\n"}, TEST]},
            {"id": "d", "response": "while True: pass", "gold": {"stdin": "", "stdout": "1"}},
            {"id": "e", "response": "x", "gold": [5]},
            {"id": "f", "response": "def f(x): return x", "gold": "assert f("},
        ],
        "--json",
        "--processes=2",
        "--policy=timeout_ms=2000",
    )

    rows = [json.loads(line) for line in (tmp_path / "graded.jsonl").read_text().splitlines()]
    assert [(row["id"], row["verdict"], row["score"]) for row in rows] == [
        ("a", "correct", 1.0),
        ("b", "partial", 0.5),
        ("c", "correct", 1.0),
        ("d", "incorrect", 0.0),
        (None, "error", None),
        ("f", "error", None),
    ]
    assert "line 5" in rows[4]["reason"]
    told = json.loads(done.stdout)
    assert (told["correct"], told["partial"], told["incorrect"], told["error"], told["malformed"]) == (2, 1, 1, 1, 1)
    assert told["accuracy"] == 0.5
    assert "policy_version" not in told
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("--code-image=/nonexistent", "--code-image /nonexistent is not a folder"),
        ("--policy=degrees=false", "degrees"),
        ("--policy=timeout_ms=1", "timeout_ms"),
        ("--processes=0", "--processes"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, argument: str, says: str):
    """Rules of mathematics are no bounds of programs."""
    done = grade(tmp_path, [], argument)

    assert (done.returncode, says in done.stderr) == (2, True)


@needs_sandbox
def test_programs_import_the_packages_of_a_folder(tmp_path: Path):
    """With --code-image; it is for programs alone."""
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "shelf.py").write_text("COUNT = 1\n")
    for folder in (tmp_path, packages):
        folder.chmod(0o755)
    records = [{"id": "a", "response": "import shelf\ndef f(x): return shelf.COUNT", "gold": TEST}]

    for arguments, verdict in (([f"--code-image={packages}"], "correct"), ([], "incorrect")):
        grade(tmp_path, records, *arguments)
        assert json.loads((tmp_path / "graded.jsonl").read_text())["verdict"] == verdict
    with pytest.raises(InvalidField, match="--code-image is for programs: --code is needed"):
        batches_of((), None, code=False, packages=packages)


def test_without_bubblewrap_it_is_said_what_to_install(tmp_path: Path):
    """And nothing is written."""
    done = grade(tmp_path, [{"response": "x", "gold": TEST}], PATH=str(tmp_path))

    assert done.returncode == 1
    assert "apt install bubblewrap" in done.stderr
    assert not (tmp_path / "graded.jsonl").exists()


@needs_sandbox
def test_doctor_runs_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And says by what."""
    check = found(tmp_path, monkeypatch, None)

    assert check.ok, check.detail
    assert "bwrap" in check.detail
    assert "image sci" not in check.detail
    assert not check.required


@needs_sandbox
def test_doctor_runs_a_program_with_each_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And says which of their packages cannot be loaded."""
    tmp_path.chmod(0o755)
    for name, source in (("good", ""), ("bad", "raise ImportError('made for another Python')")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sortedcontainers.py").write_text(source)
    good, bad = (CodeImage(name=name, directory=tmp_path / name) for name in ("good", "bad"))

    check = found(tmp_path, monkeypatch, None, good)
    assert check.detail.endswith(", image good")
    check = found(tmp_path, monkeypatch, None, good, bad)
    assert not check.ok
    assert "sortedcontainers of the image cannot be imported: ImportError: made for another Python" in check.detail


def test_doctor_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A worker can serve without it."""
    monkeypatch.setattr(sandbox.shutil, "which", lambda *given, **more: None)

    check = found(tmp_path, monkeypatch, None)

    assert (check.ok, check.required) == (False, False)
    assert "apt install bubblewrap" in check.detail


def test_a_worker_that_is_to_run_no_programs_lacks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nothing is looked for."""
    monkeypatch.setattr(sandbox.shutil, "which", lambda *given, **more: None)

    check = found(tmp_path, monkeypatch, 0)

    assert (check.ok, check.detail) == (True, "none configured: code_sandboxes is 0")
