"""Keys that are given by variables: read from the environment, and from where a worker hides them."""

import os

import pytest

from crucible_worker.backends.endpoints import read_key, withdraw


def test_a_key_is_found_when_its_variable_is_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment that children inherit has it no longer; a variable that was not there is no matter."""
    monkeypatch.setenv("MY_KEY", "canary-1")
    monkeypatch.delenv("NO_KEY", raising=False)

    environment = withdraw(["MY_KEY", "NO_KEY"])

    assert "MY_KEY" not in os.environ
    assert read_key(None, "MY_KEY", "x", environment) == "canary-1"
    with pytest.raises(ValueError, match="has no key: set the variable NO_KEY"):
        read_key(None, "NO_KEY", "x", environment)


def test_what_one_worker_withdraws_another_does_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has the keys that were there when it started, and variables that are set later."""
    monkeypatch.setenv("MY_KEY", "canary-1")
    first = withdraw(["MY_KEY"])
    second = withdraw(["MY_KEY"])

    assert read_key(None, "MY_KEY", "x", first) == "canary-1"
    with pytest.raises(ValueError, match="has no key: set the variable MY_KEY"):
        read_key(None, "MY_KEY", "x", second)

    monkeypatch.setenv("MY_KEY", "canary-2")
    assert read_key(None, "MY_KEY", "x", first) == read_key(None, "MY_KEY", "x", second) == "canary-2"
