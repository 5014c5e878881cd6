"""How evaluators have a model answer: one answer at a time, by a seed of its own, thoughts taken out of it."""

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
"""Whether thoughts are part of an answer."""

Thinking: TypeAlias = Annotated[
    Literal["remove", "keep"],
    Meta(
        description=(
            "remove: what stands between <think> and </think>, or <thinking> and </thinking>, is not graded; a "
            "sample's record keeps it. An answer that holds nothing else is wrong. keep: it is graded as well."
        )
    ),
]
"""The type of the option `thinking`."""

_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclasses.dataclass(slots=True, kw_only=True)
class Answer:
    """What a model answered."""

    prompt: ModelInput | None
    """What it was asked, in tokens; None where its server made them."""
    sequence: SampledSequence
    """What it generated."""
    output: str
    """The text of that, with U+FFFD for each code point that is none."""
    replaced: int
    """How many those are."""
    said: str
    """The output without what only ends it, as renderers have it."""
    text: str
    """What is to be judged: what was said, without thoughts where they are removed."""
    only_thought: bool
    """Whether something was said, and all of it was thought."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """How a model is asked."""

    sampling: SamplingParams
    """How it is sampled."""
    renderer: str = "auto"
    """How an input becomes what it gets, see `crucible_worker.rendering.renderers`."""
    thinking: str = REMOVE_THINKING
    """Whether thoughts are part of an answer: "remove" or "keep"."""

    async def answer(self, model: Model, input: str | Conversation | Datum, seed: int | None = None) -> Answer:
        """Have a model answer once.

        Args:
            model: who is asked.
            input: of a Sample, or a text.
            seed: of this answer, where sampling is random; that of the parameters if None.

        Raises:
            InvalidField: there is nothing to ask, or the prompt is longer than the context.
            FailedPrecondition: the input cannot be rendered for this model, or it has no sampling client.
            BackendError: it could not be asked, or gave not exactly one answer (reason BACKEND_ANSWER).
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
        model: it.
        kind: the evaluator's kind, for the error.
        who: what the model is to the evaluator, likewise.

    Raises:
        FailedPrecondition: it lacks a sampling client (reason MISSING_CLIENT).
    """
    if model.capabilities.isdisjoint(ANSWERING):
        raise FailedPrecondition(f"{kind} needs a sampling client, which {who} lacks", reason=Reason.MISSING_CLIENT)
