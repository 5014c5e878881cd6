"""Names that only the tests could define are told from those of the program by where assertions use them."""

from __future__ import annotations

import ast

from crucible_worker.grading.code.assertions import Proxied, helpers_of, read_assertions
from tests.tables import rows

THEIRS = {
    "a right side": ("assert f(1) == slow(1)", {"slow"}),
    "a right side, deeper": ("assert sorted(f(1)) == [slow(each) for each in range(3)]", {"slow"}),
    "another comparison": ("assert f(1) in slow(1)", {"slow"}),
    "a variable": ("wanted = slow(1)\nassert f(1) == wanted", {"slow"}),
    "variables": ("a = slow(1)\nb = [a, quick(2)]\nassert f(1) == b", {"slow", "quick"}),
    "a function": ("def wanted(n):\n    return slow(n)\nassert f(1) == wanted(1)", {"slow"}),
    "a check": ("def check(candidate):\n    assert candidate(1) == slow(1)\ncheck(f)", {"slow"}),
    "a constant": ("assert f(1) == WANTED", {"WANTED"}),
}
NOT_THEIRS = {
    "a left side": "assert f(1) == 2\nassert g(2) == 3",
    "a left side around another": "assert decode(encode(1)) == 1",
    "an argument": "assert f(build(1)) == 2",
    "both sides": "assert f(1) == g(1)\nassert g(2) == 3",
    "one side of a comparison of neither": "assert [1] == f(1)\nassert g(1) == 2",
    "a variable on the left": "x = [1]\nassert x == f(1)\nassert g(1) == 2",
    "a variable on both sides": "a = f(1)\nassert g(1) == a\nassert a == 2",
    "a result": "y = f(1)\nassert y == 2\nassert g(1) == y",
    "a statement": "x = [1]\nf(x)\nassert x == g(1)",
    "no comparison": "assert f(1)\nassert not g(2)",
    "a loop": "for x in f(1):\n    assert x == 1\nassert g(1) == 2",
    "nothing else": "x = 1\nassert x == f(1)",
    "an attribute": "s = Stack()\nassert s.pop() == 1",
}


def read(source: str) -> Proxied:
    """What is read of tests."""
    proxied = read_assertions(source)
    assert isinstance(proxied, Proxied)
    return proxied


@rows("name", THEIRS)
def test_what_results_are_compared_with_is_the_tests_own(name: str):
    """Where it is used for nothing else."""
    source, helpers = THEIRS[name]

    assert read(source).helpers == helpers


@rows("name", NOT_THEIRS)
def test_all_else_is_the_programs(name: str):
    """A program must not profit from what it lacks."""
    source = NOT_THEIRS[name]
    taken = frozenset({"f", "g", "decode", "encode", "build", "Stack"})
    used = frozenset(node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)) & taken

    assert helpers_of(ast.parse(source), used) == frozenset()


def test_what_a_prefix_leaves_open_is_the_programs():
    """Wherever assertions use it."""
    read_with = read_assertions("assert g(1) == f(1)", "def f(x):\n")

    assert isinstance(read_with, Proxied)
    assert read_with.helpers == frozenset()
    assert read("assert g(1) == f(1)").helpers == {"f"}
