"""How evaluators let a model answer: one answer at a time, with its own seed, with the reasoning removed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta

from crucible_bridge.errors import BackendError, FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Conversation,
    Datum,
    ModelInput,
    SampledSequence,
    SamplingParams,
    ToolCall,
    UnparsedToolCall,
)
from crucible_worker.backends.base import ANSWERING, Model
from crucible_worker.rendering import Finished, answer_of, ask

__all__ = [
    "KEEP_THINKING",
    "NO_ANSWER",
    "NO_ANSWER_CALLED",
    "NO_ANSWER_CUT",
    "NO_ANSWER_OPEN",
    "NO_ANSWER_REFUSED",
    "REMOVE_THINKING",
    "TRUNCATED_REASONING",
    "Answer",
    "Answering",
    "Thinking",
    "check_sampling_client",
    "unicode_calls",
    "unicode_unparsed",
]

REMOVE_THINKING: Final = "remove"
KEEP_THINKING: Final = "keep"
"""Whether the reasoning is part of an answer."""

NO_ANSWER = "no answer: only reasoning"
"""The method of a verdict on an answer that is reasoning alone."""
NO_ANSWER_CUT = "no answer: truncated at max_tokens during the reasoning"
"""The same, if the output was truncated before an answer."""
NO_ANSWER_OPEN = "no answer: ended during the reasoning"
"""The same, if the output ended otherwise before the reasoning did."""
NO_ANSWER_REFUSED = "no answer: refused"
"""The same, if the model's server reports a refusal in place of an answer."""
NO_ANSWER_CALLED = "no answer: called a tool"
"""The same, if the answer is calls of tools alone."""

TRUNCATED_REASONING = "truncated_reasoning"
"""The measurement of a sample with answers that end within their reasoning: how many."""

Thinking: TypeAlias = Annotated[
    Literal["remove", "keep"],
    Meta(
        description=(
            "remove: reasoning, such as the text between <think> and </think>, is not graded; a sample's record "
            "has it. An answer with nothing else is wrong. keep: it is graded as well."
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
    """The text of it all, also of what a server sent from a stop string on, with U+FFFD in place of each invalid code
    point."""
    replaced: int
    """How many those are."""
    text: str
    """The text to judge: the output up to a stop string, without its reasoning if that is removed, and without the
    marks that the renderer writes around every message."""
    no_answer: str = ""
    """Why there is no answer, if the text is empty for a reason that is known."""
    unfinished: bool = False
    """Whether it ends within its reasoning."""
    after_stop: int = 0
    """Characters of the output from the stop string on, which are not judged."""

    @property
    def recorded(self) -> dict[str, Any]:
        """What an outcome records of it, as arguments of `Outcome`."""
        said = self.sequence
        calls: tuple[ToolCall, ...] = ()
        unparsed: tuple[UnparsedToolCall, ...] = ()
        if said.tool_calls or said.unparsed_tool_calls:
            calls, unparsed = unicode_calls(said.tool_calls), unicode_unparsed(said.unparsed_tool_calls)
        return {
            "output": self.output,
            "reasoning": said.reasoning and _unicode(said.reasoning),
            "refusal": said.refusal and _unicode(said.refusal),
            "tool_calls": calls,
            "unparsed_tool_calls": unparsed,
            "stop_reason": said.stop_reason,
            "output_tokens": said.output_tokens,
        }

    @property
    def counted(self) -> dict[str, float]:
        """What an outcome counts of it, as measurements; nothing as a rule."""
        if not (self.replaced or self.unfinished or self.after_stop):  # as a rule
            return {}
        found = {
            "replaced_code_points": self.replaced,
            TRUNCATED_REASONING: int(self.unfinished),
            "characters_after_stop": self.after_stop,
        }
        return {name: float(count) for name, count in found.items() if count}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """How a model is queried."""

    sampling: SamplingParams
    """How it is sampled."""
    renderer: str = "auto"
    """How an input becomes the model's prompt, see `crucible_worker.rendering.prompts`."""
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
        (found,) = asked.answers
        output, replaced = f"{found.sequence.text}{found.rest}", 0
        if not output.isascii():
            output, replaced = _SURROGATES.subn("\ufffd", output)
        said = found.whole if self.thinking == KEEP_THINKING else found.answer
        text = answer_of(said if said.isascii() else _unicode(said), self.renderer)
        return Answer(
            prompt=asked.prompt,
            sequence=found.sequence,
            output=output,
            replaced=replaced,
            text=text,
            no_answer="" if text.strip() else _why_none(found),
            unfinished=found.unfinished,
            after_stop=len(found.rest),
        )


def unicode_calls(calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
    """Calls of tools as a record has them: each half of a surrogate pair becomes U+FFFD."""
    return tuple(
        ToolCall(name=_unicode(call.name), arguments=_unicode(call.arguments), id=_unicode(call.id)) for call in calls
    )


def unicode_unparsed(calls: Iterable[UnparsedToolCall]) -> tuple[UnparsedToolCall, ...]:
    """As `unicode_calls`, of calls that cannot be parsed."""
    return tuple(UnparsedToolCall(text=_unicode(call.text), error=_unicode(call.error)) for call in calls)


def _unicode(text: str) -> str:
    return _SURROGATES.sub("\ufffd", text)


def _why_none(found: Finished) -> str:
    if found.unfinished:
        return NO_ANSWER_CUT if found.sequence.stop_reason == "length" else NO_ANSWER_OPEN
    if found.sequence.refusal:
        return NO_ANSWER_REFUSED
    if found.sequence.tool_calls or found.sequence.unparsed_tool_calls:
        return NO_ANSWER_CALLED
    return NO_ANSWER if found.whole.strip() and not found.answer.strip() else ""


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
