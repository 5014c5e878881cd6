"""Options of several commands, what a shell completes for them, and their conversion to settings."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from crucible_worker import suites
from crucible_worker.config import Settings, SettingsError, load_settings, read_settings
from crucible_worker.util.interrupts import INTERRUPTED

__all__ = [
    "EVALUATORS",
    "EXIT_FAILED",
    "EXIT_INTERRUPTED",
    "EXIT_USAGE",
    "MAX_IDS",
    "AcrossRules",
    "Concurrency",
    "Config",
    "ConfigWithOptions",
    "Data",
    "DataRoot",
    "Device",
    "EnvironmentVariable",
    "EvaluationId",
    "Evaluators",
    "FewShot",
    "FewShotSeed",
    "Grader",
    "Host",
    "HubNetwork",
    "InspectPackage",
    "InspectRoot",
    "JournalUrl",
    "Json",
    "Labels",
    "Limit",
    "LogDir",
    "MaxTokens",
    "MaxUnscored",
    "ModelRoot",
    "Only",
    "OpenAIServer",
    "Options",
    "Port",
    "Prefix",
    "Price",
    "Record",
    "Renderer",
    "Roles",
    "RunId",
    "Samples",
    "Seed",
    "ShuffleSeed",
    "SpecialTokens",
    "StateDir",
    "Step",
    "Stop",
    "SuiteFile",
    "System",
    "TargetDelimiter",
    "Tasks",
    "Temperature",
    "Template",
    "Timeout",
    "TinkerService",
    "UnixSocket",
    "Where",
    "evaluation_ids",
    "one_of",
    "run_ids",
    "settings_or_exit",
    "suite_names",
]

# What a shell completes: ids of evaluations, kinds of evaluators, and values of options that have few.
#
# A shell starts the program for each press of Tab, so that this reads one table at most, and imports nothing large.

EVALUATORS = (
    *("accuracy", "bits_per_byte", "classification", "comparison", "inspect", "multiple_choice", "next_token_accuracy"),
    *("nll", "pass_at_k", "perplexity", "preference", "rl_test_set", "rollout", "rubric"),
)
"""Kinds that come with the worker; a test compares them with the registry, which takes time to import."""
MAX_IDS = 200
"""Ids that are offered, the newest."""
BUSY_SECONDS = 0.2
"""How long a journal that is being written is waited for."""

_JOURNAL_FILE = "journal.sqlite3"


def one_of(*values: str) -> Callable[[str], list[str]]:
    """Completes one of a few values."""

    def complete(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return complete


def suite_names(incomplete: str) -> list[str]:
    """Completes a suite that ships with the worker."""
    return [name for name in suites.names() if name.startswith(incomplete)]


def evaluation_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes an id of the state directory that the command would read; none of a worker at an address."""
    given = ctx.params.get("ids") or ctx.params.get("evaluation_ids") or ()
    return [one for one in _column(ctx, "evaluation_id", incomplete) if one not in given]


def run_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes a run, likewise."""
    return [run for run in _column(ctx, "run_id", incomplete) if run]


def _column(ctx: typer.Context, column: str, incomplete: str) -> Iterable[str]:
    """The newest values of a column of the journal's evaluations; none if there is no journal, or it is busy."""
    if ctx.params.get("address"):
        return ()
    import sqlite3

    config, state_dir = (ctx.params.get(name) for name in ("config", "state_dir"))
    try:
        settings = read_settings(
            {} if state_dir is None else {"state_dir": state_dir}, os.environ, None if config is None else Path(config)
        )
        if settings.journal is not None:  # a shell waits for no network
            return ()
        journal = f"{(settings.state_dir / _JOURNAL_FILE).absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(journal, uri=True, timeout=BUSY_SECONDS)) as connection:
            rows = connection.execute(
                f"SELECT {column} FROM evaluations WHERE substr({column}, 1, ?) = ?"
                f" GROUP BY {column} ORDER BY MAX(number) DESC LIMIT ?",
                (len(incomplete), incomplete, MAX_IDS),
            ).fetchall()
    except (SettingsError, sqlite3.Error):
        # A shell has no place for errors; the command itself says what is wrong.
        return ()
    return [value for (value,) in rows]


# Options of commands that choose evaluators, data and sampling.

Data = Annotated[
    str | None,
    typer.Option(
        metavar="DATA",
        help="builtin:NAME; jsonl:PATH, csv:PATH or parquet:PATH below a data root, with "
        "?input=COLUMN&target=COLUMN if its columns have other names; or "
        "hub:OWNER/NAME?split=SPLIT&input=COLUMN&target=COLUMN.",
    ),
]
Evaluators = Annotated[
    list[str] | None,
    typer.Option(
        "--evaluator",
        metavar="[NAME=]KIND",
        help=f"{', '.join(EVALUATORS[:-1])} or {EVALUATORS[-1]}, see `crucible-worker evaluators`; or FILE.py:CLASS, "
        "a class of your own. NAME prefixes keys; repeatable.",
        autocompletion=one_of(*EVALUATORS),
    ),
]
Tasks = Annotated[
    list[str] | None,
    typer.Option(
        "--task",
        metavar="TASK",
        help="Instead of --data: an Inspect task, PACKAGE/TASK or FILE.py@TASK, which the evaluator inspect runs; "
        "repeatable. The named tasks are allowed, unless --inspect-root or --inspect-package is given.",
    ),
]
Grader = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Grader of answers for every evaluator that has one, unless its --option sets another: one of "
        "`crucible-worker graders`, or FILE.py:FUNCTION, a function of your own. [default: exact_match]",
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="EVALUATOR.KEY=VALUE",
        help="An evaluator's option; VALUE is JSON or text; KEY.KEY sets an option within an option; repeatable.",
    ),
]
SuiteFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|NAME",
        help="A suite's file (.toml), or one that ships: chat, code, math or tool_use; see `crucible-worker suites`.",
        autocompletion=suite_names,
    ),
]
Only = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Take only this evaluation of the suite; repeatable.")
]
Renderer = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="How samples become prompts: auto, chat_template, role_colon, raw or tinker:NAME. An evaluator's --option "
        "renderer overrides it. [default: auto, which is a chat if the model has a chat template or a server]",
    ),
]
System = Annotated[str | None, typer.Option(metavar="TEXT|@FILE", help="System message before every row.")]
Template = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT|@FILE",
        help="User message of a row, from its columns: '{input}', or Jinja2, '{{ input }}'. [default: the row's input]",
    ),
]
TargetDelimiter = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="Text between a prompt and its answer for a model without a chat template; '' for none. [default: one "
        "space, unless the prompt ends or the answer begins with white space]",
    ),
]
SpecialTokens = Annotated[
    bool | None,
    typer.Option(
        "--special-tokens",
        help="Read the special tokens that the data name, such as <|im_end|>. [default: their names are text]",
    ),
]
FewShot = Annotated[
    str | None,
    typer.Option(
        metavar="COUNT:SOURCE",
        help="Examples before each row: rows with answers from another file or split, as in 5:jsonl:train.jsonl.",
    ),
]
FewShotSeed = Annotated[
    int | None, typer.Option(metavar="N", help="Seed by which --few-shot draws its rows. [default: 0]")
]
Samples = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Take the first N samples of each data set; with --task, of each task."),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Take only samples whose metadata has this value, before shuffling and --samples; repeatable.",
    ),
]
ShuffleSeed = Annotated[
    int | None, typer.Option(metavar="N", help="Take the samples in an order shuffled by this seed.")
]
Concurrency = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Samples in flight at once. [default: the worker's default_concurrency]"),
]
MaxTokens = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Generate at most N tokens for each answer. [default: 256]")
]
Temperature = Annotated[float | None, typer.Option(metavar="T", min=0.0, help="0 is greedy. [default: 0]")]
Seed = Annotated[int | None, typer.Option(metavar="N", help="Seed of sampling.")]
Stop = Annotated[list[str] | None, typer.Option(metavar="TEXT", help="Stop string; repeatable.")]
MaxUnscored = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Fail if an evaluator leaves more samples without a score. [default: if more than 5 % end with an error]",
    ),
]
Record = Annotated[
    str | None,
    typer.Option(
        "--record",
        metavar="WHAT",
        help="What is recorded for each sample: full, outputs or none. [default: the suite's, or full]",
        autocompletion=one_of("full", "outputs", "none"),
    ),
]
RunId = Annotated[
    str | None,
    typer.Option("--run-id", metavar="RUN", help="The training run that the model is of; recorded with the results."),
]
Step = Annotated[
    int | None, typer.Option("--step", metavar="N", help="The training step of the model; recorded with the results.")
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="KEY=VALUE", help="A note that is recorded with the evaluation; repeatable."),
]
Roles = Annotated[
    list[str] | None,
    typer.Option(
        "--role",
        metavar="NAME=MODEL",
        help="A further model of tasks, by its role or by the name that they have for it, as in "
        "grader=openai:SERVER/MODEL; repeatable.",
    ),
]
Prefix = Annotated[
    str | None,
    typer.Option("--prefix", metavar="TEXT", help="Put before every metric key, as in test/ for test/accuracy."),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="Cancel the evaluation when it has run for so long, all attempts together. [default: no limit]",
    ),
]
EvaluationId = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="ID",
        help="Id of the evaluation. The same id again resumes the evaluation, or shows its result. It is ID-NAME in a "
        "suite, and ID-MODEL with several models. [default: made of model, data and time]",
    ),
]

# Exit statuses, options of several commands, and their conversion to settings.

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
