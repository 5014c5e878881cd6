"""The interface of environments: observations, actions and rewards, in the shape of tinker-cookbook's.

An `EnvironmentType` makes a `GroupBuilder` from each sample of a data set. The builder makes the `Env`s of a group, and
each `Env` runs one episode: it gives an observation, receives the model's answer, and returns a reward and the next
observation. Any object with these methods is accepted, of any class; tinker-cookbook's have them.

A group builder may have three more methods:

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
    """An input in tokens, such as tinker's ModelInput."""

    def to_ints(self) -> Sequence[int]:
        """Its token ids."""
        ...


Observation: TypeAlias = str | Conversation | ModelInput | HasTokens | Sequence[int] | np.ndarray
"""A model's input: text or a conversation, which the evaluator's renderer converts to tokens, or tokens."""

StopCondition: TypeAlias = Sequence[str | int]
"""What ends an answer in addition to the model's own end of sequence: texts, or token ids."""


class Step(Protocol):
    """The result of an action."""

    @property
    def reward(self) -> float:
        """Its reward; finite."""
        ...

    @property
    def episode_done(self) -> bool:
        """Whether the episode has ended."""
        ...

    @property
    def next_observation(self) -> Any:
        """An Observation; unused when the episode has ended."""
        ...

    @property
    def next_stop_condition(self) -> Any:
        """A StopCondition for the next answer."""
        ...

    @property
    def metrics(self) -> Mapping[str, float]:
        """Further finite numbers, by name; None means no value."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """A complete `Step`."""

    reward: float
    """The reward of the action; finite."""
    episode_done: bool
    """Whether the episode has ended."""
    next_observation: Observation = ""
    """The next observation."""
    next_stop_condition: StopCondition = ()
    """What ends its next answer."""
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Further finite numbers, by name."""


class Env(Protocol):
    """An environment for one episode."""

    async def initial_observation(self) -> Any:
        """An Observation with a StopCondition.

        Or, if the episode cannot begin because its prompt is too long, any object with `reward` and `metrics` that is
        not such a pair. The episode then has one turn, and the model is not queried.
        """
        ...

    async def step(self, action: list[int], *, extra: Any = None) -> Step:
        """Receive the model's answer.

        Args:
            action: its token ids, including those that ended it; empty if the model's server reports no ids.
            extra: a dict: `stop_reason`, "stop" or "length"; `text`, the answer as text, without its reasoning
                unless the evaluator's `thinking` is keep, and empty if it was truncated after a token id that the
                environment named; `no_answer`, why there is no answer, or empty.
        """
        ...


class GroupBuilder(Protocol):
    """A problem that can make groups of environments; more than once, as a failed rollout gets a new environment.

    The module describes its optional methods.
    """

    async def make_envs(self) -> Sequence[Env]:
        """The environments of a group, at least one."""
        ...


class EnvironmentType(Protocol):
    """An environment that a distribution announces."""

    @property
    def description(self) -> str:
        """One sentence."""
        ...

    @property
    def options_schema(self) -> Mapping[str, Any]:
        """JSON schema of its options: an object's, with each option described and `additionalProperties` false."""
        ...

    def group(self, sample: Sample, options: Mapping[str, Any], size: int) -> GroupBuilder:
        """Make a problem from a sample.

        Args:
            sample: of the data set.
            options: those of the request; they have passed the schema and include its defaults.
            size: how many rollouts the request wants.
        """
        ...


@dataclasses.dataclass(slots=True, kw_only=True)
class Action:
    """A model's answer, in the form for `compute_group_rewards`."""

    tokens: list[int]
    """Its token ids."""
    maybe_logprobs: list[float] | None
    """Log-probability of each, nats; None if there are none."""
    stop_reason: str
    """"stop" or "length"."""
    text: str
    """The answer as text, as `step` received it."""

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
    """The observation of an episode that ended before the model was queried; it also has the shape of tinker's."""

    length: int = 0
    """Tokens: none."""

    def to_ints(self) -> Sequence[int]:
        """No token ids."""
        return []


@dataclasses.dataclass(slots=True, kw_only=True)
class Turn:
    """An observation, the action and its result."""

    ob: Any
    """The observation, as the environment gave it."""
    ac: Action
    """The model's answer."""
    reward: float
    """The reward."""
    episode_done: bool
    """Whether the episode ended with it."""
    metrics: dict[str, float]
    """Further numbers."""
    logs: Mapping[str, Any]
    """Further information of the environment; not recorded."""
    seen: ModelInput | None
    """The observation in tokens; None if the model's server made them."""
    said: SampledSequence
    """The model's answer, as its backend reports it."""
    output: str = ""
    """The text of all that the model generated, with its reasoning."""
    unfinished: bool = False
    """Whether it ends within its reasoning."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Rollout:
    """An episode, in the form for `compute_group_rewards`."""

    transitions: list[Turn]
    """Its turns in order."""
    final_ob: Any
    """The observation after the last action."""
    stop_reason: str | None
    """Why it ended, if the environment or a limit says so by a metric `stop/<reason>`."""
