"""The slow path: sympy tries to prove what numbers cannot, only in a child, which is killed when it takes too long.

A contradiction of numbers overrides any result of sympy. Agreement of numbers proves only constants, and of these only
integrals, sums and limits, whose closed forms sympy cannot simplify.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from crucible_worker.grading.math.exact import Undefined
from crucible_worker.grading.math.tree import Node

__all__ = ["AGREEMENT_DIGITS", "DIGITS", "prove"]

DIGITS = 40
"""Digits of the numbers that are compared."""
AGREEMENT_DIGITS = 25
"""Digits that equal constants have in common."""

_CONTRADICTION_DIGITS = 12  # a difference above this is one, if the values claim to have `DIGITS`
_POINTS = 4


def prove(left: Node, right: Node) -> bool | None:
    """Whether two expressions are equal, by sympy.

    May take any time; a tree that is obviously too large is refused.

    Returns:
        None if neither is proven.
    """
    # sympy is only imported in children.
    from crucible_worker.grading.math.symbolic_form import Form, Unsupported

    try:
        form = Form(left, right)
        if form.integrals and not form.fine:
            # Quadrature is faster than a closed form, but only its agreement is believed.
            numeric = Form(left, right, integrates=False)
            if _quadrature_agrees(numeric.of(left), numeric.of(right)):
                return True
        return _proven(_generic(form.of(left)), _generic(form.of(right)), closed=form.calculus and not form.fine)
    except Undefined:
        return False
    except Unsupported:
        return None
    except MemoryError:
        raise
    except Exception:
        # Sympy may raise exceptions of dozens of classes: nothing is proven then.
        return None


def _proven(left: Any, right: Any, *, closed: bool) -> bool | None:
    import sympy

    unbounded = (sympy.nan, sympy.zoo)
    if left in unbounded or right in unbounded:
        return False
    if left.is_infinite or right.is_infinite:
        return left == right if left.is_number and right.is_number else None
    numbers = _compared(left, right)
    if False in numbers:
        return False
    constant = not left.free_symbols and not right.free_symbols
    if closed and constant and True in numbers:
        return True
    if True not in numbers:
        # No numbers could contradict it, so even a proof of sympy is not believed.
        return None
    return True if any(step(left - right) == 0 for step in _steps()) else None


def _quadrature_agrees(left: Any, right: Any) -> bool:
    if left.free_symbols or right.free_symbols:
        return False
    return _compared(left, right) == [True]


def _compared(left: Any, right: Any) -> list[bool | None]:
    """The agreement of numbers at points where both are real, or at complex ones if there is no such point."""
    found = [_agree(left.subs(point), right.subs(point)) for point in _points(left, right)]
    if any(real for real, _ in found):
        return [agreement for real, agreement in found if real]
    return [agreement for _, agreement in found]


def _steps() -> Iterator[Callable[[Any], Any]]:
    """Methods to try, cheap ones first; each only if the one before has failed."""
    import sympy

    yield lambda difference: difference
    yield sympy.expand
    yield sympy.simplify
    yield lambda difference: sympy.simplify(sympy.expand_log(sympy.expand_trig(difference)))
    yield lambda difference: sympy.simplify(difference.rewrite(sympy.exp))
    yield lambda difference: sympy.gammasimp(difference.rewrite(sympy.gamma))


def _points(left: Any, right: Any) -> Iterator[dict[Any, Any]]:
    """Values for the symbols, rational and of either sign, natural where they must be; no values for constants."""
    import sympy

    symbols = sorted(left.free_symbols | right.free_symbols, key=lambda symbol: symbol.name)
    lot = random.Random(2_030)
    for _ in range(_POINTS if symbols else 1):
        yield {
            symbol: sympy.Integer(lot.randint(2, 9))
            if symbol.is_integer
            else sympy.Rational(lot.choice((1, -1)) * lot.randint(50, 500), 101)
            + (0 if symbol.is_real else sympy.I * sympy.Rational(lot.randint(50, 500), 103))
            for symbol in symbols
        }


def _agree(left: Any, right: Any) -> tuple[bool, bool | None]:
    """Whether two constants are real, and whether they agree in numbers: None if that is unknown."""
    import sympy

    first, second = sympy.N(left, DIGITS, maxn=4 * DIGITS), sympy.N(right, DIGITS, maxn=4 * DIGITS)
    parts = [part for value in (first, second) for part in value.as_real_imag()]
    if not all(part.is_Float or part.is_Integer or part.is_Rational for part in parts):
        return False, None
    real = not parts[1] and not parts[3]
    size = max(abs(first), abs(second), sympy.Integer(1))
    distance = abs(first - second) / size
    if distance < sympy.Float(10) ** -AGREEMENT_DIGITS:
        return real, True
    return real, False if distance > sympy.Float(10) ** -_CONTRADICTION_DIGITS else None


def _generic(expression: Any) -> Any:
    """The value without the special cases of a piecewise form: sums of powers have one for the base 1."""
    import sympy

    cases = expression.atoms(sympy.Piecewise)
    return expression.xreplace({case: _usual(case) for case in cases if case.args[-1].cond == sympy.true})


def _usual(case: Any) -> Any:
    """The value except at single points: the case of an inequality (n and -1), or the last case."""
    import sympy

    unequal = (value for value, condition in case.args if isinstance(condition, sympy.Ne))
    return next(unequal, case.args[-1].expr)
