"""Evaluations run one after the other in this process, without a server."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import sys
from collections.abc import AsyncIterator, Mapping, Sequence

from crucible_bridge.codec.events import events_from_records
from crucible_bridge.errors import BridgeError, NotFound
from crucible_bridge.events import EventKind
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Evaluation, EvaluationState, EvaluatorResult, Problem, SampleResult, Verdict
from crucible_worker.cli.compared import Compared, compared
from crucible_worker.cli.progress import Show, progress
from crucible_worker.cli.refusals import Refused, in_flags, refusing
from crucible_worker.cli.requests import EvaluationToRun
from crucible_worker.cli.workspace import Termination, opened
from crucible_worker.config import Settings
from crucible_worker.engine.phases import Phase
from crucible_worker.evaluations import Evaluations
from crucible_worker.journal.records import Joint
from crucible_worker.server.parts import CustomFiles
from crucible_worker.telemetry.logging import configure_logging

__all__ = ["EvaluationRun", "NotRun", "run"]

PHASE_SECONDS = 0.2
"""Between two looks at what is done."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRun:
    """An evaluation that ran."""

    model: str
    """The model as it was typed."""
    name: str
    """The name of a suite's evaluation; may be empty."""
    evaluation: Evaluation
    """The evaluation when it ended."""
    first_unscored: Mapping[str, SampleResult]
    """The first unscored sample of each evaluator, with its problem: the journal may be deleted with the command."""
    joint: Joint | None = None
    """How the first prompt and its target meet; None if a template joins them."""

    @property
    def succeeded(self) -> bool:
        """Whether every evaluator finished."""
        finished = all(result.problem is None for result in self.evaluation.results)
        return finished and self.evaluation.state is EvaluationState.COMPLETED

    @property
    def without_scores(self) -> Sequence[EvaluatorResult]:
        """The evaluators that read their samples, and scored none of them."""
        read = (None, Reason.TOO_MANY_UNSCORED)
        reasons = [result.problem and result.problem.reason for result in self.evaluation.results]
        found = zip(self.evaluation.results, reasons, strict=True)
        return [result for result, reason in found if reason in read and result.n_scored == 0]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NotRun:
    """An evaluation that was refused."""

    model: str
    """The model as it was typed."""
    name: str
    """The name of a suite's evaluation; may be empty."""
    error: BridgeError
    """Why."""
    message: str
    """The error by the flags that were typed."""
    refused: bool
    """Whether the request is wrong."""


async def run(
    settings: Settings,
    asked: Sequence[EvaluationToRun],
    evaluators: Sequence[str],
    ended: list[EvaluationRun | NotRun],
    own: CustomFiles | None = None,
    *,
    quiet: bool,
) -> Sequence[Compared]:
    """Run evaluations in order, then compare those of several models; a refused one does not affect the others.

    Args:
        settings: of the worker that runs in this process meanwhile.
        asked: what to run.
        evaluators: as typed, "[NAME=]KIND", for error messages.
        ended: receives each evaluation when it has ended, so that these remain if another is interrupted.
        own: evaluators and graders of files that the command names.
        quiet: write no progress without a terminal.

    Returns:
        A comparison of the models for each evaluation that several of them have; empty for one model.

    Raises:
        BridgeError: nothing can run here, whatever the request is.
        CancelledError: SIGTERM arrived; the running evaluation is interrupted, and its processes are ended.
    """
    termination = Termination()
    log_writer = configure_logging("console", "warning")
    try:
        with progress(sys.stderr, quiet=quiet) as show:
            show.phase(asked[0].label, "opening the journal")
            async with opened(settings, own, termination) as parts:
                for each in asked:
                    found = await _one(parts.evaluations, settings, each, evaluators, show)
                    ended.append(found)
                return await compared(
                    parts.evaluations.comparisons,
                    [(each.name, each.evaluation) for each in ended if isinstance(each, EvaluationRun)],
                )
    finally:
        log_writer.close(1.0)


async def _one(
    evaluations: Evaluations, settings: Settings, asked: EvaluationToRun, evaluators: Sequence[str], show: Show
) -> EvaluationRun | NotRun:
    label = asked.label
    show.phase(label, Phase.READING)
    after: int | None = None
    failed = await _failed_before(evaluations, asked.request.evaluation_id)
    while True:
        try:
            with refusing(settings, evaluators, asked.path, model=asked.model):
                if asked.resumes and failed is None:
                    await evaluations.end_pause(asked.request.evaluation_id)
                evaluation, existed = await evaluations.start(asked.request, recorded=asked.resumes)
        except Refused as refused:
            return NotRun(model=asked.model, name=asked.name, error=refused.error, message=str(refused), refused=True)
        except BridgeError as error:
            message = in_flags(error, settings, evaluators, asked.path, model=asked.model)
            return NotRun(model=asked.model, name=asked.name, error=error, message=message, refused=False)
        if after is None:
            # Earlier events are not shown again.
            after = evaluation.last_sequence if existed else 0
        if failed is not None and evaluation.state.terminal:
            show.say(label, "failed before, for a reason that no further attempt changes: nothing runs")
        if existed and not evaluation.state.terminal:
            if failed is not None:
                why, failed = f"failed before, {failed.reason}: {failed.message}", None
                show.say(label, f"{why}; attempt {evaluation.attempt} begins")
            # The event of the resumption is not shown, so that this phase is shown while the model is loaded.
            show.phase(label, "resuming: loading the model", done=evaluation.done, total=evaluation.total or None)
        async with _phases(evaluations, evaluation.evaluation_id, label, show):
            after, interrupted = await _shown(evaluations, evaluation.evaluation_id, after, label, show)
        if not interrupted:
            break
        # Another process ran it, and has ended: this one resumes it.
    evaluation = await evaluations.get(evaluation.evaluation_id)
    return EvaluationRun(
        model=asked.model,
        name=asked.name,
        evaluation=evaluation,
        first_unscored=await _first_unscored(evaluations, evaluation),
        joint=await evaluations.joint(evaluation.evaluation_id),
    )


async def _failed_before(evaluations: Evaluations, evaluation_id: str) -> Problem | None:
    """Why an evaluation has failed that may be run again; None if there is none."""
    try:
        found = await evaluations.get(evaluation_id)
    except NotFound:
        return None
    return found.problem if found.state is EvaluationState.FAILED else None


@contextlib.asynccontextmanager
async def _phases(evaluations: Evaluations, evaluation_id: str, label: str, show: Show) -> AsyncIterator[None]:
    """Show what is done for an evaluation meanwhile, if this process runs it."""

    async def follow() -> None:
        while True:
            if (phase := evaluations.phase(evaluation_id)) is not None:
                show.phase(label, phase)
            await asyncio.sleep(PHASE_SECONDS)

    following = asyncio.create_task(follow())
    try:
        yield
    finally:
        following.cancel()
        await asyncio.wait({following})


async def _shown(evaluations: Evaluations, evaluation_id: str, after: int, label: str, show: Show) -> tuple[int, bool]:
    """Show its events until it ends or is interrupted; returns the last sequence, and whether it was interrupted."""
    watched = evaluations.watch(
        evaluation_id,
        after_sequence=after,
        log_id=evaluations.log_id,
        without_samples=True,
        new_kinds=True,
        pack=lambda page: list(events_from_records(page.records)),
    )
    kind = None
    async with contextlib.aclosing(watched) as pages:
        async for events in pages:
            if (phase := evaluations.phase(evaluation_id)) is not None:
                show.phase(label, phase)
            for event in events:
                show(label, event)
                after, kind = event.sequence, event.kind
            if kind is EventKind.EVALUATION_INTERRUPT:
                return after, True
    return after, False


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
