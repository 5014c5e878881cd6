"""What a model and a backend are, wherever the model lives, and a model in place of another one.

    class Echo(Model):
        fingerprint = "1"

        async def sample_text(self, input, params, num_samples=1, *, plain=False):
            return [SampledSequence(text=str(input), tokens=())] * num_samples

A backend opens a `ModelRef`; a model has a method for each question that it can answer. The methods that a class does
not define raise one error; `capabilities` names those that it defines. Token ids go in and out; `tokenizer`
turns text into them. Every method is a coroutine that never blocks the event loop, may be called concurrently, and may
be cancelled: the result is then discarded.

Errors are `crucible_bridge.errors`: InvalidField for input that can never work (a prompt longer than the context),
BackendError for the rest. Its `retryable` says whether another try may help.
"""

from __future__ import annotations

import abc
import asyncio
import dataclasses
import enum
import importlib.util
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import CoroutineType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, NoReturn, Self, TypeVar

import numpy as np

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    BackendInfo,
    ChatMessage,
    Conversation,
    Datum,
    Fleet,
    InstalledModel,
    ModelInput,
    ModelRef,
    ParsedResponse,
    RawResponse,
    SampledSequence,
    SamplingParams,
    ServerEngine,
    ToolSpec,
)
from crucible_worker.backends.distributions import Measured, Wanted
from crucible_worker.backends.endpoints import BackendSettings, ServerPlace

if TYPE_CHECKING:
    from crucible_worker.backends.metering import Meter

__all__ = [
    "ANSWERING",
    "MAX_MESSAGES",
    "MAX_TEXT_BYTES",
    "UNKNOWN_TOKEN",
    "Backend",
    "BackendCheck",
    "Capability",
    "Model",
    "Reading",
    "Rendered",
    "Tokenizer",
    "ToolChoice",
    "WrappedModel",
    "check_sampling",
    "exceeds",
    "too_long",
]


# What any backend refuses of sampling parameters, whatever its server would make of them.


def check_sampling(params: SamplingParams, num_samples: int) -> None:
    """Refuse what makes no sense.

    Raises:
        InvalidField: a parameter is out of range.
    """
    if num_samples < 1:
        raise InvalidField("num_samples", f"is {num_samples}, must be at least 1")
    if params.max_tokens < 1:
        raise InvalidField("sampling.max_tokens", f"is {params.max_tokens}, must be at least 1")
    if not (math.isfinite(params.temperature) and params.temperature >= 0):
        raise InvalidField("sampling.temperature", f"is {params.temperature}, must be finite and at least 0")
    if not 0 < params.top_p <= 1:
        raise InvalidField("sampling.top_p", f"is {params.top_p}, must be above 0 and at most 1")
    if params.top_k is not None and params.top_k < 1:
        raise InvalidField("sampling.top_k", f"is {params.top_k}, must be at least 1")


MAX_MESSAGES = 10_000
"""Bound on a conversation that is made in the worker, from JSON or by an environment."""
MAX_TEXT_BYTES = 16 * 1024 * 1024
"""Bound on a continuation from outside the worker: a page of samples must have room for any of them, also after U+FFFD
has replaced its surrogates."""


UNKNOWN_TOKEN = -1
"""In place of an unknown token that differs from the prompt's."""


def exceeds(text: str) -> bool:
    """Whether a continuation is longer than `MAX_TEXT_BYTES`, each surrogate counted as the U+FFFD that it becomes."""
    # A character has at most four bytes: few texts need a closer look.
    return len(text) * 4 > MAX_TEXT_BYTES and len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT_BYTES


def too_long(tokens: int, context: int | None, answer: int = 0) -> str | None:
    """Why so many tokens, and those that an answer needs, do not fit into a context; None if they fit."""
    if context is None or tokens + answer <= context:
        return None
    needs = f", and the answer needs at least {answer} of them" if answer > 0 else ""
    return f"has {tokens} tokens; the model's context has {context}{needs}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A conversation in tokens."""

    tokens: Sequence[int]
    """Token ids."""
    weights: Sequence[float] | None = None
    """The weight of each token in a measurement; None if this is a prompt."""
    stop: Sequence[str] = ()
    """Texts that end an answer to it."""
    text: str | None = None
    """The text before tokenization, with the marks of its template; None if that is not known."""


@dataclasses.dataclass(frozen=True, slots=True)
class ToolChoice(Conversation):
    """A conversation whose tools a server is to use in a certain way."""

    choice: str = dataclasses.field(kw_only=True)
    """"none", "required", or the name of the tool that the model must call."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a model reads the text of a data set."""

    target_delimiter: str | None = None
    """Text between a prompt and its answer in one text; None is what the model's tokenizer says."""
    special_tokens: bool = False
    """Whether the names of special tokens in a text are these tokens, and not text."""


class Tokenizer(abc.ABC):
    """The tokens of a model's text; available once the model is loaded."""

    __slots__ = ()

    eos_token_id: int | None
    """The end-of-sequence token, if the model has one."""
    bos_token_id: int | None
    """The token that begins a text, if the model has one, whether or not `encode` puts it there."""
    has_chat_template: bool
    """Whether `encode_chat` works; a model without a template gets plain text."""
    vocabulary: int | None = None
    """Number of its tokens: ids are below it; None if unknown."""
    target_delimiter: str | None = None
    """Text between a prompt and its answer in one text; None is one space, unless white space stands there."""
    tool_form: str = ""
    """The form in which the model writes calls of tools, see `rendering/tool_calls.py`; empty if it is not known."""

    @abc.abstractmethod
    async def encode(self, text: str) -> Sequence[int]:
        """Token ids of plain text, with the special tokens that the model wants before it, and exactly one BOS token.

        The name of a special token in the text is text, as in all that follow except `tokenize`, unless this is a
        tokenizer `with_special_tokens`.

        Raises:
            InvalidField: it cannot be read as text (SPECIAL_TOKEN_IN_TEXT).
        """

    @abc.abstractmethod
    async def encode_continuation(self, text: str) -> Sequence[int]:
        """Token ids of text that continues other text: no special tokens are added."""

    @abc.abstractmethod
    async def encode_chat(self, messages: Sequence[ChatMessage], *, generation_prompt: bool) -> Sequence[int]:
        """Token ids of a conversation by the model's own chat template.

        In the place of its images stand the ids -1, -2 and so on, in their order; also in what `render_chat` and
        `render_cookbook` return.
        """

    def with_special_tokens(self) -> Tokenizer:
        """The same tokenizer, which reads the names of special tokens in a text as these tokens.

        Itself, if it makes no difference between them.
        """
        return self

    async def encode_all(self, texts: Sequence[str], *, continuations: bool = False) -> Sequence[Sequence[int]]:
        """Token ids of each text, as `encode` returns them, or `encode_continuation` if they are continuations.

        A tokenizer in another process answers them all in one call.
        """
        return await asyncio.gather(*map(self.encode_continuation if continuations else self.encode, texts))

    async def render_chat(
        self, messages: Sequence[ChatMessage], *, generation_prompt: bool, tools: Sequence[ToolSpec] = ()
    ) -> Rendered:
        """A conversation as `encode_chat` returns it, with the text that the template made, if that is known.

        Args:
            messages: the conversation.
            generation_prompt: whether it ends where an answer begins.
            tools: those that the model may call.

        Raises:
            InvalidField: as of `encode_chat`; or there are tools, and the tokenizer, or its template, has no form for
                them.
        """
        if tools:
            raise InvalidField("tools", "is given, and the model's tokenizer has no form for tools")
        return Rendered(tokens=await self.encode_chat(messages, generation_prompt=generation_prompt))

    async def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without the special ones.

        Raises:
            FailedPrecondition: the tokenizer cannot decode (NO_TOKENIZER).
        """
        raise FailedPrecondition(
            "the model has no tokenizer at hand: the text of its tokens is not known", reason=Reason.NO_TOKENIZER
        )

    async def decode_calls(self, tokens: Sequence[int]) -> str:
        """The text of generated tokens: without special tokens, except those that mark reasoning and calls of tools."""
        return await self.decode(tokens)

    async def tokenize(self, texts: Sequence[str], *, add_special_tokens: bool) -> Sequence[Sequence[int]]:
        """Token ids of each text, with all the special tokens that the tokenizer puts around a text, or with none."""
        return await self.encode_all(texts, continuations=not add_special_tokens)

    async def detokenize(self, sequences: Sequence[Sequence[int]], *, skip_special_tokens: bool) -> Sequence[str]:
        """The text of each sequence of tokens, with or without the special ones.

        Raises:
            FailedPrecondition: the tokenizer cannot decode (NO_TOKENIZER).
        """
        return await asyncio.gather(*map(self.decode if skip_special_tokens else self.show, sequences))

    async def show(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones included; empty if the tokenizer cannot decode."""
        return ""

    async def render_cookbook(
        self,
        renderer: str,
        messages: Sequence[ChatMessage],
        *,
        train_on: str | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> Rendered:
        """A conversation as one of tinker-cookbook's renderers makes it.

        Args:
            renderer: its name in tinker-cookbook.
            messages: at least one.
            train_on: None for a prompt; else what of it has weight, by its full name in `rendering.train_on`.
            tools: those that the model may call: the renderer writes them before the conversation.

        Raises:
            FailedPrecondition: the tokenizer is no object of transformers (NO_COOKBOOK_TOKENIZER); tinker-cookbook is
                not installed (EXTRA_NOT_INSTALLED), or has no such renderer for this tokenizer (UNKNOWN_RENDERER).
            InvalidField: the renderer refuses the conversation.
        """
        raise _no_cookbook_tokenizer()

    async def parse_cookbook(self, renderer: str, response: RawResponse) -> ParsedResponse:
        """A response as one of tinker-cookbook's renderers parses it.

        Args:
            renderer: its name in tinker-cookbook.
            response: what the model generated.

        Raises:
            FailedPrecondition: as of `render_cookbook`.
            InvalidField: the renderer refuses the response.
        """
        raise _no_cookbook_tokenizer()


def _no_cookbook_tokenizer() -> FailedPrecondition:
    return FailedPrecondition(
        "the model's tokenizer is not at hand as tinker-cookbook's renderers need it: local models have such a one",
        reason=Reason.NO_COOKBOOK_TOKENIZER,
    )


class Capability(enum.StrEnum):
    """A question that a model can answer: each is the name of the method that answers it."""

    SAMPLE = "sample"
    SAMPLE_TEXT = "sample_text"
    LOGPROBS = "compute_logprobs"
    PROBE = "probe_logprobs"
    TARGETS = "compute_target_logprobs"
    CONTINUATIONS = "compute_continuation_logprobs"
    ARGMAX = "compute_argmax"
    FORWARD = "forward"
    PARTS = "forward_parts"
    DISTRIBUTIONS = "compute_distributions"
    SAMPLE_TOP = "sample_with_top"


ANSWERING = frozenset({Capability.SAMPLE, Capability.SAMPLE_TEXT})
"""A model that has one of these generates answers."""
_SAMPLING = ANSWERING | {Capability.LOGPROBS}


class Model(abc.ABC):
    """A model that is open."""

    __slots__ = ()

    fingerprint: str
    """Content of the checkpoint: equal for equal weights, different after a change."""
    context_length: int | None = None
    """Tokens that fit into its context, once it is loaded; None if it has no known limit."""
    tokenizer: Tokenizer | None = None
    """Its tokenizer, once it is loaded; None if only tokens can be sent, or if the model's server has it."""
    renderer: str = "auto"
    """How text is sent to a server that accepts it: "chat_template", "raw", or "auto" if the server decides."""
    resolved_renderer: str | None = None
    """What `auto` was resolved to before; None if that was not done."""
    reading: Reading = Reading()
    """How it reads text; an evaluation sets what its data set says."""

    reports_usage: ClassVar[bool] = False
    """Whether it may pass its service's reports on, see `metered`: whether its class defines that."""

    _defined: frozenset[Capability] = frozenset()

    def __init_subclass__(cls) -> None:
        """Find out which questions the class answers."""
        super().__init_subclass__()
        cls.reports_usage = cls.metered is not Model.metered
        cls._defined = frozenset(
            question for question in Capability if getattr(cls, question) is not getattr(Model, question)
        )

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The questions that it answers: the methods that its class defines, unless a subclass overrides this."""
        return self._defined

    @property
    def sampling(self) -> Self | None:
        """The model itself if it samples or measures prompts, else None; for packages written for two sides."""
        return None if self.capabilities.isdisjoint(_SAMPLING) else self

    @property
    def training(self) -> Self | None:
        """The model itself if it makes forward passes, else None: as above."""
        return self if Capability.FORWARD in self.capabilities else None

    @property
    def engine(self) -> ServerEngine | None:
        """Which program serves it, as far as that is known by now."""
        return None

    @property
    def gone(self) -> bool:
        """Whether the caller that has the model has disconnected."""
        return False

    @property
    def evaluated_fingerprint(self) -> str:
        """The fingerprint that an evaluation records: that of a server includes how text is sent to it."""
        return self.fingerprint

    async def full_fingerprint(self) -> str:
        """`evaluated_fingerprint`, with digests that take too long for the start of an evaluation.

        Called once the model is loaded, while it answers; cancelled when the evaluation ends.
        """
        return self.evaluated_fingerprint

    def metered(self, meter: Meter) -> Model | None:
        """The same model, which passes its service's report on each answer to the meter, whether used or not.

        None if its service reports nothing: then the caller counts them.
        """
        return None

    async def load(self) -> None:  # noqa: B027 (a model may have nothing to load)
        """Get ready for calls, however long that takes; called before the first one, and quick when it is ready.

        Raises:
            FailedPrecondition: the files are refused.
            BackendError: it could not be loaded.
        """

    async def available(self) -> None:
        """Check that whatever answers for this model answers now: called while all queries of it fail.

        Raises:
            BridgeError: it does not; retryable if it may later.
        """
        await self.load()

    async def find_engine(self) -> None:  # noqa: B027 (few servers say)
        """Find out, once the model is loaded, which program serves it; takes a few seconds at most.

        What cannot be found out stays unknown.

        Raises:
            FailedPrecondition: the settings demand something of the server that it does not have.
        """

    async def record_weights(self) -> None:  # noqa: B027 (few models can lose their weights)
        """Remember which weights a loaded model has, for `confirm_weights`: at the start of an evaluation.

        Raises:
            BridgeError: that cannot be found out.
        """

    async def confirm_weights(self) -> None:  # noqa: B027 (as above)
        """Check that the model has had the same weights since `record_weights`: at the end of an evaluation.

        Raises:
            FailedPrecondition: it has not (MODEL_CHANGED).
            BridgeError: that cannot be found out.
        """

    async def sample(
        self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1
    ) -> Sequence[SampledSequence]:
        """Generate `num_samples` continuations of a prompt.

        The same prompt, parameters and seed give the same samples, where the backend can; sample i of several differs
        from the others by a seed derived from `params.seed` and i.
        """
        self._refuse(Capability.SAMPLE)

    async def sample_text(
        self, input: str | Conversation, params: SamplingParams, num_samples: int = 1, *, plain: bool = False
    ) -> Sequence[SampledSequence]:
        """Generate continuations of a text, or answers to a conversation, if tokenizer and template lie with a server.

        A text that is `plain` is continued unchanged; the server may turn any other into a user's message.
        """
        self._refuse(Capability.SAMPLE_TEXT)

    async def compute_logprobs(self, prompt: ModelInput) -> Sequence[float | None]:
        """Log-probability of every token of a prompt given those before it, nats; the first is None."""
        self._refuse(Capability.LOGPROBS)

    async def probe_logprobs(self, prompt: ModelInput) -> None:
        """See with one request whether log-probabilities of a prompt cover it.

        Raises:
            FailedPrecondition: they do not (NO_PROMPT_LOGPROBS).
            BridgeError: the request to the server failed.
        """
        self._refuse(Capability.PROBE)

    async def compute_target_logprobs(self, prompt: ModelInput, targets: Sequence[tuple[int, int]]) -> Sequence[float]:
        """Log-probability of each target given the tokens before its place, nats: one call serves many choices.

        Args:
            prompt: at least two tokens.
            targets: at least one, each a place in the prompt, from 1, and the token to measure there in place of the
                prompt's own.

        Raises:
            FailedPrecondition: its service answers no such question (NO_TARGET_LOGPROBS); `compute_logprobs` may work.
        """
        self._refuse(Capability.TARGETS)

    async def compute_continuation_logprobs(
        self, prompt: ModelInput, continuations: Sequence[Sequence[int]]
    ) -> Sequence[np.ndarray]:
        """Log-probabilities of each continuation's tokens given all before them, nats, float64; reads the prompt once.

        Args:
            prompt: at least one token.
            continuations: token ids, at least one continuation and one token in each.
        """
        self._refuse(Capability.CONTINUATIONS)

    async def compute_argmax(self, prompt: ModelInput) -> Sequence[int | None]:
        """Likeliest token at every place of a prompt given the prompt's own tokens before it; the first is None.

        `UNKNOWN_TOKEN` where the likeliest differs from the prompt's, and its service does not report which it is.

        Raises:
            FailedPrecondition: its service does not report them (NO_GREEDY_TOKENS).
        """
        self._refuse(Capability.ARGMAX)

    async def compute_distributions(self, prompt: ModelInput, wanted: Wanted) -> Measured:
        """Log-probabilities of the last tokens of a prompt, of the likeliest ones in their place, and of given ones.

        Args:
            prompt: at least two tokens.
            wanted: what, and of how many tokens.

        Raises:
            FailedPrecondition: its service does not report the likeliest tokens by their ids (NO_TOP_LOGPROBS), or
                answers no question about given tokens (NO_TARGET_LOGPROBS).
        """
        self._refuse(Capability.DISTRIBUTIONS)

    async def sample_with_top(
        self, input: ModelInput | str | Conversation, params: SamplingParams, num_samples: int, top: int
    ) -> Sequence[SampledSequence]:
        """As `sample`, or as `sample_text` for words, with the `top` likeliest tokens in place of each generated one.

        Raises:
            FailedPrecondition: its service does not report them by their ids (NO_TOP_LOGPROBS).
        """
        self._refuse(Capability.SAMPLE_TOP)

    async def forward(self, data: Sequence[Datum]) -> Sequence[np.ndarray]:
        """Log-probabilities of each datum's `target_tokens`, nats: float32 or float64 of their shape, one per datum.

        Entry i is log p(target_tokens[i] | model_input[0..i]). No gradients, no side effects.
        """
        self._refuse(Capability.FORWARD)

    async def forward_parts(self, data: Sequence[Datum]) -> Sequence[np.ndarray]:
        """As `forward`, for data that are parts of one sample, as the windows of a text are.

        The last bits of an answer may depend on the other data of the call, and on nothing else.
        """
        return await self.forward(data)

    def _refuse(self, question: Capability) -> NoReturn:
        known = ", ".join(sorted(self.capabilities)) or "nothing"
        raise FailedPrecondition(
            f"does not answer {question}; it answers {known}", reason=Reason.MISSING_CLIENT, field="model"
        )


class BackendCheck(NamedTuple):
    """A check of a machine, for `doctor`."""

    name: str
    """What is checked."""
    purpose: str
    """What it is for."""
    look: Callable[[], str]
    """Returns what it finds; FailedPrecondition or OSError: what is wrong. May take seconds."""


RefT = TypeVar("RefT", bound=ModelRef, contravariant=True)


class Backend(abc.ABC, Generic[RefT]):
    """A kind of place where models live."""

    opens: ClassVar[tuple[type[ModelRef], ...]] = (InstalledModel,)
    """Forms of the references that it opens. Those of an installed backend have a scheme, which is its name."""
    extras: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Extras of the worker's distribution that it needs, each with what for, as `doctor` shows it."""
    libraries: ClassVar[tuple[str, ...]] = ()
    """Modules of the first extra that it cannot be used without; GetInfo has their versions."""

    @classmethod
    def missing(cls) -> str:
        """Empty, or what must be installed; imports nothing."""
        absent = [name for name in cls.libraries if importlib.util.find_spec(name) is None]
        return f"{' and '.join(absent)} not installed: install crucible-bridge[{cls.extras[0][0]}]" if absent else ""

    @classmethod
    def refuse_missing(cls) -> None:
        """Raise what is missing.

        Raises:
            FailedPrecondition: a library is not installed (EXTRA_NOT_INSTALLED).
        """
        if absent := cls.missing():
            raise FailedPrecondition(absent, reason=Reason.EXTRA_NOT_INSTALLED)

    @classmethod
    def checks(cls) -> Sequence[BackendCheck]:
        """What `doctor` checks further."""
        return ()

    @classmethod
    def create(cls, settings: BackendSettings) -> Self:
        """Make it for a worker of these settings. Cheap: imports nothing heavy, starts and calls nothing."""
        return cls()

    def info(self) -> BackendInfo:
        """Its name, the models that it knows, and whether it can be used here. Cheap: imports nothing heavy.

        Not called for an installed backend: GetInfo lists it by its scheme, and does not import it.
        """
        return BackendInfo(name=type(self).__name__)

    def infos(self) -> Sequence[BackendInfo]:
        """`info` for each name that it has."""
        return (self.info(),)

    def place(self, name: str) -> ServerPlace | None:
        """Where the server of a name is; None if there is none, or its models are not known by its name alone."""
        return None

    def fleets(self) -> Sequence[Fleet]:
        """The present state of the replicas of its models that have several."""
        return ()

    async def check(self, model: RefT) -> None:
        """Refuse a model that `open` refuses, as far as that shows at once: reads no weights, calls no service.

        Raises:
            BridgeError: as `open` does.
        """
        await self.open(model)

    @abc.abstractmethod
    async def open(self, model: RefT) -> Model:
        """Find a model and its fingerprint, or return the one that is open already; `Model.load` does what is slow.

        Raises:
            NotFound: there is no such model.
            PermissionDenied: the path leads out of the roots.
            FailedPrecondition: the backend cannot be used here (an extra is not installed), or the files are refused.
        """

    async def open_tokenizer(self, model: RefT) -> Tokenizer | None:
        """A model's tokenizer alone, if it has one and the backend can find it without the model; else with the model.

        Raises:
            BridgeError: as `open` and `Model.load` do.
        """
        opened = await self.open(model)
        await opened.load()
        return opened.tokenizer

    async def aclose(self) -> None:
        """End every child process and free all resources. Idempotent, and quick: at most a second."""


# A model in place of another one: every question passes one method, which a subclass defines.


class WrappedModel(Model):
    """A model with the properties of another one.

    Every sample has one: its methods make no object but the arguments, and its attributes are read when they are
    needed.
    """

    __slots__ = ("_model",)

    def __init__(self, model: Model) -> None:
        """Wrap a model."""
        self._model = model

    @abc.abstractmethod
    async def _through(
        self,
        question: Capability,
        method: Callable[..., Awaitable[Any]],
        arguments: tuple[Any, ...],
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        """Answer a question.

        Args:
            question: which.
            method: the wrapped model's answer to it.
            arguments: what `method` takes by position; the first is the prompt or the data.
            options: what it takes by name.
        """

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The model's."""
        return self._model.capabilities

    @property
    def fingerprint(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] (read only)
        """The model's."""
        return self._model.fingerprint

    @property
    def evaluated_fingerprint(self) -> str:
        """The model's."""
        return self._model.evaluated_fingerprint

    @property
    def context_length(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride] (read only)
        """The model's."""
        return self._model.context_length

    @property
    def tokenizer(self) -> Tokenizer | None:  # pyright: ignore[reportIncompatibleVariableOverride] (read only)
        """The model's."""
        return self._model.tokenizer

    @property
    def renderer(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] (read only)
        """The model's."""
        return self._model.renderer

    @property
    def reading(self) -> Reading:  # pyright: ignore[reportIncompatibleVariableOverride] (read only)
        """The model's."""
        return self._model.reading

    def sample(self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1) -> CoroutineType[Any, Any, Any]:
        """Through `_through`, as all that follow."""
        return self._through(_SAMPLE, self._model.sample, (prompt, params, num_samples))

    def sample_text(
        self, input: str | Conversation, params: SamplingParams, num_samples: int = 1, *, plain: bool = False
    ) -> CoroutineType[Any, Any, Any]:
        """See `Model`."""
        return self._through(
            Capability.SAMPLE_TEXT, self._model.sample_text, (input, params, num_samples), {"plain": plain}
        )

    def compute_logprobs(self, prompt: ModelInput) -> CoroutineType[Any, Any, Any]:
        """See `Model`."""
        return self._through(Capability.LOGPROBS, self._model.compute_logprobs, (prompt,))

    def probe_logprobs(self, prompt: ModelInput) -> CoroutineType[Any, Any, Any]:
        """See `Model`."""
        return self._through(Capability.PROBE, self._model.probe_logprobs, (prompt,))

    def compute_target_logprobs(
        self, prompt: ModelInput, targets: Sequence[tuple[int, int]]
    ) -> CoroutineType[Any, Any, Any]:
        """See `Model`."""
        return self._through(Capability.TARGETS, self._model.compute_target_logprobs, (prompt, targets))

    def compute_continuation_logprobs(
        self, prompt: ModelInput, continuations: Sequence[Sequence[int]]
    ) -> CoroutineType[Any, Any, Any]:
        """See `Model`."""
        return self._through(
            Capability.CONTINUATIONS, self._model.compute_continuation_logprobs, (prompt, continuations)
        )

    def compute_argmax(self, prompt: ModelInput) -> CoroutineType[Any, Any, Any]:
        """See `Model`."""
        return self._through(Capability.ARGMAX, self._model.compute_argmax, (prompt,))

    def compute_distributions(self, prompt: ModelInput, wanted: Wanted) -> CoroutineType[Any, Any, Any]:
        """See `Model`."""
        return self._through(Capability.DISTRIBUTIONS, self._model.compute_distributions, (prompt, wanted))

    def sample_with_top(
        self, input: ModelInput | str | Conversation, params: SamplingParams, num_samples: int, top: int
    ) -> CoroutineType[Any, Any, Any]:
        """See `Model`."""
        return self._through(Capability.SAMPLE_TOP, self._model.sample_with_top, (input, params, num_samples, top))

    def forward(self, data: Sequence[Datum]) -> CoroutineType[Any, Any, Any]:
        """See `Model`."""
        return self._through(Capability.FORWARD, self._model.forward, (data,))

    def forward_parts(self, data: Sequence[Datum]) -> CoroutineType[Any, Any, Any]:
        """See `Model`."""
        return self._through(Capability.PARTS, self._model.forward_parts, (data,))


_SAMPLE = Capability.SAMPLE  # a global name costs less than an attribute of an enumeration
