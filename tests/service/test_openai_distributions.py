"""The likeliest tokens by a server: vLLM's two forms, and servers that name no ids."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from crucible_bridge.errors import BackendError, FailedPrecondition
from crucible_bridge.types import ChatMessage, Conversation, ModelInput, SamplingParams
from crucible_worker.backends.distributions import Wanted
from tests.service.openai_kit import Reply, Request, Script, ScriptedServer, answer, refusal, remote, worker_on
from tests.tables import rows

TOKENS = [7, 8, 9, 5]
PROMPT = ModelInput.of(TOKENS)


def logprob(token: int, step: int) -> float:
    """What the scripted model thinks of the token `step` places after the likeliest."""
    return -0.5 - (step + token) / 8


def listed(token: int, count: int) -> dict[int, float]:
    """So many likeliest tokens in place of one, and itself, which is rarely among them; the last is impossible."""
    top = {token + 1 + step: -9999.0 if step == 2 else logprob(0, step) for step in range(count)}
    return {token: logprob(token, 8), **top}


def as_vllm(request: Request) -> Reply:
    """An answer with the log-probabilities of a prompt, and what is generated: the same for any prompt."""
    if request.method == "GET":
        return Reply({"data": []})
    body = request.body
    if "prompt_logprobs" in body:
        entries = [
            {str(id): {"logprob": value, "rank": rank} for rank, (id, value) in enumerate(named.items())}
            for named in (listed(token, body["prompt_logprobs"]) for token in body["prompt"][1:])
        ]
        return answer(request, "x", prompt_logprobs=[None, *entries], finish_reason="length")
    return answer(request, "ab", logprobs=told(body, [3, 4]))


def told(body: dict[str, Any], tokens: list[int]) -> dict[str, Any]:
    """The log-probabilities of generated tokens, as they are asked for."""
    if not body.get("return_tokens_as_token_ids"):
        return {"token_logprobs": [-0.5] * len(tokens)}
    if "messages" in body:
        content = [
            {
                "token": f"token_id:{token}",
                "logprob": logprob(token, 8),
                "top_logprobs": [
                    {"token": f"token_id:{id}", "logprob": value}
                    for id, value in [*listed(token, body["top_logprobs"]).items()][1:]
                ],
            }
            for token in tokens
        ]
        return {"content": content}
    return {
        "tokens": [f"token_id:{token}" for token in tokens],
        "token_logprobs": [logprob(token, 8) for token in tokens],
        "top_logprobs": [
            {f"token_id:{id}": value for id, value in listed(token, body["logprobs"]).items()} for token in tokens
        ],
    }


def echoing(named: bool) -> Script:
    """A server that knows no `prompt_logprobs`; it says the prompt back, with ids or with texts."""

    def script(request: Request) -> Reply:
        body = request.body
        if request.method == "GET" or "prompt_logprobs" in body:
            return refusal(400)
        known = {**body, "return_tokens_as_token_ids": True}
        said = told(known, body["prompt"])
        if not named:
            texts: list[Any] = [{"a": -0.5, "b": -1.5} for _ in body["prompt"]]
            said["top_logprobs"] = texts
        said["token_logprobs"][0] = said["top_logprobs"][0] = None
        return answer(request, "", logprobs=said)

    return script


@rows("script", [as_vllm, echoing(named=True)])
async def test_columns_are_read_in_both_forms(script: Script):
    """By falling log-probability, without the prompt's own token; vLLM's number for minus infinity is that."""
    async with remote(script) as (server, model):
        found = await model.compute_distributions(PROMPT, Wanted(last=2, top_k=3))

    assert found.logprobs.tolist() == [logprob(9, 8), logprob(5, 8)]
    assert found.top_tokens is not None
    assert found.top_tokens.tolist() == [[10, 11, 9], [6, 7, 5]]
    assert found.top_logprobs is not None
    assert found.top_logprobs.tolist() == [
        [logprob(0, 0), logprob(0, 1), logprob(9, 8)],
        [logprob(0, 0), logprob(0, 1), logprob(5, 8)],
    ]
    asked = server.asked[-1].body
    assert (asked["max_tokens"], asked.get("prompt_logprobs", asked.get("logprobs"))) == (1, 3)


async def test_impossible_tokens_are_minus_infinity():
    """Where the prompt's own token is likelier than them, they follow it."""
    async with remote(as_vllm) as (_, model):
        found = await model.compute_distributions(PROMPT, Wanted(last=1, top_k=4))

    assert found.top_logprobs is not None
    assert found.top_logprobs[0, -1] > -math.inf
    async with remote(as_vllm) as (_, model):
        found = await model.compute_distributions(PROMPT, Wanted(last=1, top_k=5))
    assert found.top_logprobs is not None
    assert found.top_logprobs.shape == (1, 5)


@rows("input", [PROMPT, "say", Conversation((ChatMessage("user", "say"),))])
async def test_samples_have_columns_and_ids(input: Any):
    """Of a completion and of a chat: tokens are known by their ids, which vLLM writes if it is asked to."""
    async with remote(as_vllm) as (server, model):
        (found,) = await model.sample_with_top(input, SamplingParams(max_tokens=4), 1, 2)

    assert found.text == "ab"
    assert found.tokens == (3, 4)
    assert found.logprobs == (logprob(3, 8), logprob(4, 8))
    assert found.top_tokens is not None
    assert found.top_tokens.tolist() == [[4, 5], [5, 6]]
    assert found.top_logprobs is not None
    np.testing.assert_array_equal(found.top_logprobs, [[logprob(0, 0), logprob(0, 1)]] * 2)
    asked = server.asked[-1].body
    assert asked["return_tokens_as_token_ids"] is True
    assert asked.get("top_logprobs", asked["logprobs"]) == 2


async def test_a_server_that_names_texts_refuses_by_name():
    """Two tokens may have one text, so a text is no token."""
    async with remote(echoing(named=False)) as (_, model):
        with pytest.raises(FailedPrecondition, match="by their ids") as caught:
            await model.compute_distributions(PROMPT, Wanted(last=1, top_k=2))
        assert caught.value.reason == "NO_TOP_LOGPROBS"

    def script(request: Request) -> Reply:
        said = {"token_logprobs": [-0.5], "top_logprobs": [{"a": -0.5}]}
        return answer(request, "a", logprobs=said) if request.method == "POST" else Reply({"data": []})

    for said in (script, lambda request: answer(request, "a")):
        async with remote(said) as (_, model):
            with pytest.raises(FailedPrecondition) as caught:
                await model.sample_with_top(PROMPT, SamplingParams(max_tokens=1), 1, 2)
            assert caught.value.reason == "NO_TOP_LOGPROBS"


async def test_columns_of_another_length_are_no_answer():
    """More of them than tokens."""

    def script(request: Request) -> Reply:
        said = told({**request.body, "return_tokens_as_token_ids": True}, [3, 4])
        said["top_logprobs"] = said["top_logprobs"][:1]
        return answer(request, "a", logprobs=said)

    async with remote(script) as (_, model):
        with pytest.raises(BackendError) as caught:
            await model.sample_with_top(PROMPT, SamplingParams(max_tokens=2), 1, 2)
    assert caught.value.reason == "BACKEND_ANSWER"


async def test_over_the_wire_targets_are_refused_and_columns_arrive(tmp_path: Any):
    """A server is asked for the likeliest tokens, and not for given ones; text needs a tokenizer at hand."""
    async with ScriptedServer(as_vllm).serving() as server, worker_on(server, tmp_path) as bridge:
        answer = await bridge.models.compute_logprobs(
            "openai:s/m", [TOKENS, TOKENS, "abc"], top_k=3, last_n=2, targets=[None, [1, 2], None]
        )
        sampled = await bridge.models.sample(
            "openai:s/m", ["say", [1, 2]], SamplingParams(max_tokens=4), top_logprobs=2
        )

    columns, targets, text = answer.sequences
    assert columns.top_tokens is not None
    assert columns.top_tokens.tolist() == [[10, 11, 9], [6, 7, 5]]
    assert columns.first == 2
    assert targets.problem is not None
    assert targets.problem.reason == "NO_TARGET_LOGPROBS"
    assert text.problem is not None
    assert text.problem.reason == "NO_TOKENIZER"
    for item in sampled.items:
        assert item.sequences[0].tokens == (3, 4)
        assert item.sequences[0].top_tokens is not None
        assert item.sequences[0].top_tokens.shape == (2, 2)
