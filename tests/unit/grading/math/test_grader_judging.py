"""What a child makes of a question with several targets, and of what is open: with the mathematics itself."""

from __future__ import annotations

import pickle

from crucible_bridge.types import MathPolicy, Verdict
from crucible_worker.grading.math.decide import Decision, Pending
from crucible_worker.grading.math.grammar import parse
from crucible_worker.grading.math.judging import Question, give_up, judge, prove
from tests.tables import rows

POLICY = MathPolicy()


def open_decision(left: str, right: str, *, agrees: bool = True) -> Decision:
    """A decision that waits for a proof."""
    pending = Pending(pairs=((parse(left), parse(right)),), agrees=agrees, reason="not tried")
    return Decision(verdict=None, method="identity", pending=pending)


def wrong() -> Decision:
    """A decision that needs none."""
    return Decision(verdict=Verdict.INCORRECT, method="structure", reason="it differs")


@rows(
    ("targets", "answer", "verdict"),
    [
        (("x+y",), "y+x", Verdict.CORRECT),
        (("x+y",), "y-x", Verdict.INCORRECT),
        (("1/0",), "y+x", Verdict.UNDECIDED),
        (("z", "x+y"), "y+x", Verdict.CORRECT),
        (("z", "w"), "y+x", Verdict.INCORRECT),
        (("1/0", "x+y"), "y+x", Verdict.CORRECT),
        (("1/0", "w"), "y+x", Verdict.UNDECIDED),
        (("w", "1/0"), "y+x", Verdict.UNDECIDED),
    ],
)
def test_any_target_is_enough(targets, answer, verdict):
    """Right by one target is right; where none is, one that cannot be decided leaves the question undecided."""
    judgement = judge(Question(targets, answer, POLICY))

    assert judgement.verdict is verdict
    assert not judgement.pending


def test_what_is_open_goes_to_be_proven():
    """A question that numbers cannot settle comes back with what is to be proven, and no verdict."""
    judgement = judge(Question(("y", r"\int_0^1 x^2 dx"), r"\int_0^1 (x^2 + 0x) dx", POLICY))

    assert judgement.verdict is None
    assert judgement.pending
    assert prove(judgement.pending).verdict is Verdict.CORRECT
    assert give_up(judgement.pending).verdict is Verdict.UNDECIDED


@rows(
    ("decisions", "verdict"),
    [
        ((open_decision("x+x", "2x"),), Verdict.CORRECT),
        ((open_decision("x+x", "3x"),), Verdict.INCORRECT),
        ((wrong(), open_decision("x+x", "2x")), Verdict.CORRECT),
        ((open_decision("x+x", "3x"), wrong()), Verdict.INCORRECT),
        ((open_decision("x+x", "3x"), open_decision("x+x", "2x")), Verdict.CORRECT),
    ],
)
def test_what_was_left_open_is_proven(decisions, verdict):
    """Each open target is put to proof, and any that is proven equal is enough."""
    judgement = prove(pickle.dumps(decisions))

    assert judgement.verdict is verdict
    assert not judgement.pending


def test_without_a_proof_the_numbers_have_the_word():
    """What could not be proven is undecided, and says how far numbers came."""
    judgement = give_up(pickle.dumps((wrong(), open_decision("x", "y"))))

    assert (judgement.verdict, judgement.method) == (Verdict.UNDECIDED, "symbolic")
    assert judgement.reason
