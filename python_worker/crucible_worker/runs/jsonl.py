"""Samples from JSON lines: one object a line, UTF-8.

    {"input": "2+2=", "target": "4"}
    {"input": [{"role": "user", "content": "2+2?"}], "targets": ["4", "four"], "id": "a", "choices": [], "metadata": {}}

`input` is text or a list of messages; `target` or `targets`, not both, say what is right; ids are text or integers, and
a target is text. Metadata that is not text is kept as JSON. Any other key is refused: a misspelt one would be lost
silently. Empty lines at the end do not count, and a byte order mark at the beginning does not either.
"""

from __future__ import annotations

import codecs
import collections
import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from crucible_bridge.errors import FailedPrecondition, InvalidField, NotFound, PermissionDenied
from crucible_bridge.reasons import Reason
from crucible_bridge.types import ChatMessage, Conversation, Sample, bounds
from crucible_worker.below_roots import LeadsOut, find_below
from crucible_worker.parsing import uncollected, written

__all__ = [
    "MAX_DIGITS",
    "MAX_LINE_BYTES",
    "MAX_LINE_PARTS",
    "MAX_SKIPPED_BYTES",
    "Line",
    "MalformedLine",
    "bounded_lines",
    "find_file",
    "kind_of",
    "line_of",
    "parsed_line",
    "read_lines",
]

MAX_ID_BYTES = bounds.SAMPLE_ID_MAX_BYTES
"""Longest id of a sample: every event of it bears it."""
MAX_LINE_BYTES = 16 * 1024 * 1024
"""A line longer than this, its end included, is malformed."""
MAX_DIGITS = 1_000
"""Longest whole number, its sign included: the time of writing it again grows with the square of its length."""
MAX_SKIPPED_BYTES = 1024 * 1024 * 1024
"""How far the end of a line that is too long is looked for: a file without it has no lines."""
MAX_LINE_PARTS = 1_000_000
"""Lists, objects and keys of a line. The parser and the garbage collector let no other thread run among lists: ten
times as many in one line stopped every other call of the worker for seconds."""

_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""What a pair of escapes for one character is made of, or half of one."""
_PARTS = (b"[", b"{", b'":')
"""Where lists, objects and keys begin or end; those within texts are counted as well."""
_SKIP_BYTES = 1024 * 1024
"""What is read at once of a line that is too long: there is a look at the clock between."""

_KEYS = ("id", "input", "target", "targets", "choices", "metadata")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A record of a file."""

    number: int
    """Its line, from 1."""
    sample: Sample | None = None
    """What it says; its id is empty where the record has none. None where it is malformed."""
    problem: str = ""
    """What is wrong with it, to be read behind "line 17 ..."."""


class MalformedLine(ValueError):
    """A line is no record; the message is read behind its number."""


def find_file(path: str, roots: Sequence[Path], field: str) -> Path:
    """The file of a path below one of the data roots, the first that has it.

    Raises:
        InvalidField: the path is empty or holds a zero byte.
        FailedPrecondition: there is no data root.
        PermissionDenied: the path is absolute, or leads out of every root that has it, be it by "..", be it by a link.
        NotFound: no root has such a file.
    """
    if not path or "\0" in path:
        raise InvalidField(field, "is empty" if not path else "holds a zero byte")
    if not roots:
        raise FailedPrecondition(
            "names a file, but the worker has no data root: start it with --data-root",
            reason=Reason.NO_DATA_ROOT,
            field=field,
        )
    if Path(path).is_absolute():
        raise PermissionDenied(
            "is absolute: it must be relative to a data root", reason=Reason.OUTSIDE_ROOT, field=field
        )
    try:
        found = find_below(roots, path, Path.is_file)
    except LeadsOut:
        raise PermissionDenied("leads out of the data roots", reason=Reason.OUTSIDE_ROOT, field=field) from None
    if found is None:
        raise NotFound(
            f"names {path[:200]!r}, and no data root has such a file", reason=Reason.NO_SUCH_FILE, field=field
        )
    return found


def read_lines(path: Path, field: str, go_on: Callable[[], None] = lambda: None) -> Iterator[Line]:
    """Every record of a file, in order, malformed ones included.

    Args:
        path: the file.
        field: of the request, which errors name.
        go_on: called for every line and every part of a long one; raises to have this given up.

    Raises:
        PermissionDenied: the file cannot be read.
        InvalidField: a line does not end within `MAX_SKIPPED_BYTES` (MALFORMED_LINE). Lines of any other fault are
            among the results.
    """
    try:
        with path.open("rb") as file:
            yield from _records(file, field, go_on)
    except OSError as error:
        raise PermissionDenied(f"cannot be read: {error.strerror}", reason=Reason.UNREADABLE, field=field) from error


def line_of(number: int, raw: bytes | None) -> Line:
    """What a line of `bounded_lines` says."""
    try:
        return Line(number=number, sample=_sample(parsed_line(raw), len(raw or b"")))
    except MalformedLine as error:
        return Line(number=number, problem=str(error))
    except RecursionError:  # it could be read, and cannot be written again
        return Line(number=number, problem="is nested too deeply")


def _records(file: BinaryIO, field: str, go_on: Callable[[], None]) -> Iterator[Line]:
    number = blank = 0
    try:
        for raw in bounded_lines(file, go_on):
            number += 1
            if raw is not None and not raw.strip():
                blank += 1
                continue
            # Lines were empty before the end after all.
            yield from (Line(number=empty, problem="is empty") for empty in range(number - blank, number))
            blank = 0
            yield line_of(number, raw)
    except MalformedLine as error:
        raise InvalidField(field, f"line {number} {error}", reason=Reason.MALFORMED_LINE) from error


def bounded_lines(file: BinaryIO, go_on: Callable[[], None] = lambda: None) -> Iterator[bytes | None]:
    """Lines without a byte order mark at the beginning; None for one longer than `MAX_LINE_BYTES`.

    The rest of a line that is too long is read only when the next one is asked for.

    Raises:
        MalformedLine: the end of such a line is not found within `MAX_SKIPPED_BYTES`.
    """
    first = True
    while raw := file.readline(MAX_LINE_BYTES + 1):
        go_on()
        if first:
            raw, first = raw.removeprefix(codecs.BOM_UTF8), False
        if len(raw) <= MAX_LINE_BYTES:
            yield raw
            continue
        yield None
        _skip_line(file, raw, go_on)


def _skip_line(file: BinaryIO, raw: bytes, go_on: Callable[[], None]) -> None:
    skipped = len(raw)
    while raw and not raw.endswith(b"\n"):
        raw = file.readline(min(_SKIP_BYTES, MAX_SKIPPED_BYTES + 1 - skipped))
        skipped += len(raw)
        if skipped > MAX_SKIPPED_BYTES:
            raise MalformedLine(f"does not end within {MAX_SKIPPED_BYTES:,} bytes: one object a line is needed")
        go_on()


def parsed_line(raw: bytes | None, *, any_bytes: bool = False) -> dict[str, Any]:
    """The JSON object of a line, of `bounded_lines`.

    Args:
        raw: the line.
        any_bytes: it may hold what a model said: bytes that are not UTF-8, and halves of surrogate pairs, are lone
            surrogates in the texts then.

    Raises:
        MalformedLine: it is too long, or no JSON object that UTF-8 and float64 can carry.
    """
    if raw is None:
        raise MalformedLine(f"is longer than {MAX_LINE_BYTES:,} bytes: one object a line is needed")
    if sum(map(raw.count, _PARTS)) > MAX_LINE_PARTS:
        raise MalformedLine(f"holds more than {MAX_LINE_PARTS:,} lists, objects and keys")
    try:
        text = raw.decode("utf-8", "surrogateescape" if any_bytes else "strict")
    except UnicodeDecodeError as error:
        raise MalformedLine(f"is not UTF-8, at byte {error.start + 1}") from error
    try:
        with uncollected(len(raw)):
            record = json.loads(
                text, object_pairs_hook=_object, parse_constant=_not_a_number, parse_float=_finite, parse_int=_whole
            )
    except MalformedLine:
        raise
    except json.JSONDecodeError as error:
        raise MalformedLine(f"is not JSON: {error.msg} at character {error.pos + 1}") from error
    except RecursionError as error:
        raise MalformedLine("is nested too deeply") from error
    if not isinstance(record, dict):
        raise MalformedLine(f"is {kind_of(record)}, not an object")
    if not any_bytes and _HALF.search(text):
        # Only such escapes can say what UTF-8 cannot.
        _refuse_surrogates(record, len(raw))
    return record


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        counts = collections.Counter(key for key, _ in pairs)
        twice = next(key for key in counts if counts[key] > 1)
        raise MalformedLine(f"has the key {twice[:60]!r} twice")
    return made


def _not_a_number(text: str) -> float:
    raise MalformedLine(f"holds {text}, which JSON does not have")


def _whole(text: str) -> int:
    # A Python function lets other threads run between two numbers; the parser's own does not.
    if len(text) > MAX_DIGITS:
        raise MalformedLine(f"holds an integer of more than {MAX_DIGITS:,} digits")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise MalformedLine(f"holds {text[:60]}, which is beyond float64")
    return value


def _refuse_surrogates(record: dict[str, Any], size: int) -> None:
    try:
        written(record, size).encode("utf-8")
    except UnicodeEncodeError as error:
        raise MalformedLine("holds half a surrogate pair, which is no text") from error


def _sample(record: dict[str, Any], size: int) -> Sample:
    for key in record:
        if key not in _KEYS:
            raise MalformedLine(
                f"has an unknown key {key[:60]!r}: known are {', '.join(_KEYS)}; all else goes into metadata"
            )
    if "input" not in record:
        raise MalformedLine('has no "input"')
    identity = record.get("id", "")
    if isinstance(identity, int) and not isinstance(identity, bool):
        identity = str(identity)
    if not isinstance(identity, str):
        raise MalformedLine(f'has an "id" that is {kind_of(identity)}, not text')
    if len(identity.encode()) > MAX_ID_BYTES:
        raise MalformedLine(f'has an "id" of more than {MAX_ID_BYTES:,} bytes')
    return Sample(
        id=identity,
        input=_input(record["input"]),
        targets=_targets(record),
        choices=_texts(record.get("choices", []), "choices"),
        metadata=_metadata(record.get("metadata", {}), size),
    )


def _input(value: Any) -> str | Conversation:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise MalformedLine(f'has an "input" that is {kind_of(value)}, neither text nor a list of messages')
    messages = []
    for index, message in enumerate(value):
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            raise MalformedLine(f'has an "input" whose message {index} is not {{"role", "content"}}')
        if not isinstance(message["role"], str) or not isinstance(message["content"], str):
            raise MalformedLine(f'has an "input" whose message {index} holds something else than text')
        messages.append(ChatMessage(message["role"], message["content"]))
    if not messages:
        raise MalformedLine('has an "input" without messages')
    return Conversation(tuple(messages))


def _targets(record: dict[str, Any]) -> tuple[str, ...]:
    if "target" in record and "targets" in record:
        raise MalformedLine('has both "target" and "targets"')
    if "target" in record:
        return _texts([record["target"]], "target")
    return _texts(record.get("targets", []), "targets")


def _texts(value: Any, key: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise MalformedLine(f'has "{key}" that is {kind_of(value)}, not a list of texts')
    for item in value:
        if not isinstance(item, str):
            raise MalformedLine(f'has "{key}" that holds {kind_of(item)}, not text')
    return tuple(value)


def _metadata(value: Any, size: int) -> dict[str, str]:
    if not isinstance(value, dict):
        raise MalformedLine(f'has "metadata" that is {kind_of(value)}, not an object')
    return {key: item if isinstance(item, str) else written(item, size) for key, item in value.items()}


def kind_of(value: Any) -> str:
    """What a JSON value is, in words."""
    kinds = {bool: "a boolean", type(None): "null", dict: "an object", list: "a list", str: "text"}
    return kinds.get(type(value), "a number")
