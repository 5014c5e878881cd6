"""Messages of every type that the codec decodes, made by a seed: most well formed, some with one thing wrong."""

from __future__ import annotations

import functools
import importlib
import inspect
import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from crucible_bridge.errors import InvalidField

_F = FieldDescriptor
_DEEPEST = 9
"""Messages in messages end here, as some hold their own kind; all others end before."""
_TEXTS = {
    "format": ["png", "jpeg", "gif", ""],
    "language": ["", "", "python3", "perl"],
    "stop_reason": ["stop", "length", ""],
    "model_path": ["tinker://run/sampler_weights/1"],
    "state_path": ["tinker://run/weights/1"],
    "base_model": ["Qwen/Qwen3-8B", ""],
    "repo_id": ["openai/gsm8k", "gsm8k", "a/.."],
    "split": ["test", "a b"],
    "config": ["main", "a/b"],
    "revision": ["0123456789abcdef0123456789abcdef01234567", "main"],
    "device": ["cpu", "cuda:1", "tpu"],
    "dtype": ["float32", "bfloat16", "int8"],
    "options_schema": ['{"type": "object"}', "{", "[]"],
    "role": ["user", "system", "user", "assistant", ""],
    "json_schema": ['{"type": "object"}', "{"],
    "arguments_json": ["[1, 2]", "", "[", "{}"],
    "expected_json": ["3", '"x"', "", "{"],
    "json": ['{"inputs": ["1"], "outputs": ["2"]}', '{"inputs": []}', "[]", ""],
    "path": ["models/a", "../a", ""],
    "adapter_path": ["adapters/a", "/a"],
    "server": ["vllm", "a/b", ""],
}
_OPTIONAL = ("sampling", "limits", "problem", "group", "policy", "comparison", "score_goal", "ordered_lists")
"""Fields that are often absent though their absence is none of `optional`."""
_POOL = ["a", "b", "run-1", "é", "x y", "name", "1", "z/q", "long" * 60]
_BYTES = [b"the answer is 4", b"\\boxed{4}", b"", b"\xff\xfe", b"```python\nx\n```", "é".encode()]
_NUMBERS = [0, 1, 1, 2, 3, 8, 100, 6_000, -1, 2**31 - 1]
_FLOATS = [0.0, 0.5, 1.0, 0.95, 0.25, 7.5, 1e-9, 0.999]
_WRONG_FLOATS = [float("nan"), float("inf"), -1.0, 2.0, -float("inf"), 1e300]
_TENSORS = {3: "<i4", 4: "<i8", 7: "<f4", 8: "<f8"}

Pair = tuple[Callable[..., Any], type[Message], Callable[..., Any] | None]
"""How a message is decoded, its class, and how the value is encoded, if that is public as well."""


@functools.cache
def decoders(
    home: str = "crucible_bridge.codec",
) -> dict[str, tuple[Callable[..., Any], type[Message], Callable[..., Any] | None]]:
    """The pairs of a module, by the name that both functions begin with."""
    found: dict[str, Any] = {}
    module = importlib.import_module(home)
    for name in sorted(module.__all__):
        decode = getattr(module, name)
        if not name.endswith("_from_v1") or not inspect.isfunction(decode):
            continue
        parameters = list(inspect.signature(decode, eval_str=True).parameters.values())
        kind = parameters[0].annotation
        if not (inspect.isclass(kind) and issubclass(kind, Message)):
            continue
        stem = name.removesuffix("_from_v1")
        found[stem] = (decode, kind, getattr(module, f"{stem}_to_v1", None))
    return found


def outcome(stem: str, content: bytes, *, with_value: bool = False) -> str:
    """Where a message is refused, or what is encoded of the decoded value: "=" where that is the message."""
    decode, kind, encode = decoders()[stem]
    message = kind.FromString(content)
    wanted = [p for p in inspect.signature(decode).parameters.values() if p.default is p.empty]
    arguments = ("at.here",)[: len(wanted) - 1]
    try:
        value = decode(message, *arguments)
        shown = f"{value!r} " if with_value else ""
        if encode is None:
            return shown or "decoded"
        extra = [p for p in inspect.signature(encode).parameters.values() if p.default is p.empty][1:]
        extra = [] if stem in ("question", "answer") else extra
        again = encode(
            *((1, value) if stem in ("question", "answer") else (value,)),
            *(10**6 if "bytes" in p.name else "at.here" for p in extra),
        )
        encoded = again.SerializeToString(deterministic=True)
    except InvalidField as error:
        return f"refused at {error.field.removeprefix('at.here').lstrip('.')}"
    return shown + ("=" if encoded == content else encoded.hex())


def made(seed: int, count: int, home: str = "crucible_bridge.codec") -> Iterator[tuple[str, bytes]]:
    """Names of pairs of a module, each with encoded messages."""
    for stem, (_, kind, _) in decoders(home).items():
        rng = random.Random(f"{seed} {stem}")
        for _ in range(count):
            wrong = rng.choice([0.0, 0.0, 0.02, 0.1])
            yield stem, _message(rng, kind(), wrong, 0).SerializeToString(deterministic=True)


def _message(rng: random.Random, message: Message, wrong: float, depth: int) -> Message:
    descriptor = message.DESCRIPTOR
    if descriptor.full_name == "crucible_bridge.v1.Tensor":
        return _tensor(rng, message, wrong)
    if descriptor.full_name == "google.protobuf.Struct":
        message.update(rng.choice([{}, {"k": [1, 5]}, {"a": {"b": None}, "c": "x", "d": 0.5}]))  # type: ignore[attr-defined]
        return message
    chosen = {oneof.name: rng.choice(list(oneof.fields)).name for oneof in descriptor.oneofs}
    for field in descriptor.fields:
        oneof = field.containing_oneof
        if oneof is not None and len(oneof.fields) > 1 and chosen[oneof.name] != field.name:
            continue
        optional = oneof is not None and len(oneof.fields) == 1
        if rng.random() < (max(wrong, 0.3) if optional or field.name in _OPTIONAL else wrong):
            continue
        _set(rng, message, field, wrong, depth)
    return message


def _set(rng: random.Random, message: Message, field: Any, wrong: float, depth: int) -> None:
    repeated = getattr(field, "is_repeated", None)
    repeated = field.label == _F.LABEL_REPEATED if repeated is None else repeated
    kind = field.message_type
    if kind is not None and depth >= _DEEPEST:
        return
    if kind is not None and kind.GetOptions().map_entry:
        values = getattr(message, field.name)
        value_field = kind.fields_by_name["value"]
        for key in rng.sample(["a", "b", "input", "target_tokens", "metadata.x", "é"], rng.choice([0, 1, 2, 3])):
            if value_field.message_type is not None:
                _message(rng, values[key], wrong, depth + 1)
            else:
                values[key] = _scalar(rng, value_field, wrong)
        return
    if field.message_type is not None:
        if repeated:
            for _ in range(rng.choice([1, 1, 2, 3]) if rng.random() >= wrong else 0):
                _message(rng, getattr(message, field.name).add(), wrong, depth + 1)
        else:
            getattr(message, field.name).SetInParent()
            _message(rng, getattr(message, field.name), wrong, depth + 1)
        return
    if repeated:
        count = rng.choice([1, 1, 2, 3]) if rng.random() >= wrong else 0
        getattr(message, field.name).extend(_scalar(rng, field, wrong) for _ in range(count))
    else:
        setattr(message, field.name, _scalar(rng, field, wrong))


def _scalar(rng: random.Random, field: Any, wrong: float) -> Any:
    bad = rng.random() < wrong
    match field.cpp_type:
        case _F.CPPTYPE_STRING if field.type == _F.TYPE_BYTES:
            return rng.choice(_BYTES)
        case _F.CPPTYPE_STRING:
            pool = _TEXTS.get(field.name, _POOL)
            return rng.choice(["", *pool, *pool] if bad else (pool[:1] if field.name in _TEXTS else pool[:-1]))
        case _F.CPPTYPE_BOOL:
            return True if field.name == "boxed" and not bad else rng.random() < 0.5
        case _F.CPPTYPE_ENUM:
            numbers = [value.number for value in field.enum_type.values if value.number]
            return rng.choice([0, 77]) if bad else rng.choice(numbers)
        case _F.CPPTYPE_DOUBLE | _F.CPPTYPE_FLOAT:
            if field.name == "max" and not bad:
                return 10.0
            return rng.choice(_WRONG_FLOATS) if bad else rng.choice(_FLOATS)
        case _:
            good = [1, 2, 5, 10]
            good = [16, 1_000, 6_000] if field.name in ("timeout_ms", "memory_mb", "output_bytes") else good
            if field.name in ("timeout_ms", "output_bytes"):
                good = [1_000, 6_000]
            value = rng.choice(_NUMBERS if bad else good)
            return abs(value) if field.cpp_type in (_F.CPPTYPE_UINT64, _F.CPPTYPE_UINT32) else value


def _tensor(rng: random.Random, message: Any, wrong: float) -> Message:
    number = rng.choice([3, 4, 4, 7, 8, 8])
    message.dtype = number if rng.random() >= wrong else rng.choice([0, 6, 77])
    count = rng.choice([0, 1, 3])
    form = {"<i4": "i", "<i8": "q", "<f4": "f", "<f8": "d"}[_TENSORS[number]]
    message.data = struct.pack(f"<{count}{form}", *(rng.choice([0, 1, 2]) for _ in range(count)))
    if rng.random() < 0.7:
        message.shape.append(count if rng.random() >= wrong else count + 1)
    return message
