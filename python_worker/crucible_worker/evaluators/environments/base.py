"""What an environment is: who observes, acts and is rewarded, in the shape of tinker-cookbook's.

An `EnvironmentType` makes of each sample of a data set a `GroupBuilder`, that one makes the `Env`s of a group, and each
`Env` lives through one episode: it gives an observation, gets what the model said to it, and answers with a reward and
the next observation. Whatever has these methods is one, whatever its class; tinker-cookbook's have them.

A group builder may have three methods more:

    async def compute_group_rewards(self, rollouts, envs)   -> for each rollout a reward and metrics; none: 0 and {}
    def logging_tags(self)                                  -> tags of the group; none: no tags
    async def cleanup(self)                                 -> called once when the group is done, or has failed
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from crucible_bridge.types import Conversation, ModelInput, Sample, SampledSequence

__all__ = [
    "Action",
    "Env",
    "EnvironmentType",
    "GroupBuilder",
    "HasTokens",
    "Nothing",
    "Observation",
    "Rollout",
    "Step",
    "StepResult",
    "StopCondition",
    "Turn",
]


class HasTokens(Protocol):
    """tinker's ModelInput, among others."""

    def to_ints(self) -> Sequence[int]:
        """Its token ids."""
        ...


Observation: TypeAlias = str | Conversation | ModelInput | HasTokens | Sequence[int] | np.ndarray
"""What a model gets: text or a conversation, which the evaluator's renderer turns into tokens, or tokens."""

StopCondition: TypeAlias = Sequence[str] | Sequence[int]
"""What ends an answer beside what the model ends it with: texts, or token ids."""


class Step(Protocol):
    """What came of an action."""

    @property
    def reward(self) -> float:
        """What it was worth; finite."""
        ...

    @property
    def episode_done(self) -> bool:
        """Whether the episode has ended."""
        ...

    @property
    def next_observation(self) -> Any:
        """An Observation, of which nothing is used when the episode has ended."""
        ...

    @property
    def next_stop_condition(self) -> Any:
        """A StopCondition for the next answer."""
        ...

    @property
    def metrics(self) -> Mapping[str, float]:
        """Further finite numbers, by name; None for one stands for none."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """A `Step`, ready to be used."""

    reward: float
    """What the action was worth; finite."""
    episode_done: bool
    """Whether the episode has ended."""
    next_observation: Observation = ""
    """What the model gets next."""
    next_stop_condition: StopCondition = ()
    """What ends its next answer."""
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Further finite numbers, by name."""


class Env(Protocol):
    """An environment for one episode."""

    async def initial_observation(self) -> Any:
        """An Observation with a StopCondition.

        Or, where the episode cannot begin because its prompt is too long, anything that has a `reward` and `metrics`
        and is no such pair: the episode then has one turn, in which nothing is asked.
        """
        ...

    async def step(self, action: list[int], *, extra: Any = None) -> Step:
        """Take what the model said.

        Args:
            action: its token ids, those that ended it included; none where the model's server tells no ids.
            extra: a dict: `stop_reason`, "stop" or "length", and `text`, what it said as text; empty where the answer
                was cut behind a token id that the environment named.
        """
        ...


class GroupBuilder(Protocol):
    """A problem, of which a group of environments can be made; more than once, as a rollout that failed gets another.

    What else it may have says the module.
    """

    async def make_envs(self) -> Sequence[Env]:
        """The environments of a group, at least one."""
        ...


class EnvironmentType(Protocol):
    """An environment as a distribution announces it."""

    @property
    def description(self) -> str:
        """One sentence."""
        ...

    @property
    def options_schema(self) -> Mapping[str, Any]:
        """JSON schema of its options: of an object, each option described, with `additionalProperties` false."""
        ...

    def group(self, sample: Sample, options: Mapping[str, Any], size: int) -> GroupBuilder:
        """Make a problem of a sample.

        Args:
            sample: of the data set.
            options: those of the request; they have passed the schema and bear its defaults.
            size: how many rollouts the request asks for.
        """
        ...


@dataclasses.dataclass(slots=True, kw_only=True)
class Action:
    """What a model said, as `compute_group_rewards` gets it."""

    tokens: list[int]
    """Its token ids."""
    maybe_logprobs: list[float] | None
    """Log-probability of each, nats; None where there are none."""
    stop_reason: str
    """"stop" or "length"."""
    text: str
    """What it said as text."""

    @property
    def logprobs(self) -> list[float]:
        """Log-probability of each token, nats.

        Raises:
            ValueError: there are none.
        """
        if self.maybe_logprobs is None:
            raise ValueError("the model gives no log-probabilities")
        return self.maybe_logprobs


@dataclasses.dataclass(frozen=True, slots=True)
class Nothing:
    """The observation of an episode that was over before anything was asked; also of the shape of tinker's."""

    length: int = 0
    """Tokens: none."""

    def to_ints(self) -> Sequence[int]:
        """No token ids."""
        return []


@dataclasses.dataclass(slots=True, kw_only=True)
class Turn:
    """An observation and what came of it."""

    ob: Any
    """The observation, as the environment gave it."""
    ac: Action
    """What the model said to it."""
    reward: float
    """What that was worth."""
    episode_done: bool
    """Whether the episode ended with it."""
    metrics: dict[str, float]
    """Further numbers."""
    logs: Mapping[str, Any]
    """What the environment tells beside them; not kept."""
    seen: ModelInput | None
    """The observation in tokens; None where the model's server made them."""
    said: SampledSequence
    """What the model said, as its backend tells it."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Rollout:
    """An episode, as `compute_group_rewards` gets it."""

    transitions: list[Turn]
    """Its turns in order."""
    final_ob: Any
    """The observation after the last action."""
    stop_reason: str | None
    """Why it ended, where the environment, or a limit, says so by a metric `stop/<reason>`."""
