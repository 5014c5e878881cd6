"""Every evaluation that this worker knows: what services, CLI and tests call.

DRAFT of the surface; the implementation follows.
"""
from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Sequence

from crucible_bridge.events import EventKind
from crucible_bridge.types import Evaluation, EvaluateRequest, EvaluationState, SampleResult, Verdict


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Committed events in order, as the journal keeps them."""

    records: Sequence[tuple[int, bytes]]
    """Sequence and encoded event (crucible_bridge.codec.events.event_to_record; the sequence is not inside)."""
    log_id: str
    through_sequence: int


class Evaluations:
    async def start(self, request: EvaluateRequest) -> tuple[Evaluation, bool]:
        """Start or go on; the flag says that it was there already."""
        ...
    async def evaluate(self, request: EvaluateRequest) -> Evaluation:
        """Start and wait for the end; goes on itself when the owner dies."""
        ...
    async def get(self, evaluation_id: str) -> Evaluation: ...
    async def list(self, *, run_id: str | None, states: Sequence[EvaluationState], from_step: int | None, to_step: int | None,
                   page_size: int, page_token: str) -> tuple[Sequence[Evaluation], str]: ...
    async def samples(self, evaluation_id: str, *, verdicts: Sequence[Verdict], evaluator: str | None,
                      page_size: int, page_token: str) -> tuple[Sequence[SampleResult], str]: ...
    async def cancel(self, evaluation_id: str, reason: str) -> Evaluation: ...
    def watch(self, evaluation_id: str, *, after_sequence: int, log_id: str, without_samples: bool) -> AsyncIterator[EventPage]: ...
    def subscribe(self, *, after_sequence: int, log_id: str, kinds: Sequence[EventKind], run_id: str | None,
                  until_now: bool) -> AsyncIterator[EventPage]: ...
    async def drain(self) -> Sequence[str]:
        """Refuse new evaluations, interrupt those at work, return their ids once that is committed."""
        ...
