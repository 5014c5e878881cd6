"""`crucible-worker evaluators`, `graders` and `suites`: all that there are, or one with its options."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crucible_worker.cli.options import EXIT_USAGE, Json

if TYPE_CHECKING:
    from crucible_bridge.errors import BridgeError
    from crucible_bridge.types import EvaluatorInfo
    from crucible_worker.grading.base import GraderType
    from crucible_worker.grading.registry import OwnGrader

__all__ = ["COLUMNS", "NEEDED", "evaluators", "graders", "option_rows", "suites", "value_of"]

_Kind = Annotated[
    str | None, typer.Argument(metavar="KIND", help="Show the options and keys of this one, or of FILE.py:CLASS.")
]
_Name = Annotated[
    str | None, typer.Argument(metavar="NAME", help="Show the options of this one, or of FILE.py:FUNCTION.")
]


def evaluators(kind: _Kind = None, as_json: Json = False) -> None:
    """List the evaluators of this machine, with those that are installed; or the options of one.

    An evaluator defines how a model is queried, how an answer is judged, and which metrics are reported.

    Example: crucible-worker evaluators accuracy
    """
    from crucible_bridge.errors import BridgeError
    from crucible_worker.cli.custom_files import CustomFilesReader
    from crucible_worker.evaluators import registry
    from crucible_worker.evaluators.registry import EvaluatorParts

    files = CustomFilesReader()
    parts = EvaluatorParts(custom_evaluators=files.evaluators)
    if kind is None:
        found = [_described(each) for each in registry.infos(parts)]
        _list("evaluators", found, as_json=as_json)
        return
    try:
        info = registry.info(files.evaluator(kind), parts)
    except BridgeError as error:
        raise _refused("KIND", error) from None
    if as_json:
        typer.echo(json.dumps({**_described(info), "options_schema": dict(info.options_schema)}))
        return
    _show(info.kind, info.description, info.options_schema)
    _write("Keys", ("key", "unit"), list(info.keys.items()))
    if "grader" in info.options_schema.get("properties", {}):
        typer.echo("grader_options are those of the grader: crucible-worker graders NAME")


def graders(name: _Name = None, as_json: Json = False) -> None:
    """List the graders of this machine, with those that are installed; or the options of one.

    A grader says whether an answer is right. It is the option `grader` of accuracy, pass_at_k, rollout and rl_test_set.

    Example: crucible-worker graders math
    """
    from crucible_bridge.errors import BridgeError
    from crucible_worker.cli.custom_files import CustomFilesReader
    from crucible_worker.grading import registry
    from crucible_worker.grading.registry import GradingParts

    files = CustomFilesReader()
    parts = GradingParts(custom_graders=files.graders)
    if name is None:
        found = [_grader_described(each, parts) for each in registry.names(parts)]
        _list("graders", found, as_json=as_json)
        return
    try:
        grader = registry.found(files.grader(name), parts, "NAME")
    except BridgeError as error:
        raise _refused("NAME", error) from None
    if as_json:
        described = {"name": grader.name, "version": grader.version, "description": grader.description}
        typer.echo(json.dumps({**described, "options_schema": dict(grader.options_schema)}))
        return
    _show(f"{grader.name}, version {grader.version}", grader.description, grader.options_schema)


def _described(info: EvaluatorInfo) -> dict[str, Any]:
    return {
        "kind": info.kind,
        "description": info.description,
        "keys": dict(info.keys),
        "clients": [str(kind) for kind in info.kinds],
        "score_goal": None if info.score_goal is None else str(info.score_goal),
        "unavailable": info.unavailable,
    }


def _grader_described(name: str, parts: Any) -> dict[str, Any]:
    from crucible_bridge.errors import BridgeError
    from crucible_worker.grading import registry

    try:
        grader: GraderType | OwnGrader = registry.found(name, parts, "NAME")
    except BridgeError as error:
        return {"name": name, "description": "An installed grader that cannot be used.", "unavailable": error.message}
    return {"name": name, "version": grader.version, "description": grader.description, "unavailable": ""}


def _list(what: str, found: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({what: found}))
        return
    rows = [
        (each.get("kind") or each["name"], " ".join(filter(None, (each["description"], _unavailable(each)))))
        for each in found
    ]
    _write(f"{what.capitalize()}: crucible-worker {what} NAME shows the options of one", ("name", "about"), rows)


def _unavailable(described: Mapping[str, Any]) -> str:
    return f"Not available here: {described['unavailable']}." if described["unavailable"] else ""


def _show(name: str, description: str, schema: Mapping[str, Any]) -> None:

    rows = option_rows(schema)
    if rows:
        _write(f"{name}: {description}", COLUMNS, rows)
    else:
        typer.echo(f"{name}: {description} It has no options.")


def _write(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from crucible_worker.cli.tables import write_table

    write_table(sys.stdout, title, columns, rows)


def _refused(argument: str, error: BridgeError) -> typer.Exit:
    typer.echo(f"crucible-worker: {argument} {error.message}", err=True)
    return typer.Exit(EXIT_USAGE)


# `crucible-worker suites`: the suites that ship, or one of them as a file to edit.

_SuiteName = Annotated[str | None, typer.Argument(metavar="NAME", help="Print the file of this one.")]


def suites(name: _SuiteName = None, as_json: Json = False) -> None:
    """List the suites that ship with the worker, or print one to edit.

    A suite is a file that names evaluators with their data sets, for `crucible-worker evaluate --suite` and for plans.

    Example: crucible-worker suites math > my.toml
    """
    from crucible_bridge.suites import parse_suite
    from crucible_worker import suites as shipped

    if name is not None:
        if name not in shipped.names():
            typer.echo(f"crucible-worker: there is no suite {name!r}; there are {', '.join(shipped.names())}", err=True)
            raise typer.Exit(EXIT_USAGE)
        typer.echo(shipped.text(name), nl=False)
        return
    found = [parse_suite(shipped.text(each)) for each in shipped.names()]
    if as_json:
        told = [
            {
                "name": suite.name,
                "description": suite.description,
                "evaluations": [member.name for member in suite.members],
            }
            for suite in found
        ]
        typer.echo(json.dumps({"suites": told}))
        return
    from crucible_worker.cli.tables import write_table

    rows = [(suite.name, ", ".join(member.name for member in suite.members), suite.description) for suite in found]
    write_table(sys.stdout, "Suites: crucible-worker suites NAME > my.toml", ("suite", "evaluations", "about"), rows)


# Options of a JSON schema in words: for lists of evaluators and graders, and for pages.

COLUMNS = ("option", "value", "default", "about")
"""Of `option_rows`."""
NEEDED = "needed"
"""Shown instead of the default of a required option."""

_KINDS = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "array": "a list",
    "object": "an object",
}
_LENGTHS = {"string": "Length", "array": "Items", "object": "Properties"}
_MANY = {"boolean": "values", "integer": "whole numbers", "number": "numbers", "string": "texts", "object": "objects"}


def option_rows(schema: Mapping[str, Any]) -> Sequence[tuple[str, str, str, str]]:
    """What an object's schema says about each option: its name, its values, its default, and its description."""
    required = schema.get("required", ())
    return [
        (
            name,
            value_of(rule),
            NEEDED if name in required else _written(rule["default"]) if "default" in rule else "",
            rule.get("description", ""),
        )
        for name, rule in schema.get("properties", {}).items()
    ]


def value_of(rule: Mapping[str, Any]) -> str:
    """The values that a rule accepts, with their bounds."""
    kinds = rule.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    named = [_KINDS.get(kind, kind) for kind in kinds if kind != "null"]
    value = " or ".join(named)
    if "enum" in rule:
        value = _either([str(each) for each in rule["enum"] if each is not None])
    examples = f"such as {rule['examples'][0]}" if rule.get("examples") else ""
    value = " ".join(filter(None, (value, _bounds(rule), examples)))
    return f"{value} or null" if "null" in kinds else value


def _bounds(rule: Mapping[str, Any]) -> str:
    least, most = rule.get("minimum"), rule.get("maximum")
    if least is not None and most is not None:
        return f"from {least:,} to {most:,}"
    words = [
        f"{word} {rule[key]:,}"
        for key, word in (
            ("minimum", "from"),
            ("exclusiveMinimum", "above"),
            ("maximum", "to"),
            ("exclusiveMaximum", "below"),
        )
        if key in rule
    ]
    return " ".join(filter(None, [*words, *(_length(rule, kind) for kind in _LENGTHS)]))


def _length(rule: Mapping[str, Any], kind: str) -> str:
    what, unit = _LENGTHS[kind], "characters"
    if kind != "string":
        each = rule.get("items", {}).get("type", "")
        unit = _MANY.get(each, "entries") if isinstance(each, str) else "entries"
    least, most = rule.get(f"min{what}"), rule.get(f"max{what}")
    if least is not None and most is not None:
        return f"of {least:,} to {most:,} {unit}"
    if most is not None:
        return f"of at most {most:,} {unit}"
    return "" if least is None else "that is not empty" if least == 1 else f"of at least {least:,} {unit}"


def _either(values: Sequence[str]) -> str:
    *most, last = values
    return f"{', '.join(most)} or {last}" if most else last


def _written(value: Any) -> str:
    if isinstance(value, str):
        return value or '""'
    if isinstance(value, dict | list) and not value:
        return "none"
    return json.dumps(value)
