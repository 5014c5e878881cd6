"""Files of text as bytes of UTF-8 whose lines end with LF, whatever they are on disk.

gzip and Zstandard are expanded, UTF-16 with a byte order mark is decoded, and lines that end with CR alone are divided.
Everything is read in pieces: a file takes no more memory than its longest line.
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Callable
from typing import BinaryIO, Protocol, cast

from crucible_bridge.errors import BridgeError, FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason

__all__ = ["FREE_EXPANDED_BYTES", "MAX_EXPANSION", "text_file"]

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
