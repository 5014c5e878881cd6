"""BridgeService as a pool calls it: tools, errors, streams, sessions, deadlines."""

import asyncio
import base64
import json
import re
import struct
import time
from pathlib import Path

import grpc
import grpc.aio
import numpy as np
import pytest

import crucible_bridge
from crucible_bridge.errors import Unauthenticated
from crucible_worker.snakepit.service import FRAME_BYTES, MAX_CONTROL_BYTES
from crucible_worker.snakepit.wire import snakepit_bridge_pb2 as pb
from crucible_worker.testing.scripted import STALL, ScriptedModel
from crucible_worker.util.limits import WorkerLimits
from tests.interop.snakepit_kit import evaluation, snakepit_worker
from tests.interop.snakepit_standin import SESSION_ID, Binary, PythonError, raw_response
from tests.service.code_kit import MISSING
from tests.unit.snakepit.examples import examples

pytestmark = pytest.mark.core

LOGPROBS = {"logprobs": {"dtype": "f32", "shape": [4]}, "weights": {"dtype": "u8", "shape": [4]}}


async def test_the_handshake_names_every_tool(tmp_path: Path):
    """InitializeSession succeeds with what can be executed, and which of it streams."""
    async with snakepit_worker(tmp_path) as (pool, worker):
        answered = await pool.shake_hands()

    assert answered.success
    assert {*answered.available_tools, "list_tools"} == set(worker.tools.names())
    streaming = {name for name, spec in answered.available_tools.items() if spec.supports_streaming}
    assert streaming == {"read_dataset", "subscribe", "watch_evaluation"}
    assert all(spec.description for spec in answered.available_tools.values())


async def test_a_large_request_of_a_session_is_refused_before_it_is_parsed(tmp_path: Path):
    """Sessions are retained, and their requests are read at once."""
    async with snakepit_worker(tmp_path) as (pool, _):
        request = pb.InitializeSessionRequest(session_id="large", metadata={"text": "x" * MAX_CONTROL_BYTES})
        with pytest.raises(grpc.aio.AioRpcError, match=f"has at most {MAX_CONTROL_BYTES:,}") as refused:
            await pool.call("InitializeSession", request, pb.InitializeSessionResponse)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT

        request.metadata["text"] = "x" * (MAX_CONTROL_BYTES // 2)
        assert (await pool.call("InitializeSession", request, pb.InitializeSessionResponse)).success


async def test_a_tool_answers_plain_json(tmp_path: Path):
    """The result's value is bare JSON in ASCII, with a time, and without an error."""
    async with snakepit_worker(tmp_path) as (pool, _):
        request = pb.ExecuteToolRequest(tool_name="extract_answer")
        request.parameters["responses"].value = '["é so \\\\boxed{ü}"]'.encode()

        response = await pool.call("ExecuteTool", request, pb.ExecuteToolResponse)

    assert response.success
    assert response.error_message == ""
    assert response.result.value.isascii()
    assert "ü" in json.loads(response.result.value)["answers"][0]["answer"]


async def test_every_tool_of_the_page_runs(tmp_path: Path):
    """Each example of docs/snakepit.md, in its order, over Snakepit's wire: an answer, or a stream that ends."""
    model = ScriptedModel(answer=lambda prompt: str(sum(map(int, re.findall(r"\\d+", prompt)))))
    names = set()
    async with snakepit_worker(tmp_path, {"arithmetic@320": model}, grading_processes=2) as (pool, worker):
        for example in examples():
            names.add(example.name)
            if MISSING and example.name == "grade_code":
                continue  # nothing here can run programs
            if worker.tools.streaming(example.name):
                chunks = [chunk async for chunk in pool.execute_stream(example.name, example.parameters)]
                assert chunks[-1] == {"is_final": True}
            else:
                answer = await pool.execute(example.name, example.parameters, example.binary)
                assert isinstance(answer, dict | Binary), example.name
        assert names >= set(worker.tools.names()) - {"drain"}


async def test_binary_parameters_reach_the_tool(tmp_path: Path):
    """Tensors are bytes beside JSON that says what they are."""
    async with snakepit_worker(tmp_path) as (pool, _):
        packed = {"logprobs": struct.pack("<4f", -1, -2, -3, float("nan")), "weights": bytes([1, 1, 0, 0])}

        answer = await pool.execute("mean_nll", {"tensors": LOGPROBS}, packed)

    assert answer["metrics"]["nll"] == 1.5


@pytest.mark.parametrize("count", [16_383, 16_384, 1_000_000])
async def test_requests_of_any_size_are_read_alike(tmp_path: Path, count: int):
    """At and beyond the size from which requests are read in place, a tensor is the same."""
    logprobs = np.linspace(-2, -1, count, dtype="<f4")
    described = {"logprobs": {"dtype": "f32", "shape": [count]}, "weights": {"dtype": "u8", "shape": [count]}}
    async with snakepit_worker(tmp_path) as (pool, _):
        packed = {"logprobs": logprobs.tobytes(), "weights": np.ones(count, "u1").tobytes()}

        answer = await pool.execute("mean_nll", {"tensors": described}, packed)

    assert answer["metrics"]["nll"] == pytest.approx(-np.mean(logprobs, dtype="f8"), rel=1e-12)


async def test_preference_pairs_of_models_are_lists_of_messages(tmp_path: Path):
    """The tool of given log-probabilities takes two models, and conversations for them."""
    policy = ScriptedModel(logprob=lambda token, position: -1.0 if token == ord("a") else -3.0)
    reference = ScriptedModel(logprob=lambda token, position: -2.0)
    asked = {"role": "user", "content": "q"}
    pair = {
        "chosen": [asked, {"role": "assistant", "content": "a"}],
        "rejected": [asked, {"role": "assistant", "content": "b"}],
    }
    async with snakepit_worker(tmp_path, {"m": policy, "r": reference}) as (pool, _):
        answered = await pool.execute(
            "dpo_metrics", {"policy": "embedded:m", "reference": "embedded:r", "pairs": [pair], "dpo_beta": 0.5}
        )

    assert answered["metrics"]["margin"] == 0.5 * ((-1 + 2) - (-3 + 2))


async def test_images_are_parts_of_messages(tmp_path: Path):
    """Their bytes are base64 in an object, in a request as in the sample's record."""
    image = {"data": {"base64": base64.b64encode(b"\x89PNG\r\n\x1a\n of a dot").decode()}, "format": "png"}
    parts = [{"text": "what is this?"}, {"image": image}]
    sample = {"id": "s", "messages": [{"role": "user", "parts": parts}], "target": "WHAT IS THIS?"}
    async with snakepit_worker(tmp_path, {"m": ScriptedModel(answer=str.upper)}) as (pool, _):
        answered = await pool.execute("evaluate", {**evaluation("e"), "dataset": [sample], "record": "full"})
        samples = await pool.execute("get_samples", {"evaluation_id": "e"})

    assert answered["evaluation"]["metrics"]["accuracy"] == 1.0
    (result,) = samples["samples"]
    for asked in (result["prompt"], result["sample"]):
        assert asked["conversation"]["messages"][0]["parts"] == parts


async def test_tensors_come_back_as_bytes(tmp_path: Path):
    """A binary result is `{:binary, bytes, described}`: raw elements, where they lie, and their type."""
    async with snakepit_worker(tmp_path, {"m": ScriptedModel()}) as (pool, _):
        asked = {"model": "embedded:m", "sequences": [[1, 2, 3]], "result_format": "binary"}

        answer = await pool.execute("compute_logprobs", asked)

    assert isinstance(answer, Binary)
    assert re.search(r'"dtype": "f(32|64)"', json.dumps(answer.described))
    assert len(answer.content) % 4 == 0
    assert answer.content


async def test_an_error_is_a_struct_that_elixir_knows(tmp_path: Path):
    """A refused parameter is a ValueError with reason, field, tool and session in its context, and no traceback."""
    async with snakepit_worker(tmp_path) as (pool, _):
        with pytest.raises(PythonError) as caught:
            await pool.execute("mean_nll", {"logprobs": [-1.0, -2.0], "weights": [1, 1], "lengths": [1]})
        with pytest.raises(PythonError) as unknown:
            await pool.execute("nothing", correlation_id="corr-1")

    assert caught.value.type == "ValueError"
    assert caught.value.context["tool_name"] == "mean_nll"
    assert caught.value.context["session_id"] == SESSION_ID
    assert caught.value.context["field"]
    assert caught.value.context["retryable"] is False
    assert "Traceback" not in json.dumps(caught.value.payload)
    assert unknown.value.type == "KeyError"
    assert unknown.value.context["reason"] == "UNKNOWN_TOOL"
    assert unknown.value.context["correlation_id"] == "corr-1"


@pytest.mark.parametrize("value", [b"{", b"", b"\xff", b"[" * 100_000, b"1" * 5_000])
async def test_a_parameter_that_is_no_json_is_named(tmp_path: Path, value: bytes):
    """Malformed JSON, bytes that are no text, depth and numbers beyond reading are the parameter's error."""
    async with snakepit_worker(tmp_path) as (pool, _):
        request = pb.ExecuteToolRequest(tool_name="mean_nll")
        request.parameters["logprobs"].value = value

        response = await pool.call("ExecuteTool", request, pb.ExecuteToolResponse)

    error = json.loads(response.error_message)
    assert not response.success
    assert error["type"] == "ValueError"
    assert error["context"]["field"] == "logprobs"
    assert error["context"]["reason"] == "MALFORMED_JSON"


async def test_a_request_that_is_no_message_is_an_error_like_others(tmp_path: Path):
    """Bytes that are no request get a response without success, whatever their size; the worker goes on."""
    async with snakepit_worker(tmp_path) as (pool, _):
        for size in (10, 100_000):
            response = await pool.call("ExecuteTool", b"\x0f" * size, pb.ExecuteToolResponse)
            assert json.loads(response.error_message)["context"]["reason"] == "MALFORMED_MESSAGE"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await pool.call("Heartbeat", b"\x0f" * 10, pb.HeartbeatResponse)
        assert (await pool.heartbeat()).session_valid
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_bug_is_told_by_an_id_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An exception that nobody expected is a RuntimeError with an id; its text stays in the log."""
    async with snakepit_worker(tmp_path) as (pool, worker):

        async def fail(*arguments: object) -> None:
            raise LookupError("a secret path")

        monkeypatch.setattr(type(worker.tools), "execute", fail)

        with pytest.raises(PythonError) as caught:
            await pool.execute("get_info")

    assert caught.value.type == "RuntimeError"
    assert "secret" not in json.dumps(caught.value.payload)
    assert caught.value.context["error_id"] in caught.value.message


async def test_an_answer_beyond_a_message_is_refused(tmp_path: Path):
    """What does not fit into a message is an error that says so, and no broken connection."""
    responses = [f"so \\boxed{{{'x' * 2_500}}}" for _ in range(60)]
    async with snakepit_worker(tmp_path / "large") as (pool, _):
        fits = await pool.execute("extract_answer", {"responses": responses})
    size = len(json.dumps(fits))
    limits = WorkerLimits(max_message_bytes=size + FRAME_BYTES)
    async with snakepit_worker(tmp_path / "small", limits=limits) as (pool, _):
        assert await pool.execute("extract_answer", {"responses": responses}) == fits

        with pytest.raises(PythonError) as caught:
            await pool.execute("extract_answer", {"responses": [*responses, "so 1"]})

    assert caught.value.context["reason"] == "ANSWER_TOO_LARGE"
    assert caught.value.context["retryable"] is False


async def test_a_stream_is_maps_and_an_end(tmp_path: Path):
    """Each chunk is a JSON map; the last one is final and says nothing more."""
    async with snakepit_worker(tmp_path, {"m": ScriptedModel()}) as (pool, _):
        await pool.execute("evaluate", evaluation("e"))

        chunks = [chunk async for chunk in pool.execute_stream("watch_evaluation", {"evaluation_id": "e"})]

    assert [chunk["is_final"] for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1] == {"is_final": True}
    kinds = [event["kind"] for chunk in chunks[:-1] for event in chunk["events"]]
    assert len(kinds) == len(set(kinds)) + 2  # three samples
    assert chunks[0]["log_id"]


async def test_chunks_leave_as_they_come(tmp_path: Path):
    """A stream tells what has happened while more is to come."""
    model = ScriptedModel(fault=lambda call: STALL)
    async with snakepit_worker(tmp_path, {"m": model}) as (pool, _):
        await pool.execute("start_evaluation", evaluation("e"))
        stream = pool.execute_stream("watch_evaluation", {"evaluation_id": "e"})

        first = await anext(stream)

        assert first["events"]
        await pool.execute("cancel_evaluation", {"evaluation_id": "e", "reason": "enough"})
        rest = [chunk async for chunk in stream]
    assert rest[-1] == {"is_final": True}


async def test_a_stream_that_fails_ends_with_a_status_of_json(tmp_path: Path):
    """The status' message is Snakepit's JSON of an error, short enough for Elixir's connection."""
    async with snakepit_worker(tmp_path) as (pool, _):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            _ = [chunk async for chunk in pool.execute_stream("watch_evaluation", {"evaluation_id": "n" * 10_000})]

    details = caught.value.details() or ""
    assert json.loads(details)["type"] == "KeyError"
    assert json.loads(details)["context"]["tool_name"] == "watch_evaluation"
    assert len(details) < 4096
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_tools_and_streams_are_not_mixed_up(tmp_path: Path):
    """A streaming tool that is executed, and a tool that is streamed, are errors that say what to do."""
    async with snakepit_worker(tmp_path) as (pool, _):
        with pytest.raises(PythonError, match="execute it as a stream"):
            await pool.execute("subscribe")
        with pytest.raises(grpc.aio.AioRpcError, match="not as a stream"):
            _ = [chunk async for chunk in pool.execute_stream("get_info")]


async def test_a_call_answers_before_its_deadline(tmp_path: Path):
    """A tool that would outlive gRPC's deadline is answered shortly before, with the evaluation that goes on."""
    model = ScriptedModel(fault=lambda call: STALL)
    async with snakepit_worker(tmp_path, {"m": model}) as (pool, _):
        with pytest.raises(PythonError) as caught:
            await pool.execute("evaluate", evaluation("e"), seconds=1.0)

        assert caught.value.context["code"] == "DEADLINE_EXCEEDED"
        assert caught.value.context["evaluation_id"] == "e"
        assert caught.value.context["retryable"] is True
        assert (await pool.execute("get_evaluation", {"evaluation_id": "e"}))["evaluation"]["state"] == "running"
        await pool.execute("cancel_evaluation", {"evaluation_id": "e"})


async def test_sessions_are_told_as_they_were_opened(tmp_path: Path):
    """GetSession says what InitializeSession said; one that was ended, or never opened, is NOT_FOUND."""
    async with snakepit_worker(tmp_path) as (pool, worker):
        asked = pb.GetSessionRequest(session_id=SESSION_ID)

        session = await pool.call("GetSession", asked, pb.GetSessionResponse)
        ended = await pool.call(
            "CleanupSession", pb.CleanupSessionRequest(session_id=SESSION_ID), pb.CleanupSessionResponse
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await pool.call("GetSession", asked, pb.GetSessionResponse)
        beat = await pool.heartbeat()
        answer = await pool.execute("get_info", session_id="a caller's own")

    assert session.metadata["elixir_node"] == "nonode@nohost"
    assert abs(session.created_at.ToNanoseconds() - time.time_ns()) < 60e9
    assert session.tool_count == len(worker.tools.names())
    assert (ended.success, ended.resources_cleaned) == (True, 1)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert beat.session_valid
    assert answer["worker"]["worker_id"]


async def test_clocks_are_told(tmp_path: Path):
    """Ping and Heartbeat carry the worker's time."""
    async with snakepit_worker(tmp_path) as (pool, _):
        ping = await pool.call("Ping", pb.PingRequest(message="x"), pb.PingResponse)
        beat = await pool.heartbeat()

    for told in (ping, beat):
        assert abs(told.server_time.ToNanoseconds() - time.time_ns()) < 60e9


async def test_the_token_guards_our_own_services_alone(tmp_path: Path):
    """Snakepit can carry no token: with a token file its calls pass, and those of crucible_bridge.v1 need it."""
    token_file = tmp_path / "token"
    token_file.write_text("sesame")
    token_file.chmod(0o600)
    async with snakepit_worker(tmp_path, token_file=token_file) as (pool, worker):
        assert (await pool.execute("get_info"))["worker"]["worker_id"]
        async with crucible_bridge.connect(worker.address) as bridge:
            with pytest.raises(Unauthenticated):
                await bridge.worker.get_info()
        async with crucible_bridge.connect(worker.address, token="sesame") as bridge:
            assert (await bridge.worker.get_info()).worker_id


async def test_a_correlation_id_reaches_the_events(tmp_path: Path):
    """The correlation id of the call is that of the evaluation's events, where the request has none of its own."""
    async with snakepit_worker(tmp_path, {"m": ScriptedModel()}) as (pool, _):
        await pool.execute("evaluate", evaluation("e"), correlation_id="corr-7")

        chunks = [chunk async for chunk in pool.execute_stream("watch_evaluation", {"evaluation_id": "e"})]

    assert {event["correlation_id"] for chunk in chunks[:-1] for event in chunk["events"]} == {"corr-7"}


async def test_calls_that_elixir_serves_are_not_served_here(tmp_path: Path):
    """What only Elixir's side answers is UNIMPLEMENTED."""
    async with snakepit_worker(tmp_path) as (pool, _):
        for rpc in ("RegisterTools", "GetExposedElixirTools", "ExecuteElixirTool"):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await pool.call(rpc, b"", raw_response())
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_drain_answers_what_waits(tmp_path: Path):
    """When the worker goes, a tool that runs is answered that it may be asked again, and new ones are refused."""
    model = ScriptedModel(fault=lambda call: STALL)
    async with snakepit_worker(tmp_path, {"m": model}) as (pool, worker):
        waiting = asyncio.create_task(pool.execute("evaluate", evaluation("e")))
        while model.counts["in_flight"] == 0:
            assert not waiting.done()
            await asyncio.sleep(0.005)

        draining = asyncio.create_task(worker.stop())
        with pytest.raises(PythonError) as caught:
            await waiting

        assert caught.value.context["code"] == "UNAVAILABLE"
        assert caught.value.context["retryable"] is True
        await draining
