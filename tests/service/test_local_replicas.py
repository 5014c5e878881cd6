"""A local model on several devices: a host for each, the same answers as on one, and what happens if a host dies."""

import asyncio
import os
import shutil
import signal

import pytest
import pytest_asyncio

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.types import Datum, LocalModel, ModelInput, ReplicaState, SamplingParams
from crucible_worker.backends.local import backend
from crucible_worker.backends.local.backend import LocalBackend
from crucible_worker.backends.local.model import replica_names
from crucible_worker.embedded import registry
from tests import needs
from tests.robustness.harness import until
from tests.service.processes_kit import hosts_of

needs.modules("torch", "transformers")
pytestmark = pytest.mark.asyncio(loop_scope="module")

SUMS = [[4, 5, 13, 6, 7, 14], [5, 5, 13, 6, 8, 14], [9, 5, 13, 4, 7, 14], [3, 8, 13, 6, 7, 14]]
"""12+34= and others in the tokens of the embedded models."""
LOAD_SECONDS = 120.0
"""For the start of a host on a loaded machine."""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A model root with a copy of an embedded checkpoint."""
    root = tmp_path_factory.mktemp("root")
    shutil.copytree(registry.path("arithmetic@600"), root / "plain")
    return root


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local(root):
    """One backend for all tests of this module."""
    local = LocalBackend([root], device="cpu")
    yield local
    await local.aclose()


async def load(local, device):
    """The model on a device, or on several."""
    model = await local.open(LocalModel("plain", device=device))
    await model.load()
    return model


async def results(model):
    """What the model samples and measures, on many calls at once."""
    prompts = [ModelInput.of(tokens) for tokens in SUMS]
    greedy, seeded = SamplingParams(max_tokens=8), SamplingParams(max_tokens=8, temperature=1.0, seed=7)
    data = [Datum(model_input=tokens[:-1], loss_fn_inputs={"target_tokens": tokens[1:]}) for tokens in SUMS]
    sampled = await asyncio.gather(*(model.sample(prompt, greedy, 2) for prompt in prompts * 3))
    by_seed = await asyncio.gather(*(model.sample(prompt, seeded, 2) for prompt in prompts * 3))
    measured = await asyncio.gather(*(model.compute_logprobs(prompt) for prompt in prompts * 3))
    forwarded = [values.tolist() for values in await model.forward(data)]
    texts = [[sequence.tokens for sequence in each] for each in (*sampled, *by_seed)]
    return texts, measured, forwarded, await model.tokenizer.encode("12+34=")


async def test_two_replicas_answer_as_one_model_does(local):
    """Tokens, and log-probabilities to the last bit; the fingerprint is that of the model on one device."""
    one, two = await load(local, "cpu"), await load(local, "cpu,cpu")
    assert one.fingerprint == two.fingerprint
    assert one.context_length == two.context_length
    assert await results(one) == await results(two)


async def test_calls_are_shared_among_the_hosts(local):
    """Each device has a process, and calls that come at a time go to both."""
    model = await load(local, "cpu,cpu")
    replicated = model._models
    before = [state.done for state in replicated.states()]
    assert [state.address for state in replicated.states()] == ["cpu", "cpu #2"]
    running = [asyncio.create_task(model.compute_logprobs(ModelInput.of(tokens))) for tokens in SUMS * 4]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [state.outstanding for state in replicated.states()] == [8, 8]
    await asyncio.gather(*running)
    assert [state.outstanding for state in replicated.states()] == [0, 0]
    (fleet,) = local.fleets()
    assert (fleet.backend, fleet.name) == ("local", "cpu,cpu")
    assert [state.done - done for state, done in zip(fleet.replicas, before, strict=True)] == [8, 8]


async def test_a_host_that_dies_loses_no_call(local):
    """Another host answers what it had; it is started again, and then has calls as before."""
    model = await load(local, "cpu,cpu")
    expected = await model.compute_logprobs(ModelInput.of(SUMS[0]))
    victim = local._replicas["cpu #2"].host.life
    assert victim in hosts_of(os.getpid())
    os.kill(victim, signal.SIGSTOP)  # so that it has calls when it dies
    running = [asyncio.create_task(model.compute_logprobs(ModelInput.of(SUMS[0]))) for _ in range(16)]
    await until(lambda: sum(task.done() for task in running) == 8)
    os.kill(victim, signal.SIGKILL)
    assert await asyncio.gather(*running) == [expected] * 16
    one, other = model._models.states()
    assert (one.state, one.failures) == (ReplicaState.SERVING, 0)
    assert (other.state, other.last_error) == (ReplicaState.EJECTED, "HOST_DIED")

    async def returned():
        assert await model.compute_logprobs(ModelInput.of(SUMS[0])) == expected
        return all(state.state is ReplicaState.SERVING for state in model._models.states())

    await until(returned, LOAD_SECONDS)
    assert local._replicas["cpu #2"].host.life not in (0, victim)


async def test_each_device_must_exist(local, monkeypatch):
    """One that this machine does not have is refused before anything is started."""
    monkeypatch.setattr(backend, "_absent", lambda: "this machine has no NVIDIA driver")
    with pytest.raises(FailedPrecondition) as caught:
        await local.open(LocalModel("plain", device="cuda:0,cuda:1"))
    assert caught.value.reason == "DEVICE_NOT_FOUND"


async def test_replicas_have_names_of_their_own():
    """A device may have several replicas, which are numbered."""
    assert replica_names(["cuda:0", "cuda:1"]) == {"cuda:0": "cuda:0", "cuda:1": "cuda:1"}
    assert replica_names(["cpu", "cpu", "cpu"]) == {"cpu": "cpu", "cpu #2": "cpu", "cpu #3": "cpu"}
