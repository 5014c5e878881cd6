"""What an attempt records of its samples, written with their results.

Contents of samples are stored once, for all evaluations that record them. The positions of contents are stored once for
a data set. A prompt is stored as a reference to a frame, the text around the sample's input, if one fits; see
`journal.contents`.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
from collections.abc import Sequence

import numpy as np

from crucible_bridge.types import Datum, Sample, SamplePrompt, SampleResult, TruncatedPart, Turn, Usage, Verdict
from crucible_worker.backends.metering import Meter
from crucible_worker.events import run_events
from crucible_worker.journal import Transaction
from crucible_worker.journal.contents import (
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
    reply_to_record,
    turns_bytes,
)
from crucible_worker.journal.queries import EvaluationRow
from crucible_worker.journal.records import SampleKey, sample_to_record, usage_to_record
from crucible_worker.util.limits import WorkerLimits

__all__ = ["MAX_FRAMES", "MAX_FRAME_BYTES", "FinishedSample", "Recorded", "Recorder", "commit_samples", "sample_bytes"]

MAX_FRAMES = 8
"""Most frames of an evaluator that are stored: the first ones. Prompts that fit none are stored whole."""
MAX_FRAME_BYTES = 256 * 1024
"""Largest frame; a prompt with more text around its input is stored whole."""


@dataclasses.dataclass(slots=True)
class Recorded:
    """What to record of one result."""

    sample: Sample | None
    """The sample; None if its whole data set is recorded already."""
    kernel: str
    """The text of the sample that its prompt usually contains, see `kernel_of`."""
    prompt: SamplePrompt | None
    """The first prompt to the model."""
    turns: tuple[Turn, ...]
    """The transcript."""
    turns_left_out: int
    """Bytes of turns that were left out before, for lack of room."""

    size: int
    """Approximate size while it waits to be written."""


@dataclasses.dataclass(slots=True)
class FinishedSample:
    """A result, to be recorded and reported."""

    place: SampleKey
    """Position, evaluator and repeat."""
    sample: SampleResult
    """The result of the sample."""
    attempt: int
    """The number of this run of the sample, from 1."""
    took: Usage | Meter | None = None
    """Usage of its calls, in place of the result's usage."""
    recorded: Recorded | None = None
    """What is recorded besides the result."""
    weight: int = 1
    """Its weight while it waits to be written."""


def sample_bytes(sample: Sample) -> int:
    """Approximate size of a sample while it waits to be written."""
    asked = sample.input
    if isinstance(asked, Datum):
        size = sum(
            array.nbytes if isinstance(array, np.ndarray) else len(array.data)
            for array in asked.loss_fn_inputs.values()
        )
    else:
        size = prompt_bytes(asked)
    for texts in (sample.targets, sample.choices, sample.choice_labels, sample.metadata.values()):
        for text in texts:
            size += len(text)
    return size


class Recorder:
    """Records the samples of an attempt; used only by the journal's writer, inside its transactions."""

    def __init__(self, row: EvaluationRow, samples: int, limits: WorkerLimits) -> None:
        """For an evaluation.

        Args:
            row: the evaluation, once its data set is known.
            samples: how many the data set has.
            limits: the worker's.
        """
        self._number, self._fingerprint, self._samples = row.number, row.dataset_fingerprint, samples
        self._most, self._most_together = limits.max_sample_record_bytes, limits.max_evaluation_record_bytes
        self._forget()

    def _forget(self) -> None:
        """Forget what is in the journal: before the first results, and after a rollback."""
        self._dataset: int | None = None
        self._bytes = 0
        self._some_known = False
        self.all_known = False
        """Whether every sample of the data set is recorded: then results that wait to be written need not keep one."""
        self._known = bytearray()
        self._frames: dict[tuple[int, Frame], int] = {}
        self._frame_counts: collections.Counter[int] = collections.Counter()
        self._new_contents: list[tuple[int, bytes, bytes]] = []
        self._new_frames: list[tuple[int, int, int, bytes]] = []

    def write(self, transaction: Transaction, kept: Sequence[FinishedSample]) -> list[bytes | None]:
        """Write what these results refer to; returns the record of each, None if nothing is recorded of it."""
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
        """Find what is recorded already of this evaluation and of its data set."""
        execute = transaction.execute
        execute("INSERT OR IGNORE INTO recorded_datasets (fingerprint) VALUES (?)", (self._fingerprint,))
        (self._dataset,) = execute(
            "SELECT dataset FROM recorded_datasets WHERE fingerprint = ?", (self._fingerprint,)
        ).fetchone()
        execute("INSERT OR IGNORE INTO recorded_evaluations VALUES (?, ?, 0)", (self._number, self._dataset))
        (known,) = execute("SELECT COUNT(*) FROM dataset_contents WHERE dataset = ?", (self._dataset,)).fetchone()
        self._known = bytearray(self._samples)
        self._some_known, self.all_known = known > 0, known == self._samples
        (self._bytes,) = execute("SELECT bytes FROM recorded_evaluations WHERE number = ?", (self._number,)).fetchone()
        found = execute("SELECT evaluator, frame, record FROM prompt_frames WHERE number = ?", (self._number,))
        for evaluator, frame, record in found.fetchall():
            self._frames[evaluator, frame_from_record(record)] = frame
            self._frame_counts[evaluator] += 1

    def _record(self, transaction: Transaction, one: FinishedSample) -> bytes:
        recorded = one.recorded
        assert recorded is not None
        position, evaluator = one.place.position, one.place.evaluator
        sample = recorded.sample
        kept = (
            sample is None
            or self.all_known
            or self._known[position]
            or self._record_content(transaction, position, sample)
        )
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

    def _record_content(self, transaction: Transaction, position: int, sample: Sample) -> bool:
        """Record the content of a sample, unless it is recorded; returns whether there is room for it."""
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
            " FROM (VALUES) AS given JOIN contents ON digest = column3",
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
    """The record of a prompt in a frame, without turns: the usual one."""
    parts = RecordParts(prompt="", turns=(), left_out=())
    return parts_to_record(parts, frame=frame, kernel="", output="", most=MAX_FRAME_BYTES)


def commit_samples(
    transaction: Transaction,
    row: EvaluationRow,
    kept: Sequence[FinishedSample],
    active_ns: int,
    recorder: Recorder | None = None,
) -> None:
    """Record the results of samples, and append an event for each, in this order.

    Args:
        transaction: the transaction.
        row: the evaluation as claimed.
        kept: the results.
        active_ns: time with this owner so far.
        recorder: writes what is recorded of these samples.
    """
    records: Sequence[bytes | None] = [None] * len(kept) if recorder is None else recorder.write(transaction, kept)
    usages = [
        usage_to_record(
            one.took or one.sample.usage,
            reply_to_record(one.sample, () if one.recorded is None else one.recorded.turns),
        )
        for one in kept
    ]
    transaction.insert(
        "INSERT OR REPLACE INTO sample_records VALUES",
        [
            (row.number, one.place.position, one.place.evaluator, one.place.repeat, one.attempt, record, usage)
            for one, record, usage in zip(kept, records, usages)
            if record is not None or usage is not None
        ],
    )
    transaction.insert("INSERT OR REPLACE INTO samples VALUES", [_sample_row(row.number, one) for one in kept])
    events = [run_events.sample_complete(row, one.sample, one.attempt, one.place.position) for one in kept]
    last = transaction.append(row.number, events)
    transaction.execute(
        """UPDATE evaluations SET done = done + ?, unscored = unscored + ?, active_ns = ?, last_sequence = ?
           WHERE number = ?""",
        (len(kept), sum(not one.sample.verdict.scored for one in kept), active_ns, last, row.number),
    )


def _sample_row(number: int, kept: FinishedSample) -> tuple[object, ...]:
    place, sample = kept.place, kept.sample
    retryable = sample.verdict is Verdict.ERROR and sample.problem is not None and sample.problem.retryable
    return (
        number,
        place.position,
        place.evaluator,
        place.repeat,
        sample.evaluator,
        sample.verdict.value,
        kept.attempt,
        retryable,
        sample_to_record(sample),
    )
