"""An evaluation of questions with images whose worker is killed: another worker asks the rest, with their images."""

from __future__ import annotations

import asyncio
import base64
import collections
import contextlib
import hashlib
from pathlib import Path

import crucible_bridge
from crucible_bridge.client.evaluation import request_of
from crucible_bridge.errors import Unavailable
from crucible_bridge.types import ChatMessage, Conversation, ImageChunk, Limits, Record, Sample, SamplingParams, Verdict
from tests import needs
from tests.robustness.evidence import check_events, check_interrupted_run, log_of, samples_of
from tests.robustness.harness import until
from tests.service.openai_kit import Reply, Request, ScriptedServer, answer
from tests.service.serving import serving

needs.modules("aiohttp")

COUNT = 200
WAIT_SECONDS = 60.0
"""For anything to happen, on a loaded machine."""


def image(number: int) -> bytes:
    """The bytes of an image; what they show is of no concern to the worker."""
    return b"\x89PNG\r\n\x1a\n" + hashlib.sha256(str(number).encode()).digest() * 32


def asked_about(number: int) -> Conversation:
    """A question with an image."""
    parts = (f"Which image is this, {number}?", ImageChunk(data=image(number), format="png"))
    return Conversation((ChatMessage("user", parts=parts),))


def sees(request: Request) -> Reply:
    """Says which image came, by its digest."""
    if request.method == "GET":
        return Reply({"data": [{"id": "m"}]})
    _, part = request.body["messages"][0]["content"]
    content = base64.b64decode(part["image_url"]["url"].partition(",")[2])
    return answer(request, hashlib.sha256(content).hexdigest())


async def test_images_survive_the_worker_that_was_asked(tmp_path: Path):
    """Each sample has one result, of its own image; those with a result are not asked again. Records have images."""
    dataset = [
        Sample(id=f"s{number}", input=asked_about(number), targets=(hashlib.sha256(image(number)).hexdigest(),))
        for number in range(COUNT)
    ]
    asked = request_of(
        evaluation_id="e",
        model="openai:s/m",
        evaluators=["accuracy"],
        dataset=dataset,
        sampling=SamplingParams(max_tokens=80),
        limits=Limits(concurrency=2),
        record=Record.FULL,
    )
    state = tmp_path / "state"
    async with ScriptedServer(sees).serving() as server:
        settings = f'grading_processes = 0\n[openai_servers.s]\nbase_url = "{server.url}"\n'
        async with (
            serving(tmp_path / "first", settings, state_dir=state) as first,
            serving(tmp_path / "second", settings, state_dir=state) as second,
            crucible_bridge.connect(second.address) as bridge,
        ):
            async with crucible_bridge.connect(first.address) as doomed:
                start = asyncio.create_task(doomed.evaluation.evaluate(asked))
                await until(lambda: len(server.asked) >= COUNT // 4, WAIT_SECONDS)
                first.process.kill()
                with contextlib.suppress(Unavailable):
                    await start
            evaluation = await bridge.evaluation.evaluate(asked)
            results = await samples_of(bridge, "e")
            log = await log_of(bridge)
        questions = collections.Counter(request.body["messages"][0]["content"][0]["text"] for request in server.asked)

    check_events(log)
    check_interrupted_run(log, evaluation, COUNT)
    assert evaluation.attempt >= 2
    assert {result.sample_id: (result.verdict, result.prompt) for result in results} == {
        f"s{number}": (Verdict.CORRECT, asked_about(number)) for number in range(COUNT)
    }
    assert len(results) == COUNT == len(questions)
    # Those in flight, or not yet written, are asked again; most have their result.
    assert questions.total() < COUNT + COUNT // 2
