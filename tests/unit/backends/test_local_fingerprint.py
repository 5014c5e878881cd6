"""The fingerprint of a checkpoint follows its content."""

import os

import pytest

from crucible_bridge.errors import NotFound
from crucible_worker.backends.local.checkpoint import Checkpoint
from crucible_worker.backends.local.fingerprint import Fingerprints


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


@pytest.mark.parametrize("offset", [0, 40 << 20, (64 << 20) + 99])
def test_large_files_count_by_size_and_blocks(model, offset):
    """Above 64 MiB the first and last byte count, and blocks between them; a file that shrinks counts by its size."""
    weights = model / "model.safetensors"
    with weights.open("wb") as stream:
        stream.truncate((64 << 20) + 100)
    before = fingerprint(model)

    with weights.open("r+b") as stream:
        stream.seek(offset)
        # The widest gap between two blocks of a file of this size is a few bytes.
        stream.write(bytes([1]) * 16)
        stream.truncate((64 << 20) + 100)
    changed = fingerprint(model)
    with weights.open("r+b") as stream:
        stream.truncate((64 << 20) + 101)
    longer = fingerprint(model)

    assert len({before, changed, longer}) == 3


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
