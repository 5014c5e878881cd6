"""What is decided without reading mathematics: answers written like a target that has a value, and integers."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from crucible_bridge.types import MathPolicy, Verdict
from crucible_worker.grading.math.grader import with_factorial
from crucible_worker.grading.math.literal import MAX_CHARS, has_value, literally
from crucible_worker.grading.math.reading import read_target
from tests.tables import rows

LENIENT = MathPolicy()

WITH_VALUE = [
    "42",
    "-3",
    "0",
    "0.5",
    "1,000",
    "1/2",
    r"\frac{1}{2}",
    r"\frac12",
    r"\dfrac{3\pi}{4}",
    r"\frac{\sqrt{3}}{2}",
    r"\frac{1}{2\sqrt{3}}",
    r"\frac{x}{\pi}",
    r"\frac{1}{2xy}",
    "1/x",
    "5 m/s",
    "x^2+1",
    r"3\sqrt{2}",
    "(1, 2)",
    "[0, 1)",
    r"(-\infty, 3)",
    r"\{1, 2, 3\}",
    "x = 5",
    r"45^\circ",
    r"50\%",
    r"\$40",
    r"\text{(B)}",
    "Monday",
    "no solution",
]

WITHOUT_CERTAINTY = [
    "",
    " ",
    "()",
    "$",
    "nan",
    "NaN",
    "undefined",
    "1/0",
    "1/ 0",
    "1/(1-1)",
    "1/2(3-3)",
    "1/{0}",
    "1/{1-1}",
    "5:0",
    "5:00",
    "5:(1-1)",
    r"\boxed{}",
    r"\frac{1}{0}",
    r"\frac10",
    r"\frac{1}{1-1}",
    "1/x(y-y)",
    "1/x0",
    r"\frac{1}{x-x}",
    r"\frac{1}{0x}",
    r"\frac{1}{\sqrt{0}}",
    r"\frac{1}{2\sqrt{x-x}}",
    r"\frac{1}{}",
    r"\dfrac{1}{0.0}",
    r"1 \div 0",
    r"1 \over 0",
    "0^{-1}",
    "0^-1",
    "0^0",
    "(1-1)^0",
    "x^0",
    r"\infty - \infty",
    r"0 \cdot \infty",
    r"\infty \cdot 0",
    r"\ln 0",
    "log(0)",
    r"\tan 90^\circ",
    "(-1)!",
    r"\binom{1}{-1}",
    "5 mod 0",
    "129_8",
    "(1, 2",
    "1)}{(",
    "1\u22150",
    "\uff11\uff0f\uff10",
    "0\u207b\u00b9",
    "x" * (MAX_CHARS + 1),
]


@rows("text", WITH_VALUE)
def test_what_has_a_value_equals_itself(text):
    """A common form of number, term, list, text or choice is right where it is written like the target."""
    assert has_value(text)
    assert literally((text,), text, LENIENT) is Verdict.CORRECT


@rows("text", WITHOUT_CERTAINTY)
def test_what_may_have_no_value_is_left_open(text):
    """Where a value could be missing, being written alike says nothing."""
    assert not has_value(text)
    assert literally((text,), text, LENIENT) is None


FRAGMENTS = [*"0123xyneiab+-*/^=,<>(){}[]|_%.:!' ", *WITH_VALUE, *WITHOUT_CERTAINTY[:-1]]
FRAGMENTS += [
    r"\frac{",
    "}{",
    r"\sqrt{",
    r"\pi",
    r"\infty",
    r"\text{",
    r"\cdot",
    r"\left(",
    r"\right)",
    "^{",
    "x-x",
    "/x",
    "1/",
]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=6).map("".join))
@example("1/x-x")
@example("x^2:0")
@settings(max_examples=500)
def test_nothing_without_a_value_is_said_to_have_one(text):
    """What those who read find to be empty or without a value is never taken for right because it is written alike."""
    if has_value(text):
        assert read_target(text.strip()).flaw not in {"is empty", "has no value"}


@rows(
    ("targets", "answer", "verdict"),
    [
        (("42",), "43", Verdict.INCORRECT),
        (("42",), "-42", Verdict.INCORRECT),
        (("42", "43"), "43", Verdict.CORRECT),
        (("42", "x"), "43", None),
        (("x",), "43", None),
        (("42",), "42.0", None),
        (("42",), "042", None),
        (("42",), "-0", None),
        (("42",), "4,2", None),
        (("42",), "\u0664\u0662", None),
        (("1/0", "42"), "42", Verdict.CORRECT),
    ],
)
def test_integers_are_compared_as_they_are_written(targets, answer, verdict):
    """Plain integers differ where they are written differently; any other form is left to those who read."""
    assert literally(targets, answer, LENIENT) is verdict


def test_a_long_integer_is_left_open():
    """Integers of more digits than anybody means are read within the parser's budgets."""
    assert literally(("1" * 31,), "2" * 31, LENIENT) is Verdict.INCORRECT
    assert literally(("1" * 32,), "2" * 32, LENIENT) is None


def test_policies_that_look_at_the_form_are_left_to_those_who_read():
    """What must be reduced is not right because the target is written alike; rounding may equate integers."""
    assert literally(("2/4",), "2/4", MathPolicy(require_reduced=True)) is None
    assert literally(("4",), "4", MathPolicy(require_reduced=True)) is Verdict.CORRECT
    assert literally(("1234",), "1230", MathPolicy(rounding_digits=3)) is None


@rows(
    ("answer", "said", "targets", "expected"),
    [
        ("7", "So it is 7!", ("7!",), "7!"),
        ("7", "So it is 7!", ("7",), "7"),
        ("7", "So it is 7.", ("7!",), "7"),
        ("7", "First 7! and then 7", ("7!",), "7"),
        ("x", "So it is x!", ("7!",), "x"),
        ("8", "none of it", ("7!",), "8"),
    ],
)
def test_an_exclamation_mark_is_a_factorial_if_a_target_has_one(
    answer: str, said: str, targets: tuple[str, ...], expected: str
) -> None:
    """Extraction leaves the mark to the sentence; a target with a factorial gives it back to the answer."""
    assert with_factorial(answer, said, targets) == expected
