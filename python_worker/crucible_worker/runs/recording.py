"""What an attempt records of its samples, written with their results.

The contents of a data set are kept once, by content, for all evaluations that record them. Which content stands where
is kept once for a data set. Prompts are kept as a reference to what stands around the sample's input, where one fits;
see `journal.contents`.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
from collections.abc import Sequence

import numpy as np

from crucible_bridge.types import Datum, Sample, SamplePrompt, SampleResult, TruncatedPart, Turn, Usage
from crucible_worker.backends.metering import Meter
from crucible_worker.limits import WorkerLimits
from crucible_worker.runs.journal import Transaction
from crucible_worker.runs.journal.contents import (
    EVALUATION_LIMIT,
    PROMPT,
    SAMPLE,
    SAMPLE_LIMIT,
    TURNS,
    Frame,
    RecordParts,
    closed,
    content_to_record,
    frame_from_record,
    frame_of,
    frame_to_record,
    parts_to_record,
    prompt_bytes,
    turns_bytes,
)
from crucible_worker.runs.journal.queries import Row
from crucible_worker.runs.usage import SampleKey

__all__ = ["MAX_FRAMES", "MAX_FRAME_BYTES", "FinishedSample", "Recorded", "Recorder", "sample_bytes"]

MAX_FRAMES = 8
"""Frames of prompts that are kept of an evaluator: the first ones. Prompts that fit none are kept themselves."""
MAX_FRAME_BYTES = 256 * 1024
"""Of a frame; a prompt with more around its input is kept itself."""


@dataclasses.dataclass(slots=True)
class Recorded:
    """What is to be recorded of one result."""

    sample: Sample | None
    """The sample; None where its data set is recorded whole."""
    kernel: str
    """What of the sample stands somewhere in its prompt, see `kernel_of`."""
    prompt: SamplePrompt | None
    """What the model got first."""
    turns: tuple[Turn, ...]
    """The transcript."""
    turns_left_out: int
    """Bytes of turns for which there was no room before."""

    size: int
    """About what it takes while it waits to be written."""


@dataclasses.dataclass(slots=True)
class FinishedSample:
    """A result, to be kept and told."""

    place: SampleKey
    """Where it belongs."""
    sample: SampleResult
    """What became of the sample."""
    attempt: int
    """How often this sample has been run, from 1."""
    took: Usage | Meter | None = None
    """What its calls took, in place of the result's usage."""
    recorded: Recorded | None = None
    """What is recorded beside the result."""
    weight: int = 1
    """How much it counts while it waits to be written."""


def sample_bytes(sample: Sample) -> int:
    """About what a sample takes while it waits to be written."""
    asked = sample.input
    if isinstance(asked, Datum):
        size = sum(
            array.nbytes if isinstance(array, np.ndarray) else len(array.data)
            for array in asked.loss_fn_inputs.values()
        )
    else:
        size = prompt_bytes(asked)
    for texts in (sample.targets, sample.choices, sample.metadata.values()):
        for text in texts:
            size += len(text)
    return size


class Recorder:
    """What is written of an attempt's samples; used by the journal's writer alone, inside of its transactions."""

    def __init__(self, row: Row, samples: int, limits: WorkerLimits) -> None:
        """Of an evaluation.

        Args:
            row: the evaluation, once its data set is known.
            samples: how many that data set has.
            limits: the worker's.
        """
        self._number, self._fingerprint, self._samples = row.number, row.dataset_fingerprint, samples
        self._most, self._most_together = limits.max_sample_record_bytes, limits.max_evaluation_record_bytes
        self._forget()

    def _forget(self) -> None:
        """Know nothing of what is there: before the first results, and once what was written was undone."""
        self._dataset: int | None = None
        self._bytes = 0
        self._some_known = False
        self.all_known = False
        """Whether every sample of the data set is there: whoever waits to be written need not hold on to its own."""
        self._known = bytearray()
        self._frames: dict[tuple[int, Frame], int] = {}
        self._frame_counts: collections.Counter[int] = collections.Counter()
        self._new_contents: list[tuple[int, bytes, bytes]] = []
        self._new_frames: list[tuple[int, int, int, bytes]] = []

    def write(self, transaction: Transaction, kept: Sequence[FinishedSample]) -> list[bytes | None]:
        """Write what these results refer to; the record of each, None where nothing is recorded of it."""
        records: list[bytes | None] = []
        transaction.if_undone(self._forget)
        for one in kept:
            record = None
            if one.recorded is not None:
                if self._dataset is None:
                    self._begin(transaction)
                record = self._record(transaction, one)
                self._bytes += len(record)
            records.append(record)
        if self._dataset is None:
            return records
        self._write_contents(transaction)
        if self._new_frames:
            transaction.insert("INSERT OR IGNORE INTO prompt_frames VALUES", self._new_frames)
            self._new_frames = []
        transaction.execute("UPDATE recorded_evaluations SET bytes = ? WHERE number = ?", (self._bytes, self._number))
        return records

    def _begin(self, transaction: Transaction) -> None:
        """Find what is there already: of this evaluation, and of its data set."""
        execute = transaction.execute
        execute("INSERT OR IGNORE INTO recorded_datasets (fingerprint) VALUES (?)", (self._fingerprint,))
        (self._dataset,) = execute(
            "SELECT dataset FROM recorded_datasets WHERE fingerprint = ?", (self._fingerprint,)
        ).fetchone()
        execute("INSERT OR IGNORE INTO recorded_evaluations VALUES (?, ?, 0)", (self._number, self._dataset))
        (self._bytes,) = execute("SELECT bytes FROM recorded_evaluations WHERE number = ?", (self._number,)).fetchone()
        (known,) = execute("SELECT COUNT(*) FROM dataset_contents WHERE dataset = ?", (self._dataset,)).fetchone()
        self._known = bytearray(self._samples)
        self._some_known, self.all_known = known > 0, known == self._samples
        sql = "SELECT evaluator, frame, record FROM prompt_frames WHERE number = ?"
        for evaluator, frame, record in execute(sql, (self._number,)):
            self._frames[evaluator, frame_from_record(record)] = frame
            self._frame_counts[evaluator] += 1

    def _record(self, transaction: Transaction, one: FinishedSample) -> bytes:
        recorded = one.recorded
        assert recorded is not None
        position, evaluator = one.place.position, one.place.evaluator
        sample = recorded.sample
        kept = sample is None or self.all_known or self._known[position] or self._keep(transaction, position, sample)
        kernel = recorded.kernel if kept else ""
        frame = self._frame(evaluator, recorded.prompt, kernel)
        if kept and frame is not None and not recorded.turns and not recorded.turns_left_out:
            return _prompts_alone(frame)
        left_out: list[TruncatedPart] = []
        if recorded.turns_left_out:
            left_out.append(TruncatedPart(part=TURNS, bytes=recorded.turns_left_out, limit=SAMPLE_LIMIT))
        if not kept:
            assert sample is not None
            size = len(content_to_record(sample, self._most // 2))
            left_out.append(TruncatedPart(part=SAMPLE, bytes=size, limit=EVALUATION_LIMIT))
        parts = RecordParts(prompt=recorded.prompt, turns=recorded.turns, left_out=tuple(left_out))
        most = self._most - self._most // 2
        record = closed(parts_to_record(parts, frame=frame, kernel=kernel, output=one.sample.output, most=most))
        if self._bytes + len(record) <= self._most_together:
            return record
        for part, size in ((PROMPT, prompt_bytes(recorded.prompt)), (TURNS, turns_bytes(recorded.turns))):
            if size and not (part == PROMPT and frame is not None):
                left_out.append(TruncatedPart(part=part, bytes=size, limit=EVALUATION_LIMIT))
        prompt = None if frame is None else recorded.prompt
        parts = RecordParts(prompt=prompt, turns=(), left_out=tuple(left_out))
        return parts_to_record(parts, frame=frame, kernel=kernel, output="", most=most)

    def _keep(self, transaction: Transaction, position: int, sample: Sample) -> bool:
        """Have what a sample is kept, which is not known to be; whether there is room for it."""
        sql = "SELECT 1 FROM dataset_contents WHERE dataset = ? AND position = ?"
        if not (self._some_known and transaction.execute(sql, (self._dataset, position)).fetchone()):
            record = content_to_record(sample, self._most // 2)
            if self._bytes + len(record) > self._most_together:
                return False
            digest, kept = hashlib.blake2b(record, digest_size=16).digest(), closed(record)
            self._new_contents.append((position, digest, kept))
            self._bytes += len(kept)
        self._known[position] = 1
        return True

    def _write_contents(self, transaction: Transaction) -> None:
        if not self._new_contents:
            return
        transaction.insert(
            "INSERT OR IGNORE INTO contents (digest, record) VALUES",
            [(digest, record) for _, digest, record in self._new_contents],
        )
        transaction.insert(
            "INSERT OR IGNORE INTO dataset_contents SELECT column1, column2, content"
            " FROM (VALUES) JOIN contents ON digest = column3",
            [(self._dataset, position, digest) for position, digest, _ in self._new_contents],
        )
        self._new_contents = []

    def _frame(self, evaluator: int, prompt: SamplePrompt | None, kernel: str) -> int | None:
        frame = None if prompt is None else frame_of(prompt, kernel)
        if frame is None:
            return None
        if (known := self._frames.get((evaluator, frame))) is not None:
            return known
        number = self._frame_counts[evaluator]
        if number >= MAX_FRAMES or len(record := frame_to_record(frame)) > MAX_FRAME_BYTES:
            return None
        if self._bytes + len(record) > self._most_together:
            return None
        self._frame_counts[evaluator] += 1
        self._frames[evaluator, frame] = number
        self._new_frames.append((self._number, evaluator, number, record))
        self._bytes += len(record)
        return number


@functools.cache
def _prompts_alone(frame: int) -> bytes:
    """The record of a prompt that stands in a frame, and nothing else: what most samples have."""
    parts = RecordParts(prompt="", turns=(), left_out=())
    return parts_to_record(parts, frame=frame, kernel="", output="", most=MAX_FRAME_BYTES)
