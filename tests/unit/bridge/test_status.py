"""Errors become statuses and come back as what they were."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import status_pb2
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge import connect, errors
from crucible_bridge.channel import open_channel
from crucible_bridge.errors import (
    BackendError,
    BridgeError,
    Code,
    InternalError,
    InvalidField,
    ResourceExhausted,
    Unavailable,
)
from crucible_bridge.status import (
    DETAILS_KEY,
    MAX_FACTS_BYTES,
    MAX_FIELD_BYTES,
    MAX_STATUS_BYTES,
    MAX_STATUS_MESSAGE_BYTES,
    STATUS_CODES,
    from_rpc_error,
    to_status,
)
from tests.tables import rows
from tests.unit.bridge import strategies as some

CLASSES = [
    kind
    for name in errors.__all__
    if isinstance(kind := getattr(errors, name), type) and issubclass(kind, BridgeError) and kind is not InvalidField
]


def over_the_wire(error: BridgeError) -> BridgeError:
    """What a client makes of the status of an error."""
    code, message, trailers = to_status(error)
    return from_rpc_error(rpc_error(code, message, trailers))


def rpc_error(code: grpc.StatusCode, message: str, trailers: tuple[tuple[str, Any], ...] = ()) -> grpc.aio.AioRpcError:
    """The error that grpc.aio raises for a status."""
    return grpc.aio.AioRpcError(
        code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailers), details=message, debug_error_string=None
    )


def facts(error: BridgeError) -> tuple[Any, ...]:
    """Everything that an error says."""
    return (
        type(error),
        error.code,
        error.reason,
        error.message,
        error.field,
        error.retryable,
        error.retry_after,
        error.metadata,
        str(error),
    )


@rows("code", Code)
def test_every_code_has_its_status(code: Code):
    """The table is total, one to one, and by the same names."""
    assert STATUS_CODES[code].name == code
    assert over_the_wire(BridgeError("is wrong", code=code)).code is code
    assert len(set(STATUS_CODES.values())) == len(Code)


@rows("kind", CLASSES)
@rows("retryable", [True, False])
def test_every_class_comes_back_as_itself(kind: type[BridgeError], retryable: bool):
    """Class, code, reason, message, whether and when to retry, and the facts survive."""
    error = kind("is wrong", retryable=retryable, retry_after=1.25, metadata={"evaluation_id": "e-1"})

    assert facts(over_the_wire(error)) == facts(error)


def test_a_field_comes_back():
    """The path and what is wrong with it are told apart again."""
    error = InvalidField('data[3].loss_fn_inputs["mask"]', "has 3 values for 4 tokens", reason="LENGTH_MISMATCH")

    assert facts(over_the_wire(error)) == facts(error)
    assert to_status(error)[1] == str(error)


def test_a_backends_error_is_known_by_its_reason():
    """BackendError shares its code with Unavailable; reasons that begin with BACKEND_ are its own."""
    error = BackendError("timed out", reason="BACKEND_TIMEOUT", code=Code.DEADLINE_EXCEEDED)

    assert facts(over_the_wire(error)) == facts(error)


@given(
    message=st.text(max_size=3_000),
    field=st.text(max_size=3_000),
    reason=st.text(max_size=200),
    metadata=st.dictionaries(st.text(max_size=300), st.text(max_size=800), max_size=4),
    retry_after=st.none() | st.floats(),
)
def test_no_error_makes_a_status_too_large(
    message: str, field: str, reason: str, metadata: dict[str, str], retry_after: float | None
):
    """Whatever an error holds, message and details stay below the limit and can be read."""
    error = BridgeError(message, field=field, reason=reason, metadata=metadata, retry_after=retry_after)

    code, text, trailers = to_status(error)

    (key, details), *others = trailers
    assert (key, others) == (DETAILS_KEY, [])
    assert isinstance(details, bytes)
    assert text.isascii()
    wire = sum(1 if " " <= c <= "~" and c != "%" else 3 for c in text) + -(-len(details) // 3) * 4
    assert wire <= MAX_STATUS_BYTES
    assert status_pb2.Status.FromString(details).message == text
    restored = from_rpc_error(rpc_error(code, text, trailers))
    assert restored.retryable is error.retryable
    assert len(restored.field.encode()) <= MAX_FIELD_BYTES


@rows("character", ["x", "%", "\n", "é", "\N{GRINNING FACE}"])
def test_the_worst_case_fits(character: str):
    """Field, facts and message at their longest leave room for a message that still says something."""
    error = BridgeError(
        character * 5_000,
        field=character * 5_000,
        metadata={"k": character * 140, "l": character * 4_000},
        retry_after=9,
    )

    _, text, ((_, details),) = to_status(error)

    assert sum(1 if " " <= c <= "~" and c != "%" else 3 for c in text) + len(details) * 4 / 3 <= MAX_STATUS_BYTES
    assert text.endswith("...")
    assert isinstance(details, bytes)
    assert len(status_pb2.Status.FromString(details).message) > 300


def test_a_message_at_its_limit_is_whole():
    """One byte more, and an ellipsis says that it was cut."""
    whole = over_the_wire(BridgeError("x" * MAX_STATUS_MESSAGE_BYTES)).message
    cut = over_the_wire(BridgeError("x" * (MAX_STATUS_MESSAGE_BYTES + 1))).message

    assert whole == "x" * MAX_STATUS_MESSAGE_BYTES
    assert cut == "x" * (MAX_STATUS_MESSAGE_BYTES - 3) + "..."


def test_facts_beyond_their_room_are_left_out():
    """The first facts stand, whole."""
    error = BridgeError("m", metadata={"a": "x" * (MAX_FACTS_BYTES - 1), "b": "y"})

    assert over_the_wire(error).metadata == {"a": "x" * (MAX_FACTS_BYTES - 1)}


def test_other_characters_are_escaped_in_the_message():
    """A status message is ASCII, as not every client decodes more."""
    assert to_status(BridgeError("café\ud800"))[1] == r"caf\xe9\ud800"


@rows("code", [code for code in Code if code is not Code.CANCELLED])
def test_a_status_without_details_is_judged_by_its_code(code: Code):
    """A broken connection or another server gives the class of the code; only what may pass is retryable."""
    error = from_rpc_error(rpc_error(STATUS_CODES[code], "lost"))

    assert error.code is code
    assert error.message == "lost"
    assert error.retryable == (code in (Code.UNAVAILABLE, Code.INTERNAL, Code.DEADLINE_EXCEEDED))


def test_a_call_that_the_server_cancels_is_that_of_a_lost_worker():
    """The caller has not cancelled it: gRPC in a server that stops answers so, with the code's name as its text."""
    error = from_rpc_error(rpc_error(grpc.StatusCode.CANCELLED, "CANCELLED"))

    assert isinstance(error, Unavailable)
    assert (error.code, error.reason, error.retryable) == (Code.UNAVAILABLE, "TRANSPORT", True)
    assert error.message == "the worker stopped before it answered"
    assert from_rpc_error(rpc_error(grpc.StatusCode.CANCELLED, "call ended")).message == "call ended"


async def test_calls_that_meet_the_end_of_a_server_may_be_made_again():
    """Callers without a pause while their server stops: each call is answered, or ends as that of a lost worker."""

    class Echo(grpc.GenericRpcHandler):
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
            async def echo(request: bytes, context: Any) -> bytes:
                return request

            return grpc.unary_unary_rpc_method_handler(echo)

    async def call_on(channel: grpc.aio.Channel) -> BridgeError:
        echo = channel.unary_unary("/of.a/test", bytes, bytes)
        while True:
            try:
                assert await echo(b"called") == b"called"
            except grpc.aio.AioRpcError as error:
                return from_rpc_error(error)

    for _ in range(10):
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((Echo(),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        channel = open_channel(f"127.0.0.1:{port}")
        await channel.channel_ready()
        calling = [asyncio.create_task(call_on(channel)) for _ in range(8)]
        await asyncio.sleep(0)
        await server.stop(1)
        for error in await asyncio.gather(*calling):
            assert (error.code, error.reason, error.retryable) == (Code.UNAVAILABLE, "TRANSPORT", True)
        await channel.close(None)


def test_a_message_over_grpcs_limit_is_not_worth_a_retry():
    """The transport says RESOURCE_EXHAUSTED for it, as for what may be free later."""
    error = from_rpc_error(
        rpc_error(grpc.StatusCode.RESOURCE_EXHAUSTED, "CLIENT: Sent message larger than max (2 vs. 1)")
    )

    assert isinstance(error, ResourceExhausted)
    assert (error.reason, error.retryable) == ("MESSAGE_TOO_LARGE", False)


@pytest.mark.parametrize("details", [b"\xff\xff", b"", status_pb2.Status(code=13).SerializeToString()])
def test_details_that_are_not_ours_are_ignored(details: bytes):
    """Damaged or foreign details never hide the status."""
    error = from_rpc_error(rpc_error(grpc.StatusCode.INTERNAL, "broken", ((DETAILS_KEY, details),)))

    assert isinstance(error, InternalError)
    assert error.message == "broken"


def test_an_error_without_a_status_is_unknown():
    """A bare RpcError says no more than its text."""
    assert from_rpc_error(grpc.RpcError("odd")).code is Code.UNKNOWN


@given(some.text)
def test_messages_that_fit_survive(message: str):
    """Short ASCII messages come back as they were."""
    if message.isascii() and message:
        assert over_the_wire(BridgeError(message)).message == message


@pytest.mark.parametrize("kind", ["port", "socket"])
async def test_an_address_where_nothing_listens_is_named_with_the_cure(kind: str, tmp_path: Path):
    """A newcomer who has not started a worker reads so, in place of gRPC's account; the call may be made again."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        free = f"127.0.0.1:{taken.getsockname()[1]}"
    address = free if kind == "port" else f"unix:{tmp_path / 'none'}"
    why = "Connection refused" if kind == "port" else "No such file or directory"
    async with connect(address) as bridge:
        with pytest.raises(Unavailable) as caught:
            await bridge.worker.get_info()

    assert str(caught.value) == f"nothing listens on {address} ({why}); crucible-worker serve starts a worker"
    assert (caught.value.reason, caught.value.retryable) == ("TRANSPORT", True)


@pytest.mark.parametrize(
    ("end", "cure"),
    [
        ("UNAVAILABLE: ipv4:127.0.0.1:2: Socket closed", "tls, or --tls-ca FILE"),
        ("UNKNOWN: ipv4:127.0.0.1:2: Peer name 127.0.0.1 is not in peer certificate", "or --tls-name NAME"),
    ],
)
def test_a_call_that_misses_tls_or_the_certificates_name_is_told_the_option(end: str, cure: str):
    """To one worker and to a pool; gRPC's own account stays, and the call may be made again."""
    for beginning in ("failed to connect to all addresses", "connections to all backends failing"):
        details = f"{beginning}; last error: {end}"
        error = from_rpc_error(
            grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), details, None)
        )
        assert str(error).startswith(f"{details}; ")
        assert str(error).endswith(cure)
        assert error.retryable


def test_a_pool_without_workers_is_said_to_be_one():
    """The last address stands for all; a call to one worker names that alone."""
    refused = (
        "last error: UNKNOWN: ipv4:127.0.0.1:2: Failed to connect to remote host: connect: Connection refused (111)"
    )
    whole = {
        "failed to connect to all addresses": "nothing listens on 127.0.0.1:2",
        "connections to all backends failing": "no worker of the pool can be reached; nothing listens on 127.0.0.1:2",
    }
    for beginning, said in whole.items():
        error = grpc.aio.AioRpcError(
            grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), f"{beginning}; {refused}", None
        )
        assert str(from_rpc_error(error)).startswith(said)
