"""The engine of the host makes room if the memory of a device does not suffice."""

import queue
from types import SimpleNamespace

import pytest

from crucible_worker.backends.local.protocol import HostBounds
from crucible_worker.embedded import registry
from crucible_worker.util.limits import WorkerLimits
from tests import needs

torch = pytest.importorskip("torch", reason=needs.MISSING["torch"])
needs.modules("transformers")

from crucible_worker.backends.local.host import engine as engines  # noqa: E402
from crucible_worker.backends.local.host.loading import load  # noqa: E402
from crucible_worker.backends.local.protocol import tokens_to_bytes  # noqa: E402 (needs torch)
from tests.tables import rows  # noqa: E402


class Texts:
    """Stands for the process of a tokenizer."""

    dead = False

    def __init__(self, *_):
        pass

    def load(self, *_):
        return True

    def close(self):
        self.dead = True


class Driven:
    """An engine that is driven by the test, and whose loading fails while `room` models are open."""

    def __init__(self, monkeypatch, error, room=1):
        self.answers = queue.SimpleQueue()
        self.attempts = 0
        monkeypatch.setattr(engines, "TextProcess", Texts)

        def loading(*given, **options):
            self.attempts += 1
            if len(self.engine._models) >= room:
                raise error
            return load(*given, **options)

        monkeypatch.setattr(engines, "load", loading)
        fork_server = SimpleNamespace(fork=lambda name: None)
        bounds = HostBounds.of(WorkerLimits())
        self.engine = engines.TorchEngine("cpu", bounds, fork_server, lambda *answer: self.answers.put(answer))  # type: ignore[arg-type]

    def open(self, name):
        """Its key, or the error."""
        path = registry.path(name)
        message = {"id": 1, "op": "open", "key": name, "path": str(path), "adapter": None, "dtype": None,
                   "device": None}  # fmt: skip
        self.engine.submit(message)
        return self.answer()

    def answer(self):
        """Compute until there is one."""
        while self.answers.empty():
            if not self.engine._inbox.empty():
                self.engine._receive()
            with torch.inference_mode():
                self.engine._step()
        _, answer = self.answers.get()
        return answer["key"] if isinstance(answer, dict) else answer

    @property
    def names(self):
        return [name.partition(" ")[0] for name in self.engine._models]


@rows(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 32.00 MiB"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory"),
        MemoryError(),
    ],
)
def test_a_model_that_does_not_fit_takes_the_place_of_idle_ones(error, monkeypatch):
    """They are removed, and the model is loaded again."""
    driven = Driven(monkeypatch, error)

    for name in ("arithmetic@180", "arithmetic@240"):
        assert isinstance(driven.open(name), str)

    assert driven.names == ["arithmetic@240"]
    assert driven.attempts == 3


def test_a_model_that_does_not_fit_leaves_those_with_work(monkeypatch):
    """It fails with OUT_OF_MEMORY, which is retryable; the model with work answers."""
    driven = Driven(monkeypatch, torch.OutOfMemoryError("CUDA out of memory"))
    key = driven.open("arithmetic@180")
    many = tokens_to_bytes(torch.arange(3, 9).numpy())
    driven.engine._handle("score", 2, {"model": key, "items": [(many, many)] * 400, "together": False})

    error = driven.open("arithmetic@240")

    assert (error.reason, error.retryable) == ("OUT_OF_MEMORY", True)
    assert driven.names == ["arithmetic@180"]
    assert len(driven.answer()) == 400


def test_another_error_removes_no_model(monkeypatch):
    """Only memory can be made."""
    driven = Driven(monkeypatch, RuntimeError("shapes"))
    driven.open("arithmetic@180")

    assert driven.open("arithmetic@240").reason == "MODEL_FAILED"
    assert (driven.names, driven.attempts) == (["arithmetic@180"], 2)


def test_computing_without_room_removes_idle_models(monkeypatch):
    """The request fails, as its memory may be needed for long; its repetition has the room of the idle models."""
    driven = Driven(monkeypatch, RuntimeError("unused"), room=9)
    driven.open("arithmetic@180")
    key = driven.open("arithmetic@240")

    def fail(**_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(driven.engine._models[key].scheduler.loaded.model, "forward", fail)
    tokens = tokens_to_bytes(torch.arange(3, 9).numpy())
    driven.engine._handle("score", 2, {"model": key, "items": [(tokens, tokens)], "together": False})

    assert driven.answer().reason == "OUT_OF_MEMORY"
    assert driven.names == ["arithmetic@240"]
