"""`crucible-worker evaluate` on an embedded model: table, JSON, exit codes."""

import contextlib
import importlib.util
import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="the extra `local` is not installed: no model can run"
)

MODEL = "embedded:arithmetic@600"


def _evaluate(*arguments: str, cwd: Path, models: Sequence[str] = (MODEL,)) -> "subprocess.CompletedProcess[str]":
    named = [f"--model={model}" for model in models]
    command = [sys.executable, "-m", "crucible_worker", "evaluate", *named, "--max-tokens=8", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd)


def test_json_tells_metrics_and_counts(tmp_path: Path):
    """Several evaluators, options and a limit: one object on stdout, nothing else anywhere."""
    done = _evaluate(
        *("--data=builtin:arithmetic", "--samples=20", "--evaluator=nll", "--evaluator=accuracy"),
        *("--evaluator=loose=accuracy", "--option=loose.grader=contains", "--json"),
        cwd=tmp_path,
    )

    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert result["state"] == "completed"
    assert {"nll", "accuracy", "loose/accuracy"} <= set(result["metrics"])
    assert [(each["evaluator"], each["n"]) for each in result["evaluators"]] == [
        ("nll", 20),
        ("accuracy", 20),
        ("loose", 20),
    ]
    assert list(tmp_path.iterdir()) == []


def test_people_get_a_table(tmp_path: Path):
    """Without a terminal there are plain lines and a table; with --state-dir the journal stays."""
    done = _evaluate(
        *("--data=builtin:arithmetic", "--samples=5", "--evaluator=nll", f"--state-dir={tmp_path / 'state'}"),
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    assert "embedded:arithmetic@600: completed" in done.stdout
    assert "5 of 5" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    assert any((tmp_path / "state").glob("journal*"))


def test_several_models_are_compared(tmp_path: Path):
    """Each is evaluated, in the order typed, and the second beside the first, sample by sample."""
    models = [MODEL, "embedded:arithmetic@240"]
    asked = ("--data=builtin:arithmetic", "--samples=30", "--evaluator=accuracy", "--option=accuracy.grader=numeric")

    data = _evaluate(*asked, "--json", cwd=tmp_path, models=models)
    table = _evaluate(*asked, cwd=tmp_path, models=models)

    assert (data.returncode, data.stderr, table.returncode) == (0, "", 0), table.stderr
    told = json.loads(data.stdout)
    assert told["models"] == [each["model"] for each in told["evaluations"]] == models
    first, second = (each["metrics"]["accuracy"] for each in told["evaluations"])
    assert first > second
    (pair,) = told["comparisons"]
    assert (pair["baseline"], pair["model"], pair["evaluator"]) == (*models, "accuracy")
    assert (pair["n_matched"], pair["n_regressed"] - pair["n_improved"]) == (30, round((first - second) * 30))
    assert pair["metrics"]["difference"] == pytest.approx(second - first)
    assert f"{models[1]}, compared with {models[0]}" in table.stdout
    assert table.stdout.splitlines()[-1] == "evaluations: 2 of 2 finished"


def test_a_model_that_is_not_there_leaves_the_others(tmp_path: Path):
    """It has its error in its place, and nothing to compare; the exit status says that something failed."""
    done = _evaluate(
        *("--data=builtin:arithmetic", "--samples=2", "--evaluator=nll", "--json"),
        cwd=tmp_path,
        models=[MODEL, "local:gone"],
    )

    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert [each["model"] for each in told["evaluations"]] == ["embedded:arithmetic@600", "local:gone"]
    assert told["evaluations"][0]["state"] == "completed"
    assert told["evaluations"][1]["error"]["reason"] == "MODEL_NOT_FOUND"
    assert told["comparisons"] == []


def test_a_command_removes_nothing_from_the_journal(tmp_path: Path):
    """Evaluations that ended long ago, and more events than a worker retains, are there after the next command."""
    (tmp_path / "crucible.toml").write_text("[limits]\nretention_grace_seconds = 0\nmax_events_retained = 1\n")
    asked = (
        "--data=builtin:arithmetic",
        "--samples=3",
        "--evaluator=nll",
        "--state-dir=state",
        "--config=crucible.toml",
    )
    assert _evaluate(*asked, "--id=old", cwd=tmp_path).returncode == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "state" / "journal.sqlite3")) as journal:
        journal.execute("UPDATE evaluations SET ended_ns = 1")
        journal.commit()
        events = journal.execute("SELECT COUNT(*) FROM events").fetchone()

        assert _evaluate(*asked, "--id=new", cwd=tmp_path).returncode == 0

        kept = journal.execute("SELECT evaluation_id FROM evaluations ORDER BY number").fetchall()
        assert kept == [("old",), ("new",)]
        assert journal.execute("SELECT COUNT(*) FROM events").fetchone() > events


def test_an_evaluator_that_fails_is_a_failure(tmp_path: Path):
    """Data of the current folder can be named; more unscored samples than are allowed exit with 1, results shown."""
    (tmp_path / "data.jsonl").write_text('{"input": "12+34=", "target": "46"}\n{"input": "12+34="}\n')

    done = _evaluate("--data=jsonl:data.jsonl", "--evaluator=accuracy", "--max-unscored=0", "--json", cwd=tmp_path)

    assert done.returncode == 1
    (evaluator,) = json.loads(done.stdout)["evaluators"]
    assert (evaluator["n"], evaluator["n_scored"], evaluator["n_unscored"]) == (2, 1, 1)
    assert evaluator["problem"] is not None


def test_an_unscored_sample_is_told_with_its_reason(tmp_path: Path):
    """The journal is gone with the command: what it ends with says why there is no number."""
    (tmp_path / "data.jsonl").write_text('{"id": "a", "input": "12+34=", "target": "46", "choices": ["46", "45"]}\n')
    asked = ("--data=jsonl:data.jsonl", "--evaluator=classification", '--option=classification.labels=["46", "45"]')

    table = _evaluate(*asked, cwd=tmp_path)
    data = _evaluate(*asked, "--json", cwd=tmp_path)

    # The table breaks what is long.
    told = " ".join(re.findall(r"[\w']+", table.stdout))
    assert "1 the first 'a' choices are given but the labels are in the evaluator's options" in told
    (evaluator,) = json.loads(data.stdout)["evaluators"]
    first = evaluator["first_unscored"]
    assert (first["sample_id"], first["verdict"], first["problem"]["field"]) == ("a", "error", "choices")


def test_an_evaluator_that_scored_nothing_is_a_failure(tmp_path: Path):
    """Who asks for the exit status alone must not take it for a result; the results are shown all the same."""
    (tmp_path / "data.jsonl").write_text('{"input": "12+34="}\n{"input": "21+34="}\n')

    done = _evaluate("--data=jsonl:data.jsonl", "--evaluator=accuracy", "--json", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (
        1,
        "crucible-worker: accuracy scored none of 2 samples; the first: there is no target\n",
    )
    told = json.loads(done.stdout)
    assert (told["state"], told["n_unscored"]) == ("completed", 2)


def test_a_line_that_is_wrong_is_named(tmp_path: Path):
    """A malformed line is a usage error with its number."""
    (tmp_path / "data.jsonl").write_text('{"input": "12+34=", "target": "46"}\nnot json\n')

    done = _evaluate("--data=jsonl:data.jsonl", "--evaluator=accuracy", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert "line 2" in done.stderr


@pytest.mark.parametrize(
    ("model", "arguments", "said", "reason"),
    [
        (
            "embedded:arithmetic@1",
            ("--data=builtin:arithmetic", "--evaluator=nll"),
            "--model embedded:arithmetic@1: there is no embedded model 'arithmetic@1'",
            "UNKNOWN_EMBEDDED_MODEL",
        ),
        (
            "local:gone",
            ("--data=builtin:arithmetic", "--evaluator=nll"),
            "--model local:gone: there is no directory 'gone' below a model root; model roots: {cwd}",
            "MODEL_NOT_FOUND",
        ),
        (MODEL, ("--data=builtin:history", "--evaluator=nll"), "--data is 'history'", "UNKNOWN_DATASET"),
        (MODEL, ("--data=builtin:arithmetic", "--evaluator=charm"), "--evaluator is 'charm'", "UNKNOWN_EVALUATOR"),
        (
            MODEL,
            ("--data=builtin:arithmetic", "--evaluator=mine=accuracy", "--option=mine.colour=red"),
            "--option mine.colour is unknown",
            "UNKNOWN_OPTION",
        ),
        (
            MODEL,
            ("--data=jsonl:absent.jsonl", "--evaluator=nll"),
            "--data names 'absent.jsonl', and no data root has such a file; data roots: {cwd}",
            "NO_SUCH_FILE",
        ),
        (
            MODEL,
            ("--data=jsonl:../data.jsonl", "--evaluator=nll"),
            "--data is outside of the data roots; data roots: {cwd}; --data-root DIR names another",
            "OUTSIDE_ROOT",
        ),
    ],
    ids=["embedded", "local", "data set", "evaluator", "option", "file", "path out of the root"],
)
def test_what_is_not_there_is_refused(model: str, arguments: tuple[str, ...], said: str, reason: str, tmp_path: Path):
    """It exits with 2; one line names the flag and the roots searched, one object the reason; no traceback."""
    done = _evaluate(*arguments, "--json", cwd=tmp_path, models=[model])

    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert error["message"].startswith(said.format(cwd=tmp_path))
    assert error["reason"] == reason
    assert done.stderr == f"crucible-worker: {error['message']}\n"


def test_a_state_directory_that_cannot_be_used_is_a_failure(tmp_path: Path):
    """Nothing is wrong with the request: it exits with 1, and tells a machine too."""
    (tmp_path / "state").write_text("")

    done = _evaluate("--data=builtin:arithmetic", "--evaluator=nll", "--state-dir=state", "--json", cwd=tmp_path)

    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["reason"] == "STATE_DIR_UNUSABLE"
