"""ComputeDPOMetrics with models in place of log-probabilities, by a real worker."""

import math

import numpy as np
import pytest

import crucible_bridge
from crucible_bridge.codec import metrics as codec
from crucible_bridge.errors import BackendError, BridgeError, DeadlineExceeded, InvalidField, NotFound, Unavailable
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    DPOMetrics,
    DPOMetricsRequest,
    PreferencePair,
    Sample,
    parse_model,
)
from crucible_bridge.v1 import metrics_pb2 as pb
from crucible_worker.server import Worker
from crucible_worker.testing import STALL, ScriptedModel, run_worker
from tests.service.evaluation_kit import asked
from tests.service.server_kit import settings_for

BETA = 0.5


def likes(letter: str, logprob: float, **fields) -> ScriptedModel:
    """A model with this log-probability for a letter, and -3 for every other one."""
    return ScriptedModel(
        logprob=lambda token, position: logprob if token == ord(letter) else -3.0, fingerprint=letter, **fields
    )


def pair(chosen: str, rejected: str, prompt: str = "q") -> PreferencePair:
    """Two answers to a question."""
    asked = ChatMessage("user", prompt)
    return PreferencePair(
        chosen=Conversation((asked, ChatMessage("assistant", chosen))),
        rejected=Conversation((asked, ChatMessage("assistant", rejected))),
    )


def columns_of(found: DPOMetrics) -> list[np.ndarray]:
    """The log-probabilities that two models gave."""
    columns = (found.chosen, found.rejected, found.chosen_reference, found.rejected_reference)
    given = [column for column in columns if column is not None]
    assert len(given) == len(columns)
    return given


PAIRS = [pair("aa", "b"), pair("b", "a")]


async def test_models_are_queried_for_both_answers():
    """Sums over the tokens of the answers, the metrics of them, and what the queries used."""
    policy, reference = likes("a", -1.0), likes("a", -2.0)
    async with run_worker({"m": policy, "r": reference}) as worker:
        metrics = worker.bridge.metrics
        found = await metrics.compute_dpo_metrics_of_models(PAIRS, "embedded:m", "embedded:r", beta=BETA)
        chosen, rejected, chosen_reference, rejected_reference = columns = columns_of(found)
        given = await metrics.compute_dpo_metrics(*columns, beta=BETA)

    assert chosen.tolist() == [-2.0, -3.0]
    assert rejected.tolist() == [-3.0, -1.0]
    assert chosen_reference.tolist() == [-4.0, -3.0]
    assert rejected_reference.tolist() == [-3.0, -2.0]
    # The margins are beta * (2 - 0) and beta * (0 - 1).
    assert found.metrics.values["margin"] == BETA * (2 - 1) / 2
    assert found.metrics.values["dpo_loss"] == pytest.approx(
        (math.log1p(math.exp(-2 * BETA)) + math.log1p(math.exp(BETA))) / 2
    )
    assert found.metrics.values["accuracy"] == 0.5
    assert given == found.metrics
    assert found.policy_usage is not None
    assert found.reference_usage is not None
    assert found.policy_usage.calls == found.reference_usage.calls == 4


async def test_the_reference_may_be_columns_of_an_earlier_call():
    """It is not queried again: its log-probabilities stay while the policy is trained."""
    policy, reference = likes("a", -1.0), likes("a", -2.0)
    async with run_worker({"m": policy, "r": reference}) as worker:
        metrics = worker.bridge.metrics
        first = await metrics.compute_dpo_metrics_of_models(PAIRS, "embedded:m", "embedded:r", beta=BETA)
        calls = reference.calls
        _, _, *columns = columns_of(first)
        second = await metrics.compute_dpo_metrics_of_models(PAIRS, "embedded:m", (columns[0], columns[1]), beta=BETA)

    assert second.metrics == first.metrics
    assert (second.chosen_reference, second.reference_usage) == (None, None)
    assert reference.calls == calls


async def test_an_embedded_model_gives_what_the_evaluator_reports(tmp_path):
    """One formula, and one way to render a pair."""
    policy, reference = "embedded:arithmetic@600", "embedded:arithmetic@180"
    sums = [("17+25=", "42", "43"), ("31+46=", "77", "87"), ("52+29=", "82", "81")]
    pairs = [pair(chosen, rejected, prompt) for prompt, chosen, rejected in sums]
    samples = [
        Sample(input=prompt, metadata={"chosen": chosen, "rejected": rejected}) for prompt, chosen, rejected in sums
    ]
    async with (
        Worker(settings_for(tmp_path)) as worker,
        crucible_bridge.connect(worker.address) as bridge,
    ):
        found = await bridge.metrics.compute_dpo_metrics_of_models(pairs, policy, reference, beta=0.1)
        evaluators = {"preference": {"reference": reference, "beta": 0.1}}
        evaluation = await bridge.evaluation.evaluate(asked(model=policy, evaluators=evaluators, dataset=samples))

    assert found.metrics.values["accuracy"] == pytest.approx(2 / 3)
    for key, value in found.metrics.values.items():
        assert evaluation.metrics.values[key] == pytest.approx(value, rel=1e-6)


async def test_errors_name_the_model_or_the_conversation():
    """As the request has them."""
    fault = BackendError("is down", reason="DOWN", retryable=False)
    models = {"m": ScriptedModel(), "down": ScriptedModel(fault=lambda call: fault)}
    asked = Conversation((ChatMessage("user", "q"),))
    unanswered = PreferencePair(chosen=PAIRS[0].chosen, rejected=asked)
    alone = PreferencePair(chosen=Conversation((ChatMessage("assistant", "a"),)), rejected=PAIRS[0].rejected)
    cases = [
        ((PAIRS, "embedded:absent", "embedded:m"), NotFound, "policy"),
        ((PAIRS, "embedded:m", "embedded:absent"), NotFound, "reference"),
        (([PAIRS[0], unanswered], "embedded:m", "embedded:m"), InvalidField, "pairs[1].rejected.messages"),
        (([alone], "embedded:m", "embedded:m"), InvalidField, "pairs[0].chosen.messages"),
        (([], "embedded:m", "embedded:m"), InvalidField, "pairs"),
        ((PAIRS, "embedded:m", ([1.0], [1.0])), InvalidField, "chosen_reference_logprobs"),
        ((PAIRS[:1], "embedded:down", "embedded:m"), Unavailable, "pairs[0].chosen"),
    ]
    async with run_worker(models) as worker:
        for (pairs, policy, reference), kind, field in cases:
            with pytest.raises(BridgeError) as caught:
                await worker.bridge.metrics.compute_dpo_metrics_of_models(pairs, policy, reference, beta=BETA)
            assert (type(caught.value), caught.value.field) == (kind, field)


async def test_the_models_have_until_the_deadline():
    """The error says how many answers were measured."""
    async with run_worker({"m": ScriptedModel(fault=lambda call: STALL)}) as worker:
        with pytest.raises(DeadlineExceeded) as caught:
            await worker.bridge.metrics.compute_dpo_metrics_of_models(
                PAIRS, "embedded:m", "embedded:m", beta=BETA, deadline_ms=100
            )
    assert caught.value.field == "deadline_ms"


def test_a_model_and_its_columns_exclude_each_other():
    """The request says which of them to leave out; pairs without a model are refused."""
    policy = parse_model("embedded:m")
    column = np.array([-1.0])
    both = DPOMetricsRequest(
        chosen=column, chosen_reference=column, rejected_reference=column, beta=BETA, policy=policy, pairs=tuple(PAIRS)
    )
    idle = DPOMetricsRequest(
        chosen=column,
        rejected=column,
        chosen_reference=column,
        rejected_reference=column,
        beta=BETA,
        pairs=tuple(PAIRS),
    )

    for request, field in ((both, "chosen_logprobs"), (idle, "pairs")):
        with pytest.raises(InvalidField) as caught:
            codec.dpo_metrics_request_from_bytes(codec.dpo_metrics_request_to_bytes(request))
        assert caught.value.field == field
    assert pb.ComputeDPOMetricsRequest.FromString(codec.dpo_metrics_request_to_bytes(both)).HasField("policy")


async def test_the_models_are_queried_at_once():
    """The error of one is the answer, though the other one has no answer yet."""
    fault = BackendError("is down", reason="DOWN", retryable=False)
    models = {"m": ScriptedModel(fault=lambda call: STALL), "down": ScriptedModel(fault=lambda call: fault)}
    async with run_worker(models) as worker:
        with pytest.raises(Unavailable) as caught:
            await worker.bridge.metrics.compute_dpo_metrics_of_models(
                PAIRS, "embedded:m", "embedded:down", beta=BETA, deadline_ms=60_000
            )
    assert caught.value.field == "pairs[0].chosen"
