"""The options `reduce` and `intermediates` of evaluators that measure given tokens."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from crucible_bridge.errors import InvalidField
from crucible_bridge.rollouts import PaddedRollouts, pad_rollouts
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
from crucible_worker.backends.base import Model
from crucible_worker.engine.specification import PlacedKeys, refuse_equal_keys
from crucible_worker.evaluators import registry
from crucible_worker.evaluators.base import Evaluator, Outcome
from tests.tables import rows
from tests.unit.evaluators.doubles import Double, Letters, Sampling, context

EOS = 0
MEASURED = ("perplexity", "bits_per_byte", "next_token_accuracy", "multiple_choice")


@dataclasses.dataclass
class Alphabet(Sampling):
    """The log-probability of a letter is -1 for "a", -2 for "b" and so on, of anything else -0.5; "b" is foretold."""

    async def compute_logprobs(self, prompt: ModelInput) -> Sequence[float | None]:
        tokens = prompt.tokens().tolist()
        return [None, *(_logprob(token) for token in tokens[1:])]

    async def compute_argmax(self, prompt: ModelInput) -> Sequence[int | None]:
        return [None, *(ord("b") for _ in prompt.tokens()[1:])]


def _logprob(token: int) -> float:
    return -(token - ord("a") + 1.0) if ord("a") <= token <= ord("z") else -0.5


def _evaluator(kind: str, **options: Any) -> Evaluator:
    return registry.create(EvaluatorSpec(kind=kind, options=options), 0, None)


def _result(outcome: Outcome, sample_id: str = "s") -> SampleResult:
    known = {field.name for field in dataclasses.fields(SampleResult)} - {"output"}
    fields = {field.name: getattr(outcome, field.name) for field in dataclasses.fields(outcome) if field.name in known}
    return SampleResult(evaluator="e", sample_id=sample_id, **fields)


def _model(**tokenizer: Any) -> Double:
    return Double(sampling=Alphabet(), tokenizer=Letters(**tokenizer))


async def _results(evaluator: Evaluator, *samples: Sample, model: Double | None = None) -> list[SampleResult]:
    model = model or _model()
    return [_result(await evaluator.run(sample, context(model)), sample.id) for sample in samples]


async def _padded(kind: str, *samples: Sample, model: Double | None = None, **options: Any) -> PaddedRollouts:
    return pad_rollouts(
        await _results(_evaluator(kind, intermediates=True, **options), *samples, model=model), padding="right"
    )


def _samples(kind: str) -> list[Sample]:
    choices = {"choices": ("a", "c"), "targets": ("a",)} if kind == "multiple_choice" else {}
    return [Sample(id="one", input="abc", **choices), Sample(id="two", input="ab", **choices)]


def _measured_text(batch: PaddedRollouts, row: int) -> str:
    return "".join(map(chr, batch.tokens[row][batch.action_mask[row]]))


@rows("kind", MEASURED)
async def test_with_none_the_scores_are_the_result(kind: str) -> None:
    """There is no key, of any evaluator; each sample has the score that it has by default."""
    evaluator, plain = _evaluator(kind, reduce="none"), _evaluator(kind)

    results = await _results(evaluator, *_samples(kind))

    assert not evaluator.aggregate(results).values
    assert not evaluator.aggregate(results).undefined
    expected = [result.score for result in await _results(plain, *_samples(kind))]
    assert [result.score for result in results] == expected
    assert None not in expected


@rows("kind", MEASURED)
async def test_the_mean_is_what_there_is_by_default(kind: str) -> None:
    """The option does not change what is reported without it."""
    results = await _results(_evaluator(kind), *_samples(kind))

    assert _evaluator(kind, reduce="mean").aggregate(results) == _evaluator(kind).aggregate(results)
    assert set(_evaluator(kind).aggregate(results).values) >= {registry.keys_of(EvaluatorSpec(kind=kind))[0]}


@rows(("kind", "total"), [("next_token_accuracy", 1 / 3 + 1 / 2), ("multiple_choice", 2.0)])
async def test_scores_that_add_up_are_added(kind: str, total: float) -> None:
    """In place of the evaluator's keys, with a standard error; an unscored sample is no 0."""
    evaluator = _evaluator(kind, reduce="sum")
    unscored = SampleResult(evaluator="e", sample_id="three", verdict=Verdict.ERROR)

    metrics = evaluator.aggregate([*await _results(evaluator, *_samples(kind)), unscored])

    assert metrics.values.keys() == {"score_sum", "score_sum_stderr"}
    assert metrics.values["score_sum"] == pytest.approx(total)


@rows("kind", ["perplexity", "bits_per_byte"])
async def test_a_sum_of_what_does_not_add_up_is_the_mean_over_all(kind: str) -> None:
    """As in theseus: one number over all tokens or bytes, and not the sum of the samples' own."""
    evaluator = _evaluator(kind, reduce="sum")
    results = await _results(evaluator, *_samples(kind))

    assert evaluator.aggregate(results) == _evaluator(kind).aggregate(results)
    if kind == "perplexity":
        assert evaluator.aggregate(results).values == {"perplexity": pytest.approx(math.exp((6 + 3) / 5))}


@rows("kind", ["perplexity", "bits_per_byte", "next_token_accuracy"])
async def test_the_tokens_of_a_text_are_kept(kind: str) -> None:
    """All of them were measured, behind what comes before a text; the reward is the sample's score."""
    (result,) = await _results(_evaluator(kind, intermediates=True), _samples(kind)[0])
    batch = pad_rollouts([result])

    assert batch.tokens.tolist() == [[EOS, *map(ord, "abc")]]
    assert batch.action_mask.tolist() == [[False, True, True, True]]
    assert batch.padding_mask.all()
    assert batch.rewards.tolist() == [result.score]
    told = batch.logprobs[batch.action_mask].tolist()
    assert all(map(math.isnan, told)) if kind == "next_token_accuracy" else told == [-1, -2, -3]


@rows("kind", ["perplexity", "bits_per_byte", "next_token_accuracy"])
async def test_of_a_target_the_tokens_before_it_were_seen_alone(kind: str) -> None:
    """They stand in the row, and are not marked."""
    batch = await _padded(kind, Sample(id="s", input="ab", targets=("cd",)))

    assert "".join(map(chr, batch.tokens[0])).startswith("abcd")
    assert _measured_text(batch, 0).removesuffix("\0") == "cd"


@rows("kind", ["perplexity", "next_token_accuracy"])
async def test_each_measured_message_is_a_turn(kind: str) -> None:
    """Tokens without weight between two of them are seen; the turns together are worth the score."""
    turns = [("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")]
    sample = Sample(id="s", input=Conversation(tuple(ChatMessage(*turn) for turn in turns)))
    evaluator = _evaluator(kind, intermediates=True, train_on="all_assistant")

    (result,) = await _results(evaluator, sample, model=_model(has_chat_template=True))

    assert result.group is not None
    (trajectory,) = result.group.trajectories
    assert len(trajectory.transitions) == 2
    assert trajectory.total_reward == result.score
    batch = pad_rollouts([result])
    assert _measured_text(batch, 0) == "b</>d</>"
    assert "".join(map(chr, batch.tokens[0])).startswith("<user>a</><assistant>b</><user>c</>")


async def test_of_a_datum_what_has_weight_was_measured() -> None:
    """However great its weight; its log-probabilities stand beside it."""
    tokens = list(map(ord, "abcde"))
    weights = np.array([0, 0.5, 0, 2], np.float32)
    inputs = {"target_tokens": np.array(tokens[1:]), "weights": weights}
    datum = Datum(model_input=ModelInput.of(tokens[:-1]), loss_fn_inputs=inputs)

    batch = await _padded("perplexity", Sample(id="s", input=datum))

    assert batch.action_mask.tolist() == [[False, False, True, False, True]]
    assert batch.logprobs.tolist() == [[0, 0, -3, 0, -5]]


async def test_targets_that_are_no_sequence_are_refused() -> None:
    """A forward pass measures them, and there is no row of tokens that holds them."""

    class Forward(Model):
        async def forward(self, data: Sequence[Datum]) -> Sequence[np.ndarray]:
            return [np.array([-1.0, -1.0])]

    inputs = {"target_tokens": np.array([7, 9]), "weights": np.ones(2, np.float32)}
    sample = Sample(id="s", input=Datum(model_input=ModelInput.of([5, 6]), loss_fn_inputs=inputs))
    model: Any = Double(training=Forward())  # pyright: ignore[reportArgumentType]: no more of it is asked

    assert (await _evaluator("perplexity").run(sample, context(model))).score == pytest.approx(math.e)
    with pytest.raises(InvalidField, match="one sequence of tokens"):
        await _evaluator("perplexity", intermediates=True).run(sample, context(model))


async def test_each_choice_is_a_row_behind_the_question() -> None:
    """Its reward says whether it is right, whatever the model holds for likely."""
    sample = Sample(id="s", input="q", choices=("ab", "b", "c"), targets=("ab", "c"))

    batch = await _padded("multiple_choice", sample)

    assert ["".join(map(chr, row[mask])) for row, mask in zip(batch.tokens, batch.padding_mask)] == ["qab", "qb", "qc"]
    assert [_measured_text(batch, row) for row in range(3)] == ["ab", "b", "c"]
    assert batch.rewards.tolist() == [1, 0, 1]
    assert batch.logprobs[batch.action_mask].tolist() == [-1, -2, -2, -3]
    assert batch.groups.tolist() == [0, 0, 0]


@rows("kind", MEASURED)
async def test_nothing_is_kept_unless_it_is_asked_for(kind: str) -> None:
    """Tokens take room in the journal."""
    results = await _results(_evaluator(kind), *_samples(kind))

    assert [result.group for result in results] == [None, None]


async def test_a_sample_without_a_score_keeps_its_row() -> None:
    """Without tokens and with the reward NaN, whatever the reason; the rows beside it stand."""
    inputs = {"target_tokens": np.array([6]), "weights": np.zeros(1, np.float32)}
    weightless = Sample(id="none", input=Datum(model_input=ModelInput.of([5]), loss_fn_inputs=inputs))

    batch = await _padded("perplexity", Sample(id="s", input="a"), weightless)

    assert batch.sample_ids == ("s", "none")
    assert batch.scored.tolist() == [True, False]
    assert batch.padding_mask.tolist() == [[True, True], [False, False]]


def test_evaluators_of_one_request_may_not_yield_the_same_sum() -> None:
    """By what each of them is asked for: without a sum, or without any key, nothing is the same."""
    added = EvaluatorSpec(kind="next_token_accuracy", options={"reduce": "sum"})
    choices = EvaluatorSpec(kind="multiple_choice", options={"reduce": "sum"})
    plain = EvaluatorSpec(kind="multiple_choice")
    nothing = EvaluatorSpec(kind="multiple_choice", options={"reduce": "none"})

    def refuse(*specs: EvaluatorSpec) -> None:
        refuse_equal_keys(PlacedKeys(str(at), "", spec, registry.keys_of(spec)) for at, spec in enumerate(specs))

    refuse(added, plain)
    refuse(added, nothing, nothing, plain)
    with pytest.raises(InvalidField, match="score_sum"):
        refuse(added, choices)
