"""How samples are spread: every value is counted once, in a few bins that people can read."""

import math
import tracemalloc
from array import array

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from crucible_bridge.types import Problem, Verdict
from crucible_worker.reports.distributions import MAX_BINS, ResultDistributions, histogram, typical
from tests.unit.reports.evaluations_made import sampled


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
def test_every_value_is_in_a_bin(values: list[float]) -> None:
    """Whatever the values, the counts add up, edges rise, and the bins are few."""
    found = histogram(values)

    assert found is not None
    assert sum(found["counts"]) == len(values)
    assert len(found["edges"]) == len(found["counts"]) + 1 <= MAX_BINS + 1
    assert all(map(math.isfinite, found["edges"]))
    assert found["edges"] == sorted(found["edges"])
    assert found["edges"][0] <= min(values)
    assert found["edges"][-1] >= max(values)


@given(st.lists(st.integers(0, 2**31), min_size=1, max_size=50))
def test_whole_numbers_have_whole_edges(values: list[int]) -> None:
    """A bin of counts has a whole number of them, and the last one ends above the highest value."""
    found = histogram([float(value) for value in values], whole=True)

    assert found is not None
    assert all(edge == round(edge) for edge in found["edges"])
    assert found["edges"][-1] > max(values)
    assert sum(found["counts"]) == len(values)


def test_edges_are_round() -> None:
    """People read 0, 0.025, 0.05, not 0.0249999."""
    found = histogram([0.0, 0.7, 1.0])

    assert found is not None
    assert found["edges"][:3] == [0.0, 0.025, 0.05]
    assert found["counts"][28] == 1  # that from 0.7


def test_no_values_are_no_histogram() -> None:
    """Nothing is not zero."""
    assert histogram([]) is None


def test_typical_values_are_values_that_were_seen() -> None:
    """The median and the 95th percentile are values of the data, the mean is theirs; nothing is not zero."""
    assert typical([1.0, 2.0, 3.0, 100.0]) == {"mean": 26.5, "median": 2.0, "p95": 100.0}
    assert typical([]) is None


@example([0.0, 0.0, -9e307, -9e307, 0.0, 0.0, 9e307, 9e307])  # some sums of them overflow to both infinities
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
def test_typical_values_of_anything(values: list[float]) -> None:
    """However large the values, the median and the 95th percentile are among them and in order."""
    found = typical(values)

    assert found is not None
    assert {found["median"], found["p95"]} <= set(values)
    assert found["median"] <= found["p95"]


def test_results_are_counted_by_evaluator() -> None:
    """Verdicts, why samples have no score, why answers ended; numbers only where there are any."""
    distributions = ResultDistributions()
    refused = Problem(reason="PROMPT_TOO_LONG", message="")
    for result in (
        sampled(),
        sampled(verdict=Verdict.INCORRECT, score=0.0, stop_reason="length", output_tokens=40),
        sampled(verdict=Verdict.ERROR, score=None, problem=refused, stop_reason="", output_tokens=0, duration_ns=0),
        sampled(verdict=Verdict.UNDECIDED, score=None),
        sampled(evaluator="loss", verdict=Verdict.MEASURED, score=2.5, stop_reason="", output_tokens=0),
    ):
        distributions.add(result)
    found = distributions.as_data()

    assert found["right"]["verdicts"] == {"correct": 1, "incorrect": 1, "error": 1, "undecided": 1}
    assert found["right"]["unscored"] == [["PROMPT_TOO_LONG", 1], ["undecided", 1]]
    assert found["right"]["stops"] == {"stop": 2, "length": 1}
    assert sum(found["right"]["score"]["counts"]) == 2
    assert sum(found["right"]["seconds"]["counts"]) == 3
    assert sum(found["right"]["output_tokens"]["counts"]) == 3
    assert found["loss"]["score"] == {"edges": [2.5, 2.5], "counts": [1]}
    assert found["loss"]["output_tokens"] is None


def test_a_score_that_is_not_finite_is_left_out() -> None:
    """It belongs in no bin; its verdict counts."""
    distributions = ResultDistributions()
    distributions.add(sampled(score=math.nan))

    assert distributions.as_data()["right"]["score"] is None
    assert distributions.as_data()["right"]["verdicts"] == {"correct": 1}


def test_an_array_is_counted_as_a_list_is() -> None:
    """What the accumulator keeps is counted without a copy as objects."""
    values = np.random.default_rng(1).normal(size=1000)

    assert histogram(array("d", values)) == histogram(values.tolist())


def test_two_hundred_thousand_results_take_a_few_megabytes() -> None:
    """Three numbers of each are kept, and no text of it."""
    result = sampled(output="x" * 1_000)
    distributions = ResultDistributions()
    tracemalloc.start()
    try:
        for _ in range(200_000):
            distributions.add(result)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held < 8 * 1024 * 1024
    assert sum(distributions.as_data()["right"]["score"]["counts"]) == 200_000
