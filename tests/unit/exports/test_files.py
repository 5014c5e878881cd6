"""Files that appear complete or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from crucible_worker.exports.files import whole_file


def test_a_file_that_fails_leaves_the_one_before(tmp_path: Path):
    """An error inside the block leaves the file that was there, and nothing else."""
    path = tmp_path / "log"
    path.write_bytes(b"old")

    with pytest.raises(TypeError), whole_file(path) as file:
        file.write(b"new" + None)  # pyright: ignore[reportOperatorIssue]

    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["log"]


def test_a_file_has_the_usual_permissions_or_those_it_had(tmp_path: Path):
    """A new file is as readable as the umask lets it be; one that is replaced keeps its mode."""
    path = tmp_path / "log"
    mask = os.umask(0o027)
    try:
        with whole_file(path):
            pass
        assert path.stat().st_mode & 0o777 == 0o640
        path.chmod(0o600)
        with whole_file(path) as file:
            file.write(b"x")
    finally:
        os.umask(mask)
    assert (path.stat().st_mode & 0o777, path.read_bytes()) == (0o600, b"x")


def test_a_pipe_is_written_to(tmp_path: Path):
    """What is not a file is not replaced by one."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()))
    reader.start()

    with whole_file(path) as file:
        file.write(b"x")
    reader.join()

    assert read == [b"x"]
    assert path.is_fifo()


def test_the_standard_output_is_written_to_if_it_is_a_pipe() -> None:
    """The link /dev/stdout then leads to no path."""
    program = (
        "from pathlib import Path; from crucible_worker.exports.files import whole_file\n"
        "with whole_file(Path('/dev/stdout')) as file: file.write(b'x')"
    )

    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"x"
