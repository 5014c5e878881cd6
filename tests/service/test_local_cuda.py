"""Local models on a CUDA device: the numbers of the CPU, the same bits on every call, and clear refusals."""

import asyncio
import shutil

import numpy as np
import pytest
import pytest_asyncio

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.types import EmbeddedModel, LocalModel, SamplingParams
from crucible_worker.backends.local.backend import LocalBackend
from crucible_worker.embedded import registry
from crucible_worker.embedded.arithmetic import held_out
from crucible_worker.rendering import render_prompt, render_supervised
from tests import needs

torch = pytest.importorskip("torch", reason=needs.MISSING["torch"])
needs.modules("transformers")
pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason=needs.CUDA),
]

CLOSE = 1e-4
"""Most nats between two log-probabilities in float32."""
CLOSE_MEAN = {"float16": 1e-3, "bfloat16": 1e-2}
"""Most nats between the mean log-probability in such a type and in float32."""
SAMPLINGS = [
    SamplingParams(max_tokens=8),
    SamplingParams(max_tokens=8, temperature=1.0, seed=3),
    SamplingParams(max_tokens=8, temperature=2.0, top_k=3, seed=4),
    SamplingParams(max_tokens=8, temperature=2.0, top_p=0.7, seed=5),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A model root with the files of an embedded model."""
    root = tmp_path_factory.mktemp("root")
    shutil.copytree(registry.path("arithmetic@240"), root / "copy")
    return root


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local(root):
    """A backend with the default device, and so one host, for all tests of this module."""
    local = LocalBackend([root])
    yield local
    await local.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def on_cpu(root):
    """A backend for comparison."""
    local = LocalBackend([root], device="cpu")
    yield local
    await local.aclose()


async def load(local, ref):
    """A model that the host has."""
    model = await local.open(ref)
    await model.load()
    return model


async def measured(model):
    """Log-probabilities of the answers to held-out problems."""
    data = [await render_supervised(model.tokenizer, sample) for sample in held_out(60)]
    values = await model.forward(data)
    return np.concatenate([each[np.asarray(datum.loss_fn_inputs["weights"]) > 0] for each, datum in zip(values, data)])


async def test_the_default_device_is_cuda(local):
    """Where there is one."""
    model = await load(local, EmbeddedModel("arithmetic@320"))

    assert (await model._known()).key.endswith("on cuda:0")


@pytest.mark.parametrize("name", registry.names())
async def test_embedded_models_answer_as_on_the_cpu(name, local, on_cpu):
    """In float32 on every device: the same tokens, greedy or drawn by a seed, and nearly the same numbers."""
    here, there = await load(local, EmbeddedModel(name)), await load(on_cpu, EmbeddedModel(name))
    prompts = [await render_prompt(here.tokenizer, sample.input) for sample in held_out(60)]

    for params in SAMPLINGS:
        ours, theirs = [
            await asyncio.gather(*(model.sample(prompt, params) for prompt in prompts)) for model in (here, there)
        ]
        assert [one.tokens for (one,) in ours] == [one.tokens for (one,) in theirs]
        for (one,), (other,) in zip(ours, theirs, strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=CLOSE)
    assert here.fingerprint == there.fingerprint
    assert await measured(here) == pytest.approx(await measured(there), abs=CLOSE)


async def test_a_local_model_has_the_type_of_its_files(local, on_cpu):
    """On CUDA, unless another one is requested: float16 here. The embedded model with the same files is kept apart."""
    own, half, full = [await load(local, LocalModel("copy", dtype=dtype)) for dtype in (None, "float16", "float32")]
    embedded = await load(local, EmbeddedModel("arithmetic@240"))
    cpu = await measured(await load(on_cpu, LocalModel("copy")))

    found = [await measured(model) for model in (own, half, full, embedded)]

    assert own.fingerprint == embedded.fingerprint
    assert found[0].tobytes() == found[1].tobytes() != found[2].tobytes()
    assert found[2].tobytes() == found[3].tobytes()
    assert found[2] == pytest.approx(cpu, abs=CLOSE)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
async def test_types_of_16_bits_are_near_those_of_32(dtype, local, on_cpu):
    """The mean log-probability, which nll reports, differs by less than the tolerance."""
    half = await measured(await load(local, LocalModel("copy", dtype=dtype)))
    full = await measured(await load(on_cpu, LocalModel("copy")))

    assert half.mean() == pytest.approx(full.mean(), abs=CLOSE_MEAN[dtype])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
async def test_scores_are_bit_equal_alone_together_and_in_another_host(dtype, root, local):
    """An evaluation that resumes in another worker, at another concurrency, gets the same bits."""
    ref = LocalModel("copy", dtype=dtype)
    model = await load(local, ref)
    data = [await render_supervised(model.tokenizer, sample) for sample in held_out(30)]
    noise = asyncio.gather(*(model.sample(datum.model_input, SAMPLINGS[1]) for datum in data))

    together = await asyncio.gather(*(model.forward([datum]) for datum in reversed(data)))
    at_once = await model.forward(data)
    await noise
    other = LocalBackend([root])
    try:
        elsewhere = [await (await load(other, ref)).forward([datum]) for datum in data]
    finally:
        await other.aclose()

    expected = [values.tobytes() for values in at_once]
    assert [values.tobytes() for (values,) in reversed(together)] == expected
    assert [values.tobytes() for (values,) in elsewhere] == expected


async def test_a_device_that_is_not_there_is_refused(local):
    """The error has the number of devices."""
    there = torch.cuda.device_count()
    device = f"cuda:{there}"

    for refused in (
        local.open(LocalModel("copy", device=device)),
        LocalBackend(device=device).open(EmbeddedModel("arithmetic@600")),
    ):
        with pytest.raises(
            FailedPrecondition, match=rf"{device}' cannot be used: CUDA devices here: {there}"
        ) as caught:
            await (await refused).load()
        assert caught.value.reason == "DEVICE_NOT_FOUND"
