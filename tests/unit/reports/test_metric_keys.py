"""Keys of metrics: intervals, headlines and goals follow from what evaluators declare."""

import dataclasses
from collections.abc import Mapping, Sequence

import pytest

from crucible_bridge.types import EvaluatorInfo, Goal
from crucible_worker.evaluators.registry import EVALUATORS
from crucible_worker.reports.metric_keys import MAX_HEADLINES, full_key, keys_of, sample_warnings
from tests.tables import rows
from tests.unit.reports.evaluations_made import INFOS, ended, info


@rows(
    ("values", "intervals"),
    [
        ({"a": 0.5, "a_ci95_low": 0.4, "a_ci95_high": 0.7, "a_stderr": 0.1}, {"a": (0.4, 0.7)}),
        ({"a": 0.5, "a_ci_low": 0.4, "a_ci_high": 0.7}, {"a": (0.4, 0.7)}),
        ({"a": 0.5, "a_stderr": 0.1}, {"a": pytest.approx((0.304, 0.696), abs=1e-3)}),
        ({"a/b": 0.5, "a_stderr/b": 0.0}, {"a/b": (0.5, 0.5)}),
        ({"a": 0.5, "a_ci95_low": 0.4}, {}),
        ({"a_stderr": 0.1}, {}),
    ],
)
def test_intervals_are_found_by_the_names_of_keys(values: Mapping[str, float], intervals: Mapping[str, object]) -> None:
    """Bounds of the evaluator come before those from a standard error; half an interval is none."""
    (keys,) = keys_of(ended("e", values), INFOS)

    assert keys.intervals == intervals


@rows(
    ("declared", "values", "headline"),
    [
        (info("k", {"b": "x", "a": "x", "a_stderr": "x"}), ["b", "a", "a_stderr"], ["a"]),
        (info("k", {"words": "words", "k": "fraction of 1"}), ["words", "k"], ["k"]),
        (info("k", {"p@<n>": "fraction of 1"}), ["p@1", "p@4"], ["p@1", "p@4"]),
        (
            info("k", {"e/<tag>/turns": "turns", "e/<tag>/total": "reward"}),
            ["e/all/turns", "e/all/total"],
            ["e/all/total"],
        ),
        (
            info("k", {"e/<tag>/<metric>": "its own", "e/<tag>/total": "reward"}),
            ["e/all/total", "e/all/turns"],
            ["e/all/total"],
        ),
        (info("k", {"turns": "turns", "tokens": "tokens"}), ["turns", "tokens"], ["turns", "tokens"]),
        (None, ["a", "b"], ["a", "b"]),
        (None, [f"a{n}" for n in range(20)], [f"a{n}" for n in range(MAX_HEADLINES)]),
    ],
)
def test_the_headline_summarises_the_scores(
    declared: EvaluatorInfo | None, values: Sequence[str], headline: Sequence[str]
) -> None:
    """Keys with an interval; else the evaluator's own name; else all of one unit; else those in the unit of scores."""
    evaluation = ended("e", dict.fromkeys(values, 0.5), kind="k")
    (keys,) = keys_of(evaluation, {} if declared is None else {"k": declared})

    assert list(keys.headline) == list(headline)


def test_goals_are_those_of_headlines_and_their_variants() -> None:
    """What is no summary of the scores has no goal: a calibration error is not better when it is higher."""
    values = {"right": 0.5, "right_stderr": 0.1, "right_strict": 0.4, "miscalibration": 0.2}
    (keys,) = keys_of(ended("e", values), INFOS)

    assert keys.goals == {"right": Goal.HIGHER, "right_strict": Goal.HIGHER}
    assert keys.values == ["right", "right_strict", "miscalibration"]


def test_full_keys_stay_full() -> None:
    """The prefix of the request and the evaluator's name belong to a key; a declaration has neither."""
    evaluation = ended("e", {"test/mine/loss": 2.0}, kind="loss", name="mine", metric_prefix="test/")
    (keys,) = keys_of(evaluation, INFOS)

    assert (keys.label, keys.headline, keys.goals) == ("mine", ["test/mine/loss"], {"test/mine/loss": Goal.LOWER})


def test_an_undefined_headline_is_one() -> None:
    """Its reason is what is to be said first."""
    (keys,) = keys_of(ended("e", {}, undefined={"right": "no sample was scored", "right_stderr": "likewise"}), INFOS)

    assert (keys.headline, keys.values, keys.intervals) == (["right"], [], {})


def test_each_evaluator_of_the_worker_has_goals_for_its_headline() -> None:
    """Whatever an evaluator with a goal declares, some key has it; and no count has one."""
    for declared in (each.info for each in EVALUATORS.values()):
        values = dict.fromkeys((key.replace("<", "").replace(">", "") for key in declared.keys), 0.5)
        (keys,) = keys_of(ended("e", values, kind=declared.kind), {declared.kind: declared})
        units = {key.replace("<", "").replace(">", ""): unit for key, unit in declared.keys.items()}

        assert bool(keys.goals) == (declared.score_goal is not None), declared.kind
        assert not {units[key] for key in keys.goals} & {"tokens", "turns", "rollouts", "samples", "groups"}


@rows(
    ("counts", "warnings"),
    [
        ({"n_scored": 98, "n_unscored": 2, "n_truncated": 50, "n_correct": 1}, []),
        (
            {"n_scored": 100, "n_truncated": 51, "n_correct": 0},
            ["warning: right: 51 of 100 answers ended at max_tokens"],
        ),
        ({"n_scored": 100, "n_truncated": 100, "n_correct": None}, []),
        (
            {
                "n_scored": 10,
                "n_unscored": 90,
                "n_truncated": 90,
                "n_correct": 0,
                "unscored_by_reason": {"UNDECIDED": 90},
            },
            [
                "warning: right: 90 of 100 samples have no score (90 UNDECIDED)",
                "warning: right: 90 of 100 answers ended at max_tokens",
            ],
        ),
    ],
)
def test_a_number_that_says_little_has_a_warning(counts: Mapping[str, object], warnings: Sequence[str]) -> None:
    """Samples without a score, and answers that were cut before they could be right."""
    evaluation = ended("e", {"right": 0.0})
    (result,) = evaluation.results
    changed = dataclasses.replace(result, n=100, **counts)

    assert list(sample_warnings(dataclasses.replace(evaluation, results=(changed,)))) == list(warnings)


@rows(
    ("metric", "key"),
    [
        ("nll", "likelihood/nll"),
        ("likelihood/nll", "likelihood/nll"),
        ("accuracy", "accuracy"),
        ("mean", "mean"),
        ("ll", "ll"),
        ("other", "other"),
    ],
)
def test_the_end_of_one_key_alone_is_that_key(metric: str, key: str) -> None:
    """A full key is itself, also if others end so; the end of several stays as it is, and so does that of none."""
    keys = ["likelihood/nll", "accuracy", "a/accuracy", "a/mean", "b/mean"]
    assert full_key(metric, keys) == key
