"""Where a report reads what it reports: a worker's own evaluations, or a client of a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Protocol

from crucible_bridge.types import (
    CompareRequest,
    Evaluation,
    EvaluationComparison,
    EvaluatorInfo,
    SampleResult,
    Verdict,
)

__all__ = ["PAGE_SAMPLES", "ReportSource", "sample_pages"]

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
