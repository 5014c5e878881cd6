"""What one caller holds, at the other end of a session: a model, graders, environments."""

from __future__ import annotations

from collections.abc import Sequence

from crucible_bridge.errors import BackendError
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Answer,
    AnsweredEnvironment,
    AnsweredGrade,
    Conversation,
    EnvironmentQuestion,
    GradeQuestion,
    Question,
)
from crucible_worker.backends.base import MAX_MESSAGES, MAX_TEXT_BYTES, Model, exceeds
from crucible_worker.backends.orchestrator.model import RemoteOrchestratorModel
from crucible_worker.backends.orchestrator.session import CallerSession

__all__ = ["Caller", "chosen"]


class Caller:
    """A caller that is connected."""

    def __init__(
        self,
        session: CallerSession,
        *,
        model: RemoteOrchestratorModel | None = None,
        graders: Sequence[str] = (),
        environments: Sequence[str] = (),
    ) -> None:
        """Send questions to a session.

        Args:
            session: the connection.
            model: the caller's model; None if the model is the worker's.
            graders: names of its graders.
            environments: names of its environments.
        """
        self.model: Model | None = model
        """Its model; None if the evaluated model is the worker's."""
        self.graders = tuple(graders)
        """Names of its graders."""
        self.environments = tuple(environments)
        """Names of its environments."""
        self._session = session

    @property
    def gone(self) -> bool:
        """Whether it has disconnected."""
        return self._session.closed

    async def grade(self, question: GradeQuestion) -> AnsweredGrade:
        """Ask for a grade.

        Raises:
            BackendError: there is no valid answer.
            Unavailable: the caller has disconnected.
        """
        answer = await self._ask(question)
        if not isinstance(answer, AnsweredGrade):
            raise _nonsense("a question for a grade got an answer of another kind")
        if exceeds(answer.extracted):
            raise _nonsense(f"what was extracted is longer than {MAX_TEXT_BYTES:,} bytes")
        return answer

    async def follow(self, question: EnvironmentQuestion) -> AnsweredEnvironment:
        """Ask an environment; errors as of `grade`."""
        answer = await self._ask(question)
        if not isinstance(answer, AnsweredEnvironment):
            raise _nonsense("a question to an environment got an answer of another kind")
        if isinstance(answer.observation, str):
            texts: Sequence[str] = (answer.observation,)
        elif isinstance(answer.observation, Conversation):
            if (count := len(answer.observation.messages)) > MAX_MESSAGES:
                raise _nonsense(f"an observation has {count:,} messages, at most {MAX_MESSAGES:,} are possible")
            texts = [message.content for message in answer.observation.messages]
        else:
            texts = ()
        if any(map(exceeds, texts)):
            raise _nonsense(f"a text of an observation is longer than {MAX_TEXT_BYTES:,} bytes")
        return answer

    def new_episode(self) -> int:
        """A number for an episode, which no other one on this stream has."""
        return self._session.new_episode()

    def close_episode(self, number: int) -> None:
        """Tell it that nothing further is asked of an episode; does not wait."""
        self._session.close_episode(number)

    async def _ask(self, question: Question) -> Answer:
        return await self._session.answered(question, "the caller could not answer")


def chosen(name: str, held: Sequence[str]) -> str | None:
    """Which of the names that a caller holds an option means: an empty one is the only one; None if it is none."""
    if not name:
        return held[0] if len(held) == 1 else None
    return name if name in held else None


def _nonsense(message: str) -> BackendError:
    return BackendError(message, reason=Reason.BACKEND_ANSWER, retryable=False)
