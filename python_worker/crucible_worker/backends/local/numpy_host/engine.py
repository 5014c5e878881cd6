"""The embedded models of the host: their network, their tokenizer, and the thread that computes them."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition, InternalError
from crucible_bridge.reasons import Reason
from crucible_worker.backends.distributions import NO_TOKEN
from crucible_worker.backends.local.protocol import floats_to_bytes, tokens_from_bytes, tokens_to_bytes

__all__ = ["Characters", "Network", "NumpyEngine", "generate", "likeliest", "normalized"]

# The network of an embedded model: Llama's, as its config.json describes it, in float32.

_DTYPES = {"F16": "<f2", "F32": "<f4"}
_LAYER = "model.layers.{}.{}.weight"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Layer:
    """Weights of one layer, each ready to be multiplied from the right."""

    attention_norm: np.ndarray
    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    output: np.ndarray
    mlp_norm: np.ndarray
    gate: np.ndarray
    up: np.ndarray
    down: np.ndarray


class Network:
    """Computes logits. Its sequences are so short that each pass reads all of one."""

    def __init__(self, directory: Path) -> None:
        """Load the weights of a checkpoint that ships with the worker.

        Raises:
            FailedPrecondition: the file does not have exactly the weights that config.json describes (MODEL_REFUSED).
        """
        config: dict[str, Any] = json.loads((directory / "config.json").read_bytes())
        weights = _read(directory / "model.safetensors")
        _check(directory, config, weights)
        self.vocabulary: int = config["vocab_size"]
        """Size of the vocabulary."""
        self.context: int = config["max_position_embeddings"]
        """Context length in tokens."""
        self.stop_tokens = frozenset({config["eos_token_id"]})
        """Tokens that end a text."""
        self._heads: int = config["num_attention_heads"]
        self._epsilon = np.float32(config["rms_norm_eps"])
        self._embedding = weights["model.embed_tokens.weight"]
        self._norm = weights["model.norm.weight"]
        self._layers = [_layer(weights, index) for index in range(config["num_hidden_layers"])]
        angles = _angles(self.context, config["head_dim"], config["rope_parameters"]["rope_theta"])
        self._cosines, self._sines = np.cos(angles), np.sin(angles)

    def logits(self, tokens: np.ndarray) -> np.ndarray:
        """Logits after each token of a sequence, shape (n, vocabulary), float32.

        Args:
            tokens: shape (n,), n at least 1 and at most the context.
        """
        hidden = self._embedding[tokens]
        for layer in self._layers:
            hidden = hidden + self._attended(layer, self._normed(hidden, layer.attention_norm))
            hidden = hidden + _mlp(layer, self._normed(hidden, layer.mlp_norm))
        return self._normed(hidden, self._norm) @ self._embedding.T

    def _normed(self, hidden: np.ndarray, weight: np.ndarray) -> np.ndarray:
        variance = np.mean(np.square(hidden), axis=-1, keepdims=True)
        return weight * (hidden / np.sqrt(variance + self._epsilon))

    def _attended(self, layer: _Layer, hidden: np.ndarray) -> np.ndarray:
        count = len(hidden)
        query, key = (self._turned(self._by_head(hidden @ weight)) for weight in (layer.query, layer.key))
        scores = query @ key.transpose(0, 2, 1) / np.float32(np.sqrt(query.shape[-1]))
        scores += np.triu(np.full((count, count), -np.inf, np.float32), 1)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares = scores / scores.sum(axis=-1, keepdims=True)
        mixed = shares @ self._by_head(hidden @ layer.value)
        return mixed.transpose(1, 0, 2).reshape(count, -1) @ layer.output

    def _by_head(self, hidden: np.ndarray) -> np.ndarray:
        """Shape (heads, n, d)."""
        return hidden.reshape(len(hidden), self._heads, -1).transpose(1, 0, 2)

    def _turned(self, hidden: np.ndarray) -> np.ndarray:
        """With the rotary position embedding."""
        half = hidden.shape[-1] // 2
        count = hidden.shape[1]
        rotated = np.concatenate([-hidden[..., half:], hidden[..., :half]], axis=-1)
        return hidden * self._cosines[:count] + rotated * self._sines[:count]


def _check(directory: Path, config: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> None:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    layer = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    described = {"model.embed_tokens.weight": (config["vocab_size"], hidden), "model.norm.weight": (hidden,)} | {
        _LAYER.format(index, name): shape
        for index in range(config["num_hidden_layers"])
        for name, shape in layer.items()
    }
    there = {name: values.shape for name, values in weights.items()}
    if other := sorted(name for name, _ in described.items() ^ there.items()):
        raise FailedPrecondition(
            f"{directory.name!r} does not have the weights of its configuration: see {other[0][:100]}",
            reason=Reason.MODEL_REFUSED,
        )


def _mlp(layer: _Layer, hidden: np.ndarray) -> np.ndarray:
    gate = hidden @ layer.gate
    return (gate / (1 + np.exp(-gate)) * (hidden @ layer.up)) @ layer.down


def _layer(weights: Mapping[str, np.ndarray], index: int) -> _Layer:
    def turned(name: str) -> np.ndarray:
        return np.ascontiguousarray(weights[_LAYER.format(index, name)].T)

    return _Layer(
        attention_norm=weights[_LAYER.format(index, "input_layernorm")],
        query=turned("self_attn.q_proj"),
        key=turned("self_attn.k_proj"),
        value=turned("self_attn.v_proj"),
        output=turned("self_attn.o_proj"),
        mlp_norm=weights[_LAYER.format(index, "post_attention_layernorm")],
        gate=turned("mlp.gate_proj"),
        up=turned("mlp.up_proj"),
        down=turned("mlp.down_proj"),
    )


def _angles(positions: int, width: int, theta: float) -> np.ndarray:
    """Angles of the rotary position embedding, shape (positions, width), float32."""
    frequencies = 1.0 / theta ** (np.arange(0, width, 2) / width)
    angles = np.outer(np.arange(positions), frequencies)
    return np.concatenate([angles, angles], axis=1).astype(np.float32)


def _read(path: Path) -> Mapping[str, np.ndarray]:
    """The tensors of a safetensors file, float32: the length of a header, the header as JSON, their bytes."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    tensors: dict[str, np.ndarray] = {}
    for name, about in header.items():
        start, end = about["data_offsets"]
        values = np.frombuffer(data[8 + size + start : 8 + size + end], _DTYPES[about["dtype"]])
        tensors[name] = values.reshape(about["shape"]).astype(np.float32)
    return tensors


# The tokenizer of an embedded model: a token is a character, or a special token by its name.


class Characters:
    """Text to tokens and back, as tokenizer.json describes it."""

    def __init__(self, directory: Path) -> None:
        """Read the tokenizer of a checkpoint that ships with the worker."""
        read: dict[str, Any] = json.loads((directory / "tokenizer.json").read_bytes())
        self._vocabulary: dict[str, int] = read["model"]["vocab"]
        self._unknown = self._vocabulary[read["model"]["unk_token"]]
        self._special = {token["content"]: token["id"] for token in read["added_tokens"]}
        self._texts = {token: text for text, token in self._vocabulary.items()}
        self._pieces = re.compile("|".join([*map(re.escape, self._special), "."]), re.DOTALL)
        self.end: int = self._vocabulary[json.loads((directory / "tokenizer_config.json").read_bytes())["eos_token"]]
        """The end-of-sequence token."""

    def encode(self, text: str, *, named: bool) -> list[int]:
        """Tokens of a text; the name of a special token is this token if `named`, and text otherwise."""
        pieces = self._pieces.findall(text) if named else text
        return [self._vocabulary.get(piece, self._unknown) for piece in pieces]

    def decode(self, tokens: Iterable[int], *, special: bool) -> str:
        """The text of tokens, with the special ones if `special`."""
        hidden = () if special else self._special.values()
        return "".join(self._texts.get(token, "") for token in tokens if token not in hidden)

    def special_among(self, texts: Sequence[str]) -> frozenset[int]:
        """The special tokens that these texts name."""
        return frozenset(self._special[text] for text in texts if text in self._special)


def normalized(logits: np.ndarray) -> np.ndarray:
    """Log-probabilities of logits along the last axis, float64."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def likeliest(logprobs: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The likeliest tokens along the last axis, and their log-probabilities; among equal ones the lowest ids first."""
    tokens = np.argsort(-logprobs, axis=-1, kind="stable")[..., :count]
    return tokens, np.take_along_axis(logprobs, tokens, axis=-1)


# A sample is generated token by token as in `host.sampling`: the same random numbers choose the same tokens.


def generate(
    network: Network, characters: Characters, prompt: np.ndarray, asked: dict[str, Any], index: int
) -> dict[str, Any]:
    """One of several samples of a prompt.

    Args:
        network: computes.
        characters: of the model.
        prompt: shape (n,), int64, n at least 1.
        asked: the request of the worker: max_tokens, temperature, top_p, top_k, seed, stop, top.
        index: of the sample; it draws from (seed, index).

    Returns:
        As `host.sampling` returns it.
    """
    random = np.random.default_rng([secrets.randbits(128) if asked["seed"] is None else asked["seed"], index])
    stop: list[str] = asked["stop"]
    stop_tokens = network.stop_tokens | characters.special_among(stop)
    read = prompt
    tokens: list[int] = []
    logprobs: list[float] = []
    tops: list[tuple[np.ndarray, np.ndarray]] = []
    text, reason = "", "length"
    while len(tokens) < asked["max_tokens"]:
        logits = network.logits(read)[-1]
        token = _drawn(logits, asked, random) if asked["temperature"] > 0 else int(logits.argmax())
        tokens.append(token)
        distribution = normalized(logits)
        logprobs.append(float(distribution[token]))
        if asked["top"]:
            tops.append(likeliest(distribution, asked["top"]))
        text = characters.decode(tokens, special=False)
        if token in stop_tokens or any(each in text for each in stop):
            reason = "stop"
            break
        read = np.append(read, token)
    cuts = [cut for each in stop if (cut := text.find(each)) >= 0]
    return {
        "text": text[: min(cuts, default=None)],
        "tokens": tokens,
        "logprobs": logprobs,
        "stop_reason": reason,
        "top_tokens": tokens_to_bytes(np.array([tokens for tokens, _ in tops], np.int64)),
        "top_logprobs": floats_to_bytes(np.array([values for _, values in tops], np.float64)),
    }


def _drawn(logits: np.ndarray, asked: dict[str, Any], random: np.random.Generator) -> int:
    """A token drawn after temperature, top_k and top_p, in this order."""
    # The maximum is subtracted first, so that small temperatures cannot overflow.
    scaled = (logits - logits.max()).astype(np.float64) / asked["temperature"]
    top_k, top_p = asked["top_k"], asked["top_p"]
    order = np.arange(scaled.size)
    if top_p < 1 or (top_k is not None and top_k < scaled.size):
        order = np.argsort(-scaled, kind="stable")[:top_k]
    weights = np.exp(scaled[order])
    probabilities = weights / weights.sum()
    if top_p < 1:
        before = probabilities.cumsum() - probabilities
        probabilities = probabilities * (before < top_p)
    cumulative = probabilities.cumsum()
    found = int(np.searchsorted(cumulative, cumulative[-1] * random.random(), side="right"))
    # Rounding can put the point on the total; then the last token with any mass is chosen.
    return int(order[min(found, int(probabilities.nonzero()[0][-1]))])


_log = logging.getLogger(__name__)


class _OpenNumpyModel:
    """A model in memory."""

    def __init__(self, directory: Path) -> None:
        self.network = Network(directory)
        self.characters = Characters(directory)

    def facts(self) -> dict[str, Any]:
        return {
            "context": self.network.context,
            "vocabulary": self.network.vocabulary,
            "bos": None,
            "eos": self.characters.end,
            "has_tokenizer": True,
            "tokens": self.network.vocabulary,
            "has_chat_template": False,
        }

    def answer(self, op: str, message: dict[str, Any]) -> Any:
        match op:
            case "score":
                pairs = [
                    (tokens_from_bytes(tokens), tokens_from_bytes(targets)) for tokens, targets in message["items"]
                ]
                return [floats_to_bytes(self._measured(tokens, targets)) for tokens, targets in pairs]
            case "continue":
                prompt = tokens_from_bytes(message["prompt"])
                given = map(tokens_from_bytes, message["continuations"])
                return [floats_to_bytes(self._continued(prompt, continuation)) for continuation in given]
            case "greedy":
                return [tokens_to_bytes(self._likeliest(tokens_from_bytes(tokens))) for tokens in message["items"]]
            case "distributions":
                return [self._distributions(message)]
            case "sample":
                prompt = tokens_from_bytes(message["prompt"])
                return [
                    generate(self.network, self.characters, prompt, message, index)
                    for index in range(message["num_samples"])
                ]
            case "encode":
                found = [self.characters.encode(text, named=message["named"]) for text in message["texts"]]
                return [tokens_to_bytes(np.array(tokens, np.int64)) for tokens in found]
            case "decode":
                return self.characters.decode(tokens_from_bytes(message["tokens"]).tolist(), special=message["special"])
            case "decode_all":
                sequences = [tokens_from_bytes(tokens).tolist() for tokens in message["sequences"]]
                return [self.characters.decode(tokens, special=message["special"]) for tokens in sequences]
            case "render" | "parse":
                raise FailedPrecondition(
                    "embedded models have no renderer of tinker-cookbook on a CPU: role_colon needs none, and local "
                    "models have them",
                    reason=Reason.NO_COOKBOOK_TOKENIZER,
                )
            case _:
                raise InternalError(f"the host has no operation {op!r}")

    def _likeliest(self, tokens: np.ndarray) -> np.ndarray:
        """The likeliest token after each of a sequence, which may be empty."""
        return self.network.logits(tokens).argmax(axis=1) if tokens.size else tokens

    def _measured(self, tokens: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Log-probabilities of the targets, each after its token; a sequence may be empty."""
        if not tokens.size:
            return np.empty(0)
        return normalized(self.network.logits(tokens))[np.arange(targets.size), targets]

    def _distributions(self, message: dict[str, Any]) -> dict[str, Any]:
        """As `host.scoring` returns them."""
        own = tokens_from_bytes(message["own"])
        targets = tokens_from_bytes(message["targets"]).reshape(own.size, -1)
        distribution = normalized(self.network.logits(tokens_from_bytes(message["tokens"]))[-own.size :])
        top_tokens, top_logprobs = likeliest(distribution, message["top_k"])
        given = np.take_along_axis(distribution, np.maximum(targets, 0), axis=1)
        return {
            "logprobs": floats_to_bytes(distribution[np.arange(own.size), own]),
            "targets": floats_to_bytes(np.where(targets == NO_TOKEN, np.nan, given)),
            "top_tokens": tokens_to_bytes(top_tokens),
            "top_logprobs": floats_to_bytes(top_logprobs),
        }

    def _continued(self, prompt: np.ndarray, continuation: np.ndarray) -> np.ndarray:
        whole = np.concatenate([prompt, continuation])
        return self._measured(whole[:-1], whole[1:])[prompt.size - 1 :]


class NumpyEngine:
    """Accepts requests from the pipe's thread, and answers them in order from the thread that computes.

    Args:
        answer: sends a result or an error; called from both threads.
    """

    def __init__(self, answer: Callable[[int, Any], None]) -> None:
        self._answer = answer
        self._models: dict[str, _OpenNumpyModel] = {}
        self._waiting: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self._changed = threading.Condition()

    def submit(self, message: dict[str, Any]) -> None:
        """Accept a request; it is answered unless it is aborted."""
        identity = message["id"]
        match message["op"]:
            case "ping":
                self._answer(identity, None)
            case "abort":
                with self._changed:
                    self._waiting.pop(identity, None)
            case _:
                with self._changed:
                    self._waiting[identity] = message
                    self._changed.notify()

    def run(self) -> None:
        """Compute, for ever."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                identity, message = self._waiting.popitem(last=False)
            try:
                result = self._result(message)
            except BridgeError as error:
                result = error
            except Exception as error:  # any error is an answer; the host continues
                _log.exception("a request failed")
                result = BackendError(
                    f"the model failed: {type(error).__name__}", reason=Reason.MODEL_FAILED, retryable=False
                )
            self._answer(identity, result)

    def _result(self, message: dict[str, Any]) -> Any:
        match message["op"]:
            case "open":
                key = message["key"]
                if key not in self._models:
                    self._models[key] = _OpenNumpyModel(Path(message["path"]))
                return {"key": key, **self._models[key].facts()}
            case "close":
                self._models.pop(message["model"], None)
                return None
            case op:
                opened = self._models.get(message["model"])
                if opened is None:
                    raise FailedPrecondition("the model is not open", reason=Reason.MODEL_NOT_OPEN)
                return opened.answer(op, message)
