"""The evaluator multiple_choice: verdicts, what is recorded, what is unscored, and what the samples make together."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition, InvalidField
from crucible_bridge.types import (
    Conversation,
    Datum,
    EvaluatorSpec,
    ModelInput,
    RowReader,
    Sample,
    SampleResult,
    Verdict,
)
from crucible_worker.backends.base import Model
from crucible_worker.evaluators import registry
from crucible_worker.evaluators.base import Evaluator, Outcome
from crucible_worker.metrics.classification import Measure
from crucible_worker.metrics.scores import ACCURACY_KEYS
from tests.tables import rows
from tests.unit.evaluators.doubles import Double, Letters, Sampling, context

LOGPROBS = {"a": -1.0, "b": -2.0, "c": -4.0, "é": -3.0}


def _evaluator(**options: Any) -> Evaluator:
    return registry.create(EvaluatorSpec(kind="multiple_choice", options=options), 0, None)


def _sample(*choices: str, targets: Sequence[str] = ("A",), input: Any = "q") -> Sample:
    return Sample(id="s", input=input, targets=tuple(targets), choices=choices)


@dataclasses.dataclass
class _Prompts(Sampling):
    """Each character has its log-probability, whatever is before it."""

    of: Callable[[str], float] = lambda letter: LOGPROBS.get(letter, -0.5)

    async def compute_logprobs(self, prompt: ModelInput) -> Sequence[float | None]:
        self.measured.append(prompt.tokens().tolist())
        return [None, *(self.of(chr(token)) for token in self.measured[-1][1:])]


@dataclasses.dataclass
class _Targets(_Prompts):
    """Likewise of tokens that a prompt does not hold."""

    async def compute_target_logprobs(self, prompt: ModelInput, targets: Sequence[tuple[int, int]]) -> Sequence[float]:
        self.measured.append(prompt.tokens().tolist())
        return [self.of(chr(token)) for _, token in targets]


@dataclasses.dataclass
class _Continuations(_Prompts):
    """Likewise of all continuations of a prompt at once."""

    async def compute_continuation_logprobs(
        self, prompt: ModelInput, continuations: Sequence[Sequence[int]]
    ) -> Sequence[np.ndarray]:
        self.measured.append(prompt.tokens().tolist())
        return [np.array([self.of(chr(token)) for token in tokens]) for tokens in continuations]


@dataclasses.dataclass
class _Forward(Model):
    """Likewise by forward passes."""

    calls: int = 0

    async def forward(self, data: Sequence[Datum]) -> Sequence[np.ndarray]:
        self.calls += 1
        targets = [np.asarray(datum.loss_fn_inputs["target_tokens"]).tolist() for datum in data]
        return [np.array([LOGPROBS.get(chr(token), -0.5) for token in some]) for some in targets]


def _double(sampling: Sampling | None = None, training: Any = None, **fields: Any) -> Double:
    return Double(sampling=sampling, training=training, **fields)


async def _run(sample: Sample, model: Double | None = None, **options: Any) -> Outcome:
    return await _evaluator(**options).run(sample, context(model or _double(_Targets())))


def _result(outcome: Outcome, name: str = "s") -> SampleResult:
    return SampleResult(
        evaluator="multiple_choice",
        sample_id=name,
        verdict=outcome.verdict,
        score=outcome.score,
        measurements=outcome.measurements,
    )


async def test_the_likeliest_choice_is_judged_and_recorded() -> None:
    """Verdict, score, what was chosen and how; the log-probability and the tokens of every choice."""
    outcome = await _run(_sample("bc", "a", targets=("bc",)))

    assert (outcome.verdict, outcome.score, outcome.extracted, outcome.method) == (Verdict.INCORRECT, 0.0, "a", "sum")
    assert outcome.measurements == {
        "logprob[0]": -6.0,
        "tokens[0]": 2.0,
        "logprob[1]": -1.0,
        "tokens[1]": 1.0,
        "accuracy_sum": 0.0,
        "accuracy_per_token": 0.0,
        "accuracy_per_byte": 0.0,
        "target_probability": pytest.approx(math.exp(-6) / (math.exp(-6) + math.exp(-1))),
    }
    assert (outcome.output, outcome.stop_reason, outcome.output_tokens) == ("", "", 0)


@pytest.mark.parametrize(("measure", "chosen"), [("sum", "b"), ("per_token", "aaa"), ("per_byte", "aaa")])
async def test_the_measure_decides(measure: str, chosen: str) -> None:
    """A long choice of likely tokens wins by token, a short one by the sum."""
    outcome = await _run(_sample("aaa", "b", targets=("aaa",)), measure=measure)

    assert (outcome.extracted, outcome.method) == (chosen, measure)
    assert outcome.verdict is (Verdict.CORRECT if chosen == "aaa" else Verdict.INCORRECT)
    assert [outcome.measurements[f"accuracy_{each}"] for each in Measure] == [0.0, 1.0, 1.0]


async def test_bytes_are_those_of_the_text() -> None:
    """A letter of two bytes counts as two."""
    outcome = await _run(_sample("é", "b", targets=("é",)), measure="per_byte")

    assert outcome.verdict is Verdict.CORRECT
    assert outcome.measurements["accuracy_sum"] == 0.0


async def test_a_tie_between_right_and_wrong_is_partial() -> None:
    """The score is the share of right ones among those that tie; several targets make several choices right."""
    tied = await _run(_sample("ab", "ba", "c", targets=("ba",)))
    both = await _run(_sample("ab", "ba", "c", targets=("A", "ba")))

    assert (tied.verdict, tied.score, tied.extracted) == (Verdict.PARTIAL, 0.5, "ab\nba")
    assert (both.verdict, both.score) == (Verdict.CORRECT, 1.0)


async def test_every_choice_impossible_is_undecided() -> None:
    """It is unscored, not wrong; one that is impossible among others merely loses, and has no number on record."""
    impossible = _Prompts(of=lambda letter: -math.inf if letter in "xy" else -1.0)

    nothing = await _run(_sample("x", "y"), _double(impossible))
    one = await _run(_sample("x", "a"), _double(impossible))

    assert (nothing.verdict, nothing.score) == (Verdict.UNDECIDED, None)
    assert nothing.problem is not None
    assert nothing.problem.reason == "UNDECIDED"
    assert one.verdict is Verdict.INCORRECT
    assert "logprob[0]" not in one.measurements
    assert all(map(math.isfinite, [*nothing.measurements.values(), *one.measurements.values()]))


async def test_a_target_that_names_no_choice_is_undecided() -> None:
    """Nothing is asked for it, and its place is told."""
    sampling = _Targets()

    outcome = await _run(_sample("a", "b", targets=("A", "z")), _double(sampling))

    assert outcome.verdict is Verdict.UNDECIDED
    assert outcome.problem is not None
    assert outcome.problem.message.startswith("targets[1] is neither")
    assert sampling.measured == []


@pytest.mark.parametrize(("value", "reason"), [(math.nan, "NAN_LOGPROB"), (math.inf, "INFINITE_LOGPROB")])
async def test_a_log_probability_that_is_none_is_an_error(value: float, reason: str) -> None:
    """NaN and +inf are a backend's fault, and not to be tried again."""
    with pytest.raises(BackendError) as caught:
        await _run(_sample("a", "b"), _double(_Prompts(of=lambda letter: value)))
    assert (caught.value.reason, caught.value.retryable) == (reason, False)


@rows(
    ("client", "sampling", "training", "asked"),
    [
        ("auto", _Continuations, True, "sampling"),
        ("auto", _Targets, True, "sampling"),
        ("auto", _Prompts, True, "training"),
        ("auto", _Prompts, False, "sampling"),
        ("auto", None, True, "training"),
        ("training", _Targets, True, "training"),
        ("training", _Continuations, True, "training"),
        ("sampling", _Prompts, True, "sampling"),
    ],
)
async def test_the_client_with_fewer_calls_is_asked(
    client: str, sampling: type[_Prompts] | None, training: bool, asked: str
) -> None:
    """One that takes all choices or measures targets, else one forward pass, else prompts; or the one that is named."""
    model = _double(sampling() if sampling else None, _Forward() if training else None)

    outcome = await _run(_sample("a", "b"), model, client=client)

    calls = {
        "sampling": 0 if model.sampling is None else len(model.sampling.measured),
        "training": getattr(model.training, "calls", 0),
    }
    assert {side for side, count in calls.items() if count} == {asked}
    assert (outcome.verdict, outcome.measurements["logprob[1]"]) == (Verdict.CORRECT, -2.0)


@pytest.mark.parametrize(
    ("client", "sampling", "training", "needed"),
    [
        ("auto", False, False, "a sampling or a training"),
        ("sampling", False, True, "a sampling"),
        ("training", True, False, "a training"),
    ],
)
def test_a_model_without_the_client_is_refused(client: str, sampling: bool, training: bool, needed: str) -> None:
    """Before the first sample, for this evaluator alone."""
    model = _double(_Prompts() if sampling else None, _Forward() if training else None)

    with pytest.raises(FailedPrecondition, match=needed) as caught:
        _evaluator(client=client).check(model)
    assert caught.value.reason == "MISSING_CLIENT"


async def test_tokens_need_no_tokenizer_and_have_no_bytes() -> None:
    """A Datum's choices are lists of token ids; what counts bytes is then not there."""
    datum = Datum(model_input=ModelInput.of([ord("q")]), loss_fn_inputs={})
    sample = _sample(json.dumps([ord("a"), ord("a")]), json.dumps([ord("b")]), targets=("B",), input=datum)

    outcome = await _run(sample, _double(_Targets(), tokenizer=None))

    assert outcome.verdict is Verdict.PARTIAL  # -1 - 1 = -2
    assert "accuracy_per_byte" not in outcome.measurements
    with pytest.raises(InvalidField, match="bytes of its choices"):
        _evaluator(measure="per_byte").check_sample(sample)


@rows(
    ("sample", "options", "field"),
    [
        (_sample("a"), {}, "choices"),
        (_sample("a", "b", targets=()), {}, "targets"),
        (_sample("a", "b", input=Conversation(())), {"form": "letters"}, "conversation"),
        (_sample("a", "b", input=Conversation(())), {"renderer": "raw"}, "conversation"),
    ],
)
async def test_what_is_no_question_is_refused(sample: Sample, options: dict[str, str], field: str) -> None:
    """With its path, in a request and of a file alike."""
    evaluator = _evaluator(**options)
    with pytest.raises(InvalidField) as early:
        evaluator.check_sample(sample)
    with pytest.raises(BridgeError) as late:
        await evaluator.run(sample, context(_double(_Targets())))
    assert (early.value.field, late.value.field) == (field, field)


async def test_letters_are_measured_in_one_call() -> None:
    """Whatever the number of choices: the prompt is read once."""
    sampling = _Targets()

    outcome = await _run(_sample("one", "two", "three"), _double(sampling, tokenizer=Letters(has_chat_template=True)))
    several = len(sampling.measured)
    sampling.measured.clear()
    letters = await _run(
        _sample("one", "two", "three"), _double(sampling, tokenizer=Letters(has_chat_template=True)), form="letters"
    )

    assert (several, len(sampling.measured)) == (3, 1)
    assert outcome.measurements["tokens[2]"] == 5
    assert [letters.measurements[f"tokens[{index}]"] for index in range(3)] == [1.0] * 3


async def test_metrics_of_a_data_set() -> None:
    """Accuracy over the scored, with each measure's own and the right probability; an unscored sample has no part."""
    outcomes = [
        await _run(_sample("a", "b", targets=("A",))),
        await _run(_sample("aaa", "b", targets=("aaa",))),
        await _run(_sample("a", "b", targets=("z",))),
    ]
    metrics = _evaluator().aggregate([_result(outcome, str(index)) for index, outcome in enumerate(outcomes)])

    values = metrics.values
    assert (values["accuracy"], values["accuracy_strict"]) == (0.5, 1 / 3)
    assert [values[f"accuracy_{each}"] for each in Measure] == [0.5, 1.0, 1.0]
    probabilities = [outcome.measurements["target_probability"] for outcome in outcomes[:2]]
    assert values["target_probability"] == math.fsum(probabilities) / 2
    assert set(values) == {*ACCURACY_KEYS, *(f"accuracy_{each}" for each in Measure), "target_probability"}


async def test_a_measure_that_some_samples_lack_is_undefined() -> None:
    """A mean over those that have it would be one of other samples."""
    datum = Datum(model_input=ModelInput.of([ord("q")]), loss_fn_inputs={})
    outcomes = [await _run(_sample("a", "b")), await _run(_sample("[97]", "[98]", input=datum))]

    metrics = _evaluator().aggregate([_result(outcome, str(index)) for index, outcome in enumerate(outcomes)])

    assert metrics.values["accuracy_sum"] == 1.0
    assert metrics.undefined == {"accuracy_per_byte": "1 of 2 samples have choices without bytes"}


@rows(
    ("row", "verdict"),
    [
        ({"question": "q", "choices": ["B", "A", "O", "AB"], "answer": 0}, Verdict.CORRECT),
        ({"question": "q", "choices": ["B", "A", "O", "AB"], "answer": 1}, Verdict.INCORRECT),
        ({"question": "q", "choices": ["B", "A", "O", "AB"], "answer": "B"}, Verdict.UNDECIDED),
        ({"question": "q", "choices": {"text": ["B", "A"], "label": ["A", "B"]}, "answer": "A"}, Verdict.CORRECT),
        ({"question": "q", "choices": {"text": ["B", "1"], "label": ["1", "2"]}, "answer": "1"}, Verdict.CORRECT),
    ],
)
async def test_the_row_says_which_choice_is_right(row: dict[str, Any], verdict: Verdict) -> None:
    """An index and a label name their choice, even if the letter is the text of another; nothing is guessed."""
    sampling = _Targets(of=lambda letter: -0.1 if letter == "B" else -3.0)
    sample = RowReader({}, field="dataset.file", cure="").sample(row)

    outcome = await _run(dataclasses.replace(sample, id="s"), _double(sampling))

    assert outcome.verdict is verdict
    if verdict is Verdict.UNDECIDED:
        assert outcome.problem is not None
        assert "is the letter of choice 1 and the text of choice 0" in outcome.problem.message
