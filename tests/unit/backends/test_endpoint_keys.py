"""Keys that are given by variables: read from the environment, and from where a worker hides them."""

import os

import pytest

from crucible_worker.backends import endpoints
from crucible_worker.backends.endpoints import read_key, withdraw


def test_a_key_is_found_when_its_variable_is_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment that children inherit has it no longer; a variable that was not there is no matter."""
    monkeypatch.setattr(endpoints, "_withdrawn", {})
    monkeypatch.setenv("MY_KEY", "canary-1")
    monkeypatch.delenv("NO_KEY", raising=False)
    withdraw(["MY_KEY", "NO_KEY"])
    withdraw(["MY_KEY"])
    assert "MY_KEY" not in os.environ
    assert read_key(None, "MY_KEY", "x") == "canary-1"
    with pytest.raises(ValueError, match="has no key: set the variable NO_KEY"):
        read_key(None, "NO_KEY", "x")
