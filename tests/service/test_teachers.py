"""Several teachers in one call, on embedded checkpoints and through a worker's process: what they answer together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.errors import BackendError, InvalidField
from crucible_bridge.types import BatchLimits, Datum, LogprobsItem, ModelInput, SamplingParams, Teacher
from crucible_worker.testing import ScriptedModel, run_worker
from tests.service.models_kit import fields, reasons
from tests.service.serving import serving
from tests.tables import rows

pytestmark = pytest.mark.asyncio(loop_scope="module")

LARGE, SMALL = "embedded:arithmetic@600", "embedded:arithmetic@320"
SEQUENCES = [[4, 5, 13, 6, 7, 14, 7, 9], [1, 2, 3], [5, 13, 6, 14, 1, 1]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bridge(tmp_path_factory: Any) -> AsyncIterator[Bridge]:
    """The client of a worker in a process of its own."""
    async with serving(tmp_path_factory.mktemp("worker"), "") as worker:
        await worker.ready()
        async with crucible_bridge.connect(worker.address) as bridge:
            yield bridge


def known(array: np.ndarray | None) -> np.ndarray:
    """An array that has to be there."""
    assert array is not None
    return array


async def test_a_token_has_the_weighted_mean_of_its_probabilities(bridge: Bridge):
    """As a logarithm, targets of one's own included; a sequence of one teacher has that one's values, unchanged."""
    targets = [[1, 7, -1]] * 3
    large, small = [
        (await bridge.models.compute_logprobs(model, SEQUENCES, targets=targets)).sequences for model in (LARGE, SMALL)
    ]

    answer = await bridge.models.compute_logprobs(
        [Teacher.of(LARGE, 3, [0, 1]), Teacher.of(SMALL, 1, [1, 2])], SEQUENCES, targets=targets
    )

    first, both, last = answer.sequences
    np.testing.assert_array_equal(known(first.logprobs), known(large[0].logprobs))
    np.testing.assert_array_equal(known(last.target_logprobs), known(small[2].target_logprobs))
    for name in ("logprobs", "target_logprobs"):
        one, other = (np.exp(getattr(each[1], name)) for each in (large, small))
        np.testing.assert_allclose(getattr(both, name), np.log(0.75 * one + 0.25 * other), rtol=1e-9)
    assert [each.usage.calls for each in answer.teachers if each.usage] == [2, 2]
    assert answer.usage is not None
    assert answer.usage.calls == 4
    assert len({each.model_fingerprint for each in answer.teachers}) == 2


async def test_the_likeliest_tokens_are_those_of_the_mean(bridge: Bridge):
    """With k of the whole vocabulary, all tokens by the mean; with fewer, the best of what one teacher names."""
    teachers = [Teacher.of(LARGE, 0.2), Teacher.of(SMALL, 0.8)]
    whole = (await bridge.models.compute_logprobs(teachers, SEQUENCES, top_k=16)).sequences
    few = (await bridge.models.compute_logprobs(teachers, SEQUENCES, top_k=2)).sequences
    named = [(await bridge.models.compute_logprobs(model, SEQUENCES, top_k=2)).sequences for model in (LARGE, SMALL)]

    for index, (every, some) in enumerate(zip(whole, few, strict=True)):
        assert every.top_tokens is not None
        assert every.top_logprobs is not None
        assert some.top_tokens is not None
        assert some.top_logprobs is not None
        np.testing.assert_allclose(np.exp(every.top_logprobs).sum(axis=1), 1.0, rtol=1e-5)
        for row in range(len(every.top_tokens)):
            of_all = dict(zip(every.top_tokens[row].tolist(), every.top_logprobs[row].tolist(), strict=True))
            tokens = {token for each in named for token in each[index].top_tokens[row].tolist()}  # type: ignore[index]
            best = sorted(tokens, key=lambda token: (-of_all[token], token))[:2]
            assert some.top_tokens[row].tolist() == best
            np.testing.assert_allclose(some.top_logprobs[row], [of_all[token] for token in best], rtol=1e-6)


async def test_a_teacher_that_cannot_be_opened_is_the_problem_of_its_sequences_alone(bridge: Bridge):
    """The field names it; the others have their values."""
    answer = await bridge.models.compute_logprobs(
        [Teacher.of(LARGE), Teacher.of("embedded:nobody", items=[1])], SEQUENCES, top_k=2
    )

    assert reasons(answer.sequences) == [None, "UNKNOWN_EMBEDDED_MODEL", None]
    assert fields(answer.sequences)[1] == "teachers[1].model"
    assert answer.teachers[1].usage is None


async def test_the_reverse_kl_to_teachers_comes_from_their_answer(bridge: Bridge):
    """The arrays fit as they are: a sequence is a Datum's input and its last target."""
    drawn = await bridge.models.sample(SMALL, [sequence[:-1] for sequence in SEQUENCES], SamplingParams(max_tokens=3))
    data, sequences = [], []
    for prompt, item in zip(SEQUENCES, drawn.items, strict=True):
        (sampled,) = item.sequences
        assert sampled.logprobs is not None
        tokens, before = [*prompt[:-1], *sampled.tokens], len(prompt) - 2
        inputs = {
            "target_tokens": np.array(tokens[1:]),
            "logprobs": np.array([0.0] * before + list(sampled.logprobs)),
            "mask": np.array([0.0] * before + [1.0] * len(sampled.tokens)),
            "advantages": np.zeros(len(tokens) - 1),
        }
        data.append(Datum(model_input=tokens[:-1], loss_fn_inputs=inputs))
        sequences.append(tokens)

    answer = await bridge.models.compute_logprobs([Teacher.of(LARGE), Teacher.of(SMALL)], sequences)
    measured = [each.logprobs for each in answer.sequences if each.logprobs is not None]
    sets = ["a", "b", "a"]
    penalty = await bridge.metrics.incorporate_kl_penalty(data, measured, coef=2.0, reverse_kl=True, datasets=sets)
    alone = await bridge.metrics.incorporate_kl_penalty(data, SMALL, coef=1.0, reverse_kl=True)
    train = await bridge.metrics.compute_kl_sample_train(data, measured)

    terms = [
        (datum.loss_fn_inputs["logprobs"] - teacher) * datum.loss_fn_inputs["mask"]  # type: ignore[operator]
        for datum, teacher in zip(data, measured, strict=True)
    ]
    for term, advantages in zip(terms, penalty.advantages, strict=True):
        np.testing.assert_allclose(advantages, -2.0 * term, atol=1e-9)
    assert penalty.metrics.values.keys() == {"teacher_kl", "teacher_kl/dataset_a", "teacher_kl/dataset_b"}
    assert penalty.metrics.values["teacher_kl"] == pytest.approx(train.metrics.values["optim/kl_sample_train_v1"])
    assert alone.metrics.values["teacher_kl"] == pytest.approx(0.0, abs=1e-4)


async def test_what_is_distilled_from_itself_is_measured_after_a_demonstration(bridge: Bridge):
    """The answer alone is measured, with a row of likeliest tokens for each of its tokens."""
    item = LogprobsItem(prompt=ModelInput.of([4, 5, 13, 6, 14, 7, 4, 5, 13, 6, 14]), continuation=(7, 9))
    (found,) = (await bridge.models.compute_logprobs([Teacher.of(LARGE)], [item], top_k=4)).sequences
    (joined,) = (
        await bridge.models.compute_logprobs(LARGE, [[4, 5, 13, 6, 14, 7, 4, 5, 13, 6, 14, 7, 9]], top_k=4, last_n=2)
    ).sequences

    assert found.first == joined.first == 11
    np.testing.assert_array_equal(known(found.top_tokens), known(joined.top_tokens))
    np.testing.assert_allclose(known(found.logprobs), known(joined.logprobs))


@rows(
    ("teachers", "field"),
    [
        ([Teacher.of("embedded:a", items=[0])], "teachers"),
        ([Teacher.of("embedded:a")] * 17, "teachers"),
        ([Teacher.of("embedded:a"), Teacher.of("embedded:b", items=[2])], "teachers[1].items"),
        ([Teacher.of("embedded:a"), Teacher.of("embedded:b", items=[-1])], "teachers[1].items"),
        ([Teacher.of("embedded:a"), Teacher.of("embedded:b", items=[0, 0])], "teachers[1].items"),
        ([Teacher.of("embedded:a", 0.0)], "teachers[0].weight"),
        ([Teacher.of("embedded:a", float("nan"))], "teachers[0].weight"),
        (["embedded:a"], "teachers[0]"),
        ([], "model"),
    ],
)
async def test_teachers_that_make_no_sense_are_refused(teachers: Any, field: str):
    """The error names the field; no model is asked."""
    async with run_worker({"a": (model := ScriptedModel()), "b": model}) as worker:
        with pytest.raises(InvalidField) as refused:
            await worker.bridge.models.compute_logprobs(teachers, [[1, 2], [3, 4]])

    assert refused.value.field == field
    assert model.counts["compute_logprobs"] == 0


async def test_teachers_are_asked_at_once_and_a_failure_is_that_of_its_items():
    """Each within the call's concurrency; the problem says which teacher has it."""
    sound, broken = ScriptedModel(latency=0.05), ScriptedModel(latency=0.05)
    down = BackendError("is out of order", reason="BACKEND_DOWN", retryable=False)
    broken.fault = lambda call: down
    async with run_worker({"a": sound, "b": broken}) as worker:
        answer = await worker.bridge.models.compute_logprobs(
            [Teacher.of("embedded:a"), Teacher.of("embedded:b", items=[1])],
            [[1, 2], [3, 4], [5, 6]],
            limits=BatchLimits(concurrency=2),
        )

    assert reasons(answer.sequences) == [None, "BACKEND_DOWN", None]
    assert answer.sequences[1].problem is not None
    assert answer.sequences[1].problem.message.startswith("teachers[1]: ")
    assert (sound.counts["peak"], sound.counts["compute_logprobs"]) == (2, 3)
