"""What is large, slow or late stays within its bounds, and costs the others nothing."""

import asyncio

import numpy as np
import pytest

from crucible_bridge.errors import Code
from crucible_bridge.problems import MAX_PROBLEM_BYTES
from crucible_bridge.types import Datum, EvaluationState, Limits, Sample
from crucible_worker.events import streams
from crucible_worker.journal import queries
from tests.service.evaluation_kit import HeldModel, asked, held_loading, refused, rig


async def test_reason_of_a_cancel_is_kept_short():
    """A reason of megabytes becomes a problem's message, not a row that no page can carry."""
    async with rig(HeldModel()) as r:
        await r.evaluation.start_evaluation(asked(evaluation_id="e"))

        evaluation = await r.evaluation.cancel_evaluation("e", "x" * 2_000_000)

        assert evaluation.state is EvaluationState.CANCELLED
        assert len(evaluation.problem.message.encode()) <= MAX_PROBLEM_BYTES
        assert evaluation.problem.message.startswith("xxx")


async def test_pages_of_evaluations_end_by_their_size(monkeypatch):
    """A page holds no more than EVALUATION_PAGE_BYTES and one evaluation; the token leads to the rest."""
    monkeypatch.setattr(queries, "EVALUATION_PAGE_BYTES", 1_000)
    async with rig() as r:
        for index in range(4):
            await r.evaluation.evaluate(asked(evaluation_id=f"e{index}", labels={"why": "y" * 900}))

        page = await r.evaluation.list_evaluations(page_size=100)
        every = [evaluation.evaluation_id async for evaluation in r.evaluation.all_evaluations()]

        assert len(page.items) < 4
        assert page.next_page_token
        assert every == ["e3", "e2", "e1", "e0"]


async def test_pages_of_events_end_by_their_size(monkeypatch):
    """A batch holds no more than EVENT_PAGE_BYTES and one event, and none is left out."""
    monkeypatch.setattr(streams, "EVENT_PAGE_BYTES", 300)
    async with rig() as r:
        await r.evaluation.evaluate(asked(evaluation_id="e"))

        async with r.worker.bridge.telemetry.subscribe(until_now=True) as stream:
            batches = [batch async for batch in stream.batches()]

        sequences = [event.sequence for batch in batches for event in batch.events]
        assert len(batches) > 2
        assert sequences == list(range(1, len(sequences) + 1))


@pytest.fixture
def slow_loading(monkeypatch):
    """Data sets whose loading waits until it is let go."""
    with held_loading(monkeypatch) as events:
        yield events


async def test_deadline_holds_while_the_data_set_is_loaded(slow_loading):
    """deadline_ms counts from receipt: when it is over before anything could start, nothing is started."""
    async with rig() as r:
        error = await refused(
            r.evaluation.evaluate(asked(evaluation_id="e", limits=Limits(deadline_ms=50))),
            Code.DEADLINE_EXCEEDED,
            "DEADLINE_EXCEEDED",
            "limits.deadline_ms",
        )

        assert error.metadata["evaluation_id"] == "e"
        await refused(r.evaluation.get_evaluation("e"), Code.NOT_FOUND, "UNKNOWN_EVALUATION", "evaluation_id")


async def test_slow_loading_delays_no_other_call(slow_loading):
    """However many data sets are being loaded, reads are answered."""
    begun, let_go = slow_loading
    async with rig() as r:
        starts = [
            asyncio.create_task(r.evaluation.start_evaluation(asked(evaluation_id=f"e{index}"))) for index in range(16)
        ]
        await asyncio.to_thread(begun.wait)

        page = await r.evaluation.list_evaluations()

        assert page.items == ()
        assert not any(start.done() for start in starts)
        let_go.set()
        await asyncio.gather(*starts)


async def test_drain_does_not_wait_for_a_data_set(slow_loading):
    """A start whose data set is still being loaded is refused as draining; what runs is interrupted all the same."""
    begun, let_go = slow_loading
    async with rig(HeldModel()) as r:
        let_go.set()
        await r.evaluation.start_evaluation(asked(evaluation_id="runs"))
        await r.model.asked.wait()
        let_go.clear()
        begun.clear()
        late = asyncio.create_task(
            refused(r.evaluation.start_evaluation(asked(evaluation_id="late")), Code.UNAVAILABLE, "DRAINING")
        )
        await asyncio.to_thread(begun.wait)

        assert (await r.worker.bridge.worker.drain()).interrupted == ("runs",)
        await late


async def test_datum_whose_structure_is_wrong_is_refused_by_its_path():
    """Arrays that do not fit are the request's error, named by index and key; values are the sample's."""
    right = Datum(model_input=[1, 2], loss_fn_inputs={"target_tokens": [2, 3], "weights": [1.0, np.nan]})
    short = Datum(model_input=[1, 2], loss_fn_inputs={"target_tokens": [2, 3], "weights": [1.0]})
    missing = Datum(model_input=[1, 2], loss_fn_inputs={"target_tokens": [2, 3]})
    async with rig() as r:
        for wrong in (short, missing):
            request = asked(evaluation_id="e", evaluators=["nll"], dataset=[Sample(input=right), Sample(input=wrong)])
            path = 'dataset.inline.samples[1].datum.loss_fn_inputs["weights"]'
            await refused(r.evaluation.evaluate(request), Code.INVALID_ARGUMENT, "INVALID_FIELD", path)

        alone = asked(evaluation_id="e", evaluators=["nll"], dataset=[Sample(input=right)])
        evaluation = await r.evaluation.evaluate(alone)
        assert evaluation.results[0].n_errors == 1
