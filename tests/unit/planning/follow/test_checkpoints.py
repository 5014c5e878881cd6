"""Looking at a folder of checkpoints, once and again."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from crucible_worker.planning.follow import checkpoints
from crucible_worker.planning.follow.checkpoints import (
    SETTLE_SECONDS,
    CheckpointScanner,
    Naming,
    ScanResult,
    Unfinished,
    look,
    whole,
)
from tests.unit.planning.follow.checkpoint_files import (
    adapter_files,
    age,
    model_files,
    safetensors,
    sharded_files,
    write,
)


def _names(looked: ScanResult) -> tuple[list[str], list[str]]:
    return [one.name for one in looked.whole], [one.name for one in looked.unfinished]


def test_whole_checkpoints_come_by_step_and_others_say_what_they_lack(tmp_path: Path):
    """Whatever else a trainer writes there has nothing to do with them."""
    write(tmp_path / "checkpoint-10", model_files())
    write(tmp_path / "checkpoint-9", sharded_files())
    write(tmp_path / "checkpoint-11", adapter_files())
    write(tmp_path / "checkpoint-13", {"config.json": b"{}"})
    write(tmp_path / "runs", {"events.out": b""})
    write(tmp_path / "tmp-checkpoint-14", model_files())
    (tmp_path / "checkpoint-15").touch()

    looked = look(tmp_path, Naming())

    assert [(one.name, one.step, one.adapter, one.path) for one in looked.whole] == [
        ("checkpoint-9", 9, False, tmp_path / "checkpoint-9"),
        ("checkpoint-10", 10, False, tmp_path / "checkpoint-10"),
        ("checkpoint-11", 11, True, tmp_path / "checkpoint-11"),
    ]
    assert looked.whole[1].files == tuple(sorted(model_files()))
    reason = "has neither model.safetensors nor model.safetensors.index.json"
    assert looked.unfinished == (Unfinished(name="checkpoint-13", step=13, reason=reason),)
    assert whole(tmp_path / "checkpoint-13", Naming()) == reason
    assert whole(tmp_path / "checkpoint-10", Naming()) == ""


def test_a_directory_that_does_not_exist_has_none(tmp_path: Path):
    """A trainer makes it later. What is no directory is an error."""
    assert look(tmp_path / "absent", Naming()) == ScanResult(whole=(), unfinished=())
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        look(tmp_path / "file", Naming())


def test_a_checkpoint_that_still_changes_is_not_whole(tmp_path: Path):
    """Trainers write the tokenizer after the weights; which files will come is not known."""
    folder = write(tmp_path / "checkpoint-1", model_files(), old=False)
    assert look(tmp_path, Naming()).unfinished == (Unfinished(name="checkpoint-1", step=1, reason="still changes"),)
    assert whole(folder, Naming()) == "still changes"

    age(folder)
    assert _names(look(tmp_path, Naming())) == (["checkpoint-1"], [])

    for path in (folder, folder / "tokenizer.json", folder / "model.safetensors"):
        when = path.stat().st_mtime
        os.utime(path)
        assert whole(folder, Naming()) == "still changes"
        os.utime(path, (when, when))
        assert whole(folder, Naming()) == ""


@pytest.mark.parametrize(
    ("naming", "last"),
    [
        (Naming(), {"trainer_state.json": b'{"global_step": 1, "log_history": []}'}),
        (Naming(marker="DONE"), {"DONE": b""}),
    ],
    ids=["trainer_state", "marker"],
)
@pytest.mark.parametrize("files", [model_files(), adapter_files()], ids=["model", "adapter"])
def test_the_last_file_of_a_trainer_ends_the_wait(files: dict[str, bytes], naming: Naming, last: dict, tmp_path: Path):
    """Unless anything is written, added or removed after it."""
    folder = write(tmp_path / "checkpoint-1", files | {"optimizer.pt": b""} | last, old=False)
    assert whole(folder, naming) == ""
    assert _names(look(tmp_path, naming)) == (["checkpoint-1"], [])

    written = (folder / next(iter(last))).stat().st_mtime_ns
    for change in (folder / "optimizer.pt").unlink, (folder / "rng_state.pth").touch:
        change()
        later = written + 60_000_000  # 60 ms
        os.utime(folder, ns=(later, later))
        assert whole(folder, naming) == "still changes"
    os.utime(folder, ns=(written, written))
    assert whole(folder, naming) == ""

    os.utime(folder / next(iter(files)), ns=(written + 1, written + 1))
    assert whole(folder, naming) == "still changes"


@pytest.mark.parametrize("state", [b"", b'{"global_step": 1, "log_history": [', b'{"global_step": 1} {}', b"[]"])
def test_a_trainer_state_that_is_being_written_does_not_end_it(state: bytes, tmp_path: Path):
    """Only a whole one is the last file."""
    folder = write(tmp_path / "checkpoint-1", model_files() | {"trainer_state.json": state}, old=False)

    assert whole(folder, Naming()) == "still changes"


def test_a_deletion_that_begins_during_a_look_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The tokenizer may be gone, and the time of the folder was read before that."""
    folder = write(tmp_path / "checkpoint-1", model_files())

    def examine(path: Path, marker: str | None):
        (path / "tokenizer.json").unlink(missing_ok=True)
        return original(path, marker)

    original = checkpoints.examine
    monkeypatch.setattr(checkpoints, "examine", examine)

    assert whole(folder, Naming()) == "still changes"
    write(folder, model_files())
    assert look(tmp_path, Naming()).unfinished[0].reason == "still changes"


def test_times_of_a_clock_that_is_ahead_do_not_matter(tmp_path: Path):
    """Otherwise a checkpoint of a file server would wait for the clock of this machine."""
    folder = write(tmp_path / "checkpoint-1", model_files())
    ahead = time.time() + 3_600
    os.utime(folder, (ahead, ahead))

    assert whole(folder, Naming()) == ""


def test_times_of_a_clock_that_is_behind_are_not_believed(tmp_path: Path):
    """A folder that appears between two looks with times from before is whole if it is the same at the next look."""
    lookout = CheckpointScanner(tmp_path, Naming())
    lookout.look()
    files = model_files()
    tokenizer = files.popitem()

    folder = write(tmp_path / "checkpoint-1", files)
    assert lookout.look().unfinished[0].reason == "still changes"
    write(folder, dict([tokenizer]))
    assert lookout.look().unfinished[0].reason == "still changes"

    assert _names(lookout.look()) == (["checkpoint-1"], [])


def test_a_whole_checkpoint_stays_whole_when_files_are_added(tmp_path: Path):
    """Optimizers take minutes, and a mark of our own may be written."""
    folder = write(tmp_path / "checkpoint-1", model_files())
    lookout = CheckpointScanner(tmp_path, Naming())
    before = lookout.look().whole

    (folder / "optimizer.pt").touch()
    (folder / "trainer_state.json").write_text("{}")

    (after,) = lookout.look().whole
    assert after.identity == before[0].identity
    assert "trainer_state.json" in after.files


def test_weights_that_are_written_again_are_another_checkpoint(tmp_path: Path):
    """As a new file, or into the file that is there."""
    folder = write(tmp_path / "checkpoint-1", model_files())
    lookout = CheckpointScanner(tmp_path, Naming())
    identities = [lookout.look().whole[0].identity]

    shutil.rmtree(folder)
    write(folder, model_files())
    lookout.look()
    identities.append(lookout.look().whole[0].identity)

    with (folder / "model.safetensors").open("r+b") as file:
        file.write(safetensors())
    age(folder)
    lookout.look()
    identities.append(lookout.look().whole[0].identity)

    assert len(set(identities)) == 3


def test_a_checkpoint_that_is_deleted_is_gone_at_the_next_look(tmp_path: Path):
    """With nothing left of it."""
    write(tmp_path / "checkpoint-1", model_files())
    folder = write(tmp_path / "checkpoint-2", model_files())
    lookout = CheckpointScanner(tmp_path, Naming())
    assert _names(lookout.look()) == (["checkpoint-1", "checkpoint-2"], [])

    shutil.rmtree(folder)

    assert _names(lookout.look()) == (["checkpoint-1"], [])


def test_what_has_not_changed_is_not_looked_into_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Thousands of old checkpoints cost two stamps each. What may change inside of its files is looked into."""
    write(tmp_path / "checkpoint-1", model_files())
    write(tmp_path / "checkpoint-2", {"config.json": b"{}", "pytorch_model.bin": b""})
    short = write(tmp_path / "checkpoint-3", model_files() | {"model.safetensors": safetensors()[:-1]})
    write(tmp_path / "runs", {"a": b""})
    lookout = CheckpointScanner(tmp_path, Naming())
    first = lookout.look()
    examined: list[str] = []

    def examine(path: Path, marker: str | None):
        examined.append(path.name)
        return original(path, marker)

    original = checkpoints.examine
    monkeypatch.setattr(checkpoints, "examine", examine)
    assert lookout.look() == first
    assert examined == ["checkpoint-3"]

    write(short, model_files())
    lookout.look()
    assert _names(lookout.look()) == (["checkpoint-1", "checkpoint-3"], ["checkpoint-2"])


def test_a_folder_that_has_just_changed_is_looked_into_again(tmp_path: Path):
    """A file that comes within the same unit of the file system's clock does not change the folder's time."""
    folder = write(tmp_path / "checkpoint-1", {"config.json": b"{}"}, old=False)
    lookout = CheckpointScanner(tmp_path, Naming())
    now = folder.stat().st_mtime_ns
    assert _names(lookout.look()) == ([], ["checkpoint-1"])

    write(folder, model_files())
    os.utime(folder, ns=(now, now))

    assert "still changes" in lookout.look().unfinished[0].reason


def test_of_two_checkpoints_of_a_step_the_last_name_is_preferred(tmp_path: Path):
    """In natural order, and a name with the step before one without. The other says so."""
    for name in ("step_7", "checkpoint-7", "step_07"):
        write(tmp_path / name, model_files())
    write(tmp_path / "zz-best", model_files() | {"trainer_state.json": b'{"global_step": 7}'})

    looked = look(tmp_path, Naming())

    assert _names(looked) == (["step_7"], ["checkpoint-7", "step_07", "zz-best"])
    assert looked.unfinished[1].reason == "has the step 7 of 'step_7', which is preferred to it"


def test_a_name_that_is_no_text_is_reported_with_escapes(tmp_path: Path):
    """No event could have it. A folder that is no checkpoint is not reported."""
    state = {"trainer_state.json": b'{"global_step": 7}'}
    write(Path(os.fsdecode(os.fsencode(tmp_path) + b"/best\xff")), model_files() | state)
    write(Path(os.fsdecode(os.fsencode(tmp_path) + b"/tokenizer\xff")), model_files())
    write(tmp_path / "bést-8", model_files() | state)

    looked = look(tmp_path, Naming())

    assert _names(looked) == (["bést-8"], ["best\\xff"])
    assert looked.unfinished[0].reason == "has a name that is not UTF-8; rename it"


def test_the_step_is_that_of_the_trainer_if_the_name_has_none(tmp_path: Path):
    """A name with a step is not compared with it: torchtune's `epoch_2` is of step 2."""
    state = {"trainer_state.json": b'{"global_step": 70}'}
    write(tmp_path / "best", model_files() | state)
    write(tmp_path / "epoch_2", model_files() | state)
    write(tmp_path / "last", model_files() | {"trainer_state.json": b"{"})
    write(tmp_path / "none", model_files())

    looked = look(tmp_path, Naming())

    assert [(one.name, one.step) for one in looked.whole] == [("epoch_2", 2), ("best", 70)]
    assert _names(looked)[1] == ["last"]


def test_a_pattern_without_a_step_needs_the_trainers(tmp_path: Path):
    """Its folders are checkpoints by their names, so each is reported."""
    write(tmp_path / "best-a", model_files() | {"trainer_state.json": b'{"global_step": 70}'})
    write(tmp_path / "best-b", model_files())

    looked = look(tmp_path, Naming("best-*"))

    assert [(one.name, one.step) for one in looked.whole] == [("best-a", 70)]
    assert looked.unfinished == (
        Unfinished(name="best-b", step=None, reason="has no step: neither its name nor a trainer_state.json has one"),
    )


def test_a_marker_makes_a_checkpoint_whole(tmp_path: Path):
    """Without it, complete weights are not enough."""
    folder = write(tmp_path / "step_1", model_files())
    lookout = CheckpointScanner(tmp_path, Naming(marker="STABLE"))
    assert lookout.look().unfinished[0].reason == "waits for its marker 'STABLE'"

    write(folder, {"STABLE": b""})
    lookout.look()

    assert _names(lookout.look()) == (["step_1"], [])


def test_a_symbolic_link_is_no_checkpoint(tmp_path: Path):
    """It may lead out of the folder; and where it leads to is a checkpoint itself."""
    write(tmp_path / "run" / "checkpoint-1", model_files())
    (tmp_path / "run" / "checkpoint-2").symlink_to("checkpoint-1")
    (tmp_path / "run" / "latest").symlink_to("checkpoint-1")
    (tmp_path / "run" / "checkpoint-3").symlink_to("checkpoint-3")

    looked = look(tmp_path / "run", Naming())

    assert _names(looked) == (["checkpoint-1"], ["checkpoint-2", "checkpoint-3"])
    assert "is a symbolic link" in looked.unfinished[0].reason


def test_the_time_of_the_last_file_is_reported(tmp_path: Path):
    """From it on the evaluation could have begun."""
    folder = write(tmp_path / "checkpoint-1", model_files())
    os.utime(folder / "tokenizer.json", (1_000_000, 2_000_000.5))
    os.utime(folder / "config.json", (1_000_000, 1_000_000))
    os.utime(folder / "model.safetensors", (1_000_000, 1_000_000))

    assert look(tmp_path, Naming()).whole[0].written_at == 2_000_000.5


def test_a_checkpoint_settles_in_time():
    """With a look each half second, and a second to start, an evaluation starts within three seconds."""
    assert SETTLE_SECONDS <= 1.0
