"""What a run skipped, for the end of its output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.tables import SKIPPED_ROW

__all__ = ["skipped_rows", "skipped_tests"]

Report = pytest.TestReport | pytest.CollectReport


def skipped_tests(reports: Iterable[Report]) -> Iterator[str]:
    """A line for each reason, most first; the tests of a file that is skipped as a whole are not known.

    Of the reason `kubectl is missing (apt install kubectl)` it is:

        skipped: kubectl is missing: 21 tests (apt install kubectl)
    """
    found: dict[str, Counter[str]] = {}
    for report in reports:
        said: Any = report.longrepr
        reason = " ".join(said[2].removeprefix("Skipped: ").split())
        found.setdefault(reason, Counter())["test" if isinstance(report, pytest.TestReport) else "file"] += 1
    for reason, counts in sorted(found.items(), key=lambda each: (-each[1].total(), each[0])):
        missing, bracket, cure = reason.partition(" (")
        number = " and ".join(f"{count} {what}{'s' * (count > 1)}" for what, count in sorted(counts.items())[::-1])
        yield f"skipped: {missing}: {number}{bracket}{cure}"


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
