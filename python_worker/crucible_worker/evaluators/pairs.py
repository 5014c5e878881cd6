"""The two answers of a preference pair, as a sample holds them.

    Sample(input="2+2=", metadata={"chosen": "4", "rejected": "5"})
    Sample(input="2+2=", targets=("4",), metadata={"rejected": "5"})
    Sample(input=conversation_with_the_chosen_answer, metadata={"rejected": '[{"role": "user", ...}, ...]'})

An entry is the text of the answer, or messages as JSON. Messages that begin with the assistant follow the input; others
are the whole conversation.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import ChatMessage, Conversation, Datum, Sample, message_from_json
from crucible_worker.backends.base import MAX_MESSAGES
from crucible_worker.rendering.prompts import messages_of

__all__ = ["CHOSEN", "REJECTED", "pair_of", "parted"]

CHOSEN, REJECTED = "chosen", "rejected"
"""Keys of the metadata that hold the answers, unless options name others."""

_ASSISTANT = "assistant"
_MESSAGES = re.compile(r'\s*+\[\s*+\{\s*+"(?:role|content)"')
"""The beginning of messages as JSON."""


def pair_of(sample: Sample, chosen: str = CHOSEN, rejected: str = REJECTED) -> tuple[Sample, Sample]:
    """The chosen and the rejected answer of a sample, each as a sample whose only target is the answer.

    Without an entry for the chosen answer, it is the first target, or else the last message of the conversation.

    Args:
        sample: the sample.
        chosen: the metadata's key for the chosen answer.
        rejected: likewise, for the rejected one.

    Raises:
        InvalidField: an answer is missing, is not the assistant's, or is no messages; or the sample is a Datum.
    """
    if isinstance(sample.input, Datum):
        raise InvalidField("datum", "is tokens, and the two answers of a pair are text or messages")
    if chosen in sample.metadata:
        preferred, path = sample.metadata[chosen], _path(chosen)
    elif sample.targets:
        preferred, path = sample.targets[0], "targets[0]"
    else:
        sample, preferred = _asked(sample, chosen)
        path = "conversation"
    if rejected not in sample.metadata:
        message = "is missing: it has the answer that the chosen one is compared with"
        raise InvalidField(_path(rejected), f"{message}; {_of_column(rejected)}")
    return _answered(sample, preferred, path), _answered(sample, sample.metadata[rejected], _path(rejected))


def _asked(sample: Sample, chosen: str) -> tuple[Sample, str]:
    """The question of a conversation, and the answer with which it ends."""
    messages = sample.input.messages if isinstance(sample.input, Conversation) else ()
    if len(messages) < 2 or messages[-1].role != _ASSISTANT:
        message = "is missing, and there is no target, and no conversation that ends with the assistant's message"
        raise InvalidField(_path(chosen), f"{message}; {_of_column(chosen)}")
    before, answer = parted(messages, "conversation")
    return dataclasses.replace(sample, input=Conversation(before)), answer


def _answered(sample: Sample, value: str, path: str) -> Sample:
    messages = _messages_of(value, path)
    if messages is None:
        return _followed(sample, value, path)
    before, answer = parted(messages, path)
    if messages[0].role == _ASSISTANT and not before:
        return _followed(sample, answer, path)
    if messages[0].role == _ASSISTANT:
        assert not isinstance(sample.input, Datum)
        before = (*messages_of(sample.input), *before)
    return dataclasses.replace(sample, input=Conversation(before), targets=(answer,))


def parted(messages: Sequence[ChatMessage], path: str) -> tuple[tuple[ChatMessage, ...], str]:
    """The messages before an answer, and the answer, with which they end.

    Raises:
        InvalidField: the last message is not the assistant's; the field is `path`.
    """
    if messages[-1].role != _ASSISTANT:
        raise InvalidField(path, f"ends with a message of {messages[-1].role[:40]!r}, not of the assistant")
    if not messages[-1].is_text:
        raise InvalidField(path, "ends with images, reasoning or calls of tools: an answer is text alone")
    return tuple(messages[:-1]), messages[-1].content


def _followed(sample: Sample, answer: str, path: str) -> Sample:
    """The input, followed by an answer."""
    if isinstance(sample.input, Conversation) and sample.input.messages[-1].role == _ASSISTANT:
        raise InvalidField(path, "is one answer, and the conversation before it ends with the assistant's message")
    return dataclasses.replace(sample, targets=(answer,))


def _messages_of(value: str, path: str) -> tuple[ChatMessage, ...] | None:
    """Messages as JSON; None for text."""
    if not _MESSAGES.match(value):
        return None
    try:
        found = msgspec.json.decode(value, type=Annotated[list[Any], msgspec.Meta(max_length=MAX_MESSAGES)])
        return tuple(map(message_from_json, found))
    except (msgspec.MsgspecError, InvalidField) as error:
        said = f"{error.field} {error.message}".strip() if isinstance(error, InvalidField) else error
        message = f'begins like messages, and is no JSON list of {{"role", "content"}}: {said}'
        raise InvalidField(path, message) from None


def _of_column(key: str) -> str:
    return f"a column of a data set becomes it by ?metadata.{key}=COLUMN"


def _path(key: str) -> str:
    return f'metadata["{key}"]'
