"""`crucible-worker demo`: a training run, seen by its evaluations.

A worker process is started and driven as a training loop would: every checkpoint that ships with the worker is
evaluated in turn, its events watched live.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from crucible_worker.cli.options import EXIT_FAILED, EXIT_INTERRUPTED, Json
from crucible_worker.cli.workspace import Termination
from crucible_worker.config import ENVIRONMENT_PREFIX
from crucible_worker.util.interrupts import raise_interrupts

if TYPE_CHECKING:
    from crucible_bridge import Bridge
    from crucible_bridge.types import Evaluation
    from crucible_worker.cli.progress import Show

__all__ = ["WorkerFailed", "demo", "worker_process"]

RUN_ID = "demo"
EVALUATION_SERVICE = "crucible_bridge.v1.EvaluationService"

TITLE = "Two-digit addition, held out of training"
"""Of the table and the report."""

WARM_SECONDS = 30.0
"""For the evaluation service to get warm."""

NEXT = "crucible-worker evaluate --model embedded:arithmetic@600 --data builtin:arithmetic --evaluator nll"
"""What to try after the demo."""

MAX_TOKENS = 8
"""The longest sum has three digits."""

_Output = Annotated[Path, typer.Option(metavar="DIR", help="Where the report, the events and the worker's log go.")]
_Samples = Annotated[int, typer.Option(metavar="N", min=1, help="Samples a checkpoint is evaluated on.")]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One checkpoint, evaluated."""

    step: int
    evaluation: Evaluation
    sample_count: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _DemoRun:
    """Every checkpoint, and what was left as files."""

    steps: Sequence[_Step]
    events: int
    report: Path
    html: Path
    events_file: Path
    log_file: Path


class _DemoFailed(Exception):
    """The demo cannot go on; the text says why and what to do."""


def demo(output: _Output = Path("demo-output"), samples: _Samples = 400, as_json: Json = False) -> None:
    """Evaluate embedded checkpoints as a training loop would.

    Starts a worker, watches its events live, prints the metrics over the steps, and leaves report.html, report.md,
    events.jsonl and worker.log.
    """
    from crucible_bridge.errors import BridgeError

    raise_interrupts()
    try:
        output.mkdir(parents=True, exist_ok=True)
        run = asyncio.run(_demo(output, samples, quiet=as_json))
    except (_DemoFailed, WorkerFailed, BridgeError, OSError) as error:
        typer.echo(f"crucible-worker: {error}", err=True)
        typer.echo(f"The worker's log is {output / 'worker.log'}.", err=True)
        raise typer.Exit(EXIT_FAILED) from None
    except (asyncio.CancelledError, KeyboardInterrupt) as ended:
        typer.echo("crucible-worker: ended before all was evaluated", err=True)
        raise typer.Exit(EXIT_INTERRUPTED if isinstance(ended, KeyboardInterrupt) else EXIT_FAILED) from None
    _write(run, as_json=as_json)


async def _demo(output: Path, samples: int, *, quiet: bool) -> _DemoRun:
    Termination()  # the worker leads a separate session: nothing else would end it
    from crucible_bridge import connect
    from crucible_bridge.types import ReportFormat
    from crucible_worker.cli.progress import progress
    from crucible_worker.cli.report import text_of
    from crucible_worker.reports.writing import ReportRequest
    from crucible_worker.util.shown_paths import ShownPaths

    events_file, report, log_file = output / "events.jsonl", output / "report.md", output / "worker.log"
    html = output / "report.html"
    steps: list[_Step] = []
    counted = 0
    async with worker_process(log_file) as address, connect(address) as bridge:
        models = await _models(bridge)
        with events_file.open("w", encoding="ascii") as file, progress(sys.stderr, quiet=quiet) as show:
            for name, step in models:
                done, events = await _evaluate(bridge, name, step, samples, file, show)
                steps.append(done)
                counted += events
        ids = [step.evaluation.evaluation_id for step in steps]
        report.write_text(await bridge.evaluation.generate_report(ids), encoding="utf-8")
        request = ReportRequest(report_format=ReportFormat.HTML, run_id=RUN_ID, title=TITLE)
        html.write_text(await text_of(bridge, request, ShownPaths()), encoding="utf-8")
    return _DemoRun(steps=steps, events=counted, report=report, html=html, events_file=events_file, log_file=log_file)


async def _models(bridge: Bridge) -> list[tuple[str, int]]:
    """The embedded checkpoints with their steps, once the worker can evaluate."""
    async with asyncio.timeout(WARM_SECONDS):
        while not await bridge.worker.health(EVALUATION_SERVICE):  # noqa: ASYNC110 - one probe a look, as orchestrators do
            await asyncio.sleep(0.05)
    info = await bridge.worker.get_info()
    embedded = next((backend for backend in info.backends if backend.name == "embedded"), None)
    if embedded is None or embedded.unavailable:
        why = "the worker has none" if embedded is None else embedded.unavailable
        raise _DemoFailed(f"the embedded models cannot run: {why}")
    return [(name, int(name.rpartition("@")[2])) for name in embedded.models]


async def _evaluate(bridge: Bridge, name: str, step: int, samples: int, file: TextIO, show: Show) -> tuple[_Step, int]:
    from crucible_bridge.events import EventKind
    from crucible_bridge.types import BuiltinDataset, Dataset, SamplingParams
    from crucible_worker.cli.tables import event_as_data

    started = await bridge.evaluation.start_evaluation(
        evaluation_id=f"{RUN_ID}-step-{step}",
        run_id=RUN_ID,
        step=step,
        model=f"embedded:{name}",
        evaluators=("nll", "accuracy"),
        dataset=Dataset(source=BuiltinDataset("arithmetic"), limit=samples),
        sampling=SamplingParams(max_tokens=MAX_TOKENS),
    )
    evaluation_id = started.evaluation.evaluation_id
    events = sample_count = 0
    async for event in bridge.evaluation.watch_evaluation(evaluation_id):
        file.write(json.dumps(event_as_data(event), allow_nan=False) + "\n")
        show(f"step {step}", event)
        events += 1
        if event.kind is EventKind.EVALUATION_COMPLETE:
            sample_count = int(event.measurements["sample_count"])
    evaluation = await bridge.evaluation.get_evaluation(evaluation_id)
    _refuse_failure(evaluation)
    return _Step(step=step, evaluation=evaluation, sample_count=sample_count), events


def _refuse_failure(evaluation: Evaluation) -> None:
    from crucible_bridge.types import EvaluationState

    problems = [evaluation.problem, *(result.problem for result in evaluation.results)]
    said = "; ".join(problem.message for problem in problems if problem is not None)
    if said or evaluation.state is not EvaluationState.COMPLETED:
        raise _DemoFailed(f"step {evaluation.request.step} is {evaluation.state.value}: {said or 'no reason given'}")


def _write(run: _DemoRun, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(_as_data(run), allow_nan=False))
        return
    from crucible_worker.cli.tables import write_table

    columns = ("step", "nll", "accuracy", "95 % interval", "samples", "unscored")
    write_table(sys.stdout, TITLE, columns, list(_rows(run.steps)))
    typer.echo(f"events: {run.events_file} ({run.events})\nworker's log: {run.log_file}")
    typer.echo(f"report: {run.html} (open it in a browser), {run.report}")
    typer.echo(f"next: {NEXT}")


def _rows(steps: Iterable[_Step]) -> Iterable[Sequence[str]]:
    from crucible_worker.cli.tables import unscored

    for step in steps:
        values = step.evaluation.metrics.values
        low, high = _percent(values.get("accuracy_ci95_low")), _percent(values.get("accuracy_ci95_high"))
        yield (
            str(step.step),
            _number(values.get("nll")),
            _percent(values.get("accuracy")),
            f"{low} to {high}",
            str(step.sample_count),
            str(unscored(step.evaluation)),
        )


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.4f}"


def _percent(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.1%}"


def _as_data(run: _DemoRun) -> dict[str, Any]:
    from crucible_worker.cli.tables import unscored

    return {
        "evaluations": [
            {
                "step": step.step,
                "metrics": dict(step.evaluation.metrics.values),
                "sample_count": step.sample_count,
                "n_unscored": unscored(step.evaluation),
            }
            for step in run.steps
        ],
        "events": run.events,
        "report": str(run.report),
        "html": str(run.html),
    }


# A worker as a child process, as an orchestrator would start one: a file shows that it is ready, SIGTERM ends it.

READY_SECONDS = 30.0
"""Time limit from the start of the process to its ready file."""

EXIT_SECONDS = 10.0
"""Time limit from SIGTERM to its end; a worker promises 5.5."""

POLL_SECONDS = 0.02
"""Seconds between two checks for the ready file."""

LOG_LINES = 20
"""Lines of a failed worker's log that are shown."""


class WorkerFailed(Exception):
    """The worker did not start, or did not end as it should; the text has the end of its log."""


@contextlib.asynccontextmanager
async def worker_process(log_file: Path) -> AsyncIterator[str]:
    """Run a worker on a temporary state directory; yields its address.

    Leaving the block sends SIGTERM and waits for the end.

    Args:
        log_file: for the worker's log.

    Raises:
        WorkerFailed: it does not get ready, or does not exit with 0.
    """
    with tempfile.TemporaryDirectory(prefix="crucible-demo-") as name:
        folder = Path(name)
        with log_file.open("wb") as log:
            process = await _start(folder, log.fileno())
        try:
            yield await _address(process, folder / "ready", log_file)
        except BaseException:
            await _end(process, log_file, must_be_clean=False)
            raise
        await _end(process, log_file, must_be_clean=True)


async def _start(folder: Path, log: int) -> asyncio.subprocess.Process:
    # The address and token of this machine's own worker must not affect this one.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(ENVIRONMENT_PREFIX)}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        # Nothing is imported from the folder in which the demo is started.
        "-P",
        "-m",
        "crucible_worker",
        "serve",
        "--port=0",
        f"--ready-file={folder / 'ready'}",
        f"--state-dir={folder / 'state'}",
        # The demo's answers are numbers.
        "--grading-processes=0",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=environment,
        # A Ctrl-C in the terminal is for the demo, which then ends its worker in order.
        start_new_session=True,
    )


async def _address(process: asyncio.subprocess.Process, ready_file: Path, log_file: Path) -> str:
    try:
        async with asyncio.timeout(READY_SECONDS):
            while (address := await asyncio.to_thread(_read_if_there, ready_file)) is None:
                if process.returncode is not None:
                    raise WorkerFailed(f"the worker ended with {process.returncode} at its start{_tail(log_file)}")
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise WorkerFailed(f"the worker was not ready within {READY_SECONDS:g} s{_tail(log_file)}") from None
    return address


async def _end(process: asyncio.subprocess.Process, log_file: Path, *, must_be_clean: bool) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(EXIT_SECONDS):
            code = await process.wait()
    except TimeoutError:
        process.kill()
        code = await process.wait()
    if must_be_clean and code != 0:
        raise WorkerFailed(f"the worker ended with {code}{_tail(log_file)}")


def _read_if_there(path: Path) -> str | None:
    try:
        return path.read_text()
    except FileNotFoundError:
        return None


def _tail(log_file: Path) -> str:
    lines = log_file.read_text(errors="replace").splitlines()
    return "".join(f"\n  {line}" for line in lines[-LOG_LINES:])
