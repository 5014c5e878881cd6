"""Failures in the log: a traceback for each, or one for all that are equal."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from crucible_bridge.reasons import Reason
from crucible_worker.util.error_reporter import MAX_FAILURES, ErrorReporter, logged, shortage


@pytest.fixture
def log() -> tuple[Any, list[Any]]:
    """A logger, and its lines."""
    capture = LogCapture()
    return structlog.wrap_logger(None, processors=[capture]), capture.entries


def _raised(error: type[Exception], *, elsewhere: bool = False) -> Exception:
    try:
        if elsewhere:
            raise error("there")
        raise error("here")
    except Exception as caught:
        return caught


def test_equal_failures_have_one_traceback_and_are_counted(log: tuple[Any, list[Any]]) -> None:
    """Of 815 samples: one line with the traceback, and one each at the 10th and the 100th; all have one id."""
    logger, lines = log
    failures = ErrorReporter()

    ids = {failures.logged(logger, "sample_failed", _raised(ValueError), sample_id=str(n)) for n in range(815)}

    assert len(ids) == 1
    assert [line.get("exc_info") is not None for line in lines] == [True, False, False]
    assert [line.get("times") for line in lines] == [None, 10, 100]
    assert {line["error_id"] for line in lines} == ids


def test_failures_of_another_class_or_line_have_their_own(log: tuple[Any, list[Any]]) -> None:
    """Otherwise the id in a message would lead to the traceback of another failure."""
    logger, lines = log
    failures = ErrorReporter()
    raised = [_raised(ValueError), _raised(KeyError), _raised(ValueError, elsewhere=True), _raised(ValueError)]

    ids = [failures.logged(logger, "sample_failed", error) for error in raised]

    assert len(lines) == len(set(ids)) == 3
    assert ids[0] == ids[3]


def test_failures_without_an_exception_are_equal_by_their_facts(log: tuple[Any, list[Any]]) -> None:
    """A result that is none has no traceback; its text says what it is."""
    logger, lines = log
    failures = ErrorReporter()

    for what in ("gave a dict", "gave a dict", "gave a list"):
        failures.logged(logger, "evaluator_failed", None, what=what)

    assert [line["what"] for line in lines] == ["gave a dict", "gave a list"]


def test_what_is_kept_is_bounded(log: tuple[Any, list[Any]]) -> None:
    """Beyond the bound all further failures count as one."""
    logger, lines = log
    failures = ErrorReporter()

    for number in range(MAX_FAILURES + 5):
        failures.logged(logger, "evaluator_failed", None, what=f"gave {number}")

    assert len(lines) == MAX_FAILURES + 1


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN])
def test_a_lack_of_a_resource_is_retryable_and_has_no_traceback(log: tuple[Any, list[Any]], number: int) -> None:
    """Descriptors or memory that the machine lacks are no bug: the caller may try again."""
    logger, lines = log
    error = OSError(number, "there is none")

    lacking = shortage(error)
    error_id = logged(logger, "sample_failed", error)

    assert lacking is not None
    assert (lacking.reason, lacking.retryable) == (Reason.RESOURCE_EXHAUSTED, True)
    (line,) = lines
    assert (line["error_id"], "exc_info" in line) == (error_id, False)
    assert line["problem"] == "the worker's machine has no room: there is none"


@pytest.mark.parametrize("error", [OSError(errno.EACCES, "no"), OSError(), ValueError("no")])
def test_other_errors_are_no_lack(error: Exception) -> None:
    """A file that may not be read, or a bug, stays what it is."""
    assert shortage(error) is None
