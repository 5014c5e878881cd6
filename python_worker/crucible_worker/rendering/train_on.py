"""Which messages of a conversation count in a training example, and how much.

The names are those of tinker-cookbook's `TrainOnWhat`, and so is their meaning; three have short names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal, get_args

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import ChatMessage, Conversation, Datum

__all__ = ["ALL_TOKENS", "CUSTOMIZED", "TRAIN_ON", "TrainOn", "check_weights", "chosen", "full_name", "with_weights"]

TrainOn = Literal[
    "last_assistant_message",
    "last_assistant_turn",
    "all_assistant_messages",
    "all_messages",
    "all_tokens",
    "all_user_and_system_messages",
    "customized",
    "last_assistant",
    "all_assistant",
    "all",
]
"""Which tokens of a conversation count.

- `last_assistant_message`, `last_assistant`: the last message of the assistant; what follows it is left out.
- `last_assistant_turn`: the assistant's messages after the last one of the user, its final message not considered.
- `all_assistant_messages`, `all_assistant`: every message of the assistant.
- `all_messages`: every message, without what opens it.
- `all_tokens`, `all`: every token.
- `all_user_and_system_messages`: those of these roles, without what opens them.
- `customized`: every message by its `weight`. One without a weight has 1 if it is the assistant's, else 0.
"""

TRAIN_ON: Sequence[str] = get_args(TrainOn)
"""All of them."""

ALL_TOKENS = "all_tokens"
CUSTOMIZED = "customized"

_SHORT: Mapping[str, str] = MappingProxyType(
    {"last_assistant": "last_assistant_message", "all_assistant": "all_assistant_messages", "all": ALL_TOKENS}
)


def full_name(train_on: str) -> str:
    """The name that tinker-cookbook has for it."""
    return _SHORT.get(train_on, train_on)


def check_weights(input: str | Conversation | Datum, train_on: str) -> None:
    """Refuse weights of messages that would not count.

    Raises:
        InvalidField: a message has a weight, and `train_on` is not `customized`.
    """
    if train_on == CUSTOMIZED or not isinstance(input, Conversation):
        return
    for index, message in enumerate(input.messages):
        if message.weight is not None:
            raise InvalidField(
                f"conversation.messages[{index}].weight",
                f"is {message.weight:g}, and weights count only with train_on = {CUSTOMIZED}; it is {train_on}: set "
                "it, or leave the weights out",
            )


def chosen(messages: Sequence[ChatMessage], train_on: str) -> tuple[Sequence[ChatMessage], Sequence[float]]:
    """The messages to render, and the weight of each.

    Raises:
        InvalidField: no message counts, or messages have weights that would not count.
    """
    check_weights(Conversation(tuple(messages)), train_on)
    name = full_name(train_on)
    answers = [index for index, message in enumerate(messages) if message.role == "assistant"]
    counted: Sequence[int]
    match name:
        case "last_assistant_message":
            counted = answers[-1:]
            messages = messages[: answers[-1] + 1] if answers else messages
        case "last_assistant_turn":
            asked = [index for index, message in enumerate(messages[:-1]) if message.role == "user"]
            counted = [index for index in answers if index > max(asked, default=-1)]
        case "all_assistant_messages":
            counted = answers
        case "all_user_and_system_messages":
            counted = [index for index, message in enumerate(messages) if message.role in ("user", "system")]
        case "customized":
            weights = _own_weights(messages)
            if not any(weights):
                raise InvalidField("input.messages", "has only messages of weight 0: there is nothing to measure")
            return messages, weights
        case _:
            counted = range(len(messages))
    if not counted:
        whose = "the user or the system" if name == "all_user_and_system_messages" else "the assistant"
        raise InvalidField("input.messages", f"has no message of {whose} that train_on = {train_on} counts")
    return messages, [float(index in counted) for index in range(len(messages))]


def with_weights(messages: Sequence[ChatMessage], weights: Sequence[float]) -> tuple[ChatMessage, ...]:
    """Messages that have these weights."""
    return tuple(dataclasses.replace(message, weight=weight) for message, weight in zip(messages, weights, strict=True))


def _own_weights(messages: Sequence[ChatMessage]) -> Sequence[float]:
    if all(message.weight is None for message in messages):
        problem = f'has no message with "weight" or "train", and train_on = {CUSTOMIZED} counts messages by them'
        raise InvalidField("input.messages", problem)
    return [float(message.role == "assistant") if message.weight is None else message.weight for message in messages]
