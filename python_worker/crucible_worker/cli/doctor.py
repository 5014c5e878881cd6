"""`crucible-worker doctor`: what this machine has of what a worker needs."""

from __future__ import annotations

import dataclasses
import json
import sys

import typer

from crucible_worker.cli.options import EXIT_FAILED, Config, Host, JournalUrl, Json, Port, StateDir, settings_or_exit

__all__ = ["doctor"]


def doctor(
    config: Config = None,
    host: Host = None,
    port: Port = None,
    state_dir: StateDir = None,
    journal: JournalUrl = None,
    as_json: Json = False,
) -> None:
    """Check what a worker needs on this machine.

    Optional programs and packages are checked as well. Nothing is changed. Exits with 0 if a worker can serve, or if a
    healthy worker already serves at the address, and with 1 if something is wrong that a worker needs.
    """
    from crucible_worker.cli.checks import run_checks
    from crucible_worker.cli.tables import write_table

    settings = settings_or_exit(config, host=host, port=port, state_dir=state_dir, journal=journal, of_worker=True)
    checks = list(run_checks(settings))
    ok = all(check.ok for check in checks if check.required)
    if as_json:
        typer.echo(json.dumps({"ok": ok, "checks": [dataclasses.asdict(check) for check in checks]}))
    else:
        rows = [(_status(check.ok, check.required), check.name, check.detail, check.purpose) for check in checks]
        write_table(sys.stdout, "crucible-worker doctor", ("", "what", "found", "to"), rows)
        typer.echo("A worker can serve here." if ok else "A worker cannot serve here: see FAILED.")
    raise typer.Exit(0 if ok else EXIT_FAILED)


def _status(ok: bool, required: bool) -> str:
    return "ok" if ok else "FAILED" if required else "-"
