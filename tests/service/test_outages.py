"""A model that does not answer at all is waited for: that is no result of any sample."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from crucible_bridge.client import Bridge
from crucible_bridge.errors import BackendError, Unavailable
from crucible_bridge.events import Event, EventKind
from crucible_bridge.types import (
    EvaluateRequest,
    Evaluation,
    EvaluationState,
    EvaluatorSpec,
    Limits,
    SamplingParams,
    Verdict,
)
from crucible_worker.engine import controls
from crucible_worker.inference import pacing, retries
from crucible_worker.testing import ScriptedModel, run_worker
from crucible_worker.util.limits import WorkerLimits
from crucible_worker.util.tasks import Backoff
from tests import needs
from tests.service.evaluation_kit import accuracy, asked, numbered
from tests.service.openai_kit import Fault, Reply, Request, ScriptedServer, answer, continued, refusal, shout, worker_on

needs.modules("aiohttp")

COUNT = 24
BUSY = refusal(503)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is away is asked often."""
    monkeypatch.setattr(pacing, "RATE_BACKOFF", Backoff(0.01, 0.05))
    monkeypatch.setattr(retries, "RATE_BACKOFF", Backoff(0.01, 0.05))
    monkeypatch.setattr(retries, "FIRST_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(retries, "MAX_WAIT_SECONDS", 0.05)


class Away(ScriptedServer):
    """Answers some requests, then none until `back` is called."""

    def __init__(self, how: Reply | Fault = BUSY, answers: int = 5) -> None:
        super().__init__(self._answer, self._probed)
        self.how, self.left = how, answers
        self.away = asyncio.Event()
        self.asked_while_away = 0

    def back(self) -> None:
        """Answer from now on."""
        self.left = 10**9

    def _answer(self, request: Request) -> Reply | Fault:
        if request.method == "GET":
            return refusal(404)
        if self.left <= 0:
            self.away.set()
            return self.how
        self.left -= 1
        return answer(request, request.text.upper())

    def _probed(self, request: Request) -> Reply | Fault:
        if self.left <= 0:
            self.asked_while_away += 1
            return self.how
        return continued(request)


def wanted(**fields: Any) -> EvaluateRequest:
    """An evaluation of the server's model."""
    return asked(
        model="openai:s/m",
        evaluators=[accuracy()],
        dataset=numbered(COUNT),
        sampling=SamplingParams(max_tokens=8),
        **fields,
    )


async def until(bridge: Bridge, name: str, holds: Callable[[Evaluation], bool]) -> Evaluation:
    """Wait until an evaluation fulfils a condition."""
    async with asyncio.timeout(60):
        while not holds(found := await bridge.evaluation.get_evaluation(name)):
            await asyncio.sleep(0.02)
    return found


async def events_of(bridge: Bridge, name: str) -> list[Event]:
    """The events of an evaluation that has ended, or is interrupted."""
    return [event async for event in bridge.evaluation.watch_evaluation(name)]


@contextlib.asynccontextmanager
async def away(
    server: Away, tmp_path: Path, request: EvaluateRequest, **limits: Any
) -> AsyncIterator[tuple[Bridge, Evaluation]]:
    """An evaluation that waits for its model."""
    async with (
        server.serving(),
        worker_on(server, tmp_path, limits=WorkerLimits(**limits)) as bridge,
    ):
        await bridge.evaluation.start_evaluation(request)
        yield bridge, await until(bridge, request.evaluation_id, lambda found: bool(found.waiting_for))


@pytest.mark.core
@pytest.mark.parametrize(
    "how", [refusal(503), refusal(429), refusal(500), Fault.DROP], ids=["503", "429", "500", "dropped"]
)
async def test_an_outage_is_a_pause(how: Reply | Fault, tmp_path: Path):
    """No sample is lost; what it waits for, and since when, is shown meanwhile and told by events."""
    server = Away(how)
    async with away(server, tmp_path, wanted()) as (bridge, waiting):
        assert waiting.state is EvaluationState.RUNNING
        assert waiting.waiting_for.startswith("server s since ")
        assert waiting.done < COUNT
        before = server.asked_while_away
        async with asyncio.timeout(60):
            while server.asked_while_away < before + 3:
                await asyncio.sleep(0.02)
        requests = len(server.requests)
        assert (await bridge.evaluation.get_evaluation("e")).done == waiting.done
        assert len(server.requests) == requests  # only whether it is back is asked
        server.back()
        ended = await until(bridge, "e", lambda found: found.state.terminal)
        events = await events_of(bridge, "e")

    assert (ended.state, ended.waiting_for, ended.attempt) == (EvaluationState.COMPLETED, "", 1)
    assert [result.n_scored for result in ended.results] == [COUNT]
    assert ended.metrics.values["accuracy"] == 1.0
    told = [event for event in events if event.kind in (EventKind.EVALUATION_PAUSED, EventKind.EVALUATION_RESUMED)]
    assert [event.kind for event in told] == [EventKind.EVALUATION_PAUSED, EventKind.EVALUATION_RESUMED]
    assert told[0].metadata["reason"].startswith(f"waits for {waiting.waiting_for}: ")
    assert told[1].metadata["reason"] == f"waited for {waiting.waiting_for}"


async def test_a_server_that_is_restarted_is_waited_for(tmp_path: Path):
    """Nothing listens at its address for some time; the log has a line when that begins, and one when it ends."""
    server = Away(Fault.STALL)
    async with contextlib.AsyncExitStack() as stack, contextlib.AsyncExitStack() as first:
        lines = stack.enter_context(capture_logs())
        await first.enter_async_context(server.serving())
        port = int(server.url.rsplit(":", 1)[1].split("/")[0])
        bridge = await stack.enter_async_context(worker_on(server, tmp_path))
        await bridge.evaluation.start_evaluation(wanted())
        await server.away.wait()
        await first.aclose()
        waiting = await until(bridge, "e", lambda found: bool(found.waiting_for))
        server.back()
        await stack.enter_async_context(server.serving(port=port))
        ended = await until(bridge, "e", lambda found: found.state.terminal)

    assert waiting.done < COUNT
    assert [result.n_scored for result in ended.results] == [COUNT]
    outage = [(line["event"], line["model"]) for line in lines if line["event"].startswith("model_")]
    assert [event for event, _ in outage] == ["model_away", "model_back"]
    assert len({model for _, model in outage}) == 1


async def test_no_time_of_a_sample_passes_during_an_outage(tmp_path: Path):
    """Nor is it a stall; deadline_ms counts on, as no caller asked for this pause."""
    limits = Limits(sample_timeout_ms=4_000, stall_timeout_ms=2_000)
    server = Away()
    async with away(server, tmp_path, wanted(limits=limits)) as (bridge, _):
        await asyncio.sleep(5.0)  # longer than the stall
        server.back()
        ended = await until(bridge, "e", lambda found: found.state.terminal)
    assert (ended.state, ended.metrics.values.get("accuracy")) == (EvaluationState.COMPLETED, 1.0)


async def test_a_deadline_passes_during_an_outage(tmp_path: Path):
    """The evaluation is cancelled by it, as ever."""
    async with away(Away(), tmp_path, wanted(limits=Limits(deadline_ms=6_000))) as (bridge, _):
        ended = await until(bridge, "e", lambda found: found.state.terminal)
    assert ended.state is EvaluationState.CANCELLED
    assert ended.problem is not None
    assert ended.problem.reason == "DEADLINE_EXCEEDED"


@pytest.mark.core
async def test_an_outage_that_lasts_interrupts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Waiting callers get UNAVAILABLE; no attempt begins for some time, then the same call runs what is left."""
    monkeypatch.setattr(controls, "FIRST_REST_SECONDS", 2.0)
    server, request = Away(), wanted()
    async with server.serving(), worker_on(server, tmp_path, limits=WorkerLimits(outage_seconds=0.5)) as bridge:
        with pytest.raises(Unavailable, match="waited too long for server s since") as caught:
            await bridge.evaluation.evaluate(request)
        interrupted = await bridge.evaluation.get_evaluation("e")
        server.back()
        with pytest.raises(Unavailable) as early:
            await bridge.evaluation.start_evaluation(request)
        assert early.value.retry_after is not None
        await asyncio.sleep(early.value.retry_after + 0.1)
        done = len(server.asked)
        ended = await bridge.evaluation.evaluate(request)
        events = await events_of(bridge, "e")

    assert (caught.value.reason, caught.value.retryable) == ("MODEL_OUTAGE", True)
    assert (interrupted.state, interrupted.attempt) == (EvaluationState.INTERRUPTED, 1)
    assert (ended.state, ended.attempt) == (EvaluationState.COMPLETED, 2)
    assert [result.n_scored for result in ended.results] == [COUNT]
    assert len(server.asked) - done == COUNT - interrupted.done
    (cause,) = [event.metadata["cause"] for event in events if event.kind is EventKind.EVALUATION_INTERRUPT]
    assert cause.startswith("server s did not answer for outage_seconds, 0.5: ")


async def test_a_sample_that_always_fails_is_no_outage(tmp_path: Path):
    """The others are answered: it is an ERROR after its own tries, and nothing waits."""

    def script(request: Request) -> Reply:
        if request.method == "GET":
            return refusal(404)
        return refusal(500) if request.text == "q3" else answer(request, request.text.upper())

    async with ScriptedServer(script).serving() as server, worker_on(server, tmp_path) as bridge:
        ended = await bridge.evaluation.evaluate(wanted(limits=Limits(concurrency=1)))
        events = await events_of(bridge, "e")
        results = [one async for one in bridge.evaluation.all_samples("e")]

    failed = [one for one in results if one.verdict is Verdict.ERROR]
    assert (len(failed), [result.n_scored for result in ended.results]) == (1, [COUNT - 1])
    assert EventKind.EVALUATION_PAUSED not in {event.kind for event in events}


@dataclasses.dataclass(kw_only=True)
class Dying(ScriptedModel):
    """Answers some calls; then it is away until it is let come back, as a process that dies again and again."""

    left: int = 3
    up: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    @property
    def sampling(self) -> Dying:
        return self

    async def sample(self, *arguments: Any, **named: Any) -> Any:
        await self.available()
        self.left -= 1
        return await super().sample(*arguments, **named)

    async def available(self) -> None:
        if self.left <= 0 and not self.up.is_set():
            raise BackendError("has died", reason="BACKEND_DOWN")


@pytest.mark.parametrize("dies", ["model", "judge"])
async def test_a_model_that_dies_again_and_again_is_waited_for(dies: str):
    """Be it evaluated or a judge: another model that answers meanwhile does not end the wait."""
    answers = '{"right": {"score": 10, "reason": "so"}}'
    models = {
        "m": Dying() if dies == "model" else ScriptedModel(),
        "j": Dying(answer=lambda _: answers) if dies == "judge" else ScriptedModel(answer=lambda _: answers),
    }
    criteria = [{"name": "right", "description": "It is right."}]
    judged = EvaluatorSpec(kind="rubric", options={"judge": "embedded:j", "criteria": criteria})
    request = asked(evaluators=[judged], dataset=numbered(COUNT), limits=Limits(concurrency=4))
    async with run_worker(models) as worker:
        await worker.bridge.evaluation.start_evaluation(request)
        name = "m" if dies == "model" else "j"
        await until(worker.bridge, "e", lambda found: found.waiting_for.startswith(f"model embedded:{name} since "))
        dying = models[name]
        assert isinstance(dying, Dying)
        dying.up.set()
        ended = await until(worker.bridge, "e", lambda found: found.state.terminal)

    assert ended.state is EvaluationState.COMPLETED
    assert [result.n_scored for result in ended.results] == [COUNT]


async def test_a_limit_of_the_rate_loses_no_sample(tmp_path: Path):
    """A server that answers one request of five, by its own count, answers all samples in the end; it is not away."""
    turns = itertools.count()

    def limited(request: Request) -> Reply:
        if request.method == "GET":
            return shout(request)
        return shout(request) if next(turns) % 5 == 0 else refusal(429)

    server = ScriptedServer(limited)
    async with server.serving(), worker_on(server, tmp_path) as bridge:
        await bridge.evaluation.start_evaluation(wanted())
        ended = await until(bridge, "e", lambda found: found.state.terminal)
        events = await events_of(bridge, "e")
    assert (ended.state, ended.attempt) == (EvaluationState.COMPLETED, 1)
    assert [result.n_scored for result in ended.results] == [COUNT]
    assert EventKind.EVALUATION_PAUSED not in {event.kind for event in events}
