"""What the pages' server reads of an address."""

from __future__ import annotations

import pytest

from crucible_bridge.errors import InvalidField
from crucible_worker.web.answers import _where


def test_columns_and_values_of_an_address():
    """A value may have any character."""
    assert _where(["level=3", "kind=a=b", "empty="]) == {"level": "3", "kind": "a=b", "empty": ""}


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (["level"], "must be a column and a value"),
        (["=3"], "must be a column and a value"),
        (["level=3", "level=4"], "names a column twice"),
        ([f"c{number}=1" for number in range(1_000)], "is given 1,000 times, must be given at most 64"),
    ],
)
def test_what_no_query_can_be_is_refused(texts: list[str], problem: str):
    """Before SQLite gets it: a statement of a thousand conditions is too deep for it."""
    with pytest.raises(InvalidField, match=problem):
        _where(texts)
