"""The penalty: formulas, what it leaves alone, and advantages that are never poisoned."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import KLPenalty, Ragged
from crucible_worker.metrics.kl_penalty import incorporate_kl_penalty
from tests.tables import rows

token = st.tuples(st.floats(-20, 0), st.floats(-20, 0), st.sampled_from([0.0, 0.5, 1.0]), st.floats(-5, 5))
batches = st.lists(st.lists(token, min_size=1, max_size=12), min_size=1, max_size=5)


def _lists(result: KLPenalty) -> list[list[float]]:
    return [np.asarray(array).tolist() for array in result.advantages]


def _columns(batch):
    return [[np.array([row[k] for row in datum]) for datum in batch] for k in range(4)]


def test_the_formula_without_discount() -> None:
    """Each action token's advantage changes by how far its difference lies from the average."""
    result = incorporate_kl_penalty(
        [np.array([-1.0, -2.0]), np.array([-3.0])],
        [np.array([-2.0, -9.0]), np.array([-6.0])],
        [np.array([1, 0]), np.array([1])],
        [np.array([10.0, 20.0]), np.array([30.0])],
        coef=0.5,
        discount=0.0,
    )

    assert result.metrics.values == {"kl_policy_base": 2.0}
    assert _lists(result) == [[10 + 0.5 * (2 - 1), 20.0], [30 + 0.5 * (2 - 3)]]


def test_with_discount_a_token_answers_for_those_after_it() -> None:
    """Penalties add up from the end, within their sequence only, masked tokens included in the steps."""
    mask = np.array([1, 0, 1])

    result = incorporate_kl_penalty(
        [np.array([-1.0, -5.0, -1.0]), np.array([-1.0])],
        [np.array([-2.0, -9.0, -4.0]), np.array([-6.0])],
        [mask, np.ones(1)],
        [np.zeros(3), np.zeros(1)],
        coef=1.0,
        discount=0.5,
    )

    assert result.metrics.values == {"kl_policy_base": 3.0}
    assert _lists(result) == [[2 + 0.25 * 0, 0.0, 0.0], [-2.0]]


def test_the_reverse_kl_of_distillation_has_no_mean() -> None:
    """Each action token's advantage falls by its own difference, and data sets have their own averages."""
    result = incorporate_kl_penalty(
        [np.array([-1.0, -2.0]), np.array([-3.0]), np.array([-1.0])],
        [np.array([-2.0, -9.0]), np.array([-6.0]), np.array([-1.0])],
        [np.array([1, 0]), np.array([1]), np.array([0])],
        [np.array([10.0, 20.0]), np.array([30.0]), np.array([40.0])],
        coef=0.5,
        discount=0.0,
        reverse_kl=True,
        datasets=["sums", "puns", "none"],
    )

    assert result.metrics.values == {
        "teacher_kl": 2.0,
        "teacher_kl/dataset_puns": 3.0,
        "teacher_kl/dataset_sums": 1.0,
    }
    assert list(result.metrics.undefined) == ["teacher_kl/dataset_none"]
    assert _lists(result) == [[9.5, 20.0], [28.5], [40.0]]


@rows(
    ("options", "field"),
    [({"datasets": ["a"]}, "datasets"), ({"datasets": ["a", "b"], "reverse_kl": True}, "datasets")],
)
def test_data_sets_need_the_reverse_kl_and_a_name_each(options: dict, field: str) -> None:
    """Another number of names is refused, and names that nothing reads."""
    one = [np.array([-1.0])]

    with pytest.raises(InvalidField) as refused:
        incorporate_kl_penalty(one, one, [np.ones(1)], [np.zeros(1)], coef=1.0, discount=0.0, **options)

    assert refused.value.field == field


def test_without_a_token_no_key_of_distillation_has_a_value() -> None:
    """Every one of them says why, and there are no advantages."""
    one = [np.array([-1.0])]
    result = incorporate_kl_penalty(
        one, one, [np.zeros(1)], [np.zeros(1)], coef=1.0, discount=0.0, reverse_kl=True, datasets=["a"]
    )

    assert (result.metrics.values, len(result.advantages)) == ({}, 0)
    assert list(result.metrics.undefined) == ["teacher_kl", "teacher_kl/dataset_a"]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_advantages_keep_their_dtype_and_the_input_its_values(dtype: type) -> None:
    """New arrays of the old type; those given are read only."""
    given_advantages = np.array([1.0, 2.0], dtype)
    logprobs, base, mask = np.array([-1.0, -2.0], np.float32), np.array([-2.0, -2.0]), np.array([1, 1])
    for array in (given_advantages, logprobs, base, mask):
        array.flags.writeable = False

    result = incorporate_kl_penalty([logprobs], [base], [mask], [given_advantages], coef=1.0, discount=0.9)

    assert result.advantages[0].dtype == dtype
    assert given_advantages.tolist() == [1.0, 2.0]


@rows(
    ("logprobs", "base", "mask", "reason"),
    [
        ([-1.0, -2.0], [-1.0, -2.0], [0.0, 0.0], "no action tokens"),
        ([-1.0, -2.0], [-1.0, -2.0], [1.0, -1.0], "the mask sums to 0"),
        ([math.nan, -2.0], [-1.0, -2.0], [1.0, 1.0], "1 of 2 log-probabilities is NaN (logprobs)"),
        ([-1.0, -2.0], [-math.inf, -math.inf], [1.0, 1.0], "2 of 2 log-probabilities are -inf (base_logprobs)"),
        ([-1.0, -2.0], [-1.0, -2.0], [math.nan, 1.0], "1 of 2 mask values is NaN"),
        ([-1.0, -2.0], [-2.0, -2.0], [math.inf, 1.0], "1 of 2 mask values is +inf"),
        ([-1e308, -1e308], [1e308, 0.0], [1.0, 1.0], "the sum is beyond float64"),
    ],
)
def test_without_an_average_there_are_no_advantages(
    logprobs: list[float], base: list[float], mask: list[float], reason: str
) -> None:
    """Nothing is poisoned: the average is undefined with its reason, and no advantage comes back."""
    result = incorporate_kl_penalty(
        [np.array(logprobs)], [np.array(base)], [np.array(mask)], [np.zeros(2)], coef=0.1, discount=0.9
    )

    assert result.metrics.values == {}
    assert result.metrics.undefined == {"kl_policy_base": reason}
    assert result.advantages == ()


@rows("value", [math.nan, math.inf, -math.inf])
@rows("discount", [0.0, 0.9])
def test_tokens_under_a_zero_mask_spoil_nothing(value: float, discount: float) -> None:
    """A log-probability where the mask is 0 does not matter, whatever it is."""
    batch = ([np.array([-2.0, -1.0])], [np.array([0, 1])], [np.array([1.0, 2.0])])

    poisoned = incorporate_kl_penalty([np.array([value, -2.0])], *batch, coef=1.0, discount=discount)
    clean = incorporate_kl_penalty([np.array([-7.0, -2.0])], *batch, coef=1.0, discount=discount)

    assert poisoned.metrics == clean.metrics
    assert _lists(poisoned) == _lists(clean)


@rows(
    ("coef", "discount", "field"),
    [
        (math.nan, 0.5, "kl_penalty_coef"),
        (math.inf, 0.5, "kl_penalty_coef"),
        (0.1, -0.1, "kl_discount_factor"),
        (0.1, 1.1, "kl_discount_factor"),
        (0.1, math.nan, "kl_discount_factor"),
    ],
)
def test_numbers_out_of_range_name_their_field(coef: float, discount: float, field: str) -> None:
    """A coefficient is finite, a discount lies in [0, 1]."""
    one = [np.ones(1)]

    with pytest.raises(InvalidField) as caught:
        incorporate_kl_penalty(one, one, one, one, coef=coef, discount=discount)

    assert caught.value.field == field


def test_advantages_are_floats() -> None:
    """Integers cannot take a penalty."""
    one = [np.ones(1)]

    with pytest.raises(InvalidField) as caught:
        incorporate_kl_penalty(one, one, one, [np.ones(1, np.int64)], coef=0.1, discount=0.0)

    assert caught.value.field == 'data[0].loss_fn_inputs["advantages"]'


@given(batches, st.sampled_from([0.0, 0.5, 1.0]))
def test_agrees_with_the_formula_token_by_token(batch, discount: float) -> None:
    """Average and advantages equal the formula, summed exactly and stepped through one by one."""
    result = incorporate_kl_penalty(*_columns(batch), coef=0.3, discount=discount)

    weight = math.fsum(row[2] for datum in batch for row in datum)
    if not weight:
        assert result.advantages == ()
        return
    average = math.fsum((row[0] - row[1]) * row[2] for datum in batch for row in datum) / weight
    assert result.metrics.values["kl_policy_base"] == pytest.approx(average, rel=1e-12, abs=1e-12)
    for datum, found in zip(batch, _lists(result)):
        running, expected = 0.0, []
        for logprob, base, mask, advantage in reversed(datum):
            running = 0.3 * mask * (average - (logprob - base) * mask) + discount * running
            expected.append(advantage + running)
        assert found == pytest.approx(expected[::-1], rel=1e-11, abs=1e-11)


@given(batches, st.randoms(use_true_random=False))
def test_the_order_of_sequences_does_not_matter(batch, random) -> None:
    """Sequences in another order get the advantages that they had."""
    order = random.sample(range(len(batch)), len(batch))

    straight = incorporate_kl_penalty(*_columns(batch), coef=0.3, discount=0.9)
    shuffled = incorporate_kl_penalty(*_columns([batch[index] for index in order]), coef=0.3, discount=0.9)

    for at, index in enumerate(order if straight.advantages else ()):
        assert _lists(shuffled)[at] == pytest.approx(_lists(straight)[index], abs=1e-12)


@pytest.mark.parametrize("share", [0.4, 0.5, 1.0])
def test_masks_of_both_signs_are_exact_enough(share: float) -> None:
    """Where a mask cancels, its sum is exact: 1e-12 of the mean absolute term, an outlier included."""
    rng = np.random.default_rng(7)
    logprobs, base = rng.normal(-2, 1, 100_000), rng.normal(-2, 1, 100_000)
    logprobs[777] = -1e18
    mask = np.where(rng.random(100_000) < share, -1.0, 1.0) * rng.random(100_000)
    # The rest of what is left after cancelling.
    mask[-1] -= math.fsum(mask) - 1e-3

    result = incorporate_kl_penalty([logprobs], [base], [mask], [np.zeros(100_000)], coef=1.0, discount=0.0)

    terms, weight = (logprobs - base) * mask, math.fsum(mask)
    exact, scale = math.fsum(terms) / weight, math.fsum(np.abs(terms)) / abs(weight)
    assert abs(result.metrics.values["kl_policy_base"] - exact) <= 1e-12 * scale


def test_columns_of_integers_name_the_column() -> None:
    """Once, whatever the number of sequences."""
    column = Ragged(np.ones(3, np.int64), np.array([2, 1]))

    with pytest.raises(InvalidField) as caught:
        incorporate_kl_penalty(column, column, column, column, coef=0.1, discount=0.0)

    assert caught.value.field == 'columns.values["advantages"]'


def test_a_data_set_whose_mask_cancels_is_told_from_one_without_action_tokens():
    """As the reasons of the whole are."""
    logprobs = [np.array([-1.0, -2.0]), np.array([-3.0]), np.array([-1.0])]
    masks = [np.array([1.0, -1.0]), np.array([1.0]), np.array([0.0])]
    advantages = [np.zeros(2), np.zeros(1), np.zeros(1)]

    found = incorporate_kl_penalty(
        logprobs, logprobs, masks, advantages, coef=1.0, discount=0.0, reverse_kl=True, datasets=["a", "b", "c"]
    )

    assert found.metrics.undefined == {
        "teacher_kl/dataset_a": "the mask sums to 0",
        "teacher_kl/dataset_c": "no action tokens",
    }


@rows("in_columns", [False, True])
def test_a_sequence_without_a_penalty_costs_no_other_its_advantages(in_columns: bool) -> None:
    """A token that the base policy considers impossible: the averages and advantages are those of the others."""
    logprobs = [np.array([-1.0, -2.0]), np.array([-3.0, -1.0]), np.array([-1.0])]
    base = [np.array([-2.0, -2.0]), np.array([-math.inf, -1.0]), np.array([-math.inf])]
    masks = [np.array([1.0, 1.0]), np.array([1.0, 1.0]), np.array([0.0])]
    advantages = [np.array([10.0, 20.0]), np.array([30.0, 30.0]), np.array([40.0])]
    lengths = np.array([2, 2, 1])
    columns = [
        Ragged(np.concatenate(column), lengths) if in_columns else column
        for column in (logprobs, base, masks, advantages)
    ]

    result = incorporate_kl_penalty(*columns, coef=2.0, discount=0.0)
    without = incorporate_kl_penalty(
        *([column[0], column[2]] for column in (logprobs, base, masks, advantages)), coef=2.0, discount=0.0
    )

    assert result.metrics == without.metrics
    assert result.metrics.values == {"kl_policy_base": 0.5}
    assert result.without_penalty == ("", "1 of 2 log-probabilities is -inf (base_logprobs)", "")
    first, lost, last = result.advantages
    assert (first.tolist(), last.tolist()) == ([9.0, 21.0], [40.0])
    assert np.isnan(lost).all() if in_columns else not lost.size
    assert lost.size == (2 if in_columns else 0)
