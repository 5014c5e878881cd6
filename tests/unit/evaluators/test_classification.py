"""The evaluator classification: labels by likelihood and by answers, and the metrics of both."""

import dataclasses
import math
from collections.abc import Sequence

import pytest

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Datum, EvaluatorSpec, ModelInput, Sample, SampleResult, SamplingParams, Verdict
from crucible_worker.evaluators import registry
from tests.tables import rows
from tests.unit.evaluators.doubles import Double, Sampling, context

LABELS = ["cat", "dog", "eel"]
GREEDY = SamplingParams(max_tokens=8)


def made(sampling=None, **options):
    """One of `classification` with three labels."""
    return registry.create(EvaluatorSpec(kind="classification", options={"labels": LABELS, **options}), 0, sampling)


def sample(target="cat", **fields):
    """A sample with this target."""
    return Sample(**{"id": "s", "input": "q", "targets": (target,), **fields})


@dataclasses.dataclass
class Firsts(Sampling):
    """Each label's first letter has its log-probability, every other letter is certain."""

    of: dict[str, float] = dataclasses.field(default_factory=lambda: {"c": -1.0, "d": -2.0, "e": -3.0})

    async def compute_logprobs(self, prompt: ModelInput) -> Sequence[float | None]:
        text = "".join(map(chr, prompt.tokens().tolist()))
        return [None, self.of.get(text[1], 0.0), *(0.0 for _ in text[2:])]


def predicted(pairs, confidence=None):
    """Results of these pairs of target and prediction, by their places; None for an unscored one."""
    results = []
    for index, pair in enumerate(pairs):
        measurements = {} if pair is None else {"target": float(pair[0]), "predicted": float(pair[1])}
        if pair is not None and confidence is not None:
            measurements["confidence"] = confidence
        hit = pair is not None and pair[0] == pair[1]
        verdict = Verdict.ERROR if pair is None else (Verdict.CORRECT if hit else Verdict.INCORRECT)
        score = None if pair is None else float(hit)
        results.append(
            SampleResult(
                evaluator="classification",
                sample_id=str(index),
                verdict=verdict,
                score=score,
                measurements=measurements,
            )
        )
    return results


async def test_the_likeliest_label_is_predicted_with_its_probability():
    """The label's likelihood behind the input decides; its confidence is its share among the labels."""
    outcome = await made().run(sample("dog"), context(Double(sampling=Firsts())))

    assert (outcome.verdict, outcome.extracted) == (Verdict.INCORRECT, "cat")
    assert (outcome.measurements["target"], outcome.measurements["predicted"]) == (1.0, 0.0)
    odds = [math.exp(-1), math.exp(-2), math.exp(-3)]
    assert outcome.measurements["confidence"] == pytest.approx(odds[0] / sum(odds))


@rows(
    ("answer", "index", "verdict"),
    [
        ("It is a dog.", 1.0, Verdict.CORRECT),
        ("cat", 0.0, Verdict.INCORRECT),
        ("(B)", 1.0, Verdict.CORRECT),
        ("a horse", -1.0, Verdict.INCORRECT),
    ],
)
async def test_an_answer_names_its_label(answer, index, verdict):
    """By generation the label that the answer names is predicted, none where it names none."""
    outcome = await made(GREEDY, by="generation").run(
        sample("dog"), context(Double(sampling=Sampling(answers=[answer])))
    )

    assert (outcome.verdict, outcome.measurements["predicted"]) == (verdict, index)
    assert "confidence" not in outcome.measurements


async def test_what_cannot_be_told_is_undecided():
    """A target that is no label leaves the sample unscored."""
    outcome = await made(GREEDY, by="generation").run(
        sample(target="horse"), context(Double(sampling=Sampling(answers=["cat"])))
    )

    assert outcome.verdict is Verdict.UNDECIDED
    assert outcome.problem is not None


async def test_an_answer_of_several_labels_is_wrong():
    """It predicts none of them."""
    outcome = await made(GREEDY, by="generation").run(
        sample(target="cat"), context(Double(sampling=Sampling(answers=["The answer is cat or dog."])))
    )

    assert (outcome.verdict, outcome.measurements["predicted"]) == (Verdict.INCORRECT, -1.0)


def test_precision_and_recall_are_by_label_and_macro():
    """Of cat, cat, dog, eel predicted cat, dog, dog, none: cat 1 and 1/2, dog 1/2 and 1, eel never predicted."""
    metrics = made().aggregate(predicted([(0, 0), (0, 1), (1, 1), (2, -1), None]))

    assert metrics.values["accuracy"] == 0.5
    assert metrics.values["accuracy_strict"] == pytest.approx(2 / 5)
    assert (metrics.values["precision/cat"], metrics.values["recall/cat"]) == (1.0, 0.5)
    assert (metrics.values["precision/dog"], metrics.values["recall/dog"]) == (0.5, 1.0)
    assert metrics.values["recall/eel"] == 0.0
    assert "never predicted" in metrics.undefined["precision/eel"]
    assert metrics.values["precision"] == 0.75
    assert metrics.values["recall"] == 0.5
    assert not any("none" in key for key in (*metrics.values, *metrics.undefined))


def test_a_positive_label_gives_the_keys_without_one():
    """precision, recall and f1 are then those of that label."""
    values = made(positive="dog").aggregate(predicted([(0, 1), (1, 1), (1, 0)])).values

    assert (values["precision"], values["recall"], values["f1"]) == (0.5, 0.5, 0.5)


def test_the_calibration_error_needs_probabilities():
    """With confidences it is their distance from the accuracy; without, undefined with the reason."""
    pairs = [(0, 0), (0, 1)]

    assert made().aggregate(predicted(pairs, 0.9)).values["expected_calibration_error"] == pytest.approx(0.4)
    undefined = made().aggregate(predicted(pairs)).undefined
    assert undefined["expected_calibration_error"] == "answers have no probabilities"


def test_the_keys_are_those_of_every_label():
    """Each label has its three keys, also where nothing is scored, or no target is it."""
    some, none = (made().aggregate(predicted(pairs)) for pairs in ([(0, 0)], [None]))

    keys = {*some.values, *some.undefined}
    assert keys == {*none.values, *none.undefined}
    assert {f"{measure}/{label}" for measure in ("precision", "recall", "f1") for label in LABELS} < keys


@rows(
    ("fields", "field"),
    [
        ({"choices": ("a", "b")}, "choices"),
        ({"targets": ()}, "targets"),
        ({"targets": ("cat", "dog")}, "targets"),
        ({"input": Datum(model_input=ModelInput.of([1]), loss_fn_inputs={})}, "datum"),
    ],
)
def test_a_sample_of_another_kind_is_refused(fields, field):
    """Choices of its own, no target or several, and tokens."""
    with pytest.raises(InvalidField) as refused:
        made().check_sample(sample(**fields))
    assert refused.value.field == field


def test_generation_needs_sampling():
    """Without sampling parameters no answer can be asked for."""
    with pytest.raises(InvalidField) as refused:
        made(None, by="generation")
    assert refused.value.field == "sampling"
