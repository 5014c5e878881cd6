"""Continuations on the embedded model, through the host process: one pass for many choices, the same numbers."""

import dataclasses
import types

import numpy as np
import pytest
import pytest_asyncio

import crucible_bridge
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    Dataset,
    Datum,
    EvaluationState,
    LocalModel,
    ModelInput,
    Prompt,
    Sample,
    Verdict,
)
from crucible_worker.backends.base import Capability
from crucible_worker.backends.continuations import forward_continuations, sample_continuations
from crucible_worker.backends.local.backend import LocalBackend
from crucible_worker.embedded import registry
from crucible_worker.embedded.arithmetic import held_out
from crucible_worker.server import Worker
from tests import needs
from tests.service.evaluation_kit import samples_of
from tests.service.server_kit import settings_for
from tests.tables import rows

needs.modules("torch", "transformers")
pytestmark = pytest.mark.asyncio(loop_scope="module")

TOLERANCE = 1e-5
"""Of log-probabilities, absolute or relative: a pass over another number of tokens rounds its float32 otherwise."""

COUNT = 60
CHECKPOINTS = registry.path("arithmetic@600").parent
"""Here they are local models: PyTorch runs these."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model():
    """The embedded model that knows best."""
    backend = LocalBackend([CHECKPOINTS], "cpu")
    opened = await backend.open(LocalModel("600"))
    await opened.load()
    yield opened
    await backend.aclose()


async def test_continuations_prompts_and_forward_passes_agree(model):
    """Each way to ask for continuations gives the model's log-probabilities, and is bit-equal when asked again."""
    prompt = await model.tokenizer.encode("12+34=")
    texts = ["4", "46", "47", "5", "460", "46"]
    continuations = [await model.tokenizer.encode_continuation(text) for text in texts]

    at_once = await sample_continuations(model, prompt, continuations)
    again = await sample_continuations(model, prompt, continuations)
    by_forward = await forward_continuations(model, prompt, continuations)

    assert Capability.CONTINUATIONS in model.capabilities
    for index, continuation in enumerate(continuations):
        whole = await model.compute_logprobs(ModelInput.of([*prompt, *continuation]))
        alone = np.array(whole[len(prompt) :], np.float64)
        assert at_once[index].tolist() == again[index].tolist()
        np.testing.assert_allclose(at_once[index], alone, rtol=TOLERANCE, atol=TOLERANCE)
        np.testing.assert_allclose(by_forward[index], alone, rtol=TOLERANCE, atol=TOLERANCE)


async def test_all_tokens_behind_a_prompt_are_a_distribution(model):
    """Every token of the vocabulary as a choice: the probabilities sum to 1."""
    prompt = await model.tokenizer.encode("7+8=")

    found = await sample_continuations(model, prompt, [[token] for token in range(15)])

    assert np.exp(np.concatenate(found)).sum() == pytest.approx(1, abs=1e-12)


@rows(
    ("prompt", "continuations", "field", "reason"),
    [
        ([], [[1]], "prompt", ""),
        ([1] * 33, [[1]], "prompt", "PROMPT_TOO_LONG"),
        ([1, 15], [[1]], "prompt[1]", ""),
        ([1, 2], [], "continuations", ""),
        ([1, 2], [[1], []], "continuations[1]", ""),
        ([1] * 31, [[1, 2], [1, 2, 3]], "continuations[1]", "PROMPT_TOO_LONG"),
        ([1, 2], [[1], [3, 15]], "continuations[1][1]", ""),
        ([1, 2], [[-1]], "continuations[0][0]", ""),
    ],
)
async def test_what_cannot_be_measured_is_named(model, prompt, continuations, field, reason):
    """An empty or too long prompt, no continuation, an empty one, one beyond the context, an unknown token."""
    with pytest.raises(InvalidField) as caught:
        await model.compute_continuation_logprobs(ModelInput.of(prompt), continuations)
    assert caught.value.field == field
    assert reason in ("", caught.value.reason)


async def test_the_last_token_needs_no_room(model):
    """It is measured, and not read: a prompt that fills the context has continuations of one token."""
    (found,) = await model.compute_continuation_logprobs(ModelInput.of([1] * 32), [[2]])
    assert found.shape == (1,)


async def test_texts_are_encoded_in_one_call_as_one_by_one(model):
    """As whole texts and as continuations, the empty one included."""
    texts = ["12+34=", "", "7"]
    wholes = await model.tokenizer.encode_all(texts)
    parts = await model.tokenizer.encode_all(texts, continuations=True)

    assert list(wholes) == [await model.tokenizer.encode(text) for text in texts]
    assert list(parts) == [await model.tokenizer.encode_continuation(text) for text in texts]
    assert await model.tokenizer.encode_all([]) == ()


async def in_tokens(model, sample):
    """A question as an orchestrator with a tokenizer of its own sends it."""
    prompt = await model.tokenizer.encode(sample.input)
    choices = [list(await model.tokenizer.encode_continuation(choice)) for choice in sample.choices]
    letter = "ABCD"[sample.choices.index(sample.targets[0])]
    datum = Datum(model_input=ModelInput.of(prompt), loss_fn_inputs={})
    return Sample(id=sample.id, input=datum, targets=(letter,), choices=tuple(map(str, choices)))


def questions():
    """Additions with four sums to choose from, the right one somewhere among them."""
    for index, sample in enumerate(held_out(COUNT)):
        sums = [str(int(sample.targets[0]) + offset - index % 4) for offset in range(4)]
        yield Sample(id=str(index), input=sample.input, targets=sample.targets, choices=tuple(sums))


async def test_multiple_choice_here_and_with_an_orchestrator(model, tmp_path):
    """The model picks the right sum; held by an orchestrator and asked in tokens, by either call, it picks the same."""
    samples = list(questions())
    # The model has no token for a space between a question and its answer.
    joined = dataclasses.replace(Dataset.of(samples), prompt=Prompt(target_delimiter=""))
    encoded = [await in_tokens(model, sample) for sample in samples]
    async with (
        Worker(settings_for(tmp_path, model_roots=(CHECKPOINTS,))) as worker,
        crucible_bridge.connect(worker.address) as bridge,
    ):
        local = await bridge.evaluation.evaluate(
            model="local:600", evaluators="multiple_choice", dataset=joined, evaluation_id="here"
        )
        here = await samples_of(bridge, "here")
        for method in ("compute_logprobs", "forward"):
            held = types.SimpleNamespace(**{method: getattr(model, method)})
            await bridge.evaluation.evaluate_with_orchestrator_model(
                model=held, name="held", evaluators="multiple_choice", dataset=encoded, evaluation_id=method
            )
            there = await samples_of(bridge, method)
            assert [each.verdict for each in there] == [each.verdict for each in here]
            for each, ours in zip(there, here, strict=True):
                wanted = {key: value for key, value in ours.measurements.items() if key != "accuracy_per_byte"}
                assert each.measurements == pytest.approx(wanted, rel=TOLERANCE, abs=TOLERANCE)
    assert local.state is EvaluationState.COMPLETED
    assert {each.verdict for each in here} <= {Verdict.CORRECT, Verdict.INCORRECT}
    assert local.metrics.values["accuracy"] > 0.9
    assert local.metrics.values["target_probability"] > 0.8
