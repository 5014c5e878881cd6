"""tinker-cookbook's renderers: what they make of a conversation, and what is said where they cannot."""

import dataclasses
import importlib.util

import pytest

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.types import ChatMessage, Conversation, ReasoningPart, Sample, bounds, message_from_json
from crucible_worker.rendering import answer_of, check_renderer, render_supervised, tinker_cookbook
from crucible_worker.rendering.choices import ChoiceForm, render_choices
from crucible_worker.rendering.prompts import render_question
from crucible_worker.rendering.train_on import TRAIN_ON, full_name
from tests import needs
from tests.unit.rendering.tokenizers_made import HeldTokenizer, byte_tokenizer, inputs_of

TURNS = (ChatMessage("user", "1+1?"), ChatMessage("assistant", "2"), ChatMessage("user", "2+2?"))


@pytest.fixture(scope="module")
def tokenizer():
    """One of a chat format that tinker-cookbook knows."""
    pytest.importorskip("transformers", reason=needs.MISSING["transformers"])
    pytest.importorskip("tinker_cookbook.renderers", reason=needs.MISSING["tinker_cookbook"])
    return HeldTokenizer(byte_tokenizer())


async def test_a_conversation_is_rendered_as_by_name(tokenizer):
    """The prompt is that of the renderer, and the token that ends an answer comes as its text."""
    rendered = await render_question(tokenizer, Conversation(TURNS), "tinker:qwen3_instruct")

    assert tokenizer.held.decode(rendered.tokens) == (
        "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n"
        "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert rendered.stop == ("<|im_end|>",)


async def test_text_is_a_message_of_the_user(tokenizer):
    """As to every renderer but raw."""
    asked = [
        await render_question(tokenizer, input, "tinker:qwen3_instruct")
        for input in ("2+2?", Conversation((ChatMessage("user", "2+2?"),)))
    ]

    assert asked[0] == asked[1]


@pytest.mark.parametrize(
    ("train_on", "expected"),
    [("last_assistant", "4<|im_end|>"), ("all_assistant", "2<|im_end|>4<|im_end|>")],
)
async def test_weights_are_the_renderers(tokenizer, train_on, expected):
    """What it would train on is what counts."""
    sample = Sample(input=Conversation(TURNS), targets=("4",))
    datum = await render_supervised(tokenizer, sample, train_on, "tinker:qwen3_instruct")

    targets, weights = inputs_of(datum)
    assert tokenizer.held.decode(targets[weights == 1]) == expected
    assert (datum.model_input.tokens()[1:] == targets[:-1]).all()


@pytest.mark.parametrize("train_on", TRAIN_ON)
@pytest.mark.parametrize("renderer", ["qwen3_instruct", "role_colon"])
async def test_each_value_of_train_on_is_the_originals(tokenizer, renderer, train_on):
    """Tokens and weights, of a conversation whose last turn has two messages of the assistant."""
    from tinker_cookbook.renderers import Message, TrainOnWhat, get_renderer

    roles = ["system", "user", "assistant", "user", "assistant", "tool", "assistant"]
    plain: list[Message] = [{"role": role, "content": f"{index}"} for index, role in enumerate(roles)]
    turns = [ChatMessage(role, f"{index}") for index, role in enumerate(roles)]
    if train_on == "customized":
        plain = [{**message, "trainable": index in (1, 4)} for index, message in enumerate(plain)]
        turns = [dataclasses.replace(turn, weight=float(index in (1, 4))) for index, turn in enumerate(turns)]
    original = get_renderer(renderer, tokenizer.held)
    tokens, weights = original.build_supervised_example(plain, train_on_what=TrainOnWhat(full_name(train_on)))

    for name in (f"tinker:{renderer}", renderer)[: 2 if renderer == "role_colon" else 1]:
        datum = await render_supervised(tokenizer, Sample(input=Conversation(tuple(turns))), train_on, name)
        targets, weighted = inputs_of(datum)
        assert targets.tolist() == tokens.to_ints()[1:]
        assert weighted.tolist() == weights.tolist()[1:]
        assert weighted.any()


def test_the_names_are_those_of_the_original(tokenizer):
    """A value that a later tinker-cookbook adds is not missing unnoticed; the calls accept each."""
    from tinker_cookbook.renderers import TrainOnWhat

    assert {full_name(name) for name in TRAIN_ON} == {value.value for value in TrainOnWhat}
    assert list(TRAIN_ON) == list(bounds.FORWARD_REQUEST_TRAIN_ON_ONE_OF)
    assert list(TRAIN_ON) == list(bounds.BUILD_SUPERVISED_EXAMPLE_REQUEST_TRAIN_ON_ONE_OF)


async def test_a_fraction_of_a_weight_is_refused(tokenizer):
    """The original has messages that count and messages that do not."""
    turns = (ChatMessage("user", "1+1?"), ChatMessage("assistant", "2", weight=0.5))

    with pytest.raises(InvalidField, match="have weights of 0 and 1 alone"):
        await render_supervised(tokenizer, Sample(input=Conversation(turns)), "customized", "tinker:qwen3_instruct")


@pytest.mark.parametrize("train_on", ["all_assistant_messages", "all_messages", "customized"])
async def test_earlier_answers_of_a_renderer_that_rewrites_them_are_refused(tokenizer, train_on):
    """Each would be measured after a prompt that the model never gets."""
    weight = 1.0 if train_on == "customized" else None
    turns = [*TURNS, ChatMessage("assistant", "4")]
    sample = Sample(input=Conversation(tuple(dataclasses.replace(turn, weight=weight) for turn in turns)))

    with pytest.raises(FailedPrecondition) as caught:
        await render_supervised(tokenizer, sample, train_on, "tinker:qwen3")
    assert caught.value.reason == "CHAT_TEMPLATE_NOT_STABLE"


async def test_its_role_colon_is_ours(tokenizer):
    """Choices stand behind the same space, and an answer is read without it, by either name."""
    sample = Sample(input="2+2?", targets=("4",), choices=("4", "5"))
    ours, theirs = [
        await render_choices(tokenizer, sample, ChoiceForm.TEXT, renderer=name)
        for name in ("role_colon", "tinker:role_colon")
    ]

    assert [list(tokens) for tokens in theirs.continuations] == [list(tokens) for tokens in ours.continuations]
    assert tokenizer.held.decode(theirs.continuations[0]) == " 4"
    assert [answer_of(" 4\n\nUser: thanks", name) for name in ("role_colon", "tinker:role_colon")] == ["4", "4"]


@pytest.mark.parametrize("renderer", ["qwen3", "qwen3_instruct"])
async def test_names_and_reasoning_are_rendered_as_by_the_original(tokenizer, renderer):
    """Reasoning goes before the text as a part, and a tool keeps its name, as tinker-cookbook reads OpenAI's form."""
    from tinker_cookbook.renderers import get_renderer
    from tinker_cookbook.third_party.openai_compat import openai_messages_to_tinker

    plain = [
        {"role": "user", "content": "1+1?", "name": "Ann"},
        {"role": "assistant", "content": "2", "reasoning_content": "One and one."},
    ]
    sample = Sample(input=Conversation(tuple(map(message_from_json, plain))))
    original = get_renderer(renderer, tokenizer.held)
    tokens, weights = original.build_supervised_example(openai_messages_to_tinker(plain))

    datum = await render_supervised(tokenizer, sample, renderer=f"tinker:{renderer}")

    targets, weighted = inputs_of(datum)
    assert targets.tolist() == tokens.to_ints()[1:]
    assert weighted.tolist() == weights.tolist()[1:]
    assert "One and one." in tokenizer.held.decode(targets[weighted == 1])


async def test_reasoning_between_texts_keeps_its_place(tokenizer):
    """Renderers of tinker-cookbook have parts in any order; the empty lines are theirs."""
    parts = (ReasoningPart("a"), "b", ReasoningPart("c"), "d")
    turns = (ChatMessage("user", "1+1?"), ChatMessage("assistant", parts=parts))

    datum = await render_supervised(tokenizer, Sample(input=Conversation(turns)), renderer="tinker:qwen3")

    targets, weighted = inputs_of(datum)
    text = tokenizer.held.decode(targets[weighted == 1])
    assert "".join(text.split()) == "<think>a</think>b<think>c</think>d<|im_end|>"


async def test_history_that_is_rewritten_cannot_be_measured_at_once(tokenizer):
    """A renderer that drops earlier thoughts shows no answer but the last one as the model wrote it."""
    sample = Sample(input=Conversation(TURNS), targets=("4",))

    with pytest.raises(FailedPrecondition) as caught:
        await render_supervised(tokenizer, sample, "all_assistant", "tinker:qwen3")
    assert caught.value.reason == "CHAT_TEMPLATE_NOT_STABLE"


@pytest.mark.parametrize("name", ["no_such", "gpt_oss_no_sysprompt", "llama3"])
async def test_a_renderer_that_is_not_there_is_refused(tokenizer, name):
    """A name that tinker-cookbook does not know, or a format whose tokens the tokenizer lacks."""
    with pytest.raises((FailedPrecondition, InvalidField)) as caught:
        await render_question(tokenizer, "2+2?", f"tinker:{name}")

    assert name in caught.value.message


async def test_a_conversation_that_a_renderer_refuses_is_invalid(tokenizer):
    """Its own error is said, at the messages."""
    with pytest.raises(InvalidField, match=r"^input\.messages are refused by the renderer 'qwen3_instruct'"):
        await render_question(tokenizer, Conversation((ChatMessage("user", None),)), "tinker:qwen3_instruct")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidField, match=r"^input\.messages is empty"):
        await render_question(tokenizer, Conversation(()), "tinker:qwen3_instruct")


def test_without_tinker_cookbook_its_renderers_are_refused(monkeypatch):
    """Whoever asks for one is told what to install, before anything else; the others need nothing."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(FailedPrecondition, match="pip install tinker-cookbook") as caught:
        check_renderer("tinker:qwen3")
    assert caught.value.reason == "EXTRA_NOT_INSTALLED"
    check_renderer("role_colon")


async def test_what_tinker_cookbook_needs_is_named(tokenizer, monkeypatch):
    """An import that fails within it is said by its name."""
    monkeypatch.setitem(__import__("sys").modules, "tinker_cookbook.renderers", None)

    with pytest.raises(FailedPrecondition, match=r"^tinker_cookbook\.renderers is not installed") as caught:
        tinker_cookbook.render(tokenizer.held, "role_colon", TURNS)
    assert caught.value.reason == "EXTRA_NOT_INSTALLED"
