"""The fingerprint of a checkpoint follows its content."""

import asyncio
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.errors import FailedPrecondition, NotFound
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.checkpoint import Checkpoint, Fingerprints


@pytest.fixture
def model(tmp_path):
    """A directory with the files of a model."""
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(bytes(100))
    return directory


@pytest.fixture
def adapter(tmp_path):
    """A directory with the files of an adapter."""
    directory = tmp_path / "adapter"
    directory.mkdir()
    (directory / "adapter_config.json").write_text("{}")
    (directory / "adapter_model.safetensors").write_bytes(bytes(10))
    return directory


@pytest.fixture
def large(model):
    """A safetensors file of 75 tensors and more than 64 MiB, without blocks on the disk; and where each tensor is."""
    sizes = {f"layer.{n}.{name}": size for n in range(37) for name, size in (("norm", 1_000), ("mlp", 2_000_001))}
    sizes["head"] = 1 << 20
    header, places, end = {}, {}, 0
    for name, size in sizes.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    for name, tensor in header.items():
        places[name] = tuple(8 + len(text) + offset for offset in tensor["data_offsets"])
    with (model / "model.safetensors").open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        stream.truncate(8 + len(text) + end)
    return model / "model.safetensors", places


def change(file, place):
    """Change a byte of a file; its state is another one afterwards."""
    before = file.stat().st_ctime_ns
    with file.open("r+b", buffering=0) as stream:
        byte = os.pread(stream.fileno(), 1, place)[0]
        while file.stat().st_ctime_ns == before:  # the clock of the file system is coarse
            os.pwrite(stream.fileno(), bytes([byte ^ 1]), place)


def fingerprint(directory, **options):
    """The fingerprint of a checkpoint, by one that has seen nothing before."""
    return Fingerprints().of(Checkpoint(directory=directory, **options))


def test_equal_content_has_an_equal_fingerprint(model, tmp_path):
    """A copy elsewhere, of another age, is the same checkpoint."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in model.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
        os.utime(copy / file.name, (1, 1))

    assert fingerprint(copy) == fingerprint(model)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"])
def test_every_relevant_file_counts(model, name):
    """Weights, configuration, tokenizer and template all decide what a model says."""
    before = fingerprint(model)

    (model / name).write_bytes(b"something else")

    assert fingerprint(model) != before


def test_other_files_do_not_count(model):
    """A note beside the weights changes nothing."""
    before = fingerprint(model)

    (model / "README.md").write_text("a note")

    assert fingerprint(model) == before


def test_the_name_of_a_file_counts(model):
    """The same bytes under another name are another checkpoint."""
    before = fingerprint(model)

    (model / "model.safetensors").rename(model / "other.safetensors")

    assert fingerprint(model) != before


def test_a_name_may_be_any_bytes(model):
    """What the file system takes for a name is no error of ours, and counts as any other."""
    before = fingerprint(model)

    (model / os.fsdecode(b"\xff.json")).write_text("{}")

    assert fingerprint(model) != before


def test_one_instance_notices_a_change_of_equal_size(model):
    """What is remembered of a file ends with its time of change."""
    fingerprints, checkpoint = Fingerprints(), Checkpoint(directory=model)
    before = fingerprints.of(checkpoint)

    (model / "model.safetensors").write_bytes(b"\1" * 100)
    os.utime(model / "model.safetensors", ns=(1, 1))

    assert fingerprints.of(checkpoint) != before


def test_any_tensor_of_a_large_file_counts(large):
    """Each of 75 tensors, small ones between large ones: its first, middle and last bytes; and the size of the file."""
    weights, places = large
    fingerprints, checkpoint = Fingerprints(), Checkpoint(directory=weights.parent)
    seen = {fingerprints.of(checkpoint)}

    for begin, end in places.values():
        for place in (begin, (begin + end) // 2, end - 1):
            change(weights, place)
            seen.add(fingerprints.of(checkpoint))
    with weights.open("ab") as stream:
        stream.write(b"1")
    seen.add(fingerprints.of(checkpoint))

    assert len(places) == 75
    assert len(seen) == 1 + 3 * 75 + 1
    assert {one.partition(":")[0] for one in seen} == {"tensors"}


def test_names_and_shapes_of_a_large_file_count(large):
    """The same bytes under other names are other weights."""
    weights, _ = large
    before = fingerprint(weights.parent)

    content = weights.read_bytes()
    weights.write_bytes(content.replace(b"layer.10.norm", b"layer.10.mron"))

    assert fingerprint(weights.parent) != before


def test_a_small_checkpoint_has_a_full_fingerprint(model):
    """It is of every byte, and its digits are those that earlier releases recorded."""
    total = hashlib.sha256()
    for file in sorted(model.iterdir()):
        content = file.read_bytes()
        digest = hashlib.sha256(len(content).to_bytes(8, "little") + content).digest()
        total.update(len(file.name).to_bytes(4, "little") + file.name.encode() + digest)

    assert fingerprint(model) == f"full:{total.hexdigest()}"


@pytest.mark.parametrize("header", [b"", b"\xff" * 8, b"\x02\0\0\0\0\0\0\0[]", b"\x09\0\0\0\0\0\0\0not JSON!"])
def test_a_large_file_with_a_damaged_header_is_refused(model, header):
    """The error names it; nothing of the size that it claims is read."""
    with (model / "model.safetensors").open("wb") as stream:
        stream.write(header)
        stream.truncate((64 << 20) + 1)

    with pytest.raises(FailedPrecondition, match=r"'model\.safetensors' of 'model' is damaged") as refused:
        fingerprint(model)
    assert refused.value.reason == "MODEL_REFUSED"


def test_each_directory_has_its_key(model, tmp_path):
    """Equal content elsewhere has the same fingerprint, and is another open model; so is a type or an adapter."""
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    (tmp_path / "link").symlink_to(model)
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (adapter / name).write_text("{}")
    identify = Fingerprints().identify
    first = identify(Checkpoint(directory=model))

    others = [
        identify(Checkpoint(directory=copy)),
        identify(Checkpoint(directory=model, dtype="float16")),
        identify(Checkpoint(directory=model, adapter=adapter)),
    ]
    assert others[0].fingerprint == first.fingerprint
    assert len({first.key, *(other.key for other in others)}) == 4
    assert not any(first.continues(other) for other in others)
    assert identify(Checkpoint(directory=tmp_path / "link")) == first


@pytest.mark.parametrize("linked", [False, True], ids=["file", "blob of a cache"])
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "adapter_model.safetensors"])
def test_a_file_that_is_written_again_gives_another_key(model, adapter, tmp_path, name, linked):
    """Of equal size, with its time set back: what tells is the time of change, which no program can set."""
    file = (adapter if name.startswith("adapter") else model) / name
    if linked:
        blob = file.rename(tmp_path / "blob")
        file.symlink_to(blob)
    checkpoint = Checkpoint(directory=model, adapter=adapter)
    before = Fingerprints().identify(checkpoint)
    status = file.stat()

    while file.stat().st_ctime_ns == status.st_ctime_ns:  # the clock of the file system is coarse
        file.write_bytes(b"\1" * status.st_size)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    after = Fingerprints().identify(checkpoint)

    assert (file.stat().st_size, file.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    assert after.key != before.key
    assert not before.continues(after)


def test_a_hard_link_makes_no_other_checkpoint(model, tmp_path):
    """It changes the time of change of a file. `follow` holds checkpoints by links while trainers remove them."""
    file = model / "model.safetensors"
    before = Fingerprints().identify(Checkpoint(directory=model))
    changed = file.stat().st_ctime_ns

    while file.stat().st_ctime_ns == changed:
        os.link(file, tmp_path / "link")
        (tmp_path / "link").unlink()
    after = Fingerprints().identify(Checkpoint(directory=model))

    assert after.key != before.key
    assert before.continues(after)


def test_a_hard_link_made_while_a_checkpoint_is_read_is_no_change(model, tmp_path, monkeypatch):
    """The files are read again, and other content with its time set back is seen; a later time is a change."""
    file = model / "model.safetensors"
    expected = Fingerprints().identify(Checkpoint(directory=model)).fingerprint
    read = Fingerprints._full_digest
    begun: list[Path] = []

    def meanwhile(act: Callable[[], None]) -> None:
        def reading(self: Fingerprints, of: Path, *rest: Any, **options: Any) -> bytes:
            digest = read(self, of, *rest, **options)
            if of == file and not begun:
                begun.append(of)
                changed = file.stat().st_ctime_ns
                while file.stat().st_ctime_ns == changed:  # the clock of the file system is coarse
                    act()
            return digest

        begun.clear()
        monkeypatch.setattr(Fingerprints, "_full_digest", reading)

    def link() -> None:
        os.link(file, tmp_path / "link")
        (tmp_path / "link").unlink()

    def write_again() -> None:
        status = file.stat()
        file.write_bytes(b"\1" * status.st_size)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))

    meanwhile(link)
    assert Fingerprints().identify(Checkpoint(directory=model)).fingerprint == expected
    assert begun

    meanwhile(write_again)
    assert Fingerprints().identify(Checkpoint(directory=model)).fingerprint == fingerprint(model) != expected
    assert begun

    meanwhile(lambda: file.write_bytes(b"\2" * file.stat().st_size))
    with pytest.raises(FailedPrecondition) as refused:
        Fingerprints().identify(Checkpoint(directory=model))
    assert refused.value.reason == Reason.CHECKPOINT_CHANGED


def test_shards_in_folders_count(model):
    """Loading reads them where the index says."""
    (model / "model.safetensors").unlink()
    (model / "weights").mkdir()
    (model / "weights" / "a.safetensors").write_bytes(bytes(8))
    index = {"weight_map": {"a": "weights/a.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    before = fingerprint(model)

    (model / "weights" / "a.safetensors").write_bytes(b"\1" * 8)

    assert fingerprint(model) != before


@pytest.mark.asyncio
async def test_the_full_digest_covers_bytes_that_the_other_one_leaves_out(large, monkeypatch):
    """It is equal for equal content elsewhere, and is not of files that have changed since they were opened."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    weights, places = large
    begin, end = places["layer.3.mlp"]
    fingerprints, checkpoint = Fingerprints(), Checkpoint(directory=weights.parent)
    before = fingerprints.identify(checkpoint)
    full = await fingerprints.full(checkpoint, before.key)
    assert full == await Fingerprints().full(checkpoint, before.key)

    change(weights, begin + (end - begin) // 4)
    after = fingerprints.identify(checkpoint)

    assert (after.fingerprint, after.key == before.key) == (before.fingerprint, False)
    assert await fingerprints.full(checkpoint, before.key) is None
    assert await fingerprints.full(checkpoint, after.key) not in (None, full)


@pytest.mark.asyncio
async def test_no_full_digest_is_computed_for_the_loser(large, monkeypatch):
    """It ends when no one waits for it, and the next one begins; one core alone, or a file that is gone, has none."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    monkeypatch.setattr("crucible_worker.backends.local.checkpoint._BACKGROUND_BYTES_PER_SECOND", 1)
    weights, _ = large
    fingerprints, checkpoint = Fingerprints(), Checkpoint(directory=weights.parent)
    key = fingerprints.identify(checkpoint).key

    for _ in range(2):  # each would take longer than a year
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(fingerprints.full(checkpoint, key), 0.05)
    weights.unlink()
    assert await fingerprints.full(checkpoint, key) is None

    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    assert await fingerprints.full(checkpoint, key) is None


def test_adapter_and_type_make_another_model(model, adapter):
    """Each of them changes the numbers; the device does not make another model."""
    options = [{}, {"adapter": adapter}, {"dtype": "bfloat16"}, {"dtype": "float16"}]
    options.append({"adapter": adapter, "dtype": "bfloat16"})

    assert len({fingerprint(model, **one) for one in options}) == len(options)
    assert fingerprint(model, device="cpu") == fingerprint(model)


@pytest.mark.parametrize(
    ("name", "counts"), [("adapter_config.json", True), ("adapter_model.safetensors", True), ("trainer.json", False)]
)
def test_an_adapter_counts_by_its_configuration_and_weights(model, adapter, name, counts):
    """What a training run leaves beside them does not."""
    before = fingerprint(model, adapter=adapter)

    (adapter / name).write_bytes(b"something else")

    assert (fingerprint(model, adapter=adapter) != before) is counts


def test_a_directory_that_is_gone_is_not_found(model, tmp_path):
    """A checkpoint that was removed is missing, not broken."""
    with pytest.raises(NotFound):
        fingerprint(model, adapter=tmp_path / "gone")
    with pytest.raises(NotFound):
        fingerprint(tmp_path / "gone")
