"""Snakepit's requests and responses, read and written: small or large, in place or by protobuf, they are the same."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import InvalidField, NotFound
from crucible_bridge.types import MAX_MAP_ENTRIES
from crucible_worker.config import SettingsError
from crucible_worker.grading.code.images import CodeImage
from crucible_worker.snakepit import service
from crucible_worker.snakepit.launch import LaunchError, own_session, read_launch
from crucible_worker.snakepit.results import ToolResult
from crucible_worker.snakepit.service import MAX_SESSIONS, Sessions, answer, failure, read_tool_request
from crucible_worker.snakepit.wire import snakepit_bridge_pb2 as pb
from tests.tables import rows

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
APPENDED = ["--port", "0", "--elixir-address", "127.0.0.1:1", "--snakepit-run-id", "r"]


def request(tool: str, parameters: dict[str, object], binary: dict[str, bytes]) -> pb.ExecuteToolRequest:
    """What Elixir would send."""
    message = pb.ExecuteToolRequest(session_id="s", tool_name=tool, binary_parameters=binary)
    message.metadata["correlation_id"] = "c"
    for name, value in parameters.items():
        message.parameters[name].value = json.dumps(value).encode()
    return message


@given(st.text(), st.dictionaries(st.text(), JSON, max_size=4), st.dictionaries(st.text(), st.binary(), max_size=4))
async def test_what_is_asked_is_read(tool: str, parameters: dict[str, object], binary: dict[str, bytes]):
    """Tool, parameters, bytes and ids arrive as they were sent, read by protobuf or in place."""
    data = request(tool, parameters, binary).SerializeToString()

    with pytest.MonkeyPatch.context() as patch:
        for large in (service.LARGE_BYTES, 0):
            patch.setattr(service, "LARGE_BYTES", large)
            asked = read_tool_request(data, 5.0)
            assert asked.tool == tool
            assert asked.parameters() == parameters
            assert dict(asked.binary) == binary
            assert (asked.call.session_id, asked.call.correlation_id) == ("s", "c")
            assert asked.call.deadline is not None


@given(st.binary(max_size=60))
async def test_any_bytes_are_read_alike_or_refused(data: bytes):
    """Whatever bytes come, in place or not: the same request, or InvalidField for both."""
    found: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        for large in (service.LARGE_BYTES, 0):
            patch.setattr(service, "LARGE_BYTES", large)
            try:
                asked = read_tool_request(data, None)
                found.append((asked.tool, dict(asked.json), dict(asked.binary)))
            except InvalidField as error:
                found.append(error.reason)
    assert found[0] == found[1]


@given(st.dictionaries(st.text(), JSON, max_size=3), st.none() | st.binary())
def test_an_answer_is_a_response(value: dict[str, object], binary: bytes | None):
    """A result becomes a response with success, its JSON, its bytes and its time."""
    result = ToolResult(value=value, binary=binary, metadata={"result_format": "json"})

    message = pb.ExecuteToolResponse.FromString(answer(result, json.dumps(value).encode(), 7))

    assert message.success
    assert json.loads(message.result.value) == value
    assert message.binary_result == (binary or b"")
    assert (message.execution_time_ms, message.metadata["result_format"]) == (7, "json")


def test_a_failure_is_a_response():
    """An error becomes a response without success, and without a result."""
    message = pb.ExecuteToolResponse.FromString(failure('{"type": "ValueError"}', 3))

    assert not message.success
    assert message.error_message == '{"type": "ValueError"}'
    assert not message.HasField("result")


@pytest.mark.parametrize("ours_first", [True, False])
def test_another_file_of_the_name_may_be_loaded(ours_first: bool):
    """A process that has loaded Snakepit's own module of the same file loads ours too, whichever comes first."""
    ours = "from crucible_worker.snakepit.wire.snakepit_bridge_pb2 import PingRequest"
    theirs = (
        "from google.protobuf.descriptor_pb2 import FileDescriptorProto\n"
        "from google.protobuf.descriptor_pool import Default\n"
        "file = FileDescriptorProto(name='snakepit_bridge.proto', package='snakepit.bridge')\n"
        "file.message_type.add(name='PingRequest')\n"
        "Default().AddSerializedFile(file.SerializeToString())"
    )
    lines = [ours, theirs] if ours_first else [theirs, ours]
    program = "\n".join([*lines, "print(PingRequest(message='x').SerializeToString())"])

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "b'\\n\\x01x'\n"


def test_sessions_are_bounded():
    """The oldest of too many sessions is forgotten; one that is opened again stays as it was."""
    sessions = Sessions()
    for number in range(MAX_SESSIONS + 1):
        sessions.open(str(number), {"n": str(number)})
    sessions.open("1", {"n": "other"})

    assert not sessions.close("0")
    assert sessions.get("1").metadata == {"n": "1"}
    assert sessions.close("1")


def test_the_memory_of_sessions_is_bounded(monkeypatch: pytest.MonkeyPatch):
    """Large ones forget the oldest; what is closed takes no room any more."""
    monkeypatch.setattr("crucible_worker.snakepit.service.MAX_SESSIONS_BYTES", 100_000)
    sessions = Sessions()
    for number in range(10):
        sessions.open(str(number), {"text": "x" * 30_000})
    assert [number for number in range(10) if sessions.close(str(number))] == [7, 8, 9]

    sessions.open("many", {f"key {number}": "" for number in range(1_000)})
    with pytest.raises(NotFound):
        sessions.get("many")
    sessions.open("small", {})
    assert sessions.get("small").metadata == {}


def test_parameters_of_too_many_parts_are_not_parsed(monkeypatch: pytest.MonkeyPatch):
    """Lists, objects and texts are counted over all parameters; the error names the one that has the most."""
    monkeypatch.setattr(service, "MAX_PARTS", 12)
    asked: dict[str, object] = {"a": [[], [], [], []], "b": {"k": {}}, "c": [{}, "["]}
    assert read_tool_request(request("t", asked, {}).SerializeToString(), None).parameters() == asked

    with pytest.raises(InvalidField, match="more than 12 lists, objects and texts") as refused:
        read_tool_request(request("t", asked | {"d": []}, {}).SerializeToString(), None).parameters()
    assert refused.value.field == "a"


@pytest.mark.parametrize("large", [0, 64 * 1024])
def test_binary_parameters_are_bounded(large: int, monkeypatch: pytest.MonkeyPatch):
    """As every map of a request, also where they are read in place."""
    monkeypatch.setattr(service, "LARGE_BYTES", large)
    message = pb.ExecuteToolRequest(tool_name="t", binary_parameters={f"k{n}": b"0123" for n in range(MAX_MAP_ENTRIES)})
    assert len(read_tool_request(message.SerializeToString(), None).binary) == MAX_MAP_ENTRIES

    message.binary_parameters["one more"] = b""
    with pytest.raises(InvalidField, match="more than 10,000 entries") as refused:
        read_tool_request(message.SerializeToString(), None)
    assert refused.value.field == "binary_parameters"


def test_flags_and_variables_are_those_of_serve(tmp_path: Path):
    """The pool's arguments and CRUCIBLE_ variables become settings; Snakepit's say how it is told of readiness."""
    arguments = [f"--state-dir={tmp_path}", f"--model-root={tmp_path}", "--limit=max_streams=7", "--hub-network"]
    arguments += [f"--code-image=sci={tmp_path}"]
    environment = {
        "CRUCIBLE_GRADING_PROCESSES": "3",
        "CRUCIBLE_UNIX_SOCKET": "/run/other",
        "SNAKEPIT_READY_FILE": str(tmp_path / "ready"),
        "SNAKEPIT_LOG_LEVEL": "none",
    }

    settings = read_launch([*arguments, *APPENDED], environment, Path("/script"))

    assert (settings.host, settings.port, settings.unix_socket) == ("127.0.0.1", 0, None)
    assert (settings.state_dir, settings.model_roots) == (tmp_path, (tmp_path,))
    assert settings.code_images == (CodeImage(name="sci", directory=tmp_path),)
    assert (settings.limits.max_streams, settings.grading_processes, settings.hub_network) == (7, 3, True)
    assert (settings.ready_file, settings.log_level) == (tmp_path / "ready", "error")


def test_a_configuration_file_is_read_and_its_address_is_not(tmp_path: Path):
    """A file that is shared with `serve` may say where that one listens."""
    (tmp_path / "worker.toml").write_text('host = "0.0.0.0"\nunix_socket = "w.sock"\nlog_level = "debug"\n')
    path = tmp_path / "worker.toml"

    settings = read_launch([f"--config={path}", f"--state-dir={tmp_path}", *APPENDED], {}, Path("/script"))

    assert (settings.host, settings.unix_socket, settings.log_level) == ("127.0.0.1", None, "debug")


@rows(
    "arguments", [["--stat-dir", "/x"], ["--state"], ["--state-dir"], ["--log-level=loud"], ["--host=0.0.0.0"], ["-v"]]
)
def test_mistakes_are_refused(arguments: list[str]):
    """Unknown and shortened flags, flags without a value, values that cannot be."""
    with pytest.raises((LaunchError, SettingsError)):
        read_launch([*arguments, *APPENDED], {}, Path("/script"))


@rows(("value", "asked"), [("1", True), ("TRUE", True), ("on", True), ("0", False), ("", False)])
def test_a_session_of_its_own_is_asked_for(value: str, asked: bool):
    """SNAKEPIT_PROCESS_GROUP says whether the process is to lead a group."""
    assert own_session({"SNAKEPIT_PROCESS_GROUP": value}) is asked
