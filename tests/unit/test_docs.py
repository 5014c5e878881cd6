"""What README and docs say is so."""

import dataclasses
import re
from pathlib import Path

from crucible_worker.evaluators.registry import EVALUATORS
from crucible_worker.grading.registry import GRADERS
from crucible_worker.limits import WorkerLimits

ROOT = Path(__file__).parents[2]


def test_every_limit_is_in_the_operators_page_with_its_default():
    """The page names each limit of the worker, with the value that holds."""
    page = (ROOT / "docs" / "operating.md").read_text()
    told = dict(re.findall(r"^\| `(\w+)` \| ([\d,.]+) \|", page, re.MULTILINE))

    expected = {field.name: f"{getattr(WorkerLimits(), field.name):,.0f}" for field in dataclasses.fields(WorkerLimits)}

    assert told == expected


def test_every_evaluator_and_grader_is_in_the_readme():
    """What the worker can do is said, and nothing is said that it cannot."""
    readme = (ROOT / "README.md").read_text()
    evaluators = re.findall(r"^\| `(\w+)` \| (?:log-probabilities|an answer)", readme, re.MULTILINE)

    assert sorted(evaluators) == sorted(EVALUATORS)
    for grader in GRADERS:
        assert f"`{grader}`" in readme
