"""Hostile texts: fragments of what parsers read, repeated, nested and mixed with cases of the tests."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Texts"]

_CASES = Path(__file__).parent.parent / "cases"
_FRAGMENTS = (
    *"0123456789 \t\n\r.,;:!?'\"`~@#$%^&*()[]{}<>|/\\+-=_aAbBxXeEiI",
    *"π∑½②\u0000\u202e\u00a0\u0660\u200b",
    *[
        r"```",
        r"~~~",
        r"``",
        r"$$",
        r"\(",
        r"\)",
        r"\[",
        r"\]",
        r"\boxed{",
        r"}",
        r"\frac{",
        r"}{",
        r"\sqrt{",
        r"^{",
        r"_{",
        r"\left(",
        r"\right)",
        r"\begin{pmatrix}",
        r"\end{pmatrix}",
    ],
    *[
        r"\\",
        r"\cdot",
        r"\pm",
        r"\text{",
        r"\mathrm{",
        r"\cup",
        r"\infty",
        r"1e9",
        r"e999",
        r"9**9",
        r"1,",
        r"x+",
        r"sin(",
        r"\log_",
        r"\sum_",
        r"####",
        r"A)",
        r"(B)",
        r"9**9**9**9",
    ],
    *[
        "<think>",
        "</think>",
        "null",
        "true",
        "'''",
        "lambda:",
        "def",
        "return",
        "assert",
        "<|im_start|>",
        "<|endoftext|>",
        "user",
        "ﷺ",
        "é",
        "é",
    ],
    *("```python\n", "\n```\n", "1 ", "Answer: ", "The answer is ", "final answer:", " and ", " or ", "Step 1"),
    *('{"a":', '"""', "\\u0000", "def f(x):\n    ", "return ", "# ", "\U0001f600", "\U0001f469\u200d\U0001f467"),
)
_PAIRS = (
    *(("(", ")"), ("[", "]"), ("{", "}"), ("|", "|")),
    *(("\\frac{1}{", "}"), ("\\boxed{", "}"), ("\\left(", "\\right)")),
)


class Texts:
    """A source of texts. Equal seeds give equal texts."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        """Whatever is random."""
        self._cases = _texts_of_cases()

    def text(self, most: int = 1_000_000) -> str:
        """Any text of at most so many characters."""
        size = self.size(most)
        match self.rng.randrange(6):
            case 0:
                return self._nested(size)
            case 1:
                return self._mixed(size)
            case 2:
                return self.rng.choice(self._cases)[:most]
            case _:
                return self._pumped(size)

    def size(self, most: int) -> int:
        """From 1 to so many; each order of magnitude is as likely as the others, and the most itself comes often."""
        return most if self.rng.random() < 0.1 else int(most ** self.rng.random())

    def number(self, digits: int = 5_000) -> str:
        """A number, often a large one."""
        size = self.size(digits)
        text = self.rng.choice(("9", "1", "7", "10", "23")) * size
        return self.rng.choice(("", "-")) + text[:size] + self.rng.choice(("", ".5", "/3", "e9", "/" + text[:size]))

    def pick(self, values: Sequence[str]) -> str:
        """One of them."""
        return self.rng.choice(values)

    def _pumped(self, size: int) -> str:
        """What makes an expression backtrack: a beginning, a unit again and again, an end that does not fit."""
        unit = "".join(self.rng.choices(_FRAGMENTS, k=self.rng.randint(1, 3)))
        before = "".join(self.rng.choices(_FRAGMENTS, k=self.rng.randint(0, 3)))
        after = "".join(self.rng.choices(_FRAGMENTS, k=self.rng.randint(0, 3)))
        return (before + unit * (size // len(unit) + 1))[:size] + after

    def _nested(self, size: int) -> str:
        opening, closing = self.rng.choice(_PAIRS)
        depth = size // (len(opening) + len(closing)) + 1
        inside = self.rng.choice(("", "1", "x", ",", "1,2"))
        return opening * depth + inside + closing * self.rng.choice((depth, depth - 1, 0))

    def _mixed(self, size: int) -> str:
        parts, length = [], 0
        while length < min(size, 20_000):
            part = self.rng.choice(self._cases)[:200] if self.rng.random() < 0.2 else self.rng.choice(_FRAGMENTS)
            parts.append(part)
            length += len(part) or 1
        return "".join(parts) * max(1, size // max(length, 1))


def _texts_of_cases() -> list[str]:
    found: list[str] = []
    for path in sorted(_CASES.glob("*/*.jsonl")):
        for line in path.read_text().splitlines():
            if line.strip():
                found += _strings(json.loads(line))
    return found


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in items for text in _strings(item)]
