"""Evaluations of models behind an OpenAI-compatible server, from the client's call to the journal."""

import asyncio
import json
import math
import os
import random
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from crucible_bridge.errors import Code
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Datum,
    EvaluationState,
    ImageChunk,
    Limits,
    OpenAIModel,
    Record,
    Sample,
    SamplingParams,
    ToolCall,
    TruncatedPart,
    Verdict,
)
from crucible_worker.inference.retries import ATTEMPTS_PER_CALL, MISFITS_PER_CALL
from crucible_worker.util.limits import WorkerLimits
from tests import needs
from tests.service.evaluation_kit import numbered, refused, samples_of, state_of
from tests.service.openai_kit import (
    Fault,
    Reply,
    Request,
    ScriptedServer,
    answer,
    key_file,
    refusal,
    shout,
    worker_on,
)

needs.modules("aiohttp")

PARAMS = SamplingParams(max_tokens=8)
MODEL = "openai:s/org/name"


async def accuracy_of(bridge, samples, **fields):
    """An evaluation of the server's model by `accuracy`."""
    return await bridge.evaluation.evaluate(
        **{"model": MODEL, "evaluators": ["accuracy"], "dataset": samples, "sampling": PARAMS, **fields}
    )


async def test_accuracy_of_text_and_conversations(tmp_path):
    """Answers are sampled, graded and recorded: a model's name may have slashes, and truncation is told."""

    def script(request: Request) -> Reply:
        if request.method == "GET":
            return refusal(404)
        assert request.body["model"] == "org/name"
        return answer(request, request.text.upper()[:8], finish_reason="length" if len(request.text) > 8 else "stop")

    samples = [
        Sample(id="right", input="a", targets=("A",)),
        Sample(id="wrong", input="b", targets=("C",)),
        Sample(id="chat", input=Conversation((ChatMessage("user", "d"),)), targets=("D",)),
        Sample(id="cut", input="e" * 9, targets=("E" * 9,)),
    ]
    async with ScriptedServer(script).serving() as server, worker_on(server, tmp_path) as bridge:
        evaluation = await accuracy_of(bridge, samples)
        results = {result.sample_id: result for result in await samples_of(bridge, evaluation.evaluation_id)}
        stands = await bridge.evaluation.get_evaluation(evaluation.evaluation_id)
        assert stands.request.model == OpenAIModel("s", "org/name")
        backends = {backend.name: backend.unavailable for backend in (await bridge.worker.get_info()).backends}
    assert evaluation.metrics.values["accuracy"] == 0.5
    assert [results[name].verdict for name in ("right", "wrong", "chat")] == [
        Verdict.CORRECT,
        Verdict.INCORRECT,
        Verdict.CORRECT,
    ]
    assert (results["cut"].stop_reason, results["cut"].output_tokens) == ("length", 8)
    assert backends["openai"] == ""


SAID = {
    "apart": {"content": "2", "reasoning_content": "1\n+1"},
    "inside": {"content": "<think>1\n+1</think>2"},
    "beyond": {"content": "2\nQ: 3+3"},
    "within": {"content": None, "reasoning": "1+1, or 2", "finish_reason": "length"},
    "stopped": {"content": "", "reasoning": "1+1"},
    "refused": {"content": None, "refusal": "I cannot"},
    "called": {"content": None, "tool_calls": [{"id": "c", "function": {"name": "add", "arguments": "{}"}}]},
}
"""Messages of a server, by the question; the finish reason is "stop" if there is none."""


@pytest.mark.parametrize("record", [Record.FULL, Record.OUTPUTS, Record.NONE])
async def test_what_comes_with_an_answer_is_recorded_and_not_graded(tmp_path, record):
    """Reasoning, refusals, calls of tools, and text after a stop string: the cause of an answer that is none."""

    def script(request: Request) -> Reply:
        if request.method == "GET":
            return refusal(404)
        message = dict(SAID[request.text])
        reason = message.pop("finish_reason", "stop")
        return Reply({"choices": [{"message": message, "finish_reason": reason}], "usage": {"completion_tokens": 3}})

    samples = [Sample(id=name, input=name, targets=("2",)) for name in SAID]
    params = SamplingParams(max_tokens=8, stop=("\n",))
    async with ScriptedServer(script).serving() as server, worker_on(server, tmp_path) as bridge:
        evaluation = await accuracy_of(bridge, samples, sampling=params, record=record)
        found = {result.sample_id: result for result in await samples_of(bridge, evaluation.evaluation_id)}

    right = {name for name, result in found.items() if result.verdict is Verdict.CORRECT}
    assert right == {"apart", "inside", "beyond"}
    assert {result.verdict for name, result in found.items() if name not in right} == {Verdict.INCORRECT}
    assert {name: found[name].method for name in ("within", "stopped", "refused", "called")} == {
        "within": "no answer: truncated at max_tokens during the reasoning",
        "stopped": "no answer: ended during the reasoning",
        "refused": "no answer: refused",
        "called": "no answer: called a tool",
    }
    assert evaluation.results[0].n_truncated_reasoning == 2
    assert evaluation.results[0].n_truncated == 1
    assert found["beyond"].stop_reason == "stop"
    assert found["beyond"].measurements == {"characters_after_stop": 7.0}
    none = record is Record.NONE
    outputs = {name: "" if none else said["content"] or "" for name, said in SAID.items()}
    assert {name: result.output for name, result in found.items()} == outputs
    said = ("", "") if none else ("1\n+1", "1\n+1")
    assert (found["apart"].reasoning, found["inside"].reasoning) == said
    assert found["within"].reasoning == ("" if none else "1+1, or 2")
    assert found["refused"].refusal == ("" if none else "I cannot")
    assert found["called"].tool_calls == (() if none else (ToolCall(name="add", arguments="{}", id="c"),))


async def test_recorded_reasoning_is_bounded(tmp_path):
    """Its end is left out beyond the limit of a sample's record, and the record says so."""

    def script(request: Request) -> Reply:
        if request.method == "GET":
            return refusal(404)
        message = {"content": "2", "reasoning": "ab" * 4_000}
        return Reply({"choices": [{"message": message, "finish_reason": "stop"}]})

    limits = WorkerLimits(max_sample_record_bytes=4_096)
    async with ScriptedServer(script).serving() as server, worker_on(server, tmp_path, limits=limits) as bridge:
        evaluation = await accuracy_of(bridge, [Sample(id="s", input="q", targets=("2",))])
        (result,) = await samples_of(bridge, evaluation.evaluation_id)

    assert result.verdict is Verdict.CORRECT
    assert result.reasoning == "ab" * 2_048
    lost = TruncatedPart(part="reasoning", bytes=8_000 - 4_096, limit="max_sample_record_bytes")
    assert lost in result.truncated


def reasons(results):
    """Verdicts, and why there is none that counts."""
    return {(result.verdict, result.problem and result.problem.reason) for result in results}


def unreliable(seed: int):
    """A server that fails 10 %, stalls 1 %, talks nonsense 1 %, drops and cuts 2 %, and wants 1 % to come later."""
    rng = random.Random(seed)
    faults = [
        *[refusal(500)] * 10,
        Fault.STALL,
        Reply(b"<html>oops</html>"),
        Fault.DROP,
        Fault.CUT,
        refusal(429, **{"Retry-After": "0.01"}),
    ]

    def script(request: Request) -> Reply | Fault:
        draw = rng.randrange(100)
        return faults[draw] if request.method == "POST" and draw < len(faults) else shout(request)

    return script


async def test_images_and_calls_of_tools_are_sent_and_recorded(tmp_path):
    """The server gets them in the API's form; the record has the conversation as it was asked."""
    bodies = []

    def script(request: Request) -> Reply:
        if request.method == "GET":
            return refusal(404)
        bodies.append(request.body)
        return answer(request, "D")

    asked = Conversation(
        (
            ChatMessage("user", parts=("What is this?", ImageChunk(data=b"\x89PNG", format="png"))),
            ChatMessage("assistant", tool_calls=(ToolCall(name="look", arguments="{}", id="c1"),)),
            ChatMessage("tool", "a dot", tool_call_id="c1"),
        )
    )
    async with ScriptedServer(script).serving() as server, worker_on(server, tmp_path) as bridge:
        evaluation = await accuracy_of(bridge, [Sample(id="s", input=asked, targets=("D",))], record=Record.FULL)
        again = await bridge.evaluation.get_evaluation(evaluation.evaluation_id)
        (result,) = await samples_of(bridge, evaluation.evaluation_id)

    assert evaluation.metrics.values["accuracy"] == again.metrics.values["accuracy"] == 1.0
    user, assistant, tool = next(body["messages"] for body in bodies if "messages" in body)
    assert [part["type"] for part in user["content"]] == ["text", "image_url"]
    assert user["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert (assistant["content"], assistant["tool_calls"][0]["function"]["name"]) == (None, "look")
    assert tool == {"role": "tool", "content": "a dot", "tool_call_id": "c1"}
    assert result.prompt == asked
    assert result.sample is not None
    assert result.sample.input == asked


@pytest.mark.parametrize("count", [300, pytest.param(5_000, marks=pytest.mark.torture)])
async def test_an_unreliable_server_is_evaluated_to_the_end(tmp_path, count):
    """Every sample has its verdict or has been tried to the end, every call is counted, few are beyond one a sample."""
    async with (
        ScriptedServer(unreliable(count)).serving() as server,
        worker_on(server, tmp_path, stall_seconds=2.0) as bridge,
    ):
        evaluation = await accuracy_of(bridge, numbered(count), limits=Limits(concurrency=64))
        results = await samples_of(bridge, evaluation.evaluation_id)
    assert (evaluation.state, evaluation.metrics.values["accuracy"]) == (EvaluationState.COMPLETED, 1.0)
    # By chance one in a hundred thousand fails every time, and one in ten thousand gets nonsense twice.
    unlucky = [result for result in results if result.verdict is not Verdict.CORRECT]
    assert len(results) == count
    assert len(unlucky) <= 3
    given_up = [one for one in unlucky if one.problem is None or one.problem.reason != "BACKEND_ANSWER"]
    assert {(result.verdict, result.attempts) for result in given_up} <= {(Verdict.ERROR, ATTEMPTS_PER_CALL)}
    assert all(result.attempts >= MISFITS_PER_CALL for result in unlucky)
    assert sum(result.attempts for result in results) == len(server.asked)
    assert count < len(server.asked) <= 1.4 * count


async def test_what_cannot_help_is_not_tried_again(tmp_path):
    """A request that the server refuses for good is made once, and its sample is an error, not wrong."""
    async with (
        ScriptedServer(lambda request: refusal(400, "no such field")).serving() as server,
        worker_on(server, tmp_path) as bridge,
    ):
        evaluation = await accuracy_of(bridge, numbered(20))
        results = await samples_of(bridge, evaluation.evaluation_id)
    assert len(server.asked) == 20
    assert reasons(results) == {(Verdict.ERROR, "BACKEND_REFUSED")}
    assert evaluation.state is EvaluationState.FAILED
    assert "accuracy" in evaluation.results[0].metrics.undefined


@pytest.mark.parametrize("reply", [Reply({"choices": []}), Reply(b"<html>busy</html>"), Reply({"error": "odd"})])
async def test_an_answer_that_cannot_be_used_is_paid_for_twice_at_most(tmp_path, reply):
    """A misfit that repeats itself is an error after one repeat, and its sample is not wrong."""
    async with (
        ScriptedServer(lambda request: reply).serving() as server,
        worker_on(server, tmp_path) as bridge,
    ):
        evaluation = await accuracy_of(bridge, numbered(5))
        results = await samples_of(bridge, evaluation.evaluation_id)
    assert len(server.asked) == 10
    assert reasons(results) == {(Verdict.ERROR, "BACKEND_ANSWER")}


async def test_a_rate_limit_beyond_the_samples_time_is_reported_at_once(tmp_path):
    """The sample says when the server wants to be queried again; it does not end by its time-out."""

    def script(request: Request) -> Reply:
        return refusal(429, **{"Retry-After": "3000"}) if request.method == "POST" else Reply({"data": []})

    async with ScriptedServer(script).serving() as server, worker_on(server, tmp_path) as bridge:
        evaluation = await accuracy_of(bridge, numbered(2), limits=Limits(sample_timeout_ms=60_000))
        results = await samples_of(bridge, evaluation.evaluation_id)
    assert reasons(results) == {(Verdict.ERROR, "BACKEND_RATE_LIMITED")}
    assert all(result.problem and "again in 3,000 s" in result.problem.message for result in results)
    assert len(server.asked) == 2


async def test_a_key_that_is_refused_ends_the_evaluation(tmp_path):
    """One request finds out, and no sample is asked."""
    async with (
        ScriptedServer(lambda request: refusal(401)).serving() as server,
        worker_on(server, tmp_path, key_file=key_file(tmp_path)) as bridge,
    ):
        evaluation = await accuracy_of(bridge, numbered(20))
    assert state_of(evaluation) == (EvaluationState.FAILED, "BACKEND_UNAUTHENTICATED")
    assert len(server.requests) == 1


async def test_nothing_is_asked_after_a_cancel(tmp_path):
    """The requests under way are hung up on, and 50 ms after the cancel none is made any more."""
    slow = ScriptedServer(lambda request: Fault.STALL if request.index > 20 else shout(request))
    async with slow.serving() as server, worker_on(server, tmp_path) as bridge:
        await bridge.evaluation.start_evaluation(
            evaluation_id="e", model=MODEL, evaluators=["accuracy"], dataset=numbered(200), sampling=PARAMS
        )
        await asyncio.wait_for(server.stalled.wait(), 30)
        await bridge.evaluation.cancel_evaluation("e", "enough")
        await asyncio.sleep(0.05)
        asked = len(server.requests)
        await asyncio.wait_for(server.hung_up.wait(), 5)
        ended = await bridge.evaluation.get_evaluation("e")
        assert ended.state is EvaluationState.CANCELLED
        assert len(server.requests) == asked


async def test_a_rate_limit_is_waited_for(tmp_path):
    """The next try of a sample comes when the server said, not before."""
    times: list[float] = []

    def script(request: Request) -> Reply:
        if request.method == "GET":
            return Reply({"data": []})
        times.append(time.monotonic())
        return refusal(429, **{"Retry-After": "0.3"}) if len(times) == 1 else shout(request)

    async with ScriptedServer(script).serving() as server, worker_on(server, tmp_path) as bridge:
        evaluation = await accuracy_of(bridge, numbered(1))
    assert evaluation.metrics.values["accuracy"] == 1.0
    assert len(times) == 2
    assert times[1] - times[0] >= 0.3


DATA = [
    Sample(
        id=f"d{index}",
        input=Datum(
            model_input=tokens[:-1],
            loss_fn_inputs={"target_tokens": np.array(tokens[1:]), "weights": np.ones(len(tokens) - 1, np.float32)},
        ),
    )
    for index, tokens in enumerate(([1, 2, 3, 4], [5, 6]))
]


def logprob(token: int) -> float:
    """What the scripted servers tell of a token, wherever it stands."""
    return -token / 8


def as_vllm(request: Request) -> Reply:
    """Tells the log-probabilities of a prompt as vLLM does."""
    if request.method == "GET":
        return Reply({"data": []})
    if "prompt_logprobs" not in request.body:
        return refusal(400)
    tokens = request.body["prompt"]
    entries = [None, *({str(token): {"logprob": logprob(token)}, "99": {"logprob": -0.01}} for token in tokens[1:])]
    return answer(request, "x", prompt_logprobs=entries)


def by_echo(request: Request) -> Reply:
    """Tells the log-probabilities of a prompt by saying it back, and ignores what it does not know."""
    if request.method == "GET":
        return Reply({"data": []})
    if not request.body.get("echo"):
        return answer(request, "x")
    values = [None, *(logprob(token) for token in request.body["prompt"][1:]), -4.0]
    return answer(request, "x", logprobs={"token_logprobs": values})


@pytest.mark.parametrize("script", [as_vllm, by_echo])
async def test_nll_of_tokens(tmp_path, script):
    """The mean over all tokens of all samples, from the server's log-probabilities of the prompts."""
    async with ScriptedServer(script).serving() as server, worker_on(server, tmp_path) as bridge:
        evaluation = await bridge.evaluation.evaluate(model=MODEL, evaluators=["nll"], dataset=DATA)
    assert math.isclose(evaluation.metrics.values["nll"], (2 + 3 + 4 + 6) / 8 / 4)


async def test_nll_where_the_echo_is_of_generated_tokens_alone(tmp_path):
    """As llama.cpp answers: an evaluator of likelihood fails before its first sample, and others stand."""

    def script(request):
        return answer(request, "x", logprobs={"token_logprobs": [-0.5]}) if request.body else refusal(404)

    async with ScriptedServer(script).serving() as server, worker_on(server, tmp_path) as bridge:
        evaluation = await bridge.evaluation.evaluate(
            model=MODEL,
            evaluators=["nll", "accuracy"],
            dataset=DATA,
            sampling=SamplingParams(max_tokens=1),
        )
        results = await samples_of(bridge, evaluation.evaluation_id)
    failed, stands = evaluation.results
    assert failed.problem is not None
    assert (failed.problem.reason, {result.evaluator for result in results}) == ("NO_PROMPT_LOGPROBS", {"accuracy"})
    assert (stands.problem, stands.n) == (None, len(DATA))


async def test_nll_of_text_needs_a_tokenizer(tmp_path):
    """The server has the tokenizer, so only tokens can be measured: text is an error of its own."""
    async with ScriptedServer(as_vllm).serving() as server, worker_on(server, tmp_path) as bridge:
        evaluation = await bridge.evaluation.evaluate(model=MODEL, evaluators=["nll"], dataset=numbered(1))
        (result,) = await samples_of(bridge, evaluation.evaluation_id)
    assert result.problem is not None
    assert (result.problem.reason, len(server.asked)) == ("NO_TOKENIZER", 1)


async def test_metrics_ask_the_model_too(tmp_path):
    """A call that takes log-probabilities from a model takes them from a server's."""
    datum = Datum(
        model_input=[1, 2],
        loss_fn_inputs={
            "target_tokens": np.array([2, 3]),
            "logprobs": np.array([-1.0, -1.0]),
            "mask": np.array([1.0, 1.0]),
        },
    )
    async with ScriptedServer(as_vllm).serving() as server, worker_on(server, tmp_path) as bridge:
        result = await bridge.metrics.compute_kl_post_update([datum], MODEL)
    assert math.isclose(result.metrics.values["kl_pre_post_v1"], -1.0 + (2 + 3) / 8 / 2)


async def test_the_model_service_asks_in_words(tmp_path):
    """Prompts in text and conversations are left to the server, its surrogates are mended, its problems are items'."""

    def script(request: Request) -> Reply:
        if request.method == "GET":
            return Reply({"data": []})
        return refusal(400) if request.text == "no" else answer(request, f"{request.text.upper()}\ud800")

    prompts = ["hi", Conversation((ChatMessage("user", "you"),)), "no"]
    async with ScriptedServer(script).serving() as server, worker_on(server, tmp_path) as bridge:
        sampled = await bridge.models.sample(MODEL, prompts, PARAMS)
    items = sampled.items
    assert [item.sequences[0].text for item in items[:2]] == ["HI\ufffd", "YOU\ufffd"]
    assert [item.problem and item.problem.reason for item in items] == [None, None, "BACKEND_REFUSED"]


async def test_an_unknown_server_is_refused_before_anything_starts(tmp_path):
    """A request names servers of the worker's settings, and no others."""
    async with ScriptedServer().serving() as server, worker_on(server, tmp_path) as bridge:
        await refused(accuracy_of(bridge, numbered(1), model="openai:t/m"), Code.NOT_FOUND, "UNKNOWN_SERVER", "model")
    assert server.requests == []


async def evaluated(folder: Path, *options: str, **variables: str) -> tuple[int, str, str]:
    """The exit code, output and errors of `evaluate` on two samples, with variables of its environment."""
    (folder / "data.jsonl").write_text('{"input": "a", "target": "A"}\n{"input": "b", "target": "C"}\n')
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "crucible_worker", "evaluate", "--json", "--evaluator=accuracy"),
        *("--data=jsonl:data.jsonl", f"--state-dir={folder / 'state'}", *options),
        cwd=folder,
        env=os.environ | variables,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode(), errors.decode()


async def test_the_command_evaluate_takes_a_server(tmp_path):
    """Without a worker: `--openai-server` names the server, `--model` the model there."""
    async with ScriptedServer().serving() as server:
        code, output, _ = await evaluated(tmp_path, "--model=openai:s/org/name", f"--openai-server=s={server.url}")
    assert code == 0
    assert json.loads(output)["metrics"]["accuracy"] == 0.5
    assert {request.body["model"] for request in server.asked} == {"org/name"}
    assert all("authorization" not in request.headers for request in server.requests)


async def test_the_command_evaluate_reads_the_variables_of_openai_clients(tmp_path):
    """OPENAI_BASE_URL is the server `openai`; a key goes there only if an option names its variable."""
    model, key = "--model=openai:openai/m", {"OPENAI_API_KEY": "canary-0123456789"}
    async with ScriptedServer().serving() as server:
        first, *_ = await evaluated(tmp_path, model, "--id=a", OPENAI_BASE_URL=server.url, **key)
        assert {request.headers.get("authorization") for request in server.requests} == {None}
        server.requests.clear()
        option = "--openai-key-env=OPENAI_API_KEY"
        second, *_ = await evaluated(tmp_path, model, "--id=b", option, OPENAI_BASE_URL=server.url, **key)
        assert {request.headers.get("authorization") for request in server.requests} == {"Bearer canary-0123456789"}
    assert (first, second) == (0, 0)


async def test_a_missing_and_a_wrong_key_have_errors_of_their_own(tmp_path):
    """The error says whether a key was sent, where it is from and how another is set, and never repeats it."""
    options = ("--model=openai:s/m",)
    async with ScriptedServer(lambda request: refusal(401)).serving() as server:
        named = f"--openai-server=s={server.url}"
        none, without, _ = await evaluated(tmp_path, *options, named, "--id=a")
        wrong, refused_key, _ = await evaluated(
            tmp_path, *options, named, "--id=b", "--openai-key-env=MINE", MINE="canary-0123456789"
        )
    assert none == wrong == 1
    assert "none was sent: set one by --openai-key-env s=VARIABLE" in without
    assert "does not accept the key that was sent, of variable MINE" in refused_key
    assert "canary" not in refused_key
