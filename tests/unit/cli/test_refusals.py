"""Refusals in the words of who typed the request."""

from pathlib import Path

import pytest

from crucible_bridge.errors import (
    AlreadyExists,
    BridgeError,
    FailedPrecondition,
    InvalidField,
    NotFound,
    PermissionDenied,
    Unavailable,
)
from crucible_worker.cli.refusals import Refused, in_flags, refusing
from crucible_worker.config import Settings
from tests.tables import rows

SETTINGS = Settings(model_roots=(Path("/models"),), data_roots=(Path("/a"), Path("/b")))
TYPED = ["nll", "mine=accuracy"]


def _told(error: BridgeError) -> str:
    with pytest.raises(Refused) as caught, refusing(SETTINGS, TYPED):
        raise error
    assert caught.value.error is error
    return str(caught.value)


@rows(
    ("field", "flag"),
    [
        ("model", "--model"),
        ("model.path", "--model"),
        ("dataset.limit", "--samples"),
        ("dataset.builtin", "--data"),
        ("dataset.jsonl_path", "--data"),
        ("option[0]", "--option"),
        ("sampling.max_tokens", "--max-tokens"),
        ("sampling.stop[1]", "--stop"),
        ("limits.max_unscored", "--max-unscored"),
        ("evaluators[1].kind", "--evaluator"),
        ("evaluators[1].name", "--evaluator mine=accuracy"),
        ("evaluators[0]", "--evaluator nll"),
        ('evaluators[1].options["grader"]', "--option mine.grader"),
        ('evaluators[0].options["train_on"][0]', "--option nll.train_on[0]"),
        ('evaluators[1].options["grader_options"]["judge"]', '--option mine.grader_options["judge"]'),
        ("models", "--role"),
        ("modelled", "modelled"),
        ("metric_prefix", "--prefix"),
        ('labels["a"]', "--label"),
        ("limits.deadline_ms", "--timeout"),
        ("correlation_id", "correlation_id"),
    ],
)
def test_a_field_is_told_as_the_flag_that_gave_it(field: str, flag: str):
    """Who typed flags knows no field paths; a field that has no flag is told as it is."""
    assert _told(InvalidField(field, "is wrong")) == f"{flag} is wrong"


@rows(
    ("error", "told"),
    [
        (NotFound("is 'x'", reason="NO_SUCH_FILE", field="dataset.jsonl_path"), "--data is 'x'; data roots: /a, /b"),
        (
            PermissionDenied("leads out", reason="OUTSIDE_ROOT", field="dataset.jsonl_path"),
            "--data-root DIR names another",
        ),
        (NotFound("there is no 'x'", reason="MODEL_NOT_FOUND"), "--model: there is no 'x'; model roots: /models"),
        (PermissionDenied("leads out", reason="PATH_OUT_OF_ROOT"), "--model: leads out; model roots: /models"),
        (FailedPrecondition("cannot be loaded", reason="MODEL_REFUSED"), "--model: cannot be loaded"),
        (FailedPrecondition("install it", reason="EXTRA_NOT_INSTALLED"), "install it"),
    ],
)
def test_roots_that_were_searched_are_told(error: BridgeError, told: str):
    """What is not found is not found somewhere; other refusals are told without."""
    assert _told(error).endswith(told)


@rows(
    ("error", "told"),
    [
        (InvalidField("evaluators[0].kind", "is wrong"), "evaluations[1].evaluators[0].kind is wrong"),
        (NotFound("is 'x'", field="dataset.jsonl_path"), "evaluations[1].dataset is 'x'"),
        (NotFound("is 'x'", field="dataset.hub.config"), "evaluations[1].dataset is 'x'"),
        (InvalidField("sampling.max_tokens", "is 0"), "evaluations[1].sampling.max_tokens is 0"),
        (FailedPrecondition("install it", reason="EXTRA_NOT_INSTALLED"), "evaluations[1]: install it"),
        (NotFound("is 'x'", field="model.path"), "--model is 'x'"),
        (FailedPrecondition("cannot be loaded", reason="MODEL_REFUSED"), "--model: cannot be loaded"),
        (AlreadyExists("has another specification", field="evaluation_id"), "--id has another specification"),
    ],
)
def test_a_suites_file_is_told_by_its_paths(error: BridgeError, told: str):
    """Who wrote a file looks there; the model and the id were typed."""
    with pytest.raises(Refused) as caught, refusing(SETTINGS, (), "evaluations[1]"):
        raise error

    assert str(caught.value) == told


def test_what_is_not_cached_tells_the_flag_that_fetches_it():
    """Nobody needs to look for it; a worker that asks the hub has nothing to add."""
    error = NotFound("the worker does not ask the hub", reason="NOT_CACHED", field="dataset.hub")

    assert _told(error).endswith("does not ask the hub; with --hub-network it does")


def test_what_is_away_is_named_by_the_flag_or_the_place_in_the_file():
    """An error that may pass is no refusal, but its text names what was typed, too."""
    error = Unavailable("names a data set that cannot be reached", reason="HUB_UNREACHABLE", field="dataset.hub")

    assert in_flags(error, SETTINGS, TYPED) == "--data names a data set that cannot be reached"
    assert in_flags(error, SETTINGS, (), "evaluations[1]").startswith("evaluations[1].dataset names a data set")


def test_what_does_not_refuse_the_request_passes():
    """A worker that cannot, for now, is no fault of the request."""
    with pytest.raises(Unavailable), refusing(SETTINGS, TYPED):
        raise Unavailable("later")
