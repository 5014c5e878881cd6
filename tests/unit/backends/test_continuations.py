"""Continuations of one prompt: as few calls as the client allows, and the same numbers whatever it allows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import BackendError, FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Datum, ModelInput, SampledSequence, SamplingParams
from crucible_worker.backends.base import Capability, Model
from crucible_worker.backends.continuations import forward_continuations, sample_continuations
from tests.tables import rows

tokens = st.integers(0, 3)
continuation = st.lists(tokens, min_size=1, max_size=4)


def logprob(before: Sequence[int], token: int) -> float:
    """Of a token behind others: another one for every beginning."""
    return -(sum((place + 1) * (other + 1) for place, other in enumerate(before)) * 5 + token + 1) / 8


def expected(prompt: Sequence[int], continuation: Sequence[int]) -> list[float]:
    """What a model says of a continuation."""
    whole = [*prompt, *continuation]
    return [logprob(whole[:place], whole[place]) for place in range(len(prompt), len(whole))]


def needed(continuations: Sequence[Sequence[int]], *, targets: bool) -> set[tuple[int, ...]]:
    """What has to be asked: not what another begins with; and no last token, where targets are measured."""
    keys = {tuple(each[:-1] if targets else each) for each in continuations}
    return {key for key in keys if not any(other != key and other[: len(key)] == key for other in keys)}


@dataclasses.dataclass
class Prompts(Model):
    """Gives log-probabilities of prompts."""

    asked: list[list[int]] = dataclasses.field(default_factory=list)

    async def sample(
        self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1
    ) -> Sequence[SampledSequence]:
        raise AssertionError("nothing is generated")

    async def compute_logprobs(self, prompt: ModelInput) -> Sequence[float | None]:
        whole = prompt.tokens().tolist()
        self.asked.append(whole)
        return [None, *(logprob(whole[:place], whole[place]) for place in range(1, len(whole)))]


@dataclasses.dataclass
class Targets(Prompts):
    """Measures other tokens, too; `refusal` is raised in place of that."""

    refusal: FailedPrecondition | None = None
    targeted: list[list[int]] = dataclasses.field(default_factory=list)

    async def compute_target_logprobs(self, prompt: ModelInput, targets: Sequence[tuple[int, int]]) -> Sequence[float]:
        whole = prompt.tokens().tolist()
        self.targeted.append(whole)
        if self.refusal is not None:
            raise self.refusal
        assert len(set(targets)) == len(targets)
        assert all(1 <= place < len(whole) for place, _ in targets)
        return [logprob(whole[:place], token) for place, token in targets]


@dataclasses.dataclass
class Continuations(Prompts):
    """Takes all continuations of a prompt at once."""

    calls: int = 0

    async def compute_continuation_logprobs(
        self, prompt: ModelInput, continuations: Sequence[Sequence[int]]
    ) -> Sequence[np.ndarray]:
        self.calls += 1
        whole = prompt.tokens().tolist()
        return [np.array(expected(whole, list(tokens))) for tokens in continuations]


@dataclasses.dataclass
class Forward(Model):
    """Makes forward passes."""

    calls: int = 0

    async def forward(self, data: Sequence[Datum]) -> Sequence[np.ndarray]:
        self.calls += 1
        answers = []
        for datum in data:
            before = datum.model_input.tokens().tolist()
            targets = np.asarray(datum.loss_fn_inputs["target_tokens"]).tolist()
            answers.append(np.array([logprob(before[: place + 1], token) for place, token in enumerate(targets)]))
        return answers


@given(prompt=st.lists(tokens, min_size=1, max_size=3), continuations=st.lists(continuation, min_size=1, max_size=6))
async def test_every_client_says_the_same(prompt: list[int], continuations: list[list[int]]) -> None:
    """By targets, by prompts, at once and by forward passes, each has its own numbers; no call is in vain."""
    wanted = [expected(prompt, continuation) for continuation in continuations]

    for client in (Targets(), Prompts()):
        found = await sample_continuations(client, prompt, continuations)
        assert [values.tolist() for values in found] == wanted
        calls = client.targeted if isinstance(client, Targets) else client.asked
        assert len(calls) == len(needed(continuations, targets=isinstance(client, Targets)))
    at_once = Continuations()
    found = await sample_continuations(at_once, prompt, continuations)
    assert ([values.tolist() for values in found], at_once.calls, at_once.asked) == (wanted, 1, [])
    found = await forward_continuations(Forward(), prompt, continuations)
    assert [values.tolist() for values in found] == wanted


@rows(
    ("continuations", "by_targets", "by_prompts"),
    [
        ([[1], [2], [3], [0]], 1, 4),
        ([[1, 2], [1, 3], [1]], 1, 2),
        ([[1, 2], [1, 2]], 1, 1),
        ([[1, 2], [2, 1]], 2, 2),
        ([[1], [2, 3]], 1, 2),
    ],
)
async def test_calls_are_shared(continuations: list[list[int]], by_targets: int, by_prompts: int) -> None:
    """What differs in its last token, or ends earlier, shares a call; without targets, what another begins with."""
    targets, prompts = Targets(), Prompts()

    await sample_continuations(targets, [3, 3], continuations)
    await sample_continuations(prompts, [3, 3], continuations)

    assert (len(targets.targeted), len(targets.asked), len(prompts.asked)) == (by_targets, 0, by_prompts)
    assert [Capability.TARGETS in model.capabilities for model in (targets, prompts)] == [True, False]


async def test_a_forward_pass_takes_all_at_once() -> None:
    """A training client is called once, whatever the number of continuations."""
    client = Forward()

    await forward_continuations(client, [1], [[1], [2, 3], [0]])

    assert client.calls == 1


async def test_a_service_without_targets_is_asked_for_prompts() -> None:
    """Where it says that it answers no such question, and for no other reason."""
    refused = Targets(refusal=FailedPrecondition("no", reason=Reason.NO_TARGET_LOGPROBS))

    found = await sample_continuations(refused, [1], [[2], [3]])

    assert [values.tolist() for values in found] == [expected([1], [2]), expected([1], [3])]
    assert sorted(refused.asked) == [[1, 2], [1, 3]]
    with pytest.raises(FailedPrecondition, match="key"):
        await sample_continuations(Targets(refusal=FailedPrecondition("key", reason="BACKEND_KEY")), [1], [[2]])


@pytest.mark.parametrize(
    ("prompt", "continuations", "field"), [([], [[1]], "prompt"), ([1], [[1], []], "continuations[1]")]
)
async def test_nothing_has_no_log_probability(prompt: list[int], continuations: list[list[int]], field: str) -> None:
    """An empty prompt or continuation is refused before anybody is asked."""
    for asking in (
        sample_continuations(Prompts(), prompt, continuations),
        forward_continuations(Forward(), prompt, continuations),
    ):
        with pytest.raises(InvalidField) as caught:
            await asking
        assert caught.value.field == field


@pytest.mark.parametrize("answer", [[], [None, -1.0], [None, -1.0, None], [None] * 4])
async def test_an_answer_that_does_not_fit_is_an_error(answer: list[float | None], monkeypatch: Any) -> None:
    """Too many values, too few, or one left out: never a wrong number."""

    async def answers(self: Prompts, prompt: ModelInput) -> Sequence[float | None]:
        return answer

    monkeypatch.setattr(Prompts, "compute_logprobs", answers)
    with pytest.raises(BackendError) as caught:
        await sample_continuations(Prompts(), [1, 2], [[3]])
    assert caught.value.reason == "BACKEND_ANSWER"


async def test_too_few_or_too_many_values_are_an_error(monkeypatch: Any) -> None:
    """Likewise where targets are measured, all continuations at once, and of forward passes."""

    async def none(self: object, *arguments: object) -> list[Any]:
        return []

    async def longer(self: object, *arguments: object) -> list[Any]:
        return [np.zeros(2)]

    monkeypatch.setattr(Targets, "compute_target_logprobs", none)
    monkeypatch.setattr(Continuations, "compute_continuation_logprobs", longer)
    monkeypatch.setattr(Forward, "forward", none)
    for asking in (
        sample_continuations(Targets(), [1], [[2]]),
        sample_continuations(Continuations(), [1], [[2]]),
        forward_continuations(Forward(), [1], [[2]]),
    ):
        with pytest.raises(BackendError) as caught:
            await asking
        assert caught.value.reason == "BACKEND_ANSWER"
