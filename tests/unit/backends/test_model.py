"""The base class of models: what a class defines is what it can be asked; everything else refuses with one error."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.types import ChatMessage, Datum, ModelInput, SampledSequence, SamplingParams
from crucible_worker.backends.base import ANSWERING, Capability, Model, Tokenizer, WrappedModel
from crucible_worker.backends.distributions import Wanted
from crucible_worker.inference.retries import RetryingModel, RetryPolicy
from tests.tables import rows

PROMPT, PARAMS = ModelInput.of([1, 2]), SamplingParams(max_tokens=1)
DATUM = Datum(model_input=PROMPT, loss_fn_inputs={"target_tokens": np.array([2, 3])})
ARGUMENTS: dict[Capability, tuple[Any, ...]] = {
    Capability.SAMPLE: (PROMPT, PARAMS, 1),
    Capability.SAMPLE_TEXT: ("a", PARAMS, 1),
    Capability.LOGPROBS: (PROMPT,),
    Capability.PROBE: (PROMPT,),
    Capability.TARGETS: (PROMPT, [(1, 2)]),
    Capability.CONTINUATIONS: (PROMPT, [[1]]),
    Capability.ARGMAX: (PROMPT,),
    Capability.DISTRIBUTIONS: (PROMPT, Wanted(last=1)),
    Capability.SAMPLE_TOP: (PROMPT, PARAMS, 1, 2),
    Capability.FORWARD: ([DATUM],),
    Capability.PARTS: ([DATUM],),
}


class Nothing(Model):
    """Can be asked nothing."""

    fingerprint = "nothing"


class Words(Nothing):
    """Takes text."""

    async def sample_text(self, input, params, num_samples=1, *, plain=False):
        return [SampledSequence(text="a", tokens=())] * num_samples


class Both(Words):
    """Makes forward passes as well."""

    async def forward(self, data):
        return [np.zeros(2) for _ in data]


@rows("question", Capability)
async def test_a_method_that_a_class_does_not_define_refuses(question):
    """By itself and behind the gate: one error, which says what the model was asked and what it answers."""
    for model in (Nothing(), RetryingModel(Nothing(), RetryPolicy(1))):
        with pytest.raises(FailedPrecondition) as caught:
            await getattr(model, question)(*ARGUMENTS[question])
        asked = "forward" if question is Capability.PARTS else question
        assert (caught.value.reason, caught.value.field) == ("MISSING_CLIENT", "model")
        assert caught.value.message == f"does not answer {asked}; it answers nothing"


def test_capabilities_are_the_methods_that_a_class_defines():
    """Its own and those of its parents; two of them make a side."""
    assert Nothing().capabilities == frozenset()
    assert Words().capabilities == {Capability.SAMPLE_TEXT}
    assert Both().capabilities == {Capability.SAMPLE_TEXT, Capability.FORWARD}
    both = Both()
    assert [model.sampling for model in (Nothing(), both)] == [None, both]
    assert [model.training for model in (Words(), both)] == [None, both]
    assert Capability.SAMPLE_TEXT in ANSWERING


@rows("question", Capability)
def test_a_wrapped_model_passes_every_question_on_with_its_parameters(question):
    """None answers in place of the model, and none has other parameters than the model's."""
    own, wrapped = getattr(Model, question), getattr(WrappedModel, question)
    assert wrapped is not own
    assert list(inspect.signature(wrapped).parameters.items()) == list(inspect.signature(own).parameters.items())


async def test_windows_are_forward_passes_of_a_model_that_does_not_take_them_together():
    """Without a method of its own."""
    (found,) = await Both().forward_parts([DATUM])
    assert found.tolist() == [0.0, 0.0]


class Letters(Tokenizer):
    """Code points."""

    eos_token_id = bos_token_id = None
    has_chat_template = True

    async def encode(self, text):
        return [1, *map(ord, text)]

    async def encode_continuation(self, text):
        return list(map(ord, text))

    async def encode_chat(self, messages, *, generation_prompt):
        return await self.encode("".join(message.content for message in messages))


async def test_a_tokenizer_needs_no_more_than_to_encode():
    """Several texts and rendered conversations come from that; what needs a way back refuses, or shows nothing."""
    letters, messages = Letters(), [ChatMessage("user", "ab")]
    assert await letters.encode_all(["a", "b"]) == [[1, 97], [1, 98]]
    assert await letters.encode_all(["a", "b"], continuations=True) == [[97], [98]]
    rendered = await letters.render_chat(messages, generation_prompt=True)
    assert (rendered.tokens, rendered.text) == ([1, 97, 98], None)
    assert await letters.show([97]) == ""
    for call, reason in (
        (letters.decode([97]), "NO_TOKENIZER"),
        (letters.render_cookbook("qwen3", messages), "NO_COOKBOOK_TOKENIZER"),
    ):
        with pytest.raises(FailedPrecondition) as caught:
            await call
        assert caught.value.reason == reason
