"""What vLLM and SGLang differ in: their command lines, how weights are loaded in place, and what they report of them.

| | vLLM | SGLang |
|---|---|---|
| a checkpoint | POST /collective_rpc `reload_weights`, /reset_prefix_cache | POST /update_weights_from_disk |
| an adapter | POST /v1/load_lora_adapter, /v1/unload_lora_adapter | POST /load_lora_adapter, /unload_lora_adapter |
| it reports | GET /v1/models: adapters with their paths | GET /model_info: weight_version, model_path |

Sources: vllm/entrypoints/serve (lora, dev/rpc, dev/cache) and vllm/v1/worker/gpu_worker.py; SGLang's
sglang/srt/entrypoints/http_server.py and managers/io_struct.py.
"""

from __future__ import annotations

import abc
import json
from collections.abc import Mapping
from typing import Any, ClassVar

from crucible_worker.backends.managed.control import ControlClient, ControlReply
from crucible_worker.backends.managed.settings import ProgramName
from crucible_worker.backends.managed.target import Target

__all__ = ["PROGRAMS", "SERVED_NAME", "NotLoaded", "Program", "refuse_report"]

SERVED_NAME = "crucible"
"""Name of the model at its server: it stays when other weights are loaded."""
_MAX_CHARS = 300
"""Most characters of a server's answer in an error."""


class NotLoaded(Exception):
    """Raised when a server did not load what it was to load; the text says why. What it has now is not known."""


class Program(abc.ABC):
    """A program that serves models."""

    command: ClassVar[tuple[str, ...]]
    """Its command line, with placeholders."""
    sampling_option: ClassVar[tuple[str, str]]
    """The option, and its value, by which it takes no sampling parameters from the model's generation_config.json."""
    adapter_arguments: ClassVar[tuple[str, ...]]
    """Further arguments if it is to load adapters."""
    environment: ClassVar[Mapping[str, str]] = {}
    """Variables that its endpoints need."""

    @abc.abstractmethod
    def name_of(self, adapter: str | None) -> str:
        """The model that requests name, given the adapter's name."""

    @abc.abstractmethod
    async def started(self, control: ControlClient, target: Target) -> None:
        """Let a server that has started with a checkpoint report its version, if it can.

        Raises:
            NotLoaded: it refuses.
            NoAnswer: nothing answers.
        """

    @abc.abstractmethod
    async def load(self, control: ControlClient, target: Target) -> None:
        """Load the weights of another checkpoint of the same form. No request is under way.

        Raises:
            NotLoaded: it refuses or fails.
            NoAnswer: nothing answers.
        """

    @abc.abstractmethod
    async def load_adapter(self, control: ControlClient, name: str, path: str) -> None:
        """Load an adapter under a new name; raises as `load`."""

    @abc.abstractmethod
    async def unload_adapter(self, control: ControlClient, name: str) -> None:
        """Unload an adapter; raises as `load`."""

    @abc.abstractmethod
    def disagrees(self, reported: Mapping[str, Any], target: Target) -> str:
        """How a report differs from that of a server with this checkpoint; empty if it does not, or says nothing."""

    @abc.abstractmethod
    async def reported(self, control: ControlClient) -> Mapping[str, Any]:
        """What the server reports of its weights and adapters, for a comparison.

        Raises:
            NoAnswer: nothing answers.
        """


class _Vllm(Program):
    command = (
        "vllm",
        "serve",
        "{model}",
        "--host=127.0.0.1",
        "--port={port}",
        "--served-model-name={name}",
        "--tensor-parallel-size={gpus}",
        "--disable-uvicorn-access-log",
    )
    # The tokens that end a text are still those of the file.
    sampling_option = ("--generation-config", "vllm")
    adapter_arguments = ("--enable-lora", "--max-lora-rank=64")
    environment: ClassVar[Mapping[str, str]] = {
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
        "VLLM_SERVER_DEV_MODE": "1",  # has /collective_rpc and /reset_prefix_cache
    }

    def name_of(self, adapter: str | None) -> str:
        return adapter or SERVED_NAME

    async def started(self, control: ControlClient, target: Target) -> None:
        """It reports no version of its weights."""

    async def load(self, control: ControlClient, target: Target) -> None:
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(target.checkpoint.directory)}}
        _done(await control.post("/collective_rpc", body, control.slow_seconds), "reload_weights")
        # Keys and values of prompts were computed with the former weights.
        _done(await control.post("/reset_prefix_cache", {}), "reset_prefix_cache")

    async def load_adapter(self, control: ControlClient, name: str, path: str) -> None:
        body = {"lora_name": name, "lora_path": path}
        _done(await control.post("/v1/load_lora_adapter", body, control.slow_seconds), "load_lora_adapter")

    async def unload_adapter(self, control: ControlClient, name: str) -> None:
        _done(await control.post("/v1/unload_lora_adapter", {"lora_name": name}), "unload_lora_adapter")

    def disagrees(self, reported: Mapping[str, Any], target: Target) -> str:
        name, adapters = target.adapter_name, reported["adapters"]
        if name is None or any(adapter.startswith(f"{name} of ") for adapter in adapters):
            return ""
        return f"lists no adapter {name}"

    async def reported(self, control: ControlClient) -> Mapping[str, Any]:
        listed = (await control.get("/v1/models")).document.get("data")
        entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
        # The root of the model itself is what it was started with, whatever was loaded since.
        return {
            "adapters": sorted(
                f"{entry.get('id')} of {entry.get('root')}" for entry in entries if entry.get("parent") is not None
            )
        }


class _Sglang(Program):
    command = (
        "python",
        "-m",
        "sglang.launch_server",
        "--model-path={model}",
        "--host=127.0.0.1",
        "--port={port}",
        "--served-model-name={name}",
        "--tp-size={gpus}",
        "--log-level-http=warning",
    )
    sampling_option = ("--sampling-defaults", "openai")
    adapter_arguments = ("--enable-lora", "--max-lora-rank=64", "--lora-target-modules", "all")

    def name_of(self, adapter: str | None) -> str:
        return SERVED_NAME if adapter is None else f"{SERVED_NAME}:{adapter}"

    async def started(self, control: ControlClient, target: Target) -> None:
        body = {"new_version": target.version, "abort_all_requests": False}
        _succeeded(await control.post("/update_weight_version", body), "update_weight_version")

    async def load(self, control: ControlClient, target: Target) -> None:
        body = {
            "model_path": str(target.checkpoint.directory),
            "weight_version": target.version,
            "abort_all_requests": False,
        }
        answer = await control.post("/update_weights_from_disk", body, control.slow_seconds)
        _succeeded(answer, "update_weights_from_disk")

    async def load_adapter(self, control: ControlClient, name: str, path: str) -> None:
        body = {"lora_name": name, "lora_path": path}
        _succeeded(await control.post("/load_lora_adapter", body, control.slow_seconds), "load_lora_adapter")

    async def unload_adapter(self, control: ControlClient, name: str) -> None:
        answer = await control.post("/unload_lora_adapter", {"lora_name": name}, control.slow_seconds)
        _succeeded(answer, "unload_lora_adapter")

    def disagrees(self, reported: Mapping[str, Any], target: Target) -> str:
        version = reported.get("weight_version", target.version)
        return "" if version == target.version else f"has weight_version {version!r}, not {target.version!r}"

    async def reported(self, control: ControlClient) -> Mapping[str, Any]:
        told: dict[str, Any] = {}
        # Each has been deprecated in favor of another one: versions have the first, the second, or both.
        for path in ("/model_info", "/get_model_info"):
            answer = await control.get(path)
            if answer.ok:
                told = answer.document
                break
        return {key: told[key] for key in ("weight_version", "model_path") if key in told}


def refuse_report(program: Program, reported: Mapping[str, Any], target: Target) -> None:
    """Refuse a server that reports something else than what it has just loaded.

    Raises:
        NotLoaded: it does.
    """
    if why := program.disagrees(reported, target):
        raise NotLoaded(f"reports success, and {why}")


PROGRAMS: Mapping[ProgramName, Program] = {"vllm": _Vllm(), "sglang": _Sglang()}


def _done(answer: ControlReply, what: str) -> None:
    if not answer.ok:
        raise NotLoaded(f"{what} was answered with {answer.status}: {_shown(answer)}")


def _succeeded(answer: ControlReply, what: str) -> None:
    """SGLang reports a failure in the body, with status 400."""
    _done(answer, what)
    if answer.document.get("success") is not True:
        raise NotLoaded(f"{what} failed: {_shown(answer)}")


def _shown(answer: ControlReply) -> str:
    document = answer.document
    error = document.get("error")
    message = error.get("message") if isinstance(error, dict) else document.get("message")
    message = message or document.get("error_message") or answer.text
    return " ".join(str(message if isinstance(message, str) else json.dumps(message)).split())[:_MAX_CHARS]
