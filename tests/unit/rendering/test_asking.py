"""How a model is asked: in tokens where it has a tokenizer, in words where its server has it."""

import asyncio
import dataclasses

import numpy as np
import pytest

from crucible_bridge.errors import Cancelled, FailedPrecondition, InvalidField
from crucible_bridge.types import ChatMessage, Conversation, Datum, ModelInput, SampledSequence, SamplingParams
from crucible_worker.backends.base import Capability, Model, Rendered
from crucible_worker.inference.retries import RetryingModel, RetryPolicy
from crucible_worker.rendering import ask, finished, sample_answers
from crucible_worker.rendering.role_colon import STOP
from crucible_worker.testing import ScriptedModel
from tests.tables import rows

PARAMS = SamplingParams(max_tokens=8)
CONVERSATION = Conversation((ChatMessage("user", "hi"),))


class WordyModel(Model):
    """A model that is asked in words, as its tokenizer lies elsewhere."""

    fingerprint = "wordy"

    def __init__(self, text: str = "words") -> None:
        self.text = text
        self.asked: list[object] = []
        self.params: list[SamplingParams] = []

    async def sample(self, prompt, params, num_samples=1):
        self.asked.append(prompt)
        return [SampledSequence(text="tokens", tokens=(1,))] * num_samples

    async def sample_text(self, input, params, num_samples=1, *, plain=False):
        self.asked.append(f"plain: {input}" if plain else input)
        self.params.append(params)
        return [SampledSequence(text=self.text, tokens=(), token_count=2)] * num_samples

    async def compute_logprobs(self, prompt):
        return [None]


@pytest.mark.parametrize("gated", [False, True])
async def test_words_go_to_who_takes_them(gated):
    """Text and conversations are left to the server, tokens are sent as they are; behind the gate as before it."""
    wordy = WordyModel()
    model = RetryingModel(wordy, RetryPolicy(10)) if gated else wordy
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


async def test_a_long_answer_of_tags_alone_does_not_hold_the_event_loop():
    """Others have their turns while its reasoning is separated from the rest."""
    turns, over = 0, asyncio.Event()

    async def take_turns():
        nonlocal turns
        while not over.is_set():
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        group.create_task(take_turns())
        await asyncio.sleep(0)
        asked = await ask(WordyModel("<think></think>" * 200_000 + "46"), "hi", PARAMS)
        over.set()
    assert [answer.answer for answer in asked.answers] == ["46"]
    assert turns > 10


async def test_calls_in_words_pass_the_gate():
    """They are counted, and none is made once the evaluation has ended."""
    wordy, gate = WordyModel(), RetryPolicy(10)
    model = RetryingModel(wordy, gate)
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


@rows("gated", [False, True])
@rows(
    ("renderer", "input", "asked", "stop"),
    [
        ("chat_template", "hi", CONVERSATION, ()),
        ("chat_template", CONVERSATION, CONVERSATION, ()),
        ("role_colon", "hi", "plain: User: hi\n\nAssistant:", (STOP,)),
        ("role_colon", CONVERSATION, "plain: User: hi\n\nAssistant:", (STOP,)),
        ("raw", "hi", "plain: hi", ()),
        ("raw", CONVERSATION, "plain: hi", ()),
    ],
)
async def test_renderers_in_words(gated, renderer, input, asked, stop):
    """The template is the server's; what is rendered here is text to go on from, ended by its stop sequences."""
    wordy = WordyModel()
    model = RetryingModel(wordy, RetryPolicy(10)) if gated else wordy

    await sample_answers(model, input, PARAMS, renderer=renderer)

    assert wordy.asked == [asked]
    assert wordy.params == [SamplingParams(max_tokens=8, stop=stop)]


async def test_what_words_cannot_say_is_refused():
    """A conversation with roles has no raw text, and tinker-cookbook's renderers need a tokenizer."""
    told = Conversation((ChatMessage("system", "be"), *CONVERSATION.messages))
    with pytest.raises(InvalidField, match=r"^conversation") as caught:
        await sample_answers(WordyModel(), told, PARAMS, renderer="raw")
    assert caught.value.reason == "RAW_CONVERSATION"
    with pytest.raises(FailedPrecondition, match="at hand") as refused:
        await sample_answers(WordyModel(), "hi", PARAMS, renderer="tinker:qwen3")
    assert refused.value.reason == "NO_COOKBOOK_TOKENIZER"


@rows(
    ("sequence", "stops", "opening", "found"),
    [
        (SampledSequence(text="46", tokens=()), (), "", ("46", "46", "", False, "", "stop")),
        (
            SampledSequence(text="46\nQ: 1", tokens=(), stop_reason="length"),
            ("\n",),
            "",
            ("46", "46", "", False, "\nQ: 1", "stop"),
        ),
        (
            SampledSequence(text="46", tokens=(), reasoning="12+34"),
            (),
            "<think>",
            ("46", "46", "12+34", False, "", "stop"),
        ),
        (
            SampledSequence(text="", tokens=(), reasoning="12+", stop_reason="length"),
            (),
            "",
            ("", "", "12+", True, "", "length"),
        ),
        (
            SampledSequence(text="", tokens=(), reasoning="12+", refusal="no"),
            (),
            "",
            ("", "", "12+", False, "", "stop"),
        ),
        (
            SampledSequence(text="12+34 is 46", tokens=(), stop_reason="length"),
            (),
            "<think>",
            ("12+34 is 46", "", "12+34 is 46", True, "", "length"),
        ),
        (
            SampledSequence(text="a\n</think>46\n", tokens=()),
            ("\n",),
            "<think>",
            ("a\n</think>46", "46", "a", False, "\n", "stop"),
        ),
    ],
)
def test_what_a_backend_returns_is_separated(sequence, stops, opening, found):
    """Into text, answer, reasoning, whether that is finished, and what came after a stop string; tokens stay."""
    one = finished(sequence, stops, opening)

    said = one.sequence
    assert (said.text, one.answer, said.reasoning, one.unfinished, one.rest, said.stop_reason) == found
    assert one.sequence.tokens == sequence.tokens


@rows("text", ["<think>12\n+34</think>46\nmore", "12\n+34</think>46\nmore", "[THINK]12\n+34[/THINK]46\nmore"])
async def test_the_same_text_is_the_same_answer_of_every_backend(text):
    """In tokens and in words, a text that the prompt opened and one that it did not, alone and behind the gate."""
    params = SamplingParams(max_tokens=99, stop=("\n",))
    in_tokens, in_words = ScriptedModel(answer=lambda prompt: text), WordyModel(text)
    asked = [
        await ask(model, "hi", params, renderer=renderer)
        for model, renderer in (
            (in_tokens, "auto"),
            (in_words, "auto"),
            (in_words, "raw"),
            (RetryingModel(in_tokens, RetryPolicy(10)), "auto"),
        )
    ]

    assert [(one.answers[0].answer, one.answers[0].sequence.reasoning) for one in asked] == [("46", "12\n+34")] * 4


@dataclasses.dataclass
class AskedInTokens(ScriptedModel):
    """Keeps how it was to be sampled."""

    params: list[SamplingParams] = dataclasses.field(default_factory=list)

    async def sample(self, prompt, params, num_samples=1):
        self.params.append(params)
        return await super().sample(prompt, params, num_samples)


@rows(
    ("given", "sent", "text"),
    [
        ((), (STOP,), "USER: HI\n\nASSISTANT:"),
        (("\n",), ("\n", STOP), "USER: HI"),
        ((STOP, "\n"), (STOP, "\n"), "USER: HI"),
    ],
)
async def test_stop_sequences_come_behind_those_of_the_request(given, sent, text):
    """Each once, and they end the answer of a backend that does not know them; tokens as a prompt bring none."""
    model = AskedInTokens()
    params = SamplingParams(max_tokens=99, stop=given)

    (answer,) = await sample_answers(model, "hi", params, renderer="role_colon")
    await sample_answers(model, ModelInput.of([7]), params, renderer="role_colon")

    assert answer.text == text
    assert [one.stop for one in model.params] == [sent, given]


async def test_a_tokenizer_that_is_not_at_hand_takes_no_cookbook_renderer():
    """A model may have one that answers by itself alone."""
    with pytest.raises(FailedPrecondition) as caught:
        await sample_answers(RetryingModel(ScriptedModel(), RetryPolicy(10)), "hi", PARAMS, renderer="tinker:qwen3")
    assert caught.value.reason == "NO_COOKBOOK_TOKENIZER"


class RenderingModel(ScriptedModel):
    """Its tokenizer renders: the name and the roles, as code points."""

    async def render_cookbook(self, renderer, messages, *, train_on=None, tools=()):
        text = f"{renderer}:{','.join(message.role for message in messages)}"
        return Rendered(tokens=[ord(character) for character in text], stop=("END",))


async def test_cookbook_renderers_pass_the_gate():
    """Behind the gate a tokenizer can do what it could before; its renderings are not counted as calls."""
    model = RetryingModel(RenderingModel(), RetryPolicy(10))

    (answer,) = await sample_answers(model, CONVERSATION, SamplingParams(max_tokens=99), renderer="tinker:qwen3")

    assert answer.text == "QWEN3:USER"
    assert model.calls == 1


class TextAlone(WordyModel):
    """Has a tokenizer, and takes no tokens."""

    tokenizer = ScriptedModel()

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset({Capability.SAMPLE_TEXT})


async def test_a_model_that_takes_no_tokens_is_asked_in_words():
    """Although its tokenizer is at hand, for what else needs one."""
    model = TextAlone()
    (answer,) = await sample_answers(model, "hi", PARAMS)
    assert (answer.text, model.asked) == ("words", [CONVERSATION])
