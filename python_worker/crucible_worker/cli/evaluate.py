"""`crucible-worker evaluate`: an evaluation, or those of a suite, in this process, with no server."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    TinkerService,
    settings_or_exit,
)

if TYPE_CHECKING:
    from crucible_bridge.errors import BridgeError
    from crucible_bridge.types import Evaluation, Problem
    from crucible_worker.cli.requests import Typed
    from crucible_worker.cli.running import NotRun, Ran
    from crucible_worker.config import Settings

__all__ = ["evaluate"]

_Model = Annotated[
    str,
    typer.Option(
        metavar="MODEL",
        help="embedded:NAME@STEP, local:PATH below a model root, openai:SERVER/MODEL, tinker://PATH or tinker:BASE.",
    ),
]
_Data = Annotated[
    str | None,
    typer.Option(
        metavar="DATA",
        help="builtin:NAME, jsonl:PATH below a data root, or hub:OWNER/NAME?split=SPLIT&input=COLUMN&target=COLUMN.",
    ),
]
_Evaluators = Annotated[
    list[str] | None,
    typer.Option(
        "--evaluator",
        metavar="[NAME=]KIND",
        # Words, not the registry: help is there before anything is imported.
        help="accuracy, bits_per_byte, classification, comparison, inspect, multiple_choice, next_token_accuracy, nll, "
        "pass_at_k, perplexity, rl_test_set, rollout or rubric; NAME prefixes keys; repeatable.",
    ),
]
_Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="EVALUATOR.KEY=VALUE", help="An evaluator's option; VALUE is JSON or text; repeatable."
    ),
]
_Suite = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|NAME",
        help="A suite's file (.toml), or one that ships: chat, code, math or tool_use; see `crucible-worker suites`.",
    ),
]
_Only = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Of the suite, run this evaluation alone; repeatable.")
]
_Samples = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Take the first N samples, of each data set of a suite.")
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
_Id = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="ID",
        help="Identity in the journal of --state-dir: asked again, what is there goes on, or is shown. ID-NAME in a "
        "suite. [default: made]",
    ),
]
_State = Annotated[
    Path | None, typer.Option("--state-dir", metavar="DIR", help="Keep the evaluation in this journal. [default: none]")
]


def evaluate(
    model: _Model,
    data: _Data = None,
    evaluator: _Evaluators = None,
    option: _Options = None,
    suite: _Suite = None,
    only: _Only = None,
    samples: _Samples = None,
    max_tokens: _MaxTokens = None,
    temperature: _Temperature = None,
    seed: _Seed = None,
    stop: _Stop = None,
    max_unscored: _MaxUnscored = None,
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
    as_json: Json = False,
) -> None:
    """Evaluate a model here and now, without a worker: by --data and --evaluator, or by --suite.

    Model and data roots are the current folder unless said otherwise. Exits with 0 when every evaluator finished, 1
    when one failed or scored none of its samples, 2 when the request is refused before anything ran: it makes no sense,
    or names what is not there.
    An evaluation of a suite that fails leaves the others be. With --json an evaluation that did not take place is one
    object with the key error.

    Example: crucible-worker evaluate --model embedded:arithmetic@600 --data builtin:arithmetic --evaluator nll
    --evaluator accuracy --option accuracy.grader=numeric --max-tokens 8
    """
    from crucible_worker.cli.requests import Typed

    typed = Typed(
        model=model,
        data=data,
        evaluators=evaluator or (),
        options=option or (),
        suite=suite,
        only=only or (),
        samples=samples,
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        stop=stop or (),
        max_unscored=max_unscored,
        evaluation_id=evaluation_id,
        kept=state_dir is not None,
    )
    with _state(state_dir) as folder:
        settings = _with_roots(
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
            )
        )
        raise typer.Exit(_run(settings, typed, as_json=as_json))


def _run(settings: Settings, typed: Typed, *, as_json: bool) -> int:
    """Run what was asked for and write what became of it; the exit status."""
    from crucible_bridge.errors import BridgeError
    from crucible_worker.cli.refusals import Refused, refusing
    from crucible_worker.cli.requests import asked_of
    from crucible_worker.cli.running import Ran, run

    suite, asked, several = "", [], []
    try:
        with refusing(settings, typed.evaluators):
            suite, asked = asked_of(typed)
        asyncio.run(run(settings, asked, typed.evaluators, several, quiet=as_json))
    except Refused as refused:
        _write_error(refused.error, str(refused), as_json=as_json)
        return EXIT_USAGE
    except BridgeError as error:
        _write_error(error, str(error), as_json=as_json)
        return EXIT_FAILED
    except (asyncio.CancelledError, KeyboardInterrupt) as ended:
        if several:
            _write_all(suite, typed.model, several, len(asked), as_json=as_json)
        goes_on = "; the same command goes on" if typed.evaluation_id else ""
        typer.echo(f"crucible-worker: ended before all was evaluated{goes_on}", err=True)
        return EXIT_INTERRUPTED if isinstance(ended, KeyboardInterrupt) else EXIT_FAILED
    _write_all(suite, typed.model, several, len(asked), as_json=as_json)
    scored = _tell_without_scores(several)
    if all(isinstance(each, Ran) and each.succeeded for each in several):
        return 0 if scored else EXIT_FAILED
    return EXIT_FAILED if any(isinstance(each, Ran) or not each.refused for each in several) else EXIT_USAGE


@contextlib.contextmanager
def _state(given: Path | None) -> Iterator[Path]:
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="crucible-evaluate-") as folder:
        yield Path(folder)


def _with_roots(settings: Settings) -> Settings:
    """Whoever types a command here may name what lies here."""
    here = (Path.cwd(),)
    return dataclasses.replace(
        settings, model_roots=settings.model_roots or here, data_roots=settings.data_roots or here
    )


def _write_error(error: BridgeError, message: str, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"error": _error_as_data(error, message)}))
    typer.echo(f"crucible-worker: {message}", err=True)


def _error_as_data(error: BridgeError, message: str) -> dict[str, Any]:
    return {"code": error.code.value, "reason": error.reason, "field": error.field, "message": message}


def _write(ran: Ran | NotRun, *, as_json: bool) -> None:
    from crucible_worker.cli.running import Ran

    if not isinstance(ran, Ran):
        _write_error(ran.error, ran.message, as_json=as_json)
    elif as_json:
        typer.echo(json.dumps(_as_data(ran), allow_nan=False))
    else:
        _write_table(ran)


def _write_all(suite: str, model: str, several: Sequence[Ran | NotRun], total: int, *, as_json: bool) -> None:
    """A table for each evaluation that has ended, or one object for all of a suite."""
    from crucible_worker.cli.running import Ran

    if not suite:
        _write(several[0], as_json=as_json)
        return
    if as_json:
        evaluations = [{"name": ran.name, **_as_data(ran)} for ran in several]
        typer.echo(json.dumps({"suite": suite, "model": model, "evaluations": evaluations}, allow_nan=False))
        return
    for ran in several:
        if isinstance(ran, Ran):
            _write_table(ran)
        else:
            typer.echo(f"{ran.name}: did not take place: {ran.message}")
    finished = sum(isinstance(ran, Ran) and ran.succeeded for ran in several)
    typer.echo(f"{suite}: {finished} of {total} finished")


def _tell_without_scores(several: Sequence[Ran | NotRun]) -> bool:
    """Say which evaluators have no sample behind their result; whether there are none such."""
    from crucible_worker.cli.running import Ran

    found = [(ran.name, result) for ran in several if isinstance(ran, Ran) for result in ran.without_scores]
    for name, result in found:
        label = " ".join(filter(None, (name and f"{name}:", result.evaluator.label)))
        typer.echo(f"crucible-worker: {label} scored none of {result.n:,} samples", err=True)
    return not found


def _as_data(ran: Ran | NotRun) -> dict[str, Any]:
    from crucible_worker.cli.running import Ran
    from crucible_worker.cli.tables import evaluation_as_data

    if isinstance(ran, Ran):
        return evaluation_as_data(ran.evaluation, ran.first_unscored)
    return {"error": _error_as_data(ran.error, ran.message)}


def _write_table(ran: Ran) -> None:
    from crucible_worker.cli.tables import write_table

    title = ", ".join(filter(None, (ran.name, _title(ran.evaluation))))
    write_table(sys.stdout, title, ("key", "value"), _rows(ran))


def _rows(ran: Ran) -> list[Sequence[str]]:
    evaluation = ran.evaluation
    metrics = evaluation.metrics
    rows: list[Sequence[str]] = [[key, f"{value:.6g}"] for key, value in metrics.values.items()]
    rows += [[key, f"undefined: {reason}"] for key, reason in metrics.undefined.items()]
    for result in evaluation.results:
        rows.append([f"{result.evaluator.label}: scored", f"{result.n_scored} of {result.n}"])
        if (first := ran.first_unscored.get(result.evaluator.label)) is not None:
            why = first.verdict.value if first.problem is None else _told(first.problem)
            rows.append(
                [f"{result.evaluator.label}: unscored", f"{result.n_unscored}, the first {first.sample_id!r}: {why}"]
            )
        if result.problem is not None:
            rows.append([f"{result.evaluator.label}: failed", _told(result.problem)])
    if evaluation.problem is not None:
        rows.append([evaluation.state.value, _told(evaluation.problem)])
    return rows


def _told(problem: Problem) -> str:
    return " ".join(filter(None, (problem.field, problem.message)))


def _title(evaluation: Evaluation) -> str:
    from crucible_bridge.types import format_model

    return f"{format_model(evaluation.request.model)}: {evaluation.state.value} in {evaluation.duration_ns / 1e9:.1f} s"
