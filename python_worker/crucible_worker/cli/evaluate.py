"""`crucible-worker evaluate`: an evaluation, or those of a suite, in this process, without a server."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import importlib
import re
import secrets
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crucible_worker.cli.options import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    Concurrency,
    ConfigWithOptions,
    Data,
    DataRoot,
    Device,
    EnvironmentVariable,
    EvaluationId,
    Evaluators,
    FewShot,
    FewShotSeed,
    Grader,
    HubNetwork,
    InspectPackage,
    InspectRoot,
    Json,
    Labels,
    LogDir,
    LogTo,
    MaxTokens,
    MaxUnscored,
    ModelRoot,
    Only,
    OpenAIServer,
    Options,
    Prefix,
    Price,
    Record,
    Renderer,
    Roles,
    RunId,
    Samples,
    Seed,
    ShuffleSeed,
    SpecialTokens,
    Step,
    Stop,
    SuiteFile,
    System,
    TargetDelimiter,
    Tasks,
    Temperature,
    Template,
    Timeout,
    TinkerService,
    Where,
    settings_or_exit,
)
from crucible_worker.cli.reading import refuse, refuse_journal
from crucible_worker.cli.workspace import state_folder, with_roots
from crucible_worker.util.interrupts import raise_interrupts
from crucible_worker.util.loading import loading

if TYPE_CHECKING:
    from crucible_bridge.errors import BridgeError
    from crucible_worker.cli.requests import EvaluateOptions
    from crucible_worker.cli.running import RunSummary
    from crucible_worker.config import Settings

__all__ = ["MAX_PART", "evaluate", "new_id"]

_Model = Annotated[
    list[str],
    typer.Option(
        metavar="MODEL",
        help="embedded:NAME@STEP, local:PATH below a model root, hub:OWNER/NAME, openai:SERVER/MODEL, "
        "managed:SERVER/PATH, tinker://PATH, tinker:BASE, or SCHEME:NAME of an installed backend; repeatable: each "
        "further one is compared with the first.",
    ),
]
_State = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        help="Keep the results in the journal of this folder. [default: $XDG_STATE_HOME/crucible-bridge, below "
        "~/.local/state]",
    ),
]
_NoKeep = Annotated[bool, typer.Option("--no-keep", help="Only print the results; keep them in no journal.")]
_Output = Annotated[
    Path | None,
    typer.Option("--output", metavar="FILE", help="Write what --json prints to this file, at the end, all at once."),
]
_Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Every metric key in a table, in place of sentences.")]


def evaluate(
    model: _Model,
    data: Data = None,
    task: Tasks = None,
    evaluator: Evaluators = None,
    option: Options = None,
    grader: Grader = None,
    renderer: Renderer = None,
    system: System = None,
    template: Template = None,
    target_delimiter: TargetDelimiter = None,
    special_tokens: SpecialTokens = None,
    few_shot: FewShot = None,
    few_shot_seed: FewShotSeed = None,
    suite: SuiteFile = None,
    only: Only = None,
    samples: Samples = None,
    where: Where = None,
    shuffle_seed: ShuffleSeed = None,
    concurrency: Concurrency = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    seed: Seed = None,
    stop: Stop = None,
    max_unscored: MaxUnscored = None,
    record: Record = None,
    run_id: RunId = None,
    step: Step = None,
    label: Labels = None,
    role: Roles = None,
    prefix: Prefix = None,
    timeout: Timeout = None,
    evaluation_id: EvaluationId = None,
    config: ConfigWithOptions = None,
    state_dir: _State = None,
    no_keep: _NoKeep = False,
    output: _Output = None,
    log_dir: LogDir = None,
    log_to: LogTo = None,
    model_root: ModelRoot = None,
    data_root: DataRoot = None,
    hub_network: HubNetwork = None,
    inspect_root: InspectRoot = None,
    inspect_package: InspectPackage = None,
    environment_variable: EnvironmentVariable = None,
    device: Device = None,
    openai_server: OpenAIServer = None,
    tinker_service: TinkerService = None,
    price: Price = None,
    verbose: _Verbose = False,
    as_json: Json = False,
) -> None:
    """Evaluate a model in this process, without a worker: by --data and --evaluator, by --task or by --suite.

    Several models are evaluated one after another, then compared with the first, sample by sample.

    Files are read below the current folder, unless --model-root or --data-root names another.

    The results stay in a journal, where `crucible-worker show`, `report` and `view` find them, unless --no-keep is
    given.

    Exits with 0 if every evaluator finished, 1 if one failed or scored none of its samples, 2 if the request is refused
    before anything ran. If an evaluation of a suite fails, the next ones still run. With --json an evaluation that did
    not run is an object with the key error.

    Example: crucible-worker evaluate --model embedded:arithmetic@600 --data builtin:arithmetic --evaluator nll
    --evaluator accuracy --option accuracy.grader=numeric --max-tokens 8
    """
    parameters = locals().copy()  # by name, for `EvaluateOptions`
    with loading():
        # Before anything else imports structlog: here it is imported without rich, which would cost 34 ms and 5.5 MB.
        importlib.import_module("crucible_worker.telemetry")
        from crucible_worker.cli.requests import EvaluateOptions, allowing, evaluators_of

        running = importlib.import_module("crucible_worker.cli.running")
    # Everything is loaded; from here on there is something to clean up.
    raise_interrupts()
    if no_keep and state_dir is not None:
        refuse("--state-dir and --no-keep exclude each other")
    if output is not None and (why := running.unwritable(output)):
        refuse(f"--output {output} cannot be written: {why}")
    typed = dataclasses.replace(
        EvaluateOptions.of(model, parameters, kept=not no_keep), evaluators=evaluators_of(evaluator or (), task or ())
    )
    if evaluation_id is None:
        made_for = suite or data or (typed.tasks[0] if typed.tasks else "")
        typed = dataclasses.replace(typed, made_id=new_id(model[0] if len(model) == 1 else "", made_for))
    try:
        with state_folder(None) if no_keep else contextlib.nullcontext(state_dir) as folder:
            settings = allowing(
                typed.tasks,
                with_roots(
                    settings_or_exit(
                        config,
                        state_dir=folder,
                        log_dir=log_dir,
                        log_to=log_to,
                        device=device,
                        model_roots=model_root,
                        data_roots=data_root,
                        hub_network=hub_network,
                        inspect_roots=inspect_root,
                        inspect_packages=inspect_package,
                        environment_variables=environment_variable,
                        openai_servers=openai_server,
                        tinker_services=tinker_service,
                        prices=price,
                    )
                ),
            )
            if output is not None:
                refuse_journal("--output", output, settings.state_dir)
            outcome = running.RunSummary(
                models=typed.models,
                shown=running.OutputFormat(as_json=as_json, verbose=verbose, output=output),
                place=None if no_keep else _place(state_dir, settings),
            )
            raise typer.Exit(_run(settings, typed, outcome))
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _place(state_dir: Path | None, settings: Settings) -> str:
    """What a command needs to read the same journal: the option as it was typed, or nothing for the default one."""
    if settings.journal is not None:
        return ""  # the environment or the file names it for the next command, too
    if state_dir is None and settings.state_dir == settings_or_exit(None, of_another=True).state_dir:
        return ""
    return f" --state-dir {shlex.quote(str(settings.state_dir if state_dir is None else state_dir))}"


def _run(settings: Settings, typed: EvaluateOptions, outcome: RunSummary) -> int:
    """Run the requested evaluations and write their results; returns the exit status."""
    from crucible_bridge.errors import BridgeError
    from crucible_worker.cli.custom_files import custom_files_of
    from crucible_worker.cli.refusals import Refused, refusing
    from crucible_worker.cli.requests import check_allowed, evaluations_to_run
    from crucible_worker.cli.running import run, write_error

    shown = outcome.shown
    try:
        with refusing(settings, typed.evaluators):
            typed, custom = custom_files_of(typed)
        outcome.parts = custom.evaluator_parts
        with refusing(settings, typed.evaluators):
            outcome.suite, asked = evaluations_to_run(typed, custom.evaluator_parts)
            check_allowed(typed.tasks, settings)
        outcome.total = len(asked)
        outcome.compared = asyncio.run(
            run(settings, asked, typed.evaluators, outcome.several, custom, quiet=shown.as_json)
        )
    except Refused as refused:
        write_error(refused.error, str(refused), shown)
        return EXIT_USAGE
    except BridgeError as error:
        write_error(error, f"{error}{_other_place(error)}", shown)
        return EXIT_FAILED
    except (asyncio.CancelledError, KeyboardInterrupt) as ended:
        if outcome.several:
            outcome.write()
        typer.echo(f"crucible-worker: ended before all was evaluated{_resumed_by(typed)}", err=True)
        return EXIT_INTERRUPTED if isinstance(ended, KeyboardInterrupt) else EXIT_FAILED
    outcome.write()
    return outcome.exit_code()


def _other_place(error: BridgeError) -> str:
    from crucible_bridge.reasons import Reason

    unusable = error.reason == Reason.STATE_DIR_UNUSABLE
    return "; --state-dir DIR names another folder, and --no-keep keeps nothing" if unusable else ""


def _resumed_by(typed: EvaluateOptions) -> str:
    if not typed.kept:
        return ""
    again = "" if typed.evaluation_id else f" with --id {shlex.quote(typed.made_id)}"
    return f"; the same command{again} resumes it"


# Ids of evaluations that people can read: "arithmetic-600-arithmetic-20261124-211530-7k2f". The id names the model,
# what it was evaluated on, and the local time; four random characters make it unique.

MAX_PART = 32
"""Characters of the model's name, and of what it was evaluated on."""
RANDOM_CHARACTERS = 4
_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"
"""Without characters that look alike."""
_OTHERS = re.compile(r"[^A-Za-z0-9._]+")


def new_id(model: str, made_for: str, now: datetime.datetime | None = None) -> str:
    """A new id, of characters that a shell leaves alone.

    Args:
        model: as it was typed, "embedded:arithmetic@600"; empty if there are several.
        made_for: a data set, task or suite as it was typed, "jsonl:data/sums.jsonl".
        now: the time; the current one if None.
    """
    when = (datetime.datetime.now() if now is None else now).strftime("%Y%m%d-%H%M%S")
    unique = "".join(secrets.choice(_ALPHABET) for _ in range(RANDOM_CHARACTERS))
    return "-".join(filter(None, (_named(model), _named(made_for), when, unique)))


def _named(text: str) -> str:
    """The last part of a path or name, without scheme, columns and the ending of a file."""
    *_, last = text.partition("?")[0].rstrip("/").split("/")
    if "/" not in text:
        last = last.partition(":")[2] or last
    for ending in (".jsonl", ".csv", ".parquet", ".toml"):
        last = last.removesuffix(ending)
    return _OTHERS.sub("-", last).strip("-.")[:MAX_PART].rstrip("-.")
