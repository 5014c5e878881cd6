"""The model that a checkpoint is: its directory, or the adapter in it on the model that it belongs to."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from crucible_bridge.types import HubModel, LocalModel, ModelRef, format_model, parse_model
from crucible_bridge.types.hub import REPO_ID
from crucible_worker.backends.local.paths import ADAPTER_CONFIG
from crucible_worker.util.model_refs import ManagedRef, as_managed

__all__ = ["NoBaseModel", "model_of", "takes_adapter"]

MAX_CONFIG_BYTES = 1 << 20
"""Largest adapter_config.json that is read."""


class NoBaseModel(Exception):
    """The model of an adapter is not known; the text says why."""


def takes_adapter(model: ModelRef) -> bool:
    """Whether a model can be the one of adapters."""
    managed = as_managed(model)
    if managed is not None:
        return managed.adapter is None
    return isinstance(model, LocalModel | HubModel) and model.adapter_path is None


def model_of(path: Path, *, adapter: bool, base_model: str) -> str:
    """The model as text, as `parse_model` reads it. Reads a file.

    Args:
        path: the absolute path of the checkpoint's directory.
        adapter: whether it is an adapter.
        base_model: the model of adapters; if empty, the one that the adapter's configuration names. A managed server,
            "managed:vllm", serves whole checkpoints, too.

    Raises:
        NoBaseModel: it is an adapter, and its model is not known, or takes no adapter.
    """
    given = parse_model(base_model) if base_model else None
    server = None if given is None else as_managed(given)
    if server is not None:
        return format_model(_managed(path, server, adapter=adapter).to_model())
    if not adapter:
        return format_model(LocalModel(str(path)))
    base = given or _named_by(path)
    if not isinstance(base, LocalModel | HubModel):
        raise NoBaseModel(f"the base model {base_model!r} is neither local:, hub: nor managed:, and takes no adapter")
    return format_model(dataclasses.replace(base, adapter_path=str(path)))


def _managed(path: Path, server: ManagedRef, *, adapter: bool) -> ManagedRef:
    """The checkpoint at a managed server.

    Raises:
        NoBaseModel: it is an adapter, and its model is not known, or is no folder.
    """
    if not adapter:
        return dataclasses.replace(server, path=str(path))
    if not server.path:
        named = _named_by(path)
        if not isinstance(named, LocalModel):
            raise NoBaseModel(
                f"the base model {format_model(named)!r} is no folder, as a managed server needs: name one by "
                f"--base-model managed:{server.server}/PATH (base_model of FollowRun)"
            )
        server = dataclasses.replace(server, path=named.path)
    return dataclasses.replace(server, adapter=str(path))


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
