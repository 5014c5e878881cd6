"""Evaluators of likelihood at an OpenAI-compatible server: refused at the start where it does not measure prompts."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crucible_bridge import Bridge
from crucible_bridge.errors import Code, NotFound
from crucible_bridge.types import (
    Dataset,
    Datum,
    EvaluationState,
    EvaluatorSpec,
    Limits,
    ModelInput,
    OpenAIModel,
    Sample,
    SamplingParams,
)
from crucible_worker.engine import preparation
from crucible_worker.util.limits import WorkerLimits
from tests import needs
from tests.service.evaluation_kit import accuracy, refused
from tests.service.openai_kit import Fault, Reply, Request, ScriptedServer, answer, refusal, worker_on
from tests.service.plans_kit import plan, planned

needs.modules("aiohttp")

MODEL = "openai:s/m"
WEIGHTED = {"target_tokens": np.array([6, 7]), "weights": np.ones(2, np.float32)}
TOKENS = [Sample(id="s", input=Datum(model_input=ModelInput.of([5, 6]), loss_fn_inputs=WEIGHTED))]
QUESTIONS = [Sample(id="q", input="Which?", targets=("A",), choices=("one", "two"))]
LABELED = [Sample(id="l", input="Good.", targets=("yes",))]
PAIRS = [Sample(id="p", input="Hi", metadata={"chosen": "Hello.", "rejected": "No."})]
KINDS: Mapping[str, tuple[list[Sample], Mapping[str, Any], str]] = {
    "nll": (TOKENS, {}, "local:PATH"),
    "perplexity": (TOKENS, {}, "local:PATH"),
    "bits_per_byte": (LABELED, {}, "local:PATH"),
    "next_token_accuracy": (TOKENS, {}, "local:PATH"),
    "multiple_choice": (QUESTIONS, {}, "accuracy with the grader multiple_choice, and {choices} in the template"),
    "classification": (LABELED, {"labels": ["yes", "no"]}, "by=generation"),
    "preference": (PAIRS, {}, "local:PATH"),
}
"""What measures likelihoods: samples, options, and a part of the cure."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers is waited for, however busy the machine is."""
    monkeypatch.setattr(preparation, "START_PROBE_SECONDS", 60.0)


def only_chats(request: Request) -> Reply:
    """Answers chats alone, as most servers of others do."""
    if request.method == "GET":
        return Reply({"data": [{"id": "m"}]})
    if "messages" not in request.body:
        return refusal(404, "This is a chat model and not supported in the v1/completions endpoint")
    return answer(request, request.text.upper())


def measures(request: Request) -> Reply:
    """Answers everything, as vLLM does."""
    if request.method == "GET" or "messages" in request.body:
        return only_chats(request)
    entries = [None, *({str(token): {"logprob": -0.5, "rank": 1}} for token in request.body["prompt"][1:])]
    return answer(request, "x", prompt_logprobs=entries)


@asynccontextmanager
async def serving(script: Any, folder: Path, **settings: Any) -> AsyncIterator[tuple[ScriptedServer, Bridge]]:
    """A server with this script, and a worker that knows it."""
    async with ScriptedServer(script).serving() as server, worker_on(server, folder, **settings) as bridge:
        yield server, bridge


def request_of(kind: str, **fields: Any) -> dict[str, Any]:
    """Evaluation `e` by an evaluator of likelihood."""
    samples, options, _ = KINDS[kind]
    return {
        "model": MODEL,
        "evaluators": [EvaluatorSpec(kind=kind, options=options)],
        "dataset": samples,
        "evaluation_id": "e",
        **fields,
    }


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_only_chats_is_refused_at_the_start(tmp_path, kind):
    """By a request in each form, before anything is recorded; the error says what to evaluate by instead."""
    async with serving(only_chats, tmp_path) as (server, bridge):
        for call in (bridge.evaluation.start_evaluation, bridge.evaluation.evaluate):
            server.requests.clear()
            error = await refused(
                call(**request_of(kind)), Code.FAILED_PRECONDITION, "NO_PROMPT_LOGPROBS", "evaluators[0]"
            )
            assert [request.path for request in server.requests] == ["/completions", "/completions"]
            assert "not supported in the v1/completions" in error.message
            assert KINDS[kind][2] in error.message
        with pytest.raises(NotFound):
            await bridge.evaluation.get_evaluation("e")
    assert server.probes == []


@pytest.mark.parametrize("kind", ["nll", "perplexity"])
async def test_a_server_that_measures_prompts_is_evaluated(tmp_path, kind):
    """The request at the start is no sample's, and counts in no usage."""
    async with serving(measures, tmp_path) as (server, bridge):
        evaluation = await bridge.evaluation.evaluate(**request_of(kind))
    assert evaluation.state is EvaluationState.COMPLETED
    assert evaluation.usage is not None
    assert evaluation.usage.calls == 1
    assert [len(request.body["prompt"]) for request in server.asked] == [8, 2, 3]


async def test_evaluators_that_can_work_keep_the_others(tmp_path):
    """A request is refused only if nothing in it could run; the failed evaluator has the cure too."""
    by: dict[str, Any] = {"evaluators": ["nll", accuracy()], "sampling": SamplingParams(max_tokens=8)}
    data = [*TOKENS, Sample(id="text", input="a", targets=("A",))]
    async with serving(only_chats, tmp_path) as (_, bridge):
        evaluation = await bridge.evaluation.evaluate(
            **request_of("nll", **by, dataset=data, limits=Limits(max_unscored=2))
        )
    failed, stands = evaluation.results
    assert failed.problem is not None
    assert (failed.problem.reason, stands.problem, stands.n_scored) == ("NO_PROMPT_LOGPROBS", None, 1)
    assert "local:PATH" in failed.problem.message


async def test_several_evaluators_that_cannot_work_are_refused_with_each_cure(tmp_path):
    """The first one is named."""
    both = [
        EvaluatorSpec(kind="multiple_choice", name="m"),
        EvaluatorSpec(kind="classification", options={"labels": ["a", "b"]}),
    ]
    async with serving(only_chats, tmp_path) as (_, bridge):
        call = bridge.evaluation.start_evaluation(**request_of("multiple_choice", evaluators=both))
        error = await refused(call, Code.FAILED_PRECONDITION, "NO_PROMPT_LOGPROBS", "evaluators[0]")
    assert "{choices}" in error.message
    assert "by=generation" in error.message


async def test_a_reference_that_only_chats_is_refused_by_its_option(tmp_path):
    """What a preference is compared with is measured as well."""
    by = EvaluatorSpec(kind="preference", options={"reference": MODEL})
    async with serving(only_chats, tmp_path) as (_, bridge):
        call = bridge.evaluation.start_evaluation(
            **request_of("preference", model="embedded:arithmetic@600", evaluators=[by])
        )
        await refused(call, Code.FAILED_PRECONDITION, "NO_PROMPT_LOGPROBS", 'evaluators[0].options["reference"]')


async def test_labels_that_are_generated_are_not_refused(tmp_path):
    """The option of the cure works, and sends no request for log-probabilities."""
    by = EvaluatorSpec(kind="classification", options={"labels": ["yes", "no"], "by": "generation"})
    async with serving(only_chats, tmp_path) as (server, bridge):
        evaluation = await bridge.evaluation.evaluate(
            **request_of("classification", evaluators=[by], sampling=SamplingParams(max_tokens=8))
        )
    assert evaluation.state is EvaluationState.COMPLETED
    assert {request.path for request in server.asked} == {"/chat/completions"}


@pytest.mark.parametrize("fault", [Fault.DROP, refusal(500), refusal(429), refusal(401)])
async def test_a_server_with_another_error_refuses_nothing(tmp_path, fault):
    """Whether it measures prompts is not known: the evaluation starts, and its attempt finds out."""
    async with serving(lambda request: fault, tmp_path) as (_, bridge):
        started = await bridge.evaluation.start_evaluation(**request_of("nll"))
        assert (started.evaluation.state.terminal, started.existed) == (False, False)
        await bridge.evaluation.cancel_evaluation("e")


async def test_a_server_that_is_away_refuses_nothing(tmp_path):
    """Where nothing listens, the evaluation starts and waits for it."""
    server = ScriptedServer(measures)
    async with server.serving():
        pass
    async with worker_on(server, tmp_path) as bridge:
        started = await bridge.evaluation.start_evaluation(**request_of("multiple_choice"))
        assert not started.evaluation.state.terminal
        await bridge.evaluation.cancel_evaluation("e")


async def test_a_server_that_does_not_answer_holds_up_no_call(tmp_path, monkeypatch):
    """While the start waits, other calls are answered; it ends after its time, and the evaluation has started."""
    async with serving(lambda request: Fault.STALL, tmp_path) as (server, bridge):
        starting = asyncio.create_task(bridge.evaluation.start_evaluation(**request_of("nll")))
        await server.stalled.wait()
        await bridge.evaluation.list_evaluations()
        assert not starting.done()
        starting.cancel()
        monkeypatch.setattr(preparation, "START_PROBE_SECONDS", 0.01)
        started = await bridge.evaluation.start_evaluation(**request_of("nll", evaluation_id="f"))
        assert (started.evaluation.state.terminal, started.existed) == (False, False)
        await bridge.evaluation.cancel_evaluation("f")


async def test_a_deadline_is_not_spent_on_a_server_that_is_away(tmp_path):
    """The evaluation starts within its deadline, and ends by it."""
    async with serving(lambda request: Fault.STALL, tmp_path) as (_, bridge):
        evaluation = await bridge.evaluation.evaluate(**request_of("nll"), limits=Limits(deadline_ms=6_000))
    assert evaluation.problem is not None
    assert (evaluation.state, evaluation.problem.reason) == (EvaluationState.CANCELLED, "DEADLINE_EXCEEDED")


async def test_one_that_exists_is_not_probed_again(tmp_path):
    """The same call after its end returns the result, whatever the server does by now."""
    async with serving(measures, tmp_path) as (server, bridge):
        first = await bridge.evaluation.evaluate(**request_of("nll"))
        server.script = only_chats
        asked = len(server.asked)
        assert await bridge.evaluation.evaluate(**request_of("nll")) == first
        assert len(server.asked) == asked


async def test_one_that_was_interrupted_fails_as_its_evaluator_does(tmp_path):
    """A server that has changed meanwhile refuses no resumption: the evaluation ends, with the reason and the cure."""

    def stalls(request: Request) -> Reply | Fault:
        is_sample = request.method == "POST" and len(request.body.get("prompt", ())) == 3
        return Fault.STALL if is_sample else measures(request)

    async with serving(stalls, tmp_path, any_address=True) as (server, bridge):
        await bridge.evaluation.start_evaluation(**request_of("nll"))
        await server.stalled.wait()
    async with serving(only_chats, tmp_path, any_address=True) as (_, bridge):
        evaluation = await bridge.evaluation.evaluate(**request_of("nll"))
    (result,) = evaluation.results
    assert result.problem is not None
    assert (evaluation.state, evaluation.attempt) == (EvaluationState.FAILED, 2)
    assert result.problem.reason == "NO_PROMPT_LOGPROBS"
    assert "local:PATH" in result.problem.message


async def test_a_step_of_a_plan_is_refused(tmp_path):
    """With the path in the plan; a plan names no model before."""
    wanted = plan(evaluations=(planned(dataset=Dataset.of(TOKENS)),), infrequent_evaluations=())
    async with serving(only_chats, tmp_path, limits=WorkerLimits()) as (_, bridge):
        await bridge.evaluation.register_plan(wanted)
        step = bridge.evaluation.notify_step("p", 3, OpenAIModel("s", "m"))
        await refused(step, Code.FAILED_PRECONDITION, "NO_PROMPT_LOGPROBS", "evaluations[0].evaluators[0]")
        assert (await bridge.evaluation.list_evaluations()).items == ()


async def evaluated(folder: Path, *options: str) -> tuple[int, str, str]:
    """The exit code, output and errors of `evaluate`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "crucible_worker", "evaluate", f"--model={MODEL}", "--state-dir=state", *options),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode(), errors.decode()


async def test_the_command_evaluate_refuses_it_by_its_option(tmp_path):
    """As a request that is wrong, with the option that was typed."""
    (tmp_path / "data.jsonl").write_text('{"input": "Which?", "target": "A", "choices": ["one", "two"]}\n')
    async with ScriptedServer(only_chats).serving() as server:
        named = ("--data=jsonl:data.jsonl", "--evaluator=multiple_choice", f"--openai-server=s={server.url}")
        code, output, errors = await evaluated(tmp_path, *named)
    assert (code, output) == (2, "")
    assert "--evaluator multiple_choice" in errors
    assert "{choices}" in errors


async def test_a_suite_runs_what_can_be_run(tmp_path):
    """One of its evaluations is refused, and the next one has its metrics."""
    (tmp_path / "data.jsonl").write_text('{"input": "a", "target": "A", "choices": ["A", "B"]}\n')
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\n'
        '[[evaluations]]\nname = "likely"\ndataset = "jsonl:data.jsonl"\nevaluators = ["multiple_choice"]\n'
        '[[evaluations]]\nname = "says"\ndataset = "jsonl:data.jsonl"\nevaluators = ["accuracy"]\n'
        "sampling = { max_tokens = 8 }\n"
    )
    async with ScriptedServer(only_chats).serving() as server:
        code, output, _ = await evaluated(tmp_path, "--suite=mine.toml", "--json", f"--openai-server=s={server.url}")
    likely, says = json.loads(output)["evaluations"]
    assert (code, likely["error"]["reason"]) == (1, "NO_PROMPT_LOGPROBS")
    assert says["metrics"]["says/accuracy"] == 1.0
