"""What one pass measures: the continuations of a prompt, the windows of a text, and nothing of another request."""

import dataclasses
import random
import threading

import numpy as np
import pytest

from crucible_worker.backends.local.protocol import floats_from_bytes, tokens_from_bytes
from crucible_worker.embedded import registry
from tests import needs
from tests.unit.backends.conftest import ARCHITECTURES

torch = pytest.importorskip("torch", reason=needs.MISSING["torch"])
needs.modules("transformers")

from crucible_worker.backends.local.host import scoring  # noqa: E402 (needs torch)
from crucible_worker.backends.local.host.loading import load  # noqa: E402
from crucible_worker.backends.local.host.scoring import Replicas  # noqa: E402
from tests.unit.backends.local_scheduler import Run  # noqa: E402

MODEL = "arithmetic@320"


def passes(run, monkeypatch):
    """Shapes of what the model reads from now on, a pass each."""
    shapes = []
    forward = run.scheduler.loaded.model.forward

    def reading(**given):
        shapes.append(tuple(given["input_ids"].shape))
        return forward(**given)

    monkeypatch.setattr(run.scheduler.loaded.model, "forward", reading)
    return shapes


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.inference_mode()
def test_continuations_equal_whole_forward_passes(architecture, make_model):
    """Each gets what it would get behind the prompt alone and without a cache, whatever its length and the prompt's."""
    run = Run.of_files(make_model(architecture))
    choice = random.Random(1)
    for size in (1, 2, 9, 20):
        prompt = [choice.randrange(1, 40) for _ in range(size)]
        given = [[choice.randrange(1, 40) for _ in range(length)] for length in (1, 3, 2, 7, 1)]
        for some in (given, given[:1], [[7], [9]]):
            identity = run.measure(prompt, some)
            run.finish()

            for tokens, found in zip(some, run.answers[identity], strict=True):
                whole = torch.tensor([[*prompt, *tokens]])
                logits = run.scheduler.loaded.model(input_ids=whole, use_cache=False).logits[0]
                wanted = logits.log_softmax(-1)[range(size - 1, size - 1 + len(tokens)), tokens]
                np.testing.assert_allclose(floats_from_bytes(found), wanted, rtol=1e-4, atol=1e-4)


def test_a_prompt_is_read_once(monkeypatch):
    """One row of it, then the continuations without their last tokens; where these have one token, nothing more."""
    run = Run.of_files(registry.path(MODEL))
    shapes = passes(run, monkeypatch)

    run.measure([3, 4, 5, 6], [[1, 2, 3], [4], [5, 6]])
    run.measure([3, 4, 5], [[1], [2], [3]])
    run.finish()

    assert shapes == [(1, 4), (3, 2), (1, 3)]


def test_continuations_that_are_too_many_for_one_pass_are_read_by_several(monkeypatch):
    """The prompt still once; each has the numbers that it has among few."""
    run = Run.of_files(registry.path(MODEL))
    prompt, given = [3, 4, 5], [[token, token + 1, token + 2] for token in range(10)]
    few = [run.measure(prompt, [tokens]) for tokens in given]
    run.finish()
    monkeypatch.setattr(scoring, "POSITIONS_AT_ONCE", 8)
    shapes = passes(run, monkeypatch)

    many = run.measure(prompt, given)
    run.finish()

    assert [width for _, width in shapes] == [3, 2, 2, 2]
    for alone, found in zip(few, run.answers[many], strict=True):
        wanted = floats_from_bytes(run.answers[alone][0])
        np.testing.assert_allclose(floats_from_bytes(found), wanted, rtol=1e-5, atol=1e-5)


def test_requests_share_no_pass(monkeypatch):
    """The passes of a request, and the order of its rows, are the same whatever waits with it."""
    run = Run.of_files(registry.path(MODEL))
    shapes = passes(run, monkeypatch)

    for index in range(4):
        run.score(([index, *range(7)], [*range(8)]))
        run.greedy([index, *range(7)])
        run.measure([index, *range(7)], [[1], [2]])
    run.finish()

    assert shapes == [(1, 8)] * 12


def test_a_fault_is_that_of_its_request(monkeypatch):
    """A sequence on which the model fails, or whose logits are not finite, does so alone; the others are answered."""
    run = Run.of_files(registry.path(MODEL))
    forward = run.scheduler.loaded.model.forward

    def failing(**given):
        if (given["input_ids"] == 13).any():
            raise RuntimeError("thirteen")
        output = forward(**given)
        output.logits[(given["input_ids"] == 12).any(1)] = torch.nan
        return output

    monkeypatch.setattr(run.scheduler.loaded.model, "forward", failing)
    first = [12, 3, 13, 4, 5]
    asked_for = [run.greedy([token, *range(7)]) for token in first]
    run.finish()

    reasons = [getattr(run.answers[each], "reason", None) for each in asked_for]
    assert reasons == ["LOGITS_NOT_FINITE", None, "MODEL_FAILED", None, None]
    assert all(len(tokens_from_bytes(run.answers[each][0])) == 8 for each in (asked_for[1], *asked_for[3:]))


def long_ones(run):
    """Windows of two lengths, as many together as are worth a thread, in the order of their requests."""
    for index in range(6):
        tokens = [[(index + window + place) % 15 for place in range(21 + index % 2)] for window in range(16)]
        yield run.score(*((each[:-1], each[1:]) for each in tokens), together=True)


def test_passes_are_made_side_by_side(monkeypatch):
    """On two cores each of two passes sees the other one begin; no bit of the results is another."""
    alone = Run.of_files(registry.path(MODEL))
    wanted = []
    for identity in long_ones(alone):
        alone.finish()
        wanted.append(alone.answers[identity])
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    run = Run.of_files(registry.path(MODEL))
    both = threading.Barrier(2, timeout=30)
    forward = run.scheduler.loaded.model.forward

    def meeting(**given):
        both.wait()
        return forward(**given)

    monkeypatch.setattr(run.scheduler.loaded.model, "forward", meeting)
    identities = list(long_ones(run))
    run.finish()

    assert [run.answers[identity] for identity in identities] == wanted


def test_a_fault_is_that_of_its_request_side_by_side(monkeypatch):
    """Where all of one length fail, those of the other are answered."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    run = Run.of_files(registry.path(MODEL))
    forward = run.scheduler.loaded.model.forward

    def failing(**given):
        if given["input_ids"].shape[1] == 21:
            raise RuntimeError("twenty-one")
        return forward(**given)

    monkeypatch.setattr(run.scheduler.loaded.model, "forward", failing)
    identities = list(long_ones(run))
    run.finish()

    answers = [run.answers[identity] for identity in identities]
    assert [[len(floats_from_bytes(row)) for row in answer] for answer in answers[::2]] == [[20] * 16] * 3
    assert {answer.reason for answer in answers[1::2]} == {"MODEL_FAILED"}


def test_a_model_that_cannot_be_copied_is_asked_by_one_thread(monkeypatch, caplog):
    """One pass after the other; it is tried once, and said."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    run = Run.of_files(registry.path(MODEL))
    run.scheduler.loaded.model.lock = threading.Lock()

    for _ in range(2):
        identities = list(long_ones(run))
        run.finish()
        assert all(len(run.answers[each]) == 16 for each in identities)
    assert len(caplog.records) == 1


@pytest.mark.parametrize(("threads", "cores", "width"), [(1, 1, 1), (1, 2, 2), (1, 64, 4), (2, 2, 1)])
def test_as_many_passes_as_cores(threads, cores, width, monkeypatch):
    """Up to four; a larger model's passes have all cores, one after the other."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    loaded = dataclasses.replace(load(registry.path(MODEL), torch.device("cpu")), threads=threads)
    assert Replicas(loaded).width == width


def test_what_is_over_is_not_measured(monkeypatch):
    """An aborted request costs no pass, although it waited first."""
    run = Run.of_files(registry.path(MODEL))
    shapes = passes(run, monkeypatch)
    identities = [run.score(([index, *range(7)], [*range(8)])) for index in range(5)]
    for identity in identities[:4]:
        run.scheduler.abort(identity)
    run.finish()

    assert set(run.answers) == {identities[4]}
    assert shapes == [(1, 8)]


def test_nothing_is_kept_of_what_is_over():
    """Neither what was to be measured nor the cache of a batch, although nothing else is asked."""
    run = Run.of_files(registry.path(MODEL))
    identities = [run.sample([3, 4, 5], temperature=5.0, seed=1, num_samples=8) for _ in range(9)]
    run.steps(1)
    identities.append(run.score(*[([3, 4, 5], [3, 4, 5])] * 100))
    for identity in identities:
        run.scheduler.abort(identity)

    assert run.scheduler.busy
    assert run.finish() == {}
    scheduler = run.scheduler
    assert [len(kept) for kept in (scheduler._scoring, scheduler._batches, scheduler._waiting)] == [0, 0, 0]
