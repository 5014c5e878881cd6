"""Answers that have hung, blown up or been run by graders: none may here, wherever it stands."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from crucible_bridge.types import Verdict

__all__ = ["Hostile", "hostile_pairs"]

_ANY = frozenset({Verdict.CORRECT, Verdict.INCORRECT, Verdict.UNDECIDED})
_WRONG = frozenset({Verdict.INCORRECT})
_OPEN = frozenset({Verdict.UNDECIDED})
_NEVER_RIGHT = frozenset({Verdict.INCORRECT, Verdict.UNDECIDED})


@dataclasses.dataclass(frozen=True, slots=True)
class Hostile:
    """A pair that means harm."""

    name: str
    """What it tries."""
    answer: str
    """What a model said."""
    target: str
    """What is right."""
    verdicts: frozenset[Verdict] = _ANY
    """What may be said of it."""


def hostile_pairs(marker: Path) -> list[Hostile]:
    """All of them; the ones that are code would create the marker."""
    return [
        *_huge_numbers(),
        *_code(marker),
        *_long_texts(),
        *_without_value(),
        *_hard(),
        *_close(),
        *_odd_characters(),
    ]


def _huge_numbers() -> Iterator[Hostile]:
    yield Hostile("tower of powers", "8**8**8**8**8", "x+1", _NEVER_RIGHT)
    yield Hostile("tower of powers in LaTeX", "3^{3^{3^{3^{3^{3}}}}}", "x+1", _NEVER_RIGHT)
    yield Hostile("power of a power", "((10^{100})^{100})^{100000}", "7", _NEVER_RIGHT)
    yield Hostile("factorial of a billion", "1000000007!", r"\frac{1}{3}", _NEVER_RIGHT)
    yield Hostile("factorial of a factorial", "((200!)!)!", r"\frac{1}{3}", _NEVER_RIGHT)
    yield Hostile("binomial of billions", r"\binom{2000000000}{1000000000}", r"\frac{1}{3}", _NEVER_RIGHT)
    yield Hostile("root of a degree beyond decimal texts", "x^{1/3^{15000}}", "x", _NEVER_RIGHT)
    yield Hostile("exponent beyond doubles", r"\pi^{10^{400}/3}", "7", _NEVER_RIGHT)
    yield Hostile("remainder of a tower", r"\left(7^{7^{7^{7}}}\right) \bmod 11", "4")
    yield Hostile("exponent of a float", "1e888888888", "5", _NEVER_RIGHT)
    yield Hostile("two floats beyond doubles", "1e500", "1e501", _NEVER_RIGHT)
    yield Hostile(
        "root of a product of primes", rf"\sqrt{{{(10**40 + 121) * (10**41 + 109)}}}", r"\sqrt{7}", _NEVER_RIGHT
    )
    yield Hostile("greatest common divisor of towers", r"\gcd(2^{2^{40}}, 6^{3^{30}})", "2")


def _code(marker: Path) -> Iterator[Hostile]:
    touch = f'__import__("os").system("touch {marker}")'
    yield Hostile("a call", touch, "x+1", _NEVER_RIGHT)
    yield Hostile("a call that opens a file", f'open("{marker}", "w")', "x+1", _NEVER_RIGHT)
    yield Hostile("a call before mathematics", rf"{touch} or 2\pi", "x+1", _NEVER_RIGHT)
    yield Hostile("a call in a list", f"[{touch}]", r"\begin{pmatrix}3\\4\end{pmatrix}", _NEVER_RIGHT)
    yield Hostile("a call in letters that Python takes for others", f"\u217fax({touch})", "x+1", _NEVER_RIGHT)
    yield Hostile("a lambda", f"(lambda: {touch})()", "x+1", _NEVER_RIGHT)
    yield Hostile("a format string", f"{{{touch}}}", "x+1", _NEVER_RIGHT)
    yield Hostile("attributes", "().__class__.__bases__[0].__subclasses__()", "x+1", _NEVER_RIGHT)
    yield Hostile("TeX that writes", rf"\immediate\write18{{touch {marker}}}", "x+1", _NEVER_RIGHT)


def _long_texts() -> Iterator[Hostile]:
    third = r"\frac{1}{3}"
    yield Hostile("deep parentheses", "(" * 20_000 + "x" + ")" * 20_000, "x+1", _NEVER_RIGHT)
    yield Hostile("deep fractions", r"\frac{1}{" * 20_000 + "3" + "}" * 20_000, third, _NEVER_RIGHT)
    yield Hostile("deep powers", "2^{" * 20_000 + "2" + "}" * 20_000, third, _NEVER_RIGHT)
    yield Hostile("a megabyte of digits", "7" * 1_000_000, third, _NEVER_RIGHT)
    yield Hostile("a megabyte of decimals", "0." + "3" * 999_998, third, _NEVER_RIGHT)
    yield Hostile("a megabyte of a sum", "y+" * 499_999 + "1", "y+1", _NEVER_RIGHT)
    yield Hostile("a megabyte of words", "b " * 500_000, "y+1", _NEVER_RIGHT)
    yield Hostile("a megabyte of a list", "2," * 499_999 + "2", "2,3", _NEVER_RIGHT)
    yield Hostile("a megabyte of dollars", "$" * 1_000_000, "5", _NEVER_RIGHT)
    yield Hostile("a megabyte of minus signs", "-" * 999_999 + "5", "5", _NEVER_RIGHT)
    yield Hostile("boxes that never close", r"\boxed{" * 30_000, "5", _NEVER_RIGHT)
    yield Hostile("empty groups", "{}" * 200_000, "5", _NEVER_RIGHT)
    yield Hostile("blanks", "5" + " " * 100_000 + "x", "5", _NEVER_RIGHT)
    yield Hostile("groups of digits", "1 " + "222 " * 30_000 + "!", "5", _NEVER_RIGHT)
    yield Hostile(
        "a list of many permutations",
        ",".join(f"x_{{{n}}}" for n in range(500)),
        ",".join(f"x_{{{n}}}+0" for n in reversed(range(500))),
    )


def _without_value() -> Iterator[Hostile]:
    yield Hostile("target that is no number", "nan", "nan", _OPEN)
    yield Hostile("answer that is no number", "nan", "1", _WRONG)
    yield Hostile("empty target", "", "", _OPEN)
    yield Hostile("two divisions by zero", r"\frac{3}{0}", r"\frac{4}{0}", _OPEN)
    yield Hostile("division by zero, written otherwise", r"\frac{1}{2-2}", r"\frac{1}{2-2}", _OPEN)
    yield Hostile("division by zero for a number", r"\frac{1}{0}", "5", _WRONG)


def _hard() -> Iterator[Hostile]:
    third = r"\frac{1}{3}"
    radicals = "+".join(rf"\sqrt{{{n}+\sqrt{{{n + 2}}}}}" for n in range(2, 32))
    yield Hostile("a sum of many terms", r"\sum_{n=1}^{20000000}\frac{1}{n^2+2}", third, _NEVER_RIGHT)
    yield Hostile("an endless product", r"\prod_{n=1}^{\infty}\left(1+\frac{1}{n^{n^{n}}}\right)", third, _NEVER_RIGHT)
    yield Hostile("an integral", r"\int_0^1 \cos(x^{x^{x}})\sin(e^{x^3}) dx", third, _NEVER_RIGHT)
    yield Hostile(
        "a limit", r"\lim_{x\to 0}\frac{\sin(\tan x)-\tan(\sin x)}{\arcsin(\arctan x)-\arctan(\arcsin x)}", "1"
    )
    yield Hostile("radicals cubed", f"({radicals})^{{3}}", r"\sqrt{3}", _NEVER_RIGHT)
    yield Hostile("radicals against themselves rewritten", f"({radicals})^{{2}}", f"({radicals})({radicals}+0)")
    yield Hostile("a large power of a sum", "(a+b+c+d+e+f)^{70}", "(a+b+c+d+e+g)^{70}", _NEVER_RIGHT)
    yield Hostile(
        "trigonometric functions of each other", r"\sin(\cos(\tan(\sin(\cos(\tan(x))))))^{9}", "x", _NEVER_RIGHT
    )
    yield Hostile("a large determinant", _matrix(24), "0")


def _close() -> Iterator[Hostile]:
    yield Hostile("nearly equal factorials", r"\frac{1}{3006!}", r"\frac{1}{3004!}", _NEVER_RIGHT)
    yield Hostile("nearly equal powers", r"\frac{1}{3^{97}}", r"\frac{1}{3^{98}}", _WRONG)
    yield Hostile("nearly equal decimals", "0." + "3" * 60, r"\frac{1}{3}", _WRONG)
    yield Hostile("nearly an integer", r"e^{\pi\sqrt{163}}", "262537412640768744", _NEVER_RIGHT)


def _odd_characters() -> Iterator[Hostile]:
    yield Hostile("right-to-left mark", "\u202e31", "13", _NEVER_RIGHT)
    yield Hostile("NUL", "7\x00", "7")
    yield Hostile("half a surrogate pair", "\ud8007", "7")
    yield Hostile("only combining marks", "\u0301" * 1_000, "7", _NEVER_RIGHT)


def _matrix(size: int) -> str:
    rows = r"\\".join("&".join(f"x^{{{row * column}}}+{row}" for column in range(size)) for row in range(size))
    return rf"\det\begin{{pmatrix}}{rows}\end{{pmatrix}}"
