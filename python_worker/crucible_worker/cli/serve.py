"""`crucible-worker serve`: a worker until SIGTERM."""

from __future__ import annotations

import importlib
import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from crucible_worker.cli.options import (
    FIRST,
    After,
    Config,
    Host,
    JournalUrl,
    Port,
    SettingsOptions,
    StateDir,
    UnixSocket,
    command,
    flags,
    settings_or_exit,
)
from crucible_worker.util.loading import loading

__all__ = ["ServeOptions", "serve"]


class ServeOptions(SettingsOptions):
    """The options of `crucible-worker serve`."""

    config: Annotated[Config, FIRST] = None
    host: Host = None
    port: Port = None
    unix_socket: UnixSocket = None
    openai_listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Also serve OpenAI's API there, on this machine alone; needs crucible-bridge[web].",
        ),
    ] = None
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Callers must show the token in this file (mode 0600).")
    ] = None
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate chain, PEM.")] = None
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key, PEM.")] = None
    insecure_no_tls: Annotated[
        bool | None,
        typer.Option("--insecure-no-tls", help="Listen to other machines without TLS; the token is still needed."),
    ] = None
    ready_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write host:port there, atomically, once the worker serves.")
    ] = None
    state_dir: StateDir = None
    journal: JournalUrl = None
    share_work: Annotated[
        bool | None,
        typer.Option(
            "--share-work",
            hidden=True,
            help="Without effect; accepted for one release.",
        ),
    ] = None
    resume_interrupted: Annotated[
        bool | None,
        typer.Option(
            "--resume-interrupted/--no-resume-interrupted",
            help="Resume interrupted evaluations without a call for them. [default: resume them]",
        ),
    ] = None
    grading_processes: Annotated[
        int | None,
        typer.Option(
            "--grading-processes",
            metavar="N",
            help="Child processes that grade math; 0 for a worker that grades none. [default: one a core, 2 to 4]",
        ),
        After("device"),
    ] = None
    code_sandboxes: Annotated[
        int | None,
        typer.Option(
            "--code-sandboxes",
            metavar="N",
            help="Programs that GradeCode runs at once; 0 for a worker that runs none. [default: one a core, at most "
            "4]",
        ),
    ] = None
    code_image: Annotated[
        list[str] | None,
        typer.Option(
            "--code-image",
            metavar="NAME=DIR",
            help="Folder of packages (pip install --target DIR) for programs of requests that name it; repeatable.",
        ),
    ] = None
    fanout: Annotated[
        str | None,
        typer.Option(
            "--fanout",
            metavar="CLUSTER",
            help="Ray cluster that grades answers and runs programs: ray://HOST:PORT, auto (this machine's) or local.",
        ),
    ] = None
    plan: Annotated[
        list[str] | None,
        typer.Option(
            "--plan",
            metavar="RUNS=FILE",
            help="Evaluate every reported step of runs that register no plan, by a pattern of run ids and a plan's "
            "file: lab-*=plan.toml. Repeatable.",
        ),
        After("price"),
    ] = None
    log_format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="json or console. [default: console on a terminal, else json]")
    ] = None
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error. [default: info]")
    ] = None
    limits: Annotated[
        list[str] | None,
        typer.Option("--limit", metavar="NAME=VALUE", help="Set a limit of the worker by its name; repeatable."),
    ] = None


@command(ServeOptions)
def serve(typed: ServeOptions) -> None:
    """Serve evaluations over gRPC until SIGTERM.

    Listens on 127.0.0.1 alone. Any other address needs --token-file, and TLS by --tls-cert and --tls-key (or
    --insecure-no-tls with the token).

    Every option is also a variable, CRUCIBLE_PORT for --port, and a key of the file that --config names; limits have
    their own names there, CRUCIBLE_MAX_STREAMS and the table [limits]. Unknown names are refused.
    """
    # Until the server handles signals itself: a SIGTERM before that ends the process without a traceback.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    settings = settings_or_exit(**{name: getattr(typed, name) for name in flags(ServeOptions)}, of_worker=True)
    # Before grpc is imported: its C core would write its own lines among our JSON lines.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    with loading():
        # Before anything else imports structlog: here it is imported without rich, which would cost 34 ms and 5.5 MB.
        importlib.import_module("crucible_worker.telemetry")
        from crucible_worker.server import serve as run

    raise typer.Exit(run(settings))
