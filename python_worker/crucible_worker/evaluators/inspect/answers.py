"""The worker's side of a task's questions: each becomes a call of a model, and its result the task's answer."""

from __future__ import annotations

import collections
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from crucible_bridge.errors import BackendError, BridgeError
from crucible_bridge.problems import problem_of
from crucible_bridge.reasons import Reason
from crucible_bridge.types import ChatMessage, Conversation, Problem, SamplingParams
from crucible_worker.backends.base import Model
from crucible_worker.backends.metering import known_sum
from crucible_worker.rendering import Finished, answer_of, ask

__all__ = ["MODEL", "TaskResponder"]

MODEL = "model"
"""A task's name for the evaluated model."""

_SURROGATES = re.compile("[\ud800-\udfff]")
_SEEDS = 1 << 63
"""Seeds that models take, from 0; those of Inspect may be negative."""


class TaskResponder:
    """Answers the questions of one task.

    Args:
        models: the models, by the task's names for them.
        renderers: the renderer of each, by the same names.
        seed: of the task's sample.
        keep_thinking: whether reasoning stays in the text of an answer; otherwise it is returned separately.
    """

    def __init__(
        self, models: Mapping[str, Model], renderers: Mapping[str, str], *, seed: int, keep_thinking: bool
    ) -> None:
        self._models, self._renderers, self._seed, self._keep_thinking = models, renderers, seed, keep_thinking
        self._asked: collections.Counter[bytes] = collections.Counter()
        self.output_tokens: int | None = 0
        """Tokens generated so far by all models together."""
        self.unfinished = 0
        """Answers of the evaluated model that end within their reasoning."""
        self.stop_reason = ""
        """"length" if an answer was truncated, else that of the first one; empty without an answer, or if its server
        reports none."""
        self.first_problem: Problem | None = None
        """The problem of the first question without an answer."""

    async def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a question: `choices`, or an `error` that names its reason."""
        try:
            choices = await self._sampled(question)
        except BridgeError as error:
            problem = problem_of(error)
            if self.first_problem is None:
                self.first_problem = problem
            return {"error": f"{problem.reason}: {problem.message}"}
        which = question["which"]
        if which == MODEL:
            self.unfinished += sum(choice.unfinished for choice in choices)
        return {"choices": [self._choice(choice, self._renderers[which]) for choice in choices]}

    async def _sampled(self, question: Mapping[str, Any]) -> list[Finished]:
        which, count = question["which"], question["sampling"]["count"]
        messages = tuple(ChatMessage(role, content) for role, content in question["messages"])
        # A single user message becomes text, because a model without a chat template accepts that.
        plain = len(messages) == 1 and messages[0].role == "user"
        asked = await ask(
            self._models[which],
            messages[0].content if plain else Conversation(messages),
            self._params(question),
            count,
            renderer=self._renderers[which],
        )
        if len(asked.answers) != count:
            message = f"was asked for {count} answers and gave {len(asked.answers)}"
            raise BackendError(message, reason=Reason.BACKEND_ANSWER, retryable=False)
        return list(asked.answers)

    def _params(self, question: Mapping[str, Any]) -> SamplingParams:
        given = question["sampling"]
        temperature = float(given["temperature"])
        seed = None if given["seed"] is None else given["seed"] % _SEEDS
        return SamplingParams(
            max_tokens=given["max_tokens"],
            temperature=temperature,
            top_p=1.0 if given["top_p"] is None else float(given["top_p"]),
            top_k=given["top_k"],
            stop=tuple(given["stop"]),
            # A seed of the task is used, as with every provider of Inspect.
            seed=self._drawn(question) if seed is None and temperature > 0 else seed,
        )

    def _drawn(self, question: Mapping[str, Any]) -> int:
        """A seed from the question and how often it was asked before: epochs differ, and another run repeats it."""
        text = json.dumps([self._seed, question["which"], question["messages"], question["sampling"]])
        digest = hashlib.sha256(text.encode()).digest()
        self._asked[digest] += 1
        drawn = hashlib.sha256(digest + self._asked[digest].to_bytes(8, "big")).digest()
        return int.from_bytes(drawn[:8], "big") >> 1

    def _choice(self, found: Finished, renderer: str) -> dict[str, Any]:
        choice = found.sequence
        cut = choice.stop_reason == "length"
        self.stop_reason = "length" if cut else self.stop_reason or choice.stop_reason
        self.output_tokens = known_sum((self.output_tokens, choice.output_tokens))
        reasoning, said = ("", found.whole) if self._keep_thinking else (choice.reasoning, found.answer)
        text = answer_of(_SURROGATES.sub("\ufffd", said), renderer)
        reasoning = _SURROGATES.sub("\ufffd", reasoning)
        told = {"text": text, "cut": cut, "ended": choice.stop_reason, "tokens": choice.output_tokens}
        return {**told, "reasoning": reasoning} if reasoning else told
