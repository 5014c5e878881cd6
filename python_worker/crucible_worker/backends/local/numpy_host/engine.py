"""The embedded models of the host, and the thread that computes them."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition, InternalError
from crucible_bridge.reasons import Reason
from crucible_worker.backends.distributions import NO_TOKEN
from crucible_worker.backends.local.arrays import floats_to_bytes, tokens_from_bytes, tokens_to_bytes
from crucible_worker.backends.local.numpy_host.characters import Characters
from crucible_worker.backends.local.numpy_host.network import Network
from crucible_worker.backends.local.numpy_host.sampling import generate, likeliest, normalized

__all__ = ["NumpyEngine"]

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
        """As `host.distributions` returns them."""
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
