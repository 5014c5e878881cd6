"""How the simulator of a pool turns measurements into parameters, and finds where a bottleneck begins."""

import importlib
import math
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def measures() -> ModuleType:
    """benchmarks/_pool_measures.py, which is no package's."""
    return _loaded("_pool_measures")


@pytest.fixture(scope="module")
def simulator() -> ModuleType:
    """benchmarks/pool_simulator.py, likewise."""
    return _loaded("pool_simulator")


def _loaded(name: str) -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return importlib.import_module(name)


def test_a_line_through_exact_values_has_their_coefficients(measures: ModuleType):
    """Least squares."""
    rows = [(1, submissions, events) for submissions in (1, 2, 5) for events in (1, 8, 40)]

    found = measures._line(rows, [2.0 + 0.5 * submissions + 0.1 * events for _, submissions, events in rows])

    assert found == pytest.approx([2.0, 0.5, 0.1])


def test_no_coefficient_of_a_line_is_negative(measures: ModuleType):
    """Nothing takes less than no time: what would be below 0 is left out, and the rest fits as well as it can."""
    rows = [(1, count) for count in (1, 2, 3)]

    assert measures._line(rows, [3.0, 2.0, 1.0]) == pytest.approx([2.0, 0.0])


def test_a_handover_is_what_a_transaction_takes_beyond_one_alone(measures: ModuleType):
    """By the number that waits: one less than the writers; it is never negative."""
    alone, two, eight = (
        measures.Contention(writers=writers, transactions=count, time=1.0, hold=0.002)
        for writers, count in ((1, 400), (2, 1_000), (8, 250))
    )

    found = measures._handovers([alone, two, eight])

    assert [one.waiting for one in found] == [0, 1, 7]
    assert [one.seconds for one in found] == pytest.approx([0.0, 0.0, 0.002])


def test_a_bottleneck_begins_at_the_smallest_pool_that_has_it(simulator: ModuleType):
    """Between the sizes that are printed, too."""
    # A worker has 32 samples a second; the lock does 400 at most, which is 90 % of the ideal of 13 workers or fewer.
    parameters = simulator.Parameters(latency=0.5, event=1 / 400, timer=0.0)
    options = simulator.Options(
        samples=1, latency=0.5, concurrency=16, runs=1, host_cores=2, workers_per_host=1, database_cores=2, seed=0
    )

    outcomes = simulator.predicted(parameters, options)
    found = {one.what: one.workers for one, _ in simulator.bottlenecks(parameters, options, outcomes)}

    assert found["less than 90% of the ideal"] == pytest.approx(math.ceil(400 / (0.9 * 32)), abs=1)
    assert found["the head row's lock is busy 90% of the time"] == pytest.approx(math.ceil(0.9 * 400 / 32), abs=1)
    assert found["the cores of the database is busy 90% of the time"] is None
