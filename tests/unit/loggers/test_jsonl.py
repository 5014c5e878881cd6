"""The files of the logger `jsonl`: every line parses, each entry is there once, and experiments are never mixed."""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crucible_worker.loggers.base import Delivery, Experiment, Hparams, LongText
from crucible_worker.loggers.jsonl import JsonlLogger
from tests.unit.loggers.loggers_kit import experiment, lines_of, row, rows, sequences

PAGE = 4096


def opened(folder: Path, of: Experiment | None = None, **options: str) -> JsonlLogger:
    """A logger that writes below `out`."""
    logger = JsonlLogger(directory=str(folder / "out"), **options)
    logger.open(of or experiment(folder))
    return logger


def metrics(folder: Path, name: str = "run") -> Path:
    """Its file of metrics."""
    return folder / "out" / name / "metrics.jsonl"


def test_a_line_has_the_step_the_values_and_where_they_are_from(tmp_path: Path) -> None:
    """Flat, as plotting scripts read it; what JSON does not have is text, and names of ours are kept for us."""
    logger = opened(tmp_path)
    values = {"test/accuracy": 0.5, "nan": math.nan, "up": math.inf, "down": -math.inf, "step": 7.0, "_sequence": 8.0}
    logger.log_metrics([row(3, values, step=10, family="test"), row(4, step=None)])
    logger.close()

    first, second = lines_of(metrics(tmp_path))
    assert first == {
        "step": 10,
        "test/accuracy": 0.5,
        "nan": "NaN",
        "up": "Infinity",
        "down": "-Infinity",
        "metric/step": 7.0,
        "metric/_sequence": 8.0,
        "_family": "test",
        "_sequence": 3,
        "_unix_time_ns": 3 * 10**9,
    }
    assert second["step"] is None


@pytest.mark.parametrize("replaced", [False, True])
def test_lines_are_not_written_to_a_file_that_is_gone(tmp_path: Path, replaced: bool) -> None:
    """The logger is refused with the file's name; opened again, it writes a file that is there."""
    logger = opened(tmp_path)
    logger.log_metrics([row(1)])
    metrics(tmp_path).unlink()
    if replaced:
        metrics(tmp_path).touch()
    with pytest.raises(OSError, match=r"metrics\.jsonl was moved, removed or replaced"):
        logger.log_metrics([row(2)])
    logger.close()
    logger = opened(tmp_path)
    logger.log_metrics([row(2)])
    logger.close()
    assert sequences(metrics(tmp_path), "_sequence") == [2]


def test_hyperparameters_add_up_in_config_json(tmp_path: Path) -> None:
    """Later values replace earlier ones, also over a restart."""
    logger = opened(tmp_path, experiment(tmp_path, config={"lr": 0.1, "seed": 1}))
    logger.log_hparams(Hparams(sequence=1, unix_time_ns=1, values={"lr": 0.2}))
    logger.close()
    logger = opened(tmp_path)
    logger.log_hparams(Hparams(sequence=2, unix_time_ns=1, values={"big": 10**30}))
    logger.close()

    config = json.loads((tmp_path / "out" / "run" / "config.json").read_text())
    assert config == {
        "name": "run",
        "run_id": "run-1",
        "config": {"lr": 0.2, "seed": 1, "big": 10**30},
        "_sequence": 2,
    }


def test_texts_have_a_file(tmp_path: Path) -> None:
    """With key and step."""
    logger = opened(tmp_path)
    logger.log_long_text(LongText(sequence=1, unix_time_ns=2, key="sample", text="a\nb", step=3))
    logger.close()
    assert lines_of(tmp_path / "out" / "run" / "texts.jsonl") == [
        {"step": 3, "key": "sample", "text": "a\nb", "_sequence": 1, "_unix_time_ns": 2}
    ]


def test_the_position_is_the_last_entry_of_any_kind(tmp_path: Path) -> None:
    """A logger that begins again knows what is there."""
    assert JsonlLogger.delivery is Delivery.EXACTLY_ONCE
    for kind, expected in (("metrics", 1), ("text", 2), ("hparams", 3), ("metrics", 4)):
        logger = opened(tmp_path)
        assert logger.position() == expected - 1
        if kind == "metrics":
            logger.log_metrics([row(expected)])
        elif kind == "text":
            logger.log_long_text(LongText(sequence=expected, unix_time_ns=1, key="k", text="t"))
        else:
            logger.log_hparams(Hparams(sequence=expected, unix_time_ns=1, values={"a": 1}))
        logger.close()


# Each example has a folder of its own.
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(1, 9_000), min_size=1, max_size=30),
    batch=st.integers(1, 7),
    cut=st.floats(0, 1),
)
def test_what_a_kill_leaves_of_a_line_is_removed_and_written_again(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], batch: int, cut: float
) -> None:
    """Wherever the file ends, each row is there once afterwards; a line that fits into a page is in one page."""
    folder = tmp_path_factory.mktemp("cut")
    every = [row(number, {"x" * length: 1.0}) for number, length in enumerate(lengths, 1)]
    logger = opened(folder)
    for begin in range(0, len(every), batch):
        logger.log_metrics(every[begin : begin + batch])
    logger.close()
    whole = metrics(folder).read_bytes()
    place = 0
    for line in whole.splitlines(keepends=True):
        if len(line.rstrip()) < PAGE:
            assert place // PAGE == (place + len(line) - 1) // PAGE
        place += len(line)

    os.truncate(metrics(folder), int(cut * len(whole)))
    logger = opened(folder)
    position = logger.position() or 0
    logger.log_metrics(every[position:])
    logger.close()

    assert sequences(metrics(folder), "_sequence") == list(range(1, len(every) + 1))


def test_a_folder_has_one_writer(tmp_path: Path) -> None:
    """A second process is refused, and waits until the first one has ended."""
    first = opened(tmp_path)
    with pytest.raises(OSError, match="is being written by another process"):
        opened(tmp_path)
    first.close()
    opened(tmp_path).close()


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("run", "run"),
        ("../../etc", "_../../etc"),
        (".hidden", "_.hidden"),
        ("..", "_.."),
        ("/", "_"),
        ("a\0b\nc", "a_b_c"),
        ("ł" * 255, "ł" * 100),
        (" ", "_"),
    ],
)
def test_the_folder_is_named_as_the_experiment(tmp_path: Path, name: str, folder: str) -> None:
    """No name leads out of the operator's folder."""
    opened(tmp_path, experiment(tmp_path, name=name)).close()
    assert [each.name for each in (tmp_path / "out").iterdir()] == [folder.replace("/", "_")]


def test_another_experiment_of_the_same_name_has_another_folder(tmp_path: Path) -> None:
    """Entries of two are never mixed; each finds its folder again."""
    for _ in range(2):
        for number in (1, 2, 3):
            logger = opened(tmp_path, experiment(tmp_path, run_id=f"run-{number}"))
            logger.log_metrics([row((logger.position() or 0) + 1, {f"of-{number}": 1.0})])
            logger.close()

    for number, name in ((1, "run"), (2, "run-2"), (3, "run-3")):
        assert sequences(metrics(tmp_path, name), "_sequence") == [1, 2]
        assert all(f"of-{number}" in line for line in lines_of(metrics(tmp_path, name)))


def test_without_a_folder_it_writes_into_the_experiments_own(tmp_path: Path) -> None:
    """Which belongs to one experiment."""
    logger = JsonlLogger()
    logger.open(experiment(tmp_path))
    logger.log_metrics(rows(1, 3))
    logger.sync()
    logger.close()
    assert sequences(tmp_path / "own" / "metrics.jsonl", "_sequence") == [1, 2, 3]
    assert logger.get_url() == str(tmp_path / "own")
    with pytest.raises(OSError, match="another experiment"):
        JsonlLogger().open(experiment(tmp_path, run_id="run-2"))


def test_code_diff_has_the_commit_and_what_differs(tmp_path: Path) -> None:
    """Of the repository that the operator names, with the names of files that git does not know."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("lr = 1\n")
    git = ["git", "-C", str(code), "-c", "user.name=T", "-c", "user.email=t@example.org"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "First"]):
        subprocess.run([*git, *arguments], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    (code / "train.py").write_text("lr = 2\n")
    (code / "new.py").write_text("")

    opened(tmp_path, code_diff=str(code)).close()
    written = (tmp_path / "out" / "run" / "code.diff").read_text()
    assert written.startswith(f"# commit {commit}\n#  M train.py\n# ?? new.py\n")
    assert "-lr = 1\n+lr = 2\n" in written


def test_code_diff_of_no_repository_says_so(tmp_path: Path) -> None:
    """Metrics are logged all the same."""
    (tmp_path / "empty").mkdir()
    opened(tmp_path, code_diff=str(tmp_path / "empty")).close()
    written = (tmp_path / "out" / "run" / "code.diff").read_text()
    assert written.startswith(f"# git rev-parse in {tmp_path / 'empty'} failed")
