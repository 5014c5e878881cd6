"""Log-probabilities of a prompt by a server: as vLLM tells them, by echo, or not at all."""

import math

import pytest

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition, NotFound
from crucible_worker.backends.openai.failures import final
from crucible_worker.backends.openai.scoring import Scorer

TOKENS = [7, 8, 9]
VALUES = (None, -1.5, -0.25)


class Server:
    """Answers by what it knows, and keeps what it was asked."""

    def __init__(self, **known):
        self.known = known
        self.bodies = []

    async def ask(self, body):
        self.bodies.append(body)
        way = "prompt_logprobs" if "prompt_logprobs" in body else "echo"
        answer = self.known.get(way, {})
        if isinstance(answer, BridgeError):
            raise answer
        return {"choices": [{"text": "", "finish_reason": "length", **answer}]}

    def scorer(self):
        return Scorer("s", "m", self.ask)


def as_vllm(values=VALUES, tokens=TOKENS):
    """What vLLM tells: the prompt's own token, and the likeliest beside it."""
    entries = [
        None if value is None else {str(token): {"logprob": value, "rank": 2}, "3": {"logprob": -0.1, "rank": 1}}
        for value, token in zip(values, tokens)
    ]
    return {"prompt_logprobs": entries}


def as_echo(*values):
    """What a server tells that says the prompt back."""
    return {"logprobs": {"token_logprobs": list(values)}}


async def test_vllm_tells_each_tokens_own():
    """Of the tokens that vLLM tells at a place, the prompt's own counts, likely or not."""
    server = Server(prompt_logprobs=as_vllm())
    assert await server.scorer().score(TOKENS) == VALUES
    assert server.bodies == [
        {"model": "m", "prompt": TOKENS, "max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 1}
    ]


async def test_echo_is_tried_where_the_first_way_is_unknown_or_refused():
    """A server that ignores or refuses `prompt_logprobs` is asked to say the prompt back; what it added is dropped."""
    for first in ({}, final("unknown field", "BACKEND_REFUSED"), NotFound("no", reason="UNKNOWN_MODEL")):
        server = Server(prompt_logprobs=first, echo=as_echo(None, -1.5, -0.25, -3.0))
        scorer = server.scorer()
        assert await scorer.score(TOKENS) == VALUES
        assert await scorer.score(TOKENS) == VALUES
        assert ["echo" in body for body in server.bodies] == [False, True, True]


@pytest.mark.parametrize("echo", [{}, as_echo(-0.5), {"logprobs": None}, final("no", "BACKEND_REFUSED")])
async def test_a_server_that_gives_none_is_told_as_such(echo):
    """Neither way known: the world is not as the request needs it, and nobody invents a number."""
    with pytest.raises(FailedPrecondition) as caught:
        await Server(echo=echo).scorer().score(TOKENS)
    assert caught.value.reason == "NO_PROMPT_LOGPROBS"


async def test_a_server_that_gives_none_is_not_asked_for_every_sample():
    """One that answered both ways without log-probabilities is believed."""
    server = Server()
    scorer = server.scorer()
    for _ in range(3):
        with pytest.raises(FailedPrecondition):
            await scorer.score(TOKENS)
    assert len(server.bodies) == 2


async def test_minus_infinity_as_vllm_writes_it():
    """JSON has no infinity: what vLLM writes for an impossible token is one again."""
    server = Server(prompt_logprobs=as_vllm((None, -9999.0, -1.0)))
    assert await server.scorer().score(TOKENS) == (None, -math.inf, -1.0)


@pytest.mark.parametrize(
    "known",
    [
        {"prompt_logprobs": {"prompt_logprobs": [None]}},
        {"prompt_logprobs": {"prompt_logprobs": [None, {"3": {"logprob": -1}}, {"9": {"logprob": -1}}]}},
        {"prompt_logprobs": {"prompt_logprobs": [None, {"8": {"logprob": "x"}}, {"9": {"logprob": -1}}]}},
        {"prompt_logprobs": {"prompt_logprobs": "yes"}},
        {"echo": as_echo(None, -1.0)},
        {"echo": as_echo(None, None, -1.0)},
        {"echo": as_echo(None, -1.0, -1.0, -1.0, -1.0)},
        {"echo": {"logprobs": {"token_logprobs": 3}}},
    ],
)
async def test_values_that_do_not_fit_the_prompt_are_nonsense(known):
    """Another number of values, another token's or none at all is an error, not a likelihood."""
    with pytest.raises(BackendError) as caught:
        await Server(**known).scorer().score(TOKENS)
    assert caught.value.reason == "BACKEND_ANSWER"


async def test_what_asking_otherwise_does_not_help_against_is_raised():
    """A server that is busy is not taken for one that knows no log-probabilities."""
    with pytest.raises(BackendError, match="busy"):
        await Server(prompt_logprobs=BackendError("busy")).scorer().score(TOKENS)
