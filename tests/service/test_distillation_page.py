"""The calls of docs/distillation.md run against a worker; its program is one of the console blocks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from tests.service.serving import serving

pytestmark = [pytest.mark.docs, pytest.mark.asyncio(loop_scope="module")]

PAGE = Path(__file__).parents[2] / "docs" / "distillation.md"
PLACE = "127.0.0.1:50051"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address(tmp_path_factory: Any) -> AsyncIterator[str]:
    """Of a worker in a process of its own."""
    async with serving(tmp_path_factory.mktemp("worker"), "") as worker:
        await worker.ready()
        yield worker.address


async def ran(heading: str, address: str) -> dict[str, Any]:
    """The names that the block under a heading leaves."""
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert PLACE in block
    names: dict[str, Any] = {}
    await asyncio.to_thread(exec, block.replace(PLACE, address), names)
    return names


async def test_several_teachers_name_four_tokens(address: str):
    """One row for each character of the sum but the first."""
    found = (await ran("Several teachers in one call", address))["found"]

    assert found.top_tokens.shape == (7, 4)


async def test_the_penalty_names_its_data_set(address: str):
    """On-policy distillation has advantages for the two tokens of the mask."""
    penalty = (await ran("On-policy distillation", address))["penalty"]

    assert penalty.metrics.values.keys() == {"teacher_kl", "teacher_kl/dataset_sums"}
    assert np.flatnonzero(penalty.advantages[0]).tolist() == [5, 6]


async def test_self_distillation_has_targets_and_advantages(address: str):
    """Each token of the answer has weights that sum to 1, and an advantage; the question has neither."""
    names = await ran("Self-distillation (SDFT)", address)
    written = names["inputs"]["mask"] > 0
    weights = names["target"].loss_fn_inputs["weights"]

    assert weights.shape == (written.size, 8)
    np.testing.assert_allclose(weights.sum(axis=1), written, rtol=1e-6)
    assert not names["penalty"].advantages[0][~written].any()
