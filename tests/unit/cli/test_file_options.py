"""The table [evaluate] of a file that --config names."""

import functools
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperCommand, TyperGroup
from typer.testing import CliRunner

from crucible_worker.cli import app
from crucible_worker.config import load_settings
from tests.tables import rows

ASKED = 'model = "embedded:arithmetic@600"\ndata = "builtin:arithmetic"\nevaluator = ["nll"]\n'


def _commands() -> TyperGroup:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return group


def _evaluate() -> TyperCommand:
    command = _commands().commands["evaluate"]
    assert isinstance(command, TyperCommand)
    return command


def _seen(*typed: str, name: str = "evaluate") -> dict[str, Any]:
    """What the command would run with, by parameter; it runs nothing."""
    values: dict[str, Any] = {}
    group = _commands()
    group.commands[name].callback = lambda **given: values.update(given)
    group.main([name, *typed], prog_name="crucible-worker", standalone_mode=False)
    return values


def _file(folder: Path, text: str) -> str:
    (folder / "my.toml").write_text(text)
    return f"--config={folder / 'my.toml'}"


@functools.cache
def _values() -> dict[str, tuple[str, str]]:
    """By option, a value in TOML."""
    texts = {"int": "7", "integer": "7", "float": "0.5", "path": '"some/where"', "boolean": "true"}
    return {
        name.removeprefix("--"): (f"[{text}]" if getattr(parameter, "multiple", False) else text, parameter.name or "")
        for parameter in _evaluate().params
        for name in parameter.opts
        if name.startswith("--") and name not in ("--config", "--help")
        for text in [texts.get(parameter.type.name.partition(" ")[0], '"text"')]
    }


@rows(("option", "value", "name"), [(option, *_values()[option]) for option in sorted(_values())])
def test_every_option_can_be_in_the_file(option: str, value: str, name: str, tmp_path: Path):
    """By its long name, with a dash or an underscore; a list if it is repeatable; a path is relative to the file."""
    others = "".join(line + "\n" for line in ASKED.splitlines() if not line.startswith(f"{option} "))

    expected = {
        "7": 7,
        "0.5": 0.5,
        "true": True,
        '"some/where"': str(tmp_path / "some" / "where"),
        '["some/where"]': (str(tmp_path / "some" / "where"),),
        '["text"]': ("text",),
        '"text"': "text",
    }[value]
    for key in {option, option.replace("-", "_")}:
        assert _seen(_file(tmp_path, f"[evaluate]\n{others}{key} = {value}\n"))[name] == expected


@rows(
    ("text", "said"),
    [
        ("modle = 'x'", "my.toml: evaluate.modle is no option of evaluate; did you mean model?"),
        ("max-token = 3", "my.toml: evaluate.max-token is no option of evaluate; did you mean max-tokens?"),
        ("config = 'x'", "my.toml: evaluate.config is no option of evaluate; "),
        ("qqqqq = 1", "my.toml: evaluate.qqqqq is no option of evaluate; there are concurrency, data, "),
        ("samples = '3'", "my.toml: evaluate.samples is '3', not a whole number"),
        ("samples = true", "my.toml: evaluate.samples is True, not a whole number"),
        ("samples = 0", "my.toml: evaluate.samples: 0 is not in the range x>=1."),
        ("temperature = 'hot'", "my.toml: evaluate.temperature is 'hot', not a number"),
        ("json = 1", "my.toml: evaluate.json is 1, not true or false"),
        ("stop = ['a', 2]", "my.toml: evaluate.stop is 2, not a text"),
        ("data = ['a']", "my.toml: evaluate.data is ['a'], not a text"),
        ('output = "a\\u0000b"', "my.toml: evaluate.output is 'a\\x00b', which is no path: it has a NUL character"),
        ("run-id = 'a'\nrun_id = 'b'", "my.toml: evaluate.run_id: run-id is given twice; only one value can count"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(text: str, said: str, tmp_path: Path):
    """With the file, the key and the cure; nothing runs."""
    result = CliRunner().invoke(app, ["evaluate", _file(tmp_path, f"[evaluate]\n{text}\n")])

    assert result.exit_code == 2
    assert said in result.stderr


@rows(
    ("text", "said"),
    [("evaluate = 3", "my.toml: evaluate is not a table"), ("evaluate = [", "my.toml is not TOML")],
)
def test_a_file_that_cannot_be_read_is_named(text: str, said: str, tmp_path: Path):
    """As for settings."""
    result = CliRunner().invoke(app, ["evaluate", _file(tmp_path, text)])

    assert result.exit_code == 2
    assert said in result.stderr


def test_what_is_typed_wins(tmp_path: Path):
    """Over the file, with the whole list; an option that excludes one of the file takes its place."""
    text = f"[evaluate]\n{ASKED}samples = 4\nno-keep = true\nwhere = ['a=1', 'b=2']\n"

    seen = _seen(_file(tmp_path, text), "--samples=9", "--where=c=3", "--suite=chat", "--state-dir=here")

    assert (seen["samples"], seen["where"], seen["evaluator"]) == (9, ("c=3",), ("nll",))
    assert (seen["suite"], seen["data"]) == ("chat", None)
    assert (seen["state_dir"], seen["no_keep"]) == ("here", False)


def test_other_commands_read_the_same_table(tmp_path: Path):
    """`follow` and `prompt` take the options that they have, and what is typed wins there, too."""
    file = _file(tmp_path, f"[evaluate]\n{ASKED}step = 3\nmax-tokens = 5\nrun-id = 'mine'\nstate-dir = 'journal'\n")

    followed = _seen("runs/a", file, "--max-tokens=7", name="follow")
    shown = _seen(file, "--evaluator=accuracy", name="prompt")

    assert (followed["evaluator"], followed["data"], followed["max_tokens"]) == (("nll",), "builtin:arithmetic", 7)
    assert (followed["run_id"], followed["state_dir"]) == ("mine", str(tmp_path / "journal"))
    assert (shown["evaluator"], shown["data"]) == (("accuracy",), "builtin:arithmetic")
    assert shown["model"] == "embedded:arithmetic@600"


def test_a_plan_takes_the_place_of_what_is_evaluated(tmp_path: Path):
    """With --plan, `follow` takes from the table only what does not belong to an evaluation."""
    file = _file(tmp_path, f"[evaluate]\n{ASKED}max-tokens = 5\nsuite = 'chat'\nrun-id = 'mine'\ndevice = 'cpu'\n")

    seen = _seen("runs/a", file, "--plan=plan.toml", name="follow")

    assert [seen[name] for name in ("evaluator", "data", "suite", "max_tokens")] == [(), None, None, None]
    assert (seen["run_id"], seen["device"]) == ("mine", "cpu")


@rows(
    ("name", "typed", "text", "said"),
    [
        ("follow", ["runs/a"], "modle = 'x'", "my.toml: evaluate.modle is no option of evaluate; did you mean model?"),
        ("prompt", [], "model = ['embedded:a', 'embedded:b']", "evaluate.model has 2 values; choose one with --model"),
    ],
)
def test_other_commands_refuse_what_they_cannot_take(name: str, typed: list[str], text: str, said: str, tmp_path: Path):
    """A name that no option of `evaluate` has; several values where one is needed, unless it is typed."""
    result = CliRunner().invoke(app, [name, *typed, _file(tmp_path, f"[evaluate]\n{text}\n")])

    assert result.exit_code == 2
    assert said in result.stderr


def test_a_variable_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As for every setting of a worker."""
    monkeypatch.setenv("CRUCIBLE_DEVICE", "cpu")
    monkeypatch.setenv("CRUCIBLE_MODEL_ROOT", str(tmp_path))

    text = f"[evaluate]\n{ASKED}device = 'cuda'\nmodel-root = ['models']\ndata-root = ['data']\n"

    seen = _seen(_file(tmp_path, text))

    assert (seen["device"], seen["model_root"], seen["data_root"]) == (None, (), (str(tmp_path / "data"),))


def test_a_variable_may_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """CRUCIBLE_CONFIG, as for settings."""
    (tmp_path / "other.toml").write_text(f"[evaluate]\n{ASKED}")
    monkeypatch.setenv("CRUCIBLE_CONFIG", str(tmp_path / "other.toml"))

    assert _seen()["model"] == ("embedded:arithmetic@600",)


def test_settings_leave_the_table_alone(tmp_path: Path):
    """A worker reads the same file: its settings are those at the top."""
    (tmp_path / "my.toml").write_text("port = 7\n[evaluate]\nanything = 1\n")

    assert load_settings({}, {}, tmp_path / "my.toml").port == 7
