"""Addresses, tokens, certificates, and what is asked again."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.channel import (
    MAX_MESSAGE_BYTES,
    Address,
    Tls,
    authorization,
    channel_options,
    hide_poller_races,
    open_channel,
    parse_address,
    server_options,
)
from crucible_bridge.errors import InvalidField
from tests.tables import rows


@rows(
    ("text", "address"),
    [
        ("127.0.0.1:50051", Address("127.0.0.1:50051", host="127.0.0.1", port=50051)),
        ("localhost:0", Address("localhost:0", host="localhost")),
        ("[::1]:1", Address("[::1]:1", host="::1", port=1)),
        ("0.0.0.0:65535", Address("0.0.0.0:65535", host="0.0.0.0", port=65535)),
        ("[::]:1", Address("[::]:1", host="::", port=1)),
        ("worker.example:50051", Address("worker.example:50051", host="worker.example", port=50051)),
        ("unix:/run/w.sock", Address("unix:/run/w.sock", path="/run/w.sock")),
        ("unix:///run/w.sock", Address("unix:/run/w.sock", path="/run/w.sock")),
        ("unix:w.sock", Address("unix:w.sock", path="w.sock")),
    ],
)
def test_addresses_are_read(text: str, address: Address):
    """Host and port, bracketed IPv6 and Unix sockets."""
    assert parse_address(text) == address


@rows(
    "text",
    [
        "",
        "host",
        ":1",
        "host:",
        "host:x",
        "host:65536",
        "host:-1",
        "host:1²",
        "::1:1",
        "[::1]",
        "a b:1",
        "http://h:1",
        "unix:",
    ],
)
def test_other_addresses_are_refused(text: str):
    """The error says what an address looks like."""
    with pytest.raises(InvalidField) as caught:
        parse_address(text)

    assert caught.value.field == "address"


def test_a_token_travels_as_a_bearer():
    """Without one there is no metadata; one that a header cannot carry is refused, and not echoed."""
    assert authorization(None) == ()
    assert authorization("s3cret") == (("authorization", "Bearer s3cret"),)
    for token in ("", "a b", "a\n", "é"):
        with pytest.raises(InvalidField) as caught:
            authorization(token)
        assert not token or token not in str(caught.value)


def test_only_reads_are_asked_again():
    """Starting an evaluation, asking a model, cancelling and draining are never repeated behind the caller's back."""
    config = json.loads(dict(channel_options())["grpc.service_config"])

    (method,) = config["methodConfig"]
    models = {"ComputeKLPostUpdate", "IncorporateKLPenalty"}
    repeated = {name["method"] for name in method["name"]}
    assert {"GetEvaluation", "ComputeMeanNLL", "Subscribe"} <= repeated
    changing = {f"{verb}Evaluation" for verb in ("Start", "Cancel", "Delete", "Pause", "Resume")}
    assert not {"Evaluate", *changing, "SetEvaluationConcurrency", "Drain", *models} & repeated
    assert method["retryPolicy"]["retryableStatusCodes"] == ["UNAVAILABLE", "CANCELLED"]


def test_both_sides_take_messages_of_one_size():
    """Unless it is told, gRPC refuses requests above 4 MiB."""
    for options in (dict(channel_options()), dict(server_options())):
        assert options["grpc.max_receive_message_length"] == MAX_MESSAGE_BYTES
        assert options["grpc.max_send_message_length"] == MAX_MESSAGE_BYTES


def test_certificates_that_cannot_be_used_are_refused(tmp_path: Path):
    """A missing file names its field; a key without its certificate is a mistake."""
    with pytest.raises(InvalidField, match=r"tls\.ca"):
        Tls(ca=tmp_path / "missing.pem").credentials()
    with pytest.raises(InvalidField, match="tls"):
        Tls(key=b"key").credentials()


async def test_a_channel_is_opened_without_a_worker():
    """Opening connects to nothing yet."""
    channel = open_channel("127.0.0.1:1")

    await channel.close(None)


def _callback_of_grpc(loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
    """What an event loop calls when gRPC's poller has written a byte."""
    keys = loop._selector.get_map().values()  # pyright: ignore[reportAttributeAccessIssue]: asyncio's own
    callbacks = [key.data[0]._callback for key in keys if key.data[0] is not None]
    (callback,) = [each for each in callbacks if "_handle_events" in repr(each)]
    return callback


def _lost_race() -> BlockingIOError:
    """What gRPC's callback raises when a loop in another thread has read the byte."""
    callback = _callback_of_grpc(asyncio.get_running_loop())
    while True:  # a byte may wait, of an event of a test before
        try:
            callback()
        except BlockingIOError as error:
            return error
        except RuntimeError as error:  # the event was for the closed loop of a test before
            assert str(error) == "Event loop is closed"  # noqa: PT017 - the next byte is read


async def _raised_in_callback(callback: Callable[..., object]) -> None:
    """Have the loop call it, and report what it raises."""
    asyncio.get_running_loop().call_soon(callback)
    await asyncio.sleep(0)


async def test_a_lost_race_of_grpcs_poller_is_not_logged(caplog: pytest.LogCaptureFixture):
    """Nor where other code calls gRPC's callback in between, or its frame bears the name of another function."""
    misnamed: dict[str, Any] = {}
    source = "def _send_message(): raise BlockingIOError(11, 'Resource temporarily unavailable')"
    exec(compile(source, "src/python/grpcio/grpc/_cython/_cygrpc/aio/callback_common.pyx.pxi", "exec"), misnamed)
    async with open_channel("127.0.0.1:1"):
        _lost_race()
        callback = _callback_of_grpc(asyncio.get_running_loop())
        await _raised_in_callback(callback)
        await _raised_in_callback(lambda: callback())
        await _raised_in_callback(misnamed["_send_message"])
    # Events of closed loops, of tests before, are errors of another kind.
    raised = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert not [error for error in raised if isinstance(error, BlockingIOError)]


async def test_every_other_record_of_asyncio_is_logged(caplog: pytest.LogCaptureFixture):
    """Another error of that callback, that error of another callback, and records without an error."""

    class PollerCompletionQueue:
        def _handle_events(self, error: BaseException) -> None:
            raise error

    async with open_channel("127.0.0.1:1"):
        lost = _lost_race()
        other = BlockingIOError(lost.errno, lost.strerror)
        await _raised_in_callback(functools.partial(PollerCompletionQueue()._handle_events, other))
        log = logging.getLogger("asyncio")
        failed: tuple[Any, ...] = (RuntimeError, RuntimeError("Event loop is closed"), lost.__traceback__)
        log.error("Exception in callback PollerCompletionQueue._handle_events()", exc_info=failed)
        log.error("Exception in callback PollerCompletionQueue._handle_events()")
        log.error("never raised", exc_info=other.with_traceback(None))
        log.error("no error", exc_info=(None, None, None))
    errors = [record.exc_info[1] if record.exc_info else None for record in caplog.records]
    ours = [error for error in errors if error in (other, failed[1], None)]
    assert ours == [other, failed[1], None, other, None]


def test_asyncios_records_are_looked_at_once():
    """However often a client or a worker starts."""
    hide_poller_races()
    before = list(logging.getLogger("asyncio").filters)
    hide_poller_races()
    assert logging.getLogger("asyncio").filters == before
