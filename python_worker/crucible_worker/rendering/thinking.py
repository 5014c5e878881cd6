"""An answer, and the reasoning that a model wrote down before it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import ChatMessage, ReasoningPart

__all__ = ["part_thinking", "reasoning_spans", "refuse_parted_reasoning", "without_thinking"]

_TAG = re.compile(r"<(/?)think(?:ing)?>")


def without_thinking(text: str) -> str:
    """The output of a model without its reasoning, see `part_thinking`; idempotent."""
    return part_thinking(text)[1]


def part_thinking(text: str) -> tuple[str, str]:
    """Separate the reasoning in `<think>...</think>` and `<thinking>...</thinking>` from the answer, in one pass.

    - Reasoning ends with the first closing tag after its opening tag; a second opening tag within it is text.
    - A closing tag without an opening one closes reasoning that the prompt opened, as chat templates do: all text
      before it is reasoning.
    - Unclosed reasoning with no answer before it extends to the end: the answer is empty. After an answer, it is text.

    Text without such a tag is returned unchanged; if something is removed, so is white space around the rest. Reasoning
    that the prompt opened and that was truncated has no tag, and cannot be distinguished from an answer.

    Returns:
        The reasoning, its parts in paragraphs and without tags; empty if there is none. And the rest.
    """
    parts = _parts(text)
    if not parts:  # the usual case
        return "", text
    thoughts = [text[part.opened : part.closed] for part in parts]
    if parts[0].prompted:  # once, and not at each such tag: a text may consist of tags alone
        thoughts[0] = _TAG.sub("", thoughts[0])
    ends = [0, *(part.end for part in parts)]
    starts = [*(part.start for part in parts), len(text)]
    # With a space in between, the two remaining parts never form a tag.
    said = " ".join(text[end:start] for end, start in zip(ends, starts, strict=True)).strip()
    return "\n\n".join(filter(None, map(str.strip, thoughts))), said


def reasoning_spans(text: str) -> Sequence[tuple[int, int]]:
    """Where the parts that `part_thinking` separates begin and end in a text, their tags included, in order."""
    return [(part.start, part.end) for part in _parts(text)]


def refuse_parted_reasoning(message: ChatMessage, path: str) -> None:
    """Refuse reasoning that is not all before the text of a message: servers and chat templates have no form for it.

    Raises:
        InvalidField: there is such reasoning; the field is `path`.
    """
    if any(isinstance(part, ReasoningPart) for part in message.parts):
        raise InvalidField(
            path,
            "has reasoning in several parts, or after a text, for which only tinker-cookbook's renderers have a form: "
            "put it into one part at the beginning, or name a renderer such as tinker:NAME",
        )


class _Part(NamedTuple):
    """A part of a text that is reasoning."""

    start: int
    opened: int
    closed: int
    end: int
    prompted: bool = False


def _parts(text: str) -> Sequence[_Part]:
    parts: list[_Part] = []
    opening: re.Match[str] | None = None
    for tag in _TAG.finditer(text):
        if not tag[1]:
            opening = opening or tag
        elif opening is not None:
            parts.append(_Part(opening.start(), opening.end(), tag.start(), tag.end()))
            opening = None
        else:
            parts = [_Part(0, 0, tag.start(), tag.end(), prompted=True)]
    if opening is not None:
        ends = [0, *(part.end for part in parts)]
        starts = [*(part.start for part in parts), opening.start()]
        if not any(text[end:start].strip() for end, start in zip(ends, starts, strict=True)):
            parts.append(_Part(opening.start(), opening.end(), len(text), len(text)))
    return parts
