"""Inspect's `.eval` file: a zip archive of JSON members, one for each sample, written as results arrive."""

from __future__ import annotations

import shutil
import struct
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from crucible_bridge.types import Evaluation, SampleResult
from crucible_worker.exports.inspect_log import Counts, header_of, member_name, sample_of, start_of, summary_of, written

__all__ = ["Archive", "EvalFileWriter", "LaterMember"]


class EvalFileWriter:
    """Writes one evaluation. What is in memory does not grow with its samples."""

    def __init__(self, file: IO[bytes], evaluation: Evaluation, *, version: str, folder: Path) -> None:
        """Begin the file.

        Args:
            file: what is written to.
            evaluation: as it stands.
            version: of crucible-bridge.
            folder: for temporary files.
        """
        self._evaluation, self._version = evaluation, version
        self._archive, self._summaries = Archive(file, folder), LaterMember(folder)
        self._group: list[SampleResult] = []
        self._counts = Counts()
        self._archive.add("_journal/start.json", written(start_of(evaluation, version)))
        self._summaries.write(b"[")

    def add(self, evaluation: Evaluation, results: Sequence[SampleResult]) -> None:
        """Write results, in the order of the data set: those of one sample follow each other."""
        for result in results:
            if self._group and self._group[0].sample_id != result.sample_id:
                self._write_group()
            self._group.append(result)

    def end(self) -> None:
        """Write what is left, the summaries and the header."""
        self._write_group()
        self._summaries.write(b"]")
        self._archive.append("summaries.json", self._summaries)
        self._archive.add("header.json", written(header_of(self._evaluation, self._version, self._counts)))
        self._archive.end()

    def close(self) -> None:
        """Remove temporary files."""
        self._archive.close()
        self._summaries.close()

    def _write_group(self) -> None:
        repeats: dict[int, list[SampleResult]] = {}
        for result in self._group:
            repeats.setdefault(result.repeat, []).append(result)
        self._group.clear()
        failed, written_before = self._counts.failed, self._counts.entries
        for position, (_, results) in enumerate(sorted(repeats.items()), written_before):
            entry = sample_of(self._evaluation, results)
            self._archive.add(member_name(entry, position), written(entry))
            self._summaries.write((b"," if position else b"") + written(summary_of(entry)))
            failed += "error" in entry
        self._counts = Counts(
            samples=self._counts.samples + bool(repeats),
            repeats=max(self._counts.repeats, len(repeats)),
            entries=written_before + len(repeats),
            failed=failed,
        )


# Zip archives of many members, written in one pass: neither the members nor their directory stay in memory.
#
# Python's `zipfile` keeps an object for each member until the end, about 100 MB for 200,000 of them. Members have no
# time, so that equal contents are equal archives.

_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
_UTF_8, _DEFLATED = 0x800, 8
_VERSION, _VERSION_64 = 20, 45
_UNIX_FILE = 0o100644 << 16
# 1980-01-01, the first date of the format.
_TIME, _DATE = 0, 0x21
_MOST_16, _MOST_32 = 0xFFFF, 0xFFFFFFFF
_LEVEL = 6


class LaterMember:
    """A member that is compressed part by part while others are written; `Archive.append` writes it."""

    def __init__(self, folder: Path) -> None:
        """Collect its parts in a temporary file of this folder."""
        self.file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115, `close` closes it
        self.size, self.crc = 0, 0
        self._deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)

    def write(self, data: bytes) -> None:
        """Add to its content."""
        self.crc = zlib.crc32(data, self.crc)
        self.size += len(data)
        self.file.write(self._deflate.compress(data))

    def end(self) -> int:
        """Finish the content; returns its compressed size."""
        self.file.write(self._deflate.flush())
        return self.file.tell()

    def close(self) -> None:
        """Remove the temporary file."""
        self.file.close()


class Archive:
    """A zip archive that is being written to a file; with more than 65,535 members or 4 GB it is of the form zip64."""

    def __init__(self, file: IO[bytes], folder: Path) -> None:
        """Write to `file` from its start; the directory of members is collected in a temporary file of `folder`."""
        self._file = file
        self._at = 0
        self._count = 0
        self._directory: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115, `close` closes it

    def add(self, name: str, data: bytes) -> None:
        """Write a member; its name is at most 65,535 bytes and occurs once."""
        deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        packed = deflate.compress(data) + deflate.flush()
        self._begin(name, zlib.crc32(data), len(packed), len(data))
        self._file.write(packed)
        self._at += len(packed)

    def append(self, name: str, member: LaterMember) -> None:
        """Write a member that was collected."""
        packed = member.end()
        self._begin(name, member.crc, packed, member.size)
        member.file.seek(0)
        shutil.copyfileobj(member.file, self._file)
        self._at += packed

    def end(self) -> None:
        """Write the directory of members; the archive is complete then."""
        at, size = self._at, self._directory.tell()
        self._directory.seek(0)
        shutil.copyfileobj(self._directory, self._file)
        if self._count >= _MOST_16 or at >= _MOST_32 or size >= _MOST_32:
            counts = (self._count, self._count, size, at)
            self._file.write(_END_64.pack(b"PK\6\6", _END_64.size - 12, _VERSION_64, _VERSION_64, 0, 0, *counts))
            self._file.write(_LOCATOR_64.pack(b"PK\6\7", 0, at + size, 1))
        count = min(self._count, _MOST_16)
        self._file.write(_END.pack(b"PK\5\6", 0, 0, count, count, min(size, _MOST_32), min(at, _MOST_32), 0))

    def close(self) -> None:
        """Remove the temporary file."""
        self._directory.close()

    def _begin(self, name: str, crc: int, packed: int, size: int) -> None:
        """Write what stands before a member's content, and its entry of the directory."""
        encoded = name.encode()
        large = [value for value in (size, packed) if value >= _MOST_32]
        if large:
            large = [size, packed]  # a local header has both or none
        far = [self._at] if self._at >= _MOST_32 else []
        version = _VERSION_64 if large or far else _VERSION
        sizes = (_MOST_32, _MOST_32) if large else (packed, size)
        head = (version, _UTF_8, _DEFLATED, _TIME, _DATE, crc, *sizes, len(encoded))
        extra = _extra(large)
        self._file.write(_LOCAL.pack(b"PK\3\4", *head, len(extra)) + encoded + extra)
        extra = _extra([*large, *far])
        offset = _MOST_32 if far else self._at
        made_by = 3 << 8 | version
        self._directory.write(
            _CENTRAL.pack(b"PK\1\2", made_by, *head, len(extra), 0, 0, 0, _UNIX_FILE, offset) + encoded + extra
        )
        self._at += _LOCAL.size + len(encoded) + len(_extra(large))
        self._count += 1


def _extra(values: list[int]) -> bytes:
    """Values that do not fit into 32 bits."""
    return struct.pack(f"<2H{len(values)}Q", 1, 8 * len(values), *values) if values else b""
