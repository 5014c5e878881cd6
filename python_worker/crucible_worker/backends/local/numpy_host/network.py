"""The network of an embedded model: Llama's, as its config.json describes it, in float32."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason

__all__ = ["Network"]

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
