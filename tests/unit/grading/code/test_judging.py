"""How what a program writes is compared with what it should write."""

import pytest

from crucible_worker.grading.code.judging import _differs


@pytest.mark.parametrize(
    ("output", "stdout", "line"),
    [
        (b"a\nb\n", "a\nb", None),
        (b"a  \nb\t\n\n \n", "a\nb\n", None),
        (b"", "\n", None),
        (b" \n", "", None),
        (b" a", "a", 1),
        (b"a\nc", "a\nb", 2),
        (b"a", "a\nb", 2),
        (b"a\nb", "a", 2),
        (b"a\n\nb", "a\nb", 2),
        (b"", "a", 1),
        (b"\xff", "\ufffd", None),
    ],
)
def test_lines_are_compared_but_for_white_space_at_their_ends(output: bytes, stdout: str, line: int | None) -> None:
    """And for blank lines at the end; the first other line is named."""
    assert _differs(output, stdout) == line
