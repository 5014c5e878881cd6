"""tinker-cookbook's own evaluators as installed, and scripted models behind clients of the shape that they ask."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from crucible_bridge.types import ModelInput, SamplingParams
from crucible_worker.testing import ScriptedModel
from tests import needs

_PACKAGE = "tinker_cookbook"


class CodePoints:
    """What the originals need of a tokenizer; its tokens are those of a ScriptedModel."""

    name_or_path = "code points"
    bos_token = None
    eos_token_id = None
    all_special_ids: Sequence[int] = ()

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return [ord(character) for character in text]

    def decode(self, tokens: Sequence[int], skip_special_tokens: bool = False) -> str:
        return "".join(map(chr, tokens))


class SamplingClient:
    """A scripted model as the originals sample it."""

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model

    async def sample(self, prompt: Any, num_samples: int, sampling_params: Any) -> Any:
        """One answer."""
        params = SamplingParams(max_tokens=sampling_params.max_tokens, temperature=sampling_params.temperature)
        (said,) = await self.model.sample(ModelInput.of(prompt.to_ints()), params, num_samples)
        assert said.logprobs is not None
        sequence = types.SimpleNamespace(
            tokens=list(said.tokens), logprobs=list(said.logprobs), stop_reason=said.stop_reason, sequence_id=None
        )
        return types.SimpleNamespace(sequences=[sequence], prompt_cache_hit_tokens=0)

    async def compute_logprobs(self, prompt: Any) -> Sequence[float | None]:
        """Of all tokens but the first."""
        return await self.model.compute_logprobs(ModelInput.of(prompt.to_ints()))


class TrainingClient:
    """A scripted model as the originals pass data through it."""

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model

    async def forward(self, data: Sequence[Any], loss_fn: str) -> Any:
        """The log-probabilities of every target."""
        import tinker

        assert loss_fn == "cross_entropy"
        outputs = []
        for datum in data:
            targets = datum.loss_fn_inputs["target_tokens"].data
            values = [self.model.logprob(token, index) for index, token in enumerate(targets)]
            outputs.append({"logprobs": tinker.TensorData.from_numpy(np.array(values, np.float32))})
        return types.SimpleNamespace(loss_fn_outputs=outputs)


@contextlib.contextmanager
def originals(*names: str) -> Iterator[list[Any]]:
    """Import modules of tinker-cookbook, by their names in it; afterwards nobody has seen them.

    Where blobfile is missing, with which it reads buckets, an empty module stands in for it as long.
    """
    before = _taken_out()
    stands_in = importlib.util.find_spec("blobfile") is None
    if stands_in:
        sys.modules["blobfile"] = types.ModuleType("blobfile")
    try:
        modules = [f"{_PACKAGE}.{name}" for name in names]
        missing = needs.MISSING["tinker_cookbook"]
        yield [pytest.importorskip(name, reason=missing, exc_type=ImportError) for name in modules]
    finally:
        if stands_in:
            del sys.modules["blobfile"]
        _taken_out()
        sys.modules.update(before)


def _taken_out() -> dict[str, types.ModuleType]:
    """Take every module of the package out of the loaded ones."""
    loaded = [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]
    return {name: sys.modules.pop(name) for name in loaded}
