"""The evaluators perplexity and bits_per_byte: what of a sample counts, and what the samples make together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from crucible_bridge.errors import FailedPrecondition, InvalidField
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
from crucible_worker.evaluators import nll, registry
from crucible_worker.evaluators.base import Evaluator, Outcome
from tests.tables import rows
from tests.unit.evaluators.doubles import Double, Letters, Sampling, Training, context

EOS, BOS = 0, 9
LOG2 = math.log(2)


def _evaluator(kind: str, **options: Any) -> Evaluator:
    return registry.create(EvaluatorSpec(kind=kind, options=options), 0, None)


def _text(input: Any, *targets: str) -> Sample:
    return Sample(id="s", input=input, targets=targets)


def _results(*outcomes: Outcome) -> list[SampleResult]:
    return [
        SampleResult(
            evaluator="e",
            sample_id=str(index),
            verdict=outcome.verdict,
            score=outcome.score,
            measurements=outcome.measurements,
        )
        for index, outcome in enumerate(outcomes)
    ]


def _model(values: Sequence[float], **tokenizer: Any) -> Double:
    return Double(training=Training(values), tokenizer=Letters(**tokenizer))


@rows(("tokenizer", "before"), [({}, EOS), ({"bos_token_id": BOS}, BOS)])
@rows("kind", ["nll", "perplexity", "bits_per_byte"])
async def test_a_text_counts_as_a_whole(kind: str, tokenizer: dict[str, int], before: int) -> None:
    """Every token of it, the first one behind what begins a text, or ends the one before."""
    model = _model([-1.0, -3.0], **tokenizer)

    outcome = await _evaluator(kind).run(_text("aé"), context(model))

    assert model.training is not None
    (datum,) = model.training.data
    assert datum.model_input.tokens().tolist() == [before, ord("a")]
    assert np.asarray(datum.loss_fn_inputs["target_tokens"]).tolist() == [ord("a"), ord("é")]
    wanted = {"nll": 2.0, "perplexity": math.exp(2), "bits_per_byte": 4 / LOG2 / 3}
    assert outcome.score == pytest.approx(wanted[kind])
    assert outcome.verdict is Verdict.MEASURED


async def test_a_sampling_client_is_asked_for_the_same() -> None:
    """Its log-probabilities of the text behind that token, but for the token's own."""
    model = Double(sampling=Sampling(logprobs=[None, -1.0, -3.0]))

    outcome = await _evaluator("bits_per_byte").run(_text("ab"), context(model))

    assert model.sampling is not None
    assert model.sampling.measured == [[EOS, ord("a"), ord("b")]]
    assert outcome.score == pytest.approx(4 / LOG2 / 2)


async def test_bytes_of_a_target_are_those_of_its_tokens() -> None:
    """Only the target's tokens count, and nothing ends the sequence; a character of several tokens is whole."""

    class Bytes(Letters):
        async def encode(self, text: str) -> Sequence[int]:
            return list(text.encode())

    model = Double(training=Training([-5.0, -1.0, -2.0, -4.0]), tokenizer=Bytes())

    outcome = await _evaluator("bits_per_byte").run(_text("a=", "é!"), context(model))

    assert model.training is not None
    (datum,) = model.training.data
    assert bytes(datum.model_input.tokens().tolist()) == "a=é".encode()
    assert np.asarray(datum.loss_fn_inputs["weights"]).tolist() == [0, 1, 1, 1]
    assert outcome.measurements["bytes"] == 3
    assert outcome.score == pytest.approx(7 / LOG2 / 3)


async def test_a_target_stands_where_the_answer_would() -> None:
    """To role_colon it is a content, which a space separates from its role: the space is measured, and has its byte."""
    prompt = "User: 2=\n\nAssistant:"
    model = _model([-9.0] * (len(prompt) - 1) + [-1.0, -2.0])

    outcome = await _evaluator("bits_per_byte", renderer="role_colon").run(_text("2=", "4"), context(model))

    assert model.training is not None
    (datum,) = model.training.data
    assert "".join(map(chr, [*datum.model_input.tokens(), ord("4")])) == f"{prompt} 4"
    assert outcome.score == pytest.approx(3 / LOG2 / 2)


async def test_perplexity_of_what_nll_measures_is_its_exponential() -> None:
    """Text with a target, conversations and Datums: the same tokens and weights as nll."""
    datum = Datum(
        model_input=ModelInput.of([5, 6, 7]),
        loss_fn_inputs={"target_tokens": np.array([6, 7, 8]), "weights": np.array([0, 1, 3], np.float32)},
    )
    turns = Conversation((ChatMessage("user", "x"), ChatMessage("assistant", "y")))
    size = len("<user>x</><assistant>y</>") - 1
    for sample, values in ((_text(datum), [-1.0, -2.0, -4.0]), (_text("2=", "4"), [-1.0, -2.0, -4.0])):
        found = await _evaluator("perplexity").run(sample, context(_model(values)))
        nll = await _evaluator("nll").run(sample, context(_model(values)))
        assert nll.score is not None
        assert found.score == math.exp(nll.score)
        assert found.measurements == nll.measurements
    chat = await _evaluator("perplexity", train_on="all").run(
        _text(turns), context(_model([-1.0] * size, has_chat_template=True))
    )
    assert chat.score == math.e


async def test_samples_make_one_mean() -> None:
    """Of all tokens, or all bytes, and not of the samples' own."""
    perplexity, bits = _evaluator("perplexity"), _evaluator("bits_per_byte")
    texts = (("a", [-1.0]), ("bcd", [-2.0, -2.0, -2.0]))
    first = [await perplexity.run(_text(text), context(_model(values))) for text, values in texts]
    second = [await bits.run(_text(text), context(_model(values))) for text, values in texts]

    assert perplexity.aggregate(_results(*first)).values == {"perplexity": pytest.approx(math.exp(7 / 4))}
    assert bits.aggregate(_results(*second)).values == {"bits_per_byte": pytest.approx(7 / LOG2 / 4)}


@dataclasses.dataclass
class Bounded(Double):
    """A model that knows its context."""

    context_length: int | None = None


class OwnForward(Training):
    """Gives every target the same log-probability wherever it stands."""

    async def forward(self, data: Sequence[Datum]) -> Sequence[np.ndarray]:
        self.data.extend(data)
        return [-np.asarray(datum.loss_fn_inputs["target_tokens"], np.float64) for datum in data]


class OwnLogprobs(Sampling):
    """Likewise."""

    async def compute_logprobs(self, prompt: ModelInput) -> Sequence[float | None]:
        await super().compute_logprobs(prompt)
        return [None, *(-float(token) for token in prompt.tokens()[1:])]


@rows(
    ("client", "asked"),
    [("training", [[EOS, 1, 2], [3, 4, 5], [4, 5, 6]]), ("sampling", [[EOS, 1, 2], [2, 3, 4], [4, 5, 6], [5, 6, 7]])],
)
@rows("kind", ["nll", "perplexity", "bits_per_byte"])
async def test_a_text_beyond_the_context_is_measured_in_windows(kind: str, client: str, asked: list[list[int]]) -> None:
    """Every token once; a forward pass takes as many inputs as fit, a prompt holds the token measured last as well."""
    forward, logprobs = OwnForward(()), OwnLogprobs()
    model = Bounded(training=forward, sampling=logprobs, context_length=3)
    text = "\1\2\3\4\5\6\7"

    outcome = await _evaluator(kind, client=client).run(_text(text), context(model))

    prompts = [datum.model_input.tokens().tolist() for datum in forward.data] or logprobs.measured
    assert prompts == asked
    assert outcome.measurements["weighted_logprob_sum"] == -sum(range(1, 8))
    assert (outcome.measurements["weight_sum"], outcome.measurements["windows"]) == (7, len(asked))


class OwnWindows(OwnForward):
    """Takes windows together, and keeps how many each call had."""

    def __init__(self) -> None:
        super().__init__(())
        self.calls: list[int] = []

    async def forward_parts(self, data: Sequence[Datum]) -> Sequence[np.ndarray]:
        self.calls.append(len(data))
        return await self.forward(data)


@pytest.mark.parametrize(("tokens", "calls"), [(3, []), (9, [3]), (12, [4]), (13, [4]), (23, [4, 4])])
async def test_windows_are_asked_for_together(monkeypatch: pytest.MonkeyPatch, tokens: int, calls: list[int]) -> None:
    """Where a client takes them so, up to a number; what needs no second window is an ordinary forward pass."""
    monkeypatch.setattr(nll, "WINDOWS_AT_ONCE", 4)
    forward = OwnWindows()
    model = Bounded(training=forward, context_length=3)

    outcome = await _evaluator("perplexity").run(_text("\1" * tokens), context(model))

    assert forward.calls == calls
    assert outcome.score == pytest.approx(math.e)
    assert outcome.measurements["weight_sum"] == tokens


@pytest.mark.parametrize(("sample", "windows"), [(_text("abcd"), "refuse"), (_text("abc", "d"), "rolling")])
async def test_what_is_not_to_be_cut_is_asked_for_as_it_is(sample: Sample, windows: str) -> None:
    """A text where windows are refused, and any text with a target: the model says that it is too long."""
    for kind in ("perplexity", "bits_per_byte"):
        forward = OwnForward(())
        model = Bounded(training=forward, context_length=3)
        await _evaluator(kind, windows=windows).run(sample, context(model))
        assert len(forward.data) == 1


@pytest.mark.parametrize("kind", ["perplexity", "bits_per_byte"])
async def test_an_impossible_token_makes_it_undefined(kind: str) -> None:
    """The sample is measured, without a score; the mean says why there is none."""
    evaluator = _evaluator(kind)
    outcome = await evaluator.run(_text("ab"), context(_model([-1.0, -math.inf])))

    assert (outcome.verdict, outcome.score) == (Verdict.MEASURED, None)
    assert evaluator.aggregate(_results(outcome)).undefined == {kind: "1 of 2 log-probabilities is -inf"}
    assert evaluator.aggregate([]).undefined == {kind: "no sample was scored"}


async def test_a_perplexity_beyond_float64_is_undefined() -> None:
    """It is not infinite, and the sample has no score."""
    evaluator = _evaluator("perplexity")
    outcome = await evaluator.run(_text("a"), context(_model([-1000.0])))

    assert outcome.score is None
    assert evaluator.aggregate(_results(outcome)).undefined == {"perplexity": "exp(1000) is beyond float64"}


@rows(
    ("kind", "sample", "field"),
    [
        ("bits_per_byte", _text(Conversation(())), "conversation"),
        ("bits_per_byte", _text(Datum(model_input=ModelInput.of([5]), loss_fn_inputs={})), "datum"),
        ("bits_per_byte", _text(""), "text"),
        ("bits_per_byte", _text("a", ""), "targets[0]"),
        (
            "perplexity",
            _text(Datum(model_input=ModelInput.of([5]), loss_fn_inputs={})),
            'datum.loss_fn_inputs["target_tokens"]',
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(kind: str, sample: Sample, field: str) -> None:
    """By its path, before anything runs."""
    with pytest.raises(InvalidField) as caught:
        _evaluator(kind).check_sample(sample)
    assert caught.value.field == field


async def test_a_model_without_a_token_to_begin_with_measures_no_whole_text() -> None:
    """Its first token would have no log-probability, and its bytes would be counted for nothing."""
    model = _model([-1.0], eos_token_id=None)
    for kind in ("perplexity", "bits_per_byte"):
        with pytest.raises(FailedPrecondition) as caught:
            await _evaluator(kind).run(_text("a"), context(model))
        assert caught.value.reason == "NO_PREFIX_TOKEN"
    with pytest.raises(InvalidField, match="nothing to measure"):
        await _evaluator("perplexity").run(_text(""), context(_model([])))


@pytest.mark.parametrize("kind", ["perplexity", "bits_per_byte"])
def test_a_model_without_the_client_is_refused(kind: str) -> None:
    """As of nll, in its own name."""
    with pytest.raises(FailedPrecondition, match=f"{kind} needs a training client"):
        _evaluator(kind, client="training").check(Double(sampling=Sampling()))
