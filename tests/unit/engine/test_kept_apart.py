"""Large options and labels of a request: written once, whatever is written of the evaluation later."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgpack
import pytest

from crucible_bridge.errors import AlreadyExists
from crucible_bridge.types import EvaluateRequest, EvaluationState, EvaluatorResult, EvaluatorSpec, Metrics
from crucible_worker.engine import claims
from crucible_worker.history import lifecycle, retention
from crucible_worker.history.retention import Retention
from crucible_worker.journal import queries
from crucible_worker.journal.packing import pack
from tests.unit.journal.journals import commit, open_journal, owner_locks, request

LARGE = 512 * 1024
COMMITS = 50
WRITTEN_TIMES = 2
"""To the write-ahead log, and from there to the journal."""


def large(evaluation_id: str = "e", size: int = LARGE) -> EvaluateRequest:
    """A request with options of this size, and many labels."""
    labels = {f"label {index}": "v" * 900 for index in range(60)}
    return request(evaluation_id, evaluators=[EvaluatorSpec(kind="nll", options={"text": "x" * size})], labels=labels)


async def claimed(journal, locks, wanted, fingerprint="f"):
    """Become the owner."""
    contents = claims.Contents(dataset_fingerprint="d", model_fingerprint="m", total=COMMITS)
    return await journal.submit(
        lambda t: claims.claim(t, locks, wanted, fingerprint=fingerprint, contents=contents, worker_id="w")
    )


async def complete(journal, locks, row, wanted):
    """End an evaluation with a result."""
    results = [EvaluatorResult(evaluator=spec, metrics=Metrics({"nll": 1.0}), n=COMMITS) for spec in wanted.evaluators]
    await journal.submit(
        lambda t: lifecycle.complete(
            t, locks, row, metrics=Metrics({"nll": 1.0}), results=results, sample_count=COMMITS, active_ns=1
        )
    )
    return results


def _written() -> int:
    """Bytes that this process has written so far, to whatever file."""
    line = next(line for line in Path("/proc/self/io").read_text().splitlines() if line.startswith("wchar"))
    return int(line.split()[1])


async def test_options_are_written_once(tmp_path):
    """Commits of samples, progress, and the end write no options again: what they cost is as without."""
    cost = {}
    for size in (10, LARGE):
        folder = tmp_path / str(size)
        before = _written()
        with owner_locks(folder) as locks:
            async with open_journal(folder) as journal:
                wanted = large(size=size)
                row = (await claimed(journal, locks, wanted)).row
                for position in range(COMMITS):
                    await commit(journal, row, position)
                await journal.submit(lambda t, row=row: lifecycle.progress(t, row, 1.0, 1))
                await complete(journal, locks, row, wanted)
        cost[size] = _written() - before
    assert cost[LARGE] - cost[10] < (WRITTEN_TIMES + 1) * LARGE


async def test_an_evaluation_has_its_whole_request(journal, locks):
    """However it is found, running and ended, and so have its results."""
    wanted = large()
    row = (await claimed(journal, locks, wanted)).row
    results = await complete(journal, locks, row, wanted)
    (listed,), _ = await journal.read(queries.list_rows)
    for found in (await journal.read(queries.find, "e"), await journal.read(queries.find_by_number, 1), listed):
        evaluation = queries.evaluation_of(found)
        assert evaluation.request == wanted
        assert evaluation.results == tuple(results)


async def test_a_take_over_keeps_it(journal, locks):
    """The next attempt has the options and labels of the first, and the limits of its own request."""
    wanted = large()
    row = (await claimed(journal, locks, wanted)).row
    await journal.submit(lambda t: lifecycle.interrupt(t, locks, row, 0, "drain"))
    limits = dataclasses.replace(wanted.limits, concurrency=7)
    again = await claimed(journal, locks, dataclasses.replace(wanted, limits=limits))
    assert (again.existed, again.owned) == (True, True)
    assert queries.evaluation_of(again.row).request == dataclasses.replace(wanted, limits=limits)


async def test_a_row_with_everything_in_it_is_read_and_taken_over(journal, locks):
    """An older worker keeps large options in the row: they are read there, and are apart from the next attempt on."""
    wanted = large()
    row = (await claimed(journal, locks, wanted)).row
    await journal.submit(lambda t: lifecycle.interrupt(t, locks, row, 0, "drain"))

    def as_before(transaction):
        transaction.execute("DELETE FROM requests_apart")
        record = pack({**msgpack.unpackb(row.request), "evaluators": [_plain(spec) for spec in wanted.evaluators]})
        transaction.execute("UPDATE evaluations SET request = ?", (record,))

    await journal.submit(as_before)
    older = await journal.read(queries.find, "e")
    assert older.apart is None
    assert queries.evaluation_of(older).request.evaluators == wanted.evaluators
    again = (await claimed(journal, locks, wanted)).row
    assert len(again.request) < LARGE < len(again.apart)
    assert queries.evaluation_of(again).request.evaluators == wanted.evaluators


def _plain(spec):
    return {"kind": spec.kind, "name": spec.name, "options": dict(spec.options)}


async def test_other_options_are_named(journal, locks):
    """The refusal of another specification names what differs, and of equal large options nothing."""
    await claimed(journal, locks, large())
    with pytest.raises(AlreadyExists) as caught:
        await claimed(journal, locks, dataclasses.replace(large(), step=3), "other")
    assert caught.value.metadata["differs"] == "step"
    with pytest.raises(AlreadyExists) as caught:
        await claimed(journal, locks, large(size=LARGE + 1), "other")
    assert "options" in caught.value.metadata["differs"]


async def test_it_goes_with_its_evaluation(journal, locks):
    """Nothing is left of what was kept apart when retention has removed the evaluation."""
    wanted = large()
    row = (await claimed(journal, locks, wanted)).row
    await complete(journal, locks, row, wanted)
    assert (await journal.read(queries.find, "e")).state is EvaluationState.COMPLETED
    await journal.submit(lambda t: t.execute("UPDATE evaluations SET ended_ns = 1"))
    short = Retention(max_events=0, evaluation_seconds=1, interrupted_seconds=0, plan_seconds=0)
    while await journal.submit(lambda t: retention.trim(t, locks, short)):
        pass
    assert await journal.read(lambda c: c.execute("SELECT COUNT(*) FROM requests_apart").fetchone()) == (0,)
