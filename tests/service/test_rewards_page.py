"""Every block of docs/rewards.md runs as it stands; those that need a trainer run in test_reward_trainers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from crucible_bridge.rewards import Reward
from tests import needs
from tests.service.processes_kit import serving
from tests.service.rewards_page import block, defined

GRADES = (
    "Graded(verdict='correct', score=1.0, method='literal', reason='', extracted='5')\n"
    "undecided because the target is empty\n"
)

pytestmark = pytest.mark.docs


def printed(program: str) -> str:
    """What a program prints; what it logs is left out."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout


def test_the_first_rewards_and_reasons_are_as_said():
    """The page's first blocks."""
    assert printed(block("Rewards for trainers")) == "1.0\n0.0\n1.0\n1.0\n"
    assert printed(block("What cannot be decided")) == GRADES


def test_the_files_for_trainers_have_what_they_call():
    """Called as verl, OpenRLHF and AReaL call them."""
    compute_score: Reward = defined("verl")["compute_score"]
    reward_func: Reward = defined("OpenRLHF")["reward_func"]
    reward_fn: Reward = defined("AReaL")["reward_fn"]

    assert compute_score(data_source="x", solution_str="4", ground_truth="4", extra_info={})["score"] == 1.0
    assert [float(each) for each in reward_func(["2+2? 4"], ["2+2?"], ["4"])["rewards"]] == [1.0]
    assert reward_fn("2+2?", "4", [1], [2], answer="4") == 1.0


@needs.installed("tinker_cookbook")
async def test_an_environment_of_tinker_cookbook_is_rewarded():
    """A step of the page's ProblemEnv: its answer and its form are graded."""
    from tests.service.originals_kit import CodePoints, originals

    with originals("rl.problem_env", "renderers.role_colon") as (_, role_colon):
        environment = defined("tinker-cookbook")["MathEnv"](
            role_colon.RoleColonRenderer(CodePoints()), "1/4+1/4?", "0.5"
        )
        steps = [await environment.step(list(map(ord, text))) for text in (" \\boxed{1/2}\n\nUser:", " 3\n\nUser:")]

    assert [step.reward for step in steps] == [1.0, pytest.approx(-0.1)]
    assert [step.metrics for step in steps] == [{"format": 1.0, "correct": 1.0}, {"format": 0.0, "correct": 0.0}]


def test_a_worker_grades_where_one_is_named(tmp_path: Path):
    """The page's block, with another address alone."""
    with serving(tmp_path, "--grading-processes=2") as (_, address):
        assert printed(block("Grade at workers").replace("127.0.0.1:50051", address)) == "1.0\n"
