"""A task of Inspect on local data: additions, read by two scorers. `docs/inspect.md` has the line that runs it."""

from __future__ import annotations

from pathlib import Path

from inspect_ai import Task, task  # pyright: ignore[reportMissingImports]
from inspect_ai.dataset import json_dataset  # pyright: ignore[reportMissingImports]
from inspect_ai.scorer import includes, match  # pyright: ignore[reportMissingImports]
from inspect_ai.solver import generate  # pyright: ignore[reportMissingImports]

_ADDITIONS = Path(__file__).with_name("additions.jsonl")


@task
def additions() -> Task:
    """Additions of two numbers, as the embedded models write them."""
    dataset = json_dataset(str(_ADDITIONS))
    return Task(dataset=dataset, solver=generate(), scorer=[match(numeric=True), includes()])
