"""Trees as sympy's objects, only by its constructors: no foreign string ever reaches sympy.

Symbols are named by their number. They are real, or complex where something asks for a conjugate or a real part, and
natural numbers if only these make sense: in factorials, as the bound of a sum, as an exponent of a negative number.
Imported in children only, as it imports sympy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# Sympy uses FLINT if it is installed. Too large integers of Python raise MemoryError; FLINT's end the process.
os.environ["SYMPY_GROUND_TYPES"] = "python"

import sympy

from crucible_worker.grading.math.exact import Undefined, based_value, rational
from crucible_worker.grading.math.tree import (
    Based,
    Constant,
    FunctionCall,
    Node,
    Number,
    Power,
    Product,
    Quantity,
    Sum,
    Symbol,
    walk,
)

__all__ = ["FINE_BITS", "MAX_EXPONENT", "MAX_FACTORIAL", "MAX_NODES", "NUMBER_BITS", "Form", "Unsupported"]

MAX_NODES = 400
"""Nodes of both trees together."""
NUMBER_BITS = 2_048
"""Bits of a numerator or denominator."""
FINE_BITS = 64
"""Digits of a number that may matter beyond the compared digits."""
MAX_EXPONENT = 1_000
"""Integer exponents that are written out; a larger one is refused."""
MAX_FACTORIAL = 500
"""Largest argument of a factorial or binomial, if it is known."""

_COUNTING = frozenset({"factorial", "double factorial", "binomial", "gcd", "lcm"})
_COMPLEX = frozenset({"conjugate", "re", "im", "arg"})
_CALCULUS = frozenset({"sum", "product", "integral", "limit", "derivative"})

sym: Any = sympy  # its constructors are not annotated


class Unsupported(Exception):
    """Sympy is not used for this."""


class Form:
    """Both sides of one question, with symbols in common."""

    __slots__ = (
        "_bound",
        "_complex",
        "_functions",
        "_integrates",
        "_natural",
        "_symbols",
        "calculus",
        "fine",
        "integrals",
    )

    def __init__(self, *trees: Node, integrates: bool = True) -> None:
        """Find out the uses of symbols.

        Args:
            trees: The trees to convert.
            integrates: Find integrals in closed form; otherwise they stay unevaluated, for numbers.

        Raises:
            Unsupported: there are more than `MAX_NODES`.
        """
        nodes = [node for tree in trees for node in walk(tree)]
        if len(nodes) > MAX_NODES:
            raise Unsupported("too large")
        calls = [node for node in nodes if isinstance(node, FunctionCall)]
        self.calculus = any(map(_is_calculus, calls))
        """Whether there are infinite sums, integrals, limits or derivatives."""
        self.integrals = any(call.function == "integral" for call in calls)
        """Whether there are integrals."""
        self.fine = any(_is_fine(node) for node in nodes)
        """Whether there are rational numbers so long that numbers may agree because they ignore digits."""
        self._integrates = integrates
        self._complex = any(call.function in _COMPLEX for call in calls)
        self._natural = {name for node in nodes for name in _natural_symbols(node)}
        self._symbols: dict[str, Any] = {}
        self._functions: dict[str, Any] = {}
        self._bound: dict[str, Any] = {}

    def of(self, node: Node) -> Any:
        """A tree as an object of sympy.

        Raises:
            Unsupported: it is not arithmetic, or obviously too large.
            Undefined: it has no value.
        """
        match node:
            case Number():
                return _number(node.value.numerator, node.value.denominator)
            case Constant():
                return _CONSTANTS[node.name]
            case Symbol():
                return self._symbol(node.name)
            case Sum():
                return sym.Add(*map(self.of, node.terms))
            case Product():
                return sym.Mul(*map(self.of, node.factors))
            case Power():
                return self._power(node)
            case FunctionCall():
                return self._call(node)
            case Based():
                value = based_value(node)
                return _number(value.numerator, value.denominator)
            case Quantity(unit="percent"):
                return sym.Mul(self.of(node.value), sym.Rational(1, 100))
            case Quantity(unit="degree"):
                return sym.Mul(self.of(node.value), sym.Rational(1, 180), sym.pi)
            case _:
                raise Unsupported("no arithmetic")

    def _symbol(self, name: str) -> Any:
        bound = self._bound.get(name)
        if bound is not None:
            return bound
        if name not in self._symbols:
            self._symbols[name] = self._fresh(natural=name in self._natural)
        return self._symbols[name]

    def _fresh(self, *, natural: bool) -> Any:
        name = f"v{len(self._symbols)}"
        if natural:
            return sym.Symbol(name, integer=True, nonnegative=True)
        return sym.Symbol(name) if self._complex else sym.Symbol(name, real=True)

    def _power(self, node: Power) -> Any:
        exponent = rational(node.exponent)
        base = self.of(node.base)
        if exponent is None:
            return sym.Pow(base, self.of(node.exponent))
        if abs(exponent.numerator) > MAX_EXPONENT or exponent.denominator > MAX_EXPONENT:
            raise Unsupported("a huge exponent")
        power = _number(exponent.numerator, exponent.denominator)
        if (
            exponent.denominator % 2 == 0
            or exponent.denominator == 1
            or base.is_nonnegative
            or not base.is_extended_real
        ):
            return sym.Pow(base, power)
        # Sympy's odd root of a negative number is complex, ours is the real one.
        turned = sym.sign(base) if exponent.numerator % 2 else sym.Integer(1)
        return sym.Mul(turned, sym.Pow(sym.Abs(base), power))

    def _call(self, node: FunctionCall) -> Any:
        if node.function in _CALCULUS:
            return self._calculus(node.function, node.arguments)
        if node.function in _COUNTING:
            sizes = [rational(argument) for argument in node.arguments]
            if any(size is not None and abs(size) > MAX_FACTORIAL for size in sizes):
                raise Unsupported("a huge factorial")
        arguments = [self.of(argument) for argument in node.arguments]
        arity, function = _FUNCTIONS.get(node.function, (None, None))
        if function is not None:
            if arity is not None and arity != len(arguments):
                raise Unsupported("the wrong number of arguments")
            return function(*arguments)
        if node.function not in self._functions:
            self._functions[node.function] = sym.Function(f"f{len(self._functions)}")
        return self._functions[node.function](*arguments)

    def _calculus(self, function: str, arguments: Sequence[Node]) -> Any:
        variable, *bounds, of = arguments
        if not isinstance(variable, Symbol) or len(bounds) != _BOUNDS[function]:
            raise Unsupported("calculus without its bounds")
        limits = [self.of(bound) for bound in bounds]
        if function == "derivative":
            return sym.diff(self.of(of), self._symbol(variable.name))
        shadowed = self._bound.get(variable.name)
        inner = sym.Dummy("b", integer=True) if function in ("sum", "product") else sym.Dummy("b", real=True)
        self._bound[variable.name] = inner
        try:
            body = self.of(of)
        finally:
            if shadowed is None:
                del self._bound[variable.name]
            else:
                self._bound[variable.name] = shadowed
        match function:
            case "sum":
                return sym.summation(body, (inner, *limits))
            case "product":
                return sym.product(body, (inner, *limits))
            case "integral":
                return (sym.integrate if self._integrates else sym.Integral)(body, (inner, *limits))
            case _:
                (at,) = limits
                return sym.limit(body, inner, at) if at.is_infinite else sym.limit(body, inner, at, "+-")


def _number(numerator: int, denominator: int) -> Any:
    if max(numerator.bit_length(), denominator.bit_length()) > NUMBER_BITS:
        raise Unsupported("a huge number")
    return sym.Rational(numerator, denominator)


def _is_calculus(call: FunctionCall) -> bool:
    """Whether this is computed by calculus: a sum of a known number of terms is not, and is exact."""
    if call.function in ("sum", "product"):
        return Constant("infinity") in (part for bound in call.arguments[1:3] for part in walk(bound))
    return call.function in _CALCULUS


def _is_fine(node: Node) -> bool:
    try:
        value = rational(node) if isinstance(node, Number | Power) else None
    except Undefined:
        return False
    return value is not None and max(value.numerator.bit_length(), value.denominator.bit_length()) > FINE_BITS


def _natural_symbols(node: Node) -> set[str]:
    match node:
        case Power(base, exponent):
            value = rational(base) if isinstance(base, Number | Product) else None
            where = (exponent,) if value is not None and value < 0 else ()
        case FunctionCall(function, arguments) if function in _COUNTING:
            where = arguments
        case FunctionCall("sum" | "product", (_, start, stop, _)):
            where = (start, stop)
        case _:
            where = ()
    return {part.name for tree in where for part in walk(tree) if isinstance(part, Symbol)}


def _of_integers(function: Callable[[int, int], int]) -> Callable[..., Any]:
    """Of numbers only: sympy's gcd of symbols is that of polynomials."""

    def apply(*arguments: Any) -> Any:
        if not arguments or not all(argument.is_Integer for argument in arguments):
            raise Unsupported("a divisor of what is no integer")
        result = int(arguments[0])
        for argument in arguments[1:]:
            result = function(result, int(argument))
        return sym.Integer(result)

    return apply


def _modulo(of: Any, by: Any) -> Any:
    return sym.Mod(of, by)


def _logarithm(of: Any, base: Any) -> Any:
    return sym.Mul(sym.log(of), sym.Pow(sym.log(base), -1))


def _ratio(over: Any, under: Any) -> Any:
    return sym.Mul(over, sym.Pow(under, -1))


_BOUNDS = {"sum": 2, "product": 2, "integral": 2, "limit": 1, "derivative": 0}
_CONSTANTS: Mapping[str, Any] = {"pi": sym.pi, "e": sym.E, "i": sym.I, "infinity": sym.oo}
_FUNCTIONS: Mapping[str, tuple[int | None, Callable[..., Any]]] = {
    **{name: (1, getattr(sym, name)) for name in ("sin", "cos", "tan", "cot", "sec", "csc")},
    **{f"arc{name}": (1, getattr(sym, f"a{name}")) for name in ("sin", "cos", "tan", "cot", "sec", "csc")},
    **{name: (1, getattr(sym, name)) for name in ("sinh", "cosh", "tanh", "coth", "sech", "csch", "exp")},
    **{name: (1, getattr(sym, name)) for name in ("floor", "sign", "re", "im", "conjugate", "arg", "factorial")},
    "ln": (1, sym.log),
    "log": (2, _logarithm),
    "abs": (1, sym.Abs),
    "ceil": (1, sym.ceiling),
    "double factorial": (1, sym.factorial2),
    "binomial": (2, sym.binomial),
    "mod": (2, _modulo),
    "ratio": (2, _ratio),
    "min": (None, sym.Min),
    "max": (None, sym.Max),
    "gcd": (None, _of_integers(lambda left, right: int(sym.igcd(left, right)))),
    "lcm": (None, _of_integers(lambda left, right: int(sym.ilcm(left, right)))),
}
