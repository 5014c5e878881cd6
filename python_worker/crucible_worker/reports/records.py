"""What is recorded of a sample as plain data, for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crucible_bridge.types import (
    Conversation,
    Datum,
    SamplePrompt,
    SampleResult,
    TokenPrompt,
    ToolCall,
    Turn,
    message_text,
)

__all__ = ["asked_text", "prompt_as_data", "record_as_data", "said_as_data", "shown_output"]


def record_as_data(result: SampleResult) -> dict[str, Any]:
    """What is recorded of a sample besides its result.

    Text is text, a conversation a list of messages, tokens `{"tokens": count}`; what is not recorded is null.
    """
    sample = result.sample
    return {
        "input": None if sample is None else _input_as_data(sample.input),
        "targets": None if sample is None else list(sample.targets),
        "choices": None if sample is None else list(sample.choices),
        **({"choice_labels": list(sample.choice_labels)} if sample is not None and sample.choice_labels else {}),
        "metadata": None if sample is None else dict(sample.metadata),
        "prompt": prompt_as_data(result.prompt),
        "turns": [_turn_as_data(turn) for turn in result.turns],
        "truncated": [{"part": part.part, "bytes": part.bytes, "limit": part.limit} for part in result.truncated],
    }


def prompt_as_data(prompt: SamplePrompt | None) -> Any:
    """A prompt, likewise."""
    if isinstance(prompt, Conversation):
        return _messages(prompt)
    return {"tokens": prompt.token_count} if isinstance(prompt, TokenPrompt) else prompt


def said_as_data(said: SampleResult | Turn) -> dict[str, Any]:
    """What an answer has besides its text, as far as there is any: reasoning, refusal, calls of tools."""
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in said.tool_calls]
    found = {"reasoning": said.reasoning, "refusal": said.refusal, "tool_calls": calls}
    return {name: value for name, value in found.items() if value}


def shown_output(result: SampleResult) -> str:
    """The output for people: without one, why there is none, as far as that is recorded."""
    if result.output.strip():
        return result.output
    if result.refusal:
        return f'(refused: "{result.refusal}")'
    if result.tool_calls:
        return f"(called {', '.join(_called(call) for call in result.tool_calls)})"
    return f"({result.method})" if result.reasoning and result.method else result.output


def _called(call: ToolCall) -> str:
    return f"the tool {call.name}" if call.name else "a tool in a form that cannot be parsed"


def asked_text(result: SampleResult) -> str:
    """What a sample asks, in one text, for people; empty where it is not recorded."""
    asked = None if result.sample is None else result.sample.input
    if isinstance(asked, Conversation):
        return "\n".join(f"{message.role}: {message_text(message)}" for message in asked.messages)
    return asked if isinstance(asked, str) else ""


def _input_as_data(asked: str | Conversation | Datum) -> Any:
    if isinstance(asked, Conversation):
        return _messages(asked)
    if isinstance(asked, Datum):
        # An image counts as what it says it takes.
        counts = (
            getattr(chunk, "expected_tokens", None) or len(getattr(chunk, "tokens", ()))
            for chunk in asked.model_input.chunks
        )
        return {"tokens": sum(counts)}
    return asked


def _messages(conversation: Conversation) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message_text(message)} for message in conversation.messages]


def _turn_as_data(turn: Turn) -> Mapping[str, Any]:
    return {
        "role": turn.role,
        "text": turn.text,
        "reward": turn.reward,
        "tokens": turn.tokens,
        "rollout": turn.rollout,
        "model": turn.model,
        **said_as_data(turn),
    }
