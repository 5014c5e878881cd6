"""What strangers send costs time in proportion to its size, wherever it is read outside of killable processes.

A row is a function and the maker of an input that is as bad for it as any of that size. To add one, name it in `ROWS`.
"""

from __future__ import annotations

import pytest

from crucible_worker.grading.code.extract import program_of
from tests.robustness.linear_time import MAX_RATIO, Row, ratios

ROWS = {
    "code: one line of letters between fences": Row(make=lambda n: "```" + "a" * n + "`", run=program_of, size=4_000),
    "code: one line of blanks between fences": Row(make=lambda n: "```" + " " * n + "`", run=program_of, size=4_000),
    "code: a fence of tildes that ends in a backtick": Row(make=lambda n: "~" * n + "`", run=program_of, size=4_000),
    "code: many fences": Row(make=lambda n: "```\n" * n, run=program_of, size=4_000),
    "code: a definition without a name": Row(
        make=lambda n: "```\n" + "async " * n + "\n" + "x" + " " * n,
        run=lambda text: program_of(text, ["f"]),
        size=4_000,
    ),
    "code: as many definitions as wanted names": Row(
        make=lambda n: ("```\n" + "def g(): pass\n" * n, [f"f{number}" for number in range(n)]),
        run=lambda given: program_of(*given),
        size=500,
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_time_is_linear(name: str) -> None:
    """CPU time less than triples at each of three doublings of the input."""
    found = ratios(ROWS[name])

    assert max(found) < MAX_RATIO, [round(ratio, 2) for ratio in found]
