"""Models of a real server of the Tinker API: skyrl-tx, on the CPU, with a tiny model; `make test-tinker` runs these."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import needs

pytest.importorskip("tinker", reason=needs.MISSING["tinker"])

import crucible_bridge
from crucible_bridge.types import EvaluationState, Limits, Sample, SamplingParams, TinkerModel
from crucible_worker.backends.tinker.services import TinkerService
from crucible_worker.config import Settings
from crucible_worker.embedded import registry
from crucible_worker.server import Worker
from tests.interop.tinker_proxy import RANK, Proxy
from tests.service.evaluation_kit import samples_of, state_of

# The library leaves the connection open by which it asks for its configuration; it is closed when it is collected.
pytestmark = [pytest.mark.tinker, pytest.mark.filterwarnings("ignore::ResourceWarning")]

KEY = "tml-canary-5e1d0b"

READY_SECONDS = 300.0
"""For the server to import jax and load the model, on a loaded machine."""

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
}

SAMPLES = [Sample(id=str(index), input=f"{index}+{index}=", targets=(f"{2 * index}",)) for index in range(4)]
PARAMS = SamplingParams(max_tokens=6)
ONE_BY_ONE = Limits(concurrency=1)
"""The server compiles anew for every number of requests that it happens to put together."""


@dataclasses.dataclass(frozen=True)
class Rig:
    """The server behind its proxy."""

    proxy: Proxy
    checkpoint: Path
    sampler_path: str
    state_path: str


@pytest.fixture(scope="module")
def rig(tmp_path_factory) -> Iterator[Rig]:
    """A server with saved weights of both kinds, which are those of the base model, as nothing was trained."""
    python = os.environ.get("TINKER_SERVER_PYTHON", "")
    assert python, "TINKER_SERVER_PYTHON names the Python of an environment with skyrl-tx; make test-tinker sets it"
    folder = tmp_path_factory.mktemp("tinker")
    checkpoint = _make_model(folder / "model")
    with _serving(python, folder, checkpoint) as upstream:
        proxy = Proxy(upstream, str(checkpoint))
        proxy.start()
        try:
            yield Rig(proxy, checkpoint, *_saved(proxy, str(checkpoint)))
        finally:
            proxy.close()
            gc.collect()


def _make_model(folder: Path) -> Path:
    """A random Qwen3 with the tokenizer of the embedded models; its weights are large, so that greedy has no ties."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    embedded = registry.path(registry.names()[0])
    tokenizer = AutoTokenizer.from_pretrained(embedded)
    tokens = {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id}
    config = AutoConfig.for_model("qwen3", tie_word_embeddings=True, **tokens, **SIZES)
    model = AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        parameter.data.mul_(4)
    model.save_pretrained(folder)
    for path in Path(embedded).glob("*token*"):
        shutil.copy(path, folder)
    # The server's transformers is older: it knows the class, and where positions turn, under these names.
    for name, older in {
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"},
        "config.json": {"rope_theta": config.rope_parameters["rope_theta"]},
    }.items():
        (folder / name).write_text(json.dumps({**json.loads((folder / name).read_text()), **older}))
    return folder


class _serving:
    """The server, from its start to its end, with the program that it wants to start its engine by."""

    def __init__(self, python: str, folder: Path, checkpoint: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._log = folder / "server.log"
        self.url = f"http://127.0.0.1:{port}"
        programs = folder / "bin"
        programs.mkdir()
        # It is started as: uv run --extra tinker --extra jax -m tx.tinker.engine ...
        (programs / "uv").write_text(f'#!/bin/sh\nshift 5\nexec "{os.path.abspath(python)}" "$@"\n')
        (programs / "uv").chmod(0o755)
        options = {
            "base-model": checkpoint,
            "host": "127.0.0.1",
            "port": port,
            "backend-config": json.dumps({"max_lora_adapters": 8, "max_lora_rank": RANK}),
            "checkpoints-base": folder / "checkpoints",
            "database-url": f"sqlite:///{folder / 'server.db'}",
        }
        self._command = [python, "-m", "tx.tinker.api"]
        for name, value in options.items():
            self._command += [f"--{name}", str(value)]
        self._environment = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": "",
            "HF_HUB_OFFLINE": "1",
        }

    def __enter__(self) -> str:
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + READY_SECONDS
        while True:
            assert self._child.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            try:
                with urllib.request.urlopen(f"{self.url}/api/v1/healthz", timeout=5):
                    return self.url
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.2)

    def __exit__(self, *exc_info: object) -> None:
        # It is the first of its session, and its engine the other: both go.
        os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()


def _saved(proxy: Proxy, base_model: str) -> tuple[str, str]:
    """Paths of weights for sampling and of a training state, saved by a model that was made and left as it is."""
    session = proxy.ask("create_session", {"tags": [], "sdk_version": "test"})["session_id"]
    model = proxy.ask(
        "create_model", {"session_id": session, "base_model": base_model, "lora_config": {"rank": RANK, "seed": 0}}
    )
    proxy.outcome(model)
    paths = []
    for call, kind in (("save_weights_for_sampler", "sampler_weights"), ("save_weights", "weights")):
        proxy.outcome(proxy.ask(call, {"model_id": model["model_id"], "path": "final"}))
        paths.append(f"tinker://{model['model_id']}/{kind}/final")
    return paths[0], paths[1]


def _settings(rig: Rig, folder: Path) -> Settings:
    key = folder / "key"
    key.touch(mode=0o600)
    key.write_text(KEY)
    service = TinkerService(name="default", base_url=rig.proxy.url, key_file=key)
    return Settings(
        port=0,
        state_dir=folder / "state",
        model_roots=(rig.checkpoint.parent,),
        device="cpu",
        endpoints=(service,),
        grading_processes=0,
    ).validate()


async def test_a_real_server_samples_and_measures_as_the_local_backend_does(rig: Rig, tmp_path: Path):
    """Greedy samples are equal, and nll by prompt, by forward pass and by the local backend agree to 1e-4."""
    models = {
        "local": "local:model",
        "base": f"tinker:{rig.checkpoint}",
        "sampler": rig.sampler_path,
        "state": rig.state_path,
    }
    async with Worker(_settings(rig, tmp_path)) as worker, crucible_bridge.connect(worker.address) as bridge:
        said, losses = {}, {}
        for name, model in models.items():
            sampling = name != "state"
            evaluators = ["nll", "accuracy"] if sampling else ["nll"]
            evaluation = await bridge.evaluation.evaluate(
                model=model, evaluators=evaluators, dataset=SAMPLES, sampling=PARAMS, limits=ONE_BY_ONE
            )
            assert evaluation.state is EvaluationState.COMPLETED, evaluation
            results = await samples_of(bridge, evaluation.evaluation_id)
            assert not [result.problem for result in results if result.problem is not None], name
            losses[name] = evaluation.metrics.values["nll"]
            if sampling:
                said[name] = {result.sample_id: result.output for result in results if result.evaluator == "accuracy"}
    assert said["base"] == said["sampler"] == said["local"]
    assert len(set(said["base"].values())) > 1, "a model that always says the same proves nothing"
    for name in ("base", "sampler", "state"):
        assert losses[name] == pytest.approx(losses["local"], abs=1e-4), name
    assert rig.proxy.keys == {KEY}
    assert "forward_backward" in rig.proxy.paths
    assert "telemetry" not in rig.proxy.paths


async def test_a_real_server_refuses(rig: Rig, tmp_path: Path):
    """Weights that are not there are an error of whoever names them, and nobody tries again."""
    async with Worker(_settings(rig, tmp_path)) as worker, crucible_bridge.connect(worker.address) as bridge:
        model = TinkerModel(state_path="tinker://none/weights/none")
        evaluation = await bridge.evaluation.evaluate(model=model, evaluators=["nll"], dataset=SAMPLES)
    assert state_of(evaluation) == (EvaluationState.FAILED, "UNKNOWN_MODEL")
