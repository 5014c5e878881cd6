"""Answers of models: how one is asked for, what ends it, and what it contains.

Every backend's answers are separated here: reasoning, text, calls of tools, and what a server sent after a stop string.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Datum,
    ModelInput,
    ParsedResponse,
    RawResponse,
    SampledSequence,
    SamplingParams,
    Termination,
    TokensChunk,
    ToolSpec,
    UnparsedToolCall,
)
from crucible_worker.backends.base import ANSWERING, Capability, Model, Tokenizer
from crucible_worker.rendering import role_colon
from crucible_worker.rendering.prompts import (
    AUTO,
    CHAT_TEMPLATE,
    COOKBOOK,
    RAW,
    ROLE_COLON,
    ROLE_COLONS,
    SERVED,
    answer_of,
    check_input,
    images_of,
    input_of,
    messages_of,
    plain_text,
    render_question,
    require_tokenizer,
    stops_of,
    tools_of,
)
from crucible_worker.rendering.tool_calls import ParsedCalls, parse_calls
from crucible_worker.util.parsing import LARGE_BYTES, aside_if_large
from crucible_worker.util.reasoning import OPENING_TOKENS, opening_of_prompt, parted

__all__ = [
    "Answered",
    "Finished",
    "Stops",
    "ask",
    "ended_by_stop",
    "find_stops",
    "finished",
    "opening_of_tokens",
    "parse_text",
    "resolved",
    "sample_answers",
    "takes_template",
    "with_calls",
]

CALLS_FACTOR = 8
"""Calls of tools take so many times as long to parse as other text of their length."""

# What ends an answer to a renderer's prompt.

_QUESTION = "question"
_ANSWER = "answer"
"""Contents of the messages by which a template shows what it writes after an answer."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stops:
    """What ends an answer."""

    texts: Sequence[str] = ()
    """Stop sequences of the renderer."""
    tokens: Sequence[int] = ()
    """Those of them that are one token, in the same order."""
    end: str = ""
    """The text of the end-of-sequence token; empty if there is none, or if its text is not known."""
    opening: str = ""
    """What the renderer opens the answer with: the end of a prompt, if it is a tag of reasoning."""
    tool_form: str = ""
    """The form in which calls of tools are written, see `tool_calls.py`."""


def takes_template(tokenizer: Tokenizer, renderer: str) -> bool:
    """Whether the model's chat template makes the prompt."""
    return renderer == CHAT_TEMPLATE or (renderer == AUTO and tokenizer.has_chat_template)


async def find_stops(tokenizer: Tokenizer | None, renderer: str) -> Stops:
    """Find out what ends an answer.

    A chat template does not say. It is rendered with an answer, and a special token that follows it is what ends one.

    Args:
        tokenizer: the model's; None if the renderer is `raw` or one of `ROLE_COLONS`, and no tokens are wanted.
        renderer: see `renderers.py`.

    Raises:
        FailedPrecondition: the renderer cannot be used with the tokenizer.
    """
    texts: Sequence[str] = (role_colon.STOP,) if renderer in ROLE_COLONS else ()
    if tokenizer is None:
        return Stops(texts=texts)
    opening = ""
    if renderer.startswith(COOKBOOK):
        texts = tuple((await render_question(tokenizer, _QUESTION, renderer)).stop)
    elif takes_template(tokenizer, renderer):
        texts, opening = await _closing(tokenizer), await _opening(tokenizer)
    encoded = await tokenizer.tokenize(texts, add_special_tokens=False) if texts else ()
    end = "" if tokenizer.eos_token_id is None else await tokenizer.show([tokenizer.eos_token_id])
    return Stops(
        texts=texts,
        tokens=tuple(tokens[0] for tokens in encoded if len(tokens) == 1),
        end=end,
        opening=opening,
        tool_form=tokenizer.tool_form,
    )


async def ended_by_stop(
    tokenizer: Tokenizer | None, renderer: str, tokens: Sequence[int], stops: Sequence[str]
) -> bool:
    """Whether a stop sequence ended an answer, and not the model's end-of-sequence token alone.

    A token may be both, as with most chat templates; then it is a stop sequence. A model whose server makes the prompt
    by its own chat template ends every answer that is not truncated as that template does.

    Args:
        tokenizer: the model's; None if it is the server's.
        renderer: what made the prompt, see `renderers.py`.
        tokens: what was generated, up to and including what ended it.
        stops: the stop sequences of the renderer, the prompt and the request.

    Raises:
        FailedPrecondition: the server does not say what ended an answer to a plain text (NO_TOKENS); the tokenizer
            cannot decode (NO_TOKENIZER).
    """
    if tokenizer is None:
        if renderer in (RAW, *ROLE_COLONS):
            message = f"whether a stop sequence ended an answer cannot be known of the renderer {renderer!r}"
            raise FailedPrecondition(f"{message}: the model's server gives no tokens", reason=Reason.NO_TOKENS)
        return True
    shown = await tokenizer.show(tokens) or await tokenizer.decode(tokens)
    return any(stop in shown for stop in stops)


async def _closing(tokenizer: Tokenizer) -> tuple[str, ...]:
    """The special token that a chat template writes after an answer, if it writes one."""
    messages = (ChatMessage("user", _QUESTION), ChatMessage("assistant", _ANSWER))
    try:
        text = (await tokenizer.render_chat(messages, generation_prompt=False)).text or ""
    except InvalidField:  # a template of another kind of conversation: only its end-of-sequence token is known
        return ()
    _, found, closing = text.rpartition(_ANSWER)
    (tokens,) = await tokenizer.tokenize([closing.lstrip()], add_special_tokens=False)
    if not found or not tokens or await tokenizer.decode(tokens[:1]):
        return ()
    return (await tokenizer.show(tokens[:1]),)


async def _opening(tokenizer: Tokenizer) -> str:
    """The tag of reasoning with which a prompt ends, if it does."""
    try:
        text = (await tokenizer.render_chat((ChatMessage("user", _QUESTION),), generation_prompt=True)).text or ""
    except InvalidField:
        return ""
    return opening_of_prompt(text)


# What a model generated, as a message of the assistant: text, reasoning, calls of tools, and how it ended.
#
#     <think>6*7</think>It is <tool_call>{"name": "show", "arguments": {"n": 42}}</tool_call><|im_end|>
#
# has the reasoning "6*7", the text "It is", one call of the tool "show", and ended with a stop sequence.

_STOPPED = "stop"


def parse_text(response: RawResponse, text: str, stops: Stops, renderer: str) -> ParsedResponse:
    """Parse a response by one of the worker's own renderers; in linear time.

    - `raw`: the text as it stands. `role_colon`: the answer without the white space around it. Neither has reasoning or
      calls of tools.
    - `auto` and `chat_template`: reasoning as `util.reasoning` separates it, and calls of tools in the form of the
      template, see `tool_calls.py`.

    Args:
        response: for its `stop_reason`.
        text: its text.
        stops: what ends it.
        renderer: see `renderers.py`.
    """
    if renderer in ROLE_COLONS:
        return _role_colon(response, text, stops, renderer)
    content, termination, rest = _ended(text, stops, plain=renderer == RAW)
    if termination is Termination.TRUNCATED and response.stop_reason == _STOPPED:
        termination = Termination.STOP
    if rest.strip():
        termination = Termination.MALFORMED
    if renderer == RAW:
        return ParsedResponse(text=content, termination=termination)
    return _message(content, termination, stops)


def _ended(text: str, stops: Stops, *, plain: bool) -> tuple[str, Termination, str]:
    """The text before the first thing after its reasoning that ends it, how it ended, and the text after that."""
    ends = {stop: Termination.STOP for stop in stops.texts if stop}
    if stops.end:
        ends.setdefault(stops.end, Termination.EOS)
    found = [(at, stop) for stop in ends if (at := text.find(stop)) >= 0]
    if not found:
        return text, Termination.TRUNCATED, ""
    if not plain:
        parts = parted(text, opening=stops.opening, stops=tuple(ends))
        ended = next((stop for stop in ends if text.startswith(stop, parts.end)), None)
        last = next((stop for stop in ends if text.rstrip().endswith(stop)), None)
        if ended is not None:
            found = [(parts.end, ended)]
        elif last is not None:
            found = [(text.rindex(last), last)]
        elif not parts.unfinished:
            return text, Termination.TRUNCATED, ""
    start, stop = min(found)
    return text[:start], ends[stop], text[start + len(stop) :]


def _role_colon(response: RawResponse, text: str, stops: Stops, renderer: str) -> ParsedResponse:
    """As tinker-cookbook's renderer: text after one stop sequence is left out, two of them are malformed."""
    at_end = bool(stops.end) and text.endswith(stops.end)
    body = text.removesuffix(stops.end) if at_end else text
    ends = body.count(role_colon.STOP)
    if ends > 1 or (ends and at_end):
        termination = Termination.MALFORMED
    elif ends:
        termination = Termination.STOP
    elif at_end:
        termination = Termination.EOS
    else:
        termination = Termination.STOP if response.stop_reason == _STOPPED else Termination.TRUNCATED
    return ParsedResponse(text=answer_of(body, renderer), termination=termination)


def _message(content: str, termination: Termination, stops: Stops) -> ParsedResponse:
    opening = stops.opening
    if opening and not content.lstrip().startswith(opening):
        content = f"{opening}{content}"
    clean = termination in (Termination.STOP, Termination.EOS)
    parts = parted(content)
    if clean and parts.open:
        termination = Termination.MALFORMED
    parsed = parse_calls(parts.answer, stops.tool_form)
    if clean and parsed.unparsed:
        termination = Termination.MALFORMED
    return ParsedResponse(
        text=parsed.text,
        reasoning=parts.reasoning,
        tool_calls=parsed.calls,
        unparsed_tool_calls=parsed.unparsed,
        termination=termination,
    )


# How a model is queried for answers: in tokens if its tokenizer is at hand, in words if only its server has it.


@dataclasses.dataclass(slots=True, kw_only=True)
class Finished:
    """A continuation, separated."""

    sequence: SampledSequence
    """It: its text ends at the first stop string after its reasoning, and `reasoning` has all of that."""
    answer: str
    """The text without the reasoning; empty if that is not finished."""
    whole: str
    """The text with the reasoning, also if a server returned that apart."""
    unfinished: bool
    """Whether it ends within its reasoning: then it has no answer."""
    rest: str
    """What a server sent from the stop string on."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Answered:
    """A model's prompt, and its answers."""

    prompt: ModelInput | None
    """The prompt in tokens; None if the model's server made them."""
    answers: Sequence[Finished]
    """Its answers."""


def finished(sequence: SampledSequence, stops: Sequence[str], opening: str = "") -> Finished:
    """Separate what a model generated.

    A server that returns reasoning apart, and nothing else, has stopped within it: at its token limit, or at a stop
    string, which servers apply to reasoning as well.

    Args:
        sequence: what the backend returned; its tokens are not changed.
        stops: the stop strings.
        opening: the tag of reasoning with which the prompt ended, see `opening_of_prompt`.
    """
    text, apart = sequence.text, sequence.reasoning
    parts = parted(text, opening="" if apart else opening, stops=stops, truncated=sequence.stop_reason == "length")
    ended = parts.end < len(text)
    told = text[: parts.end]
    silent = bool(apart) and not (
        parts.answer.strip() or sequence.refusal or sequence.tool_calls or sequence.unparsed_tool_calls
    )
    if ended or parts.reasoning:
        sequence = dataclasses.replace(
            sequence,
            text=told,
            reasoning="\n\n".join(filter(None, (apart, parts.reasoning))),
            stop_reason="stop" if ended else sequence.stop_reason,
        )
    return Finished(
        sequence=sequence,
        answer=parts.answer,
        whole=f"<think>\n{apart}\n</think>\n\n{told}" if apart else told,
        unfinished=parts.unfinished or silent,
        rest=text[parts.end :],
    )


async def sample_answers(
    model: Model,
    input: str | Conversation | Datum | ModelInput,
    params: SamplingParams,
    num_samples: int = 1,
    *,
    renderer: str = AUTO,
) -> Sequence[SampledSequence]:
    """The answers of `ask`, each with its reasoning in its text; raises what that raises."""
    asked = await ask(model, input, params, num_samples, renderer=renderer)
    return [answer.sequence for answer in asked.answers]


async def ask(
    model: Model,
    input: str | Conversation | Datum | ModelInput,
    params: SamplingParams,
    num_samples: int = 1,
    *,
    renderer: str = AUTO,
) -> Answered:
    """Sample answers of a model to an input.

    Tokens are sent unchanged. Text and conversations are rendered here if the model has a tokenizer. If its sampling
    side takes words, its server gets messages; with `role_colon` and `raw` it gets a text to complete. Stop sequences
    of the renderer follow those of the parameters.

    Args:
        model: the model to query.
        input: the input of a Sample, or tokens.
        params: how to sample.
        num_samples: how many answers.
        renderer: see `renderers.py`.

    Raises:
        FailedPrecondition: the model has no sampling client (MISSING_CLIENT), or the input cannot be rendered for it.
        InvalidField: the prompt is empty, or longer than the context; the renderer accepts no conversation.
        BackendError: the model could not be queried.
    """
    able, tokenizer = model.capabilities, model.tokenizer
    if able.isdisjoint(ANSWERING):
        raise FailedPrecondition("the model has no sampling client", reason=Reason.MISSING_CLIENT)
    if isinstance(input, ModelInput | Datum):
        prompt = input.model_input if isinstance(input, Datum) else input
        opening = await opening_of_tokens(tokenizer, prompt)
    elif Capability.SAMPLE_TEXT in able and (tokenizer is None or Capability.SAMPLE not in able):
        chosen = resolved(model, renderer)
        if renderer == AUTO and chosen == RAW and plain_text(input) is None:
            chosen = CHAT_TEMPLATE  # the setting for text does not apply to messages with roles
        return Answered(prompt=None, answers=await _in_words(model, input, params, num_samples, chosen))
    else:
        begun = model.resolved_renderer == SERVED
        rendered = await render_question(tokenizer, input, SERVED if begun and renderer == AUTO else renderer)
        prompt = input_of(rendered.tokens, images_of(input) if isinstance(input, Conversation) else ())
        if rendered.stop:
            params = _stopped(params, rendered.stop)
        if rendered.text is None:
            opening = await opening_of_tokens(tokenizer, prompt)
        else:
            opening = opening_of_prompt(rendered.text)
    sampled = await model.sample(prompt, params, num_samples)
    answers = await _all_finished(sampled, params.stop, opening)
    if isinstance(input, Conversation) and input.tools:
        answers = await with_calls(tokenizer, answers, input.tools, renderer, stops=params.stop, opening=opening)
    return Answered(prompt=prompt, answers=answers)


async def with_calls(
    tokenizer: Tokenizer | None,
    answers: Sequence[Finished],
    tools: Sequence[ToolSpec],
    renderer: str,
    *,
    stops: Sequence[str],
    opening: str,
) -> Sequence[Finished]:
    """Separate calls of tools from the answers of a model whose prompt was made here.

    Args:
        tokenizer: the model's, which made the prompt.
        answers: its answers.
        tools: those that the model was shown.
        renderer: what made the prompt.
        stops: the stop strings.
        opening: as of `finished`.
    """
    known = require_tokenizer(tokenizer)
    return [await _with_calls(known, answer, tools, renderer, stops, opening) for answer in answers]


async def _with_calls(
    tokenizer: Tokenizer, answer: Finished, tools: Sequence[ToolSpec], renderer: str, stops: Sequence[str], opening: str
) -> Finished:
    sequence = answer.sequence
    if renderer.startswith(COOKBOOK):
        parsed = await _calls_of_cookbook(tokenizer, sequence, renderer)
    else:
        # Some tokenizers have the marks of calls as special tokens, which the text lacks.
        marked = dataclasses.replace(sequence, text=await tokenizer.decode_calls(sequence.tokens), reasoning="")
        said, form = finished(marked, stops, opening).answer, tokenizer.tool_form
        parsed = await aside_if_large(CALLS_FACTOR * len(said), lambda: parse_calls(said, form, tools))
    if not (parsed.calls or parsed.unparsed):
        return answer
    sequence = dataclasses.replace(sequence, tool_calls=parsed.calls, unparsed_tool_calls=parsed.unparsed)
    return dataclasses.replace(answer, sequence=sequence, answer=parsed.text)


async def _calls_of_cookbook(tokenizer: Tokenizer, sequence: SampledSequence, renderer: str) -> ParsedCalls:
    reason = sequence.stop_reason if sequence.stop_reason in (_STOPPED, "length") else ""
    response = RawResponse(tokens=tuple(sequence.tokens), stop_reason=reason)
    try:
        found = await tokenizer.parse_cookbook(renderer.removeprefix(COOKBOOK), response)
    except InvalidField as error:
        unparsed = UnparsedToolCall(text=sequence.text, error=error.message)
        return ParsedCalls(text="", unparsed=(unparsed,))
    return ParsedCalls(text=found.text, calls=found.tool_calls, unparsed=found.unparsed_tool_calls)


async def _all_finished(
    sampled: Sequence[SampledSequence], stops: Sequence[str], opening: str = ""
) -> Sequence[Finished]:
    if (size := sum([len(one.text) for one in sampled])) < LARGE_BYTES:
        return [finished(one, stops, opening) for one in sampled]
    return await aside_if_large(size, lambda: [finished(one, stops, opening) for one in sampled])


async def opening_of_tokens(tokenizer: Tokenizer | None, prompt: ModelInput) -> str:
    """The tag of reasoning with which a prompt in tokens ends; empty if there is none, or if its text is not known."""
    last = prompt.chunks[-1] if prompt.chunks else None
    if tokenizer is None or not isinstance(last, TokensChunk):
        return ""
    return opening_of_prompt(await tokenizer.show([int(token) for token in last.tokens[-OPENING_TOKENS:]]))


async def _in_words(
    model: Model, input: str | Conversation, params: SamplingParams, num_samples: int, renderer: str
) -> Sequence[Finished]:
    check_input(input, renderer)
    if renderer in (AUTO, SERVED, CHAT_TEMPLATE):
        # The server makes the prompt: whether it opens reasoning is not known.
        asked = Conversation(tuple(messages_of(input)), tools_of(input)) if renderer == CHAT_TEMPLATE else input
        sampled = await model.sample_text(asked, params, num_samples)
        return await _all_finished(sampled, params.stop)
    if renderer == ROLE_COLON:
        text, stop = role_colon.prompt_text(messages_of(input)), (role_colon.STOP,)
    elif renderer == RAW and (plain := plain_text(input, model.reading.target_delimiter)) is not None:
        text, stop = plain, stops_of(input)
    else:
        raise _no_cookbook()
    params, opening = _stopped(params, stop), opening_of_prompt(text)
    sampled = await model.sample_text(text, params, num_samples, plain=True)
    return await _all_finished(sampled, params.stop, opening)


def _no_cookbook() -> FailedPrecondition:
    return FailedPrecondition(
        "the model's tokenizer lies with its server, and tinker-cookbook's renderers need one at hand, as local models "
        "have it",
        reason=Reason.NO_COOKBOOK_TOKENIZER,
    )


def _stopped(params: SamplingParams, stop: Sequence[str]) -> SamplingParams:
    further = tuple(text for text in stop if text not in params.stop)
    return dataclasses.replace(params, stop=(*params.stop, *further)) if further else params


def resolved(model: Model, renderer: str) -> str:
    """The renderer for a loaded model that is to answer.

    `auto` becomes the renderer that the evaluation recorded before, if it did; else the chat template of the model or
    its server; else plain text. It stays `auto` if an orchestrator renders.
    """
    if renderer != AUTO:
        return renderer
    if model.resolved_renderer is not None:
        return model.resolved_renderer
    if model.tokenizer is not None:
        return CHAT_TEMPLATE if model.tokenizer.has_chat_template else RAW
    return model.renderer
