"""Commands whose options are the fields of a class."""

from collections.abc import Sequence
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from crucible_worker.cli.options import FIRST, After, CommandOptions, RequestField, command, field_flags, flags


class Base(CommandOptions):
    """Options of several commands."""

    few_shot: Annotated[int | None, typer.Option(min=1), RequestField("dataset.few_shot")] = None
    labels: Annotated[Sequence[str], typer.Option("--label", "-l")] = ()
    hidden: str = "plain"
    verbose: Annotated[bool, typer.Option("--verbose/--brief")] = False


class Own(Base):
    """Options of one command."""

    folder: Annotated[str, typer.Argument(metavar="DIR"), RequestField("folder"), FIRST]
    few_shot: Annotated[int | None, typer.Option(help="Anew.")] = None
    near: Annotated[str, typer.Option()] = "here"
    late: Annotated[float | None, typer.Option(), After("labels")] = None
    verbose: bool = True


def _given(options: type[Any], *arguments: str) -> Any:
    """What a command of these options is called with."""
    app, found = typer.Typer(), []

    @app.command()
    @command(options)
    def run(typed: Any) -> None:
        """Run it."""
        found.append(typed)

    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return found[0]


def test_a_command_has_the_options_of_its_class():
    """With types and defaults; a list that is not typed is empty, and a field without a description is no option."""
    plain = _given(Base)
    assert (plain.few_shot, plain.labels, plain.hidden, plain.verbose) == (None, (), "plain", False)
    typed = _given(Base, "--few-shot=3", "-l", "a", "--label=b", "--verbose")
    assert (typed.few_shot, typed.labels, typed.verbose) == (3, ["a", "b"], True)
    assert flags(Base) == {"few_shot": "--few-shot", "labels": "--label", "verbose": "--verbose"}


def test_a_class_adds_options_and_changes_those_of_its_base():
    """Each new one stands where it says, or after the one before it; one that is not described again is gone."""
    typed = _given(Own, "x", "--near=there", "--late=2")
    assert (typed.folder, typed.near, typed.late, typed.verbose) == ("x", "there", 2.0, True)
    assert list(flags(Own).values()) == ["DIR", "--few-shot", "--near", "--label", "--late"]


def test_values_are_those_of_the_class():
    """A copy has other values; a name that no field has is refused."""
    typed = Own(folder="x", few_shot=3)

    assert (typed.replace(folder="y").folder, typed.replace(folder="y").few_shot, typed.folder) == ("y", 3, "x")
    with pytest.raises(TypeError, match="Own has no field 'foldr'"):
        typed.replace(foldr="y")


def test_options_are_found_by_the_field_of_a_request():
    """So that errors of the field name what was typed."""
    assert field_flags(Base) == {"dataset.few_shot": "--few-shot"}
    assert field_flags(Own) == {"folder": "DIR"}
