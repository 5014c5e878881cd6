"""What the tests of graders and environments of a caller share: graders that count, environments that are games."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

from crucible_bridge.types import (
    AnsweredEnvironment,
    EvaluateRequest,
    EvaluatorSpec,
    GradeQuestion,
    OpenEpisode,
)
from tests.service.evaluation_kit import accuracy
from tests.service.evaluation_kit import asked as evaluations_to_run

__all__ = ["Counting", "Guess", "asked", "game"]


def asked(grader: str = "caller", **fields: Any) -> EvaluateRequest:
    """Evaluation `e` of two samples by `accuracy` with a grader of the caller, but for what is given."""
    return evaluations_to_run(**{"evaluators": [accuracy(grader=grader)], **fields})


def game(environment: str = "caller", **options: Any) -> EvaluatorSpec:
    """The evaluator `rl_test_set` in an environment of the caller."""
    return EvaluatorSpec(kind="rl_test_set", options={"environment": environment, **options})


class Counting:
    """A grader that says what is right by the targets, and notes what it was asked."""

    def __init__(self) -> None:
        self.questions: list[GradeQuestion] = []
        self.threads: set[int] = set()

    @property
    def ids(self) -> list[str]:
        """Samples that it was asked about, in order."""
        return [question.sample.id for question in self.questions]

    def __call__(self, question: GradeQuestion) -> bool:
        self.questions.append(question)
        self.threads.add(threading.get_ident())
        return question.response in question.sample.targets


class Guess:
    """A game of three turns: each answer is worth a number drawn by the seed; it ends early at the word "stop"."""

    def __init__(self, opened: OpenEpisode, log: list[tuple[str, int]]) -> None:
        self._draw, self._sample, self._turn = random.Random(opened.seed), opened.sample, 0
        self._log, self._opened = log, opened
        log.append(("open", opened.rollout))

    async def initial_observation(self) -> Any:
        await asyncio.sleep(0)
        return AnsweredEnvironment(observation=f"{self._sample.input}?", tags=("games",))

    def step(self, action: list[int], *, extra: Any = None) -> AnsweredEnvironment:
        self._turn += 1
        self._log.append((extra["text"], self._opened.rollout))
        done = self._turn == 3 or extra["text"] == "STOP"
        return AnsweredEnvironment(
            observation=None if done else f"{self._sample.input}{self._turn}",
            reward=self._draw.random(),
            done=done,
            metrics={"turns": float(self._turn)},
        )

    def close(self) -> None:
        self._log.append(("closed", self._opened.rollout))
