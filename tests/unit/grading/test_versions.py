"""Versions of graders: which one a name has, and which recorded ones can be compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from crucible_bridge.types import EvaluatorSpec
from crucible_worker.evaluators.registry import graders_of
from crucible_worker.grading.base import GraderType
from crucible_worker.grading.numbers import Numeric
from crucible_worker.grading.registry import GRADERS, GradingParts, version_of
from crucible_worker.reports.versions import key_of, of_latest_rules, other_grader
from tests.tables import rows

OWN = GraderType(name="own", description="Mine.", version=3, make=lambda options: Numeric())
PARTS = GradingParts(custom_graders={"own": OWN})


@rows(
    ("name", "parts", "version"),
    [
        ("numeric", None, GRADERS["numeric"].version),
        ("own", PARTS, 3),
        ("own", None, None),
        ("caller:mine", PARTS, None),
        ("nowhere", PARTS, None),
    ],
)
def test_a_name_has_the_version_of_its_grader(name: str, parts: GradingParts | None, version: int | None) -> None:
    """Built-in and custom graders have one; those of callers, and unknown ones, have none."""
    assert version_of(name, parts) == version


@rows(
    ("kind", "options", "names"),
    [
        ("accuracy", {}, {"exact_match"}),
        ("pass_at_k", {"grader": "code"}, {"code"}),
        ("accuracy", {"grader": "rubric", "grader_options": {"judge": "x", "first": "math"}}, {"rubric", "math"}),
        ("accuracy", {"grader": "caller:mine"}, set()),
        ("rl_test_set", {"format_grader": "format"}, {"exact_match", "format"}),
        ("rl_test_set", {"environment": "chess"}, set()),
        ("nll", {}, set()),
        ("somebody's", {"grader": "math"}, set()),
    ],
)
def test_an_evaluator_names_its_graders(kind: str, options: Mapping[str, object], names: set[str]) -> None:
    """By its options and their defaults; an evaluator without a grader names none."""
    assert set(graders_of(EvaluatorSpec(kind=kind, options=options))) == names


@rows(
    ("ours", "theirs", "differs"),
    [
        ({"math": 2}, {"math": 2}, None),
        ({"math": 2}, {"math": 3}, "math"),
        ({"math": 2}, {}, "math"),
        ({"regex": 1}, {}, None),
        ({}, {}, None),
        ({"math": 0}, {"math": 0}, "math"),
        ({"math": 2}, {"regex": 1}, None),
        ({"math": 2, "format": 1}, {"math": 2, "format": 2}, "format"),
    ],
)
def test_two_versions_differ(ours: Mapping[str, int], theirs: Mapping[str, int], differs: str | None) -> None:
    """What an older release recorded is of the first version; 0 equals nothing."""
    assert other_grader(ours, theirs) == other_grader(theirs, ours) == differs


@dataclasses.dataclass(frozen=True)
class _Value:
    rules_version: int
    versions: Mapping[str, int]


@rows(
    ("values", "latest"),
    [
        ([(2, {"math": 1}), (2, {"math": 2})], [1]),
        ([(2, {}), (2, {"math": 2})], [1]),
        ([(2, {}), (2, {"regex": 1})], [0, 1]),
        ([(2, {"math": 0}), (2, {"math": 2})], [1]),
        ([(1, {"math": 3}), (2, {"math": 2})], [1]),
        ([(2, {"math": 2}), (2, {"regex": 1})], [0, 1]),
        ([], []),
    ],
)
def test_the_latest_are_ranked(values: list[tuple[int, Mapping[str, int]]], latest: list[int]) -> None:
    """Those by the latest rules, without those of which another one has a later grader."""
    found = [_Value(*value) for value in values]

    assert of_latest_rules(found, lambda one: one.versions) == [found[index] for index in latest]


def test_first_versions_are_those_of_older_releases() -> None:
    """They are one series of a chart."""
    assert key_of({}) == key_of({"regex": 1}) == ()
    assert key_of({"math": 2}) != ()
