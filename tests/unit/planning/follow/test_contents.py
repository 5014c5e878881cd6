"""What makes a folder a whole model or adapter, and what it lacks otherwise."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open

from crucible_worker.planning.follow import contents
from crucible_worker.planning.follow.contents import MAX_VALUE_CHARS, Incomplete, examine, step_of_trainer_state
from tests.unit.planning.follow.checkpoint_files import adapter_files, model_files, safetensors, sharded_files, write

INDEX = "model.safetensors.index.json"
Files = dict[str, bytes]


def _lacking(folder: Path, marker: str | None = None) -> str:
    with pytest.raises(Incomplete) as raised:
        examine(folder, marker)
    return raised.value.reason


@pytest.mark.parametrize("files", [model_files(), sharded_files(), sharded_files(1), adapter_files()])
def test_a_checkpoint_is_whole_with_its_last_file(files: Files, tmp_path: Path):
    """One file of weights, an index with its shards, or an adapter; in any order without one of them it is not."""
    needed = [name for name in files if name != "tokenizer.json"]
    for name in needed:
        folder = write(tmp_path / f"without-{name}", {other: files[other] for other in files if other != name})
        assert _lacking(folder)

    found = examine(write(tmp_path / "all", files))

    assert set(found.files) == set(files)
    assert found.adapter == ("adapter_config.json" in files)
    assert found.weights == tuple(sorted(name for name in files if name.endswith(".safetensors")))


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, f"has neither model.safetensors nor {INDEX}"),
        ({"model.safetensors": safetensors()}, "has no config.json"),
        ({"config.json": b"{}"}, f"has neither model.safetensors nor {INDEX}"),
        (
            {"config.json": b"{}", "optimizer.pt": b"", "rng_state.pth": b""},
            f"has neither model.safetensors nor {INDEX}",
        ),
        (
            {"config.json": b"{}", "pytorch_model.bin": b"", "optimizer.pt": b""},
            "has only pickled weights ('pytorch_model.bin'), which can run code; save them as safetensors",
        ),
        (
            {"adapter_config.json": b"{}", "adapter_model.bin": b""},
            "has only pickled weights ('adapter_model.bin'), which can run code; save them as safetensors",
        ),
        (
            {"config.json": b"{}", "__0_0.distcp": b""},
            "has only weights of a distributed checkpoint (*.distcp); save them as safetensors",
        ),
        ({"adapter_config.json": b"{}"}, "has no adapter_model.safetensors"),
        ({"config.json": b"{}", "adapter_model.safetensors": safetensors()}, "no adapter_config.json"),
        (model_files() | {"config.json": b"[]"}, "has a malformed config.json: character 0 is not '{'"),
        (model_files() | {"config.json": b'{"a": '}, "has a malformed config.json: Expecting value"),
        (model_files() | {"config.json": b"\xff"}, "has a malformed config.json"),
        (
            model_files() | {"config.json": b'{"a": ' + b"[" * 100_000},
            "has a malformed config.json: it is nested too deeply",
        ),
        (model_files() | {"config.json": b" " * (contents.MAX_CONFIG_BYTES + 1)}, "at most 4,194,304 are read"),
        (model_files() | {"model.safetensors": b""}, "has 0 bytes of model.safetensors, which end in its header"),
        (model_files() | {"model.safetensors": safetensors()[:20]}, "has 20 bytes of model.safetensors"),
        (model_files() | {"model.safetensors": safetensors() + b"1"}, "its header says"),
        (
            model_files() | {"model.safetensors": (contents.MAX_HEADER_BYTES + 1).to_bytes(8, "little") + b"{"},
            "with a header of 100,000,001 bytes; at most 100,000,000 are valid",
        ),
        (model_files() | {"model.safetensors": b"\x02" + bytes(7) + b"[]"}, "has a malformed model.safetensors"),
        (model_files() | {"model.safetensors": b"\x05" + bytes(7) + b"{} {}"}, "text follows the object"),
        (sharded_files() | {INDEX: b"{}"}, "that names no file"),
        (sharded_files() | {INDEX: b'{"weight_map": []}'}, f"has a malformed {INDEX}"),
        (sharded_files() | {INDEX: b'{"weight_map": {"a": 1}}'}, "'1' is not the name of a safetensors file"),
        (sharded_files() | {INDEX: b'{"weight_map": {"a": "../b.safetensors"}}'}, "is not the name of a"),
        (sharded_files() | {INDEX: b'{"weight_map": {"a": "/b.safetensors"}}'}, "is not the name of a"),
        (sharded_files() | {INDEX: b'{"weight_map": {"a": "b.bin"}}'}, "is not the name of a"),
        (sharded_files() | {INDEX: b'{"weight_map": {"a": "b.safetensors"}}'}, "has no b.safetensors"),
        (sharded_files() | {INDEX: b'{"weight_map": {"a": "b/c.safetensors"}}'}, "has no b/c.safetensors"),
        (sharded_files() | {INDEX: b'{"weight_map": {}} 1'}, "text follows the object"),
    ],
)
def test_the_reason_says_what_is_missing(files: Files, reason: str, tmp_path: Path):
    """So that a user sees what to wait for, or what to change."""
    assert reason in _lacking(write(tmp_path / "checkpoint", files))


@pytest.mark.parametrize(
    "header",
    [
        b'{"__metadata__": [' + b"[]," * MAX_VALUE_CHARS + b"1]}",
        b'{"__metadata__": {"a": [' + b"[]," * MAX_VALUE_CHARS + b"1]}}",
        b'{"a": {"data_offsets": [' + b"[]," * MAX_VALUE_CHARS + b"1]}}",
    ],
)
def test_a_header_is_not_read_at_once(header: bytes, tmp_path: Path):
    """Every other thread would wait meanwhile; and its lists would take gigabytes."""
    files = model_files() | {"model.safetensors": len(header).to_bytes(8, "little") + header}

    assert "has a malformed model.safetensors: character" in _lacking(write(tmp_path / "checkpoint", files))


def test_other_files_may_have_long_values(tmp_path: Path):
    """Labels of a model, texts of a header, the log of a trainer."""
    log = [{"loss": 1.0, "step": step} for step in range(20_000)]
    labels = {"text_config": {"id2label": {str(number): f"label {number}" for number in range(20_000)}}}
    header = json.dumps({"__metadata__": {"tags": "t" * 2 * MAX_VALUE_CHARS}}).encode()
    files = {
        "config.json": json.dumps(labels).encode(),
        "model.safetensors": len(header).to_bytes(8, "little") + header,
        "trainer_state.json": json.dumps({"log_history": log, "global_step": 7}).encode(),
    }
    folder = write(tmp_path / "checkpoint", files)

    assert contents.examine(folder).last is not None
    assert contents.step_of_trainer_state(folder) == 7


@pytest.mark.parametrize("tensor", [b"1", b"{}", b'{"data_offsets": [0]}', b'{"data_offsets": [2, 1]}'])
def test_a_tensor_needs_its_place(tensor: bytes, tmp_path: Path):
    """Its beginning and its end in the file."""
    header = b'{"a": ' + tensor + b"}"
    files = model_files() | {"model.safetensors": len(header).to_bytes(8, "little") + header}

    assert "the tensor 'a'" in _lacking(write(tmp_path / "checkpoint", files))


def test_a_missing_folder_is_gone(tmp_path: Path):
    """And a file is no folder."""
    assert _lacking(tmp_path / "absent") == "is gone"
    (tmp_path / "file").touch()
    assert _lacking(tmp_path / "file") == "cannot be read (Not a directory)"


def test_a_marker_is_waited_for_and_is_not_enough(tmp_path: Path):
    """A marker that is there before the weights does not make them whole."""
    folder = write(tmp_path / "checkpoint", model_files())
    assert _lacking(folder, "DONE") == "waits for its marker 'DONE'"

    (folder / "DONE").touch()
    assert "DONE" not in examine(folder, "DONE").files

    (folder / "model.safetensors").unlink()
    assert "has neither" in _lacking(folder, "DONE")


def test_shards_may_lie_in_folders(tmp_path: Path):
    """The index has their paths in the checkpoint."""
    index = json.dumps({"weight_map": {"a": "weights/a.safetensors"}}).encode()
    files = {"config.json": b"{}", INDEX: index, "weights/a.safetensors": safetensors()}

    assert examine(write(tmp_path / "checkpoint", files)).weights == ("weights/a.safetensors",)


def test_one_file_is_preferred_to_an_index(tmp_path: Path):
    """Whether both may be there is for loading to say: it refuses them, and names the files."""
    files = sharded_files() | model_files()
    del files["model-00002-of-00002.safetensors"]

    assert examine(write(tmp_path / "checkpoint", files)).weights == ("model.safetensors",)


def test_a_merged_model_with_its_adapter_is_an_adapter(tmp_path: Path):
    """Trainers such as torchtune write both, and loading refuses a model with an adapter_config.json."""
    found = examine(write(tmp_path / "epoch_0", sharded_files() | adapter_files()))

    assert found.adapter
    assert set(found.files) == set(adapter_files())


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), os.mkfifo], ids=["folder", "pipe"])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_only_files_are_read(name: str, make: Callable[[Path], None], tmp_path: Path):
    """A pipe would make its reader wait."""
    folder = write(tmp_path / "checkpoint", model_files())
    (folder / name).unlink()
    make(folder / name)

    assert name in _lacking(folder)


def test_other_files_of_loading_count_if_they_are_files(tmp_path: Path):
    """A folder, a pipe and a dangling link do not."""
    folder = write(tmp_path / "checkpoint", model_files() | {"chat_template.jinja": b"", "optimizer.pt": b""})
    (folder / "runs.json").mkdir()
    os.mkfifo(folder / "pipe.txt")
    (folder / "link.json").symlink_to("absent")

    assert set(examine(folder).files) == {*model_files(), "chat_template.jinja"}


def test_the_identity_is_that_of_the_weights(tmp_path: Path):
    """It stays when a file is added, and changes when the same weights are written again."""
    folder = write(tmp_path / "checkpoint", model_files())
    identity = examine(folder).identity

    (folder / "trainer_state.json").write_text("{}")
    assert examine(folder).identity == identity

    (folder / "model.safetensors").unlink()
    write(folder, {"other": b"", "model.safetensors": safetensors()})
    assert examine(folder).identity != identity


@pytest.mark.parametrize(
    ("state", "step"),
    [
        ('{"global_step": 70, "log_history": [', 70),
        ('{"epoch": 1.5, "global_step": 0}', 0),
        (f'{{"global_step": {2**63 - 1}}}', 2**63 - 1),
    ],
)
def test_a_trainer_state_has_a_step(state: str, step: int, tmp_path: Path):
    """What follows the step, which is the long log, is not read."""
    (tmp_path / "trainer_state.json").write_text(state)

    assert step_of_trainer_state(tmp_path) == step


@pytest.mark.parametrize(
    "state", ["", "[]", "{}", '{"global_step": ', *(f'{{"global_step": {v}}}' for v in ("-1", "1.5", "true", 2**63))]
)
def test_a_trainer_state_without_a_step_is_incomplete(state: str, tmp_path: Path):
    """It may be complete later."""
    (tmp_path / "trainer_state.json").write_text(state)

    with pytest.raises(Incomplete, match=r"trainer_state\.json"):
        step_of_trainer_state(tmp_path)


def test_no_trainer_state_is_no_step(tmp_path: Path):
    """As opposed to one that cannot be read."""
    assert step_of_trainer_state(tmp_path) is None


@given(st.integers(0, 40), st.integers(0, 5), st.data())
def test_a_file_is_whole_with_its_last_byte_alone(tmp_path_factory, size: int, tensors: int, data: st.DataObject):
    """As the library that loads it decides."""
    folder = tmp_path_factory.mktemp("checkpoint")
    weights = safetensors(size=size, tensors=tensors) + b"more"
    write(folder, model_files())
    length = data.draw(st.integers(0, len(weights)) | st.integers(len(weights) - 6, len(weights)))
    (folder / "model.safetensors").write_bytes(weights[:length])

    try:
        with safe_open(folder / "model.safetensors", "numpy"):
            loadable = True
    except SafetensorError:
        loadable = False

    assert loadable == (length == len(weights) - 4)
    if loadable:
        examine(folder)
    else:
        assert "model.safetensors" in _lacking(folder)


junk = st.binary(max_size=60) | st.text('{}[]",:01ae data_offsets', max_size=60).map(
    lambda text: len(text).to_bytes(8, "little") + text.encode()
)


@given(st.sampled_from(["config.json", INDEX, "adapter_config.json", "model-00001-of-00002.safetensors"]), junk)
def test_any_bytes_are_whole_or_incomplete(tmp_path_factory, name: str, content: bytes):
    """Nothing else is raised, whatever a file contains."""
    folder = write(tmp_path_factory.mktemp("checkpoint"), sharded_files() | {name: content})

    with contextlib.suppress(Incomplete):
        examine(folder)


@given(st.dictionaries(st.text(max_size=5), st.integers(0, 9), min_size=1, max_size=20))
def test_the_shards_are_those_that_the_index_names(tmp_path_factory, tensors: dict[str, int]):
    """Each once, however many tensors it has."""
    names = {tensor: f"model-{shard}.safetensors" for tensor, shard in tensors.items()}
    weights = dict.fromkeys(names.values(), safetensors())
    index = {INDEX: json.dumps({"weight_map": names}).encode()}
    folder = write(tmp_path_factory.mktemp("checkpoint"), {"config.json": b"{}"} | weights | index)

    assert examine(folder).weights == tuple(sorted(weights))


def test_the_bound_of_shards_is_inclusive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """More are not looked for."""
    folder = write(tmp_path / "checkpoint", sharded_files(3))
    monkeypatch.setattr(contents, "MAX_SHARDS", 3)
    examine(folder)

    monkeypatch.setattr(contents, "MAX_SHARDS", 2)
    assert _lacking(folder) == "has an index of more than 2 files"
