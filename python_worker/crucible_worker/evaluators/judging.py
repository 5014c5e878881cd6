"""Which of two answers is better, as a model judges: its question, and how its answer is parsed."""

from __future__ import annotations

import dataclasses
import re

from crucible_bridge.types import ChatMessage, Conversation, ImageAssetChunk, ImageChunk, ReasoningPart, part_text
from crucible_worker.grading.judge.texts import Fence, digest_mark, readable
from crucible_worker.rendering.prompts import Prompted, messages_of

__all__ = ["DEFAULT_CRITERION", "judgement", "preference_prompt", "question"]

DEFAULT_CRITERION = "Which answer is better: more correct, more helpful, clearer?"
"""The criterion if the options give none."""

_PREFERENCE = {"a": -1, "tie": 0, "b": 1}
# Possessive, so that matching never backtracks: linear in the length of the judge's answer.
_VERDICT = re.compile(r"\W*+(?>(?:answer\s++)?)\W*+(a|b|tie)\W*+", re.IGNORECASE)


def question(asked: str, a: str, b: str, criterion: str) -> str:
    """The question to a judge about two answers; `fence` separates the texts from the instructions.

    Args:
        asked: the question that both answer.
        a: the first answer.
        b: the second one.
        criterion: what makes an answer better, in words.
    """
    fence = Fence(digest_mark((asked, a, b, criterion)))
    texts = (fence.text("question", asked), fence.text("answer A", a), fence.text("answer B", b), fence.end())
    return (
        f"Two answers to one question are to be compared. {criterion}\n{fence.told()}\n\n{''.join(texts)}\n"
        'Say "A", "B" or "tie", and nothing else.\n'
    )


def preference_prompt(asked: str | Conversation, a: str, b: str) -> Conversation:
    """The prompt of a preference model for two answers.

    It has the form in which tinker-cookbook trains such models (`preference.types.ComparisonRendererFromChatRenderer`).
    Each answer is a separate turn; it cannot contain the marks of turns, see `readable`.

    Args:
        asked: the question that both answer.
        a: the first answer.
        b: the second one.
    """
    parts = [("Completion A", a), ("Completion B", b)]
    turns = [turn for title, text in parts for turn in (_heading(title), ChatMessage("assistant", readable(text)))]
    asked = asked.question if isinstance(asked, Prompted) else asked
    return Conversation((*map(_readable, messages_of(asked)), *turns, _heading("Preference")))


def judgement(said: str) -> int | None:
    """Parse a judge's answer: -1 for A, 1 for B, 0 for a tie; None if its last line is none of them."""
    lines = said.strip().splitlines()
    found = _VERDICT.fullmatch(lines[-1]) if lines else None
    return None if found is None else _PREFERENCE[found[1].lower()]


def _readable(message: ChatMessage) -> ChatMessage:
    """A message as text and images: reasoning is a text in tags, as not every judge has a form for it."""
    reasoned = (ReasoningPart(message.reasoning),) if message.reasoning else ()
    parts = tuple(
        part if isinstance(part, ImageChunk | ImageAssetChunk) else readable(part_text(part))
        for part in (*reasoned, *(message.parts or (message.content,)))
    )
    return dataclasses.replace(message, content="", parts=parts, reasoning="", weight=None)


def _heading(title: str) -> ChatMessage:
    return ChatMessage("system", f"==== {title} ====")
