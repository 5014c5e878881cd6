"""A pool that is measured: workers of this machine that share one evaluation, and the PostgreSQL server under them.

Run as a script, it is one of the workers, with a scripted model.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
from _pool_commits import TimedCommit, read_commits, recorded_commits
from _processes import server_process

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.types import Limits, SamplingParams

__all__ = ["Load", "Run", "evaluated", "server"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One evaluation."""

    samples: int
    latency: float
    """Of the scripted model, in seconds."""
    concurrency: int = 32
    """Samples at work at each worker."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What was measured of one evaluation, by the clock that all processes of the machine share."""

    began: float
    """When the first worker was called."""
    ended: float
    """When it replied."""
    database_cpu: float
    """CPU seconds of the database meanwhile."""
    other_cpu: float
    """CPU seconds of this machine that were neither the pool's nor the database's."""
    commits: Sequence[Sequence[TimedCommit]]
    """Of each worker; empty if they were not recorded."""

    @property
    def seconds(self) -> float:
        """Of the call."""
        return self.ended - self.began


async def evaluated(
    url: str | None,
    workers: int,
    load: Load,
    *,
    recorded: bool = False,
    database_cpu: Callable[[], float] = lambda: 0.0,
) -> Run:
    """Evaluate with so many workers.

    Args:
        url: of an empty database; a state directory if None.
        workers: processes that share the work.
        load: what is evaluated.
        recorded: whether the workers record their transactions, which only workers with a database can.
        database_cpu: returns the CPU seconds of the database so far.
    """
    with tempfile.TemporaryDirectory(prefix="crucible-") as name:
        folder = Path(name)
        rows = (json.dumps({"input": f"{index}*7=", "target": "42"}) for index in range(load.samples))
        (folder / "data.jsonl").write_text("\n".join(rows))
        async with _running(folder, url, workers, load.latency, recorded) as (first, *_):
            before, others, began = database_cpu(), _others_cpu(), time.monotonic()
            await _evaluate(first, load)
            ended, database, other = time.monotonic(), database_cpu() - before, _others_cpu() - others
        files = [folder / str(index) / "commits" for index in range(workers)] if recorded else []
        commits = [read_commits(file) for file in files]
    return Run(began=began, ended=ended, database_cpu=database, other_cpu=other, commits=commits)


def _others_cpu() -> float:
    """CPU seconds of the machine until now, without those of this process and all processes that it has started."""
    machine, own = psutil.cpu_times(), psutil.Process()
    ours = 0.0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            ours += times.user + times.system + times.children_user + times.children_system
    return machine.user + machine.nice + machine.system - ours


async def _evaluate(bridge: Bridge, load: Load) -> None:
    evaluation = await bridge.evaluation.evaluate(
        evaluation_id="e",
        model="embedded:scripted",
        evaluators=["accuracy"],
        dataset="jsonl:data.jsonl",
        sampling=SamplingParams(max_tokens=4),
        limits=Limits(concurrency=load.concurrency),
    )
    assert (evaluation.done, evaluation.metrics.values["accuracy"]) == (load.samples, 1.0)


@contextlib.asynccontextmanager
async def _running(
    folder: Path, url: str | None, count: int, latency: float, recorded: bool
) -> AsyncIterator[list[Bridge]]:
    """So many workers of one journal."""
    async with contextlib.AsyncExitStack() as stack:
        bridges: list[Bridge] = []
        for index in range(count):
            own = folder / str(index)
            own.mkdir()
            configuration = {
                "ready_file": str(own / "ready"),
                "state_dir": str(folder / "state" if url is None else own),
                "journal": url,
                "data_root": str(folder),
                "latency": latency,
                "commits": str(own / "commits") if recorded else None,
            }
            command = [str(Path(__file__)), json.dumps(configuration)]
            address = stack.enter_context(server_process(command, own / "ready"))
            bridges.append(await stack.enter_async_context(crucible_bridge.connect(address)))
        yield bridges


@contextlib.contextmanager
def server() -> Iterator[Any | None]:
    """A PostgreSQL server with its defaults; None where the machine has none."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.postgres_server import running_server

    with contextlib.ExitStack() as running:
        try:
            yield running.enter_context(running_server(durable=True))
        except LookupError as error:
            print(error, file=sys.stderr)
            yield None


def _serve(configuration: dict[str, Any]) -> int:
    """Serve a scripted model until SIGTERM."""
    from crucible_worker.config import Settings
    from crucible_worker.server import serve as run
    from crucible_worker.testing import ScriptedModel, scripted_build

    settings = Settings(
        port=0,
        ready_file=Path(configuration["ready_file"]),
        state_dir=Path(configuration["state_dir"]),
        journal=configuration["journal"],
        data_roots=(Path(configuration["data_root"]),),
        share_work=True,
        grading_processes=0,
        code_sandboxes=0,
        log_level="error",
    ).validate()
    model = ScriptedModel(answer=lambda prompt: "42", latency=configuration["latency"])
    file = configuration["commits"]
    with contextlib.nullcontext() if file is None else recorded_commits(Path(file)):
        return run(settings, build=scripted_build({"scripted": model}))


if __name__ == "__main__":
    sys.exit(_serve(json.loads(sys.argv[1])))
