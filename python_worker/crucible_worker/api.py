"""What a package of evaluators, graders, environments, backends or loggers may import of the worker.

Example: `from crucible_worker.api import AnswerEvaluator, Outcome`. These names stay. Any other module of the worker
may change with each release, except `crucible_worker.testing`, which has what tests of such a package need. A name is
imported when it is first used: a logger loads no evaluators.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crucible_worker.backends.base import Backend, Capability, Model, Reading, Rendered, Tokenizer
    from crucible_worker.evaluators.base import Outcome, SampleContext
    from crucible_worker.evaluators.declared import AnswerEvaluator, BaseEvaluator, SamplingEvaluator
    from crucible_worker.evaluators.environments import (
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
    from crucible_worker.grading.base import Grade, GraderType
    from crucible_worker.loggers.base import (
        Entry,
        EntryRefused,
        Experiment,
        Hparams,
        Logger,
        LongText,
        MetricRow,
        Missed,
    )
    from crucible_worker.rendering import sample_answers
    from crucible_worker.util.options import schema_of

__all__ = [
    "Action",
    "AnswerEvaluator",
    "Backend",
    "BaseEvaluator",
    "Capability",
    "Entry",
    "EntryRefused",
    "Env",
    "EnvironmentType",
    "Experiment",
    "Grade",
    "GraderType",
    "GroupBuilder",
    "Hparams",
    "Logger",
    "LongText",
    "MetricRow",
    "Missed",
    "Model",
    "Observation",
    "Outcome",
    "Reading",
    "Rendered",
    "Rollout",
    "SampleContext",
    "SamplingEvaluator",
    "Step",
    "StepResult",
    "StopCondition",
    "Tokenizer",
    "Turn",
    "sample_answers",
    "schema_of",
]

_HOMES = {
    "backends.base": ("Backend", "Capability", "Model", "Reading", "Rendered", "Tokenizer"),
    "util.options": ("schema_of",),
    "evaluators.base": ("Outcome", "SampleContext"),
    "evaluators.declared": ("AnswerEvaluator", "BaseEvaluator", "SamplingEvaluator"),
    "evaluators.environments": (
        *("Action", "Env", "EnvironmentType", "GroupBuilder", "Observation"),
        *("Rollout", "Step", "StepResult", "StopCondition", "Turn"),
    ),
    "grading.base": ("Grade", "GraderType"),
    "loggers.base": ("Entry", "EntryRefused", "Experiment", "Hparams", "Logger", "LongText", "MetricRow", "Missed"),
    "rendering": ("sample_answers",),
}

# Hidden from type checkers: they would accept any name as part of the module.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        for home, names in _HOMES.items():
            if name in names:
                return getattr(importlib.import_module(f"crucible_worker.{home}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
