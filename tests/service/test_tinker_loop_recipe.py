"""The evaluator that docs/from_tinker_cookbook.md gives to loops of the cookbook, on the scripted service."""

from __future__ import annotations

import contextlib
import re
import types
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.types import EvaluationState, TinkerModel
from tests import needs
from tests.service.plans_kit import plan
from tests.service.tinker_kit import ScriptedLibrary, worker_on

PAGE = Path(__file__).parents[2] / "docs" / "from_tinker_cookbook.md"

pytestmark = needs.installed("tinker_cookbook")


class Training:
    """Stands for `tinker.TrainingClient`: saves weights under the name that it is given."""

    def __init__(self, library: ScriptedLibrary) -> None:
        self._library = library

    def save_weights_for_sampler(self, name: str) -> Any:
        saved = types.SimpleNamespace(path=f"tinker://run/sampler_weights/{name}")
        return self._library.begin("save", lambda: saved, name=name)


async def test_a_loop_reports_its_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As a loop calls it: at step 0, and every so many steps; each path is evaluated at its step."""
    (block,) = [
        text
        for text in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
        if "evaluator_builders" in text
    ]
    names: dict[str, Any] = {}
    exec(compile(block, str(PAGE), "exec"), names)
    library = ScriptedLibrary()
    async with worker_on(library, tmp_path) as bridge:
        await bridge.evaluation.register_plan(
            plan(plan_id="run-8", run_id="run-8", eval_every=100, infrequent_evaluations=(), infrequent_eval_every=0)
        )
        addresses: list[str] = []

        @contextlib.asynccontextmanager
        async def connect(address: str) -> AsyncIterator[Bridge]:
            addresses.append(address)
            yield bridge

        monkeypatch.setattr(crucible_bridge, "connect", connect)
        (builder,) = names["evaluator_builders"]
        evaluator = builder()
        assert [await evaluator(Training(library)) for _ in range(2)] == [{}, {}]
        found = {}
        for evaluation_id in ("run-8-step-0-0", "run-8-step-100-0"):
            async with bridge.evaluation.watch_evaluation(evaluation_id) as stream:
                async for _ in stream:
                    pass
            evaluation = await bridge.evaluation.get_evaluation(evaluation_id)
            assert evaluation.state is EvaluationState.COMPLETED
            found[evaluation.request.step] = evaluation.request.model

    assert addresses == ["127.0.0.1:50051"] * 2
    assert found == {step: TinkerModel(model_path=f"tinker://run/sampler_weights/run-8-{step}") for step in (0, 100)}
