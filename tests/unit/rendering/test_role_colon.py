"""The renderer role_colon: its text, and that its tokens and weights are those of tinker-cookbook's."""

import asyncio

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import ChatMessage, Conversation, Sample
from crucible_worker.rendering import render_supervised, role_colon
from crucible_worker.rendering.prompts import render_question
from crucible_worker.rendering.train_on import TRAIN_ON, full_name, with_weights
from tests import needs
from tests.tables import rows
from tests.unit.rendering.tokenizers_made import HeldTokenizer, byte_tokenizer, inputs_of

TURNS = (
    ChatMessage("system", "Add."),
    ChatMessage("user", "1+1?"),
    ChatMessage("assistant", "2"),
    ChatMessage("user", "2+2?"),
)
CONTENT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
MESSAGES = st.lists(
    st.builds(ChatMessage, st.sampled_from(["system", "user", "assistant"]), CONTENT), min_size=1, max_size=5
)


@pytest.fixture(scope="module", params=[True, False], ids=["bos", "no-bos"])
def tokenizer(request):
    """One that begins texts with a token, and one that has no such token."""
    pytest.importorskip("transformers", reason=needs.MISSING["transformers"])
    return HeldTokenizer(byte_tokenizer(bos=request.param))


@pytest.fixture(scope="module")
def original(tokenizer):
    """tinker-cookbook's renderer on the same tokenizer."""
    renderers = pytest.importorskip("tinker_cookbook.renderers", reason=needs.MISSING["tinker_cookbook"])
    return renderers.get_renderer("role_colon", tokenizer.held)


def plain(messages):
    """Messages as tinker-cookbook takes them."""
    return [{"role": message.role, "content": message.content} for message in messages]


def test_a_conversation_is_roles_and_colons():
    """Each message has its role before it and an empty line behind it; the assistant's turn is opened."""
    assert role_colon.prompt_text(TURNS) == ("System: Add.\n\nUser: 1+1?\n\nAssistant: 2\n\nUser: 2+2?\n\nAssistant:")
    assert role_colon.STOP == "\n\nUser:"


async def test_text_is_a_message_of_the_user(tokenizer):
    """Text alone is asked in the same form, and brings the same stop sequence."""
    rendered = await render_question(tokenizer, "2+2?", "role_colon")

    assert tokenizer.held.decode(rendered.tokens, skip_special_tokens=True) == "User: 2+2?\n\nAssistant:"
    assert rendered.stop == (role_colon.STOP,)


@rows(
    ("output", "answer"),
    [
        (" 4", "4"),
        (" 4\n\n", "4"),
        (" 4\n\nUser: 3+3?\n\nAssistant: 6", "4"),
        ("  4 \n", " 4 \n"),
        ("4", "4"),
        ("", ""),
        ("\n\nUser:", ""),
    ],
)
def test_an_answer_ends_where_the_user_goes_on(output, answer):
    """What the form writes around a content is none of it."""
    assert role_colon.answer_of(output) == answer


async def test_no_message_is_refused(tokenizer):
    """There is nothing to ask, in text or in tokens."""
    with pytest.raises(InvalidField, match=r"^input\.messages is empty"):
        role_colon.prompt_text(())
    with pytest.raises(InvalidField, match=r"^input\.messages is empty"):
        await render_question(tokenizer, Conversation(()), "role_colon")
    with pytest.raises(InvalidField, match=r"^input\.messages is empty"):
        await render_supervised(tokenizer, Sample(input=Conversation(())), "all", "role_colon")


async def test_reasoning_is_refused(tokenizer):
    """The form has no place for it."""
    turns = (ChatMessage("user", "1+1?"), ChatMessage("assistant", "2", reasoning="1"))
    with pytest.raises(InvalidField, match="has images, reasoning or calls of tools"):
        await render_supervised(tokenizer, Sample(input=Conversation(turns)), "all", "role_colon")


@settings(max_examples=50, deadline=None)
@given(messages=MESSAGES)
def test_prompts_are_those_of_the_original(tokenizer, original, messages):
    """Token by token, and with its stop sequences."""
    rendered = asyncio.run(render_question(tokenizer, Conversation(tuple(messages)), "role_colon"))

    assert list(rendered.tokens) == original.build_generation_prompt(plain(messages)).to_ints()
    assert list(rendered.stop) == original.get_stop_sequences()


@settings(max_examples=100, deadline=None)
@given(messages=MESSAGES, train_on=st.sampled_from(TRAIN_ON), trained=st.lists(st.booleans(), min_size=5, max_size=5))
def test_what_is_measured_is_what_the_original_trains_on(tokenizer, original, messages, train_on, trained):
    """Tokens and weights are equal, moved by one, for a conversation that ends with the assistant."""
    from tinker_cookbook.renderers import TrainOnWhat

    conversation = (*messages, ChatMessage("assistant", "4"))
    given = plain(conversation)
    if train_on == "customized":
        trained = [*trained[: len(messages)], True]
        given = [{**message, "trainable": each} for message, each in zip(given, trained, strict=True)]
        conversation = with_weights(conversation, trained)
    elif train_on == "all_user_and_system_messages":
        assume(any(message.role != "assistant" for message in messages))
    datum = asyncio.run(render_supervised(tokenizer, Sample(input=Conversation(conversation)), train_on, "role_colon"))
    tokens, weights = original.build_supervised_example(given, train_on_what=TrainOnWhat(full_name(train_on)))

    assert datum.model_input.tokens().tolist() == tokens.to_ints()[:-1]
    our_targets, our_weights = inputs_of(datum)
    assert our_targets.tolist() == tokens.to_ints()[1:]
    assert our_weights.tolist() == weights.tolist()[1:]


@settings(max_examples=50, deadline=None)
@given(output=st.lists(st.sampled_from([" ", "4", "\n\n", "User:", "\n\nUser:", "é"]), max_size=8).map("".join))
def test_answers_are_read_as_the_original_reads_them(tokenizer, original, output):
    """Its content of a response is ours, whether the response ended well or not."""
    message, _ = original.parse_response(tokenizer.held.encode(output, add_special_tokens=False))

    assert role_colon.answer_of(output) == message["content"]


async def test_the_target_of_a_text_is_the_answer(tokenizer):
    """Text with a target is a user's message and the assistant's; what ends the turn counts with it."""
    datum = await render_supervised(tokenizer, Sample(input="2+2?", targets=("4",)), "all", "role_colon")

    targets, weights = inputs_of(datum)
    assert tokenizer.held.decode(targets[weights == 1]) == " 4\n\nUser:"
    with pytest.raises(InvalidField, match=r"^targets is empty"):
        await render_supervised(tokenizer, Sample(input="2+2?"), "all", "role_colon")
