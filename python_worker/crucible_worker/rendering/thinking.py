"""An answer, and the reasoning that a model wrote down before it."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["part_thinking", "without_thinking"]

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
    if _TAG.search(text) is None:  # the usual case
        return "", text
    said: list[str] = []
    thoughts: list[str] = []
    start, opened, prompted, thinking, removed = 0, 0, 0, False, False
    for tag in _TAG.finditer(text):
        closing = bool(tag[1])
        if thinking and closing:
            thoughts.append(text[opened : tag.start()])
            start, thinking, removed = tag.end(), False, True
        elif closing:
            prompted = tag.start()
            thoughts.clear()
            said.clear()
            start, removed = tag.end(), True
        elif not thinking:
            said.append(text[start : tag.start()])
            start, opened, thinking = tag.start(), tag.end(), True
    rest = text[start:]
    # Once, and not at each such tag: a text may consist of tags alone.
    thoughts.insert(0, _TAG.sub("", text[:prompted]))
    if thinking and not any(map(str.strip, said)):
        return _joined([*thoughts, text[opened:]]), ""
    if thinking:
        said[-1] += rest
    else:
        said.append(rest)
    # With a space in between, the two remaining parts never form a tag.
    return _joined(thoughts), " ".join(said).strip() if removed else text


def _joined(thoughts: Sequence[str]) -> str:
    return "\n\n".join(filter(None, map(str.strip, thoughts)))
