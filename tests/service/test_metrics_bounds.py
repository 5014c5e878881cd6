"""What a call of MetricsService may ask for, and which of them the event loop never waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import grpc.aio
import numpy as np
import pytest

from crucible_bridge.channel import channel_options
from crucible_bridge.errors import Code, ResourceExhausted
from crucible_bridge.v1 import metrics_pb2 as pb
from crucible_bridge.v1 import metrics_pb2_grpc
from crucible_worker.metrics.pass_at_k import MAX_KS, MAX_SAMPLES_PER_PROBLEM, pass_at_k
from crucible_worker.rpc import metrics as service
from crucible_worker.testing import run_worker
from crucible_worker.util.limits import MIN_MESSAGE_BYTES, WorkerLimits
from tests.service.metrics_kit import CALLS, COLUMNS, datum, put, tensor
from tests.service.server_kit import error_of
from tests.tables import rows

LIMIT = 2


def _one_more(request: Any) -> None:
    """Another sequence, without a token."""
    put(request.columns.lengths, tensor(2, 1, 0, dtype="i8"))


SEQUENCES: list[tuple[str, str, Callable[[Any], object]]] = [
    *((call, "columns.lengths", _one_more) for call in COLUMNS),
    ("ComputeKLSampleTrain", "data", lambda m: (m.data.append(datum()), m.training_logprobs.append(tensor(-1, -1)))),
    ("ComputeKLPostUpdate", "data", lambda m: (m.data.append(datum()), m.updated.given.tensors.append(tensor(-1, -1)))),
    ("IncorporateKLPenalty", "data", lambda m: (m.data.append(datum()), m.base.given.tensors.append(tensor(-1, -1)))),
    ("ComputeMeanNLL", "logprobs", lambda m: (m.logprobs.extend([tensor(-1)] * 2), m.weights.extend([tensor(1)] * 2))),
]


@rows(("call", "field", "change"), SEQUENCES, ids=[f"{row[0]}:{row[1]}" for row in SEQUENCES])
async def test_more_sequences_than_the_limit_are_refused(call: str, field: str, change: Callable[[Any], object]):
    """As many as GetInfo tells are answered; with one more, the field says where they are."""
    request = (COLUMNS if field == "columns.lengths" else CALLS)[call]()
    async with (
        run_worker({}, limits=WorkerLimits(max_sequences_per_call=LIMIT)) as worker,
        grpc.aio.insecure_channel(worker.address, options=channel_options()) as channel,
    ):
        method = getattr(metrics_pb2_grpc.MetricsServiceStub(channel), call)
        await method(request)
        change(request)
        error = await error_of(method(request))
        told = (await worker.bridge.worker.get_info()).limits["max_sequences_per_call"]

    assert (error.code, error.field, told) == (Code.INVALID_ARGUMENT, field, LIMIT)
    assert error.message == "has 3 sequences, at most 2 are accepted"


async def test_an_answer_above_the_message_limit_is_ours_to_refuse():
    """A label has three keys: the answer is larger than the request. The error says so, and nothing is told of it."""
    labels = [str(number) for number in range(5_000)]
    async with run_worker({}, limits=WorkerLimits(max_message_bytes=MIN_MESSAGE_BYTES)) as worker:
        with pytest.raises(ResourceExhausted) as caught:
            await worker.bridge.metrics.compute_classification_metrics(labels, labels)
        written = (await worker.bridge.worker.get_info()).last_sequence

    assert (caught.value.reason, caught.value.retryable, written) == ("ANSWER_TOO_LARGE", False, 0)
    assert f"a message has at most {MIN_MESSAGE_BYTES:,}" in caught.value.message


@pytest.mark.parametrize(("ks", "thread"), [(range(1, 4), "MainThread"), (range(6_950, 6_950 + MAX_KS), "messages_0")])
async def test_pass_at_k_is_a_threads_where_it_takes_long(monkeypatch: pytest.MonkeyPatch, ks: range, thread: str):
    """Few bytes may ask for much: what it takes decides, not the size."""
    names: list[str] = []

    def noted(*arguments: Any) -> Any:
        names.append(threading.current_thread().name)
        return pass_at_k(*arguments)

    monkeypatch.setattr(service, "pass_at_k", noted)
    samples = [MAX_SAMPLES_PER_PROBLEM] * 3
    async with run_worker({}) as worker:
        metrics = await worker.bridge.metrics.compute_pass_at_k(samples, [7_000] * 3, ks)

    assert len(metrics.values) == len(ks)
    assert names == [thread]


async def test_the_largest_number_of_draws_is_a_limit():
    """What would take minutes is refused, with the field."""
    problems = 2_000
    request = pb.ComputePassAtKRequest(
        samples=tensor(*[MAX_SAMPLES_PER_PROBLEM] * problems, dtype="i4"),
        successes=tensor(*np.arange(900, 900 + problems).tolist(), dtype="i4"),
        k=range(900, 900 + MAX_KS),
    )
    async with run_worker({}) as worker, grpc.aio.insecure_channel(worker.address) as channel:
        error = await error_of(metrics_pb2_grpc.MetricsServiceStub(channel).ComputePassAtK(request))

    assert (error.code, error.field) == (Code.INVALID_ARGUMENT, "k")
