"""The evaluator next_token_accuracy: what of a sample counts, how texts are cleaned, and what it refuses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from crucible_bridge.errors import BackendError, FailedPrecondition, InvalidField
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
from crucible_worker.backends.base import UNKNOWN_TOKEN
from crucible_worker.evaluators import registry
from crucible_worker.evaluators.base import Evaluator, Outcome
from tests.tables import rows
from tests.unit.evaluators.doubles import Double, Letters, Sampling, Training, context

EOS = 0


@dataclasses.dataclass
class Foretelling(Sampling):
    """Holds for the likeliest what a function makes of a prompt's own tokens."""

    likeliest: Callable[[int], int | None] = int

    async def compute_argmax(self, prompt: ModelInput) -> Sequence[int | None]:
        tokens = prompt.tokens().tolist()
        self.measured.append(tokens)
        return [None, *map(self.likeliest, tokens[1:])]


class Decoding(Letters):
    """A tokenizer that turns tokens into text, as those of transformers do."""

    async def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(chr, tokens))

    async def render_cookbook(self, *_: Any, **__: Any):
        raise AssertionError("nothing is to be rendered")


@dataclasses.dataclass
class Bounded(Double):
    """A model that knows its context."""

    context_length: int | None = None


def _evaluator(**options: Any) -> Evaluator:
    return registry.create(EvaluatorSpec(kind="next_token_accuracy", options=options), 0, None)


def _sample(input: Any, *targets: str) -> Sample:
    return Sample(id="s", input=input, targets=targets)


def _model(likeliest: Callable[[int], int | None] = int, **tokenizer: Any) -> Double:
    return Double(sampling=Foretelling(likeliest=likeliest), tokenizer=Letters(**tokenizer))


def _wrong_at(*letters: str) -> Callable[[int], int]:
    return lambda token: token + 1 if chr(token) in letters else token


def _result(outcome: Outcome) -> SampleResult:
    return SampleResult(
        evaluator="e",
        sample_id="s",
        verdict=outcome.verdict,
        score=outcome.score,
        measurements=outcome.measurements,
    )


async def test_every_token_of_a_text_is_foretold() -> None:
    """Each behind its own text, the first behind what ends a sequence; one call tells of all."""
    model = _model(_wrong_at("b"))

    outcome = await _evaluator().run(_sample("abcb"), context(model))

    assert model.sampling is not None
    assert model.sampling.measured == [[EOS, *map(ord, "abcb")]]
    assert (outcome.verdict, outcome.score) == (Verdict.MEASURED, 0.5)
    assert outcome.measurements == {"tokens": 4, "right_tokens": 2, "right_as_a_whole": 0}


async def test_of_a_text_with_a_target_that_alone_counts() -> None:
    """The end of the sequence, too, as of nll; what stands before it does not."""
    outcome = await _evaluator().run(_sample("ab", "c"), context(_model(_wrong_at("a", "b"))))

    assert outcome.score == 1
    assert outcome.measurements == {"tokens": 2, "right_tokens": 2, "right_as_a_whole": 1}


async def test_of_a_conversation_the_messages_that_are_named_count() -> None:
    """By train_on, through the chat template."""
    turns = Conversation((ChatMessage("user", "xx"), ChatMessage("assistant", "y")))
    model = _model(_wrong_at("x"), has_chat_template=True)

    last = await _evaluator().run(_sample(turns), context(model))
    everything = await _evaluator(train_on="all").run(_sample(turns), context(model))

    assert last.score == 1
    assert everything.measurements["tokens"] - everything.measurements["right_tokens"] == 2


async def test_of_a_datum_what_has_weight_counts_once() -> None:
    """However great its weight; no tokenizer is needed, and a target that the input does not hold has no weight."""
    model = Double(sampling=Foretelling(likeliest=_wrong_at("\x07")), tokenizer=None)
    datum = Datum(
        model_input=ModelInput.of([5, 6, 7]),
        loss_fn_inputs={"target_tokens": np.array([9, 7, 8]), "weights": np.array([0, 0.5, 3], np.float32)},
    )

    outcome = await _evaluator().run(_sample(datum), context(model))

    assert model.sampling is not None
    assert model.sampling.measured == [[5, 6, 7, 8]]
    assert outcome.measurements == {"tokens": 2, "right_tokens": 1, "right_as_a_whole": 0}


async def test_without_weight_there_is_no_score() -> None:
    """The sample is measured, and the data set's keys say why they are undefined."""
    datum = Datum(
        model_input=ModelInput.of([5]),
        loss_fn_inputs={"target_tokens": np.array([6]), "weights": np.zeros(1, np.float32)},
    )
    evaluator = _evaluator()

    outcome = await evaluator.run(_sample(datum), context(_model()))

    assert (outcome.verdict, outcome.score) == (Verdict.MEASURED, None)
    assert set(evaluator.aggregate([_result(outcome)]).undefined.values()) == {"no token has weight"}


async def test_texts_are_compared_as_they_are_cleaned() -> None:
    """For the sample as a whole: its tokens are right or wrong whatever their text is cleaned to."""
    model = Double(sampling=Foretelling(likeliest=lambda token: ord(chr(token).upper())), tokenizer=Decoding())
    for clean, whole in (
        ([], 0),
        (["strip"], 0),
        (["fold_case"], 1),
        (["fold_case", "strip"], 1),
        ([{"regex": "B"}], 1),
    ):
        outcome = await _evaluator(clean=clean).run(_sample("aB"), context(model))

        assert outcome.measurements == {"tokens": 2, "right_tokens": 1, "right_as_a_whole": whole}


async def test_what_is_not_asked_for_is_not_cleaned() -> None:
    """White space counts unless it is to be stripped."""
    model = Double(sampling=Foretelling(likeliest=lambda token: ord(" ")), tokenizer=Decoding())

    kept = await _evaluator(clean=["fold_case"]).run(_sample("\t"), context(model))
    stripped = await _evaluator(clean=["strip"]).run(_sample("\t"), context(model))

    assert (kept.measurements["right_as_a_whole"], stripped.measurements["right_as_a_whole"]) == (0, 1)


@pytest.mark.parametrize(
    ("likeliest", "tokenizer", "reason"),
    [(_wrong_at("a"), Letters(), "NO_TOKENIZER"), (lambda token: UNKNOWN_TOKEN, Decoding(), "NO_GREEDY_TOKENS")],
)
async def test_a_text_that_is_not_known_is_not_guessed(likeliest: Any, tokenizer: Letters, reason: str) -> None:
    """Without a tokenizer at hand, or the ids of tokens, what is wrong cannot be cleaned; what is right needs not."""
    model = Double(sampling=Foretelling(likeliest=likeliest), tokenizer=tokenizer)
    with pytest.raises(FailedPrecondition) as caught:
        await _evaluator(clean=["strip"]).run(_sample("a"), context(model))
    assert caught.value.reason == reason

    assert (await _evaluator().run(_sample("a"), context(model))).score == 0
    right = Double(sampling=Foretelling(), tokenizer=tokenizer)
    assert (await _evaluator(clean=["strip"]).run(_sample("a"), context(right))).score == 1


async def test_marks_that_are_not_sorted_are_an_error() -> None:
    """A text that NFKC is not asked to compose cannot be compared; that is neither right nor wrong."""
    model = Double(sampling=Foretelling(likeliest=lambda token: token + 1), tokenizer=Decoding())
    with pytest.raises(InvalidField, match="combining marks"):
        await _evaluator(clean=["nfkc"]).run(_sample("\u0300" * 40), context(model))


@rows(
    ("size", "prompts"),
    [(None, ["\0abcde"]), (6, ["\0abcde"]), (5, ["\0abcd", "abcde"]), (3, ["\0ab", "bcd", "cde"])],
)
async def test_a_text_beyond_the_context_is_foretold_in_windows(size: int | None, prompts: list[str]) -> None:
    """Each token once, in a prompt that holds the token which is foretold last."""
    model = Bounded(sampling=Foretelling(likeliest=_wrong_at("d")), context_length=size)

    outcome = await _evaluator().run(_sample("abcde"), context(model))

    assert model.sampling is not None
    assert ["".join(map(chr, prompt)) for prompt in model.sampling.measured] == prompts
    assert outcome.measurements == {"tokens": 5, "right_tokens": 4, "right_as_a_whole": 0}


async def test_windows_can_be_refused() -> None:
    """Then the whole text is asked for, and the model refuses what it cannot take; so is a target behind a text."""
    model = Bounded(sampling=Foretelling(), context_length=3)
    await _evaluator(windows="refuse").run(_sample("abcd"), context(model))
    await _evaluator().run(_sample("abcd", "e"), context(model))

    assert model.sampling is not None
    assert [len(prompt) for prompt in model.sampling.measured] == [5, 6]


@pytest.mark.parametrize("model", [Double(sampling=Sampling()), Double(training=Training([]))])
def test_a_model_that_does_not_tell_is_refused(model: Double) -> None:
    """Log-probabilities of given tokens do not say which is the likeliest."""
    with pytest.raises(FailedPrecondition, match="needs a model that answers compute_argmax") as caught:
        _evaluator().check(model)
    assert caught.value.reason == "MISSING_CLIENT"
    _evaluator().check(_model())


def test_a_datum_is_refused_by_its_path() -> None:
    """As of nll."""
    with pytest.raises(InvalidField) as caught:
        _evaluator().check_sample(_sample(Datum(model_input=ModelInput.of([5]), loss_fn_inputs={})))
    assert caught.value.field == 'datum.loss_fn_inputs["target_tokens"]'


@pytest.mark.parametrize("likeliest", [lambda token: None, None])
async def test_an_answer_that_leaves_tokens_out_is_nonsense(likeliest: Any) -> None:
    """None behind the first, or too few: an error, not a wrong token."""

    class Short(Foretelling):
        async def compute_argmax(self, prompt: ModelInput) -> Sequence[int | None]:
            return [None]

    client = Short() if likeliest is None else Foretelling(likeliest=likeliest)
    with pytest.raises(BackendError) as caught:
        await _evaluator().run(_sample("ab"), context(Double(sampling=client)))
    assert caught.value.reason == "BACKEND_ANSWER"
