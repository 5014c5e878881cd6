"""What answers say beside what they are: of which numbers a variable is, and under which condition they hold.

Neither need be said, so it is no part of what is compared first. Where both sides say it, they must not contradict each
other.
"""

from __future__ import annotations

import re

from crucible_worker.grading.math.notation import NUMBER_SETS

__all__ = ["condition", "counted", "other_domains"]

_LETTERS = {name: letter for letter, name in NUMBER_SETS.items()}
# `\in \mathbb{Z}`, with a plus behind it for those above zero.
_DOMAIN = re.compile(
    r"(?:\\in(?![a-z])|\u2208)\s*(?:\\(?:mathbb|Bbb|mathbf))?[\s{]*\\?"
    r"([RZNQ\u211d\u2124\u2115\u211a])(?![A-Za-z])\}*(\^?\{?\+)?"
)
_COUNTED = re.compile(
    r"([A-Za-z])\s*(?:\\in(?![a-z])|\u2208)\s*(?:\\(?:mathbb|Bbb|mathbf))?[\s{]*\\?([ZNQ\u2124\u2115\u211a])(?![A-Za-z])"
)
_CONDITION = re.compile(r"(?:f(?<!\w.)or|w(?<!\w.)he(?:n|re)|i(?<!\w.)f)\b(?:[\s{}$~]|\\[ ,;:]|\\text\b|\\q?quad\b)*")
_INEQUALITY = re.compile(
    r"[<>\u2260\u2264\u2265]|\\(?:neq?|[lg](?:eq?|t)|(?:leq|geq)slant)(?![A-Za-z])|\\in\s?(?:\\left)?\s?(?:[\[(]|\\\{)"
)
_MAX_CONDITION_CHARS = 60


def other_domains(target: str, answer: str) -> bool:
    r"""Whether both say of which numbers a variable is, `k \in \mathbb{Z}`, and no set of numbers is in both."""
    domains, others = _domains(target), _domains(answer)
    return bool(domains and others) and domains.isdisjoint(others)


def _domains(text: str) -> frozenset[str]:
    r"""The sets that variables are said to be of; the integers above zero are \mathbb{N} to most."""
    if "\\in" not in text and "\u2208" not in text:
        return frozenset()
    return frozenset(
        "N" if found[1] == "Z" and found[2] else _LETTERS.get(found[1], found[1]) for found in _DOMAIN.finditer(text)
    )


def counted(text: str) -> frozenset[str]:
    r"""The variables that are said to be integers, naturals or rationals: x of `x \in \mathbb{Z}`."""
    if "\\in" not in text and "\u2208" not in text:
        return frozenset()
    return frozenset(found[1] for found in _COUNTED.finditer(text))


def condition(text: str) -> str | None:
    """The one inequality or interval at the end of a text behind "for", "when", "where" or "if"; None without one."""
    found = None if "\\begin" in text else _CONDITION.search(text[-_MAX_CONDITION_CHARS:])
    if found is None:
        return None
    said = text[-_MAX_CONDITION_CHARS:][found.end() :].strip("$}. ")
    return said if _INEQUALITY.search(said) else None
