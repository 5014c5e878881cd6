"""Three workers on one journal: any of them answers for all, and goes on where another one died."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from crucible_bridge.client import Bridge
from crucible_bridge.errors import Unavailable
from crucible_bridge.events import EventKind
from crucible_bridge.types import Evaluation, EvaluationState
from tests.robustness.evidence import SAMPLES, bits, check_events, check_interrupted_run, log_of, request, samples_of
from tests.robustness.harness import WorkerProcess, Workshop, count_lines, until, workshop

LATENCY = 0.02
"""Of a model call, seconds: an evaluation takes some 0.4 s."""
TOGETHER = 2
"""Evaluations that the worker owns which is killed."""
CANCEL_STOPS_SECONDS = 0.3
"""After the reply to a cancel, no model call starts later than this where several workers share the journal."""
SLOW_CONCURRENCY = 4
"""Of an evaluation that is not to end by itself: it takes 3 s."""


def _models(tmp_path: Path) -> dict[str, dict[str, object]]:
    return {"m": {"latency": LATENCY, "call_file": str(tmp_path / "calls")}}


async def _take_over(pool: list[WorkerProcess], number: int, rng: random.Random) -> list[Evaluation]:
    """Kill the owner of evaluations that both other workers wait for; they end all the same."""
    owner, *others = pool
    ids = [f"taken-{number}-{index}" for index in range(TOGETHER)]
    for evaluation_id in ids:
        await owner.bridge.evaluation.start_evaluation(request(evaluation_id))
        attached = await others[0].bridge.evaluation.start_evaluation(request(evaluation_id))
        assert attached.existed
        assert attached.evaluation.attempt == 1
    waiting = [
        asyncio.create_task(other.bridge.evaluation.evaluate(request(evaluation_id)))
        for evaluation_id in ids
        for other in others
    ]
    await asyncio.sleep(rng.uniform(0, 0.4))
    owner.kill()
    ended = await asyncio.gather(*waiting)
    assert all(one == other for one, other in zip(ended[::2], ended[1::2]))
    return list(ended[::2])


async def _rounds(shop: Workshop, kills: int, rng: random.Random) -> list[Evaluation]:
    pool = await shop.start_several(3)
    ended = []
    for number in range(kills):
        rng.shuffle(pool)
        spare = shop.launch() if number < kills - 1 else None
        ended += await _take_over(pool, number, rng)
        pool = pool[1:]
        if spare is not None:
            pool.append(await spare.ready())
    return ended


@pytest.mark.parametrize("take_overs", [20, pytest.param(200, marks=pytest.mark.torture)])
async def test_waiting_call_takes_over_from_a_killed_owner(tmp_path, take_overs):
    """Whoever waits for an evaluation whose owner dies gets its result, the same as if nobody had died."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    async with workshop(tmp_path, _models(tmp_path), seconds=10.0 * take_overs) as shop:
        ended = await _rounds(shop, take_overs // TOGETHER, random.Random(seed))
        bridge = shop.survivor.bridge
        whole = await bridge.evaluation.evaluate(request("whole"))
        wanted = await samples_of(bridge, "whole")
        log = await log_of(bridge)
        check_events(log)
        assert len(ended) == take_overs
        print(f"attempts {[evaluation.attempt for evaluation in ended]}")
        assert max(evaluation.attempt for evaluation in ended) == 2, "no kill hit"
        for evaluation in ended:
            check_interrupted_run(log, evaluation)
            assert bits(evaluation.metrics) == bits(whole.metrics)
            assert await samples_of(bridge, evaluation.evaluation_id) == wanted


async def _events(bridge: Bridge, evaluation_id: str) -> list:
    async with bridge.evaluation.watch_evaluation(evaluation_id) as stream:
        return [event async for event in stream]


async def test_every_worker_answers_for_all(tmp_path):
    """Get, List, GetSamples, Watch and reports of an evaluation are the same at every worker, while it runs, too."""
    async with workshop(tmp_path, _models(tmp_path)) as shop:
        pool = await shop.start_several(3)
        await pool[0].bridge.evaluation.start_evaluation(request("one", concurrency=SLOW_CONCURRENCY))
        await until(lambda: count_lines(tmp_path / "calls") > 0)
        watching = [asyncio.create_task(_events(worker.bridge, "one")) for worker in pool]
        for worker in pool:
            assert (await worker.bridge.evaluation.get_evaluation("one")).state is EvaluationState.RUNNING
            page = await worker.bridge.evaluation.list_evaluations(states=(EvaluationState.RUNNING,))
            assert [evaluation.evaluation_id for evaluation in page.items] == ["one"]
        watched = await asyncio.gather(*watching)
        assert watched[0] == watched[1] == watched[2]
        assert watched[0][-1].kind is EventKind.EVALUATION_STOP
        answers = [
            (
                await worker.bridge.evaluation.get_evaluation("one"),
                await worker.bridge.evaluation.list_evaluations(),
                [sample async for sample in worker.bridge.evaluation.all_samples("one")],
                await worker.bridge.evaluation.generate_report("one"),
                await log_of(worker.bridge),
            )
            for worker in pool
        ]
        assert answers[0] == answers[1] == answers[2]
        assert len(answers[0][2]) == 2 * SAMPLES


async def test_cancel_at_another_worker_stops_the_owner(tmp_path):
    """Once a cancel is answered, by whichever worker, the owner starts no further model call."""
    call_file = tmp_path / "calls"
    async with workshop(tmp_path, _models(tmp_path)) as shop:
        pool = await shop.start_several(3)
        for number, worker in enumerate(pool):
            evaluation_id, before = f"cancelled-{number}", count_lines(call_file)
            await pool[0].bridge.evaluation.start_evaluation(request(evaluation_id, concurrency=SLOW_CONCURRENCY))
            await until(lambda before=before: count_lines(call_file) > before + 10)
            answer = await worker.bridge.evaluation.cancel_evaluation(evaluation_id, "enough")
            await asyncio.sleep(CANCEL_STOPS_SECONDS)
            stopped_at = count_lines(call_file)
            await asyncio.sleep(5 * LATENCY)
            assert count_lines(call_file) == stopped_at
            assert stopped_at - before < 2 * SAMPLES
            assert answer.state is EvaluationState.CANCELLED
            assert answer.problem is not None
            assert answer.problem.message == "enough"
            kinds = [event.kind for event in await _events(worker.bridge, evaluation_id)]
            assert kinds.count(EventKind.EVALUATION_STOP) == 1
            assert EventKind.EVALUATION_COMPLETE not in kinds


async def test_cancel_ends_an_evaluation_without_an_owner(tmp_path):
    """Where the owner has died, the worker that takes the cancel ends the evaluation itself."""
    async with workshop(tmp_path, _models(tmp_path)) as shop:
        owner, other = await shop.start_several(2)
        await owner.bridge.evaluation.start_evaluation(request("orphan", concurrency=SLOW_CONCURRENCY))
        owner.kill()
        assert (await other.bridge.evaluation.cancel_evaluation("orphan")).state is EvaluationState.CANCELLED
        kinds = [event.kind for event in await _events(other.bridge, "orphan")]
        assert kinds.count(EventKind.EVALUATION_INTERRUPT) == 1
        assert kinds[-1] is EventKind.EVALUATION_STOP


async def test_cancel_that_the_owner_did_not_live_to_see_is_heeded(tmp_path):
    """A cancel and the owner's death at one moment: the evaluation ends cancelled and is never gone on with."""
    async with workshop(tmp_path, _models(tmp_path)) as shop:
        owner, *others = await shop.start_several(3)
        await owner.bridge.evaluation.start_evaluation(request("both", concurrency=SLOW_CONCURRENCY))
        waiting = asyncio.create_task(others[1].bridge.evaluation.evaluate(request("both", concurrency=1)))
        cancel = asyncio.create_task(others[0].bridge.evaluation.cancel_evaluation("both"))
        owner.kill()
        assert (await cancel).state is EvaluationState.CANCELLED
        assert (await waiting).state is EvaluationState.CANCELLED


@pytest.mark.parametrize("rounds", [5, pytest.param(100, marks=pytest.mark.torture)])
async def test_starts_at_one_moment_make_one_evaluation(tmp_path, rounds):
    """StartEvaluation of one id at three workers at once: one becomes the owner, every sample is run once."""
    call_file = tmp_path / "calls"
    async with workshop(tmp_path, _models(tmp_path), seconds=10.0 * rounds + 30) as shop:
        pool = await shop.start_several(3)
        for number in range(rounds):
            before, wanted = count_lines(call_file), request(f"once-{number}")
            started = await asyncio.gather(
                *(worker.bridge.evaluation.start_evaluation(wanted) for worker in pool for _ in range(2))
            )
            assert sum(not start.existed for start in started) == 1
            ended = await asyncio.gather(*(worker.bridge.evaluation.evaluate(wanted) for worker in pool))
            assert ended[0] == ended[1] == ended[2]
            assert ended[0].attempt == 1
            assert count_lines(call_file) - before == 2 * SAMPLES
        log = await log_of(pool[0].bridge)
        check_events(log)
        for number in range(rounds):
            check_interrupted_run(log, await pool[0].bridge.evaluation.get_evaluation(f"once-{number}"))


async def test_caller_of_a_killed_worker_is_told_to_come_again(tmp_path):
    """A call that its worker's death cuts short fails with UNAVAILABLE, retryable; repeated elsewhere it succeeds."""
    async with workshop(tmp_path, _models(tmp_path)) as shop:
        owner, other = await shop.start_several(2)
        waiting = asyncio.create_task(owner.bridge.evaluation.evaluate(request("cut")))
        await until(lambda: count_lines(tmp_path / "calls") > 10)
        owner.kill()
        with pytest.raises(Unavailable) as cut:
            await waiting
        assert cut.value.retryable
        ended = await other.bridge.evaluation.evaluate(request("cut"))
        assert (ended.state, ended.attempt) == (EvaluationState.COMPLETED, 2)
