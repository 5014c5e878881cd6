"""How a model is asked: in tokens where it has a tokenizer, in words where its server has it."""

import numpy as np
import pytest

from crucible_bridge.errors import Cancelled, FailedPrecondition
from crucible_bridge.types import ChatMessage, Conversation, Datum, ModelInput, SampledSequence, SamplingParams
from crucible_worker.rendering import sample_answers
from crucible_worker.runs.calls import CallGate, GatedModel
from crucible_worker.testing import ScriptedModel

PARAMS = SamplingParams(max_tokens=8)
CONVERSATION = Conversation((ChatMessage("user", "hi"),))


class WordyModel:
    """A model that is asked in words, as its tokenizer lies elsewhere."""

    fingerprint = "wordy"
    training = None
    tokenizer = None

    def __init__(self) -> None:
        self.asked: list[object] = []

    @property
    def sampling(self):
        return self

    async def load(self) -> None:
        pass

    async def sample(self, prompt, params, num_samples=1):
        self.asked.append(prompt)
        return [SampledSequence(text="tokens", tokens=(1,))] * num_samples

    async def sample_text(self, input, params, num_samples=1):
        self.asked.append(input)
        return [SampledSequence(text="words", tokens=(), token_count=2)] * num_samples

    async def compute_logprobs(self, prompt):
        return [None]


@pytest.mark.parametrize("gated", [False, True])
async def test_words_go_to_who_takes_them(gated):
    """Text and conversations are left to the server, tokens are sent as they are; behind the gate as before it."""
    wordy = WordyModel()
    model = GatedModel(wordy, CallGate(10)) if gated else wordy
    datum = Datum(model_input=[1, 2], loss_fn_inputs={"target_tokens": np.array([2, 3])})
    tokens = ModelInput.of([7])
    answers = [await sample_answers(model, input, PARAMS, 2) for input in ("hi", CONVERSATION, datum, tokens)]
    assert [[answer.text for answer in several] for several in answers] == [
        ["words", "words"],
        ["words", "words"],
        ["tokens", "tokens"],
        ["tokens", "tokens"],
    ]
    assert wordy.asked == ["hi", CONVERSATION, datum.model_input, tokens]
    assert answers[0][0].output_tokens == 2


async def test_calls_in_words_pass_the_gate():
    """They are counted, and none is made once the evaluation has ended."""
    wordy, gate = WordyModel(), CallGate(10)
    model = GatedModel(wordy, gate)
    await sample_answers(model, "hi", PARAMS)
    assert model.calls == 1
    gate.close()
    with pytest.raises(Cancelled):
        await sample_answers(model, "hi", PARAMS)
    assert len(wordy.asked) == 1


async def test_a_tokenizer_is_used_where_there_is_one():
    """Text is rendered here, and what the model gets is tokens."""
    (answer,) = await sample_answers(ScriptedModel(), "hi", PARAMS)
    assert (answer.text, answer.output_tokens) == ("HI", 2)


async def test_a_model_that_generates_nothing_is_refused():
    """Asking needs a sampling side."""
    with pytest.raises(FailedPrecondition) as caught:
        await sample_answers(ScriptedModel(sampled=False), "hi", PARAMS)
    assert caught.value.reason == "MISSING_CLIENT"
