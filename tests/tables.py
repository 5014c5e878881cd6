"""Tests over a table: one test runs every row, and reports all that fail.

    @rows(("text", "value"), [("1/2", 0.5), ("1e3", 1000.0)])
    def test_a_numeral_has_its_value(text, value):
        assert number(text) == value

The rows of such a test share one cause of failure, and its fixtures. Where each row needs fixtures that no other row
has touched, takes long, or is a rule by itself, `pytest.mark.parametrize` is right. `pytest --row=TEXT` runs only the
rows with TEXT in their names.

A row that calls `pytest.skip` is skipped alone, and the end of the run's output lists it (tests/skips.py). A test is
skipped if all of its rows are.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

__all__ = ["SKIPPED_ROW", "rows"]

SKIPPED_ROW = "skipped row"
"""The property of a test's report that holds the name of a skipped row, and the reason."""

MAX_REPORTED = 20
"""Failures that are reported with their reasons; further ones are named."""
MAX_NAME_CHARS = 60
"""Of one value in a row's name."""

_PARAM = type(pytest.param())
_ENDS = (Exception, pytest.fail.Exception, pytest.skip.Exception)
"""What ends one row, not its test."""

Test = Callable[..., Any]
Called = Callable[[Any], object] | None
Ids = Iterable[str] | Called


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One row of a table."""

    name: str
    """In the report. Unlike those of tests it need not be unique."""
    values: Mapping[str, Any]
    """By the test's parameters."""


class _Outcomes:
    """The rows of one test, and what became of them."""

    def __init__(self, test: pytest.Item, rows: Sequence[Row]) -> None:
        self.rows = rows
        self._test = test
        self._failed: list[tuple[Row, BaseException]] = []
        self._skipped: list[tuple[Row, str]] = []

    def add(self, row: Row, end: BaseException) -> None:
        """Count a row that failed or was skipped."""
        if isinstance(end, pytest.skip.Exception):
            self._skipped.append((row, str(end)))
        else:
            self._failed.append((row, end))

    def report(self) -> None:
        """Fail if a row has, with the traceback of the first; skip the test if all rows were skipped."""
        __tracebackhide__ = True
        if len(self._skipped) == len(self.rows):
            pytest.skip("; ".join(dict.fromkeys(reason for _, reason in self._skipped)))
        self._test.user_properties += [(SKIPPED_ROW, (row.name, reason)) for row, reason in self._skipped]
        if not self._failed:
            return
        lines = [f"{len(self._failed)} of {len(self.rows)} rows fail:"]
        for row, error in self._failed[:MAX_REPORTED]:
            reason = f"{type(error).__name__}: {error}".rstrip()
            lines.append(f"[{row.name}] {textwrap.indent(reason, '    ').lstrip()}")
        lines += [f"[{row.name}] fails as well" for row, _ in self._failed[MAX_REPORTED:]]
        raise AssertionError("\n".join(lines)) from self._failed[0][1]


def rows(names: str | Sequence[str], cases: Iterable[Any], *, ids: Ids = None) -> Callable[[Test], Test]:
    """Run a test on every row; takes what `pytest.mark.parametrize` takes, except marks of single rows.

    Of a test with several tables every combination is run.

    Raises:
        ValueError: the table has no rows, or another number of ids; a row has a mark, or another number of values than
            there are names.
    """
    parameters = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    cases = list(cases)
    called = ids if callable(ids) else None
    named = [None] * len(cases) if ids is None or callable(ids) else list(ids)
    if len(named) != len(cases):
        raise ValueError(f"{len(cases)} rows have {len(named)} ids")
    table = [_row(parameters, case, index, name, called) for index, (case, name) in enumerate(zip(cases, named))]
    if not table:
        raise ValueError(f"a table of {', '.join(parameters)} without rows tests nothing")
    return functools.partial(_over, table)


def _row(parameters: Sequence[str], case: Any, index: int, name: str | None, called: Called) -> Row:
    if isinstance(case, _PARAM):
        if case.marks:
            raise ValueError(f"row {index} has a mark, which counts for whole tests: use pytest.mark.parametrize")
        values, name = case.values, str(case.id or name or "")
    else:
        values = (case,) if len(parameters) == 1 else tuple(case)
    if len(values) != len(parameters):
        raise ValueError(f"row {index} has {len(values)} values for {len(parameters)} names")
    return Row(name or "-".join(_name(value, called) for value in values), dict(zip(parameters, values)))


def _name(value: object, called: Called) -> str:
    if called is not None and (chosen := called(value)) is not None:
        return str(chosen)
    return getattr(value, "__name__", None) or textwrap.shorten(repr(value), MAX_NAME_CHARS)


def _over(table: Sequence[Row], test: Test) -> Test:
    """The test of all rows; its parameters are the fixtures that the test takes besides."""
    test, within = getattr(test, "tabled", (test, None))
    if within is not None:
        table = [
            Row(f"{row.name}-{other.name}", {**row.values, **other.values})
            for other, row in itertools.product(table, within)
        ]
    signature = inspect.signature(test)
    asks = "request" in signature.parameters

    def outcomes(fixtures: dict[str, Any]) -> _Outcomes:
        request = fixtures["request"] if asks else fixtures.pop("request")
        wanted = request.config.getoption("row")
        found = [row for row in table if wanted is None or wanted in row.name]
        if not found:
            pytest.skip(f"no row has {wanted!r} in its name")
        return _Outcomes(request.node, found)

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        __tracebackhide__ = True
        found = outcomes(fixtures)
        for row in found.rows:
            try:
                test(**fixtures, **row.values)
            except _ENDS as end:
                found.add(row, end)
        found.report()

    @functools.wraps(test)
    async def run_coroutine(**fixtures: Any) -> None:
        __tracebackhide__ = True
        found = outcomes(fixtures)
        for row in found.rows:
            try:
                await test(**fixtures, **row.values)
            except _ENDS as end:
                found.add(row, end)
        found.report()

    left = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in signature.parameters.values()
        if parameter.name not in table[0].values
    ]
    if not asks:
        left.append(inspect.Parameter("request", inspect.Parameter.KEYWORD_ONLY))
    made: Any = run_coroutine if inspect.iscoroutinefunction(test) else run
    made.__signature__ = signature.replace(parameters=left)
    made.tabled = (test, table)
    return made
