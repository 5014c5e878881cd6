"""Plain values cross a sandbox's wall unchanged; nothing else does."""

import array
import collections
import datetime
import decimal
import enum
import fractions
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.grading.code.inside.wire import ITEM_TYPES, MAX_DEPTH, NotPlain, decode, encode
from tests.tables import rows

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(10**60), max_value=10**60),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.complex_numbers(allow_nan=False),
    st.fractions(),
    st.decimals(allow_nan=False),
    st.builds(range, st.integers(-9, 9), st.integers(-9, 9), st.sampled_from([-2, 1, 3])),
)
HASHABLE = st.recursive(SCALARS, lambda inner: st.one_of(st.tuples(inner, inner), st.frozensets(inner)), max_leaves=4)
VALUES = st.recursive(
    HASHABLE,
    lambda inner: st.one_of(
        st.lists(inner), st.tuples(inner), st.sets(HASHABLE), st.dictionaries(HASHABLE, inner, max_size=4)
    ),
    max_leaves=12,
)
VIEWS = (type({}.keys()), type({}.values()), type({}.items()))
MARKS = (
    *("t", "s", "z", "d", "i", "f", "b", "c", "q", "m", "r", "x", "named", "counter", "ordered", "default", "keys"),
    *(
        "values",
        "items",
        "deque",
        "array",
        "bytearray",
        "date",
        "datetime",
        "time",
        "delta",
        "node",
        "iterator",
        "ndarray",
    ),
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(MARKS), inner, max_size=2)),
    max_leaves=8,
)


def types_of(value: Any) -> Any:
    """The type of a value and of those in it, sets and dicts left out, whose order is nobody's business."""
    return [type(value), *map(types_of, value)] if isinstance(value, list | tuple) else type(value)


@given(VALUES)
def test_a_plain_value_is_read_as_it_was(value: Any):
    """Through JSON in ASCII, with its type."""
    written = json.dumps(encode(value), allow_nan=False)

    read = decode(json.loads(written))

    assert written.isascii()
    assert read == value
    assert types_of(read) == types_of(value)


@pytest.mark.parametrize("value", [float("nan"), decimal.Decimal("NaN"), [float("nan")]])
def test_what_is_no_number_stays_so(value: Any):
    """NaN equals nothing, and crosses all the same."""
    assert repr(decode(json.loads(json.dumps(encode(value), allow_nan=False)))) == repr(value)


class Colour(enum.IntEnum):
    RED = 1


Point = collections.namedtuple("Point", "x y")


@rows(
    ("value", "plain"),
    [
        (Colour.RED, 1),
        (type("Words", (list,), {})("ab"), ["a", "b"]),
        (type("Table", (dict,), {})(a=1), {"a": 1}),
        (type("Queue", (collections.deque,), {})("ab"), collections.deque("ab")),
        (type("Count", (collections.Counter,), {})("ab"), collections.Counter("ab")),
        (type("Day", (datetime.date,), {"isoformat": lambda self: "x"})(2024, 1, 2), datetime.date(2024, 1, 2)),
        (type("Text", (str,), {})("x"), "x"),
        (fractions.Fraction(1, 3), fractions.Fraction(1, 3)),
    ],
)
def test_an_instance_of_a_subclass_comes_out_as_what_it_is_besides(value: Any, plain: Any):
    """Whatever the subclass would say of itself."""
    read = decode(encode(value))

    assert read == plain
    assert type(read) is type(plain)


class Place(collections.namedtuple("Place", "x y")):
    """A named tuple that says of itself what it likes."""

    def __eq__(self, other: object) -> bool:
        return True

    def __reduce__(self) -> Any:
        return print, ()

    def __hash__(self) -> int:
        return 0


KINDS = [
    Point(1, [2]),
    collections.Counter("aab"),
    collections.OrderedDict([(2, 1), (1, 2)]),
    collections.defaultdict(list, a=[1]),
    collections.defaultdict(None, a=1),
    collections.deque([1, 2], 3),
    collections.deque([(1,)]),
    array.array("d", [1.5, float("inf")]),
    array.array("u", "aé"),
    bytearray(b"a\0"),
    datetime.date(2024, 2, 29),
    datetime.datetime(2024, 2, 29, 23, 59, 59, 999_999),
    datetime.datetime(2024, 2, 29, tzinfo=datetime.timezone(datetime.timedelta(hours=-3, seconds=1))),
    datetime.time(1, 2, 3, 4, datetime.UTC),
    datetime.timedelta(-1, 2, 3),
    {1: 2}.keys(),
    {1: [2]}.items(),
]


@rows("value", KINDS, ids=repr)
def test_a_value_of_the_library_is_read_as_it_was(value: Any):
    """With its type and what it knows besides its items; a named tuple with its fields."""
    read = decode(json.loads(json.dumps(encode([value]), allow_nan=False)))[0]

    assert read == value
    assert repr(read) == repr(value)
    assert type(read).__name__ == type(value).__name__


def test_what_a_named_tuple_says_of_itself_does_not_cross():
    """Its name, its fields and its items do."""
    read = decode(encode(Place(1, 2)))

    assert read != Place(1, 3)._asdict()
    assert (read == (1, 2), read == (1, 3)) == (True, False)


@rows(
    "written",
    [
        {"named": ["P", ["x"], [1, 2]]},
        {"named": ["P", ["x", "x"], [1, 2]]},
        {"named": ["P", ["__class__"], [1]]},
        {"named": ["P", ["x=print(1)"], [1]]},
        {"named": ["import os", ["x"], [1]]},
        {"named": [1, ["x"], [1]]},
        {"named": 1},
        {"default": ["eval", []]},
        {"default": ["__import__", []]},
        {"deque": [[1], -1]},
        {"deque": [1, 2]},
        {"array": ["x", [1]]},
        {"array": ["b", [1000]]},
        {"date": "x"},
        {"date": 1},
        {"time": ["x"]},
        {"delta": [10**12]},
        {"delta": ["x"]},
        {"counter": [1]},
        {"keys": [[1]]},
        {"items": [[1]]},
        {"bytearray": 1},
        {"node": 0},
        {"iterator": 0},
        {"object": 0},
    ],
)
def test_what_no_library_wrote_is_refused(written: Any):
    """A program may send any JSON; no name in it is looked up, or run."""
    with pytest.raises(ValueError, match=r"\w"):
        decode(written)


@rows("value", [object(), print, iter([]), (x for x in ()), [object()], {"a": {1: print}}])
def test_what_is_not_plain_is_refused(value: Any):
    """At any level, naming its type."""
    with pytest.raises(NotPlain, match=r"\w"):
        encode(value)


def nested(levels: int) -> Any:
    """A list in a list."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_levels_are_bounded():
    """As many as are said, and no more; a value that holds itself is one of too many."""
    endless: list[Any] = []
    endless.append(endless)

    assert decode(encode(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    for deep in (nested(MAX_DEPTH + 1), endless):
        with pytest.raises(NotPlain, match="levels"):
            encode(deep)


@given(JSON)
def test_what_was_never_written_is_refused_or_plain(written: Any):
    """A program may send any JSON: reading it gives values of Python's own types, or one kind of error."""
    try:
        read = decode(written)
    except ValueError:
        return
    kinds = (bool, int, float, str, bytes, complex, list, tuple, set, frozenset, dict, range)
    kinds += (collections.deque, array.array, bytearray, datetime.date, datetime.time, datetime.timedelta, *VIEWS)
    assert read is None or isinstance(read, (*kinds, fractions.Fraction, decimal.Decimal))


@rows("name", ITEM_TYPES)
@rows("shape", [(), (0,), (3,), (2, 3), (2, 0, 4)])
def test_an_array_is_read_with_its_type_and_shape(name: str, shape: tuple[int, ...]):
    """In whatever order it lies in memory."""
    value = np.arange(math.prod(shape)).reshape(shape).astype(name)
    for each in (value, value.T, value[::-1] if shape else value):
        read = decode(json.loads(json.dumps(encode(each), allow_nan=False)))
        assert (type(read), read.dtype, read.shape) == (np.ndarray, each.dtype, each.shape)
        assert np.array_equal(read, each)


def test_numbers_of_numpy_are_read_as_python_s_own():
    """By value."""
    for value, plain in ((np.int8(-3), -3), (np.uint64(2**64 - 1), 2**64 - 1), (np.bool_(True), True)):
        read = decode(encode(value))
        assert (read, type(read)) == (plain, type(plain))
    assert decode(encode(np.float32(0.5))) == 0.5
    assert decode(encode(np.complex64(1j))) == 1j


def test_what_numpy_has_besides_is_not_written():
    """Objects, texts, dates, records, masked arrays and matrices."""
    for value in (
        np.array([1, "a"], object),
        np.array(["a"]),
        np.array(["2026-11-23"], "datetime64[D]"),
        np.datetime64("2026-11-23"),
        np.zeros(2, [("x", int)]),
        np.ma.array([1, 2], mask=[False, True]),
        np.zeros(1).view(type("Other", (np.ndarray,), {})),
    ):
        with pytest.raises(NotPlain):
            encode([value])


def test_an_array_that_no_side_writes_is_refused():
    """Its items are numbers of its type, as many as its shape says; nothing is converted."""
    for content in (
        ["object", [1], [1]],
        ["datetime64[D]", [1], [1]],
        ["O", [1], [1]],
        [["int64"], [1], [1]],
        ["int64", [2], [1]],
        ["int64", [1], ["1"]],
        ["int64", [1], [True]],
        ["int64", [1], [1.0]],
        ["int64", [1], [[1]]],
        ["int8", [1], [1000]],
        ["uint8", [1], [-1]],
        ["float64", [1], [1]],
        ["float64", ["1"], [1.0]],
        ["float64", [10**30, 10**30], [1.0]],
        ["float64", [1] * 100, [1.0]],
        ["float64", 1, None],
        ["float64"],
        5,
    ):
        with pytest.raises(ValueError):  # noqa: PT011 (many texts)
            decode({"ndarray": content})
