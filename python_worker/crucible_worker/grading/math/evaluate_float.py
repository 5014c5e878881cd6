"""Evaluation in floats with a bound of the error: what tells most different answers apart, in microseconds.

A ball is a float, or a complex one where it is not real, and the radius within which the true value lies. Radii are
generous: the C library's functions are taken to be wrong by several units in the last place.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from crucible_worker.grading.math.evaluate import Evaluation
from crucible_worker.grading.math.evaluate_work import NotReal, NoValue
from crucible_worker.grading.math.exact import Undefined

__all__ = ["FloatBall", "FloatEvaluation"]

FloatBall = tuple[float | complex, float]
"""A value and the radius of its error."""

_ULP = 2.0**-52
_LARGE = 1e280  # what is beyond is left to arithmetic without overflow
_SMALL = 1e-280
_MAX_RELATIVE = 0.05  # radius to value, from where first derivatives say too little
_MAX_ANGLE = 1e9  # of a sine: its argument's error grows with it
_DIGEST_DIGITS = 9
_MAX_GAMMA = 150.0
_EXACT_INTEGERS = 2.0**53
_UNDERFLOW = 1e-320  # the rounding error of what is too small for all its digits

_Real = Callable[[float], float]
_Complex = Callable[[complex], complex]

_CONSTANTS: dict[str, FloatBall] = {
    "pi": (math.pi, math.pi * _ULP),
    "e": (math.e, math.e * _ULP),
    "i": (1j, 0.0),
}


class FloatEvaluation(Evaluation[FloatBall]):
    """Floats and complex floats."""

    __slots__ = ()

    def number(self, value: Fraction) -> FloatBall:
        """A rational number, rounded."""
        over, under = value.numerator, value.denominator
        try:
            result = over / under
        except OverflowError as error:
            raise NoValue("a number too large for floats") from error
        if under == 1 and -_EXACT_INTEGERS <= result <= _EXACT_INTEGERS:
            return result, 0.0
        return _checked(result, abs(result) * _ULP)

    def constant(self, name: str) -> FloatBall:
        """`pi`, `e` or `i`."""
        if self.real and name == "i":
            raise NotReal("i")
        return _CONSTANTS[name]

    def add(self, terms: Sequence[FloatBall]) -> FloatBall:
        """The sum, with the rounding error of each partial one."""
        total, radius = terms[0]
        for value, error in terms[1:]:
            total += value
            radius += error + abs(total) * _ULP
        return total, radius

    def multiply(self, left: FloatBall, right: FloatBall) -> FloatBall:
        """The product."""
        first, first_error = left
        second, second_error = right
        product = first * second
        size = abs(product)
        if not size < _LARGE:
            raise NoValue("overflow")
        radius = abs(first) * second_error + abs(second) * first_error + first_error * second_error
        return product, radius + size * (4 * _ULP) + _UNDERFLOW

    def integer_power(self, base: FloatBall, exponent: int) -> FloatBall:
        """A power, its relative error the base's times the exponent."""
        value, error = base
        size = abs(value)
        if size <= error or size < _SMALL:
            if exponent > 0:
                return _near_zero(size, error, float(exponent))
            if error == 0 and value == 0:
                raise Undefined("division by 0")
            raise NoValue("division by what may be 0")
        try:
            result = value**exponent
        except OverflowError as failure:
            raise NoValue("overflow") from failure
        return _relative(result, abs(exponent) * (error / size + (8 * _ULP if isinstance(value, complex) else _ULP)))

    def rational_power(self, base: FloatBall, exponent: Fraction) -> FloatBall:
        """A root, raised: the real one of a negative number where the root is odd."""
        value, error = base
        size = abs(value)
        power = float(exponent)
        if size <= error or size < _SMALL:
            if error == 0 and value == 0:
                if power < 0:
                    raise Undefined("division by 0")
                return 0.0, 0.0
            raise NoValue("a root of what may be 0")
        if not -_LARGE < power < _LARGE:
            raise NoValue("a huge exponent")
        flipped = False
        if isinstance(value, complex) or value < 0:
            if isinstance(value, float) and exponent.denominator % 2:
                value, flipped = -value, exponent.numerator % 2 == 1
            else:
                self._check_cut(value, error)
        try:
            result = cmath.exp(power * cmath.log(value)) if isinstance(value, complex) or value < 0 else value**power
        except OverflowError as failure:
            raise NoValue("overflow") from failure
        growth = abs(power) * (abs(math.log(size)) + 4) + 1
        return _relative(-result if flipped else result, abs(power) * error / size + growth * (4 * _ULP))

    def exponential(self, exponent: FloatBall) -> FloatBall:
        """A power of e: its relative error is the exponent's."""
        value, error = exponent
        try:
            result = cmath.exp(value) if isinstance(value, complex) else math.exp(value)
        except (OverflowError, ValueError) as failure:
            raise NoValue("overflow") from failure
        return _relative(result, error + (4 + abs(value)) * _ULP)

    def logarithm(self, of: FloatBall) -> FloatBall:
        """The natural one, principal."""
        value, error = of
        size = abs(value)
        if size <= error or size < _SMALL:
            if error == 0 and value == 0:
                raise Undefined("logarithm of 0")
            raise NoValue("a logarithm of what may be 0")
        if isinstance(value, complex) or value < 0:
            self._check_cut(value, error)
            result = cmath.log(value)
        else:
            result = math.log(value)
        ratio = error / size
        if ratio > _MAX_RELATIVE:
            raise NoValue("an uncertain logarithm")
        return result, 2 * ratio + (abs(result) + 1) * (4 * _ULP)

    def sine(self, of: FloatBall) -> FloatBall:
        """The sine."""
        return self._wave(of, math.sin, cmath.sin)

    def cosine(self, of: FloatBall) -> FloatBall:
        """The cosine."""
        return self._wave(of, math.cos, cmath.cos)

    def arcsine(self, of: FloatBall) -> FloatBall:
        """The inverse sine; not real outside -1 to 1."""
        value, error = of
        if isinstance(value, complex):
            raise NoValue("the inverse sine of a complex number")
        gap = 1 - abs(value)
        if error == 0 and gap == 0:
            return math.asin(value), 4 * _ULP
        if gap < -error:
            if self.real:
                raise NotReal("the inverse sine of more than 1")
            raise NoValue("the inverse sine of more than 1")
        if gap <= 4 * error or gap < _ULP:
            raise NoValue("an inverse sine at its end")
        return math.asin(value), 2 * error / math.sqrt(gap) + 8 * _ULP

    def arctangent(self, of: FloatBall) -> FloatBall:
        """The inverse tangent."""
        value, error = of
        if isinstance(value, complex):
            raise NoValue("the inverse tangent of a complex number")
        return math.atan(value), error + 4 * _ULP

    def absolute(self, of: FloatBall) -> FloatBall:
        """The distance from zero."""
        value, error = of
        return abs(value), error + (abs(value) * _ULP if isinstance(value, complex) else 0.0)

    def gamma(self, of: FloatBall) -> FloatBall:
        """The gamma function above zero: d/dx ln gamma is between ln x - 1/x and ln x."""
        value, error = of
        if isinstance(value, complex):
            raise NoValue("the gamma function of a complex number")
        if value + error <= 0:
            raise NotReal("the gamma function below 0")
        if value - error < _MAX_RELATIVE or value > _MAX_GAMMA:
            raise NoValue("the gamma function close to its pole, or overflow")
        slope = abs(math.log(value)) + 1 / (value - error) + 1
        return _relative(math.gamma(value), slope * error + 64 * _ULP)

    def floor(self, of: FloatBall) -> int:
        """The floor, where the ball holds no integer as a border."""
        value, error = of
        if isinstance(value, complex) or not abs(value) < _EXACT_INTEGERS:
            raise NoValue("the floor of a complex or a huge number")
        low = math.floor(value - error)
        if error and low != math.floor(value + error):
            raise NoValue("the floor of what may be an integer")
        return low

    def sign(self, of: FloatBall) -> int:
        """The sign of a real number."""
        value, error = of
        if isinstance(value, complex):
            raise NoValue("the sign of a complex number")
        if abs(value) > error:
            return 1 if value > 0 else -1
        if error == 0:
            return 0
        raise NoValue("the sign of what may be 0")

    def integer(self, of: FloatBall) -> int | None:
        """The integer that an exact float is."""
        value, error = of
        return int(value) if not error and isinstance(value, float) and value.is_integer() else None

    def parts(self, of: FloatBall) -> tuple[FloatBall, FloatBall]:
        """The real and the imaginary part."""
        value, error = of
        if isinstance(value, complex):
            return (value.real, error), (value.imag, error)
        return of, (0.0, 0.0)

    def phase(self, of: FloatBall) -> FloatBall:
        """The angle of a complex number."""
        value, error = of
        self._check_cut(value, error)
        size = abs(value)
        if error > size * _MAX_RELATIVE:
            raise NoValue("the angle of what may be 0")
        return cmath.phase(value), 2 * error / size + 4 * _ULP

    def digest(self, of: FloatBall) -> str:
        """The leading digits, where the error leaves them alone."""
        value, error = of
        parts = (value.real, value.imag) if isinstance(value, complex) else (value,)
        # + 0.0: zero has one sign.
        low, high = ([f"{part + shift + 0.0:.{_DIGEST_DIGITS}e}" for part in parts] for shift in (-error, error))
        if low != high:
            raise NoValue("an argument between two roundings")
        return ",".join(low)

    def _check_cut(self, value: float | complex, error: float) -> None:
        """The values on and below the negative real axis are apart from those above."""
        if self.real:
            raise NotReal("a root or logarithm of a negative number")
        if isinstance(value, complex) and abs(value.imag) <= error and value.real < error:
            raise NoValue("on a branch cut")

    @staticmethod
    def _wave(of: FloatBall, real: _Real, general: _Complex) -> FloatBall:
        value, error = of
        if not abs(value) < _MAX_ANGLE or error > _MAX_RELATIVE:
            raise NoValue("a huge or uncertain angle")
        if isinstance(value, float):
            return real(value), error + 2 * _ULP
        try:
            result = general(value)
        except OverflowError as failure:
            raise NoValue("overflow") from failure
        return _checked(result, (2 * error + 8 * _ULP) * math.cosh(value.imag))


def _relative(value: float | complex, relative: float) -> FloatBall:
    """A ball whose logarithm is uncertain by `relative`."""
    if not relative < _MAX_RELATIVE:
        raise NoValue("too uncertain")
    return _checked(value, abs(value) * 2 * (relative + _ULP))


def _checked(value: float | complex, radius: float) -> FloatBall:
    size = abs(value)
    if not _SMALL < size < _LARGE or not radius < _LARGE:
        raise NoValue("too large or too small for floats")
    return value, radius


def _near_zero(size: float, error: float, exponent: float) -> FloatBall:
    if error == 0 and size == 0:
        return 0.0, 0.0
    if size + error > 1:
        raise NoValue("too uncertain")
    return 0.0, (size + error) ** exponent + _UNDERFLOW
