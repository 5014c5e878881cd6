"""`crucible-worker evaluators` and `graders`: what there is, with options and their bounds."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from crucible_worker.cli import app
from crucible_worker.cli.listing import option_rows, value_of
from crucible_worker.evaluators.registry import EVALUATORS
from crucible_worker.grading.registry import GRADERS
from tests.distributions import EVALUATOR_PACKAGE
from tests.tables import rows

ROOT = Path(__file__).parents[3]
BREVITY = EVALUATOR_PACKAGE / "brevity.py"


def _run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, arguments)


@rows(("command", "known"), [("evaluators", EVALUATORS), ("graders", GRADERS)])
def test_everything_is_listed(command: str, known: Any) -> None:
    """Each name with its sentence; as JSON with what a program needs."""
    listed = _run(command)
    told = json.loads(_run(command, "--json").stdout)[command]

    assert listed.exit_code == 0
    assert all(name in listed.stdout for name in known)
    assert [each.get("kind") or each["name"] for each in told] == list(known)
    assert all(each["description"].endswith(".") for each in told)


@rows(("command", "known"), [("evaluators", EVALUATORS), ("graders", GRADERS)])
def test_each_shows_its_options(command: str, known: Any) -> None:
    """All of them, and the schema as JSON is the one that requests are checked against."""
    for name, kind in known.items():
        schema = (kind.info if command == "evaluators" else kind).options_schema
        shown, told = _run(command, name), json.loads(_run(command, name, "--json").stdout)

        assert shown.exit_code == 0
        assert all(option in shown.stdout.replace("\n", "") for option in schema["properties"]), name
        assert told["options_schema"] == json.loads(json.dumps(schema))


def test_a_file_of_a_user_shows_its_options() -> None:
    """Before it is run."""
    result = _run("evaluators", f"{BREVITY}:Brevity")

    assert result.exit_code == 0
    assert "max_words" in result.stdout
    assert "a whole number from 1" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("evaluators", "nope"), "KIND is 'nope', known are: accuracy, "),
        (("graders", "nope"), "NAME is 'nope', known are: exact_match, "),
        (("evaluators", f"{BREVITY}:Brev"), "KIND '"),
    ],
)
def test_an_unknown_name_is_refused(arguments: tuple[str, ...], says: str) -> None:
    """With those that are known."""
    result = _run(*arguments)

    assert result.exit_code == 2
    assert says in result.stderr


@rows(
    ("rule", "value"),
    [
        ({"type": "boolean"}, "true or false"),
        ({"type": "integer", "minimum": 1, "maximum": 1_000}, "a whole number from 1 to 1,000"),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 2}, "a number above 0 below 2"),
        ({"type": ["integer", "null"], "minimum": 1}, "a whole number from 1 or null"),
        ({"type": "string", "enum": ["a", "b", "c"]}, "a, b or c"),
        ({"type": "string", "minLength": 1}, "text that is not empty"),
        ({"type": "string", "maxLength": 5, "examples": ["x", "y"]}, "text of at most 5 characters such as x"),
        (
            {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3},
            "a list of 2 to 3 whole numbers",
        ),
        ({"type": "array", "items": {}, "minItems": 2}, "a list of at least 2 entries"),
        ({"type": "object", "maxProperties": 4}, "an object of at most 4 entries"),
    ],
)
def test_a_rule_is_said_in_words(rule: dict[str, Any], value: str) -> None:
    """Types and bounds, as people read them."""
    assert value_of(rule) == value


def test_a_default_is_as_it_is_typed() -> None:
    """Texts without quotes, and what has to be given says so."""
    schema: dict[str, Any] = {
        "properties": {
            "a": {"type": "string", "default": "x"},
            "b": {"type": "boolean", "default": False, "description": "B."},
            "c": {"type": "object", "default": {}},
            "d": {"type": "string"},
            "e": {"type": "string"},
        },
        "required": ["d"],
    }

    assert [row[2] for row in option_rows(schema)] == ["x", "false", "none", "needed", ""]
    assert option_rows(schema)[1] == ("b", "true or false", "false", "B.")


def test_help_names_every_evaluator_that_ships() -> None:
    """The help of --evaluator has a list of its own, as the registry is not imported for it."""
    words = " ".join(_run("evaluate", "--help").stdout.split())

    assert f"{', '.join(list(EVALUATORS)[:-1])} or {list(EVALUATORS)[-1]}" in words


def test_the_pages_tables_are_current() -> None:
    """The pages have what the code declares: `make generate` writes it."""
    checked = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_page_that_is_not_current_is_found(tmp_path: Path) -> None:
    """A table that was edited by hand is written again."""
    (tmp_path / "docs").mkdir()
    for script in ("generate.py", "log_events.py"):
        (tmp_path / "docs" / script).write_text((ROOT / "docs" / script).read_text())
    (tmp_path / "docs" / "evaluators.md").write_text("<!-- table: options of nll -->\nold\n<!-- end of table -->\n")
    (tmp_path / "docs" / "reference").mkdir()
    for page in (
        "docs/overview.md",
        "docs/exports.md",
        "docs/frames.md",
        "docs/how_it_works.md",
        "docs/logging.md",
        "docs/reference/commands.md",
        "docs/reference/journal.md",
        "docs/reference/log_events.md",
    ):
        (tmp_path / page).write_text("no table\n")
    command = [sys.executable, str(tmp_path / "docs" / "generate.py")]

    stale = subprocess.run([*command, "--check"], capture_output=True, text=True, check=False)
    subprocess.run(command, check=True)
    current = subprocess.run([*command, "--check"], capture_output=True, text=True, check=False)

    assert (stale.returncode, current.returncode) == (1, 0)
    assert "docs/evaluators.md is not current" in stale.stderr
    assert "| `train_on` |" in (tmp_path / "docs" / "evaluators.md").read_text()
