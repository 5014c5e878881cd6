"""next_token_accuracy on a model that stays with its caller: whether it is asked, and what becomes of odd answers."""

from __future__ import annotations

from typing import Any

import numpy as np

from crucible_bridge.types import (
    ArgmaxQuestion,
    Dataset,
    Datum,
    EvaluationState,
    EvaluatorSpec,
    LikeliestTokens,
    ModelInput,
    OrchestratorCall,
    Sample,
    SampledSequence,
    Verdict,
)
from tests.service.evaluation_kit import rig, samples_of
from tests.service.orchestrator_kit import asked, opened, start_of

ARGMAX = frozenset({OrchestratorCall.ARGMAX})
TOKENS = [[4, 5, 6], [7, 8, 9]]


def request(**fields: Any) -> Any:
    """Two samples in tokens."""
    samples = [
        Sample(input=Datum(model_input=ids[:-1], loss_fn_inputs={"target_tokens": ids[1:], "weights": [1.0, 1.0]}))
        for ids in TOKENS
    ]
    spec = EvaluatorSpec(kind="next_token_accuracy")
    return asked(**{"evaluators": spec, "dataset": Dataset.of(samples), "sampling": None, **fields})


async def test_the_likeliest_tokens_are_requested_of_the_whole_sequence():
    """One question a sample, with its input and its last target; the answer has one place for each target."""
    sequences: list[list[int]] = []

    def answer(question: Any) -> LikeliestTokens:
        assert isinstance(question, ArgmaxQuestion)
        tokens = question.sequence.tokens().tolist()
        sequences.append(tokens)
        return LikeliestTokens(np.array([tokens[1], 0], np.int64))

    async with rig() as it, opened(it.worker.address, start_of(request(), calls=ARGMAX)) as stream:
        await stream.accepted()
        ended = await stream.answer_all(answer)
    assert sorted(sequences) == TOKENS
    assert ended.evaluation.metrics.values["next_token_accuracy"] == 0.5
    assert ended.evaluation.metrics.values["sample_accuracy"] == 0.0


async def test_a_model_without_likeliest_tokens_is_refused_by_name():
    """MISSING_CLIENT names the method that is missing, and those that are there; nothing is asked."""

    class Samples:
        async def sample(self, prompt: Any, params: Any, num_samples: int) -> list[SampledSequence]:
            raise AssertionError("must not be asked")

    async with rig() as it:
        evaluation = await it.evaluation.evaluate_with_orchestrator_model(request(), model=Samples())
    (result,) = evaluation.results
    assert evaluation.state is EvaluationState.FAILED
    assert result.problem is not None
    assert result.problem.reason == "MISSING_CLIENT"
    assert "needs a model that answers compute_argmax" in result.problem.message
    assert "sample" in result.problem.message.partition("this one answers")[2]


async def test_answers_that_are_no_tokens_cost_their_sample():
    """A place without a token, and one beyond 64 bits, are failures of the model; the other sample counts."""

    class Odd:
        def __init__(self, odd: Any) -> None:
            self.odd = odd

        def compute_argmax(self, model_input: ModelInput) -> list[Any]:
            first, *rest = model_input.tokens().tolist()
            return [None, *rest] if first == 4 else [None, self.odd, 1]

    async with rig() as it:
        for index, odd in enumerate([None, 2**70, 0.5, -2]):
            name = f"odd-{index}"
            evaluation = await it.evaluation.evaluate_with_orchestrator_model(
                request(evaluation_id=name), model=Odd(odd)
            )
            verdicts = [one.verdict for one in await samples_of(it.worker.bridge, name)]
            assert evaluation.metrics.values["next_token_accuracy"] == 1.0
            assert verdicts == [Verdict.MEASURED, Verdict.ERROR]


async def test_a_token_that_is_only_known_to_be_another_is_a_wrong_one():
    """-1 stands for a likeliest token that differs from the sample's, if the model's service names no other."""

    class Unnamed:
        def compute_argmax(self, model_input: ModelInput) -> list[int | None]:
            tokens = model_input.tokens().tolist()
            return [None, tokens[1], -1]

    async with rig() as it:
        evaluation = await it.evaluation.evaluate_with_orchestrator_model(request(), model=Unnamed())
    assert evaluation.metrics.values["next_token_accuracy"] == 0.5
