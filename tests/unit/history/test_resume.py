"""Evaluations whose owner has died: what is known of them then."""

from crucible_bridge.types import EvaluationState, ServerEngine, Usage
from crucible_worker.history import lifecycle
from crucible_worker.history.lifecycle import Reaper
from crucible_worker.journal.queries import evaluation_of, find_by_number
from tests.unit.journal.journals import claim, commit

ENGINE = ServerEngine(name="vllm")


async def test_an_evaluation_whose_owner_died_reports_what_its_samples_took(journal, locks):
    """The sum is that of all samples until then, of attempts before as well, and stays when it is cancelled."""
    row = (await claim(journal, locks)).row
    await commit(journal, row, 0, usage=Usage(prompt_tokens=5, output_tokens=2, calls=1))
    before = Usage(prompt_tokens=5, output_tokens=2, calls=1)
    await journal.submit(lambda t: lifecycle.interrupt(t, locks, row, 0, "drain", usage=before, engine=ENGINE))
    row = (await claim(journal, locks)).row
    await commit(journal, row, 1, usage=Usage(prompt_tokens=7, cached_prompt_tokens=4, calls=2, unreported_calls=1))
    await journal.submit(lambda t: locks.release_in(t, row.number))
    orphans = Reaper(journal, locks)

    settled = evaluation_of(await orphans.reap(await journal.read(find_by_number, row.number)))
    cancelled = evaluation_of(await journal.submit(lambda t: lifecycle.cancel(t, locks, row.number, "enough")))

    took = Usage(prompt_tokens=12, cached_prompt_tokens=4, output_tokens=2, calls=3, unreported_calls=1)
    assert (settled.state, settled.usage, settled.engine) == (EvaluationState.INTERRUPTED, took, ENGINE)
    assert (cancelled.state, cancelled.usage, cancelled.engine) == (EvaluationState.CANCELLED, took, ENGINE)
