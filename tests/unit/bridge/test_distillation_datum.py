"""Targets of a teacher for a datum: which rows they take, what weighs nothing, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible_bridge.distillation import distillation_datum
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Datum, Problem, SequenceLogprobs
from tests.tables import rows


def datum(*mask: float) -> Datum:
    """One with a mask."""
    return Datum(model_input=list(range(len(mask))), loss_fn_inputs={"mask": np.array(mask)})


def measured(tokens: list[list[int]], probabilities: list[list[float]]) -> SequenceLogprobs:
    """What a teacher finds likeliest."""
    with np.errstate(divide="ignore"):
        values = np.log(np.array(probabilities))
    return SequenceLogprobs(
        logprobs=np.zeros(len(tokens)), top_tokens=np.array(tokens, np.int32), top_logprobs=values, first=1
    )


def inputs(of: Datum) -> tuple[list[Any], list[Any]]:
    """Its targets and weights."""
    tokens, weights = (np.asarray(of.loss_fn_inputs[name]) for name in ("target_tokens", "weights"))
    return tokens.tolist(), weights.tolist()


def test_rows_belong_to_the_targets_from_the_first_of_the_mask_on():
    """An observation between two turns has a row, which is not used; the first tokens are skipped."""
    teacher = measured([[1, 2], [3, 4], [5, 6], [7, 8]], [[0.5, 0.25]] * 3 + [[0.2, 0.2]])

    found = distillation_datum(datum(0, 1, 1, 0, 1), teacher, skip_first_n_tokens=1)

    assert inputs(found)[0] == [[0, 0], [0, 0], [3, 4], [0, 0], [7, 8]]
    np.testing.assert_allclose(inputs(found)[1], [[0, 0], [0, 0], [2 / 3, 1 / 3], [0, 0], [0.5, 0.5]], rtol=1e-6)


def test_what_a_server_did_not_name_and_what_the_student_lacks_weighs_nothing():
    """The others stand first and share its weight; a row of nothing else is 0."""
    teacher = measured([[9, 1, 2], [3, 4, -1], [9, 8, -1]], [[0.5, 0.25, 0.25], [0.6, 0.2, 0.0], [0.5, 0.5, 0.0]])

    found = distillation_datum(datum(1, 1, 1), teacher, skip_first_n_tokens=0, vocab_size=8)

    assert inputs(found)[0] == [[1, 2, 0], [3, 4, 0], [0, 0, 0]]
    np.testing.assert_allclose(inputs(found)[1], [[0.5, 0.5, 0], [0.75, 0.25, 0], [0, 0, 0]], rtol=1e-6)


@settings(deadline=None)
@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=12), st.integers(0, 12), st.integers(0, 4))
def test_every_target_weighs_one_or_nothing(mask: list[float], length: int, skip: int):
    """As many as the mask has within the rows, without the skipped ones."""
    teacher = SequenceLogprobs(
        logprobs=np.zeros(length), top_tokens=np.ones((length, 2), np.int32), top_logprobs=np.full((length, 2), -900.0)
    )

    weights = np.array(inputs(distillation_datum(datum(*mask), teacher, skip_first_n_tokens=skip))[1]).sum(axis=1)

    first = mask.index(1.0) if 1.0 in mask else 0
    within = [index for index, value in enumerate(mask) if value and index - first < length]
    assert np.flatnonzero(weights).tolist() == [
        index
        for number, index in enumerate(index for index, value in enumerate(mask) if value)
        if number >= skip and index in within
    ]
    assert set(weights.tolist()) <= {0.0, 1.0}


@rows(
    ("given", "teacher", "field", "message"),
    [
        (
            Datum(model_input=[1], loss_fn_inputs={}),
            measured([[1]], [[1.0]]),
            'datum.loss_fn_inputs["mask"]',
            "missing",
        ),
        (
            Datum(model_input=[1, 2], loss_fn_inputs={"mask": [1]}),
            measured([[1]], [[1.0]]),
            'datum.loss_fn_inputs["mask"]',
            "shape",
        ),
        (datum(1), SequenceLogprobs(logprobs=np.zeros(1)), "measured", "top_k"),
        (datum(1), SequenceLogprobs(problem=Problem(reason="R", message="too long")), "measured", "too long"),
    ],
)
def test_what_does_not_fit_is_refused(given: Datum, teacher: SequenceLogprobs, field: str, message: str):
    """By its name, with the cure."""
    with pytest.raises(InvalidField, match=message) as error:
        distillation_datum(given, teacher)

    assert error.value.field == field
