"""The Elixir client's tests that need neither Mix nor Hex, and the statuses that they read."""

from __future__ import annotations

import subprocess
from pathlib import Path

from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from crucible_bridge.errors import (
    AlreadyExists,
    BackendError,
    BridgeError,
    DeadlineExceeded,
    FailedPrecondition,
    InternalError,
    InvalidField,
    NotFound,
    OutOfRange,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from crucible_bridge.status import to_status
from tests import needs

CLIENT = Path(__file__).resolve().parents[2] / "elixir_client_example"
STATUSES = CLIENT / "test" / "pure" / "statuses.txt"
COLUMNS = "status text details code reason field message retryable retry_after_ms facts"

ERRORS: tuple[BridgeError, ...] = (
    InvalidField('data[3].loss_fn_inputs["mask"]', "has 3 values, where there are 4"),
    InvalidField("evaluators[0].kind", "is not known", reason="UNKNOWN_EVALUATOR"),
    NotFound("there is no such evaluation", reason="UNKNOWN_EVALUATION"),
    AlreadyExists(
        "the evaluation has another specification",
        reason="OTHER_SPECIFICATION",
        metadata={"fingerprint": "00ff", "requested_fingerprint": "ff00"},
    ),
    FailedPrecondition("the log is another one", reason="OTHER_LOG", metadata={"log_id": "abc"}),
    OutOfRange("no longer retained", reason="NO_LONGER_RETAINED", metadata={"oldest_sequence": "12", "log_id": "abc"}),
    ResourceExhausted("the queue is full", reason="QUEUE_FULL", retry_after=2.5),
    Unavailable("the worker drains", reason="DRAINING", retry_after=0.25),
    BackendError("the model cannot be asked", reason="BACKEND_FAILED"),
    BackendError("the model answered nonsense", reason="BACKEND_ANSWER", retryable=False),
    DeadlineExceeded("the call's deadline is near", metadata={"evaluation_id": "e-1"}),
    Unauthenticated("no token", reason="MISSING_TOKEN"),
    InternalError("a bug", metadata={"error_id": "1f"}),
    NotFound("caf\u00e9 is not there"),
)


def status_line(error: BridgeError) -> str:
    """An error as its status travels, and what a client is to make of it."""
    code, text, ((_, details),) = to_status(error)
    assert isinstance(details, bytes)
    status = status_pb2.Status.FromString(details)
    packed = ",".join(f"{each.TypeName().removeprefix('google.rpc.')}:{ordered(each).hex()}" for each in status.details)
    after = "" if error.retry_after is None else str(round(error.retry_after * 1_000))
    facts = ",".join(f"{key}={value}" for key, value in sorted(error.metadata.items()))
    message = error.message.encode("ascii", "backslashreplace").decode()
    flag = "true" if error.retryable else "false"
    columns = (code.value[0], text, packed, error.code.lower(), error.reason, error.field, message, flag, after, facts)
    return "\t".join(map(str, columns))


def ordered(detail: any_pb2.Any) -> bytes:
    """A detail's bytes, the entries of its map in an order of their own."""
    info = error_details_pb2.ErrorInfo()
    return info.SerializeToString(deterministic=True) if detail.Unpack(info) else detail.value


def test_statuses_are_those_of_this_version() -> None:
    """What the Elixir client's tests take for a worker's statuses is what a worker sends."""
    wanted = ["# " + COLUMNS.replace(" ", "\t"), *map(status_line, ERRORS)]
    assert STATUSES.read_text().splitlines() == wanted


def test_pure_tests_pass(tmp_path: Path) -> None:
    """Packing, errors, events, references and data sets hold on plain Elixir, without a dependency."""
    elixir = needs.program("elixir")
    run = subprocess.run(
        [elixir, str(CLIENT / "test" / "pure" / "run.exs")],
        cwd=tmp_path,  # ExUnit's own temporary folders lie in the current one
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert " 0 failures" in run.stdout
