"""Questions to graders and environments that stay with their caller, and the answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from crucible_bridge.types.data import Conversation, ModelInput, Sample
from crucible_bridge.types.results import Verdict

__all__ = [
    "AnsweredEnvironment",
    "AnsweredGrade",
    "EnvironmentQuestion",
    "EpisodeAction",
    "GradeQuestion",
    "OpenEpisode",
]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GradeQuestion:
    """A question for the grade of one answer."""

    grader: str
    """Name of the grader."""
    evaluator: str
    """The evaluator's name, or its kind if it has none."""
    sample: Sample
    """The sample; a sample of tokens is a Datum without loss inputs."""
    response: str
    """The answer to grade: without its reasoning, unless the evaluator's `thinking` is keep, and cleaned."""
    repeat: int = 0
    """Which of several runs of the sample, from 0."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredGrade:
    """The grade of an answer: a verdict, a score, or both."""

    verdict: Verdict | None = None
    """CORRECT, INCORRECT, PARTIAL, UNDECIDED or ERROR; None if the score says it."""
    score: float | None = None
    """From 0 to 1; None if the verdict says it."""
    reason: str = ""
    """Why, in a sentence; recorded as the sample's method, or in its problem."""
    extracted: str = ""
    """The answer in the response."""
    measurements: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Further finite numbers, by name."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OpenEpisode:
    """Begins an episode."""

    evaluator: str
    """The evaluator's name, or its kind if it has none."""
    sample: Sample
    """The sample that the episode belongs to."""
    seed: int
    """For everything random: the same on every attempt, another one for each rollout of the sample."""
    rollout: int = 0
    """Which rollout of the sample, from 0."""
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The evaluator's option `environment_options`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeAction:
    """What a model did in an episode."""

    turn: int
    """Its number, from 0."""
    text: str
    """What it said, without the marks that only end it."""
    tokens: tuple[int, ...] = ()
    """Its token ids, with those that ended it; empty if the model's server reports none."""
    stop_reason: str = "stop"
    """"stop" or "length"."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentQuestion:
    """A question to an environment: begin an episode, or continue it."""

    environment: str
    """Name of the environment."""
    episode: int
    """Number of the episode, from 1."""
    question: OpenEpisode | EpisodeAction
    """The question."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredEnvironment:
    """What follows in an episode; a first answer that is done is an episode in which the model is not queried."""

    observation: str | Conversation | ModelInput | None = None
    """All that the model sees next; None if the episode is done."""
    reward: float = 0.0
    """What the action was worth; finite."""
    done: bool = False
    """Whether the episode has ended."""
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Further finite numbers of the turn, by name."""
    stop: tuple[str | int, ...] = ()
    """Texts and token ids that end the next answer, in addition to those of the request."""
    tags: tuple[str, ...] = ()
    """In the first answer: tags of the sample; those of all its rollouts together count."""
