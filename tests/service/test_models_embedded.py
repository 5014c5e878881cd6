"""ModelService on an embedded checkpoint: what it answers is what evaluations of that checkpoint find."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.types import Dataset, Datum, Sample, SampleItem, SamplingParams
from crucible_worker.embedded.arithmetic import held_out
from crucible_worker.server import Worker
from tests.service.models_kit import EIGHT, fields, reasons
from tests.service.server_kit import settings_for

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = "embedded:arithmetic@320"
RANDOM = SamplingParams(max_tokens=8, temperature=1.0, seed=11)
COUNT = 40


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bridge(tmp_path_factory: Any) -> AsyncIterator[Bridge]:
    """A worker as it is served, and its client."""
    async with (
        Worker(settings_for(tmp_path_factory.mktemp("state"))) as worker,
        crucible_bridge.connect(worker.address) as bridge,
    ):
        yield bridge


def data() -> list[Datum]:
    """Sequences of some tokens of the vocabulary, with weights."""
    random = np.random.default_rng(5)
    sequences = [random.integers(0, 15, 3 + index % 9) for index in range(COUNT)]
    return [
        Datum(
            model_input=tokens[:-1],
            loss_fn_inputs={"target_tokens": tokens[1:], "weights": random.random(len(tokens) - 1).astype(np.float32)},
        )
        for tokens in sequences
    ]


async def test_greedy_samples_are_those_of_an_evaluation(bridge: Bridge):
    """The same prompts, the same answers, the same lengths and ends; one fingerprint."""
    evaluation = await bridge.evaluation.evaluate(
        evaluation_id="greedy",
        model=MODEL,
        evaluators="accuracy",
        dataset=Dataset.of("builtin:arithmetic"),
        sampling=EIGHT,
    )
    found = [sample async for sample in bridge.evaluation.all_samples("greedy")]

    answer = await bridge.models.sample(MODEL, [str(sample.input) for sample in held_out()], EIGHT)

    told = [
        (sequence.text, sequence.stop_reason, sequence.output_tokens)
        for item in answer.items
        for sequence in item.sequences
    ]
    assert told == [(sample.output, sample.stop_reason, sample.output_tokens) for sample in found]
    assert len(told) == len(held_out())
    assert answer.model_fingerprint == evaluation.model_fingerprint


async def test_losses_are_those_of_nll(bridge: Bridge):
    """Sample by sample, and all together; to 1e-5, whichever way the log-probabilities are asked for."""
    given = data()
    samples = [Sample(id=str(index), input=datum) for index, datum in enumerate(given)]
    evaluation = await bridge.evaluation.evaluate(evaluation_id="nll", model=MODEL, evaluators="nll", dataset=samples)
    scores = [sample.score async for sample in bridge.evaluation.all_samples("nll")]

    forward = await bridge.models.forward(MODEL, given)
    scored = await bridge.models.compute_logprobs(MODEL, [whole(datum) for datum in given])

    weights = [np.asarray(datum.loss_fn_inputs["weights"], np.float64) for datum in given]
    losses = [output.loss for output in forward.outputs]
    again = [
        -float(sequence.logprobs @ weight)  # type: ignore[operator]
        for sequence, weight in zip(scored.sequences, weights, strict=True)
    ]
    totals = [float(weight.sum()) for weight in weights]
    expected = evaluation.metrics.values["nll"]
    for found in (losses, again):
        assert np.divide(found, totals).tolist() == pytest.approx(scores, abs=1e-5)  # type: ignore[arg-type]
        assert sum(found) / sum(totals) == pytest.approx(expected, abs=1e-5)  # type: ignore[arg-type]


def whole(datum: Datum) -> np.ndarray:
    """Input and last target."""
    return np.append(datum.model_input.tokens(), datum.loss_fn_inputs["target_tokens"][-1:])  # type: ignore[index]


async def test_log_probabilities_of_samples_are_those_of_their_sequence(bridge: Bridge):
    """A teacher that scores what it sampled itself finds the values that it told."""
    prompts = [[1, 2, 10, 3, 4, 11], [5, 5, 10, 6, 6, 11]]
    sampled = await bridge.models.sample(MODEL, prompts, RANDOM)
    sequences = [[*prompt, *item.sequences[0].tokens] for prompt, item in zip(prompts, sampled.items, strict=True)]

    scored = await bridge.models.compute_logprobs(MODEL, sequences)

    for prompt, item, sequence in zip(prompts, sampled.items, scored.sequences, strict=True):
        tail = sequence.logprobs[len(prompt) - 1 :].tolist()  # type: ignore[index]
        assert tail == pytest.approx(item.sequences[0].logprobs, abs=1e-5)


async def test_random_samples_come_again_by_their_seed(bridge: Bridge):
    """The same tokens in another batch; several of one prompt differ from each other."""
    prompts = [SampleItem(prompt="12+34=", num_samples=16), SampleItem(prompt="12+34=", num_samples=16)]
    batch = await bridge.models.sample("embedded:arithmetic@180", prompts, RANDOM)
    first, second = batch.items

    again = await bridge.models.sample(
        "embedded:arithmetic@180",
        ["99+11=", SampleItem(prompt="12+34=", num_samples=16, seed=second.seed)],
        SamplingParams(max_tokens=8, temperature=1.0),
    )

    first_tokens, second_tokens, tokens_again = (
        [sequence.tokens for sequence in item.sequences] for item in (first, second, again.items[1])
    )
    assert tokens_again == second_tokens
    assert first.seed != second.seed
    assert first_tokens != second_tokens
    assert len(set(first_tokens)) > 1


async def test_stop_strings_end_a_sample_and_length_says_so(bridge: Bridge):
    """The stop string is not part of the text."""
    free = await bridge.models.sample(MODEL, ["12+34="], EIGHT)
    text = free.items[0].sequences[0].text
    stopped = await bridge.models.sample(MODEL, ["12+34="], SamplingParams(max_tokens=8, stop=(text[1],)))
    short = await bridge.models.sample(MODEL, ["12+34="], SamplingParams(max_tokens=1))

    assert (stopped.items[0].sequences[0].text, stopped.items[0].sequences[0].stop_reason) == (text[:1], "stop")
    assert (short.items[0].sequences[0].text, short.items[0].sequences[0].stop_reason) == (text[:1], "length")


async def test_what_the_model_cannot_take_costs_its_item_alone(bridge: Bridge):
    """Unknown tokens, and more than the context holds; the place is the request's."""
    long, unknown = [1] * 40, [1, 99, 2]
    sampled = await bridge.models.sample(MODEL, [long, [1, 2], unknown], EIGHT)
    scored = await bridge.models.compute_logprobs(MODEL, [[1], long, unknown, [1, 99]])
    forward = await bridge.models.forward(
        MODEL,
        [
            Datum(model_input=[1, 99], loss_fn_inputs={"target_tokens": [1, 2]}),
            Datum(model_input=[1, 2], loss_fn_inputs={"target_tokens": [1, 99]}),
            Datum(model_input=[1, 2], loss_fn_inputs={"target_tokens": [5, 1]}),
        ],
    )

    assert reasons(sampled.items) == ["PROMPT_TOO_LONG", None, "INVALID_FIELD"]
    assert fields(sampled.items) == ["items[0].prompt", None, "items[2].prompt[1]"]
    assert reasons(scored.sequences) == [None, "PROMPT_TOO_LONG", "INVALID_FIELD", "INVALID_FIELD"]
    assert fields(scored.sequences) == [None, "sequences[1]", "sequences[2][1]", "sequences[3][1]"]
    assert scored.sequences[0].logprobs.shape == (0,)  # type: ignore[union-attr]
    targets = 'loss_fn_inputs["target_tokens"]'
    assert fields(forward.outputs) == ["data[0].model_input[1]", f"data[1].{targets}[1]", None]
    assert forward.outputs[2].logprobs.shape == (2,)  # type: ignore[union-attr]


async def test_a_token_that_the_model_has_not_is_refused(bridge: Bridge):
    """By its place, as that of any other tokenizer; the other sequences have their texts."""
    found = await bridge.rendering.detokenize(MODEL, [[10**6], [3]])
    assert fields(found.items) == ["sequences[0].tokens[0]", None]
    assert found.items[1].text
