"""Log-probabilities of other tokens than a prompt's: how a Tinker service is asked for them, and when no longer."""

import asyncio

import numpy as np
import pytest

from crucible_bridge.errors import BackendError, FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import EvaluationState, ModelInput, Sample, Verdict
from crucible_worker.backends.base import Capability
from crucible_worker.backends.continuations import sample_continuations
from crucible_worker.backends.tinker.backend import MAX_TARGET_REFUSALS
from tests import needs
from tests.service.evaluation_kit import samples_of
from tests.service.tinker_kit import (
    SAMPLER,
    STATE,
    ScriptedLibrary,
    failed,
    logprob,
    measured,
    sampled,
    served,
    status,
    tinker,
    worker_on,
)
from tests.tables import rows

needs.modules("torch")

PROMPT = ModelInput.of([5, 6, 7])
LONG = list(range(5, 25))


def replaced(answer):
    """A script: questions about targets are answered like this, the rest plainly."""
    return lambda call: answer if call.kind == "targets" else None


async def test_targets_of_one_place_share_a_row(tmp_path):
    """The row before a place asks for what may stand there, every other cell is -1; values come in the order asked."""
    async with served(tmp_path) as (library, model):
        assert model.sampling is not None
        assert Capability.TARGETS in model.capabilities
        found = await model.sampling.compute_target_logprobs(PROMPT, [(2, 9), (1, 6), (2, 3)])
    (call,) = library.of("targets")
    assert call.asked == {"tokens": [5, 6, 7], "wanted": [[6, -1], [9, 3]]}
    assert found == (logprob(9, 2), logprob(6, 1), logprob(3, 2))


async def test_few_targets_in_a_long_prompt_are_sent_alone(tmp_path):
    """Where a matrix of cells would be mostly -1, only those that are asked for go over the wire, and come back."""
    targets = [(19, 3), (18, 4), (19, 7), (1, 2)]
    sent = []

    def keep(call):
        if call.kind == "targets":
            sent.append(call.asked["wanted"])

    async with served(tmp_path, keep) as (_, model):
        assert model.sampling is not None
        found = await model.sampling.compute_target_logprobs(ModelInput.of(LONG), targets)
    assert found == tuple(logprob(token, place) for place, token in targets)
    (wanted,) = sent
    assert [(row, ids) for row, ids in enumerate(wanted) if ids != [-1, -1]] == [
        (0, [2, -1]),
        (17, [4, -1]),
        (18, [3, 7]),
    ]


async def test_single_tokens_share_a_call(tmp_path):
    """Choices of one token each are one request, a longer one has its own prompt; nothing is measured twice."""
    async with served(tmp_path) as (library, model):
        assert model.sampling is not None
        letters = await sample_continuations(model.sampling, [5, 6], [[9], [8], [7]])
        assert len(library.of("targets")) == 1
        words = await sample_continuations(model.sampling, [5, 6], [[9, 1], [8, 2]])
        assert len(library.of("targets")) == 3
    assert not library.of("compute_logprobs")
    assert [values.tolist() for values in letters] == [[logprob(token, 2)] for token in (9, 8, 7)]
    assert [values.tolist() for values in words] == [
        [logprob(9, 2), logprob(1, 3)],
        [logprob(8, 2), logprob(2, 3)],
    ]


@pytest.mark.parametrize("refusal", [status(400, "unknown field"), status(422), failed("no", "user")])
async def test_a_service_that_refuses_is_asked_for_prompts(tmp_path, refusal):
    """The numbers are the same; after some refusals without an answer, the question is not put any more."""
    async with served(tmp_path, replaced(refusal)) as (library, model):
        assert model.sampling is not None
        for _ in range(MAX_TARGET_REFUSALS + 2):
            found = await sample_continuations(model.sampling, [5, 6], [[9], [8]])
            assert [values.tolist() for values in found] == [[logprob(9, 2)], [logprob(8, 2)]]
    assert len(library.of("targets")) == MAX_TARGET_REFUSALS
    assert len(library.of("compute_logprobs")) == 2 * (MAX_TARGET_REFUSALS + 2)


async def test_a_service_that_has_answered_is_asked_on(tmp_path):
    """What it refuses then, it refuses for that prompt alone."""
    async with served(tmp_path, lambda call: status(400) if call.kind == "targets" and call.index else None) as (
        library,
        model,
    ):
        assert model.sampling is not None
        for _ in range(MAX_TARGET_REFUSALS + 3):
            await sample_continuations(model.sampling, [5, 6], [[9], [8]])
    assert len(library.of("targets")) == MAX_TARGET_REFUSALS + 3


async def test_a_service_that_ignores_the_question_is_asked_once(tmp_path):
    """An answer without targets says that it does not know of them."""
    async with served(tmp_path, replaced(sampled([9], cut=True))) as (library, model):
        assert model.sampling is not None
        for _ in range(3):
            with pytest.raises(FailedPrecondition) as caught:
                await model.sampling.compute_target_logprobs(PROMPT, [(2, 9)])
            assert caught.value.reason == Reason.NO_TARGET_LOGPROBS
    assert len(library.of("targets")) == 1


@rows("error", [status(401), status(429, retry_after="3"), status(503), failed("prompt is too long", "user")])
async def test_other_errors_are_the_services_own(tmp_path, error):
    """No key, no time, too long a prompt: nothing of that is a word about targets."""
    async with served(tmp_path, replaced(error)) as (library, model):
        assert model.sampling is not None
        with pytest.raises((BackendError, InvalidField)) as caught:
            await sample_continuations(model.sampling, [5, 6], [[9], [8]])
    assert caught.value.reason != Reason.NO_TARGET_LOGPROBS
    assert not library.of("compute_logprobs")


@rows(
    "changed",
    [
        {"shape": [1, 2], "data": np.zeros((1, 2), np.float32)},
        {"dtype": "int64", "data": np.zeros((2, 1), np.int64)},
        {"sparse_crow_indices": [0, 1, 1], "sparse_col_indices": [0], "data": [-1.0]},
        {"sparse_crow_indices": [0, 0, 1], "sparse_col_indices": [0], "data": [-1.0, -1.0]},
        {"sparse_crow_indices": [0, 0, 1]},
    ],
)
async def test_an_answer_to_another_question_is_garbage(tmp_path, changed):
    """Another shape, another type, or other cells than were asked for: retryable, and never a wrong number."""
    wanted = tinker.TensorData(data=np.array([[-1], [9]]), dtype="int64", shape=[2, 1])
    async with served(tmp_path, replaced(measured(wanted, **changed))) as (_, model):
        assert model.sampling is not None
        with pytest.raises(BackendError) as caught:
            await model.sampling.compute_target_logprobs(PROMPT, [(2, 9)])
    assert (caught.value.reason, caught.value.retryable) == ("BACKEND_ANSWER", True)


@rows("targets", [[], [(0, 9)], [(3, 9)], [(1, -1)], [(1, 1 << 31)]])
async def test_targets_without_a_place_are_refused(tmp_path, targets):
    """Before anything is asked: the service would refuse all of it, or measure something else."""
    async with served(tmp_path) as (library, model):
        assert model.sampling is not None
        with pytest.raises(InvalidField):
            await model.sampling.compute_target_logprobs(PROMPT, targets)
    assert not library.calls


async def test_multiple_choice_on_both_kinds_of_weights(tmp_path):
    """Sampler weights are asked for targets, a training state for one forward pass a sample: the same verdicts."""
    samples = [
        Sample(id="right", input="1+1=", targets=("2",), choices=("2", "3", "4")),
        Sample(id="wrong", input="1+2=", targets=("C",), choices=("2", "3", "4")),
        Sample(id="words", input="is", targets=("not",), choices=("so it is", "not")),
    ]
    library = ScriptedLibrary()
    async with worker_on(library, tmp_path) as bridge:
        found = await asyncio.gather(
            *(
                bridge.evaluation.evaluate(
                    evaluation_id=name, model=model, evaluators=["multiple_choice"], dataset=samples
                )
                for name, model in (("sampler", SAMPLER), ("state", STATE))
            )
        )
        records = [await samples_of(bridge, evaluation.evaluation_id) for evaluation in found]
    assert [evaluation.state for evaluation in found] == [EvaluationState.COMPLETED] * 2
    assert found[0].metrics == found[1].metrics
    assert [[each.verdict for each in some] for some in records] == [
        [Verdict.CORRECT, Verdict.INCORRECT, Verdict.CORRECT]
    ] * 2
    assert [each.measurements for each in records[0]] == [each.measurements for each in records[1]]
    assert (len(library.of("targets")), len(library.of("forward"))) == (4, 3)
