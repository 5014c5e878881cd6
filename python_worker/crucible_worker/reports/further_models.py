"""What the further models of an evaluation are to it: a reference, with which policies are compared, or a judge."""

from __future__ import annotations

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Evaluation, EvaluatorSpec, format_model, parse_model

__all__ = ["named_with_role"]

_REFERENCE = "reference"
"""The option that names a reference, and its role."""


def named_with_role(evaluation: Evaluation, model: str) -> str:
    """A further model with its role: "openai:lab/small (judge)".

    Args:
        evaluation: that queried it.
        model: as usage names it.
    """
    role = _REFERENCE if any(_compares_with(spec, model) for spec in evaluation.request.evaluators) else "judge"
    return f"{model} ({role})"


def _compares_with(spec: EvaluatorSpec, model: str) -> bool:
    named = spec.options.get(_REFERENCE)
    try:
        return isinstance(named, str) and format_model(parse_model(named)) == model
    except InvalidField:  # an installed evaluator's option of that name, which is no model
        return False
