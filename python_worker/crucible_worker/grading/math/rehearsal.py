"""Loads the mathematics and uses it once, so that everything built at the first use exists before children are forked.

For the fork server of a grading pool; the worker never imports it.
"""

from __future__ import annotations

from crucible_bridge.types import MathPolicy
from crucible_worker.grading.math.grammar import parse
from crucible_worker.grading.math.judging import Question, judge, search
from crucible_worker.grading.math.symbolic import prove

__all__: list[str] = []

# Functions whose constants are computed for each precision: 50 digits, and more for a small difference.
_DIGITS = r"\sin 1 + \arctan 2 + \ln 7 + e^{\sqrt{2}} + (1/3)!"
_JUDGED = (
    (r"\frac{x^2-1}{x-1}", "x+1"),
    (r"\sin^2 x + \cos^2 x", "1"),
    (_DIGITS, rf"{_DIGITS} + 10^{{-60}}"),
    (_DIGITS, rf"{_DIGITS} + 10^{{-110}}"),
    (r"\{1, 2\} \cup [3, 4)", r"\{2, 1\} \cup [3, 4)"),
    ("45%", "0.45"),
    ("x = 5", "5 cm"),
)
_PROVEN = (
    (r"\int_0^1 x^2 dx", r"\frac{1}{3}"),
    (r"\sum_{n=1}^{\infty} \frac{1}{n^2}", r"\frac{\pi^2}{6}"),
    (r"\sum_{n=0}^{\infty} \frac{1}{2^n}", "2"),
    (r"\lim_{x \to 0} \frac{\sin x}{x}", "1"),
    (r"\sqrt{3+2\sqrt{2}}", r"1+\sqrt{2}"),
)

for _target, _answer in _JUDGED:
    judge(Question((_target,), _answer, MathPolicy()))
for _target, _answer in _PROVEN:
    prove(parse(_target), parse(_answer))
search(r"So it is \boxed{5}.")
