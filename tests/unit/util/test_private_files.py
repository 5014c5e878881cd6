"""Files and folders that only the worker's user may read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from crucible_worker.exports.files import whole_file
from crucible_worker.util.files import make_private_folder, open_private


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=lambda mask: f"umask {mask:04o}")
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """The umask of this process during a test."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode_of(path: Path) -> int:
    """The permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_is_private_whatever_the_umask_is(umask: int, tmp_path: Path) -> None:
    """Its mode is right before anything is written."""
    os.close(open_private(tmp_path / "new", os.O_WRONLY))

    assert mode_of(tmp_path / "new") == 0o600


@pytest.mark.parametrize("mode", [0o644, 0o666, 0o755])
def test_a_file_with_a_wider_mode_is_narrowed_before_it_is_written(mode: int, tmp_path: Path) -> None:
    """Also if it is emptied."""
    path = tmp_path / "old"
    path.write_text("old")
    path.chmod(mode)

    file = open_private(path, os.O_WRONLY | os.O_TRUNC)
    narrowed = mode_of(path)
    os.write(file, b"new")
    os.close(file)

    assert (narrowed, path.read_text()) == (0o600, "new")


@pytest.mark.parametrize("mode", [0o400, 0o660])
def test_a_mode_that_others_do_not_have_is_left(mode: int, tmp_path: Path) -> None:
    """A file that its owner made read-only, or gave to a group, stays so."""
    path = tmp_path / "old"
    path.touch()
    path.chmod(mode)

    os.close(open_private(path, os.O_RDONLY))

    assert mode_of(path) == mode


def test_new_folders_are_private_and_those_above_them_are_left(umask: int, tmp_path: Path) -> None:
    """All folders that are made, not only the last one."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o755)

    make_private_folder(tmp_path / "shared" / "one" / "two")

    modes = [mode_of(tmp_path / each) for each in ("shared", "shared/one", "shared/one/two")]
    assert modes == [0o755, 0o700, 0o700]


def test_a_folder_with_a_wider_mode_is_narrowed(tmp_path: Path) -> None:
    """One of an earlier release, for example."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old").chmod(0o777)

    make_private_folder(tmp_path / "old")

    assert mode_of(tmp_path / "old") == 0o700


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    """As for `mkdir`."""
    (tmp_path / "file").touch()

    with pytest.raises(OSError, match="file"):
        make_private_folder(tmp_path / "file" / "folder")


def test_what_replaces_a_private_file_is_private_while_it_is_written(umask: int, tmp_path: Path) -> None:
    """A file is never more readable than the one that it replaces."""
    path = tmp_path / "output"
    path.touch()
    path.chmod(0o600)

    with whole_file(path):
        (part,) = [each for each in tmp_path.iterdir() if each != path]
        assert mode_of(part) == 0o600

    assert mode_of(path) == 0o600
