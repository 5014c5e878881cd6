"""Letters with an index that is summed over."""

from fractions import Fraction

from crucible_worker.grading.math.grammar import parse
from crucible_worker.grading.math.operands import MAX_EXPANDED_NODES, MAX_EXPANDED_TERMS, expanded, stems, with_index
from crucible_worker.grading.math.tree import FunctionCall, Node, Number, Product, Symbol


def _terms(last: int, body: Node) -> list[Node] | None:
    return expanded("i", Number(Fraction(1)), Number(Fraction(last)), with_index(body, "i"))


def test_few_terms_are_written_out() -> None:
    """A sum of x_i from 1 to 3 is x_1 + x_2 + x_3."""
    assert parse(r"\sum_{i=1}^{3} x_i") == parse("x_1+x_2+x_3")


def test_so_many_terms_are_written_out_and_no_more() -> None:
    """More terms than the bound stay a sum, as do none."""
    assert len(_terms(MAX_EXPANDED_TERMS, Symbol("x_i")) or ()) == MAX_EXPANDED_TERMS
    assert _terms(MAX_EXPANDED_TERMS + 1, Symbol("x_i")) is None
    assert _terms(0, Symbol("x_i")) is None


def test_what_is_written_out_has_so_many_nodes_and_no_more() -> None:
    """A long term is not repeated beyond the bound, however few terms there are."""
    count = MAX_EXPANDED_NODES // 2 - 3  # of each term: the product, the function and its index
    fits = Product((Symbol("x_i"), *(Symbol("y"),) * count))
    exceeds = Product((*fits.factors, Symbol("y")))

    assert _terms(2, fits) is not None
    assert _terms(2, exceeds) is None


def test_a_computed_index_is_not_written_out() -> None:
    """x_{i+1} and x_{2i} have indices that are worked out, which spelling them does not do."""
    for body in ("x_{i+1}", "x_{2i}", "x"):
        assert _terms(3, parse(body)) is None


def test_two_indices_are_arguments_in_their_order() -> None:
    """a_ij is a function of i and j, whichever is summed over first."""
    indices = FunctionCall("a_##", (Symbol("i"), Symbol("j")))

    assert with_index(with_index(Symbol("a_ij"), "i"), "j") == indices
    assert with_index(with_index(Symbol("a_ij"), "j"), "i") == indices
    assert stems(indices) == {"a"}
