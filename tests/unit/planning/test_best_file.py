"""The file BEST: where it is written, and what is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from crucible_bridge.errors import BridgeError, InvalidField
from crucible_bridge.types import EmbeddedModel, HubModel, LocalModel, ModelRef, TinkerModel, format_model
from crucible_worker.planning.best_file import BEST_FILE, CheckpointDeleted, Followed, write_best


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A model root with two checkpoints of a run."""
    for name in ("step-1", "step-2"):
        (tmp_path / "models" / "run" / name).mkdir(parents=True)
    return tmp_path / "models"


@pytest.mark.parametrize(
    ("model", "where", "name"),
    [
        (LocalModel("run/step-1"), "run", "step-1"),
        (LocalModel("run"), "", "run"),
        (LocalModel("run", adapter_path="run/step-2"), "run", "step-2"),
        (HubModel("owner/name", adapter_path="run/step-2"), "run", "step-2"),
    ],
)
def test_it_is_next_to_the_checkpoint(root: Path, model: ModelRef, where: str, name: str):
    """For a model with an adapter, next to the adapter; a file that is there is replaced."""
    for value in (0.5, 0.75):
        file = write_best((root,), model, {"value": value})
        assert file == root / where / BEST_FILE
        found = json.loads(file.read_text())
        assert (found["checkpoint"], found["value"]) == (name, value)


def test_a_checkpoint_that_is_held_belongs_to_the_followed_directory(root: Path):
    """Also when it is no longer held: the file is in the directory that the trainer writes into."""
    held = LocalModel(str(root / "run" / ".crucible" / "run" / "step-9"))
    assert write_best((root,), held, {}, gone=True) == root / "run" / BEST_FILE
    with pytest.raises(CheckpointDeleted, match=f"step-9 was deleted since it was evaluated: {root}/run is there"):
        write_best((root,), held, {})


def test_a_checkpoint_that_is_gone_is_no_wrong_root(root: Path, tmp_path: Path):
    """The folder that held it is there; a copy that was kept of it is named in its place."""
    gone = LocalModel("run/step-9")
    with pytest.raises(CheckpointDeleted, match=r"save_total_limit"):
        write_best((root,), gone, {})
    for model, roots in ((gone, (tmp_path,)), (LocalModel("step-9"), (root / "run",))):
        with pytest.raises(BridgeError, match="no model root has this folder") as caught:
            write_best(roots, model, {})
        assert not isinstance(caught.value, CheckpointDeleted)

    copy = root / "run" / "best" / "step-9"
    found = json.loads(write_best((root,), gone, {}, copy_in=lambda holder: holder / "best" / "step-9").read_text())
    assert (found["checkpoint"], found["model"]) == ("best/step-9", format_model(LocalModel(str(copy))))


@pytest.mark.parametrize("base", [None, "run"])
def test_a_checkpoint_that_was_held_is_named_by_the_trainers_own_folder(root: Path, base: str | None):
    """Held files are removed once they are read, so their path would lead nowhere."""
    held, own = str(root / "run" / ".crucible" / "run" / "step-2"), str(root / "run" / "step-2")
    model = LocalModel(held) if base is None else LocalModel(base, adapter_path=held)
    found = json.loads(write_best((root,), model, {}).read_text())
    wanted = LocalModel(own) if base is None else LocalModel(base, adapter_path=own)
    assert (found["checkpoint"], found["model"]) == ("step-2", format_model(wanted))


@pytest.mark.parametrize("path", [".", "", "..", "run/..", "../other/step", "/etc/step", "/etc/.crucible/run/step"])
@pytest.mark.parametrize("gone", [True, False])
def test_no_path_leads_out_of_the_roots(root: Path, path: str, gone: bool):
    """Nothing is written outside, nor above a root."""
    (root.parent / "other" / "step").mkdir(parents=True)
    with pytest.raises(BridgeError):
        write_best((root,), LocalModel(path), {}, gone=gone)
    assert not list(root.parent.rglob(BEST_FILE))


def test_a_link_that_leads_out_is_refused(root: Path, tmp_path: Path):
    """The folder that holds the checkpoint is looked at by its real path."""
    (tmp_path / "outside" / "step").mkdir(parents=True)
    (root / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(BridgeError, match="leads out"):
        write_best((root,), LocalModel("link/step"), {}, gone=True)


@pytest.mark.parametrize("make", [lambda file: file.symlink_to("/dev/null"), os.mkfifo, Path.mkdir])
def test_what_is_no_file_is_not_written_to(make: Callable[[Path], object], root: Path):
    """A link may lead out of the roots; a pipe would make its writer wait."""
    make(root / "run" / BEST_FILE)
    with pytest.raises(OSError, match="is no file: remove it"):
        write_best((root,), LocalModel("run/step-1"), {})


@pytest.mark.parametrize("name", ["step-1", "step-1/actor"])
@pytest.mark.parametrize("base", [None, "owner/name"])
def test_a_followed_checkpoint_is_named_where_it_is(name: str, base: str | None, root: Path):
    """Not where it was held: that is gone when the file is read."""
    held, source = str(root / "holds" / "run" / "step-1"), str(root / "run" / name)
    followed = Followed(directory=str(root / "run"), source=source)
    model = LocalModel(held) if base is None else HubModel(base, adapter_path=held)

    file = write_best((root,), model, {}, gone=True, followed=followed)

    expected = f"local:{source}" if base is None else f"hub:{base}?adapter={source}"
    assert file == root / "run" / BEST_FILE
    assert json.loads(file.read_text()) == {"checkpoint": name, "model": expected}


@pytest.mark.parametrize("model", [EmbeddedModel("m"), TinkerModel(base_model="m"), HubModel("owner/name")])
def test_what_is_no_folder_is_refused(root: Path, model: ModelRef):
    """The error names the model."""
    with pytest.raises(InvalidField, match="is written next to checkpoints") as caught:
        write_best((root,), model, {})
    assert caught.value.field == "model"


def test_without_a_root_nothing_is_written():
    """The error names the option."""
    with pytest.raises(BridgeError, match="--model-root"):
        write_best((), LocalModel("run/step-1"), {})


def test_a_file_that_is_not_confirmed_stays_as_it_was(root: Path):
    """`confirm` is the last word before the file gets its name: a writer that was overtaken replaces nothing."""

    def overtaken():
        raise LookupError("another one has written it")

    file = write_best((root,), LocalModel("run/step-1"), {"value": 0.5})
    before = file.read_bytes()
    with pytest.raises(LookupError):
        write_best((root,), LocalModel("run/step-1"), {"value": 0.25}, confirm=overtaken)
    assert file.read_bytes() == before
    assert sorted(path.name for path in file.parent.iterdir() if path.name.endswith(".part")) == []
