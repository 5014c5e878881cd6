"""The command line as it is typed: help, version, and refusals before anything is started."""

import itertools
import json
import re
import socket
from pathlib import Path

import pytest
import typer.core
import typer.main
from typer.testing import CliRunner, Result

from crucible_bridge.types import ModelPrice
from crucible_worker.backends.openai.servers import OpenAIServer
from crucible_worker.backends.tinker.services import TinkerService
from crucible_worker.cli import app
from crucible_worker.cli.probe import ProbeReply
from crucible_worker.config import Settings
from crucible_worker.config.settings import RunPlan
from crucible_worker.evaluators.registry import EVALUATORS
from crucible_worker.grading.code.images import CodeImage
from tests.tables import rows

COMMANDS = ["serve", "demo", "evaluate", "evaluators", "graders", "grade", "doctor", "health"]


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


@rows("command", COMMANDS)
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


def test_help_names_every_evaluator():
    """Whoever types `evaluate --help` finds every kind that the worker has."""
    words = set(re.findall(r"\w+", _run("evaluate", "--help").stdout))

    assert set(EVALUATORS) <= words


def test_without_a_command_help_is_shown():
    """Nothing asked for is a usage error, and answered with help."""
    result = _run()

    assert result.exit_code == 2
    assert "Commands:" in result.output


@rows(
    "arguments",
    [
        ["--model", "arithmetic", "--data", "builtin:arithmetic", "--evaluator", "nll"],
        ["--model", "embedded:arithmetic@600", "--data", "arithmetic", "--evaluator", "nll"],
        ["--model", "embedded:arithmetic@600", "--data", "builtin:arithmetic"],
        ["--model", "embedded:arithmetic@600", "--data", "builtin:arithmetic", "--evaluator", "nll", "--samples", "0"],
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


def _once_options() -> list[tuple[str, str]]:
    """Every option of every command that takes one value, and is no flag."""
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return [
        (name, max(parameter.opts, key=len))
        for name, command in group.commands.items()
        for parameter in command.params
        if parameter.opts[0].startswith("-") and not getattr(parameter, "is_flag", False)
        if not getattr(parameter, "multiple", False)
    ]


@pytest.mark.long
@rows(("command", "option"), _once_options())
def test_an_option_with_one_value_is_given_once(command: str, option: str):
    """The last of several values would count without a word: two are refused, whichever option of whichever command."""
    result = _run(command, option, "1", f"{option}=2")

    # Of a gate, 2 is a verdict.
    assert (result.exit_code, result.stdout) == (3 if command == "gate" else 2, "")
    assert f"{option} is given 2 times; " in result.stderr


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        (
            "--data",
            "an evaluation has one data set: run the command for each, or name them in a suite's file (--suite)",
        ),
        ("--suite", "run the command for each, or write their evaluations into one file"),
    ],
)
def test_what_to_do_with_several_is_said(option: str, instead: str):
    """Where a user means something by it, the refusal names the way."""
    result = _run("evaluate", "--model", "embedded:arithmetic@600", option, "a", option, "b")

    assert result.exit_code == 2
    assert f"{option} is given 2 times; {instead}" in " ".join(result.stderr.split())


def test_a_flag_given_twice_says_the_same():
    """It takes no value that could be lost."""
    assert _run("suites", "--json", "--json").exit_code == 0


def test_a_refused_evaluation_is_one_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With --json a machine reads what is wrong, and by which field; the flag that was typed is in the message."""
    monkeypatch.chdir(tmp_path)

    result = _run("evaluate", "--json", "--model", "sums", "--data", "builtin:arithmetic", "--evaluator", "nll")

    assert result.exit_code == 2
    error = json.loads(result.stdout)["error"]
    assert (error["code"], error["reason"], error["field"]) == ("INVALID_ARGUMENT", "INVALID_FIELD", "model")
    assert error["message"].startswith("--model is 'sums'")
    assert result.stderr == f"crucible-worker: {error['message']}\n"


def test_settings_that_are_refused_are_a_usage_error(tmp_path: Path):
    """The operator reads why, not a traceback."""
    result = _run("doctor", "--host", "0.0.0.0", "--state-dir", str(tmp_path))

    assert result.exit_code == 2
    assert result.stderr.startswith("crucible-worker: other machines can reach 0.0.0.0: --token-file is needed")


def test_doctor_prints_one_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With --json a machine can read every check."""
    monkeypatch.setattr("crucible_worker.backends.local.backend._torch_device", lambda: "CPU")

    result = _run("doctor", "--json", "--port", "0", "--state-dir", str(tmp_path))

    report = json.loads(result.stdout)
    assert (result.exit_code, report["ok"]) == (0, True)
    assert {"python", "sqlite", "journal", "torch"} <= {check["name"] for check in report["checks"]}


def test_doctor_fails_where_a_worker_could_not_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A state directory that is a file is said to be FAILED, and the exit code says so too."""
    monkeypatch.setattr("crucible_worker.backends.local.backend._torch_device", lambda: "CPU")
    (tmp_path / "state").write_text("")

    result = _run("doctor", "--port", "0", "--state-dir", str(tmp_path / "state"))

    assert result.exit_code == 1
    assert "A worker cannot serve here" in result.stdout


def test_doctor_succeeds_beside_a_healthy_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A worker at the address is no fault of the machine."""
    monkeypatch.setattr("crucible_worker.backends.local.backend._torch_device", lambda: "CPU")

    monkeypatch.setattr("crucible_worker.cli.checks.probe", lambda *_, **__: ProbeReply(ready=True))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])

        result = _run("doctor", "--json", "--port", port, "--state-dir", str(tmp_path))

    assert (result.exit_code, json.loads(result.stdout)["ok"]) == (0, True)


def test_doctor_fails_where_something_else_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A listener that is no worker keeps one from serving there."""
    monkeypatch.setattr("crucible_worker.backends.local.backend._torch_device", lambda: "CPU")
    monkeypatch.setattr("crucible_worker.cli.checks.HEALTH_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])

        result = _run("doctor", "--json", "--port", port, "--state-dir", str(tmp_path))

    assert (result.exit_code, json.loads(result.stdout)["ok"]) == (1, False)


def _values(tmp_path: Path) -> dict[str, tuple[str, object]]:
    """A value for every option of `serve` that is not the default, and what Settings make of it."""
    token, cert, key = (tmp_path / name for name in ("token", "cert.pem", "key.pem"))
    for path in (token, cert, key):
        path.write_text("secret")
        path.chmod(0o600)
    suite = tmp_path / "suite.toml"
    suite.write_text('name = "s"\n[[evaluations]]\nname = "e"\ndataset = "builtin:arithmetic"\nevaluators = ["nll"]\n')
    return {
        "host": ("localhost", "localhost"),
        "port": ("7", 7),
        "unix_socket": (str(tmp_path / "socket"), tmp_path / "socket"),
        "openai_listen": ("[::1]:8000", ("::1", 8000)),
        "token_file": (str(token), token),
        "tls_cert": (str(cert), cert),
        "tls_key": (str(key), key),
        "insecure_no_tls": ("true", True),
        "ready_file": (str(tmp_path / "ready"), tmp_path / "ready"),
        "state_dir": (str(tmp_path / "state"), tmp_path / "state"),
        "journal": ("postgresql://me@host/lab", "postgresql://me@host/lab"),
        "share_work": ("true", True),
        "resume_interrupted": ("false", False),
        "log_dir": (str(tmp_path / "logs"), tmp_path / "logs"),
        "log_to": (f"jsonl:{tmp_path}", (f"jsonl:{tmp_path}",)),
        "model_root": (str(tmp_path), (tmp_path,)),
        "data_root": (str(tmp_path), (tmp_path,)),
        "hub_network": ("true", True),
        "inspect_root": (str(tmp_path), (tmp_path,)),
        "inspect_package": ("inspect_evals", ("inspect_evals",)),
        "environment_variable": ("LAB_KEY", ("LAB_KEY",)),
        "device": ("cuda:1", "cuda:1"),
        "grading_processes": ("3", 3),
        "code_sandboxes": ("3", 3),
        "code_image": (f"sci={tmp_path}", (CodeImage(name="sci", directory=tmp_path),)),
        "fanout": ("ray://[::1]:10001", "ray://[::1]:10001"),
        "openai_server": (
            "one=http://[::1]:8000/v1",
            (OpenAIServer(name="one", base_url="http://[::1]:8000/v1", key_env="LAB_KEY"),),
        ),
        "openai_key_env": (
            "one=LAB_KEY",
            (OpenAIServer(name="one", base_url="http://[::1]:8000/v1", key_env="LAB_KEY"),),
        ),
        "tinker_service": ("lab=http://[::1]:8000", (TinkerService(name="lab", base_url="http://[::1]:8000"),)),
        "price": ("openai:*=prompt:2.5,output:10", (ModelPrice(pattern="openai:*", prompt=2.5, output=10.0),)),
        "plan": (f"lab-*={suite}", (RunPlan(runs="lab-*", file=suite),)),
        "log_format": ("console", "console"),
        "log_level": ("error", "error"),
    }


_SWITCHES = ("insecure_no_tls", "hub_network", "share_work", "resume_interrupted")


def _options() -> set[str]:
    """Names of the options of `serve`, as parameters; --config and --limit have rules of their own."""
    command = typer.main.get_command(app)
    assert isinstance(command, typer.core.TyperGroup)
    names = {parameter.opts[0].removeprefix("--").replace("-", "_") for parameter in command.commands["serve"].params}
    return names - {"config", "limit", "help"}


@pytest.mark.parametrize("source", ["flags", "environment", "file", "file named by a variable"])
def test_every_option_of_serve_is_a_variable_and_a_key(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What the help promises: each option by its own name, from each source, arrives in the worker's settings."""
    started: list[Settings] = []
    monkeypatch.setattr("crucible_worker.server.serve", lambda settings: started.append(settings) or 0)
    # Handlers that end the process are not for the one that runs tests.
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.delenv("CRUCIBLE_GRADING_PROCESSES")
    monkeypatch.setenv("TINKER_API_KEY", "tml-key")
    monkeypatch.setenv("LAB_KEY", "lab-key")
    values = _values(tmp_path)
    arguments, environment, config = [], {}, tmp_path / "worker.toml"
    if source == "flags":
        for option, (text, _) in values.items():
            flag = f"--{option.replace('_', '-')}"
            if option in _SWITCHES:
                arguments.append(flag if text == "true" else f"--no-{flag[2:]}")
            else:
                arguments += [flag, text]
        arguments += ["--limit", "max_streams=9"]
    elif source == "environment":
        environment = {f"CRUCIBLE_{option.upper()}": text for option, (text, _) in values.items()}
        environment["CRUCIBLE_MAX_STREAMS"] = "9"
    else:
        config.write_text("".join(f"{option} = {json.dumps(text)}\n" for option, (text, _) in values.items()))
        config.write_text(config.read_text() + "[limits]\nmax_streams = 9\n")
        if source == "file":
            arguments = ["--config", str(config)]
        else:
            environment = {"CRUCIBLE_CONFIG": str(config)}

    result = CliRunner().invoke(app, ["serve", *arguments], env=environment)

    assert result.exit_code == 0, result.output
    (settings,) = started
    fields = {
        "model_root": "model_roots",
        "data_root": "data_roots",
        "inspect_root": "inspect_roots",
        "inspect_package": "inspect_packages",
        "environment_variable": "environment_variables",
        "code_image": "code_images",
        "price": "prices",
        "plan": "plans",
    }
    servers = {"openai_server": OpenAIServer, "openai_key_env": OpenAIServer, "tinker_service": TinkerService}
    assert {
        option: settings.endpoints_of(servers[option])
        if option in servers
        else getattr(settings, fields.get(option, option))
        for option in values
    } == {option: value for option, (_, value) in values.items()}
    assert settings.limits.max_streams == 9
    assert set(values) == _options()
