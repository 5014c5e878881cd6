"""Which of two answers is better, as a model says: what it is asked, and how its answer is read."""

from __future__ import annotations

import re

from crucible_bridge.types import ChatMessage, Conversation
from crucible_worker.grading.judge.fence import Fence, digest_mark, readable
from crucible_worker.rendering.prompted import Prompted
from crucible_worker.rendering.prompts import messages_of

__all__ = ["DEFAULT_CRITERION", "judgement", "preference_prompt", "question"]

DEFAULT_CRITERION = "Which answer is better: more correct, more helpful, clearer?"
"""What a judge is asked where the options do not say."""

_PREFERENCE = {"a": -1, "tie": 0, "b": 1}
# Nothing is given back: linear in what a judge says.
_VERDICT = re.compile(r"\W*+(?>(?:answer\s++)?)\W*+(a|b|tie)\W*+", re.IGNORECASE)


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


def preference_prompt(asked: str | Conversation, a: str, b: str) -> Conversation:
    """What a preference model is asked of two answers.

    The form that tinker-cookbook trains such models in (`preference.types.ComparisonRendererFromChatRenderer`). Answers
    stand in turns of their own, whose marks they cannot write, see `readable`.

    Args:
        asked: what both answer.
        a: the first answer.
        b: the second one.
    """
    parts = [("Completion A", a), ("Completion B", b)]
    turns = [turn for title, text in parts for turn in (_heading(title), ChatMessage("assistant", readable(text)))]
    asked = asked.question if isinstance(asked, Prompted) else asked
    question = (ChatMessage(message.role, readable(message.content)) for message in messages_of(asked))
    return Conversation((*question, *turns, _heading("Preference")))


def judgement(said: str) -> int | None:
    """What a judge's answer amounts to: -1 for A, 1 for B, 0 for a tie; None where its last line is none of them."""
    lines = said.strip().splitlines()
    found = _VERDICT.fullmatch(lines[-1]) if lines else None
    return None if found is None else _PREFERENCE[found[1].lower()]


def _heading(title: str) -> ChatMessage:
    return ChatMessage("system", f"==== {title} ====")
