"""What `--fanout` accepts, and the variables of the process that connects; Ray need not be installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from crucible_worker.grading.fanout.address import endpoint_of, ray_variables, read_fanout

GOOD = ("auto", "local", "ray://head:10001", "ray://10.0.0.1:1", "ray://[::1]:65535")
BAD = ("", "Auto", "ray://", "ray://head", "ray://head:0", "ray://head:65536", "ray://me@head:1", "head:10001", 7, None)


@pytest.mark.parametrize("text", GOOD)
def test_addresses_of_clusters_are_accepted(text: str):
    """As they are typed."""
    assert read_fanout(text, Path()) == text


@pytest.mark.parametrize("value", BAD)
def test_other_values_are_refused_with_what_is_expected(value: object):
    """Before anything connects."""
    with pytest.raises(ValueError, match="ray://HOST:PORT, auto or local"):
        read_fanout(value, Path())


def test_the_endpoint_is_that_of_the_server_of_clients():
    """An address of IPv6 without its brackets; other clusters have none."""
    assert [endpoint_of(text) for text in GOOD] == [None, None, ("head", 10001), ("10.0.0.1", 1), ("::1", 65535)]


def test_a_token_that_is_there_is_sent_unless_the_user_says_otherwise(tmp_path, monkeypatch):
    """Ray has it in a file of the home, or in a variable; a cluster of this machine alone needs no word about it."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    token = {"RAY_AUTH_TOKEN": "secret"}

    assert "RAY_AUTH_MODE" not in ray_variables("auto", {})
    assert ray_variables("auto", token)["RAY_AUTH_MODE"] == "token"
    assert "RAY_AUTH_MODE" not in ray_variables("auto", token | {"RAY_AUTH_MODE": "disabled"})
    assert "RAY_AUTH_MODE" not in ray_variables("local", token)
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("secret")
    assert ray_variables("ray://head:1", {})["RAY_AUTH_MODE"] == "token"
