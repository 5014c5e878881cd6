r"""Markup around a marker, which continues after it: `\text{The answer is } (D)`, `<b>Answer:</b> 7`.

The text after a marker loses the brace that closes the marker's `\text{}`. It ends at the end of the mathematics around
the marker, or before a tag of HTML or a special token of a model. Work is bounded, except for one pass over the text.
"""

from __future__ import annotations

import re

__all__ = ["MAX_BEFORE", "unwrapped", "without_special_tokens"]

MAX_BEFORE = 200
"""Characters before a marker, on its line, in which markup is sought."""

_TEXT = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:rm|bf|it|sf)|mbox|operatorname|underline)\s?\{[^{}]*\Z")
_TOKEN = re.compile(r"\\.|[{}]")
_OPENS = re.compile(r"\\[(\[]|(?<!\\)\$\$?")
_CLOSES = {"\\(": "\\)", "\\[": "\\]", "$": "$", "$$": "$$"}
_HTML = r"</?(?:b|strong|em|i|u|p|span|div|h[1-6]|code|font|center)>"
_OPENING_HTML = re.compile(rf"(?:[\s*_`:]{{0,8}}{_HTML})+[\s:]{{0,8}}", re.IGNORECASE)
_END = re.compile(rf"{_HTML}|<br ?/?>|<\|", re.IGNORECASE)
_SPECIAL = re.compile(
    r"(?:<\|(?!end_of_(?:box|answer|solution)\|)[A-Za-z_.-]{1,40}\|>|<\uff5c[^<>]{1,40}\uff5c>|</s>|<eos>|<end_of_turn>|\s)+\Z"
)
_MAX_SPECIAL = 200


def unwrapped(before: str, rest: str) -> str:
    """The text after a marker, without the markup around the marker.

    Args:
        before: the text before the marker; its end is examined.
        rest: the text after it.
    """
    _, end_of_line, line = before[-MAX_BEFORE:].rpartition("\n")
    if "\\" not in line and "$" not in line and "<" not in rest:
        return rest
    if html := _OPENING_HTML.match(rest):
        rest = rest[html.end() :]
    if _TEXT.search(line):
        rest = _without_closing_brace(rest)
    # Whether a truncated line begins within mathematics is unknown.
    if (end_of_line or len(before) < MAX_BEFORE) and (closing := _open_mathematics(line)):
        inside, closed, behind = rest.partition(closing)
        if closed:
            rest = inside if inside.strip(" \t.:~\\") else behind
    end = _END.search(rest)
    return rest[: end.start()] if end else rest


def without_special_tokens(text: str) -> str:
    """A response without the special tokens of a model at its end: `42<|im_end|>`."""
    if not text.rstrip().endswith(">"):
        return text
    cut = max(0, len(text) - _MAX_SPECIAL)
    match = _SPECIAL.search(text[cut:])
    return text[: cut + match.start()] if match else text


def _without_closing_brace(rest: str) -> str:
    depth = 0
    for token in _TOKEN.finditer(rest.partition("\n")[0]):
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if depth < 0:
            return rest[: token.start()] + " " + rest[token.end() :]
    return rest


def _open_mathematics(line: str) -> str:
    """The delimiter that closes the mathematics at the end of a line; empty if there is none."""
    closing = ""
    at = 0
    while True:
        if closing:
            end = line.find(closing, at)
            if end < 0:
                return closing
            at, closing = end + len(closing), ""
            continue
        opening = _OPENS.search(line, at)
        if opening is None:
            return ""
        at, closing = opening.end(), _CLOSES[opening[0]]
