"""tinker-cookbook's renderers, run in the process of a transformers tokenizer, mostly a separate one.

Importing tinker-cookbook takes a second or two and imports torch: only the first conversation imports it.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crucible_bridge.errors import BridgeError, FailedPrecondition, InvalidField
from crucible_bridge.problems import shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    ChatMessage,
    MessagePart,
    ParsedResponse,
    RawResponse,
    ReasoningPart,
    Termination,
    ToolCall,
    ToolSpec,
    UnparsedToolCall,
    tool_to_json,
)
from crucible_worker.backends.base import Rendered
from crucible_worker.rendering.train_on import CUSTOMIZED

__all__ = ["check_installed", "is_installed", "names", "parse", "preload", "render"]

_MAX_SHOWN_BYTES = 300
"""Bytes of the text of tinker-cookbook's errors."""


def check_installed() -> None:
    """Refuse to continue without tinker-cookbook. Imports nothing.

    Raises:
        FailedPrecondition: it is not installed (EXTRA_NOT_INSTALLED).
    """
    if not is_installed():
        raise _not_installed("tinker_cookbook")


def is_installed() -> bool:
    """Whether tinker-cookbook is installed. Imports nothing."""
    return importlib.util.find_spec("tinker_cookbook") is not None


def names() -> Sequence[str]:
    """The names of its built-in renderers, in its order; none if it is not installed. Imports nothing.

    It has no list of them: its source compares a name with each.
    """
    spec = importlib.util.find_spec("tinker_cookbook")
    source = None if spec is None or not spec.origin else Path(spec.origin).parent / "renderers" / "__init__.py"
    if source is None or not source.is_file():
        return ()
    made = (node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.FunctionDef))
    compared = [
        node
        for function in made
        if function.name == "get_renderer"
        for node in ast.walk(function)
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and node.left.id == "name"
    ]
    found = [value.value for node in compared for value in node.comparators if isinstance(value, ast.Constant)]
    return tuple(dict.fromkeys(name for name in found if isinstance(name, str)))


def preload() -> None:
    """Import it if it is installed: `render` reports what is missing. Takes a second or two the first time."""
    with contextlib.suppress(ImportError):
        importlib.import_module("tinker_cookbook.renderers")


def render(
    tokenizer: Any,
    renderer: str,
    messages: Sequence[ChatMessage],
    *,
    train_on: str | None = None,
    tools: Sequence[ToolSpec] = (),
) -> Rendered:
    """Render a conversation with a renderer of tinker-cookbook. Takes a second or two the first time.

    Args:
        tokenizer: a tokenizer of transformers.
        renderer: its name in tinker-cookbook.
        messages: at least one.
        train_on: None for a prompt with the stop sequences of its answer; else the name of a `TrainOnWhat`. For
            "customized", every message has a weight of 0 or 1.
        tools: those that the model may call, checked.

    Raises:
        FailedPrecondition: tinker-cookbook, or what it imports, is not installed (EXTRA_NOT_INSTALLED); it has no such
            renderer, or none that accepts this tokenizer (UNKNOWN_RENDERER).
        InvalidField: the renderer refuses the conversation, or has no form for tools.
    """
    made = _made(tokenizer, renderer, images=any(message.images for message in messages))
    try:
        plain = _cookbook_messages(messages, customized=train_on == CUSTOMIZED)
        if tools:
            plain = _with_tools(made, renderer, plain, tools)
        rendered = _prompt(made, tokenizer, plain) if train_on is None else _measured(made, plain, train_on)
    except BridgeError:
        raise
    except Exception as error:  # foreign code on foreign text: any error concerns this conversation
        raise InvalidField(
            "input.messages", f"are refused by the renderer {renderer!r}: {_error_text(error)}"
        ) from error
    # Renderers of text alone leave images out without an error.
    if sum(token < 0 for token in rendered.tokens) != sum(len(message.images) for message in messages):
        raise InvalidField("input.messages", f"has images, and the renderer {renderer!r} takes text alone")
    return rendered


def parse(tokenizer: Any, renderer: str, response: RawResponse) -> ParsedResponse:
    """Parse what a model generated with a renderer of tinker-cookbook.

    Args:
        tokenizer: a tokenizer of transformers.
        renderer: its name in tinker-cookbook.
        response: text or tokens. If its `stop_reason` is "stop" and nothing in it ends it, its stop sequence was
            removed, and is put back before it is parsed.

    Raises:
        FailedPrecondition: as of `render`.
        InvalidField: the renderer refuses the response.
    """
    made = _made(tokenizer, renderer)
    tokens = list(response.tokens) or tokenizer.encode(response.text, add_special_tokens=False)
    try:
        return _response(made, tokenizer, tokens, removed=response.stop_reason == "stop")
    except Exception as error:  # foreign code on foreign text: any error concerns this response
        raise InvalidField("response", f"is refused by the renderer {renderer!r}: {_error_text(error)}") from error


def _response(made: Any, tokenizer: Any, tokens: list[int], *, removed: bool) -> ParsedResponse:
    stops = made.get_stop_sequences()
    ends = [index for index, token in enumerate(tokens) if token in stops]
    if len(ends) > 1:  # it raises an error, or parses all: what was generated after the first end is none of the answer
        message, _ = made.parse_response(tokens[: ends[0] + 1])
        return _parsed(message, Termination.MALFORMED)
    whole = str(tokenizer.decode(tokens))
    ended = bool(ends) or any(isinstance(stop, str) and stop in whole for stop in stops)
    message, said = made.parse_response(tokens)
    if said == "malformed" and not ended and removed:
        stop = stops[0]
        end = tokenizer.encode(stop, add_special_tokens=False) if isinstance(stop, str) else [stop]
        message, said = made.parse_response([*tokens, *end])
    # It calls a response without an end malformed; that is truncated here.
    unclean = Termination.MALFORMED if ended else Termination.TRUNCATED
    termination = {"stop_sequence": Termination.STOP, "eos": Termination.EOS}.get(str(said), unclean)
    return _parsed(message, termination)


def _parsed(message: Mapping[str, Any], termination: Termination) -> ParsedResponse:
    content = message["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    unparsed = message.get("unparsed_tool_calls") or []
    if unparsed and termination is not Termination.TRUNCATED:
        termination = Termination.MALFORMED
    return ParsedResponse(
        text="".join(part["text"] for part in parts if part["type"] == "text"),
        reasoning="\n\n".join(part["thinking"] for part in parts if part["type"] == "thinking"),
        tool_calls=tuple(
            ToolCall(name=call.function.name, arguments=call.function.arguments, id=call.id or "")
            for call in message.get("tool_calls") or []
        ),
        unparsed_tool_calls=tuple(UnparsedToolCall(text=call.raw_text, error=call.error) for call in unparsed),
        termination=termination,
    )


class _OneToken:
    """An image processor to which every image is one token: the caller's images are put in the places afterwards."""

    merge_size = 1

    def get_number_of_image_patches(self, height: int, width: int, images_kwargs: Any = None) -> int:
        """One."""
        return 1


def _cookbook_messages(messages: Sequence[ChatMessage], *, customized: bool) -> list[dict[str, Any]]:
    """Messages as tinker-cookbook has them. A pixel stands for each image: it would write images anew, as JPEG."""
    tools: dict[str, str] = {}
    found: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        plain: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.parts or message.reasoning:
            # Its own conversion from reasoning_content puts the reasoning before the text, too.
            reasoned = [ReasoningPart(message.reasoning)] if message.reasoning else []
            texts = message.parts or ((message.content,) if message.content else ())
            plain["content"] = [_cookbook_part(part) for part in (*reasoned, *texts)]
        if message.tool_calls:
            plain["tool_calls"] = [_cookbook_call(call) for call in message.tool_calls]
            tools |= {call.id: call.name for call in message.tool_calls}
        if message.tool_call_id:
            plain["tool_call_id"] = message.tool_call_id
            if message.tool_call_id in tools:
                plain["name"] = tools[message.tool_call_id]
        if message.name:
            plain["name"] = message.name
        if customized:
            if message.weight not in (0, 1):
                problem = f"is {message.weight}, and tinker-cookbook's renderers have weights of 0 and 1 alone"
                raise InvalidField(f"input.messages[{index}].weight", problem)
            plain["trainable"] = message.weight == 1
        found.append(plain)
    return found


def _with_tools(
    made: Any, renderer: str, messages: list[dict[str, Any]], tools: Sequence[ToolSpec]
) -> list[dict[str, Any]]:
    """The messages after those with which the renderer begins a conversation with tools.

    The system message at the beginning becomes a part of them, with its weight.
    """
    listed: list[dict[str, Any]] = []
    for tool in tools:
        function = tool_to_json(tool)["function"]
        # Its type has these keys, all of them.
        schema = function.get("parameters", {"type": "object", "properties": {}})
        listed.append({"name": tool.name, "description": tool.description, "parameters": schema})
    system, rest = ({}, messages) if messages[0]["role"] != "system" else (messages[0], messages[1:])
    text = system.get("content", "")
    if not isinstance(text, str):
        raise InvalidField("input.messages[0]", "has parts: beside tools, the system's message is text alone")
    try:
        before = made.create_conversation_prefix_with_tools(listed, text)
    except NotImplementedError as error:
        raise InvalidField("input.tools", f"is given, and the renderer {renderer!r} has no form for tools") from error
    weighted = {"trainable": system.get("trainable", False)} if any("trainable" in message for message in rest) else {}
    return [*({**message, **weighted} for message in before), *rest]


def _cookbook_part(part: MessagePart) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if isinstance(part, ReasoningPart):
        return {"type": "thinking", "thinking": part.text}
    from PIL import Image

    return {"type": "image", "image": Image.new("RGB", (1, 1))}


def _cookbook_call(call: ToolCall) -> Any:
    from tinker_cookbook.renderers import ToolCall as CookbookToolCall

    body = CookbookToolCall.FunctionBody(name=call.name, arguments=call.arguments or "{}")
    return CookbookToolCall(function=body, id=call.id or None)


def _ids(model_input: Any) -> list[int]:
    """Its token ids, with -1, -2 and so on in the places of images."""
    ids: list[int] = []
    images = 0
    for chunk in model_input.chunks:
        if hasattr(chunk, "tokens"):
            ids += chunk.tokens
        else:
            images += 1
            ids.append(-images)
    return ids


def _prompt(made: Any, tokenizer: Any, messages: list[dict[str, Any]]) -> Rendered:
    tokens = _ids(made.build_generation_prompt(messages))
    stops = made.get_stop_sequences()
    texts = (stop if isinstance(stop, str) else tokenizer.decode([stop], skip_special_tokens=False) for stop in stops)
    return Rendered(tokens=tokens, stop=tuple(texts))


def _measured(made: Any, messages: list[dict[str, Any]], train_on: str) -> Rendered:
    from tinker_cookbook.renderers import TrainOnWhat

    model_input, weights = made.build_supervised_example(messages, train_on_what=TrainOnWhat(train_on))
    tokens = _ids(model_input)
    if not (made.has_extension_property or _is_stable(made, messages, train_on, tokens)):
        raise FailedPrecondition(
            "the renderer writes messages otherwise when others follow: measure last_assistant_message instead",
            reason=Reason.CHAT_TEMPLATE_NOT_STABLE,
        )
    return Rendered(tokens=tokens, weights=[float(weight) for weight in weights])


def _is_stable(made: Any, messages: list[dict[str, Any]], train_on: str, tokens: list[int]) -> bool:
    """Whether each answer that counts stands after the prompt that the model gets for it.

    Of a renderer that writes earlier answers in another way, the last answer always does, and an answer of the last
    turn if the prompt for it is there.
    """
    answers = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    match train_on:
        case "all_assistant_messages" | "all_messages":
            return False
        case "customized":
            return not any(messages[index]["trainable"] for index in answers if index < len(messages) - 1)
        case "last_assistant_turn":
            asked = max((index for index, message in enumerate(messages[:-1]) if message["role"] == "user"), default=-1)
            turn = [index for index in answers if index > asked]
            prompts = (_ids(made.build_generation_prompt(messages[:index])) for index in turn)
            return len(turn) < 2 or all(tokens[: len(prompt)] == prompt for prompt in prompts)
        case _:
            return True


def _made(tokenizer: Any, name: str, *, images: bool = False) -> Any:
    try:
        from tinker_cookbook.renderers import get_renderer
    except ImportError as error:
        raise _not_installed(error.name or "tinker_cookbook") from error
    try:
        processor: Any = _OneToken()
        return get_renderer(name, tokenizer, processor) if images else get_renderer(name, tokenizer)
    except Exception as error:  # its own error, an assertion or a KeyError of a token that the tokenizer lacks
        raise FailedPrecondition(
            f"tinker-cookbook has no renderer {name!r} for this tokenizer: {_error_text(error)}",
            reason=Reason.UNKNOWN_RENDERER,
        ) from error


def _not_installed(module: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"{module} is not installed: tinker-cookbook's renderers need it; pip install tinker-cookbook",
        reason=Reason.EXTRA_NOT_INSTALLED,
    )


def _error_text(error: Exception) -> str:
    return shorten(f"{type(error).__name__}: {error}", _MAX_SHOWN_BYTES)
