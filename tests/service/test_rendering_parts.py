"""Images and calls of tools in conversations, rendered by a real worker: as transformers and tinker-cookbook do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    ImageChunk,
    ModelInput,
    Problem,
    ReasoningPart,
    SampleItem,
    SamplingParams,
    TokensChunk,
    ToolCall,
)
from crucible_worker.config import Settings
from crucible_worker.server import Worker
from tests import needs
from tests.tables import rows
from tests.unit.rendering.tokenizers_made import byte_tokenizer, inputs_of

needs.modules("torch", "transformers")
pytestmark = pytest.mark.asyncio(loop_scope="module")

VISION = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}"
    "{% for call in message.tool_calls or [] %}\n<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""That of Qwen's models, in short."""
TEXT = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
REASONED = (
    "{% for message in messages %}<|im_start|>{{ message.role }}"
    "{% if message.name %} {{ message.name }}{% endif %}{{ '\\n' }}"
    "{% if message.KEY %}<think>{{ message.KEY }}</think>{% endif %}{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Templates read reasoning by one of these keys."""
KEYS = ("reasoning_content", "reasoning", "thinking")
IMAGE = ImageChunk(data=bytes(range(256)), format="png", expected_tokens=4)
SHOWN = [
    {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is é?"}]},
    {"role": "assistant", "content": "A dot."},
]
CALLED = [
    {"role": "user", "content": "1+1?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"type": "function", "id": "c1", "function": {"name": "add", "arguments": {"a": 1, "b": "é \U0001f600"}}}
        ],
    },
    {"role": "tool", "content": "2", "tool_call_id": "c1"},
]


def vision_tokenizer(template: str) -> Any:
    """A token per byte, the marks of images and of a chat, and a chat template."""
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(
        {"additional_special_tokens": ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<tool_call>"]}
    )
    tokenizer.chat_template = template
    return tokenizer


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model root of tokenizers without models."""
    root = tmp_path_factory.mktemp("root")
    vision_tokenizer(VISION).save_pretrained(root / "vision")
    vision_tokenizer(TEXT).save_pretrained(root / "text")
    for key in KEYS:
        vision_tokenizer(REASONED.replace("KEY", key)).save_pretrained(root / key)
    plain = byte_tokenizer()
    plain.chat_template = VISION
    plain.save_pretrained(root / "blind")
    return root


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bridge(root: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bridge]:
    """A worker as it is served, and its client."""
    settings = Settings(port=0, state_dir=tmp_path_factory.mktemp("state"), model_roots=(root,))
    async with Worker(settings.validate()) as worker, crucible_bridge.connect(worker.address) as bridge:
        yield bridge


def shown(*more: ChatMessage) -> Conversation:
    """A conversation with an image."""
    return Conversation((ChatMessage("user", parts=(IMAGE, "What is é?")), *more))


def split(tokens: list[int], place: int) -> list[Any]:
    """Tokens in chunks, with the image in the places of a token."""
    found: list[Any] = [[]]
    for token in tokens:
        if token == place:
            found += [IMAGE, []]
        else:
            found[-1].append(token)
    return [chunk for chunk in found if chunk]


def chunks(model_input: ModelInput | None) -> list[Any]:
    """Chunks in that form."""
    assert model_input is not None
    return [chunk.tokens.tolist() if isinstance(chunk, TokensChunk) else chunk for chunk in model_input.chunks]


def problem_of(item: Any) -> Problem:
    """The problem of an item."""
    assert item.problem is not None
    return item.problem


async def test_an_image_stands_where_the_template_has_its_place(bridge: Bridge):
    """The tokens around it are those of transformers, and its bytes are the caller's; other items have tokens."""
    here = vision_tokenizer(VISION)
    tokens = here.apply_chat_template(SHOWN[:1], add_generation_prompt=True, return_dict=False)

    found = await bridge.rendering.build_generation_prompt("local:vision", [shown(), "1+1?"])

    first, second = found.items
    assert (first.tokens, second.model_input) == ((), None)
    assert chunks(first.model_input) == split(tokens, here.convert_tokens_to_ids("<|image_pad|>"))
    assert list(second.tokens) == here.apply_chat_template(
        [{"role": "user", "content": "1+1?"}], add_generation_prompt=True, return_dict=False
    )


@rows("key", list(KEYS))
async def test_a_template_gets_names_and_reasoning(bridge: Bridge, key: str):
    """By the key that it reads; the reasoning of an answer has weight, as the rest of it."""
    here = vision_tokenizer(REASONED.replace("KEY", key))
    plain = [
        {"role": "user", "content": "1+1?", "name": "Ann"},
        {"role": "assistant", "content": "2", key: "One and one."},
    ]
    turns = [ChatMessage("user", "1+1?", name="Ann"), ChatMessage("assistant", "2", reasoning="One and one.")]

    (item,) = (await bridge.rendering.build_supervised_example(f"local:{key}", [turns])).items

    assert item.problem is None
    assert list(item.tokens) == here.apply_chat_template(plain, return_dict=False)
    measured = [token for token, weight in zip(item.tokens, item.weights, strict=True) if weight]
    assert here.decode(measured) == "<think>One and one.</think>2<|im_end|>\n"


@rows(
    ("message", "says"),
    [
        (ChatMessage("assistant", "2", reasoning="1"), "the model's chat template has no form for it"),
        (ChatMessage("assistant", parts=("2", ReasoningPart("1"))), "has reasoning in several parts, or after a text"),
    ],
)
async def test_reasoning_is_never_dropped(bridge: Bridge, message: ChatMessage, says: str):
    """A template without a form for it is named, as is reasoning that no template has a place for."""
    turns = [ChatMessage("user", "1+1?"), message, ChatMessage("user", "2+2?")]

    (item,) = (await bridge.rendering.build_generation_prompt("local:text", [turns])).items

    assert says in problem_of(item).message


async def test_an_example_with_an_image(bridge: Bridge):
    """Weights and targets have the length of the input; those of the answer count."""
    here = vision_tokenizer(VISION)
    tokens = here.apply_chat_template(SHOWN, add_generation_prompt=False, return_dict=False)

    answered = shown(ChatMessage("assistant", "A dot."))
    (item,) = (await bridge.rendering.build_supervised_example("local:vision", [answered])).items

    whole = split(tokens, here.convert_tokens_to_ids("<|image_pad|>"))
    assert chunks(item.model_input) == whole
    assert item.datum is not None
    assert chunks(item.datum.model_input) == [*whole[:-1], whole[-1][:-1]]
    targets, weights = inputs_of(item.datum)
    flat = [token for chunk in whole for token in (chunk if isinstance(chunk, list) else [0] * 4)]
    assert targets.tolist() == flat[1:]
    assert weights.tolist() == list(item.weights)[1:]
    assert here.decode(targets[weights == 1]) == "A dot.<|im_end|>\n"


async def test_calls_of_tools_go_to_the_template(bridge: Bridge):
    """As transformers gives them: arguments are an object, whatever JSON they were sent as."""
    here = vision_tokenizer(VISION)
    call = ToolCall(name="add", arguments='{"a":1,"b":"\\u00e9 \U0001f600"}', id="c1")
    typed = Conversation(
        (
            ChatMessage("user", "1+1?"),
            ChatMessage("assistant", tool_calls=(call,)),
            ChatMessage("tool", "2", tool_call_id="c1"),
        )
    )

    found = await bridge.rendering.build_generation_prompt("local:vision", [CALLED, typed])

    expected = here.apply_chat_template(CALLED, add_generation_prompt=True, return_dict=False)
    assert [list(item.tokens) for item in found.items] == [expected, expected]


async def test_a_parsed_answer_can_be_sent_back(bridge: Bridge):
    """The calls that ParseResponse finds are those of a message."""
    said = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call><|im_end|>'
    (parsed,) = (await bridge.rendering.parse_response("local:vision", [said])).items

    turns = [ChatMessage("user", "1+1?"), ChatMessage("assistant", parsed.text, tool_calls=parsed.tool_calls)]
    (item,) = (await bridge.rendering.build_supervised_example("local:vision", [turns])).items
    (text,) = (await bridge.rendering.detokenize("local:vision", [item.tokens])).items
    assert '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>' in text.text


@rows("renderer", ["qwen3", "qwen3_instruct"])
async def test_calls_are_rendered_as_tinker_cookbook_does(bridge: Bridge, renderer: str):
    """Its own renderer, in this process, makes the same tokens."""
    renderers = pytest.importorskip("tinker_cookbook.renderers", reason=needs.MISSING["tinker_cookbook"])
    body = renderers.ToolCall.FunctionBody(name="add", arguments='{"a": 1}')
    theirs = [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "", "tool_calls": [renderers.ToolCall(function=body, id="c1")]},
        {"role": "tool", "content": "2", "tool_call_id": "c1", "name": "add"},
    ]
    call = ToolCall(name="add", arguments='{"a": 1}', id="c1")
    ours = [
        ChatMessage("user", "1+1?"),
        ChatMessage("assistant", tool_calls=(call,)),
        ChatMessage("tool", "2", tool_call_id="c1"),
    ]

    found = await bridge.rendering.build_generation_prompt("local:vision", [ours], renderer=f"tinker:{renderer}")

    here = renderers.get_renderer(renderer, vision_tokenizer(VISION))
    assert list(found.items[0].tokens) == here.build_generation_prompt(theirs).to_ints()


@rows(
    ("model", "renderer", "conversation", "says"),
    [
        ("local:text", "auto", shown(), "takes text alone"),
        ("local:blind", "auto", shown(), "no token for an image"),
        ("local:vision", "role_colon", shown(), "role_colon has no form"),
        ("local:vision", "raw", shown(), "takes text alone"),
        ("local:vision", "tinker:qwen3_instruct", shown(), "takes text alone"),
        ("local:vision", "auto", shown(ChatMessage("user", "<|image_pad|>")), "which is the place of one"),
        (
            "local:vision",
            "auto",
            Conversation((ChatMessage("assistant", tool_calls=(ToolCall(name="f", arguments="[1]"),)),)),
            "is no JSON object",
        ),
    ],
)
async def test_what_cannot_be_rendered_is_a_problem(
    bridge: Bridge, model: str, renderer: str, conversation: Conversation, says: str
):
    """No image and no call is left out without an error, and the other item has its result."""
    found = await bridge.rendering.build_generation_prompt(model, [conversation, "1+1?"], renderer=renderer)

    problem = problem_of(found.items[0])
    assert says in problem.message
    assert problem.field.startswith("conversations[0]")
    assert found.items[1].tokens


async def test_a_model_of_text_refuses_an_image(bridge: Bridge):
    """Sampling names the image."""
    item = SampleItem(prompt=shown(), num_samples=1)
    (found,) = (await bridge.models.sample("embedded:arithmetic@320", [item], SamplingParams(max_tokens=2))).items
    assert "image" in problem_of(found).message or problem_of(found).reason == "NO_CHAT_TEMPLATE"
