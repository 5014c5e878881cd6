r"""Lines divide: several lines, or several formulas, are a list.

`x = 1` over `y = 2`, `x = 1 \\ y = 2` and `$x = 1$ $y = 2$` are `x = 1, y = 2`. A line that begins with a sign of
relation, an operator, a unit or a word continues the one before, and so does one in brackets that were opened there.
An environment has its own rows: its lines do not divide.
"""

from __future__ import annotations

import re

__all__ = ["OPERAND_ENDS", "WIDE_SPACE", "divided", "marked_lines"]

OPERAND_ENDS = frozenset({"number", "letter", "constant", "}", ")", "]", "|", "upright", "%", "degree", "name", "word"})
"""Kinds of tokens at the possible end of an operand."""

_ENDS = OPERAND_ENDS | {"set}", "angle)", "floor)", "ceil)", "'", "!", "dots", "emptyset", "based", "end environment"}
_STARTS = frozenset(
    {"number", "based", "letter", "name", "constant", "currency", "dots", "emptyset", "-", "plusminus", "box{"}
    | {
        "frac",
        "binom",
        "sqrt",
        "cbrt",
        "function",
        "series",
        "integral",
        "limit",
        "overline",
        "mark",
        "angle",
        "mathbb",
    }
    | {"(", "[", "set{", "|", "floor(", "ceil(", "angle("}
)
_OPENING = frozenset({"(", "[", "{", "box{", "set{", "angle(", "begin"})
_CLOSING = frozenset({")", "]", "}", "set}", "angle)", "end environment"})
WIDE_SPACE = (
    r"\\hspace\*?\{ ?(?:[1-9][0-9]?(?:\.[0-9]{1,2})? ?(?:cm|em|in)|0?\.[3-9][0-9]? ?(?:cm|in)"
    r"|[1-9][0-9](?:\.[0-9]{1,2})? ?(?:pt|mm|ex|mu)|[5-9] ?mm) ?\}"
)
"""The expression of a space that divides like `\\quad`; a smaller one is a blank."""

_LINE = " \\newline "
_GAP = r"(?>(?:\n[ \t]*+[-*\u2022]\s|\s|\\q?quad(?![A-Za-z])|\\[,;: ])*)"
# A closed and reopened formula, also after a bullet; the end of a line with a bullet after it; or a wide blank.
_BOUNDARY = re.compile(
    r"\n\s*+(?:[*\u2022]\s)?|(?<!\\)\$(?>(?:" + _GAP + r"\$)+)|\\[)\]]" + _GAP + r"\\[(\[]"
    r"|(?<![)\\\s])\s?(?:\\q?quad(?![A-Za-z])|" + WIDE_SPACE + r")(?!\s*+\()"
)
_GOES_ON = re.compile(r"[-+]\s")
_BULLET = re.compile(r"(?:\A|\n)[ \t]*+[-*\u2022]\s")


def marked_lines(text: str) -> str:
    """A text with a token for each place where a line or a formula ends and another one follows."""
    if "\n" in text or "quad" in text or "\\hspace" in text or text.count("$") > 2 or "\\)" in text or "\\]" in text:
        if "\n" in text and _BULLET.match(text):  # a list, with a dash for a bullet too
            text = _BULLET.sub("\n", text).strip()
        return _BOUNDARY.sub(_mark, text)
    return text


def _mark(boundary: re.Match[str]) -> str:
    if boundary[0][0] == "\n":
        return "\n" if _GOES_ON.match(boundary.string, boundary.end()) else _LINE
    # A remaining dollar sign is money.
    return _LINE + "$" * (boundary[0].count("$") % 2)


def divided(kinds: list[str], values: list[str]) -> None:
    """Put a comma at a line end that divides, and nothing at others; rows outside of environments are lines."""
    if "line" not in kinds and "row" not in kinds:
        return
    found = list(zip(kinds, values, strict=True))
    kinds.clear()
    values.clear()
    opened: list[str] = []
    for at, (kind, value) in enumerate(found):
        if kind in _OPENING:
            opened.append(kind)
        elif kind in _CLOSING and opened:
            opened.pop()
        following = [later for later, _ in found[at + 1 : at + 4]]
        if kind == "&" and "relation" in (*kinds[-1:], *following[:1]):
            continue  # an equation is aligned at its sign
        if kind == "line" or (kind == "row" and "begin" not in opened):
            ends = len(kinds) - (kinds[-1:] == ["."])  # a full stop belongs to the sentence
            if opened.count("box{") == len(opened) and _starts_operand(following) and _ends_operand(kinds, ends):
                del kinds[ends:], values[ends:]
                kind = value = ","
            elif kind == "line" or opened.count("box{") == len(opened):
                continue
        kinds.append(kind)
        values.append(value)


def _starts_operand(following: list[str]) -> bool:
    return next((kind for kind in following if kind not in ("line", "row")), "") in _STARTS


def _ends_operand(kinds: list[str], end: int) -> bool:
    """Whether an operand may end there; a word is the end of one if it is the unit of a value."""
    if not end or kinds[end - 1] not in _ENDS:
        return False
    return kinds[end - 1] != "word" or (end > 1 and kinds[end - 2] in _ENDS and kinds[end - 2] != "word")
