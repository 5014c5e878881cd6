"""`crucible-worker evaluate`: an evaluation, or those of a suite, in this process, with no server."""

from __future__ import annotations

import asyncio
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
    ModelRoot,
    OpenAIServer,
    Price,
    TinkerService,
    settings_or_exit,
)
from crucible_worker.cli.request_options import (
    Data,
    Evaluators,
    FewShot,
    FewShotSeed,
    Grader,
    Only,
    Options,
    Renderer,
    SuiteFile,
    System,
    Tasks,
    Template,
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
_Samples = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="Take the first N samples, of each data set of a suite; with --task, of each task."
    ),
]
_Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Take only samples whose metadata has this value, before shuffling and --samples; repeatable.",
    ),
]
_ShuffleSeed = Annotated[
    int | None, typer.Option(metavar="N", help="Take the samples in an order shuffled by this seed.")
]
_Concurrency = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Samples in flight at once. [default: the worker's default_concurrency]"),
]
_MaxTokens = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Generate at most N tokens a sample. [default: 256]")
]
_Temperature = Annotated[float | None, typer.Option(metavar="T", min=0.0, help="0 is greedy. [default: 0]")]
_Seed = Annotated[int | None, typer.Option(metavar="N", help="Seed of sampling.")]
_Stop = Annotated[list[str] | None, typer.Option(metavar="TEXT", help="Stop string; repeatable.")]
_MaxUnscored = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="Fail an evaluator that leaves more samples unscored.")
]
_Record = Annotated[
    str | None,
    typer.Option(
        "--record",
        metavar="WHAT",
        help="What is recorded of each sample: full, outputs or none. [default: full, or what the suite says]",
    ),
]
_Id = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="ID",
        help="Identity in the journal of --state-dir: given again, the evaluation resumes, or is shown. ID-NAME in a "
        "suite, ID-MODEL with several models. [default: made]",
    ),
]
_State = Annotated[
    Path | None, typer.Option("--state-dir", metavar="DIR", help="Keep the evaluation in this journal. [default: none]")
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
    samples: _Samples = None,
    where: _Where = None,
    shuffle_seed: _ShuffleSeed = None,
    concurrency: _Concurrency = None,
    max_tokens: _MaxTokens = None,
    temperature: _Temperature = None,
    seed: _Seed = None,
    stop: _Stop = None,
    max_unscored: _MaxUnscored = None,
    record: _Record = None,
    evaluation_id: _Id = None,
    config: Config = None,
    state_dir: _State = None,
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
    """Evaluate a model here and now, without a worker: by --data and --evaluator, by --task or by --suite.

    Several models are evaluated one after another, then compared with the first, sample by sample.

    Model and data roots are the current folder unless said otherwise. Exits with 0 when every evaluator finished, 1
    when one failed or scored none of its samples, 2 when the request is refused before anything ran: it makes no sense,
    or names what is not there.
    An evaluation of a suite that fails leaves the others be. With --json an evaluation that did not take place is one
    object with the key error.

    Example: crucible-worker evaluate --model embedded:arithmetic@600 --data builtin:arithmetic --evaluator nll
    --evaluator accuracy --option accuracy.grader=numeric --max-tokens 8
    """
    from crucible_worker.cli.requests import Typed
    from crucible_worker.cli.tasks import allowing, evaluators_of

    importlib.import_module("crucible_worker.cli.outcome")
    # All is loaded, and from here on there is something to clean up.
    raise_interrupts()
    typed = Typed(
        models=model,
        data=data,
        tasks=task or (),
        evaluators=evaluators_of(evaluator or (), task or ()),
        options=option or (),
        grader=grader,
        renderer=renderer,
        system=system,
        template=template,
        few_shot=few_shot,
        few_shot_seed=few_shot_seed,
        suite=suite,
        only=only or (),
        samples=samples,
        where=where or (),
        shuffle_seed=shuffle_seed,
        concurrency=concurrency,
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        stop=stop or (),
        max_unscored=max_unscored,
        record=record,
        evaluation_id=evaluation_id,
        kept=state_dir is not None,
    )
    try:
        with state_folder(state_dir) as folder:
            settings = allowing(
                typed.tasks,
                with_roots(
                    settings_or_exit(
                        config,
                        state_dir=folder,
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
    """Run what was asked for and write what became of it; the exit status."""
    from crucible_bridge.errors import BridgeError
    from crucible_worker.cli.outcome import Outcome, write_error
    from crucible_worker.cli.own_files import own_of
    from crucible_worker.cli.refusals import Refused, refusing
    from crucible_worker.cli.requests import asked_of
    from crucible_worker.cli.running import run
    from crucible_worker.cli.tasks import check_allowed

    outcome = Outcome(models=typed.models)
    try:
        with refusing(settings, typed.evaluators):
            typed, own = own_of(typed)
        with refusing(settings, typed.evaluators):
            outcome.suite, asked = asked_of(typed, own.evaluator_parts)
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
