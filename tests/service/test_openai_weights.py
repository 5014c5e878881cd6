"""Weights of OpenAI-compatible servers with `probe`: compared at the start and the end of each evaluation."""

import asyncio
import collections
import contextlib
import hashlib
import itertools
from collections.abc import AsyncIterator

import pytest

from crucible_bridge.errors import BridgeError
from crucible_bridge.types import EvaluationState, Sample, SamplingParams
from crucible_worker.backends.openai.backend import RemoteModel
from crucible_worker.backends.openai.fleet import Fleet
from crucible_worker.backends.openai.scoring import PROBE, TOLERANCE
from crucible_worker.backends.openai.servers import OpenAIServer
from tests import needs
from tests.service.evaluation_kit import state_of
from tests.service.openai_kit import Reply, Request, Script, ScriptedServer, answer, worker_on

needs.modules("aiohttp")

SWAPS = 100


class Weights:
    """A script of a server whose log-probabilities depend on its weights, a text, and differ by some noise."""

    def __init__(self, text: str = "w", noise: float = 0.0) -> None:
        self.text, self.noise, self.calls = text, noise, 0

    def __call__(self, request: Request) -> Reply:
        if request.method == "GET":
            return Reply({"data": []})
        if "prompt_logprobs" not in request.body:
            return answer(request, self.text)
        self.calls += 1
        sign = 1 if self.calls % 2 else -1
        entries = [
            {str(token): {"logprob": self._exact(place, token) + sign * self.noise, "rank": 2}}
            for place, token in enumerate(request.body["prompt"])
        ]
        return answer(request, "x", prompt_logprobs=[None, *entries[1:]])

    def _exact(self, place: int, token: int) -> float:
        digest = hashlib.sha256(f"{self.text} {place} {token}".encode()).digest()
        return -1.0 - 15.0 * int.from_bytes(digest[:4], "big") / 2**32


@contextlib.asynccontextmanager
async def model_of(*scripts: Script) -> AsyncIterator[RemoteModel]:
    """The model `m` of replicas, with `probe`."""
    async with contextlib.AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(ScriptedServer(script).serving()) for script in scripts]
        urls = tuple(server.url for server in servers)
        fleet = Fleet(OpenAIServer(name="s", base_urls=urls, probe=True), {})
        stack.push_async_callback(fleet.aclose)
        yield RemoteModel(fleet, "m")


async def test_other_weights_are_found_every_time():
    """Weights that change at one of two replicas are found, whichever they are."""
    scripts = Weights(noise=0.05), Weights(noise=0.05)
    ends = collections.Counter()
    async with model_of(*scripts) as model:
        for number in range(SWAPS):
            scripts[0].text = scripts[1].text = f"before {number}"
            await model.record_weights()
            scripts[number % 2].text = f"after {number}"
            with pytest.raises(BridgeError) as caught:
                await model.confirm_weights()
            ends[str(caught.value.reason)] += 1
    assert ends == {"MODEL_CHANGED": SWAPS}


async def test_noise_below_the_tolerance_is_no_change():
    """Twice the noise lies between two measurements: the tolerance bounds it, from both sides."""
    for noise, changed in ((TOLERANCE / 2 - 0.001, False), (TOLERANCE / 2 + 0.001, True)):
        async with model_of(Weights(noise=noise)) as model:
            await model.record_weights()
            if changed:
                with pytest.raises(BridgeError, match=f"more than {TOLERANCE:g}"):
                    await model.confirm_weights()
            else:
                await model.confirm_weights()


async def test_replicas_with_different_weights_are_refused_at_the_start():
    """The name is the same, and the weights are not."""
    async with model_of(Weights("a"), Weights("b")) as model:
        with pytest.raises(BridgeError) as caught:
            await model.record_weights()
    assert caught.value.reason == "REPLICAS_DIFFER"


async def test_a_server_without_log_probabilities_is_refused_at_the_start():
    """`probe` needs those of a prompt; the error says which servers return them."""
    async with model_of(lambda request: answer(request, "x") if request.body else Reply({"data": []})) as model:
        with pytest.raises(BridgeError) as caught:
            await model.record_weights()
    assert caught.value.reason == "NO_PROMPT_LOGPROBS"


async def test_an_evaluation_fails_if_the_weights_changed(tmp_path):
    """Between its start and its end; without `probe` nothing is measured, and it completes."""
    script = Weights()
    sample = (Sample(input="p", targets=("w",)),)
    for probe, expected in (
        (True, (EvaluationState.FAILED, "MODEL_CHANGED")),
        (False, (EvaluationState.COMPLETED, None)),
    ):
        script.text, script.calls = "w", 0
        held = asyncio.Event()

        def once(request: Request, held: asyncio.Event = held) -> Reply:
            reply = script(request)
            if request.method == "POST" and "prompt_logprobs" not in request.body:
                script.text = "others"  # the answer is the first one's, and all that follows is not
                held.set()
            return reply

        async with (
            ScriptedServer(once).serving() as server,
            worker_on(server, tmp_path / str(probe), probe=probe) as bridge,
        ):
            ended = await bridge.evaluation.evaluate(
                model="openai:s/m", evaluators=["accuracy"], dataset=sample, sampling=SamplingParams(max_tokens=4)
            )
        assert held.is_set()
        assert state_of(ended) == expected
        assert script.calls == 2 * probe


def test_the_prompt_has_tokens_of_every_vocabulary():
    """They are below those of bytes, and no token follows another one twice."""
    assert all(0 < token < 128 for token in PROBE)
    assert len(set(itertools.pairwise(PROBE))) == len(PROBE) - 1
