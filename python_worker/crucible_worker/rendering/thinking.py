"""An answer without the thoughts that a model wrote down before it."""

from __future__ import annotations

import re

__all__ = ["without_thinking"]

_TAG = re.compile(r"<(/?)think(?:ing)?>")


def without_thinking(text: str) -> str:
    """What a model says beside `<think>...</think>` and `<thinking>...</thinking>`, in one pass.

    - A thought ends with the first closing tag behind its opening one; a tag opened within it is a word of it.
    - A closing tag that nothing opened closes what the prompt opened, as chat templates do: all before it is thought.
    - An unclosed thought with no answer before it is all there is: the answer is empty. Further on, it is text.

    Text without such a tag is returned as it is; where something is removed, white space around the rest goes as well.
    A thought that the prompt opened and that was cut before its end bears no tag, and cannot be told from an answer.

    Returns:
        The rest. Removing thoughts from it again changes nothing.
    """
    said: list[str] = []
    start, thinking, removed = 0, False, False
    for tag in _TAG.finditer(text):
        closing = bool(tag[1])
        if thinking and closing:
            start, thinking, removed = tag.end(), False, True
        elif closing:
            said.clear()
            start, removed = tag.end(), True
        elif not thinking:
            said.append(text[start : tag.start()])
            start, thinking = tag.start(), True
    rest = text[start:]
    if thinking and not any(map(str.strip, said)):
        return ""
    if thinking:
        said[-1] += rest
    else:
        said.append(rest)
    # With a space between them, two ends never make a tag.
    return " ".join(said).strip() if removed else text
