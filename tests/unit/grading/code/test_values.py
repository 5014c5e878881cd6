"""Plain values cross a sandbox's wall unchanged; nothing else does."""

import collections
import decimal
import enum
import fractions
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.grading.code.inside.values import MAX_DEPTH, NotPlain, decode, encode

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
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("tszdifbcqmrx"), inner, max_size=2)
    ),
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


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (collections.defaultdict(int, a=1), {"a": 1}),
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        (Colour.RED, 1),
        (Point(1, 2), (1, 2)),
        (type("Text", (str,), {})("x"), "x"),
        (fractions.Fraction(1, 3), fractions.Fraction(1, 3)),
    ],
)
def test_an_instance_of_a_subclass_comes_out_as_what_it_is_besides(value: Any, plain: Any):
    """Whatever the subclass would say of itself."""
    read = decode(encode(value))

    assert read == plain
    assert type(read) is type(plain)


@pytest.mark.parametrize("value", [object(), print, iter([]), (x for x in ()), [object()], {"a": {1: print}}])
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
    assert read is None or isinstance(read, (*kinds, fractions.Fraction, decimal.Decimal))
