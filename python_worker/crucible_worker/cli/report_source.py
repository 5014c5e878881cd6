"""The source of a command's report: a worker, read by its client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crucible_bridge import Bridge
    from crucible_bridge.types import (
        CompareRequest,
        Evaluation,
        EvaluationComparison,
        EvaluatorInfo,
        SampleResult,
        Verdict,
    )

__all__ = ["BridgeSource"]


class BridgeSource:
    """Reads page by page, so that no message limits the size of a report; see `reports.source.ReportSource`."""

    def __init__(self, bridge: Bridge) -> None:
        """Read from this worker."""
        self._evaluation = bridge.evaluation

    async def get(self, evaluation_id: str) -> Evaluation:
        """An evaluation in its current state."""
        return await self._evaluation.get_evaluation(evaluation_id)

    async def of_run(self, run_id: str) -> Sequence[Evaluation]:
        """Every evaluation of a run."""
        return [evaluation async for evaluation in self._evaluation.all_evaluations(run_id=run_id)]

    async def samples(
        self,
        evaluation_id: str,
        *,
        verdicts: Sequence[Verdict] = (),
        page_size: int,
        page_token: str = "",
        records: bool = True,
    ) -> tuple[Sequence[SampleResult], str]:
        """A page of results, and the token of the next one."""
        page = await self._evaluation.get_samples(
            evaluation_id,
            verdicts=verdicts,
            page_size=page_size,
            page_token=page_token,
            without_records=not records,
        )
        return page.items, page.next_page_token

    async def compare(self, request: CompareRequest) -> EvaluationComparison:
        """The comparison of evaluations of one data set."""
        return await self._evaluation.compare_evaluations(
            request.evaluation_ids,
            baseline_id=request.baseline_id,
            evaluator=request.evaluator,
            max_listed=request.max_listed,
        )

    async def infos(self, kinds: Iterable[str]) -> Mapping[str, EvaluatorInfo]:
        """The declarations of known evaluators, by kind."""
        wanted = set(kinds)
        return {info.kind: info for info in await self._evaluation.list_evaluators() if info.kind in wanted}
