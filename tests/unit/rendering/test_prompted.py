"""What a prompt makes of a row: a conversation, and the one text that it is without a chat template."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.types import Conversation, Sample, SamplingParams
from crucible_worker.rendering import ask, render_supervised
from crucible_worker.rendering.choices import ChoiceForm, render_choices
from crucible_worker.rendering.prompts import Prompted, joined, plain_text, render_question, stops_of
from crucible_worker.rendering.supervised import render_behind
from tests.tables import rows
from tests.unit.rendering.test_asking import WordyModel
from tests.unit.rendering.test_rendering import BOS, EOS, CharacterTokenizer, conversation, counted

SHOTS = (("system", "Add."), ("user", "1+1="), ("assistant", "2"), ("user", "2+2="))
TEXT = "Add.\n\n1+1= 2\n\n2+2="


def prompted(*turns: tuple[str, str]) -> Prompted:
    """What a prompt made of pairs of role and content, the last of which is the row."""
    return Prompted(conversation(*turns).messages, question=turns[-1][1])


@rows(
    ("turns", "text"),
    [
        (SHOTS, TEXT),
        ((("user", "Q:"), ("assistant", "A")), "Q: A"),
        ((("user", "Q: "), ("assistant", "A")), "Q: A"),
        ((("user", "Q:\n"), ("assistant", "A")), "Q:\nA"),
        ((("user", "Q:"), ("assistant", " A")), "Q: A"),
        ((("user", "Q"), ("user", "R")), "Q\n\nR"),
        ((("user", "Q"), ("assistant", "A"), ("assistant", "B")), "Q A\n\nB"),
        ((("user", ""),), ""),
    ],
)
def test_parts_are_joined(turns, text):
    """An empty line between messages, and one space before an answer unless white space stands there."""
    assert joined(conversation(*turns).messages) == text


@rows(
    ("turns", "stops"),
    [
        (SHOTS, ("\n\n",)),
        ((("system", "Add."), ("user", "2+2=")), ()),
        ((("user", "1+1="), ("assistant", "It\n\nis 2"), ("user", "2+2=")), ()),
        ((("user", "2+2="), ("assistant", "It is")), ()),
    ],
)
def test_an_answer_ends_where_those_before_it_do(turns, stops):
    """At an empty line, unless an answer before has one; without examples, nothing says where."""
    assert stops_of(prompted(*turns)) == stops
    assert stops_of(conversation(*turns)) == ()


def test_only_what_a_prompt_made_can_be_joined():
    """The roles of a data set's own conversation say something; one message of the user is its text."""
    assert plain_text("a") == plain_text(conversation(("user", "a"))) == "a"
    assert plain_text(conversation(("assistant", "a"))) is None
    assert plain_text(conversation(*SHOTS)) is None
    assert plain_text(prompted(*SHOTS)) == TEXT


@pytest.mark.parametrize(("renderer", "template"), [("auto", False), ("raw", False), ("raw", True)])
async def test_a_model_without_a_template_gets_the_text(renderer, template):
    """So few-shot works on base models, and on others where raw is asked for."""
    rendered = await render_question(CharacterTokenizer(has_chat_template=template), prompted(*SHOTS), renderer)

    assert list(rendered.tokens) == [BOS, *map(ord, TEXT)]
    assert rendered.stop == ("\n\n",)


@pytest.mark.parametrize("renderer", ["auto", "chat_template"])
async def test_a_model_with_a_template_gets_the_messages(renderer):
    """Examples are turns of the conversation, and its template ends an answer."""
    rendered = await render_question(CharacterTokenizer(has_chat_template=True), prompted(*SHOTS), renderer)

    assert "".join(map(chr, rendered.tokens)) == "s[Add.]u[1+1=]a[2]u[2+2=]a["
    assert rendered.stop == ()


async def test_a_conversation_of_a_data_set_still_needs_a_template():
    """Nobody can say how a model without one would like its roles."""
    with pytest.raises(FailedPrecondition) as caught:
        await render_question(CharacterTokenizer(), conversation(*SHOTS), "auto")
    assert caught.value.reason == "NO_CHAT_TEMPLATE"
    with pytest.raises(InvalidField) as refused:
        await render_question(CharacterTokenizer(), conversation(*SHOTS), "raw")
    assert refused.value.reason == "RAW_CONVERSATION"


@rows(
    ("renderer", "asked", "stop"),
    [
        ("auto", conversation(*SHOTS).messages, ()),
        ("chat_template", conversation(*SHOTS).messages, ()),
        ("raw", f"plain: {TEXT}", ("\n\n",)),
    ],
)
async def test_servers_get_messages_or_the_text(renderer, asked, stop):
    """A completion where raw is asked for, ended like the examples."""
    wordy = WordyModel()
    await ask(wordy, prompted(*SHOTS), SamplingParams(max_tokens=8), renderer=renderer)

    (got,) = wordy.asked
    assert (got.messages if isinstance(got, Conversation) else got) == asked
    assert wordy.params == [SamplingParams(max_tokens=8, stop=stop)]


async def test_a_target_is_measured_as_the_examples_have_theirs():
    """Behind a joined text, with the space that stands before an answer; in a chat, as its last message."""
    sample = Sample(input=prompted(*SHOTS), targets=("4",))
    base, chat = CharacterTokenizer(), CharacterTokenizer(has_chat_template=True)

    assert counted(await render_supervised(base, sample)) == f" 4{chr(EOS)}"
    assert counted(await render_supervised(base, sample, renderer="raw")) == " 4"
    assert counted(await render_supervised(chat, sample)) == "4]"
    behind = await render_behind(base, sample)
    assert counted(behind) == " 4"
    assert behind.model_input.tokens().tolist() == [BOS, *map(ord, f"{TEXT} ")]


async def test_choices_stand_behind_the_text():
    """The same space before each, unless the evaluator's delimiter says another one; letters are listed in the row."""
    sample = Sample(input=prompted(*SHOTS), choices=("3", "4"), targets=("4",))

    plain = await render_choices(CharacterTokenizer(), sample, ChoiceForm.TEXT)
    dashed = await render_choices(CharacterTokenizer(), sample, ChoiceForm.TEXT, "-")
    letters = await render_choices(CharacterTokenizer(), sample, ChoiceForm.LETTERS)

    assert [*plain.prompt, *plain.continuations[1]] == [BOS, *map(ord, f"{TEXT} 4")]
    assert [*dashed.prompt, *dashed.continuations[1]] == [BOS, *map(ord, f"{TEXT}-4")]
    assert [*letters.prompt, *letters.continuations[1]] == [BOS, *map(ord, f"{TEXT}\nA. 3\nB. 4\nAnswer: B")]


@rows(
    ("prompt", "target", "delimiter", "measured"),
    [
        ("1+1=", "2", None, " 2"),
        ("1+1=", " 2", None, " 2"),
        ("1+1= ", "2", None, "2"),
        ("1+1=\n", "2", None, "2"),
        ("1+1=", "2", "", "2"),
        ("1+1=", "2", "\n", "\n2"),
        ("1+1= ", "2", " -", " -2"),
        ("  ", "2", None, "2"),
        ("1+1=", "", "-", ""),
    ],
)
async def test_one_rule_joins_a_prompt_and_what_is_measured(prompt, target, delimiter, measured):
    """The delimiter, or one space unless there is white space; an empty target has no delimiter.

    White space that ends the prompt as a token by itself is not measured: a model that was trained with it is evaluated
    by a template that has it.
    """
    tokenizer = CharacterTokenizer(target_delimiter=delimiter)
    alone, shot = Sample(input=prompt, targets=(target,)), prompted(("user", prompt))

    for sample in (alone, dataclasses.replace(alone, input=shot)):
        assert counted(await render_supervised(tokenizer, sample)) == f"{measured}{chr(EOS)}"
    if target:
        assert counted(await render_behind(tokenizer, alone)) == measured
        choices = dataclasses.replace(alone, choices=(target, f"{target}!"))
        found = await render_choices(tokenizer, choices, ChoiceForm.TEXT)
        assert "".join(map(chr, found.continuations[0])) == measured
        assert [*found.prompt, *found.continuations[0]] == [BOS, *map(ord, f"{prompt}{measured}")]


async def test_examples_have_the_delimiter_of_the_target():
    """A model sees its examples as its own answer is measured; a prompt for generation ends with the question."""
    tokenizer = CharacterTokenizer(target_delimiter=" -> ")
    sample = Sample(input=prompted(*SHOTS), targets=("4",))

    assert counted(await render_supervised(tokenizer, sample, renderer="raw")) == " -> 4"
    asked = await render_question(tokenizer, prompted(*SHOTS), "raw")
    assert "".join(map(chr, asked.tokens[1:])) == "Add.\n\n1+1= -> 2\n\n2+2="


async def test_a_template_needs_no_delimiter():
    """The chat template, and the form of role_colon, say what stands between a message and its answer."""
    chat = CharacterTokenizer(has_chat_template=True, target_delimiter=" -> ")
    sample = Sample(input="1+1=", targets=("2",), choices=("2", "3"))

    assert counted(await render_supervised(chat, sample)) == f"2{chr(EOS)}"
    assert counted(await render_supervised(chat, sample, renderer="role_colon")) == " 2\n\nUser:"
    assert (await render_choices(chat, sample, ChoiceForm.TEXT)).continuations[0] == [ord("2")]
    dashed = await render_choices(chat, sample, ChoiceForm.TEXT, "-")
    assert dashed.continuations[0] == [*map(ord, "-2")]


@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), st.text("abC:?é", max_size=9)), min_size=1))
def test_joining_adds_white_space_alone(turns):
    """Every content is there, in order, and nothing else."""
    text = joined(conversation(*turns).messages)
    assert "".join(text.split()) == "".join(content for _, content in turns)
