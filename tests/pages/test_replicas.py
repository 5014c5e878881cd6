"""The table of replicas on the first page: what the worker knows of each."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

import crucible_bridge
from crucible_bridge.types import SamplingParams
from tests import needs
from tests.pages.conftest import Visit, viewing
from tests.robustness.replicas_kit import replicas
from tests.service.evaluation_kit import numbered
from tests.service.serving import serving

needs.modules("aiohttp")

SAMPLES = 12
SECONDS = 120.0
"""For a worker and two replicas to start, on a loaded machine."""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[str]:
    """The address of a worker that has used two replicas, and a third one that is not there."""
    found: Future[str] = Future()
    end = threading.Event()

    async def serve() -> None:
        try:
            async with replicas(tmp_path, 0.0, 0.0, 0.0) as fleet:
                fleet[0].kill()
                urls = [replica.url for replica in fleet]
                settings = f"grading_processes = 0\n[openai_servers.lab]\nbase_urls = {urls}\n"
                async with serving(tmp_path / "worker", settings) as made:
                    async with crucible_bridge.connect(made.address) as bridge:
                        await bridge.evaluation.evaluate(
                            model="openai:lab/m",
                            evaluators=["accuracy"],
                            dataset=numbered(SAMPLES),
                            sampling=SamplingParams(max_tokens=8),
                        )
                    found.set_result(made.address)
                    await asyncio.to_thread(end.wait)
        except BaseException as error:
            if not found.done():
                found.set_exception(error)
            raise

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        yield found.result(SECONDS)
    finally:
        end.set()
        thread.join()


def test_replicas_are_a_table(worker: str, visits: Callable[..., Visit]):
    """Each has its address, its state, what it answered, and why it failed last."""
    with viewing("--address", worker) as address:
        visit = visits(address.partition("?")[0])
        visit.page.goto(address)
        visit.shown()
        table = visit.page.get_by_role("region", name="Replicas", exact=True)
        head, *rows = [row.inner_text().split("\t") for row in table.locator("tr").all()]
        assert head == ["models", "replica", "state", "requests now", "answered", "failed", "last error"]
        assert [row[0] for row in rows] == ["openai:lab"] * 3
        assert [row[2] for row in rows] == ["ejected", "serving", "serving"]
        assert sum(int(row[4]) for row in rows) == SAMPLES
        assert rows[0][5:] == ["1", "BACKEND_UNREACHABLE"]
        assert [row[5:] for row in rows[1:]] == [["0", ""]] * 2
        if folder := os.environ.get("PICTURES"):
            visit.page.screenshot(path=Path(folder) / "replicas.png", full_page=True)
