"""From samples to tokens: what is asked, and which tokens count."""

import dataclasses

import numpy as np
import pytest

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.types import ChatMessage, Conversation, Datum, ModelInput, Sample
from crucible_worker.backends.base import Tokenizer
from crucible_worker.rendering import render_prompt, render_supervised
from crucible_worker.rendering.prompts import render_question
from tests.tables import rows
from tests.unit.rendering.tokenizers_made import inputs_of

BOS, EOS = 1, 2


@dataclasses.dataclass
class CharacterTokenizer(Tokenizer):
    """A token per character; a chat message is its role's first letter, its content in brackets."""

    has_chat_template: bool = False
    eos_token_id: int | None = EOS
    bos_token_id: int | None = BOS
    bos: tuple[int, ...] = (BOS,)
    target_delimiter: str | None = None
    drops_earlier_thoughts: bool = False

    async def encode(self, text):
        return [*self.bos, *map(ord, text)]

    async def encode_continuation(self, text):
        return list(map(ord, text))

    async def encode_chat(self, messages, *, generation_prompt):
        dropped = messages[:-1] if self.drops_earlier_thoughts else ()
        shown = [f"{message.role[0]}[{'' if message in dropped else message.content}]" for message in messages]
        return list(map(ord, "".join(shown) + ("a[" if generation_prompt else "")))


def conversation(*turns):
    """A conversation of (role, content) pairs."""
    return Conversation(tuple(ChatMessage(role, content) for role, content in turns))


def counted(datum):
    """The targets of weight 1, as text; and that every input is followed by its target."""
    targets, weights = datum.loss_fn_inputs["target_tokens"], datum.loss_fn_inputs["weights"]
    inputs = datum.model_input.tokens()
    assert inputs.shape == targets.shape == weights.shape
    assert (inputs[1:] == targets[:-1]).all()
    assert set(np.unique(weights)) <= {0.0, 1.0}
    return "".join(chr(token) for token, weight in zip(targets, weights) if weight)


async def test_text_is_plain_without_a_chat_template():
    """A base model gets the text itself, behind what its tokenizer puts before any text."""
    prompt = await render_prompt(CharacterTokenizer(), "1+1=")

    assert prompt.tokens().tolist() == [BOS, *map(ord, "1+1=")]


async def test_text_is_a_message_of_the_user_with_a_chat_template():
    """A chat model is asked as it was trained, with its answer opened."""
    prompt = await render_prompt(CharacterTokenizer(has_chat_template=True), "1+1=")

    assert prompt.tokens().tolist() == list(map(ord, "u[1+1=]a["))


async def test_a_conversation_is_opened_for_an_answer():
    """Every message is there, then the generation prompt."""
    prompt = await render_prompt(
        CharacterTokenizer(has_chat_template=True), conversation(("system", "be"), ("user", "hi"))
    )

    assert prompt.tokens().tolist() == list(map(ord, "s[be]u[hi]a["))


async def test_a_conversation_needs_a_chat_template():
    """There is no guessing how a model without a template would like a conversation."""
    with pytest.raises(FailedPrecondition) as caught:
        await render_prompt(CharacterTokenizer(), conversation(("user", "hi")))

    assert caught.value.reason == "NO_CHAT_TEMPLATE"
    assert "the renderer role_colon needs none" in caught.value.message


async def test_without_a_tokenizer_only_tokens_can_be_sent():
    """Text is refused; a Datum passes."""
    datum = Datum(model_input=ModelInput.of([1, 2]), loss_fn_inputs={"target_tokens": [2, 3]})

    assert await render_prompt(None, datum) is datum.model_input
    with pytest.raises(FailedPrecondition) as caught:
        await render_prompt(None, "1+1=")
    assert caught.value.reason == "NO_TOKENIZER"


async def test_what_renders_to_nothing_is_invalid():
    """A model needs something to go on from."""
    with pytest.raises(InvalidField, match=r"^input has no tokens"):
        await render_prompt(CharacterTokenizer(bos=()), "")
    with pytest.raises(InvalidField, match=r"^input\.messages is empty"):
        await render_prompt(CharacterTokenizer(has_chat_template=True), conversation())


@rows(
    ("renderer", "template", "expected"),
    [
        ("auto", False, chr(BOS) + "1+1="),
        ("auto", True, "u[1+1=]a["),
        ("chat_template", True, "u[1+1=]a["),
        ("raw", False, chr(BOS) + "1+1="),
        ("raw", True, chr(BOS) + "1+1="),
        ("role_colon", True, chr(BOS) + "User: 1+1=\n\nAssistant:"),
    ],
)
async def test_the_renderer_decides_what_a_text_becomes(renderer, template, expected):
    """The model's chat template is used where it is asked for, and by auto where there is one."""
    rendered = await render_question(CharacterTokenizer(has_chat_template=template), "1+1=", renderer)

    assert "".join(map(chr, rendered.tokens)) == expected


async def test_a_chat_template_that_is_asked_for_must_be_there():
    """Plain text is never taken in its place, to ask or to measure."""
    for work in (
        render_question(CharacterTokenizer(), "1+1=", "chat_template"),
        render_supervised(CharacterTokenizer(), Sample(input="1+1=", targets=("2",)), renderer="chat_template"),
    ):
        with pytest.raises(FailedPrecondition) as caught:
            await work
        assert caught.value.reason == "NO_CHAT_TEMPLATE"
        assert "the renderer role_colon needs none" in caught.value.message


async def test_raw_takes_no_conversation_with_roles():
    """Roles have no place in text as it stands."""
    for work in (
        render_question(CharacterTokenizer(), conversation(("system", "be"), ("user", "hi")), "raw"),
        render_supervised(CharacterTokenizer(), Sample(input=conversation(("assistant", "hi"))), renderer="raw"),
    ):
        with pytest.raises(InvalidField, match=r"^conversation has roles") as caught:
            await work
        assert caught.value.reason == "RAW_CONVERSATION"


@pytest.mark.parametrize(("renderer", "template"), [("raw", False), ("raw", True), ("auto", False)])
async def test_one_message_of_the_user_is_its_text(renderer, template):
    """Where no template is, or none is wanted, the one role says nothing."""
    tokenizer = CharacterTokenizer(has_chat_template=template)

    rendered = await render_question(tokenizer, conversation(("user", "hi")), renderer)

    assert list(rendered.tokens) == [BOS, *map(ord, "hi")]
    assert rendered.stop == ()


async def test_a_raw_target_follows_a_space():
    """Text as it stands has no end of sequence, though the model has one, and no template."""
    sample = Sample(input="1+1=", targets=("2",))
    datum = await render_supervised(CharacterTokenizer(has_chat_template=True), sample, renderer="raw")

    assert counted(datum) == " 2"
    assert datum.model_input.tokens().tolist() == [BOS, *map(ord, "1+1= ")]


async def test_only_the_target_of_a_text_counts():
    """The input has weight 0, the delimiter, the first target and the end of sequence have weight 1."""
    datum = await render_supervised(CharacterTokenizer(), Sample(input="1+1=", targets=("2", "two")))

    assert counted(datum) == " 2" + chr(EOS)
    assert datum.model_input.tokens().tolist() == [BOS, *map(ord, "1+1= 2")]


async def test_without_an_end_of_sequence_none_is_measured():
    """No token is invented for a model that has none."""
    datum = await render_supervised(CharacterTokenizer(eos_token_id=None), Sample(input="1+1=", targets=("2",)))

    assert counted(datum) == " 2"


async def test_text_needs_a_target():
    """Without a target there is nothing to measure."""
    with pytest.raises(InvalidField, match=r"^targets is empty"):
        await render_supervised(CharacterTokenizer(), Sample(input="1+1="))
    with pytest.raises(InvalidField, match=r"^targets\[0\] has no tokens"):
        await render_supervised(CharacterTokenizer(eos_token_id=None), Sample(input="1+1=", targets=("",)))


TURNS = (("user", "q1"), ("assistant", "r1"), ("user", "q2"), ("assistant", "r2"), ("user", "q3"))


@pytest.mark.parametrize(
    ("train_on", "expected"),
    [
        ("last_assistant", "r2]"),
        ("last_assistant_message", "r2]"),
        ("last_assistant_turn", "r2]"),
        ("all_assistant", "r1]r2]"),
        ("all_assistant_messages", "r1]r2]"),
        ("all_user_and_system_messages", "q1]q2]q3]"),
        ("all_messages", "q1]r1]q2]r2]q3]"),
        ("all", "[q1]a[r1]u[q2]a[r2]u[q3]"),
        ("all_tokens", "[q1]a[r1]u[q2]a[r2]u[q3]"),
    ],
)
async def test_train_on_decides_what_counts(train_on, expected):
    """A message counts with what closes it, and without what opens it, unless all tokens count."""
    datum = await render_supervised(
        CharacterTokenizer(has_chat_template=True), Sample(input=conversation(*TURNS)), train_on
    )

    assert counted(datum) == expected


async def test_messages_count_by_their_weights():
    """One without a weight counts if it is the assistant's; weights of which no message counts are refused."""
    tokenizer = CharacterTokenizer(has_chat_template=True)
    weights = {0: 0.25, 1: 0.0, 2: None, 3: 0.5, 4: None}
    turns = [ChatMessage(role, text, weight=weights[index]) for index, (role, text) in enumerate(TURNS)]
    sample = Sample(input=Conversation(tuple(turns)), targets=("r3",))

    datum = await render_supervised(tokenizer, sample, "customized")

    pairs = zip(*inputs_of(datum), strict=True)
    assert "".join(f"{chr(token)}{weight:g} " for token, weight in pairs if weight) == (
        "q0.25 10.25 ]0.25 r0.5 20.5 ]0.5 r1 31 ]1 "
    )
    with pytest.raises(InvalidField, match="count only with train_on = customized"):
        await render_supervised(tokenizer, sample, "all_tokens")
    with pytest.raises(InvalidField, match='no message with "weight" or "train"'):
        await render_supervised(tokenizer, Sample(input=conversation(*TURNS)), "customized")
    nothing = Conversation((ChatMessage("user", "q"), ChatMessage("assistant", "r", weight=0)))
    with pytest.raises(InvalidField, match="only messages of weight 0"):
        await render_supervised(tokenizer, Sample(input=nothing), "customized")


async def test_a_turn_has_all_answers_after_the_last_question():
    """Calls of tools and their results are between them."""
    sample = Sample(input=conversation(*TURNS[:4], ("tool", "t"), ("assistant", "r3")))

    datum = await render_supervised(CharacterTokenizer(has_chat_template=True), sample, "last_assistant_turn")

    assert counted(datum) == "r2]r3]"


async def test_the_first_target_answers_an_open_conversation():
    """A conversation that ends with the user is measured on the sample's target."""
    datum = await render_supervised(
        CharacterTokenizer(has_chat_template=True), Sample(input=conversation(*TURNS), targets=("r3",))
    )

    assert counted(datum) == "r3]"


async def test_a_conversation_that_begins_with_the_assistant_counts_from_its_first_token():
    """Nothing comes before it that could be a prompt; the very first token has nothing to be predicted from."""
    datum = await render_supervised(
        CharacterTokenizer(has_chat_template=True), Sample(input=conversation(("assistant", "hi")))
    )

    assert counted(datum) == "[hi]"


async def test_a_conversation_needs_a_message_of_the_assistant():
    """Without one, nothing of it counts, unless all of it does."""
    sample = Sample(input=conversation(("user", "q")))

    with pytest.raises(InvalidField, match="no message of the assistant"):
        await render_supervised(CharacterTokenizer(has_chat_template=True), sample)
    assert counted(await render_supervised(CharacterTokenizer(has_chat_template=True), sample, "all")) == "[q]"


async def test_a_template_that_rewrites_history_is_refused():
    """Where a message looks different once others follow, its tokens cannot be told from the rest."""
    tokenizer = CharacterTokenizer(has_chat_template=True, drops_earlier_thoughts=True)

    with pytest.raises(FailedPrecondition) as caught:
        await render_supervised(tokenizer, Sample(input=conversation(*TURNS)), "all_assistant")

    assert caught.value.reason == "CHAT_TEMPLATE_NOT_STABLE"


async def test_a_datum_is_passed_through():
    """Tokens with weights are what they are."""
    datum = Datum(model_input=ModelInput.of([1, 2]), loss_fn_inputs={"target_tokens": [2, 3], "weights": [0.5, 1.0]})

    assert await render_supervised(None, Sample(input=datum)) is datum
