"""Evaluations of checkpoints that have been written again: their numbers are those of files that are gone.

    step 500, runs/a/checkpoint-500, digest 1    superseded
    step 500, runs/a/checkpoint-500, digest 2

A trainer that starts again from an earlier checkpoint writes the later ones again, with other content. Then the earlier
numbers of these steps are in no table's best, no chart and no comparison of the run; their records stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from crucible_bridge.types import ModelRef
from crucible_worker.util.fingerprints import is_of_files, model_part, same
from crucible_worker.util.model_refs import format_own_model

__all__ = ["Written", "superseded"]


class Written(NamedTuple):
    """What an evaluation of a run has read."""

    evaluation_id: str
    """The evaluation."""
    step: int | None
    """The training step."""
    model: ModelRef
    """The checkpoint."""
    fingerprint: str
    """Its content, and that of judges; empty until it is known."""
    created_ns: int
    """When the evaluation was accepted."""


def superseded(of_run: Iterable[Written]) -> frozenset[str]:
    """The evaluations of a run whose checkpoint has other content in a later one of the same step and place."""
    places: dict[tuple[int | None, str], list[Written]] = {}
    for one in of_run:
        if is_of_files(_model_of(one)):
            places.setdefault((one.step, format_own_model(one.model)), []).append(one)
    found: set[str] = set()
    for written in places.values():
        latest = _model_of(max(written, key=lambda one: one.created_ns))
        found.update(one.evaluation_id for one in written if same(_model_of(one), latest) is False)
    return frozenset(found)


def _model_of(one: Written) -> str:
    return model_part(one.fingerprint)
