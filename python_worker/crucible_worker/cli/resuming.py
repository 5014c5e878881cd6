"""What `crucible-worker resume` does: at a worker, or in this process on a journal of this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from crucible_bridge.errors import BridgeError
from crucible_bridge.types import EvaluationState, format_model
from crucible_worker.cli.options import EXIT_FAILED, EXIT_INTERRUPTED, settings_or_exit
from crucible_worker.cli.reading import read_or_exit, say_state
from crucible_worker.cli.requests import EvaluationToRun
from crucible_worker.cli.run_summary import Observation, RunSummary
from crucible_worker.cli.running import run
from crucible_worker.cli.workspace import with_roots
from crucible_worker.engine.resuming import refuse_bound

if TYPE_CHECKING:
    from crucible_bridge import Bridge
    from crucible_bridge.types import Evaluation

__all__ = ["resume_at_worker", "resume_here"]

_BEGIN = (EvaluationState.INTERRUPTED, EvaluationState.FAILED)


def resume_at_worker(evaluation_id: str | None, *places: Any, as_json: bool) -> int:
    """Have a worker resume an evaluation, or every interrupted one; returns the exit code.

    Args:
        evaluation_id: which; every interrupted one if None.
        places: as of `read_or_exit`.
        as_json: write JSON.
    """

    async def resume(bridge: Bridge) -> int:
        if evaluation_id is not None:
            say_state(await bridge.evaluation.resume_evaluation(evaluation_id), as_json)
            return 0
        refused = 0
        for evaluation in await _interrupted(bridge):
            try:
                say_state(await bridge.evaluation.resume_evaluation(evaluation.evaluation_id), as_json)
            except BridgeError as error:
                refused += 1
                _say_refused(evaluation, error, as_json)
        return EXIT_FAILED if refused else 0

    return read_or_exit(resume, *places)


def resume_here(evaluation_id: str | None, *places: Any, as_json: bool, **flags: Any) -> int:
    """Run the rest of an evaluation, or of every interrupted one, in this process; returns the exit code.

    Args:
        evaluation_id: which; every interrupted one if None. One that runs only has its pause ended.
        places: as of `read_or_exit`: they name a journal of this machine.
        as_json: write JSON.
        flags: settings of the worker that runs in this process meanwhile.
    """

    async def found(bridge: Bridge) -> Sequence[Evaluation]:
        if evaluation_id is None:
            return await _interrupted(bridge)
        evaluation = await bridge.evaluation.get_evaluation(evaluation_id)
        if evaluation.state in _BEGIN:
            return [evaluation]
        say_state(await bridge.evaluation.resume_evaluation(evaluation_id), as_json)
        return []

    asked: list[EvaluationToRun] = []
    refused = 0
    for evaluation in read_or_exit(found, *places):
        try:
            refuse_bound(evaluation.request)
        except BridgeError as error:
            refused += 1
            _say_refused(evaluation, error, as_json)
            continue
        model = format_model(evaluation.request.model)
        # A name of its own: evaluations of several data sets are not compared.
        name = evaluation.evaluation_id
        asked.append(EvaluationToRun(request=evaluation.request, model=model, name=name, label=name, resumes=True))
    if not asked:
        return EXIT_FAILED if refused else 0
    config, state_dir, *_ = places
    settings = with_roots(settings_or_exit(config, state_dir=state_dir, **flags))
    outcome = RunSummary(models=[one.model for one in asked], shown=Observation(as_json=as_json), total=len(asked))
    kinds = [spec.label for one in asked for spec in one.request.evaluators]
    try:
        asyncio.run(run(settings, asked, kinds, outcome.several, quiet=as_json))
    except BridgeError as error:
        typer.echo(f"crucible-worker: {error}", err=True)
        return EXIT_FAILED
    except (asyncio.CancelledError, KeyboardInterrupt) as ended:
        typer.echo("crucible-worker: ended before all was evaluated; the same command resumes it", err=True)
        return EXIT_INTERRUPTED if isinstance(ended, KeyboardInterrupt) else EXIT_FAILED
    outcome.write()
    return max(outcome.exit_code(), EXIT_FAILED if refused else 0)


async def _interrupted(bridge: Bridge) -> Sequence[Evaluation]:
    states = (EvaluationState.INTERRUPTED,)
    return [evaluation async for evaluation in bridge.evaluation.all_evaluations(states=states)][::-1]


def _say_refused(evaluation: Evaluation, error: BridgeError, as_json: bool) -> None:
    if as_json:
        data = {"evaluation_id": evaluation.evaluation_id, "not_resumed": error.reason, "message": error.message}
        typer.echo(json.dumps(data))
    else:
        typer.echo(f"not resumed: {error.field} {error.message}", err=True)
