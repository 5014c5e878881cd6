r"""Messages as JSON, in the form of OpenAI's API: text, images, calls of tools.

    {"role": "user", "content": [{"type": "text", "text": "What is this?"},
                                 {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBOR..."}}]}
    {"role": "assistant", "content": "", "tool_calls": [
        {"type": "function", "id": "c1", "function": {"name": "add", "arguments": "{\"a\": 1}"}}]}
    {"role": "tool", "content": "2", "tool_call_id": "c1", "name": "add"}
    {"role": "assistant", "content": "2", "reasoning_content": "One and one.", "weight": 1}

Two keys are not of that API: `expected_tokens` of an image, and `format` of one whose address does not end with it.
Reasoning has several names in data sets: `reasoning_content`, `reasoning`, `thinking`, and the part
{"type": "thinking", "thinking": "..."}. `train` and `trainable` are a weight of 1 or 0.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from typing import Any

from crucible_bridge.errors import InvalidField, clipped
from crucible_bridge.types.data import (
    ChatMessage,
    ImageAssetChunk,
    ImageChunk,
    MessagePart,
    ReasoningPart,
    ToolCall,
)

__all__ = ["REASONING_KEYS", "message_from_json", "message_text", "message_to_json", "part_text"]

REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
"""The names that data sets, servers and chat templates have for the reasoning of a message; we write the first."""
_FLAGS = ("train", "trainable")
"""Keys that say whether a message has weight, as true or false."""
_KEYS = ("role", "content", "tool_calls", "tool_call_id", "name", *REASONING_KEYS, "weight", *_FLAGS)
_DATA = "data:image/"
_BASE64 = ";base64"
_FORMATS = {"png": "png", "jpeg": "jpeg", "jpg": "jpeg"}
_EXPECTED = "expected_tokens"
"""A key of a part that OpenAI's API does not have: the tokens that an image takes."""


def message_to_json(message: ChatMessage) -> dict[str, Any]:
    """A message as JSON; one of text alone has a role and a content."""
    plain: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.parts:
        plain["content"] = [_part_to_json(part) for part in message.parts]
    if message.tool_calls:
        plain["tool_calls"] = [_call_to_json(call) for call in message.tool_calls]
    if message.tool_call_id:
        plain["tool_call_id"] = message.tool_call_id
    if message.name:
        plain["name"] = message.name
    if message.reasoning:
        plain[REASONING_KEYS[0]] = message.reasoning
    if message.weight is not None:
        plain["weight"] = message.weight
    return plain


def message_from_json(value: Any) -> ChatMessage:
    """The inverse. Keys that are null count as absent; arguments of a call may be an object.

    Raises:
        InvalidField: names the key, such as `content[0].image_url`; an empty one is the whole value.
    """
    given = _object(value, "", _KEYS)
    calls = given.get("tool_calls") or ()
    content = given.get("content", "" if calls else None)
    parts = () if isinstance(content, str) else _parts(content)
    return ChatMessage(
        _text(given.get("role"), "role"),
        content if isinstance(content, str) else "",
        parts,
        tuple(_call_from_json(call, f"tool_calls[{index}]") for index, call in _items(calls, "tool_calls")),
        _text(given.get("tool_call_id", ""), "tool_call_id"),
        _text(given.get("name", ""), "name"),
        _reasoning(given),
        _weight(given),
    )


def _reasoning(given: Mapping[str, Any]) -> str:
    texts = {key: _text(given[key], key) for key in REASONING_KEYS if given.get(key, "") != ""}
    if len(set(texts.values())) > 1:
        raise InvalidField("", f"has {' and '.join(texts)}, which are two reasonings: leave all but one out")
    return next(iter(texts.values()), "")


def _weight(given: Mapping[str, Any]) -> float | None:
    weights: dict[str, float] = {}
    for key in ("weight", *_FLAGS):
        value = given.get(key)
        if value is None:
            continue
        if isinstance(value, bool) is (key == "weight") or not isinstance(value, int | float):
            raise InvalidField(key, f"must be {'a number' if key == 'weight' else 'true or false'}")
        weights[key] = float(value)
    if len(set(weights.values())) > 1:
        raise InvalidField("", f"has {' and '.join(weights)}, which say different weights: leave all but one out")
    return next(iter(weights.values()), None)


def message_text(message: ChatMessage) -> str:
    """A message as one text for people and judges: "[image]" for each image, calls and reasoning in tags."""
    if message.is_text:
        return message.content
    reasoned = [ReasoningPart(message.reasoning)] if message.reasoning else []
    texts = [part_text(part) for part in (*reasoned, *(message.parts or (message.content,)))]
    for call in message.tool_calls:
        arguments = call.arguments or "{}"
        texts.append(f'<tool_call>{{"name": {json.dumps(call.name)}, "arguments": {arguments}}}</tool_call>')
    return "".join(texts)


def part_text(part: MessagePart) -> str:
    """A part of a message as text: "[image]" for an image, reasoning in tags."""
    if isinstance(part, ReasoningPart):
        return f"<think>{part.text}</think>"
    return part if isinstance(part, str) else "[image]"


def _parts(value: Any) -> tuple[MessagePart, ...]:
    return tuple(_part_from_json(part, f"content[{index}]") for index, part in _items(value, "content"))


def _part_to_json(part: MessagePart) -> dict[str, Any]:
    match part:
        case str():
            return {"type": "text", "text": part}
        case ReasoningPart(text):
            return {"type": "thinking", "thinking": text}
        case ImageChunk():
            url = f"{_DATA}{part.format}{_BASE64},{base64.b64encode(part.data).decode()}"
        case ImageAssetChunk():
            url = part.location
    found: dict[str, Any] = {"type": "image_url", "image_url": {"url": url}}
    if isinstance(part, ImageAssetChunk) and _format_of(url) != part.format:
        found["image_url"]["format"] = part.format
    return found if part.expected_tokens is None else {**found, _EXPECTED: part.expected_tokens}


def _part_from_json(value: Any, path: str) -> MessagePart:
    given = _object(value, path, ("type", "text", "thinking", "image_url", _EXPECTED))
    match given.get("type"):
        case "text":
            return _text(given.get("text"), f"{path}.text")
        case "thinking":
            return ReasoningPart(_text(given.get("thinking"), f"{path}.thinking"))
        case "image_url":
            return _image(given.get("image_url"), given.get(_EXPECTED), f"{path}.image_url")
        case _:
            raise InvalidField(f"{path}.type", 'must be "text", "thinking" or "image_url"')


def _image(value: Any, expected: Any, path: str) -> ImageChunk | ImageAssetChunk:
    given = {"url": value} if isinstance(value, str) else _object(value, path, ("url", "format"))
    url = _text(given.get("url"), f"{path}.url")
    if expected is not None and (not isinstance(expected, int) or isinstance(expected, bool)):
        raise InvalidField(path, f"has {_EXPECTED} that is no integer")
    if url.startswith("data:"):
        return _encoded(url, expected, path)
    form = given.get("format") or _format_of(url)
    if not isinstance(form, str) or form not in _FORMATS.values():
        raise InvalidField(path, 'has no format: end it with .png or .jpg, or add "format": "png" or "jpeg"')
    return ImageAssetChunk(location=url, format=form, expected_tokens=expected)


def _encoded(url: str, expected: int | None, path: str) -> ImageChunk:
    head, _, data = url.partition(",")
    form = _FORMATS.get(head.removeprefix(_DATA).removesuffix(_BASE64))
    if form is None or not head.startswith(_DATA) or not head.endswith(_BASE64):
        raise InvalidField(path, f'begins with {clipped(head)}, must be "data:image/png;base64,..." or of jpeg')
    try:
        return ImageChunk(data=base64.b64decode(data, validate=True), format=form, expected_tokens=expected)
    except (binascii.Error, ValueError) as error:
        raise InvalidField(path, "is not base64") from error


def _format_of(url: str) -> str | None:
    return _FORMATS.get(url.partition("?")[0].rpartition(".")[2].lower())


def _call_to_json(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"type": "function", **({"id": call.id} if call.id else {}), "function": function}


def _call_from_json(value: Any, path: str) -> ToolCall:
    given = _object(value, path, ("type", "id", "index", "function"))
    if given.get("type", "function") != "function":
        raise InvalidField(f"{path}.type", 'must be "function"')
    function = _object(given.get("function"), f"{path}.function", ("name", "arguments"))
    place = f"{path}.function.arguments"
    arguments = function.get("arguments", "")
    if isinstance(arguments, Mapping):
        try:
            arguments = json.dumps(arguments, ensure_ascii=False)
        except RecursionError:
            raise InvalidField(place, "is nested too deeply") from None
    return ToolCall(
        name=_text(function.get("name"), f"{path}.function.name"),
        arguments=_text(arguments, place),
        id=_text(given.get("id", ""), f"{path}.id"),
    )


def _object(value: Any, path: str, keys: Iterable[str]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidField(path, "is no object")
    given = {key: item for key, item in value.items() if item is not None}
    if unknown := sorted(set(map(str, given)) - set(keys)):
        raise InvalidField(path, f"has the key {clipped(unknown[0])}; known are {', '.join(keys)}")
    return given


def _items(value: Any, path: str) -> Iterable[tuple[int, Any]]:
    if not isinstance(value, list | tuple):
        raise InvalidField(path, "is not given" if value is None else "is no list")
    return enumerate(value)


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise InvalidField(path, "is not given" if value is None else "is not text")
    return value
