"""The evaluator nll: what a sample is measured by, and what the samples make together."""

import math
from typing import Any

import numpy as np
import pytest

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition, InvalidField
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Datum,
    EvaluatorSpec,
    ModelInput,
    Sample,
    SampleResult,
    Verdict,
)
from crucible_worker.evaluators import registry
from crucible_worker.evaluators.base import Evaluator, Outcome
from crucible_worker.metrics.nll import combine, nll_parts
from tests.tables import rows
from tests.unit.evaluators.doubles import Double, Letters, Sampling, Training, context


def _nll(**options: Any) -> Evaluator:
    return registry.create(EvaluatorSpec(kind="nll", options=options), 0, None)


def _datum(tokens: list[int], targets: list[int], weights: list[float]) -> Sample:
    inputs = {"target_tokens": np.array(targets), "weights": np.array(weights, np.float32)}
    return Sample(id="a", input=Datum(model_input=ModelInput.of(tokens), loss_fn_inputs=inputs))


def _result(outcome: Outcome) -> SampleResult:
    return SampleResult(
        evaluator="nll",
        sample_id="a",
        verdict=outcome.verdict,
        score=outcome.score,
        measurements=outcome.measurements,
    )


async def test_a_datum_is_measured_by_a_forward_pass() -> None:
    """With a training client, a Datum goes into forward as it is, and its weights as given count."""
    model = Double(training=Training([-1.0, -2.0, -4.0]), sampling=Sampling())
    sample = _datum([5, 6, 7], [6, 7, 8], [0.0, 1.0, 3.0])

    outcome = await _nll().run(sample, context(model))

    assert outcome.verdict is Verdict.MEASURED
    assert outcome.score == (2 + 12) / 4
    assert outcome.measurements == {
        "weighted_logprob_sum": -14.0,
        "weight_sum": 4.0,
        "weighted_tokens": 2.0,
        "minus_inf": 0.0,
    }
    assert model.training is not None
    assert model.training.data == [sample.input]


@pytest.mark.parametrize("options", [{}, {"client": "sampling"}])
async def test_a_sampling_client_is_asked_for_the_full_sequence(options: dict[str, str]) -> None:
    """Log-probabilities are those of input and last target, but for the first, which is null."""
    sampling = Sampling(logprobs=[None, -1.0, -2.0, -4.0])
    model = Double(training=Training([-9.0] * 3) if options else None, sampling=sampling)

    outcome = await _nll(**options).run(_datum([5, 6, 7], [6, 7, 8], [0.0, 1.0, 3.0]), context(model))

    assert sampling.measured == [[5, 6, 7, 8]]
    assert outcome.score == (2 + 12) / 4


async def test_a_sampling_client_knows_no_other_targets() -> None:
    """A sampling client has no targets but the input moved by one; those without weight do not matter."""
    model = Double(sampling=Sampling(logprobs=[None, -1.0, -2.0, -4.0]))

    with pytest.raises(InvalidField, match="shifted by one token"):
        await _nll().run(_datum([5, 6, 7], [6, 9, 8], [0.0, 1.0, 3.0]), context(model))

    assert (await _nll().run(_datum([5, 6, 7], [9, 7, 8], [0.0, 1.0, 3.0]), context(model))).score == 14 / 4


async def test_text_counts_its_target_alone() -> None:
    """Of input and target, the target's tokens and the end of the sequence have weight."""
    training = Training([-1.0, -2.0, -4.0, -8.0])

    outcome = await _nll().run(Sample(id="a", input="2=", targets=("46",)), context(Double(training=training)))

    assert training.data[0].model_input.tokens().tolist() == [ord(character) for character in "2=46"]
    assert outcome.measurements["weighted_tokens"] == 3
    assert outcome.score == (2 + 4 + 8) / 3


async def test_train_on_decides_which_messages_count() -> None:
    """Under all_assistant both answers count, under last_assistant the last one alone."""
    messages = tuple(ChatMessage(role, "x") for role in ("user", "assistant", "user", "assistant"))
    sample = Sample(id="a", input=Conversation(messages))
    tokenizer = Letters(has_chat_template=True)
    size = len(await tokenizer.encode_chat(messages, generation_prompt=False)) - 1
    model = Double(training=Training([-1.0] * size), tokenizer=tokenizer)

    counted = {
        choice: (await _nll(train_on=choice).run(sample, context(model))).measurements["weighted_tokens"]
        for choice in ("last_assistant", "all_assistant", "all")
    }

    assert counted == {"last_assistant": len("x</>"), "all_assistant": 2 * len("x</>"), "all": size}


@rows(
    ("sample", "field"),
    [
        (Sample(id="a", input=""), "input"),
        (
            Sample(id="a", input=Datum(model_input=ModelInput.of([5]), loss_fn_inputs={"weights": np.ones(1)})),
            "target_tokens",
        ),
        (
            Sample(
                id="a", input=Datum(model_input=ModelInput.of([5]), loss_fn_inputs={"target_tokens": np.ones(1, int)})
            ),
            "weights",
        ),
        (_datum([5, 6], [6, 7], [1.0]), "weights"),
        (_datum([5, 6], [6, 7, 8], [1.0, 1.0, 1.0]), "target_tokens"),
        (_datum([], [], []), "target_tokens"),
        (_datum([5], [6], [math.nan]), "weights"),
        (
            Sample(
                id="a",
                input=Datum(
                    model_input=ModelInput.of([5]), loss_fn_inputs={"target_tokens": np.ones(1), "weights": np.ones(1)}
                ),
            ),
            "target_tokens",
        ),
    ],
)
async def test_what_a_sample_lacks_is_named(sample: Sample, field: str) -> None:
    """A Datum without targets or weights of its length, or an empty text, is refused by the path of what is wrong."""
    model = Double(training=Training([-1.0, -1.0]))

    with pytest.raises(InvalidField) as caught:
        await _nll().run(sample, context(model))

    assert field in caught.value.field
    assert model.training is not None
    assert not model.training.data


@rows(
    ("logprobs", "reason", "message"),
    [
        ([math.nan, -1.0, math.nan], "NAN_LOGPROB", "1 of 2 log-probabilities is NaN"),
        ([math.nan, math.nan, math.nan], "NAN_LOGPROB", "2 of 2 log-probabilities are NaN"),
        ([-1.0, math.inf, -1.0], "INFINITE_LOGPROB", "1 of 2 log-probabilities is +inf"),
        ([-1.0, -1.0], "BACKEND_ANSWER", "forward answered"),
    ],
)
async def test_nonsense_of_the_model_is_an_error_of_the_sample(
    logprobs: list[float], reason: str, message: str
) -> None:
    """NaN on a weighted token, +inf, or another number of values is final: asking again does not help."""
    model = Double(training=Training(logprobs))

    with pytest.raises(BackendError, match=message.replace("+", r"\+")) as caught:
        await _nll().run(_datum([5, 6, 7], [6, 7, 8], [0.0, 1.0, 3.0]), context(model))

    assert (caught.value.reason, caught.value.retryable) == (reason, False)


@pytest.mark.parametrize("answer", [[None, -1.0], [None, -1.0, None, -1.0], [None] * 5])
async def test_nonsense_of_a_sampling_client_is_an_error_of_the_sample(answer: list[float | None]) -> None:
    """Too few values, too many, or a null beside the first one, are nonsense."""
    with pytest.raises(BackendError) as caught:
        await _nll().run(
            _datum([5, 6, 7], [6, 7, 8], [0.0, 1.0, 3.0]), context(Double(sampling=Sampling(logprobs=answer)))
        )

    assert (caught.value.reason, caught.value.retryable) == ("BACKEND_ANSWER", False)


async def test_an_impossible_token_leaves_the_mean_undefined() -> None:
    """Minus infinity is a measurement: the sample has no score, and the mean of all is undefined with the count."""
    good = await _nll().run(_datum([5], [6], [1.0]), context(Double(training=Training([-1.0]))))
    bad = await _nll().run(_datum([5, 6], [6, 7], [1.0, 1.0]), context(Double(training=Training([-1.0, -math.inf]))))

    metrics = _nll().aggregate([_result(good), _result(bad)])

    assert (bad.verdict, bad.score) == (Verdict.MEASURED, None)
    assert all(map(math.isfinite, bad.measurements.values()))
    assert metrics.values == {}
    assert metrics.undefined == {"nll": "1 of 3 log-probabilities is -inf"}


async def test_the_mean_is_that_of_all_tokens_bit_for_bit() -> None:
    """What samples keep gives the same number as all data at once; errors are left out."""
    generator = np.random.default_rng(0)
    logprobs = [-generator.random(size).astype(np.float32) for size in (1, 7, 30)]
    outcomes = [
        await _nll().run(
            _datum([1] * values.size, [1] * values.size, [1.0] * values.size),
            context(Double(training=Training(values.tolist()))),
        )
        for values in logprobs
    ]
    failed = SampleResult(evaluator="nll", sample_id="b", verdict=Verdict.ERROR)

    metrics = _nll().aggregate([*map(_result, outcomes), failed])

    assert metrics == combine(nll_parts(values, np.ones_like(values)) for values in logprobs)


async def test_a_sample_without_weight_is_measured_as_nothing() -> None:
    """Weights that are all 0 add nothing to the mean; where all samples are so, it is undefined."""
    outcome = await _nll().run(_datum([5], [6], [0.0]), context(Double(training=Training([-1.0]))))

    assert (outcome.verdict, outcome.score) == (Verdict.MEASURED, None)
    assert _nll().aggregate([_result(outcome)]).undefined == {"nll": "no token has weight"}


def test_where_nothing_is_measured_the_mean_is_undefined() -> None:
    """Every sample failing leaves a reason, not a number."""
    failed = SampleResult(evaluator="nll", sample_id="b", verdict=Verdict.ERROR)

    assert _nll().aggregate([failed]).undefined == {"nll": "no sample was scored"}


@rows(
    ("options", "model", "refused"),
    [
        ({}, Double(), True),
        ({}, Double(sampling=Sampling()), False),
        ({"client": "training"}, Double(sampling=Sampling()), True),
        ({"client": "sampling"}, Double(training=Training([])), True),
    ],
)
async def test_a_model_without_the_client_is_refused(options: dict[str, str], model: Double, refused: bool) -> None:
    """An evaluator says before the first sample that a model cannot be measured."""
    error: BridgeError | None = None
    try:
        _nll(**options).check(model)
    except FailedPrecondition as caught:
        error = caught

    assert (error is not None) is refused
    assert error is None or error.reason == "MISSING_CLIENT"
