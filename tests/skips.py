"""What a run skipped, for the end of its output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.tables import SKIPPED_ROW

__all__ = ["skipped_rows"]


def skipped_rows(reports: Iterable[pytest.TestReport]) -> Iterator[str]:
    """A line for each test over a table and each reason, with the rows that were skipped for it."""
    found: dict[tuple[str, str], list[str]] = {}
    for report in reports:
        properties: list[Any] = report.user_properties
        for name, value in properties:
            if name == SKIPPED_ROW:
                row, reason = value
                found.setdefault((report.nodeid, reason), []).append(row)
    for (test, reason), rows in found.items():
        yield f"skipped rows of {test}: {', '.join(rows)}: {reason}"
