r"""Runs of capitals as products: `\frac{1}{\sqrt{LC}}` is `\frac{1}{\sqrt{L C}}`, and LC is L times C.

A run of capitals is read as a name first, as `AB` is a segment. It is a product if its letters are separate on the
other side, or if both sides are formulas and one has two letters in the other order. The text is divided, not the
tree: the exponent of `LC^2` belongs to C.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from crucible_worker.grading.math.lexer import MAX_CHARS
from crucible_worker.grading.math.reading import read_target, readings_of
from crucible_worker.grading.math.spans import boxed
from crucible_worker.grading.math.tree import Node, Number, Power, Symbol
from crucible_worker.grading.math.walk import free_symbols, walk

__all__ = ["apart"]

_MAX_LETTERS = 6
# A name with its index and exponent; after a root or fraction without braces only its first letter counts.
_NAME = re.compile(
    r"\\(?:text|math|operatorname|tag|label)[a-z]*\*? ?\{[^{}]*+\}|\\(?:sqrt|(?:[dtcs]|nice)?frac) ?[A-Z]++"
    r"|\\[A-Za-z]++"
    rf"|(?<![A-Za-z])([A-Z]{{2,{_MAX_LETTERS}}})(?![A-Za-z'!]|\s{{0,2}}_\s?\{{?\s?[0-9]{{2}}|\s{{0,2}}\()"
    r"((?:\s{0,2}_\s?(?:\{[^{}]{1,20}\}|[0-9A-Za-z]))?(?:\s{0,2}\^\s?(?:\{[^{}]{1,40}\}|[0-9A-Za-z]))?)(?!\s{0,2}[_^])"
)
# Signs that are only next to names of points.
_GEOMETRY = re.compile(
    r"\\(?:angle|measuredangle|triangle|Delta|square|odot|parallel|perp|cong|sim|over[a-z]+|vec|bar|hat|widehat"
    r"|mathbf|boldsymbol|bm|stackrel|circ|degree)(?![a-z])|[\u2220\u25b3\u25b1\u2225\u22a5\u2245\u00b0]"
)
_HINT = re.compile("[A-Z][A-Z]")
_SIGNS = re.compile(r"\\(?:cdot|times|left|right|[,;:! ()\[\]])|[\s*$()\u00b7\u00d7]")


def apart(target: str, answer: str) -> tuple[str, str] | None:
    """Both texts with the letters of such names separated; None if there are none."""
    if max(len(target), len(answer)) > MAX_CHARS or not (_HINT.search(target) or _HINT.search(answer)):
        return None
    texts = [boxed(text) or text for text in (target, answer)]
    if any(map(_GEOMETRY.search, texts)):
        return None
    names = [frozenset(_names(text)) for text in texts]
    if not any(names):
        return None
    expected = read_target(target)
    nodes = [expected.nodes, [node for reading in readings_of(answer, expected) for node in reading.nodes]]
    products: set[str] = set()
    bare = [_SIGNS.sub("", text) for text in texts]
    for side, other in ((0, 1), (1, 0)):
        letters = _letters(nodes[other])
        # If a name is a whole answer, the other side must have its letters in the same order: AB is not B A.
        alone = bare[side] in names[side] and bare[other] != bare[side]
        products |= set() if alone else {name for name in names[side] if frozenset(name) <= letters}
    if all(map(_is_formula, nodes)):
        products |= {name for name in names[0] ^ names[1] if len(name) == 2 and name[::-1] in names[0] | names[1]}
    return (_divided(target, products), _divided(answer, products)) if products else None


def _names(text: str) -> Iterator[str]:
    return (found[1] for found in _NAME.finditer(text) if found[1])


def _letters(nodes: Sequence[Node]) -> frozenset[str]:
    """Single capitals, with an index or without."""
    symbols = (part.name.partition("_")[0] for node in nodes for part in walk(node) if isinstance(part, Symbol))
    return frozenset(name for name in symbols if len(name) == 1 and name.isupper())


def _is_formula(nodes: Sequence[Node]) -> bool:
    """Whether there is a quotient, a root or an exponent with variables, with every name in it or with a variable."""
    for node in nodes:
        powers = [part for part in walk(node) if isinstance(part, Power) and _divides(part)]
        inside = frozenset().union(*(free_symbols(power.base) for power in powers))
        symbols = free_symbols(node)
        if powers and (any(len(name) == 1 for name in symbols) or symbols <= inside):
            return True
    return False


def _divides(power: Power) -> bool:
    exponent = power.exponent
    return not isinstance(exponent, Number) or exponent.value < 0 or exponent.value.denominator > 1


def _divided(text: str, products: set[str]) -> str:
    """A text with the letters of some names separated, each name a group with its index and exponent."""

    def divided(found: re.Match[str]) -> str:
        return f"{{{' '.join(found[1])}{found[2]}}}" if found[1] in products else found[0]

    return _NAME.sub(divided, text)
