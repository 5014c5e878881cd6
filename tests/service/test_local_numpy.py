"""Embedded models: numpy answers as PyTorch does, whose host runs them on a GPU; and the demo needs nothing else."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import pytest_asyncio

from crucible_bridge.errors import BackendError, FailedPrecondition, InvalidField
from crucible_bridge.types import ChatMessage, Datum, EmbeddedModel, ModelInput, SamplingParams
from crucible_worker.backends.distributions import Wanted
from crucible_worker.backends.local.backend import LocalBackend
from crucible_worker.embedded.arithmetic import held_out
from tests import needs
from tests.tables import rows

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = EmbeddedModel("arithmetic@320")
GREEDY = SamplingParams(max_tokens=8)
CLOSE = 1e-4
"""Most nats between the two: each rounds to float32 in its own order."""

WITHOUT_TORCH = """
import importlib.machinery

found = importlib.machinery.PathFinder.find_spec
importlib.machinery.PathFinder.find_spec = lambda name, *more: (
    None if name.partition(".")[0] in ("torch", "transformers", "safetensors", "tokenizers") else found(name, *more)
)
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local():
    """A backend that computes embedded models by numpy."""
    local = LocalBackend()
    yield local
    await local.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model(local):
    """A model that makes mistakes."""
    model = await local.open(MODEL)
    await model.load()
    return model


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reference():
    """The same model, computed by PyTorch."""
    pytest.importorskip("torch", reason=needs.MISSING["torch"])
    pytest.importorskip("transformers", reason=needs.MISSING["transformers"])
    local = LocalBackend(device="cpu")
    local._by_numpy = False
    model = await local.open(MODEL)
    await model.load()
    yield model
    await local.aclose()


async def test_columns_are_those_of_pytorch(model, reference):
    """The likeliest tokens, given ones, and those in place of each generated token."""
    prompt = ModelInput.of([4, 5, 13, 6, 7, 14])
    wanted = Wanted(last=3, top_k=4, targets=np.array([[1, -1]] * 3))
    found, same = [await each.compute_distributions(prompt, wanted) for each in (model, reference)]
    ((drawn,), (known,)) = [await each.sample_with_top(prompt, GREEDY, 1, 3) for each in (model, reference)]

    assert found.top_tokens.tolist() == same.top_tokens.tolist()
    for name in ("logprobs", "top_logprobs", "target_logprobs"):
        np.testing.assert_allclose(getattr(found, name), getattr(same, name), atol=CLOSE)
    assert drawn.top_tokens.tolist() == known.top_tokens.tolist()
    np.testing.assert_allclose(drawn.top_logprobs, known.top_logprobs, atol=CLOSE)


@rows(
    "params",
    [
        SamplingParams(max_tokens=8),
        SamplingParams(max_tokens=2),
        SamplingParams(max_tokens=30, temperature=1.0, seed=3),
        SamplingParams(max_tokens=8, temperature=1e-6, seed=3),
        SamplingParams(max_tokens=8, temperature=2.0, top_k=3, seed=4),
        SamplingParams(max_tokens=8, temperature=2.0, top_p=0.7, seed=5),
        SamplingParams(max_tokens=8, temperature=3.0, top_k=9, top_p=0.9, seed=6),
        SamplingParams(max_tokens=8, stop=("3",)),
        SamplingParams(max_tokens=8, temperature=1.5, seed=7, stop=("<eos>", "11", "2")),
    ],
)
async def test_samples_are_those_of_pytorch(model, reference, params):
    """The same tokens, drawn by the same random numbers, with their log-probabilities, texts and ends."""
    for sample in held_out()[:12]:
        prompt = ModelInput.of(await model.tokenizer.encode(sample.input))
        ours, theirs = await model.sample(prompt, params, 3), await reference.sample(prompt, params, 3)
        for one, other in zip(ours, theirs, strict=True):
            assert (one.text, one.tokens, one.stop_reason) == (other.text, other.tokens, other.stop_reason)
            assert np.allclose(one.logprobs, other.logprobs, rtol=0, atol=CLOSE)


async def test_answers_to_every_problem_are_those_of_pytorch(model, reference):
    """Whatever is asked at once."""
    prompts = [ModelInput.of(await model.tokenizer.encode(sample.input)) for sample in held_out()[:100]]
    ours = await asyncio.gather(*[model.sample(prompt, GREEDY) for prompt in prompts])
    theirs = await asyncio.gather(*[reference.sample(prompt, GREEDY) for prompt in prompts])
    assert [one.tokens for (one,) in ours] == [one.tokens for (one,) in theirs]


async def test_measurements_are_those_of_pytorch(model, reference):
    """Log-probabilities of prompts, data and continuations, and the likeliest tokens."""
    random = np.random.default_rng(5)
    for size in (2, 3, 9, 32):
        tokens = random.integers(0, 15, size)
        prompt = ModelInput.of(tokens.tolist())
        datum = Datum(model_input=tokens[:-1], loss_fn_inputs={"target_tokens": tokens[1:]})
        continuations = [[3], [4, 5]] if size < 32 else [[3]]
        found = [
            np.concatenate(
                [
                    (await each.compute_logprobs(prompt))[1:],
                    *(await each.forward([datum, datum])),
                    *(await each.forward_parts([datum, datum])),
                    *(await each.compute_continuation_logprobs(prompt, continuations)),
                ]
            )
            for each in (model, reference)
        ]
        assert np.abs(found[0] - found[1]).max() < CLOSE
        assert await model.compute_argmax(prompt) == await reference.compute_argmax(prompt)
        assert (await model.compute_logprobs(prompt)) == (await model.compute_logprobs(prompt))


@rows("text", ["", "12+34=", "1 2\n3", "<eos>1<unk><pad>", "<eos", "żółw", "0" * 20])
async def test_texts_are_those_of_pytorch(model, reference, text):
    """Unknown characters, and special tokens by their names, in both directions."""
    tokens = await model.tokenizer.encode(text)
    assert tokens == await reference.tokenizer.encode(text)
    assert await model.tokenizer.encode_continuation(text) == await reference.tokenizer.encode_continuation(text)
    assert await model.tokenizer.decode(tokens) == await reference.tokenizer.decode(tokens)
    assert await model.tokenizer.show(tokens) == await reference.tokenizer.show(tokens)


async def test_it_is_the_same_model(model, reference):
    """By its fingerprint, its context and its end token, so that an evaluation may resume with either."""
    assert model.fingerprint == reference.fingerprint
    assert model.context_length == reference.context_length
    assert model.tokenizer.eos_token_id == reference.tokenizer.eos_token_id
    assert model.tokenizer.has_chat_template is reference.tokenizer.has_chat_template is False
    assert model.tokenizer.vocabulary == reference.tokenizer.vocabulary


async def test_what_is_wrong_is_refused(model):
    """A prompt that leaves no room, and a renderer that only tinker-cookbook has."""
    with pytest.raises(InvalidField) as caught:
        await model.sample(ModelInput.of([5] * 32), GREEDY)
    assert caught.value.reason == "PROMPT_TOO_LONG"
    with pytest.raises(FailedPrecondition, match="role_colon needs none") as refused:
        await model.tokenizer.render_cookbook("role_colon", [ChatMessage("user", "1+1=")])
    assert refused.value.reason == "NO_COOKBOOK_TOKENIZER"


async def test_a_call_that_is_given_up_stops_no_other(model):
    """It is dropped where it waits; the others are answered."""
    prompt = ModelInput.of([5, 13, 5, 14])
    calls = [asyncio.create_task(model.sample(prompt, GREEDY, 20)) for _ in range(8)]
    await asyncio.sleep(0)
    for call in calls[2:5]:
        call.cancel()
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(one, asyncio.CancelledError) for one in found] == [2 <= index < 5 for index in range(8)]


async def test_a_host_that_dies_is_replaced(local, model):
    """Calls in flight fail, to be repeated; the next one has the same answer as before."""
    prompt = ModelInput.of([5, 13, 5, 14])
    before = await model.sample(prompt, GREEDY)
    call = asyncio.create_task(model.sample(prompt, GREEDY, 2_000))
    await asyncio.sleep(0)
    os.kill(local._numpy_host.life, signal.SIGKILL)
    with pytest.raises(BackendError) as caught:
        await call
    assert (caught.value.reason, caught.value.retryable) == ("HOST_DIED", True)
    assert await model.sample(prompt, GREEDY) == before


async def test_the_demo_needs_no_pytorch(tmp_path):
    """Every embedded checkpoint is evaluated, with the accuracy that it has."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_TORCH)
    paths = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    found = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "crucible_worker", "demo", "--samples", "40", "--json", "--output", tmp_path / "out"],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    evaluations = json.loads(found.stdout)["evaluations"]
    accuracies = [one["metrics"]["accuracy"] for one in evaluations]
    assert [one["step"] for one in evaluations] == [180, 240, 320, 600]
    assert accuracies[0] < 0.3 < 0.8 < accuracies[-1]
    assert [one["n_unscored"] for one in evaluations] == [0] * 4
