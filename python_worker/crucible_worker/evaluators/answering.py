"""How evaluators let a model answer: one answer at a time, with its own seed, with the reasoning removed."""

from __future__ import annotations

import dataclasses
import re
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta

from crucible_bridge.errors import BackendError, FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Conversation, Datum, ModelInput, SampledSequence, SamplingParams
from crucible_worker.backends.base import ANSWERING, Model
from crucible_worker.rendering import answer_of, ask, without_thinking

__all__ = ["KEEP_THINKING", "REMOVE_THINKING", "Answer", "Answering", "Thinking", "check_sampling_client"]

REMOVE_THINKING: Final = "remove"
KEEP_THINKING: Final = "keep"
"""Whether the reasoning is part of an answer."""

Thinking: TypeAlias = Annotated[
    Literal["remove", "keep"],
    Meta(
        description=(
            "remove: the text between <think> and </think>, or <thinking> and </thinking>, is not graded; a "
            "sample's record keeps it. An answer with nothing else is wrong. keep: it is graded as well."
        )
    ),
]
"""The type of the option `thinking`."""

_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclasses.dataclass(slots=True, kw_only=True)
class Answer:
    """What a model answered."""

    prompt: ModelInput | None
    """The prompt in tokens; None if the model's server made them."""
    sequence: SampledSequence
    """What it generated."""
    output: str
    """The text of the prompt, with U+FFFD in place of each invalid code point."""
    replaced: int
    """How many those are."""
    said: str
    """The output without the marks that only end it, as the renderer parses it."""
    text: str
    """The text to judge: the output, without its reasoning if that is removed."""
    only_thought: bool
    """Whether the output is not empty and all of it is reasoning."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """How a model is queried."""

    sampling: SamplingParams
    """How it is sampled."""
    renderer: str = "auto"
    """How an input becomes the model's prompt, see `crucible_worker.rendering.renderers`."""
    thinking: str = REMOVE_THINKING
    """Whether the reasoning is part of an answer: "remove" or "keep"."""

    async def answer(self, model: Model, input: str | Conversation | Datum, seed: int | None = None) -> Answer:
        """Sample one answer of a model.

        Args:
            model: the model to query.
            input: the input of a Sample, or a text.
            seed: the seed of this answer, if sampling is random; if None, that of the parameters.

        Raises:
            InvalidField: the prompt is empty, or longer than the context.
            FailedPrecondition: the input cannot be rendered for this model, or it has no sampling client.
            BackendError: it could not be queried, or gave not exactly one answer (reason BACKEND_ANSWER).
        """
        params = self.sampling
        if seed is not None and params.temperature > 0:
            params = dataclasses.replace(params, seed=seed)
        asked = await ask(model, input, params, renderer=self.renderer)
        if len(asked.answers) != 1:
            message = f"was asked for one answer and gave {len(asked.answers)}"
            raise BackendError(message, reason=Reason.BACKEND_ANSWER, retryable=False)
        (sequence,) = asked.answers
        output, replaced = _SURROGATES.subn("\ufffd", sequence.text)
        said = answer_of(output, self.renderer)
        text = said if self.thinking == KEEP_THINKING else without_thinking(said)
        return Answer(
            prompt=asked.prompt,
            sequence=sequence,
            output=output,
            replaced=replaced,
            said=said,
            text=text,
            only_thought=bool(said) and not text,
        )


def check_sampling_client(model: Model, kind: str, who: str = "the model") -> None:
    """Refuse a model that cannot generate.

    Args:
        model: the model.
        kind: the evaluator's kind, for the error.
        who: the model's role in the evaluator, for the error.

    Raises:
        FailedPrecondition: it lacks a sampling client (reason MISSING_CLIENT).
    """
    if model.capabilities.isdisjoint(ANSWERING):
        raise FailedPrecondition(f"{kind} needs a sampling client, which {who} lacks", reason=Reason.MISSING_CLIENT)
