"""A row's tokens do not depend on the other rows, whatever the architecture."""

import random

import numpy as np
import pytest

from crucible_worker.backends.local.protocol import floats_from_bytes
from crucible_worker.embedded import registry
from crucible_worker.embedded.arithmetic import held_out
from tests import needs
from tests.unit.backends.conftest import ARCHITECTURES

torch = pytest.importorskip("torch", reason=needs.MISSING["torch"])
needs.modules("transformers")

from crucible_worker.backends.local.host import engine  # noqa: E402 (needs torch)
from crucible_worker.backends.local.host.scoring import POSITIONS_AT_ONCE, sequences  # noqa: E402
from tests.tables import rows  # noqa: E402
from tests.unit.backends.local_scheduler import Run  # noqa: E402


@torch.inference_mode()
def generated(loaded, prompt, count):
    """Greedy continuation by whole forward passes, without a cache or a batch."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(loaded.model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax()))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_batched_rows_equal_whole_forward_passes(architecture, make_model):
    """Prompts of different lengths, joining at different times, get what each would get alone and without a cache."""
    run = Run.of_files(make_model(architecture))
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


@rows("name", registry.names())
def test_embedded_models_answer_alike_alone_and_together(name):
    """Greedy tokens of every embedded model are the same alone, and shuffled among rows of other lengths."""
    run = Run.of_files(registry.path(name))
    problems = [str(sample.input) for sample in held_out(24)]
    prompts = [run.encode(text[: 3 + i % 4]) for i, text in enumerate(problems)]
    prompts += [run.encode(text) for text in problems]

    def answers(order):
        identities = {index: run.sample(prompts[index]) for index in order}
        run.finish()
        return [run.tokens(identities[index]) for index in range(len(prompts))]

    alone = []
    for index in range(len(prompts)):
        alone.append(run.sample(prompts[index]))
        run.finish()
    expected = [run.tokens(identity) for identity in alone]
    for seed in range(5):
        order = random.Random(seed).sample(range(len(prompts)), len(prompts))
        assert answers(order) == expected


def test_random_samples_do_not_depend_on_other_rows():
    """A seeded sample draws from its own random numbers, whoever else draws."""
    run = Run.of_files(registry.path("arithmetic@240"))
    prompt = run.encode("23+74=")

    alone = run.sample(prompt, temperature=1.5, seed=7, num_samples=4)
    run.finish()
    crowd = [run.sample(prompt[:k], temperature=2.0, seed=k) for k in range(1, 6)]
    together = run.sample(prompt, temperature=1.5, seed=7, num_samples=4)
    run.finish()

    assert run.tokens(together) == run.tokens(alone)
    assert len({tuple(tokens) for tokens in run.tokens(alone)}) > 1
    assert all(identity in run.answers for identity in crowd)


def test_scores_are_bit_equal_alone_and_together():
    """Log-probabilities are the same bits alone, among other sequences, and beside rows that generate."""
    run = Run.of_files(registry.path("arithmetic@320"))
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


def test_windows_are_bit_equal_whatever_else_waits():
    """Sequences that are asked for together are the same bits whatever else is asked; and what they are alone."""
    run = Run.of_files(registry.path("arithmetic@320"))
    sequences = [run.encode(f"{s.input}{s.targets[0]}") for s in held_out(40)]
    items = [(tokens[:-1], tokens[1:]) for tokens in sequences]

    quiet = run.score(*items, together=True)
    run.finish()
    for tokens in sequences[:10]:
        run.sample(tokens)
    apart = run.score(*items)
    crowded = run.score(*items, together=True)
    run.finish()

    assert run.answers[crowded] == run.answers[quiet]
    for window, alone in zip(run.answers[quiet], run.answers[apart], strict=True):
        np.testing.assert_allclose(floats_from_bytes(window), floats_from_bytes(alone), rtol=1e-5, atol=1e-5)


def test_windows_share_no_more_than_fits():
    """What follows each other, up to so many positions with each as long as the longest; a longer one is alone."""
    half = np.ones(POSITIONS_AT_ONCE // 2, np.int64)
    long, short, none = np.tile(half, 3), half[:1], half[:0]
    tokens = [half, half, half, short, short, half, long, long, none, none]

    together = [part.sizes for part in sequences(tokens, tokens, together=True)]
    apart = [part.sizes for part in sequences(tokens, tokens)]

    most = half.size
    assert together == [[most, most], [most, 1], [1, most], [3 * most], [3 * most], [0, 0]]
    assert apart == [[each.size] for each in tokens]


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gemma3_text", "mamba"])
@torch.inference_mode()
def test_scores_equal_a_direct_computation(architecture, make_model):
    """Log-probability i is that of target i under the softmax of logits i, as transformers computes them."""
    run = Run.of_files(make_model(architecture))
    tokens, targets = [3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8]

    identity = run.score((tokens, targets), ([5], [6]))
    run.finish()

    logits = run.scheduler.loaded.model(input_ids=torch.tensor([tokens])).logits[0]
    expected = logits.log_softmax(-1)[range(8), targets]
    np.testing.assert_allclose(floats_from_bytes(run.answers[identity][0]), expected, rtol=1e-5, atol=1e-5)
    assert floats_from_bytes(run.answers[identity][1]).shape == (1,)


def test_sampled_logprobs_are_those_of_the_unmodified_distribution():
    """Temperature, top_k and top_p decide what is drawn, not what is reported."""
    run = Run.of_files(registry.path("arithmetic@320"))
    prompt = run.encode("68+42=")

    drawn = run.sample(prompt, temperature=3.0, top_k=5, top_p=0.9, seed=3)
    run.finish()
    (result,) = run.answers[drawn]
    sequence = [*prompt, *result["tokens"]]
    scored = run.score((sequence[:-1], sequence[1:]))
    run.finish()

    np.testing.assert_allclose(
        result["logprobs"], floats_from_bytes(run.answers[scored][0])[len(prompt) - 1 :], rtol=1e-4, atol=1e-4
    )


def test_aborted_requests_leave_the_batch(make_model):
    """What was aborted is computed no further and never answered; the others finish."""
    run = Run.of_files(make_model("llama"))
    prompt = [4, 5, 6]
    aborted = [run.sample(prompt, max_tokens=20) for _ in range(3)]
    kept = run.sample(prompt)
    run.steps(1)
    late = run.score((prompt[:-1], prompt[1:]))

    for identity in (*aborted, late):
        run.scheduler.abort(identity)
    run.finish()

    assert set(run.answers) == {kept}


def test_more_rows_than_fit_wait_for_their_turn(monkeypatch):
    """A batch keeps to its bounds of rows and tokens, and everybody is served in the end."""
    monkeypatch.setattr(engine, "MAX_ROWS", 3)
    monkeypatch.setattr(engine, "MAX_BATCH_TOKENS", 40)
    monkeypatch.setattr(engine, "MAX_PREFILL_TOKENS", 12)
    run = Run.of_files(registry.path("arithmetic@600"))
    widths = []
    forward = run.scheduler.loaded.model.forward
    monkeypatch.setattr(
        run.scheduler.loaded.model,
        "forward",
        lambda **given: widths.append(tuple(given["attention_mask"].shape)) or forward(**given),
    )
    prompts = [run.encode(str(sample.input)) for sample in held_out(10)]

    identities = [run.sample(prompt) for prompt in prompts]
    run.finish()

    assert all(identity in run.answers for identity in identities)
    assert max(rows for rows, _ in widths) == 2  # 3 rows of 14 tokens are more than 40
    assert all(rows * columns <= 40 for rows, columns in widths)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_no_distribution_fail_their_requests(bad, monkeypatch):
    """A broken model is an error of its requests, with that reason; nothing is drawn from nonsense."""
    run = Run.of_files(registry.path("arithmetic@600"))
    run.scheduler.loaded.model.lm_head.weight.data[5] = bad

    identity = run.sample([3, 4, 5])
    run.finish()

    assert run.answers[identity].reason == "LOGITS_NOT_FINITE"
    assert not run.answers[identity].retryable


@pytest.mark.parametrize(
    ("raised", "reason", "retryable"),
    [
        (RuntimeError("shapes"), "MODEL_FAILED", False),
        (MemoryError(), "OUT_OF_MEMORY", True),
        (torch.OutOfMemoryError("CUDA out of memory"), "OUT_OF_MEMORY", True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "OUT_OF_MEMORY", True),
    ],
)
def test_exceptions_become_answers_and_the_scheduler_goes_on(raised, reason, retryable, monkeypatch, caplog):
    """Whatever a model raises, each of its requests is answered, the traceback logged, and the next one served."""
    run = Run.of_files(registry.path("arithmetic@600"))

    def fail(**_):
        raise raised

    with monkeypatch.context() as patch:
        patch.setattr(run.scheduler.loaded.model, "forward", fail)
        failed = [run.sample([3, 4], num_samples=2), run.score(([3], [4]))]
        run.finish()
    served = run.sample([3, 4])
    run.finish()

    assert [(run.answers[identity].reason, run.answers[identity].retryable) for identity in failed] == [
        (reason, retryable)
    ] * 2
    assert isinstance(run.answers[served], list)
    assert sum(record.exc_info is not None for record in caplog.records) == 2
