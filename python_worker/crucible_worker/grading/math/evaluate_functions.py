"""The known functions of balls, with the traits of each; an unknown function has random values."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

from crucible_worker.grading.math.balls import Ball, Balls
from crucible_worker.grading.math.evaluate_work import NotReal, NoValue, Trait
from crucible_worker.grading.math.exact import Undefined

__all__ = ["FUNCTIONS", "MAX_TERMS", "unknown"]

MAX_TERMS = 128
"""Terms of a written-out sum or product, and factors of a binomial."""

_MAX_FACTORIAL = 170  # above, the gamma function is faster than the product
_ONE = Fraction(1)
_HALF = Fraction(1, 2)
_Function: TypeAlias = Callable[[Balls, Ball], Ball]
_JUMPING = Trait.BRANCHES | Trait.JUMPS | Trait.COUNTS


def _quotient(over: _Function, under: _Function) -> _Function:
    return lambda at, of: at.divide(over(at, of), under(at, of))


def _reciprocal(function: _Function) -> _Function:
    return lambda at, of: at.integer_power(function(at, of), -1)


def _arcsine(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.BRANCHES
    return at.arcsine(of)


def _arccosine(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.BRANCHES
    return at.add([at.scale(at.constant("pi"), _HALF), at.scale(at.arcsine(of), -_ONE)])


def _arctangent(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.BRANCHES
    return at.arctangent(of)


def _arccotangent(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.BRANCHES
    sign = at.sign(of)
    if sign < 0:
        raise NotReal("the inverse cotangent of a negative number depends on the convention")
    quarter = at.scale(at.constant("pi"), _HALF)
    return quarter if sign == 0 else at.arctangent(at.integer_power(of, -1))


def _arcsecant(at: Balls, of: Ball) -> Ball:
    return _arccosine(at, at.integer_power(of, -1))


def _arccosecant(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.BRANCHES
    return at.arcsine(at.integer_power(of, -1))


def _hyperbolic_sine(at: Balls, of: Ball) -> Ball:
    power = at.exponential(of)
    return at.scale(at.add([power, at.scale(at.integer_power(power, -1), -_ONE)]), _HALF)


def _hyperbolic_cosine(at: Balls, of: Ball) -> Ball:
    power = at.exponential(of)
    return at.scale(at.add([power, at.integer_power(power, -1)]), _HALF)


def _natural_logarithm(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.BRANCHES
    return at.logarithm(of)


def _logarithm(at: Balls, of: Ball, base: Ball) -> Ball:
    at.traits |= Trait.BRANCHES
    return at.divide(at.logarithm(of), at.logarithm(base))


def _absolute(at: Balls, of: Ball) -> Ball:
    at.observe(of)
    return at.absolute(of)


def _floor(at: Balls, of: Ball) -> Ball:
    at.traits |= _JUMPING
    return at.number(Fraction(at.floor(of)))


def _ceil(at: Balls, of: Ball) -> Ball:
    at.traits |= _JUMPING
    return at.number(Fraction(-at.floor(at.scale(of, -_ONE))))


def _sign(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.BRANCHES | Trait.JUMPS
    return at.number(Fraction(at.sign(of)))


def _real_part(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.CONJUGATES
    return at.parts(of)[0]


def _imaginary_part(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.CONJUGATES
    return at.parts(of)[1]


def _conjugate(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.CONJUGATES
    real, imaginary = at.parts(of)
    if at.integer(imaginary) == 0:
        return real
    return at.add([real, at.scale(imaginary * at.constant("i"), -_ONE)])


def _argument(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.CONJUGATES
    if at.integer(at.parts(of)[1]) != 0:
        return at.phase(of)
    sign = at.sign(of)
    if sign == 0:
        raise Undefined("the argument of 0")
    return at.number(Fraction(0)) if sign > 0 else at.constant("pi")


def _factorial(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.COUNTS
    whole = at.integer(of)
    if whole is not None:
        if whole < 0:
            raise Undefined("factorial of a negative integer")
        if whole <= _MAX_FACTORIAL:
            return at.number(Fraction(math.factorial(whole)))
    return at.gamma(at.add([of, at.number(_ONE)]))


def _double_factorial(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.COUNTS
    whole = at.integer(of)
    if whole is None or whole < 0:
        raise NotReal("a double factorial of what is no natural number")
    if whole > _MAX_FACTORIAL:
        raise NoValue("a huge double factorial")
    return at.number(Fraction(math.prod(range(whole, 0, -2))))


def _binomial(at: Balls, of: Ball, chosen: Ball) -> Ball:
    at.traits |= Trait.COUNTS
    count = at.integer(chosen)
    if count is not None and count <= MAX_TERMS:
        if count < 0:
            return at.number(Fraction(0))
        result = at.number(Fraction(1, math.factorial(count)))
        for index in range(count):
            result = result * at.add([of, at.number(Fraction(-index))])
        return result
    rest = at.add([of, at.scale(chosen, -_ONE)])
    return at.divide(_factorial(at, of), _factorial(at, chosen) * _factorial(at, rest))


def _modulo(at: Balls, of: Ball, by: Ball) -> Ball:
    at.traits |= _JUMPING
    whole = at.floor(at.divide(of, by))
    return at.add([of, at.scale(by, Fraction(-whole))])


def _integers(at: Balls, balls: Sequence[Ball]) -> list[int]:
    at.traits |= _JUMPING
    numbers = [at.integer(ball) for ball in balls]
    if None in numbers:
        raise NotReal("a divisor of what is no integer")
    return [number for number in numbers if number is not None]


def _greatest_divisor(at: Balls, *balls: Ball) -> Ball:
    return at.number(Fraction(math.gcd(*_integers(at, balls))))


def _least_multiple(at: Balls, *balls: Ball) -> Ball:
    numbers = _integers(at, balls)
    at.work.charge(sum(number.bit_length() for number in numbers) // 64)
    return at.number(Fraction(math.lcm(*numbers)))


def _greatest(at: Balls, *balls: Ball) -> Ball:
    best = balls[0]
    for ball in balls[1:]:
        # The mean and half the distance: if two are too close to be distinguished, the ball contains both.
        lead = _real(at, at.add([best, at.scale(ball, -_ONE)]))
        at.observe(lead)
        best = at.scale(at.add([best, ball, at.absolute(lead)]), _HALF)
    return best


def _least(at: Balls, *balls: Ball) -> Ball:
    return at.scale(_greatest(at, *(at.scale(ball, -_ONE) for ball in balls)), -_ONE)


def _real(at: Balls, ball: Ball) -> Ball:
    real, imaginary = at.parts(ball)
    if at.integer(imaginary) != 0:
        raise NotReal("complex numbers have no order")
    return real


def unknown(at: Balls, name: str, balls: Sequence[Ball]) -> Ball:
    """A random value of an unknown function, always the same one for equal arguments."""
    text = "\0".join([name, *(at.digest(ball) for ball in balls)])
    lot = int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=6).digest())
    return at.number(_HALF + Fraction(lot, 1 << 48))


FUNCTIONS: Mapping[str, tuple[int | None, Callable[..., Ball]]] = {
    "sin": (1, Balls.sine),
    "cos": (1, Balls.cosine),
    "tan": (1, _quotient(Balls.sine, Balls.cosine)),
    "cot": (1, _quotient(Balls.cosine, Balls.sine)),
    "sec": (1, _reciprocal(Balls.cosine)),
    "csc": (1, _reciprocal(Balls.sine)),
    "arcsin": (1, _arcsine),
    "arccos": (1, _arccosine),
    "arctan": (1, _arctangent),
    "arccot": (1, _arccotangent),
    "arcsec": (1, _arcsecant),
    "arccsc": (1, _arccosecant),
    "sinh": (1, _hyperbolic_sine),
    "cosh": (1, _hyperbolic_cosine),
    "tanh": (1, _quotient(_hyperbolic_sine, _hyperbolic_cosine)),
    "coth": (1, _quotient(_hyperbolic_cosine, _hyperbolic_sine)),
    "sech": (1, _reciprocal(_hyperbolic_cosine)),
    "csch": (1, _reciprocal(_hyperbolic_sine)),
    "exp": (1, Balls.exponential),
    "ln": (1, _natural_logarithm),
    "log": (2, _logarithm),
    "abs": (1, _absolute),
    "floor": (1, _floor),
    "ceil": (1, _ceil),
    "sign": (1, _sign),
    "re": (1, _real_part),
    "im": (1, _imaginary_part),
    "conjugate": (1, _conjugate),
    "arg": (1, _argument),
    "factorial": (1, _factorial),
    "double factorial": (1, _double_factorial),
    "binomial": (2, _binomial),
    "ratio": (2, Balls.divide),
    "mod": (2, _modulo),
    "gcd": (None, _greatest_divisor),
    "lcm": (None, _least_multiple),
    "min": (None, _least),
    "max": (None, _greatest),
}
"""Functions of one value each: the number of arguments, None for any number, and the function."""
