"""What a caller learns of an error, and what the log does."""

import errno

import pytest
import structlog
from structlog.testing import capture_logs

from crucible_bridge.errors import Code, FailedPrecondition
from crucible_bridge.v1 import evaluation_pb2
from crucible_worker.util.limits import MIN_MESSAGE_BYTES, WorkerLimits
from tests.service.server_kit import error_of, evaluate_request, serving, settings_for, until

pytestmark = pytest.mark.core

GET = evaluation_pb2.GetEvaluationRequest(evaluation_id="e1")


@pytest.fixture
async def rig(tmp_path):
    """A worker."""
    async with serving(settings_for(tmp_path)) as rig:
        yield rig


async def test_a_bridge_error_crosses_whole(rig):
    """Code, reason, retryability and facts arrive as they were raised."""
    rig.evaluations.raises = FailedPrecondition(
        "the data set changed", reason="DATASET_CHANGED", retryable=False, metadata={"evaluation_id": "e1"}
    )

    error = await error_of(rig.evaluation.GetEvaluation(GET))

    assert isinstance(error, FailedPrecondition)
    assert (error.reason, error.message, error.metadata) == (
        "DATASET_CHANGED",
        "the data set changed",
        {"evaluation_id": "e1"},
    )


async def test_an_unexpected_error_hides_its_text(tmp_path):
    """The wire gets an id, the log the traceback under that id; the text of the exception stays here."""
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        async with serving(settings_for(tmp_path)) as rig:
            rig.evaluations.raises = RuntimeError("a secret of the model")

            error = await error_of(rig.evaluation.GetEvaluation(GET))

    logged = next(line for line in lines if line["event"] == "unexpected_error")
    assert error.code is Code.INTERNAL
    assert "secret" not in str(error) + str(error.metadata)
    assert error.message == f"internal error {logged['error_id']}"
    assert (str(logged["exc_info"]), logged["evaluation_id"]) == ("a secret of the model", "e1")


async def test_a_system_without_room_is_an_error_to_retry(rig):
    """No descriptor is free, say: that is no bug, so the caller reads what is missing, and when to try again."""
    rig.evaluations.raises = OSError(errno.EMFILE, "Too many open files", "/a/secret/path")

    error = await error_of(rig.evaluation.GetEvaluation(GET))

    assert (error.code, error.retryable, error.retry_after) == (Code.RESOURCE_EXHAUSTED, True, 1.0)
    assert error.message == "the worker's machine has no room: Too many open files"


async def test_a_malformed_message_is_the_callers_error(rig):
    """Bytes that are no message are INVALID_ARGUMENT, not an internal error; the log has the reason."""
    call = rig.channel.unary_unary("/crucible_bridge.v1.EvaluationService/GetEvaluation")

    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        error = await error_of(call(b"\xff\xff\xff"))
        await until(lambda: any(line["event"] == "call" for line in lines))  # the caller may be told before the log

    assert (error.code, error.reason) == (Code.INVALID_ARGUMENT, "MALFORMED_MESSAGE")
    (line,) = [line for line in lines if line["event"] == "call"]
    assert (line["code"], line["reason"]) == ("INVALID_ARGUMENT", "MALFORMED_MESSAGE")


async def test_an_unknown_method_is_unimplemented(rig):
    """A call that the worker does not have is told so."""
    call = rig.channel.unary_unary("/crucible_bridge.v1.EvaluationService/Nothing")

    error = await error_of(call(b""))

    assert error.code is Code.UNIMPLEMENTED


@pytest.mark.parametrize("excess", [0, 1])
async def test_a_message_above_the_limit_is_refused(tmp_path, excess):
    """A message of the limit passes; one byte more is RESOURCE_EXHAUSTED, and not worth a retry."""
    limit = MIN_MESSAGE_BYTES
    async with serving(settings_for(tmp_path, limits=WorkerLimits(max_message_bytes=limit))) as rig:
        stub = rig.evaluation
        rig.evaluations.gate.set()

        call = stub.Evaluate(request_of(limit + excess))

        if excess:
            error = await error_of(call)
            assert (error.code, error.retryable) == (Code.RESOURCE_EXHAUSTED, False)
        else:
            assert (await call).evaluation.evaluation_id == "e1"


def request_of(size: int) -> evaluation_pb2.EvaluateRequest:
    """A request of so many bytes, from 20,000 to a million: the lengths in it take as many bytes each."""
    request = evaluate_request()
    request.dataset.ClearField("builtin")
    sample = request.dataset.inline.samples.add(text="x" * 17_000)
    sample.text += "x" * (size - request.ByteSize())
    assert request.ByteSize() == size
    return request


async def test_a_client_that_leaves_is_no_error(tmp_path):
    """A cancelled call ends what waits for it, and the log says no more than that."""
    with capture_logs() as lines:
        async with serving(settings_for(tmp_path)) as rig:
            call = rig.evaluation.Evaluate(evaluate_request())
            await until(lambda: rig.evaluations.waiting == 1)
            call.cancel()
            await until(lambda: rig.evaluations.cancelled_waits == 1)

    assert [line["code"] for line in lines if line["event"] == "call"] == ["CANCELLED"]
    assert {line["log_level"] for line in lines} <= {"info", "debug"}


async def test_a_watcher_that_leaves_is_no_error(tmp_path):
    """A stream whose reader hangs up leaves no trace above info."""
    with capture_logs() as lines:
        async with serving(settings_for(tmp_path)) as rig:
            stub = rig.evaluation
            watch = stub.WatchEvaluation(evaluation_pb2.WatchEvaluationRequest(evaluation_id="e1"))
            await anext(aiter(watch))
            watch.cancel()
            await until(lambda: rig.evaluations.waiting == 0 and any(line["event"] == "call" for line in lines))

    assert {line["log_level"] for line in lines} <= {"info", "debug"}
