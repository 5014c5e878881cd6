"""What services do by themselves: pages, names, what the worker says of itself."""

import importlib.metadata
from typing import Any

import pytest

from crucible_bridge.errors import Code
from crucible_bridge.types import ReportFormat, bounds
from crucible_bridge.v1 import (
    evaluation_pb2,
    events_pb2,
    worker_pb2,
)
from crucible_worker.reports.writing import MAX_SAMPLES
from crucible_worker.rpc.evaluation import EVALUATIONS_DEFAULT, EVALUATIONS_MAX, SAMPLES_DEFAULT, SAMPLES_MAX
from crucible_worker.util.limits import WorkerLimits
from tests.service.server_kit import LOG_ID, error_of, evaluate_request, serving, settings_for
from tests.tables import rows

pytestmark = pytest.mark.core


@pytest.fixture
async def rig(tmp_path):
    """A worker."""
    async with serving(settings_for(tmp_path)) as rig:
        yield rig


@pytest.fixture
def stub(rig):
    """Its evaluations."""
    return rig.evaluation


# Any: what a peer could send, its own code would not let it write.
anything: Any = evaluation_pb2

MANY = [str(n) for n in range(bounds.GENERATE_REPORT_REQUEST_METRICS_MAX_COUNT + 1)]

PAGED = [
    ("ListEvaluations", evaluation_pb2.ListEvaluationsRequest(), EVALUATIONS_DEFAULT, EVALUATIONS_MAX),
    ("GetSamples", evaluation_pb2.GetSamplesRequest(evaluation_id="e1"), SAMPLES_DEFAULT, SAMPLES_MAX),
]


@pytest.mark.parametrize(("method", "request_", "default", "largest"), PAGED)
async def test_pages_up_to_the_limit_are_given(rig, stub, method, request_, default, largest):
    """An unset page size is the default, the largest is accepted."""
    for size in (0, 1, largest):
        request_.page_size = size
        await getattr(stub, method)(request_)

    assert rig.evaluations.listed == [default, 1, largest]


@pytest.mark.parametrize(("method", "request_", "default", "largest"), PAGED)
async def test_other_pages_are_refused(rig, stub, method, request_, default, largest):
    """One more than the largest, or less than none, names the field."""
    for size in (-1, largest + 1):
        request_.page_size = size
        error = await error_of(getattr(stub, method)(request_))
        assert (error.code, error.field) == (Code.INVALID_ARGUMENT, "page_size")

    assert rig.evaluations.listed == []


@rows(
    ("method", "request_", "field"),
    [
        ("GetEvaluation", evaluation_pb2.GetEvaluationRequest(), "evaluation_id"),
        ("GetSamples", evaluation_pb2.GetSamplesRequest(), "evaluation_id"),
        ("CancelEvaluation", evaluation_pb2.CancelEvaluationRequest(), "evaluation_id"),
        ("GenerateReport", evaluation_pb2.GenerateReportRequest(), "evaluation_ids"),
        ("GenerateReport", evaluation_pb2.GenerateReportRequest(evaluation_ids=["e1"]), "format"),
        ("GenerateReport", anything.GenerateReportRequest(evaluation_ids=["e1"], format=7), "format"),
        ("GenerateReport", anything.GenerateReportRequest(evaluation_ids=["e1"], run_id="r", format=1), "run_id"),
        ("GenerateReport", anything.GenerateReportRequest(run_id="r", metrics={"a": 1}, format=1), "metrics"),
        ("GenerateReport", anything.GenerateReportRequest(run_id="r", format=3, max_samples=-1), "max_samples"),
        ("GenerateReport", anything.GenerateReportRequest(run_id="r", format=3, title="t" * 1001), "title"),
        ("GenerateReport", anything.GenerateReportRequest(metrics={"k" * 1001: 1}, format=3), "metrics"),
        ("GenerateReport", anything.GenerateReportRequest(metrics=dict.fromkeys(MANY, 1), format=3), "metrics"),
        ("ListEvaluations", anything.ListEvaluationsRequest(states=[0]), "states[0]"),
        ("GetSamples", anything.GetSamplesRequest(evaluation_id="e1", verdicts=[1, 99]), "verdicts[1]"),
        ("Evaluate", evaluation_pb2.EvaluateRequest(), "model"),
        ("StartEvaluation", evaluation_pb2.StartEvaluationRequest(), "model"),
    ],
)
async def test_a_wrong_field_is_named(stub, method, request_, field):
    """What is missing or unknown is INVALID_ARGUMENT with the field's path."""
    error = await error_of(getattr(stub, method)(request_))

    assert (error.code, error.field) == (Code.INVALID_ARGUMENT, field)


async def test_a_large_request_is_decoded_as_any_other(rig, stub):
    """A request that a thread decodes is the same evaluation."""
    request = evaluate_request("large")
    request.dataset.ClearField("builtin")
    samples = [evaluation_pb2.Sample(id=str(n), text="x" * 2_000) for n in range(1_000)]
    request.dataset.inline.samples.extend(samples)
    rig.evaluations.gate.set()

    answer = await stub.Evaluate(request)

    assert answer.evaluation.evaluation_id == "large"


async def test_a_report_is_handed_out(stub):
    """GenerateReport passes ids and format on, in order."""
    request = evaluation_pb2.GenerateReportRequest(
        evaluation_ids=["b", "a"], format=evaluation_pb2.REPORT_FORMAT_MARKDOWN
    )

    assert (await stub.GenerateReport(request)).report == "markdown: b, a"


async def test_a_report_is_asked_for_as_it_was_written(rig, stub):
    """Every field arrives; what is not given is the default; what is not finite is undefined."""
    metrics = {"b": 0.5, "a": float("inf")}
    await stub.GenerateReport(anything.GenerateReportRequest(format=3, metrics=metrics, title="t", max_samples=5))
    await stub.GenerateReport(anything.GenerateReportRequest(format=2, run_id="r"))
    (first, room), (second, _) = rig.evaluations.reported

    assert (first.report_format, first.title, first.max_samples) == (ReportFormat.HTML, "t", 5)
    assert (first.metrics.values, first.metrics.undefined) == ({"b": 0.5}, {"a": "is inf, not finite"})
    assert (first.evaluation_ids, first.run_id) == ((), None)
    assert (second.report_format, second.run_id, second.metrics) == (ReportFormat.JSON, "r", None)
    assert second.max_samples == MAX_SAMPLES
    assert room < WorkerLimits().max_message_bytes


async def test_events_come_in_batches_with_their_position(rig, stub):
    """A batch holds the page's events with their sequences, the log's identity and how far it has looked."""
    watch = aiter(stub.WatchEvaluation(evaluation_pb2.WatchEvaluationRequest(evaluation_id="e1")))
    subscription = aiter(rig.telemetry.Subscribe(events_pb2.SubscribeRequest()))

    for batch in (await anext(watch), await anext(subscription)):
        assert [event.sequence for event in batch.events] == [1]
        assert (batch.log_id, batch.through_sequence) == (LOG_ID, 1)


async def test_unknown_kinds_of_events_are_refused(rig):
    """A kind that the catalogue lacks is named."""
    stub = rig.telemetry

    error = await error_of(anext(aiter(stub.Subscribe(events_pb2.SubscribeRequest.FromString(b"\x12\x02\x01\x4d")))))

    assert (error.code, error.field) == (Code.INVALID_ARGUMENT, "kinds[1]")


async def test_the_worker_describes_itself(rig):
    """GetInfo tells identity, versions, parts, limits and load."""
    worker = (await rig.about.GetInfo(worker_pb2.GetInfoRequest())).worker

    assert (worker.worker_id, worker.log_id, worker.last_sequence) == ("worker-1", LOG_ID, 3)
    assert (worker.running, worker.queued, worker.calls, worker.draining) == (1, 2, 0, False)
    assert worker.version == importlib.metadata.version("crucible-bridge")
    assert {"python", "grpcio", "protobuf", "numpy"} <= set(worker.versions)
    assert [backend.name for backend in worker.backends] == ["scripted"]
    assert (list(worker.evaluators), list(worker.datasets)) == (["nll"], ["arithmetic"])
    assert worker.limits["max_message_bytes"] == 64 * 1024 * 1024
