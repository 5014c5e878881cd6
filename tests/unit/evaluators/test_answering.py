"""How evaluators have a model answer."""

import dataclasses

import numpy as np
import pytest

from crucible_bridge.errors import BackendError, FailedPrecondition
from crucible_bridge.types import Datum, SamplingParams
from crucible_worker.evaluators.answering import KEEP_THINKING, Answering, check_sampling_client
from tests.tables import rows
from tests.unit.evaluators.doubles import Double, Sampling

GREEDY = SamplingParams(max_tokens=4, seed=3)
RANDOM = dataclasses.replace(GREEDY, temperature=1.0)


@rows(("sampling", "seed", "used"), [(RANDOM, 7, 7), (RANDOM, None, 3), (GREEDY, 7, 3), (GREEDY, None, 3)])
async def test_a_random_answer_has_a_seed_of_its_own(sampling, seed, used):
    """Where sampling is random and a seed is given; else the parameters go as they are."""
    client = Sampling()

    await Answering(sampling=sampling).answer(Double(sampling=client), "q", seed)

    assert client.asked[0][1].seed == used


async def test_the_prompt_comes_with_the_answer():
    """Text as the tokens that were made of it, a datum's tokens as they are."""
    model = Double(sampling=Sampling())
    datum = Datum(model_input=[5, 6], loss_fn_inputs={"target_tokens": np.array([6, 7])})

    answers = [await Answering(sampling=GREEDY).answer(model, asked) for asked in ("ab", datum)]

    assert [None if answer.prompt is None else answer.prompt.tokens().tolist() for answer in answers] == [
        [97, 98],
        [5, 6],
    ]


async def test_what_is_no_character_is_replaced_and_counted():
    """The output can be sent and kept."""
    answer = await Answering(sampling=GREEDY).answer(Double(sampling=Sampling(answers=["a\ud800b\udfff"])), "q")

    assert (answer.output, answer.replaced, answer.text) == ("a\ufffdb\ufffd", 2, "a\ufffdb\ufffd")


@rows(
    ("said", "thinking", "text", "no_answer"),
    [
        ("<think>x</think>46", "remove", "46", ""),
        ("<think>x</think>", "remove", "", "no answer: only reasoning"),
        ("<think>x", "remove", "", "no answer: ended during the reasoning"),
        ("<think>x</think>46", KEEP_THINKING, "<think>x</think>46", ""),
        ("<think>x</think>", KEEP_THINKING, "<think>x</think>", ""),
        ("", "remove", "", ""),
    ],
)
async def test_thoughts_are_no_part_of_an_answer(said, thinking, text, no_answer):
    """Unless they are kept; the output has them either way."""
    answering = Answering(sampling=GREEDY, thinking=thinking)

    answer = await answering.answer(Double(sampling=Sampling(answers=[said])), "q")

    assert (answer.output, answer.text, answer.no_answer) == (said, text, no_answer)


@pytest.mark.parametrize("answers", [(), ("a", "b")])
async def test_one_answer_is_one_answer(answers):
    """A backend that gives none, or several, is at fault, and not asked again."""
    with pytest.raises(BackendError, match=f"gave {len(answers)}") as caught:
        await Answering(sampling=GREEDY).answer(Double(sampling=Sampling(answers=answers)), "q")

    assert (caught.value.reason, caught.value.retryable) == ("BACKEND_ANSWER", False)


def test_a_model_that_cannot_generate_is_refused():
    """With the evaluator's name, and who lacks what."""
    check_sampling_client(Double(sampling=Sampling()), "rollout")
    with pytest.raises(FailedPrecondition, match="rollout needs a sampling client, which the judge lacks") as caught:
        check_sampling_client(Double(), "rollout", "the judge")

    assert caught.value.reason == "MISSING_CLIENT"
