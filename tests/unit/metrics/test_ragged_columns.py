"""Sequences that lie end to end give the numbers that a list of them gives."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Ragged
from crucible_worker.metrics.kl import kl_post_update, kl_sample_train
from crucible_worker.metrics.kl_penalty import incorporate_kl_penalty
from crucible_worker.metrics.nll import mean_nll
from crucible_worker.metrics.sequences import BLOCK_TOKENS
from tests.tables import rows

LENGTHS = [3, 0, BLOCK_TOKENS - 1, 2 * BLOCK_TOKENS + 5, 1, 700]
Columns = dict[str, Sequence[np.ndarray]]

CALLS: dict[str, tuple[Callable[[Columns], Any], tuple[str, ...]]] = {
    "kl_sample_train": (
        lambda c: kl_sample_train(c["a"], c["b"], c["mask"], extended=True),
        ("a", "b", "mask"),
    ),
    "kl_post_update": (lambda c: kl_post_update(c["a"], c["b"], c["mask"]), ("a", "b", "mask")),
    "incorporate_kl_penalty": (
        lambda c: incorporate_kl_penalty(c["a"], c["b"], c["mask"], c["advantages"], coef=0.5, discount=0.9),
        ("a", "b", "mask", "advantages"),
    ),
    "mean_nll": (lambda c: mean_nll(c["a"], c["mask"]), ("a", "mask")),
}


def ragged(names: Sequence[str], dtype: str) -> dict[str, Ragged]:
    """Random columns of the same lengths; a mask has zeros, under one of which lies a NaN."""
    rng, lengths = np.random.default_rng(3), np.array(LENGTHS)
    columns = {name: rng.normal(-2, 1, lengths.sum()).astype(dtype) for name in names}
    columns["mask"] = (rng.random(lengths.sum()) < 0.7).astype(np.uint8)
    columns["a"][np.flatnonzero(columns["mask"] == 0)[0]] = np.nan
    return {name: Ragged(column, lengths) for name, column in columns.items()}


@rows("dtype", ["f4", "f8"])
@rows("name", CALLS)
def test_ragged_columns_give_what_lists_give(name: str, dtype: str):
    """To the last digits: blocks are cut elsewhere, and sums rounded elsewhere."""
    call, names = CALLS[name]
    columns = ragged(names, dtype)

    one, many = call({**columns}), call({key: list(column) for key, column in columns.items()})

    assert one.metrics.undefined == many.metrics.undefined
    assert one.metrics.values.keys() == many.metrics.values.keys()
    for key, value in one.metrics.values.items():
        assert value == pytest.approx(many.metrics.values[key], rel=1e-12, abs=1e-12)
    for left, right in zip(getattr(one, "advantages", ()), getattr(many, "advantages", ()), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-6)
    for key, array in getattr(one, "per_sequence", {}).items():
        np.testing.assert_allclose(array, many.per_sequence[key], rtol=1e-9, equal_nan=True)


@rows("offset", [1, 3, 4])
@rows("name", CALLS)
def test_columns_may_lie_anywhere_in_memory(name: str, offset: int):
    """Views of a message begin at any byte: the same bits as of columns that are aligned."""
    call, names = CALLS[name]
    columns = ragged(names, "f8")
    moved = {key: column.like(_moved(column.values, offset)) for key, column in columns.items()}

    aligned, unaligned = call({**columns}), call({**moved})

    assert unaligned.metrics == aligned.metrics
    for left, right in zip(getattr(unaligned, "advantages", ()), getattr(aligned, "advantages", ()), strict=True):
        np.testing.assert_array_equal(left, right)


def _moved(values: np.ndarray, offset: int) -> np.ndarray:
    """A read-only view that begins so many bytes into its memory."""
    return np.frombuffer(bytes(offset) + values.tobytes(), values.dtype, offset=offset)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_advantages_come_back_end_to_end(dtype: str):
    """Of the same lengths and dtype, in new memory."""
    call, names = CALLS["incorporate_kl_penalty"]
    columns = ragged(names, dtype)

    advantages = call({**columns}).advantages

    assert isinstance(advantages, Ragged)
    assert advantages.values.dtype == dtype
    assert advantages.lengths.tolist() == LENGTHS
    assert not np.shares_memory(advantages.values, columns["advantages"].values)


@rows("name", CALLS)
def test_columns_of_other_lengths_are_refused(name: str):
    """The same number of values, parted elsewhere."""
    call, names = CALLS[name]
    columns = ragged(names, "f8")
    columns["mask"] = Ragged(columns["mask"].values, np.array([*LENGTHS[:-2], 2, 699]))

    with pytest.raises(InvalidField, match=r"has shape \(2,\), logprobs \(1,\)"):
        call({**columns})
