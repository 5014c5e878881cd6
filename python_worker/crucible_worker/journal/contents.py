"""What is recorded of a sample besides its result: msgpack to frozen values and back, in pairs, within bounds.

    content     what the sample is: input, targets, choices, metadata; without its id: equal ones are stored once
    frame       the text around a sample's input in its prompt: most prompts of an evaluation have the same one
    record      prompt, turns, and which parts of them were left out; it refers to the frame, to the sample's input, to
                the prompt and to the result's output, in place of repeating them

Text may contain lone surrogates, as files do: they are packed unchanged. Long records are compressed: questions to
judges and the turns of an episode repeat each other.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from crucible_bridge.arrays import from_tensor, to_tensor
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Datum,
    Dtype,
    ImageAssetChunk,
    ImageChunk,
    ModelInput,
    ModelInputChunk,
    Sample,
    SampledSequence,
    SamplePrompt,
    SampleResult,
    Tensor,
    TokenPrompt,
    TokensChunk,
    ToolCall,
    TruncatedPart,
    Turn,
    UnparsedToolCall,
)
from crucible_worker.journal.packing import (
    pack_text,
    unpack_text,
)
from crucible_worker.util.message_values import (
    conversation_from_values,
    conversation_to_values,
    further_bytes,
    tools_bytes,
)
from crucible_worker.util.reasoning import part_thinking

__all__ = [
    "EVALUATION_LIMIT",
    "INPUT",
    "METADATA",
    "PROMPT",
    "REASONING",
    "REFUSAL",
    "SAMPLE",
    "SAMPLE_LIMIT",
    "TOOL_CALLS",
    "TURNS",
    "Frame",
    "RecordParts",
    "bounded_reply",
    "closed",
    "content_from_record",
    "content_to_record",
    "frame_from_record",
    "frame_of",
    "frame_to_record",
    "input_from_value",
    "input_to_value",
    "kernel_of",
    "metadata_of",
    "opened",
    "parts_from_record",
    "parts_to_record",
    "prompt_bytes",
    "question_of",
    "reply_bytes",
    "reply_to_record",
    "text_bytes",
    "turns_bytes",
    "with_reply",
]

SAMPLE_LIMIT, EVALUATION_LIMIT = "max_sample_record_bytes", "max_evaluation_record_bytes"
"""Limits of the worker that truncate records."""
SAMPLE, INPUT, PROMPT, TURNS = "sample", "sample.input", "prompt", "turns"
"""Parts of a record as `TruncatedPart.part` names them; there are also "sample.targets" and so on."""
METADATA = "sample.metadata"
REASONING, REFUSAL, TOOL_CALLS = "reasoning", "refusal", "tool_calls"
"""Likewise."""

_TEXT, _MESSAGES, _TOKENS, _FRAMED = range(4)
# The value of a turn's text if it repeats another text.
_AS_PROMPT, _AS_OUTPUT, _AS_INPUT = range(3)
_IN_TEXT = 1
"""In place of a result's reasoning: it is that of its output."""
_TURN_BYTES = 16
_HEAD_BYTES, _TEXT_BYTES = 24, 5  # of a content's lists, and of the head of a text
_LONG = 1024  # bytes from which compression is worth its time
_COMPRESSED = b"\x78"  # first byte of zlib's output; nothing that is packed here begins with it


def closed(record: bytes) -> bytes:
    """The stored form of a content or a record: compressed if it is long."""
    if len(record) < _LONG:
        return record
    compressed = zlib.compress(record, 1)
    return compressed if len(compressed) < len(record) else record


def opened(record: bytes) -> bytes:
    """The inverse of `closed`."""
    return zlib.decompress(record) if record.startswith(_COMPRESSED) else record


def text_bytes(text: str) -> int:
    """Bytes of a text in UTF-8; a lone surrogate counts as the three bytes that it is packed as."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def content_to_record(sample: Sample, most: int) -> bytes:
    """Pack what a sample is, in at most `most` bytes (and some for what was left out): the input first."""
    values = [input_to_value(sample.input), list(sample.targets), list(sample.choices), dict(sample.metadata)]
    if sample.choice_labels:
        values += [[], list(sample.choice_labels)]
    record = pack_text(values)
    return record if len(record) <= most else pack_text(_truncated_content(sample, most))


def content_from_record(record: bytes, sample_id: str) -> tuple[Sample, tuple[TruncatedPart, ...]]:
    """Unpack what a sample is, and which parts of it were left out."""
    asked, targets, choices, metadata, *further = unpack_text(record)
    left_out, labels = [*further, [], []][:2]
    sample = Sample(
        id=sample_id,
        input=input_from_value(asked),
        targets=tuple(targets),
        choices=tuple(choices),
        metadata=metadata,
        choice_labels=tuple(labels),
    )
    return sample, _left_out_from(left_out)


def metadata_of(record: bytes) -> Mapping[str, str] | None:
    """The metadata of a sample's content; None if some of it is truncated."""
    _, _, _, metadata, *further = unpack_text(opened(record))
    truncated = further and any(part == METADATA for part, _, _ in further[0])
    return None if truncated else metadata


def kernel_of(sample: Sample) -> str:
    """The text of a sample that its prompt usually contains: its input, or its last message; empty for none."""
    if isinstance(sample.input, str):
        return sample.input
    if isinstance(sample.input, Conversation) and sample.input.messages:
        return sample.input.messages[-1].content
    return ""


def question_of(record: bytes, sample_id: str) -> str:
    """The question of a packed content, likewise."""
    return kernel_of(content_from_record(opened(record), sample_id)[0])


Frame: TypeAlias = tuple[str | None, tuple[tuple[str, str], ...], str, str]
"""The parts of a prompt around a text: the last message's role, None for plain text; the messages before it, each with
role and content; what comes before the text, and what comes after it."""


def frame_of(prompt: SamplePrompt, kernel: str) -> Frame | None:
    """The parts of a prompt around a text; None if the prompt does not contain it."""
    if not kernel or isinstance(prompt, TokenPrompt):
        return None
    if isinstance(prompt, str):
        text, role, before = prompt, None, ()
    else:
        if prompt.tools or not all(message.is_pair for message in prompt.messages):
            return None
        *earlier, last = prompt.messages
        before = tuple([(message.role, message.content) for message in earlier]) if earlier else ()
        text, role = last.content, last.role
        if text == kernel:  # the usual case
            return role, before, "", ""
    at = text.rfind(kernel)
    return None if at < 0 else (role, before, text[:at], text[at + len(kernel) :])


def frame_to_record(frame: Frame) -> bytes:
    """Pack a frame."""
    return pack_text(frame)


def frame_from_record(record: bytes) -> Frame:
    """Unpack a frame."""
    role, before, prefix, suffix = unpack_text(record)
    return role, tuple((each, content) for each, content in before), prefix, suffix


def _framed(frame: Frame, kernel: str) -> SamplePrompt:
    """The prompt that has this text in this frame."""
    role, before, prefix, suffix = frame
    text = f"{prefix}{kernel}{suffix}"
    if role is None:
        return text
    return Conversation((*(ChatMessage(*message) for message in before), ChatMessage(role, text)))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RecordParts:
    """What a record has besides the content of the sample."""

    prompt: SamplePrompt | None
    """The prompt."""
    turns: tuple[Turn, ...]
    """The transcript."""
    left_out: tuple[TruncatedPart, ...]
    """Parts that are truncated or left out."""
    framed: bool = False
    """Whether the prompt was made from the sample's input as recorded."""
    repeats: int = 0
    """Turns with that input, or that prompt, as their text."""


def parts_to_record(parts: RecordParts, *, frame: int | None, kernel: str, output: str, most: int) -> bytes:
    """Pack prompt and turns, in at most `most` bytes (and some for what was left out).

    Args:
        parts: what to pack, with what was left out of it before.
        frame: number of the prompt's frame; None if the prompt itself must be packed.
        kernel: the text that the frame surrounds; empty if the reader will not have it.
        output: of the result; the reader will have it.
        most: bound on the bytes.
    """
    prompt = None
    if parts.prompt is not None:
        prompt = [_FRAMED, frame] if frame is not None else _prompt_to_value(parts.prompt)
    turns = [_turn_to_value(turn, parts.prompt, output, kernel) for turn in parts.turns]
    record = pack_text(_values(prompt, turns, parts.left_out))
    if len(record) <= most:
        return record
    left_out = list(parts.left_out)
    # The prompt gets what the turns leave, and at least half.
    room = max(most // 2, most - sum(map(_packed_bytes, turns)))
    if prompt is not None and prompt[0] != _FRAMED and (size := _packed_bytes(prompt)) > room:
        assert parts.prompt is not None
        prompt, lost = _truncated_prompt(parts.prompt, room)
        left_out.append(TruncatedPart(part=PROMPT, bytes=lost, limit=SAMPLE_LIMIT))
        # Turns that repeat the prompt would repeat its truncated form.
        turns = [_turn_to_value(turn, None, output, kernel) for turn in parts.turns]
        room = min(size, room)
    texts = [turn.text for turn in parts.turns]
    turns, lost = _truncated_turns(turns, texts, most - _packed_bytes(prompt) - _HEAD_BYTES)
    if lost is not None:
        left_out.append(TruncatedPart(part=TURNS, bytes=lost, limit=SAMPLE_LIMIT))
    return pack_text(_values(prompt, turns, left_out))


def parts_from_record(record: bytes, *, frame: Callable[[int], Frame], kernel: str, output: str) -> RecordParts:
    """Unpack prompt and turns.

    Args:
        record: what `parts_to_record` returned.
        frame: returns the frame of a number.
        kernel: the text that the frame surrounds.
        output: of the result.
    """
    values = unpack_text(record)
    values += [None, [], []][len(values) :]
    packed, turns, left_out = values
    prompt = None if packed is None else _prompt_from_value(packed, frame, kernel)
    framed = packed is not None and packed[0] == _FRAMED
    return RecordParts(
        prompt=prompt,
        turns=tuple(_turn_from_value(turn, prompt, output, kernel) for turn in turns),
        left_out=_left_out_from(left_out),
        framed=framed,
        repeats=sum(turn[1] == _AS_INPUT or (framed and turn[1] == _AS_PROMPT) for turn in turns),
    )


def reply_to_record(result: SampleResult, turns: Sequence[Turn]) -> bytes | None:
    """Pack what answers have besides their text: that of the result, and that of its turns; None if there is nothing.

    Reasoning that can be read from a text is not stored again.
    """
    further = result.reasoning or result.refusal or result.tool_calls or result.unparsed_tool_calls
    if not (further or turns or result.truncated):  # as a rule
        return None
    own = _reply_to_value(result, result.output)
    if result.reasoning and not own[0]:
        own[0] = _IN_TEXT
    of_turns = [
        [index, *extra]
        for index, turn in enumerate(turns)
        if turn.role == "assistant" and any(extra := _reply_to_value(turn, turn.text))
    ]
    left_out = [[part.part, part.bytes, part.limit] for part in result.truncated]
    return closed(pack_text([own, of_turns, left_out])) if any(own) or of_turns or left_out else None


def with_reply(result: SampleResult, record: bytes | None) -> tuple[SampleResult, int]:
    """A result with what its answers have besides their text, and the approximate bytes of that.

    Args:
        result: of the sample, with its turns.
        record: what `reply_to_record` returned.
    """
    own, of_turns, left_out = ([0, "", []], (), ()) if record is None else unpack_text(opened(record))
    further = {index: extra for index, *extra in of_turns}
    if any(part.part == TURNS for part in result.truncated):
        further = {}  # turns are missing: which of them these belong to is not known
    turns = [_turn_with_reply(turn, further.get(index)) for index, turn in enumerate(result.turns)]
    reasoning, refusal, calls, *unparsed = own
    found = dataclasses.replace(
        result,
        turns=tuple(turns),
        reasoning=part_thinking(result.output)[0] if reasoning == _IN_TEXT else reasoning or "",
        refusal=refusal,
        tool_calls=_calls_from(calls),
        unparsed_tool_calls=_unparsed_from(unparsed),
        truncated=(*result.truncated, *_left_out_from(left_out)),
    )
    return found, reply_bytes(found) + sum(map(reply_bytes, turns))


def reply_bytes(extra: SampleResult | SampledSequence | Turn) -> int:
    """Approximate size of what an answer has besides its text."""
    if not (extra.reasoning or extra.refusal or extra.tool_calls or extra.unparsed_tool_calls):  # as a rule
        return 0
    return text_bytes(extra.reasoning) + text_bytes(extra.refusal) + _calls_bytes(extra)


def _calls_bytes(extra: SampleResult | SampledSequence | Turn) -> int:
    parsed = (text_bytes(call.name) + text_bytes(call.arguments) + text_bytes(call.id) for call in extra.tool_calls)
    unparsed = (text_bytes(call.text) + text_bytes(call.error) for call in extra.unparsed_tool_calls)
    return sum(parsed) + sum(unparsed)


def bounded_reply(result: SampleResult, most: int) -> SampleResult:
    """A result whose reasoning, refusal and calls of tools have at most `most` bytes, each after what is before it."""
    if not (result.reasoning or result.refusal or result.tool_calls or result.unparsed_tool_calls):  # as a rule
        return result
    left_out: list[TruncatedPart] = []
    texts: list[str] = []
    for part, text in ((REASONING, result.reasoning), (REFUSAL, result.refusal)):
        short, lost = _truncated(text, most)
        most -= text_bytes(short)
        texts.append(short)
        if lost:
            left_out.append(TruncatedPart(part=part, bytes=lost, limit=SAMPLE_LIMIT))
    calls, unparsed = result.tool_calls, result.unparsed_tool_calls
    size = _calls_bytes(result)
    if size > most:
        left_out.append(TruncatedPart(part=TOOL_CALLS, bytes=size, limit=SAMPLE_LIMIT))
        calls = unparsed = ()
    if not left_out:
        return result
    return dataclasses.replace(
        result,
        reasoning=texts[0],
        refusal=texts[1],
        tool_calls=calls,
        unparsed_tool_calls=unparsed,
        truncated=(*result.truncated, *left_out),
    )


def _reply_to_value(extra: SampleResult | Turn, text: str) -> list[Any]:
    apart = "" if extra.reasoning and extra.reasoning == part_thinking(text)[0] else extra.reasoning
    calls = [[call.name, call.arguments, call.id] for call in extra.tool_calls]
    unparsed = [[call.text, call.error] for call in extra.unparsed_tool_calls]
    return [apart, extra.refusal, calls, *([unparsed] if unparsed else [])]


def _turn_with_reply(turn: Turn, extra: Sequence[Any] | None) -> Turn:
    if turn.role != "assistant":
        return turn
    reasoning, refusal, calls, *unparsed = extra or ("", "", ())
    reasoning = reasoning or part_thinking(turn.text)[0]
    if not (reasoning or refusal or calls or unparsed):  # as a rule
        return turn
    return dataclasses.replace(
        turn,
        reasoning=reasoning,
        refusal=refusal,
        tool_calls=_calls_from(calls),
        unparsed_tool_calls=_unparsed_from(unparsed),
    )


def _calls_from(values: Iterable[Sequence[str]]) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(name=name, arguments=arguments, id=given) for name, arguments, given in values)


def _unparsed_from(values: Sequence[Sequence[Sequence[str]]]) -> tuple[UnparsedToolCall, ...]:
    """Calls that cannot be parsed; records of releases before have none."""
    return tuple(UnparsedToolCall(text=text, error=error) for listed in values for text, error in listed)


def prompt_bytes(prompt: SamplePrompt | None) -> int:
    """Approximate size of a prompt."""
    if isinstance(prompt, str):
        return text_bytes(prompt)
    count = 0
    if isinstance(prompt, Conversation):
        if prompt.tools:
            count += tools_bytes(prompt.tools)
        for message in prompt.messages:
            count += text_bytes(message.role) + text_bytes(message.content)
            if not message.is_pair:
                count += further_bytes(message)
    return count


def turns_bytes(turns: Iterable[Turn]) -> int:
    """Approximate size of turns."""
    arrays = [array for turn in turns for array in (turn.token_ids, turn.logprobs) if array is not None]
    return sum(_TURN_BYTES + text_bytes(turn.text) for turn in turns) + sum(array.nbytes for array in arrays)


def _values(prompt: Any, turns: Sequence[Any], left_out: Sequence[TruncatedPart]) -> list[Any]:
    """The values without trailing empty ones: most records are a prompt in a frame."""
    values = [prompt, turns, [[part.part, part.bytes, part.limit] for part in left_out]]
    while values and not values[-1]:
        values.pop()
    return values


def _left_out_from(values: Iterable[Sequence[Any]]) -> tuple[TruncatedPart, ...]:
    return tuple(TruncatedPart(part=part, bytes=count, limit=limit) for part, count, limit in values)


def _packed_bytes(value: object) -> int:
    return len(pack_text(value))


def _truncated(text: str, most: int) -> tuple[str, int]:
    """The beginning of a text in at most `most` bytes, and how many bytes were left out."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= most:
        return text, 0
    end = max(0, most)
    while end and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end].decode("utf-8", "surrogatepass"), len(data) - end


def _truncated_content(sample: Sample, most: int) -> list[Any]:
    left_out: list[list[Any]] = []
    room = most - _HEAD_BYTES

    def take(part: str, texts: Sequence[str], names: Sequence[str] = ()) -> list[str]:
        nonlocal room
        taken, lost = [], 0
        for index, text in enumerate(texts):
            # A text without its name, or role, is of no use: it and those after it are left out.
            room -= _TEXT_BYTES + (text_bytes(names[index]) + _TEXT_BYTES if names else 0)
            if room <= 0:
                lost += text_bytes(text)
                continue
            short, missing = _truncated(text, room)
            room -= text_bytes(short)
            lost += missing
            taken.append(short)
        if lost:
            left_out.append([part, lost, SAMPLE_LIMIT])
        return taken

    if isinstance(sample.input, str):
        asked: Any = "".join(take(INPUT, [sample.input]))
    elif isinstance(sample.input, Conversation):
        roles = [message.role for message in sample.input.messages]
        contents = take(INPUT, [message.content for message in sample.input.messages], roles)
        asked = [list(pair) for pair in zip(roles, contents)] or ""
        further = sum(map(further_bytes, sample.input.messages)) + tools_bytes(sample.input.tools)
        _count_lost(left_out, INPUT, further)
    else:
        # The beginning of tokens or images would be of no use.
        asked = input_to_value(sample.input)
        if (size := _packed_bytes(asked)) > most:
            left_out.append([INPUT, size, SAMPLE_LIMIT])
            asked, size = "", 0
        room -= size
    targets, choices = take("sample.targets", sample.targets), take("sample.choices", sample.choices)
    names = list(sample.metadata)
    values = take(METADATA, [sample.metadata[name] for name in names], names)
    labels = take("sample.choice_labels", sample.choice_labels)
    return [asked, targets, choices, dict(zip(names, values)), left_out, *([labels] if labels else [])]


def _count_lost(left_out: list[list[Any]], part: str, lost: int) -> None:
    """Count images and calls of tools, which a truncated message does not have."""
    found = next((each for each in left_out if each[0] == part), None)
    if found is not None:
        found[1] += lost
    elif lost:
        left_out.append([part, lost, SAMPLE_LIMIT])


def _truncated_prompt(prompt: SamplePrompt, most: int) -> tuple[list[Any], int]:
    if isinstance(prompt, str):
        text, lost = _truncated(prompt, most)
        return [_TEXT, text], lost
    assert isinstance(prompt, Conversation)
    messages, lost = [], tools_bytes(prompt.tools)
    for message in prompt.messages:
        most -= text_bytes(message.role) + 2 * _TEXT_BYTES
        if most < 0:  # a text without its role is of no use
            lost += text_bytes(message.content) + further_bytes(message)
            continue
        text, missing = _truncated(message.content, most)
        lost += missing + further_bytes(message)
        most -= text_bytes(text)
        messages.append([message.role, text])
    return ([_MESSAGES, messages] if messages else [_TEXT, ""]), lost


def _truncated_turns(turns: Sequence[list[Any]], texts: Sequence[str], most: int) -> tuple[list[list[Any]], int | None]:
    """Turns without their arrays, if there is no room for these; then the first turns, with the last one truncated.

    Returns:
        The turns, and the bytes that were left out of them; None if they are complete.
    """
    if not turns or sum(map(_packed_bytes, turns)) <= most:
        return list(turns), None
    lost = sum(len(array) for turn in turns for array in turn[6:] if array)
    taken: list[list[Any]] = []
    for turn, text in zip(turns, texts, strict=True):
        bare = turn[:6]
        size = _packed_bytes(bare)
        if size > most and isinstance(bare[1], str):
            bare[1], missing = _truncated(text, most - (size - text_bytes(text)))
            size -= missing
            lost += missing if size <= most else 0
        if size > most:
            lost += text_bytes(text)
            continue
        most -= size
        taken.append(bare)
    return taken, lost


def _prompt_to_value(prompt: SamplePrompt) -> list[Any]:
    match prompt:
        case str():
            return [_TEXT, prompt]
        case Conversation():
            return [_MESSAGES, conversation_to_values(prompt)]
        case TokenPrompt(count):
            return [_TOKENS, count]


def _prompt_from_value(value: Sequence[Any], frame: Callable[[int], Frame], kernel: str) -> SamplePrompt:
    kind, held = value
    if kind == _TEXT:
        return held
    if kind == _MESSAGES:
        return conversation_from_values(held)
    return TokenPrompt(held) if kind == _TOKENS else _framed(frame(held), kernel)


def _turn_to_value(turn: Turn, prompt: SamplePrompt | None, output: str, kernel: str) -> list[Any]:
    text: str | int = turn.text
    if text:
        if text == prompt:
            text = _AS_PROMPT
        elif text == output:
            text = _AS_OUTPUT
        elif text == kernel:
            text = _AS_INPUT
    ids = None if turn.token_ids is None else turn.token_ids.astype("<i4", copy=False).tobytes()
    logprobs = None if turn.logprobs is None else turn.logprobs.astype("<f4", copy=False).tobytes()
    return [turn.role, text, turn.reward, turn.tokens, turn.rollout, turn.model, ids, logprobs]


def _turn_from_value(value: Sequence[Any], prompt: SamplePrompt | None, output: str, kernel: str) -> Turn:
    role, text, reward, tokens, rollout, model, *arrays = value
    if text == _AS_PROMPT:
        text = prompt if isinstance(prompt, str) else ""
    elif text == _AS_OUTPUT:
        text = output
    elif text == _AS_INPUT:
        text = kernel
    ids, logprobs = arrays or (None, None)
    return Turn(
        role=role,
        text=text,
        reward=reward,
        tokens=tokens,
        rollout=rollout,
        model=model,
        token_ids=None if ids is None else np.frombuffer(ids, "<i4"),
        logprobs=None if logprobs is None else np.frombuffer(logprobs, "<f4"),
    )


def input_to_value(asked: str | Conversation | Datum) -> Any:
    """Plain values of an input: a text, a list of messages, or a map of chunks and arrays."""
    if isinstance(asked, str):
        return asked
    if isinstance(asked, Conversation):
        return conversation_to_values(asked)
    arrays = {key: _tensor_to_value(array) for key, array in asked.loss_fn_inputs.items()}
    return {"chunks": [_chunk_to_value(chunk) for chunk in asked.model_input.chunks], "arrays": arrays}


def input_from_value(value: Any) -> str | Conversation | Datum:
    """The inverse of `input_to_value`."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return Datum(
            model_input=ModelInput(tuple(_chunk_from_value(chunk) for chunk in value["chunks"])),
            loss_fn_inputs={key: _tensor_from_value(tensor) for key, tensor in value["arrays"].items()},
        )
    return conversation_from_values(value)


def _tensor_to_value(array: Any) -> list[Any]:
    tensor = to_tensor(array)
    return [tensor.dtype.value, list(tensor.shape), bytes(tensor.data)]


def _tensor_from_value(value: Sequence[Any]) -> Any:
    dtype, shape, data = value
    return from_tensor(Tensor(dtype=Dtype(dtype), shape=tuple(shape), data=data), "loss_fn_inputs")


def _chunk_to_value(chunk: ModelInputChunk) -> list[Any]:
    match chunk:
        case TokensChunk():
            return ["tokens", _tensor_to_value(chunk.tokens)]
        case ImageChunk():
            return ["image", bytes(chunk.data), chunk.format, chunk.expected_tokens]
        case ImageAssetChunk():
            return ["asset", chunk.location, chunk.format, chunk.expected_tokens]


def _chunk_from_value(value: Sequence[Any]) -> ModelInputChunk:
    kind, *fields = value
    if kind == "tokens":
        return TokensChunk(tokens=_tensor_from_value(fields[0]))
    held, form, expected = fields
    if kind == "image":
        return ImageChunk(data=held, format=form, expected_tokens=expected)
    return ImageAssetChunk(location=held, format=form, expected_tokens=expected)
