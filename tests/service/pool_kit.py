"""Several workers of one journal, each a process and each at its own address."""

import asyncio
import contextlib
import subprocess
import sys

import crucible_bridge
from crucible_bridge.types import EvaluatorSpec, Limits, Sample, SamplingParams
from tests.service.openai_kit import Reply, ScriptedServer, answer

LONG = 120.0
SAMPLES = [Sample(id=f"s{n}", input=f"{n}+{n}=", targets=(str(2 * n),)) for n in range(1, 400)]
HELD_AT = 20
"""Samples that a held model has answered when it answers no more."""


class PoolWorker:
    """A `crucible-worker serve` of a pool."""

    def __init__(self, folder, name, *options):
        self.name = name
        self._ready, self._log = folder / f"ready-{name}", (folder / f"log-{name}").open("ab")
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "crucible_worker", "serve", "--log-level=error", "--device=cpu"),
                *(f"--ready-file={self._ready}", *options),
            ],
            stdout=self._log,
            stderr=self._log,
        )

    async def served(self):
        """Wait until it serves, and return itself with its address."""
        async with asyncio.timeout(LONG):
            while not self._ready.exists():
                assert self.process.poll() is None, "the worker has ended"
                await asyncio.sleep(0.02)
        self.address = self._ready.read_text()
        return self

    def kill(self):
        """SIGKILL, and the end of the process."""
        self.process.kill()
        self.process.wait()
        self._log.close()


class HeldServer(ScriptedServer):
    """The server of the model `openai:s/m`, which holds its answers from the 20th on until it is let go.

    No evaluation ends before the test has killed what it kills.
    """

    def __init__(self):
        super().__init__(self._counted)
        self._let_go = False

    def _counted(self, request):
        if request.method == "GET":
            return Reply({"data": [{"id": "m"}]})
        if len(self.asked) >= HELD_AT and not self._let_go:
            self.answering.clear()
        return answer(request, "2")

    def let_go(self):
        """Answer what is held, and all that comes."""
        self._let_go = True
        self.answering.set()


@contextlib.asynccontextmanager
async def held_model(folder):
    """Such a server, and the options of workers of one journal that know it."""
    server = HeldServer()
    async with server.serving():
        settings = folder / "worker.toml"
        settings.write_text(f'[openai_servers.s]\nbase_url = "{server.url}"\n')
        yield server, (f"--config={settings}", f"--state-dir={folder / 'state'}")


def held_evaluation(evaluation_id):
    """Fields of an evaluation of that model: one sample at a time, twice as many as it answers until it is let go."""
    return slow_evaluation(evaluation_id) | {"model": "openai:s/m", "dataset": SAMPLES[: 2 * HELD_AT]}


@contextlib.asynccontextmanager
async def pool(folder, count, *options, port=0, hosts=None):
    """So many workers of one journal that serve."""
    options = options or (f"--state-dir={folder / 'state'}",)
    with contextlib.ExitStack() as ends:
        workers = []
        for index in range(count):
            host = () if hosts is None else (f"--host={hosts[index]}",)
            workers.append(PoolWorker(folder, str(index), f"--port={port}", *host, *options))
            ends.callback(workers[-1].kill)
        yield [await worker.served() for worker in workers]


async def ids_of(workers):
    """Each worker's id, as GetInfo says it."""
    found = {}
    for worker in workers:
        async with crucible_bridge.connect(worker.address) as bridge:
            await bridge.wait_for_worker(LONG)
            found[(await bridge.worker.get_info()).worker_id] = worker
    return found


async def owner_of(workers, evaluation_id):
    """The worker at which an evaluation runs, once some samples are done."""
    async with contextlib.AsyncExitStack() as clients:
        bridges = [await clients.enter_async_context(crucible_bridge.connect(worker.address)) for worker in workers]
        async with asyncio.timeout(LONG):
            while True:
                for worker, bridge in zip(workers, bridges, strict=True):
                    running = (await bridge.worker.get_info()).running
                    if running and (await bridge.evaluation.get_evaluation(evaluation_id)).done > 5:
                        return worker
                await asyncio.sleep(0.02)


def slow_evaluation(evaluation_id):
    """Fields of an evaluation that takes some seconds: one sample at a time."""
    return {
        "evaluation_id": evaluation_id,
        "model": "embedded:arithmetic@600",
        "dataset": SAMPLES,
        "evaluators": EvaluatorSpec(kind="accuracy", options={"grader": "numeric"}),
        "sampling": SamplingParams(max_tokens=8),
        "limits": Limits(concurrency=1),
    }
