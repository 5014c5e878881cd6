"""Inspect's `.eval` file: a zip archive of JSON members, one for each sample, written as results arrive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO

from crucible_bridge.types import Evaluation, SampleResult
from crucible_worker.exports.archive import Archive, LaterMember
from crucible_worker.exports.inspect_log import Counts, header_of, member_name, sample_of, start_of, summary_of, written

__all__ = ["EvalFileWriter"]


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
