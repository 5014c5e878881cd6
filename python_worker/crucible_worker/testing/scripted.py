"""A model that follows a script: answers, latency, failures, stalls, odd log-probabilities; it counts its calls.

It is deterministic if the script is, so that an interrupted evaluation can be compared, bit for bit, with an
uninterrupted one.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from crucible_bridge.errors import BridgeError, InvalidField, NotFound
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    BackendInfo,
    ChatMessage,
    Datum,
    EmbeddedModel,
    ModelInput,
    ModelRef,
    SampledSequence,
    SamplingParams,
    ToolSpec,
    tool_to_json,
)
from crucible_worker.backends.base import Backend, Capability, Model, Rendered, Tokenizer

__all__ = ["STALL", "Call", "ScriptedBackend", "ScriptedModel", "Stall"]

_FORWARDS = (Capability.FORWARD, Capability.PARTS)


class Stall:
    """A script returns this to leave a call without an answer."""


STALL = Stall()


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A call of a scripted model."""

    index: int
    """The number of earlier calls, of all methods."""
    method: str
    """"sample", "compute_logprobs", "compute_argmax" or "forward"."""
    text: str
    """The prompt, as text."""


def _no_fault(call: Call) -> BridgeError | Stall | None:
    return None


def _token_logprob(token: int, position: int) -> float:
    # Any fixed spread of negative numbers will do.
    return -((token * 31 + position * 17) % 97 + 1) / 16


def _mostly_right(token: int, position: int) -> int:
    # Any fixed mixture of right and wrong ones will do.
    return token if (token + position) % 3 else token + 1


@dataclasses.dataclass(kw_only=True)
class ScriptedModel(Model, Tokenizer):
    """A model with a sampling and a training side. Its tokens are the code points of its text."""

    eos_token_id = None
    bos_token_id = None
    has_chat_template = True
    """A conversation is its tools, each as JSON in a line, and its messages' text, one after the other; calls of tools
    in an answer have the form `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""
    answer: Callable[[str], str] = str.upper
    """Its answer to a prompt."""
    logprob: Callable[[int, int], float] = _token_logprob
    """Log-probability of a token at a position, nats; need not be finite."""
    likeliest: Callable[[int, int], int] = _mostly_right
    """Likeliest token in place of this token at this position of a prompt."""
    fault: Callable[[Call], BridgeError | Stall | None] = _no_fault
    """The fault of a call: an error to raise, STALL, or None."""
    latency: float = 0.0
    """Seconds that each call takes."""
    context_length: int | None = None
    """Longest prompt, in tokens; unbounded if None."""
    fingerprint: str = "scripted"
    """Its fingerprint."""
    sampled: bool = True
    """Whether it has a sampling side."""
    trained: bool = True
    """Whether it has a training side."""
    call_file: Path | None = None
    """A file that gets a line for every call, and outlives the process: `sample<TAB>prompt`."""
    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    """Calls by method; also "in_flight", "peak" (most at once) and "finished"."""
    calls: int = 0
    """Calls so far."""
    loads: int = 0
    """How often it was loaded."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The capabilities that its class defines, for the sides that it has."""
        if self.sampled and self.trained:
            return self._defined
        return frozenset(
            question for question in self._defined if (self.trained if question in _FORWARDS else self.sampled)
        )

    @property
    def tokenizer(self) -> ScriptedModel:  # pyright: ignore[reportIncompatibleVariableOverride] (read only)
        """Its tokenizer."""
        return self

    async def load(self) -> None:
        """Count that."""
        self.loads += 1

    async def encode(self, text: str) -> Sequence[int]:
        """Its code points."""
        return [ord(character) for character in text]

    async def encode_continuation(self, text: str) -> Sequence[int]:
        """Its code points."""
        return await self.encode(text)

    async def encode_chat(self, messages: Sequence[ChatMessage], *, generation_prompt: bool) -> Sequence[int]:
        """The code points of all contents."""
        return await self.encode("".join(message.content for message in messages))

    async def render_chat(
        self, messages: Sequence[ChatMessage], *, generation_prompt: bool, tools: Sequence[ToolSpec] = ()
    ) -> Rendered:
        """The code points of the tools, each as JSON in a line, and of all contents."""
        tokens = await self.encode_chat(messages, generation_prompt=generation_prompt)
        if not tools:
            return Rendered(tokens=tokens)
        listed = "".join(f"{json.dumps(tool_to_json(tool))}\n" for tool in tools)
        return Rendered(tokens=[*await self.encode(listed), *tokens])

    async def sample(
        self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1
    ) -> Sequence[SampledSequence]:
        """Answer as the script says, truncated at `max_tokens`."""
        text = await self._called("sample", prompt)
        answer = self.answer(text)
        cut = answer[: params.max_tokens]
        tokens = tuple(ord(character) for character in cut)
        sequence = SampledSequence(
            text=cut,
            tokens=tokens,
            logprobs=tuple(self.logprob(token, index) for index, token in enumerate(tokens)),
            stop_reason="stop" if cut == answer else "length",
        )
        return [sequence] * num_samples

    async def compute_logprobs(self, prompt: ModelInput) -> Sequence[float | None]:
        """The script's log-probabilities; the first is None."""
        await self._called("compute_logprobs", prompt)
        tokens = prompt.tokens().tolist()
        return [None, *(self.logprob(token, index) for index, token in enumerate(tokens[1:]))]

    async def compute_argmax(self, prompt: ModelInput) -> Sequence[int | None]:
        """The script's likeliest tokens; the first is None."""
        await self._called("compute_argmax", prompt)
        tokens = prompt.tokens().tolist()
        return [None, *(self.likeliest(token, index) for index, token in enumerate(tokens[1:]))]

    async def decode(self, tokens: Sequence[int]) -> str:
        """The characters of code points."""
        return "".join(map(chr, tokens))

    async def show(self, tokens: Sequence[int]) -> str:
        """The characters of code points."""
        return await self.decode(tokens)

    async def forward(self, data: Sequence[Datum]) -> Sequence[np.ndarray]:
        """The script's log-probabilities of the targets."""
        results: list[np.ndarray] = []
        for datum in data:
            await self._called("forward", datum.model_input)
            targets = np.asarray(datum.loss_fn_inputs["target_tokens"]).tolist()
            results.append(np.array([self.logprob(token, index) for index, token in enumerate(targets)]))
        return results

    async def _called(self, method: str, prompt: ModelInput) -> str:
        text = "".join(map(chr, prompt.tokens().tolist()))
        call = Call(self.calls, method, text)
        self.calls += 1
        self.counts[method] += 1
        if self.call_file is not None:
            _append_line(self.call_file, f"{method}\t{text}")
        if self.context_length is not None and len(text) > self.context_length:
            raise InvalidField(
                "prompt",
                f"has {len(text)} tokens, the context holds {self.context_length}",
                reason=Reason.PROMPT_TOO_LONG,
            )
        self.counts["in_flight"] += 1
        self.counts["peak"] = max(self.counts["peak"], self.counts["in_flight"])
        try:
            fault = self.fault(call)
            if isinstance(fault, Stall):
                await asyncio.get_running_loop().create_future()
            await asyncio.sleep(self.latency)
            if isinstance(fault, BridgeError):
                raise fault
        finally:
            self.counts["in_flight"] -= 1
        self.counts["finished"] += 1
        return text


class ScriptedBackend(Backend):
    """Opens a test's models under names of embedded models."""

    def __init__(self, models: Mapping[str, Model]) -> None:
        """Take models by name: "embedded:<name>" opens them."""
        self._models = dict(models)

    def info(self) -> BackendInfo:
        """The models of this backend."""
        return BackendInfo(name="scripted", models=tuple(self._models))

    async def open(self, model: ModelRef) -> Model:
        """Find a model by its name.

        Raises:
            NotFound: there is none of that name.
        """
        if not isinstance(model, EmbeddedModel) or model.name not in self._models:
            raise NotFound(f"is {model}, no scripted model", reason=Reason.UNKNOWN_MODEL, field="model")
        return self._models[model.name]


def _append_line(path: Path, line: str) -> None:
    # A single write in append mode: lines of several processes do not mix, and a SIGKILL loses none.
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{line}\n".encode("utf-8", "surrogatepass"))
    finally:
        os.close(file)
