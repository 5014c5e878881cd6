"""Options of several commands, and their conversion to settings."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from crucible_worker.config import Settings, SettingsError, load_settings, read_settings
from crucible_worker.util.interrupts import INTERRUPTED

__all__ = [
    "EXIT_FAILED",
    "EXIT_INTERRUPTED",
    "EXIT_USAGE",
    "AcrossRules",
    "Config",
    "ConfigWithOptions",
    "DataRoot",
    "Device",
    "EnvironmentVariable",
    "Host",
    "HubNetwork",
    "InspectPackage",
    "InspectRoot",
    "JournalUrl",
    "Json",
    "Limit",
    "LogDir",
    "ModelRoot",
    "OpenAIServer",
    "Port",
    "Price",
    "StateDir",
    "TinkerService",
    "UnixSocket",
    "settings_or_exit",
]

EXIT_FAILED = 1
"""Exit status: the command failed."""

EXIT_USAGE = 2
"""Exit status: the options are wrong, or the request is refused."""

EXIT_INTERRUPTED = INTERRUPTED
"""Exit status of a command that Ctrl-C ended, as in shells."""

Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="TOML file with settings; flags and environment win.")
]
ConfigWithOptions = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="TOML file with settings, and options of `evaluate` in its table [evaluate]; flags and environment win.",
    ),
]
Host = Annotated[str | None, typer.Option(metavar="HOST", help="Name or address to listen on. [default: 127.0.0.1]")]
Port = Annotated[int | None, typer.Option(metavar="PORT", help="Port to listen on; 0 picks one. [default: 50051]")]
UnixSocket = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Unix socket to listen on, in place of host and port; mode 0600.")
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Folder of the journal. [default: $XDG_STATE_HOME/crucible-bridge, below ~/.local/state]"
    ),
]
JournalUrl = Annotated[
    str | None,
    typer.Option(
        "--journal",
        metavar="URL",
        help="PostgreSQL database with the journal, for workers of several machines: postgresql://USER@HOST/DATABASE. "
        "[default: the state directory]",
    ),
]
LogDir = Annotated[
    Path | None,
    typer.Option(
        "--log-dir", metavar="DIR", help="Write an Inspect log (.eval) of each evaluation there when it ends."
    ),
]
LogTo = Annotated[
    list[str] | None,
    typer.Option(
        "--log-to",
        metavar="LOGGER",
        help="Log metrics there: trackio:PROJECT, jsonl, jsonl:DIR, wandb:PROJECT, mlflow, tensorboardx; repeatable.",
    ),
]
ModelRoot = Annotated[list[Path] | None, typer.Option(metavar="DIR", help="Folder with local models; repeatable.")]
DataRoot = Annotated[list[Path] | None, typer.Option(metavar="DIR", help="Folder with data sets; repeatable.")]
HubNetwork = Annotated[
    bool | None,
    typer.Option(
        "--hub-network",
        help="Fetch data sets and models from the Hugging Face hub. Without it only the hub's cache is read.",
    ),
]
InspectRoot = Annotated[
    list[Path] | None,
    typer.Option(metavar="DIR", help="Folder with files of Inspect tasks that may be run; repeatable."),
]
InspectPackage = Annotated[
    list[str] | None,
    typer.Option(metavar="PACKAGE", help="Installed package whose tasks of Inspect may be run; repeatable."),
]
EnvironmentVariable = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Variable of the worker that custom environments get; repeatable."),
]
Device = Annotated[
    str | None,
    typer.Option(metavar="DEVICE", help="Device of models: auto, cpu, cuda or cuda:N. [default: auto]"),
]
OpenAIServer = Annotated[
    list[str] | None,
    typer.Option(
        "--openai-server",
        metavar="NAME=URL",
        help="OpenAI-compatible server, as in lab=http://127.0.0.1:8000/v1; replicas as NAME=URL,URL. A key needs "
        "--config. Repeatable.",
    ),
]
TinkerService = Annotated[
    list[str] | None,
    typer.Option(
        "--tinker-service",
        metavar="NAME=URL",
        help="Tinker service, with the key in TINKER_API_KEY; another key needs --config. Repeatable.",
    ),
]
Price = Annotated[
    list[str] | None,
    typer.Option(
        "--price",
        metavar="PATTERN=PRICE",
        help="Price of a million tokens of models: openai:lab/*=prompt:2.5,cached:1.25,output:10. Repeatable.",
    ),
]
RunPlan = Annotated[
    list[str] | None,
    typer.Option(
        "--plan",
        metavar="RUNS=FILE",
        help="Evaluate every reported step of runs that register no plan, by a pattern of run ids and a plan's file: "
        "lab-*=plan.toml. Repeatable.",
    ),
]
Limit = Annotated[
    list[str] | None,
    typer.Option("--limit", metavar="NAME=VALUE", help="Set a limit of the worker by its name; repeatable."),
]
AcrossRules = Annotated[
    bool,
    typer.Option("--across-rules", help="Also between evaluations of releases with other rules of measurement."),
]
MinScoredShare = Annotated[
    float,
    typer.Option(
        "--min-scored-share",
        metavar="SHARE",
        min=0.0,
        max=1.0,
        help="Rank no value of fewer scores than this share of what another one has; 0 ranks all.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON in place of a table.")]


def settings_or_exit(
    config: Path | None, *, of_another: bool = False, of_worker: bool = False, **flags: Any
) -> Settings:
    """Settings from flags, environment and file; wrong ones are reported and end the command.

    With `of_another` they are those of another worker on this machine; its files may not be readable here. A command
    that is given --state-dir means the journal in it, even if environment or file name a database. Only a worker
    (`of_worker`) needs both.
    """
    given = {name: value for name, value in flags.items() if value not in (None, [])}
    load = read_settings if of_another else load_settings
    try:
        settings = load(given, os.environ, config)
        in_folder = "state_dir" in given and "journal" not in given and not of_worker
        return dataclasses.replace(settings, journal=None) if in_folder else settings
    except SettingsError as error:
        typer.echo(f"crucible-worker: {error}", err=True)
        raise typer.Exit(EXIT_USAGE) from None
