"""TelemetryService, typed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crucible_bridge.client.calls import Calls
from crucible_bridge.client.plain_calls import PlainTelemetryCalls
from crucible_bridge.client.streams import EventStream
from crucible_bridge.codec.events import event_kind_to_v1
from crucible_bridge.codec.fields import made, sendable, several
from crucible_bridge.events import EventKind
from crucible_bridge.v1 import events_pb2, events_pb2_grpc

__all__ = ["TelemetryClient"]


class TelemetryClient(PlainTelemetryCalls):
    """The event log."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._stub: Any = events_pb2_grpc.TelemetryServiceStub(calls.channel)

    def subscribe(
        self,
        after_sequence: int = 0,
        log_id: str | None = None,
        kinds: Sequence[EventKind] = (),
        run_id: str | None = None,
        until_now: bool = False,
        records: bool = False,
    ) -> EventStream:
        """Every event after a sequence, as it is committed; kinds that this version does not know are skipped.

        Reading raises OutOfRange if the sequence is no longer retained, FailedPrecondition if the log is another.

        Args:
            after_sequence: 0 for everything retained.
            log_id: the log that this sequence belongs to; unchecked if None.
            kinds: only these; all if empty.
            run_id: only this run.
            until_now: end at the log's end, in place of waiting for more.
            records: send the result of each sample with its SAMPLE_COMPLETE, as `sample_result`.
        """
        with sendable("kinds"):
            wanted = [event_kind_to_v1(EventKind(kind)) for kind in several(kinds, "kinds")]
        request = made(
            events_pb2.SubscribeRequest,
            "",
            after_sequence=after_sequence,
            kinds=wanted,
            run_id=run_id,
            log_id=log_id or "",
            until_now=until_now,
            new_kinds=True,
            records=records,
        )
        return self._calls.events(self._stub.Subscribe, request, after_sequence=after_sequence, log_id=log_id or "")
