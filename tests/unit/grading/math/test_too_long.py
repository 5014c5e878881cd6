"""Answers that are too long to be read: wrong, if the target is small, and never a way not to be scored."""

from __future__ import annotations

import pytest

from crucible_bridge.types import MathPolicy, Verdict
from crucible_worker.grading.base import MAX_SMALL_CHARS, TOO_LONG
from crucible_worker.grading.math.compare_sets import MAX_BOUNDS
from crucible_worker.grading.math.decide import Decision, decide, settle
from crucible_worker.grading.math.extras.sizes import MAX_SMALL_DIGITS, size_of
from crucible_worker.grading.math.grammar import parse
from crucible_worker.grading.math.judging import Judgement, Question, judge
from crucible_worker.grading.math.lexer import MAX_CHARS, MAX_DEPTH
from crucible_worker.grading.math.quantities import MAX_DIGITS
from tests.tables import rows

SEVENS = "7" * (MAX_DIGITS + 1)
"""A number of one digit more than is read."""
LONG = {
    "digits": SEVENS,
    "digits in a formula": f"x + {SEVENS}",
    "digits in a list": f"1, {SEVENS}",
    "digits behind the point": f"0.{SEVENS}",
    "digits of a base": f"{SEVENS}_8",
    "characters": "1+" * (MAX_CHARS // 2) + "1",
    "words": "words " * (MAX_CHARS // 6 + 1),
    "brackets": "(" * (MAX_DEPTH + 1) + "1" + ")" * (MAX_DEPTH + 1),
    "an exponent": "1e9999999999999",
}
"""Answers that are beyond a budget, by what there is too much of."""
SMALL = (
    "42",
    "-0.5",
    "x + 1",
    "1, 2",
    "(0, 1]",
    "x = 5",
    r"\text{no solution}",
    "B",
    r"\sin 5",
    r"\sin^2 5",
    "5 cm",
    "n!",
    "2^n",
    "x^{5000}",
    "(x + 1)^3",
    r"\sum_{n=1}^{\infty} \frac{1}{n^2}",
    f"10^{{{MAX_SMALL_DIGITS - 1}}}",
    "1" * MAX_SMALL_CHARS,
)
"""Targets that stand for nothing longer than they are."""
LARGE = (
    f"10^{{{MAX_SMALL_DIGITS}}}",
    f"10^{{-{MAX_SMALL_DIGITS}}}",
    "1e1000",
    "2^{2^{20}}",
    "1000!",
    r"\binom{10000}{5000}",
    f"x + 10^{{{MAX_SMALL_DIGITS}}}",
    "(x + 1)^{500}",
    r"\{1, 2, \ldots, 2000\}",
    r"\sum_{k=1}^{1000} k!",
    "1+" * (MAX_SMALL_CHARS // 2) + "1",
)
"""Targets that are long, or short for something that is."""


def verdict_of(target: str, answer: str, policy: MathPolicy | None = None) -> tuple[Verdict | None, str]:
    """What is said, without a proof."""
    decision: Decision = decide(target, answer, policy or MathPolicy())
    if decision.pending is not None:
        decision = settle(decision.pending, [None] * len(decision.pending.pairs))
    return decision.verdict, decision.method


@rows("too_much", LONG)
def test_an_answer_beyond_the_budgets_is_wrong_against_a_small_target(too_much: str) -> None:
    """Whatever there is too much of, and whatever small target it is compared with."""
    found = {target: verdict_of(target, LONG[too_much]) for target in SMALL}

    assert {target: said for target, said in found.items() if said != (Verdict.INCORRECT, TOO_LONG)} == {}


def test_an_answer_beyond_the_budgets_is_undecided_against_a_large_target() -> None:
    """Where the target may be as long when it is written out, nobody knows: the answer may be right."""
    found = {target: verdict_of(target, LONG["characters"]) for target in LARGE}

    assert {target: said for target, (said, _) in found.items() if said is not Verdict.UNDECIDED} == {}


@rows("target", ["", "nan", r"\frac{1}{0}", "1+" * MAX_CHARS])
def test_a_target_that_says_nothing_or_cannot_be_read_stays_undecided(target: str) -> None:
    """An answer that is too long is wrong only if the target was read."""
    assert verdict_of(target, LONG["brackets"])[0] is Verdict.UNDECIDED


INTERVALS = r"\cup".join(f"({2 * start}, {2 * start + 1})" for start in range(MAX_BOUNDS + 1))
RELATIONS = ", ".join(f"x > {start}" for start in range(MAX_BOUNDS + 1))
NUMBERS = ", ".join(map(str, range(MAX_BOUNDS + 1)))
BOUNDS = r"\cup".join(f"({2 * start}, {2 * start + 1})" for start in range(MAX_BOUNDS // 2 + 1))


@rows("answer", [INTERVALS, RELATIONS, NUMBERS, BOUNDS])
def test_a_set_of_very_many_parts_is_wrong_against_a_small_target(answer: str) -> None:
    """Nobody compares them: they are too long, as a number of many digits is."""
    found = {target: verdict_of(target, answer)[0] for target in SMALL}

    assert {target: verdict for target, verdict in found.items() if verdict is not Verdict.INCORRECT} == {}


@pytest.mark.parametrize("target", [INTERVALS, r"x > 0, x > 1, \ldots, x > 100"])
def test_a_set_of_very_many_parts_is_undecided_where_the_target_may_have_as_many(target: str) -> None:
    """Such a target is no smaller than the answer."""
    assert verdict_of(target, INTERVALS.replace("(0, 1)", "(0, 1]"))[0] is Verdict.UNDECIDED


THOUSAND = "1" + "0" * MAX_SMALL_DIGITS
"""10^1000, written out."""
FIFTHS = str(5**2000).zfill(2000)
"""The decimals of 2^-2000."""


@rows(
    ("target", "answer", "verdict"),
    [
        ("10^{1000}", THOUSAND, Verdict.CORRECT),
        ("10^{1000}", f"${THOUSAND}$", Verdict.CORRECT),
        ("10^{1000}", f"\\boxed{{{THOUSAND}}}", Verdict.CORRECT),
        ("10^{1000}", "10" + ",000" * 333, Verdict.CORRECT),
        ("10^{1000}", f"+{THOUSAND}.00", Verdict.CORRECT),
        ("10^{1000}", f"000{THOUSAND}", Verdict.CORRECT),
        ("-10^{1000}", f"-{THOUSAND}", Verdict.CORRECT),
        ("1e1000", THOUSAND, Verdict.CORRECT),
        (THOUSAND, "10^{1000}", Verdict.CORRECT),
        (THOUSAND, "10" + r"\,000" * 333, Verdict.CORRECT),
        ("2^{-2000}", f"0.{FIFTHS}", Verdict.CORRECT),
        ("10^{1000}", f"-{THOUSAND}", Verdict.INCORRECT),
        ("10^{1000}", f"{THOUSAND}0", Verdict.INCORRECT),
        ("10^{1000}", THOUSAND[:-1] + "1", Verdict.INCORRECT),
        ("10^{1000}", f"{THOUSAND}.5", Verdict.INCORRECT),
        ("10^{1000}", SEVENS, Verdict.INCORRECT),
        (THOUSAND, "10^{1001}", Verdict.INCORRECT),
        (THOUSAND, "7", Verdict.INCORRECT),
        (THOUSAND, SEVENS, Verdict.INCORRECT),
        ("2^{-2000}", f"0.{FIFTHS}1", Verdict.INCORRECT),
        ("2^{-2000}", f"0.0{FIFTHS}", Verdict.INCORRECT),
    ],
)
def test_numerals_are_compared_by_their_digits(target: str, answer: str, verdict: Verdict) -> None:
    """A numeral that is too long to be read is right if it has the digits of the target, and wrong if it has others."""
    assert verdict_of(target, answer)[0] is verdict


def test_a_numeral_of_any_length_costs_no_more_than_its_target() -> None:
    """Digits are counted before they are read: of a million of them none is, and the verdict is the same."""
    assert verdict_of("10^{1000}", "7" * 50_000) == (Verdict.INCORRECT, "rational")


@pytest.mark.parametrize(("digits", "verdict"), [(3, Verdict.CORRECT), (0, Verdict.INCORRECT)])
def test_a_long_decimal_is_rounded_where_a_policy_says_so(digits: int, verdict: Verdict) -> None:
    """0.333... with more digits than are read equals 1/3 to three digits, and does not equal it exactly."""
    policy = MathPolicy(rounding_digits=digits)

    assert verdict_of(r"\frac{1}{3}", "0." + "3" * (MAX_DIGITS + 1), policy)[0] is verdict
    assert verdict_of(r"\frac{1}{3}", "0." + "4" * (MAX_DIGITS + 1), policy)[0] is Verdict.INCORRECT


@rows(
    "answer",
    [
        r"\sin(1000000!)",
        r"\log(1000000!)",
        r"\lfloor 1000000! \rfloor",
        r"\gcd(1000000!, 2^{2^{40}})",
        r"\ln(2^{10^{10}}) x",
        "x = 1000000!",
        "x > 1000000!",
    ],
)
def test_a_number_of_very_many_digits_is_no_shield(answer: str) -> None:
    """Where an answer with such a number is not proven equal it is wrong, wherever in it the number stands."""
    found = {target: verdict_of(target, answer) for target in ("5", "2x", "x = 5", "x > 5")}

    assert {target: said for target, (said, _) in found.items() if said is not Verdict.INCORRECT} == {}


@rows(
    ("target", "answer"),
    [
        (r"\frac{1}{3}", r"\int_0^1 \cos(x^{x^{x}}) dx"),
        (r"\frac{1}{3}", r"\sum_{n=1}^{20000000} \frac{1}{n^2 + 2}"),
        (r"\sin(2000000!)", r"\sin(1000000!)"),
        ("1000000!", r"\prod_{k=1}^{1000000} k"),
    ],
)
def test_mathematics_that_is_not_decided_stays_undecided(target: str, answer: str) -> None:
    """What is hard is not long: without a proof nobody knows."""
    assert verdict_of(target, answer)[0] is Verdict.UNDECIDED


@rows(
    ("targets", "judgement"),
    [
        (("42",), (Verdict.INCORRECT, TOO_LONG)),
        (("42", "x + 1"), (Verdict.INCORRECT, TOO_LONG)),
        (("42", "10^{1000}"), (Verdict.UNDECIDED, "structure")),
        (("nan",), (Verdict.UNDECIDED, "structure")),
        (("1+" * MAX_CHARS,), (Verdict.UNDECIDED, "structure")),
    ],
)
def test_an_answer_that_is_not_sent_is_judged_by_its_targets(
    targets: tuple[str, ...], judgement: tuple[Verdict, str]
) -> None:
    """It is wrong if all of them were read and are small."""
    found: Judgement = judge(Question(targets, "", MathPolicy(), unsent=True))

    assert (found.verdict, found.method) == judgement
    assert found.reason


@rows(
    ("text", "value", "width"),
    [
        ("1000000!", 5_565_708.917, 0.1),
        ("(1000000!)^{-2}", -11_131_417.834, 0.1),
        ("100000!!", 228_288.02, 1.5),
        (r"\binom{100000}{50000}", 30_100.40, 0.75),
        ("9^{9^{9}}", 369_693_099.63, 1e-6),
        ("-10^{50}", 50.0, 1e-6),
        ("2^{0.5} + 10", 1.0574, 1.0),
        ("10^{50} - 10^{20}", 50.0, 0.05),
        (r"\pi^{1000}", 497.15, 0.01),
        ("e^{5000}", 2_171.47, 0.01),
    ],
)
def test_bounds_of_sizes_hold(text: str, value: float, width: float) -> None:
    """The decimal logarithm of a value is between the bounds, and these are apart by no more than so much of it."""
    size = size_of(parse(text))

    assert size is not None
    assert size.low <= value <= size.high
    assert size.high - size.low <= width * abs(value) + 0.5


def test_what_may_cancel_has_no_lower_bound() -> None:
    """Two terms of about the same size may leave nothing."""
    size = size_of(parse("10^{20} - 10^{20}"))

    assert size is not None
    assert size.low == -float("inf")
    assert 20 <= size.high <= 21


@rows("text", ["x", r"\sin 5", "2^i", "2^{x}", "5 cm", "0^{0}", "(1/2)!"])
def test_a_value_of_which_nothing_is_known_has_no_size(text: str) -> None:
    """No bound is guessed."""
    assert size_of(parse(text)) is None
