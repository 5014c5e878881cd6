"""Evaluations and runs as data of pages."""

import dataclasses
import json
import math
from collections.abc import Sequence

from crucible_bridge.types import (
    MAX_COMPARED_EVALUATIONS,
    Evaluation,
    EvaluationComparison,
    EvaluationState,
    LocalModel,
    Metrics,
    PairedComparison,
    Problem,
    SampleChange,
    Usage,
)
from crucible_worker.reports.as_json import evaluation_as_json
from crucible_worker.reports.distributions import ResultDistributions
from crucible_worker.reports.facts import facts_of
from crucible_worker.reports.page_data import (
    compare_as_data,
    evaluation_as_data,
    index_as_data,
    run_as_data,
    summary_as_data,
    tie_requests,
)
from tests.unit.reports.evaluations_made import INFOS, ended, sampled


def _pair(evaluation: str, low: float, high: float, baseline: str = "b", evaluator: str = "right") -> PairedComparison:
    metrics = Metrics({"difference": (low + high) / 2, "difference_ci_low": low, "difference_ci_high": high})
    return PairedComparison(baseline_id=baseline, evaluation_id=evaluation, evaluator=evaluator, metrics=metrics)


def test_a_summary_says_how_an_evaluation_stands() -> None:
    """Times in seconds, problems in words, numbers with intervals and goals."""
    evaluation = ended(
        "e",
        {"right": 0.5, "right_stderr": 0.1},
        step=3,
        created_unix_ns=2_500_000_000,
        duration_ns=1_500_000_000,
        usage=Usage(output_tokens=7, calls=1),
        problem=Problem(reason="CANCELLED", message="enough", field="limits"),
    )
    found = summary_as_data(evaluation, INFOS)

    assert (found["id"], found["state"], found["run"], found["step"]) == ("e", "completed", "run-1", 3)
    assert (found["created"], found["ended"], found["duration"]) == (2.5, None, 1.5)
    assert found["goals"] == {"right": "higher"}
    assert [round(bound, 3) for bound in found["intervals"]["right"]] == [0.304, 0.696]
    assert found["problem"] == {"reason": "CANCELLED", "message": "enough", "field": "limits"}
    assert found["evaluators"][0]["problem"] is None
    assert found["usage"]["output_tokens"] == 7


def test_a_followed_checkpoint_has_the_path_that_its_trainer_gave_it() -> None:
    """In lists, reports and JSON; the path at which it was held is gone by then."""
    made = ended("e", {"right": 0.5})
    model = LocalModel("/runs/sums/.crucible/sums@0123/step-5")
    held = dataclasses.replace(made, request=dataclasses.replace(made.request, model=model))

    named = {summary_as_data(held, INFOS)["model"], evaluation_as_json(held)["model"], facts_of(held)["model"]}

    assert named == {"local:/runs/sums/step-5"}


def test_what_runs_has_its_evaluators_already() -> None:
    """Their results come at the end; their labels and kinds are known, and no count is 0 by guess."""
    running = dataclasses.replace(ended("e", {}), results=(), state=EvaluationState.RUNNING)
    found = summary_as_data(running, INFOS)

    (one,) = found["evaluators"]
    assert (one["label"], one["kind"], one["n"], one["n_scored"]) == ("right", "right", None, None)
    assert one["problem"].startswith("has not ended")


def test_an_evaluation_says_everything() -> None:
    """The summary, facts, options by label, the headline and the spread of its samples."""
    distributions = ResultDistributions()
    distributions.add(sampled())
    found = evaluation_as_data(ended("e", {"right": 0.5, "right_stderr": 0.1}), INFOS, distributions)

    assert found["id"] == "e"
    assert ["data set", "builtin:arithmetic"] in found["facts"]
    assert found["options"] == {"right": {}}
    assert found["headline"] == ["right"]
    assert found["distributions"]["right"]["verdicts"] == {"correct": 1}


def test_the_index_counts_runs() -> None:
    """Those with the latest change first; an evaluation without a run is in none; what is at work is counted."""
    running = dataclasses.replace(ended("c", {}, run_id="old"), results=(), state=EvaluationState.RUNNING)
    evaluations = [
        ended("a", {}, run_id="new", created_unix_ns=5_000_000_000, ended_unix_ns=9_000_000_000),
        dataclasses.replace(running, created_unix_ns=4_000_000_000),
        ended("b", {}, run_id="old", created_unix_ns=1_000_000_000),
        ended("d", {}, run_id=""),
    ]
    found = index_as_data(evaluations, INFOS, more=True)

    assert found["runs"] == [
        {"run": "new", "evaluations": 1, "running": 0, "last": 9.0},
        {"run": "old", "evaluations": 2, "running": 1, "last": 4.0},
    ]
    assert [one["id"] for one in found["evaluations"]] == ["a", "c", "b", "d"]
    assert found["more"] is True


def _run() -> Sequence[Evaluation]:
    return [
        ended("c", {"right": 0.85, "right_stderr": 0.1}, step=30),
        ended("a", {"right": 0.2, "right_stderr": 0.1}, step=10),
        ended("b", {"right": 0.9, "right_stderr": 0.1}, step=20),
    ]


def test_a_run_knows_its_best_step_and_what_is_tied_with_it() -> None:
    """Tied is whose paired difference from the best may be none; intervals that overlap prove nothing."""
    evaluations = _run()
    (request,) = tie_requests(evaluations, INFOS)
    pairs = [_pair("a", -0.8, -0.6), _pair("c", -0.1, 0.02), _pair("a", -1, 1, evaluator="other")]
    found = run_as_data("run-1", evaluations, INFOS, pairs)
    (series,) = found["series"]

    assert (request.baseline_id, request.evaluator, request.max_listed) == ("b", "right", 0)
    assert request.evaluation_ids == ("b", "a", "c")
    assert [one["id"] for one in found["evaluations"]] == ["a", "b", "c"]
    assert (series["key"], series["evaluator"], series["goal"]) == ("right", "right", "higher")
    assert [(point["id"], point["step"], point["value"]) for point in series["points"]][:2] == [
        ("a", 10, 0.2),
        ("b", 20, 0.9),
    ]
    assert (series["best"], series["tied"]) == ("b", ["c"])


def test_less_is_better_where_the_evaluator_says_so() -> None:
    """The best loss is the lowest one."""
    evaluations = [ended("a", {"loss": 2.0}, kind="loss", step=1), ended("b", {"loss": 1.0}, kind="loss", step=2)]
    (series,) = run_as_data("run-1", evaluations, INFOS)["series"]

    assert (series["best"], series["goal"], series["points"][0]["low"]) == ("b", "lower", None)


def test_values_of_other_data_sets_are_other_series() -> None:
    """They are not comparable, so none of them is better than the other."""
    evaluations = [ended("a", {"right": 0.1}), ended("b", {"right": 0.9}, dataset_fingerprint="other")]
    found = run_as_data("run-1", evaluations, INFOS)["series"]

    assert [(series["dataset"], series["best"]) for series in found] == [("d", "a"), ("other", "b")]
    assert [request.evaluation_ids for request in tie_requests(evaluations, INFOS)] == []


def test_a_metric_without_a_goal_has_no_best() -> None:
    """And nothing is compared for it."""
    evaluations = [ended("a", {"x": 0.1}, kind="unknown"), ended("b", {"x": 0.9}, kind="unknown")]
    (series,) = run_as_data("run-1", evaluations, INFOS)["series"]

    assert (series["goal"], series["best"], series["tied"]) == (None, None, [])
    assert tie_requests(evaluations, INFOS) == []


def test_a_long_run_is_compared_in_parts() -> None:
    """A comparison takes so many evaluations; the best is in each of them."""
    evaluations = [ended(f"e{n}", {"loss": float(n)}, kind="loss", step=n) for n in range(MAX_COMPARED_EVALUATIONS + 1)]
    requests = tie_requests(evaluations, INFOS)

    assert [len(request.evaluation_ids) for request in requests] == [MAX_COMPARED_EVALUATIONS, 2]
    assert {request.evaluation_ids[0] for request in requests} == {"e0"}


def test_a_comparison_lists_what_changed() -> None:
    """Each pair with its numbers, and why it has none."""
    pair = dataclasses.replace(
        _pair("b", -0.1, 0.1, baseline="a"),
        n_matched=4,
        n_improved=1,
        interval_method="bonett_price",
        improvements=(SampleChange(sample_id="12+34", baseline_score=0.0, score=1.0, input="What is it?"),),
    )
    refused = PairedComparison(
        baseline_id="a", evaluation_id="c", evaluator="right", problem=Problem(reason="DATASET_NOT_READ", message="no")
    )
    evaluations = (ended("a", {}), ended("b", {}), ended("c", {}))
    comparison = EvaluationComparison(evaluations=evaluations, comparisons=(pair, refused), series=())
    found = compare_as_data([comparison], INFOS)

    assert [one["id"] for one in found["evaluations"]] == ["a", "b", "c"]
    first, second = found["comparisons"]
    assert (first["baseline"], first["evaluation"], first["n_matched"], first["method"]) == (
        "a",
        "b",
        4,
        "bonett_price",
    )
    assert first["improvements"] == [{"id": "12+34", "from": 0.0, "to": 1.0}]
    assert found["inputs"] == {"12+34": "What is it?"}
    assert first["problem"] is None
    assert second["problem"] == "DATASET_NOT_READ: no"


def test_data_is_strict_json_whatever_it_holds() -> None:
    """Halves of surrogate pairs and numbers that are not finite are gone."""
    evaluation = ended("e", {"right": math.nan}, undefined={"\ud800": "\udfff"}, created_unix_ns=1)
    found = [
        evaluation_as_data(evaluation, INFOS, ResultDistributions()),
        run_as_data("\ud800", [evaluation], INFOS),
        index_as_data([evaluation], INFOS),
    ]

    json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
