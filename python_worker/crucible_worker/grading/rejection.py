"""Whether a text names a choice only to rule it out: "not A", "anything but A", "A is wrong".

What is looked at is a choice's own clause, a few words on either side. Nothing is understood: a word of the lists below
that stands by the choice is enough, and a verb, a comma or a "but" between them is too much.
"""

from __future__ import annotations

import re

__all__ = ["MAX_RULED_OUT", "REACH", "list_start", "rejected", "ruled_out_in_line"]

REACH = 60
"""Characters on either side of a choice in which it may be ruled out."""
MAX_RULED_OUT = 8
"""Answers at the end of a text that may be ruled out ("it is not 5"): one that stands before them is the answer."""

# Words of these lists begin where a word does, all but the second one: this is looked at once, before any of them.
_NOT = r"(?:not|cannot|never|neither|nor|nicht|keine?|pas|no es|\u043d\u0435|não é|non è)"
_NOT_IN_WORDS = r"(?:n\s?['\u2019]\s?t|不是|不为|不等于|並非|并非)"
_OTHER_THAN = (
    r"(?:except(?: for)?|excluding|without|other than|rather than|instead of|rules? out|ruled out|eliminated?"
    r"|(?:any|every)(?:thing|one)? but|all but)"
)
_VERB = r"(?:is|are|was|were|be|has|have|had|so|but|because|since)"
_GAP = r"[\s\"'\u201c\u2018(*$\\}~]{0,8}"
# Three words may stand between: "not the second choice, A", but "not a mammal is A" rules nothing out.
_WORDS = rf"(?:\s+(?!{_VERB}\b)\w{{1,12}}){{0,3}}"
# "if option A is correct" says nothing of it.
_SUPPOSED = (
    r"(?:if|whether|unless|suppos(?:e|ing)|assum(?:e|ing))(?:\s+(?:that|the|an?|option|choice|answer|statement)){0,3}"
)
# What is ruled out may be the end of an equation or a ratio: "not x = 5", "not 2 : 3".
_FIRST_PART = r"(?:(?:[A-Za-z]\w{0,2}(?:\([a-z0-9]\))?\s?=|[0-9]{1,9}\s?:)\s?)?"
_BE = r"(?:\s+(?:to\s+)?be\b)?"
_BETWEEN = rf"{_WORDS}{_GAP}{_FIRST_PART}"
_BEFORE = re.compile(
    rf"(?:\b(?:(?:{_NOT}{_BE}|{_OTHER_THAN}){_BETWEEN}|{_SUPPOSED}{_GAP})|{_NOT_IN_WORDS}{_BE}{_BETWEEN}|\bno\s?\}}{_GAP})\Z",
    re.IGNORECASE,
)
_BEHIND = re.compile(
    r"[\s\"'\u201d\u2019)*$\\]{0,8}"
    r"(?:(?:nor\s+\w{1,12}\s+)?(?:(?:is|are|was|were|can|could|would|should|must)\s*(?:not\b|n\s?['\u2019]\s?t\b)|cannot\b"
    r"|(?:is|are|was|were|must\s+be)\s+(?:(?:also|clearly|definitely|simply|therefore|thus)\s+)?"
    r"(?:wrong|incorrect|false|out\b|ruled\s+out|eliminated|excluded|impossible))|isn\s?['\u2019]\s?t\b"
    r"|(?:では|じゃ)(?:ない|ありま|なく)|[가이] ?아[니닙]|不正确|不对|是错)",
    re.IGNORECASE,
)


# "no solution other than 3" names 3.
_NONE_BUT = re.compile(
    r"\b(?:no|none|nothing|never|not|n['\u2019]t)\b[^.;\n]{0,50}\b(?:other than|except(?: for)?|but|besides)\W{0,8}"
    r"(?:\w\W{1,8}=\s?)?\Z",
    re.IGNORECASE,
)


# Values before another one in a list: "$3$, $" and "3, 4 or ".
_LISTED = re.compile(
    r"(?:\$[^$\n]{1,20}\$\s?(?:,\s?(?:(?:and|or|nor)\s)?|(?:and|or|nor)\s)"
    r"|(?:-?[0-9][0-9./]{0,11},\s){0,8}-?[0-9][0-9./]{0,11},?\s(?:and|or|nor)\s){1,8}"
    r"\\?\$?\Z"
)


def list_start(text: str, start: int) -> int:
    """Where the list begins that a number stands in: what denies its first value denies all."""
    match = _LISTED.search(text, max(0, start - REACH), start)
    return match.start() if match else start


def rejected(before: str, behind: str) -> bool:
    """Whether what stands around a choice rules it out. Bounded work: at most `REACH` characters of each are read."""
    before, behind = before[-REACH:], behind[:REACH]
    return _BEHIND.match(behind) is not None or _BEFORE.search(before) is not None


def ruled_out_in_line(text: str, start: int, end: int) -> bool:
    """Whether what stands around a part of a text, on its line, rules it out."""
    before = text[max(0, start - REACH) : start].rpartition("\n")[2]
    if _NONE_BUT.search(before):
        return False
    return rejected(before, text[end : end + REACH].partition("\n")[0])
