"""`crucible-worker suites`: the suites that ship, listed, or one of them as a file to edit."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from crucible_worker.cli.options import EXIT_USAGE, Json

__all__ = ["suites"]

_Name = Annotated[str | None, typer.Argument(metavar="NAME", help="Print the file of this one.")]


def suites(name: _Name = None, as_json: Json = False) -> None:
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
