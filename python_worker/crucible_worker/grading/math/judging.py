"""How a child handles a question: it decides at once if possible, otherwise it needs a proof.

The worker sends these functions by name and so imports this module, but not the mathematics, which is imported
where it runs.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterable
from typing import TYPE_CHECKING

from crucible_bridge.types import MathPolicy, Verdict
from crucible_worker.grading.characters import with_plain_digits
from crucible_worker.grading.extract import extract, spoken

if TYPE_CHECKING:
    from crucible_worker.grading.math.decide import Decision

__all__ = ["MAX_SAID_CHARS", "Judgement", "Question", "give_up", "judge", "prove", "search"]

MAX_SAID_CHARS = 2_000
"""Longest text of a response, without its reasoning, that a child returns with the answer."""


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """Whether an answer equals any of its targets."""

    targets: tuple[str, ...]
    """One or more."""
    answer: str
    """The answer alone; empty where it is `unsent`."""
    policy: MathPolicy
    """What counts as equivalent."""
    whole: str = ""
    """The response that the answer was found in, if it may be a target itself; otherwise empty."""
    unsent: bool = False
    """The answer is so long that it stays with the worker."""


@dataclasses.dataclass(frozen=True, slots=True)
class Judgement:
    """The result for a question."""

    verdict: Verdict | None
    """CORRECT, INCORRECT or UNDECIDED; None if a proof is needed first."""
    method: str
    """How it was decided."""
    reason: str
    """The reason, for people."""
    pending: bytes = b""
    """The needed proof, for `prove`: a pickle of trees, which the worker passes on and never loads."""


def search(response: str) -> tuple[str, str, str]:
    """Extract the answer of a response, how it was found, and the text if short; linear, for up to a megabyte."""
    response = with_plain_digits(response)
    extraction = extract(response)
    said = spoken(response)
    return extraction.answer, extraction.how, said if len(said) <= MAX_SAID_CHARS else ""


def judge(question: Question) -> Judgement:
    """Decide, in bounded time."""
    from crucible_worker.grading.math.decide import decide, decide_unsent

    if question.unsent:
        return _best(map(decide_unsent, question.targets))
    decisions: list[Decision] = []
    for target in question.targets:
        decision = decide(target, question.answer, question.policy)
        if decision.verdict is Verdict.CORRECT:
            return _judgement(decision)
        decisions.append(decision)
    if question.whole:
        for target in question.targets:
            decision = decide(target, question.whole, question.policy, whole=True)
            if decision.verdict is Verdict.CORRECT:
                return _judgement(decision)
    return _best(decisions)


def prove(pending: bytes) -> Judgement:
    """Prove what `judge` left open; this may not end."""
    from crucible_worker.grading.math.decide import settle
    from crucible_worker.grading.math.symbolic import prove as proven

    decisions: list[Decision] = []
    for decision in pickle.loads(pending):
        if decision.pending is None:
            decisions.append(decision)
            continue
        settled = settle(decision.pending, [proven(left, right) for left, right in decision.pending.pairs])
        if settled.verdict is Verdict.CORRECT:
            return _judgement(settled)
        decisions.append(settled)
    return _best(decisions)


def give_up(pending: bytes) -> Judgement:
    """The decision without a proof."""
    from crucible_worker.grading.math.decide import settle

    return _best(
        decision if decision.pending is None else settle(decision.pending, [None] * len(decision.pending.pairs))
        for decision in pickle.loads(pending)
    )


def _best(decisions: Iterable[Decision]) -> Judgement:
    """For several targets: one that is right, else one that is open, else one that cannot be decided."""
    found = list(decisions)
    for verdict in (Verdict.CORRECT, None, Verdict.UNDECIDED):
        for decision in found:
            if decision.verdict is verdict:
                return _judgement(decision, found)
    return _judgement(found[0])


def _judgement(decision: Decision, others: Iterable[Decision] = ()) -> Judgement:
    pending = b"" if decision.verdict is not None else pickle.dumps(tuple(others), pickle.HIGHEST_PROTOCOL)
    return Judgement(decision.verdict, decision.method, decision.reason, pending)
