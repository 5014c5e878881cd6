"""Evaluation to many digits with a bound of the error: what tells close answers apart, and equal ones equal.

Imported in children only, as it imports mpmath. A ball is mpmath's raw real and imaginary part (None where it is real)
and the binary exponent of its error's bound, so that bounding errors is integer arithmetic. A number that is zero to
two thirds of the bits is taken to be zero: a denominator without a value, no imaginary part, an integer's floor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import mpmath.libmp

from crucible_worker.grading.math.evaluate import Evaluation
from crucible_worker.grading.math.evaluate_work import NotReal, NoValue, Work
from crucible_worker.grading.math.exact import Undefined

__all__ = ["EXACT", "PreciseBall", "PreciseEvaluation", "magnitude"]

libmp: Any = mpmath.libmp  # what it returns is not annotated rightly

_Raw = Any
"""mpmath's sign, mantissa, exponent and bits of a real number."""

PreciseBall = tuple[_Raw, _Raw | None, int]
"""Real part, imaginary part or None, and e where the error is at most 2^e."""

EXACT = -(1 << 40)
"""Exponent of the error of what has none, and the magnitude of zero."""

_NEAR = "n"
_MAX_MAGNITUDE = 1 << 24  # bits of what may still be multiplied
_MAX_ANGLE_BITS = 64  # of the argument of a sine or an exponential
_MAX_GAMMA_BITS = 10
_DIGEST_BITS = 96
_MAX_DEGREE = 64  # of a root, and what it is raised to, without logarithms

_ROOT_STEPS = 4
_FUNCTION_STEPS = 12
_GAMMA_STEPS = 150
_COSTLY = 500**2  # bits, squared, with which a function takes twice as long
_MAX_GAMMA_PRECISION = 600  # mpmath prepares the gamma function for each precision, for a second at 2,000 bits


def magnitude(raw: _Raw) -> int:
    """The m for which 2^(m - 1) <= |x| < 2^m."""
    return raw[2] + raw[3] if raw[1] else EXACT


def _lowest_bit(ball: PreciseBall) -> int:
    return min((raw[2] for raw in ball[:2] if raw is not None and raw[1]), default=0)


class PreciseEvaluation(Evaluation[PreciseBall]):
    """Real and complex numbers of a given number of bits."""

    __slots__ = ("_bits",)

    def __init__(
        self, work: Work, values: Mapping[str, PreciseBall], known: dict[int, PreciseBall], *, real: bool, bits: int
    ) -> None:
        super().__init__(work, values, known, real=real)
        self._bits = bits

    def number(self, value: Fraction) -> PreciseBall:
        """A rational number, rounded where it is long."""
        over, under = value.numerator, value.denominator
        if under == 1 and over.bit_length() <= self._bits:
            return libmp.from_int(over), None, EXACT
        # 1 + 10^-300 differs from 1 only there.
        self._hide(max(over.bit_length(), under.bit_length()))
        raw = libmp.from_rational(over, under, self._bits, _NEAR)
        return raw, None, magnitude(raw) - self._bits

    def constant(self, name: str) -> PreciseBall:
        """`pi`, `e` or `i`."""
        if name == "i":
            if self.real:
                raise NotReal("i")
            return libmp.fzero, libmp.fone, EXACT
        raw = libmp.mpf_pi(self._bits, _NEAR) if name == "pi" else libmp.mpf_e(self._bits, _NEAR)
        return raw, None, 2 - self._bits

    def add(self, terms: Sequence[PreciseBall]) -> PreciseBall:
        """The sum."""
        real, imaginary, error = terms[0]
        largest = self._size(terms[0])
        smallest = largest if largest > error else None
        for term in terms[1:]:
            term_real, term_imaginary, term_error = term
            real = libmp.mpf_add(real, term_real, self._bits, _NEAR)
            if imaginary is None:
                imaginary = term_imaginary
            elif term_imaginary is not None:
                imaginary = libmp.mpf_add(imaginary, term_imaginary, self._bits, _NEAR)
            error = max(error, term_error)
            size = self._size(term)
            largest = max(largest, size, self._size((real, imaginary, EXACT)))
            if size > term_error and size != EXACT:
                smallest = size if smallest is None else min(smallest, size)
        if smallest is not None:
            self._hide(largest - smallest)
        if error == EXACT and largest + len(terms).bit_length() - min(map(_lowest_bit, terms)) <= self._bits:
            return real, imaginary, EXACT
        return real, imaginary, max(error, largest - self._bits) + len(terms).bit_length() + 1

    def multiply(self, left: PreciseBall, right: PreciseBall) -> PreciseBall:
        """The product."""
        left_size, right_size = self._size(left), self._size(right)
        size = left_size + right_size
        error = max(left_size + right[2], right_size + left[2], left[2] + right[2], size - self._bits, EXACT) + 3
        if (left_size == EXACT and left[2] == EXACT) or (right_size == EXACT and right[2] == EXACT):
            return libmp.fzero, None, EXACT
        if size > _MAX_MAGNITUDE:
            raise NoValue("a huge product")
        if left[1] is None and right[1] is None:
            product = libmp.mpf_mul(left[0], right[0], self._bits, _NEAR)
            if left[2] == right[2] == EXACT and left[0][3] + right[0][3] <= self._bits:
                error = EXACT
            return product, None, error
        if left[1] is None or right[1] is None:
            raw, (real, imaginary, _) = (left[0], right) if left[1] is None else (right[0], left)
            pair = libmp.mpc_mul_mpf((real, imaginary), raw, self._bits, _NEAR)
        else:
            pair = libmp.mpc_mul((left[0], left[1]), (right[0], right[1]), self._bits, _NEAR)
        return pair[0], pair[1], error

    def integer_power(self, base: PreciseBall, exponent: int) -> PreciseBall:
        """A power, its relative error the base's times the exponent."""
        size = self._size(base)
        if self._may_vanish(base):
            if exponent < 0:
                raise self._vanished(base, "division by 0")
            return libmp.fzero, None, max(EXACT, (base[2] + 2) * exponent)
        if abs(size) * abs(exponent) > _MAX_MAGNITUDE:
            raise NoValue("a huge power")
        if base[1] is None:
            raw, imaginary = libmp.mpf_pow_int(base[0], exponent, self._bits, _NEAR), None
        else:
            raw, imaginary = libmp.mpc_pow_int((base[0], base[1]), exponent, self._bits, _NEAR)
        if exponent > 0 and base[1] is None and base[2] == EXACT and base[0][3] * exponent <= self._bits:
            return raw, None, EXACT
        return self._relative(raw, imaginary, base[2] - size + exponent.bit_length() + 1)

    def rational_power(self, base: PreciseBall, exponent: Fraction) -> PreciseBall:
        """A root, raised: the real one of a negative number where the root is odd."""
        real, imaginary, error = base = self._settled(base)
        degree, times = exponent.denominator, exponent.numerator
        if self._may_vanish(base):
            vanished = self._vanished(base, "division by 0")
            if times < 0 or not isinstance(vanished, Undefined):
                raise vanished
            return libmp.fzero, None, max(EXACT, (error + 2) * times // degree + 1)
        if imaginary is None and (not real[0] or degree % 2):
            size = self._root_raised((libmp.mpf_abs(real), None, error), exponent)
            return self.scale(size, Fraction(-1)) if real[0] and times % 2 else size
        if self.real:
            raise NotReal("an even root of a negative number")
        if degree != 2:
            return self.exponential(self.scale(self.logarithm(base), exponent))
        self._spend(_ROOT_STEPS)
        over, aside = libmp.mpc_sqrt((real, imaginary or libmp.fzero), self._bits, _NEAR)
        root = self._relative(over, aside, error - self._size(base) + 1)
        return root if times == 1 else self.integer_power(root, times)

    def _root_raised(self, base: PreciseBall, exponent: Fraction) -> PreciseBall:
        """Of a number above zero."""
        degree, times = exponent.denominator, exponent.numerator
        if max(degree, abs(times)) > _MAX_DEGREE:
            return self.exponential(self.scale(self.logarithm(base), exponent))
        self._spend(_ROOT_STEPS)
        if degree == 2:
            raw = libmp.mpf_sqrt(base[0], self._bits, _NEAR)
        else:
            raw = libmp.mpf_nthroot(base[0], degree, self._bits, _NEAR)
        root = self._relative(raw, None, base[2] - self._size(base) + 1)
        return root if times == 1 else self.integer_power(root, times)

    def exponential(self, exponent: PreciseBall) -> PreciseBall:
        """A power of e: its relative error is the exponent's."""
        real, imaginary, error = exponent
        if self._size(exponent) > _MAX_ANGLE_BITS or error > -4 or magnitude(real) > _MAX_MAGNITUDE.bit_length() - 1:
            raise NoValue("a huge or uncertain exponent")
        self._spend(_FUNCTION_STEPS)
        if real[1]:
            self._hide(-self._size(exponent))  # 2^(10^-300) is all but 1
        if imaginary is None:
            return self._relative(libmp.mpf_exp(real, self._bits, _NEAR), None, error)
        over, aside = libmp.mpc_exp((real, imaginary), self._bits, _NEAR)
        return self._relative(over, aside, error)

    def logarithm(self, of: PreciseBall) -> PreciseBall:
        """The natural one, principal."""
        real, imaginary, error = of = self._settled(of)
        if self._may_vanish(of):
            raise self._vanished(of, "logarithm of 0")
        self._spend(_FUNCTION_STEPS)
        relative = error - self._size(of) + 2
        if imaginary is None and not real[0]:
            raw = libmp.mpf_log(real, self._bits, _NEAR)
            return raw, None, max(relative, magnitude(raw) - self._bits) + 1
        if self.real:
            raise NotReal("the logarithm of a negative number")
        pair = libmp.mpc_log((real, imaginary or libmp.fzero), self._bits, _NEAR)
        return pair[0], pair[1], max(relative, max(map(magnitude, pair)) - self._bits) + 2

    def sine(self, of: PreciseBall) -> PreciseBall:
        """The sine."""
        return self._wave(of, libmp.mpf_sin, libmp.mpc_sin)

    def cosine(self, of: PreciseBall) -> PreciseBall:
        """The cosine."""
        size = self._size(of)
        if size != EXACT:
            self._hide(-2 * size)  # all but 1
        return self._wave(of, libmp.mpf_cos, libmp.mpc_cos)

    def arcsine(self, of: PreciseBall) -> PreciseBall:
        """The inverse sine: -i ln(i z + sqrt(1 - z^2)) where it is not real."""
        real, imaginary, error = of = self._settled(of)
        one = self.number(Fraction(1))
        if imaginary is not None:
            turned = self.multiply(of, self.constant("i"))
            root = self.rational_power(self.add([one, self.multiply(turned, turned)]), Fraction(1, 2))
            return self.scale(self.multiply(self.constant("i"), self.logarithm(self.add([turned, root]))), Fraction(-1))
        self._spend(_FUNCTION_STEPS)
        gap = libmp.mpf_sub(libmp.fone, libmp.mpf_abs(real), self._bits, _NEAR)
        if magnitude(gap) <= error + 2 or gap == libmp.fzero:
            if error != EXACT and not self._is_tiny(error):
                raise NoValue("an inverse sine at its end")
            quarter, _, rounding = self.scale(self.constant("pi"), Fraction(-1 if real[0] else 1, 2))
            return quarter, None, rounding if error == EXACT else max(rounding, (error + 6) // 2 + 1)
        if gap[0]:
            raise NotReal("the inverse sine of more than 1") if self.real else NoValue("on a branch cut")
        raw = libmp.mpf_asin(real, self._bits, _NEAR)
        return raw, None, max(error - (magnitude(gap) - 1) // 2, magnitude(raw) - self._bits) + 2

    def arctangent(self, of: PreciseBall) -> PreciseBall:
        """The inverse tangent: i/2 (ln(1 - i z) - ln(1 + i z)) where it is not real."""
        real, imaginary, error = of = self._settled(of)
        if imaginary is None:
            self._spend(_FUNCTION_STEPS)
            self._hide(magnitude(real))  # all but pi/2
            raw = libmp.mpf_atan(real, self._bits, _NEAR)
            return raw, None, max(error, magnitude(raw) - self._bits) + 1
        one, turned = self.number(Fraction(1)), self.multiply(of, self.constant("i"))
        above = self.logarithm(self.add([one, self.scale(turned, Fraction(-1))]))
        below = self.scale(self.logarithm(self.add([one, turned])), Fraction(-1))
        return self.scale(self.multiply(self.constant("i"), self.add([above, below])), Fraction(1, 2))

    def absolute(self, of: PreciseBall) -> PreciseBall:
        """The distance from zero."""
        real, imaginary, error = of
        if imaginary is None:
            return libmp.mpf_abs(real), None, error
        raw = libmp.mpc_abs((real, imaginary), self._bits, _NEAR)
        return raw, None, max(error, magnitude(raw) - self._bits) + 1

    def gamma(self, of: PreciseBall) -> PreciseBall:
        """The gamma function above zero: d/dx ln gamma is between ln x - 1/x and ln x, and below 2^5 where allowed."""
        real, imaginary, error = self._settled(of)
        if imaginary is not None:
            raise NoValue("the gamma function of a complex number")
        if real[0] or not real[1]:
            raise NotReal("the gamma function below 0")
        if not -3 <= magnitude(real) <= _MAX_GAMMA_BITS or error > -16 or self._bits > _MAX_GAMMA_PRECISION:
            raise NoValue("the gamma function close to its pole, or of much")
        self._spend(_GAMMA_STEPS)
        return self._relative(libmp.mpf_gamma(real, self._bits, _NEAR), None, error + 6)

    def floor(self, of: PreciseBall) -> int:
        """The floor; what is an integer to two thirds of the bits is that integer."""
        whole = self.integer(of)
        if whole is not None:
            return whole
        real, imaginary, error = self._settled(of)
        if imaginary is not None or magnitude(real) > self._bits:
            raise NoValue("the floor of a complex or a huge number")
        low = libmp.to_int(libmp.mpf_floor(real, self._bits, _NEAR))
        above = libmp.mpf_sub(real, libmp.from_int(low), self._bits, _NEAR)
        below = libmp.mpf_sub(libmp.from_int(low + 1), real, self._bits, _NEAR)
        if min(magnitude(above), magnitude(below)) - 1 <= error:
            raise NoValue("the floor of what may be an integer")
        return low

    def sign(self, of: PreciseBall) -> int:
        """The sign of a real number."""
        real, imaginary, _ = of = self._settled(of)
        if imaginary is not None:
            raise NoValue("the sign of a complex number")
        if not self._may_vanish(of):
            return -1 if real[0] else 1
        if isinstance(self._vanished(of, ""), Undefined):
            return 0
        raise NoValue("the sign of what may be 0")

    def integer(self, of: PreciseBall) -> int | None:
        """The integer that this is to two thirds of the bits."""
        real, imaginary, error = self._settled(of)
        if imaginary is not None or not (error == EXACT or self._is_tiny(error)) or magnitude(real) > self._bits // 2:
            return None
        near = libmp.to_int(libmp.mpf_nint(real, self._bits, _NEAR))
        rest = libmp.mpf_sub(real, libmp.from_int(near), self._bits, _NEAR)
        return near if magnitude(rest) <= error else None

    def parts(self, of: PreciseBall) -> tuple[PreciseBall, PreciseBall]:
        """The real and the imaginary part."""
        real, imaginary, error = self._settled(of)
        if imaginary is None:
            return (real, None, error), (libmp.fzero, None, EXACT)
        return (real, None, error), (imaginary, None, error)

    def phase(self, of: PreciseBall) -> PreciseBall:
        """The angle of a complex number."""
        real, imaginary, error = of = self._settled(of)
        relative = error - self._size(of) + 3
        if imaginary is None or relative > -8:
            raise NoValue("the angle of a real number, or of what may be 0")
        raw = libmp.mpc_arg((real, imaginary), self._bits, _NEAR)
        return raw, None, max(relative, 3 - self._bits)

    def digest(self, of: PreciseBall) -> str:
        """The leading bits, where the error leaves them alone."""
        real, imaginary, error = of
        return f"{self._leading(real, error)},{self._leading(imaginary or libmp.fzero, error)}"

    def _leading(self, raw: _Raw, error: int) -> str:
        size = magnitude(raw)
        if size <= error or size == EXACT:
            if error != EXACT and not self._is_tiny(error):
                raise NoValue("an argument that may be 0")
            return "0"
        if size - _DIGEST_BITS - 8 < error:
            raise NoValue("an uncertain argument")
        return repr(libmp.mpf_pos(raw, _DIGEST_BITS, _NEAR))

    def _wave(self, of: PreciseBall, real: Any, general: Any) -> PreciseBall:
        raw, imaginary, error = of
        if self._size(of) > _MAX_ANGLE_BITS or error > -4:
            raise NoValue("a huge or uncertain angle")
        self._spend(_FUNCTION_STEPS)
        if imaginary is None:
            return real(raw, self._bits, _NEAR), None, max(error, -self._bits) + 1
        if magnitude(imaginary) > _MAX_GAMMA_BITS:
            raise NoValue("a huge angle")
        growth = 3 * abs(libmp.to_int(imaginary)) // 2 + 3  # cosh(y) < 2^(1.5 y)
        return *general((raw, imaginary), self._bits, _NEAR), max(error, -self._bits) + growth

    def _hide(self, bits: int) -> None:
        if bits > self.work.hidden:
            self.work.hidden = bits

    def _spend(self, steps: int) -> None:
        self.work.spend(steps * (1 + self._bits**2 // _COSTLY))

    def _settled(self, ball: PreciseBall) -> PreciseBall:
        """Without an imaginary part that is zero to two thirds of the bits."""
        real, imaginary, error = ball
        if imaginary is None:
            return ball
        if magnitude(imaginary) > error and imaginary[1]:
            return ball
        if error != EXACT and not self._is_tiny(error):
            raise NoValue("on a branch cut")
        return real, None, error

    def _relative(self, real: _Raw, imaginary: _Raw | None, relative: int) -> PreciseBall:
        """A ball whose relative error is at most 2^`relative`, rounding aside."""
        if relative > -4:
            raise NoValue("too uncertain")
        size = self._size((real, imaginary, EXACT))
        if abs(size) > _MAX_MAGNITUDE:
            raise NoValue("too large or too small")
        return real, imaginary, size + max(relative, -self._bits) + 2

    @staticmethod
    def _size(ball: PreciseBall) -> int:
        """The magnitude of the larger part."""
        real, imaginary, _ = ball
        size = real[2] + real[3] if real[1] else EXACT
        return size if imaginary is None else max(size, magnitude(imaginary))

    def _may_vanish(self, ball: PreciseBall) -> bool:
        size = self._size(ball)
        return size <= ball[2] + 1 or size == EXACT

    def _is_tiny(self, error: int) -> bool:
        return error < -2 * self._bits // 3

    def _vanished(self, ball: PreciseBall, reason: str) -> Exception:
        """What is raised about a ball that may be zero."""
        zero = ball[2] == EXACT or self._is_tiny(ball[2])
        return Undefined(reason) if zero else NoValue(f"perhaps a {reason}")
