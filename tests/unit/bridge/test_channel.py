"""Addresses, tokens, certificates, and what is asked again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crucible_bridge.channel import (
    MAX_MESSAGE_BYTES,
    Address,
    Tls,
    authorization,
    channel_options,
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
