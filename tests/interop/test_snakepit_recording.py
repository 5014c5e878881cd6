"""What a real Snakepit sent, sent again: its bytes are read as Elixir meant them, and every one of them is answered."""

import json
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from crucible_worker.snakepit.service import read_tool_request
from crucible_worker.snakepit.wire import snakepit_bridge_pb2 as pb
from tests import needs
from tests.interop.snakepit_standin import Pool, PythonError, connected, decoded, launched, raw

RECORDING = Path(__file__).resolve().parents[3] / "shared" / "data" / "snakepit" / "recording.jsonl"

pytestmark = pytest.mark.skipif(not RECORDING.exists(), reason=needs.RECORDING)


def lines() -> list[dict[str, Any]]:
    """The launch, and every request."""
    return [json.loads(line) for line in RECORDING.read_text().splitlines()]


def calls(rpc: str) -> list[dict[str, Any]]:
    """The requests of one call."""
    return [line for line in lines() if line.get("rpc") == rpc]


async def test_parameters_are_what_elixir_said():
    """Text, whole numbers beyond 2^53, floats, nil and nested values are read from Snakepit's own bytes."""
    asked = read_tool_request(raw(calls("ExecuteTool")[0]), None)

    assert asked.tool == "hello"
    assert asked.call.correlation_id == "sp-84e867c0e46473bd8447a8fd"
    assert asked.parameters() == {
        "": None,  # Elixir's key was the atom nil
        "bool": True,
        "float": 1.0e-7,
        "int": 9007199254740993,
        "list": [1, 2.5, "x", None],
        "map": {"a": {"b": []}},
        "text": "é ✓",
    }


async def test_binary_parameters_are_bytes():
    """Each binary parameter has the bytes that Elixir packed."""
    (asked,) = [
        asked
        for line in calls("ExecuteTool")
        if (asked := read_tool_request(raw(line), None)).tool == "kl_sample_train"
    ]

    assert {name: len(content) for name, content in asked.binary.items()} == {"logprobs": 16, "mask": 4, "training": 16}
    assert asked.parameters()["tensors"]["mask"] == {"dtype": "u8", "shape": [4]}


async def test_the_session_is_answered_byte_for_byte(tmp_path: Path):
    """The recorded launch and every recorded request, in order: each gets an answer, and SIGTERM ends with 0."""
    with launched(tmp_path, "--grading-processes=2", variables=_environment()) as worker:
        async with connected(await worker.port(), worker) as pool:
            answers = [await _answer(pool, line) for line in lines()[1:]]

        worker.terminate()
        assert await worker.exit_code() == 0
    graded = [answer for tool, answer in answers if tool == "grade_math"]
    assert [grade["verdict"] for grade in graded[0]["grades"]] == ["correct"]
    (metrics,) = [answer["metrics"] for tool, answer in answers if tool == "kl_sample_train"]
    assert metrics["optim/kl_sample_train_v1"] == pytest.approx((0.1 - 0.1 + 0.5) / 3)
    unknown = [answer for tool, answer in answers if tool in ("hello", "fail_json")]
    assert unknown
    assert all(isinstance(answer, PythonError) and answer.type == "KeyError" for answer in unknown)


def _environment() -> dict[str, str]:
    """The recorded variables, but those that name places of that machine."""
    launch = lines()[0]["launch"]["env"]
    return {name: value for name, value in launch.items() if "<" not in value and name != "SNAKEPIT_READY_FILE"}


async def _answer(pool: Pool, line: dict[str, Any]) -> tuple[str, Any]:
    """Send a recorded request; the tool that it asks for, and what Elixir makes of the answer."""
    rpc = line["rpc"]
    if rpc == "ExecuteTool":
        tool = pb.ExecuteToolRequest.FromString(raw(line)).tool_name
        try:
            return tool, decoded(await pool.call(rpc, raw(line), pb.ExecuteToolResponse))
        except PythonError as error:
            return tool, error
    if rpc == "ExecuteStreamingTool":
        with pytest.raises(grpc.aio.AioRpcError, match="there is no tool 's'"):
            _ = [chunk async for chunk in pool.send_stream(raw(line))]
    elif rpc == "StreamTelemetry":
        assert (
            await pool.listen(seconds=0.3, controls=[pb.TelemetryControl.FromString(raw(line))]) is grpc.StatusCode.OK
        )
    else:
        response = {"Ping": pb.PingResponse, "InitializeSession": pb.InitializeSessionResponse}
        answer = await pool.call(rpc, raw(line), response.get(rpc, pb.HeartbeatResponse))
        assert answer.ByteSize()
    return "", None
