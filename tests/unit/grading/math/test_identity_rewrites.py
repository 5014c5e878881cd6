"""Expressions drawn by lot: rewritten they are never found different, changed they are never found equal."""

from collections.abc import Callable
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from crucible_worker.grading.math.identity import ExpressionRelation, examine
from crucible_worker.grading.math.tree import Constant, FunctionCall, Node, Number, Power, Product, Sum, Symbol

ONE, TWO, MINUS_ONE, HALF = (Number(Fraction(value)) for value in ("1", "2", "-1", "1/2"))


def minus(node: Node) -> Node:
    """The negative."""
    return Product((MINUS_ONE, node))


def trees(leaves: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    """Arithmetic, roots and functions that are real and smooth everywhere: no rewriting meets a branch."""
    smooth = st.sampled_from(["sin", "cos", "arctan", "tanh"])
    return st.recursive(
        leaves,
        lambda inner: (
            st.builds(lambda parts: Sum(tuple(parts)), st.lists(inner, min_size=2, max_size=3))
            | st.builds(lambda parts: Product(tuple(parts)), st.lists(inner, min_size=2, max_size=3))
            | st.builds(lambda base: Power(base, TWO), inner)
            | st.builds(lambda base: Power(Sum((ONE, Power(base, TWO))), HALF), inner)
            | st.builds(lambda base: Power(Sum((ONE, Power(base, TWO))), MINUS_ONE), inner)
            | st.builds(lambda of: FunctionCall("ln", (Sum((TWO, Power(of, TWO))),)), inner)
            | st.builds(lambda name, of: FunctionCall(name, (of,)), smooth, inner)
        ),
        max_leaves=8,
    )


numbers = st.builds(
    lambda over, under: Number(Fraction(over, under)), st.integers(-9, 9).filter(bool), st.integers(1, 4)
)
constants = trees(numbers | st.sampled_from([Constant("pi"), Constant("e"), Power(TWO, HALF)]))
functions = trees(numbers | st.sampled_from([Symbol("x"), Symbol("y"), Constant("pi")]))
both = constants | functions


@st.composite
def rewritten(draw: st.DrawFn, source: st.SearchStrategy[Node]) -> tuple[Node, Node]:
    """A tree and an equal one."""
    tree = draw(source)
    return tree, _rewrite(tree, draw)


def _rewrite(node: Node, draw: st.DrawFn) -> Node:
    match node:
        case Sum(terms):
            parts = draw(st.permutations([_rewrite(term, draw) for term in terms]))
            if draw(st.booleans()):
                aside = draw(functions)
                parts = [*parts, aside, minus(aside)]
            return Sum(tuple(parts))
        case Product(factors):
            parts = draw(st.permutations([_rewrite(factor, draw) for factor in factors]))
            for index, part in enumerate(parts):
                if isinstance(part, Sum) and draw(st.booleans()):
                    others = (*parts[:index], *parts[index + 1 :])
                    return Sum(tuple(Product((*others, term)) for term in part.terms))
            return Product(tuple(parts))
        case Power(base, exponent):
            again = _rewrite(base, draw)
            return Product((again, again)) if exponent == TWO and draw(st.booleans()) else Power(again, exponent)
        case FunctionCall(function, (of,)):
            again = _rewrite(of, draw)
            return _IDENTITIES[function](again) if draw(st.booleans()) else FunctionCall(function, (again,))
        case _:
            return node


def _doubled(of: Node) -> Node:
    return Power(Constant("e"), Product((TWO, of)))


_IDENTITIES: dict[str, Callable[[Node], Node]] = {
    "sin": lambda of: FunctionCall("cos", (Sum((Product((Constant("pi"), HALF)), minus(of))),)),
    "cos": lambda of: Sum(
        (ONE, Product((Number(Fraction(-2)), Power(FunctionCall("sin", (Product((HALF, of)),)), TWO))))
    ),
    "arctan": lambda of: FunctionCall(
        "arcsin", (Product((of, Power(Sum((ONE, Power(of, TWO))), Number(Fraction(-1, 2))))),)
    ),
    "tanh": lambda of: Product((Sum((_doubled(of), MINUS_ONE)), Power(Sum((_doubled(of), ONE)), MINUS_ONE))),
    "ln": lambda of: Product((HALF, FunctionCall("ln", (Power(of, TWO),)))),
}


@settings(max_examples=300, deadline=None)
@given(pair=rewritten(both))
def test_rewritten_expressions_are_never_different(pair: tuple[Node, Node]) -> None:
    """Reordered, expanded, with zeros added, by laws of trigonometry: equal, or too much to tell."""
    finding = examine(*pair)
    assert finding.identity is not ExpressionRelation.DIFFERENT, finding


@settings(max_examples=300, deadline=None)
@given(
    pair=rewritten(both),
    change=st.sampled_from(
        [Fraction(1), Fraction(-1, 7), Fraction(1, 10**12), Fraction(1, 10**30), Fraction(1, 2**120)]
    ),
)
def test_changed_expressions_are_never_equal(pair: tuple[Node, Node], change: Fraction) -> None:
    """However small what is added, and however the rest is rewritten: different, or too much to tell."""
    left, right = pair
    finding = examine(left, Sum((right, Number(change))))
    assert finding.identity is not ExpressionRelation.EQUAL, finding
    finding = examine(left, Sum((right, Product((Number(change), Constant("pi"), Symbol("x"))))))
    assert finding.identity is not ExpressionRelation.EQUAL, finding


@settings(max_examples=200, deadline=None)
@given(tree=both)
def test_expressions_equal_themselves(tree: Node) -> None:
    """Every expression with a value is equal to itself."""
    assert examine(tree, tree).identity is ExpressionRelation.EQUAL
