"""Where a model lives, and how it is sampled."""

from __future__ import annotations

import dataclasses

from crucible_bridge.errors import InvalidField

__all__ = [
    "EmbeddedModel",
    "LocalModel",
    "ModelRef",
    "OpenAIModel",
    "SampledSequence",
    "SamplingParams",
    "format_model",
    "parse_model",
]


@dataclasses.dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """A model that ships with the worker."""

    name: str
    """"arithmetic@320": a model and the training step of its checkpoint."""


@dataclasses.dataclass(frozen=True, slots=True)
class LocalModel:
    """A Hugging Face causal language model on the worker's disk."""

    path: str
    """Directory, relative to a model root of the worker."""


@dataclasses.dataclass(frozen=True, slots=True)
class OpenAIModel:
    """A model behind an OpenAI-compatible server."""

    server: str
    """Name of a server that the worker is configured with; without "/"."""
    model: str
    """The model's name there."""


ModelRef = EmbeddedModel | LocalModel | OpenAIModel
"""Where a model lives. Credentials never travel in it."""


def parse_model(text: str) -> ModelRef:
    """Read "embedded:NAME", "local:PATH" or "openai:SERVER/MODEL".

    Raises:
        InvalidField: the text is none of them.
    """
    scheme, _, rest = text.partition(":")
    if scheme == "embedded" and rest:
        return EmbeddedModel(rest)
    if scheme == "local" and rest:
        return LocalModel(rest)
    server, _, name = rest.partition("/")
    if scheme == "openai" and server and name:
        return OpenAIModel(server, name)
    raise InvalidField("model", f'is {text!r}, not "embedded:NAME", "local:PATH" or "openai:SERVER/MODEL"')


def format_model(model: ModelRef) -> str:
    """Write what `parse_model` reads."""
    match model:
        case EmbeddedModel(name):
            return f"embedded:{name}"
        case LocalModel(path):
            return f"local:{path}"
        case OpenAIModel(server, name):
            return f"openai:{server}/{name}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to sample."""

    max_tokens: int
    """Upper bound of generated tokens, from 1."""
    temperature: float = 0.0
    """0 is greedy: an evaluation is reproducible unless asked otherwise."""
    top_p: float = 1.0
    """Nucleus mass in (0, 1]."""
    top_k: int | None = None
    """Most likely tokens kept, from 1; all if None."""
    seed: int | None = None
    """Seed for reproducible sampling, where the backend can."""
    stop: tuple[str, ...] = ()
    """Stop strings, beside those of the renderer."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SampledSequence:
    """What a model generated."""

    text: str
    """The generated text, the stop string not included."""
    tokens: tuple[int, ...]
    """Generated token ids; empty where a server tells their number alone."""
    logprobs: tuple[float, ...] | None = None
    """Log-probability of each generated token, nats, under the unmodified distribution; None where there are none."""
    stop_reason: str = "stop"
    """"stop" (end of sequence or a stop string) or "length"."""
    token_count: int | None = None
    """Generated tokens, where a server counts them without telling their ids; None where `tokens` tells it."""

    @property
    def output_tokens(self) -> int:
        """Generated tokens."""
        return len(self.tokens) if self.token_count is None else self.token_count
