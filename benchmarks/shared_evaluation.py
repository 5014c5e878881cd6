"""One evaluation of 20,000 samples on a model of 100 ms latency: three workers that share work, against one.

The workers are processes of this machine, with one journal: in PostgreSQL, whose server the benchmark starts, and in a
state directory. Each has 32 samples at work, so that one worker needs 62.5 s at least. Time is that of the call that
evaluates, at the first worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from _processes import server_process
from _report import Claim, arguments, report

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.types import Limits, SamplingParams

SAMPLES, LATENCY_SECONDS, CONCURRENCY = 20_000, 0.1, 32
WORKERS = 3
AT_LEAST = 2.6


def serve(configuration: dict[str, Any]) -> int:
    """Serve a scripted model, in a process of its own, until SIGTERM."""
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
    model = ScriptedModel(answer=lambda prompt: "42", latency=LATENCY_SECONDS)
    return run(settings, build=scripted_build({"scripted": model}))


@contextlib.asynccontextmanager
async def running(folder: Path, url: str | None, count: int) -> AsyncIterator[list[Bridge]]:
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
            }
            command = [str(Path(__file__)), "--serve", json.dumps(configuration)]
            address = stack.enter_context(server_process(command, own / "ready"))
            bridges.append(await stack.enter_async_context(crucible_bridge.connect(address)))
        yield bridges


async def seconds(url: str | None, workers: int) -> float:
    """Seconds of one evaluation by so many workers."""
    with tempfile.TemporaryDirectory(prefix="crucible-") as name:
        folder = Path(name)
        rows = (json.dumps({"input": f"{index}*7=", "target": "42"}) for index in range(SAMPLES))
        (folder / "data.jsonl").write_text("\n".join(rows))
        async with running(folder, url, workers) as (first, *_):
            return await _evaluated(first)


async def _evaluated(bridge: Bridge) -> float:
    started = time.perf_counter()
    evaluation = await bridge.evaluation.evaluate(
        evaluation_id="e",
        model="embedded:scripted",
        evaluators=["accuracy"],
        dataset="jsonl:data.jsonl",
        sampling=SamplingParams(max_tokens=4),
        limits=Limits(concurrency=CONCURRENCY),
    )
    took = time.perf_counter() - started
    assert (evaluation.done, evaluation.metrics.values["accuracy"]) == (SAMPLES, 1.0)
    return took


@contextlib.contextmanager
def server() -> Iterator[Any | None]:
    """A PostgreSQL server with its defaults; None where the machine has none."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.postgres_server import running_server

    with contextlib.ExitStack() as stack:
        try:
            yield stack.enter_context(running_server(durable=True))
        except LookupError as error:
            print(error, file=sys.stderr)
            yield None


async def measured(name: str, postgres: Any | None, runs: int) -> Claim:
    """One worker and three, in turns."""
    alone: list[float] = []
    shared: list[float] = []
    for _ in range(runs):
        for workers, times in ((1, alone), (WORKERS, shared)):
            times.append(await seconds(None if postgres is None else postgres.new_database(), workers))
    return Claim(
        name=f"{SAMPLES:,} samples of {LATENCY_SECONDS * 1000:.0f} ms, {name}, {WORKERS} workers",
        ours=shared,
        baseline=alone,
        unit="s",
        ratio=statistics.median(one / several for one, several in zip(alone, shared, strict=True)),
        at_least=AT_LEAST,
        claim=f">= {AT_LEAST}x one worker",
    )


async def main() -> None:
    """Measure and report."""
    options = arguments(__doc__)
    claims: list[Claim] = []
    with server() as postgres:
        if postgres is not None:
            claims.append(await measured("PostgreSQL", postgres, options.runs))
        claims.append(await measured("SQLite", None, options.runs))
    report(claims, as_json=options.json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        sys.exit(serve(json.loads(sys.argv[2])))
    asyncio.run(main())
