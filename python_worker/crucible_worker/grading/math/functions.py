r"""Operands that are not in brackets: numerals, symbols, fractions, roots, functions, sums, integrals, limits."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from crucible_worker.grading.math.assembly import MINUS_ONE, ONE, added, multiplied, negative, quotient
from crucible_worker.grading.math.expression import Expressions
from crucible_worker.grading.math.indices import expanded, with_index
from crucible_worker.grading.math.names import UNKNOWN_FUNCTIONS
from crucible_worker.grading.math.notation import NUMBER_SETS, spelled
from crucible_worker.grading.math.numerals import based, number_of
from crucible_worker.grading.math.tree import Call, Collection, Constant, Node, Number, Power, Quantity, Symbol
from crucible_worker.grading.math.walk import free_symbols, replaced

__all__ = ["Functions"]

_CONSTANTS = {"e": Constant("e"), "i": Constant("i")}
_NAMED = {"pi": Constant("pi"), "infinity": Constant("infinity")}
_TEN = Number(Fraction(10))
_ARGUMENT_GOES_ON = spelled("letter constant frac sqrt number upright")
_EXTREMES = {"max": "maximum", "min": "minimum"}
_DERIVED = frozenset({"vec", "hat", "tilde", "dot", "ddot"})  # marks of functions of time
_INVERSES = {name: "arc" + name for name in ("sin", "cos", "tan", "cot", "sec", "csc")}


class Functions(Expressions):
    """Reads operands that are not in brackets."""

    __slots__ = ()

    def number(self) -> Node:
        """A numeral."""
        self.at += 1
        return number_of(self.values[self.at - 1])

    def based(self) -> Node:
        """A numeral and its base."""
        self.at += 1
        digits, _, base = self.values[self.at - 1].partition("_")
        return based(digits, int(base.strip("{} ")))

    def letter(self) -> Node:
        """A symbol, e or i; before a bracket f, g and h are functions, before a lone letter in brackets all are."""
        kinds = self.kinds
        value = self.values[self.at]
        self.at += 1
        if value == "m" and kinds[self.at] == "angle":  # the measure of an angle
            return self.marked()
        if value in _CONSTANTS and value not in self.bound:
            return _CONSTANTS[value]
        if value in UNKNOWN_FUNCTIONS and kinds[self.at] == "(":
            self.at += 1
            return self.called(value)
        if value == "Gamma" and kinds[self.at] == "(":
            self.at += 1
            return self._gamma()
        if kinds[self.at] == "(" and value not in self.bound and self.is_applied():
            self.at += 1
            return self.called(value)
        return Symbol(value)

    def name(self) -> Node:
        """Two or more capitals."""
        self.at += 1
        return Symbol(self.values[self.at - 1])

    def constant(self) -> Node:
        """A constant with a command or a name of its own."""
        self.at += 1
        return _NAMED[self.values[self.at - 1]]

    def dots(self) -> Node:
        """What is left out of a list."""
        self.at += 1
        return Symbol("...")

    def money(self) -> Node:
        """A currency before its value."""
        unit = self.values[self.at]
        self.at += 1
        self.enter()
        node = self.signed_factor()
        self.leave()
        if self.kinds[self.at] == "word" and (scaled := self.scaled(node)) is not None:
            node = scaled
        if isinstance(node, Quantity):
            return node if node.unit == unit else Quantity(node.value, f"{unit} {node.unit}")
        return Quantity(node, unit)

    def argument(self) -> Node:
        """A group in braces, or one operand."""
        if self.kinds[self.at] != "{":
            self.steps += 1
            return self.primary()
        node = self.group()
        if isinstance(node, Collection) and node.kind == "set":
            self.fail("a set as an argument")
        return node

    def _digit_or_argument(self) -> Node:
        r"""An argument of \frac and its kin: of a bare numeral, one digit."""
        value = self.values[self.at]
        if self.kinds[self.at] == "number" and len(value) > 1 and value.isdigit():
            self.values[self.at] = value[1:]
            return Number(Fraction(int(value[0])))
        return self.argument()

    def fraction(self) -> Node:
        """A fraction, or the derivative that is written as one."""
        self.at += 1
        self.enter()
        node = self._derivative()
        if node is None:
            numerator = self._digit_or_argument()
            node = quotient(numerator, self._digit_or_argument())
        self.leave()
        return node

    def _derivative(self) -> Node | None:
        r"""\frac{d}{dx} of what follows, or \frac{dy}{dx}; the command was passed."""
        kinds, values, at = self.kinds, self.values, self.at
        if values[at : at + 2] not in (["{", "d"], ["{", "partial"]):
            return None
        named = kinds[at + 2] in ("letter", "upright")
        end = at + 2 + named
        if values[end : end + 2] != ["}", "{"] or values[end + 2] != values[at + 1] or kinds[end + 3] != "letter":
            return None
        if kinds[end + 4] != "}":
            return None
        variable = Symbol(values[end + 3])
        self.at = end + 5
        of = Symbol(values[at + 2]) if named else self.product()
        names = free_symbols(of)
        # Of y in x it depends on what y is: a function of x, or the derivative would not be asked for.
        return Call("derivative" if not names or variable.name in names else "slope", (variable, of))

    def binomial(self) -> Node:
        """A binomial coefficient."""
        self.at += 1
        self.enter()
        top = self._digit_or_argument()
        node = Call("binomial", (top, self._digit_or_argument()))
        self.leave()
        return node

    def root(self) -> Node:
        """A square root, or another with its index."""
        index: Node = Number(Fraction(3 if self.kinds[self.at] == "cbrt" else 2))
        self.at += 1
        self.enter()
        if self.kinds[self.at] == "[":
            self.at += 1
            index = self.sum()
            self.expect("]")
        radicand = self.argument()
        self.leave()
        if isinstance(index, Number):
            if not index.value:
                self.fail("a root of index 0")
            return Power(radicand, Number(1 / index.value))
        return Power(radicand, quotient(ONE, index))

    def function(self) -> Node:
        r"""A known function, with or without brackets: `\sin x`, `\sin^2(x)`, `\log_2 8`."""
        name = self.values[self.at]
        self.at += 1
        if self.kinds[self.at] == "relation":
            return Symbol(name)  # "max = 3" labels a value
        self.enter()
        exponent = base = None
        while self.kinds[self.at] in "^_":
            kind = self.kinds[self.at]
            self.at += 1
            if kind == "^" and exponent is None:
                exponent = negative(self.argument()) if self._minus() else self.argument()
            elif kind == "_" and base is None:
                base = self.argument()
            else:
                self.fail()
        arguments = self._arguments()
        self.leave()
        if exponent == MINUS_ONE and name in _INVERSES:
            return Call(_INVERSES[name], arguments)
        node = self._applied(name, arguments, base)
        return node if exponent is None else Power(node, exponent)

    def _minus(self) -> bool:
        if self.kinds[self.at] != "-":
            return False
        self.at += 1
        return True

    def _applied(self, name: str, arguments: tuple[Node, ...], base: Node | None) -> Node:
        if name == "log" and len(arguments) == 1:
            return Call("log", (arguments[0], _TEN if base is None else base))
        if base is not None:
            self.fail("a subscript of a function that has none")
        if name == "lg":
            return Call("log", (*arguments, _TEN))
        if name in _EXTREMES and len(arguments) == 1 and free_symbols(arguments[0]):
            return Call(_EXTREMES[name], arguments)  # of a function or a set: its argument is not its value
        return Call(name, arguments)

    def _arguments(self) -> tuple[Node, ...]:
        """What a function is of: brackets, a group, or factors up to a sign, a bracket or the next function."""
        kinds = self.kinds
        kind = kinds[self.at]
        if kind in ("(", "[", "set{"):
            self.steps += 1
            node = self.primary()
            return node.items if isinstance(node, Collection) else (node,)
        node = self.signed_factor()
        if kinds[self.at] not in _ARGUMENT_GOES_ON:
            return (node,)
        factors = [node]
        while kinds[self.at] in _ARGUMENT_GOES_ON and not self._is_differential():
            factors.append(self.factor())
        return (multiplied(factors),)

    def _gamma(self) -> Node:
        r"""The gamma function of one number, a factorial: \Gamma(x) = (x - 1)!. Of two it is another function."""
        call = self.called("Gamma")
        if len(call.arguments) != 1:
            return call
        return Call("factorial", (added([*call.arguments, MINUS_ONE]),))

    def called(self, name: str) -> Call:
        """A function that is not known, of what is in the bracket that was passed."""
        self.at -= 1
        node = self.primary()
        return Call(name, node.items if isinstance(node, Collection) else (node,))

    def series(self) -> Node:
        r"""A sum or a product over a range: `\sum_{n=1}^{10} n^2`."""
        name = self.values[self.at]
        self.at += 1
        self.enter()
        variable = low = high = None
        for _ in range(2):
            if self.kinds[self.at] == "_" and variable is None:
                self.at += 1
                self.expect("{")
                variable = self._variable()
                if self.values[self.at] != "=":
                    self.fail("= expected")
                self.at += 1
                low = self.sum()
                self.expect("}")
            elif self.kinds[self.at] == "^" and high is None:
                self.at += 1
                high = self.argument()
        if variable is None or low is None or high is None:
            self.fail("a series without bounds")
        body = with_index(self._binding(variable, self.product), variable)
        self.leave()
        terms = expanded(variable, low, high, body)
        if terms is not None:
            return added(terms) if name == "sum" else multiplied(terms)
        return Call(name, (Symbol(variable), low, high, body))

    def _variable(self) -> str:
        if self.kinds[self.at] not in ("letter", "upright"):
            self.fail("a variable expected")
        self.at += 1
        return self.values[self.at - 1]

    def _binding(self, variable: str, read: Callable[[], Node]) -> Node:
        """What is read while a variable is bound."""
        outer = self.bound
        self.bound = (*outer, variable)
        node = read()
        self.bound = outer
        return node

    def integral(self) -> Node:
        """An integral, definite or not, up to its differential."""
        self.at += 1
        self.enter()
        bounds: dict[str, Node] = {}
        for _ in range(2):
            kind = self.kinds[self.at]
            if kind in "_^" and kind not in bounds:
                self.at += 1
                minus = self._minus()
                node = self._digit_or_argument()
                bounds[kind] = negative(node) if minus else node
        self._free_differential()
        variable = self._differential_ahead()
        body = (
            ONE
            if self.values[self.at] == "d" and self.values[self.at + 1] == variable
            else self._binding(variable, self.sum)
        )
        if self.values[self.at] != "d" or self.values[self.at + 1] != variable:
            self.fail("an integral without a differential")
        self.at += 2
        self.leave()
        if len(bounds) == 1:
            self.fail("an integral with one bound")
        limits = (bounds["_"], bounds["^"]) if bounds else ()
        return Call("integral", (Symbol(variable), *limits, body))

    def _free_differential(self) -> None:
        r"""Put the differential of \frac{dx}{x} behind the fraction, where it is looked for: \frac{1}{x} dx."""
        kinds, values = self.kinds, self.values
        start = next((at for at in range(self.at, len(kinds)) if values[at] == "d" and kinds[at + 1] == "letter"), 0)
        if not start or kinds[start + 2 : start + 4] != ["}", "{"]:
            return
        opening = next((at for at in range(start - 1, self.at, -1) if kinds[at] in "{}"), 0)
        end, depth = start + 4, 1
        while depth and kinds[end] != "end":
            depth += (kinds[end] == "{") - (kinds[end] == "}")
            end += 1
        if depth or kinds[opening] != "{" or kinds[opening - 1] != "frac":
            return
        kinds[end:end], values[end:end] = kinds[start : start + 2], values[start : start + 2]
        one = start == opening + 1
        kinds[start : start + 2], values[start : start + 2] = ["number"] * one, ["1"] * one

    def _differential_ahead(self) -> str:
        """The variable of the next differential outside of groups."""
        kinds, values = self.kinds, self.values
        depth = 0
        for at in range(self.at, len(kinds) - 1):
            depth += (kinds[at] == "{") - (kinds[at] == "}")
            if depth < 0:
                break
            if depth == 0 and values[at] == "d" and kinds[at + 1] in ("letter", "upright"):
                return values[at + 1]
        return self.fail("an integral without a differential")

    def limit(self) -> Node:
        r"""A limit: `\lim_{x \to 0} f`."""
        self.at += 1
        self.enter()
        self.expect("_")
        self.expect("{")
        variable = self._variable()
        self.expect("arrow")
        side = self._side()
        to = self._sided() if side else self.sum()
        self.expect("}")
        body = self._binding(variable, self.product)
        self.leave()
        if side:
            near = Power(Symbol(variable), MINUS_ONE)
            body = replaced(body, {variable: added([to, near if side == "+" else negative(near)])})
            to = _NAMED["infinity"]
        return Call("limit", (Symbol(variable), to, body))

    def _side(self) -> str:
        r"""From above, from below or neither: the sign behind what a variable goes to, in `x \to 0^+`."""
        kinds = self.kinds
        try:
            end = kinds.index("}", self.at)
        except ValueError:
            return ""
        before = kinds[end - 3 : end - 1]
        return kinds[end - 1] if kinds[end - 1] in ("+", "-") and ("^" in before[1:] or before == ["^", "{"]) else ""

    def _sided(self) -> Node:
        """What a variable goes to from one side; the limit is that at infinity with the inverse added or taken away."""
        minus = self.kinds[self.at] == "-"
        self.at += minus
        self.steps += 1
        to = self.primary()
        self.expect("^")
        group = self.kinds[self.at] == "{"
        self.at += 1 + 2 * group
        return negative(to) if minus else to

    def overline(self) -> Node:
        """A conjugate; over capitals, a segment."""
        self.at += 1
        self.enter()
        node = self.argument()
        self.leave()
        if isinstance(node, Symbol) and len(node.name) > 1 and node.name.isupper():
            return node
        return Call("conjugate", (node,))

    def marked(self) -> Node:
        r"""A symbol with a mark, as a symbol of its own: `\vec{v}`, `\angle ABC`, `\triangle ABC`."""
        mark = self.values[self.at]
        self.at += 1
        name = f"{mark} {self.argument_words()}"
        if mark in _DERIVED and self.is_applied():
            self.at += 1
            return self.called(name)
        return Symbol(name)

    def number_set(self) -> Node:
        r"""A letter in blackboard bold; with a sign, the part of the set: `\mathbb{Z}^+`."""
        self.at += 1
        letter = self.argument_words()
        if not letter:
            self.fail("a set without its letter")
        name = NUMBER_SETS.get(letter, letter)
        kinds = self.kinds
        if kinds[self.at] == "^":
            group = kinds[self.at + 1] == "{"
            sign = kinds[self.at + 1 + group]
            if sign in "+-*" and (not group or kinds[self.at + 3] == "}"):
                self.at += 2 + 2 * group
                name += sign
        return Symbol(name)
