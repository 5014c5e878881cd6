"""The page about loggers: its example of a custom one works as it is printed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from crucible_worker.loggers.runner import LoggerRunner
from tests.distributions import install, lay_out
from tests.unit.loggers.loggers_kit import experiment, rows, spec

PAGE = (Path(__file__).parents[3] / "docs" / "logging.md").read_text()


async def test_the_logger_of_the_page_writes_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Announced as the page says, and named as the page names it."""
    (source,) = re.findall(r"```python\n(import dataclasses\n.*?)```", PAGE, re.DOTALL)
    (announced,) = re.findall(r'    (\[project\.entry-points\..*\])\n    (csv = ".*")\n', PAGE)
    points = tomllib.loads("\n".join(announced))["project"]["entry-points"]["crucible_worker.loggers"]
    lay_out(tmp_path / "packages", "csv_logger", source, "crucible_worker.loggers", points)
    install(monkeypatch, tmp_path / "packages")

    logger = LoggerRunner(spec(f"csv:{tmp_path / 'a.csv'}"), experiment(tmp_path))
    await logger.feed(rows(1, 2))
    await logger.aclose()

    assert (tmp_path / "a.csv").read_text() == f"1,1,loss,{1 / 7}\n2,2,loss,{2 / 7}\n"
