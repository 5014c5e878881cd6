"""Log-probabilities of a prompt by a server: as vLLM tells them, by echo, or not at all."""

import math

import pytest

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition, NotFound
from crucible_bridge.reasons import Reason
from crucible_worker.backends.base import UNKNOWN_TOKEN
from crucible_worker.backends.openai.failures import final
from crucible_worker.backends.openai.scoring import Scorer
from tests.tables import rows

TOKENS = [7, 8, 9]
VALUES = (None, -1.5, -0.25)


class Server:
    """Answers by what it knows, and keeps what it was asked."""

    def __init__(self, **known):
        self.known = known
        self.bodies = []

    async def ask(self, body, tokens):
        assert tokens == len(body["prompt"]) + 1
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


@rows("echo", [{}, as_echo(-0.5), {"logprobs": None}, final("no", "BACKEND_REFUSED")])
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


@rows(
    "known",
    [
        {"prompt_logprobs": {"prompt_logprobs": [None, {"3": {"logprob": -1}}, {"9": {"logprob": -1}}]}},
        {"prompt_logprobs": {"prompt_logprobs": [None, {"8": {"logprob": "x"}}, {"9": {"logprob": -1}}]}},
        {"prompt_logprobs": {"prompt_logprobs": "yes"}},
        {"echo": as_echo(None, None, -1.0)},
        {"echo": {"logprobs": {"token_logprobs": 3}}},
    ],
)
async def test_values_that_do_not_fit_the_prompt_are_nonsense(known):
    """Another token's value or none at all is an error, not a likelihood."""
    with pytest.raises(BackendError) as caught:
        await Server(**known).scorer().score(TOKENS)
    assert caught.value.reason == "BACKEND_ANSWER"


@rows(
    "known",
    [
        {"prompt_logprobs": {"prompt_logprobs": [None]}},
        {"prompt_logprobs": as_vllm(VALUES[:-1])},
        {"prompt_logprobs": as_vllm((None, -1.0, -1.0, -1.0), [7, 8, 9, 10])},
        {"echo": as_echo(None, -1.0)},
        {"echo": as_echo(None, -1.0, -1.0, -1.0, -1.0)},
    ],
)
async def test_values_of_another_number_of_tokens_are_of_another_prompt(known):
    """A server that truncates a prompt, or adds tokens to it, has measured another one: no repeat helps."""
    server = Server(**known)
    with pytest.raises(BackendError) as caught:
        await server.scorer().score(TOKENS)
    assert (caught.value.reason, caught.value.retryable) == (Reason.PROMPT_DIFFERS, False)
    with pytest.raises(FailedPrecondition) as refused:
        await server.scorer().probe(TOKENS)
    assert refused.value.reason == Reason.PROMPT_DIFFERS


@rows(
    "known",
    [
        {"prompt_logprobs": as_vllm((None, -1.0, 0.5))},
        {"prompt_logprobs": as_vllm((None, -1.0, math.inf))},
        {"echo": as_echo(None, 0.0011, -1.0)},
    ],
)
async def test_a_probability_above_one_is_no_likelihood(known):
    """A log-probability above 0 by more than rounding is an error that names it, for an evaluator and for the probe."""
    server = Server(**known)
    with pytest.raises(BackendError, match="above 0") as caught:
        await server.scorer().score(TOKENS)
    assert (caught.value.reason, caught.value.retryable) == (Reason.IMPOSSIBLE_LOGPROBS, False)
    with pytest.raises(FailedPrecondition) as refused:
        await server.scorer().probe(TOKENS)
    assert refused.value.reason == Reason.IMPOSSIBLE_LOGPROBS


async def test_what_rounding_leaves_above_zero_is_kept():
    """Types of 16 bits may round a sum of probabilities above 1: the value stays as it was returned."""
    assert await Server(prompt_logprobs=as_vllm((None, 0.001, 0.0))).scorer().score(TOKENS) == (None, 0.001, 0.0)


async def test_likeliest_tokens_of_impossible_values_are_refused():
    """Which token is the likeliest cannot be read from a number that is no log-probability."""
    entries = [None, {"8": -1.5, "3": 4.0}, {"9": -0.2, "4": -9.0}]
    with pytest.raises(BackendError) as caught:
        await Server(prompt_logprobs={"prompt_logprobs": entries}).scorer().likeliest(TOKENS)
    assert caught.value.reason == Reason.IMPOSSIBLE_LOGPROBS


class Certain(Server):
    """Returns 0 for each token of a prompt, or of the prompts that it knows."""

    def __init__(self, *known):
        super().__init__()
        self.prompts = known

    async def ask(self, body, tokens):
        value = 0.0 if not self.prompts or body["prompt"] in self.prompts else -1.0
        self.known = {"prompt_logprobs": as_vllm((None, *[value] * (tokens - 2)), body["prompt"])}
        return await super().ask(body, tokens)


async def test_zeros_alone_are_refused_by_the_probe():
    """A server that returns 0 for every token has measured none; a score of zeros alone is no such proof."""
    with pytest.raises(FailedPrecondition, match="as if all of them were certain") as caught:
        await Certain().scorer().probe(TOKENS)
    assert caught.value.reason == Reason.IMPOSSIBLE_LOGPROBS
    assert await Certain().scorer().score(TOKENS) == (None, 0.0, 0.0)


async def test_a_model_that_is_certain_of_a_beginning_is_measured():
    """Each of its texts begins with the same tokens: read backwards, the same prompt is not certain."""
    server = Certain(TOKENS)
    await server.scorer().probe(TOKENS)
    assert [body["prompt"] for body in server.bodies] == [TOKENS, TOKENS[::-1]]


@rows(
    ("entries", "likeliest"),
    [
        (
            [
                {"8": {"logprob": -1.5, "rank": 2}, "3": {"logprob": -0.1, "rank": 1}},
                {"9": {"logprob": -0.2, "rank": 1}},
            ],
            (3, 9),
        ),
        # Ranks count tokens that are as likely: of two the one that shares its place with the first is behind it.
        (
            [
                {"8": {"logprob": -1.0, "rank": 2}, "3": {"logprob": -1.0, "rank": 1}},
                {"9": {"logprob": -0.2, "rank": 1}},
            ],
            (3, 9),
        ),
        ([{"8": -1.5, "3": -0.1}, {"9": -0.2, "4": -9.0}], (3, 9)),
        ([{"8": {"logprob": -1.5, "rank": 7}}, {"9": {"logprob": -0.2, "rank": 1}}], (UNKNOWN_TOKEN, 9)),
    ],
)
async def test_vllm_tells_the_likeliest_by_its_rank(entries, likeliest):
    """Or by its log-probability where there are no ranks; a rank alone says that it is another one."""
    server = Server(prompt_logprobs={"prompt_logprobs": [None, *entries]})
    assert await server.scorer().likeliest(TOKENS) == (None, *likeliest)
    assert len(server.bodies) == 1


async def test_echo_tells_whether_the_prompts_own_is_the_likeliest():
    """A text beside it is no id: where any is likelier, the likeliest is another token and no more is known."""
    told = as_echo(None, -1.5, -0.25, -3.0)["logprobs"]
    tops = [None, {"x": -0.1, "y": -1.5}, {"z": -0.25}, {"w": -3.0}]
    server = Server(echo={"logprobs": {**told, "top_logprobs": tops}})
    assert await server.scorer().likeliest(TOKENS) == (None, UNKNOWN_TOKEN, 9)


@pytest.mark.parametrize(
    "known",
    [
        {"prompt_logprobs": {"prompt_logprobs": [None, {"8": -1.5}, {"9": -0.2}]}},
        {"echo": as_echo(None, -1.5, -0.25)},
        {"echo": {"logprobs": {"token_logprobs": [None, -1.5, -0.25], "top_logprobs": [None, None, {"z": -1.0}]}}},
    ],
)
async def test_a_server_that_tells_its_own_alone_says_so(known):
    """Its log-probabilities can still be had."""
    scorer = Server(**known).scorer()
    with pytest.raises(FailedPrecondition) as caught:
        await scorer.likeliest(TOKENS)
    assert caught.value.reason == Reason.NO_GREEDY_TOKENS
    assert (await scorer.score(TOKENS))[0] is None


@rows(
    "known",
    [
        {"prompt_logprobs": {"prompt_logprobs": [None, {"8": -1.5, "a": -0.1}, {"9": -0.2, "4": -1.0}]}},
        {"prompt_logprobs": {"prompt_logprobs": [None, {"8": -1.5, "3": "x"}, {"9": -0.2, "4": -1.0}]}},
        {"echo": {"logprobs": {"token_logprobs": [None, -1.5, -0.25], "top_logprobs": [None]}}},
        {"echo": {"logprobs": {"token_logprobs": [None, -1.5, -0.2], "top_logprobs": [None, {"x": "y"}, {"z": -1}]}}},
    ],
)
async def test_likeliest_tokens_that_are_none_are_nonsense(known):
    """What is no id, no number or of no token is an error, not a wrong token."""
    with pytest.raises(BackendError) as caught:
        await Server(**known).scorer().likeliest(TOKENS)
    assert caught.value.reason == "BACKEND_ANSWER"


async def test_what_asking_otherwise_does_not_help_against_is_raised():
    """A server that is busy is not taken for one that knows no log-probabilities."""
    with pytest.raises(BackendError, match="busy"):
        await Server(prompt_logprobs=BackendError("busy")).scorer().score(TOKENS)
