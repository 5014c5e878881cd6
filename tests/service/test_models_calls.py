"""ModelService on scripted models: what it answers, problems of items, retries."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from crucible_bridge.errors import FailedPrecondition, NotFound
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Datum,
    ImageChunk,
    ModelInput,
    SampledSequence,
    SampleItem,
    SamplingParams,
    TokensChunk,
)
from crucible_worker.backends.base import Model
from crucible_worker.testing import ScriptedModel, run_worker
from crucible_worker.util.limits import WorkerLimits
from tests.service.evaluation_kit import failing
from tests.service.models_kit import EIGHT, datum, fields, reasons, texts

pytestmark = pytest.mark.core

RANDOM = SamplingParams(max_tokens=8, temperature=1.0, seed=7)
DOWN = failing(retryable=True, retry_after=0.0)


@dataclasses.dataclass(kw_only=True)
class SeenModel(ScriptedModel):
    """Keeps how it was asked to sample."""

    seen: list[tuple[str, SamplingParams, int]] = dataclasses.field(default_factory=list)

    @property
    def sampling(self) -> SeenModel:
        return self

    async def sample(
        self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1
    ) -> Sequence[SampledSequence]:
        self.seen.append(("".join(map(chr, prompt.tokens().tolist())), params, num_samples))
        return await super().sample(prompt, params, num_samples)


async def test_prompts_of_every_kind_are_continued():
    """Text, conversations and tokens in one batch, in order, with tokens, log-probabilities, counts and the end."""
    conversation = Conversation((ChatMessage("user", "d"), ChatMessage("user", "e")))
    async with run_worker({"m": (model := ScriptedModel())}) as worker:
        answer = await worker.bridge.models.sample(
            "embedded:m", ["abc", conversation, [102, 103], np.array([104])], SamplingParams(max_tokens=2)
        )

    assert texts(answer.items) == ["AB", "DE", "FG", "H"]
    assert [item.sequences[0].stop_reason for item in answer.items] == ["length", "stop", "stop", "stop"]
    assert [item.prompt_tokens for item in answer.items] == [3, 2, 2, 1]
    assert [item.sequences[0].output_tokens for item in answer.items] == [2, 2, 2, 1]
    first = answer.items[0].sequences[0]
    assert first.tokens == (ord("A"), ord("B"))
    assert first.logprobs == (model.logprob(ord("A"), 0), model.logprob(ord("B"), 1))
    assert (answer.model_fingerprint, model.loads) == ("scripted", 1)


async def test_each_item_has_as_many_samples_as_it_asks_for():
    """One call of the model an item, with what holds for all."""
    sampling = dataclasses.replace(EIGHT, stop=("x",), top_k=3, top_p=0.5)
    async with run_worker({"m": (model := SeenModel())}) as worker:
        answer = await worker.bridge.models.sample(
            "embedded:m", ["a", SampleItem(prompt="b", num_samples=3)], sampling, num_samples=2
        )

    assert [len(item.sequences) for item in answer.items] == [2, 3]
    assert model.seen == [("a", sampling, 2), ("b", sampling, 3)]


async def test_seeds_are_told_and_bring_the_same_samples_again():
    """An item's seed is made of the batch's and its index; with it as its own, it is asked alike alone."""
    async with run_worker({"m": (model := SeenModel())}) as worker:
        sample = worker.bridge.models.sample
        batch = await sample("embedded:m", ["a", "a", SampleItem(prompt="a", seed=-5)], RANDOM)
        again = await sample("embedded:m", ["a", "a"], RANDOM)
        alone = await sample("embedded:m", [SampleItem(prompt="a", seed=batch.items[1].seed)], RANDOM)

    seeds = [item.seed for item in batch.items]
    assert [params.seed for _, params, _ in model.seen[:3]] == seeds
    assert len(set(seeds)) == 3
    assert seeds[2] == -5
    assert [item.seed for item in again.items] == seeds[:2]
    assert alone.items[0].seed == seeds[1]


async def test_greedy_sampling_has_no_seed_and_unseeded_sampling_another_each_time():
    """Nobody gets the same "random" answers twice without having asked for them."""
    async with run_worker({"m": SeenModel()}) as worker:
        greedy = await worker.bridge.models.sample("embedded:m", ["a"], dataclasses.replace(EIGHT, seed=7))
        drawn = [
            (await worker.bridge.models.sample("embedded:m", ["a"], dataclasses.replace(RANDOM, seed=None))).items[0]
            for _ in range(2)
        ]

    assert greedy.items[0].seed is None
    assert None not in (drawn[0].seed, drawn[1].seed)
    assert drawn[0].seed != drawn[1].seed


@pytest.mark.parametrize("sampled", [True, False], ids=["sampling", "training"])
async def test_log_probabilities_are_of_every_token_but_the_first(sampled: bool):
    """Whichever side the model has; a sequence of one token has none."""
    model, sequences = ScriptedModel(sampled=sampled), [[5, 6, 7], [8], np.array([9, 10])]
    async with run_worker({"m": model}) as worker:
        answer = await worker.bridge.models.compute_logprobs("embedded:m", sequences)

    found = [item.logprobs.tolist() for item in answer.sequences]  # type: ignore[union-attr]
    assert found == [
        [model.logprob(token, index) for index, token in enumerate(list(tokens)[1:])] for tokens in sequences
    ]
    assert answer.model_fingerprint == "scripted"


async def test_values_that_are_not_finite_are_told_as_they_are():
    """-inf is a token that the model holds for impossible; no loss is made of it."""
    model = ScriptedModel(logprob=lambda token, position: float("-inf") if token == 6 else -1.0)
    async with run_worker({"m": model}) as worker:
        answer = await worker.bridge.models.compute_logprobs("embedded:m", [[5, 6, 7]])
        forward = await worker.bridge.models.forward(
            "embedded:m", [datum(5, 6, 7, weights=[1.0, 1.0]), datum(5, 6, 7, weights=[0.0, 2.0])]
        )

    assert answer.sequences[0].logprobs.tolist() == [float("-inf"), -1.0]  # type: ignore[union-attr]
    assert [output.loss for output in forward.outputs] == [None, 2.0]
    assert reasons(forward.outputs) == [None, None]


async def test_forward_answers_targets_and_a_loss_where_there_are_weights():
    """The loss is minus the weighted sum; other inputs are not sent."""
    data = [datum(1, 2, 3, weights=[0.5, 2.0], advantages=[1.0, 1.0]), datum(4, 5)]
    async with run_worker({"m": (model := ScriptedModel(sampled=False))}) as worker:
        answer = await worker.bridge.models.forward("embedded:m", data)

    expected = [model.logprob(2, 0), model.logprob(3, 1)]
    assert answer.outputs[0].logprobs.tolist() == expected  # type: ignore[union-attr]
    assert answer.outputs[0].loss == -(0.5 * expected[0] + 2.0 * expected[1])
    assert answer.outputs[1].logprobs.tolist() == [model.logprob(5, 0)]  # type: ignore[union-attr]
    assert answer.outputs[1].loss is None


class ServedModel(Model):
    """Its server has tokenizer and template to itself, and tells numbers of tokens alone."""

    fingerprint = "served"

    async def sample(self, prompt: Any, params: SamplingParams, num_samples: int = 1) -> list[SampledSequence]:
        raise NotFound("is not served", reason="UNKNOWN_MODEL", field="model")

    async def compute_logprobs(self, prompt: Any) -> list[float | None]:
        raise FailedPrecondition("gives none", reason="NO_PROMPT_LOGPROBS")

    async def sample_text(
        self, input: Any, params: SamplingParams, num_samples: int = 1, *, plain: bool = False
    ) -> list[SampledSequence]:
        said = input if isinstance(input, str) else "+".join(message.content for message in input.messages)
        counted = SampledSequence(text=said, tokens=(), token_count=7, prompt_tokens=3, logprobs=(-0.5,) * 6)
        return [counted] * num_samples


async def test_words_are_left_to_a_server_that_has_the_tokenizer():
    """Counts are what it tells; what it says of the model is not told of the item."""
    conversation = Conversation((ChatMessage("user", "d"), ChatMessage("user", "e")))
    async with run_worker({"m": ServedModel()}) as worker:
        sampled = await worker.bridge.models.sample("embedded:m", ["a", conversation, [1]], EIGHT)
        scored = await worker.bridge.models.compute_logprobs("embedded:m", [[1, 2]])

    assert texts(sampled.items) == ["a", "d+e", None]
    first = sampled.items[0]
    assert (first.prompt_tokens, first.sequences[0].tokens, first.sequences[0].output_tokens) == (3, (), 7)
    assert first.sequences[0].logprobs == (-0.5,) * 6
    assert (reasons(sampled.items)[2], fields(sampled.items)[2]) == ("UNKNOWN_MODEL", "model")
    assert (reasons(scored.sequences), fields(scored.sequences)) == (["NO_PROMPT_LOGPROBS"], ["sequences[0]"])


async def test_a_bad_item_costs_no_other():
    """Each has its problem with the field's path, those around it their results."""
    image = ModelInput((TokensChunk(tokens=np.array([1])), ImageChunk(data=b"x", format="png")))
    bad = [
        datum(1, 2, weights=[1.0, 2.0]),
        datum(1, 2, weights=[float("nan")]),
        Datum(model_input=[1], loss_fn_inputs={"weights": [1.0]}),
        Datum(model_input=[1], loss_fn_inputs={"target_tokens": [1.0]}),
        Datum(model_input=[1], loss_fn_inputs={"target_tokens": [1, 2]}),
        Datum(model_input=[], loss_fn_inputs={"target_tokens": []}),
    ]
    async with run_worker(
        {"m": ScriptedModel(context_length=4)}, limits=WorkerLimits(max_samples_per_item=3)
    ) as worker:
        models = worker.bridge.models
        prompts: list[Any] = ["abcde", "ab", "", SampleItem(prompt="x", num_samples=4), "c"]
        sampled = await models.sample("embedded:m", prompts, EIGHT)
        scored = await models.compute_logprobs("embedded:m", [[1, 2], [], [1, 2, 3, 4, 5], image, [3, 4]])
        forward = await models.forward("embedded:m", [datum(1, 2), *bad, datum(3, 4)])

    assert texts(sampled.items) == [None, "AB", "", None, "C"]
    assert reasons(sampled.items) == ["PROMPT_TOO_LONG", None, None, "INVALID_FIELD", None]
    assert fields(sampled.items) == ["items[0].prompt", None, None, "items[3].num_samples", None]
    assert reasons(scored.sequences) == [None, "INVALID_FIELD", "PROMPT_TOO_LONG", "INVALID_FIELD", None]
    assert fields(scored.sequences) == [None, "sequences[1]", "sequences[2]", "sequences[3].chunks[1]", None]
    targets, weights = 'loss_fn_inputs["target_tokens"]', 'loss_fn_inputs["weights"]'
    places = [weights, weights, targets, targets, targets, targets]
    assert fields(forward.outputs) == [
        None,
        *(f"data[{index}].{place}" for index, place in enumerate(places, start=1)),
        None,
    ]


async def test_failures_are_asked_again_where_that_may_help_and_told_where_not():
    """A retryable failure does not show; the other is its item's problem, after one call."""
    model = ScriptedModel()
    flaky = iter([True])
    model.fault = lambda call: DOWN(call) if call.text == "b" and next(flaky, False) else failing("c")(call)
    async with run_worker({"m": model}) as worker:
        answer = await worker.bridge.models.sample("embedded:m", ["a", "b", "c", "d"], EIGHT)

    assert texts(answer.items) == ["A", "B", None, "D"]
    problem = answer.items[2].problem
    assert problem is not None
    assert (problem.reason, problem.field, problem.retryable) == ("BACKEND_DOWN", "items[2]", False)
    assert model.counts["sample"] == 5


async def test_a_backend_that_is_down_is_not_asked_for_ever():
    """Every item has its problem, and the extra calls stay within the budget of the batch."""
    model = ScriptedModel(fault=DOWN)
    async with run_worker({"m": model}) as worker:
        answer = await worker.bridge.models.compute_logprobs("embedded:m", [[1, 2]] * 100)

    assert reasons(answer.sequences) == ["BACKEND_DOWN"] * 100
    assert model.counts["compute_logprobs"] == 130


async def test_nonsense_of_a_backend_is_not_believed():
    """Another number of samples, of values, or none at all."""
    dull = ScriptedModel()

    async def sample(*_: Any) -> list[SampledSequence]:
        return [SampledSequence(text="", tokens=(1, 2), logprobs=(-1.0,))]

    async def nothing(*_: Any) -> list[Any]:
        return []

    dull.sample, dull.compute_logprobs, dull.forward = sample, nothing, nothing  # type: ignore[method-assign]
    async with run_worker({"m": dull}) as worker:
        models = worker.bridge.models
        sampled = await models.sample("embedded:m", ["a", SampleItem(prompt="b", num_samples=2)], EIGHT)
        scored = await models.compute_logprobs("embedded:m", [[1, 2]])
        forward = await models.forward("embedded:m", [datum(1, 2)])

    assert reasons([*sampled.items, *scored.sequences, *forward.outputs]) == ["BACKEND_ANSWER"] * 4


async def test_a_bug_is_its_items_problem_and_the_callers_see_no_text_of_it():
    """INTERNAL with an id; the batch goes on."""
    model = ScriptedModel(answer=lambda prompt: prompt[1])
    async with run_worker({"m": model}) as worker:
        answer = await worker.bridge.models.sample("embedded:m", ["", "ab"], EIGHT)

    assert reasons(answer.items) == ["INTERNAL", None]
    problem = answer.items[0].problem
    assert problem is not None
    assert "index" not in problem.message
