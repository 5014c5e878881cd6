"""References to models, and sampling parameters."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping

import numpy as np

from crucible_bridge.errors import InvalidField, clipped
from crucible_bridge.types import bounds
from crucible_bridge.types.data import ToolCall, UnparsedToolCall
from crucible_bridge.types.hub import REPO_ID
from crucible_bridge.types.spelling import read_spelling, write_spelling

__all__ = [
    "LOCAL_DTYPES",
    "MODEL_SCHEMES",
    "EmbeddedModel",
    "HubModel",
    "InstalledModel",
    "LocalModel",
    "ModelRef",
    "OpenAIModel",
    "OrchestratorModel",
    "SampledSequence",
    "TinkerModel",
    "format_model",
    "parse_model",
]


MAX_DEVICES = 64
"""Devices that a local model may have a replica on."""

LOCAL_DTYPES = bounds.LOCAL_MODEL_DTYPE_ONE_OF
"""Element types that a local model can be loaded in."""

MODEL_SCHEMES = ("embedded", "local", "hub", "openai", "tinker", "orchestrator")
"""The schemes of the worker's own references; an installed backend has another scheme."""

_SCHEME = re.compile(r"[a-z][a-z0-9_.-]*")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}")
_DEVICE = re.compile(r"cpu|cuda(:[0-9]{1,3})?")
_TINKER_KINDS = {"model": "model_path", "state": "state_path", "base": "base_model"}
_TINKER_PATH = "tinker://"
_LOCAL_OPTIONS = {"adapter": "adapter_path", "device": "device", "devices": "device", "dtype": "dtype"}
"""The spelling of options, and the names of their fields; `devices` is the device of several replicas."""
_HUB_OPTIONS = {"revision": "revision", **_LOCAL_OPTIONS}


@dataclasses.dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """A model that ships with the worker."""

    name: str
    """"arithmetic@320": a model and the training step of its checkpoint."""


@dataclasses.dataclass(frozen=True, slots=True)
class LocalModel:
    """A Hugging Face causal language model on the worker's disk.

    As one text: "local:PATH", or "local:PATH?adapter=PATH&device=DEVICE&dtype=TYPE" with any of the three. In place of
    `device` there may be `devices=DEVICE,DEVICE`.
    """

    path: str
    """Directory, relative to a model root of the worker."""
    adapter_path: str | None = dataclasses.field(default=None, kw_only=True)
    """Directory of a LoRA adapter (peft, safetensors) to apply to it, relative likewise."""
    device: str | None = dataclasses.field(default=None, kw_only=True)
    """The device: "cpu", "cuda" or "cuda:N"; the worker's default if None. The same weights on another device are the
    same model, though their numbers may differ in the last bits.

    "cuda:0,cuda:1": a replica on each, at most `MAX_DEVICES` of one kind, and the worker shares requests among them."""
    dtype: str | None = dataclasses.field(default=None, kw_only=True)
    """Element type of its weights, one of `LOCAL_DTYPES`: another type is another model. If None, float32 on a CPU, and
    on CUDA the type of the files."""

    def checked(self, field: str) -> LocalModel:
        """Itself, if it is valid.

        Raises:
            InvalidField: names the invalid field, below `field`.
        """
        if not self.path:
            raise InvalidField(f"{field}.path", "is empty")
        _check_loading(self, field)
        return self


@dataclasses.dataclass(frozen=True, slots=True)
class HubModel:
    """A Hugging Face causal language model of the hub, or of the worker's cache of it.

    As one text: "hub:OWNER/NAME", or "hub:OWNER/NAME?revision=REVISION&adapter=PATH&device=DEVICE&dtype=TYPE" with any
    of the four.
    """

    repo_id: str
    """"OWNER/NAME"."""
    revision: str | None = dataclasses.field(default=None, kw_only=True)
    """Commit (40 hexadecimal digits), branch or tag of the repository; "main" if None."""
    adapter_path: str | None = dataclasses.field(default=None, kw_only=True)
    """Like LocalModel's: a directory below a model root."""
    device: str | None = dataclasses.field(default=None, kw_only=True)
    """Like LocalModel's."""
    dtype: str | None = dataclasses.field(default=None, kw_only=True)
    """Like LocalModel's."""

    def checked(self, field: str) -> HubModel:
        """Itself, if it is valid.

        Raises:
            InvalidField: names the invalid field, below `field`.
        """
        if not REPO_ID.fullmatch(self.repo_id) or ".." in self.repo_id:
            raise InvalidField(f"{field}.repo_id", f"is {clipped(self.repo_id)}, not OWNER/NAME")
        if self.revision is not None and (not _REVISION.fullmatch(self.revision) or ".." in self.revision):
            raise InvalidField(
                f"{field}.revision", f"is {clipped(self.revision)}, not the name of a commit, branch or tag"
            )
        _check_loading(self, field)
        return self


def _check_loading(model: LocalModel | HubModel, field: str) -> None:
    """Refuse an invalid adapter, device or dtype."""
    if model.adapter_path == "":
        raise InvalidField(f"{field}.adapter_path", "is empty")
    if model.device is not None:
        _check_device(model.device, f"{field}.device")
    if model.dtype is not None and model.dtype not in LOCAL_DTYPES:
        close = difflib.get_close_matches(model.dtype[:60], LOCAL_DTYPES, n=1, cutoff=0.5)
        meant = f"; did you mean dtype={close[0]}?" if close else ""
        known = ", ".join(LOCAL_DTYPES)
        raise InvalidField(f"{field}.dtype", f"has the dtype {clipped(model.dtype)}; there are {known}{meant}")


def _check_device(text: str, field: str) -> None:
    """Refuse what names neither a device nor several of one kind."""
    # One more than is accepted shows that there are too many, however many there are.
    devices = text.split(",", MAX_DEVICES)
    if len(devices) > MAX_DEVICES:
        raise InvalidField(field, f"has more than {MAX_DEVICES} devices")
    for device in devices:
        if not _DEVICE.fullmatch(device):
            raise InvalidField(field, f"is {clipped(text)}, not cpu, cuda or cuda:N, nor several of them with commas")
    if len({device.partition(":")[0] for device in devices}) > 1:
        # Without a dtype, weights would have different types.
        raise InvalidField(field, f"is {clipped(text)}: replicas are all on the CPU or all on CUDA")


@dataclasses.dataclass(frozen=True, slots=True)
class OpenAIModel:
    """A model of an OpenAI-compatible server."""

    server: str
    """Name of a server that the worker is configured with; without "/"."""
    model: str
    """The model's name there."""


@dataclasses.dataclass(frozen=True, slots=True)
class OrchestratorModel:
    """A client-held model: its orchestrator answers the questions of the stream EvaluateWithOrchestratorModel."""

    name: str
    """The orchestrator's own name for it. Only the name identifies it, so another checkpoint needs another name."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TinkerModel:
    """A model of the Tinker service, or of a server that speaks its API: a base model, or one or both of two paths.

    Both paths together, as a training run saves them at one step, are one model that samples and computes forward
    passes; each side is opened when it is first needed.

    As one text: its path, "tinker://RUN/sampler_weights/NAME" or "tinker://RUN/weights/NAME" (a training state), or
    "tinker:BASE_MODEL". After a "?" there may be `service=NAME`, and `kind=model` or `kind=state` for a path that does
    not look like one; after weights for sampling also `state=PATH`, the training state saved with them.
    """

    model_path: str | None = None
    """Weights for sampling, "tinker://...": it samples."""
    state_path: str | None = None
    """A training state, "tinker://...": it computes forward passes; alone, it does not sample."""
    base_model: str | None = None
    """Name of a base model there: it samples."""
    service: str | None = None
    """Name of a service that the worker is configured with; "default" if None."""

    def checked(self, field: str) -> TinkerModel:
        """Itself, if it is valid.

        Raises:
            InvalidField: names the invalid field, below `field`.
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


@dataclasses.dataclass(frozen=True, slots=True)
class InstalledModel:
    """A model of a backend that was installed alongside the worker. As one text: "SCHEME:NAME"."""

    scheme: str
    """The backend: the name of an entry point in the worker's environment, not one of `MODEL_SCHEMES`."""
    name: str
    """The backend's name of the model."""

    def checked(self, field: str) -> InstalledModel:
        """Itself, if it is valid.

        Raises:
            InvalidField: names the invalid field, below `field`.
        """
        if not _SCHEME.fullmatch(self.scheme):
            rule = 'lower-case letters, digits, "_", "-" and ".", a letter first'
            raise InvalidField(f"{field}.scheme", f"is {clipped(self.scheme)}, not {rule}")
        if self.scheme in MODEL_SCHEMES:
            raise InvalidField(
                f"{field}.scheme", f"is {self.scheme!r}, which is one of the worker's own kinds of model"
            )
        if not self.name:
            raise InvalidField(f"{field}.name", "is empty")
        for name, most in (
            ("scheme", bounds.INSTALLED_MODEL_SCHEME_MAX_BYTES),
            ("name", bounds.INSTALLED_MODEL_NAME_MAX_BYTES),
        ):
            if (size := len(getattr(self, name).encode("utf-8", "surrogatepass"))) > most:
                raise InvalidField(f"{field}.{name}", f"has {size:,} bytes, at most {most:,} are accepted")
        return self


ModelRef = EmbeddedModel | HubModel | InstalledModel | LocalModel | OpenAIModel | OrchestratorModel | TinkerModel
"""A reference to a model. It never has credentials."""


def parse_model(text: str) -> ModelRef:
    """Read "embedded:NAME", "local:PATH", "hub:OWNER/NAME", "openai:SERVER/MODEL", "tinker:..." or "orchestrator:NAME".

    LocalModel, HubModel and TinkerModel describe the options after a "?". Any other scheme names a backend
    that was installed alongside the worker.

    Raises:
        InvalidField: the text is none of them.
    """
    scheme, _, rest = text.partition(":")
    if scheme == "embedded" and rest:
        return EmbeddedModel(rest)
    if scheme == "local" and rest:
        path, options = _read(rest, _LOCAL_OPTIONS)
        return LocalModel(path, **options).checked("model")
    if scheme == "hub" and rest:
        repo_id, options = _read(rest, _HUB_OPTIONS)
        return HubModel(repo_id, **options).checked("model")
    server, _, name = rest.partition("/")
    if scheme == "openai" and server and name:
        return OpenAIModel(server, name)
    if scheme == "tinker" and rest:
        return _parse_tinker(rest)
    if scheme == "orchestrator" and rest:
        return OrchestratorModel(rest)
    if scheme not in MODEL_SCHEMES and _SCHEME.fullmatch(scheme) and rest:
        return InstalledModel(scheme, rest).checked("model")
    if scheme == "openai" and server and not name:
        raise InvalidField("model", f"is {text!r}, without a server: openai:SERVER/MODEL, as in openai:openai/{server}")
    known = "embedded:NAME, local:PATH, hub:OWNER/NAME, openai:SERVER/MODEL, tinker:MODEL or orchestrator:NAME"
    raise InvalidField("model", f"is {text!r}, not {known}")


def format_model(model: ModelRef) -> str:
    """Write the text that `parse_model` reads."""
    match model:
        case EmbeddedModel(name):
            return f"embedded:{name}"
        case LocalModel(path):
            return f"local:{write_spelling(path, _given(model, _LOCAL_OPTIONS))}"
        case HubModel(repo_id):
            return f"hub:{write_spelling(repo_id, _given(model, _HUB_OPTIONS))}"
        case OpenAIModel(server, name):
            return f"openai:{server}/{name}"
        case TinkerModel():
            return _format_tinker(model)
        case OrchestratorModel(name):
            return f"orchestrator:{name}"
        case InstalledModel(scheme, name):
            return f"{scheme}:{name}"


def _read(text: str, known: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """A name, and its options by field names."""
    name, options = read_spelling(text, "model")
    for key in options:
        if key not in known:
            raise InvalidField("model", f"has the option {clipped(key)}; there are {', '.join(known)}")
    if {"device", "devices"} <= options.keys():
        raise InvalidField("model", "has device and devices, which are one option")
    return name, {known[key]: value for key, value in options.items()}


def _given(model: ModelRef, known: Mapping[str, str]) -> dict[str, str]:
    """The options of a model that are not None, by their spelling."""
    given = {key: value for key, field in known.items() if (value := getattr(model, field)) is not None}
    if device := given.get("device"):
        del given["device" if "," in device else "devices"]
    return given


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
            f"has the option {clipped(wrong)}; there are service=NAME, kind=model, kind=state, and after weights for "
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
    """The kind of a name of the Tinker service, by its form."""
    if not name.startswith(_TINKER_PATH):
        return "base"
    return "state" if "/weights/" in name else "model"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SampledSequence:
    """What a model generated."""

    text: str
    """The generated text, with its reasoning and the reasoning's tags, up to the first stop string after the
    reasoning. Of a backend: it may have more."""
    tokens: tuple[int, ...]
    """Generated token ids; empty if a server reports only their number."""
    logprobs: tuple[float, ...] | None = None
    """Log-probability of each generated token, nats, under the unmodified distribution; None if there are none."""
    stop_reason: str = "stop"
    """"stop" (end of sequence or a stop string), "length", another reason as the model's server calls it, or empty if
    it reports none."""
    token_count: int | None = None
    """The number of generated tokens, if a server reports it without their ids; None if `tokens` has them."""
    prompt_tokens: int | None = None
    """Tokens of the prompt, as the server counted those of a text; None otherwise."""
    cached_prompt_tokens: int | None = None
    """Those of the prompt's tokens that the backend took from its cache; None if it does not report them."""
    reasoning_tokens: int | None = None
    """Those of the generated tokens that were reasoning; None if the backend does not report them."""
    top_tokens: np.ndarray | None = dataclasses.field(default=None, compare=False)
    """The likeliest tokens in place of each generated one, int32 of shape (tokens, k), by falling log-probability and
    then by id; None if none were requested. -1 where a server names fewer."""
    top_logprobs: np.ndarray | None = dataclasses.field(default=None, compare=False)
    """Their log-probabilities, float64 of the same shape, nats, under the unmodified distribution. -inf beside -1."""
    reasoning: str = ""
    """The reasoning, without tags: of the text, and what the model's server returned apart from the text. Of
    a backend: only the latter."""
    refusal: str = ""
    """The refusal that the server returned in place of an answer; empty if there is none."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls of tools: those that the server returned; of a model whose prompt the worker makes, those in the text of an
    answer to a conversation with tools."""
    unparsed_tool_calls: tuple[UnparsedToolCall, ...] = ()
    """Those that cannot be parsed."""

    @property
    def output_tokens(self) -> int | None:
        """Generated tokens; None if there is text, and neither they nor their number is reported."""
        if self.token_count is not None:
            return self.token_count
        return None if self.text and not self.tokens else len(self.tokens)
