"""Bounds of cost and tokens, counted at the server: the calls in flight exceed them, and none after those."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.client import Bridge
from crucible_bridge.errors import BridgeError, Code
from crucible_bridge.events import EventKind
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Evaluation, EvaluationState, EvaluatorSpec, Limits, ModelPrice
from crucible_worker.backends.openai.servers import OpenAIServer
from crucible_worker.cli.requests import EvaluationToRun
from crucible_worker.cli.running import EvaluationRun, NotRun, run
from crucible_worker.config import Settings
from crucible_worker.util.limits import WorkerLimits
from tests import needs
from tests.service.evaluation_kit import asked, log_of, numbered, samples_of
from tests.service.logging_kit import restored_logging
from tests.service.openai_kit import Fault, Reply, Request, ScriptedServer, answer, refusal, worker_on

needs.modules("aiohttp")

MODEL, JUDGE = "openai:s/m", "openai:s/judge"
PRICES = (ModelPrice(pattern="*", prompt=0.0, output=1e6),)
"""A generated token costs 1."""
AT_ONCE = 3
"""Calls in flight."""
LONG = 60.0
"""A bound, not an expectation."""


class Metered:
    """Answers with ten tokens each; counts those of each model."""

    def __init__(self, tokens: int | None = 10) -> None:
        self.tokens = tokens
        self.spent = 0
        self.calls: dict[str, int] = {}

    def __call__(self, request: Request) -> Reply:
        if request.method == "GET":
            return Reply({"data": []})
        model = request.body["model"]
        probe = self.tokens is not None and request.body.get("max_tokens") == 16
        said = request.text.upper()
        if model == "judge":
            said = json.dumps({"correct": {"reason": "So it is.", "score": 5}})
        choices = answer(request, said).body["choices"]
        if not probe:
            self.calls[model] = self.calls.get(model, 0) + 1
            self.spent += self.tokens or 0
        usage = {} if self.tokens is None else {"usage": {"prompt_tokens": 1, "completion_tokens": self.tokens}}
        return Reply({"choices": choices, **usage})


def request(samples: int = 40, **fields: Any):
    """Evaluation `e`, three samples at a time."""
    limits = Limits(concurrency=AT_ONCE, **fields.pop("limits", {}))
    return asked(model=MODEL, dataset=numbered(samples), limits=limits, **fields)


async def over_budget(
    bridge: Bridge, evaluation_id: str = "e", holds: Callable[[Evaluation], bool] = bool
) -> Evaluation:
    """The evaluation, once it is paused by its budget, and this holds of it."""
    async with asyncio.timeout(LONG):
        while True:
            found = await bridge.evaluation.get_evaluation(evaluation_id)
            assert not found.state.terminal, found
            if found.paused and found.waiting_for and holds(found):
                return found
            await asyncio.sleep(0.01)


async def refusal_of(call: Callable[[], Awaitable[Any]]) -> BridgeError:
    """The error of a call."""
    with pytest.raises(BridgeError) as caught:
        await call()
    return caught.value


@pytest.mark.parametrize(("bound", "most"), [("max_cost", 95.0), ("max_output_tokens", 95)])
async def test_no_call_begins_once_a_bound_is_reached(tmp_path: Path, bound: str, most: float):
    """The evaluation is paused with the reason, and continues to the same results with a larger bound alone."""
    server = Metered()
    async with ScriptedServer(server).serving() as fake, worker_on(fake, tmp_path, prices=PRICES) as bridge:
        await bridge.evaluation.start_evaluation(request(limits={bound: most}))
        paused = await over_budget(bridge, holds=lambda now: now.done * 10 == server.spent)
        spent = server.spent
        refused = await refusal_of(lambda: bridge.evaluation.resume_evaluation("e"))
        too_small = await refusal_of(lambda: bridge.evaluation.resume_evaluation("e", **{bound: 96}))
        await bridge.evaluation.resume_evaluation("e", **{bound: 1000})
        ended = await bridge.evaluation.evaluate(request(limits={bound: most}))
        kinds = [event.kind for event in await log_of(bridge, "e")]
        whole = await bridge.evaluation.evaluate(request(evaluation_id="whole"))
        same = [[(each.sample_id, each.output) for each in await samples_of(bridge, one)] for one in ("e", "whole")]
    assert 95 <= spent < 95 + 10 * AT_ONCE
    assert paused.state is EvaluationState.RUNNING
    assert paused.waiting_for.startswith(f"a larger {bound}: ")
    assert paused.waiting_for.endswith(" of 95 are spent")
    assert (refused.code, refused.reason, refused.field) == (Code.FAILED_PRECONDITION, Reason.BUDGET_SPENT, bound)
    assert too_small.reason == Reason.BUDGET_SPENT
    assert kinds.count(EventKind.EVALUATION_PAUSED) == kinds.count(EventKind.EVALUATION_RESUMED) == 1
    assert ended.state is EvaluationState.COMPLETED
    assert ended.metrics == whole.metrics
    assert same[0] == same[1]
    assert server.calls["m"] == 80  # no answer that was paid for is asked for again


async def test_judges_count(tmp_path: Path):
    """The tokens of a judge are spent as those of the model are."""
    server = Metered()
    options = {"judge": JUDGE, "criteria": [{"name": "correct", "description": "Is it right?"}]}
    evaluators = (EvaluatorSpec(kind="rubric", options=options),)
    async with ScriptedServer(server).serving() as fake, worker_on(fake, tmp_path, prices=PRICES) as bridge:
        await bridge.evaluation.start_evaluation(request(evaluators=evaluators, limits={"max_output_tokens": 100}))
        await over_budget(bridge)
        spent = server.spent
        await bridge.evaluation.resume_evaluation("e", max_output_tokens=10_000)
        ended = await bridge.evaluation.evaluate(request(evaluators=evaluators))
    assert server.calls["judge"] > 0
    assert 100 <= spent < 100 + 10 * AT_ONCE
    assert ended.state is EvaluationState.COMPLETED
    assert server.calls == {"m": 40, "judge": 40}  # a sample that waited for its judge keeps its answer


async def test_retries_count(tmp_path: Path):
    """An answer that cannot be used was paid for."""
    server = Metered()

    def script(asked: Request) -> Reply:
        reply = server(asked)
        if asked.method != "GET" and server.calls.get("m", 0) % 2:
            return Reply({**reply.body, "choices": []})
        return reply

    async with ScriptedServer(script).serving() as fake, worker_on(fake, tmp_path, prices=PRICES) as bridge:
        await bridge.evaluation.start_evaluation(request(limits={"max_output_tokens": 100}))
        paused = await over_budget(bridge)
    assert 100 <= server.spent < 100 + 10 * AT_ONCE
    assert paused.done < server.spent / 10


async def test_a_restart_resumes_nothing_whose_budget_is_spent(tmp_path: Path):
    """Neither does a worker that finds it interrupted; what earlier attempts have spent counts."""
    server = Metered()
    limits = {"max_output_tokens": 95}
    async with ScriptedServer(server).serving() as fake:
        async with worker_on(fake, tmp_path, prices=PRICES) as bridge:
            await bridge.evaluation.start_evaluation(request(limits=limits))
            await over_budget(bridge, holds=lambda now: now.done * 10 == server.spent)
            await bridge.worker.drain()
        spent = server.spent
        async with worker_on(fake, tmp_path, prices=PRICES) as bridge:
            found = await bridge.evaluation.get_evaluation("e")
            joined = await bridge.evaluation.start_evaluation(request(limits=limits))
            refused = await refusal_of(lambda: bridge.evaluation.resume_evaluation("e"))
            await over_budget(bridge)
            assert server.spent == spent
            await bridge.evaluation.resume_evaluation("e", max_output_tokens=150)
            paused = await over_budget(bridge, holds=lambda now: f": {server.spent} of 150 " in now.waiting_for)
    assert (found.state, found.paused) == (EvaluationState.INTERRUPTED, True)
    assert found.waiting_for.startswith("a larger max_output_tokens: ")
    assert joined.evaluation.paused
    assert refused.reason == Reason.BUDGET_SPENT
    assert 150 <= server.spent < 150 + 10 * AT_ONCE
    assert paused.done * 10 == server.spent


async def test_a_run_has_one_budget(tmp_path: Path):
    """Two evaluations of a run pause together, at the sum; with a larger bound all of them continue."""
    server = Metered()
    limits = {"max_run_cost": 200.0}
    async with ScriptedServer(server).serving() as fake, worker_on(fake, tmp_path, prices=PRICES) as bridge:
        for name in ("a", "b"):
            await bridge.evaluation.start_evaluation(request(evaluation_id=name, run_id="r", limits=limits))
        done = -1
        while done * 10 != server.spent:  # answers in flight arrive after the pause
            done = sum([(await over_budget(bridge, name)).done for name in ("a", "b")])
        spent = server.spent
        await bridge.evaluation.start_evaluation(request(evaluation_id="c", run_id="r", limits=limits))
        await over_budget(bridge, "c")
        assert server.spent == spent
        await bridge.evaluation.resume_evaluation("a", max_run_cost=5000)
        ended = [
            await bridge.evaluation.evaluate(request(evaluation_id=name, run_id="r", limits=limits))
            for name in ("a", "b", "c")
        ]
        alone = await bridge.evaluation.evaluate(
            request(evaluation_id="d", run_id="other", limits={"max_run_cost": 5000})
        )
    assert 200 <= spent < 200 + 2 * 10 * AT_ONCE
    assert {each.state for each in (*ended, alone)} == {EvaluationState.COMPLETED}
    assert server.spent == 4 * 40 * 10


async def test_a_model_without_a_price_refuses_a_bound_of_the_cost(tmp_path: Path):
    """Be it the model's or a judge's: before anything is asked; tokens need no price."""
    server = Metered()
    options = {"judge": JUDGE, "criteria": [{"name": "correct", "description": "Is it right?"}]}
    judged = (EvaluatorSpec(kind="rubric", options=options),)
    prices = (ModelPrice(pattern=MODEL, prompt=1.0, output=1.0),)
    async with ScriptedServer(server).serving() as fake, worker_on(fake, tmp_path, prices=prices) as bridge:
        errors = [
            await refusal_of(lambda: bridge.evaluation.start_evaluation(asking))  # noqa: B023 - called at once
            for asking in (
                request(evaluators=judged, limits={"max_cost": 1.0}),
                request(evaluators=judged, limits={"max_run_cost": 1.0}),
            )
        ]
        ended = await bridge.evaluation.evaluate(request(evaluators=judged, limits={"max_output_tokens": 10_000}))
    assert [(error.reason, error.field) for error in errors] == [
        (Reason.NO_PRICE, "limits.max_cost"),
        (Reason.NO_PRICE, "limits.max_run_cost"),
    ]
    assert JUDGE in errors[0].message
    assert ended.state is EvaluationState.COMPLETED


async def test_what_a_server_does_not_report_is_not_free(tmp_path: Path):
    """An evaluation with a bound fails with the reason where the server says nothing of tokens."""
    async with ScriptedServer(Metered(None)).serving() as fake, worker_on(fake, tmp_path, prices=PRICES) as bridge:
        bounded = await bridge.evaluation.evaluate(request(limits={"max_output_tokens": 1000}))
        free = await bridge.evaluation.evaluate(request(evaluation_id="free"))
    assert bounded.state is EvaluationState.FAILED
    assert bounded.problem is not None
    assert bounded.problem.reason == Reason.USAGE_NOT_REPORTED
    assert free.state is EvaluationState.COMPLETED


async def test_a_bound_that_was_not_given_cannot_be_raised(tmp_path: Path):
    """The error names it; a caller's own pause ends as before."""
    async with ScriptedServer(lambda _: refusal(503)).serving() as fake, worker_on(fake, tmp_path) as bridge:
        await bridge.evaluation.start_evaluation(request())
        await bridge.evaluation.pause_evaluation("e")
        error = await refusal_of(lambda: bridge.evaluation.resume_evaluation("e", max_cost=3))
        resumed = await bridge.evaluation.resume_evaluation("e")
        await bridge.evaluation.cancel_evaluation("e")
    assert (error.code, error.field) == (Code.FAILED_PRECONDITION, "max_cost")
    assert not resumed.paused


async def test_a_spent_budget_leaves_its_turn_to_others(tmp_path: Path):
    """With one turn, an evaluation that is paused in the middle keeps no other one from running; then it continues."""
    server = Metered()
    limits = WorkerLimits(max_running_evaluations=1)
    async with (
        ScriptedServer(server).serving() as fake,
        worker_on(fake, tmp_path, prices=PRICES, limits=limits) as bridge,
    ):
        await bridge.evaluation.start_evaluation(request(limits={"max_output_tokens": 95}))
        await over_budget(bridge)
        other = await bridge.evaluation.evaluate(request(evaluation_id="other"))
        await bridge.evaluation.resume_evaluation("e", max_output_tokens=1000)
        ended = await bridge.evaluation.evaluate(request(limits={"max_output_tokens": 95}))
    assert {other.state, ended.state} == {EvaluationState.COMPLETED}


async def test_a_larger_bound_reaches_what_still_runs(tmp_path: Path):
    """Of a run, or given before the first one is reached: the evaluation is not paused by the old one."""
    server = Metered()
    limits = {"max_run_cost": 100.0, "max_cost": 200.0}
    async with ScriptedServer(server).serving() as fake, worker_on(fake, tmp_path, prices=PRICES) as bridge:
        await bridge.evaluation.start_evaluation(request(evaluation_id="a", run_id="r", limits=limits))
        await over_budget(bridge, "a")
        await bridge.evaluation.start_evaluation(request(evaluation_id="b", run_id="r", limits={"max_run_cost": 1.0}))
        await over_budget(bridge, "b")
        await bridge.evaluation.resume_evaluation("b", max_run_cost=5000)
        ended = await bridge.evaluation.evaluate(request(evaluation_id="b", run_id="r"))
        found = await over_budget(bridge, "a")
    assert ended.state is EvaluationState.COMPLETED
    assert found.waiting_for.startswith("a larger max_cost: ")


async def test_a_bound_of_a_run_without_a_name_is_that_of_the_evaluation(tmp_path: Path):
    """It pauses it, and a larger one continues it."""
    server = Metered()
    async with ScriptedServer(server).serving() as fake, worker_on(fake, tmp_path, prices=PRICES) as bridge:
        await bridge.evaluation.start_evaluation(request(limits={"max_run_cost": 95.0}))
        await over_budget(bridge)
        await bridge.evaluation.resume_evaluation("e", max_run_cost=1000)
        ended = await bridge.evaluation.evaluate(request())
    assert ended.state is EvaluationState.COMPLETED


async def test_a_worker_without_the_price_does_not_continue_it(tmp_path: Path):
    """The bound of the first request stands, whether the second one names it or not."""
    server = Metered()
    async with ScriptedServer(server).serving() as fake:
        async with worker_on(fake, tmp_path, prices=PRICES) as bridge:
            await bridge.evaluation.start_evaluation(request(limits={"max_cost": 95.0}))
            await over_budget(bridge)
            await bridge.worker.drain()
        async with worker_on(fake, tmp_path) as bridge:
            error = await refusal_of(lambda: bridge.evaluation.start_evaluation(request()))
    assert (error.reason, error.field) == (Reason.NO_PRICE, "limits.max_cost")


async def test_a_limited_rate_and_a_spent_budget_end_a_command(tmp_path: Path):
    """Calls that wait for their turn at the server are not in flight: the evaluation is seen as paused."""
    server = Metered()
    refused = 0

    def script(call: Request) -> Reply | Fault:
        nonlocal refused
        if call.method != "GET" and call.body.get("max_tokens") != 16 and not refused:
            refused += 1
            return refusal(429, **{"Retry-After": "0"})
        return server(call)

    limits = Limits(concurrency=16, max_output_tokens=95)
    async with ScriptedServer(script).serving() as fake:
        server_of = OpenAIServer(name="s", base_url=fake.url)
        settings = Settings(state_dir=tmp_path, endpoints=(server_of,), prices=PRICES).validate()
        ended: list[EvaluationRun | NotRun] = []
        to_run = EvaluationToRun(
            request=asked(model=MODEL, dataset=numbered(60), limits=limits), model=MODEL, label=MODEL
        )
        async with asyncio.timeout(LONG):
            with restored_logging():
                await run(settings, [to_run], ["accuracy"], ended, quiet=True)
    assert refused == 1
    (found,) = ended
    assert isinstance(found, EvaluationRun)
    assert found.over_budget
    assert server.spent < 95 + 10 * 16
