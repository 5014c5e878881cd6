"""`crucible-worker evaluate`: one evaluation in this process, with no server."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crucible_worker.cli.options import (
    EXIT_FAILED,
    EXIT_USAGE,
    Config,
    DataRoot,
    Device,
    HubNetwork,
    Json,
    ModelRoot,
    OpenAIServer,
    TinkerService,
    settings_or_exit,
)

if TYPE_CHECKING:
    from crucible_bridge.errors import BridgeError
    from crucible_bridge.types import EvaluateRequest, Evaluation, Problem, SampleResult
    from crucible_worker.config import Settings
    from crucible_worker.runs.evaluations import Evaluations

__all__ = ["evaluate"]

_Model = Annotated[
    str,
    typer.Option(
        metavar="MODEL",
        help="embedded:NAME@STEP, local:PATH below a model root, openai:SERVER/MODEL, tinker://PATH or tinker:BASE.",
    ),
]
_Data = Annotated[
    str,
    typer.Option(
        metavar="DATA",
        help="builtin:NAME, jsonl:PATH below a data root, or hub:OWNER/NAME?split=SPLIT&input=COLUMN&target=COLUMN.",
    ),
]
_Evaluators = Annotated[
    list[str],
    typer.Option(
        "--evaluator",
        metavar="[NAME=]KIND",
        # Words, not the registry: help is there before anything is imported.
        help="accuracy, bits_per_byte, classification, comparison, multiple_choice, nll, pass_at_k or perplexity; "
        "NAME prefixes keys; repeatable.",
    ),
]
_Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="EVALUATOR.KEY=VALUE", help="An evaluator's option; VALUE is JSON or text; repeatable."
    ),
]
_Samples = Annotated[int | None, typer.Option(metavar="N", min=1, help="Take the first N samples.")]
_MaxTokens = Annotated[int, typer.Option(metavar="N", min=1, help="Generate at most N tokens a sample.")]
_Temperature = Annotated[float, typer.Option(metavar="T", min=0.0, help="0 is greedy.")]
_Seed = Annotated[int | None, typer.Option(metavar="N", help="Seed of sampling.")]
_Stop = Annotated[list[str] | None, typer.Option(metavar="TEXT", help="Stop string; repeatable.")]
_MaxUnscored = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="Fail an evaluator that leaves more samples unscored.")
]
_State = Annotated[
    Path | None, typer.Option("--state-dir", metavar="DIR", help="Keep the evaluation in this journal. [default: none]")
]


def evaluate(
    model: _Model,
    data: _Data,
    evaluator: _Evaluators,
    option: _Options = None,
    samples: _Samples = None,
    max_tokens: _MaxTokens = 256,
    temperature: _Temperature = 0.0,
    seed: _Seed = None,
    stop: _Stop = None,
    max_unscored: _MaxUnscored = None,
    config: Config = None,
    state_dir: _State = None,
    model_root: ModelRoot = None,
    data_root: DataRoot = None,
    hub_network: HubNetwork = None,
    device: Device = None,
    openai_server: OpenAIServer = None,
    tinker_service: TinkerService = None,
    as_json: Json = False,
) -> None:
    """Evaluate a model here and now, without a worker.

    Model and data roots are the current folder unless said otherwise. Exits with 0 when every evaluator finished, 1
    when one failed, 2 when the request is refused before anything ran: it makes no sense, or names what is not there.
    With --json an evaluation that did not take place is one object with the key error.

    Example: crucible-worker evaluate --model embedded:arithmetic@600 --data builtin:arithmetic --evaluator nll
    --evaluator accuracy --option accuracy.grader=numeric --max-tokens 8
    """
    from crucible_bridge.errors import BridgeError
    from crucible_bridge.types import Dataset, EvaluateRequest, Limits, SamplingParams, parse_model
    from crucible_worker.cli.refusals import Refused, refusing

    with _state(state_dir) as folder:
        settings = _with_roots(
            settings_or_exit(
                config,
                state_dir=folder,
                device=device,
                model_roots=model_root,
                data_roots=data_root,
                hub_network=hub_network,
                openai_servers=openai_server,
                tinker_services=tinker_service,
            )
        )
        try:
            with refusing(settings, evaluator):
                request = EvaluateRequest(
                    model=parse_model(model),
                    evaluators=_evaluators(evaluator, option or ()),
                    dataset=Dataset(source=Dataset.of(data).source, limit=samples),
                    sampling=SamplingParams(
                        max_tokens=max_tokens, temperature=temperature, seed=seed, stop=tuple(stop or ())
                    ),
                    limits=Limits(max_unscored=max_unscored),
                )
            evaluation, unscored = asyncio.run(_evaluate(settings, request, evaluator, quiet=as_json))
        except Refused as refused:
            _write_error(refused.error, str(refused), as_json=as_json)
            raise typer.Exit(EXIT_USAGE) from None
        except BridgeError as error:
            _write_error(error, str(error), as_json=as_json)
            raise typer.Exit(EXIT_FAILED) from None
    _write(evaluation, unscored, as_json=as_json)
    raise typer.Exit(0 if _succeeded(evaluation) else EXIT_FAILED)


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


def _evaluators(texts: Sequence[str], options: Sequence[str]) -> tuple[Any, ...]:
    """Read "[NAME=]KIND" and "LABEL.KEY=VALUE"; the label is the name, or the kind where there is none."""
    from crucible_bridge.errors import InvalidField
    from crucible_bridge.types import EvaluatorSpec

    by_label: dict[str, dict[str, Any]] = {}
    for index, text in enumerate(options):
        place, separator, value = text.partition("=")
        label, dot, key = place.rpartition(".")
        if not (separator and dot and label and key):
            raise InvalidField(f"option[{index}]", f"is {text!r}, not EVALUATOR.KEY=VALUE")
        by_label.setdefault(label, {})[key] = _json_or_text(value)
    specs = []
    for text in texts:
        name, separator, kind = text.rpartition("=")
        label = name if separator else kind
        specs.append(EvaluatorSpec(kind=kind, name=name if separator else None, options=by_label.pop(label, {})))
    if by_label:
        raise InvalidField("option", f"names {', '.join(sorted(by_label))}, which --evaluator does not")
    return tuple(specs)


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


async def _evaluate(
    settings: Settings, request: EvaluateRequest, evaluators: Sequence[str], *, quiet: bool
) -> tuple[Evaluation, Mapping[str, SampleResult]]:
    from crucible_bridge.codec.events import event_from_record
    from crucible_bridge.types import format_model
    from crucible_worker.cli.progress import progress
    from crucible_worker.cli.refusals import refusing
    from crucible_worker.server.parts import build
    from crucible_worker.telemetry.logging import configure_logging

    log_writer = configure_logging("console", "warning")
    parts = await build(settings)
    try:
        with refusing(settings, evaluators):
            evaluation, _ = await parts.evaluations.start(request)
        pages = parts.evaluations.watch(evaluation.evaluation_id, after_sequence=0, log_id="", without_samples=True)
        with progress(sys.stderr, quiet=quiet) as show:
            async for page in pages:
                for sequence, record in page.records:
                    show(format_model(request.model), event_from_record(sequence, record))
        evaluation = await parts.evaluations.get(evaluation.evaluation_id)
        return evaluation, await _first_unscored(parts.evaluations, evaluation)
    finally:
        await parts.evaluations.drain()
        await parts.aclose_children()
        await parts.evaluations.aclose()
        log_writer.close(1.0)


async def _first_unscored(evaluations: Evaluations, evaluation: Evaluation) -> dict[str, SampleResult]:
    """By evaluator: without it nobody would learn why, as the journal is gone with the command."""
    from crucible_bridge.types import Verdict

    verdicts = [verdict for verdict in Verdict if not verdict.scored]
    found = {}
    for result in evaluation.results:
        label = result.evaluator.label
        samples, _ = await evaluations.samples(
            evaluation.evaluation_id, verdicts=verdicts, evaluator=label, page_size=1
        )
        if samples:
            found[label] = samples[0]
    return found


def _succeeded(evaluation: Evaluation) -> bool:
    from crucible_bridge.types import EvaluationState

    return evaluation.state is EvaluationState.COMPLETED and all(r.problem is None for r in evaluation.results)


def _write_error(error: BridgeError, message: str, *, as_json: bool) -> None:
    if as_json:
        told = {"code": error.code.value, "reason": error.reason, "field": error.field, "message": message}
        typer.echo(json.dumps({"error": told}))
    typer.echo(f"crucible-worker: {message}", err=True)


def _write(evaluation: Evaluation, unscored: Mapping[str, SampleResult], *, as_json: bool) -> None:
    from crucible_worker.cli.tables import evaluation_as_data, write_table

    if as_json:
        typer.echo(json.dumps(evaluation_as_data(evaluation, unscored), allow_nan=False))
        return
    metrics = evaluation.metrics
    rows = [[key, f"{value:.6g}"] for key, value in metrics.values.items()]
    rows += [[key, f"undefined: {reason}"] for key, reason in metrics.undefined.items()]
    for result in evaluation.results:
        rows.append([f"{result.evaluator.label}: scored", f"{result.n_scored} of {result.n}"])
        if (first := unscored.get(result.evaluator.label)) is not None:
            why = first.verdict.value if first.problem is None else _told(first.problem)
            rows.append(
                [f"{result.evaluator.label}: unscored", f"{result.n_unscored}, the first {first.sample_id!r}: {why}"]
            )
        if result.problem is not None:
            rows.append([f"{result.evaluator.label}: failed", _told(result.problem)])
    if evaluation.problem is not None:
        rows.append([evaluation.state.value, _told(evaluation.problem)])
    write_table(sys.stdout, _title(evaluation), ("key", "value"), rows)


def _told(problem: Problem) -> str:
    return " ".join(filter(None, (problem.field, problem.message)))


def _title(evaluation: Evaluation) -> str:
    from crucible_bridge.types import format_model

    return f"{format_model(evaluation.request.model)}: {evaluation.state.value} in {evaluation.duration_ns / 1e9:.1f} s"
