"""Holding a checkpoint: all of it or nothing, and letting it go."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from crucible_worker.planning.follow import holding
from crucible_worker.planning.follow.checkpoints import FollowedCheckpoint, Naming, look
from crucible_worker.planning.follow.holding import GivenUp, Held, Vanished, changed, hold, left, recovered, release
from tests.unit.planning.follow.checkpoint_files import (
    adapter_files,
    age,
    model_files,
    safetensors,
    sharded_files,
    write,
)

ENOUGH = 1 << 20
Hold = Callable[..., Held]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The followed folder."""
    return tmp_path / "run"


@pytest.fixture
def folder(run: Path) -> Path:
    """Where checkpoints are held."""
    return run / ".crucible" / "follower"


def _found(run: Path, files: dict[str, bytes], name: str = "checkpoint-5") -> FollowedCheckpoint:
    write(run / name, files)
    return next(one for one in look(run, Naming()).whole if one.name == name)


def _hold(checkpoint: FollowedCheckpoint, folder: Path, max_copy_bytes: int = ENOUGH, **options: object) -> Held:
    return hold(checkpoint, folder, max_copy_bytes=max_copy_bytes, naming=Naming(), **options)  # type: ignore[arg-type]


def _read(folder: Path) -> dict[str, bytes]:
    """Files in a folder that loading reads."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def _refuse_links(monkeypatch: pytest.MonkeyPatch, code: int = errno.EPERM) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.parametrize("files", [model_files(), sharded_files(), adapter_files()], ids=["model", "shards", "adapter"])
def test_links_outlive_the_checkpoint(files: dict[str, bytes], run: Path, folder: Path):
    """A trainer deletes its names, and the content stays until it is released."""
    checkpoint = _found(run, files | {"optimizer.pt": b"large"})

    held = _hold(checkpoint, folder)
    assert (held.path, held.how, held.why) == (folder / "checkpoint-5", "links", "")
    assert (held.path / checkpoint.files[0]).samefile(checkpoint.path / checkpoint.files[0])

    shutil.rmtree(checkpoint.path)
    assert _read(held.path) == files
    assert changed(held.path, held.identity) == ""

    release(folder, checkpoint.name)
    assert not folder.exists()
    release(folder, checkpoint.name)


def test_a_held_checkpoint_is_none_of_the_run(run: Path, folder: Path):
    """Else it would be followed itself."""
    checkpoint = _found(run, model_files())
    _hold(checkpoint, folder)

    assert look(run, Naming()).whole == (checkpoint,)
    assert look(run, Naming("*/*/*{step}")).whole == ()


def test_what_is_held_is_held_once(run: Path, folder: Path):
    """A process that was killed after it held a checkpoint finds it, though the trainer has deleted it since."""
    checkpoint = _found(run, model_files())
    held = _hold(checkpoint, folder)
    shutil.rmtree(checkpoint.path)

    assert _hold(checkpoint, folder) == held
    with pytest.raises(Vanished, match="is gone"):
        _hold(dataclasses.replace(checkpoint, identity="another"), folder)


def test_a_checkpoint_that_was_written_again_takes_the_place_of_the_first(run: Path, folder: Path):
    """Of two checkpoints of a name, the one that is asked for is held."""
    first = _found(run, model_files())
    _hold(first, folder)
    shutil.rmtree(first.path)
    second = _found(run, model_files() | {"model.safetensors": safetensors(size=32)})

    held = _hold(second, folder)

    assert _read(held.path)["model.safetensors"] == safetensors(size=32)
    assert os.listdir(folder) == ["checkpoint-5"]
    with pytest.raises(Vanished, match="was written again after it was found"):
        _hold(first, folder)


@pytest.mark.parametrize("code", [errno.EPERM, errno.EXDEV, errno.EMLINK, errno.ENOTSUP, errno.EACCES])
def test_files_are_copied_if_links_are_refused(code: int, run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Whatever the reason of the file system; the copy has the times of the files."""
    checkpoint = _found(run, sharded_files())
    _refuse_links(monkeypatch, code)

    held = _hold(checkpoint, folder)
    assert (held.path, held.how) == (folder / "checkpoint-5", "copy")
    assert held.why == f"hard links are refused: {os.strerror(code)} ({folder})"

    shutil.rmtree(checkpoint.path)
    assert _read(held.path) == sharded_files()
    assert changed(held.path, held.identity) == ""
    assert _hold(checkpoint, folder) == held


def test_a_copy_has_a_bound(run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Of all that loading reads, inclusive; above it, the checkpoint is read where it is."""
    checkpoint = _found(run, model_files() | {"optimizer.pt": bytes(ENOUGH)})
    _refuse_links(monkeypatch)
    size = sum(map(len, model_files().values()))

    unheld = _hold(checkpoint, folder, size - 1)
    assert (unheld.path, unheld.how, unheld.identity) == (checkpoint.path, "nothing", checkpoint.identity)
    assert unheld.why.endswith(f"a copy of {size} bytes is above the bound of {size - 1}")
    assert not folder.exists()

    assert _hold(checkpoint, folder, size).how == "copy"


def test_a_copy_goes_elsewhere_if_the_folder_cannot_be_written(run: Path, folder: Path, tmp_path: Path):
    """As in a run that is mounted to be read alone."""
    checkpoint = _found(run, model_files())
    folder.parent.write_text("no folder can be made in a file")
    copies = tmp_path / "copies"

    held = _hold(checkpoint, folder, copy_folder=copies)
    assert (held.path, held.how) == (copies / "checkpoint-5", "copy")
    assert _hold(checkpoint, folder, copy_folder=copies) == held

    release(copies, "checkpoint-5")
    assert not copies.exists()

    unheld = _hold(checkpoint, folder)
    assert unheld.how == "nothing"
    assert "a copy is refused: " in unheld.why


@pytest.mark.parametrize("links", [True, False], ids=["links", "copy"])
@pytest.mark.parametrize("name", model_files())
def test_one_that_is_deleted_while_it_is_held_vanishes(
    name: str, links: bool, run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """Whichever file was deleted first; nothing of it is left."""
    checkpoint = _found(run, model_files())
    if not links:
        _refuse_links(monkeypatch)
    (checkpoint.path / name).unlink()

    with pytest.raises(Vanished, match=r"lost its tokenizer\.json|has n"):
        _hold(checkpoint, folder)

    assert not folder.exists()


@pytest.mark.parametrize("after", range(3))
def test_a_deletion_between_two_links_is_noticed(after: int, run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    """As one between the look and the first link is."""
    checkpoint = _found(run, model_files())
    linked: list[object] = []

    def link(*names: object, **options: object) -> None:
        if len(linked) == after:
            shutil.rmtree(checkpoint.path)
        linked.append(names)
        original(*names, **options)  # type: ignore[arg-type]

    original = os.link
    monkeypatch.setattr(os, "link", link)

    with pytest.raises(Vanished, match="is gone"):
        _hold(checkpoint, folder)

    assert not folder.exists()


@pytest.mark.parametrize("links", [True, False], ids=["links", "copy"])
def test_a_file_that_is_written_meanwhile_is_held_as_it_is_then(
    links: bool, run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """A trainer may write trainer_state.json at that moment; the weights are the same."""
    checkpoint = _found(run, model_files() | {"trainer_state.json": b"{}"})
    verified = holding._verified
    calls: list[object] = []

    def write_state(*arguments: object) -> str:
        if not calls:
            (checkpoint.path / "trainer_state.json").write_bytes(b'{"global_step": 5}')
        calls.append(arguments)
        return verified(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(holding, "_verified", write_state)
    if not links:
        _refuse_links(monkeypatch)

    held = _hold(checkpoint, folder)

    assert held.how == ("links" if links else "copy")
    if links:
        assert len(calls) == 2
        assert _read(held.path)["trainer_state.json"] == b'{"global_step": 5}'


def test_one_that_changes_again_and_again_vanishes(run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    """It is tried a few times."""
    checkpoint = _found(run, model_files())
    verified = holding._verified

    def write_tokenizer(*arguments: object) -> str:
        with (checkpoint.path / "tokenizer.json").open("ab") as file:
            file.write(b" ")
        return verified(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(holding, "_verified", write_tokenizer)

    with pytest.raises(Vanished, match=r"its tokenizer\.json changed"):
        _hold(checkpoint, folder)

    assert not folder.exists()


def test_weights_that_are_written_in_place_are_noticed(run: Path, folder: Path):
    """A link does not protect them, so a result may be of other weights than those that were found."""
    checkpoint = _found(run, model_files())
    held = _hold(checkpoint, folder)

    (checkpoint.path / "model.safetensors").write_bytes(safetensors())
    assert changed(held.path, held.identity) == "was written again while it was read"

    (checkpoint.path / "model.safetensors").write_bytes(b"")
    assert "has 0 bytes of model.safetensors" in changed(held.path, held.identity)
    with pytest.raises(Vanished):
        _hold(checkpoint, folder)


def test_a_copy_can_be_given_up(run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    """A worker that ends does not wait for gigabytes."""
    checkpoint = _found(run, model_files())
    _refuse_links(monkeypatch)

    with pytest.raises(GivenUp):
        _hold(checkpoint, folder, given_up=lambda: True)

    assert not folder.exists()


def test_files_for_loading_may_be_links_within_the_run(run: Path, folder: Path):
    """A tokenizer that all checkpoints share. Its content is held, and not the link."""
    write(run / "shared", {"tokenizer.json": b"{}"})
    files = model_files()
    del files["tokenizer.json"]
    write(run / "checkpoint-5", files)
    (run / "checkpoint-5" / "tokenizer.json").symlink_to("../shared/tokenizer.json")
    age(run / "checkpoint-5")
    (checkpoint,) = look(run, Naming()).whole

    held = _hold(checkpoint, folder)
    shutil.rmtree(run / "shared")

    assert held.how == "links"
    assert _read(held.path) == model_files()


def test_a_link_out_of_the_run_is_not_held(run: Path, folder: Path, tmp_path: Path):
    """The loader decides by the rules of model roots, and a hard link would hide the target from them."""
    write(tmp_path / "secret", {"tokenizer.json": b"{}"})
    write(run / "checkpoint-5", model_files())
    (run / "checkpoint-5" / "tokenizer.json").unlink()
    (run / "checkpoint-5" / "tokenizer.json").symlink_to(tmp_path / "secret" / "tokenizer.json")
    age(run / "checkpoint-5")
    (checkpoint,) = look(run, Naming()).whole

    held = _hold(checkpoint, folder)

    assert (held.path, held.how) == (checkpoint.path, "nothing")
    assert held.why == "'tokenizer.json' is a symbolic link out of the followed folder"


def test_nothing_that_was_not_made_here_is_removed(run: Path, folder: Path):
    """A user may name a folder that contains other things: the run itself, at the worst."""
    checkpoint = _found(run, model_files())

    held = _hold(checkpoint, run)
    assert held.how == "nothing"
    release(run, checkpoint.name)
    assert _read(checkpoint.path) == model_files()
    assert left(run) == ()

    write(folder / "checkpoint-5", {"notes.txt": b"mine"})
    assert _hold(checkpoint, folder).how == "nothing"
    release(folder, "checkpoint-5")
    assert _read(folder / "checkpoint-5") == {"notes.txt": b"mine"}


@pytest.mark.parametrize("linked", ["folder", "parent"])
def test_nothing_is_held_through_a_link(linked: str, run: Path, folder: Path, tmp_path: Path):
    """It may lead out of the model root, where no checkpoint may be read."""
    checkpoint, target = _found(run, model_files()), tmp_path / "target"
    target.mkdir()
    link = folder if linked == "folder" else folder.parent
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(target)

    held = _hold(checkpoint, folder)

    assert (held.how, held.path) == ("nothing", checkpoint.path)
    assert f"{link} is a symbolic link" in held.why
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("field", [{"step": "7"}, {"written_at": None}, {"step": True}])
def test_a_record_that_is_none_is_not_recovered(field: dict[str, object], run: Path, folder: Path):
    """Another program may have written it."""
    file = _hold(_found(run, model_files()), folder).path / ".held"
    assert len(recovered(folder)) == 1
    record = json.loads(file.read_text())
    record["checkpoint"] |= field
    file.write_text(json.dumps(record))

    assert recovered(folder) == ()
    file.write_text("[" * 100_000)
    assert recovered(folder) == ()


def test_what_a_killed_process_left_is_listed_and_released(run: Path, folder: Path):
    """Whole or in part; a new hold replaces a part."""
    checkpoint = _found(run, model_files())
    _hold(_found(run, model_files(), "checkpoint-6"), folder)
    write(folder / ".checkpoint-5.crucible-partial", {"config.json": b"{}", ".held": b"{}"})
    write(folder / ".checkpoint-4.crucible-partial", {"config.json": b"{}"})
    assert left(folder) == ("checkpoint-4", "checkpoint-5", "checkpoint-6")

    assert _read(_hold(checkpoint, folder).path) == model_files()
    assert sorted(os.listdir(folder)) == [".checkpoint-4.crucible-partial", "checkpoint-5", "checkpoint-6"]

    for name in left(folder):
        release(folder, name)
    assert left(folder) == ()
    assert not folder.exists()


def test_what_is_held_whole_can_be_recovered(run: Path, folder: Path):
    """By the next process, though the trainer has deleted the checkpoint; what has changed since cannot."""
    assert recovered(folder) == ()
    checkpoints = [_found(run, model_files(), f"checkpoint-{step}") for step in (10, 9, 8)]
    held = [_hold(checkpoint, folder) for checkpoint in checkpoints]
    (held[2].path / "model.safetensors").write_bytes(b"")
    write(folder / ".checkpoint-5.crucible-partial", {"config.json": b"{}"})
    write(folder / "other", {".held": b'{"checkpoint": 1}'})
    for checkpoint in checkpoints:
        shutil.rmtree(checkpoint.path)

    assert recovered(folder) == (checkpoints[1], checkpoints[0])
    assert [_hold(checkpoint, folder) for checkpoint in recovered(folder)] == [held[1], held[0]]


@pytest.mark.parametrize("name", ["", ".", "..", "../run", "a/b", ".hidden", "a\0b"])
def test_a_name_leads_nowhere_else(name: str, folder: Path):
    """It is that of a folder in the folder."""
    with pytest.raises(ValueError, match="is not the name of a checkpoint"):
        release(folder, name)


def test_a_marker_needs_not_be_held(run: Path, folder: Path):
    """It has done its work; the checkpoint itself has to have it."""
    naming = Naming(marker="DONE")
    write(run / "step_1", model_files() | {"DONE": b""})
    (checkpoint,) = look(run, naming).whole

    held = hold(checkpoint, folder, max_copy_bytes=0, naming=naming)
    assert _read(held.path) == model_files()
    release(folder, "step_1")

    (checkpoint.path / "DONE").unlink()
    with pytest.raises(Vanished, match="waits for its marker 'DONE'"):
        hold(checkpoint, folder, max_copy_bytes=0, naming=naming)
