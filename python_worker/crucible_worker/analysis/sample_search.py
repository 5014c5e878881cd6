"""Results of samples by text, verdict or metadata, for tables: one pass over what the journal has of an evaluation.

Samples are packed in the journal, so that no database looks into them. A pass unpacks of each what is looked at, and
makes whole results only of those that a table shows: 200,000 samples take about a second.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from crucible_bridge.types import (
    FindSamplesRequest,
    FindSamplesResponse,
    MetadataField,
    SampleOrder,
    SampleResult,
    SampleRow,
)
from crucible_worker.journal import Journal
from crucible_worker.journal.contents import SAMPLE, input_from_value, opened
from crucible_worker.journal.packing import unpack_text
from crucible_worker.journal.queries import PackedSample, SnapshotReads, packed_samples, sample_at, token_after
from crucible_worker.journal.records import reported_tokens, usage_from_record
from crucible_worker.reports.distributions import MetadataFields
from crucible_worker.reports.plain_json import replace_surrogates
from crucible_worker.reports.samples import row_as_data, searched_input

__all__ = ["DEFAULT_LIMIT", "SampleSearches"]

DEFAULT_LIMIT = 100
"""Rows of an answer, unless the request says how many."""
_BETWEEN_LOOKS = 256
"""Samples between two looks at the time, and at whether the caller has left."""
_now = time.monotonic


class SampleSearches:
    """Looks for samples, one search at a time: other calls must be able to read meanwhile."""

    def __init__(self, journal: Journal) -> None:
        """Look in a journal."""
        self._journal = journal
        self._turn = asyncio.Lock()

    async def find(self, number: int, other: int | None, request: FindSamplesRequest) -> FindSamplesResponse:
        """Look through an evaluation; a caller that leaves ends the search.

        Args:
            number: of the evaluation.
            other: of the one that `changed_from` names.
            request: what to look for.
        """
        async with self._turn:
            search = _Search(request)
            reading = asyncio.ensure_future(self._journal.read(search.run, number, other))
            try:
                return await asyncio.shield(reading)
            except asyncio.CancelledError:
                search.left = True
                await asyncio.wait([reading])  # the turn lasts until the thread is done
                if not reading.cancelled():
                    reading.exception()
                raise


@dataclasses.dataclass(frozen=True, slots=True)
class _Match:
    """A result that matches."""

    n: int
    place: tuple[int, int, int]
    before: tuple[int, int, int] | None
    """The place of the result before it."""
    value: Any
    """What it is sorted by; None if it has no such value."""


class _Search:
    """One search, in a thread of the journal's readers."""

    def __init__(self, request: FindSamplesRequest) -> None:
        self.left = False
        """Whether the caller has left; the event loop says so."""
        self._request = request
        self._words = replace_surrogates(request.search).casefold()
        self._metadata = {_compared(key): _compared(value) for key, value in request.metadata.items()}
        self._verdicts = frozenset(verdict.value for verdict in request.verdicts)
        self._until = math.inf
        self._others: Mapping[tuple[str, str, int], str] = {}
        self._fields = MetadataFields()
        self._contents = request.sample_id is None or bool(self._words or self._metadata)

    def run(self, connection: SnapshotReads, number: int, other: int | None) -> FindSamplesResponse:
        """Look through all of it, or through as much as the request has time for."""
        if self._request.within_ms:
            self._until = _now() + self._request.within_ms / 1000
        with connection.snapshot():
            if other is not None:
                others = itertools.takewhile(lambda _: not self.left, packed_samples(connection, other, contents=False))
                self._others = {_key(packed): packed.verdict for packed in others}
            (total,) = connection.execute("SELECT COUNT(*) FROM samples WHERE number = ?", (number,)).fetchone()
            matches, searched = self._matches(packed_samples(connection, number, contents=self._contents))
            rows = [_row(match, sample_at(connection, number, match.place)) for match in self._page(matches)]
        fields = self._fields.as_data().items()
        return FindSamplesResponse(
            rows=tuple(rows),
            matching=len(matches),
            searched=searched,
            total=total,
            fields=tuple(
                MetadataField(key=key, values=tuple(values or ()), values_left_out=values is None)
                for key, values in fields
            ),
        )

    def _matches(self, samples: Iterable[PackedSample]) -> tuple[list[_Match], int]:
        """What matches, in the data set's order, and how many were looked through."""
        value_of = _VALUES[self._request.order_by or SampleOrder.POSITION]
        matches: list[_Match] = []
        searched, before = 0, None
        for packed in samples:
            if searched % _BETWEEN_LOOKS == 0 and (self.left or _now() > self._until):
                break
            if self._fits(packed):
                matches.append(_Match(searched, packed.place, before, value_of(packed)))
            searched += 1
            before = packed.place
        return matches, searched

    def _fits(self, packed: PackedSample) -> bool:
        request = self._request
        content = None if packed.content is None else unpack_text(opened(packed.content))
        if content is not None and request.sample_id is None:
            self._fields.add(content[_METADATA])
        if request.evaluator not in (None, packed.label):
            return False
        if self._verdicts and packed.verdict not in self._verdicts:
            return False
        if request.stop_reason not in (None, packed.values["stop_reason"]):
            return False
        if request.sample_id is not None and replace_surrogates(packed.values["sample_id"]) != request.sample_id:
            return False
        if request.changed_from is not None and self._others.get(_key(packed), packed.verdict) == packed.verdict:
            return False
        if not (self._words or self._metadata):
            return True
        if not self._reads(packed, content):
            return False
        return content is None or _is_shown(packed) or self._reads(packed, None)

    def _reads(self, packed: PackedSample, content: Sequence[Any] | None) -> bool:
        """Whether it has the wanted text and metadata.

        Args:
            packed: the result.
            content: what its sample is, if that is to be looked at.
        """
        if self._metadata:
            held = {} if content is None else {_compared(k): _compared(v) for k, v in content[_METADATA].items()}
            if any(held.get(key) != value for key, value in self._metadata.items()):
                return False
        if not self._words:
            return True
        values = packed.values
        asked, targets = ("", ()) if content is None else (_asked(content[0]), content[1])
        text = "\n".join((values["sample_id"], asked, values["output"], values["extracted"], *targets))
        return self._words in replace_surrogates(text).casefold()

    def _page(self, matches: list[_Match]) -> Sequence[_Match]:
        request = self._request
        if request.order_by in (None, SampleOrder.POSITION):
            ordered = matches[::-1] if request.descending else matches
        else:
            valued = sorted(
                (match for match in matches if match.value is not None),
                key=lambda match: match.value,
                reverse=request.descending,
            )  # equal ones stay in the data set's order, both ways
            ordered = [*valued, *(match for match in matches if match.value is None)]
        return ordered[request.offset : request.offset + (request.limit or DEFAULT_LIMIT)]


_METADATA, _LEFT_OUT = 3, 2
"""Where a content has its metadata, and where a record has what was left out of it."""


def _key(packed: PackedSample) -> tuple[str, str, int]:
    return packed.label, packed.values["sample_id"], packed.place[2]


def _compared(text: str) -> str:
    """A text as it is compared: pages show half a surrogate pair and NUL as U+FFFD."""
    return replace_surrogates(text).replace("\0", "\ufffd")


def _asked(value: Any) -> str:
    """What a sample asks, from the packed value of its input."""
    return value if isinstance(value, str) else searched_input(input_from_value(value))


def _is_shown(packed: PackedSample) -> bool:
    """Whether the content belongs to this record: another evaluation of the data set may have had more room for it."""
    assert packed.recorded is not None
    values = unpack_text(opened(packed.recorded))
    return len(values) <= _LEFT_OUT or all(part != SAMPLE for part, _, _ in values[_LEFT_OUT])


def _score(packed: PackedSample) -> float | None:
    score = packed.values["score"]
    return score if score is not None and math.isfinite(score) else None


_VALUES: Mapping[SampleOrder, Callable[[PackedSample], Any]] = {
    SampleOrder.POSITION: lambda packed: None,
    SampleOrder.SCORE: _score,
    SampleOrder.OUTPUT_TOKENS: lambda packed: reported_tokens(
        packed.values["output_tokens"], usage_from_record(packed.usage)
    ),
    SampleOrder.DURATION: lambda packed: packed.values["duration_ns"] or None,
    SampleOrder.SAMPLE_ID: lambda packed: replace_surrogates(packed.values["sample_id"]),
}


def _row(match: _Match, result: SampleResult) -> SampleRow:
    row = row_as_data(match.n, result)
    return SampleRow(
        n=match.n,
        evaluator=row["evaluator"],
        sample_id=row["id"],
        repeat=result.repeat,
        verdict=result.verdict,
        score=row["score"],
        input=row["input"],
        output=row["output"],
        extracted=row["extracted"],
        target=row["target"],
        stop_reason=result.stop_reason,
        output_tokens=result.output_tokens,
        duration_ns=result.duration_ns,
        reason=row["reason"],
        page_token="" if match.before is None else token_after(match.before),
    )
