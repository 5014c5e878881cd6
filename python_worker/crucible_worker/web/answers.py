"""What the live pages ask for, answered by the worker's own calls."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from starlette.datastructures import QueryParams

from crucible_bridge.errors import InvalidField, NotFound, clipped
from crucible_bridge.types import (
    CompareRequest,
    Evaluation,
    EvaluationComparison,
    EvaluatorInfo,
    PairedComparison,
    SampleOrder,
    SampleResult,
    SampleRow,
    Verdict,
    bounds,
)
from crucible_worker.reports.page_data import (
    MOST_COMPARED,
    checkpoints_as_data,
    compare_as_data,
    compared_if_possible,
    evaluation_as_data,
    index_as_data,
    run_as_data,
    runs_as_data,
    tie_requests,
)
from crucible_worker.reports.plain_json import replace_surrogates
from crucible_worker.reports.samples import answers_as_data, whole_sample_as_data
from crucible_worker.web.readings import SampleReadings

if TYPE_CHECKING:
    from crucible_bridge import Bridge

__all__ = ["Answer", "PageData"]

LISTED = 100
"""Evaluations on a page of the list."""
RUNS = 200
"""Runs on a page of the list, the newest."""
CHECKPOINTS = 1_000
"""Checkpoints on the page of a run, the first by step."""
MAX_ROWS = 1_000
"""Of a page of samples."""
MAX_WHERE = bounds.DATASET_WHERE_MAX_COUNT
"""Columns of a query of samples."""
MAX_REPEATS = 100
"""Of a sample, in a column of answers."""
MAX_SEARCH_MS = 600_000
"""Of a search."""
_NEAR = 4
"""Samples that are read to find one of them at its token."""
_TIES = 200
_LISTED_CHANGES = 100

_FILTERS: Mapping[str, Sequence[Verdict]] = {
    "": (),
    "all": (),
    "wrong": (Verdict.INCORRECT,),
    "unscored": tuple(verdict for verdict in Verdict if not verdict.scored),
    "truncated": (),
    "changed": (),
}
_ORDERS = {
    "": None,
    "n": None,
    "score": SampleOrder.SCORE,
    "tokens": SampleOrder.OUTPUT_TOKENS,
    "seconds": SampleOrder.DURATION,
    "id": SampleOrder.SAMPLE_ID,
}

Answer = Callable[[QueryParams], Awaitable[Mapping[str, Any]]]


class PageData:
    """The data of each page, as `reports` makes them for report files too."""

    def __init__(self, bridge: Bridge, readings: SampleReadings) -> None:
        """Answer from a worker.

        Args:
            bridge: the worker.
            readings: count its samples.
        """
        self._bridge = bridge
        self._readings = readings
        self._infos: Mapping[str, EvaluatorInfo] | None = None
        # Ended evaluations do not change, so neither do their comparisons.
        self._ties: collections.OrderedDict[CompareRequest, Sequence[PairedComparison]] = collections.OrderedDict()

    def by_name(self) -> Mapping[str, Answer]:
        """The answers by the last part of their address."""
        return {
            "index": self.index,
            "run": self.run,
            "evaluation": self.evaluation,
            "samples": self.samples,
            "sample": self.sample,
            "compare": self.compare,
            "answers": self.answers,
        }

    async def index(self, query: QueryParams) -> Mapping[str, Any]:
        """Runs, a page of evaluations, and the replicas that the worker uses."""
        offset = _count(query, "offset", 0, most=10_000_000)
        found: list[Evaluation] = []
        async for evaluation in self._bridge.evaluation.all_evaluations():
            found.append(evaluation)
            if len(found) > offset + LISTED:
                break
        more = len(found) > offset + LISTED
        data = index_as_data(found[offset : offset + LISTED], await self._declared(), more=more)
        # What a run has measured is known longer than its evaluations.
        runs = await self._bridge.evaluation.list_runs(page_size=RUNS)
        fleets = [dataclasses.asdict(fleet) for fleet in (await self._bridge.worker.get_info()).fleets]
        return {
            **data,
            "runs": runs_as_data(runs.runs),
            "more_runs": bool(runs.next_page_token),
            "fleets": fleets,
        }

    async def run(self, query: QueryParams) -> Mapping[str, Any]:
        """A run with its series."""
        run_id = _named(query, "run")
        # Refused if no evaluation of the run is known, even one that is no longer retained.
        known = await self._bridge.evaluation.list_runs(run_id=run_id, page_size=CHECKPOINTS)
        found = [one async for one in self._bridge.evaluation.all_evaluations(run_id=run_id)]
        infos = await self._declared()
        ties = [pair for request in tie_requests(found, infos) for pair in await self._tied(request)]
        checkpoints = checkpoints_as_data(known.runs[0], known.checkpoints)
        more = bool(known.next_page_token)
        data = run_as_data(run_id, found, infos, ties)
        return {**data, "checkpoints": checkpoints, "more_checkpoints": more}

    async def evaluation(self, query: QueryParams) -> Mapping[str, Any]:
        """An evaluation, with how its samples are spread as far as they have been read."""
        evaluation_id = _named(query, "id")
        evaluation = await self._bridge.evaluation.get_evaluation(evaluation_id)
        distributions, complete = await self._readings.distributions(evaluation_id)
        data = evaluation_as_data(evaluation, await self._declared(), distributions)
        return {**data, "complete": complete}

    async def samples(self, query: QueryParams) -> Mapping[str, Any]:
        """A table of samples: those that match, sorted."""
        shown, order = query.get("filter", ""), query.get("sort", "")
        for name, value, known in (("filter", shown, _FILTERS), ("sort", order, _ORDERS)):
            if value not in known:
                raise InvalidField(name, f"is {clipped(value)}, must be one of {', '.join(filter(None, known))}")
        other = _named(query, "other") if shown == "changed" else None
        async with self._readings.paused():
            found = await self._bridge.evaluation.find_samples(
                _named(query, "id"),
                search=query.get("search", ""),
                evaluator=query.get("evaluator") or None,
                verdicts=_FILTERS[shown],
                stop_reason="length" if shown == "truncated" else None,
                changed_from=other,
                metadata=_where(query.getlist("where")),
                order_by=_ORDERS[order],
                descending=query.get("descending", "") not in ("", "0"),
                offset=_count(query, "offset", 0, most=10_000_000),
                limit=_count(query, "limit", 100, most=MAX_ROWS),
                within_ms=_count(query, "within", 0, most=MAX_SEARCH_MS),
            )
        return {
            "rows": [_row(row) for row in found.rows],
            "matching": found.matching,
            "searched": found.searched,
            "total": found.total,
            "fields": {field.key: None if field.values_left_out else field.values for field in found.fields},
        }

    async def sample(self, query: QueryParams) -> Mapping[str, Any]:
        """A sample whole."""
        evaluation_id, evaluator, sample_id = (_named(query, name) for name in ("id", "evaluator", "sample"))
        repeat = _count(query, "repeat", 0, most=10_000_000)
        for row in await self._rows(evaluation_id, evaluator, sample_id):
            if row.repeat == repeat and (result := await self._whole(evaluation_id, row)) is not None:
                return whole_sample_as_data(row.n, result)
        raise NotFound(f"evaluation {evaluation_id!r} has no result of sample {sample_id!r} by {evaluator!r}")

    async def compare(self, query: QueryParams) -> Mapping[str, Any]:
        """Evaluations next to each other; the first one is the baseline."""
        ids = _ids(query)
        comparison = await self._bridge.evaluation.compare_evaluations(
            ids, baseline_id=ids[0], max_listed=_LISTED_CHANGES
        )
        return compare_as_data([comparison], await self._declared())

    async def answers(self, query: QueryParams) -> Mapping[str, Any]:
        """What several evaluations made of one sample."""
        evaluator, sample_id = _named(query, "evaluator"), _named(query, "sample")

        async def of(evaluation_id: str) -> tuple[Evaluation, Sequence[SampleResult]]:
            evaluation = await self._bridge.evaluation.get_evaluation(evaluation_id)
            rows = await self._rows(evaluation_id, evaluator, sample_id)
            results = [await self._whole(evaluation_id, row) for row in rows[:MAX_REPEATS]]
            return evaluation, [result for result in results if result is not None]

        return answers_as_data(evaluator, sample_id, await asyncio.gather(*map(of, _ids(query, least=1))))

    async def _rows(self, evaluation_id: str, evaluator: str, sample_id: str) -> Sequence[SampleRow]:
        """The results of a sample, one for each repeat; none if the evaluation does not have it (yet)."""
        async with self._readings.paused():
            found = await self._bridge.evaluation.find_samples(
                evaluation_id, evaluator=evaluator, sample_id=sample_id, limit=MAX_ROWS
            )
        return found.rows

    async def _whole(self, evaluation_id: str, row: SampleRow) -> SampleResult | None:
        """A result with its record; None if it is gone meanwhile."""
        token = row.page_token
        while True:
            page = await self._bridge.evaluation.get_samples(evaluation_id, page_size=_NEAR, page_token=token)
            for result in page.items:
                if (result.evaluator, replace_surrogates(result.sample_id), result.repeat) == (
                    row.evaluator,
                    row.sample_id,
                    row.repeat,
                ):
                    return result
            if not (token := page.next_page_token):  # others may have come before it
                return None

    async def _declared(self) -> Mapping[str, EvaluatorInfo]:
        """What the worker's evaluators declare, by kind."""
        if self._infos is None:
            self._infos = {info.kind: info for info in await self._bridge.evaluation.list_evaluators()}
        return self._infos

    async def _tied(self, request: CompareRequest) -> Sequence[PairedComparison]:
        if request in self._ties:
            self._ties.move_to_end(request)
            return self._ties[request]
        comparison = await compared_if_possible(self._asked, request)
        self._ties[request] = () if comparison is None else comparison.comparisons
        if len(self._ties) > _TIES:
            self._ties.popitem(last=False)
        return self._ties[request]

    async def _asked(self, request: CompareRequest) -> EvaluationComparison:
        return await self._bridge.evaluation.compare_evaluations(
            request.evaluation_ids,
            baseline_id=request.baseline_id,
            evaluator=request.evaluator,
            max_listed=request.max_listed,
        )


def _row(row: SampleRow) -> Mapping[str, Any]:
    """A result as `row_as_data` makes it of a whole one, for the table."""
    return {
        "n": row.n,
        "evaluator": row.evaluator,
        "id": row.sample_id,
        "repeat": row.repeat,
        "verdict": row.verdict.value,
        "score": row.score,
        "input": row.input,
        "output": row.output,
        "extracted": row.extracted,
        "target": row.target,
        "stop": row.stop_reason,
        "tokens": row.output_tokens,
        "seconds": row.duration_ns / 1e9 if row.duration_ns > 0 else None,
        "reason": row.reason,
    }


def _named(query: QueryParams, name: str) -> str:
    value = query.get(name, "")
    if not value:
        raise InvalidField(name, "is missing")
    return value


def _count(query: QueryParams, name: str, default: int, *, most: int) -> int:
    text = query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 12 and int(text) <= most):
        raise InvalidField(name, f"is {clipped(text)}, must be a number from 0 to {most:,}")
    return int(text)


def _ids(query: QueryParams, *, least: int = 2) -> Sequence[str]:
    ids = list(dict.fromkeys(map(unquote, filter(None, query.get("ids", "").split(",")))))
    if not least <= len(ids) <= MOST_COMPARED:
        raise InvalidField(
            "ids", f"names {len(ids)} evaluations, must name {least} to {MOST_COMPARED}, with commas between them"
        )
    return ids


def _where(texts: Sequence[str]) -> Mapping[str, str]:
    if len(texts) > MAX_WHERE:
        raise InvalidField("where", f"is given {len(texts):,} times, must be given at most {MAX_WHERE}")
    pairs = dict(map(_pair, texts))
    if len(pairs) < len(texts):
        raise InvalidField("where", "names a column twice: no sample has two values of it")
    return pairs


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not (key and sign):
        raise InvalidField("where", f"is {clipped(text)}, must be a column and a value: level=3")
    return key, value
