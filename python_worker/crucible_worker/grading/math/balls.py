"""Arithmetic with numbers that carry a proven bound of their error: FLINT's balls, real (`arb`) and complex (`acb`).

Two kinds of precision share this code. Few bits distinguish most different answers, in less than a microsecond each. If
few bits are not enough, they give no value. With many bits, a number that is zero to two thirds of the bits counts as
zero: for example as a denominator, an imaginary part, or the distance of a floor from an integer.

Everything that may grow is checked before FLINT is called: its calls cannot be interrupted. Imported only in children.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final, TypeAlias

from flint import acb, arb, ctx, fmpq, fmpz

from crucible_worker.grading.math.exact import NoValue, Undefined, Work

__all__ = ["FEW_BITS", "Ball", "Balls", "NotReal", "Trait", "agreement", "exactly", "magnitude", "rounded"]


class NotReal(NoValue):
    """The value, or a part of it, is not real, but only real values were requested."""


class Trait:
    """Non-constant parts of an expression that require more than a few points: bits of an integer."""

    BRANCHES: Final = 1
    """Roots, logarithms, inverse functions, absolute values: it may consist of pieces."""
    JUMPS: Final = 2
    """Floors, divisors: agreement at some points is not a proof."""
    COUNTS: Final = 4
    """Factorials and the like: its symbols may be meant to be natural numbers."""
    CONJUGATES: Final = 8
    """Conjugates, real parts: real points are not enough if symbols are complex."""


Ball: TypeAlias = arb | acb
"""A number and the radius of its error."""

FEW_BITS = 64
"""One machine word: as fast as 53 bits."""

_EXACT = -(1 << 40)  # magnitude of zero, and of the error of an exact number
_MAX_MAGNITUDE = 1 << 24  # bits before or after the point of a base
_MAX_ANGLE_BITS = 64  # of the argument of a sine or an exponential
_MAX_GROWTH_BITS = 10  # of the imaginary part of a sine's argument, and of a gamma function's argument
_MIN_GAMMA_BITS = -3
_MAX_DEGREE = 64  # of a root, and of its exponent, without logarithms
_DIGEST_BITS, _FEW_DIGEST_BITS = 96, 30

_ROOT_STEPS = 4
_FUNCTION_STEPS = 12
_GAMMA_STEPS = 150
_COSTLY = 500**2  # bits, squared, with which a function takes twice as long

_I = acb(0, 1)


def magnitude(ball: Ball) -> int:
    """The m for which the middle of a ball is from 2^(m - 1) to 2^m; for a complex one, that of the larger part."""
    if isinstance(ball, acb):
        return max(magnitude(ball.real), magnitude(ball.imag))
    near = float(ball)
    if near and math.isfinite(near):
        return math.frexp(near)[1]
    if not ball.is_finite():
        raise NoValue("too uncertain")
    mantissa, exponent = ball.mid().man_exp()
    return mantissa.bit_length() + int(exponent) if mantissa else _EXACT


def exactly(value: complex | Fraction) -> Ball:
    """A written or drawn number, exact unless it is a fraction with an infinite binary expansion."""
    if isinstance(value, float):  # first, as the check for a Fraction takes longer
        return arb(value)
    if isinstance(value, complex):
        return acb(value.real, value.imag)
    return _rational(value)


def _rational(value: Fraction | int) -> arb:
    return arb(value.numerator) if value.denominator == 1 else arb(fmpq(value.numerator, value.denominator))


class Balls:
    """Operations on balls of a given number of bits, and notes about them."""

    __slots__ = ("_bits", "_many", "kinks", "real", "traits", "work")

    def __init__(self, work: Work, *, real: bool, bits: int) -> None:
        """Operations of so many bits.

        Args:
            work: The budget.
            real: Refuse values that are not real.
            bits: How many; more than `FEW_BITS` decide what is zero.
        """
        self.work = work
        self.real = real
        """Whether values that are not real are refused."""
        self._bits = bits
        self._many = bits > FEW_BITS
        self.kinks: list[int] = []
        """Signs of the arguments of absolute values and the like, in order of evaluation; 0 if unknown."""
        self.traits = 0
        """Traits of everything evaluated that was not constant, as bits of `Trait`."""

    def use(self) -> None:
        """Make FLINT compute with these bits: it has one global setting."""
        ctx.prec = self._bits

    def number(self, value: Fraction) -> Ball:
        """A rational number, rounded unless it is an integer."""
        if self._many and (value.denominator != 1 or value.numerator.bit_length() > self._bits):
            # 1 + 10^-300 differs from 1 only at these bits.
            self._hide(max(value.numerator.bit_length(), value.denominator.bit_length()))
        return _rational(value)

    def constant(self, name: str) -> Ball:
        """`pi`, `e` or `i`."""
        if name == "i":
            if self.real:
                raise NotReal("i")
            return _I
        return arb.pi() if name == "pi" else arb.const_e()

    def add(self, terms: Sequence[Ball]) -> Ball:
        """The sum."""
        return self._observed_sum(terms) if self._many else sum(terms[1:], terms[0])

    def _observed_sum(self, terms: Sequence[Ball]) -> Ball:
        """The sum; notes how far the smallest term is below the largest intermediate number."""
        total, sizes, nonzero = terms[0], [magnitude(terms[0])], []
        for term in terms[1:]:
            total = total + term
            sizes.append(magnitude(total))
        for term in terms:
            size = magnitude(term)
            sizes.append(size)
            if not term.contains(0):
                nonzero.append(size)
        if nonzero:
            self._hide(max(sizes) - min(nonzero))
        return total

    def scale(self, of: Ball, by: Fraction) -> Ball:
        """A rational multiple."""
        return of * self.number(by)

    def divide(self, over: Ball, under: Ball) -> Ball:
        """The quotient."""
        return over * self.integer_power(under, -1)

    def integer_power(self, base: Ball, exponent: int) -> Ball:
        """Repeated multiplication; the exponent is not 0."""
        if base.contains(0):
            if exponent < 0:
                raise self._vanished(base, "division by 0")
        elif exponent not in (-1, 2) and abs(magnitude(base)) * abs(exponent) > _MAX_MAGNITUDE:
            raise NoValue("a huge power")
        return base**exponent

    def rational_power(self, base: Ball, exponent: Fraction) -> Ball:
        """A power of a root; an odd root of a negative number is the real one; the exponent is not an integer."""
        if isinstance(base, arb) and base > 0:
            return self._root_raised(base, exponent)
        if base.contains(0):
            return self._power_of_nothing(base, exponent)
        base = self._off_cut(base)
        if isinstance(base, arb) and (exponent.denominator % 2 or base > 0):
            power = self._root_raised(abs(base), exponent)
            return -power if base < 0 and exponent.numerator % 2 else power
        if self.real:
            raise NotReal("an even root of a negative number")
        if exponent.denominator != 2:
            return self.exponential(self.scale(self.logarithm(base), exponent))
        self._spend(_ROOT_STEPS)
        root = acb(base).sqrt()
        return root if exponent.numerator == 1 else self.integer_power(root, exponent.numerator)

    def _power_of_nothing(self, base: Ball, exponent: Fraction) -> Ball:
        vanished = self._vanished(base, "division by 0")
        if exponent < 0 or not isinstance(vanished, Undefined):
            raise vanished
        most = base.abs_upper()
        if most.is_zero():
            return arb(0)
        return arb(0, (most.log() * exactly(exponent)).exp().abs_upper())

    def _root_raised(self, base: arb, exponent: Fraction) -> Ball:
        """The power of a number above zero."""
        degree, times = exponent.denominator, exponent.numerator
        if max(degree, abs(times)) > _MAX_DEGREE:
            return self.exponential(self.scale(self.logarithm(base), exponent))
        self._spend(_ROOT_STEPS)
        root = base.sqrt() if degree == 2 else base.root(degree)
        return root if times == 1 else self.integer_power(root, times)

    def exponential(self, exponent: Ball) -> Ball:
        """A power of e."""
        size = magnitude(exponent)
        growth = magnitude(exponent.real) if isinstance(exponent, acb) else size
        if size > _MAX_ANGLE_BITS or growth > _MAX_MAGNITUDE.bit_length() - 1:
            raise NoValue("a huge exponent")
        self._spend(_FUNCTION_STEPS)
        if growth != _EXACT:
            self._hide(-size)  # 2^(10^-300) is nearly 1
        return exponent.exp()

    def logarithm(self, of: Ball) -> Ball:
        """The natural logarithm, principal value."""
        if not (isinstance(of, arb) and of > 0):
            if of.contains(0):
                raise self._vanished(of, "logarithm of 0")
            of = self._off_cut(of)
        self._spend(_FUNCTION_STEPS)
        if isinstance(of, arb) and of > 0:
            return of.log()
        if self.real:
            raise NotReal("the logarithm of a negative number")
        return acb(of).log()

    def sine(self, of: Ball) -> Ball:
        """The sine."""
        self._check_angle(of)
        return of.sin()

    def cosine(self, of: Ball) -> Ball:
        """The cosine."""
        size = self._check_angle(of)
        if size != _EXACT:
            self._hide(-2 * size)  # nearly 1
        return of.cos()

    def _check_angle(self, of: Ball) -> int:
        """Refuse an angle that is too large to be reduced, and return its size."""
        size = magnitude(of)
        if size > _MAX_ANGLE_BITS or (isinstance(of, acb) and magnitude(of.imag) > _MAX_GROWTH_BITS):
            raise NoValue("a huge angle")
        self._spend(_FUNCTION_STEPS)
        return size

    def arcsine(self, of: Ball) -> Ball:
        """The inverse sine."""
        of = self._settled(of)
        self._spend(_FUNCTION_STEPS)
        if isinstance(of, acb):
            return of.asin()
        gap = 1 - abs(of)
        if gap > 0 or gap.is_zero():
            return of.asin()
        if gap < 0:
            raise NotReal("the inverse sine of more than 1") if self.real else NoValue("on a branch cut")
        if not self._is_tiny(gap):
            raise NoValue("an inverse sine at its end")
        # pi/2 - arcsin(1 - g) is below 2 sqrt(g).
        return (arb.pi() / 2 + arb(0, (2 * gap.abs_upper().sqrt()).abs_upper())) * (1 if of > 0 else -1)

    def arctangent(self, of: Ball) -> Ball:
        """The inverse tangent."""
        of = self._settled(of)
        self._spend(_FUNCTION_STEPS)
        if isinstance(of, acb):
            under = 1 + of * of
            if under.contains(0):
                raise self._vanished(under, "logarithm of 0")
        elif self._many and not of.is_zero():
            self._hide(magnitude(of))  # nearly pi/2
        return of.atan()

    def absolute(self, of: Ball) -> Ball:
        """The distance from zero."""
        return abs(of)

    def gamma(self, of: Ball) -> Ball:
        """The gamma function, of a real number above zero."""
        of = self._settled(of)
        if isinstance(of, acb):
            raise NoValue("the gamma function of a complex number")
        if of <= 0:
            raise NotReal("the gamma function below 0")
        if not of > 0 or not _MIN_GAMMA_BITS <= magnitude(of) <= _MAX_GROWTH_BITS:
            raise NoValue("the gamma function close to its pole, or of much")
        self._spend(_GAMMA_STEPS)
        return of.gamma()

    def floor(self, of: Ball) -> int:
        """The greatest integer that is not above a real number."""
        whole = self.integer(of)
        if whole is not None:
            return whole
        of = self._settled(of)
        if isinstance(of, acb) or magnitude(of) > self._bits:
            raise NoValue("the floor of a complex or a huge number")
        low = of.floor().unique_fmpz()
        if low is None:
            raise NoValue("the floor of what may be an integer")
        return int(low)

    def sign(self, of: Ball) -> int:
        """1, 0 or -1, of a real number."""
        of = self._settled(of)
        if isinstance(of, acb):
            raise NoValue("the sign of a complex number")
        if not of.contains(0):
            return 1 if of > 0 else -1
        if isinstance(self._vanished(of, ""), Undefined):
            return 0
        raise NoValue("the sign of what may be 0")

    def integer(self, of: Ball) -> int | None:
        """The integer that this certainly is, if it is one; with many bits, to two thirds of them."""
        of = self._settled(of)
        if isinstance(of, acb) or magnitude(of) > (self._bits // 2 if self._many else self._bits):
            return None
        if not of.is_exact() and not (self._many and self._is_tiny(of - of.mid())):
            return None
        whole = of.unique_fmpz()
        return None if whole is None else int(whole)

    def parts(self, of: Ball) -> tuple[arb, arb]:
        """The real and the imaginary part."""
        of = self._settled(of)
        return of.real, of.imag

    def phase(self, of: Ball) -> Ball:
        """The angle of a complex number that is not real."""
        of = self._off_cut(of)
        if isinstance(of, arb) or of.contains(0):
            raise NoValue("the angle of a real number, or of what may be 0")
        return of.arg()

    def digest(self, of: Ball) -> str:
        """A key that is the same for equal values, and rarely for others: the leading bits, if they are certain."""
        return f"{self._leading(of.real)},{self._leading(of.imag)}"

    def _leading(self, part: arb) -> str:
        if part.contains(0):
            if not isinstance(self._vanished(part, ""), Undefined):
                raise NoValue("an argument that may be 0")
            return "0"
        shift = (_DIGEST_BITS if self._many else _FEW_DIGEST_BITS) - magnitude(part)
        leading = (part * arb(2) ** shift + arb(0.5)).floor().unique_fmpz()
        if leading is None:
            raise NoValue("an argument between two roundings")
        while leading % 2 == 0:  # 1 and 0.999... of the same value have shifts that differ by one
            leading, shift = leading // 2, shift - 1
        return f"{leading}/{shift}"

    def observe(self, of: Ball) -> None:
        """Note the sign of what has a kink at zero."""
        self.traits |= Trait.BRANCHES
        try:
            self.kinks.append(self.sign(of))
        except NoValue:
            self.kinks.append(0)

    def _hide(self, bits: int) -> None:
        if self._many and bits > self.work.hidden:
            self.work.hidden = bits

    def _spend(self, steps: int) -> None:
        if self._many:
            self.work.charge(steps * (1 + self._bits**2 // _COSTLY))

    def _settled(self, ball: Ball) -> Ball:
        """Real if the imaginary part is zero, or with many bits is zero to two thirds of them."""
        if isinstance(ball, arb):
            return ball
        imaginary = ball.imag
        if imaginary.is_zero():
            return ball.real
        if not imaginary.contains(0):
            return ball
        if not self._is_tiny(imaginary):
            raise NoValue("on a branch cut")
        return ball.real

    def _off_cut(self, ball: Ball) -> Ball:
        """A number that is not 0, for a root or logarithm: if it may be on either side of a cut, they are unknown."""
        if isinstance(ball, acb) and not self._many and ball.real > 0:
            return ball
        return self._settled(ball)

    def _is_tiny(self, ball: Ball) -> bool:
        """Whether a ball that contains 0 counts as 0."""
        return self._many and bool(ball.abs_upper() < arb(2) ** (-2 * self._bits // 3))

    def _vanished(self, ball: Ball, reason: str) -> Exception:
        """The exception for a ball that contains zero."""
        zero = ball.is_zero() or self._is_tiny(ball)
        return Undefined(reason) if zero else NoValue(f"perhaps a {reason}")


def agreement(left: Ball, right: Ball) -> int | None:
    """Leading bits in which two values agree, as far as they are known; for zeros, bits after the point.

    Returns:
        None if they differ.
    """
    difference = left - right
    if not difference.contains(0):
        return None
    error = max(magnitude(part.rad()) for part in (difference.real, difference.imag))
    largest = max(magnitude(left), magnitude(right))
    return -error if largest <= error else largest - error


def rounded(balls: Balls, ball: Ball, bits: int) -> Fraction | None:
    """The real number to so many leading bits; 0 if it cannot be distinguished from 0.

    Returns:
        None if it is not real, or not known to so many bits.
    """
    real, imaginary = balls.parts(ball)
    if balls.sign(imaginary) != 0:
        return None
    if balls.sign(real) == 0:
        return Fraction(0)
    if real.rel_accuracy_bits() <= bits or abs(magnitude(real)) > _MAX_MAGNITUDE:
        return None
    middle: fmpq = real.mid().fmpq()
    return Fraction(int(fmpz(middle.p)), int(fmpz(middle.q)))
