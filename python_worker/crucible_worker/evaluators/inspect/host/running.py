"""An Inspect task from its order to its findings; errors of its code are reported, not raised."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from inspect_ai import eval_async  # pyright: ignore[reportMissingImports]
from inspect_ai.log import (  # pyright: ignore[reportMissingImports]
    EvalLog,
    EvalSample,
    read_eval_log,
    recompute_metrics,
)
from inspect_ai.model import GenerateConfig, Model  # pyright: ignore[reportMissingImports]

from crucible_worker.evaluators.inspect.host.counting import count_questions
from crucible_worker.evaluators.inspect.host.findings import findings
from crucible_worker.evaluators.inspect.host.line import WorkerClient
from crucible_worker.evaluators.inspect.host.naming import name_models
from crucible_worker.evaluators.inspect.host.provider import WorkerModel

__all__ = ["run_task"]

_MAX_SHOWN = 500  # characters of a task's own error


async def run_task(order: Mapping[str, Any], line: WorkerClient) -> dict[str, Any]:
    """Run a task by an order.

    Returns:
        The message with its findings (`findings`), or why there are none.
    """
    try:
        return await _run(order, line)
    except (Exception, SystemExit) as error:  # foreign code may raise anything
        return _failed(f"{type(error).__name__}: {error}")


async def _run(order: Mapping[str, Any], line: WorkerClient) -> dict[str, Any]:
    if own := set(order["own_args"]):
        # Inspect would ignore arguments that the task does not accept.
        (log,) = await eval_async(order["task"], task_args=order["task_args"], run_samples=False, **_quietly(order))
        if unknown := own - log.eval.task_args_passed.keys():
            return _failed(f"the task accepts no argument {', '.join(sorted(unknown))}")
    count_questions(line)
    name_models(line, order["names"], order["role_defaults"])
    model = _model(line, "model", "model", order["defaults"])
    running = eval_async(
        order["task"],
        model=model,
        model_roles={role: _model(line, which, role, order["role_defaults"]) for role, which in order["roles"].items()},
        task_args=order["task_args"],
        limit=order["limit"],
        epochs=order["epochs"],
        # A failed sample affects no other, is not repeated, and is counted.
        fail_on_error=False,
        retry_on_error=0,
        max_connections=order["max_connections"],
        metadata=order.get("metadata") or None,
        **_quietly(order),
        **order["config"],
    )
    logs = await _unless_stopped(running, line)
    if line.refused:
        return _failed(line.refused)
    if logs is None:
        return _scored_so_far(Path(order["log_dir"]))
    if not logs:
        return _failed("it ended without a log, as when one of its steps exits")
    if len(logs) > 1:
        return _failed(f"{len(logs)} tasks have this name")
    (log,) = logs
    if log.eval.model != str(model):
        # Inspect would prefer that model, and report its results as the worker's model's.
        return _failed(f"the task sets its own model {log.eval.model!r}, which is not the evaluated one")
    if log.status != "success":
        message = f"it ended with the status {log.status}" if log.error is None else log.error.message
        return {**_ended(log), "failure": message[:_MAX_SHOWN]} if log.samples else _failed(message)
    return findings(log.results, log.samples or [])


async def _unless_stopped(running: Coroutine[Any, Any, list[EvalLog]], line: WorkerClient) -> list[EvalLog] | None:
    """The logs of a run; None if the worker stopped it before, its scores so far are then in a file."""
    evaluating, stopping = asyncio.create_task(running), asyncio.create_task(line.stopped.wait())
    try:
        try:
            await asyncio.wait({evaluating, stopping}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # A step has exited: asyncio ends its loop with SystemExit, and cancels every task, including this one.
            with contextlib.suppress(asyncio.CancelledError, SystemExit):
                await evaluating
            return []
        if evaluating.done():
            return evaluating.result()
        evaluating.cancel()
        with contextlib.suppress(asyncio.CancelledError):  # Inspect raises it, or returns without a log
            await evaluating
        return None
    finally:
        stopping.cancel()


def _scored_so_far(folder: Path) -> dict[str, Any]:
    """Findings of the samples that had ended when the task was stopped."""
    logs = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns) if folder.is_dir() else []
    if not logs:
        return {**_failed("it was stopped before its first sample"), "stopped": True}
    return {**_ended(read_eval_log(str(logs[-1]))), "stopped": True}


def _ended(log: EvalLog) -> dict[str, Any]:
    """Findings of the ended samples of a log, although the task as a whole has not ended."""
    ended = [sample for sample in log.samples or [] if not _was_stopped(sample)]
    log.samples = ended
    try:
        if ended:
            recompute_metrics(log)
    except Exception as error:  # a metric is foreign code, and may be why the task has not ended: records are kept
        return {**findings(None, ended), "failure": f"{type(error).__name__}: {error}"[:_MAX_SHOWN]}
    return findings(log.results if ended else None, ended)


def _was_stopped(sample: EvalSample) -> bool:
    return sample.error is not None and sample.error.message.startswith("CancelledError")


def _quietly(order: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "log_dir": order["log_dir"],
        "log_level": "critical",
        "log_realtime": False,
        "score_display": False,
        "ctl_server": False,
    }


def _model(line: WorkerClient, which: str, name: str, defaults: Mapping[str, Any]) -> Model:
    return Model(WorkerModel(line, which, name, defaults), GenerateConfig(**defaults))


def _failed(message: str) -> dict[str, Any]:
    return {"op": "failed", "message": message[:_MAX_SHOWN]}
