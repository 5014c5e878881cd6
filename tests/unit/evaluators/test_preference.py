"""The evaluator preference: which answers of a sample are compared, and what the log-probabilities amount to."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import pytest

from crucible_bridge.errors import BackendError, FailedPrecondition, InvalidField
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    EvaluatorSpec,
    Sample,
    SampleResult,
    Verdict,
)
from crucible_worker.backends.base import MAX_MESSAGES
from crucible_worker.evaluators import registry
from crucible_worker.evaluators.base import Outcome, SampleContext
from crucible_worker.evaluators.preference import Preference, pair_of
from crucible_worker.testing import STALL, ScriptedModel
from tests.tables import rows

BETA = 0.25
ASKED = Conversation((ChatMessage("user", "q"),))
USER, GOOD, BAD = (
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": "good"},
    {"role": "assistant", "content": "bad"},
)


def evaluator(**options: Any) -> Preference:
    """The evaluator with these options."""
    made = registry.create(EvaluatorSpec(kind="preference", options=options), 0, None)
    assert isinstance(made, Preference)
    return made


def pair(**fields: Any) -> Sample:
    """A pair, of the answers aa and b unless other fields are given."""
    return Sample(**{"id": "s", "input": "q", "metadata": {"chosen": "aa", "rejected": "b"}, **fields})


def model(**logprobs: float) -> ScriptedModel:
    """A model that gives each letter a log-probability."""
    known = {ord(letter): value for letter, value in logprobs.items()}
    return ScriptedModel(logprob=lambda token, position: known.get(token, -100.0))


def context(policy: ScriptedModel, reference: ScriptedModel | None = None) -> SampleContext:
    """The models for one sample."""
    others = {} if reference is None else {"reference": reference}
    return SampleContext(model=policy, repeat=0, seed=7, auxiliary_models=others)


def results(*outcomes: Outcome) -> list[SampleResult]:
    """Results of samples with these outcomes."""
    return [
        SampleResult(
            evaluator="preference",
            sample_id=str(index),
            verdict=outcome.verdict,
            score=outcome.score,
            measurements=outcome.measurements,
        )
        for index, outcome in enumerate(outcomes)
    ]


def _softplus(value: float) -> float:
    return math.log1p(math.exp(value))


@rows(
    "sample",
    [
        pair(metadata={"chosen": "good", "rejected": "bad"}),
        pair(targets=("good", "other"), metadata={"rejected": "bad"}),
        pair(metadata={"chosen": json.dumps([GOOD]), "rejected": json.dumps([BAD])}),
        pair(metadata={"a": "good", "b": "bad"}),
    ],
)
def test_answers_after_a_text_are_its_targets(sample: Sample) -> None:
    """The question stays a text, so that it is rendered as for nll."""
    names = ("a", "b") if "a" in sample.metadata else ("chosen", "rejected")

    chosen, rejected = pair_of(sample, *names)

    assert (chosen.input, chosen.targets) == ("q", ("good",))
    assert (rejected.input, rejected.targets) == ("q", ("bad",))


@rows(
    "sample",
    [
        pair(metadata={"chosen": json.dumps([USER, GOOD]), "rejected": json.dumps([USER, BAD])}),
        pair(input=ASKED, metadata={"chosen": json.dumps([GOOD]), "rejected": "bad"}),
        pair(
            input=Conversation((*ASKED.messages, ChatMessage("assistant", "good"))),
            metadata={"rejected": json.dumps([USER, BAD])},
        ),
    ],
)
def test_conversations_are_a_question_and_an_answer(sample: Sample) -> None:
    """A list that begins with the assistant follows the input; any other list is the whole conversation."""
    chosen, rejected = pair_of(sample)

    assert (chosen.input, chosen.targets) == (ASKED, ("good",))
    assert (rejected.input, rejected.targets) == (ASKED, ("bad",))


def test_several_messages_follow_the_input() -> None:
    """The last one is the answer."""
    sample = pair(metadata={"chosen": json.dumps([BAD, USER, GOOD]), "rejected": "bad"})

    chosen, _ = pair_of(sample)

    messages = (ASKED.messages[0], ChatMessage("assistant", "bad"), ChatMessage("user", "q"))
    assert (chosen.input, chosen.targets) == (Conversation(messages), ("good",))


@rows(
    ("sample", "field"),
    [
        (pair(metadata={"chosen": "a"}), 'metadata["rejected"]'),
        (pair(metadata={"rejected": "a"}), 'metadata["chosen"]'),
        (pair(metadata={"chosen": json.dumps([GOOD, USER]), "rejected": "b"}), 'metadata["chosen"]'),
        (pair(metadata={"chosen": '[{"role": 1}]', "rejected": "b"}), 'metadata["chosen"]'),
        (pair(metadata={"chosen": "a", "rejected": '[{"role": "user"'}), 'metadata["rejected"]'),
        (
            pair(input=Conversation((*ASKED.messages, ChatMessage("assistant", "x")))),
            'metadata["chosen"]',
        ),
    ],
)
def test_what_is_no_pair_is_refused(sample: Sample, field: str) -> None:
    """The error names the entry."""
    with pytest.raises(InvalidField) as caught:
        evaluator().check_sample(sample)
    assert caught.value.field == field


def test_what_is_missing_may_come_from_a_column() -> None:
    """The error names the option of a data set that fills the entry, under the key that the evaluator has."""
    with pytest.raises(InvalidField, match=r"\?metadata\.worse=COLUMN"):
        pair_of(pair(metadata={"better": "a"}), "better", "worse")
    with pytest.raises(InvalidField, match=r"\?metadata\.better=COLUMN"):
        pair_of(pair(metadata={"worse": "a"}), "better", "worse")


@rows("client", ["training", "sampling"])
async def test_rewards_are_dpo_s(client: str) -> None:
    """Rewards are beta * (policy - reference), in log-probabilities summed over the tokens of the answer alone."""
    subject = evaluator(reference="embedded:r", beta=BETA, client=client)
    policy, reference = model(a=-1.0, b=-4.0), model(a=-2.0, b=-3.0)
    other = pair(id="t", metadata={"chosen": "b", "rejected": "a"})

    outcomes = [await subject.run(sample, context(policy, reference)) for sample in (pair(), other)]
    metrics = subject.aggregate(results(*outcomes))

    # aa: -2 - -4 = 2; b: -4 - -3 = -1. In the second pair b is chosen, and a alone rejected: -1 - -2 = 1.
    margins = [BETA * (2 - -1), BETA * (-1 - 1)]
    assert [(outcome.verdict, outcome.score) for outcome in outcomes] == [
        (Verdict.CORRECT, 1.0),
        (Verdict.INCORRECT, 0.0),
    ]
    assert outcomes[0].measurements == {
        "chosen_logprob": -2.0,
        "rejected_logprob": -4.0,
        "chosen_reference_logprob": -4.0,
        "rejected_reference_logprob": -3.0,
        "chosen_tokens": 2.0,
        "rejected_tokens": 1.0,
        "margin": margins[0],
    }
    assert metrics.values["dpo_loss"] == pytest.approx(sum(_softplus(-margin) for margin in margins) / 2)
    assert metrics.values["margin"] == pytest.approx(sum(margins) / 2)
    assert metrics.values["margin_stderr"] == pytest.approx(abs(margins[0] - margins[1]) / 2)
    assert metrics.values["chosen_reward"] == pytest.approx(BETA * (2 - 1) / 2)
    assert metrics.values["rejected_reward"] == pytest.approx(BETA * (-1 + 1) / 2)
    assert metrics.values["accuracy"] == 0.5
    assert metrics.values["accuracy_ci95_low"] < 0.5 < metrics.values["accuracy_ci95_high"]
    assert set(metrics.values) == set(subject.keys_for({"reference": "embedded:r"}))


def test_conversations_have_a_bound() -> None:
    """Of messages, which are read while others wait."""
    longest = [USER] * (MAX_MESSAGES - 1)
    chosen, _ = pair_of(pair(metadata={"chosen": json.dumps([*longest, GOOD]), "rejected": "bad"}))

    assert isinstance(chosen.input, Conversation)
    assert len(chosen.input.messages) == MAX_MESSAGES - 1
    with pytest.raises(InvalidField, match="length <= 10000"):
        pair_of(pair(metadata={"chosen": json.dumps([*longest, USER, GOOD]), "rejected": "bad"}))


async def test_without_a_reference_log_probabilities_are_compared() -> None:
    """The margin is their difference, whatever beta is; equal ones are no preference."""
    subject = evaluator(beta=BETA)

    better = await subject.run(pair(), context(model(a=-1.0, b=-4.0)))
    equal = await subject.run(pair(), context(model(a=-2.0, b=-4.0)))
    metrics = subject.aggregate(results(better, equal))

    assert (better.score, better.measurements["margin"]) == (1.0, 2.0)
    assert (equal.score, equal.measurements["margin"]) == (0.0, 0.0)
    assert (metrics.values["accuracy"], metrics.values["margin"]) == (0.5, 1.0)
    assert set(metrics.values) == set(subject.keys_for({}))


async def test_an_impossible_token_leaves_the_pair_undecided() -> None:
    """It has no finite reward; other pairs count."""
    subject = evaluator(reference="embedded:r")
    policy = model(a=-1.0, b=-4.0)

    lost = await subject.run(pair(), context(policy, model(a=-1.0, b=-math.inf)))
    found = await subject.run(pair(), context(policy, policy))
    metrics = subject.aggregate(results(lost, found))

    assert lost.verdict is Verdict.UNDECIDED
    assert lost.problem is not None
    assert lost.problem.message.startswith("rejected_reference_logprob is undefined")
    assert metrics.values["accuracy_strict"] == 0.0
    assert metrics.values["dpo_loss"] == pytest.approx(math.log(2))
    assert metrics.undefined.keys() == {"accuracy_stderr", "margin_stderr"}


def test_without_a_scored_pair_every_metric_is_undefined() -> None:
    """With the reason."""
    subject = evaluator(reference="embedded:r")

    metrics = subject.aggregate([])

    assert not metrics.values
    assert set(metrics.undefined) == set(subject.keys_for({"reference": "embedded:r"}))


async def test_errors_name_the_reference() -> None:
    """Two models are queried for a sample, so its problem says which one failed."""
    fault = BackendError("is down", reason="DOWN", field="model", retryable=True)
    broken = ScriptedModel(fault=lambda call: fault)

    with pytest.raises(BackendError) as caught:
        await evaluator(reference="embedded:r").run(pair(), context(ScriptedModel(), broken))
    assert (caught.value.field, caught.value.reason) == ("reference", "DOWN")


def test_a_reference_must_have_the_client_and_be_of_the_worker() -> None:
    """Both errors come before the first sample."""
    with pytest.raises(InvalidField) as caught:
        evaluator(reference="orchestrator:mine")
    assert caught.value.field == 'evaluators[0].options["reference"]'
    with pytest.raises(FailedPrecondition):
        evaluator(reference="embedded:r", client="training").check_auxiliary_models(
            {"reference": ScriptedModel(trained=False)}
        )


class Meeting(ScriptedModel):
    """Answers once so many calls wait for an answer."""

    def __init__(self, barrier: asyncio.Barrier, **fields: Any) -> None:
        super().__init__(**fields)
        self.barrier = barrier

    async def forward(self, data: Any) -> Any:
        await asyncio.wait_for(self.barrier.wait(), 30)
        return await super().forward(data)

    async def compute_logprobs(self, prompt: Any) -> Any:
        await asyncio.wait_for(self.barrier.wait(), 30)
        return await super().compute_logprobs(prompt)


@rows(("trained", "calls"), [(True, 2), (False, 4)])
async def test_a_pair_is_measured_at_once(trained: bool, calls: int) -> None:
    """By both models: in one call of a training side, and in two of a sampling side; the numbers are the same."""
    barrier = asyncio.Barrier(calls)
    policy, reference = Meeting(barrier, trained=trained), Meeting(barrier, trained=trained)

    at_once = await evaluator(reference="embedded:r").run(pair(), context(policy, reference))

    apart = await evaluator(reference="embedded:r").run(pair(), context(ScriptedModel(), ScriptedModel()))
    assert at_once.measurements == apart.measurements


async def test_the_first_error_ends_the_other_model_s_calls() -> None:
    """Its answer is of no use any more."""
    fault = BackendError("is down", reason="DOWN", field="model", retryable=True)
    broken, stalled = ScriptedModel(fault=lambda call: fault), ScriptedModel(fault=lambda call: STALL)

    with pytest.raises(BackendError) as caught:
        await asyncio.wait_for(evaluator(reference="embedded:r").run(pair(), context(stalled, broken)), 30)

    assert (caught.value.field, stalled.counts["in_flight"]) == ("reference", 0)
