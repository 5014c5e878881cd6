"""Provisos of answers: the set of numbers of a variable, and the condition under which an answer holds.

Neither is required, so it is not part of the first comparison. If both sides have one, they must not contradict each
other.
"""

from __future__ import annotations

import re

from crucible_worker.grading.math.notation import NUMBER_SETS

__all__ = ["condition", "counted", "other_domains"]

_LETTERS = {name: letter for letter, name in NUMBER_SETS.items()}
# `\in \mathbb{Z}`, with a plus after it for those above zero.
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
    r"""Whether both give the set of numbers of a variable, `k \in \mathbb{Z}`, and no set of numbers is in both."""
    domains, others = _domains(target), _domains(answer)
    return bool(domains and others) and domains.isdisjoint(others)


def _domains(text: str) -> frozenset[str]:
    r"""The stated sets of variables; the integers above zero are usually \mathbb{N}."""
    if "\\in" not in text and "\u2208" not in text:
        return frozenset()
    return frozenset(
        "N" if found[1] == "Z" and found[2] else _LETTERS.get(found[1], found[1]) for found in _DOMAIN.finditer(text)
    )


def counted(text: str) -> frozenset[str]:
    r"""The variables that are stated to be integers, naturals or rationals: x of `x \in \mathbb{Z}`."""
    if "\\in" not in text and "\u2208" not in text:
        return frozenset()
    return frozenset(found[1] for found in _COUNTED.finditer(text))


def condition(text: str) -> str | None:
    """The one inequality or interval at the end of a text after "for", "when", "where" or "if"; None without one."""
    found = None if "\\begin" in text else _CONDITION.search(text[-_MAX_CONDITION_CHARS:])
    if found is None:
        return None
    said = text[-_MAX_CONDITION_CHARS:][found.end() :].strip("$}. ")
    return said if _INEQUALITY.search(said) else None
