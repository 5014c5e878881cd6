"""A question with several answers to choose from, as one prompt and the continuations whose likelihoods are compared.

Each choice follows the question as text; or the question lists the choices with letters, and each letter follows it.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import string
from collections.abc import Sequence

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Conversation, Datum, Sample
from crucible_bridge.types.row_choices import two_readings
from crucible_worker.backends.base import Tokenizer
from crucible_worker.rendering.prompts import AUTO, encode_answered, require_tokenizer

__all__ = [
    "MAX_CHOICES",
    "ChoiceForm",
    "ChoiceTokens",
    "UnnamedChoice",
    "check_choices",
    "named_choice",
    "render_choices",
]

MAX_CHOICES = 256
"""The most choices of a sample; with letters there are at most as many as letters."""

_LETTERS = string.ascii_uppercase
_ASKED = "\nAnswer:"


class ChoiceForm(enum.StrEnum):
    """Which part of a choice follows the question."""

    TEXT = "text"
    """Its text."""
    LETTERS = "letters"
    """Its letter; the texts are listed in the question."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceTokens:
    """A sample in tokens."""

    prompt: Sequence[int]
    """Token ids before the choices, at least one."""
    continuations: Sequence[Sequence[int]]
    """Token ids of each choice, at least one."""
    texts: Sequence[str | None]
    """The text of each choice after the prompt, without the delimiter; None for tokens."""


def check_choices(sample: Sample, form: ChoiceForm) -> None:
    """Refuse a sample that is no question for any model.

    Raises:
        InvalidField: there are too few choices, too many, an empty one or the same twice; there is no target; a Datum's
            choices are no token ids, or would need letters; choices are to be listed in a conversation that does not
            end with a message of the user.
    """
    most = len(_LETTERS) if form is ChoiceForm.LETTERS else MAX_CHOICES
    if not sample.choices:
        raise InvalidField(
            "choices",
            f"are missing: each sample needs 2 to {most}, among them its target: a column "
            'choices with a list, in a cell of CSV as JSON (["Rome", "Oslo"]), or ?choices=COLUMN',
        )
    if not 2 <= len(sample.choices) <= most:
        raise InvalidField("choices", f"has {len(sample.choices)} choices, not 2 to {most}")
    in_tokens = isinstance(sample.input, Datum)
    places: dict[str | tuple[int, ...], int] = {}
    for index, choice in enumerate(sample.choices):
        if not choice.strip():
            raise InvalidField(f"choices[{index}]", "is blank")
        content = tuple(_tokens_of(choice, index)) if in_tokens else choice
        if (same := places.setdefault(content, index)) != index:
            raise InvalidField(f"choices[{index}]", f"is the same as choice {same}")
    if not sample.targets:
        raise InvalidField("targets", "is empty: no choice would be right")
    if in_tokens and form is ChoiceForm.LETTERS:
        raise InvalidField("datum", "is tokens, in which no choices can be listed")
    if isinstance(sample.input, Conversation) and form is ChoiceForm.LETTERS:
        messages = sample.input.messages
        if not messages or messages[-1].role != "user":
            raise InvalidField("conversation", "does not end with a message of the user, where choices are listed")


class UnnamedChoice(ValueError):
    """A target names no choice, or may name two; the message follows its place."""


def named_choice(target: str, choices: Sequence[str], labels: Sequence[str] = ()) -> int:
    """Index of the choice that a target names: by its label, or else by its text; without labels also by its letter.

    Raises:
        UnnamedChoice: it names none, or is the letter of one and the text of another.
    """
    if target in labels:
        return labels.index(target)
    text = choices.index(target) if target in choices else None
    if labels:
        if text is None:
            raise UnnamedChoice("is neither a label nor the text of a choice")
        return text
    letter = _LETTERS.find(target) if len(target) == 1 else -1
    if not 0 <= letter < len(choices):
        if text is None:
            digits = ": as the index of a choice it would be a number, or a column named with index=COLUMN"
            raise UnnamedChoice(
                f"is neither the text of a choice nor its letter{digits if target.strip().isdecimal() else ''}"
            )
        return text
    if text not in (None, letter):
        raise UnnamedChoice(two_readings(target, letter, text))
    return letter


async def render_choices(
    tokenizer: Tokenizer | None, sample: Sample, form: ChoiceForm, delimiter: str | None = None, renderer: str = AUTO
) -> ChoiceTokens:
    """Render a sample that `check_choices` has passed.

    Args:
        tokenizer: the model's, if it has one.
        sample: text, a conversation, or a Datum with JSON lists of token ids as choices.
        form: which part of a choice follows the question.
        delimiter: text before each choice, if the choice is text; None is the data set's in plain text, and none after
            a template.
        renderer: see `renderers.py`.

    Raises:
        FailedPrecondition: no tokenizer, no chat template, or the renderer cannot be used with this model.
        InvalidField: the question is empty, or a choice has no tokens.
    """
    if isinstance(sample.input, Datum):
        tokens = [_tokens_of(choice, index) for index, choice in enumerate(sample.choices)]
        prompt = sample.input.model_input.tokens().tolist()
        return ChoiceTokens(prompt=prompt, continuations=tokens, texts=[None] * len(tokens))
    known = require_tokenizer(tokenizer)
    asked, texts = _asked(sample.input, sample.choices, form)
    before = delimiter if form is ChoiceForm.TEXT else None
    prompt, continuations = await encode_answered(known, asked, texts, renderer, before)
    for index, continuation in enumerate(continuations):
        if not len(continuation):
            raise InvalidField(f"choices[{index}]", "has no tokens")
    return ChoiceTokens(prompt=prompt, continuations=continuations, texts=texts)


def _asked(
    input: str | Conversation, choices: Sequence[str], form: ChoiceForm
) -> tuple[str | Conversation, Sequence[str]]:
    """The question, with its choices listed if they have letters, and the texts that can follow it."""
    if form is ChoiceForm.TEXT:
        return input, choices
    letters = _LETTERS[: len(choices)]
    listed = "".join(f"\n{letter}. {choice}" for letter, choice in zip(letters, choices, strict=True)) + _ASKED
    if isinstance(input, str):
        return f"{input}{listed}", letters
    *before, last = input.messages
    if last.parts:
        last = dataclasses.replace(last, content="", parts=(*last.parts, listed))
    else:
        last = dataclasses.replace(last, content=f"{last.content}{listed}")
    return dataclasses.replace(input, messages=(*before, last)), letters


def _tokens_of(choice: str, index: int) -> list[int]:
    try:
        tokens = json.loads(choice)
    except (ValueError, RecursionError):
        tokens = None
    if not isinstance(tokens, list) or not tokens or not all(_is_token(token) for token in tokens):
        raise InvalidField(f"choices[{index}]", "is no JSON list of token ids, as the choices of a Datum are: [12, 7]")
    return tokens


def _is_token(token: object) -> bool:
    return isinstance(token, int) and not isinstance(token, bool) and 0 <= token < 1 << 31
