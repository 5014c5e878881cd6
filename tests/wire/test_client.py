"""The client against a real server: arguments arrive, frozen values and the right errors come back."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

import crucible_bridge
from crucible_bridge import codec
from crucible_bridge.channel import MAX_MESSAGE_BYTES
from crucible_bridge.client import StartedEvaluation, request_of
from crucible_bridge.errors import (
    AlreadyExists,
    BackendError,
    BridgeError,
    DeadlineExceeded,
    FailedPrecondition,
    InternalError,
    InvalidField,
    NotFound,
    ResourceExhausted,
    Unavailable,
    Unimplemented,
)
from crucible_bridge.types import (
    Datum,
    DrainReport,
    EmbeddedModel,
    EvaluateRequest,
    Evaluation,
    EvaluationState,
    EvaluatorInfo,
    EvaluatorKind,
    EvaluatorSpec,
    Metrics,
    ReportFormat,
    Sample,
    SampleResult,
    SamplingParams,
    Verdict,
    WorkerInfo,
)
from crucible_bridge.v1 import evaluation_pb2, worker_pb2
from tests.tables import rows
from tests.wire.conftest import CannedWorker

REQUEST = EvaluateRequest(
    evaluation_id="e-1",
    model=EmbeddedModel("arithmetic@320"),
    evaluators=(EvaluatorSpec(kind="nll"), EvaluatorSpec(kind="accuracy", name="acc", options={"grader": "numeric"})),
    dataset=crucible_bridge.types.Dataset.of("builtin:arithmetic"),
    sampling=SamplingParams(max_tokens=8),
)
EVALUATION = Evaluation(
    evaluation_id="e-1",
    state=EvaluationState.COMPLETED,
    request=REQUEST,
    metrics=Metrics({"nll": 0.25}, {"acc/x": "none"}),
)
RESULTS = tuple(SampleResult(evaluator="acc", sample_id=str(n), verdict=Verdict.CORRECT, score=1.0) for n in range(3))


async def test_a_short_request_is_the_long_one(worker: CannedWorker, address: str):
    """Texts for model, evaluators and data set say the same as the types."""
    worker.replies["Evaluate"] = evaluation_pb2.EvaluateResponse(evaluation=codec.evaluation_to_v1(EVALUATION))

    async with crucible_bridge.connect(address) as bridge:
        result = await bridge.evaluation.evaluate(REQUEST)
        again = await bridge.evaluation.evaluate(
            evaluation_id="e-1",
            model="embedded:arithmetic@320",
            evaluators=["nll", REQUEST.evaluators[1]],
            dataset="builtin:arithmetic",
            sampling=SamplingParams(max_tokens=8),
        )

    assert result == again == EVALUATION
    (_, first), (_, second) = worker.requests
    assert first == second
    assert codec.evaluate_request_from_v1(first) == REQUEST


async def test_keywords_replace_fields_of_a_request(worker: CannedWorker, address: str):
    """A training loop changes step and model of one request."""
    worker.replies["StartEvaluation"] = evaluation_pb2.StartEvaluationResponse(
        evaluation=codec.evaluation_to_v1(EVALUATION), existed=True
    )

    async with crucible_bridge.connect(address) as bridge:
        started = await bridge.evaluation.start_evaluation(
            REQUEST, step=800, model="local:run/800", evaluators="nll", dataset=[Sample(input="1+1=", targets=("2",))]
        )

    assert started == StartedEvaluation(evaluation=EVALUATION, existed=True)
    sent = codec.evaluate_request_from_v1(worker.requests[0][1].request)
    assert sent == dataclasses.replace(
        REQUEST,
        step=800,
        model=crucible_bridge.types.LocalModel("run/800"),
        evaluators=(EvaluatorSpec(kind="nll"),),
        dataset=crucible_bridge.types.Dataset.of([Sample(input="1+1=", targets=("2",))]),
    )


@rows(
    ("field", "fields"),
    [
        ("model", {"model": "bucket"}),
        ("dataset", {"dataset": "arithmetic"}),
        ("evaluators[1]", {"evaluators": ["nll", 3]}),
        ("model", {"model": 5}),
        ("model", {"model": None}),
        ("evaluators", {"evaluators": 5}),
        ("evaluators", {"evaluators": None}),
        ("dataset", {"dataset": 5}),
        ("dataset", {"dataset": None}),
        ("dataset", {"dataset": Sample(input="x")}),
        ("dataset.inline.samples[0]", {"dataset": ["a"]}),
        ("dataset.inline.samples[1]", {"dataset": [Sample(input="x"), 5]}),
        ("sampling", {"sampling": 5}),
        ("limits", {"limits": None}),
        ("labels", {"labels": 5}),
    ],
)
async def test_what_cannot_be_read_is_refused_before_it_is_sent(field: str, fields: dict[str, Any], address: str):
    """The error names the field as the worker would."""
    async with crucible_bridge.connect(address) as bridge:
        with pytest.raises(InvalidField) as caught:
            await bridge.evaluation.evaluate(REQUEST, **fields)

    assert caught.value.field == field


@pytest.mark.parametrize("request_", ["embedded:arithmetic@320", 5, {"model": "embedded:arithmetic@320"}])
def test_a_request_of_another_type_is_refused(request_: Any):
    """What stands in a request's place is one, or none."""
    with pytest.raises(InvalidField) as caught:
        request_of(request_, evaluators="nll")

    assert caught.value.field == "request"


async def test_tensors_cross_bit_exactly(worker: CannedWorker, address: str):
    """NaN payloads, infinities and -0.0 arrive as they were sent, in each width."""
    bits = np.array([0x7FF8_0000_DEAD_BEEF, 0xFFF0_0000_0000_0000, 0x8000_0000_0000_0000, 1], np.uint64)
    arrays = {
        "f64": bits.view(np.float64),
        "f32": np.array([0x7FC0_1234, 0xFF80_0000, 0x8000_0000, 1], np.uint32).view(np.float32),
        "f16": np.array([0x7E01, 0xFC00, 0x8000, 1], np.uint16).view(np.float16),
    }
    datum = Datum(model_input=[1, 2, 3, 4], loss_fn_inputs=arrays)  # type: ignore[arg-type]
    worker.replies["Evaluate"] = evaluation_pb2.EvaluateResponse(evaluation=codec.evaluation_to_v1(EVALUATION))

    async with crucible_bridge.connect(address) as bridge:
        await bridge.evaluation.evaluate(REQUEST, dataset=[Sample(input=datum)])

    (sample,) = worker.requests[0][1].dataset.inline.samples
    received = codec.datum_from_v1(sample.datum, "datum").loss_fn_inputs
    assert {key: bytes(np.asarray(array).tobytes()) for key, array in received.items()} == {
        key: array.tobytes() for key, array in arrays.items()
    }


@rows(
    "error",
    [
        InvalidField("dataset.inline.samples[3].id", "is there twice", reason="DUPLICATE_ID"),
        NotFound("there is no evaluation e-1"),
        AlreadyExists("has another specification", metadata={"fingerprint": "ab", "requested_fingerprint": "cd"}),
        FailedPrecondition("the checkpoint changed", reason="MODEL_CHANGED"),
        ResourceExhausted("64 evaluations are queued", retry_after=1.5),
        Unavailable("is draining", retry_after=0.25),
        DeadlineExceeded("still running", metadata={"evaluation_id": "e-1"}),
        BackendError("out of memory", reason="BACKEND_OUT_OF_MEMORY", retryable=False),
        Unimplemented("has no training side"),
        InternalError("a bug"),
    ],
)
async def test_errors_arrive_as_they_left(error: BridgeError, worker: CannedWorker, address: str):
    """Class, code, reason, message, field, facts, and whether and when to retry."""
    worker.replies["Evaluate"] = error

    async with crucible_bridge.connect(address) as bridge:
        with pytest.raises(BridgeError) as caught:
            await bridge.evaluation.evaluate(REQUEST)

    arrived = caught.value
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    for name in ("code", "reason", "message", "field", "retryable", "retry_after", "metadata"):
        assert getattr(arrived, name) == getattr(error, name)


async def test_a_huge_message_is_cut_not_lost(worker: CannedWorker, address: str):
    """An error of 100 KB still arrives as itself, shortened, and the connection lives on."""
    worker.replies["GetEvaluation"] = NotFound("é" * 100_000, metadata={"log": "x" * 100_000, "id": "e"})

    async with crucible_bridge.connect(address) as bridge:
        with pytest.raises(NotFound) as caught:
            await bridge.evaluation.get_evaluation("e-1")
        assert await bridge.worker.health()

    assert caught.value.message.endswith("...")
    assert len(caught.value.message) < 4_096


async def test_a_request_above_the_message_size_is_refused(address: str):
    """The client says so at once: sending it again would not help."""
    samples = [Sample(input="x" * 1_000_000) for _ in range(MAX_MESSAGE_BYTES // 1_000_000 + 1)]

    async with crucible_bridge.connect(address) as bridge:
        with pytest.raises(ResourceExhausted) as caught:
            await bridge.evaluation.evaluate(REQUEST, dataset=samples)

    assert (caught.value.reason, caught.value.retryable) == ("MESSAGE_TOO_LARGE", False)


async def test_reads_are_asked_again_when_the_worker_is_unavailable(worker: CannedWorker, address: str):
    """A read survives one UNAVAILABLE; starting an evaluation is not repeated."""
    answers = iter([Unavailable("warming"), worker_pb2.GetInfoResponse()])
    worker.replies["GetInfo"] = lambda _: next(answers)
    worker.replies["StartEvaluation"] = Unavailable("warming")

    async with crucible_bridge.connect(address) as bridge:
        await bridge.worker.get_info()
        with pytest.raises(Unavailable):
            await bridge.evaluation.start_evaluation(REQUEST)

    assert [name for name, _ in worker.requests] == ["GetInfo", "GetInfo", "StartEvaluation"]


async def test_no_worker_is_unavailable():
    """A refused connection is a BridgeError that may be retried."""
    async with crucible_bridge.connect("127.0.0.1:1") as bridge:
        with pytest.raises(Unavailable) as caught:
            await bridge.worker.get_info()

    assert caught.value.retryable


async def test_a_malformed_reply_is_no_fault_of_the_request(worker: CannedWorker, address: str):
    """InvalidField is for requests; nonsense of a worker is an InternalError."""
    worker.replies["GetEvaluation"] = evaluation_pb2.GetEvaluationResponse()

    async with crucible_bridge.connect(address) as bridge:
        with pytest.raises(InternalError, match=r"evaluation\.") as caught:
            await bridge.evaluation.get_evaluation("e-1")

    assert caught.value.reason == "MALFORMED_REPLY"


async def test_every_other_call_decodes_its_reply(worker: CannedWorker, address: str):
    """Arguments arrive, frozen types come back."""
    info = EvaluatorInfo(
        kind="nll",
        kinds=(EvaluatorKind.TRAINING,),
        description="d",
        options_schema={"type": "object"},
        keys={"nll": "nats"},
    )
    worker.replies |= {
        "ListEvaluators": evaluation_pb2.ListEvaluatorsResponse(evaluators=[codec.evaluator_info_to_v1(info)]),
        "CancelEvaluation": evaluation_pb2.CancelEvaluationResponse(evaluation=codec.evaluation_to_v1(EVALUATION)),
        "PauseEvaluation": evaluation_pb2.PauseEvaluationResponse(evaluation=codec.evaluation_to_v1(EVALUATION)),
        "ResumeEvaluation": evaluation_pb2.ResumeEvaluationResponse(evaluation=codec.evaluation_to_v1(EVALUATION)),
        "SetEvaluationConcurrency": evaluation_pb2.SetEvaluationConcurrencyResponse(
            evaluation=codec.evaluation_to_v1(EVALUATION)
        ),
        "DeleteEvaluation": evaluation_pb2.DeleteEvaluationResponse(evaluation=codec.evaluation_to_v1(EVALUATION)),
        "GenerateReport": evaluation_pb2.GenerateReportResponse(report="# Report"),
        "GetInfo": worker_pb2.GetInfoResponse(worker=worker_pb2.WorkerInfo(worker_id="w", running=2)),
        "Drain": worker_pb2.DrainResponse(interrupted=["e-1"]),
    }

    async with crucible_bridge.connect(address) as bridge:
        assert await bridge.evaluation.list_evaluators() == (info,)
        assert await bridge.evaluation.cancel_evaluation("e-1", "enough") == EVALUATION
        assert await bridge.evaluation.pause_evaluation("e-3") == EVALUATION
        assert await bridge.evaluation.resume_evaluation("e-4") == EVALUATION
        assert await bridge.evaluation.set_evaluation_concurrency("e-5", 7) == EVALUATION
        assert await bridge.evaluation.delete_evaluation("e-2") == EVALUATION
        assert await bridge.evaluation.generate_report("e-1", ReportFormat.JSON) == "# Report"
        html = ReportFormat.HTML
        await bridge.evaluation.generate_report((), html, metrics={"a": 0.5}, title="t", max_samples=7)
        await bridge.evaluation.generate_report(run_id="r")
        assert await bridge.worker.get_info() == WorkerInfo(worker_id="w", version="", running=2)
        assert await bridge.worker.drain() == DrainReport(interrupted=("e-1",))

    sent = dict(worker.requests)
    assert (sent["CancelEvaluation"].evaluation_id, sent["CancelEvaluation"].reason) == ("e-1", "enough")
    assert [sent[name].evaluation_id for name in ("PauseEvaluation", "ResumeEvaluation")] == ["e-3", "e-4"]
    assert (sent["SetEvaluationConcurrency"].evaluation_id, sent["SetEvaluationConcurrency"].concurrency) == ("e-5", 7)
    assert sent["DeleteEvaluation"].evaluation_id == "e-2"
    json, markdown = evaluation_pb2.REPORT_FORMAT_JSON, evaluation_pb2.REPORT_FORMAT_MARKDOWN
    assert [request for name, request in worker.requests if name == "GenerateReport"] == [
        evaluation_pb2.GenerateReportRequest(evaluation_ids=["e-1"], format=json),
        evaluation_pb2.GenerateReportRequest(
            format=evaluation_pb2.REPORT_FORMAT_HTML, metrics={"a": 0.5}, title="t", max_samples=7
        ),
        evaluation_pb2.GenerateReportRequest(run_id="r", format=markdown),
    ]


async def test_pages_are_walked_to_their_end(worker: CannedWorker, address: str):
    """Iterating over all pages asks with the token of the page before, and the same filters."""
    samples = [codec.sample_result_to_v1(result) for result in RESULTS]
    pages = {
        "": evaluation_pb2.GetSamplesResponse(samples=samples[:2], next_page_token="next"),
        "next": evaluation_pb2.GetSamplesResponse(samples=samples[2:]),
    }
    worker.replies["GetSamples"] = lambda request: pages[request.page_token]
    worker.replies["ListEvaluations"] = evaluation_pb2.ListEvaluationsResponse(
        evaluations=[codec.evaluation_to_v1(EVALUATION)]
    )

    async with crucible_bridge.connect(address) as bridge:
        walked = [result async for result in bridge.evaluation.all_samples("e-1", verdicts=[Verdict.CORRECT])]
        page = await bridge.evaluation.get_samples("e-1", page_size=2)
        found = [e async for e in bridge.evaluation.all_evaluations(run_id="r", states=[EvaluationState.COMPLETED])]

    assert tuple(walked) == RESULTS
    assert (page.items, page.next_page_token) == (RESULTS[:2], "next")
    assert found == [EVALUATION]
    assert [list(request.verdicts) for _, request in worker.requests[:2]] == [[1], [1]]
    assert worker.requests[3][1].run_id == "r"


async def test_health_tells_ready_from_warming(address: str):
    """SERVING is true, NOT_SERVING false, an unknown service NotFound."""
    async with crucible_bridge.connect(address) as bridge:
        assert await bridge.worker.health() is True
        assert await bridge.worker.health("warming") is False
        with pytest.raises(NotFound):
            await bridge.worker.health("nothing")


async def test_the_token_travels_with_every_call(worker: CannedWorker, address: str):
    """As a bearer in the metadata."""
    worker.replies["GetInfo"] = worker_pb2.GetInfoResponse()

    async with crucible_bridge.connect(address, token="s3cret") as bridge:
        await bridge.worker.get_info()

    assert worker.metadata["authorization"] == "Bearer s3cret"


async def test_measurements_that_are_not_finite_never_come_back_as_metrics(worker: CannedWorker, address: str):
    """A worker that sends NaN as a metric is refused, not believed."""
    message = codec.evaluation_to_v1(EVALUATION)
    message.metrics.values["nll"] = math.nan
    worker.replies["GetEvaluation"] = evaluation_pb2.GetEvaluationResponse(evaluation=message)

    async with crucible_bridge.connect(address) as bridge:
        with pytest.raises(InternalError, match=r'metrics.values\["nll"\] is nan'):
            await bridge.evaluation.get_evaluation("e-1")
