"""`crucible-worker evaluate`: an evaluation, or those of a suite, in this process, without a server."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crucible_worker.cli.here import state_folder, with_roots
from crucible_worker.cli.options import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    Config,
    DataRoot,
    Device,
    EnvironmentVariable,
    HubNetwork,
    InspectPackage,
    InspectRoot,
    Json,
    LogDir,
    ModelRoot,
    OpenAIServer,
    Price,
    TinkerService,
    settings_or_exit,
)
from crucible_worker.cli.request_options import (
    Concurrency,
    Data,
    EvaluationId,
    Evaluators,
    FewShot,
    FewShotSeed,
    Grader,
    MaxTokens,
    MaxUnscored,
    Only,
    Options,
    Record,
    Renderer,
    Samples,
    Seed,
    ShuffleSeed,
    Stop,
    SuiteFile,
    System,
    Tasks,
    Temperature,
    Template,
    Where,
)
from crucible_worker.interrupts import raise_interrupts

if TYPE_CHECKING:
    from crucible_worker.cli.requests import Typed
    from crucible_worker.config import Settings

__all__ = ["evaluate"]

_Model = Annotated[
    list[str],
    typer.Option(
        metavar="MODEL",
        help="embedded:NAME@STEP, local:PATH below a model root, hub:OWNER/NAME, openai:SERVER/MODEL, tinker://PATH, "
        "tinker:BASE, or SCHEME:NAME of an installed backend; repeatable: each further one is compared with the first.",
    ),
]
_State = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        help="Keep the results in this journal. [default: they are only printed]",
    ),
]


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
    evaluation_id: EvaluationId = None,
    config: Config = None,
    state_dir: _State = None,
    log_dir: LogDir = None,
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
    """Evaluate a model in this process, without a worker: by --data and --evaluator, by --task or by --suite.

    Several models are evaluated one after another, then compared with the first, sample by sample.

    Files are read below the current folder, unless --model-root or --data-root names another.

    Exits with 0 if every evaluator finished, 1 if one failed or scored none of its samples, 2 if the request is refused
    before anything ran. If an evaluation of a suite fails, the next ones still run. With --json an evaluation that did
    not run is an object with the key error.

    Example: crucible-worker evaluate --model embedded:arithmetic@600 --data builtin:arithmetic --evaluator nll
    --evaluator accuracy --option accuracy.grader=numeric --max-tokens 8
    """
    parameters = locals().copy()  # by name, for `Typed`
    from crucible_worker.cli.requests import Typed
    from crucible_worker.cli.tasks import allowing, evaluators_of

    importlib.import_module("crucible_worker.cli.run_summary")
    # Everything is loaded; from here on there is something to clean up.
    raise_interrupts()
    typed = dataclasses.replace(Typed.of(model, parameters), evaluators=evaluators_of(evaluator or (), task or ()))
    try:
        with state_folder(state_dir) as folder:
            settings = allowing(
                typed.tasks,
                with_roots(
                    settings_or_exit(
                        config,
                        state_dir=folder,
                        log_dir=log_dir,
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
            raise typer.Exit(_run(settings, typed, as_json=as_json))
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _run(settings: Settings, typed: Typed, *, as_json: bool) -> int:
    """Run the requested evaluations and write their results; returns the exit status."""
    from crucible_bridge.errors import BridgeError
    from crucible_worker.cli.own_files import own_of
    from crucible_worker.cli.refusals import Refused, refusing
    from crucible_worker.cli.requests import evaluations_to_run
    from crucible_worker.cli.run_summary import RunSummary, write_error
    from crucible_worker.cli.running import run
    from crucible_worker.cli.tasks import check_allowed

    outcome = RunSummary(models=typed.models)
    try:
        with refusing(settings, typed.evaluators):
            typed, own = own_of(typed)
        with refusing(settings, typed.evaluators):
            outcome.suite, asked = evaluations_to_run(typed, own.evaluator_parts)
            check_allowed(typed.tasks, settings)
        outcome.total = len(asked)
        outcome.compared = asyncio.run(run(settings, asked, typed.evaluators, outcome.several, own, quiet=as_json))
    except Refused as refused:
        write_error(refused.error, str(refused), as_json=as_json)
        return EXIT_USAGE
    except BridgeError as error:
        write_error(error, str(error), as_json=as_json)
        return EXIT_FAILED
    except (asyncio.CancelledError, KeyboardInterrupt) as ended:
        if outcome.several:
            outcome.write(as_json=as_json)
        goes_on = "; the same command resumes it" if typed.evaluation_id else ""
        typer.echo(f"crucible-worker: ended before all was evaluated{goes_on}", err=True)
        return EXIT_INTERRUPTED if isinstance(ended, KeyboardInterrupt) else EXIT_FAILED
    outcome.write(as_json=as_json)
    return outcome.exit_code()
