"""The questions that a model answers directly: continuations, log-probabilities, forward passes, and grades of a judge.

Each `ask_...` takes a whole batch; `inference.batches` runs it, and says what happens to an item that fails.
"""

from __future__ import annotations

import dataclasses
import math
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from crucible_bridge.arrays import floats
from crucible_bridge.errors import (
    BackendError,
    BridgeError,
    FailedPrecondition,
    InvalidField,
    ResourceExhausted,
    clipped,
)
from crucible_bridge.problems import at_field
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    BatchLimits,
    Conversation,
    Datum,
    ForwardAnswer,
    ForwardOutput,
    ForwardRequest,
    Grade,
    GradeRubricRequest,
    LogprobsItem,
    ModelInput,
    ModelRef,
    OrchestratorModel,
    Problem,
    RubricGrade,
    RubricGrades,
    RubricItem,
    Sample,
    SampleAnswer,
    SampledItem,
    SampledSequence,
    SampleItem,
    SampleRequest,
    SamplingParams,
    TokensChunk,
    Verdict,
)
from crucible_worker.backends.base import ANSWERING, Backend, Capability, Model, ToolChoice
from crucible_worker.grading.judge.rubric import MAX_CRITERIA, Judge, Rubric, spent
from crucible_worker.grading.judge.texts import MARK_CHARS
from crucible_worker.inference.batches import Ask, BatchBounds, ask_all
from crucible_worker.inference.retries import sample_seed
from crucible_worker.metrics.nll import nll_parts
from crucible_worker.rendering import (
    RENDERER_PATTERN,
    SERVED,
    check_renderer,
    finished,
    opening_of_tokens,
    render_prompt,
    render_supervised,
)
from crucible_worker.rendering.answers import ask, with_calls
from crucible_worker.rendering.prompts import RAW, encode_conversation, require_tokenizer, tools_of
from crucible_worker.rendering.train_on import TrainOn
from crucible_worker.util.limits import WorkerLimits

__all__ = [
    "Backends",
    "ColumnBudget",
    "ItemTokens",
    "ask_forward",
    "ask_rubric",
    "ask_samples",
    "at_item",
    "bounds_of",
    "check_top",
    "datum_of",
    "logprobs_asker",
    "missing_client",
    "nonsense",
    "result_or_problem",
    "tokens_of",
]

# The tokens of items that direct calls of a model measure: tokens as they are, text, or a conversation.

LAST_ASSISTANT: TrainOn = "last_assistant"
"""What of a conversation has weight where the caller does not say."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ItemTokens:
    """The tokens of an item."""

    tokens: np.ndarray
    """All of them, shape (n,), int64, n at least 1."""
    measured: int
    """How many of the last ones are measured, if nothing else limits them: none is the first."""
    rendered: bool
    """Whether the worker made them, so that the caller does not know them."""


async def tokens_of(model: Model, item: LogprobsItem, *, add_special_tokens: bool) -> ItemTokens:
    """The tokens of an item that is measured.

    Args:
        model: whose tokenizer and chat template read it.
        item: the item.
        add_special_tokens: whether text gets the special tokens that the tokenizer puts around it.

    Raises:
        FailedPrecondition: text or a conversation for a model without a tokenizer (NO_TOKENIZER), or a conversation
            for one without a chat template (NO_CHAT_TEMPLATE).
        InvalidField: there is no token, or an image; or the continuation alone is longer than the context
            (PROMPT_TOO_LONG).
    """
    most = model.context_length
    if most is not None and len(item.continuation) > most:  # before anything is made of a message of millions
        message = f"has {len(item.continuation)} tokens; the model's context has {most}"
        raise InvalidField("continuation", message, reason=Reason.PROMPT_TOO_LONG)
    continuation = np.array(item.continuation, np.int64)
    match item.prompt:
        case ModelInput():
            prompt = item.prompt.tokens()
        case str():
            prompt = await text_tokens(model, item.prompt, add_special_tokens=add_special_tokens)
        case Conversation():
            prompt = await _conversation_tokens(model, item.prompt, opened=continuation.size > 0)
    tokens = np.concatenate([prompt, continuation])
    if tokens.size == 0:
        raise InvalidField("prompt", "is empty: a model needs at least one token")
    return ItemTokens(
        tokens=tokens,
        measured=min(continuation.size or tokens.size, tokens.size - 1),
        rendered=not isinstance(item.prompt, ModelInput),
    )


async def datum_of(model: Model, item: str | Conversation, train_on: str, *, add_special_tokens: bool) -> Datum:
    """Text or a conversation as a training example, with `target_tokens` and `weights`.

    Args:
        model: whose tokenizer and chat template read it.
        item: text, whose tokens but the first are targets, or a conversation.
        train_on: which tokens of a conversation have weight; those of the last message of the assistant if empty.
        add_special_tokens: whether text gets the special tokens that the tokenizer puts around it.

    Raises:
        FailedPrecondition: as of `tokens_of`; or the chat template does not tell its messages apart
            (CHAT_TEMPLATE_NOT_STABLE).
        InvalidField: no token can be predicted, or no message of the assistant is there.
    """
    if isinstance(item, Conversation):
        chosen: Any = train_on or LAST_ASSISTANT  # one of its values, as the request was checked
        try:
            return await render_supervised(require_tokenizer(model.tokenizer), Sample(input=item), chosen)
        except BridgeError as error:
            raise at_field(error, "conversation", own="input") from error
    tokens = await text_tokens(model, item, add_special_tokens=add_special_tokens)
    if tokens.size < 2:
        raise InvalidField("text", f"has {tokens.size} tokens, at least two are needed: none can be predicted")
    weights = np.ones(tokens.size - 1, np.float32)
    return Datum(model_input=tokens[:-1], loss_fn_inputs={"target_tokens": tokens[1:], "weights": weights})


async def text_tokens(model: Model, text: str, *, add_special_tokens: bool) -> np.ndarray:
    """Token ids of text, shape (n,), int64, as the call Tokenize returns them, and with one BOS token at most.

    Raises:
        FailedPrecondition: the model has no tokenizer at hand (NO_TOKENIZER).
    """
    tokenizer = require_tokenizer(model.tokenizer)
    try:
        (tokens,) = await tokenizer.tokenize([text], add_special_tokens=add_special_tokens)
    except BridgeError as error:
        raise at_field(error, "text", own="text") from error
    found = np.array(tokens, np.int64)
    begin = tokenizer.bos_token_id
    if add_special_tokens and begin is not None and found.size > 1 and (found[:2] == begin).all():
        # The text itself begins with the token that the tokenizer puts before every text.
        others = np.flatnonzero(found != begin)
        found = found[(int(others[0]) if others.size else found.size) - 1 :]
    return found


async def _conversation_tokens(model: Model, conversation: Conversation, *, opened: bool) -> np.ndarray:
    """Token ids of a conversation; if it is `opened`, up to where an answer begins."""
    try:
        tokens = await encode_conversation(
            require_tokenizer(model.tokenizer),
            conversation.messages,
            generation_prompt=opened,
            tools=conversation.tools,
        )
    except BridgeError as error:
        raise at_field(error, "conversation", own="input") from error
    return np.array(tokens, np.int64)


_AUTO, _CHOICES = "auto", ("none", "required")
"""Values of `tool_choice`: what models do by themselves, and what a server has them do."""

_TARGETS, _WEIGHTS = 'loss_fn_inputs["target_tokens"]', 'loss_fn_inputs["weights"]'

_TOP_BYTES = 12
"""Of one of the likeliest tokens, with its log-probability."""

Backends = Mapping[type[ModelRef], Backend]
"""Backends by the kind of reference that they open."""
R = TypeVar("R")


async def ask_samples(
    backends: Backends, request: SampleRequest, *, limits: WorkerLimits, received: float, renderer: str = SERVED
) -> SampleAnswer:
    """Continuations of every prompt.

    Args:
        backends: by the kind of reference that they open.
        request: the call's.
        limits: the worker's.
        received: time of receipt by the event loop's clock; the deadline counts from it.
        renderer: how text and conversations become what the model gets.

    Raises:
        InvalidField: there is no item, or too many; a bound is beyond the worker's.
        BridgeError: see `ask_all`.
    """
    bounds = bounds_of(request.limits, len(request.items), "items", limits=limits, received=received)
    top = check_top(request.top_logprobs, "top_logprobs", limits)
    room = ColumnBudget(limits.max_message_bytes)

    def asker(model: Model) -> Ask[SampleItem, SampledItem]:
        if model.capabilities.isdisjoint(ANSWERING):
            raise missing_client("does not sample")
        if top and Capability.SAMPLE_TOP not in model.capabilities:
            known = ", ".join(sorted(model.capabilities))
            raise missing_client(
                f"does not answer {Capability.SAMPLE_TOP}, which top_logprobs needs; it answers {known}"
            )

        async def ask(index: int, item: SampleItem) -> SampledItem:
            field = f"items[{index}]"
            if item.num_samples > limits.max_samples_per_item:
                most = f"at most {limits.max_samples_per_item:,} are accepted"
                raise InvalidField(f"{field}.num_samples", f"is {item.num_samples:,}, {most}")
            params = _params(request.sampling, item, index)
            if (most := item.num_samples * params.max_tokens * top * _TOP_BYTES) > limits.max_message_bytes:
                message = f"may have {most:,} bytes of likeliest tokens, a message has {limits.max_message_bytes:,}"
                cure = "request fewer of num_samples, sampling.max_tokens or top_logprobs"
                raise InvalidField(field, f"{message}: {cure}")
            answer = await at_item(_sample(model, item, params, top, renderer), field, own="")
            room.take(sum(map(_top_bytes, answer.sequences)))
            return answer

        return ask

    answers = await ask_all(backends, request.model, request.items, asker, bounds=bounds)
    return SampleAnswer(
        items=tuple(result_or_problem(SampledItem, result) for result in answers.results),
        model_fingerprint=answers.model_fingerprint,
        usage=answers.usage,
    )


async def ask_forward(
    backends: Backends, request: ForwardRequest, *, limits: WorkerLimits, received: float
) -> ForwardAnswer:
    """Log-probabilities of every datum's targets, and its loss; arguments and errors as of `ask_samples`."""
    name, items = ("items", request.items) if request.items else ("data", request.data)
    bounds = bounds_of(request.limits, len(items), name, limits=limits, received=received)

    def asker(model: Model) -> Ask[Datum | str | Conversation, ForwardOutput]:
        if Capability.FORWARD not in model.capabilities:
            raise missing_client("does not train, and forward passes need a training client")

        async def ask(index: int, item: Datum | str | Conversation) -> ForwardOutput:
            return await at_item(_forwarded(model, item, request), f"{name}[{index}]", own="")

        return ask

    answers = await ask_all(backends, request.model, items, asker, bounds=bounds)
    return ForwardAnswer(
        outputs=tuple(result_or_problem(ForwardOutput, result) for result in answers.results),
        model_fingerprint=answers.model_fingerprint,
        usage=answers.usage,
    )


def logprobs_asker(model: Model, field: str) -> Callable[[ModelInput], Awaitable[np.ndarray]]:
    """A function that returns a model's log-probabilities of a sequence: by its sampling client, or by forward passes.

    For a sequence of n tokens it returns float64 of shape (n - 1,), nats, without the first token. An answer of another
    shape, or with missing values, is a BackendError.

    Raises:
        FailedPrecondition: the model has neither client; the error is at `field`.
    """
    if Capability.LOGPROBS in model.capabilities:

        async def of_sampling(sequence: ModelInput) -> np.ndarray:
            tokens = _tokens(sequence)
            try:
                answer = await model.compute_logprobs(sequence)
            except InvalidField as error:
                raise at_field(error, "model_input", own="prompt") from error
            known = np.array([value for value in answer[1:] if value is not None], np.float64)
            return _shaped(known, (tokens.size - 1,), "compute_logprobs")

        return of_sampling
    if Capability.FORWARD in model.capabilities:

        async def of_training(sequence: ModelInput) -> np.ndarray:
            tokens = _tokens(sequence)
            if tokens.size == 1:
                return np.empty(0)
            datum = Datum(model_input=tokens[:-1], loss_fn_inputs={"target_tokens": tokens[1:]})
            try:
                return await _forward(model, datum, (tokens.size - 1,))
            except InvalidField as error:
                # The datum is made here: the caller knows only its tokens.
                raise InvalidField("model_input", error.message, reason=error.reason) from error

        return of_training
    raise missing_client("neither samples nor trains", field)


async def _sample(model: Model, item: SampleItem, params: SamplingParams, top: int, renderer: str) -> SampledItem:
    prompt = await _prompt(model, item.prompt, renderer)
    if item.tool_choice not in ("", _AUTO):
        prompt = _with_choice(prompt, item)
    tools = tools_of(item.prompt)
    if top and isinstance(prompt, str) and renderer == RAW:
        message = "is text that the model's server would take for a message: top_logprobs needs token ids here"
        raise FailedPrecondition(message, reason=Reason.NO_TOKENIZER, field="prompt")
    if top:
        opening = await opening_of_tokens(model.tokenizer, prompt) if isinstance(prompt, ModelInput) else ""
        sampled = await model.sample_with_top(prompt, params, item.num_samples, top)
        answers = [finished(one, params.stop, opening) for one in sampled]
    else:
        answers = (await ask(model, prompt, params, item.num_samples, renderer=renderer)).answers
    if tools and isinstance(prompt, ModelInput):
        opening = await opening_of_tokens(model.tokenizer, prompt)
        answers = await with_calls(model.tokenizer, answers, tools, renderer, stops=params.stop, opening=opening)
    sequences = tuple(answer.sequence for answer in answers)
    if len(sequences) != item.num_samples:
        raise nonsense(f"sample gave {len(sequences):,} continuations, {item.num_samples:,} were requested")
    for sequence in sequences:
        # A server that returns no ids may count an end of sequence without a log-probability.
        tokens, given = sequence.tokens, sequence.logprobs
        if given is not None and tokens and len(given) != len(tokens):
            raise nonsense(f"sample gave {len(tokens):,} tokens with {len(given):,} log-probabilities")
        if top and (sequence.top_tokens is None or sequence.top_logprobs is None):
            raise nonsense(f"{Capability.SAMPLE_TOP} gave a continuation without likeliest tokens")
    # A server that gets text reports the prompt's tokens with each continuation.
    prompt_tokens = sequences[0].prompt_tokens if isinstance(prompt, str | Conversation) else _count(prompt)
    return SampledItem(sequences=sequences, prompt_tokens=prompt_tokens, seed=params.seed)


def _with_choice(prompt: str | Conversation | ModelInput, item: SampleItem) -> ToolChoice:
    """The conversation with the item's choice of a tool.

    Raises:
        InvalidField: the conversation has no such tool, or the worker makes the prompt, which has no place for it.
    """
    given, tools = f"is {clipped(item.tool_choice)}", tools_of(item.prompt)
    if not tools:
        raise InvalidField("tool_choice", f"{given}, and the item is no conversation with tools")
    if item.tool_choice not in (*_CHOICES, *(tool.name for tool in tools)):
        known = ", ".join((_AUTO, *_CHOICES))
        raise InvalidField("tool_choice", f"{given}: known are {known} and the names of its tools")
    if not isinstance(prompt, Conversation):
        cure = "only OpenAI-compatible servers make a model follow it: leave it out"
        raise InvalidField("tool_choice", f"{given}, and {cure}")
    return ToolChoice(prompt.messages, prompt.tools, choice=item.tool_choice)


def _count(prompt: ModelInput) -> int | None:
    """Tokens of a prompt, if known."""
    if not all(isinstance(chunk, TokensChunk) for chunk in prompt.chunks):
        return None
    return prompt.tokens().size


async def _prompt(
    model: Model, prompt: str | Conversation | ModelInput, renderer: str
) -> str | Conversation | ModelInput:
    """The prompt in tokens, so that they can be counted; unchanged if only the model's server has the tokenizer."""
    able = model.capabilities
    in_text = Capability.SAMPLE_TEXT in able and (model.tokenizer is None or Capability.SAMPLE not in able)
    if isinstance(prompt, ModelInput) or in_text:
        return prompt
    try:
        return await render_prompt(model.tokenizer, prompt, renderer)
    except BridgeError as error:
        raise at_field(error, "prompt", own="input") from error


def _params(sampling: SamplingParams, item: SampleItem, index: int) -> SamplingParams:
    """How to sample one item; greedy sampling needs no seed, other sampling gets one that can be reported."""
    if sampling.temperature == 0:
        seed = None
    elif item.seed is not None:
        seed = item.seed
    elif sampling.seed is not None:
        seed = sample_seed(sampling.seed, str(index), 0)
    else:
        seed = secrets.randbits(63)
    return dataclasses.replace(sampling, seed=seed)


async def _forwarded(model: Model, item: Datum | str | Conversation, request: ForwardRequest) -> ForwardOutput:
    if isinstance(item, Datum):
        output = _forward_output(model, item)
        return await (at_item(output, "datum", own="") if request.items else output)
    datum = await datum_of(model, item, request.train_on, add_special_tokens=request.add_special_tokens)
    given = "text" if isinstance(item, str) else "conversation"
    output = await at_item(_forward_output(model, datum), given, own="model_input")
    first = datum.model_input.tokens()[:1].tolist()
    targets, weights = (np.asarray(datum.loss_fn_inputs[key]) for key in ("target_tokens", "weights"))
    return dataclasses.replace(output, tokens=(*first, *targets.tolist()), weights=tuple(weights.tolist()))


async def _forward_output(model: Model, datum: Datum) -> ForwardOutput:
    targets, weights = _loss_inputs(datum)
    # The backend needs nothing else, and should not copy more.
    logprobs = await _forward(
        model, Datum(model_input=datum.model_input, loss_fn_inputs={"target_tokens": targets}), targets.shape
    )
    if weights is None:
        return ForwardOutput(logprobs=logprobs)
    loss = 0.0 - nll_parts(logprobs, weights).weighted_logprob_sum  # no -0.0 if nothing has weight
    return ForwardOutput(logprobs=logprobs, loss=loss if math.isfinite(loss) else None)


def _loss_inputs(datum: Datum) -> tuple[np.ndarray, np.ndarray | None]:
    """Targets and weights, checked against each other; the backend checks them against the input."""
    targets = datum.loss_fn_inputs.get("target_tokens")
    if targets is None:
        raise InvalidField(_TARGETS, "is missing")
    if not isinstance(targets, np.ndarray) or targets.dtype.kind not in "iu":
        raise InvalidField(_TARGETS, f"holds {targets.dtype}, not token ids")
    if targets.ndim != 1 or targets.size == 0:
        raise InvalidField(_TARGETS, f"has shape {targets.shape}, one dimension with at least one token is needed")
    if all(isinstance(chunk, TokensChunk) for chunk in datum.model_input.chunks):
        length = datum.model_input.tokens().size
        if length != targets.size:
            raise InvalidField(_TARGETS, f"has {targets.size:,} tokens, model_input {length:,}")
    if "weights" not in datum.loss_fn_inputs:
        return targets, None
    weights = floats(datum.loss_fn_inputs["weights"], _WEIGHTS)
    if weights.shape != targets.shape:
        raise InvalidField(_WEIGHTS, f"has shape {weights.shape}, target_tokens {targets.shape}")
    if bad := int(np.count_nonzero(~np.isfinite(weights))):
        raise InvalidField(_WEIGHTS, f"holds {bad:,} values that are not finite, of {weights.size:,}")
    return targets, weights


async def _forward(model: Model, datum: Datum, shape: tuple[int, ...]) -> np.ndarray:
    try:
        answers = await model.forward([datum])
    except InvalidField as error:
        # There is one datum, and the caller names it.
        raise InvalidField(error.field.removeprefix("data[0]."), error.message, reason=error.reason) from error
    if len(answers) != 1:
        raise nonsense(f"forward answered one datum with {len(answers):,}")
    return _shaped(np.asarray(answers[0], np.float64), shape, "forward")


def _shaped(logprobs: np.ndarray, shape: tuple[int, ...], method: str) -> np.ndarray:
    if logprobs.shape != shape:
        raise nonsense(f"{method} answered {shape[0]:,} targets with values of shape {logprobs.shape}")
    return logprobs


def _tokens(sequence: ModelInput) -> np.ndarray:
    tokens = sequence.tokens()
    if tokens.size == 0:
        raise InvalidField("model_input", "is empty: a model needs at least one token")
    return tokens


def check_top(top: int | None, field: str, limits: WorkerLimits) -> int:
    """The number of likeliest tokens that a request asks for in place of each token; 0 if none.

    Raises:
        InvalidField: the worker accepts fewer.
    """
    if top is not None and top > limits.max_top_k:
        raise InvalidField(field, f"is {top:,}, at most {limits.max_top_k:,} are accepted (max_top_k)")
    return top or 0


class ColumnBudget:
    """What the columns of an answer may still take: they are not all held in memory before one message has to fit."""

    def __init__(self, size: int) -> None:
        """Of so many bytes."""
        self._size = self._left = size

    def take(self, size: int) -> None:
        """Take room for an item.

        Raises:
            ResourceExhausted: so much is not left (ANSWER_TOO_LARGE).
        """
        if size > self._left:
            room = f"no room left in a message of {self._size:,}"
            message = f"an answer of {size:,} bytes has {room}: send smaller batches"
            raise ResourceExhausted(message, reason=Reason.ANSWER_TOO_LARGE, retryable=False)
        self._left -= size


def _top_bytes(sequence: SampledSequence) -> int:
    columns = (sequence.top_tokens, sequence.top_logprobs)
    return sum(column.nbytes for column in columns if column is not None)


async def at_item(work: Awaitable[R], field: str, *, own: str) -> R:
    """Await an item's work; its errors get the item's path in the request, except those about the whole request."""
    try:
        return await work
    except BridgeError as error:
        if error.field == "model" or error.field.startswith("sampling."):
            raise
        raise at_field(error, field, own=own) from error


def bounds_of(given: BatchLimits, count: int, field: str, *, limits: WorkerLimits, received: float) -> BatchBounds:
    """The bounds of a batch.

    Args:
        given: the limits of its request.
        count: number of its items.
        field: path of the items.
        limits: the worker's.
        received: when the request came, by the event loop's clock.

    Raises:
        InvalidField: there is no item, or too many; a bound is beyond the worker's.
    """
    if count == 0:
        raise InvalidField(field, "is empty, at least one is needed")
    if count > limits.max_model_items:
        raise InvalidField(field, f"has {count:,}, at most {limits.max_model_items:,} are accepted")
    concurrency = limits.default_concurrency if given.concurrency is None else given.concurrency
    if concurrency > limits.max_concurrency:
        raise InvalidField("limits.concurrency", f"is {concurrency:,}, at most {limits.max_concurrency:,} is accepted")
    seconds = limits.default_sample_timeout_seconds
    return BatchBounds(
        concurrency=concurrency,
        item_seconds=seconds if given.item_timeout_ms is None else given.item_timeout_ms / 1000,
        deadline=None if given.deadline_ms is None else received + given.deadline_ms / 1000,
    )


def result_or_problem(kind: Callable[..., R], result: R | Problem) -> R:
    """A result, or one that only has a problem."""
    return kind(problem=result) if isinstance(result, Problem) else result


def missing_client(message: str, field: str = "model") -> FailedPrecondition:
    """The error where a model does not offer what a call needs."""
    return FailedPrecondition(message, reason=Reason.MISSING_CLIENT, field=field)


def nonsense(message: str) -> BackendError:
    """The error where a backend's answer does not fit the question."""
    return BackendError(message, reason=Reason.BACKEND_ANSWER, retryable=False)


# Direct calls to a judge: a batch of responses; each item gets a grade or a problem.


async def ask_rubric(
    backends: Backends, request: GradeRubricRequest, *, limits: WorkerLimits, received: float
) -> RubricGrades:
    """Grade responses by a judge.

    The mark that delimits responses is random for each request: the author of a response cannot know it.

    Args:
        backends: by the kind of reference that they open.
        request: the call's.
        limits: the worker's.
        received: time of receipt by the event loop's clock; the deadline counts from it.

    Raises:
        InvalidField: there are too many items or criteria, the judge is the orchestrator's, the renderer is none, or a
            bound is beyond the worker's.
        BridgeError: see `ask_all`, the judge's at `judge`.
    """
    bounds = bounds_of(request.limits, len(request.items), "items", limits=limits, received=received)
    _check(request)
    rubric = Rubric(criteria=request.criteria, threshold=request.threshold)
    mark = secrets.token_hex(MARK_CHARS // 2)

    def asker(model: Model) -> Ask[RubricItem, RubricGrade]:
        if model.capabilities.isdisjoint(ANSWERING):
            raise FailedPrecondition("does not sample", reason=Reason.MISSING_CLIENT, field="judge")

        async def ask(index: int, item: RubricItem) -> RubricGrade:
            judge = Judge(model=model, sampling=_seeded(request.sampling, index), renderer=request.renderer)
            try:
                return await rubric.grade(item, judge, mark)
            except BridgeError as error:
                # The judge's prompt is made from the item: it is no field that the caller knows.
                field = "judge" if error.field == "judge.model" else f"items[{index}]"
                raise at_field(error, field, own=error.field) from error

        return ask

    answers = await ask_all(backends, request.judge, request.items, asker, bounds=bounds, field="judge")
    grades = tuple(
        _failed(item, result) if isinstance(result, Problem) else result
        for item, result in zip(request.items, answers.results)
    )
    prompt_tokens, completion_tokens = spent(grades)
    return RubricGrades(
        grades=grades,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        judge_fingerprint=answers.model_fingerprint,
        usage=answers.usage,
    )


def _check(request: GradeRubricRequest) -> None:
    if len(request.criteria) > MAX_CRITERIA:
        raise InvalidField("criteria", f"has {len(request.criteria):,}, at most {MAX_CRITERIA:,} are accepted")
    if isinstance(request.judge, OrchestratorModel):
        raise InvalidField("judge", "is the orchestrator's model, and a judge must be a model of the worker")
    if re.search(RENDERER_PATTERN, request.renderer) is None:
        raise InvalidField("renderer", f"is {clipped(request.renderer)}, which is no renderer")
    check_renderer(request.renderer)


def _seeded(sampling: SamplingParams, index: int) -> SamplingParams:
    """How the judge is sampled for an item: each gets a different seed if sampling is random."""
    if sampling.temperature == 0:
        return sampling
    seed = secrets.randbits(63) if sampling.seed is None else sample_seed(sampling.seed, str(index), 0)
    return dataclasses.replace(sampling, seed=seed)


def _failed(item: RubricItem, problem: Problem) -> RubricGrade:
    return RubricGrade(grade=Grade(id=item.id, verdict=Verdict.ERROR, reason=problem.message, problem=problem))
