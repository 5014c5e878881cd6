"""Which of two answers is better, as a model says: what it is asked, and how its answer is read."""

from __future__ import annotations

import re

from crucible_worker.grading.judge.fence import Fence, digest_mark

__all__ = ["DEFAULT_CRITERION", "judgement", "question"]

DEFAULT_CRITERION = "Which answer is better: more correct, more helpful, clearer?"
"""What a judge is asked where the options do not say."""

_PREFERENCE = {"a": -1, "tie": 0, "b": 1}
_VERDICT = re.compile(r"\W*(?:answer\s+)?\W*(a|b|tie)\W*", re.IGNORECASE)


def question(asked: str, a: str, b: str, criterion: str) -> str:
    """What a judge is asked of two answers; see `fence` for how the texts are kept apart from what it is told.

    Args:
        asked: what both answer.
        a: the first answer.
        b: the second one.
        criterion: what is better, in words.
    """
    fence = Fence(digest_mark((asked, a, b, criterion)))
    texts = (fence.text("question", asked), fence.text("answer A", a), fence.text("answer B", b), fence.end())
    return (
        f"Two answers to one question are to be compared. {criterion}\n{fence.told()}\n\n{''.join(texts)}\n"
        'Say "A", "B" or "tie", and nothing else.\n'
    )


def judgement(said: str) -> int | None:
    """What a judge's answer amounts to: -1 for A, 1 for B, 0 for a tie; None where its last line is none of them."""
    lines = said.strip().splitlines()
    found = _VERDICT.fullmatch(lines[-1]) if lines else None
    return None if found is None else _PREFERENCE[found[1].lower()]
