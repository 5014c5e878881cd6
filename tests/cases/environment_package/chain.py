"""The environment `chain`: numbers are added up one by one, each time from the sum that the model came to."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Sample
from crucible_worker.api import EnvironmentType, Rollout, StepResult, schema_of


@dataclasses.dataclass(frozen=True)
class Options:
    """Of the environment."""

    bonus: float = 0.0
    """What a rollout earns that comes to the end of its chain."""


@dataclasses.dataclass
class Chain:
    """One episode."""

    numbers: Sequence[int]
    at: int = 1

    async def initial_observation(self) -> tuple[str, Sequence[str]]:
        """The first sum, and no stop strings of our own."""
        return f"{self.numbers[0]}+{self.numbers[1]}=", ()

    async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
        """A reward for what is right, and the next sum; the end where there is none, or the answer is no number."""
        said = extra["text"].strip()
        right = said == str(sum(self.numbers[: self.at + 1]))
        self.at += 1
        done = not said.isdigit() or self.at == len(self.numbers)
        return StepResult(
            reward=right / (len(self.numbers) - 1),
            episode_done=done,
            next_observation="" if done else f"{said}+{self.numbers[self.at]}=",
            metrics={"right": float(right)},
        )


@dataclasses.dataclass(frozen=True)
class ChainGroup:
    """Chains of the same numbers."""

    numbers: Sequence[int]
    size: int
    bonus: float

    async def make_envs(self) -> Sequence[Chain]:
        """As many as are asked for."""
        return [Chain(self.numbers) for _ in range(self.size)]

    async def compute_group_rewards(
        self, rollouts: Sequence[Rollout], envs: Sequence[Chain]
    ) -> Sequence[tuple[float, Mapping[str, float]]]:
        """A bonus for those that came to the end of the chain."""
        return [(self.bonus * (env.at == len(self.numbers)), {}) for env in envs]

    def logging_tags(self) -> Sequence[str]:
        """Chains of one length have a tag."""
        return [f"{len(self.numbers)}_numbers"]


class ChainEnvironment:
    """The environment `chain`."""

    description = "Numbers are added up one by one."
    options_schema = schema_of(Options)

    def group(self, sample: Sample, options: Mapping[str, Any], size: int) -> ChainGroup:
        """The chain of a sample such as `12+34+5`."""
        numbers = str(sample.input).split("+")
        if len(numbers) < 2 or not all(number.isdigit() for number in numbers):
            raise InvalidField("input", "is no sum of numbers")
        return ChainGroup([int(number) for number in numbers], size, options["bonus"])


CHAIN: EnvironmentType = ChainEnvironment()
