"""The simulator of a pool: where its throughput has a closed form, and what no parameters may break."""

import dataclasses
import importlib
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tables import rows

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
EXACT = {"timer": 0.0}
"""An event loop that is never late."""
TUNED = {
    "latency": 0.1,
    "loop_sample": 1e-4,
    "apart": 1e-4,
    "begin": 3e-4,
    "transaction": 2e-3,
    "submission": 5e-4,
    "event": 2e-4,
    "lease": 1e-3,
    "part_end": 2e-4,
    "worker_share": 0.2,
    "database_share": 0.3,
    "spread": 0.5,
    "handover": ((0, 0.0), (1, 1e-4), (63, 5e-4)),
    "background": 0.05,
    "start": 0.1,
    "finish": 0.1,
    "finish_sample": 1e-5,
}


@pytest.fixture(scope="module")
def model() -> ModuleType:
    """benchmarks/_pool_model.py, which is no package's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return importlib.import_module("_pool_model")


def _steady(model: ModuleType, parameters: dict[str, Any], seed: int = 0, **pool: Any) -> Any:
    """Ten seconds of an evaluation without an end, after two."""
    return model.simulate(model.Parameters(**parameters), model.Pool(**pool), window=(2.0, 12.0), seed=seed)


@rows("workers", [1, 3, 8])
def test_without_any_cost_each_worker_has_the_rate_of_its_latency(workers: int, model: ModuleType):
    """Little's law: samples at work, divided by the time of one."""
    outcome = _steady(model, {**EXACT, "latency": 0.125}, workers=workers, concurrency=16)

    assert outcome.rate == pytest.approx(workers * 16 / 0.125, rel=0.02)
    assert model.waited(outcome.commits, 1.0) == 0.0
    assert max(outcome.utilisations.values()) == 0.0


@rows("hold", [0.001, 0.004])
def test_the_lock_bounds_the_rate_by_what_an_event_costs_under_it(hold: float, model: ModuleType):
    """With enough to do, the lock is never free, and the rate is 1 / the time of an event."""
    outcome = _steady(model, {**EXACT, "latency": 0.01, "event": hold}, workers=4, concurrency=16)

    assert outcome.rate == pytest.approx(1 / hold, rel=0.1)
    assert outcome.lock == pytest.approx(1.0, abs=0.02)
    assert model.waited(outcome.commits, 0.5) > hold


def test_the_interpreter_of_a_worker_bounds_its_rate(model: ModuleType):
    """More cores do not help one worker, more workers do."""
    parameters = {**EXACT, "latency": 0.001, "loop_sample": 0.005}

    one = _steady(model, parameters, workers=1, host_cores=8)
    two = _steady(model, parameters, workers=2, host_cores=8, workers_per_host=2)

    assert one.rate == pytest.approx(200, rel=0.05)
    assert two.rate == pytest.approx(400, rel=0.05)
    assert one.interpreter == pytest.approx(1.0, abs=0.02)


def test_workers_of_one_host_share_its_cores(model: ModuleType):
    """Eight workers on two cores are as fast as two; with as many cores as workers, each has its own."""
    parameters = {**EXACT, "latency": 0.001, "loop_sample": 0.005}

    shared = _steady(model, parameters, workers=8, host_cores=2, workers_per_host=8)
    apart = _steady(model, parameters, workers=8, host_cores=2, workers_per_host=1)

    assert shared.rate == pytest.approx(400, rel=0.05)
    assert apart.rate == pytest.approx(1_600, rel=0.05)
    assert shared.host == pytest.approx(1.0, abs=0.02)


def test_a_database_on_the_same_host_and_other_programs_take_cores_from_workers(model: ModuleType):
    """What is the database's and what is others' leaves less for event loops."""
    parameters = {**EXACT, "latency": 0.001, "loop_sample": 0.005, "event": 0.001, "database_share": 1.0}
    pool = {"workers": 2, "host_cores": 1, "workers_per_host": 2}

    apart = _steady(model, parameters, **pool)
    together = _steady(model, parameters, **pool, database_cores=None)
    disturbed = _steady(model, parameters, **pool, database_cores=None, other_cores=0.5)

    assert apart.rate == pytest.approx(200, rel=0.05)
    assert together.rate == pytest.approx(1 / 0.006, rel=0.05)
    assert disturbed.rate < 0.9 * together.rate


def test_a_lock_that_is_waited_for_is_handed_over_with_a_delay(model: ModuleType):
    """The delay counts as time of the lock, as no other writer has it meanwhile; alone there is none."""
    parameters = {**EXACT, "latency": 0.01, "transaction": 0.002, "handover": ((0, 0.0), (1, 0.01), (7, 0.03))}
    swift = {**parameters, "handover": ((0, 0.0),)}

    alone = _steady(model, parameters, workers=1, concurrency=1)
    several, swiftly = (_steady(model, given, workers=8, concurrency=1) for given in (parameters, swift))

    assert alone.lock == pytest.approx(_steady(model, swift, workers=1, concurrency=1).lock, rel=0.01)
    assert several.lock == pytest.approx(1.0, abs=0.02)
    assert len(several.commits) / several.seconds < 1 / 0.012 < len(swiftly.commits) / swiftly.seconds


def test_an_evaluation_takes_what_each_of_its_stages_takes(model: ModuleType):
    """From the call: the start, the samples in turns, the end; every sample is committed once."""
    parameters = model.Parameters(**EXACT, latency=0.5, start=1.0, finish=2.0, finish_sample=0.01)

    outcome = model.simulate(parameters, model.Pool(workers=1, concurrency=32), samples=320)

    assert outcome.seconds == pytest.approx(1.0 + 10 * 0.5 + 2.0 + 3.2)
    assert outcome.samples == 320


def test_workers_that_join_share_the_parts(model: ModuleType):
    """A long evaluation is nearly as many times as fast as there are workers, never more."""
    parameters = model.Parameters(**EXACT, latency=0.1, start=0.05, finish=0.05)

    one, four = (model.simulate(parameters, model.Pool(workers=workers), samples=20_000) for workers in (1, 4))

    assert 3.6 < one.seconds / four.seconds <= 4
    assert one.samples == four.samples == 20_000


def test_the_same_seed_has_the_same_result(model: ModuleType):
    """Another seed has another one, as transactions do not always take the same time."""
    first, again, other = (
        dataclasses.asdict(_steady(model, TUNED, seed=seed, workers=3, concurrency=8)) for seed in (7, 7, 8)
    )

    assert first == again
    assert first != other


def test_notes_of_commits_cost_every_worker_and_the_database(model: ModuleType):
    """With them, the same pool keeps interpreters and the database busier."""
    silent = _steady(model, TUNED, workers=4, concurrency=8)
    told = _steady(model, {**TUNED, "note": model.Cpu(worker=1e-4, database=1e-4)}, workers=4, concurrency=8)

    assert told.interpreter > silent.interpreter
    assert told.database > silent.database


def test_an_evaluation_without_an_end_needs_a_window(model: ModuleType):
    """It would be simulated for ever."""
    with pytest.raises(ValueError, match="window that ends"):
        model.simulate(model.Parameters(latency=0.1), model.Pool(workers=1))


@settings(max_examples=25, deadline=None)
@given(
    workers=st.integers(1, 6),
    concurrency=st.integers(1, 40),
    latency=st.floats(0.005, 0.2),
    loop=st.floats(0.0, 0.005),
    transaction=st.floats(0.0, 0.01),
    event=st.floats(0.0, 0.005),
    share=st.floats(0.0, 0.5),
    per_host=st.integers(1, 3),
    seed=st.integers(0, 5),
)
def test_no_pool_does_more_than_its_parts_can(
    model: ModuleType,
    workers: int,
    concurrency: int,
    latency: float,
    loop: float,
    transaction: float,
    event: float,
    share: float,
    per_host: int,
    seed: int,
):
    """Neither more than its model answers, nor than a lock, an interpreter or a core allows; each sample once."""
    samples, pool = 400, model.Pool(workers=workers, concurrency=concurrency, workers_per_host=per_host)
    parameters = model.Parameters(
        latency=latency,
        loop_sample=loop,
        transaction=transaction,
        event=event,
        worker_share=share,
        database_share=share,
        timer=0.0,
    )

    outcome = model.simulate(parameters, pool, samples=samples, seed=seed)

    least = max(
        math.ceil(samples / (workers * concurrency)) * (latency - concurrency * loop),
        samples * event + transaction,
        samples * (loop + event * share) / workers,
        samples * (loop + event * share) / (math.ceil(workers / per_host) * pool.host_cores),
    )
    assert outcome.samples == samples
    assert outcome.seconds >= least * (1 - 1e-9)
    assert all(busy <= 1 + 1e-9 for busy in outcome.utilisations.values())
    released = 0.0
    for commit in outcome.commits:
        assert released <= commit.locked + 1e-12
        assert commit.asked <= commit.locked <= commit.released
        released = commit.released
