"""The conversation that a prompt makes of a row, and its form as one text for models without a chat template.

    system message        Add the numbers.
                          (an empty line between messages)
    example               12+34=? 46
                          (a space before an answer, or the target delimiter of the data set)
    row                   13+29=?

The text ends with the question: a model's tokenizer can put the space into the first token of the answer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from crucible_bridge.types import ChatMessage, Conversation

__all__ = ["MESSAGE_SEPARATOR", "Prompted", "before_next", "joined", "plain_text", "stops_of"]

MESSAGE_SEPARATOR = "\n\n"
"""Between two messages: an empty line."""
ANSWER_SEPARATOR = " "
"""Between a prompt and its answer if no delimiter is given, unless there is white space already."""


@dataclasses.dataclass(frozen=True, slots=True)
class Prompted(Conversation):
    """A conversation that can be joined to one text, as its roles carry no meaning; those of data sets cannot."""

    question: str
    """The question of the row, without additions of the prompt: a judge reads this text."""


def plain_text(input: str | Conversation, delimiter: str | None = None) -> str | None:
    """The input as text without a chat template; None for a conversation of a data set, which has roles.

    A conversation of one user message becomes the text of the message.

    Args:
        input: of a sample.
        delimiter: before the answers of examples, see `before_next`.
    """
    if isinstance(input, str):
        return input
    if isinstance(input, Prompted):
        return joined(input.messages, delimiter)
    messages = input.messages
    alone = len(messages) == 1 and messages[0].role == "user" and messages[0].is_text
    return messages[0].content if alone else None


def joined(messages: Sequence[ChatMessage], delimiter: str | None = None) -> str:
    """Messages as one text, with a delimiter before each answer, see `before_next`."""
    text = ""
    for index, message in enumerate(messages):
        if index:
            answers = message.role == "assistant" and messages[index - 1].role != "assistant"
            text += before_next(text, message.content, delimiter) if answers else MESSAGE_SEPARATOR
        text += message.content
    return text


def before_next(prompt: str, answer: str, delimiter: str | None = None) -> str:
    """The text between a prompt and its answer: the one rule for examples, measured targets and choices.

    Args:
        prompt: the text before it.
        answer: the text after it.
        delimiter: this text; if None, one space, unless the prompt ends or the answer begins with white space.
    """
    if delimiter is not None:
        return delimiter
    return "" if prompt[-1:].isspace() or answer[:1].isspace() else ANSWER_SEPARATOR


def stops_of(input: str | Conversation) -> tuple[str, ...]:
    """Texts that end an answer to a joined text.

    After examples with answers, a model would continue with the next question: the empty line before it ends the
    answer, unless an earlier answer contains an empty line.
    """
    if not isinstance(input, Prompted):
        return ()
    answers = [message.content for message in input.messages[:-1] if message.role == "assistant"]
    return (MESSAGE_SEPARATOR,) if answers and not any(MESSAGE_SEPARATOR in answer for answer in answers) else ()
