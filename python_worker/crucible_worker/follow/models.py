"""The model that a checkpoint is: its directory, or the adapter in it on the model that it belongs to."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from crucible_bridge.types import HubModel, LocalModel, format_model, parse_model
from crucible_bridge.types.hub import REPO_ID
from crucible_worker.backends.local.paths import ADAPTER_CONFIG

__all__ = ["NoBaseModel", "model_of"]

MAX_CONFIG_BYTES = 1 << 20
"""Largest adapter_config.json that is read."""


class NoBaseModel(Exception):
    """The model of an adapter is not known; the text says why."""


def model_of(path: Path, *, adapter: bool, base_model: str) -> str:
    """The model as text, as `parse_model` reads it. Reads a file.

    Args:
        path: the absolute path of the checkpoint's directory.
        adapter: whether it is an adapter.
        base_model: the model of adapters; if empty, the one that the adapter's configuration names.

    Raises:
        NoBaseModel: it is an adapter, and its model is not known, or takes no adapter.
    """
    if not adapter:
        return format_model(LocalModel(str(path)))
    base = parse_model(base_model) if base_model else _named_by(path)
    if not isinstance(base, LocalModel | HubModel):
        raise NoBaseModel(f"the base model {base_model!r} is neither local: nor hub:, and takes no adapter")
    return format_model(dataclasses.replace(base, adapter_path=str(path)))


def _named_by(path: Path) -> LocalModel | HubModel:
    cure = "name its model by --base-model (base_model of FollowRun)"
    try:
        with (path / ADAPTER_CONFIG).open("rb") as file:
            config = json.loads(file.read(MAX_CONFIG_BYTES))
        name = config["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise NoBaseModel(f"{ADAPTER_CONFIG} names no base model ({type(error).__name__}): {cure}") from None
    if not isinstance(name, str) or not name or "\0" in name:
        raise NoBaseModel(f"{ADAPTER_CONFIG} names no base model: {cure}")
    if REPO_ID.fullmatch(name) and "/" in name and ".." not in name:
        return HubModel(name)
    return LocalModel(name)
