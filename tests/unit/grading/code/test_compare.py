"""What a program returned is equal exactly where Python, or JSON, has it equal."""

import array
import collections
import datetime
import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import OutputComparison
from crucible_worker.grading.code.compare import Allowed, equals, equals_json
from crucible_worker.grading.code.inside.wire import encode
from tests.tables import rows

LITERALS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.0, 1.0, 1.5, 1e300]), st.text("ab", max_size=2)
)
KEYS = st.recursive(LITERALS, lambda inner: st.tuples(inner), max_leaves=2)
VALUES = st.recursive(
    KEYS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner),
        st.sets(KEYS, max_size=3),
        st.frozensets(KEYS, max_size=2),
        st.dictionaries(KEYS, inner, max_size=3),
    ),
    max_leaves=6,
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=6,
)


@given(VALUES, VALUES)
def test_values_are_equal_as_python_has_them(value: Any, expected: Any):
    """1 equals 1.0 and True, a list no tuple, sets whatever their order."""
    assert equals(encode(value), expected) is (value == expected)


@given(VALUES)
def test_a_value_equals_itself(value: Any):
    """However deep."""
    assert equals(encode(value), value)


@given(JSON, JSON)
def test_json_is_equal_as_json_has_it(value: Any, expected: Any):
    """Numbers by value, but true is not 1."""

    def marked(part: Any) -> Any:
        if isinstance(part, bool):
            return ("bool", part)
        if isinstance(part, list):
            return [marked(item) for item in part]
        return {key: marked(item) for key, item in part.items()} if isinstance(part, dict) else part

    assert equals_json(encode(value), expected) is (marked(value) == marked(expected))
    assert equals_json(encode(value), json.loads(json.dumps(value)))


@rows(
    ("value", "expected", "equal"),
    [
        ((1, (2,)), [1, [2]], True),
        ({1: "a", 2.5: "b"}, {"1": "a", "2.5": "b"}, True),
        ({None: 1}, {"null": 1}, True),
        ({(1,): 1}, {"[1]": 1}, False),
        ({1}, [1], False),
        (b"a", "a", False),
        (1, True, False),
    ],
)
def test_python_as_json(value: Any, expected: Any, equal: bool):
    """A tuple is an array and a key a text; what JSON cannot say equals nothing."""
    assert equals_json(encode(value), expected) is equal


@rows(
    "written",
    [
        {},
        {"t": 1},
        {"s": {}},
        {"d": [1]},
        {"d": [[1]]},
        {"x": 1},
        {"f": "1"},
        {"f": []},
        {"s": [[1]]},
        {"t": [], "s": []},
        {"q": ["2", "4"]},
        {"q": ["2", "0"]},
        {"q": ["2", "-2"]},
        {"q": [1, 1]},
        {"q": ["1"]},
        {"m": 1},
        {"m": [0, [1], 0]},
        {"m": "1e"},
        {"c": [1]},
        {"c": ["1", "0"]},
        {"c": [{"q": ["1", "1"]}, 0.0]},
        {"r": [1, 2]},
        {"named": ["P", ["x"]]},
        {"named": [[], [], 1]},
        {"default": [[]]},
        {"default": 1},
        {"counter": [[]]},
        {"keys": 1},
        {"items": [1]},
        {"iterator": 0},
        {"node": 0},
        {"object": 0},
        {"deque": [[], None]},
        {"values": []},
    ],
)
@rows("same", [equals, equals_json])
def test_what_nobody_wrote_equals_nothing(written: Any, same: Any):
    """A program may send any JSON."""
    for expected in (None, 1, [], (), set(), {1}, {}, {"a": 1}, "", [[1]]):
        try:
            equal = same(written, expected)
        except ValueError:
            continue
        assert not equal


@rows(
    "value",
    [
        collections.Counter("aab"),
        collections.OrderedDict([(2, 1), (1, 2)]),
        collections.defaultdict(list, a=[1]),
        collections.deque([1]),
        collections.namedtuple("P", "x y")(1, 2),
        array.array("b", [1]),
        bytearray(b"a"),
        datetime.date(2024, 1, 2),
        datetime.timedelta(1),
        {1: 2}.keys(),
        {1: 2}.items(),
        {1: 2}.values(),
    ],
    ids=repr,
)
def test_values_of_the_library_equal_constants_as_python_has_them(value: Any):
    """A Counter a dict, a named tuple a tuple, keys a set; the others nothing."""
    constants = ({"a": 2, "b": 1}, {1: 2, 2: 1}, {"a": [1]}, [1], [2], (1, 2), b"a", {1}, {(1, 2)}, "2024-01-02", 1, {})
    for expected in constants:
        assert equals(encode(value), expected) is (value == expected), expected
        assert equals(encode([value]), [expected]) is (value == expected), expected


def test_elements_that_a_program_repeats_are_not_those_that_it_lacks():
    """The sizes agree, and the sets do not."""
    assert not equals({"s": [1, 1]}, {1, 2})
    assert not equals({"d": [[1, "a"], [1, "a"]]}, {1: "a", 2: "a"})


def test_no_key_is_built_of_thousands_of_parts():
    """A frozenset of numbers of one hash takes for ever to be put together."""
    with pytest.raises(ValueError, match="parts"):
        equals({"s": [{"z": list(range(2_000))}]}, {frozenset({1})})


RARE = st.one_of(
    st.fractions(max_denominator=4),
    st.fractions(),
    st.decimals(),
    st.complex_numbers(),
    st.integers(),
    st.just(range(3)),
)
EXPECTED = st.one_of(st.integers(-9, 9), st.integers(), st.floats(), st.complex_numbers(), st.just("1"), st.just(b"1"))


@given(RARE, EXPECTED)
def test_rare_numbers_are_equal_as_python_has_them(value: Any, expected: Any):
    """None of them is built, and none is lost."""
    if isinstance(value, Decimal) and value.is_snan():
        return
    assert equals(encode(value), expected) is (value == expected)
    assert equals(encode((value,)), (expected,)) is (value == expected)
    if expected == expected:
        assert equals(encode({value}) if not isinstance(value, Decimal) else {"s": [encode(value)]}, {expected}) is (
            value == expected
        )


@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
def test_a_number_equals_itself_as_a_rare_one(number: float):
    """As a Fraction, and as a Decimal."""
    assert equals(encode(Fraction(number)), number)
    assert equals(encode(Decimal(number)), number)


@rows("text", ["1E+999999999", "-1E-999999999", "9" * 5_000, "0." + "9" * 5_000, "NaN", "sNaN", "1E+4301"])
def test_decimals_beyond_what_python_reads_equal_nothing(text: str):
    """And cost nothing."""
    for expected in (1, 0.0, math.inf, math.nan, 10**4_301, 1j):
        assert not equals({"m": text}, expected)


@rows("rows", [[], [1, 2], [1.5, math.inf], [[1, 2], [3, 4]], [[]], [[[1]], [[2]]], [True, False], 7, [[], []]])
def test_an_array_is_its_nested_lists_as_json(rows: Any):
    """And equals no other."""
    written = encode(np.array(rows))
    for other in (
        [],
        [1, 2],
        [2, 1],
        [1.5, math.inf],
        [[1, 2], [3, 4]],
        [[]],
        [[[1]], [[2]]],
        [True, False],
        7,
        [[], []],
        None,
    ):
        same = json.dumps(rows) == json.dumps(other)
        assert equals_json(written, other) is same, other


def test_an_array_equals_a_constant_where_it_has_no_dimension():
    """In Python the comparison of any other is no truth value."""
    assert equals(encode(np.array(4)), 4)
    assert not equals(encode(np.array(4)), 5)
    assert equals(encode((np.array(4),)), (4,))
    for expected in (4, [4], (4,), {4}, None):
        assert not equals(encode(np.array([4])), expected)


def test_an_array_that_nobody_wrote_equals_nothing():
    """However large it says that it is."""
    for content in (
        ["int64", [10**9, 0], []],
        ["int64", [0, 10**30], []],
    ):
        assert not equals_json({"ndarray": content}, [[1]])
        assert not equals({"ndarray": content}, [])
    for content in (
        ["int64", [2], [1]],
        ["int64", [-1, -1], [1]],
        ["int64", [1] * 65, [1]],
        ["int64", [], [[1]]],
        [],
        1,
    ):
        for same in (equals, equals_json):
            with pytest.raises(ValueError):  # noqa: PT011 (many texts)
                same({"ndarray": content}, 1)


NEAR = {
    "a float": (0.33333, 1 / 3, True),
    "a float at the edge": (0.334, 0.333, True),
    "a float beyond the edge": (0.3341, 0.333, False),
    "an integer and a float": (2, 2.0009, True),
    "a float and an integer": (1.9991, 2, True),
    "two integers": (1000001, 1000000, False),
    "a large integer and a float": (10**400, 1e300, False),
    "a very large integer and a float": (10**5000, 1e300, False),
    "a float and a large integer": (1e300, 10**400, False),
    "truth and a float": (True, 1.0001, False),
    "a float and truth": (1.0001, True, False),
    "not a number": (math.nan, 1.0, False),
    "not a number, twice": (math.nan, math.nan, False),
    "infinity": (math.inf, 1e308, False),
    "infinity, twice": (math.inf, math.inf, True),
    "another infinity": (-math.inf, math.inf, False),
    "zero": (-0.0, 0, True),
    "a small float": (1e-320, 0, True),
    "a fraction": (Fraction(1, 3), 0.3333, True),
    "another fraction": (Fraction(1, 3), 0.3433, False),
    "a whole fraction and an integer": (Fraction(3), 2, False),
    "a decimal": (Decimal("0.3333"), 0.333, True),
    "a decimal that is no number": (Decimal("NaN"), 0.333, False),
    "a complex number": (1 + 0j, 1.0001, False),
    "a text": ("0.333", 0.333, False),
    "two texts": ("0.3333", "0.333", False),
    "none": (None, 0.0001, False),
    "lists": ([[0.1, 2], [3]], [[0.1001, 2], [3.0001]], True),
    "a tuple": ((0.1, (0.2,)), [0.1001, [0.2001]], True),
    "lists of other lengths": ([0.1], [0.1, 0.1], False),
    "one of a list": ([0.1, 0.2], [0.1001, 0.3], False),
    "a dict": ({"a": 0.1, 1: [2.0]}, {"a": 0.1001, "1": [2.0001]}, True),
    "a key": ({0.5: 1}, {"0.5001": 1}, False),
    "an array": (np.array([[0.5, 1.5]]), [[0.5001, 1.5]], True),
    "an array of another shape": (np.array([0.5, 1.5]), [[0.5, 1.5]], False),
    "a set": ({0.5}, [0.5], False),
}


@rows("name", NEAR)
def test_values_are_equal_within_a_tolerance(name: str):
    """Numbers of which one is a float, as Python writes them; whatever they are in."""
    value, expected, near = NEAR[name]
    allowed = Allowed(OutputComparison(absolute_tolerance=1e-3))

    assert equals_json(encode(value), expected, allowed) is near
    assert near or not equals_json(encode(value), expected)


def test_a_tolerance_is_exact_where_floats_are_not():
    """By the decimal numbers that Python writes, as in output."""
    tenth = Allowed(OutputComparison(absolute_tolerance=0.1))

    assert 0.3 - 0.2 < 0.1 < 0.8 - 0.7
    assert equals_json(0.8, 0.7, tenth) is equals_json(0.3, 0.2, tenth) is True
    assert equals_json(0.8000000000000002, 0.7, tenth) is False
    assert equals_json(1.1e-310, 1e-310, Allowed(OutputComparison(relative_tolerance=0.11))) is True
    assert equals_json(1.2e-310, 1e-310, Allowed(OutputComparison(relative_tolerance=0.11))) is False
    assert equals_json(99.0, 100, Allowed(OutputComparison(relative_tolerance=0.01))) is True
    assert equals_json(98.9, 100, Allowed(OutputComparison(relative_tolerance=0.01))) is False


@given(st.floats(), st.floats(), st.sampled_from([0.0, 1e-9, 0.1, 1.0]), st.sampled_from([0.0, 1e-9, 0.1]))
def test_floats_are_near_where_their_decimal_numbers_are(one: float, other: float, absolute: float, relative: float):
    """The faster way has the same result."""
    allowed = Allowed(OutputComparison(absolute_tolerance=absolute, relative_tolerance=relative))
    near = one == other or allowed.same(repr(one), repr(other))

    assert equals_json(encode(one), other, allowed) is (near and not math.isnan(one))
