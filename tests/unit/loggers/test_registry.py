"""Names of loggers: what `log_to` accepts, and how it refuses the rest."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

import pytest

from crucible_bridge.errors import BridgeError, FailedPrecondition, InvalidField, PermissionDenied
from crucible_worker.loggers.base import Logger
from crucible_worker.loggers.registry import BUILT_IN, find, kinds, make, read
from tests.unit.loggers.loggers_kit import install_loggers


@pytest.fixture(autouse=True)
def loggers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with further loggers."""
    install_loggers(tmp_path / "packages", monkeypatch)


@pytest.mark.parametrize(
    ("text", "kind", "options"),
    [
        ("jsonl", "jsonl", {}),
        ("jsonl:/tmp/a b", "jsonl", {"directory": "/tmp/a b"}),
        ("jsonl?directory=out&code_diff=.", "jsonl", {"directory": "out", "code_diff": "."}),
        ("jsonl:a%3Fb?code_diff=.", "jsonl", {"directory": "a?b", "code_diff": "."}),
        ("jsonl:a:b", "jsonl", {"directory": "a:b"}),
        ("console?text_characters=0", "console", {"text_characters": 0}),
        ("scripted:x?times=3", "scripted", {"path": "x", "times": 3}),
    ],
)
def test_a_name_has_a_kind_a_target_and_options(text: str, kind: str, options: dict[str, object]) -> None:
    """In the spelling of models and data sets."""
    found = read(text, "--log-to", by_operator=True)
    assert (found.kind, found.options, found.text) == (kind, options, text)
    assert isinstance(make(found), Logger)


@pytest.mark.parametrize(
    ("text", "error", "reason", "message"),
    [
        ("", InvalidField, "UNKNOWN_LOGGER", r"log_to\[0\] is '', not one of: trackio, jsonl, console"),
        ("jsnl", InvalidField, "UNKNOWN_LOGGER", "not one of: .*in the group 'crucible_worker.loggers'"),
        ("neptune", InvalidField, "UNKNOWN_LOGGER", "Neptune's service ended on 2026-03-05. Use one of: trackio"),
        ("neptune:me/mine?mode=x", InvalidField, "UNKNOWN_LOGGER", "ended on 2026-03-05"),
        ("jsonl:", InvalidField, "INVALID_FIELD", "nothing after the colon"),
        ("jsonl:a?directory=b", InvalidField, "INVALID_FIELD", "sets directory twice"),
        ("jsonl?directory=a&directory=b", InvalidField, "INVALID_FIELD", "'directory' twice"),
        ("jsonl?directory", InvalidField, "INVALID_FIELD", "not KEY=VALUE"),
        ("jsonl?dir=a", InvalidField, "UNKNOWN_OPTION", r'log_to\[0\]\["dir"\] is unknown; .*known are: directory'),
        ("console:x", InvalidField, "INVALID_FIELD", "takes nothing after a colon"),
        ("console?text_characters=many", InvalidField, "INVALID_FIELD", "is 'many', must be a whole number"),
        ("console?text_characters=-1", InvalidField, "INVALID_FIELD", "at least 0"),
        ("scripted", InvalidField, "INVALID_FIELD", r'\["path"\] is missing'),
        ("x" * 5_000, InvalidField, "INVALID_FIELD", "has 5,000 characters, at most 4,096"),
        ("no_logger", FailedPrecondition, "BAD_LOGGER", "is a int at .*, not a subclass of Logger"),
        ("no_dataclass", FailedPrecondition, "BAD_LOGGER", "which is no dataclass"),
        ("missing", FailedPrecondition, "BAD_LOGGER", "cannot be loaded"),
    ],
)
def test_what_is_wrong_is_named(text: str, error: type[BridgeError], reason: str, message: str) -> None:
    """With the field as the caller wrote it, and the cure."""
    with pytest.raises(error) as caught:
        read(text, "log_to[0]", by_operator=True)
    assert caught.value.reason == reason
    assert re.search(message, str(caught.value))


@pytest.mark.parametrize(
    "text",
    [
        "jsonl:/tmp/x",
        "jsonl?code_diff=/tmp",
        "trackio?directory=/tmp",
        "wandb?base_url=http://169.254.169.254",
        "mlflow?tracking_uri=sqlite:////tmp/x.db",
        "tensorboardx:/tmp/x",
        "scripted:x?secret=y",
    ],
)
def test_a_request_names_no_place_of_the_worker(text: str) -> None:
    """Where loggers write and send to is the operator's choice."""
    with pytest.raises(PermissionDenied, match="only the worker's own --log-to may set") as caught:
        read(text, "log_to[0]", by_operator=False)
    assert (caught.value.reason, caught.value.field) == ("LOGGER_OPTION", "log_to[0]")
    assert read("jsonl", "log_to[0]", by_operator=False).options == {}


def test_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the extra is not installed."""
    for library, kind, extra in (
        ("trackio", "trackio", "trackio"),
        ("wandb", "wandb", "wandb"),
        ("mlflow", "mlflow", "mlflow"),
        ("tensorboardX", "tensorboardx", "tensorboard"),
    ):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(FailedPrecondition, match=rf"needs {library}.*crucible-bridge\[{extra}\]") as caught:
            read(kind, "--log-to", by_operator=True)
        assert caught.value.reason == "EXTRA_NOT_INSTALLED"


def test_built_in_loggers_need_no_library_to_be_named() -> None:
    """Their classes are imported without those of the trackers, and packages replace none of them."""
    assert kinds()[: len(BUILT_IN)] == list(BUILT_IN)
    assert "scripted" in kinds()
    before = set(sys.modules)
    for kind in BUILT_IN:
        declared = find(kind)
        assert dataclasses.is_dataclass(declared)
        assert declared.__module__ == f"crucible_worker.loggers.{kind}"
        names = {field.name for field in dataclasses.fields(declared)}
        assert declared.operator_options <= names
        assert declared.target is None or declared.target in names
    assert not {"trackio", "wandb", "mlflow", "tensorboardX"} & (set(sys.modules) - before)
