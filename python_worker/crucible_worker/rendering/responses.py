"""What a model generated, as a message of the assistant: text, reasoning, calls of tools, and how it ended.

    <think>6*7</think>It is <tool_call>{"name": "show", "arguments": {"n": 42}}</tool_call><|im_end|>

has the reasoning "6*7", the text "It is", one call of the tool "show", and ended with a stop sequence.
"""

from __future__ import annotations

import json

from crucible_bridge.types import ParsedResponse, RawResponse, Termination, ToolCall, UnparsedToolCall
from crucible_worker.rendering import role_colon
from crucible_worker.rendering.renderers import RAW, ROLE_COLONS, answer_of
from crucible_worker.rendering.stops import Stops
from crucible_worker.util.reasoning import parted

__all__ = ["MAX_CALL_CHARS", "parse_text"]

MAX_CALL_CHARS = 256 * 1024
"""Of a call of a tool; Python's parser of JSON lets no other thread run, and takes 20 ms for the worst ones."""
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_STOPPED = "stop"


def parse_text(response: RawResponse, text: str, stops: Stops, renderer: str) -> ParsedResponse:
    """Parse a response by one of the worker's own renderers; in linear time.

    - `raw`: the text as it stands. `role_colon`: the answer without the white space around it. Neither has reasoning or
      calls of tools.
    - `auto` and `chat_template`: reasoning as `util.reasoning` separates it, and calls of tools as JSON with
      a name and arguments in `<tool_call>...</tool_call>`.

    Args:
        response: for its `stop_reason`.
        text: its text.
        stops: what ends it.
        renderer: see `renderers.py`.
    """
    if renderer in ROLE_COLONS:
        return _role_colon(response, text, stops, renderer)
    content, termination, rest = _ended(text, stops, plain=renderer == RAW)
    if termination is Termination.TRUNCATED and response.stop_reason == _STOPPED:
        termination = Termination.STOP
    if rest.strip():
        termination = Termination.MALFORMED
    if renderer == RAW:
        return ParsedResponse(text=content, termination=termination)
    return _message(content, termination, stops.opening)


def _ended(text: str, stops: Stops, *, plain: bool) -> tuple[str, Termination, str]:
    """The text before the first thing after its reasoning that ends it, how it ended, and the text after that."""
    ends = {stop: Termination.STOP for stop in stops.texts if stop}
    if stops.end:
        ends.setdefault(stops.end, Termination.EOS)
    found = [(at, stop) for stop in ends if (at := text.find(stop)) >= 0]
    if not found:
        return text, Termination.TRUNCATED, ""
    if not plain:
        parts = parted(text, opening=stops.opening, stops=tuple(ends))
        ended = next((stop for stop in ends if text.startswith(stop, parts.end)), None)
        last = next((stop for stop in ends if text.rstrip().endswith(stop)), None)
        if ended is not None:
            found = [(parts.end, ended)]
        elif last is not None:
            found = [(text.rindex(last), last)]
        elif not parts.unfinished:
            return text, Termination.TRUNCATED, ""
    start, stop = min(found)
    return text[:start], ends[stop], text[start + len(stop) :]


def _role_colon(response: RawResponse, text: str, stops: Stops, renderer: str) -> ParsedResponse:
    """As tinker-cookbook's renderer: text after one stop sequence is left out, two of them are malformed."""
    at_end = bool(stops.end) and text.endswith(stops.end)
    body = text.removesuffix(stops.end) if at_end else text
    ends = body.count(role_colon.STOP)
    if ends > 1 or (ends and at_end):
        termination = Termination.MALFORMED
    elif ends:
        termination = Termination.STOP
    elif at_end:
        termination = Termination.EOS
    else:
        termination = Termination.STOP if response.stop_reason == _STOPPED else Termination.TRUNCATED
    return ParsedResponse(text=answer_of(body, renderer), termination=termination)


def _message(content: str, termination: Termination, opening: str) -> ParsedResponse:
    if opening and not content.lstrip().startswith(opening):
        content = f"{opening}{content}"
    clean = termination in (Termination.STOP, Termination.EOS)
    parts = parted(content)
    if clean and parts.open:
        termination = Termination.MALFORMED
    said, calls, unparsed = _without_calls(parts.answer)
    if clean and unparsed:
        termination = Termination.MALFORMED
    return ParsedResponse(
        text=said,
        reasoning=parts.reasoning,
        tool_calls=tuple(calls),
        unparsed_tool_calls=tuple(unparsed),
        termination=termination,
    )


def _without_calls(text: str) -> tuple[str, list[ToolCall], list[UnparsedToolCall]]:
    if _OPEN not in text:
        return text, [], []
    kept: list[str] = []
    calls: list[ToolCall] = []
    unparsed: list[UnparsedToolCall] = []
    end = 0
    while (start := text.find(_OPEN, end)) >= 0:
        kept.append(text[end:start])
        close = text.find(_CLOSE, start)
        end = len(text) if close < 0 else close + len(_CLOSE)
        inner = text[start + len(_OPEN) : len(text) if close < 0 else close]
        found = "is not closed" if close < 0 else _call(inner)
        if isinstance(found, ToolCall):
            calls.append(found)
        else:
            unparsed.append(UnparsedToolCall(text=text[start:end], error=found))
    kept.append(text[end:])
    return "".join(kept).strip(), calls, unparsed


def _call(text: str) -> ToolCall | str:
    """A call of a tool; else what is wrong with it."""
    if len(text) > MAX_CALL_CHARS:
        return f"has {len(text):,} characters; at most {MAX_CALL_CHARS:,} are parsed"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"is not JSON: {error}"
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return "has no name of a tool"
    arguments = value.get("arguments", {})
    if not isinstance(arguments, dict):
        return "has arguments that are no object"
    given = value.get("id")
    return ToolCall(
        name=value["name"],
        arguments=json.dumps(arguments, ensure_ascii=False),
        id=given if isinstance(given, str) else "",
    )
