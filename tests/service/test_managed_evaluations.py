"""Evaluations on servers that the worker starts: weights that are swapped are found, replicas that die lose nothing."""

import asyncio
import collections
import contextlib
import hashlib
import os
import signal

import crucible_bridge
from crucible_bridge.types import EvaluationState, InstalledModel, Sample, Verdict
from crucible_worker.config import Settings
from crucible_worker.server import Worker
from crucible_worker.server.parts import build
from crucible_worker.testing import record_events
from tests import needs
from tests.processes import children_of
from tests.robustness.harness import until
from tests.service import follow_kit
from tests.service.evaluation_kit import samples_of, state_of
from tests.service.managed_kit import PARAMS, PROGRAMS, fake, members, save, save_adapter
from tests.service.processes_kit import serving, wait_until
from tests.tables import rows

needs.modules("aiohttp")

SWAPS = 50
"""Of each program."""


class Rig:
    """A worker that has one managed server, `s`."""

    def __init__(self, bridge, parts):
        self.bridge = bridge
        self._parts = parts

    @property
    def deployment(self):
        """The only deployment of the worker."""
        (found,) = self._parts.models[InstalledModel]._own["managed"]._deployments.values()
        return found

    @property
    def replicas(self):
        """Its replicas."""
        return self.deployment.replicas

    async def evaluate(self, name, samples, **fields):
        """An evaluation of a managed model by `accuracy`, as it ends."""
        return await self.bridge.evaluation.evaluate(
            model=f"managed:{name}", evaluators=["accuracy"], dataset=samples, sampling=PARAMS, **fields
        )

    async def held(self, name, evaluation_id, swap):
        """An evaluation of one sample; `swap` runs while the answer is held."""
        for replica in self.replicas:
            await replica.control.post("/fake/shut", {})
        running = asyncio.create_task(self.evaluate(name, numbered(1, "w0"), evaluation_id=evaluation_id))
        while not await self.waiting():
            assert not running.done(), running.result()
            await asyncio.sleep(0.005)
        await swap()
        for replica in self.replicas:
            await replica.control.post("/fake/open", {})
        return await running

    async def waiting(self):
        """Answers that are held."""
        return sum([(await replica.control.get("/fake/waiting")).document["waiting"] for replica in self.replicas])


@contextlib.asynccontextmanager
async def rig(root, server):
    """A worker that knows a server, and a client."""
    parts = []

    async def built(settings):
        parts.append(await build(settings))
        return parts[0]

    state = root.parent / f"state-{server.program}"
    settings = Settings(port=0, state_dir=state, model_roots=(root,), endpoints=(server,), grading_processes=0)
    async with (
        Worker(settings.validate(), build=built) as worker,
        crucible_bridge.connect(worker.address) as bridge,
    ):
        yield Rig(bridge, parts[0])


def numbered(count, target):
    """Samples whose right answer is the text of the weights."""
    return tuple(Sample(id=f"q{number}", input=f"p{number}", targets=(target,)) for number in range(count))


async def swap_weights(control, program, path):
    """Load weights as another program of the machine would: without a word to the worker, and without a version."""
    if program == "vllm":
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(path)}}
        assert (await control.post("/collective_rpc", body)).ok
    else:
        assert (await control.post("/update_weights_from_disk", {"model_path": str(path)})).ok


@rows("program", PROGRAMS)
async def test_swapped_weights_are_found_every_time(program, tmp_path):
    """Other weights under the same name at one of two replicas end an evaluation with MODEL_CHANGED, despite noise."""
    root = tmp_path / "models"
    save(root, "m", "w0")
    others = [save(root, f"other-{number}", f"other {number}") for number in range(SWAPS)]
    server = fake(program, environment={"FAKE_NOISE": "0.1"}, devices=("0", "1"))
    ends = collections.Counter()
    async with rig(root, server) as worker:
        first = await worker.evaluate("s/m", numbered(4, "w0"), evaluation_id="first")
        assert first.metrics.values["accuracy"] == 1.0
        for number, path in enumerate(others):
            control = worker.replicas[number % 2].control
            ended = await worker.held("s/m", f"e{number}", lambda c=control, p=path: swap_weights(c, program, p))
            ends[state_of(ended)] += 1
        # Each evaluation found the checkpoint loaded again after the one before it.
        last = await worker.evaluate("s/m", numbered(4, "w0"), evaluation_id="last")
        assert last.metrics.values["accuracy"] == 1.0
    assert ends == {(EvaluationState.FAILED, "MODEL_CHANGED"): SWAPS}


async def test_noise_is_no_change(tmp_path):
    """Log-probabilities that differ as those of a GPU do from batch to batch end no evaluation."""
    root = tmp_path / "models"
    save(root, "m", "w0")
    async with rig(root, fake("vllm", environment={"FAKE_NOISE": "0.12"}, devices=("0", "1"))) as worker:
        for number in range(20):
            ended = await worker.evaluate("s/m", numbered(1, "w0"), evaluation_id=f"e{number}")
            assert ended.state is EvaluationState.COMPLETED


async def test_a_version_that_changes_is_found(tmp_path):
    """What SGLang reports of its weights counts, though their log-probabilities are the same."""
    root = tmp_path / "models"
    save(root, "m", "w0")

    async with rig(root, fake("sglang")) as worker:
        await worker.evaluate("s/m", numbered(1, "w0"), evaluation_id="first")
        (replica,) = worker.replicas

        async def update():
            body = {"new_version": "trainer-7", "abort_all_requests": False}
            assert (await replica.control.post("/update_weight_version", body)).ok

        ended = await worker.held("s/m", "e", update)
    assert state_of(ended) == (EvaluationState.FAILED, "MODEL_CHANGED")
    assert "weight_version of" in ended.problem.message
    assert "is now 'trainer-7'" in ended.problem.message


async def test_an_adapter_that_appears_is_found(tmp_path):
    """What vLLM lists counts: another program of the machine uses the server if it has another adapter."""
    root = tmp_path / "models"
    save(root, "m", "w0")
    save_adapter(root, "lora", "")
    other = save_adapter(root, "other", "a1")

    async with rig(root, fake("vllm")) as worker:
        await worker.evaluate("s/m?adapter=lora", numbered(1, "w0+"), evaluation_id="first")
        (replica,) = worker.replicas

        async def load():
            body = {"lora_name": "mine", "lora_path": str(other)}
            assert (await replica.control.post("/v1/load_lora_adapter", body)).ok

        ended = await worker.held("s/m?adapter=lora", "e", load)
    assert state_of(ended) == (EvaluationState.FAILED, "MODEL_CHANGED")
    assert "adapters of" in ended.problem.message


@rows("program", PROGRAMS)
async def test_a_base_that_was_swapped_is_no_base_of_the_next_adapter(program, tmp_path):
    """Weights that another program loaded between two adapters are replaced, though the base has the same name."""
    root = tmp_path / program
    save(root, "m", "w0")
    other = save(root, "other", "others")
    for step in range(2):
        save_adapter(root, f"lora-{step}", f"a{step}")
    async with rig(root, fake(program)) as worker:
        for step in range(2):
            name = f"s/m?adapter=lora-{step}"
            ended = await worker.evaluate(name, numbered(2, f"w0+a{step}"), evaluation_id=f"e{step}")
            assert ended.metrics.values["accuracy"] == 1.0
            await swap_weights(worker.replicas[0].control, program, other)


async def test_a_replica_that_is_killed_loses_nothing(tmp_path):
    """Each sample has one verdict, that of its weights, though a replica dies again and again."""
    root = tmp_path / "models"
    save(root, "m", "w0")
    server = fake("vllm", environment={"FAKE_DELAY": "0.02"}, devices=("0", "1"))
    async with rig(root, server) as worker:
        await worker.evaluate("s/m", numbered(1, "w0"), evaluation_id="first")
        running = asyncio.create_task(worker.evaluate("s/m", numbered(400, "w0"), evaluation_id="e"))
        killed = 0
        while not running.done() and killed < 3:
            for replica in worker.replicas:
                if replica.ready and not running.done():
                    os.killpg(replica.pid, signal.SIGKILL)
                    killed += 1
                    await until(lambda: running.done() or all(one.ready for one in worker.replicas), 60)
        ended = await running
        results = await samples_of(worker.bridge)
    assert ended.state is EvaluationState.COMPLETED
    assert killed
    assert collections.Counter(result.verdict for result in results) == {Verdict.CORRECT: 400}
    assert len({result.sample_id for result in results}) == 400


async def test_a_worker_that_is_killed_leaves_no_server(tmp_path):
    """After kill -9 of the worker no process of its servers is left, nor one that these have started."""
    root = tmp_path / "models"
    save(root, "m", "w0")
    server = fake("sglang")
    settings = tmp_path / "worker.toml"
    command = ", ".join(f"{text!r}" for text in server.command)
    settings.write_text(f'[managed_servers.s]\nprogram = "sglang"\ndevices = [0, 1]\ncommand = [{command}]\n')
    options = (f"--config={settings}", f"--model-root={root}", "--grading-processes=0")
    with serving(tmp_path, *options) as (process, address):
        async with crucible_bridge.connect(address) as bridge:
            ended = await bridge.evaluation.evaluate(
                model="managed:s/m", evaluators=["accuracy"], dataset=numbered(1, "w0"), sampling=PARAMS
            )
        assert ended.metrics.values["accuracy"] == 1.0
        groups = [pid for pid in children_of(process.pid) if len(members(pid)) >= 3]
        assert len(groups) == 2
        process.kill()
        process.wait()
        wait_until(lambda: not any(members(group) for group in groups), "the servers have ended")


@rows("program", PROGRAMS)
async def test_a_followed_run_needs_one_process(program, tmp_path):
    """Its checkpoints are loaded into the same server one after another, each evaluated by its own weights."""
    root = tmp_path / program
    folder = root / "run"
    folder.mkdir(parents=True)
    async with rig(root, fake(program)) as worker, record_events(worker.bridge) as recorder:
        await worker.bridge.follow(
            "run", evaluators=["accuracy"], dataset=numbered(2, "x"), sampling=PARAMS, base_model="managed:s"
        )
        seen = []
        for step in (10, 20, 30):
            follow_kit.save(folder, step)
            await recorder.wait_for(
                lambda event, name=f"checkpoint-{step}": (
                    event.kind is follow_kit.RELEASED and event.metadata["name"] == name
                ),
                seconds=60.0,
            )
            seen.append(worker.replicas[0].pid)
        found = {each.request.step: each async for each in worker.bridge.evaluation.all_evaluations(run_id="run")}
        outputs = {
            step: {result.output for result in await samples_of(worker.bridge, each.evaluation_id)}
            for step, each in found.items()
        }
        page = await worker.bridge.evaluation.list_runs(run_id="run")
    assert {each.state for each in found.values()} == {EvaluationState.COMPLETED}
    assert outputs == {step: {hashlib.sha256(follow_kit.weights(step)).hexdigest()} for step in (10, 20, 30)}
    assert len(set(seen)) == 1
    best = page.checkpoints[-1].model
    assert isinstance(best, InstalledModel)
    assert str(best.name) == f"s/{folder}/checkpoint-30"
