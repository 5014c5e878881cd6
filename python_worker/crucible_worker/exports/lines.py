"""JSON lines: one object for each result of a sample, ASCII-escaped, without a bare NaN."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import IO

from crucible_bridge.types import Evaluation, SampleResult
from crucible_worker.exports.rows import row_of

__all__ = ["LinesWriter"]


class LinesWriter:
    """Writes the results of evaluations to one file."""

    def __init__(self, file: IO[bytes]) -> None:
        """Write to this file."""
        self._file = file

    def add(self, evaluation: Evaluation, results: Sequence[SampleResult]) -> None:
        """Write results of an evaluation."""
        lines = [json.dumps(row_of(evaluation, result), allow_nan=False) + "\n" for result in results]
        self._file.write("".join(lines).encode())

    def end(self) -> None:
        """Nothing stands after the last line."""

    def close(self) -> None:
        """Nothing is open besides the file, which its caller closes."""
