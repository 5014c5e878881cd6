"""Arithmetic: sums of products of powers, suffixes of operands, and names with their indices and primes.

From loose to tight: sums; products and quotients from left to right, written or not (`1/2x` is half of x); signs;
powers, factorials, subscripts, percent and degree signs.
"""

from __future__ import annotations

from collections.abc import Callable

from crucible_worker.grading.math import quantities
from crucible_worker.grading.math.lexer import Cursor
from crucible_worker.grading.math.quantities import based, number_of_words
from crucible_worker.grading.math.tokens import NUMBER_SETS, spelled
from crucible_worker.grading.math.tree import (
    MINUS_ONE,
    ZERO,
    Based,
    Collection,
    Constant,
    FunctionCall,
    Interval,
    Node,
    Number,
    PlusMinus,
    Power,
    Product,
    Quantity,
    Relation,
    SetOperation,
    Sum,
    Symbol,
    added,
    as_set,
    is_membership,
    is_proper,
    multiplied,
    negative,
    quotient,
    spread_unit,
    with_unit_outside,
)

__all__ = ["MAX_POSTFIXES", "UNKNOWN_FUNCTIONS", "Expressions", "GrammarRules", "Names"]


class GrammarRules:
    """Rules that parts of the grammar need from higher parts: `grammar` sets them."""

    __slots__ = ("argument", "called", "group", "items", "primary", "statement")

    argument: Callable[[Cursor], Node]
    """A group in braces, or the single token that a command takes without braces."""
    called: Callable[[Cursor, str], FunctionCall]
    """An unknown function of the content of the bracket that was just read."""
    group: Callable[[Cursor], Node]
    """A group in braces."""
    items: Callable[[Cursor], tuple[list[Node], list[str]]]
    """Statements with separators between them, and the separators."""
    primary: Callable[[Cursor], Node]
    """An operand without its suffixes."""
    statement: Callable[[Cursor], Node]
    """Sums with relations, set operations or ratios between them."""


# Names of symbols: indices and primes, and other uses of these signs: bases, minutes, `C_n^k`, calls.

UNKNOWN_FUNCTIONS = frozenset("fghFGH")
"""Symbols that are functions if a bracket follows."""

_STAR = "^*"
_LETTER_BASES = frozenset(map(str, range(11, 37)))


class Names:
    """Reads indices and primes."""

    __slots__ = ("_rules",)

    def __init__(self, rules: GrammarRules) -> None:
        self._rules = rules

    def primed(self, cursor: Cursor, node: Node, marks: str) -> Node:
        """A symbol with a prime, a function with one, or minutes and seconds of an angle; the sign is already read."""
        if isinstance(node, Symbol):
            if cursor.kinds[cursor.at] == "(" and (node.name in UNKNOWN_FUNCTIONS or self.is_applied(cursor)):
                cursor.at += 1
                return self._rules.called(cursor, node.name + marks)
            return Symbol(node.name + marks)
        return Quantity(node, "arcsecond" if marks == "''" else "arcminute")

    def subscript(self, cursor: Cursor, node: Node) -> Node:
        """The base of a numeral, or a part of a symbol's name."""
        kinds = cursor.kinds
        if isinstance(node, Number | Based):
            base = self.argument_words(cursor).strip("()")
            found = number_of_words(base.split()) if base.isalpha() else None
            size = int(found.value) if found is not None else int(base) if base.isdecimal() and len(base) < 3 else 0
            digits = node.digits if isinstance(node, Based) else str(node.value)
            return based(digits, size)
        if not isinstance(node, Symbol):
            if not isinstance(node, Constant):
                cursor.fail("a subscript of something that is not a symbol")
            node = Symbol(node.name)
        start = cursor.at
        words = self.argument_words(cursor)
        if node.name == "C" and kinds[cursor.at] == "^" and (chosen := self._combinations(cursor, start)) is not None:
            return chosen
        if len(node.name) > 1 and node.name.isupper() and words in _LETTER_BASES:
            return based(node.name, int(words))
        star = _STAR if node.name.endswith(_STAR) else ""
        name = f"{node.name.removesuffix(_STAR)}_{words}{star}"
        if kinds[cursor.at] == "(" and (node.name[0] in UNKNOWN_FUNCTIONS or self.is_applied(cursor)):
            cursor.at += 1
            return self._rules.called(cursor, name)
        return Symbol(name)

    def is_applied(self, cursor: Cursor) -> bool:
        """Whether a single letter or numeral in brackets follows: V(t) and y(0) are values, not products."""
        kinds = cursor.kinds
        return kinds[cursor.at] == "(" and kinds[cursor.at + 1] in ("letter", "number") and kinds[cursor.at + 2] == ")"

    def starred(self, cursor: Cursor, node: Symbol) -> Symbol | None:
        """A symbol with a star, which is a part of its name; the `^` is already read. None if no star follows."""
        group = cursor.kinds[cursor.at] == "{"
        if cursor.kinds[cursor.at + group] != "*" or (group and cursor.kinds[cursor.at + 2] != "}"):
            return None
        cursor.at += 1 + 2 * group
        return Symbol(node.name + _STAR)

    def indexed(self, cursor: Cursor, node: Power) -> Node:
        """A power whose index follows its exponent, `v^2_0`: the index is that of the base."""
        if not isinstance(node.base, Symbol):
            cursor.fail("an index of something that is not a symbol")
        if node.base.name == "C":
            start = cursor.at
            cursor.enter()
            of = self._rules.argument(cursor)
            cursor.leave()
            if not _is_larger(node.exponent, of):
                return FunctionCall("binomial", (of, node.exponent))
            cursor.at = start
        return Power(self.subscript(cursor, node.base), node.exponent)

    def _combinations(self, cursor: Cursor, start: int) -> Node | None:
        """`C_n^k`, the binomial coefficient; its subscript, already read as a name, is read again as a value.

        None if k is above n: C_1^2 is the square of a constant.
        """
        end, cursor.at = cursor.at, start
        cursor.enter()
        of = self._rules.argument(cursor)
        cursor.expect("^")
        chosen = self._rules.argument(cursor)
        cursor.leave()
        if _is_larger(chosen, of):
            cursor.at = end
            return None
        return FunctionCall("binomial", (of, chosen))

    def argument_words(self, cursor: Cursor) -> str:
        """The spelling of a group or a token, for the name of a symbol."""
        kinds, values = cursor.kinds, cursor.values
        if kinds[cursor.at] != "{":
            if kinds[cursor.at] == "end":
                cursor.fail()
            cursor.at += 1
            return values[cursor.at - 1]
        start = cursor.at + 1
        open_groups = 0
        while True:
            kind = kinds[cursor.at]
            if kind == "{":
                open_groups += 1
            elif kind == "}":
                open_groups -= 1
            elif kind == "end":
                cursor.fail("} expected")
            cursor.at += 1
            if not open_groups:
                return "".join(values[at] for at in range(start, cursor.at - 1) if kinds[at] not in "{}")


def _is_larger(node: Node, other: Node) -> bool:
    return isinstance(node, Number) and isinstance(other, Number) and node.value > other.value


# Arithmetic.


MAX_POSTFIXES = 8
"""Signs after one operand: `5!!`, `x'^2`."""

_STARTS = spelled(
    "number based letter upright name constant function ( [ { set{ frac binom sqrt cbrt overline mark mathbb begin "
    "series integral limit box{ floor( ceil( angle( angle emptyset currency dots"
)
_POSTFIX = spelled("^ ! _ ' % degree")
_UNIT_STARTS = frozenset(("word", "upright", "name", "currency", "frac"))
_ENDS = frozenset({"end", "setop", "relation", ",", ")", "}", "and"})
_AMOUNTS = frozenset({"number", "currency"})
_PERCENT = "percent"
_ARROWS = ("vec ", "overrightarrow ", "hat ", "widehat ")


def _is_share(cursor: Cursor, share: Node) -> bool:
    """Whether "of" is a sign: between a percentage or a fraction of numbers and an amount, `25% of $200`."""
    if cursor.values[cursor.at] != "of" or cursor.kinds[cursor.at + 1] not in _AMOUNTS:
        return False
    match share:
        case Quantity(_, unit):
            return unit == _PERCENT
        case Power(Number(), exponent) | Product((Number(), Power(Number(), exponent))):
            return exponent == MINUS_ONE
        case _:
            return False


class Expressions:
    """Reads sums, products and powers."""

    __slots__ = ("_names", "_rules")

    def __init__(self, rules: GrammarRules, names: Names) -> None:
        self._rules = rules
        self._names = names

    def sum(self, cursor: Cursor) -> Node:
        """Terms with signs between them."""
        kinds = cursor.kinds
        kind = kinds[cursor.at]
        if kind == "plusminus":
            left: Node = self._plus_minus(cursor, ZERO)
        elif kind == "-" or kind == "+":
            numeral = kinds[cursor.at + 1] == "number"
            left = self._signed(cursor)
            if numeral:
                left = _with_sign_inside(left)
        else:
            left = self.product(cursor)
        kind = kinds[cursor.at]
        if kind != "+" and kind != "-" and kind != "plusminus":
            return left
        terms: list[Node] = [left]
        while True:
            if kind == "+":
                cursor.at += 1
                terms.append(self._signed(cursor) if kinds[cursor.at] in "+-" else self.product(cursor))
            elif kind == "-":
                if self._is_set(cursor, terms[-1]):
                    terms[-1] = self._difference(cursor, terms[-1])
                else:
                    terms.append(self._signed(cursor))
            elif kind == "plusminus":
                terms = [self._plus_minus(cursor, added(terms))]
            else:
                return spread_unit(terms)
            kind = kinds[cursor.at]

    def _plus_minus(self, cursor: Cursor, left: Node) -> PlusMinus:
        r"""The term after \pm; after \mp its opposite, as the upper signs of both belong together."""
        opposite = cursor.values[cursor.at] == "-"
        cursor.at += 1
        right = self.product(cursor)
        return PlusMinus(left, negative(right) if opposite else right)

    def _is_set(self, cursor: Cursor, node: Node) -> bool:
        """Whether minus after a node means a difference of sets: (1, 2) - {3} does, (1, 2) - (3, 4) does not."""
        if isinstance(node, Interval | SetOperation) or (isinstance(node, Collection) and node.kind == "set"):
            return True
        if isinstance(node, Symbol) and node.name in NUMBER_SETS.values():
            return True
        in_braces = cursor.kinds[cursor.at + 1] in ("set{", "{")
        return in_braces and (isinstance(node, Collection) or (isinstance(node, Symbol) and node.name in NUMBER_SETS))

    def _difference(self, cursor: Cursor, node: Node) -> Node:
        """A set without another, or without the single element in braces."""
        cursor.at += 1
        right = self.product(cursor)
        if isinstance(right, Number):
            right = Collection("set", (right,))
        return SetOperation("difference", (as_set(node), as_set(right)))

    def _signed(self, cursor: Cursor) -> Node:
        """A product after one or more signs."""
        kinds = cursor.kinds
        minus = False
        while kinds[cursor.at] in "+-":
            minus ^= kinds[cursor.at] == "-"
            cursor.at += 1
        if kinds[cursor.at] == "plusminus":
            cursor.fail()
        node = self.product(cursor)
        return negative(node) if minus else node

    def product(self, cursor: Cursor) -> Node:
        """Factors multiplied and divided, written or not."""
        kinds = cursor.kinds
        start = cursor.at
        left = self.factor(cursor)
        kind = kinds[cursor.at]
        if kind not in _CONTINUES and (kind != "|" or cursor.bar != "opens"):
            return left
        factors: list[Node] = [left]
        while True:
            bare = kinds[start] == "number" and cursor.at == start + 1
            start = cursor.at
            if kind == "*":
                cursor.at = start = start + 1
                self._times(cursor, factors)
            elif kind == "/":
                cursor.at = start = start + 1
                factors.append(Power(self.signed_factor(cursor), MINUS_ONE))
            elif kind == "mod":
                cursor.at += 1
                factors = [FunctionCall("mod", (multiplied(factors), self.signed_factor(cursor)))]
            elif kind == "circ":
                cursor.at += 1
                factors = [self._composed(cursor, multiplied(factors))]
            elif kind == "word" and _is_share(cursor, factors[-1]):
                cursor.at += 1
                factors.append(self.factor(cursor))
            elif kind in _UNIT_STARTS and self._measure(cursor, factors):
                pass
            elif kind == "number":
                if bare and not self._mixed(cursor, factors):
                    break
                if not bare:
                    self._number_follows(cursor, factors)
            elif (kind not in _STARTS and (kind != "|" or cursor.bar != "opens")) or self._is_end(cursor, kind):
                break
            elif (bare or isinstance(factors[-1], Quantity)) and self._is_times_sign(cursor):
                cursor.at += 1
                factors.append(self.factor(cursor))
            elif cursor.bound and self.is_differential(cursor):
                break
            else:
                self._juxtapose(cursor, factors, bare, kind)
            kind = kinds[cursor.at]
        return with_unit_outside(factors)

    def _times(self, cursor: Cursor, factors: list[Node]) -> None:
        r"""A factor after a sign; `A \times B` of capitals or arrows is a product of sets or vectors, in this order."""
        at = cursor.at
        bold = cursor.kinds[at - 2] == cursor.kinds[at] == "upright"
        cross = cursor.values[at - 1] == "times" and (bold or _has_order(factors[-1]))
        right = self.signed_factor(cursor)
        if cross and (bold or _has_order(right)):
            factors[-1] = FunctionCall("cross", (factors[-1], right))
        else:
            factors.append(right)

    def _composed(self, cursor: Cursor, left: Node) -> Node:
        r"""A composition, `f \circ g`; degrees, if nothing follows."""
        if cursor.kinds[cursor.at] not in _STARTS:
            return quantities.degrees(cursor, left)
        return FunctionCall("compose", (left, self.factor(cursor)))

    def _measure(self, cursor: Cursor, factors: list[Node]) -> bool:
        """Give the product its unit, or the last factor if another factor has one; False if no unit follows."""
        if not quantities.may_be_unit(cursor):  # before the factors are examined, as there may be many
            return False
        operated = quantities.operated(cursor, factors[-1])
        if operated is not None:
            factors[-1] = operated
            return True
        if len(factors) > 1 and any(isinstance(factor, Quantity) for factor in factors[:-1]):
            node = quantities.unit_of(cursor, factors[-1])
            if node is not None:
                factors[-1] = node
        else:
            node = quantities.unit_of(cursor, multiplied(factors))
            if node is not None:
                factors[:] = [node]
        return node is not None

    def _juxtapose(self, cursor: Cursor, factors: list[Node], bare: bool, kind: str) -> None:
        """A factor without a sign: a product, a mixed number, or a function of what is in brackets."""
        if kind == "(" and cursor.kinds[cursor.at + 1] == "word":
            cursor.at += 1
            if cursor.values[cursor.at] != "base" or (node := quantities.unit_of(cursor, multiplied(factors))) is None:
                cursor.fail("words in brackets")
            cursor.expect(")")
            factors[:] = [node]
            return
        right = self.factor(cursor)
        last = factors[-1]
        if kind == "(" and is_membership(right):
            return  # (k \in \mathbb{Z}) only defines the variable
        value = right.value if isinstance(right, Quantity) else right
        if bare and kind == "frac" and is_proper(value) and isinstance(last, Number) and not last.decimal:
            mixed = added([last, value])
            factors[-1] = Quantity(mixed, right.unit) if isinstance(right, Quantity) else mixed
        elif kind == "(" and isinstance(last, Symbol) and isinstance(right, Collection | Relation):
            factors[-1] = FunctionCall(last.name, right.items if isinstance(right, Collection) else (right,))
        else:
            factors.append(right)

    def _mixed(self, cursor: Cursor, factors: list[Node]) -> bool:
        """Add `1/2` to the 1 before it, `1 1/2`; two adjacent numerals have no other meaning."""
        kinds, at = cursor.kinds, cursor.at
        if kinds[at + 1] != "/" or kinds[at + 2] != "number" or not isinstance(factors[-1], Number):
            return False
        numerator = self.factor(cursor)
        cursor.at += 1
        denominator = self.factor(cursor)
        value = denominator.value if isinstance(denominator, Quantity) else denominator
        mixed = added([factors[-1], quotient(numerator, value)])
        factors[-1] = Quantity(mixed, denominator.unit) if isinstance(denominator, Quantity) else mixed
        return True

    def _number_follows(self, cursor: Cursor, factors: list[Node]) -> None:
        """A numeral after a factor that is not one: `2^6 3^5` is a product, `5 feet 3 inches` a sum."""
        if not isinstance(factors[-1], Quantity):
            factors.append(self.factor(cursor))
            return
        terms = [multiplied(factors)]
        while cursor.kinds[cursor.at] == "number":
            following = (
                quantities.unit_of(cursor, self.factor(cursor))
                if cursor.kinds[cursor.at + 1] == "word"
                else self.factor(cursor)
            )
            if not isinstance(following, Quantity):
                cursor.fail()
            terms.append(following)
        factors[:] = [added(terms)]

    def _is_end(self, cursor: Cursor, kind: str) -> bool:
        """Whether a bracket ends a product: the one of `[0, 1[`, and of `3 (mod 5)`."""
        following = cursor.kinds[cursor.at + 1]
        return (kind == "(" and following == "mod") or (kind == "[" and following in _ENDS)

    def _is_times_sign(self, cursor: Cursor) -> bool:
        """Whether a letter x between two numerals is a sign: `1.5 x 10^3`."""
        at = cursor.at
        return cursor.values[at] == "x" and cursor.kinds[at] == "letter" and cursor.kinds[at + 1] in _AMOUNTS

    def is_differential(self, cursor: Cursor) -> bool:
        """Whether the `dx` of an integral is here."""
        at = cursor.at
        return cursor.values[at] == "d" and cursor.values[at + 1] in cursor.bound

    def signed_factor(self, cursor: Cursor) -> Node:
        """A factor after a sign of multiplication; it may have its own sign."""
        minus = False
        while cursor.kinds[cursor.at] in "+-":
            minus ^= cursor.kinds[cursor.at] == "-"
            cursor.at += 1
        node = self.factor(cursor)
        return negative(node) if minus else node

    def factor(self, cursor: Cursor) -> Node:
        """An operand with its suffixes."""
        cursor.steps += 1
        node = self._rules.primary(cursor)
        kinds = cursor.kinds
        kind = kinds[cursor.at]
        if kind not in _POSTFIX:
            return node
        count, before = 0, ""
        while kind in _POSTFIX:
            count += 1
            if count > MAX_POSTFIXES:
                cursor.fail(f"more than {MAX_POSTFIXES} signs after an operand")
            cursor.at += 1
            if before == "^" and kind == "_" and isinstance(node, Power):
                node = self._names.indexed(cursor, node)
            else:
                node = self._postfix(cursor, node, kind)
            before, kind = kind, kinds[cursor.at]
        return node

    def _postfix(self, cursor: Cursor, node: Node, kind: str) -> Node:
        if kind == "^":
            return self._power(cursor, node)
        if kind == "!":
            if cursor.kinds[cursor.at] == "!":
                cursor.at += 1
                return FunctionCall("double factorial", (node,))
            return FunctionCall("factorial", (node,))
        if kind == "_":
            return self._names.subscript(cursor, node)
        if kind == "'":
            return self._names.primed(cursor, node, cursor.values[cursor.at - 1])
        if kind == "%":
            return Quantity(node, "percent")
        return quantities.degrees(cursor, node)

    def _power(self, cursor: Cursor, base: Node) -> Node:
        """An exponent: a group, or what plain text means (`2^10`, `10^-3`, `2^n!`)."""
        kinds = cursor.kinds
        kind = kinds[cursor.at]
        if kind == "degree" or kind == "circ":
            cursor.at += 1
            return quantities.degrees(cursor, base)
        if kind == "{" and kinds[cursor.at + 2] == "}" and kinds[cursor.at + 1] in ("degree", "circ"):
            cursor.at += 3
            return quantities.degrees(cursor, base)
        if kind == "{" and kinds[cursor.at + 1] == "'":
            return self._primes(cursor, base)
        if kind == "'":
            cursor.at += 1
            return self._names.primed(cursor, base, "'")
        if isinstance(base, Symbol) and (starred := self._names.starred(cursor, base)) is not None:
            return starred
        if (ordinal := quantities.ordinal(cursor, base)) is not None:
            return ordinal
        cursor.enter()
        if kind == "{":
            exponent = self._rules.argument(cursor)
        else:
            minus = False
            while kinds[cursor.at] in "+-":
                minus ^= kinds[cursor.at] == "-"
                cursor.at += 1
            cursor.steps += 1
            exponent = self._rules.primary(cursor)
            if kinds[cursor.at] == "^":  # from right to left
                cursor.at += 1
                exponent = self._power(cursor, exponent)
            if minus:
                exponent = negative(exponent)
        cursor.leave()
        if (
            isinstance(base, Symbol)
            and base.name in UNKNOWN_FUNCTIONS
            and exponent == MINUS_ONE
            and kinds[cursor.at] == "("
        ):
            cursor.at += 1
            return self._rules.called(cursor, f"{base.name}^-1")
        if isinstance(base, Quantity) and base.unit not in ("percent", "degree"):
            cursor.fail("a power of a quantity")
        return Power(base, exponent)

    def _primes(self, cursor: Cursor, base: Node) -> Node:
        r"""Primes in braces: `y^{\prime\prime}`."""
        start = cursor.at + 1
        cursor.at = start
        while cursor.kinds[cursor.at] == "'":
            cursor.at += 1
        cursor.expect("}")
        return self._names.primed(cursor, base, "".join(cursor.values[start : cursor.at - 1]))


def _has_order(node: Node) -> bool:
    """Whether this is a name of a set, a matrix or a vector."""
    match node:
        case Symbol(name):
            return (name[0].isupper() and not name[1:2].isalpha()) or name.startswith(_ARROWS)
        case Sum(terms):
            return any(map(_has_order, terms))
        case FunctionCall(function):
            return function == "cross"
        case _:
            return isinstance(node, Interval | SetOperation | Collection)


def _with_sign_inside(node: Node) -> Node:
    """-7 mod 3 is the remainder of -7: the sign at the start belongs to the numeral."""
    match node:
        case Product((sign, FunctionCall("mod", (Number() as of, by)))) if sign == MINUS_ONE:
            return FunctionCall("mod", (negative(of), by))
        case _:
            return node


_CONTINUES = _STARTS | _UNIT_STARTS | {"*", "/", "mod", "circ"}
