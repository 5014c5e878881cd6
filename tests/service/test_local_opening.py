"""Models of the local backend: how they open, load, change and go, and which are refused."""

import asyncio
import json
import shutil

import pytest
import pytest_asyncio

from crucible_bridge.errors import FailedPrecondition, NotFound, PermissionDenied
from crucible_bridge.types import EmbeddedModel, LocalModel, ModelInput, SamplingParams
from crucible_worker.backends.local.backend import LocalBackend
from crucible_worker.backends.local.checkpoint import Fingerprints
from crucible_worker.backends.local.process import HostProcess
from crucible_worker.embedded import registry
from crucible_worker.util.limits import WorkerLimits
from tests import needs

needs.modules("torch", "transformers")
pytestmark = pytest.mark.asyncio(loop_scope="module")

GREEDY = SamplingParams(max_tokens=8)
ADDITION = [4, 5, 13, 6, 7, 14]
"""12+34= in the tokens of the embedded models."""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A model root with a copy of an embedded checkpoint, one that needs code, and worse."""
    from safetensors import numpy

    root = tmp_path_factory.mktemp("root")
    for name in ("plain", "code", "damaged", "incomplete", "pickled"):
        shutil.copytree(registry.path("arithmetic@600"), root / name)
    config = json.loads((root / "code" / "config.json").read_text())
    config |= {"model_type": "made_up", "auto_map": {"AutoModelForCausalLM": "evil.Model", "AutoConfig": "evil.Config"}}
    (root / "code" / "config.json").write_text(json.dumps(config))
    (root / "code" / "evil.py").write_text(f"open({str(root / 'ran')!r}, 'w')")
    (root / "damaged" / "model.safetensors").write_bytes(b"not weights")
    weights = numpy.load_file(root / "incomplete" / "model.safetensors")
    del weights["model.norm.weight"]
    numpy.save_file(weights, root / "incomplete" / "model.safetensors", {"format": "pt"})
    (root / "pickled" / "model.safetensors").rename(root / "pickled" / "pytorch_model.bin")
    return root


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local(root):
    """One backend, and so one host, for all tests of this module."""
    local = LocalBackend([root], device="cpu")
    yield local
    await local.aclose()


async def load(local, ref):
    """A model that the host holds."""
    model = await local.open(ref)
    await model.load()
    return model


async def test_models_that_open_together_are_loaded_once(root, monkeypatch):
    """Evaluations of one step begin at a time: the host is asked once for what they share, and again for another."""
    local = LocalBackend([root], device="cpu")
    asked = []
    call = HostProcess.call

    async def counted(self, op, **fields):
        asked.append(op)
        return await call(self, op, **fields)

    monkeypatch.setattr(HostProcess, "call", counted)
    try:
        await asyncio.gather(*(load(local, LocalModel("plain")) for _ in range(4)))
        assert asked == ["open"]
        await load(local, EmbeddedModel("arithmetic@180"))
        assert asked == ["open"] * 2
    finally:
        await local.aclose()


async def test_local_models_open_by_their_path(local):
    """A copy of an embedded checkpoint is the same model, by content."""
    model = await load(local, LocalModel("plain"))
    embedded = await load(local, EmbeddedModel("arithmetic@600"))

    assert model.fingerprint == embedded.fingerprint
    assert (await model.sample(ModelInput.of(ADDITION), GREEDY))[0].text == "46"


async def test_opening_starts_nothing():
    """The fingerprint is known at once; the host starts with the first load or question."""
    local = LocalBackend()

    model = await local.open(EmbeddedModel("arithmetic@600"))

    assert model.fingerprint.startswith("full:")
    assert model.tokenizer is None
    assert local._host.life == 0


async def test_a_question_loads_by_itself(root):
    """A model that was opened alone is loaded by the first question, from there on with its tokenizer."""
    local = LocalBackend([root], device="cpu")
    try:
        model = await local.open(LocalModel("plain"))
        prompt = ModelInput.of(ADDITION)
        results = await asyncio.gather(model.sample(prompt, GREEDY), model.compute_logprobs(prompt), model.load())
    finally:
        await local.aclose()

    assert results[0][0].text == "46"
    assert model.tokenizer is not None


@pytest.mark.parametrize(
    ("path", "kind", "reason"),
    [
        ("pickled", FailedPrecondition, "PICKLED_WEIGHTS_REFUSED"),
        ("code", FailedPrecondition, "MODEL_REFUSED"),
        ("damaged", FailedPrecondition, "MODEL_REFUSED"),
        ("incomplete", FailedPrecondition, "MODEL_REFUSED"),
        ("missing", NotFound, "MODEL_NOT_FOUND"),
        ("../root", PermissionDenied, "PATH_OUT_OF_ROOT"),
    ],
)
async def test_what_cannot_be_loaded_safely_is_refused(local, root, path, kind, reason):
    """Pickles, code that comes with weights, damage, and paths that lead out; nothing of it runs."""
    with pytest.raises(kind) as caught:
        await load(local, LocalModel(path))

    assert caught.value.reason == reason
    assert not caught.value.retryable
    assert not (root / "ran").exists()


@pytest.mark.parametrize("ref", [LocalModel("pickled"), LocalModel("nowhere"), EmbeddedModel("arithmetic@7")])
async def test_what_cannot_be_opened_is_told_without_reading_weights(local, monkeypatch, ref):
    """A check refuses what opening refuses; what can be opened passes, and none of it was read."""

    def read(self, checkpoint):
        raise AssertionError("the weights are read")

    monkeypatch.setattr(Fingerprints, "of", read)
    with pytest.raises((NotFound, FailedPrecondition)) as caught:
        await local.check(ref)
    with pytest.raises(type(caught.value)) as opened:
        await local.open(ref)
    assert opened.value.reason == caught.value.reason
    for known in (LocalModel("plain"), EmbeddedModel("arithmetic@600")):
        await local.check(known)


async def test_unknown_embedded_models_are_not_found(local):
    """The error lists those that there are."""
    with pytest.raises(NotFound, match="arithmetic@600"):
        await local.open(EmbeddedModel("arithmetic@7"))


async def test_a_changed_checkpoint_is_another_model(local, root):
    """Opened again it has a new fingerprint and its own weights; what was open before stays what it was."""
    directory = root / "changing"
    shutil.copytree(registry.path("arithmetic@180"), directory)
    before = await load(local, LocalModel("changing"))
    prompt = ModelInput.of(await before.tokenizer.encode("12+34=46"))
    logprobs = await before.compute_logprobs(prompt)

    # In place, as a training loop does: the host must not have the file mapped any more.
    weights = registry.path("arithmetic@600").joinpath("model.safetensors").read_bytes()
    directory.joinpath("model.safetensors").write_bytes(weights)
    after = await load(local, LocalModel("changing"))

    assert after.fingerprint != before.fingerprint
    assert await after.compute_logprobs(prompt) != logprobs
    assert await before.compute_logprobs(prompt) == logprobs


async def test_weights_are_no_part_of_the_memory_that_a_tokenizer_may_need(local, root):
    """A checkpoint with more bytes than `max_rendering_bytes` opens: of its files, only the headers are read there."""
    directory = root / "large"
    shutil.copytree(registry.path("arithmetic@180"), directory)
    size = WorkerLimits().max_rendering_bytes + 2**30
    header = json.dumps({"unused": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with (directory / "more.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size)  # without blocks on the disk

    model = await load(local, LocalModel("large"))

    assert len(await model.sample(ModelInput.of(ADDITION), GREEDY)) == 1


async def test_more_models_than_stay_open_are_opened_again(local):
    """A model that was evicted comes back by itself, unless its files have changed."""
    names = [EmbeddedModel(name) for name in registry.names()]
    models = [await load(local, name) for name in names] + [await load(local, LocalModel("plain"))]
    prompt = ModelInput.of(ADDITION)

    for _ in range(2):
        for model in models:
            assert len(await model.sample(prompt, GREEDY)) == 1


async def test_without_the_extra_it_says_what_to_install(monkeypatch):
    """Nothing is started; info and error name the extra. Embedded models need it for a GPU alone."""
    monkeypatch.setattr(LocalBackend, "libraries", ("torch", "a_module_that_nobody_has"))
    on_gpu = LocalBackend(device="cuda")

    for local, model in ((LocalBackend(), LocalModel("plain")), (on_gpu, EmbeddedModel("arithmetic@600"))):
        with pytest.raises(FailedPrecondition, match=r"crucible-bridge\[local\]") as caught:
            await local.open(model)
        assert caught.value.reason == "EXTRA_NOT_INSTALLED"
        assert "crucible-bridge[local]" in local.info().unavailable
    assert "crucible-bridge[local]" in on_gpu.info("embedded").unavailable
    assert LocalBackend().info("embedded").unavailable == ""


async def test_info_lists_the_embedded_models(root):
    """Embedded models have names, local ones paths; without a root there are none."""
    assert LocalBackend().info("embedded").models == registry.names()
    assert LocalBackend().info("embedded").unavailable == ""
    assert "--model-root" in LocalBackend().info().unavailable
    assert LocalBackend([root]).info().unavailable == ""
