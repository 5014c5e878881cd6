"""What is generated from the protos: every type with its pair of conversions, and the bounds."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge import types
from crucible_bridge.codec import content, generated, prompts
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import bounds
from crucible_bridge.types import generated as generated_types
from tests.cases.wire.messages import decoders, made
from tests.unit.bridge.strategies import plain


@pytest.mark.long
@pytest.mark.parametrize("home", [content.__name__, prompts.__name__, generated.__name__])
@given(seed=st.integers(0, 2**32))
def test_values_and_messages_are_each_others(home: str, seed: int):
    """A value is encoded and decoded to an equal one, and a message of a value is encoded again byte for byte."""
    pairs, met = decoders(home), set[str]()
    for stem, encoded in made(seed, 1, home):
        decode, kind, encode = pairs[stem]
        assert encode is not None
        try:
            value = decode(kind.FromString(encoded))
        except InvalidField:
            continue
        met.add(stem)
        message = encode(value)
        again = decode(kind.FromString(message.SerializeToString()))
        assert written(again) == written(value), stem
        assert encode(again).SerializeToString(deterministic=True) == message.SerializeToString(deterministic=True)
    assert home != generated.__name__ or len(met) > len(pairs) / 2, "most messages are well formed"


def written(value: object) -> str:
    """A value as text, in which one NaN is as another, 0.0 as 0, and what was not UTF-8 is not counted."""
    text = json.dumps(plain(value), sort_keys=True, default=repr)
    return re.sub(r'(?<=\d)\.0\b|(?<="replaced": )\d+', "", text)


def test_a_value_that_is_none_of_a_union_is_refused():
    """By its type: nothing is left out of what is sent."""
    nothing: Any = object()

    for encode in (content.message_part_to_v1, generated.model_ref_to_v1, generated.sample_prompt_to_v1):
        with pytest.raises(TypeError, match="a object is no"):
            encode(nothing)


def test_every_generated_type_is_public_and_immutable():
    """Each is a name of `crucible_bridge.types`, frozen and made by keywords alone."""
    for name in generated_types.__all__:
        kind = getattr(types, name)
        assert kind is getattr(generated_types, name)
        if issubclass(kind, enum.Enum):
            continue
        assert kind.__dataclass_params__.frozen
        assert all(field.kw_only for field in dataclasses.fields(kind))


def test_bounds_are_those_that_are_enforced():
    """A value at a bound is accepted, and the next one beyond it is refused at its field."""
    limits = types.Limits(max_unscored_share=1.0, concurrency=1)
    assert generated.limits_from_v1(generated.limits_to_v1(limits)) == limits
    cases = {
        "max_unscored_share": math.nextafter(bounds.LIMITS_MAX_UNSCORED_SHARE_MOST, 2),
        "concurrency": bounds.LIMITS_CONCURRENCY_LEAST - 1,
        "max_unscored": bounds.LIMITS_MAX_UNSCORED_LEAST - 1,
    }
    for field, value in cases.items():
        message = generated.limits_to_v1(types.Limits(**{field: value}))
        with pytest.raises(InvalidField) as caught:
            generated.limits_from_v1(message, "limits")
        assert caught.value.field == f"limits.{field}"
