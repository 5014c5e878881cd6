"""Inline samples of an evaluation whose work is shared: other workers have no request that holds them.

They are in the journal as long as the attempt runs. Example: `unpacked(packed(samples))` are the same samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from crucible_bridge.types import Sample
from crucible_worker.journal.contents import closed, content_from_record, content_to_record, opened
from crucible_worker.journal.packing import pack_text, unpack_text
from crucible_worker.journal.queries import Reads
from crucible_worker.journal.transaction import Transaction

__all__ = ["CHUNK_BYTES", "packed", "read", "unpacked", "write_chunk"]

CHUNK_BYTES = 1024 * 1024
"""Samples are written together until they have this size: other writers wait for a transaction."""
_WHOLE = 2**62


def packed(samples: Iterable[Sample]) -> list[bytes]:
    """Pack samples, in chunks."""
    chunks: list[bytes] = []
    rows: list[tuple[str, bytes]] = []
    size = 0
    for sample in samples:
        record = content_to_record(sample, _WHOLE)
        rows.append((sample.id, record))
        size += len(record)
        if size >= CHUNK_BYTES:
            chunks.append(closed(pack_text(rows)))
            rows, size = [], 0
    if rows:
        chunks.append(closed(pack_text(rows)))
    return chunks


def unpacked(chunks: Iterable[bytes]) -> Iterator[Sample]:
    """The samples of chunks, in order."""
    for chunk in chunks:
        for sample_id, record in unpack_text(opened(chunk)):
            sample, _ = content_from_record(record, sample_id)
            yield sample


def write_chunk(transaction: Transaction, number: int, chunk: int, record: bytes) -> None:
    """Write a chunk of the samples of an evaluation."""
    transaction.execute("INSERT OR REPLACE INTO part_samples VALUES (?, ?, ?)", (number, chunk, record))


def read(source: Reads, number: int) -> tuple[Sample, ...]:
    """The inline samples of an evaluation; none once its attempt has ended."""
    rows = source.execute("SELECT record FROM part_samples WHERE number = ? ORDER BY chunk", (number,))
    return tuple(unpacked(record for (record,) in rows))
