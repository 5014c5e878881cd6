"""The command line as it is typed: help, version, and refusals before anything is started."""

import itertools
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from crucible_worker.cli import app

COMMANDS = ["serve", "demo", "evaluate", "doctor"]


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_version_is_that_of_the_distribution():
    """`--version` names program and version, and does nothing else."""
    result = _run("--version")

    assert (result.exit_code, result.stdout) == (0, "crucible-worker 0.1.0\n")


def test_help_names_every_command():
    """Whoever types `--help` finds all there is."""
    result = _run("--help")

    assert result.exit_code == 0
    assert all(f"  {command} " in result.stdout for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_every_option(command: str):
    """No option is without a sentence."""
    result = _run(command, "--help")
    lines = result.stdout.splitlines()
    explained = {line.split()[0] for line in lines if re.match(r"  --\S+( \S+)?  +\S", line)}
    explained |= {
        line.split()[0]
        for line, after in itertools.pairwise(lines)
        if line.startswith("  --") and re.match(r" {10,}\S", after)
    }

    assert result.exit_code == 0
    assert explained == set(re.findall(r"^  (--\S+)", result.stdout, re.MULTILINE))
    assert "--help" in explained


def test_without_a_command_help_is_shown():
    """Nothing asked for is a usage error, and answered with help."""
    result = _run()

    assert result.exit_code == 2
    assert "Commands:" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["--model", "arithmetic", "--data", "builtin:arithmetic", "--evaluator", "nll"],
        ["--model", "embedded:arithmetic@600", "--data", "arithmetic", "--evaluator", "nll"],
        ["--model", "embedded:arithmetic@600", "--data", "builtin:arithmetic"],
        ["--model", "embedded:arithmetic@600", "--data", "builtin:arithmetic", "--evaluator", "nll", "--limit", "0"],
        [
            *("--model", "embedded:arithmetic@600", "--data", "builtin:arithmetic", "--evaluator", "nll"),
            *("--option", "accuracy.grader=numeric"),
        ],
        [
            *("--model", "embedded:arithmetic@600", "--data", "builtin:arithmetic", "--evaluator", "nll"),
            *("--option", "grader=numeric"),
        ],
    ],
    ids=["no scheme of a model", "no scheme of data", "no evaluator", "no samples", "option of nobody", "option bare"],
)
def test_an_evaluation_that_makes_no_sense_is_a_usage_error(arguments: list[str]):
    """What can never work exits with 2 before anything is opened."""
    result = _run("evaluate", *arguments)

    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr


def test_settings_that_are_refused_are_a_usage_error(tmp_path: Path):
    """The operator reads why, not a traceback."""
    result = _run("doctor", "--host", "0.0.0.0", "--state-dir", str(tmp_path))

    assert result.exit_code == 2
    assert result.stderr.startswith("crucible-worker: other machines can reach 0.0.0.0: --token-file is needed")


def test_doctor_prints_one_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With --json a machine can read every check."""
    monkeypatch.setattr("crucible_worker.cli.checks._torch_device", lambda: "CPU")

    result = _run("doctor", "--json", "--port", "0", "--state-dir", str(tmp_path))

    report = json.loads(result.stdout)
    assert (result.exit_code, report["ok"]) == (0, True)
    assert {"python", "sqlite", "journal", "torch"} <= {check["name"] for check in report["checks"]}


def test_doctor_fails_where_a_worker_could_not_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A state directory that is a file is said to be FAILED, and the exit code says so too."""
    monkeypatch.setattr("crucible_worker.cli.checks._torch_device", lambda: "CPU")
    (tmp_path / "state").write_text("")

    result = _run("doctor", "--port", "0", "--state-dir", str(tmp_path / "state"))

    assert result.exit_code == 1
    assert "A worker cannot serve here" in result.stdout
