"""Into precise values and out of them: exact floats, how far two values agree, which number one of them is.

Imported in children only, as it imports mpmath.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mpmath.libmp

from crucible_worker.grading.math.evaluate_precise import EXACT, PreciseBall, PreciseEvaluation, magnitude

__all__ = ["agreement", "exactly", "rounded"]

_libmp: Any = mpmath.libmp


def exactly(value: complex) -> PreciseBall:
    """A float or a complex one, without error."""
    if isinstance(value, complex):
        return _libmp.from_float(value.real), _libmp.from_float(value.imag), EXACT
    return _libmp.from_float(value), None, EXACT


def agreement(evaluation: PreciseEvaluation, left: PreciseBall, right: PreciseBall) -> int | None:
    """Leading bits in which two values agree, as far as they are known; of zeros, bits after the point.

    Returns:
        None where they differ.
    """
    real, imaginary, error = evaluation.add([left, evaluation.scale(right, Fraction(-1))])
    size = max(magnitude(real), magnitude(imaginary) if imaginary is not None else EXACT)
    if size != EXACT and size - 1 > error:
        return None
    largest = max(magnitude(part) for ball in (left, right) for part in ball[:2] if part is not None)
    return -error if largest <= error else largest - error


def rounded(evaluation: PreciseEvaluation, ball: PreciseBall, bits: int) -> Fraction | None:
    """The real number that this is to so many leading bits, 0 where it cannot be told from 0.

    Returns:
        None where it is not real or not known to so many.
    """
    (raw, _, error), imaginary = evaluation.parts(ball)
    if evaluation.sign(imaginary) != 0:
        return None
    if evaluation.sign((raw, None, error)) == 0:
        return Fraction(0)
    return Fraction(*_libmp.to_rational(raw)) if magnitude(raw) - error > bits else None
