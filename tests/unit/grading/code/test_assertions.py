"""What assertions ask: calls with known values where they are plain, tests to be run where they are not."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types.code_tests import BadTests
from crucible_worker.grading.code.assertions import Plain, Proxied, read_assertions
from tests.tables import rows

HUMANEVAL = """
METADATA = {"author": "jt"}


def check(candidate):
    "Says what it checks."
    assert candidate([1, 2], key=0.5) == {1: (True,)}, "message"
    assert True, "always"
    assert -1 == candidate()


check(first)
"""


def test_a_line_that_compares_a_call_is_a_call():
    """Arguments as they are written down, and what is expected stays here."""
    read = read_assertions(HUMANEVAL)

    assert isinstance(read, Plain)
    assert [(call.function, call.arguments, call.named, call.expected, call.line) for call in read.calls] == [
        ("first", [[1, 2]], {"d": [["key", 0.5]]}, {1: (True,)}, 7),
        ("first", [], {"d": []}, -1, 9),
    ]
    assert read.names == {"first"}


@rows(
    "source",
    [
        "assert f(1)",
        "assert not f(1)",
        "assert f(1) is None",
        "assert f(1) == x",
        "x = 2\nassert f(1) == x",
        "assert f(x for x in ()) == 1",
        "assert f(1) == 1 == f(1)",
        "assert f(*[1]) == 1",
        "assert f(**{'a': 1}) == 1",
        "assert f.g(1) == 1",
        "assert abs(f(1) - 1) < 0.5",
        "assert sorted(f(1)) == [1]",
        "for i in range(3):\n    assert f(i) == i",
        "def check(candidate):\n    assert f(1) == 1\ncheck(f)",
        "def check(candidate, other):\n    assert candidate(1) == 1\ncheck(f, 1)",
        "check = f\nassert check(1) == 1",
    ],
)
def test_whatever_is_more_is_run(source: str):
    """With f, and nothing else, taken from the program."""
    read = read_assertions(source)

    assert isinstance(read, Proxied)
    assert read.sources == [source]
    assert "f" in read.names
    assert read.names <= {"f", "x"}


def test_names_of_the_tests_own_are_not_the_programs():
    """Nor builtins, nor parameters; a name that a function binds for itself may still be the program's elsewhere."""
    read = read_assertions(
        "import math\nfrom os import path as p\n"
        "def near(a, b, *rest):\n    solve = 1\n    return abs(a - b) < math.pi and p and solve and rest\n"
        "class Case:\n    limit = 1\n    def run(self): return near(solve(Case.limit), 2)\n"
        "assert Case().run()\nassert [deep(each) for each in [1]]\n"
    )

    assert isinstance(read, Proxied)
    assert dict(read.classes) == {"solve": False, "deep": False}


def test_what_a_prefix_defines_whole_is_the_tests_own():
    """What it leaves to the program is the program's: a head, a body that says nothing."""
    prefix = (
        "import math\nSIZE = 3\n\n"
        "def help(x):\n    return x + 1\n\n"
        "class Box:\n    ''' later '''\n    def put(self): ...\n\n"
        "def later():\n    raise NotImplementedError('soon')\n\n"
        "def solve(x):\n    ''' Solve. '''\n"
    )

    read = read_assertions("assert help(solve(SIZE)) == math.pi or Box() or later()", prefix)

    assert isinstance(read, Proxied)
    assert dict(read.classes) == {"solve": False, "Box": True, "later": False}
    assert "def help" in read.sources[0]
    assert "def solve" not in read.sources[0]


@rows("prefix", ["def solve(x):\n", "def solve(x): # says what", "    ''' text", "(" * 500])
def test_a_prefix_without_an_end_takes_nothing_from_the_program(prefix: str):
    """It need not be Python by itself."""
    read = read_assertions("assert solve(1) > 0", prefix)

    assert isinstance(read, Proxied)
    assert read.names == {"solve"}


def test_a_capital_says_that_a_name_is_a_class():
    """As PEP 8 has it, where no prefix says it."""
    read = read_assertions("assert Stack().push(1) is None")

    assert isinstance(read, Proxied)
    assert dict(read.classes) == {"Stack": True}


@rows(
    ("source", "says"),
    [
        ("assert f(", "not Python"),
        ("assert f(1) == \0", "not Python"),
        ("(" * 3000, "not Python"),
        ("def check(candidate):\n    assert candidate(1) == 1\n", "check"),
        ("assert True", "nothing"),
        ("x = 1\nassert x + 1 == 2", "nothing"),
        ("", "nothing"),
    ],
)
def test_tests_that_nothing_can_pass_or_fail_are_refused(source: str, says: str):
    """Nobody is graded by them."""
    with pytest.raises(BadTests, match=says):
        read_assertions(source)


def test_a_prefix_that_cannot_be_written_down_is_refused():
    """A sum of a thousand numbers is read, and is too deep to be written."""
    with pytest.raises(BadTests, match="prefix"):
        read_assertions("assert f(1) > 0", "x = " + "1 + " * 1_500 + "1")


def test_a_number_that_is_too_large_for_a_complex_one_is_no_known_value():
    """Python reads the source, and cannot add the parts."""
    assert isinstance(read_assertions(f"assert f(1) == 0x{'f' * 400} + 1j"), Proxied)


@pytest.mark.parametrize("text", ["{{{}}}", "{{{}: 1}}", "[{{0: {{{}}}}}]"])
def test_keys_of_one_hash_stay_in_the_sandbox(text: str):
    """A set of them is built in quadratic time."""
    few, many = (", ".join(map(str, ((2**61 - 1) * number for number in range(count)))) for count in (16, 17))
    if ": 1" in text:
        few, many = few.replace(",", ": 1,"), many.replace(",", ": 1,")

    assert isinstance(read_assertions(f"assert f(1) == {text.format(few)}"), Plain)
    assert isinstance(read_assertions(f"assert f(1) == {text.format(many)}"), Proxied)


@given(st.text())
def test_any_text_is_read_or_refused(source: str):
    """Tests come from data sets."""
    with contextlib.suppress(BadTests):
        assert read_assertions(source).names
