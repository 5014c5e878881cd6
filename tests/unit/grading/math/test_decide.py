"""Deciding about a pair: order of means, targets without a value, what is left to be proven, and bounded work."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible_bridge.types import MathPolicy, Verdict
from crucible_worker.grading.math import identity
from crucible_worker.grading.math.decide import Decision, Pending, decide, settle
from crucible_worker.grading.math.identity import IdentityFinding, examine
from crucible_worker.grading.math.tree import Node, Symbol
from tests.tables import rows

_POLICY = MathPolicy()
# What an answer may be taken for: as it is, without its words, its last number, and each with its signs read twice.
_READINGS = 8
_PAIR = (Symbol("x"), Symbol("y"))
_PIECES = st.sampled_from(
    [
        *"0123456789+-*/^()[]{}|,;:.=<>!%$_ xyzabABi",
        *("\\frac", "\\sqrt", "\\pm", "\\cup", "\\infty", "\\text{", "\\boxed{", "\\in ", "\\{", "\\}", "\\%", "\\pi"),
        *("\\begin{pmatrix}", "\\end{pmatrix}", "\\\\", "&", " and ", " or ", "^\\circ", "\\le", "\\sin"),
    ]
)


@rows(
    ("target", "answer", "method"),
    [
        ("42", "42", "literal"),
        ("42", "43", "literal"),
        ("1/2", "0.5", "rational"),
        ("\\text{even}", "Even", "text"),
        ("(x, 1)", "(x, 1)", "literal"),
        ("a < b", "b > a", "structure"),
        ("\\sqrt{8}", "2\\sqrt{2}", "identity"),
    ],
)
def test_method_names_the_strongest_means_that_was_needed(target: str, answer: str, method: str) -> None:
    """A grade tells how it came about: by letters, by numbers, by words, by form, or by a test of identity."""
    assert decide(target, answer, _POLICY).method == method


@rows("target", ["", "  ", "nan", "1/0", "\\frac{1}{0}", "\\boxed{}", "(1, 1/0)"])
@rows("answer", ["", "nan", "1/0", "5"])
def test_target_without_a_value_is_undecided(target: str, answer: str) -> None:
    """Nobody is right or wrong about a target that has no value, not even one who says the same."""
    decision = decide(target, answer, _POLICY)

    assert decision.verdict is Verdict.UNDECIDED
    assert decision.reason.startswith("the target")


@rows("answer", ["", "nan", "1/0", "0/0", "\\frac{1}{1-1}"])
def test_answer_without_a_value_is_incorrect(answer: str) -> None:
    """An answer without a value is wrong where the target has one."""
    assert decide("5", answer, _POLICY).verdict is Verdict.INCORRECT


def test_target_that_cannot_be_read_is_right_in_its_own_words() -> None:
    """What is no mathematics is compared as words, and is undecided otherwise."""
    target = "?? 5 )) ((+"

    assert decide(target, "?? 5  )) ((+", _POLICY).verdict is Verdict.CORRECT
    assert decide(target, "6", _POLICY).verdict is Verdict.UNDECIDED


def test_pending_is_settled_by_proofs() -> None:
    """One disproof is enough to be wrong, all proofs are needed to be right, and otherwise it stays open."""
    pending = Pending(pairs=(_PAIR, _PAIR), agrees=False, reason="no numbers")

    assert settle(pending, [True, True]).verdict is Verdict.CORRECT
    assert settle(pending, [True, False]).verdict is Verdict.INCORRECT
    assert settle(pending, [None, False]).verdict is Verdict.INCORRECT
    assert settle(pending, [True, None]) == Decision(verdict=Verdict.UNDECIDED, method="symbolic", reason="no numbers")


def test_pending_that_numbers_agree_on_says_so() -> None:
    """Numbers that agree are no proof, but the reason tells of them."""
    settled = settle(Pending(pairs=(_PAIR,), agrees=True, reason=""), [None])

    assert settled.verdict is Verdict.UNDECIDED
    assert "as far as numbers tell" in settled.reason


def test_pending_travels_by_pickle() -> None:
    """The slow path is another process: what it is asked must get there."""
    decision = decide("\\lim_{x \\to 0} \\frac{\\sin x}{x}", "1", _POLICY)

    assert decision.verdict is None
    assert pickle.loads(pickle.dumps(decision)) == decision


def test_long_unordered_lists_are_matched_without_trying_orders() -> None:
    """A thousand numbers in reverse order are matched by value, roots by their size."""
    numbers = [str(number) for number in range(900)]
    roots = [f"\\sqrt{{{number}}}+1" for number in range(2, 32)]

    pairs = [
        (numbers, [f"{number}.0" for number in reversed(numbers)]),
        (roots, [f"1+\\sqrt{{{number}}}" for number in range(31, 1, -1)]),
    ]

    for targets, answers in pairs:
        assert decide(", ".join(targets), ", ".join(answers), _POLICY).verdict is Verdict.CORRECT


@pytest.mark.parametrize(
    ("target", "answer"),
    [
        (", ".join(f"\\sin(x+{n})" for n in range(60)), ", ".join(f"\\cos(x-{n})" for n in range(60))),
        (" \\cup ".join(f"({n}, {n}.5)" for n in range(200)), " \\cup ".join(f"({n}, {n}.4)" for n in range(200))),
        (", ".join("\\pm 1 \\pm 2 \\pm 3 \\pm 4 \\pm 5 \\pm 6 \\pm 7" for _ in range(60)), "\\pm 1"),
        ("\\begin{pmatrix} x & y \\\\ y & x \\end{pmatrix}" * 40, "\\begin{pmatrix} 1 & 0 \\\\ 0 & 1 \\end{pmatrix}"),
        ("\\boxed{" * 3000, "\\boxed{1}" * 3000),
        ("9^{9^{9^{9}}}", "9^{9^{9^{8}}}"),
        ("1000000000!", "999999999! \\cdot 1000000000"),
    ],
)
def test_work_is_bounded(target: str, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the texts say, a decision ends after so many looks at pairs of formulas."""
    looks: list[object] = []

    def counted(left: Node, right: Node) -> IdentityFinding:
        looks.append(left)
        return examine(left, right)

    monkeypatch.setattr(identity, "examine", counted)

    decide(target, answer, MathPolicy(rename_variables=True, rounding_digits=3))

    assert len(looks) <= _READINGS * identity.MAX_IDENTITIES


def test_renaming_is_tried_for_few_variables_only() -> None:
    """Five variables have too many orders: they are compared as they are named."""
    policy = MathPolicy(rename_variables=True)

    assert decide("a+2b+3c+4d", "4w+3x+2y+z", policy).verdict is Verdict.CORRECT
    assert decide("a+2b+3c+4d+5f", "5v+4w+3x+2y+z", policy).verdict is Verdict.INCORRECT


@given(st.lists(_PIECES, max_size=40).map("".join), st.lists(_PIECES, max_size=40).map("".join))
@settings(max_examples=300, deadline=None)
def test_nothing_raises(target: str, answer: str) -> None:
    """Any two texts get a decision, and a text that is right is right against itself."""
    decision = decide(target, answer, _POLICY)
    own = decide(target, target, _POLICY)

    assert decision.verdict is not None or decision.pending is not None
    assert own.verdict in (Verdict.CORRECT, Verdict.UNDECIDED)
