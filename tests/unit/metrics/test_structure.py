"""What is wrong with the structure of a request is refused, row by row, with the path of the field."""

from collections.abc import Callable

import numpy as np
import pytest

from crucible_bridge.errors import Code, InvalidField
from crucible_worker.metrics.kl import kl_post_update, kl_sample_train
from crucible_worker.metrics.kl_penalty import incorporate_kl_penalty
from crucible_worker.metrics.nll import mean_nll
from tests.tables import rows

Arrays = list[np.ndarray]


def _kl(logprobs: Arrays, training: Arrays, masks: Arrays) -> object:
    return kl_sample_train(logprobs, training, masks)


def _kl_extended(logprobs: Arrays, training: Arrays, masks: Arrays) -> object:
    return kl_sample_train(logprobs, training, masks, extended=True)


def _post(logprobs: Arrays, updated: Arrays, masks: Arrays) -> object:
    return kl_post_update(logprobs, updated, masks, updated_field="updated.given.tensors")


def _penalty(logprobs: Arrays, base: Arrays, masks: Arrays, advantages: Arrays) -> object:
    return incorporate_kl_penalty(logprobs, base, masks, advantages, coef=0.1, discount=0.9, base_field="base.tensors")


LOGPROBS, MASK, ADVANTAGES = (f'data[{{}}].loss_fn_inputs["{key}"]' for key in ("logprobs", "mask", "advantages"))

CALLS: list[tuple[Callable[..., object], tuple[str, ...], str]] = [
    (_kl, (LOGPROBS, "training_logprobs[{}]", MASK), "data"),
    (_kl_extended, (LOGPROBS, "training_logprobs[{}]", MASK), "data"),
    (_post, (LOGPROBS, "updated.given.tensors[{}]", MASK), "data"),
    (_penalty, (LOGPROBS, "base.tensors[{}]", MASK, ADVANTAGES), "data"),
    (mean_nll, ("logprobs[{}]", "weights[{}]"), "logprobs"),
]
COLUMNS = [(call, fields, column) for call, fields, _ in CALLS for column in range(len(fields))]
IDS = [f"{call.__name__} {fields[column]}" for call, fields, column in COLUMNS]


def _batch(columns: int) -> list[Arrays]:
    return [[np.zeros(2), np.zeros(0), np.zeros(3)] for _ in range(columns)]


@rows(("call", "fields", "empty"), CALLS)
def test_no_sequence_is_refused(call: Callable[..., object], fields: tuple[str, ...], empty: str) -> None:
    """A batch holds at least one sequence."""
    with pytest.raises(InvalidField) as caught:
        call(*[[] for _ in fields])

    assert (caught.value.field, caught.value.message) == (empty, "is empty")
    assert caught.value.code is Code.INVALID_ARGUMENT


@rows(("call", "fields", "column"), COLUMNS, ids=IDS)
@rows("row", [0, 1, 2])
def test_another_length_is_refused(call: Callable[..., object], fields: tuple[str, ...], column: int, row: int) -> None:
    """The arrays of a sequence have one length: that of its log-probabilities."""
    batch = _batch(len(fields))
    batch[column][row] = np.zeros(7)

    with pytest.raises(InvalidField) as caught:
        call(*batch)

    wrong = column or 1  # all others differ from the first: the second is the first to be found
    assert caught.value.field == fields[wrong].format(row)
    assert "(7,)" in caught.value.message


@rows(("call", "fields", "column"), COLUMNS, ids=IDS)
@rows("wrong", [np.zeros((3, 1)), np.zeros(())], ids=["two", "none"])
def test_another_number_of_dimensions_is_refused(
    call: Callable[..., object], fields: tuple[str, ...], column: int, wrong: np.ndarray
) -> None:
    """Each array has one dimension."""
    batch = _batch(len(fields))
    batch[column][2] = wrong

    with pytest.raises(InvalidField) as caught:
        call(*batch)

    assert caught.value.field == fields[column].format(2)


@rows(("call", "fields", "column"), COLUMNS, ids=IDS)
@rows("dtype", ["U3", "O", "c16", "M8[s]"])
def test_what_is_no_number_is_refused(
    call: Callable[..., object], fields: tuple[str, ...], column: int, dtype: str
) -> None:
    """Text, objects, complex numbers and times have no place in a metric."""
    batch = _batch(len(fields))
    batch[column][2] = np.zeros(3, np.dtype(dtype))

    with pytest.raises(InvalidField) as caught:
        call(*batch)

    assert caught.value.field == fields[column].format(2)
    assert "holds" in caught.value.message


@rows(
    ("call", "fields", "column"), [row for row in COLUMNS if row[2]], ids=[i for i, row in zip(IDS, COLUMNS) if row[2]]
)
@rows("count", [0, 2, 4])
def test_another_number_of_arrays_is_refused(
    call: Callable[..., object], fields: tuple[str, ...], column: int, count: int
) -> None:
    """There is one array of each kind per sequence."""
    batch = _batch(len(fields))
    batch[column] = (batch[column] * 2)[:count]

    with pytest.raises(InvalidField) as caught:
        call(*batch)

    assert caught.value.field == fields[column].partition("[{}]")[0]
    assert f"{count} tensors for 3" in caught.value.message
