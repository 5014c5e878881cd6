"""Units: one spelling for each, whatever was written."""

from fractions import Fraction

from crucible_worker.grading.math.grammar import parse
from crucible_worker.grading.math.tokens import MAX_UNIT_WORDS, UNITS, singular
from crucible_worker.grading.math.tree import Number, Power, Product, Quantity, Sum, Symbol
from tests.tables import rows


@rows(
    ("text", "unit"),
    [
        ("5 cm", "centimeter"),
        ("5cm", "centimeter"),
        (r"5\text{ centimetres}", "centimeter"),
        (r"5 \mathrm{~cm}", "centimeter"),
        (r"5\text{ cm}^2", "square centimeter"),
        (r"5\mbox{ cm}^{2}", "square centimeter"),
        ("5 cm²", "square centimeter"),
        ("5 square cm", "square centimeter"),
        (r"5\text{ square centimeters}", "square centimeter"),
        ("5 mi/h", "mile per hour"),
        ("5 m/s^2", "meter per square second"),
        ("5 in.", "inch"),
        ("5 deg", "degree"),
        ("5 sq. ft.", "square foot"),
        (r"5\text{ cubic feet}", "cubic foot"),
        (r"5\text{ m}", "meter"),
        (r"5\text{ m/s}", "meter per second"),
        (r"5\,\text{m}/\text{s}^2", "meter per square second"),
        (r"5\text{ m}\cdot\text{s}^{-1}", "meter per second"),
        ("60 mph", "mile per hour"),
        ("60 miles per hour", "mile per hour"),
        ("60 miles/hour", "mile per hour"),
        ("60 km/h", "kilometer per hour"),
        (r"\$5 per hour", "dollar per hour"),
        ("5 dollars", "dollar"),
        (r"\$5", "dollar"),
        ("5 €", "euro"),
        ("5 USD", "dollar"),
        ("Rs. 5", "rupee"),
        ("Rs.5", "rupee"),
        ("₹5", "rupee"),
        ("5 feet", "foot"),
        ("5 people", "person"),
        (r"25^\circ\text{C}", "degree celsius"),
        ("25°C", "degree celsius"),
    ],
)
def test_a_unit_has_one_spelling(text: str, unit: str) -> None:
    """Abbreviations, plurals, powers and quotients of units come out alike."""
    node = parse(text)

    assert isinstance(node, Quantity)
    assert node.value in (Number(Fraction(5)), Number(Fraction(25)), Number(Fraction(60)))
    assert node.unit == unit


def test_a_unit_belongs_to_the_whole_value() -> None:
    """A unit behind a product is that of the product, behind the last term alone that of the sum."""
    assert parse(r"3\pi \text{ cm}") == Quantity(parse(r"3\pi"), "centimeter")
    assert parse(r"3 + \sqrt2 \text{ cm}") == Quantity(parse(r"3 + \sqrt2"), "centimeter")


def test_quantities_side_by_side_are_added() -> None:
    """Feet and inches, hours and minutes make one quantity of several."""
    foot, inch = Quantity(Number(Fraction(5)), "foot"), Quantity(Number(Fraction(3)), "inch")

    assert parse("5 feet 3 inches") == Sum((foot, inch))


def test_a_letter_in_italics_is_no_unit() -> None:
    """`5m` is a product, `5 m^2` too: only upright type makes a letter a unit."""
    assert parse("5m") == Product((Number(Fraction(5)), Symbol("m")))
    assert parse("5m^2") == Product((Number(Fraction(5)), Power(Symbol("m"), Number(Fraction(2)))))


@rows(
    ("word", "one"),
    [
        ("apples", "apple"),
        ("boxes", "box"),
        ("cherries", "cherry"),
        ("kg", "kilogram"),
        ("class", "class"),
        ("gas", "gas"),
    ],
)
def test_what_is_counted_has_a_singular(word: str, one: str) -> None:
    """Words that are in no table lose their plural."""
    assert singular(word) == one


def test_every_unit_is_its_own_spelling() -> None:
    """A spelling that the table gives is not spelled otherwise by it."""
    assert {unit for unit in UNITS.values() if " " not in unit and UNITS.get(unit, unit) != unit} == set()


def test_words_of_an_unknown_unit_are_bounded() -> None:
    """`MAX_UNIT_WORDS` words may be what is counted, and not one more."""
    words = ["red"] * (MAX_UNIT_WORDS - 1) + ["apples"]

    assert isinstance(parse(" ".join(["5", *words])), Quantity)
    assert not isinstance(parse(" ".join(["5", "red", *words])), Quantity)
