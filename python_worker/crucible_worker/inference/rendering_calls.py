"""Renderers and tokenizers, called directly: every item of a batch has a result or a problem."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import structlog

from crucible_bridge.errors import BridgeError, FailedPrecondition, InvalidField
from crucible_bridge.problems import at_field, problem_of
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    BatchLimits,
    BuildGenerationPromptRequest,
    BuildGenerationPromptResponse,
    BuildSupervisedExampleRequest,
    BuildSupervisedExampleResponse,
    Conversation,
    Detokenized,
    DetokenizeRequest,
    DetokenizeResponse,
    GenerationPrompt,
    GetStopSequencesRequest,
    GetStopSequencesResponse,
    ImageAssetChunk,
    ImageChunk,
    ListRenderersResponse,
    ModelRef,
    ParsedResponse,
    ParseResponseRequest,
    ParseResponseResponse,
    Problem,
    RawResponse,
    RendererInfo,
    Sample,
    SupervisedExample,
    Tokenized,
    TokenizeRequest,
    TokenizeResponse,
    TokenSequence,
)
from crucible_worker.backends.base import Backend, Tokenizer
from crucible_worker.inference.batches import each
from crucible_worker.inference.model_calls import Backends, bounds_of
from crucible_worker.inference.retries import RetryPolicy
from crucible_worker.rendering import RENDERER_PATTERN, check_renderer, tinker_cookbook
from crucible_worker.rendering.answers import Stops, find_stops, parse_text, takes_template
from crucible_worker.rendering.prompts import (
    AUTO,
    CHAT_TEMPLATE,
    COOKBOOK,
    RAW,
    ROLE_COLON,
    ROLE_COLONS,
    images_of,
    input_of,
    render_question,
    require_tokenizer,
    shifted,
    weights_of,
)
from crucible_worker.rendering.supervised import render_weighted
from crucible_worker.rendering.train_on import TrainOn
from crucible_worker.util.error_reporter import logged, shortage
from crucible_worker.util.limits import WorkerLimits

__all__ = [
    "build_prompts",
    "build_supervised",
    "detokenize",
    "get_stop_sequences",
    "list_renderers",
    "parse_responses",
    "tokenize",
]

Q = TypeVar("Q")
R = TypeVar("R")

_CONCURRENCY = 8
"""Items of a call at once: a tokenizer answers one after the other, and has the next one at hand."""
_BATCH_CHARS = 200_000
"""Characters or tokens that a tokenizer gets in one request, unless one item alone has more."""
_OF_THE_CALL = frozenset(
    {
        Reason.EXTRA_NOT_INSTALLED,
        Reason.NO_CHAT_TEMPLATE,
        Reason.NO_COOKBOOK_TOKENIZER,
        Reason.NO_TOKENIZER,
        Reason.UNKNOWN_RENDERER,
    }
)
"""Reasons that concern the model and the renderer, and so all items."""
_DESCRIPTIONS = {
    AUTO: "The model's chat template if it has one; else plain text.",
    CHAT_TEMPLATE: "The model's chat template, never plain text.",
    ROLE_COLON: "'User: ...', 'Assistant:', for base models; ended by the user's next turn.",
    RAW: "Text as it stands; no conversations with roles.",
}
_WITHOUT_TOKENIZER = (RAW, *ROLE_COLONS)
"""Renderers that are text alone."""

_OWN = ("input", "conversation", "response", "text")
"""What renderers and tokenizers call an item in their errors."""

_log = structlog.get_logger(__name__)


def list_renderers() -> ListRenderersResponse:
    """The worker's own renderers, and those of tinker-cookbook; reads a file, and imports nothing."""
    own = [RendererInfo(name=name, description=description) for name, description in _DESCRIPTIONS.items()]
    theirs = [
        RendererInfo(name=f"{COOKBOOK}{name}", description=f"tinker-cookbook's renderer {name}.")
        for name in tinker_cookbook.names()
    ]
    if not tinker_cookbook.is_installed():
        cure = "tinker-cookbook is not installed: pip install tinker-cookbook"
        theirs = [RendererInfo(name=f"{COOKBOOK}NAME", description="Those of tinker-cookbook.", unavailable=cure)]
    return ListRenderersResponse(renderers=(*own, *theirs))


async def build_prompts(
    backends: Backends, request: BuildGenerationPromptRequest, limits: WorkerLimits
) -> BuildGenerationPromptResponse:
    """The prompts of conversations.

    Args:
        backends: by the kind of reference that they open.
        request: the call's.
        limits: the worker's.

    Raises:
        InvalidField: there is no item, or too many; the renderer has no such name.
        BridgeError: the tokenizer cannot be opened, or not used with the renderer.
    """
    renderer = _renderer(request.renderer)
    _check_count(request.conversations, "conversations", limits)
    opened = await _OpenTokenizer.of(backends, request.model, len(request.conversations))

    async def build(conversation: Conversation) -> GenerationPrompt:
        rendered = await opened.call(render_question, opened.tokenizer, conversation, renderer)
        if images := images_of(conversation):
            return GenerationPrompt(model_input=await asyncio.to_thread(input_of, rendered.tokens, images))
        return GenerationPrompt(tokens=tuple(rendered.tokens))

    stops = await _stops(opened, renderer)
    if isinstance(stops, Problem):
        return BuildGenerationPromptResponse(items=(GenerationPrompt(problem=stops),) * len(request.conversations))
    items = await _all(request.conversations, "conversations", build, lambda problem: GenerationPrompt(problem=problem))
    return BuildGenerationPromptResponse(items=items, stop=tuple(stops.texts))


async def build_supervised(
    backends: Backends, request: BuildSupervisedExampleRequest, limits: WorkerLimits
) -> BuildSupervisedExampleResponse:
    """Training examples of conversations; arguments and errors as of `build_prompts`."""
    renderer = _renderer(request.renderer)
    _check_count(request.conversations, "conversations", limits)
    opened = await _OpenTokenizer.of(backends, request.model, len(request.conversations))
    train_on: Any = request.train_on or "last_assistant"

    async def build(conversation: Conversation) -> SupervisedExample:
        return await opened.call(_example, opened.tokenizer, conversation, train_on, renderer)

    items = await _all(
        request.conversations, "conversations", build, lambda problem: SupervisedExample(problem=problem)
    )
    return BuildSupervisedExampleResponse(items=items)


async def parse_responses(
    backends: Backends, request: ParseResponseRequest, limits: WorkerLimits
) -> ParseResponseResponse:
    """Messages of what models generated; arguments and errors as of `build_prompts`."""
    renderer = _renderer(request.renderer)
    _check_count(request.responses, "responses", limits)
    opened = await _opened_if_needed(backends, request.model, renderer, len(request.responses))
    stops = await _stops(opened, renderer)
    if isinstance(stops, Problem):
        return ParseResponseResponse(items=(ParsedResponse(problem=stops),) * len(request.responses))
    known = RAW if opened is not None and _is_plain(opened.tokenizer, renderer) else renderer

    async def parse(response: RawResponse) -> ParsedResponse:
        if opened is None:
            if response.tokens:
                raise InvalidField("tokens", "cannot be read without a model: name one, or send text")
            return await asyncio.to_thread(parse_text, response, response.text, stops, known)
        await _check_tokens(response.tokens, opened.tokenizer)
        if renderer.startswith(COOKBOOK):
            return await opened.call(opened.tokenizer.parse_cookbook, renderer.removeprefix(COOKBOOK), response)
        text = await opened.call(opened.tokenizer.show, response.tokens) if response.tokens else response.text
        return await asyncio.to_thread(parse_text, response, text, stops, known)

    items = await _all(request.responses, "responses", parse, lambda problem: ParsedResponse(problem=problem))
    return ParseResponseResponse(items=items)


async def get_stop_sequences(
    backends: Backends, request: GetStopSequencesRequest, limits: WorkerLimits
) -> GetStopSequencesResponse:
    """What ends an answer; arguments and errors as of `build_prompts`."""
    renderer = _renderer(request.renderer)
    opened = await _opened_if_needed(backends, request.model, renderer, 1)
    if opened is None:
        return GetStopSequencesResponse(stop=tuple((await find_stops(None, renderer)).texts))
    stops = await opened.call(find_stops, opened.tokenizer, renderer)
    return GetStopSequencesResponse(
        stop=tuple(stops.texts), stop_tokens=tuple(stops.tokens), eos_token=opened.tokenizer.eos_token_id
    )


async def tokenize(backends: Backends, request: TokenizeRequest, limits: WorkerLimits) -> TokenizeResponse:
    """Tokens of texts; arguments and errors as of `build_prompts`."""
    _check_count(request.texts, "texts", limits)
    opened = await _OpenTokenizer.of(backends, request.model, len(request.texts))

    async def encode(texts: Sequence[str]) -> Sequence[Tokenized]:
        found = await opened.call(
            opened.tokenizer.tokenize, texts, options={"add_special_tokens": request.add_special_tokens}
        )
        return [Tokenized(tokens=tuple(tokens)) for tokens in found]

    items = await _batched(request.texts, "texts", len, encode, lambda problem: Tokenized(problem=problem))
    return TokenizeResponse(items=items)


async def detokenize(backends: Backends, request: DetokenizeRequest, limits: WorkerLimits) -> DetokenizeResponse:
    """Texts of tokens; arguments and errors as of `build_prompts`."""
    _check_count(request.sequences, "sequences", limits)
    opened = await _OpenTokenizer.of(backends, request.model, len(request.sequences))

    async def decode(sequences: Sequence[TokenSequence]) -> Sequence[Detokenized]:
        for sequence in sequences:
            await _check_tokens(sequence.tokens, opened.tokenizer)
        found = await opened.call(
            opened.tokenizer.detokenize,
            [sequence.tokens for sequence in sequences],
            options={"skip_special_tokens": request.skip_special_tokens},
        )
        return [Detokenized(text=text) for text in found]

    items = await _batched(
        request.sequences,
        "sequences",
        lambda sequence: len(sequence.tokens),
        decode,
        lambda problem: Detokenized(problem=problem),
    )
    return DetokenizeResponse(items=items)


class _OpenTokenizer:
    """A tokenizer, and the gate that retries its calls."""

    def __init__(self, tokenizer: Tokenizer, gate: RetryPolicy) -> None:
        self.tokenizer = tokenizer
        self._gate = gate

    @classmethod
    async def of(cls, backends: Mapping[type[ModelRef], Backend], model: ModelRef, items: int) -> _OpenTokenizer:
        """Open a model's tokenizer.

        Raises:
            FailedPrecondition: this worker has no backend for such a reference (NO_BACKEND), or the model no tokenizer.
            BridgeError: the backend's, at `model`.
        """
        backend = backends.get(type(model))
        if backend is None:
            message = f"is a {type(model).__name__}, for which this worker has no backend"
            raise FailedPrecondition(message, reason=Reason.NO_BACKEND, field="model")
        gate = RetryPolicy(items)
        try:
            return cls(require_tokenizer(await gate.call(backend.open_tokenizer, (model,))), gate)
        except BridgeError as error:
            raise at_field(error, "model", own="model") from error

    async def call(
        self, function: Callable[..., Awaitable[R]], *arguments: Any, options: Mapping[str, Any] | None = None
    ) -> R:
        """Call it; retried if its process died."""
        return await self._gate.call(function, arguments, options)


async def _opened_if_needed(
    backends: Backends, model: ModelRef | None, renderer: str, items: int
) -> _OpenTokenizer | None:
    if model is not None:
        return await _OpenTokenizer.of(backends, model, items)
    if renderer not in _WITHOUT_TOKENIZER:
        why = "reads token ids" if renderer.startswith(COOKBOOK) else "is the chat template, a part of the tokenizer"
        names = ", ".join(_WITHOUT_TOKENIZER)
        message = f"is not given, and the renderer {renderer} {why}: name a model, or one of the renderers {names}"
        raise InvalidField("model", message)
    return None


async def _stops(opened: _OpenTokenizer | None, renderer: str) -> Stops | Problem:
    """What ends answers; if a template exceeds a limit for it, the problem of all items, each of which would too."""
    if opened is None:
        return await find_stops(None, renderer)
    try:
        return await opened.call(find_stops, opened.tokenizer, renderer)
    except BridgeError as error:
        if error.reason != Reason.RENDERING_LIMIT:
            raise
        return problem_of(error)


def _is_plain(tokenizer: Tokenizer, renderer: str) -> bool:
    """Whether the model gets text as it stands."""
    return renderer == AUTO and not takes_template(tokenizer, renderer)


async def _example(
    tokenizer: Tokenizer, conversation: Conversation, train_on: TrainOn, renderer: str
) -> SupervisedExample:
    tokens, weights = await render_weighted(tokenizer, Sample(input=conversation), train_on, renderer)
    return await asyncio.to_thread(_shown, tokens, weights, images_of(conversation))


def _shown(
    tokens: np.ndarray, weights: np.ndarray, images: Sequence[ImageChunk | ImageAssetChunk]
) -> SupervisedExample:
    """An example of rendered tokens; millions of them take longer than the event loop should wait."""
    whole, weights = input_of(tokens, images), weights_of(tokens, weights, images)
    return SupervisedExample(
        tokens=() if images else tuple(tokens.tolist()),
        weights=(0.0, *weights[1:].tolist()),  # the first token is the target of none
        datum=shifted(whole, weights),
        model_input=whole if images else None,
    )


def _renderer(name: str) -> str:
    renderer = name or AUTO
    if re.fullmatch(RENDERER_PATTERN, renderer) is None:
        known = ", ".join(_DESCRIPTIONS)
        raise InvalidField("renderer", f"is {renderer!r}, must be one of {known}, or {COOKBOOK}NAME")
    check_renderer(renderer)
    return renderer


def _check_count(items: Sequence[Any], field: str, limits: WorkerLimits) -> None:
    bounds_of(BatchLimits(), len(items), field, limits=limits, received=0.0)


async def _check_tokens(tokens: Sequence[int], tokenizer: Tokenizer) -> None:
    """Refuse tokens that the tokenizer does not have; in a thread, as there may be millions.

    Raises:
        InvalidField: names the first one.
    """
    vocabulary = tokenizer.vocabulary

    def first_unknown() -> int | None:
        given = np.array(tokens, np.int64)
        unknown = (given < 0) | (given >= (np.iinfo(np.int32).max if vocabulary is None else vocabulary))
        return int(unknown.argmax()) if unknown.any() else None

    if (index := await asyncio.to_thread(first_unknown)) is not None:
        there = "" if vocabulary is None else f"; the tokenizer has {vocabulary:,} tokens"
        raise InvalidField(f"tokens[{index}]", f"is {tokens[index]}{there}")


async def _all(
    items: Sequence[Q],
    field: str,
    work: Callable[[Q], Awaitable[R]],
    failed: Callable[[Problem], R],
) -> tuple[R, ...]:
    """The result of each item, or what `failed` makes of its problem."""
    results: dict[int, R] = {}

    async def take(index: int) -> None:
        try:
            results[index] = await work(items[index])
        except Exception as error:
            results[index] = failed(_problem(error, f"{field}[{index}]"))

    await each(len(items), take, _CONCURRENCY)
    return tuple(results[index] for index in range(len(items)))


async def _batched(
    items: Sequence[Q],
    field: str,
    size: Callable[[Q], int],
    work: Callable[[Sequence[Q]], Awaitable[Sequence[R]]],
    failed: Callable[[Problem], R],
) -> tuple[R, ...]:
    """As `_all`, with several items in a request; the items of a request that fails are sent again, each alone."""
    answers: dict[int, R] = {}

    async def send(batch: range) -> None:
        try:
            answers.update(zip(batch, await work([items[index] for index in batch]), strict=True))
        except BridgeError:
            for index in batch:
                try:
                    (answers[index],) = await work([items[index]])
                except Exception as error:
                    answers[index] = failed(_problem(error, f"{field}[{index}]"))

    batches = list(_batches(items, size))
    await each(len(batches), lambda index: send(batches[index]), _CONCURRENCY)
    return tuple(answers[index] for index in range(len(items)))


def _batches(items: Sequence[Q], size: Callable[[Q], int]) -> Iterator[range]:
    start = total = 0
    for index, item in enumerate(items):
        if index > start and total + size(item) > _BATCH_CHARS:
            yield range(start, index)
            start, total = index, 0
        total += size(item)
    yield range(start, len(items))


def _problem(error: Exception, field: str) -> Problem:
    """The problem of an item; an error that concerns all items is raised."""
    if isinstance(error, BridgeError):
        if error.reason in _OF_THE_CALL:
            raise error
        own = next((own for own in _OWN if error.field.startswith(own)), "")
        return problem_of(at_field(error, field, own=own))
    if (lacking := shortage(error)) is not None:
        return problem_of(lacking)
    error_id = logged(_log, "item_failed", error, item=field)
    return Problem(reason=Reason.INTERNAL, message=f"internal error {error_id}")
