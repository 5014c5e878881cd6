"""The fingerprint of a checkpoint follows its content."""

import os

import pytest

from crucible_bridge.errors import NotFound
from crucible_worker.backends.local.fingerprint import Fingerprints


@pytest.fixture
def model(tmp_path):
    """A directory with the files of a model."""
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(bytes(100))
    return directory


def test_equal_content_has_an_equal_fingerprint(model, tmp_path):
    """A copy elsewhere, of another age, is the same checkpoint."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in model.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
        os.utime(copy / file.name, (1, 1))

    assert Fingerprints().of(copy) == Fingerprints().of(model)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"])
def test_every_relevant_file_counts(model, name):
    """Weights, configuration, tokenizer and template all decide what a model says."""
    before = Fingerprints().of(model)

    (model / name).write_bytes(b"something else")

    assert Fingerprints().of(model) != before


def test_other_files_do_not_count(model):
    """A note beside the weights changes nothing."""
    before = Fingerprints().of(model)

    (model / "README.md").write_text("a note")

    assert Fingerprints().of(model) == before


def test_the_name_of_a_file_counts(model):
    """The same bytes under another name are another checkpoint."""
    before = Fingerprints().of(model)

    (model / "model.safetensors").rename(model / "other.safetensors")

    assert Fingerprints().of(model) != before


def test_one_instance_notices_a_change_of_equal_size(model):
    """What is remembered of a file ends with its time of change."""
    fingerprints = Fingerprints()
    before = fingerprints.of(model)

    (model / "model.safetensors").write_bytes(b"\1" * 100)
    os.utime(model / "model.safetensors", ns=(1, 1))

    assert fingerprints.of(model) != before


@pytest.mark.parametrize("offset", [0, 40 << 20, (64 << 20) + 99])
def test_large_files_count_by_size_and_blocks(model, offset):
    """Above 64 MiB the first and last byte count, and blocks between them; a file that shrinks counts by its size."""
    weights = model / "model.safetensors"
    with weights.open("wb") as stream:
        stream.truncate((64 << 20) + 100)
    before = Fingerprints().of(model)

    with weights.open("r+b") as stream:
        stream.seek(offset)
        # The widest gap between two blocks of a file of this size is a few bytes.
        stream.write(bytes([1]) * 16)
        stream.truncate((64 << 20) + 100)
    changed = Fingerprints().of(model)
    with weights.open("r+b") as stream:
        stream.truncate((64 << 20) + 101)
    longer = Fingerprints().of(model)

    assert len({before, changed, longer}) == 3


def test_a_directory_that_is_gone_is_not_found(tmp_path):
    """A checkpoint that was removed is missing, not broken."""
    with pytest.raises(NotFound):
        Fingerprints().of(tmp_path / "gone")
