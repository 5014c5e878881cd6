"""What graders and evaluators need of a worker is named in the signature of what makes them."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from crucible_worker.evaluators.registry import EVALUATORS, EvaluatorParts
from crucible_worker.grading.registry import GRADERS, GradingParts, handed
from crucible_worker.util.options import handed_names


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    pool: str = "the pool"
    places: str = "the places"


def test_a_part_is_handed_to_what_names_it():
    """Keyword-only parameters are needs; positional ones, and parts that nothing names, are left alone."""

    def make(options: object, *, places: str) -> None:
        """Needs one of two."""

    assert handed(make, _Parts()) == {"places": "the places"}
    assert handed(lambda options: options, _Parts()) == {}


def test_an_unknown_need_is_an_error():
    """A need that is no part's name is found at once: nothing else is handed in its place."""

    def make(options: object, *, plces: str) -> None:
        """Needs what there is not."""

    with pytest.raises(AttributeError, match="plces"):
        handed(make, _Parts())


def _needs(make: Callable[..., Any]) -> set[str]:
    parameters = inspect.signature(make).parameters.values()
    return {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


def test_every_need_is_a_part():
    """Whatever a grader or an evaluator names exists; each part is needed by one of them, or by the registry."""
    graders = set[str]().union(*(_needs(grader.make) for grader in GRADERS.values()))
    evaluators = set[str]().union(*(handed_names(kind.evaluator) for kind in EVALUATORS.values())) - {"sampling"}

    assert graders == {field.name for field in dataclasses.fields(GradingParts)}
    assert evaluators | {"custom_evaluators"} == {field.name for field in dataclasses.fields(EvaluatorParts)}
