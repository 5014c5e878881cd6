"""Environments of tinker-cookbook's own classes, by name: the same for its evaluator and in processes of ours."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["PROBLEMS", "TAGS", "makers"]

TAGS = {"a": ["math", "short"], "bb": ["math"], "ccc": ["words"]}
"""Of the groups that are asked these."""
PROBLEMS = {"a": "A", "bb": "XYZ", "ccc": "CCC", "abc": "no"}
"""What is asked, and what is right."""


def makers(base: Any, problem_env: Any, rollout_limits: Any) -> Mapping[str, Callable[..., Any]]:
    """What makes builders of groups, of a text and a size, from the package's modules `types` and so on."""
    import tinker

    class Shout(base.Env):
        """Two turns, and a reward for each token."""

        rollout_limits = None

        def __init__(self, text: str, fails: Callable[[], bool]) -> None:
            self.text, self.fails, self.turn = text, fails, 0

        async def initial_observation(self):
            return tinker.ModelInput.from_ints([ord(each) for each in self.text]), []

        async def step(self, action, *, extra=None):
            if self.fails():
                raise ValueError("no luck")
            self.turn += 1
            said = "".join(map(chr, action))
            metrics = {"upper": sum(map(str.isupper, said)) / 3, f"turn_{self.turn}": 1}
            return base.StepResult(
                reward=0.1 * len(said),
                episode_done=self.turn == 2,
                next_observation=tinker.ModelInput.from_ints([ord(each) for each in self.text + said]),
                next_stop_condition=[],
                metrics=metrics if self.turn == 1 else {**metrics, "late": 0.7},
            )

    class Shouts(base.EnvGroupBuilder):
        """Of one text; so many of its steps fail first."""

        def __init__(self, text: str, size: int, fails: int, limits: Mapping[str, int] | None) -> None:
            self.text, self.size, self.limits, self.left = text, size, limits, fails

        def _fails(self) -> bool:
            self.left -= 1
            return self.left >= 0

        async def make_envs(self):
            envs = [Shout(self.text, self._fails) for _ in range(self.size)]
            for env in envs:
                env.rollout_limits = rollout_limits.RolloutLimits(**self.limits) if self.limits else None
            return envs

        async def compute_group_rewards(self, trajectory_group, env_group):
            assert len(trajectory_group) == len(env_group)
            turns = [len(each.transitions) for each in trajectory_group]
            lengths = [trajectory.transitions[0].ob.length for trajectory in trajectory_group]
            return [(turn / 7, {"seen": length}) for turn, length in zip(turns, lengths, strict=True)]

        def logging_tags(self):
            return TAGS[self.text]

    class Liar(base.Env):
        """Has a metric that is named like a built-in one."""

        async def initial_observation(self):
            return tinker.ModelInput.from_ints([97]), []

        async def step(self, action, *, extra=None):
            return base.StepResult(1.0, True, tinker.ModelInput.empty(), [], metrics={"total_turns": 1_000})

    class Liars(base.EnvGroupBuilder):
        """One of them."""

        async def make_envs(self):
            return [Liar()]

    class Renderer:
        """Of tokens that are code points."""

        def __init__(self, max_tokens: int) -> None:
            self.max_tokens = max_tokens

        def get_stop_sequences(self):
            return []

        def build_generation_prompt(self, convo):
            return tinker.ModelInput.from_ints([ord(each) for each in convo[-1]["content"]])

        def parse_response(self, action):
            whole = len(action) < self.max_tokens  # what was cut has no end
            ending = types.SimpleNamespace(is_stop_sequence=whole, is_clean=whole)
            return {"role": "assistant", "content": "".join(map(chr, action))}, ending

    class Problem(problem_env.ProblemEnv):
        """One of `PROBLEMS`."""

        def __init__(self, question: str, max_tokens: int) -> None:
            super().__init__(Renderer(max_tokens), format_coef=0.25)
            self.question = question

        def get_question(self):
            return self.question

        def check_answer(self, sample_str):
            return sample_str == self.get_reference_answer()

        def check_format(self, sample_str):
            return "A" in sample_str

        def get_reference_answer(self):
            return PROBLEMS[self.question]

    def shouts(text: str, size: int, fails: int = 0, limits: Mapping[str, int] | None = None) -> Any:
        return Shouts(text, size, fails, limits)

    def problems(text: str, size: int, max_tokens: int) -> Any:
        return problem_env.ProblemGroupBuilder(env_thunk=lambda: Problem(text, max_tokens), num_envs=size)

    return {"shouts": shouts, "liars": lambda text, size: Liars(), "problems": problems}
