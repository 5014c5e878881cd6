"""`crucible-worker serve`: a worker until SIGTERM."""

from __future__ import annotations

import importlib
import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from crucible_worker.cli.options import (
    Config,
    DataRoot,
    Device,
    EnvironmentVariable,
    Host,
    HubNetwork,
    InspectPackage,
    InspectRoot,
    JournalUrl,
    Limit,
    LogDir,
    LogTo,
    ModelRoot,
    OpenAIServer,
    Port,
    Price,
    RunPlan,
    StateDir,
    TinkerService,
    UnixSocket,
    settings_or_exit,
)
from crucible_worker.util.loading import loading

__all__ = ["serve"]

_TokenFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Callers must show the token in this file (mode 0600).")
]
_TlsCert = Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate chain, PEM.")]
_TlsKey = Annotated[Path | None, typer.Option(metavar="FILE", help="Its key, PEM.")]
_NoTls = Annotated[
    bool | None,
    typer.Option("--insecure-no-tls", help="Listen to other machines without TLS; the token is still needed."),
]
_ReadyFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write host:port there, atomically, once the worker serves.")
]
_ShareWork = Annotated[
    bool | None,
    typer.Option(
        "--share-work",
        hidden=True,
        help="Without effect; accepted for one release.",
    ),
]
_ResumeInterrupted = Annotated[
    bool | None,
    typer.Option(
        "--resume-interrupted/--no-resume-interrupted",
        help="Resume interrupted evaluations without a call for them. [default: resume them]",
    ),
]
_Grading = Annotated[
    int | None,
    typer.Option(
        "--grading-processes",
        metavar="N",
        help="Child processes that grade math; 0 for a worker that grades none. [default: one a core, 2 to 4]",
    ),
]
_Code = Annotated[
    int | None,
    typer.Option(
        "--code-sandboxes",
        metavar="N",
        help="Programs that GradeCode runs at once; 0 for a worker that runs none. [default: one a core, at most 4]",
    ),
]
_CodeImage = Annotated[
    list[str] | None,
    typer.Option(
        "--code-image",
        metavar="NAME=DIR",
        help="Folder of packages (pip install --target DIR) for programs of requests that name it; repeatable.",
    ),
]
_Fanout = Annotated[
    str | None,
    typer.Option(
        "--fanout",
        metavar="CLUSTER",
        help="Ray cluster that grades answers and runs programs: ray://HOST:PORT, auto (this machine's) or local.",
    ),
]
_LogFormat = Annotated[
    str | None, typer.Option(metavar="FORMAT", help="json or console. [default: console on a terminal, else json]")
]
_LogLevel = Annotated[str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error. [default: info]")]


def serve(
    config: Config = None,
    host: Host = None,
    port: Port = None,
    unix_socket: UnixSocket = None,
    token_file: _TokenFile = None,
    tls_cert: _TlsCert = None,
    tls_key: _TlsKey = None,
    insecure_no_tls: _NoTls = None,
    ready_file: _ReadyFile = None,
    state_dir: StateDir = None,
    journal: JournalUrl = None,
    share_work: _ShareWork = None,
    resume_interrupted: _ResumeInterrupted = None,
    log_dir: LogDir = None,
    log_to: LogTo = None,
    model_root: ModelRoot = None,
    data_root: DataRoot = None,
    hub_network: HubNetwork = None,
    inspect_root: InspectRoot = None,
    inspect_package: InspectPackage = None,
    environment_variable: EnvironmentVariable = None,
    device: Device = None,
    grading_processes: _Grading = None,
    code_sandboxes: _Code = None,
    code_image: _CodeImage = None,
    fanout: _Fanout = None,
    openai_server: OpenAIServer = None,
    tinker_service: TinkerService = None,
    price: Price = None,
    plan: RunPlan = None,
    log_format: _LogFormat = None,
    log_level: _LogLevel = None,
    limit: Limit = None,
) -> None:
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
    settings = settings_or_exit(
        config,
        of_worker=True,
        host=host,
        port=port,
        unix_socket=unix_socket,
        token_file=token_file,
        tls_cert=tls_cert,
        tls_key=tls_key,
        insecure_no_tls=insecure_no_tls,
        ready_file=ready_file,
        state_dir=state_dir,
        journal=journal,
        share_work=share_work,
        resume_interrupted=resume_interrupted,
        log_dir=log_dir,
        log_to=log_to,
        model_roots=model_root,
        data_roots=data_root,
        hub_network=hub_network,
        inspect_roots=inspect_root,
        inspect_packages=inspect_package,
        environment_variables=environment_variable,
        device=device,
        grading_processes=grading_processes,
        code_sandboxes=code_sandboxes,
        code_images=code_image,
        fanout=fanout,
        openai_servers=openai_server,
        tinker_services=tinker_service,
        prices=price,
        plans=plan,
        log_format=log_format,
        log_level=log_level,
        limits=limit,
    )
    # Before grpc is imported: its C core would write its own lines among our JSON lines.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    with loading():
        # Before anything else imports structlog: here it is imported without rich, which would cost 34 ms and 5.5 MB.
        importlib.import_module("crucible_worker.telemetry")
        from crucible_worker.server import serve as run

    raise typer.Exit(run(settings))
