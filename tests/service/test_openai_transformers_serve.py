"""A real server: `transformers serve` on an embedded checkpoint answers as the local backend does."""

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import crucible_bridge
from crucible_bridge.types import ChatMessage, Conversation, Datum, Limits, Sample, SamplingParams
from crucible_worker.backends.openai.servers import OpenAIServer
from crucible_worker.config import Settings
from crucible_worker.embedded import registry
from crucible_worker.embedded.arithmetic import held_out
from crucible_worker.server import Worker
from tests.service.evaluation_kit import accuracy, samples_of

NEEDED = ("aiohttp", "openai", "torch", "transformers", "accelerate", "fastapi", "uvicorn")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]

pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"{', '.join(MISSING)} not installed: no real server, so nothing is compared with one"
)

SECONDS = 120.0
"""For a server to start, on a loaded machine."""
GREEDY = SamplingParams(max_tokens=8)
ONE_BY_ONE = Limits(concurrency=1)
"""The server runs each request in a thread of its own; they would fight for the cores."""
COUNT = 8


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model root with a copy of the embedded checkpoint that knows best, which has a chat template."""
    directory = tmp_path_factory.mktemp("root") / "chat"
    shutil.copytree(registry.path("arithmetic@600"), directory)
    (directory / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    return directory


@pytest.fixture(scope="module")
def url(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the server listens."""
    folder = tmp_path_factory.mktemp("serve")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", "--device=cpu", f"--port={port}"]
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen([*command, "--host=127.0.0.1"], stdout=log, stderr=log, env={**os.environ, **offline})
    try:
        until_healthy(f"http://127.0.0.1:{port}/health", child, folder / "log")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        child.kill()
        child.wait()


def until_healthy(health: str, child: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server answers."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + SECONDS
    while True:
        assert child.poll() is None, log.read_text()
        assert time.monotonic() < deadline, f"no answer after {SECONDS} s:\n{log.read_text()}"
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            direct.open(health, timeout=5).close()
            return
        time.sleep(0.1)


@pytest.fixture
async def bridge(url: str, checkpoint: Path, tmp_path: Path):
    """A client of a worker that has the same model on its disk and behind the server."""
    settings = Settings(
        port=0,
        state_dir=tmp_path / "state",
        model_roots=(checkpoint.parent,),
        device="cpu",
        openai_servers=(OpenAIServer(name="serve", base_url=url),),
    )
    async with Worker(settings.validate()) as worker, crucible_bridge.connect(worker.address) as bridge:
        yield bridge


def as_conversation(sample: Sample) -> Sample:
    """The same question as a user's message; the chat template leaves nothing of that."""
    message = ChatMessage("user", str(sample.input))
    return Sample(id=f"chat {sample.id}", input=Conversation((message,)), targets=sample.targets)


async def test_accuracy_is_that_of_the_local_backend(bridge, checkpoint: Path):
    """Greedily, every sample has the same output and verdict, by completions and by chat."""
    texts = held_out(COUNT)
    samples = [*texts, *map(as_conversation, texts)]
    results = {}
    for model in ("local:chat", f"openai:serve/{checkpoint}"):
        evaluation = await bridge.evaluation.evaluate(
            model=model, evaluators=[accuracy(grader="numeric")], dataset=samples, sampling=GREEDY, limits=ONE_BY_ONE
        )
        results[model] = [
            (result.sample_id, result.output, result.verdict, result.stop_reason)
            for result in await samples_of(bridge, evaluation.evaluation_id)
        ]
        assert evaluation.metrics.values["accuracy_strict"] > 0.5
    local, remote = results.values()
    assert local == remote
    assert len(local) == 2 * COUNT


async def test_nll_is_refused_where_there_is_none(bridge, checkpoint: Path):
    """This server takes no tokens and tells no log-probabilities: that is said, and no number is made up."""
    evaluation = await bridge.evaluation.evaluate(
        model=f"openai:serve/{checkpoint}",
        evaluators=["nll"],
        dataset=[
            Sample(input=Datum(model_input=[3, 4], loss_fn_inputs={"target_tokens": [4, 5], "weights": [1.0, 1.0]}))
        ],
    )
    assert await samples_of(bridge, evaluation.evaluation_id) == []
    (result,) = evaluation.results
    assert result.problem is not None
    assert result.problem.reason == "NO_PROMPT_LOGPROBS"
