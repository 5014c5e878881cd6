"""Evaluations run one after the other in this process, with no server."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence

from crucible_bridge.codec.events import event_from_record
from crucible_bridge.errors import BridgeError
from crucible_bridge.types import Evaluation, EvaluationState, SampleResult, Verdict, format_model
from crucible_worker.cli.progress import Show, progress
from crucible_worker.cli.refusals import Refused, refusing
from crucible_worker.cli.requests import Asked
from crucible_worker.config import Settings
from crucible_worker.runs.evaluations import Evaluations
from crucible_worker.server.parts import build
from crucible_worker.telemetry.logging import configure_logging

__all__ = ["NotRun", "Ran", "run"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """An evaluation that took place."""

    name: str
    """Of a suite's member; may be empty."""
    evaluation: Evaluation
    """As it ended."""
    first_unscored: Mapping[str, SampleResult]
    """By evaluator: without it nobody would learn why, as the journal may be gone with the command."""

    @property
    def succeeded(self) -> bool:
        """Whether every evaluator finished."""
        finished = all(result.problem is None for result in self.evaluation.results)
        return finished and self.evaluation.state is EvaluationState.COMPLETED


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NotRun:
    """An evaluation that was not taken on."""

    name: str
    """Of a suite's member; may be empty."""
    error: BridgeError
    """Why."""
    message: str
    """The same, in the words of who asked."""
    refused: bool
    """The request is what is wrong."""


async def run(
    settings: Settings, asked: Sequence[Asked], evaluators: Sequence[str], *, quiet: bool
) -> list[Ran | NotRun]:
    """Run evaluations in order; one that is not taken on leaves the others be.

    Args:
        settings: of the worker that this process is meanwhile.
        asked: what to run.
        evaluators: as typed, "[NAME=]KIND", for what refuses them.
        quiet: write no progress where nobody watches.

    Raises:
        BridgeError: nothing can be run here, whatever is asked.
    """
    log_writer = configure_logging("console", "warning")
    parts = await build(settings)
    try:
        with progress(sys.stderr, quiet=quiet) as show:
            return [await _one(parts.evaluations, settings, each, evaluators, show) for each in asked]
    finally:
        await parts.evaluations.drain()
        await parts.aclose_children()
        await parts.evaluations.aclose()
        log_writer.close(1.0)


async def _one(
    evaluations: Evaluations, settings: Settings, asked: Asked, evaluators: Sequence[str], show: Show
) -> Ran | NotRun:
    try:
        with refusing(settings, evaluators, asked.path):
            evaluation, existed = await evaluations.start(asked.request)
    except Refused as refused:
        return NotRun(name=asked.name, error=refused.error, message=str(refused), refused=True)
    except BridgeError as error:
        return NotRun(name=asked.name, error=error, message=str(error), refused=False)
    label = asked.name or format_model(asked.request.model)
    # What was told of it before is not told again.
    after = evaluation.last_sequence if existed else 0
    pages = evaluations.watch(
        evaluation.evaluation_id, after_sequence=after, log_id=evaluations.log_id, without_samples=True
    )
    async for page in pages:
        for sequence, record in page.records:
            show(label, event_from_record(sequence, record))
    evaluation = await evaluations.get(evaluation.evaluation_id)
    return Ran(name=asked.name, evaluation=evaluation, first_unscored=await _first_unscored(evaluations, evaluation))


async def _first_unscored(evaluations: Evaluations, evaluation: Evaluation) -> dict[str, SampleResult]:
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
