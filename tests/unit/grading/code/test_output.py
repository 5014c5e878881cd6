"""How what a program writes is compared with what it should write."""

from crucible_bridge.types import OutputComparison
from crucible_worker.grading.code.compare import MAX_NUMBER_CHARS, MAX_NUMBER_EXPONENT, difference
from tests.tables import rows

ABSOLUTE = OutputComparison(absolute_tolerance=0.001)
RELATIVE = OutputComparison(relative_tolerance=0.01)
BOTH = OutputComparison(absolute_tolerance=0.5, relative_tolerance=0.1)
TOKENS = OutputComparison(by_token=True)
CLOSE_TOKENS = OutputComparison(by_token=True, absolute_tolerance=0.001)


@rows(
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
        (b"0.50", "0.5", 1),
        (b"a  b", "a b", 1),
    ],
)
def test_lines_are_compared_but_for_white_space_at_their_ends(output: bytes, stdout: str, line: int | None) -> None:
    """And for blank lines at the end; the first other line is named."""
    assert difference(output, stdout, OutputComparison()) == (line and f"line {line}")


SAME = [
    ("0.3333", "0.333333", ABSOLUTE),
    ("0.3343", "0.3333", ABSOLUTE),  # at the tolerance, which floats would miss
    ("x = 1.0005 m\n2", "x = 1 m\n2.000", ABSOLUTE),
    ("-.5", "-0.50049", ABSOLUTE),
    ("5.", "5.0", ABSOLUTE),
    ("1e-9", "0", ABSOLUTE),
    ("5.0", "5", ABSOLUTE),
    ("+5", "5", ABSOLUTE),
    ("007", "7", ABSOLUTE),
    ("nan inf 1_000", "nan inf 1_000", ABSOLUTE),
    ("-0.0", "0.0", ABSOLUTE),
    ("1.01e300", "1e300", RELATIVE),
    ("99.0", "100", RELATIVE),
    ("111.5", "101.0", BOTH),
    ("1e-400", "0.0", ABSOLUTE),
    ("1e1000", "1.0e1000", RELATIVE),
    ("12345678901234567890.0001", "12345678901234567890.0", ABSOLUTE),
    ("1 2\n3", "1\n2   3\n", TOKENS),
    ("", " \n", TOKENS),
    ("1\t0.9999", "1\n1.0", CLOSE_TOKENS),
]
OTHER = [
    ("0.3343001", "0.3333", ABSOLUTE, "line 1"),
    ("1.0\n2.01", "1\n2.0", ABSOLUTE, "line 2"),
    ("1.0 2.0", "1.0", ABSOLUTE, "line 1"),
    ("1.0\n2.0", "1.0", ABSOLUTE, "line 2"),
    ("1.0", "1.0\n2.0", ABSOLUTE, "line 2"),
    ("1.0  2.0", "1.0 2.0", ABSOLUTE, "line 1"),
    ("1.0001.0", "1.0001", ABSOLUTE, "line 1"),
    ("x1.0", "x1.0001", ABSOLUTE, "line 1"),
    ("1000001", "1000000", RELATIVE, "line 1"),  # integers
    ("12345678901234567891", "12345678901234567890", ABSOLUTE, "line 1"),  # one float
    ("12345678901234567891.0", "12345678901234567890.0", ABSOLUTE, "line 1"),
    ("98.99", "100", RELATIVE, "line 1"),
    ("111.7", "101.0", BOTH, "line 1"),
    ("nan", "1.0", OutputComparison(relative_tolerance=1e300), "line 1"),
    ("1.0", "nan", ABSOLUTE, "line 1"),
    ("inf", "1e999", OutputComparison(relative_tolerance=1e300), "line 1"),
    ("-inf", "inf", ABSOLUTE, "line 1"),
    ("NaN", "nan", ABSOLUTE, "line 1"),
    ("1_000.0", "1000.0", ABSOLUTE, "line 1"),
    ("1,000.0", "1000.0", ABSOLUTE, "line 1"),
    ("\u0661.0", "1.0", ABSOLUTE, "line 1"),
    ("0x1p0", "1.0", ABSOLUTE, "line 1"),
    ("1e", "1.0", ABSOLUTE, "line 1"),
    (".", "0.0", ABSOLUTE, "line 1"),
    ("1e1001", "1.0e1001", RELATIVE, "line 1"),
    ("1e99999999999999999999", "1.0", RELATIVE, "line 1"),
    ("2 1", "1 2", TOKENS, "token 1"),
    ("1 2 3", "1 2", TOKENS, "token 3"),
    ("12", "1 2", TOKENS, "token 1"),
    ("1.0", "1", TOKENS, "token 1"),
    ("1 1.01", "1 1.0", CLOSE_TOKENS, "token 2"),
]


def test_what_a_tolerance_lets_pass_is_the_same() -> None:
    """Decimal numbers within it, in exact arithmetic; by token, blanks and line ends only divide."""
    differ = [row for row in SAME if difference(row[0].encode(), row[1], row[2]) is not None]

    assert differ == []


def test_what_a_tolerance_does_not_let_pass_is_told_where_it_stands() -> None:
    """Integers, tokens that are no decimal numbers, other counts of tokens, and what is beyond the tolerance."""
    found = [(*row[:3], difference(row[0].encode(), row[1], row[2])) for row in OTHER]

    assert found == OTHER


def test_a_number_has_bounds() -> None:
    """At them it has a value, beyond them it is a text."""
    digits, zeros = "7" * (MAX_NUMBER_CHARS - 2), "0" * (MAX_NUMBER_CHARS - 3)
    huge = f"1e{MAX_NUMBER_EXPONENT}"

    assert difference(f"{digits}.5".encode(), f"{digits}.6", RELATIVE) is None
    assert difference(f"7{digits}.5".encode(), f"7{digits}.6", RELATIVE) == "line 1"
    assert difference(f"0.{zeros}1".encode(), f"0.{zeros}2", ABSOLUTE) is None
    assert difference(huge.encode(), f"1.00{huge[1:]}", RELATIVE) is None
