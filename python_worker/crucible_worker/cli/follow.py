"""`crucible-worker follow`: the checkpoints of a training run, each evaluated as it is saved, in this process."""

from __future__ import annotations

import asyncio
import dataclasses
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
    Samples,
    Seed,
    ShuffleSeed,
    SpecialTokens,
    StateDir,
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
    one_of,
    settings_or_exit,
)
from crucible_worker.cli.workspace import with_roots
from crucible_worker.util.interrupts import raise_interrupts

if TYPE_CHECKING:
    from crucible_worker.cli.following import FollowOptions
    from crucible_worker.cli.requests import EvaluateOptions
    from crucible_worker.config import Settings

__all__ = ["follow"]

_Directory = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="Directory in which the run saves its checkpoints; it need not exist yet."),
]
_Plan = Annotated[
    Path | None,
    typer.Option(
        "--plan", metavar="FILE", help="In place of --data and --suite: a plan's file (.toml), with its intervals."
    ),
]
_Policy = Annotated[
    str,
    typer.Option(
        metavar="POLICY",
        help="Which checkpoints are evaluated: all, latest or every; see --every.",
        autocompletion=one_of("all", "latest", "every"),
    ),
]
_Every = Annotated[
    int | None,
    typer.Option(metavar="K", min=1, help="With --policy every: take the first checkpoint, and each K-th after it."),
]
_NamePattern = Annotated[
    str,
    typer.Option(
        metavar="PATTERN",
        help="How checkpoints are named, as in ckpt-{step}. [default: the names of known trainers]",
    ),
]
_Marker = Annotated[
    str, typer.Option(metavar="NAME", help="Take a checkpoint once it has a file of this name. [default: no marker]")
]
_BaseModel = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="Model of adapters, local: or hub:, or managed:SERVER for all. [default: the one that they name]",
    ),
]
_HoldFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Hold checkpoints here while they are read. [default: .crucible in the directory]"
    ),
]
_Mark = Annotated[bool, typer.Option("--mark", help="Put a file .released into a checkpoint that is no longer read.")]
_ExitWhenIdle = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        min=0.0,
        help="End once nothing runs and no checkpoint became whole for so long, from the start on. "
        "[default: only by Ctrl-C]",
    ),
]
_RunId = Annotated[
    str | None, typer.Option("--run-id", metavar="RUN", help="The training run. [default: the directory's name]")
]
_PlanId = Annotated[
    str | None,
    typer.Option("--id", metavar="ID", help="Evaluations are named ID-step-STEP-N. [default: the run]"),
]


def follow(
    directory: _Directory,
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
    plan: _Plan = None,
    policy: _Policy = "all",
    every: _Every = None,
    name_pattern: _NamePattern = "",
    marker: _Marker = "",
    base_model: _BaseModel = None,
    exit_when_idle: _ExitWhenIdle = None,
    mark: _Mark = False,
    hold_folder: _HoldFolder = None,
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
    run_id: _RunId = None,
    label: Labels = None,
    role: Roles = None,
    prefix: Prefix = None,
    timeout: Timeout = None,
    plan_id: _PlanId = None,
    config: ConfigWithOptions = None,
    state_dir: StateDir = None,
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
    as_json: Json = False,
) -> None:
    """Evaluate the checkpoints of a training run as they are saved: by --data and --evaluator, --suite or --plan.

    A checkpoint is evaluated once it is whole, and is held by hard links meanwhile: the trainer may delete it, and
    needs no change. The results stay in the journal, where `crucible-worker list`, `report` and `view` find them.

    The same command again resumes, after Ctrl-C or a crash. With --json each evaluation that has ended is one line.

    Exits with 0 by --exit-when-idle, or 1 if an evaluation failed or was refused; 2 if the options are refused, 130 by
    Ctrl-C.

    Example: crucible-worker follow runs/mine --data builtin:arithmetic --evaluator nll --exit-when-idle 60
    """
    parameters = {**locals()}  # by name, for `EvaluateOptions`
    from crucible_worker.cli.following import PLACEHOLDER, FollowOptions
    from crucible_worker.cli.requests import EvaluateOptions, allowing, evaluators_of

    raise_interrupts()
    target = Path(directory).absolute()
    typed = EvaluateOptions.of([PLACEHOLDER], {**parameters, "run_id": None}, kept=True)
    typed = dataclasses.replace(typed, evaluators=evaluators_of(evaluator or (), task or ()))
    asked = FollowOptions(
        directory=target,
        run_id=target.resolve().name if run_id is None else run_id,
        plan_id=plan_id,
        plan_file=plan,
        policy=policy,
        every=every,
        name_pattern=name_pattern,
        marker=marker,
        base_model=base_model,
        hold_folder=None if hold_folder is None else hold_folder.absolute(),
        mark=mark,
    )
    settings = settings_or_exit(
        config,
        state_dir=state_dir,
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
    settings = allowing(typed.tasks, with_roots(settings))
    own_roots = (target, *(() if asked.hold_folder is None else (asked.hold_folder,)))
    settings = dataclasses.replace(settings, model_roots=(*own_roots, *settings.model_roots))
    try:
        raise typer.Exit(_run(settings, typed, asked, exit_when_idle, as_json=as_json))
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _run(
    settings: Settings, typed: EvaluateOptions, asked: FollowOptions, idle_seconds: float | None, *, as_json: bool
) -> int:
    from crucible_bridge.errors import BridgeError
    from crucible_worker.cli.custom_files import custom_files_of
    from crucible_worker.cli.following import refusing_follow, request_of, run
    from crucible_worker.cli.refusals import Refused, refusing
    from crucible_worker.cli.requests import check_allowed

    try:
        with refusing(settings, typed.evaluators):
            typed, custom = custom_files_of(typed)
        with refusing_follow(settings, typed, asked):
            request = request_of(typed, asked, custom.evaluator_parts)
            check_allowed(typed.tasks, settings)
        return asyncio.run(
            run(
                settings,
                request,
                custom,
                lambda: refusing_follow(settings, typed, asked),
                idle_seconds,
                as_json=as_json,
            )
        )
    except Refused as refused:
        typer.echo(f"crucible-worker: {refused}", err=True)
        return EXIT_USAGE
    except BridgeError as error:
        typer.echo(f"crucible-worker: {error}", err=True)
        return EXIT_FAILED
    except (asyncio.CancelledError, KeyboardInterrupt) as ended:
        typer.echo("crucible-worker: ended while it followed; the same command resumes", err=True)
        return EXIT_INTERRUPTED if isinstance(ended, KeyboardInterrupt) else EXIT_FAILED
