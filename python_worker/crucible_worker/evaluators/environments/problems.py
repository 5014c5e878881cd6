"""Problems of one turn over any data set: an answer, how right it is, and what its form costs.

The reward is that of tinker-cookbook's ProblemEnv, `format_coef * (format - 1) + correct`, from the two metrics of each
turn: `correct`, the grader's score, and `format`, 1 for an answer that ended by itself and that the format's grader, if
there is one, holds for right. What a grader measures beside its score are further metrics.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from crucible_bridge.errors import InternalError
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Datum, Sample
from crucible_worker.evaluators.environments.base import Observation, StepResult, StopCondition
from crucible_worker.evaluators.environments.group import Ungraded
from crucible_worker.evaluators.graded import problem_of_grade
from crucible_worker.grading.base import Grade, Grader
from crucible_worker.rendering import without_thinking

__all__ = ["Problem", "Rules"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What an answer is worth."""

    grader: Grader
    """How right it is; bound to its judge, where it asks one."""
    format: Grader | None
    """Whether it has the form; None where any will do."""
    format_coef: float
    """What a wrong form costs."""
    keep_thinking: bool
    """Whether thoughts are graded."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A sample, of which a group of rollouts is made; it is its own environment, as it keeps nothing."""

    sample: Sample
    """What is asked, and what is right."""
    rules: Rules
    """What an answer is worth."""
    size: int
    """Rollouts of the group."""
    tag_by: str = ""
    """The entry of the sample's metadata that is its tag; empty for none."""

    async def make_envs(self) -> Sequence[Problem]:
        """The environments."""
        return [self] * self.size

    def logging_tags(self) -> list[str]:
        """The sample's tag, where it has one."""
        tag = self.sample.metadata.get(self.tag_by, "")
        return [tag] if tag else []

    async def initial_observation(self) -> tuple[Observation, StopCondition]:
        """The sample's input."""
        asked = self.sample.input
        return (asked.model_input if isinstance(asked, Datum) else asked), ()

    async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
        """Grade the answer.

        Raises:
            Ungraded: a grader came to no verdict.
            InternalError: it gave a score that is none (reason BAD_SCORE).
            BridgeError: its judge could not be asked.
        """
        said: str = extra["text"]
        text = said if self.rules.keep_thinking else without_thinking(said)
        grade = await self._graded(self.rules.grader, text)
        # An answer that is nothing but thought is wrong, whatever a grader makes of an empty one.
        correct = 0.0 if said and not text else _score(grade)
        formed = 0.0
        if extra["stop_reason"] == "stop":
            formed = 1.0 if self.rules.format is None else _score(await self._graded(self.rules.format, text))
        return StepResult(
            reward=self.rules.format_coef * (formed - 1) + correct,
            episode_done=True,
            metrics={**grade.measurements, "format": formed, "correct": correct},
        )

    async def _graded(self, grader: Grader, text: str) -> Grade:
        grade = await grader.grade(text, self.sample.targets, self.sample.choices)
        problem = problem_of_grade(grade)
        if problem is not None:
            raise Ungraded(grade.verdict, problem)
        return grade


def _score(grade: Grade) -> float:
    if grade.score is None or not 0 <= grade.score <= 1:
        raise InternalError(f"the grader said {grade.verdict} with score {grade.score}", reason=Reason.BAD_SCORE)
    return grade.score
