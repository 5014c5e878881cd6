"""Folders with a model whose names are those of no checkpoint."""

import shlex
from pathlib import Path

import pytest

from crucible_worker.planning.follow.names import Naming, unnamed, unnamed_line
from tests.tables import rows


def _models(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text("{}")


def test_models_of_other_names_are_named(tmp_path: Path):
    """A folder counts if it has a model's configuration, is not hidden, and has not the name of a checkpoint."""
    _models(tmp_path, "checkpoint-1", "mine-20-hf", "mine-10-hf", ".crucible")
    (tmp_path / "logs").mkdir()
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    assert unnamed(tmp_path, Naming()) == ["adapter", "mine-10-hf", "mine-20-hf"]
    assert unnamed(tmp_path, Naming("mine-{step}-hf")) == ["adapter", "checkpoint-1"]


def test_a_directory_that_is_not_there_has_none(tmp_path: Path):
    """The run may not have begun."""
    assert unnamed(tmp_path / "later", Naming()) == []


@rows(
    ("names", "says"),
    [
        (["mine-10-hf", "mine-20-hf"], "mine-10-hf and 1 more: "),
        (["mine-10-hf"], "--name-pattern 'mine-{step}-hf'"),
        (["v2-10"], "--name-pattern 'ckpt-{step}'"),
        (["final"], "--name-pattern 'ckpt-{step}'"),
        (["{x}1"], "--name-pattern 'ckpt-{step}'"),
        (["\udcff7"], "?7: "),
    ],
)
def test_the_line_has_a_pattern(names: list[str], says: str):
    """A name with one number shows the pattern that it has; any text can be printed."""
    line = unnamed_line(names)
    assert says in line
    line.encode()


@pytest.mark.parametrize("name", ["mine-10-hf", "7", "a'1"])
def test_the_pattern_of_a_line_is_one(name: str, tmp_path: Path):
    """What the line proposes takes the folder."""
    _models(tmp_path, name)
    (pattern,) = shlex.split(unnamed_line([name]).rpartition("--name-pattern ")[2])
    assert unnamed(tmp_path, Naming(pattern)) == []
