"""A worker whose models follow a script, as the whole of a process: `python scripted_worker.py CONFIGURATION`.

The configuration is JSON: `ready_file`, `state_dir`, `journal`, `grading_processes`, `code_sandboxes`, `data_roots`,
`inspect_roots`, `log_dir` and `limits` as settings of a worker, `servers` with the base URLs of OpenAI-compatible
servers by name, and `models`, which gives each model by name with the fields of `ScriptedModel` that JSON can hold. A
model with `hold_gil` writes to its `call_file`, then waits for ever in C without releasing the GIL. With `standby` the
worker does not begin before that file exists: all that an interpreter has to import is done by then. With
`clock_ahead_seconds` the machine's clock is wrong, for this process.
"""

import ctypes
import dataclasses
import importlib
import inspect
import json
import signal
import sys
import time
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crucible_bridge.types import ModelInput, SampledSequence, SamplingParams
from crucible_worker.config import Settings
from crucible_worker.server import serve
from crucible_worker.testing import ScriptedModel, scripted_build

_PR_SET_PDEATHSIG = 1


def main(configuration: dict[str, Any]) -> int:
    """Serve until told to go; returns the exit code."""
    # Tests that are killed leave no worker behind.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    while configuration["standby"] and not Path(configuration["standby"]).exists():
        time.sleep(0.002)
    _put_clock_ahead(configuration["clock_ahead_seconds"])
    # The release before knows no such settings.
    log_dir: dict[str, Any] = {} if configuration["log_dir"] is None else {"log_dir": Path(configuration["log_dir"])}
    journal: dict[str, Any] = {} if configuration.get("journal") is None else {"journal": configuration["journal"]}
    sandboxes = configuration.get("code_sandboxes")
    places: dict[str, Any] = {} if sandboxes is None else {"code_sandboxes": sandboxes}
    known = {field.name for field in dataclasses.fields(Settings)}
    resume = {name: bool(configuration.get(name)) for name in ("resume_interrupted",) if name in known}
    settings = Settings(
        **log_dir,
        **resume,
        **journal,
        **places,
        port=0,
        grading_processes=configuration["grading_processes"],
        ready_file=Path(configuration["ready_file"]),
        state_dir=Path(configuration["state_dir"]),
        data_roots=tuple(map(Path, configuration["data_roots"])),
        inspect_roots=tuple(map(Path, configuration["inspect_roots"])),
        limits=dataclasses.replace(Settings().limits, **configuration["limits"]),
    ).validate()
    models = {name: _model(**fields) for name, fields in configuration["models"].items()}
    servers: dict[str, str] = configuration.get("servers") or {}
    return serve(settings, build=_build_with_servers(models, servers) if servers else scripted_build(models))


def _build_with_servers(models: dict[str, ScriptedModel], servers: dict[str, str]) -> Any:
    # This script also starts workers of the release before, which need not have all of these.
    from crucible_bridge.types import EmbeddedModel, OpenAIModel
    from crucible_worker.backends.openai.backend import OpenAIBackend
    from crucible_worker.backends.openai.servers import OpenAIServer
    from crucible_worker.server.parts import Parts, build_with
    from crucible_worker.testing import ScriptedBackend

    scripted = ScriptedBackend(models)

    async def build(settings: Settings) -> Parts:
        reached = tuple(OpenAIServer(name=name, base_url=url) for name, url in servers.items())
        openai = OpenAIBackend(reached, settings.environment)
        # The release before cannot find out by itself.
        known = "infos" in inspect.signature(build_with).parameters
        infos: dict[str, Any] = {"infos": lambda: (scripted.info(), openai.info())} if known else {}
        return await build_with(settings, backends={EmbeddedModel: scripted, OpenAIModel: openai}, **infos)

    return build


def _put_clock_ahead(seconds: float) -> None:
    right, right_ns = time.time, time.time_ns
    time.time = lambda: right() + seconds
    time.time_ns = lambda: right_ns() + int(seconds * 1e9)
    # gRPC subtracts this clock from a deadline by its own one: a machine's wrong clock is wrong for both.
    cygrpc: Any = importlib.import_module("grpc._cython.cygrpc")
    cygrpc.time = types.SimpleNamespace(time=right)


class _HoldingModel(ScriptedModel):
    """Never answers, and lets no other thread run."""

    @property
    def sampling(self) -> "_HoldingModel":
        return self

    async def sample(
        self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1
    ) -> Sequence[SampledSequence]:
        assert self.call_file is not None
        # From this line on, the event loop gets no turn.
        self.call_file.write_text("called\n")
        mutex, lock = ctypes.create_string_buffer(64), ctypes.PyDLL(None).pthread_mutex_lock
        lock(mutex)
        lock(mutex)
        raise AssertionError("a mutex was locked twice")


def _model(*, call_file: str | None = None, hold_gil: bool = False, **fields: Any) -> ScriptedModel:
    kind = _HoldingModel if hold_gil else ScriptedModel
    return kind(call_file=None if call_file is None else Path(call_file), **fields)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
