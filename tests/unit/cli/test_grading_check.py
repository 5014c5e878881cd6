"""What doctor says of grading: an answer is graded, by processes that are gone afterwards."""

from pathlib import Path

import pytest

from crucible_bridge.errors import Unavailable
from crucible_bridge.types import Grade, Verdict
from crucible_worker.cli.checks import DoctorCheck, run_checks
from crucible_worker.config import Settings
from crucible_worker.grading.math.grader import MathGrader
from crucible_worker.grading.pool import GradingPool


def _found(folder: Path, monkeypatch: pytest.MonkeyPatch, processes: int) -> DoctorCheck:
    monkeypatch.setattr("crucible_worker.backends.local.backend._torch_device", lambda: "CPU")
    settings = Settings(port=0, state_dir=folder, grading_processes=processes)
    return next(check for check in run_checks(settings) if check.name == "grading")


def test_grading_works_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The version of the mathematics is told, and how many processes there would be."""
    found = _found(tmp_path, monkeypatch, 2)

    assert found.ok
    assert "sympy 1." in found.detail
    assert "2 processes" in found.detail


def test_a_worker_that_is_to_grade_nothing_lacks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """No process is started."""
    monkeypatch.delattr(GradingPool, "start")

    found = _found(tmp_path, monkeypatch, 0)

    assert (found.ok, found.detail) == (True, "none configured: grading_processes is 0")


def test_processes_that_do_not_start_are_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A worker serves all the same."""

    async def start(self: GradingPool) -> None:
        raise Unavailable("the children do not start: no memory", reason="GRADING_POOL")

    monkeypatch.setattr(GradingPool, "start", start)

    found = _found(tmp_path, monkeypatch, 2)

    assert (found.ok, found.required) == (False, False)
    assert "no memory" in found.detail


def test_a_wrong_verdict_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It must not look like grading that works."""

    async def start(self: GradingPool) -> None:
        pass

    async def grade_batch(self: MathGrader, *_: object) -> list[Grade]:
        return [Grade(verdict=Verdict.UNDECIDED, reason="took longer than 0.3 s")]

    monkeypatch.setattr(GradingPool, "start", start)
    monkeypatch.setattr(MathGrader, "grade_batch", grade_batch)

    found = _found(tmp_path, monkeypatch, 2)

    assert not found.ok
    assert "undecided" in found.detail
    assert "took longer" in found.detail
