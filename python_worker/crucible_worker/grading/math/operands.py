"""Operands that are not in brackets: numerals, symbols, fractions, roots, functions, sums, integrals, limits.

Letters with an index that is summed over are functions of it, or separate letters if there are few terms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction

from crucible_worker.grading.math import quantities
from crucible_worker.grading.math.expressions import UNKNOWN_FUNCTIONS, Expressions, GrammarRules, Names
from crucible_worker.grading.math.lexer import Cursor, TooLarge, Unreadable
from crucible_worker.grading.math.quantities import MAX_DIGITS, based
from crucible_worker.grading.math.tokens import NUMBER_SETS, spelled
from crucible_worker.grading.math.tree import (
    MINUS_ONE,
    ONE,
    Collection,
    Constant,
    FunctionCall,
    Node,
    Number,
    Power,
    Product,
    Quantity,
    Symbol,
    added,
    free_symbols,
    multiplied,
    negative,
    nodes_of,
    quotient,
    rebuilt,
    replaced,
)

__all__ = [
    "MAX_EXPANDED_NODES",
    "MAX_EXPANDED_TERMS",
    "MAX_EXPONENT",
    "Operands",
    "expanded",
    "number_of",
    "stems",
    "with_index",
]

# Letters with an index that is summed over.

MAX_EXPANDED_TERMS = 16
"""Terms of a sum or product over indexed letters that is written out."""
MAX_EXPANDED_NODES = 256
"""Nodes of a written-out sum or product: nested sums do not grow beyond it."""

_PLACE = "#"
_DIGITS = 10


def with_index(node: Node, variable: str) -> Node:
    """The summand, with x_i as a function of i if the sum is over i; a_ij as a function of both."""
    match node:
        case Symbol(name):
            return _indexed(name, (), variable) or node
        case FunctionCall(name, arguments) if _PLACE in name:
            return _indexed(name, arguments, variable) or node
        case _:
            return rebuilt(node, lambda part: with_index(part, variable))


def _indexed(name: str, arguments: tuple[Node, ...], variable: str) -> Node | None:
    stem, _, index = name.partition("_")
    if variable not in index:
        return None
    # Each position of the index has an argument, in order.
    known = iter(arguments)
    order: list[Node] = []
    for number, part in enumerate(index.split(variable)):
        if number:
            order.append(Symbol(variable))
        order.extend(next(known) for _ in range(part.count(_PLACE)))
    return FunctionCall(f"{stem}_{index.replace(variable, _PLACE)}", tuple(order))


def expanded(variable: str, low: Node, high: Node, body: Node) -> list[Node] | None:
    """The terms of a sum over indexed letters; None if there are none, too many, or their indices are computed."""
    match low, high:
        case Number(first), Number(last) if first.denominator == last.denominator == 1:
            count = int(last - first) + 1
        case _:
            return None
    if not 1 <= count <= MAX_EXPANDED_TERMS:
        return None
    parts = nodes_of(body)
    own = [part for part in parts if isinstance(part, FunctionCall) and _PLACE in part.function]
    own = [part for part in own if Symbol(variable) in part.arguments]
    if not own or len(parts) * count > MAX_EXPANDED_NODES or not all(map(_is_plain, own)):
        return None
    if (first < 0 or last >= _DIGITS) and any(len(part.arguments) > 1 for part in own):
        return None  # a_{1 10} or a_{11 0}
    return [_term(body, variable, Fraction(value)) for value in range(int(first), int(last) + 1)]


def _is_plain(call: FunctionCall) -> bool:
    """Whether an index consists of letters and digits: not x_{i+1}, which is computed, nor x_{2i}."""
    _, _, index = call.function.partition("_")
    before = index[: index.index(_PLACE)]
    return all(sign in (_PLACE, ",") or sign.isalnum() for sign in index) and not before[-1:].isdigit()


def _term(node: Node, variable: str, value: Fraction) -> Node:
    """A term at a value of the index, its letters spelled with it."""
    match node:
        case Symbol():
            return replaced(node, {variable: Number(value)})
        case FunctionCall(name, arguments) if _PLACE in name and Symbol(variable) in arguments:
            stem, _, index = name.partition("_")
            head, *tails = index.split(_PLACE)
            here = [argument == Symbol(variable) for argument in arguments]
            places = (str(value) if is_here else _PLACE for is_here in here)
            spelled = f"{stem}_{head}" + "".join(place + tail for place, tail in zip(places, tails))
            left = tuple(argument for argument, is_here in zip(arguments, here) if not is_here)
            return FunctionCall(spelled, left) if left else Symbol(spelled)
        case _:
            return rebuilt(node, lambda part: _term(part, variable, value))


def stems(node: Node) -> frozenset[str]:
    """The letters whose index is summed over: x of a sum of x_i."""
    calls = [part for part in nodes_of(node) if isinstance(part, FunctionCall) and _PLACE in part.function]
    return frozenset([call.function.partition("_")[0] for call in calls])


# Numerals: decimals, thousands, repeating decimals, scientific notation.

MAX_EXPONENT = 1_000
"""Powers of ten that are multiplied out; 1e5000 stays a product."""
_MAX_EXPONENT_DIGITS = 12
_SMALL_INTEGERS = {str(value): Number(Fraction(value)) for value in range(1_000)}
_PLAIN = re.compile(r"([0-9]*+)(?>(?:\.([0-9]*+))?)(?>(?:[eE]([+-]?[0-9]++))?)")
_REPEATING = re.compile(
    r"([0-9]*+)\.([0-9]*+)(?:\\(?:overline|bar) ?\{? ?([0-9]++)|\(([0-9]++)\)|((?:\\dot.*)))", re.DOTALL
)
_THOUSANDS = re.compile(r"[1-9][0-9]{0,2}\{,\}[0-9]{3}(?![0-9])")
_DIGIT = re.compile(r"[0-9]++")


def number_of(text: str) -> Node:
    """The value of a numeral of the tokenizer.

    Raises:
        TooLarge: it has more than `MAX_DIGITS` digits.
    """
    small = _SMALL_INTEGERS.get(text)
    if small is not None:
        return small
    if text.isdigit():
        digits = text.lstrip("0")
        if len(digits) > MAX_DIGITS:
            raise TooLarge(f"a number of more than {MAX_DIGITS:,} digits")
        return Number(Fraction(int(digits or "0")))
    if "\\" in text or "(" in text or text.endswith("."):
        if repeating := _REPEATING.match(text):
            whole, fixed, *blocks = repeating.groups(default="")
            if dotted := blocks[2]:
                return _dotted(whole, fixed, dotted)
            return _repeating(whole, fixed, blocks[0] or blocks[1])
        if text.endswith(("...", "dots")):
            return _truncated(text)
    if text.count("{,}") == 1 and not _THOUSANDS.match(text):
        text = text.replace("{,}", ".")  # a decimal comma
    if text.count(".") > 1:
        text = text.replace(".", "")  # between thousands
    digits = re.sub(r"[^0-9.eE+-]", "", text)
    match = _PLAIN.fullmatch(digits)
    if match is None:
        raise Unreadable("not a number")
    return _decimal(match[1], match[2], match[3])


def _decimal(whole: str, decimals: str | None, exponent: str | None) -> Node:
    behind = (decimals or "").rstrip("0")  # 5.000 is a decimal, of one digit
    written = (whole + behind).lstrip("0")
    if len(written) > MAX_DIGITS or len(behind) > MAX_DIGITS:
        raise TooLarge(f"a number of more than {MAX_DIGITS:,} digits")
    value = Fraction(int(written or "0"), 10 ** len(behind))
    number = Number(value, decimals is not None)
    if exponent is None:
        return number
    if len(exponent) > _MAX_EXPONENT_DIGITS:
        raise TooLarge(f"an exponent of more than {_MAX_EXPONENT_DIGITS} digits")
    power = int(exponent)
    if abs(power) > MAX_EXPONENT:
        return Product((number, Power(Number(Fraction(10)), Number(Fraction(power)))))
    return Number(value * Fraction(10) ** power, number.decimal or power < 0)


def _repeating(whole: str, fixed: str, block: str) -> Number:
    if len(whole) + len(fixed) + len(block) > MAX_DIGITS:
        raise TooLarge(f"a number of more than {MAX_DIGITS:,} digits")
    scale = 10 ** len(fixed)
    tail = Fraction(int(block), (10 ** len(block) - 1) * scale)
    return Number(Fraction(int(whole + fixed or "0"), scale) + tail)


def _dotted(whole: str, fixed: str, dotted: str) -> Number:
    r"""0.\dot{1}4285\dot{7}: from the first dot to the last one."""
    block = "".join(_DIGIT.findall(dotted))
    if dotted.count("\\dot") == 1 and len(block) > 1:
        raise Unreadable("digits after a repeating one")
    return _repeating(whole, fixed, block)


def _truncated(text: str) -> Number:
    """0.333...: what the last digits repeat; without a repetition, only the written digits."""
    whole, _, rest = text.partition(".")
    decimals = _DIGIT.match(rest)
    digits = decimals[0] if decimals else ""
    if len(whole) + len(digits) > MAX_DIGITS:
        raise TooLarge(f"a number of more than {MAX_DIGITS:,} digits")
    for size in range(1, min(len(digits) // 2, 12) + 1):
        times = 3 if size == 1 else 2
        if digits.endswith(digits[-size:] * times):
            return _repeating(whole, digits[:-size], digits[-size:])
    return Number(Fraction(int(whole + digits or "0"), 10 ** len(digits)), True)


# Operands.


_CONSTANTS = {"e": Constant("e"), "i": Constant("i")}
_NAMED = {"pi": Constant("pi"), "infinity": Constant("infinity")}
_TEN = Number(Fraction(10))
_ARGUMENT_GOES_ON = spelled("letter constant frac sqrt number upright")
_EXTREMES = {"max": "maximum", "min": "minimum"}
_DERIVED = frozenset({"vec", "hat", "tilde", "dot", "ddot"})  # marks of functions of time
_INVERSES = {name: "arc" + name for name in ("sin", "cos", "tan", "cot", "sec", "csc")}


class Operands:
    """Reads operands that are not in brackets."""

    __slots__ = ("_expressions", "_names", "_rules")

    def __init__(self, rules: GrammarRules, names: Names, expressions: Expressions) -> None:
        self._rules = rules
        self._names = names
        self._expressions = expressions

    def readers(self) -> Mapping[str, Callable[[Cursor], Node]]:
        """The reader of an operand, by the kind of its first token."""
        return {
            "number": self.number,
            "based": self.based,
            "letter": self.letter,
            "upright": self.letter,
            "name": self.name,
            "constant": self.constant,
            "dots": self.dots,
            "currency": self.money,
            "frac": self.fraction,
            "binom": self.binomial,
            "sqrt": self.root,
            "cbrt": self.root,
            "function": self.function,
            "series": self.series,
            "integral": self.integral,
            "limit": self.limit,
            "overline": self.overline,
            "mark": self.marked,
            "angle": self.marked,
            "mathbb": self.number_set,
        }

    def number(self, cursor: Cursor) -> Node:
        """A numeral."""
        cursor.at += 1
        return number_of(cursor.values[cursor.at - 1])

    def based(self, cursor: Cursor) -> Node:
        """A numeral and its base."""
        cursor.at += 1
        digits, _, base = cursor.values[cursor.at - 1].partition("_")
        return based(digits, int(base.strip("{} ")))

    def letter(self, cursor: Cursor) -> Node:
        """A symbol, e or i; before a bracket f, g and h are functions, before a single letter in brackets all are."""
        kinds = cursor.kinds
        value = cursor.values[cursor.at]
        cursor.at += 1
        if value == "m" and kinds[cursor.at] == "angle":  # the measure of an angle
            return self.marked(cursor)
        if value in _CONSTANTS and value not in cursor.bound:
            return _CONSTANTS[value]
        if value in UNKNOWN_FUNCTIONS and kinds[cursor.at] == "(":
            cursor.at += 1
            return self.called(cursor, value)
        if value == "Gamma" and kinds[cursor.at] == "(":
            cursor.at += 1
            return self._gamma(cursor)
        if kinds[cursor.at] == "(" and value not in cursor.bound and self._names.is_applied(cursor):
            cursor.at += 1
            return self.called(cursor, value)
        return Symbol(value)

    def name(self, cursor: Cursor) -> Node:
        """Two or more capitals."""
        cursor.at += 1
        return Symbol(cursor.values[cursor.at - 1])

    def constant(self, cursor: Cursor) -> Node:
        """A constant with its own command or name."""
        cursor.at += 1
        return _NAMED[cursor.values[cursor.at - 1]]

    def dots(self, cursor: Cursor) -> Node:
        """The dots in a list."""
        cursor.at += 1
        return Symbol("...")

    def money(self, cursor: Cursor) -> Node:
        """A currency before its value."""
        unit = cursor.values[cursor.at]
        cursor.at += 1
        cursor.enter()
        node = self._expressions.signed_factor(cursor)
        cursor.leave()
        if cursor.kinds[cursor.at] == "word" and (scaled := quantities.scaled(cursor, node)) is not None:
            node = scaled
        if isinstance(node, Quantity):
            return node if node.unit == unit else Quantity(node.value, f"{unit} {node.unit}")
        return Quantity(node, unit)

    def argument(self, cursor: Cursor) -> Node:
        """A group in braces, or one operand."""
        if cursor.kinds[cursor.at] != "{":
            cursor.steps += 1
            return self._rules.primary(cursor)
        node = self._rules.group(cursor)
        if isinstance(node, Collection) and node.kind == "set":
            cursor.fail("a set as an argument")
        return node

    def _digit_or_argument(self, cursor: Cursor) -> Node:
        r"""An argument of \frac and the like: of a bare numeral, one digit."""
        value = cursor.values[cursor.at]
        if cursor.kinds[cursor.at] == "number" and len(value) > 1 and value.isdigit():
            cursor.values[cursor.at] = value[1:]
            return Number(Fraction(int(value[0])))
        return self.argument(cursor)

    def fraction(self, cursor: Cursor) -> Node:
        """A fraction, or the derivative that is written as one."""
        cursor.at += 1
        cursor.enter()
        node = self._derivative(cursor)
        if node is None:
            numerator = self._digit_or_argument(cursor)
            node = quotient(numerator, self._digit_or_argument(cursor))
        cursor.leave()
        return node

    def _derivative(self, cursor: Cursor) -> Node | None:
        r"""\frac{d}{dx} of what follows, or \frac{dy}{dx}; the command is already read."""
        kinds, values, at = cursor.kinds, cursor.values, cursor.at
        if values[at : at + 2] not in (["{", "d"], ["{", "partial"]):
            return None
        named = kinds[at + 2] in ("letter", "upright")
        end = at + 2 + named
        if values[end : end + 2] != ["}", "{"] or values[end + 2] != values[at + 1] or kinds[end + 3] != "letter":
            return None
        if kinds[end + 4] != "}":
            return None
        variable = Symbol(values[end + 3])
        cursor.at = end + 5
        of = Symbol(values[at + 2]) if named else self._expressions.product(cursor)
        names = free_symbols(of)
        # For y in x it depends on y: it is a function of x, as the derivative would otherwise make no sense.
        return FunctionCall("derivative" if not names or variable.name in names else "slope", (variable, of))

    def binomial(self, cursor: Cursor) -> Node:
        """A binomial coefficient."""
        cursor.at += 1
        cursor.enter()
        top = self._digit_or_argument(cursor)
        node = FunctionCall("binomial", (top, self._digit_or_argument(cursor)))
        cursor.leave()
        return node

    def root(self, cursor: Cursor) -> Node:
        """A square root, or another with its index."""
        index: Node = Number(Fraction(3 if cursor.kinds[cursor.at] == "cbrt" else 2))
        cursor.at += 1
        cursor.enter()
        if cursor.kinds[cursor.at] == "[":
            cursor.at += 1
            index = self._expressions.sum(cursor)
            cursor.expect("]")
        radicand = self.argument(cursor)
        cursor.leave()
        if isinstance(index, Number):
            if not index.value:
                cursor.fail("a root of index 0")
            return Power(radicand, Number(1 / index.value))
        return Power(radicand, quotient(ONE, index))

    def function(self, cursor: Cursor) -> Node:
        r"""A known function, with or without brackets: `\sin x`, `\sin^2(x)`, `\log_2 8`."""
        name = cursor.values[cursor.at]
        cursor.at += 1
        if cursor.kinds[cursor.at] == "relation":
            return Symbol(name)  # "max = 3" labels a value
        cursor.enter()
        exponent = base = None
        while cursor.kinds[cursor.at] in "^_":
            kind = cursor.kinds[cursor.at]
            cursor.at += 1
            if kind == "^" and exponent is None:
                exponent = negative(self.argument(cursor)) if self._minus(cursor) else self.argument(cursor)
            elif kind == "_" and base is None:
                base = self.argument(cursor)
            else:
                cursor.fail()
        arguments = self._arguments(cursor)
        cursor.leave()
        if exponent == MINUS_ONE and name in _INVERSES:
            return FunctionCall(_INVERSES[name], arguments)
        node = self._applied(cursor, name, arguments, base)
        return node if exponent is None else Power(node, exponent)

    def _minus(self, cursor: Cursor) -> bool:
        if cursor.kinds[cursor.at] != "-":
            return False
        cursor.at += 1
        return True

    def _applied(self, cursor: Cursor, name: str, arguments: tuple[Node, ...], base: Node | None) -> Node:
        if name == "log" and len(arguments) == 1:
            return FunctionCall("log", (arguments[0], _TEN if base is None else base))
        if base is not None:
            cursor.fail("a subscript of a function without subscripts")
        if name == "lg":
            return FunctionCall("log", (*arguments, _TEN))
        if name in _EXTREMES and len(arguments) == 1 and free_symbols(arguments[0]):
            return FunctionCall(_EXTREMES[name], arguments)  # of a function or a set: its argument is not its value
        return FunctionCall(name, arguments)

    def _arguments(self, cursor: Cursor) -> tuple[Node, ...]:
        """The argument of a function: brackets, a group, or factors up to a sign, a bracket or the next function."""
        kinds = cursor.kinds
        kind = kinds[cursor.at]
        if kind in ("(", "[", "set{"):
            cursor.steps += 1
            node = self._rules.primary(cursor)
            return node.items if isinstance(node, Collection) else (node,)
        node = self._expressions.signed_factor(cursor)
        if kinds[cursor.at] not in _ARGUMENT_GOES_ON:
            return (node,)
        factors = [node]
        while kinds[cursor.at] in _ARGUMENT_GOES_ON and not self._expressions.is_differential(cursor):
            factors.append(self._expressions.factor(cursor))
        return (multiplied(factors),)

    def _gamma(self, cursor: Cursor) -> Node:
        r"""The gamma function of one number, a factorial: \Gamma(x) = (x - 1)!. With two it is another function."""
        call = self.called(cursor, "Gamma")
        if len(call.arguments) != 1:
            return call
        return FunctionCall("factorial", (added([*call.arguments, MINUS_ONE]),))

    def called(self, cursor: Cursor, name: str) -> FunctionCall:
        """An unknown function of the content of the bracket that was just read."""
        cursor.at -= 1
        node = self._rules.primary(cursor)
        return FunctionCall(name, node.items if isinstance(node, Collection) else (node,))

    def series(self, cursor: Cursor) -> Node:
        r"""A sum or a product over a range: `\sum_{n=1}^{10} n^2`."""
        name = cursor.values[cursor.at]
        cursor.at += 1
        cursor.enter()
        variable = low = high = None
        for _ in range(2):
            if cursor.kinds[cursor.at] == "_" and variable is None:
                cursor.at += 1
                cursor.expect("{")
                variable = self._variable(cursor)
                if cursor.values[cursor.at] != "=":
                    cursor.fail("= expected")
                cursor.at += 1
                low = self._expressions.sum(cursor)
                cursor.expect("}")
            elif cursor.kinds[cursor.at] == "^" and high is None:
                cursor.at += 1
                high = self.argument(cursor)
        if variable is None or low is None or high is None:
            cursor.fail("a series without bounds")
        body = with_index(self._binding(cursor, variable, self._expressions.product), variable)
        cursor.leave()
        terms = expanded(variable, low, high, body)
        if terms is not None:
            return added(terms) if name == "sum" else multiplied(terms)
        return FunctionCall(name, (Symbol(variable), low, high, body))

    def _variable(self, cursor: Cursor) -> str:
        if cursor.kinds[cursor.at] not in ("letter", "upright"):
            cursor.fail("a variable expected")
        cursor.at += 1
        return cursor.values[cursor.at - 1]

    def _binding(self, cursor: Cursor, variable: str, read: Callable[[Cursor], Node]) -> Node:
        """Read something while a variable is bound."""
        outer = cursor.bound
        cursor.bound = (*outer, variable)
        node = read(cursor)
        cursor.bound = outer
        return node

    def integral(self, cursor: Cursor) -> Node:
        """An integral, definite or not, up to its differential."""
        cursor.at += 1
        cursor.enter()
        bounds: dict[str, Node] = {}
        for _ in range(2):
            kind = cursor.kinds[cursor.at]
            if kind in "_^" and kind not in bounds:
                cursor.at += 1
                minus = self._minus(cursor)
                node = self._digit_or_argument(cursor)
                bounds[kind] = negative(node) if minus else node
        self._free_differential(cursor)
        variable = self._differential_ahead(cursor)
        body = (
            ONE
            if cursor.values[cursor.at] == "d" and cursor.values[cursor.at + 1] == variable
            else self._binding(cursor, variable, self._expressions.sum)
        )
        if cursor.values[cursor.at] != "d" or cursor.values[cursor.at + 1] != variable:
            cursor.fail("an integral without a differential")
        cursor.at += 2
        cursor.leave()
        if len(bounds) == 1:
            cursor.fail("an integral with one bound")
        limits = (bounds["_"], bounds["^"]) if bounds else ()
        return FunctionCall("integral", (Symbol(variable), *limits, body))

    def _free_differential(self, cursor: Cursor) -> None:
        r"""Move the differential of \frac{dx}{x} after the fraction, where it is expected: \frac{1}{x} dx."""
        kinds, values = cursor.kinds, cursor.values
        start = next((at for at in range(cursor.at, len(kinds)) if values[at] == "d" and kinds[at + 1] == "letter"), 0)
        if not start or kinds[start + 2 : start + 4] != ["}", "{"]:
            return
        opening = next((at for at in range(start - 1, cursor.at, -1) if kinds[at] in "{}"), 0)
        end, depth = start + 4, 1
        while depth and kinds[end] != "end":
            depth += (kinds[end] == "{") - (kinds[end] == "}")
            end += 1
        if depth or kinds[opening] != "{" or kinds[opening - 1] != "frac":
            return
        kinds[end:end], values[end:end] = kinds[start : start + 2], values[start : start + 2]
        one = start == opening + 1
        kinds[start : start + 2], values[start : start + 2] = ["number"] * one, ["1"] * one

    def _differential_ahead(self, cursor: Cursor) -> str:
        """The variable of the next differential outside of groups."""
        kinds, values = cursor.kinds, cursor.values
        depth = 0
        for at in range(cursor.at, len(kinds) - 1):
            depth += (kinds[at] == "{") - (kinds[at] == "}")
            if depth < 0:
                break
            if depth == 0 and values[at] == "d" and kinds[at + 1] in ("letter", "upright"):
                return values[at + 1]
        return cursor.fail("an integral without a differential")

    def limit(self, cursor: Cursor) -> Node:
        r"""A limit: `\lim_{x \to 0} f`."""
        cursor.at += 1
        cursor.enter()
        cursor.expect("_")
        cursor.expect("{")
        variable = self._variable(cursor)
        cursor.expect("arrow")
        side = self._side(cursor)
        to = self._sided(cursor) if side else self._expressions.sum(cursor)
        cursor.expect("}")
        body = self._binding(cursor, variable, self._expressions.product)
        cursor.leave()
        if side:
            near = Power(Symbol(variable), MINUS_ONE)
            body = replaced(body, {variable: added([to, near if side == "+" else negative(near)])})
            to = _NAMED["infinity"]
        return FunctionCall("limit", (Symbol(variable), to, body))

    def _side(self, cursor: Cursor) -> str:
        r"""From above, from below or neither: the sign after the limit point of a variable, in `x \to 0^+`."""
        kinds = cursor.kinds
        try:
            end = kinds.index("}", cursor.at)
        except ValueError:
            return ""
        before = kinds[end - 3 : end - 1]
        return kinds[end - 1] if kinds[end - 1] in ("+", "-") and ("^" in before[1:] or before == ["^", "{"]) else ""

    def _sided(self, cursor: Cursor) -> Node:
        """A one-sided limit: the limit at infinity, with the inverse of the variable added or subtracted."""
        minus = cursor.kinds[cursor.at] == "-"
        cursor.at += minus
        cursor.steps += 1
        to = self._rules.primary(cursor)
        cursor.expect("^")
        group = cursor.kinds[cursor.at] == "{"
        cursor.at += 1 + 2 * group
        return negative(to) if minus else to

    def overline(self, cursor: Cursor) -> Node:
        """A conjugate; over capitals, a segment."""
        cursor.at += 1
        cursor.enter()
        node = self.argument(cursor)
        cursor.leave()
        if isinstance(node, Symbol) and len(node.name) > 1 and node.name.isupper():
            return node
        return FunctionCall("conjugate", (node,))

    def marked(self, cursor: Cursor) -> Node:
        r"""A symbol with a mark, as a separate symbol: `\vec{v}`, `\angle ABC`, `\triangle ABC`."""
        mark = cursor.values[cursor.at]
        cursor.at += 1
        name = f"{mark} {self._names.argument_words(cursor)}"
        if mark in _DERIVED and self._names.is_applied(cursor):
            cursor.at += 1
            return self.called(cursor, name)
        return Symbol(name)

    def number_set(self, cursor: Cursor) -> Node:
        r"""A letter in blackboard bold; with a sign, the part of the set: `\mathbb{Z}^+`."""
        cursor.at += 1
        letter = self._names.argument_words(cursor)
        if not letter:
            cursor.fail("a set without its letter")
        name = NUMBER_SETS.get(letter, letter)
        kinds = cursor.kinds
        if kinds[cursor.at] == "^":
            group = kinds[cursor.at + 1] == "{"
            sign = kinds[cursor.at + 1 + group]
            if sign in "+-*" and (not group or kinds[cursor.at + 3] == "}"):
                cursor.at += 2 + 2 * group
                name += sign
        return Symbol(name)
