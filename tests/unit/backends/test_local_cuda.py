"""Batches on a CUDA device: what holds on the CPU holds there."""

import gc
import random

import pytest

from crucible_worker.embedded import registry
from crucible_worker.embedded.arithmetic import held_out
from tests import needs
from tests.unit.backends.conftest import ARCHITECTURES

torch = pytest.importorskip("torch", reason=needs.MISSING["torch"])
needs.modules("transformers")

from crucible_worker.backends.local.host.loading import load, resolve_device  # noqa: E402 (needs torch)
from tests.unit.backends.local_scheduler import Run  # noqa: E402

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason=needs.CUDA),
]


@torch.inference_mode()
def generated(loaded, prompt, count):
    """Greedy continuation by whole forward passes, without a cache or a batch."""
    tokens = list(prompt)
    for _ in range(count):
        whole = torch.tensor([tokens], device=loaded.device)
        tokens.append(int(loaded.model(input_ids=whole, use_cache=False).logits[0, -1].argmax()))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_batched_rows_equal_whole_forward_passes(architecture, make_model):
    """Rows of different lengths, which join at different times, get what each gets alone and without a cache."""
    run = Run.of_files(make_model(architecture), "cuda", "float32")
    choice = random.Random(1)
    prompts = [[choice.randrange(1, 40) for _ in range(choice.randrange(1, 14))] for _ in range(12)]
    lengths = [choice.randrange(1, 12) for _ in prompts]

    identities = []
    for prompt, length in zip(prompts, lengths):
        identities.append(run.sample(prompt, max_tokens=length))
        run.steps(choice.randrange(3))
    run.finish()

    expected = [generated(run.scheduler.loaded, prompt, length) for prompt, length in zip(prompts, lengths)]
    assert [run.tokens(identity)[0] for identity in identities] == expected


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_scores_are_bit_equal_alone_and_together(dtype):
    """Log-probabilities are the same bits alone, among other sequences, and next to rows that generate."""
    run = Run.of_files(registry.path("arithmetic@320"), "cuda", dtype)
    sequences = [run.encode(f"{s.input}{s.targets[0]}") for s in held_out(40)]
    items = [(tokens[:-1], tokens[1:]) for tokens in sequences]

    alone = []
    for item in items:
        identity = run.score(item)
        run.finish()
        alone.append(run.answers[identity][0])
    for seed in range(3):
        order = random.Random(seed).sample(range(len(items)), len(items))
        for index in order[:10]:
            run.sample(sequences[index])
        together = run.score(*(items[index] for index in order))
        run.finish()
        assert [run.answers[together][order.index(index)] for index in range(len(items))] == alone


def test_a_lack_of_memory_is_an_answer():
    """The request fails with OUT_OF_MEMORY, which is retryable; with memory again, the next one is answered."""
    run = Run.of_files(registry.path("arithmetic@320"), "cuda")
    run.sample([3, 4])
    run.finish()
    torch.cuda.set_per_process_memory_fraction(1e-9)
    try:
        failed = run.score(([3] * 100_000, [3] * 100_000))  # needs more than the allocator has kept
        run.finish()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    served = run.sample([3, 4])
    run.finish()

    assert run.answers[failed].reason == "OUT_OF_MEMORY"
    assert run.answers[failed].retryable
    assert isinstance(run.answers[served], list)


def test_a_removed_model_gives_its_memory_back():
    """Nothing of the scheduler keeps it."""

    def used():
        run = Run.of_files(registry.path("arithmetic@320"), "cuda")
        run.sample([3, 4])
        run.finish()
        return torch.cuda.memory_allocated()

    used()  # CUDA's libraries have their own memory from their first use on
    gc.collect()
    before = torch.cuda.memory_allocated()

    assert used() > before
    gc.collect()
    assert torch.cuda.memory_allocated() <= before


@pytest.mark.parametrize("name", ["auto", "cuda", "cuda:0"])
def test_names_of_the_first_device(name):
    """Without a name it is CUDA, where there is a device."""
    assert resolve_device(name) == torch.device("cuda", 0)


def test_weights_keep_the_type_of_the_files(make_model):
    """Unless another one is requested."""
    device = torch.device("cuda", 0)
    assert load(registry.path("arithmetic@320"), device).model.dtype == torch.float16
    assert load(registry.path("arithmetic@320"), device, dtype="bfloat16").model.dtype == torch.bfloat16
