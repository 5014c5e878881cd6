"""Tests over a table run every row and report all that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tables import MAX_REPORTED, SKIPPED_ROW, rows


def asking(row: str | None = None) -> Any:
    """What pytest gives to a test that takes `request`."""
    return SimpleNamespace(config=SimpleNamespace(getoption=lambda name: row), node=SimpleNamespace(user_properties=[]))


def failure(test: Any, **fixtures: Any) -> str:
    """What a failing test over a table says."""
    with pytest.raises(AssertionError) as caught:
        test(**fixtures)
    return str(caught.value)


def test_every_row_is_run_after_a_failure():
    """Rows that fail are reported with their reasons, and others are run all the same."""
    seen: list[int] = []

    @rows(("number", "why"), [(1, ""), (2, "two\nlines"), (3, ""), (4, "odd")])
    def test(number: int, why: str) -> None:
        seen.append(number)
        if why:
            raise ValueError(why)

    said = failure(test, request=asking())

    assert seen == [1, 2, 3, 4]
    assert said.startswith("2 of 4 rows fail:\n[2-'two\\nlines'] ValueError: two\n    lines")
    assert "\n[4-'odd'] ValueError: odd" in said


def test_the_first_failure_is_the_cause():
    """Its traceback is shown."""

    @rows("number", [1, 0])
    def test(number: int) -> None:
        assert 1 / number

    with pytest.raises(AssertionError) as caught:
        test(request=asking())

    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_rows_of_a_coroutine_are_awaited():
    """One after another, in one event loop."""

    @rows("number", [1, 2])
    async def test(number: int) -> None:
        await asyncio.sleep(0)
        assert number == 1

    with pytest.raises(AssertionError, match="1 of 2 rows fail"):
        asyncio.run(test(request=asking()))


def test_several_tables_are_combined():
    """Every row of one with every row of the other, in one list of failures."""
    seen: list[str] = []

    @rows("letter", "ab")
    @rows("number", [1, 2])
    def test(letter: str, number: int) -> None:
        seen.append(f"{letter}{number}")
        assert seen[-1] != "b1"

    said = failure(test, request=asking())

    assert seen == ["a1", "a2", "b1", "b2"]
    assert said.startswith("1 of 4 rows fail:\n[1-'b'] ")


@pytest.mark.parametrize(
    ("cases", "ids", "name"),
    [
        ([1], None, "1"),
        ([len], None, "len"),
        ([1], ["one"], "one"),
        ([1], lambda value: f"<{value}>", "<1>"),
        ([1], lambda value: None, "1"),
        ([pytest.param(1, id="named")], None, "named"),
    ],
)
def test_a_row_is_named_as_its_test_would_be(cases: list[Any], ids: Any, name: str):
    """By its id, by `ids`, or by its values."""

    @rows("value", cases, ids=ids)
    def test(value: object) -> None:
        raise ValueError

    assert failure(test, request=asking()) == f"1 of 1 rows fail:\n[{name}] ValueError:"


def test_only_chosen_rows_are_run():
    """`--row` names a part of their names."""
    seen: list[str] = []

    @rows("text", ["left", "right", "theft"])
    def test(text: str) -> None:
        seen.append(text)

    test(request=asking("eft"))
    assert seen == ["left", "theft"]
    with pytest.raises(pytest.skip.Exception, match="no row has 'up' in its name"):
        test(request=asking("up"))


def test_a_long_list_of_failures_is_shortened():
    """Reasons are given for the first ones, names for all."""

    @rows("number", range(MAX_REPORTED + 1))
    def test(number: int) -> None:
        raise ValueError("reason")

    said = failure(test, request=asking()).splitlines()

    assert said[0] == f"{MAX_REPORTED + 1} of {MAX_REPORTED + 1} rows fail:"
    assert said[MAX_REPORTED] == f"[{MAX_REPORTED - 1}] ValueError: reason"
    assert said[MAX_REPORTED + 1] == f"[{MAX_REPORTED}] fails as well"


def test_a_row_can_call_fail():
    """It fails as by an assertion."""

    @rows("number", [1, 2])
    def test(number: int) -> None:
        pytest.fail("reason")

    assert failure(test, request=asking()).startswith("2 of 2 rows fail:\n[1] Failed: reason")


def skipping(numbers: Sequence[int], failing: int = 0) -> Callable[..., None]:
    """A test over a table that skips odd rows, and fails in one row."""

    @rows("number", numbers)
    def test(number: int) -> None:
        if number % 2:
            pytest.skip(f"{number % 4} is odd")
        assert number != failing

    return test


def test_a_skipped_row_is_noted_and_the_others_count():
    """The test passes if the others do, and fails with those that fail; its report holds the skipped rows."""
    noted = [(SKIPPED_ROW, ("1", "1 is odd")), (SKIPPED_ROW, ("3", "3 is odd"))]

    passed = asking()
    skipping([1, 2, 3, 4])(request=passed)
    failed = asking()
    said = failure(skipping([1, 2, 3, 4], failing=4), request=failed)

    assert passed.node.user_properties == failed.node.user_properties == noted
    assert said.startswith("1 of 4 rows fail:\n[4] AssertionError")


def test_a_test_without_another_row_is_skipped():
    """For the reasons of its rows, each said once; no row is noted beside."""
    request = asking()

    with pytest.raises(pytest.skip.Exception) as caught:
        skipping([1, 3, 5])(request=request)

    assert str(caught.value) == "1 is odd; 3 is odd"
    assert request.node.user_properties == []


def test_a_row_of_a_coroutine_is_skipped_too():
    """Likewise."""
    request = asking()

    @rows("number", [1, 2])
    async def test(number: int) -> None:
        if number == 1:
            pytest.skip("reason")

    asyncio.run(test(request=request))

    assert request.node.user_properties == [(SKIPPED_ROW, ("1", "reason"))]


@pytest.mark.parametrize(
    ("cases", "ids", "said"),
    [
        ([], None, "a table of a, b without rows tests nothing"),
        ([(1, 2), (1, 2, 3)], None, "row 1 has 3 values for 2 names"),
        ([(1, 2), (1, 2)], ["one"], "2 rows have 1 ids"),
        ([pytest.param(1, 2, marks=pytest.mark.skip)], None, "row 0 has a mark, which counts for whole tests"),
    ],
)
def test_a_table_that_cannot_be_run_is_refused(cases: list[Any], ids: list[str] | None, said: str):
    """When the module is imported, not when it is tested."""
    with pytest.raises(ValueError, match=said):
        rows("a, b", cases, ids=ids)


@rows("name", ["one", "two"])
def test_fixtures_are_shared_by_the_rows(name: str, tmp_path: Path, request: pytest.FixtureRequest):
    """They are set up once for the test, whose own `request` is one of them."""
    assert request.node.name == "test_fixtures_are_shared_by_the_rows"
    (tmp_path / name).touch()
    assert [path.name for path in tmp_path.iterdir() if path.name > name] == []


@rows("name", ["one", "two"])
async def test_coroutines_take_fixtures_too(name: str, tmp_path: Path):
    """Likewise."""
    assert tmp_path.is_dir()
