"""The embedded models of the host with their tokenizer, and the thread that computes them."""

from __future__ import annotations

import json
import logging
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition, InternalError
from crucible_bridge.reasons import Reason
from crucible_worker.backends.distributions import NO_TOKEN
from crucible_worker.backends.local.arrays import floats_to_bytes, tokens_from_bytes, tokens_to_bytes
from crucible_worker.backends.local.numpy_host.network import Network

__all__ = ["Characters", "NumpyEngine", "generate", "likeliest", "normalized"]

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
