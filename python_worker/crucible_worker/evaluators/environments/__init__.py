"""Environments that models act in: what one is, those of users, and how a group of rollouts is made of one."""

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
