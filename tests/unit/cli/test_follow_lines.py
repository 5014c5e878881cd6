"""Lines of `follow`."""

from pathlib import Path

from crucible_worker.cli.following import checkpoint_line
from crucible_worker.journal.follows import CheckpointRow, CheckpointState
from crucible_worker.planning.follow_records import checkpoint_released


def test_a_copy_that_is_gone_is_not_named(tmp_path: Path):
    """A better checkpoint may have taken its place before the line is written."""
    row = CheckpointRow(
        name="checkpoint-40",
        identity="i",
        step=40,
        state=CheckpointState.RELEASED,
        source="s",
        path="p",
        model="local:p",
        held="nothing",
        held_identity="",
        written_ns=0,
    )
    copy = tmp_path / "best" / "checkpoint-40"
    event = checkpoint_released("run", row, 40, "", str(copy))
    copy.mkdir(parents=True)
    assert checkpoint_line(event) == f"checkpoint-40: released, kept in {copy}"
    copy.rmdir()
    assert checkpoint_line(event) == "checkpoint-40: released"
