"""`crucible-worker evaluators` and `crucible-worker graders`: all of them, or the options of one."""

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

__all__ = ["evaluators", "graders"]

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
    from crucible_worker.cli.own_files import OwnFiles
    from crucible_worker.evaluators import registry
    from crucible_worker.evaluators.registry import EvaluatorParts

    files = OwnFiles()
    parts = EvaluatorParts(own_evaluators=files.evaluators)
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
    from crucible_worker.cli.own_files import OwnFiles
    from crucible_worker.grading import registry
    from crucible_worker.grading.parts import GradingParts

    files = OwnFiles()
    parts = GradingParts(own_graders=files.graders)
    if name is None:
        found = [_grader_described(each, parts) for each in registry.names(parts)]
        _list("graders", found, as_json=as_json)
        return
    try:
        grader = registry.found(files.grader(name), parts, "NAME")
    except BridgeError as error:
        raise _refused("NAME", error) from None
    if as_json:
        described = {"name": grader.name, "description": grader.description}
        typer.echo(json.dumps({**described, "options_schema": dict(grader.options_schema)}))
        return
    _show(grader.name, grader.description, grader.options_schema)


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
    return {"name": name, "description": grader.description, "unavailable": ""}


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
    from crucible_worker.cli.described import COLUMNS, option_rows

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
