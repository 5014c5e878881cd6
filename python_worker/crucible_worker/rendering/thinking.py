"""An answer, and the reasoning that a model wrote down before it."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["part_thinking", "without_thinking"]

_TAG = re.compile(r"<(/?)think(?:ing)?>")


def without_thinking(text: str) -> str:
    """What a model says without its reasoning, see `part_thinking`; done again it changes nothing."""
    return part_thinking(text)[1]


def part_thinking(text: str) -> tuple[str, str]:
    """Part reasoning from what a model says beside `<think>...</think>` and `<thinking>...</thinking>`, in one pass.

    - A thought ends with the first closing tag behind its opening one; a tag opened within it is a word of it.
    - A closing tag that nothing opened closes what the prompt opened, as chat templates do: all before it is thought.
    - An unclosed thought with no answer before it is all there is: the answer is empty. Further on, it is text.

    Text without such a tag is returned as it is; where something is removed, white space around the rest goes as well.
    A thought that the prompt opened and that was cut before its end bears no tag, and cannot be told from an answer.

    Returns:
        The reasoning, its parts in paragraphs and without tags; empty where there is none. And the rest.
    """
    if _TAG.search(text) is None:  # as a rule
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
    # Once, and not at each such tag: a text may be nothing but tags.
    thoughts.insert(0, _TAG.sub("", text[:prompted]))
    if thinking and not any(map(str.strip, said)):
        return _joined([*thoughts, text[opened:]]), ""
    if thinking:
        said[-1] += rest
    else:
        said.append(rest)
    # With a space between them, two ends never make a tag.
    return _joined(thoughts), " ".join(said).strip() if removed else text


def _joined(thoughts: Sequence[str]) -> str:
    return "\n\n".join(filter(None, map(str.strip, thoughts)))
