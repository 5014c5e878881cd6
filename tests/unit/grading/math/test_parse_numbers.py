"""Numerals: every way to write a number gives its exact value."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.grading.math.exact import rational
from crucible_worker.grading.math.grammar import TooLarge, Unreadable, parse
from crucible_worker.grading.math.operands import MAX_EXPONENT
from crucible_worker.grading.math.quantities import MAX_DIGITS
from crucible_worker.grading.math.tree import Collection, Number, Power, Product, Quantity
from tests.tables import rows


@rows(
    ("text", "value"),
    [
        ("007", "7"),
        ("-13", "-13"),
        ("--13", "13"),
        ("+5", "5"),
        ("1,000", "1000"),
        ("1{,}000", "1000"),
        (r"1,\!000", "1000"),
        (r"11,\! 111,\! 100", "11111100"),
        (r"1\,000", "1000"),
        ("10 000", "10000"),
        ("1 000 000", "1000000"),
        ("12,345,678", "12345678"),
        ("90{,}900{,}909", "90900909"),
        ("1,234.5", "1234.5"),
        ("0{,}5", "0.5"),
        ("0{,}125", "0.125"),
        (".5", "0.5"),
        ("5.", "5"),
        (r"0.\overline{3}", "1/3"),
        (r"0.1\overline{6}", "1/6"),
        (r"0.\dot3", "1/3"),
        (r"0.\dot{1}4285\dot{7}", "1/7"),
        ("0.(3)", "1/3"),
        ("0.333...", "1/3"),
        (r"0.1212\ldots", "4/33"),
        ("3.14...", "3.14"),
        ("1.5e3", "1500"),
        ("2E-3", "0.002"),
        ("5 million", "5000000"),
        ("2.5 billion", "2500000000"),
        (r"3 \text{ hundred}", "300"),
        ("１２", "12"),  # noqa: RUF001 - full width
        ("five", "5"),
        ("twenty-one", "21"),
        ("one hundred and five", "105"),
        ("two hundred thirty-four", "234"),
        ("one million", "1000000"),
        ("two thirds", "2/3"),
        ("one half", "1/2"),
    ],
)
def test_a_numeral_has_its_exact_value(text: str, value: str) -> None:
    """Thousands, decimals, repeating decimals, powers of ten and number words are read exactly."""
    node = parse(text)

    assert isinstance(node, Number)
    assert node.value == Fraction(value)


@rows(("text", "decimal"), [("0.50", True), ("5", False), ("1.5e3", True), (r"0.\overline{3}", False)])
def test_a_decimal_says_that_it_is_one(text: str, decimal: bool) -> None:
    """A number knows whether it was written with a decimal point and may thus be rounded."""
    node = parse(text)

    assert isinstance(node, Number)
    assert node.decimal is decimal


def test_a_comma_in_brackets_divides() -> None:
    """In brackets a comma between digits is no thousands separator, but in braces of its own it is."""
    assert parse("(1,000)") == Collection("tuple", (Number(Fraction(1)), Number(Fraction(0))))
    assert parse(r"\{1{,}000\}") == Collection("set", (Number(Fraction(1000)),))


@rows(
    ("text", "value", "unit"),
    [
        (r"45\%", "45", "percent"),
        ("45 percent", "45", "percent"),
        (r"\$40", "40", "dollar"),
        ("$40", "40", "dollar"),
        (r"-\$5", "-5", "dollar"),
        (r"\$2.5 million", "2500000", "dollar"),
        (r"\$32,\!348", "32348", "dollar"),
        ("5^{th}", "5", "ordinal"),
        ("21st", "21", "ordinal"),
        ("five apples", "5", "apple"),
    ],
)
def test_a_sign_behind_or_before_a_number_makes_a_quantity(text: str, value: str, unit: str) -> None:
    """Percent, currencies, ordinals and counted things keep the value apart from what it counts."""
    assert parse(text) == Quantity(Number(Fraction(value), "." in value), unit)


@pytest.mark.parametrize("text", [r"12\frac12\%", "12 1/2%", r"12\tfrac{1}{2}\%"])
def test_a_sign_behind_a_mixed_number_is_its_own(text: str) -> None:
    """Percent behind a mixed number is that of all of it."""
    assert parse(text) == Quantity(parse("12 1/2"), "percent")
    assert parse("1/2%") == Quantity(parse("1/2"), "percent")


@rows("text", ["5 6", "1.2.3", "five six", "thousand million", "1011_9_", "29_2", "1e" + "9" * 13])
def test_what_is_no_number_is_not_guessed(text: str) -> None:
    """Numerals side by side, digits beyond their base and endless exponents are not made a number."""
    try:
        node = parse(text)
    except Unreadable:
        return
    assert not isinstance(node, Number)


@rows("digits", [MAX_DIGITS, MAX_DIGITS + 1])
@rows("form", ["{}", "x+{}", "0.{}", "{}_2"])
def test_digits_are_bounded(digits: int, form: str) -> None:
    """A numeral may have `MAX_DIGITS` digits, and not one more."""
    text = form.format("1" * digits)

    if digits <= MAX_DIGITS:
        parse(text)
    else:
        with pytest.raises(Unreadable):
            parse(text)


@rows(
    ("text", "value"),
    [("{}5", 5), ("5.{}", 5), ("{}5.5{}", Fraction(11, 2)), ("-{}7", -7), ("{}.5", Fraction(1, 2)), ("{}", 0)],
)
def test_zeros_that_say_nothing_are_not_counted(text: str, value: Fraction) -> None:
    """Zeros before a numeral and at the end of its decimals are no digits of it."""
    zeros = "0" * (MAX_DIGITS + 1)

    assert rational(parse(text.replace("{}", zeros))) == value


def test_powers_of_ten_in_words_are_bounded() -> None:
    """A number that words make longer than `MAX_DIGITS` is not multiplied out."""
    assert parse("5" + " million" * 100) == Number(Fraction(5 * 10**600))
    with pytest.raises(TooLarge):
        parse("5" + " million" * (MAX_DIGITS // 6 + 1))


def test_a_huge_exponent_stays_a_power() -> None:
    """Beyond `MAX_EXPONENT` a power of ten is not multiplied out."""
    assert parse(f"1e{MAX_EXPONENT}") == Number(Fraction(10**MAX_EXPONENT))
    ten = Number(Fraction(10))
    power = Power(ten, Number(Fraction(MAX_EXPONENT + 1)))
    assert parse(f"1e{MAX_EXPONENT + 1}") == Product((Number(Fraction(1)), power))


@given(st.integers(-(10**30), 10**30))
def test_grouped_integers_are_integers(value: int) -> None:
    """Every integer is read with and without separators, of each kind."""
    plain = Number(Fraction(value))

    assert parse(str(value)) == parse(f"{value:,}") == parse(f"{value:,}".replace(",", "{,}")) == plain
    assert parse(f"{value:,}".replace(",", r",\!")) == parse(f"{value:,}".replace(",", r"\,")) == plain


@given(st.integers(0, 10**6), st.text("0123456789", max_size=4), st.text("0123456789", min_size=1, max_size=6))
def test_repeating_decimals_are_fractions(whole: int, fixed: str, block: str) -> None:
    """A repeating decimal is the limit of its digits."""
    node = parse(rf"{whole}.{fixed}\overline{{{block}}}")

    assert isinstance(node, Number)
    written = Fraction(f"{whole}.{fixed + block * 40}")
    assert 0 <= node.value - written <= Fraction(1, 10 ** (len(fixed) + 40 * len(block)))
