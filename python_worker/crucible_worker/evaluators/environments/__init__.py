"""Environments in which models act: their interface, users' environments, and groups of rollouts."""

from crucible_worker.evaluators.environments.base import (
    Action,
    Env,
    EnvironmentType,
    GroupBuilder,
    Observation,
    Rollout,
    Step,
    StepResult,
    StopCondition,
    Turn,
)

__all__ = [
    "Action",
    "Env",
    "EnvironmentType",
    "GroupBuilder",
    "Observation",
    "Rollout",
    "Step",
    "StepResult",
    "StopCondition",
    "Turn",
]
