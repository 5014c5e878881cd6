"""Messages as JSON: the form of OpenAI's API, both ways."""

import json
from typing import Any

import pytest
from hypothesis import given

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    ChatMessage,
    ImageAssetChunk,
    ImageChunk,
    ReasoningPart,
    ToolCall,
    message_from_json,
    message_text,
    message_to_json,
)
from tests.tables import rows
from tests.unit.bridge.strategies import chat_messages

PIXEL = ImageChunk(data=b"\x89PNG", format="png")
CALL = ToolCall(name="add", arguments='{"a": 1}', id="c1")


@given(chat_messages)
def test_every_message_comes_back_from_json(message: ChatMessage) -> None:
    """Images are data URLs or addresses, and the bytes of an image are the same."""
    if any(isinstance(image, ImageAssetChunk) and image.location.startswith("data:") for image in message.images):
        return
    assert message_from_json(json.loads(json.dumps(message_to_json(message)))) == message


@rows(
    ("given", "message"),
    [
        ({"role": "user", "content": "a"}, ChatMessage("user", "a")),
        ({"role": "user", "content": [{"type": "text", "text": "a"}]}, ChatMessage("user", "a")),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": "data:image/jpg;base64,AAE="}]},
            ChatMessage("user", parts=(ImageChunk(data=b"\0\1", format="jpeg"),)),
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.PNG?z=1"}}]},
            ChatMessage("user", parts=(ImageAssetChunk(location="https://x/y.PNG?z=1", format="png"),)),
        ),
        (
            {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"é": 1}}}]},
            ChatMessage("assistant", tool_calls=(ToolCall(name="f", arguments='{"é": 1}'),)),
        ),
        (
            {"role": "tool", "content": "2", "tool_call_id": "c1", "tool_calls": None},
            ChatMessage("tool", "2", tool_call_id="c1"),
        ),
        (
            {"role": "tool", "content": "2", "tool_call_id": "c1", "name": "add"},
            ChatMessage("tool", "2", tool_call_id="c1", name="add"),
        ),
        ({"role": "assistant", "content": "a", "reasoning_content": "b"}, ChatMessage("assistant", "a", reasoning="b")),
        ({"role": "assistant", "content": "a", "reasoning": "b"}, ChatMessage("assistant", "a", reasoning="b")),
        (
            {"role": "assistant", "content": "a", "thinking": "b", "reasoning": "b", "reasoning_content": ""},
            ChatMessage("assistant", "a", reasoning="b"),
        ),
        (
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "b"}, {"type": "text", "text": "a"}]},
            ChatMessage("assistant", "a", reasoning="b"),
        ),
        ({"role": "user", "content": "a", "weight": 0}, ChatMessage("user", "a", weight=0.0)),
        ({"role": "assistant", "content": "a", "train": True}, ChatMessage("assistant", "a", weight=1.0)),
        ({"role": "assistant", "content": "a", "trainable": False}, ChatMessage("assistant", "a", weight=0.0)),
        ({"role": "assistant", "content": "a", "train": False, "weight": 0}, ChatMessage("assistant", "a", weight=0.0)),
    ],
)
def test_what_data_sets_have_is_read(given: dict[str, Any], message: ChatMessage) -> None:
    """Null counts as absent, and arguments may be an object."""
    assert message_from_json(given) == message


@rows(
    ("given", "field"),
    [
        ("text", ""),
        ({"role": "user"}, "content"),
        ({"role": 3, "content": "a"}, "role"),
        ({"role": "user", "content": "a", "audio": "b"}, ""),
        ({"role": "user", "content": "a", "name": 3}, "name"),
        ({"role": "user", "content": "a", "reasoning_content": "b"}, "reasoning"),
        ({"role": "assistant", "content": "a", "reasoning_content": "b", "thinking": "c"}, ""),
        ({"role": "assistant", "content": [{"type": "thinking", "thinking": 3}]}, "content[0].thinking"),
        (
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "b"}, {"type": "text", "text": "a"}],
                "reasoning": "b",
            },
            "reasoning",
        ),
        ({"role": "assistant", "content": "a", "weight": 1, "train": False}, ""),
        ({"role": "assistant", "content": "a", "weight": -1}, "weight"),
        ({"role": "assistant", "content": "a", "weight": True}, "weight"),
        ({"role": "assistant", "content": "a", "train": 1}, "train"),
        ({"role": "user", "content": ["a"]}, "content[0]"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": "data:image/gif;base64,AA=="}]},
            "content[0].",
        ),
        ({"role": "user", "content": [{"type": "image_url", "image_url": "data:image/png;base64,?"}]}, "content[0]."),
        ({"role": "user", "content": [{"type": "image_url", "image_url": "https://x/y"}]}, "content[0].image_url"),
        ({"role": "assistant", "content": "", "tool_calls": [{"function": {"arguments": "{}"}}]}, "tool_calls[0]."),
    ],
)
def test_what_is_no_message_is_named(given: Any, field: str) -> None:
    """The path is that of the key."""
    with pytest.raises(InvalidField) as caught:
        message_from_json(given)
    assert caught.value.field.startswith(field)
    assert bool(caught.value.field) == bool(field)


def test_text_and_parts_agree() -> None:
    """The text of a message with images is that of its parts; another text is refused."""
    message = ChatMessage("user", parts=("a", PIXEL, "b"))

    assert (message.content, message.images, message.is_text) == ("ab", (PIXEL,), False)
    assert ChatMessage("user", "ab", parts=("a", "b")) == ChatMessage("user", "ab")
    with pytest.raises(InvalidField, match="is not the text of the parts"):
        ChatMessage("user", "c", parts=("a", PIXEL))


def test_reasoning_at_the_beginning_is_that_of_the_message() -> None:
    """Data sets write it in two ways, which are one; reasoning in several parts stays in its places."""
    first, second = ReasoningPart("b"), ReasoningPart("c")

    assert ChatMessage("assistant", parts=(first, "a")) == ChatMessage("assistant", "a", reasoning="b")
    assert ChatMessage("assistant", parts=(first, "a", second)).parts == (first, "a", second)
    assert message_text(ChatMessage("assistant", "a", reasoning="b")) == "<think>b</think>a"
    assert message_text(ChatMessage("assistant", parts=(first, "a", second))) == "<think>b</think>a<think>c</think>"


def test_the_text_for_people_names_images_and_calls() -> None:
    """A judge and a reader see that there is more than text."""
    message = ChatMessage("assistant", parts=("See ", PIXEL), tool_calls=(CALL,))

    assert message_text(message) == 'See [image]<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
