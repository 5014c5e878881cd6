"""Samples a second of four replicas of a model server of which one is slow and one is killed, against what is left.

Each replica is a process that answers 8 requests at once; the slow one takes four times as long. An evaluation runs on
all of them until some samples are done, then one replica is killed. Ours is the rate from the kill to the end of the
evaluation. The baseline is the sum of the capacities of the three replicas that live: each of them alone is kept full
by a bare loop of the same HTTP client, all three at once.

Each replica has a prompt in its cache once it has answered it. After the first evaluation, another one has eight
answers to each prompt. Ours is the share of its prompts' tokens that came from a cache; the baseline is the share if
each prompt goes to one replica.
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
from crucible_worker.server.process import write_ready_file

SAMPLES = 1_600
BEFORE_KILL = 200
"""Samples that are done when a replica is killed."""
CONCURRENCY = 64
SLOTS = 8
SECONDS, SLOW_SECONDS = 0.04, 0.16
"""Of an answer: 200 samples a second at most, and 50 at the slow replica."""
BARE_SECONDS = 1.5
"""How long the baseline is measured."""
LEAST = 0.95
"""Bound, relative to the baseline."""
PROMPTS, ANSWERS = 60, 8
"""Of the evaluation that reads from caches."""
LEAST_CACHED = 0.9
"""Bound of what is cached, relative to the baseline."""
POLL_SECONDS = 0.02


async def serve(ready: Path, seconds: float) -> None:
    """Run a replica until the process is ended."""
    slots = asyncio.Semaphore(SLOTS)
    cache: set[str] = set()

    async def answer(request: web.Request) -> web.Response:
        prompt = json.loads(await request.read())["prompt"]
        async with slots:
            cached = len(prompt) if prompt in cache else 0
            cache.add(prompt)
            await asyncio.sleep(seconds)
        usage = {"prompt_tokens": len(prompt), "completion_tokens": 1}
        usage |= {"prompt_tokens_details": {"cached_tokens": cached}}
        choice = {"index": 0, "finish_reason": "stop", "text": "42"}
        return web.json_response({"choices": [choice], "usage": usage})

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


async def cached(address: str) -> float:
    """The share of prompts' tokens that replicas have in their caches, if there are several answers to each prompt."""
    async with crucible_bridge.connect(address) as bridge:
        evaluation = await bridge.evaluation.evaluate(
            model="openai:s/m",
            evaluators=[EvaluatorSpec(kind="pass_at_k", options={"renderer": "raw", "samples_per_prompt": ANSWERS})],
            dataset="jsonl:prompts.jsonl",
            sampling=SamplingParams(max_tokens=4, temperature=1.0),
            limits=Limits(concurrency=CONCURRENCY),
        )
    usage = evaluation.usage
    assert usage is not None
    assert usage.prompt_tokens
    assert usage.cached_prompt_tokens is not None
    assert usage.calls == PROMPTS * ANSWERS
    return usage.cached_prompt_tokens / usage.prompt_tokens


def write_prompts(file: Path, count: int) -> None:
    """Write prompts that no other run has."""
    lines = (
        json.dumps({"input": f"{file.parent.name}, {file.stem} {index}: 6*7=", "target": "42"})
        for index in range(count)
    )
    file.write_text("".join(f"{line}\n" for line in lines))


def replica(stack: ExitStack, ready: Path, seconds: float) -> tuple[int, str]:
    """Start a replica; its process and its base URL."""
    pid, url = json.loads(stack.enter_context(server_process([__file__, "--replica", str(ready), str(seconds)], ready)))
    return pid, url


def run(folder: Path, alive: list[str]) -> tuple[float, float, float]:
    """One run with replicas that live: our rate, while a fourth one is killed; the baseline; and the cached share."""
    write_prompts(folder / "data.jsonl", SAMPLES)
    write_prompts(folder / "prompts.jsonl", PROMPTS)
    with ExitStack() as stack:
        victim, url = replica(stack, folder / "victim", SECONDS)
        config, ready = folder / "worker.toml", folder / "worker"
        config.write_text(f"[openai_servers.s]\nbase_urls = {json.dumps([url, *alive])}\n")
        command = ["-m", "crucible_worker", "serve", "--port", "0", "--ready-file", str(ready), "--config", str(config)]
        command += ["--state-dir", str(folder / "state"), "--data-root", str(folder), "--log-level", "error"]
        address = stack.enter_context(server_process([*command, "--grading-processes", "0"], ready))
        baseline = asyncio.run(bare(alive))
        return asyncio.run(evaluated(address, victim)), baseline, asyncio.run(cached(address))


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    ours, baseline, shares = [], [], []
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crucible-fleet-")))
        living = enumerate((SECONDS, SECONDS, SLOW_SECONDS))
        alive = [replica(stack, place / f"replica-{number}", seconds)[1] for number, seconds in living]
        for number in range(options.runs):
            folder = place / f"run-{number}"
            folder.mkdir()
            for figures, figure in zip((ours, baseline, shares), run(folder, alive), strict=True):
                figures.append(figure)
    claim = Claim(
        name="four replicas, one slow and one killed, against the capacity that is left",
        ours=ours,
        baseline=baseline,
        unit="samples/s",
        ratio=statistics.median(ours) / statistics.median(baseline),
        at_least=LEAST,
        claim=f">= {LEAST:g} of it",
    )
    most = (ANSWERS - 1) / ANSWERS
    share = Claim(
        name="tokens of prompts that a replica has in its cache, of eight answers to each prompt",
        ours=shares,
        baseline=[most],
        unit="share",
        ratio=statistics.median(shares) / most,
        at_least=LEAST_CACHED,
        claim=f">= {LEAST_CACHED:g} of what one replica for each prompt would have",
    )
    report([claim, share], as_json=options.json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--replica"]:
        asyncio.run(serve(Path(sys.argv[2]), float(sys.argv[3])))
    else:
        main()
