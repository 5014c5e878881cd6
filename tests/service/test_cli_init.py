"""`crucible-worker init`: the files that it writes are what the commands that it prints run on."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from crucible_bridge.suites import load_plan, load_suite
from crucible_worker.cli.init import FILES
from crucible_worker.embedded import registry
from tests import commands, needs


def environment(folder: Path) -> Mapping[str, str]:
    """A state directory in the folder, and no processes that nothing here needs."""
    return {
        "CRUCIBLE_STATE_DIR": str(folder / "state"),
        "CRUCIBLE_GRADING_PROCESSES": "0",
        "CRUCIBLE_CODE_SANDBOXES": "0",
        "COLUMNS": "160",
    }


def printed_by(folder: Path, *words: str) -> list[str]:
    """The commands that `init` prints."""
    done = commands.run("init", *words, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return [line.strip() for line in done.stdout.partition("Run them:\n")[2].splitlines()]


def run(folder: Path, command: str, *more: str) -> subprocess.CompletedProcess[str]:
    """One of them, as it was printed."""
    program, *words = shlex.split(command)
    assert program == "crucible-worker"
    return commands.run(*words, *more, cwd=folder, env=environment(folder))


@pytest.mark.core
def test_the_printed_commands_run(tmp_path: Path):
    """Below another folder, with a blank in its name: the suite is evaluated, and its samples are shown."""
    changes, evaluate, samples, _ = printed_by(tmp_path, "my evals")
    folder = tmp_path / shlex.split(changes)[1]
    evaluated, shown = run(folder, evaluate), run(folder, samples)

    assert evaluated.returncode == 0, evaluated.stderr
    assert "answers/accuracy 100.0 %" in evaluated.stdout
    assert "likelihood/nll 0.00" in evaluated.stdout
    assert shown.returncode == 0
    assert "q8" in shown.stdout


def test_the_plan_evaluates_what_is_due(tmp_path: Path):
    """At step 100 the likelihood, at step 500 the answers too."""
    needs.modules("torch", "transformers")
    *_, follow = printed_by(tmp_path)
    for step, model in ((100, "arithmetic@180"), (250, "arithmetic@320"), (500, "arithmetic@600")):
        shutil.copytree(registry.path(model), tmp_path / "runs" / "mine" / f"checkpoint-{step}")

    done = run(tmp_path, follow, "--exit-when-idle", "1")

    assert done.returncode == 0, done.stderr
    ended = [line.partition(":")[0] for line in done.stdout.splitlines() if line.endswith(": completed")]
    assert sorted(ended) == ["mine-step-100-0", "mine-step-500-0", "mine-step-500-1"]


@pytest.mark.core
def test_the_files_are_read_and_have_comments(tmp_path: Path):
    """A suite and a plan of the same evaluations; a line of the questions explains itself in a key of its own."""
    printed_by(tmp_path)
    suite, plan = load_suite(tmp_path / "suite.toml"), load_plan(tmp_path / "plan.toml", plan_id="p", run_id="r")
    questions = [json.loads(line) for line in (tmp_path / "questions.jsonl").read_text().splitlines()]

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)
    assert [member.name for member in suite.members] == ["answers", "likelihood"]
    assert plan.patience is not None
    assert plan.patience.metric == "answers/accuracy"
    assert [FILES[name].count("\n#") >= 5 for name in ("suite.toml", "plan.toml")] == [True, True]
    assert all(
        {"id", "input", "target"} <= set(question) <= {"id", "input", "target", "note"} for question in questions
    )


@pytest.mark.core
@pytest.mark.parametrize("name", FILES)
def test_nothing_is_replaced(tmp_path: Path, name: str):
    """A file, and a link to nowhere too, is named, and no other file is written beside it."""
    (tmp_path / name).symlink_to("nowhere")

    done = commands.run("init", str(tmp_path))

    assert done.returncode == 2
    assert done.stderr == (
        f"crucible-worker: {tmp_path / name} exists, and is not replaced; nothing is written: give another directory\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.core
def test_a_folder_that_cannot_be_written_is_an_error_of_one_line(tmp_path: Path):
    """Such as a file in its place."""
    (tmp_path / "file").touch()

    done = commands.run("init", str(tmp_path / "file" / "below"))

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"crucible-worker: {tmp_path / 'file' / 'below'} cannot be written: Not a directory\n"
