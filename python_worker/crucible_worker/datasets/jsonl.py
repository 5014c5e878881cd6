"""Text files, and rows from JSON lines: one object a line, UTF-8. `crucible_bridge.types.rows` makes samples of them.

    {"input": "2+2=", "target": "4"}
    {"input": [{"role": "user", "content": "2+2?"}], "targets": ["4", "four"], "id": "a", "choices": [], "metadata": {}}

Empty lines and a byte order mark at the beginning are ignored. A file may also be one JSON array of such objects. See
`text_file` for compression, encodings and line ends.
"""

from __future__ import annotations

import codecs
import collections
import dataclasses
import gzip
import io
import json
import math
import re
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from crucible_bridge.errors import BridgeError, FailedPrecondition, InvalidField, NotFound, PermissionDenied, clipped
from crucible_bridge.reasons import Reason
from crucible_bridge.types import MalformedRow, RowReader, Sample, kind_of
from crucible_worker.util.error_reporter import shortage
from crucible_worker.util.files import LeadsOut, find_below
from crucible_worker.util.parsing import parts_of, uncollected, written

__all__ = [
    "FREE_EXPANDED_BYTES",
    "MAX_DIGITS",
    "MAX_EXPANSION",
    "MAX_LINE_BYTES",
    "MAX_LINE_PARTS",
    "MAX_SKIPPED_BYTES",
    "JsonLine",
    "MalformedLine",
    "array_elements",
    "bounded_lines",
    "find_file",
    "line_of",
    "object_of_pairs",
    "parsed_line",
    "read_lines",
    "text_file",
]

# Files of text as bytes of UTF-8 whose lines end with LF, whatever they are on disk.
#
# gzip and Zstandard are expanded, UTF-16 with a byte order mark is decoded, and lines that end with CR alone are
# divided. Everything is read in pieces: a file takes no more memory than its longest line.

MAX_EXPANSION = 100
"""How many times larger than its compressed part an expanded file may be: text is 3 to 20 times as large."""
FREE_EXPANDED_BYTES = 64 * 1024 * 1024
"""Expanded bytes from which `MAX_EXPANSION` counts."""

_HEAD_BYTES = 64 * 1024
"""Bytes of a file that say what it is."""
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_UNMARKED_UTF_16 = re.compile(rb"(?:[^\0]\0){2}|(?:\0[^\0]){2}")
_REFUSED = {
    b"BZh": "is compressed by bzip2: expand it with bunzip2, or compress it by gzip or zstd",
    b"\xfd7zXZ\0": "is compressed by xz: expand it with unxz, or compress it by gzip or zstd",
    b"PK\3\4": "is a ZIP archive: expand it with unzip",
    b"PAR1": "is a Parquet file: write parquet: before its path",
    codecs.BOM_UTF32_LE: "is UTF-32: convert it to UTF-8, for example with iconv",
    codecs.BOM_UTF32_BE: "is UTF-32: convert it to UTF-8, for example with iconv",
}
"""Files that are not read, by their first bytes."""


class _Reads(Protocol):
    def read(self, size: int, /) -> bytes: ...


def text_file(file: BinaryIO, field: str) -> io.BufferedReader:
    """The text of an open file; closing it closes the file.

    Args:
        file: at its beginning.
        field: path in the request, for errors. Reading raises these errors, too.

    Raises:
        InvalidField: it is in a format or an encoding that is not read, damaged, or expands to more than
            `MAX_EXPANSION` times its size (MALFORMED_FILE).
        FailedPrecondition: it is compressed by Zstandard, and the extra that reads it is not installed
            (EXTRA_NOT_INSTALLED).
    """
    text = _buffered(file)
    for opening in (_expanded, _decoded, _with_line_feeds):
        text = opening(text, text.peek(_HEAD_BYTES), field)
    return text


def _expanded(file: io.BufferedReader, head: bytes, field: str) -> io.BufferedReader:
    if not head.startswith((_GZIP, _ZSTD)):
        return file
    counted = _Counted(file)
    if head.startswith(_GZIP):
        expanding: _Reads = gzip.GzipFile(fileobj=cast("BinaryIO", counted))
        name = "gzip"
    else:
        expanding, name = _zstandard(counted, field), "Zstandard"
    expanded = 0

    def read(size: int) -> bytes:
        nonlocal expanded
        try:
            piece = expanding.read(size)
        except BridgeError:
            raise
        except (OSError, EOFError, ValueError, zlib.error) as error:
            problem = f"is damaged: {name} cannot expand it: {str(error)[:200]}"
            raise InvalidField(field, problem, reason=Reason.MALFORMED_FILE) from error
        expanded += len(piece)
        if expanded > max(FREE_EXPANDED_BYTES, MAX_EXPANSION * counted.size):
            problem = f"expands to more than {MAX_EXPANSION} times its size: expand it before, if that is meant"
            raise InvalidField(field, problem, reason=Reason.MALFORMED_FILE)
        return piece

    return _buffered(_Stream(read, file))


def _zstandard(file: _Counted, field: str) -> _Reads:
    try:
        import pyarrow as pa
    except ImportError as error:
        raise FailedPrecondition(
            "is compressed by Zstandard, and pyarrow, which reads it, is not installed: install "
            "crucible-bridge[datasets], or expand it with unzstd",
            reason=Reason.EXTRA_NOT_INSTALLED,
            field=field,
        ) from error
    return pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")


def _decoded(file: io.BufferedReader, head: bytes, field: str) -> io.BufferedReader:
    for magic, problem in _REFUSED.items():
        if head.startswith(magic):
            raise InvalidField(field, problem, reason=Reason.MALFORMED_FILE)
    if not head.startswith(_UTF_16):
        if _UNMARKED_UTF_16.match(head):
            problem = "has zero bytes at its beginning, as UTF-16 without a byte order mark has: convert it to UTF-8"
            raise InvalidField(field, problem, reason=Reason.MALFORMED_FILE)
        return file
    decoder = codecs.getincrementaldecoder("utf-16")()

    def read(size: int) -> bytes:
        while True:
            piece = file.read(max(size // 2, 2))
            try:
                text = decoder.decode(piece, final=not piece)
            except UnicodeDecodeError as error:
                raise InvalidField(field, f"is not UTF-16: {error.reason}", reason=Reason.MALFORMED_FILE) from error
            if text or not piece:
                return text.encode()

    return _buffered(_Stream(read, file))


def _with_line_feeds(file: io.BufferedReader, head: bytes, field: str) -> io.BufferedReader:
    if b"\n" in head or b"\r" not in head[:-1]:
        return file
    return _buffered(_Stream(lambda size: file.read(size).replace(b"\r", b"\n"), file))


def _buffered(file: BinaryIO | io.RawIOBase) -> io.BufferedReader:
    return io.BufferedReader(cast("io.RawIOBase", file), _HEAD_BYTES)


class _Counted(io.RawIOBase):
    """Counts the bytes that are read of a file."""

    def __init__(self, file: BinaryIO) -> None:
        self.size = 0
        """Bytes until now."""
        self._file = file

    def read(self, size: int = -1, /) -> bytes:
        """Read from the file."""
        piece = self._file.read(size)
        self.size += len(piece)
        return piece

    def readable(self) -> bool:
        """True."""
        return True


class _Stream(io.RawIOBase):
    """What a function reads: at most three bytes for each two that it gets, or none at the end."""

    def __init__(self, read: Callable[[int], bytes], file: BinaryIO) -> None:
        self._read, self._file = read, file
        self._pending = b""

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        """Fill a part of a buffer."""
        pending = self._pending or self._read(len(buffer))
        count = min(len(pending), len(buffer))
        buffer[:count], self._pending = pending[:count], pending[count:]
        return count

    def close(self) -> None:
        """Close the file as well."""
        self._file.close()
        super().close()


MAX_LINE_BYTES = 16 * 1024 * 1024
"""A line longer than this, its end included, is malformed."""
MAX_DIGITS = 1_000
"""Longest integer, its sign included: the time to write it again grows with the square of its length."""
MAX_SKIPPED_BYTES = 1024 * 1024 * 1024
"""Bytes within which the end of a line that is too long is searched; a file without one has no lines."""
MAX_LINE_PARTS = 1_000_000
"""Lists, objects and texts of a line. The parser and the garbage collector let no other thread run meanwhile: ten times
as many in one line stopped every other call of the worker for seconds."""

_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""Escapes of a surrogate pair, or of half of one."""
_IN_TEXT, _BETWEEN_TEXTS = re.compile(rb'["\\]'), re.compile(rb'["\[\]{},]')
"""What ends a text, or what may begin or end an element of an array."""
_SKIP_BYTES = 1024 * 1024
"""Bytes read at once of a line that is too long; `go_on` is called in between."""
_EXCERPT_BYTES = 240
"""Bytes of a line's beginning that an error shows."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JsonLine:
    """A record of a file."""

    number: int
    """Its line number, from 1."""
    noun: str = ""
    """What is counted, if it is not what the source's records are usually called."""
    sample: Sample | None = None
    """Its sample; the id is empty if the record has none. None if the line is malformed."""
    problem: str = ""
    """What is wrong with it, to be read after "line 17 ..."."""
    shown: str = ""
    """What was found in it, which keys are known, and how it begins; to be read after the problem."""


class MalformedLine(ValueError):
    """A line is no record; the message is read after its number."""


def find_file(path: str, roots: Sequence[Path], field: str) -> Path:
    """The file of a path below one of the data roots, the first that has it.

    Raises:
        InvalidField: the path is empty or holds a zero byte.
        FailedPrecondition: there is no data root.
        PermissionDenied: the path is absolute, or leads out of every root that has it, by ".." or by a link.
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
        message = "is outside of the data roots"
        raise PermissionDenied(message, reason=Reason.OUTSIDE_ROOT, field=field, metadata=_searched(roots)) from None
    if found is None:
        raise NotFound(
            f"names {clipped(path)}, and no data root has such a file",
            reason=Reason.NO_SUCH_FILE,
            field=field,
            metadata=_searched(roots),
        )
    return found


def _searched(roots: Sequence[Path]) -> dict[str, str]:
    """The fact of an error that names where was looked: another worker than the caller's may have answered."""
    return {"data_roots": ", ".join(map(str, roots))}


def read_lines(
    path: Path, field: str, rows: RowReader, go_on: Callable[[], None] = lambda: None
) -> Generator[JsonLine, None, None]:
    """Every record of a file, in order, malformed ones included.

    Args:
        path: the file.
        field: path in the request, for errors.
        rows: reads its rows.
        go_on: called for every line and every part of a long one; it raises to stop the reading.

    Raises:
        PermissionDenied: the file cannot be read.
        InvalidField: a line does not end within `MAX_SKIPPED_BYTES` (MALFORMED_LINE), `rows` refuses the whole, or
            `text_files.text_file` the file (MALFORMED_FILE). Lines with any other fault are among the results.
        FailedPrecondition: see `text_files.text_file`.
    """
    try:
        with path.open("rb") as opened, text_file(opened, field) as file:
            yield from _records(file, field, rows, go_on)
    except OSError as error:
        if (lacking := shortage(error)) is not None:
            raise lacking from error
        raise PermissionDenied(f"cannot be read: {error.strerror}", reason=Reason.UNREADABLE, field=field) from error
    rows.finish()


def line_of(number: int, raw: bytes | None, rows: RowReader) -> JsonLine:
    """Read a line of `bounded_lines`.

    Raises:
        InvalidField: `rows` refuses the whole data set.
    """
    size = len(raw or b"")
    more = ""
    try:
        return JsonLine(number=number, sample=rows.sample(parsed_line(raw), lambda value: written(value, size)))
    except MalformedLine as error:
        problem = str(error)
    except MalformedRow as error:
        problem, more = str(error), error.more
    except RecursionError:  # it could be parsed, but cannot be serialized again
        problem = "is nested too deeply"
    return JsonLine(number=number, problem=problem, shown="; ".join(filter(None, (more, _excerpt(raw)))))


def _excerpt(raw: bytes | None) -> str:
    begins = (raw or b"").strip()
    if not begins:
        return ""
    shown = ascii(begins[:_EXCERPT_BYTES].decode("utf-8", "replace"))
    return f"it reads {shown}{'...' if len(begins) > _EXCERPT_BYTES else ''}"


def _records(file: io.BufferedReader, field: str, rows: RowReader, go_on: Callable[[], None]) -> Iterator[JsonLine]:
    is_array = file.peek(1).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")
    noun, number = "element" if is_array else "line", 0
    try:
        for raw in array_elements(file, go_on) if is_array else bounded_lines(file, go_on):
            number += 1
            if is_array or raw is None or raw.strip():
                yield dataclasses.replace(line_of(number, raw, rows), noun=noun)
    except MalformedLine as error:
        raise InvalidField(field, f"{noun} {number} {error}", reason=Reason.MALFORMED_LINE) from error


def array_elements(file: BinaryIO, go_on: Callable[[], None] = lambda: None) -> Iterator[bytes | None]:
    """The elements of a file that is one JSON array, each as its text; None for one longer than `MAX_LINE_BYTES`.

    Only brackets, quotes and commas are read here: whether an element is JSON is found by `parsed_line`.

    Raises:
        MalformedLine: the array does not end, or something follows it; the message is read after the number of the last
            element that was returned. Or such an element does not end within `MAX_SKIPPED_BYTES`.
    """
    element, size, depth = bytearray(), 0, -1
    quoted = escaped = False
    while piece := file.read(_SKIP_BYTES):
        go_on()
        start = place = 0
        while True:
            if escaped:  # what follows a backslash
                place, escaped = place + 1, False
            mark = (_IN_TEXT if quoted else _BETWEEN_TEXTS).search(piece, place)
            if mark is None:
                escaped = escaped or place > len(piece)
                break
            place, sign = mark.end(), mark[0]
            if quoted:
                escaped, quoted = sign == b"\\", sign != b'"'
            elif sign == b'"':
                quoted = True
            elif sign in b"[{":
                depth += 1
                start = place if depth == 0 else start
            elif depth == 0:  # a comma after an element, or the end
                element += piece[start : mark.start()]
                size += mark.start() - start
                if sign == b"," or element.strip():
                    yield bytes(element) if size <= MAX_LINE_BYTES else None
                element, size, start = bytearray(), 0, place
                if sign != b",":
                    if (piece[place:] + file.read(_SKIP_BYTES)).strip():
                        raise MalformedLine("is the last of the array, and something follows the array")
                    return
            elif sign != b",":
                depth -= 1
        if depth < 0:
            continue  # white space before the array
        size += len(piece) - start
        if size > MAX_SKIPPED_BYTES:
            raise MalformedLine(f"is followed by one that does not end within {MAX_SKIPPED_BYTES:,} bytes")
        element += piece[start : start + max(0, MAX_LINE_BYTES + 1 - len(element))]
    raise MalformedLine("is the last of an array that does not end")


def bounded_lines(file: BinaryIO, go_on: Callable[[], None] = lambda: None) -> Iterator[bytes | None]:
    """Lines without a byte order mark at the beginning; None for one longer than `MAX_LINE_BYTES`.

    The rest of a line that is too long is read only when the next line is requested.

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
        any_bytes: it may contain a model's output: bytes that are not UTF-8, and halves of surrogate pairs, become
            lone surrogates in the texts.

    Raises:
        MalformedLine: it is too long, or no JSON object that UTF-8 and float64 can represent.
    """
    if raw is None:
        raise MalformedLine(f"is longer than {MAX_LINE_BYTES:,} bytes: one object a line is needed")
    if parts_of(raw) > MAX_LINE_PARTS:
        raise MalformedLine(f"holds more than {MAX_LINE_PARTS:,} lists, objects and texts")
    try:
        text = raw.decode("utf-8", "surrogateescape" if any_bytes else "strict")
    except UnicodeDecodeError as error:
        raise MalformedLine(f"is not UTF-8, at byte {error.start + 1}") from error
    try:
        with uncollected(len(raw)):
            record = json.loads(
                text,
                object_pairs_hook=object_of_pairs,
                parse_constant=_not_a_number,
                parse_float=_finite,
                parse_int=_whole,
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
        # Only such escapes can encode what UTF-8 cannot.
        _refuse_surrogates(record, len(raw))
    return record


def object_of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object from its keys and values, as `json` reads them.

    Raises:
        MalformedLine: a key occurs twice.
    """
    made = dict(pairs)
    if len(made) != len(pairs):
        counts = collections.Counter(key for key, _ in pairs)
        twice = next(key for key in counts if counts[key] > 1)
        raise MalformedLine(f"has the key {clipped(twice)} twice")
    return made


def _not_a_number(text: str) -> None:
    if text == "NaN":
        return  # as in the other formats, it is no value: an error only in a column that needs one
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
