"""Likeliest tokens by an OpenAI-compatible server: data in tokens through a worker, and a server that does not tell."""

import numpy as np
import pytest

from crucible_bridge.types import Datum, EvaluationState, EvaluatorSpec, ModelInput, Sample, Verdict
from tests import needs
from tests.service.evaluation_kit import samples_of
from tests.service.openai_kit import Reply, ScriptedServer, answer, worker_on

needs.modules("aiohttp")

TOKENS = [5, 6, 7, 8]


def as_vllm(request):
    """Holds each token for the likeliest but 7, in whose place it would have 70."""
    if request.method != "POST":
        return Reply({"data": []})
    entries = [
        {"7": {"logprob": -2.0, "rank": 4}, "70": {"logprob": -0.5, "rank": 1}}
        if token == 7
        else {str(token): {"logprob": -0.5, "rank": 1}}
        for token in request.body["prompt"][1:]
    ]
    return answer(request, "x", prompt_logprobs=[None, *entries])


def as_echo(request):
    """Tells log-probabilities of the prompt's own tokens, and of no others."""
    if request.method != "POST":
        return Reply({"data": []})
    own = {"token_logprobs": [None, *(-1.0 for _ in request.body["prompt"][1:])]}
    return answer(request, "x", **({"logprobs": own} if "echo" in request.body else {}))


def sample() -> Sample:
    """Three tokens behind another one, two of which have weight."""
    inputs = {"target_tokens": np.array(TOKENS[1:]), "weights": np.array([0, 1, 1], np.float32)}
    return Sample(id="s", input=Datum(model_input=ModelInput.of(TOKENS[:-1]), loss_fn_inputs=inputs))


async def evaluated(script, folder, **options):
    """What becomes of the sample, how the evaluation ended, and what the server was asked."""
    async with ScriptedServer(script).serving() as server, worker_on(server, folder) as bridge:
        evaluation = await bridge.evaluation.evaluate(
            model="openai:s/m",
            evaluators=EvaluatorSpec(kind="next_token_accuracy", options=options),
            dataset=[sample()],
            evaluation_id="e",
        )
        (result,) = await samples_of(bridge)
    return evaluation, result, server.asked


async def test_next_tokens_are_evaluated_by_a_server(tmp_path):
    """After the probes, one request tells of all tokens: of the two that have weight, one is the likeliest."""
    evaluation, result, asked = await evaluated(as_vllm, tmp_path)

    assert evaluation.state is EvaluationState.COMPLETED
    assert [request.body["prompt"] for request in asked[2:]] == [TOKENS]
    assert result.measurements == {"tokens": 2, "right_tokens": 1, "right_as_a_whole": 0}
    assert evaluation.metrics.values == {"next_token_accuracy": 0.5, "sample_accuracy": 0.0}


@pytest.mark.parametrize(
    ("script", "options", "reason"),
    [(as_echo, {}, "NO_GREEDY_TOKENS"), (as_vllm, {"clean": ["strip"]}, "NO_TOKENIZER")],
)
async def test_what_a_server_does_not_tell_is_an_error(tmp_path, script, options, reason):
    """Which token is the likeliest, or its text: unscored with the reason, and never wrong."""
    evaluation, result, _ = await evaluated(script, tmp_path, **options)

    assert (result.verdict, result.problem.reason if result.problem else None) == (Verdict.ERROR, reason)
    assert set(evaluation.results[0].metrics.undefined.values()) == {"no sample was scored"}
