"""A Snakepit worker under load: heartbeats are answered from local state, and a pool of workers shares one journal."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.interop.snakepit_kit import evaluation
from tests.interop.snakepit_standin import Pool, connected, pool_worker
from tests.service.openai_kit import ScriptedServer

HEARTBEAT_SECONDS = 10.0
"""Snakepit kills a worker that leaves a heartbeat unanswered for so long."""
LOAD_SECONDS = 2.0
TOKENS = 1_000_000


def tensors(count: int, **columns: str) -> dict[str, Any]:
    """What the binary parameters hold."""
    return {"tensors": {name: {"dtype": dtype, "shape": [count]} for name, dtype in columns.items()}}


async def repeated(load: list[int], pool: Pool, tool: str, parameters: Any, binary: Any = None) -> None:
    """Execute a tool again and again, and count."""
    while True:
        await pool.execute(tool, parameters, binary)
        load[0] += 1


@contextlib.asynccontextmanager
async def loaded(pool: Pool) -> AsyncIterator[list[list[int]]]:
    """Metrics over millions of tokens, large JSON and grading, all at once; how often each was done."""
    chosen = {name: np.full(TOKENS, -1.5, "<f4").tobytes() for name in ("logprobs", "training_logprobs")}
    masked = {**chosen, "mask": np.ones(TOKENS, "u1").tobytes()}
    weighed = {"logprobs": chosen["logprobs"], "weights": masked["mask"]}
    as_lists = {"logprobs": [[-1.5] * 100_000] * 4, "weights": [[1] * 100_000] * 4}
    pairs = [{"id": n, "gold": f"\\frac{{{n}}}{{7}}x+1", "pred": f"1+x\\cdot\\frac{{{n}}}{{7}}"} for n in range(50)]
    works: list[tuple[str, Any, Any]] = [
        ("kl_sample_train", tensors(TOKENS, logprobs="f32", training_logprobs="f32", mask="u8"), masked),
        ("mean_nll", tensors(TOKENS, logprobs="f32", weights="u8"), weighed),
        ("mean_nll", as_lists, None),
        ("grade_math", {"pairs": pairs}, None),
    ]
    counts: list[list[int]] = [[0] for _ in works]
    tasks = [asyncio.create_task(repeated(count, pool, *work)) for count, work in zip(counts, works)]
    try:
        yield counts
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def test_heartbeats_are_answered_under_full_load(tmp_path: Path):
    """While metrics, large JSON and grading keep every core busy, heartbeats are answered before Snakepit gives up."""
    async with pool_worker(tmp_path, "--grading-processes=2") as pool:
        await pool.execute("grade_math", {"pairs": [{"id": 0, "gold": "1", "pred": "1"}]})
        # A connection of its own: the stand-in's other calls wait for this one process to pack their requests.
        async with connected(pool.port) as probe, loaded(pool) as counts, probe.beating(0.02):
            async with asyncio.timeout(40):
                while min(count for (count,) in counts) < 2 or len(probe.beats) <= 10:
                    await asyncio.sleep(0.05)
            await asyncio.sleep(LOAD_SECONDS)

    print(f"worst of {len(probe.beats)} heartbeats: {max(probe.beats):.3f} s")
    assert max(probe.beats) < HEARTBEAT_SECONDS


async def test_a_pool_of_three_shares_one_journal(tmp_path: Path):
    """Three workers with the same arguments: any of them answers for all, and together they tell each event once."""
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(ScriptedServer().serving())
        flags = (f"--openai-server=s={server.url}", "--grading-processes=0")
        pools = [await stack.enter_async_context(pool_worker(tmp_path, *flags, name=f"worker-{n}")) for n in range(3)]
        listening = [asyncio.create_task(pool.listen(seconds=60)) for pool in pools]
        turns = itertools.cycle(pools)

        ids = [f"e{number}" for number in range(12)]
        ended = await asyncio.gather(
            *(next(turns).execute("evaluate", evaluation(identity, model="openai:s/m")) for identity in ids)
        )
        again = [await next(turns).execute("get_evaluation", {"evaluation_id": identity}) for identity in ids]
        chunks = [chunk async for chunk in pools[0].execute_stream("subscribe", {"until_now": True, "new_kinds": True})]
        told = [event for chunk in chunks for event in chunk.get("events", ())]
        async with asyncio.timeout(20):
            while sum(len(pool.events) for pool in pools) < 4 * len(ids):
                await asyncio.sleep(0.01)
        for pool in pools:
            pool.worker.terminate()
        assert [await pool.worker.exit_code() for pool in pools] == [0, 0, 0]
        await asyncio.gather(*listening, return_exceptions=True)

    assert [answer["evaluation"]["evaluation_id"] for answer in ended] == ids
    assert again == ended
    sequences = [event["sequence"] for event in told]
    assert sequences == list(range(1, len(told) + 1))
    relayed = sorted(int(event.metadata["sequence"]) for pool in pools for event in pool.events)
    kept = [event["sequence"] for event in told if event["kind"] not in ("sample_complete", "evaluation_progress")]
    assert relayed == kept
    assert all(pool.events for pool in pools)
