"""The paths of held checkpoints: a followed directory's checkpoints have a second path while they are read.

runs/sums/step-600                     the trainer's own path, which users see
runs/sums/.crucible/RUN/step-600       the held path, which goes away when the checkpoint is released
"""

from __future__ import annotations

import dataclasses
from pathlib import PurePath

from crucible_bridge.types import HubModel, LocalModel, ModelRef, format_model
from crucible_worker.util.managed_refs import as_managed

__all__ = ["HOLD_FOLDER", "format_own_model", "own_model", "own_path"]

HOLD_FOLDER = ".crucible"
"""Name of the folder in which the checkpoints of a followed directory are held while they are read."""


def own_path(path: str) -> str:
    """The path at which the trainer saved a checkpoint; any other path than a held one is returned as it is."""
    parts = PurePath(path).parts
    if len(parts) < 3 or parts[-3] != HOLD_FOLDER:
        return path
    return str(PurePath(*parts[:-3], parts[-1]))


def own_model(model: ModelRef) -> ModelRef:
    """A model with the trainer's own path in place of a held one, of its adapter too."""
    if (managed := as_managed(model)) is not None:
        adapter = None if managed.adapter is None else own_path(managed.adapter)
        return dataclasses.replace(managed, path=own_path(managed.path), adapter=adapter).to_model()
    if not isinstance(model, LocalModel | HubModel):
        return model
    if model.adapter_path is not None:
        model = dataclasses.replace(model, adapter_path=own_path(model.adapter_path))
    return dataclasses.replace(model, path=own_path(model.path)) if isinstance(model, LocalModel) else model


def format_own_model(model: ModelRef) -> str:
    """A model as people read it: `own_model` as text."""
    return format_model(own_model(model))
