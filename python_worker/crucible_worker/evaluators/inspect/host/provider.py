"""The worker's model for Inspect: a model API that requests every answer from the worker."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from inspect_ai.model import (  # pyright: ignore[reportMissingImports]
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    Content,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    modelapi,
)

from crucible_worker.evaluators.inspect.host.line import WorkerClient
from crucible_worker.evaluators.inspect.host.parameters import refused

__all__ = ["OWN", "CannotAsk", "WorkerModel"]

OWN = "crucible"
"""The name of the worker's provider of models in Inspect."""
_STOP_REASONS = {"stop": "stop", "length": "max_tokens"}
"""Inspect's names; any other reason is "unknown" there."""


class CannotAsk(Exception):
    """The worker's model does not support this question, or did not answer; ends the sample."""

    def __repr__(self) -> str:
        # The text that Inspect shows.
        return str(self)


@modelapi(name=OWN)
class WorkerModel(ModelAPI):
    """One of the worker's models.

    Args:
        line: the connection to the worker.
        which: the worker's name of the model.
        name: the task's name of it.
        defaults: how it is sampled if the task does not say it.
    """

    def __init__(self, line: WorkerClient, which: str, name: str, defaults: Mapping[str, Any]) -> None:
        super().__init__(name)
        self._line, self._which, self._defaults = line, which, defaults

    def auto_reasoning_history(self) -> Literal["none"]:
        """The worker's models get the text of earlier answers."""
        return "none"

    async def generate(
        self, input: list[ChatMessage], tools: list[Any], tool_choice: Any, config: GenerateConfig
    ) -> ModelOutput:
        """Query the worker, which counts, limits and retries calls as for every evaluator.

        Raises:
            CannotAsk: with the worker's reason, or because of tools, pictures or a parameter that it does not know; or
                the task is refused.
        """
        if self._line.refused:
            raise CannotAsk(self._line.refused)
        _check_tools(tools)
        if (name := refused(config)) is not None:
            raise CannotAsk(f"PARAMETER_UNSUPPORTED: the task asks for {name}, which the worker's models lack")
        messages = [(message.role, _text(message)) for message in input]
        asked = time.monotonic()
        try:
            sampling = _sampling(config, self._defaults)
            answer = await self._line.ask(which=self._which, messages=messages, sampling=sampling)
        except ValueError as error:
            raise CannotAsk(f"PROMPT_TOO_LONG: {error}") from error
        if (error := answer.get("error")) is not None:
            raise CannotAsk(error)
        counts = [choice["tokens"] for choice in answer["choices"]]
        tokens = None if None in counts else sum(counts)
        return ModelOutput(
            model=self.model_name,
            choices=[
                ChatCompletionChoice(
                    message=ChatMessageAssistant(content=_content(choice), model=self.model_name, source="generate"),
                    stop_reason=_STOP_REASONS.get(choice["ended"], "unknown"),
                )
                for choice in answer["choices"]
            ],
            time=time.monotonic() - asked,
            usage=None if tokens is None else ModelUsage(output_tokens=tokens, total_tokens=tokens),
        )


def _sampling(config: GenerateConfig, defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "max_tokens": defaults["max_tokens"] if config.max_tokens is None else config.max_tokens,
        "temperature": defaults["temperature"] if config.temperature is None else config.temperature,
        "top_p": config.top_p,
        "top_k": config.top_k,
        "stop": config.stop_seqs or [],
        "seed": config.seed,
        "count": config.num_choices or 1,
    }


def _content(choice: Mapping[str, Any]) -> str | list[Content]:
    """The content for a task: a text, or reasoning and a text; scorers read only the text."""
    if not choice.get("reasoning"):
        return choice["text"]
    return [ContentReasoning(reasoning=choice["reasoning"]), ContentText(text=choice["text"])]


def _check_tools(tools: Sequence[Any]) -> None:
    if tools:
        raise CannotAsk("TOOLS_UNSUPPORTED: the task has tools, and the worker's models cannot call them")


def _text(message: ChatMessage) -> str:
    if isinstance(message, ChatMessageTool) or getattr(message, "tool_calls", None):
        raise CannotAsk("TOOLS_UNSUPPORTED: there are calls of tools, and the worker's models cannot call them")
    if isinstance(message.content, str):
        return message.content
    for part in message.content:
        if not isinstance(part, ContentText | ContentReasoning):
            raise CannotAsk(f"CONTENT_UNSUPPORTED: a message holds content of type {part.type}, only text is accepted")
    return "\n".join(part.text for part in message.content if isinstance(part, ContentText))
