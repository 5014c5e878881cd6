"""Which samples a report holds, if it cannot hold all: those that people look for first.

    choice = SampleChoice(max_samples=20_000)
    choice.add("e-1", result)               # each result of each evaluation, without its record
    kept = KeptSamples(choice.chosen())
    kept.add("e-1", result)                 # each again, with its record
    kept.block("e-1")                       # their JSON, in the data set's order

First come samples without a score, then wrong ones, then those whose verdict another evaluation of the report does not
share, then the rest as the data set has them.
"""

from __future__ import annotations

import dataclasses
import heapq
from array import array
from collections.abc import Mapping, Sequence

import numpy as np

from crucible_bridge.types import SampleResult, Verdict
from crucible_worker.reports.inline_json import inline_json, json_bytes
from crucible_worker.reports.samples import whole_sample_as_data

__all__ = ["MAX_SAMPLES", "Chosen", "ChosenSamples", "SampleChoice"]

MAX_SAMPLES = 20_000
"""That a report holds, of all its evaluations together."""

_VERDICTS = {verdict: number for number, verdict in enumerate(Verdict)}
_UNSCORED, _WRONG, _CHANGED, _REST = range(4)
_RANKS = np.array(
    [
        _WRONG if verdict in (Verdict.INCORRECT, Verdict.PARTIAL) else _REST if verdict.scored else _UNSCORED
        for verdict in _VERDICTS
    ],
    np.uint8,
)
_OUT = -1
_SEPARATOR = 1  # bytes between two samples of a block

_Key = tuple[str, str, int]


def _key_of(result: SampleResult) -> _Key:
    return result.evaluator, result.sample_id, result.repeat


class _SeenResults:
    """The results of an evaluation, in order: of each the number of its key, and that of its verdict."""

    __slots__ = ("keys", "verdicts")

    def __init__(self) -> None:
        self.keys, self.verdicts = array("I"), bytearray()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What was chosen."""

    max_samples: int
    """How many may be, of all evaluations."""
    keys: Mapping[_Key, int]
    """The number of each sample."""
    ranks: Mapping[str, np.ndarray]
    """By evaluation: of each number, in which turn the sample was chosen, or -1."""
    totals: Mapping[str, int]
    """By evaluation: its results."""


class SampleChoice:
    """Takes the results of evaluations one by one; keeps five bytes of each, and every id once."""

    def __init__(self, max_samples: int = MAX_SAMPLES) -> None:
        """Begin with none."""
        self._max_samples = max_samples
        self._keys: dict[_Key, int] = {}
        self._seen: dict[str, _SeenResults] = {}

    def begin(self, evaluation_id: str) -> None:
        """Make an evaluation known, though it may have no results."""
        self._seen.setdefault(evaluation_id, _SeenResults())

    def add(self, evaluation_id: str, result: SampleResult) -> None:
        """Count a result, in the order of the data set."""
        self.begin(evaluation_id)
        seen = self._seen[evaluation_id]
        seen.keys.append(self._keys.setdefault(_key_of(result), len(self._keys)))
        seen.verdicts.append(_VERDICTS[result.verdict])

    def chosen(self) -> Chosen:
        """Choose among those that were added."""
        seen = [(np.frombuffer(each.keys, np.uintc), _bytes(each.verdicts)) for each in self._seen.values()]
        changed = self._changed(seen)
        ranks = [_ranked(keys, verdicts, changed) for keys, verdicts in seen]
        every = np.concatenate(ranks) if ranks else np.empty(0, np.uint8)
        positions = np.concatenate([np.arange(len(each)) for each in ranks]) if ranks else np.empty(0, np.int64)
        taken = np.zeros(len(every), bool)
        # Stable: of one rank and position, the evaluations stay in the report's order.
        taken[np.lexsort((positions, every))[: self._max_samples]] = True
        chosen: dict[str, np.ndarray] = {}
        start = 0
        for evaluation_id, (keys, _), rank in zip(self._seen, seen, ranks, strict=True):
            mine = np.full(len(self._keys), _OUT, np.int8)
            held = taken[start : start + len(keys)]
            mine[keys[held]] = rank[held]
            chosen[evaluation_id] = mine
            start += len(keys)
        totals = {evaluation_id: len(each.keys) for evaluation_id, each in self._seen.items()}
        return Chosen(max_samples=self._max_samples, keys=self._keys, ranks=chosen, totals=totals)

    def _changed(self, seen: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """Of each number, whether two evaluations found different verdicts."""
        lowest = np.full(len(self._keys), len(_VERDICTS), np.uint8)
        highest = np.zeros(len(self._keys), np.uint8)
        for keys, verdicts in seen:
            np.minimum.at(lowest, keys, verdicts)
            np.maximum.at(highest, keys, verdicts)
        return lowest < highest


def _bytes(verdicts: bytearray) -> np.ndarray:
    return np.frombuffer(bytes(verdicts), np.uint8)


def _ranked(keys: np.ndarray, verdicts: np.ndarray, changed: np.ndarray) -> np.ndarray:
    ranks = _RANKS[verdicts]
    return np.where((ranks == _REST) & changed[keys], np.uint8(_CHANGED), ranks)


class ChosenSamples:
    """Takes the same results again, with their records, and keeps the JSON of those that were chosen.

    Args:
        chosen: which ones.
        max_bytes: what they may take together, see `inline_json.json_bytes`; those that were chosen last go first. No
            bound if None.
    """

    def __init__(self, chosen: Chosen, max_bytes: int | None = None) -> None:
        """Begin with none."""
        self._chosen, self._max_bytes = chosen, max_bytes
        self._ids = tuple(chosen.ranks)
        self._places = {evaluation_id: place for place, evaluation_id in enumerate(self._ids)}
        self._read = dict.fromkeys(chosen.ranks, 0)
        # The one that goes first is at the top.
        self._kept: list[tuple[int, int, int, str, int]] = []
        self._shown = dict.fromkeys(chosen.ranks, 0)
        self._bytes, self._dropped = 0, 0

    def add(self, evaluation_id: str, result: SampleResult) -> None:
        """Keep a result, if it was chosen; in the order of the data set. One that came later was not."""
        n = self._read[evaluation_id]
        self._read[evaluation_id] = n + 1
        number = self._chosen.keys.get(_key_of(result))
        rank = _OUT if number is None else int(self._chosen.ranks[evaluation_id][number])
        if rank == _OUT:
            return
        text = inline_json(whole_sample_as_data(n, result))
        size = 0 if self._max_bytes is None else json_bytes(text) + _SEPARATOR
        heapq.heappush(self._kept, (-rank, -n, -self._places[evaluation_id], text, size))
        self._shown[evaluation_id] += 1
        self._bytes += size
        while self._max_bytes is not None and self._bytes > self._max_bytes:
            self._drop()

    def _drop(self) -> None:
        _, _, place, _, size = heapq.heappop(self._kept)
        self._shown[self._ids[-place]] -= 1
        self._bytes -= size
        self._dropped += 1

    def block(self, evaluation_id: str) -> str:
        """The samples of an evaluation, as a JSON list in the order of the data set."""
        mine = -self._places[evaluation_id]
        found = sorted((-n, text) for _, n, place, text, _ in self._kept if place == mine)
        return f"[{','.join(text for _, text in found)}]"

    def shown(self, evaluation_id: str) -> int:
        """How many there are in it."""
        return self._shown[evaluation_id]

    def total(self, evaluation_id: str) -> int:
        """How many results the evaluation has."""
        return self._chosen.totals[evaluation_id]

    def left_out(self, evaluation_id: str) -> str | None:
        """What is missing, in words; None if nothing is."""
        shown, total = self.shown(evaluation_id), self.total(evaluation_id)
        if shown >= total:
            return None
        bound = f"{self._max_bytes:,} bytes of samples" if self._dropped else f"{self._chosen.max_samples:,} samples"
        return (
            f"{shown:,} of {total:,} samples are in this file: first those without a score, then wrong ones, then "
            f"those with another verdict in another evaluation, then the rest. The others are left out, as the file "
            f"holds at most {bound}."
        )
