"""Models on the worker's disk, and models that ship with it: two backends that share one host process."""

from __future__ import annotations

import asyncio
import ctypes
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import BackendInfo, EmbeddedModel, Fleet, HubModel, LocalModel, ModelRef
from crucible_worker.backends.base import Backend, BackendCheck, Tokenizer
from crucible_worker.backends.endpoints import BackendSettings
from crucible_worker.backends.local.checkpoint import Checkpoint, Fingerprints, key_of_files
from crucible_worker.backends.local.hub_cache import AT_ONCE, COMMIT, HubCache, fetch
from crucible_worker.backends.local.model import HostedModel, HostedModels, ReplicatedModels, replica_names
from crucible_worker.backends.local.paths import check_adapter, check_files, check_tokenizer_files, resolve
from crucible_worker.backends.local.process import HostProcess
from crucible_worker.backends.local.tokenizer import LoneTokenizers
from crucible_worker.embedded import registry
from crucible_worker.util.limits import WorkerLimits

__all__ = ["LocalBackend", "refuse_absent_cuda"]

# Checks whether this machine can have CUDA, before the import of PyTorch, which takes seconds.

_DRIVER = "libcuda.so.1"


def refuse_absent_cuda(device: str) -> None:
    """Refuse "cuda" and "cuda:N" if PyTorch is built without CUDA or the machine has no driver.

    Only PyTorch knows how many devices there are: the host refuses those that do not exist.

    Raises:
        FailedPrecondition: there is no CUDA here (DEVICE_NOT_FOUND).
    """
    if device.startswith("cuda") and (why := _absent()):
        raise FailedPrecondition(
            f"the device {device!r} cannot be used: {why}; without it, models compute on the CPU",
            reason=Reason.DEVICE_NOT_FOUND,
        )


def _absent() -> str:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return ""  # the missing extra is the better reason
    version = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    built_with = {name: value != "None" for name, value in re.findall(r"^(cuda|hip)\b.*= (.+)$", version, re.MULTILINE)}
    if not any(built_with.values()):
        return "the PyTorch installed here is built without CUDA"
    if built_with.get("hip"):
        return ""  # ROCm uses the same device names, with another driver
    try:
        ctypes.CDLL(_DRIVER)
    except OSError:
        return "this machine has no NVIDIA driver"
    return ""


Kind = Literal["local", "embedded"]

_HOST = "crucible_worker.backends.local.host"
_NUMPY_HOST = "crucible_worker.backends.local.numpy_host"
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Of small products several threads cost more than they save; and results do not depend on the number of cores."""
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
"""Weights and tokenizers come only from disk."""
_TRUE = ("1", "ON", "YES", "TRUE")
"""Values that the library reads as true."""


class LocalBackend(Backend):
    """Hugging Face causal language models, run by torch in a child process.

    It opens references to local models, to models of the hub, and to embedded ones. Numpy computes the embedded ones,
    in a child process as well, unless the worker's device is CUDA: on a CPU it begins sooner than torch.

    Nothing is started or imported before the first `open`. A host process ends with the worker, however that ends.

    Args:
        model_roots: directories of local models; without one, only embedded models open.
        device: of models without a named device: "auto" (CUDA if there is one), "cpu", "cuda" or "cuda:N".
        limits: of the worker; the defaults if None.
        hub_network: whether models may be fetched from the Hugging Face hub; otherwise only its cache is used.
    """

    opens = (EmbeddedModel, LocalModel, HubModel)
    extras = (("local", "evaluate local models"), ("lora", "put LoRA adapters on local models"))
    libraries = ("torch", "transformers")

    def __init__(
        self,
        model_roots: Sequence[Path] = (),
        device: str = "auto",
        limits: WorkerLimits | None = None,
        *,
        hub_network: bool = False,
    ) -> None:
        self._roots = tuple(model_roots)
        self._device = device
        self._by_numpy = not device.startswith("cuda")
        self._host = HostProcess(_HOST, [f"--device={device}"], _OFFLINE, limits)
        self._limits = limits
        self._fingerprints = Fingerprints()
        self._models = HostedModels(self._host, self._fingerprints)
        self._replicas: dict[str, HostedModels] = {}
        self._replicated: dict[tuple[str, ...], ReplicatedModels] = {}
        self._tokenizers = LoneTokenizers(self._host, "open_tokenizer")
        self._numpy_host = HostProcess(_NUMPY_HOST, (), _ONE_THREAD, limits)
        self._numpy_models = HostedModels(self._numpy_host)
        self._cache = HubCache(os.environ)
        self._asks_hub = hub_network and not any(os.environ.get(name, "").upper() in _TRUE for name in _OFFLINE)
        self._fetches = asyncio.Semaphore(AT_ONCE)

    @classmethod
    def checks(cls) -> Sequence[BackendCheck]:
        """The embedded models, and where torch computes."""
        return (
            BackendCheck(name="embedded models", purpose="try everything with no other model", look=_embedded),
            BackendCheck(name="device", purpose="compute where local models run", look=_torch_device),
        )

    @classmethod
    def create(cls, settings: BackendSettings) -> Self:
        """Make it with the model roots, the device and the limits."""
        return cls(settings.model_roots, settings.device, settings.limits, hub_network=settings.hub_network)

    def info(self, kind: Kind = "local") -> BackendInfo:
        """Description of this backend for local models or for embedded ones. Imports nothing."""
        if kind == "embedded":
            unavailable = "" if self._by_numpy else self.missing()
            return BackendInfo(name="embedded", models=registry.names(), unavailable=unavailable)
        no_root = "" if self._roots else "no model root; start the worker with --model-root"
        return BackendInfo(name="local", unavailable=self.missing() or no_root)

    def infos(self) -> tuple[BackendInfo, ...]:
        """Both."""
        return self.info("embedded"), self.info("local")

    def fleets(self) -> tuple[Fleet, ...]:
        """The devices of models that are on several, as far as such models have been used."""
        return tuple(
            Fleet(backend="local", name=",".join(devices), replicas=replicated.states())
            for devices, replicated in self._replicated.items()
        )

    async def check(self, model: ModelRef) -> None:
        """Check that a model's files exist and can be loaded safely; weights are not read.

        A model that must be fetched from the hub is checked after that.
        """
        if not (isinstance(model, HubModel) and self._asks_hub):
            await asyncio.to_thread(self._find, model)

    async def open(self, model: ModelRef) -> HostedModel:
        """Open a model; load it if it is not open with the present files, and start the host if necessary.

        Raises:
            NotFound: there is no such model, or a model of the hub is not in the cache (NOT_CACHED).
            Unavailable: the hub cannot be reached (HUB_UNREACHABLE), or the process that queries it has died
                (HUB_READER_DIED).
            PermissionDenied: the path leads out of the roots.
            FailedPrecondition: the extra is not installed (EXTRA_NOT_INSTALLED), or the files are refused
                (PICKLED_WEIGHTS_REFUSED, NO_SAFETENSORS, NO_MODEL_CONFIG, NO_ADAPTER_CONFIG, ADAPTER_REFUSED,
                MODEL_REFUSED).
            BackendError: the host failed; retryable if it died.
        """
        checkpoint = self._find(model, await self._fetched(model))
        if isinstance(model, EmbeddedModel) and self._by_numpy:
            return await self._numpy_models.open(checkpoint)
        if devices := checkpoint.devices:
            return await self._on_several(devices).open(checkpoint)
        return await self._models.open(checkpoint)

    async def open_tokenizer(self, model: ModelRef) -> Tokenizer | None:
        """A model's tokenizer; of a directory, neither weights nor a configuration are needed, and none are read.

        Raises:
            BridgeError: as of `open`; FailedPrecondition if there is no tokenizer (NO_TOKENIZER).
        """
        if isinstance(model, EmbeddedModel) and self._by_numpy:
            return await super().open_tokenizer(model)
        self.refuse_missing()
        match model:
            case LocalModel(path):
                directory, roots = resolve(self._roots, path), self._roots
            case HubModel():
                directory = self._cache.snapshot(model, await self._fetched(model))
                roots = (self._cache.repository(model),)
            case _:
                directory = self._find(model).directory
                roots = (directory,)
        files = await asyncio.to_thread(check_tokenizer_files, directory, roots)
        key = await asyncio.to_thread(key_of_files, directory, files)
        return await self._tokenizers.open(key, directory.name, {"path": str(directory), "alone": True})

    async def aclose(self) -> None:
        """End the hosts, within a second. Idempotent."""
        await asyncio.gather(*(replicated.aclose() for replicated in self._replicated.values()))
        hosts = [self._host, self._numpy_host, *(models.host for models in self._replicas.values())]
        await asyncio.gather(*(host.aclose() for host in hosts))

    def _on_several(self, devices: tuple[str, ...]) -> ReplicatedModels:
        """The models of several devices, with a host for each; no host is started."""
        if devices not in self._replicated:
            names = replica_names(devices)
            for name, device in names.items():
                if name not in self._replicas:
                    host = HostProcess(_HOST, [f"--device={device}"], _OFFLINE, self._limits)
                    self._replicas[name] = HostedModels(host, self._fingerprints)
            self._replicated[devices] = ReplicatedModels(
                {name: (device, self._replicas[name]) for name, device in names.items()}
            )
        return self._replicated[devices]

    async def _fetched(self, model: ModelRef) -> str | None:
        """The commit of a model of the hub, which is in the cache then; None if the hub need not be queried."""
        if not isinstance(model, HubModel) or not self._asks_hub or self._is_pinned_here(model):
            return None
        self.refuse_missing()
        async with self._fetches:
            return await fetch(model)

    def _is_pinned_here(self, model: HubModel) -> bool:
        """Whether it names a commit that is in the cache: a commit never changes, so the hub need not be queried."""
        return bool(model.revision and COMMIT.fullmatch(model.revision)) and self._cache.is_whole(model)

    def _find(self, model: ModelRef, commit: str | None = None) -> Checkpoint:
        if not (isinstance(model, EmbeddedModel) and self._by_numpy):
            self.refuse_missing()
        for device in (getattr(model, "device", None) or self._device).split(","):
            refuse_absent_cuda(device)
        match model:
            case EmbeddedModel(name):
                # Their files have float16, and numpy computes in float32: the device must not change the answers.
                # They were trained without a space before the answer, and have no token for one.
                return Checkpoint(directory=registry.path(name), default_dtype="float32", target_delimiter="")
            case LocalModel(path):
                return self._checkpoint(model, resolve(self._roots, path), self._roots)
            case HubModel():
                return self._checkpoint(model, self._cache.snapshot(model, commit), (self._cache.repository(model),))
            case _:
                raise InvalidField("model", f"is a {type(model).__name__}, neither local, nor of the hub, nor embedded")

    def _checkpoint(self, model: LocalModel | HubModel, directory: Path, roots: Sequence[Path]) -> Checkpoint:
        check_files(directory, roots)
        adapter = None
        if model.adapter_path is not None:
            if importlib.util.find_spec("peft") is None:
                message = "peft not installed: install crucible-bridge[lora]"
                raise FailedPrecondition(message, reason=Reason.EXTRA_NOT_INSTALLED)
            adapter = resolve(self._roots, model.adapter_path, "model.adapter_path")
            check_adapter(adapter, self._roots)
        return Checkpoint(directory=directory, adapter=adapter, dtype=model.dtype, device=model.device)


TORCH_SECONDS = 60.0
"""Time limit for importing torch and looking for a GPU, in a separate process."""


def _embedded() -> str:
    if not registry.names():
        raise FailedPrecondition("no checkpoint came with this installation")
    return ", ".join(registry.names())


def _torch_device() -> str:
    """Run a separate process: torch takes seconds and hundreds of megabytes."""
    if importlib.util.find_spec("torch") is None:
        raise FailedPrecondition("not installed: pip install 'crucible-bridge[local]'")
    program = (
        "import torch; "
        "print(f'CUDA, {torch.cuda.get_device_name()}' if torch.cuda.is_available() "
        "else f'CPU, {torch.get_num_threads()} threads')"
    )
    try:
        asked = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=TORCH_SECONDS, check=True
        )
    except subprocess.TimeoutExpired:
        raise FailedPrecondition(f"torch did not answer within {TORCH_SECONDS:g} s") from None
    except subprocess.CalledProcessError as error:
        raise FailedPrecondition(f"torch cannot be imported: {error.stderr.strip().splitlines()[-1:]}") from None
    return asked.stdout.strip()
