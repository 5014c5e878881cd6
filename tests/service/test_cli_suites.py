"""`crucible-worker evaluate --suite` on an embedded model, without any network: tables, JSON, exit codes, going on."""

import json
import signal
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.suites import load_suite
from crucible_bridge.types import EvaluationPlan
from crucible_worker.config import Settings
from crucible_worker.server import Worker
from tests import commands

SUITE = """
name = "mine"

[[evaluations]]
name = "likelihood"
dataset = { source = "builtin:arithmetic", limit = 40 }
evaluators = ["nll", "perplexity"]

[[evaluations]]
name = "absent"
dataset = "jsonl:absent.jsonl"
evaluators = ["nll"]

[[evaluations]]
name = "own"
dataset = "jsonl:sums.jsonl"
evaluators = [{ kind = "accuracy", options = { grader = "numeric" } }]
sampling = { max_tokens = 8 }
limits = { max_unscored = 0 }
"""
COMPLETE = SUITE.replace("jsonl:absent.jsonl", "jsonl:sums.jsonl")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where suites and their data lie."""
    (tmp_path / "mine.toml").write_text(SUITE)
    (tmp_path / "complete.toml").write_text(COMPLETE)
    (tmp_path / "sums.jsonl").write_text('{"input": "12+34=", "target": "46"}\n{"input": "21+34=", "target": "55"}\n')
    return tmp_path


def _words(*arguments: str) -> Sequence[str]:
    return ["evaluate", "--model=embedded:arithmetic@600", *arguments]


def _evaluate(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return commands.run(*_words(*arguments), cwd=cwd)


def _told(done: "subprocess.CompletedProcess[str]") -> dict[str, dict[str, Any]]:
    told = json.loads(done.stdout)
    assert (told["suite"], told["model"]) == ("mine", "embedded:arithmetic@600")
    return {each["name"]: each for each in told["evaluations"]}


def test_one_that_fails_leaves_the_others(folder: Path):
    """Each has its metrics or its error, in the file's order; the exit status says that something failed."""
    done = _evaluate("--suite=mine.toml", "--json", cwd=folder)

    assert (done.returncode, done.stderr) == (1, "")
    evaluations = _told(done)
    assert list(evaluations) == ["likelihood", "absent", "own"]
    assert set(evaluations["likelihood"]["metrics"]) == {"likelihood/nll", "likelihood/perplexity"}
    assert [each["n"] for each in evaluations["likelihood"]["evaluators"]] == [40, 40]
    assert evaluations["own"]["metrics"]["own/accuracy"] == 1.0
    error = evaluations["absent"]["error"]
    assert error["reason"] == "NO_SUCH_FILE"
    assert error["message"].startswith("evaluations[1].dataset names 'absent.jsonl', and no data root has such a file")


def test_people_get_a_table_for_each(folder: Path):
    """With the name of the evaluation before the model's, and how many of them finished."""
    done = _evaluate("--suite=mine.toml", "--samples=2", cwd=folder)

    assert done.returncode == 1
    titles = [line for line in done.stdout.splitlines() if "completed in" in line]
    assert [title.partition(",")[0] for title in titles] == ["likelihood", "own"]
    assert "absent: did not run: evaluations[1].dataset names 'absent.jsonl'" in done.stdout
    assert done.stdout.splitlines()[-2] == "mine: 2 of 3 finished"
    assert "2 of 2" in done.stdout


def test_of_a_suite_the_evaluation_that_scored_nothing_is_named(folder: Path):
    """The others stand, and the exit status says that one has no score."""
    (folder / "sums.jsonl").write_text('{"input": "12+34="}\n')
    (folder / "mine.toml").write_text(SUITE.replace("limits = { max_unscored = 0 }\n", ""))

    done = _evaluate("--suite=mine.toml", "--only=likelihood", "--only=own", "--samples=2", "--json", cwd=folder)

    assert (done.returncode, done.stderr) == (
        4,
        "crucible-worker: own: accuracy scored none of 1 samples; the first: there is no target\n",
    )
    assert [each["state"] for each in _told(done).values()] == ["completed", "completed"]


def test_a_suite_of_which_nothing_can_run_is_refused(folder: Path):
    """Every evaluation has its error, and the exit status is that of a request that is refused."""
    done = _evaluate("--suite=mine.toml", "--only=absent", "--json", cwd=folder)

    assert done.returncode == 2
    assert _told(done)["absent"]["error"]["code"] == "NOT_FOUND"


def test_a_mistake_in_the_file_is_named_before_anything_runs(folder: Path):
    """One line, one object, and no evaluation."""
    (folder / "mine.toml").write_text(SUITE.replace('grader = "numeric"', 'grader = "numerical"'))

    done = _evaluate("--suite=mine.toml", "--json", cwd=folder)

    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert error["field"] == 'evaluations[2].evaluators[0].options["grader"]'
    assert done.stderr == f"crucible-worker: {error['message']}\n"


def test_killed_it_goes_on_under_its_id(folder: Path):
    """After SIGKILL the rest is done, then what has ended is shown as it ended; another suite is refused there."""
    (folder / "whole.toml").write_text(SUITE.replace('"jsonl:absent.jsonl"', '"builtin:arithmetic"'))
    kept = ("--suite=whole.toml", "--state-dir=state", "--id=run-7")
    command = [sys.executable, "-m", "crucible_worker", *_words(*kept)]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("absent: ") and "to do" in line:
                process.kill()
        assert process.wait(timeout=60) == -signal.SIGKILL

    done = _evaluate(*kept, "--json", cwd=folder)

    assert done.returncode == 0, done.stderr
    evaluations = _told(done)
    assert [each["evaluation_id"] for each in evaluations.values()] == ["run-7-likelihood", "run-7-absent", "run-7-own"]
    assert [each["evaluators"][0]["n_scored"] for each in evaluations.values()] == [40, 815, 2]

    (folder / "whole.toml").write_text((folder / "whole.toml").read_text().replace("max_tokens = 8", "max_tokens = 7"))
    other = _evaluate(*kept, "--json", cwd=folder)

    assert other.returncode == 1
    assert _told(other)["own"]["error"]["reason"] == "OTHER_SPECIFICATION"
    # To the last digit of the time that it took.
    assert _told(other)["likelihood"] == evaluations["likelihood"]
    assert _told(other)["absent"] == evaluations["absent"]


def test_the_file_of_one_that_ships_is_printed(tmp_path: Path):
    """As it lies in the package, to be edited; without a name they are listed."""
    printed, listed, unknown = (commands.run("suites", word) for word in ("math", "--json", "maths"))

    (tmp_path / "my.toml").write_text(printed.stdout)
    mine = load_suite(tmp_path / "my.toml")
    assert mine.name == tomllib.loads(printed.stdout)["name"] == "math"
    (told,) = [suite for suite in json.loads(listed.stdout)["suites"] if suite["name"] == "math"]
    assert told["evaluations"] == [member.name for member in mine.members]
    assert unknown.returncode == 2
    assert unknown.stderr == "crucible-worker: there is no suite 'maths'; there are chat, code, math, tool_use\n"


async def test_a_suite_serves_a_plan(folder: Path):
    """Its evaluations are what a plan takes: a step evaluates them all, each under its own keys and labels."""
    from crucible_bridge import connect

    suite = load_suite(folder / "complete.toml")
    settings = Settings(port=0, state_dir=folder / "state", data_roots=(folder,)).validate()
    plan = EvaluationPlan(plan_id="p", run_id="r", eval_every=1, evaluations=suite.evaluations)
    async with Worker(settings) as worker, connect(worker.address) as bridge:
        await bridge.evaluation.register_plan(plan)
        started = await bridge.evaluation.notify_step("p", 600, "embedded:arithmetic@600")
        for each in started:
            async for _ in bridge.evaluation.watch_evaluation(each.evaluation.evaluation_id, without_samples=True):
                pass
        ended = [await bridge.evaluation.get_evaluation(each.evaluation.evaluation_id) for each in started]

    assert [evaluation.request.labels["evaluation"] for evaluation in ended] == ["likelihood", "absent", "own"]
    keys = {key for evaluation in ended for key in evaluation.metrics.values}
    assert {"likelihood/nll", "absent/nll", "own/accuracy"} <= keys
