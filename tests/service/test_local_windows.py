"""Likeliest tokens and texts beyond the context on the embedded model, through the host process."""

import asyncio
import dataclasses
import math

import numpy as np
import pytest
import pytest_asyncio

import crucible_bridge
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    Dataset,
    Datum,
    EvaluationState,
    EvaluatorSpec,
    Limits,
    LocalModel,
    ModelInput,
    Prompt,
    Sample,
    SamplingParams,
    Verdict,
)
from crucible_worker.backends.local.backend import LocalBackend
from crucible_worker.embedded import registry
from crucible_worker.embedded.arithmetic import held_out, training_problems
from crucible_worker.server import Worker
from tests import needs
from tests.service.evaluation_kit import samples_of
from tests.service.server_kit import settings_for

needs.modules("torch", "transformers")
pytestmark = pytest.mark.asyncio(loop_scope="module")

CHECKPOINTS = registry.path("arithmetic@600").parent
NAME = "600"
"""Here it is a local model: PyTorch runs it."""
CONTEXT, VOCABULARY = 32, 15
"""Of the embedded models."""
TOLERANCE = 1e-5
"""Windows that are computed together round their float32 otherwise than one alone."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model():
    """The embedded model that knows best."""
    backend = LocalBackend([CHECKPOINTS], "cpu")
    opened = await backend.open(LocalModel(NAME))
    await opened.load()
    yield opened
    await backend.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bridge(tmp_path_factory):
    """A client of a worker with that model."""
    folder = tmp_path_factory.mktemp("worker")
    async with (
        Worker(settings_for(folder, model_roots=(CHECKPOINTS,))) as worker,
        crucible_bridge.connect(worker.address) as connected,
    ):
        yield connected


def texts() -> list[str]:
    """Sums one behind the other: a text that fits, one that fills the context, and some that are longer."""
    sums = "".join(f"{question}{answer}" for question, answer in training_problems()[:40])
    return [sums[:size] for size in (7, CONTEXT, CONTEXT + 1, 2 * CONTEXT, 2 * CONTEXT + 1, 203)]


async def likeliest(model, tokens):
    """At each place, by the log-probability of every token of the vocabulary."""
    every = [[token] for token in range(VOCABULARY)]
    for place in range(1, len(tokens)):
        values = await model.compute_continuation_logprobs(ModelInput.of(tokens[:place]), every)
        yield int(np.argmax(values))


async def rolling_logprobs(model, tokens):
    """Of a whole text, by one forward pass for each window of lm-evaluation-harness: context and continuation."""
    found = []
    while len(found) < len(tokens):
        end = min(len(found) + CONTEXT, len(tokens))
        before = [model.tokenizer.eos_token_id, *tokens][max(0, end - CONTEXT) : end]
        behind = np.array(tokens[end - len(before) : end])
        (values,) = await model.forward(
            [Datum(model_input=ModelInput.of(before), loss_fn_inputs={"target_tokens": behind})]
        )
        found += values.tolist()[len(found) - end :]
    return found


async def test_the_likeliest_token_has_the_greatest_log_probability(model):
    """At every place of a prompt; the first one has nothing before it."""
    tokens = await model.tokenizer.encode("12+34=46")

    first, *found = await model.compute_argmax(ModelInput.of(tokens))

    assert first is None
    assert found == [token async for token in likeliest(model, tokens)]


async def test_the_likeliest_does_not_depend_on_other_requests(model):
    """Asked again, at once with others and with what is generated, it is the same."""
    tokens = await model.tokenizer.encode("45+27=72")
    alone = await model.compute_argmax(ModelInput.of(tokens))

    params = SamplingParams(max_tokens=12, temperature=1.0, seed=1)
    crowd = [model.sample(ModelInput.of(tokens[:size]), params) for size in range(1, 6)]
    asked = [model.compute_argmax(ModelInput.of(tokens)) for _ in range(5)]
    answers = await asyncio.gather(*crowd, *asked)

    assert answers[len(crowd) :] == [alone] * 5


@pytest.mark.parametrize("tokens", [[], [VOCABULARY], [1] * (CONTEXT + 1)])
async def test_what_cannot_be_foretold_is_named(model, tokens):
    """An empty or too long prompt, an unknown token."""
    with pytest.raises(InvalidField) as caught:
        await model.compute_argmax(ModelInput.of(tokens))
    assert caught.value.field.startswith("prompt")
    assert await model.compute_argmax(ModelInput.of([1])) == (None,)


async def test_tokens_become_text_again(model):
    """Without the special ones."""
    tokens = await model.tokenizer.encode_continuation("12+3")
    assert await model.tokenizer.decode([*tokens, model.tokenizer.eos_token_id]) == "12+3"
    assert await model.tokenizer.decode([]) == ""


async def test_texts_beyond_the_context_are_what_the_harness_measures(model, bridge):
    """Perplexity and bits per byte of whole texts are those of its windows; where they are refused, no text is cut."""
    samples = [Sample(id=str(index), input=text) for index, text in enumerate(texts())]
    encoded = [await model.tokenizer.encode_continuation(text) for text in texts()]
    wanted = [math.fsum(await rolling_logprobs(model, tokens)) for tokens in encoded]
    evaluation = await bridge.evaluation.evaluate(
        model=f"local:{NAME}",
        evaluators=[
            "perplexity",
            "bits_per_byte",
            EvaluatorSpec(kind="perplexity", name="sampled", options={"client": "sampling"}),
            EvaluatorSpec(kind="perplexity", name="refused", options={"windows": "refuse"}),
        ],
        dataset=samples,
        limits=Limits(max_unscored_share=1.0),
        evaluation_id="texts",
    )
    results = await samples_of(bridge, "texts")
    found = {label: [each for each in results if each.evaluator == label] for label in ("bits_per_byte", "refused")}
    values = evaluation.metrics.values

    assert evaluation.state is EvaluationState.COMPLETED
    sums = [each.measurements["weighted_logprob_sum"] for each in found["bits_per_byte"]]
    assert sums == pytest.approx(wanted, rel=TOLERANCE)
    size, count = sum(map(len, texts())), sum(map(len, encoded))
    assert values["bits_per_byte"] == pytest.approx(-math.fsum(wanted) / math.log(2) / size, rel=TOLERANCE)
    assert values["perplexity"] == pytest.approx(math.exp(-math.fsum(wanted) / count), rel=10 * TOLERANCE)
    # One token of context less in a window: another number, and of the same order.
    assert values["sampled/perplexity"] == pytest.approx(values["perplexity"], rel=0.5)
    assert values["sampled/perplexity"] != values["perplexity"]
    assert [each.verdict for each in found["refused"]] == [Verdict.MEASURED] * 2 + [Verdict.ERROR] * 4
    assert {each.problem.reason for each in found["refused"] if each.problem} == {"PROMPT_TOO_LONG"}


def joined(samples):
    """A data set whose answers follow the inputs without a space, for which the model has no token."""
    return dataclasses.replace(Dataset.of(samples), prompt=Prompt(target_delimiter=""))


async def test_next_tokens_are_evaluated(bridge):
    """Of sums that the model knows nearly every digit is right, and the whole of nearly each; by its own answers."""
    samples = list(held_out(60))
    spec = EvaluatorSpec(kind="next_token_accuracy", options={"clean": ["strip"]})
    evaluation = await bridge.evaluation.evaluate(
        model=f"local:{NAME}",
        evaluators=[spec, "accuracy"],
        dataset=joined(samples),
        evaluation_id="sums",
        sampling=SamplingParams(max_tokens=8),
    )
    results = {(each.evaluator, each.sample_id): each for each in await samples_of(bridge, "sums")}
    values = evaluation.metrics.values

    assert evaluation.state is EvaluationState.COMPLETED
    # What is right token by token is what greedy generation answers, as it never leaves the text then.
    assert values["sample_accuracy"] == values["accuracy"] > 0.9
    for sample in samples:
        whole = results["next_token_accuracy", sample.id].measurements["right_as_a_whole"]
        assert whole == results["accuracy", sample.id].score
    assert values["sample_accuracy"] < values["next_token_accuracy"] < 1
    assert values["next_token_accuracy_stderr"] > 0
