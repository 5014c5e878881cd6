"""What a model is to an evaluator, wherever it lives.

A backend opens a ModelRef; the model it returns has a sampling side, a training side, or both, in the shape of tinker's
clients. Token ids go in and out; `tokenizer` turns text into them. Every method is a coroutine that never blocks the
event loop, may be called concurrently, and may be cancelled: the result is then thrown away.

Errors are `crucible_bridge.errors`: InvalidField for input that can never work (a prompt longer than the context),
BackendError for the rest, whose `retryable` says whether asking again may help.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol, TypeGuard, runtime_checkable

import numpy as np

from crucible_bridge.types import (
    BackendInfo,
    ChatMessage,
    Conversation,
    Datum,
    ModelInput,
    ModelRef,
    SampledSequence,
    SamplingParams,
    ServerEngine,
)

__all__ = [
    "MAX_TEXT_BYTES",
    "UNKNOWN_TOKEN",
    "Backend",
    "BatchTokenizer",
    "BoundedModel",
    "ContinuationsClient",
    "CookbookTokenizer",
    "EngineModel",
    "GreedyClient",
    "HeldModel",
    "Model",
    "PartsClient",
    "ProbedClient",
    "Rendered",
    "SamplingClient",
    "ShowingTokenizer",
    "TargetClient",
    "TemplateTokenizer",
    "TextSamplingClient",
    "Tokenizer",
    "TrainingClient",
    "context_length",
    "evaluated_fingerprint",
    "exceeds",
    "renderer_of",
    "takes_words",
    "too_long",
]

MAX_TEXT_BYTES = 16 * 1024 * 1024
"""Of a continuation that somebody else tells: a page of samples must be able to carry any of them, whatever U+FFFD has
made of it."""


UNKNOWN_TOKEN = -1
"""Stands for a token of which no more is known than that it is another one than the prompt's."""


def exceeds(text: str) -> bool:
    """Whether a continuation is longer than `MAX_TEXT_BYTES`, each surrogate counted as the U+FFFD that it becomes."""
    # A character has at most four bytes: few texts need a closer look.
    return len(text) * 4 > MAX_TEXT_BYTES and len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT_BYTES


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A conversation in tokens."""

    tokens: Sequence[int]
    """Token ids."""
    weights: Sequence[float] | None = None
    """What each token counts, where it is what a model is measured on; None where it is a prompt."""
    stop: Sequence[str] = ()
    """Texts that end an answer to it."""
    text: str | None = None
    """What the tokens were made of, with the marks of its template; None where that is not known."""


class SamplingClient(Protocol):
    """A model that generates."""

    async def sample(
        self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1
    ) -> Sequence[SampledSequence]:
        """Generate `num_samples` continuations of a prompt.

        The same prompt, parameters and seed give the same samples, where the backend can; sample i of several differs
        from the others by a seed derived from `params.seed` and i.
        """
        ...

    async def compute_logprobs(self, prompt: ModelInput) -> Sequence[float | None]:
        """Log-probability of every token of a prompt given those before it, nats; the first is None."""
        ...


@runtime_checkable
class TextSamplingClient(SamplingClient, Protocol):
    """A model whose tokenizer and chat template lie with its server: it is asked in words, too."""

    async def sample_text(
        self, input: str | Conversation, params: SamplingParams, num_samples: int = 1, *, plain: bool = False
    ) -> Sequence[SampledSequence]:
        """Generate `num_samples` continuations of a text, or answers to a conversation, as `sample` does of tokens.

        A text that is `plain` is gone on from as it stands; of any other, the server may make a message of a user.
        """
        ...


@runtime_checkable
class ProbedClient(SamplingClient, Protocol):
    """A sampling client that can tell with one request whether it measures prompts."""

    async def probe_logprobs(self, prompt: ModelInput) -> None:
        """Ask for log-probabilities of a prompt, and see that they cover it.

        Raises:
            FailedPrecondition: they do not (NO_PROMPT_LOGPROBS).
            BridgeError: the server could not be asked.
        """
        ...


def takes_words(client: SamplingClient) -> TypeGuard[TextSamplingClient]:
    """Whether a client takes text and conversations: its server has the tokenizer."""
    # isinstance() of a protocol takes a tenth of a sample's time before Python 3.12.
    return hasattr(client, "sample_text")


def renderer_of(client: object) -> str:
    """How a client in words wants to be asked for answers, where it has a `renderer`: "chat_template" or "raw".

    "auto" of one that has none: it makes of a text what it likes.
    """
    return getattr(client, "renderer", "auto")


@runtime_checkable
class TargetClient(SamplingClient, Protocol):
    """A sampling client that also measures tokens which a prompt does not hold: one call serves many choices."""

    async def compute_target_logprobs(self, prompt: ModelInput, targets: Sequence[tuple[int, int]]) -> Sequence[float]:
        """Log-probability of each target given the tokens before its place, nats.

        Args:
            prompt: at least two tokens.
            targets: at least one, each a place in the prompt, from 1, and the token to measure there in place of the
                prompt's own.

        Raises:
            FailedPrecondition: its service answers no such question (NO_TARGET_LOGPROBS); `compute_logprobs` it may.
        """
        ...


@runtime_checkable
class ContinuationsClient(SamplingClient, Protocol):
    """A sampling client that measures several continuations of one prompt in one call, which reads the prompt once."""

    async def compute_continuation_logprobs(
        self, prompt: ModelInput, continuations: Sequence[Sequence[int]]
    ) -> Sequence[np.ndarray]:
        """Log-probabilities of each continuation's tokens, given the prompt and the tokens before them, nats: float64.

        Args:
            prompt: at least one token.
            continuations: token ids, at least one continuation and one token in each.
        """
        ...


@runtime_checkable
class GreedyClient(SamplingClient, Protocol):
    """A sampling client that also tells which token it holds for the likeliest at each place of a prompt."""

    async def compute_greedy(self, prompt: ModelInput) -> Sequence[int | None]:
        """Likeliest token at every place of a prompt given the prompt's own tokens before it; the first is None.

        `UNKNOWN_TOKEN` where the likeliest is another one than the prompt's, and its service does not say which.

        Raises:
            FailedPrecondition: its service does not tell (NO_GREEDY_TOKENS).
        """
        ...


class TrainingClient(Protocol):
    """A model that is being trained, asked without being changed."""

    async def forward(self, data: Sequence[Datum]) -> Sequence[np.ndarray]:
        """Log-probabilities of each datum's `target_tokens`, nats: float32 or float64 of their shape, one per datum.

        Entry i is log p(target_tokens[i] | model_input[0..i]). No gradients, no side effects.
        """
        ...


@runtime_checkable
class PartsClient(TrainingClient, Protocol):
    """A training client that is faster where data are parts of one sample, as the windows of a text are."""

    async def forward_parts(self, data: Sequence[Datum]) -> Sequence[np.ndarray]:
        """As `forward`; the last bits of an answer may depend on the other data of the call, and on nothing else."""
        ...


class Tokenizer(Protocol):
    """The tokens of a model's text; to be asked once the model is loaded."""

    @property
    def eos_token_id(self) -> int | None:
        """The end-of-sequence token, where the model has one."""
        ...

    @property
    def bos_token_id(self) -> int | None:
        """The token that begins a text, where the model has one, whether or not `encode` puts it there."""
        ...

    @property
    def has_chat_template(self) -> bool:
        """Whether `encode_chat` can be asked; a model without one gets plain text."""
        ...

    async def encode(self, text: str) -> Sequence[int]:
        """Token ids of plain text, with the special tokens that the model wants before it."""
        ...

    async def encode_continuation(self, text: str) -> Sequence[int]:
        """Token ids of text that goes on from other text: no special tokens are added."""
        ...

    async def encode_chat(self, messages: Sequence[ChatMessage], *, generation_prompt: bool) -> Sequence[int]:
        """Token ids of a conversation by the model's own chat template."""
        ...


@runtime_checkable
class TemplateTokenizer(Protocol):
    """A tokenizer that also tells which text the chat template made."""

    async def render_chat(self, messages: Sequence[ChatMessage], *, generation_prompt: bool) -> Rendered:
        """A conversation as `encode_chat` has it, with its text."""
        ...


@runtime_checkable
class BatchTokenizer(Protocol):
    """A tokenizer that is not at hand here: one call for several texts takes as long as a call for one."""

    async def encode_all(self, texts: Sequence[str], *, continuations: bool = False) -> Sequence[Sequence[int]]:
        """Token ids of each text, as `encode` has it; as `encode_continuation` has it where they are continuations."""
        ...


@runtime_checkable
class CookbookTokenizer(Protocol):
    """A tokenizer that is an object of transformers somewhere: tinker-cookbook's renderers can be run on it there."""

    async def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without the special ones."""
        ...

    async def render_cookbook(
        self, renderer: str, messages: Sequence[ChatMessage], *, train_on: str | None = None
    ) -> Rendered:
        """A conversation as one of tinker-cookbook's renderers has it.

        Args:
            renderer: its name there.
            messages: at least one.
            train_on: None for a prompt; else what of it has weight: last_assistant, all_assistant or all.

        Raises:
            FailedPrecondition: tinker-cookbook is not installed (EXTRA_NOT_INSTALLED), or has no such renderer for this
                tokenizer (UNKNOWN_RENDERER).
            InvalidField: the renderer refuses the conversation.
        """
        ...


@runtime_checkable
class ShowingTokenizer(Protocol):
    """A tokenizer that can show what a model reads."""

    async def show(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones included."""
        ...


class Model(Protocol):
    """A model that is open."""

    @property
    def fingerprint(self) -> str:
        """Content of the checkpoint: equal for equal weights, another one when it changed."""
        ...

    async def load(self) -> None:
        """Get ready for calls, however long that takes; called before the first one, and quick when it is ready.

        Raises:
            FailedPrecondition: the files are refused.
            BackendError: it could not be loaded.
        """
        ...

    @property
    def sampling(self) -> SamplingClient | None:
        """Its sampling side, where it has one."""
        ...

    @property
    def training(self) -> TrainingClient | None:
        """Its training side, where it has one."""
        ...

    @property
    def tokenizer(self) -> Tokenizer | None:
        """Its tokenizer; None where only tokens can be sent."""
        ...


@runtime_checkable
class BoundedModel(Protocol):
    """What a model has besides that knows how much it can take."""

    @property
    def context_length(self) -> int | None:
        """Tokens that fit into its context, once it is loaded; None where it names no limit."""
        ...


def context_length(model: Model) -> int | None:
    """Tokens that fit into a model's context; None where nobody says."""
    return model.context_length if isinstance(model, BoundedModel) else None


def too_long(tokens: int, context: int | None, answer: int = 0) -> str | None:
    """Why so many tokens do not fit into a context of which an answer needs some; None if they fit."""
    if context is None or tokens + answer <= context:
        return None
    needs = f", and the answer needs at least {answer} of them" if answer else ""
    return f"has {tokens} tokens; the model's context has {context}{needs}"


@runtime_checkable
class EngineModel(Protocol):
    """What a model has besides whose server may say which program it is."""

    async def find_engine(self) -> None:
        """Find out, once the model is loaded; never fails, and takes a few seconds at most."""
        ...

    @property
    def engine(self) -> ServerEngine | None:
        """Which program serves it, as far as that is known by now."""
        ...


def evaluated_fingerprint(model: Model) -> str:
    """The model's fingerprint as an evaluation keeps it: with how a server is asked for answers, where that is one."""
    return getattr(model, "evaluated_fingerprint", None) or model.fingerprint


class HeldModel(Model, Protocol):
    """A model that a caller holds, and takes along when it leaves."""

    @property
    def gone(self) -> bool:
        """Whether the caller has left."""
        ...


class Backend(Protocol):
    """A kind of place where models live."""

    def info(self) -> BackendInfo:
        """What it is called, which models it knows, and whether it can be used here. Cheap: imports nothing heavy."""
        ...

    async def check(self, model: ModelRef) -> None:
        """Refuse a model that `open` refuses, as far as that shows at once: no weights are read, no service is asked.

        Raises:
            BridgeError: as `open` does.
        """
        ...

    async def open(self, model: ModelRef) -> Model:
        """Find a model and its fingerprint, or return the one that is open already; `Model.load` does what is slow.

        Raises:
            NotFound: there is no such model.
            PermissionDenied: the path leads out of the roots.
            FailedPrecondition: the backend cannot be used here (an extra is not installed), or the files are refused.
        """
        ...

    async def aclose(self) -> None:
        """End every child process and free what is held. Idempotent, and quick: at most a second."""
        ...
