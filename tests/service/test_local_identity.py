"""The numbers of a local model are those of its own files, whatever other checkpoints are open."""

import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.types import EmbeddedModel, LocalModel, ModelInput
from crucible_worker.backends.local.backend import LocalBackend
from crucible_worker.backends.local.checkpoint import Checkpoint, Fingerprints
from crucible_worker.backends.local.process import HostProcess
from crucible_worker.embedded import registry
from tests import needs

torch = pytest.importorskip("torch", reason=needs.MISSING["torch"])
needs.modules("transformers")
pytestmark = pytest.mark.asyncio(loop_scope="module")

WEIGHTS = "model.safetensors"
TEXT = ModelInput.of(range(1, 30))


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A model root with a model of 75 tensors in a file above 64 MiB."""
    from transformers import LlamaConfig, LlamaForCausalLM

    root = tmp_path_factory.mktemp("root")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=8192,
        hidden_size=256,
        intermediate_size=2048,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
    )
    model = LlamaForCausalLM(config)
    for parameter in model.parameters():  # so large that each of them decides
        parameter.data.mul_(4)
    model.save_pretrained(root / "large")
    return root


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local(root: Path):
    """One backend, and so one host, for all tests of this module."""
    local = LocalBackend([root], device="cpu")
    yield local
    await local.aclose()


async def nll(local: LocalBackend, path: str) -> float:
    """The mean negative log-likelihood of a text."""
    model = await local.open(LocalModel(path))
    return -math.fsum(one for one in await model.compute_logprobs(TEXT) if one is not None) / (len(TEXT.tokens()) - 1)


def places(file: Path) -> dict[str, tuple[int, int]]:
    """Where the tensors of a file are."""
    content = file.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(content[8 : 8 + size])
    header.pop("__metadata__", None)
    return {name: tuple(8 + size + offset for offset in about["data_offsets"]) for name, about in header.items()}


def overwrite(file: Path, begin: int, content: bytes) -> None:
    """Write into a file, and set its time of writing back: its size and that time are those of before."""
    status = file.stat()
    with file.open("r+b", buffering=0) as stream:
        while file.stat().st_ctime_ns == status.st_ctime_ns:  # the clock of the file system is coarse
            os.pwrite(stream.fileno(), content, begin)
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def moved(file: Path, begin: int, end: int) -> bytes:
    """The float32 numbers at a place of a file, each halved and shifted."""
    with file.open("rb") as stream:
        stream.seek(begin)
        return (torch.frombuffer(bytearray(stream.read(end - begin)), dtype=torch.float32) / 2 + 0.1).numpy().tobytes()


async def test_any_changed_tensor_changes_the_digest_and_the_number(local: LocalBackend, root: Path):
    """Each of 75 tensors is changed alone, in a copy; nll is measured with one of each kind."""
    file = shutil.copytree(root / "large", root / "copy") / WEIGHTS
    found = places(file)
    fingerprints, checkpoint = Fingerprints(), Checkpoint(directory=root / "copy")
    digests, numbers = {fingerprints.of(checkpoint)}, {await nll(local, "large")}
    measured = {
        "model.embed_tokens.weight",
        "model.layers.3.input_layernorm.weight",
        "model.layers.4.self_attn.v_proj.weight",
        "model.layers.5.mlp.up_proj.weight",
        "model.norm.weight",
        "lm_head.weight",
    }

    for name, (begin, end) in found.items():
        with file.open("rb") as stream:
            stream.seek(begin)
            before = stream.read(end - begin)
        overwrite(file, begin, moved(file, begin, end))
        digests.add(fingerprints.of(checkpoint))
        if name in measured:
            numbers.add(await nll(local, "copy"))
        overwrite(file, begin, before)

    assert len(found) == 75
    assert len(digests) == 1 + 75
    assert len(numbers) == 1 + len(measured)
    assert await nll(local, "copy") == await nll(local, "large")


async def test_equal_digests_are_two_models(local: LocalBackend, root: Path):
    """Bytes that the digest leaves out differ: each directory has its own number, in any order."""
    file = shutil.copytree(root / "large", root / "unsampled") / WEIGHTS
    begin, end = places(file)["lm_head.weight"]
    begin, end = begin + (1 << 20), begin + (3 << 20)
    overwrite(file, begin, moved(file, begin, end))
    one, other = [await local.open(LocalModel(name)) for name in ("large", "unsampled")]
    assert one.fingerprint == other.fingerprint

    values = [await nll(local, name) for name in ("large", "unsampled", "large")]

    assert values[0] != values[1]
    assert values[0] == values[2]


async def test_a_rewritten_file_is_another_model(local: LocalBackend, root: Path):
    """Of the same size and time of writing, in bytes that the digest leaves out; what is open stays what it was."""
    file = shutil.copytree(root / "large", root / "rewritten") / WEIGHTS
    before = await local.open(LocalModel("rewritten"))
    values = await before.compute_logprobs(TEXT)
    begin, _ = places(file)["lm_head.weight"]

    overwrite(file, begin + (1 << 20), moved(file, begin + (1 << 20), begin + (3 << 20)))
    after = await local.open(LocalModel("rewritten"))

    assert after.fingerprint == before.fingerprint
    assert await after.compute_logprobs(TEXT) != values
    assert await before.compute_logprobs(TEXT) == values


async def test_a_model_whose_file_changed_is_not_loaded_again(root: Path):
    """After its host has died, another file must not answer for it; a hard link is no change."""
    shutil.copytree(registry.path("arithmetic@180"), root / "small")
    local = LocalBackend([root], device="cpu")
    prompt = ModelInput.of([4, 5, 13, 6, 7, 14])
    try:
        model = await local.open(LocalModel("small"))
        values = await model.compute_logprobs(prompt)
        file = root / "small" / WEIGHTS
        os.link(file, root / "link")
        await local._host.aclose()
        local._host._closed = False
        assert await model.compute_logprobs(prompt) == values

        file.write_bytes((registry.path("arithmetic@600") / WEIGHTS).read_bytes())
        await local._host.aclose()
        local._host._closed = False
        with pytest.raises(FailedPrecondition) as refused:
            await model.compute_logprobs(prompt)
    finally:
        await local.aclose()

    assert refused.value.reason == "CHECKPOINT_CHANGED"


async def test_copies_are_loaded_each(root: Path, monkeypatch: pytest.MonkeyPatch):
    """Equal content has equal fingerprints, and shares no open model; two requests of one directory share it."""
    shutil.copytree(registry.path("arithmetic@600"), root / "same")
    local = LocalBackend([root], device="cpu")
    opened: list[str] = []
    call = HostProcess.call

    async def counted(self: HostProcess, op: str, **fields: Any) -> Any:
        opened.append(op)
        return await call(self, op, **fields)

    monkeypatch.setattr(HostProcess, "call", counted)
    try:
        models = [await local.open(ref) for ref in (LocalModel("same"), EmbeddedModel("arithmetic@600")) * 2]
        for model in models:
            await model.load()
    finally:
        await local.aclose()

    assert opened == ["open"] * 2
    assert len({model.fingerprint for model in models}) == 1
