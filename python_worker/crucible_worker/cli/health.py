"""`crucible-worker health` and `doctor`: whether the worker is ready, and what this machine has of what one needs."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from crucible_worker.cli.options import (
    EXIT_FAILED,
    Config,
    Host,
    JournalUrl,
    Json,
    Port,
    StateDir,
    UnixSocket,
    settings_or_exit,
)
from crucible_worker.config import EXPIRING_DAYS

__all__ = ["doctor", "health"]

HEALTH_SECONDS = 5.0
"""Time limit for the answer: a worker answers within 0.1 s, unless its machine is busy with something else."""

_Service = Annotated[str, typer.Option(metavar="NAME", help="Full name of a service. [default: the whole worker]")]
_Ca = Annotated[
    Path | None,
    typer.Option(
        "--tls-ca",
        metavar="FILE",
        help="Call with TLS, and trust this certificate, PEM: the worker's own or its authority's. [default: tls_cert]",
    ),
]
_Timeout = Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="Time for the worker to answer.")]


def health(
    config: Config = None,
    host: Host = None,
    port: Port = None,
    unix_socket: UnixSocket = None,
    tls_ca: _Ca = None,
    service: _Service = "",
    timeout: _Timeout = HEALTH_SECONDS,
) -> None:
    """Query whether the worker is ready.

    Its address and certificate are read from the same options, variables and file as by `serve`. Its key and its token
    are not read. A certificate that expires within 14 days is named. Exits with 0 if the worker is ready, and with 1 if
    it is not or does not answer.
    """
    settings = settings_or_exit(config, of_another=True, host=host, port=port, unix_socket=unix_socket)
    # Before grpc is imported: its C core would write its own lines about what is reported below.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from crucible_worker.cli.probe import ProbeFailed, probe, target

    asked = f"{target(settings)} {service}".rstrip()
    try:
        answer = probe(settings, service, seconds=timeout, ca=tls_ca or settings.tls_cert)
    except ProbeFailed as error:
        typer.echo(f"crucible-worker: {asked}: {error}", err=True)
        raise typer.Exit(EXIT_FAILED) from None
    typer.echo(f"{asked}: {'ready' if answer.ready else 'not ready'}{_expiry(answer.certificate_expires)}")
    raise typer.Exit(0 if answer.ready else EXIT_FAILED)


def _expiry(expires: float | None) -> str:
    """For a certificate that expires soon."""
    if expires is None or expires - time.time() > EXPIRING_DAYS * 24 * 60 * 60:
        return ""
    at = datetime.datetime.fromtimestamp(expires, datetime.UTC)
    return f"; the certificate expires {at:%Y-%m-%d %H:%M} UTC: renew it"


# `crucible-worker doctor`.


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
