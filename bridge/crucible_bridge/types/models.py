"""Where a model lives, and how it is sampled."""

from __future__ import annotations

import dataclasses
import difflib
import re

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import bounds
from crucible_bridge.types.spelling import read_spelling, write_spelling

__all__ = [
    "LOCAL_DTYPES",
    "EmbeddedModel",
    "LocalModel",
    "ModelRef",
    "OpenAIModel",
    "OrchestratorModel",
    "SampledSequence",
    "TinkerModel",
    "format_model",
    "parse_model",
]


LOCAL_DTYPES = bounds.LOCAL_MODEL_DTYPE_ONE_OF
"""Element types that a local model can be asked in."""

_DEVICE = re.compile(r"cpu|cuda(:[0-9]{1,3})?")
_TINKER_KINDS = {"model": "model_path", "state": "state_path", "base": "base_model"}
_TINKER_PATH = "tinker://"
_LOCAL_OPTIONS = {"adapter": "adapter_path", "device": "device", "dtype": "dtype"}
"""As they are spelled, and as the fields are called."""


@dataclasses.dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """A model that ships with the worker."""

    name: str
    """"arithmetic@320": a model and the training step of its checkpoint."""


@dataclasses.dataclass(frozen=True, slots=True)
class LocalModel:
    """A Hugging Face causal language model on the worker's disk.

    As one text: "local:PATH", or "local:PATH?adapter=PATH&device=DEVICE&dtype=TYPE" with any of the three.
    """

    path: str
    """Directory, relative to a model root of the worker."""
    adapter_path: str | None = dataclasses.field(default=None, kw_only=True)
    """Directory of a LoRA adapter (peft, safetensors) to put on it, likewise."""
    device: str | None = dataclasses.field(default=None, kw_only=True)
    """Where it computes: "cpu", "cuda" or "cuda:N"; the worker's own if None. The same weights elsewhere are the same
    model, though their numbers may differ in the last bits."""
    dtype: str | None = dataclasses.field(default=None, kw_only=True)
    """Element type of its weights, one of `LOCAL_DTYPES`: another type is another model. If None, float32 on a CPU, and
    on CUDA the files' own."""

    def checked(self, field: str) -> LocalModel:
        """Itself, if there can be such a model.

        Raises:
            InvalidField: names what cannot be, below `field`.
        """
        if not self.path:
            raise InvalidField(f"{field}.path", "is empty")
        if self.adapter_path == "":
            raise InvalidField(f"{field}.adapter_path", "is empty")
        if self.device is not None and not _DEVICE.fullmatch(self.device):
            raise InvalidField(f"{field}.device", f"is {self.device[:60]!r}, not cpu, cuda or cuda:N")
        if self.dtype is not None and self.dtype not in LOCAL_DTYPES:
            close = difflib.get_close_matches(self.dtype[:60], LOCAL_DTYPES, n=1, cutoff=0.5)
            meant = f"; did you mean dtype={close[0]}?" if close else ""
            known = ", ".join(LOCAL_DTYPES)
            raise InvalidField(f"{field}.dtype", f"has the dtype {self.dtype[:60]!r}; there are {known}{meant}")
        return self


@dataclasses.dataclass(frozen=True, slots=True)
class OpenAIModel:
    """A model behind an OpenAI-compatible server."""

    server: str
    """Name of a server that the worker is configured with; without "/"."""
    model: str
    """The model's name there."""


@dataclasses.dataclass(frozen=True, slots=True)
class OrchestratorModel:
    """A model that the orchestrator holds, and answers for over the stream of EvaluateWithOrchestratorModel."""

    name: str
    """The orchestrator's own name for it: all that it is known by, so another checkpoint wants another name."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TinkerModel:
    """A model of the Tinker service, or of a server that speaks its API: a base model, or one or both of two paths.

    Both paths together, as a training run saves them at one step, are a model that samples and answers forward passes;
    each side is opened when it is first needed.

    As one text: its path as it stands, "tinker://RUN/sampler_weights/NAME" or "tinker://RUN/weights/NAME" (a training
    state), or "tinker:BASE_MODEL"; behind a "?" stands `service=NAME`, and `kind=model` or `kind=state` for a path that
    does not look like it; behind weights for sampling also `state=PATH`, the training state beside them.
    """

    model_path: str | None = None
    """Weights for sampling, "tinker://...": it samples."""
    state_path: str | None = None
    """A training state, "tinker://...": it answers forward passes; alone, it does not sample."""
    base_model: str | None = None
    """Name of a base model there: it samples."""
    service: str | None = None
    """Name of a service that the worker is configured with; "default" if None."""

    def checked(self, field: str) -> TinkerModel:
        """Itself, if there can be such a model.

        Raises:
            InvalidField: names what cannot be, below `field`.
        """
        given = {name: getattr(self, name) for name in _TINKER_KINDS.values() if getattr(self, name) is not None}
        if len(given) != 1 and given.keys() != {"model_path", "state_path"}:
            kinds = ", ".join(_TINKER_KINDS.values())
            raise InvalidField(field, f"has {len(given)} of {kinds}, not exactly one, or both paths")
        for name, value in given.items():
            if not value:
                raise InvalidField(f"{field}.{name}", "is empty")
            if name == "base_model" and value.startswith(("//", _TINKER_PATH)):
                raise InvalidField(f"{field}.{name}", "is a path, not the name of a model")
            if name != "base_model" and not value.startswith(_TINKER_PATH):
                raise InvalidField(f"{field}.{name}", f"does not begin with {_TINKER_PATH!r}")
        if self.service == "":
            raise InvalidField(f"{field}.service", "is empty")
        return self


ModelRef = EmbeddedModel | LocalModel | OpenAIModel | OrchestratorModel | TinkerModel
"""Where a model lives. Credentials never travel in it."""


def parse_model(text: str) -> ModelRef:
    """Read "embedded:NAME", "local:PATH", "openai:SERVER/MODEL", "tinker:MODEL" or "orchestrator:NAME".

    What may stand behind a "?" is said by LocalModel and TinkerModel.

    Raises:
        InvalidField: the text is none of them.
    """
    scheme, _, rest = text.partition(":")
    if scheme == "embedded" and rest:
        return EmbeddedModel(rest)
    if scheme == "local" and rest:
        return _parse_local(rest)
    server, _, name = rest.partition("/")
    if scheme == "openai" and server and name:
        return OpenAIModel(server, name)
    if scheme == "tinker" and rest:
        return _parse_tinker(rest)
    if scheme == "orchestrator" and rest:
        return OrchestratorModel(rest)
    known = "embedded:NAME, local:PATH, openai:SERVER/MODEL, tinker:MODEL or orchestrator:NAME"
    raise InvalidField("model", f"is {text!r}, not {known}")


def format_model(model: ModelRef) -> str:
    """Write what `parse_model` reads."""
    match model:
        case EmbeddedModel(name):
            return f"embedded:{name}"
        case LocalModel(path):
            given = {key: getattr(model, field) for key, field in _LOCAL_OPTIONS.items()}
            return f"local:{write_spelling(path, {key: value for key, value in given.items() if value is not None})}"
        case OpenAIModel(server, name):
            return f"openai:{server}/{name}"
        case TinkerModel():
            return _format_tinker(model)
        case OrchestratorModel(name):
            return f"orchestrator:{name}"


def _parse_local(text: str) -> LocalModel:
    path, options = read_spelling(text, "model")
    for key in options:
        if key not in _LOCAL_OPTIONS:
            raise InvalidField("model", f"has the option {key[:60]!r}; there are {', '.join(_LOCAL_OPTIONS)}")
    return LocalModel(path, **{_LOCAL_OPTIONS[key]: value for key, value in options.items()}).checked("model")


def _parse_tinker(text: str) -> TinkerModel:
    name, options = read_spelling(text, "model")
    if name.startswith("//"):
        name = f"tinker:{name}"
    kind = options.pop("kind", _tinker_kind(name))
    given = {"service": options.pop("service", None)}
    if kind == "model" and "state" in options:
        given["state_path"] = options.pop("state")
    if options or kind not in _TINKER_KINDS:
        wrong = f"kind={kind}" if kind not in _TINKER_KINDS else next(iter(options))
        raise InvalidField(
            "model",
            f"has the option {wrong[:60]!r}; there are service=NAME, kind=model, kind=state, and behind weights for "
            "sampling state=PATH",
        )
    return TinkerModel(**{_TINKER_KINDS[kind]: name}, **given).checked("model")


def _format_tinker(model: TinkerModel) -> str:
    kind, name = next(
        (kind, value) for kind, field in _TINKER_KINDS.items() if (value := getattr(model, field)) is not None
    )
    options = {} if kind == _tinker_kind(name) else {"kind": kind}
    if kind == "model" and model.state_path is not None:
        options["state"] = model.state_path
    if model.service is not None:
        options["service"] = model.service
    return f"tinker:{write_spelling(name.removeprefix('tinker:') if kind != 'base' else name, options)}"


def _tinker_kind(name: str) -> str:
    """What a name of the Tinker service looks like."""
    if not name.startswith(_TINKER_PATH):
        return "base"
    return "state" if "/weights/" in name else "model"


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
    prompt_tokens: int | None = None
    """Tokens of the prompt, where a server counted what it was asked in words; None elsewhere."""
    cached_prompt_tokens: int | None = None
    """Those of the prompt's tokens that the backend took from its cache; None where it does not report them."""
    reasoning_tokens: int | None = None
    """Those of the generated tokens that were reasoning; None where the backend does not report them."""

    @property
    def output_tokens(self) -> int:
        """Generated tokens."""
        return len(self.tokens) if self.token_count is None else self.token_count
