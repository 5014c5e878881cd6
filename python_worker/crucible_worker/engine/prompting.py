"""How rows become what the model gets: the prompt of a data set, applied to one sample at a time.

    system message, prefix, examples, the row with its template, suffix

Jinja2 templates run in the processes that also grade mathematics, where they can be killed. Examples are drawn once,
before anything starts; each sample is rendered when its turn comes, so that a data set may have any size.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from crucible_bridge.errors import BridgeError, FailedPrecondition, InvalidField, Unavailable, clipped
from crucible_bridge.problems import at_field
from crucible_bridge.reasons import Reason
from crucible_bridge.types import ChatMessage, Conversation, Dataset, Datum, FewShot, Prompt, Sample
from crucible_worker.datasets.loading import LoadedDataset, MalformedSample
from crucible_worker.grading.pool import GradingPool
from crucible_worker.journal.packing import pack
from crucible_worker.rendering import templates
from crucible_worker.rendering.prompts import Prompted
from crucible_worker.rendering.templates import BadTemplate, columns_of, fill, is_jinja
from crucible_worker.util.message_values import messages_to_values

__all__ = ["TEMPLATE_MODULE", "Example", "Prompter", "Read", "prompter_of", "refuse_further_parts"]

TEMPLATE_MODULE = templates.__name__
"""The module that a process only for templates loads before its first one."""

_PROMPT = "dataset.prompt"
_TEMPLATE = f"{_PROMPT}.template"
_SOURCE = f"{_PROMPT}.few_shot.source"

Read = Callable[[Dataset], Awaitable[LoadedDataset]]
"""Loads a data set; raises as `datasets.loading.load` does."""

_Turns = tuple[ChatMessage, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """A row with its answer."""

    asked: _Turns
    """The messages of the row, without the answer; they identify the row."""
    answered: _Turns
    """All messages, with the answer."""


@dataclasses.dataclass(frozen=True, slots=True)
class Prompter:
    """A prompt that can be applied. Made by `prompter_of`."""

    prompt: Prompt
    """The prompt."""
    examples: Sequence[Example]
    """One more than are shown, if there are enough, so that the row itself can be left out."""
    pool: GradingPool | None
    """Processes in which Jinja2 templates run."""

    @property
    def examples_fingerprint(self) -> str:
        """SHA-256 of the examples, in hexadecimal; empty if there are none."""
        turns = [messages_to_values(example.answered) for example in self.examples]
        return hashlib.sha256(pack(turns)).hexdigest() if turns else ""

    async def apply(self, sample: Sample) -> Sample:
        """The sample as evaluators get it.

        Raises:
            InvalidField: the template cannot be filled for this row (TEMPLATE_FAILED), or too few rows remain as its
                examples (FEW_SHOT_REFUSED).
        """
        if dataclasses.replace(self.prompt, target_delimiter=None) == Prompt():  # models apply it, see `Reading`
            if isinstance(sample.input, Datum):
                raise InvalidField(f"{_PROMPT}.target_delimiter", "is for text, and the row is tokens")
            return sample
        question, answer = _answered(sample)
        system, asked = _parted(await self._row(question))
        if self.prompt.system:
            system = (ChatMessage("system", self.prompt.system),)
        before, after = _messages(self.prompt.prefix), _messages(self.prompt.suffix)
        shown = tuple(message for example in self._shown(asked) for message in example.answered)
        if isinstance(sample.input, str) and not (system or before or shown or after):
            return dataclasses.replace(sample, input=asked[0].content)
        messages = (*system, *before, *shown, *asked, *after, *answer)
        single = len(asked) == 1 and asked[0].role == "user" and not answer and all(one.is_text for one in messages)
        tools = sample.input.tools if isinstance(sample.input, Conversation) else ()
        made = Prompted(messages, tools, question=asked[0].content) if single else Conversation(messages, tools)
        return dataclasses.replace(sample, input=made)

    async def _row(self, sample: Sample) -> _Turns:
        """The messages of a row's question, the last one rendered by the template."""
        try:
            columns = columns_of(sample)
            text = await self._filled(columns)
        except BadTemplate as error:
            raise InvalidField(
                _TEMPLATE, f"{error} (sample {clipped(sample.id)})", reason=Reason.TEMPLATE_FAILED
            ) from error
        if isinstance(sample.input, Conversation):
            *earlier, last = sample.input.messages or (ChatMessage("user", ""),)
            return (*earlier, self._filled_last(last, text))
        return (ChatMessage("user", text),)

    def _filled_last(self, last: ChatMessage, text: str) -> ChatMessage:
        if last.is_text:
            return dataclasses.replace(last, content=text)
        if self.prompt.template:
            message = "is for text, and the row's last message has images, reasoning or calls of tools"
            raise InvalidField(_TEMPLATE, message, reason=Reason.TEMPLATE_FAILED)
        return last

    async def _filled(self, columns: dict[str, Any]) -> str:
        template = self.prompt.template
        if not template:
            return columns["input"]
        if not is_jinja(template):
            return fill(template, columns)
        if self.pool is None:
            raise FailedPrecondition(
                "this worker runs no Jinja2 templates: write columns as {input}",
                reason=Reason.NO_GRADING_POOL,
                field=_TEMPLATE,
            )
        (answer,) = await self.pool.map(templates.rendered, [(template, columns)])
        if answer.lost in ("timeout", "memory"):
            raise BadTemplate("takes more time or memory than a template may")
        if answer.lost:
            why = "had too little processor time" if answer.lost == "stalled" else "ended"
            raise Unavailable(f"the process that fills templates {why}", reason=Reason.GRADING_POOL, field=_TEMPLATE)
        if answer.error:
            raise BadTemplate(f"cannot be filled: {answer.error}")
        worked, text = answer.value
        if not worked:
            raise BadTemplate(text)
        return text

    def _shown(self, asked: _Turns) -> Sequence[Example]:
        few_shot = self.prompt.few_shot
        if few_shot is None:
            return ()
        found = [example for example in self.examples if example.asked != asked][: few_shot.count]
        if len(found) < few_shot.count:
            raise _too_few(few_shot, len(found))
        return found

    async def example(self, sample: Sample) -> Example:
        """A row with its answer: the first target, or its last message if that is the assistant's.

        Raises:
            InvalidField: it has no answer (FEW_SHOT_REFUSED), or the template cannot be filled (TEMPLATE_FAILED).
        """
        question, answer = _answered(sample)
        _, turns = _parted(await self._row(question))
        if answer:
            return Example(turns, (*turns, *answer))
        if not sample.targets:
            message = f"has the row {clipped(sample.id)} without a target: an example needs an answer"
            raise InvalidField(_SOURCE, message, reason=Reason.FEW_SHOT_REFUSED)
        return Example(turns, (*turns, ChatMessage("assistant", sample.targets[0])))


def refuse_further_parts(prompt: Prompt | None) -> None:
    """Refuse a prompt that adds messages with images or calls of tools: rows may have such.

    Raises:
        InvalidField: names the message.
    """
    if prompt is None:
        return
    for name, added in (("prefix", prompt.prefix), ("suffix", prompt.suffix)):
        for index, message in enumerate(_messages(added)):
            if not message.is_pair:
                path = f"dataset.prompt.{name}.messages[{index}]"
                raise InvalidField(path, "has more than a role and a text: a prompt adds messages of text alone")


async def prompter_of(
    prompt: Prompt,
    samples: Sequence[Sample | MalformedSample],
    *,
    read: Read,
    pool: GradingPool | None,
    skip_malformed: bool,
) -> Prompter:
    """Prepare a prompt: draw its examples, and apply it to the first sample as a test.

    Args:
        prompt: of the request.
        samples: of the data set, at least one.
        read: loads the source of the examples.
        pool: processes in which Jinja2 templates run.
        skip_malformed: whether malformed rows of the source are left out.

    Raises:
        InvalidField: the template cannot be filled (TEMPLATE_FAILED), or there are too few examples, or one has no
            target (FEW_SHOT_REFUSED).
        BridgeError: the source of the examples cannot be loaded.
    """
    made = Prompter(prompt, (), pool)
    if (few_shot := prompt.few_shot) is not None:
        made = dataclasses.replace(made, examples=await _drawn(made, few_shot, read, skip_malformed))
    first = next((sample for sample in samples if isinstance(sample, Sample)), None)
    if first is not None:
        await made.apply(first)
    return made


async def _drawn(made: Prompter, few_shot: FewShot, read: Read, skip_malformed: bool) -> Sequence[Example]:
    try:
        source = Dataset.of(few_shot.source)
        loaded = await read(dataclasses.replace(source, shuffle_seed=few_shot.seed, skip_malformed=skip_malformed))
    except BridgeError as error:
        raise _at_source(error) from error
    found: dict[_Turns, Example] = {}
    for sample in loaded.samples:
        if isinstance(sample, MalformedSample):
            continue
        example = await made.example(sample)
        found.setdefault(example.asked, example)
        if len(found) > few_shot.count:
            break
    if len(found) < few_shot.count:
        raise _too_few(few_shot, len(found))
    return tuple(found.values())


def _at_source(error: BridgeError) -> BridgeError:
    """An error of the source, with the path of the source in the request."""
    if error.field.startswith("dataset"):
        error = at_field(error, "dataset", own=error.field)
    return at_field(error, _SOURCE, own="dataset")


def _too_few(few_shot: FewShot, found: int) -> InvalidField:
    message = f"has {found} other questions, and {few_shot.count} examples are requested: take fewer, or another source"
    return InvalidField(_SOURCE, message, reason=Reason.FEW_SHOT_REFUSED)


def _answered(sample: Sample) -> tuple[Sample, _Turns]:
    """The question of a row, and its last message if that is the assistant's; otherwise no messages."""
    if isinstance(sample.input, Conversation):
        *earlier, last = sample.input.messages or (ChatMessage("user", ""),)
        if last.role == "assistant" and earlier:
            asked = Conversation(tuple(earlier), sample.input.tools)
            return dataclasses.replace(sample, input=asked), (last,)
    return sample, ()


def _parted(messages: _Turns) -> tuple[_Turns, _Turns]:
    """The system message at the beginning of a row, and the other messages."""
    own = messages[:1] if messages[0].role == "system" and len(messages) > 1 else ()
    return own, messages[len(own) :]


def _messages(conversation: Conversation | None) -> _Turns:
    return () if conversation is None else conversation.messages
