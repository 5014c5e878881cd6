"""The logger `console`: lines that a terminal only shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from crucible_worker.loggers.base import Hparams, LongText
from crucible_worker.loggers.console import ConsoleLogger
from tests.unit.loggers.loggers_kit import experiment, row


def test_it_prints_a_line_for_each_entry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the experiment's name; nothing in them is obeyed by a terminal."""
    logger = ConsoleLogger(text_characters=5)
    logger.open(experiment(tmp_path, name="a\x1b[31m", config={"lr": 0.1}))
    logger.log_metrics([row(1, {"loss": 0.123456789, "n\n": float("nan")}, step=1000), row(2, {"x": 1.0}, step=None)])
    logger.log_hparams(Hparams(sequence=3, unix_time_ns=1, values={"seed": 7}))
    logger.log_long_text(LongText(sequence=4, unix_time_ns=1, key="k", text="a\x07cdefg"))
    logger.sync()

    assert capsys.readouterr().err.splitlines() == [
        'a [31m: config {"lr": 0.1}',
        "a [31m: step 1,000  loss 0.123457  n  nan",
        "a [31m: x 1",
        'a [31m: config {"seed": 7}',
        "a [31m: k: a cde...",
    ]


def test_a_configuration_is_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A process that resumes does not repeat it."""
    ConsoleLogger().open(experiment(tmp_path, config={"lr": 0.1}, resumed=True))
    assert capsys.readouterr().err == ""
