r"""Conditions behind an answer, which are no part of it: "5, attained at x = 2", "x^2, where x is real"."""

from __future__ import annotations

import re

__all__ = ["MAX_CONDITION", "before_condition", "is_condition", "says_where", "without_condition"]

MAX_CONDITION = 200
"""Characters at the end of a sentence in which a condition is looked for."""

_ABOUT = r"(?>(?:(?:and|which|this|it|that|is|are|being|the|minimum|maximum|value|equality|with)\s+){0,5})"
_HOLDS = (
    r"(?:(?:attained|achieved|reached|obtained|assumed|taken|occurs|occurring|happens|happening|valid|holds?|true)"
    r"\s+(?:only\s+|exactly\s+)?)?"
)
_FOR = r"(?:at|when|whenever|for|if|iff|where|provided(?:\s+that)?|as\s+long\s+as)"
_OVER = (
    r"(?>(?:\s+(?:all|any|every|each|some|the|a|an|point|real|integers?|positive|nonnegative|negative|natural|numbers?"
    r"|values?|constants?|arbitrary|fixed|given|of|only|and|if))*)"
)
# What stands between an answer and a formula that is its condition.
_CONDITION = re.compile(rf"[\s,(;]*+{_ABOUT}{_HOLDS}{_FOR}{_OVER}\s*", re.IGNORECASE)
_WHERE = re.compile(r"[\s,(;]*+where(?:\s+[^\W\d_]+){0,3}\s*", re.IGNORECASE)
# The condition in words and plain formulas, up to the end: "attained at x = 2", "when x = 2 and y = 3".
_EQUATION = r"\\?[A-Za-z](?:_\w)?\s*=\s*[^\s,;=A-Za-df-z]++(?>(?:\s*[-+/*]\s*[^\s,;=A-Za-df-z]++)*)"
_AT_THE_END = re.compile(
    rf"(?<=[\w)}}\]]),?\s+\(?{_ABOUT}{_HOLDS}(?:at|when|for|if|where)\s+(?:the\s+point\s+)?"
    rf"{_EQUATION}(?>(?:\s*(?:,|and|,\s*and)\s+{_EQUATION})*)\s*\)?\s*\Z",
    re.IGNORECASE,
)
_VERBS = ("attained", "achieved", "reached", "occurs", "occurring")
_ATTAINED = re.compile(
    rf"(?<=[\w)}}\]]),?\s+\(?{_ABOUT}(?:{'|'.join(_VERBS)})\s+(?:only\s+)?(?:at|when|for|if)\b",
    re.IGNORECASE,
)
# A number that something is said to be, at the end.
_SAID = re.compile(
    r"(?:(?<!\w)(?:is|are|be|was|equals?|of)|[=:])\s{0,3}[^\s\w]{0,3}[0-9][^\s,;]{0,40}(?:\s[^\W\d_]{1,20}){0,2}\Z",
    re.IGNORECASE,
)


def is_condition(between: str) -> bool:
    """Whether a formula behind a text that follows an answer is a condition of that answer."""
    return len(between) <= MAX_CONDITION and _CONDITION.fullmatch(between) is not None


def says_where(between: str) -> bool:
    """Whether a text between two formulas begins to say what the letters of the first one are."""
    return len(between) <= MAX_CONDITION and _WHERE.fullmatch(between) is not None


def without_condition(line: str) -> str:
    """An answer in words without the condition that it ends with."""
    end = max(0, len(line) - MAX_CONDITION)
    said = line[end:].lower()
    attained = _ATTAINED.search(line, end) if any(verb in said for verb in _VERBS) else None
    match = attained or (_AT_THE_END.search(line, end) if "=" in said else None)
    return line[: match.start()] if match else line


def before_condition(text: str) -> str:
    """A text without the condition that its last sentence ends with, if it is one of a number that precedes it."""
    cut = max(0, len(text) - MAX_CONDITION)
    line = text[cut:].rstrip(" \t\r\n*_.)")
    said = without_condition(line)
    return text[: cut + len(said)] if said != line and _SAID.search(said) else text
