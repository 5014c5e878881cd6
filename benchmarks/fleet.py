"""Samples a second of four replicas of a model server of which one is slow and one is killed, against what is left.

Each replica is a process that answers 8 requests at once; the slow one takes four times as long. An evaluation runs on
all of them until some samples are done, then one replica is killed. Ours is the rate from the kill to the end of the
evaluation. The baseline is the sum of the capacities of the three replicas that live: each of them alone is kept full
by a bare loop of the same HTTP client, all three at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import aiohttp
from _processes import server_process
from _report import Claim, arguments, report
from aiohttp import web

import crucible_bridge
from crucible_bridge.types import EvaluatorSpec, Limits, SamplingParams
from crucible_worker.server.ready_file import write_ready_file

SAMPLES = 6_000
BEFORE_KILL = 500
"""Samples that are done when a replica is killed."""
CONCURRENCY = 64
SLOTS = 8
SECONDS, SLOW_SECONDS = 0.04, 0.16
"""Of an answer: 200 samples a second at most, and 50 at the slow replica."""
BARE_SECONDS = 4.0
"""How long the baseline is measured."""
LEAST = 0.95
"""Bound, relative to the baseline."""
POLL_SECONDS = 0.02


async def serve(ready: Path, seconds: float) -> None:
    """Run a replica until the process is ended."""
    slots = asyncio.Semaphore(SLOTS)

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        async with slots:
            await asyncio.sleep(seconds)
        return web.json_response({"choices": [{"index": 0, "finish_reason": "stop", "text": "42"}]})

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m"}]})

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    await asyncio.to_thread(write_ready_file, ready, json.dumps([os.getpid(), url]))
    await asyncio.Event().wait()


async def bare(urls: list[str]) -> float:
    """Samples a second of replicas that are kept full."""
    until = time.perf_counter() + BARE_SECONDS

    async def ask(url: str) -> int:
        count = 0
        while time.perf_counter() < until:
            body = {"model": "m", "prompt": "6*7=", "max_tokens": 4, "temperature": 0.0}
            async with session.post(f"{url}/completions", json=body) as response:
                assert json.loads(await response.read())["choices"][0]["text"] == "42"
            count += 1
        return count

    started = time.perf_counter()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        counts = await asyncio.gather(*(ask(url) for url in urls for _ in range(2 * SLOTS)))
    return sum(counts) / (time.perf_counter() - started)


async def evaluated(address: str, victim: int) -> float:
    """Samples a second from the kill of a replica to the end of the evaluation."""
    async with crucible_bridge.connect(address) as bridge:
        await bridge.evaluation.start_evaluation(
            evaluation_id="e",
            model="openai:s/m",
            evaluators=[EvaluatorSpec(kind="accuracy", options={"renderer": "raw"})],
            dataset="jsonl:data.jsonl",
            sampling=SamplingParams(max_tokens=4),
            limits=Limits(concurrency=CONCURRENCY),
        )
        while (done := (await bridge.evaluation.get_evaluation("e")).done) < BEFORE_KILL:
            await asyncio.sleep(POLL_SECONDS)
        os.kill(victim, signal.SIGKILL)
        killed = time.perf_counter()
        async with bridge.evaluation.watch_evaluation("e", without_samples=True) as stream:
            async for _ in stream:
                pass
        seconds = time.perf_counter() - killed
        evaluation = await bridge.evaluation.get_evaluation("e")
        assert (evaluation.done, evaluation.metrics.values["accuracy"]) == (SAMPLES, 1.0)
        return (SAMPLES - done) / seconds


def run(folder: Path) -> tuple[float, float]:
    """One run: ours and the baseline."""
    (folder / "data.jsonl").write_text(
        "".join(f'{{"input": "{index}: 6*7=", "target": "42"}}\n' for index in range(SAMPLES))
    )
    with ExitStack() as stack:
        replicas: list[tuple[int, str]] = []
        for number, seconds in enumerate((SECONDS, SECONDS, SECONDS, SLOW_SECONDS)):
            ready = folder / f"replica-{number}"
            command = [__file__, "--replica", str(ready), str(seconds)]
            pid, url = json.loads(stack.enter_context(server_process(command, ready)))
            replicas.append((pid, url))
        urls = [url for _, url in replicas]
        config, ready = folder / "worker.toml", folder / "worker"
        config.write_text(f"[openai_servers.s]\nbase_urls = {json.dumps(urls)}\n")
        command = ["-m", "crucible_worker", "serve", "--port", "0", "--ready-file", str(ready), "--config", str(config)]
        command += ["--state-dir", str(folder / "state"), "--data-root", str(folder), "--log-level", "error"]
        address = stack.enter_context(server_process([*command, "--grading-processes", "0"], ready))
        baseline = asyncio.run(bare(urls[1:]))
        return asyncio.run(evaluated(address, replicas[0][0])), baseline


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    ours, baseline = [], []
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory(prefix="crucible-fleet-") as folder:
            mine, other = run(Path(folder))
        ours.append(mine)
        baseline.append(other)
    claim = Claim(
        name="four replicas, one slow and one killed, against the capacity that is left",
        ours=ours,
        baseline=baseline,
        unit="samples/s",
        ratio=statistics.median(ours) / statistics.median(baseline),
        at_least=LEAST,
        claim=f">= {LEAST:g} of it",
    )
    report([claim], as_json=options.json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--replica"]:
        asyncio.run(serve(Path(sys.argv[2]), float(sys.argv[3])))
    else:
        main()
