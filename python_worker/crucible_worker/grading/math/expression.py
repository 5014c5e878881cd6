r"""Arithmetic: sums of products of powers, and what stands behind an operand.

From loose to tight: sums; products and quotients from left to right, written or not (`1/2x` is half of x); signs;
powers, factorials, subscripts, percent and degree signs.
"""

from __future__ import annotations

from fractions import Fraction

from crucible_worker.grading.math.assembly import (
    MINUS_ONE,
    added,
    as_set,
    is_membership,
    is_proper,
    multiplied,
    negative,
    quotient,
    with_unit_outside,
)
from crucible_worker.grading.math.names import UNKNOWN_FUNCTIONS, Names
from crucible_worker.grading.math.notation import NUMBER_SETS, spelled
from crucible_worker.grading.math.tree import (
    Call,
    Collection,
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
)

__all__ = ["MAX_POSTFIXES", "Expressions"]

MAX_POSTFIXES = 8
"""Signs behind one operand: `5!!`, `x'^2`."""

_STARTS = spelled(
    "number based letter upright name constant function ( [ { set{ frac binom sqrt cbrt overline mark mathbb begin "
    "series integral limit box{ floor( ceil( angle( angle emptyset currency dots"
)
_POSTFIX = spelled("^ ! _ ' % degree")
_UNIT_STARTS = frozenset(("word", "upright", "name", "currency", "frac"))
_ENDS = frozenset({"end", "setop", "relation", ",", ")", "}", "and"})
_ZERO = Number(Fraction(0))
_ARROWS = ("vec ", "overrightarrow ", "hat ", "widehat ")


class Expressions(Names):
    """Reads sums, products and powers."""

    __slots__ = ()

    def sum(self) -> Node:
        """Terms with signs between them."""
        kinds = self.kinds
        kind = kinds[self.at]
        if kind == "plusminus":
            left: Node = self._plus_minus(_ZERO)
        elif kind == "-" or kind == "+":
            numeral = kinds[self.at + 1] == "number"
            left = self._signed()
            if numeral:
                left = _with_sign_inside(left)
        else:
            left = self.product()
        kind = kinds[self.at]
        if kind != "+" and kind != "-" and kind != "plusminus":
            return left
        terms: list[Node] = [left]
        while True:
            if kind == "+":
                self.at += 1
                terms.append(self._signed() if kinds[self.at] in "+-" else self.product())
            elif kind == "-":
                if self._is_set(terms[-1]):
                    terms[-1] = self._difference(terms[-1])
                else:
                    terms.append(self._signed())
            elif kind == "plusminus":
                terms = [self._plus_minus(added(terms))]
            else:
                return self.spread_unit(terms)
            kind = kinds[self.at]

    def _plus_minus(self, left: Node) -> PlusMinus:
        r"""What is behind \pm; behind \mp its opposite, as the upper signs of both belong together."""
        opposite = self.values[self.at] == "-"
        self.at += 1
        right = self.product()
        return PlusMinus(left, negative(right) if opposite else right)

    def _is_set(self, node: Node) -> bool:
        """Whether minus behind a node means a difference of sets: (1, 2) - {3} does, (1, 2) - (3, 4) does not."""
        if isinstance(node, Interval | SetOperation) or (isinstance(node, Collection) and node.kind == "set"):
            return True
        if isinstance(node, Symbol) and node.name in NUMBER_SETS.values():
            return True
        in_braces = self.kinds[self.at + 1] in ("set{", "{")
        return in_braces and (isinstance(node, Collection) or (isinstance(node, Symbol) and node.name in NUMBER_SETS))

    def _difference(self, node: Node) -> Node:
        """What is left of a set without another, or without the one thing in braces."""
        self.at += 1
        right = self.product()
        if isinstance(right, Number):
            right = Collection("set", (right,))
        return SetOperation("difference", (as_set(node), as_set(right)))

    def _signed(self) -> Node:
        """A product behind one or more signs."""
        kinds = self.kinds
        minus = False
        while kinds[self.at] in "+-":
            minus ^= kinds[self.at] == "-"
            self.at += 1
        if kinds[self.at] == "plusminus":
            self.fail()
        node = self.product()
        return negative(node) if minus else node

    def product(self) -> Node:
        """Factors multiplied and divided, written or not."""
        kinds = self.kinds
        start = self.at
        left = self.factor()
        kind = kinds[self.at]
        if kind not in _CONTINUES and (kind != "|" or self.bar != "opens"):
            return left
        factors: list[Node] = [left]
        while True:
            bare = kinds[start] == "number" and self.at == start + 1
            start = self.at
            if kind == "*":
                self.at = start = start + 1
                self._times(factors)
            elif kind == "/":
                self.at = start = start + 1
                factors.append(Power(self.signed_factor(), MINUS_ONE))
            elif kind == "mod":
                self.at += 1
                factors = [Call("mod", (multiplied(factors), self.signed_factor()))]
            elif kind == "circ":
                self.at += 1
                factors = [self._composed(multiplied(factors))]
            elif kind in _UNIT_STARTS and self._measure(factors):
                pass
            elif kind == "number":
                if bare and not self._mixed(factors):
                    break
                if not bare:
                    self._number_follows(factors)
            elif (kind not in _STARTS and (kind != "|" or self.bar != "opens")) or self._is_end(kind):
                break
            elif bare and self._is_times_sign():
                self.at += 1
                factors.append(self.factor())
            elif self.bound and self._is_differential():
                break
            else:
                self._juxtapose(factors, bare, kind)
            kind = kinds[self.at]
        return with_unit_outside(factors)

    def _times(self, factors: list[Node]) -> None:
        r"""A factor behind a sign; `A \times B` of capitals or arrows is one of sets or vectors, in this order."""
        at = self.at
        bold = self.kinds[at - 2] == self.kinds[at] == "upright"
        cross = self.values[at - 1] == "times" and (bold or _has_order(factors[-1]))
        right = self.signed_factor()
        if cross and (bold or _has_order(right)):
            factors[-1] = Call("cross", (factors[-1], right))
        else:
            factors.append(right)

    def _composed(self, left: Node) -> Node:
        r"""A composition, `f \circ g`; degrees, where nothing follows."""
        if self.kinds[self.at] not in _STARTS:
            return self.degrees(left)
        return Call("compose", (left, self.factor()))

    def _measure(self, factors: list[Node]) -> bool:
        """Give the product its unit, or the last factor where another has one; False where no unit follows."""
        if not self.may_be_unit():  # before the factors are looked at, of which there may be many
            return False
        operated = self.operated(factors[-1])
        if operated is not None:
            factors[-1] = operated
            return True
        if len(factors) > 1 and any(isinstance(factor, Quantity) for factor in factors[:-1]):
            node = self.unit_of(factors[-1])
            if node is not None:
                factors[-1] = node
        else:
            node = self.unit_of(multiplied(factors))
            if node is not None:
                factors[:] = [node]
        return node is not None

    def _juxtapose(self, factors: list[Node], bare: bool, kind: str) -> None:
        """A factor without a sign: a product, a mixed number, or a function of what is in brackets."""
        if kind == "(" and self.kinds[self.at + 1] == "word":
            self.at += 1
            if self.values[self.at] != "base" or (node := self.unit_of(multiplied(factors))) is None:
                self.fail("words in brackets")
            self.expect(")")
            factors[:] = [node]
            return
        right = self.factor()
        last = factors[-1]
        if kind == "(" and is_membership(right):
            return  # (k \in \mathbb{Z}) says which variable is meant
        value = right.value if isinstance(right, Quantity) else right
        if bare and kind == "frac" and is_proper(value) and isinstance(last, Number) and not last.decimal:
            mixed = added([last, value])
            factors[-1] = Quantity(mixed, right.unit) if isinstance(right, Quantity) else mixed
        elif kind == "(" and isinstance(last, Symbol) and isinstance(right, Collection | Relation):
            factors[-1] = Call(last.name, right.items if isinstance(right, Collection) else (right,))
        else:
            factors.append(right)

    def _mixed(self, factors: list[Node]) -> bool:
        """Add `1/2` to the 1 before it, `1 1/2`; two numerals side by side mean nothing else."""
        kinds, at = self.kinds, self.at
        if kinds[at + 1] != "/" or kinds[at + 2] != "number" or not isinstance(factors[-1], Number):
            return False
        numerator = self.factor()
        self.at += 1
        denominator = self.factor()
        value = denominator.value if isinstance(denominator, Quantity) else denominator
        mixed = added([factors[-1], quotient(numerator, value)])
        factors[-1] = Quantity(mixed, denominator.unit) if isinstance(denominator, Quantity) else mixed
        return True

    def _number_follows(self, factors: list[Node]) -> None:
        """A numeral behind a factor that is none: `2^6 3^5` is a product, `5 feet 3 inches` a sum."""
        if not isinstance(factors[-1], Quantity):
            factors.append(self.factor())
            return
        terms = [multiplied(factors)]
        while self.kinds[self.at] == "number":
            following = self.unit_of(self.factor()) if self.kinds[self.at + 1] == "word" else self.factor()
            if not isinstance(following, Quantity):
                self.fail()
            terms.append(following)
        factors[:] = [added(terms)]

    def _is_end(self, kind: str) -> bool:
        """Whether a bracket ends a product: the one of `[0, 1[`, and of `3 (mod 5)`."""
        following = self.kinds[self.at + 1]
        return (kind == "(" and following == "mod") or (kind == "[" and following in _ENDS)

    def _is_times_sign(self) -> bool:
        """Whether a letter x between two numerals is a sign: `1.5 x 10^3`."""
        at = self.at
        return self.values[at] == "x" and self.kinds[at] == "letter" and self.kinds[at + 1] == "number"

    def _is_differential(self) -> bool:
        """Whether the `dx` of an integral stands here."""
        at = self.at
        return self.values[at] == "d" and self.values[at + 1] in self.bound

    def signed_factor(self) -> Node:
        """A factor behind a sign of multiplication, which may have a sign of its own."""
        minus = False
        while self.kinds[self.at] in "+-":
            minus ^= self.kinds[self.at] == "-"
            self.at += 1
        node = self.factor()
        return negative(node) if minus else node

    def factor(self) -> Node:
        """An operand with what stands behind it."""
        self.steps += 1
        node = self.primary()
        kinds = self.kinds
        kind = kinds[self.at]
        if kind not in _POSTFIX:
            return node
        count, before = 0, ""
        while kind in _POSTFIX:
            count += 1
            if count > MAX_POSTFIXES:
                self.fail(f"more than {MAX_POSTFIXES} signs behind an operand")
            self.at += 1
            if before == "^" and kind == "_" and isinstance(node, Power):
                node = self.indexed(node)
            else:
                node = self._postfix(node, kind)
            before, kind = kind, kinds[self.at]
        return node

    def _postfix(self, node: Node, kind: str) -> Node:
        if kind == "^":
            return self._power(node)
        if kind == "!":
            if self.kinds[self.at] == "!":
                self.at += 1
                return Call("double factorial", (node,))
            return Call("factorial", (node,))
        if kind == "_":
            return self.subscript(node)
        if kind == "'":
            return self.primed(node, self.values[self.at - 1])
        if kind == "%":
            return Quantity(node, "percent")
        return self.degrees(node)

    def _power(self, base: Node) -> Node:
        """An exponent: a group, or as much as plain text means by it (`2^10`, `10^-3`, `2^n!`)."""
        kinds = self.kinds
        kind = kinds[self.at]
        if kind == "degree" or kind == "circ":
            self.at += 1
            return self.degrees(base)
        if kind == "{" and kinds[self.at + 2] == "}" and kinds[self.at + 1] in ("degree", "circ"):
            self.at += 3
            return self.degrees(base)
        if kind == "{" and kinds[self.at + 1] == "'":
            return self._primes(base)
        if kind == "'":
            self.at += 1
            return self.primed(base, "'")
        if isinstance(base, Symbol) and (starred := self.starred(base)) is not None:
            return starred
        if (ordinal := self.ordinal(base)) is not None:
            return ordinal
        self.enter()
        if kind == "{":
            exponent = self.argument()
        else:
            minus = False
            while kinds[self.at] in "+-":
                minus ^= kinds[self.at] == "-"
                self.at += 1
            self.steps += 1
            exponent = self.primary()
            if kinds[self.at] == "^":  # from right to left
                self.at += 1
                exponent = self._power(exponent)
            if minus:
                exponent = negative(exponent)
        self.leave()
        if (
            isinstance(base, Symbol)
            and base.name in UNKNOWN_FUNCTIONS
            and exponent == MINUS_ONE
            and kinds[self.at] == "("
        ):
            self.at += 1
            return self.called(f"{base.name}^-1")
        if isinstance(base, Quantity) and base.unit not in ("percent", "degree"):
            self.fail("a power of a quantity")
        return Power(base, exponent)

    def _primes(self, base: Node) -> Node:
        r"""Primes in braces: `y^{\prime\prime}`."""
        start = self.at + 1
        self.at = start
        while self.kinds[self.at] == "'":
            self.at += 1
        self.expect("}")
        return self.primed(base, "".join(self.values[start : self.at - 1]))


def _has_order(node: Node) -> bool:
    """Whether this is a name of a set, a matrix or a vector."""
    match node:
        case Symbol(name):
            return (name[0].isupper() and not name[1:2].isalpha()) or name.startswith(_ARROWS)
        case Sum(terms):
            return any(map(_has_order, terms))
        case Call(function):
            return function == "cross"
        case _:
            return isinstance(node, Interval | SetOperation | Collection)


def _with_sign_inside(node: Node) -> Node:
    """-7 mod 3 is the remainder of -7: the sign at the start is the numeral's."""
    match node:
        case Product((sign, Call("mod", (Number() as of, by)))) if sign == MINUS_ONE:
            return Call("mod", (negative(of), by))
        case _:
            return node


_CONTINUES = _STARTS | _UNIT_STARTS | {"*", "/", "mod", "circ"}
