"""References to models, and sampling parameters, <-> v1."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.message import Message

from crucible_bridge.codec.fields import at_most_bytes, child
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    EmbeddedModel,
    HubModel,
    InstalledModel,
    LocalModel,
    ModelRef,
    OpenAIModel,
    OrchestratorModel,
    TinkerModel,
    bounds,
)
from crucible_bridge.v1 import types_pb2

__all__ = ["MAX_MODEL_NAME_BYTES", "model_ref_from_v1", "model_ref_to_v1"]

MAX_MODEL_NAME_BYTES = bounds.ORCHESTRATOR_MODEL_NAME_MAX_BYTES
"""Longest name of a client-held model, in bytes of UTF-8."""

_LOADING = ("adapter_path", "device", "dtype")


def model_ref_to_v1(model: ModelRef) -> types_pb2.ModelRef:
    """Encode a reference to a model."""
    match model:
        case EmbeddedModel(name):
            return types_pb2.ModelRef(embedded=name)
        case LocalModel(path):
            local = types_pb2.LocalModel(
                path=path, adapter_path=model.adapter_path, device=model.device, dtype=model.dtype
            )
            return types_pb2.ModelRef(local=local)
        case HubModel(repo_id):
            hub = types_pb2.HubModel(
                repo_id=repo_id,
                revision=model.revision,
                adapter_path=model.adapter_path,
                device=model.device,
                dtype=model.dtype,
            )
            return types_pb2.ModelRef(hub=hub)
        case OpenAIModel(server, name):
            return types_pb2.ModelRef(openai=types_pb2.OpenAIModel(server=server, model=name))
        case TinkerModel():
            tinker = types_pb2.TinkerModel(
                model_path=model.model_path,
                state_path=model.state_path,
                base_model=model.base_model,
                service=model.service,
            )
            return types_pb2.ModelRef(tinker=tinker)
        case OrchestratorModel(name):
            return types_pb2.ModelRef(orchestrator=types_pb2.OrchestratorModel(name=name))
        case InstalledModel(scheme, name):
            return types_pb2.ModelRef(installed=types_pb2.InstalledModel(scheme=scheme, name=name))
        case _:
            raise TypeError(f"a {type(model).__name__} is no reference to a model: use parse_model")


def model_ref_from_v1(message: types_pb2.ModelRef, field: str) -> ModelRef:
    """Decode a reference to a model; a name or path is needed."""
    match message.WhichOneof("model"):
        case "embedded":
            if not message.embedded:
                raise InvalidField(child(field, "embedded"), "is empty")
            return EmbeddedModel(message.embedded)
        case "local":
            return LocalModel(message.local.path, **_given(message.local, _LOADING)).checked(child(field, "local"))
        case "hub":
            given = _given(message.hub, ("revision", *_LOADING))
            return HubModel(message.hub.repo_id, **given).checked(child(field, "hub"))
        case "openai":
            for name in ("server", "model"):
                if not getattr(message.openai, name):
                    raise InvalidField(child(field, f"openai.{name}"), "is empty")
            if "/" in message.openai.server:  # it separates server and model in the text form
                raise InvalidField(child(field, "openai.server"), 'holds "/"')
            return OpenAIModel(message.openai.server, message.openai.model)
        case "tinker":
            given = {name.name: value for name, value in message.tinker.ListFields()}
            return TinkerModel(**given).checked(child(field, "tinker"))
        case "orchestrator":
            if not message.orchestrator.name:
                raise InvalidField(child(field, "orchestrator.name"), "is empty")
            at_most_bytes(message.orchestrator.name, MAX_MODEL_NAME_BYTES, child(field, "orchestrator.name"))
            return OrchestratorModel(message.orchestrator.name)
        case "installed":
            installed = InstalledModel(message.installed.scheme, message.installed.name)
            return installed.checked(child(field, "installed"))
        case _:
            raise InvalidField(field, "names no model")


def _given(message: Message, names: Sequence[str]) -> dict[str, str]:
    return {name: getattr(message, name) for name in names if message.HasField(name)}
