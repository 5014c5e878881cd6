"""Writing a report: where it is read from, which samples it holds, and how large it may be."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import heapq
from array import array
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

import numpy as np

from crucible_bridge.errors import NotFound, ResourceExhausted
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    MAX_COMPARED_EVALUATIONS,
    CompareRequest,
    Evaluation,
    EvaluationComparison,
    EvaluatorInfo,
    Metrics,
    ReportFormat,
    SampleResult,
    Verdict,
)
from crucible_worker.reports.as_html import render_html, sample_block
from crucible_worker.reports.as_json import render_json
from crucible_worker.reports.as_markdown import render_markdown
from crucible_worker.reports.distributions import ResultDistributions
from crucible_worker.reports.facts import MAX_FAILURES
from crucible_worker.reports.metric_keys import Infos
from crucible_worker.reports.page_data import (
    MOST_COMPARED,
    compare_as_data,
    compared_if_possible,
    evaluation_as_data,
    index_as_data,
    results_as_data,
    run_as_data,
    tie_requests,
)
from crucible_worker.reports.plain_json import inline_json, json_bytes, replace_surrogates
from crucible_worker.reports.samples import whole_sample_as_data
from crucible_worker.util.shown_paths import ShownPaths

__all__ = [
    "MAX_SAMPLES",
    "PAGE_SAMPLES",
    "Chosen",
    "ChosenSamples",
    "ReportRequest",
    "ReportSource",
    "SampleChoice",
    "sample_pages",
    "write_report",
]

# Where a report reads what it reports: a worker's own evaluations, or a client of a worker.

PAGE_SAMPLES = 1_000
"""Samples that are read at once."""


class ReportSource(Protocol):
    """Reads evaluations. Its methods raise what the calls of the same names raise."""

    async def get(self, evaluation_id: str) -> Evaluation:
        """An evaluation as it stands."""
        ...

    async def of_run(self, run_id: str) -> Sequence[Evaluation]:
        """Every evaluation of a run."""
        ...

    async def samples(
        self,
        evaluation_id: str,
        *,
        verdicts: Sequence[Verdict] = (),
        page_size: int,
        page_token: str = "",
        records: bool = True,
    ) -> tuple[Sequence[SampleResult], str]:
        """Results of an evaluation in the data set's order, and the token of the next page (empty at the end)."""
        ...

    async def compare(self, request: CompareRequest) -> EvaluationComparison:
        """Evaluations of one data set, beside each other."""
        ...

    async def infos(self, kinds: Iterable[str]) -> Mapping[str, EvaluatorInfo]:
        """What evaluators declare, by kind, of those that are known."""
        ...


class _ShownSource:
    """A source without paths that only mean something on its machine: everything that a report says passes here."""

    def __init__(self, source: ReportSource, paths: ShownPaths) -> None:
        self._source, self._paths = source, paths

    async def get(self, evaluation_id: str) -> Evaluation:
        return self._paths.evaluation(await self._source.get(evaluation_id))

    async def of_run(self, run_id: str) -> Sequence[Evaluation]:
        return [self._paths.evaluation(one) for one in await self._source.of_run(run_id)]

    async def samples(
        self,
        evaluation_id: str,
        *,
        verdicts: Sequence[Verdict] = (),
        page_size: int,
        page_token: str = "",
        records: bool = True,
    ) -> tuple[Sequence[SampleResult], str]:
        page, token = await self._source.samples(
            evaluation_id, verdicts=verdicts, page_size=page_size, page_token=page_token, records=records
        )
        return [self._paths.sample(result) for result in page], token

    async def compare(self, request: CompareRequest) -> EvaluationComparison:
        return self._paths.comparison(await self._source.compare(request))

    async def infos(self, kinds: Iterable[str]) -> Mapping[str, EvaluatorInfo]:
        return await self._source.infos(kinds)


async def sample_pages(
    source: ReportSource, evaluation_id: str, *, records: bool
) -> AsyncIterator[Sequence[SampleResult]]:
    """Every result of an evaluation, page by page.

    Args:
        source: has it.
        evaluation_id: which one.
        records: whether they come with what is recorded of them.
    """
    token = ""
    while True:
        page, token = await source.samples(evaluation_id, page_size=PAGE_SAMPLES, page_token=token, records=records)
        yield page
        if not token:
            return


# Which samples a report holds, if it cannot hold all: those that people look for first.
#
#     choice = SampleChoice(max_samples=20_000)
#     choice.add("e-1", result)               # each result of each evaluation, without its record
#     kept = ChosenSamples(choice.chosen())
#     kept.add("e-1", result)                 # each again, with its record
#     kept.block("e-1")                       # their JSON, in the data set's order
#
# First come samples without a score, then wrong ones, then those whose verdict another evaluation of the report does
# not share, then the rest as the data set has them.

MAX_COMPARED_RESULTS = 500_000
"""Results of samples that are read so that every evaluation of a report can be the baseline of a comparison."""
LISTED_OF_OTHERS = 20
"""Samples, better and worse ones, that are listed of a pair without the first evaluation of a report."""

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
        max_bytes: what they may take together, see `plain_json.json_bytes`; those that were chosen last go first. No
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


_LEFT_OUT_BYTES = 1_000
"""What the page says of one evaluation's samples, at most."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest:
    """What is reported: evaluations, a run, or metrics by themselves."""

    report_format: ReportFormat
    """How."""
    evaluation_ids: Sequence[str] = ()
    """These, in this order."""
    run_id: str | None = None
    """In their place: all of this run, by step."""
    metrics: Metrics | None = None
    """In the place of both: results that no worker has."""
    title: str = ""
    """What the report is called; if empty, what it reports."""
    max_samples: int = MAX_SAMPLES
    """Samples in HTML, of all evaluations together."""


async def write_report(
    source: ReportSource, request: ReportRequest, *, version: str, paths: ShownPaths, max_bytes: int | None = None
) -> str:
    """Write a report.

    Args:
        source: what is reported is read from it.
        request: what, and how.
        version: of the program, which HTML names.
        paths: shortens the paths in it.
        max_bytes: of the report, see `plain_json.json_bytes`: HTML has fewer samples then. No bound if None.

    Raises:
        BridgeError: an evaluation is not there, or cannot be read.
        NotFound: the run has no evaluation (reason UNKNOWN_RUN).
        ResourceExhausted: the report is larger than it may be (reason ANSWER_TOO_LARGE).
    """
    source = _ShownSource(source, paths)
    evaluations = await _evaluations(source, request)
    if request.report_format is ReportFormat.HTML:
        text = await _html(source, request, evaluations, version, max_bytes)
    else:
        failures = {one.evaluation_id: await _failures(source, one.evaluation_id) for one in evaluations}
        answers = await _compare(source, evaluations, pairwise=False)
        text = await asyncio.to_thread(_text, request, evaluations, failures, answers[0] if answers else None)
    if max_bytes is not None and (size := await asyncio.to_thread(json_bytes, text)) > max_bytes:
        raise ResourceExhausted(
            f"the report takes {size:,} bytes, a message at most {max_bytes:,}: report fewer evaluations in one call",
            reason=Reason.ANSWER_TOO_LARGE,
        )
    return text


async def _evaluations(source: ReportSource, request: ReportRequest) -> Sequence[Evaluation]:
    if request.run_id is None:
        return [await source.get(evaluation_id) for evaluation_id in dict.fromkeys(request.evaluation_ids)]
    found = await source.of_run(request.run_id)
    if not found:
        raise NotFound(f"is {request.run_id!r}, which has no evaluation", reason=Reason.UNKNOWN_RUN, field="run_id")
    return sorted(found, key=lambda one: (one.request.step is not None, one.request.step or 0, one.created_unix_ns))


async def _failures(source: ReportSource, evaluation_id: str) -> Sequence[SampleResult]:
    unscored = (Verdict.UNDECIDED, Verdict.ERROR)
    found, _ = await source.samples(evaluation_id, verdicts=unscored, page_size=MAX_FAILURES)
    return found


def _text(
    request: ReportRequest,
    evaluations: Sequence[Evaluation],
    failures: Mapping[str, Sequence[SampleResult]],
    comparison: EvaluationComparison | None,
) -> str:
    render = render_json if request.report_format is ReportFormat.JSON else render_markdown
    return render(evaluations, failures, title=request.title, metrics=request.metrics, comparison=comparison)


async def _html(
    source: ReportSource,
    request: ReportRequest,
    evaluations: Sequence[Evaluation],
    version: str,
    max_bytes: int | None,
) -> str:
    infos = await source.infos({spec.kind for one in evaluations for spec in one.request.evaluators})
    choice = SampleChoice(request.max_samples)
    spreads = {evaluation.evaluation_id: ResultDistributions() for evaluation in evaluations}
    for evaluation_id, spread in spreads.items():
        choice.begin(evaluation_id)
        async for page in sample_pages(source, evaluation_id, records=False):
            await asyncio.to_thread(_count, choice, spread, evaluation_id, page)
    pages = await _pages(source, request, evaluations, infos, spreads)
    chosen = await asyncio.to_thread(choice.chosen)
    left = None
    if max_bytes is not None:
        without = await asyncio.to_thread(lambda: json_bytes(_rendered(pages, ChosenSamples(chosen), version)))
        left = max(0, max_bytes - without - _LEFT_OUT_BYTES * len(evaluations))
    kept = ChosenSamples(chosen, left)
    for evaluation_id in spreads:
        async for page in sample_pages(source, evaluation_id, records=True):
            await asyncio.to_thread(_keep, kept, evaluation_id, page)
    return await asyncio.to_thread(_rendered, pages, kept, version)


def _count(choice: SampleChoice, spread: ResultDistributions, evaluation_id: str, page: Sequence[SampleResult]) -> None:
    for result in page:
        choice.add(evaluation_id, result)
        spread.add(result)


def _keep(kept: ChosenSamples, evaluation_id: str, page: Sequence[SampleResult]) -> None:
    for result in page:
        kept.add(evaluation_id, result)


class _Pages(NamedTuple):
    """What a page shows, besides samples."""

    title: str
    named: str
    home: str
    data: Mapping[str, Any]
    evaluation_ids: Sequence[str]


async def _pages(
    source: ReportSource,
    request: ReportRequest,
    evaluations: Sequence[Evaluation],
    infos: Infos,
    spreads: Mapping[str, ResultDistributions],
) -> _Pages:
    of_runs: dict[str, list[Evaluation]] = {}
    for evaluation in evaluations:
        if evaluation.request.run_id:
            of_runs.setdefault(evaluation.request.run_id, []).append(evaluation)
    runs = {run_id: await _run(source, run_id, found, infos) for run_id, found in of_runs.items()}
    compared = await _compare(source, evaluations)
    newest_first = sorted(evaluations, key=lambda one: -one.created_unix_ns)
    data = await asyncio.to_thread(
        lambda: {
            "index": index_as_data(newest_first, infos),
            "runs": runs,
            "evaluations": {
                one.evaluation_id: evaluation_as_data(one, infos, spreads[one.evaluation_id]) for one in evaluations
            },
            "compare": compare_as_data(compared, infos) if compared else None,
        }
    )
    ids = [evaluation.evaluation_id for evaluation in evaluations]
    title = request.title or _title(request, ids)
    if request.metrics is not None:
        results = results_as_data(title, request.metrics)
        data = {**data, "evaluations": {title: results}, "index": {"runs": [], "evaluations": [results], "more": False}}
        return _Pages(title, request.title, _address("evaluation", title), data, ())
    return _Pages(title, request.title, _home(request, ids, data), data, ids)


async def _run(source: ReportSource, run_id: str, evaluations: Sequence[Evaluation], infos: Infos) -> Mapping[str, Any]:
    answers = [await compared_if_possible(source.compare, request) for request in tie_requests(evaluations, infos)]
    pairs = [pair for answer in answers if answer is not None for pair in answer.comparisons]
    return await asyncio.to_thread(run_as_data, run_id, evaluations, infos, pairs)


async def _compare(
    source: ReportSource, evaluations: Sequence[Evaluation], *, pairwise: bool = True
) -> Sequence[EvaluationComparison]:
    """Those of the first data set that have ended: with the first of them, and with each other while these are few.

    Args:
        source: what compares.
        evaluations: what is reported.
        pairwise: whether they are compared with each other.
    """
    ended = [one for one in evaluations if one.state.terminal and one.dataset_fingerprint]
    alike = {one.evaluation_id: one for one in ended if one.dataset_fingerprint == ended[0].dataset_fingerprint}
    ids = tuple(alike)[:MAX_COMPARED_EVALUATIONS]
    if len(ids) < 2:
        return ()
    requests = [CompareRequest(evaluation_ids=ids)]
    if pairwise and len(ids) * sum(alike[one].done for one in ids) <= MAX_COMPARED_RESULTS:
        requests += [
            CompareRequest(evaluation_ids=ids, baseline_id=one, max_listed=LISTED_OF_OTHERS) for one in ids[1:]
        ]
    answers = [await compared_if_possible(source.compare, request) for request in requests]
    # They are refused together, if at all: for their data set, or the number of their samples.
    return [answer for answer in answers if answer is not None]


def _title(request: ReportRequest, ids: Sequence[str]) -> str:
    if request.run_id is not None:
        return f"Run {request.run_id}"
    if request.metrics is not None:
        return "Results"
    return f"Evaluation {ids[0]}" if len(ids) == 1 else f"{len(ids):,} evaluations"


def _home(request: ReportRequest, ids: Sequence[str], data: Mapping[str, Any]) -> str:
    """The address that a reader sees first."""
    if len(ids) == 1:
        return _address("evaluation", ids[0])
    if request.run_id is not None:
        return _address("run", request.run_id)
    compare = data["compare"]
    held = [] if compare is None else [one["id"] for one in compare["evaluations"]]
    listed = ",".join(map(_listed_id, ids))
    return _address("compare", listed) if held == list(ids) and len(ids) <= MOST_COMPARED else "#/"


def _listed_id(one: str) -> str:
    """An id in a list with commas between the ids."""
    return one.replace("%", "%25").replace(",", "%2C")


def _address(page: str, part: str) -> str:
    return f"#/{page}/{quote(replace_surrogates(part), safe='')}"


def _rendered(pages: _Pages, kept: ChosenSamples, version: str) -> str:
    now = datetime.datetime.now(datetime.UTC)
    samples = {
        one: {
            "block": sample_block(place),
            "total": kept.total(one),
            "shown": kept.shown(one),
            "left_out": kept.left_out(one),
        }
        for place, one in enumerate(pages.evaluation_ids)
    }
    title = replace_surrogates(pages.title)
    data = {
        "door": "file",
        "most_compared": MOST_COMPARED,
        "created": now.timestamp(),
        "title": title,
        "home": pages.home,
        **pages.data,
        "samples": samples,
        "about": {"version": version},
    }
    written = f"report of {now:%Y-%m-%d %H:%M} UTC, crucible-bridge {version}"
    # What a page is called changes with the page that is looked at; the report's own title stays.
    subtitle = " · ".join(filter(None, (replace_surrogates(pages.named), written)))
    return render_html(title, subtitle, data, [kept.block(one) for one in pages.evaluation_ids])
