"""Messages as chat templates of transformers accept them, with images, calls of tools and reasoning."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import ChatMessage, ToolCall
from crucible_bridge.types.messages import REASONING_KEYS
from crucible_worker.util.reasoning import refuse_parted_reasoning

__all__ = ["MAX_ARGUMENT_CHARS", "place_of_images", "template_messages", "with_places"]

MAX_ARGUMENT_CHARS = 256 * 1024
"""Of the arguments of a call of a tool."""
_PLACES = ("<|image_pad|>", "<|image|>", "<image_soft_token>", "<start_of_image>", "<|media_pad|>", "[IMG]", "<image>")
"""Tokens that templates write in the place of an image: those of Qwen-VL, Llama, Gemma, Kimi, Pixtral, LLaVA."""


_READS_REASONING = re.compile(rf"""[.'"](?:{"|".join(REASONING_KEYS)})\b""")
"""Where a template reads the reasoning of a message, as a field or by its key."""


def template_messages(messages: Sequence[ChatMessage], template: object) -> list[dict[str, Any]]:
    """Messages for `apply_chat_template`; one of text alone has a role and a content.

    Reasoning has every key that templates read. A template that has no form for names leaves them out.

    Args:
        messages: the conversation.
        template: the template's text; one that is no text, such as one of several by name, is not examined.

    Raises:
        InvalidField: the arguments of a call of a tool are no JSON object, or the template has no form for reasoning.
    """
    reads = not isinstance(template, str) or _READS_REASONING.search(template) is not None
    found: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        if message.reasoning and not reads:
            problem = "is given, and the model's chat template has no form for it: leave it out, or name another"
            raise InvalidField(f"{path}.reasoning", f"{problem} renderer")
        found.append(_template_message(message, path))
    return found


def place_of_images(tokenizer: Any, messages: Sequence[ChatMessage]) -> int:
    """The token that the template writes in the place of an image.

    Raises:
        InvalidField: the tokenizer has none, or a text contains it.
    """
    known = tokenizer.get_vocab()
    own = getattr(tokenizer, "image_token", None)
    texts = [text for text in (own, *_PLACES) if isinstance(text, str) and text in known]
    if not texts:
        raise InvalidField("messages", "has images, and the model's tokenizer has no token for an image")
    if any(texts[0] in message.content for message in messages):
        raise InvalidField("messages", f"has images, and a text with {texts[0]!r}, which is the place of one")
    return known[texts[0]]


def with_places(tokens: Sequence[int], place: int, images: int) -> list[int]:
    """The tokens with -1, -2 and so on in the places of images.

    Raises:
        InvalidField: there are more or fewer places than images.
    """
    found: list[int] = []
    count = 0
    for token in tokens:
        count += token == place
        found.append(-count if token == place else token)
    if count != images:
        raise InvalidField(
            "messages", f"has {images} images, and the chat template writes the places of {count}: it takes text alone"
        )
    return found


def _template_message(message: ChatMessage, path: str) -> dict[str, Any]:
    plain: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.parts:
        refuse_parted_reasoning(message, path)
        plain["content"] = [
            {"type": "text", "text": part} if isinstance(part, str) else {"type": "image"} for part in message.parts
        ]
    if message.tool_calls:
        plain["tool_calls"] = [
            _template_call(call, f"{path}.tool_calls[{index}]") for index, call in enumerate(message.tool_calls)
        ]
    if message.tool_call_id:
        plain["tool_call_id"] = message.tool_call_id
    if message.name:
        plain["name"] = message.name
    if message.reasoning:
        plain |= dict.fromkeys(REASONING_KEYS, message.reasoning)
    return plain


def _template_call(call: ToolCall, path: str) -> dict[str, Any]:
    named = {"id": call.id} if call.id else {}
    return {**named, "type": "function", "function": {"name": call.name, "arguments": _arguments(call, path)}}


def _arguments(call: ToolCall, path: str) -> dict[str, Any]:
    """The arguments as an object: templates write them as JSON again."""
    path = f"{path}.arguments"
    if len(call.arguments) > MAX_ARGUMENT_CHARS:
        raise InvalidField(path, f"has {len(call.arguments):,} characters; at most {MAX_ARGUMENT_CHARS:,} are accepted")
    try:
        found = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidField(path, f"is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidField(path, "is no JSON object")
    return found
