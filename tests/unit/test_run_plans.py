"""Plans for runs that are not known yet, in settings: which forms there are, and what is wrong with others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crucible_worker.config import SettingsError, load_settings
from crucible_worker.config.settings import MAX_PATTERN, RunPlan, read_plans
from tests.tables import rows

SUITE = """
name = "sums"
[[evaluations]]
name = "likelihood"
dataset = "builtin:arithmetic"
evaluators = ["nll"]
"""


def suites(folder: Path, *names: str) -> None:
    """Files of suites."""
    for name in names:
        (folder / name).write_text(SUITE)


def test_plans_are_read_from_every_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """By flag, by variable, as tables or as texts of the file; the file's paths are relative to it."""
    monkeypatch.chdir(tmp_path)
    suites(tmp_path, "a.toml", "b.toml")
    both = (RunPlan(runs="lab-*", file=tmp_path / "a.toml"), RunPlan(runs="*", file=tmp_path / "b.toml"))
    texts = ["lab-*=a.toml", "*=b.toml"]
    assert load_settings({"plans": texts}, {}).plans == both
    assert load_settings({}, {"CRUCIBLE_PLAN": ":".join(texts)}).plans == both
    tables = '[[plans]]\nruns = "lab-*"\nfile = "a.toml"\n[[plans]]\nruns = "*"\nfile = "b.toml"\n'
    for content in (f"plans = {texts!r}", tables):
        (tmp_path / "worker.toml").write_text(content)
        assert load_settings({}, {}, tmp_path / "worker.toml").plans == both


def test_a_suite_is_due_at_every_step_and_a_plan_at_its_own(tmp_path: Path):
    """Either file is read for a run by its id."""
    suites(tmp_path, "suite.toml")
    (tmp_path / "plan.toml").write_text(f"eval_every = 5\n{SUITE}")
    for file, every in (("suite.toml", 1), ("plan.toml", 5)):
        (plan,) = read_plans([{"runs": "*", "file": file}], tmp_path)
        loaded = plan.load().of("run-1")
        assert (loaded.eval_every, loaded.infrequent_evaluations) == (every, ())
        assert (loaded.plan_id, loaded.run_id) == ("run-1", "run-1")


WRONG = [
    ("a string", "RUNS=FILE"),
    (7, "a list of RUNS=FILE"),
    ([{"runs": "a", "file": "s.toml", "every": 1}], "'every' is unknown"),
    ([{"runs": "", "file": "s.toml"}], f"runs is a pattern of 1 to {MAX_PATTERN} characters"),
    ([{"runs": "a" * (MAX_PATTERN + 1), "file": "s.toml"}], f"runs is a pattern of 1 to {MAX_PATTERN} characters"),
    ([{"runs": "a"}], "a lacks its file"),
    ([{"runs": "a", "file": 1}], "file is the path of a plan or a suite"),
    (["a=s.toml", "a=t.toml"], "a is given twice"),
]


@rows(("value", "why"), WRONG)
def test_what_is_no_plan_is_refused(value: object, why: str):
    """The message says what is expected."""
    with pytest.raises(ValueError, match=re.escape(why)):
        read_plans(value, Path())


def test_a_suite_that_cannot_be_used_ends_the_start(tmp_path: Path):
    """Before a run needs it; the error has the option and the file."""
    suite = tmp_path / "suite.toml"
    for content, why in ((None, "cannot be read: No such file"), ("eval_every = 'x'", "eval_every is 'x'")):
        if content is not None:
            suite.write_text(content)
        with pytest.raises(SettingsError) as caught:
            load_settings({"plans": [f"lab-*={suite}"]}, {})
        assert str(caught.value).startswith(f"--plan {suite}")
        assert why in str(caught.value)
