"""An EvaluateRequest from its fields, some of them in shorter forms."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Unpack

from crucible_bridge.client.request_fields import EvaluateFields
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Dataset, EvaluateRequest, EvaluatorSpec, ModelRef, parse_model

__all__ = ["request_of"]


def request_of(request: EvaluateRequest | None = None, /, **fields: Unpack[EvaluateFields]) -> EvaluateRequest:
    """Make an EvaluateRequest from its fields.

    Besides the types of EvaluateRequest it accepts: `model` as text ("embedded:arithmetic@320", "local:path"),
    `evaluators` as one or several kinds ("nll") or EvaluatorSpecs, or as a mapping of kinds to their options
    ({"accuracy": {"grader": "numeric"}}), `dataset` as `Dataset.of` accepts it.

    Raises:
        InvalidField: a text cannot be read, or `request`, model, evaluators or dataset have an unaccepted type.
        TypeError: a keyword is not a field of EvaluateRequest, or model, evaluators or dataset are missing.
    """
    if request is not None and not isinstance(request, EvaluateRequest):
        raise InvalidField("request", f"is a {type(request).__name__}, not an EvaluateRequest")
    given: dict[str, Any] = {**fields}
    for name, read in _SHORT_FORMS.items():
        if name in given:
            given[name] = read(given[name])
    return EvaluateRequest(**given) if request is None else dataclasses.replace(request, **given)


def _model(value: Any) -> ModelRef:
    if isinstance(value, str):
        return parse_model(value)
    if isinstance(value, ModelRef):
        return value
    raise InvalidField("model", f"is a {type(value).__name__}, neither text nor a ModelRef")


def _evaluators(value: Any) -> tuple[EvaluatorSpec, ...]:
    if isinstance(value, Mapping):
        return tuple(_of_kind(kind, options) for kind, options in value.items())
    listed = (value,) if isinstance(value, str | EvaluatorSpec) else value
    if not isinstance(listed, Iterable):
        raise InvalidField("evaluators", f"is a {type(value).__name__}, neither a kind nor a list of EvaluatorSpecs")
    return tuple(_evaluator_spec(spec, index) for index, spec in enumerate(listed))


def _of_kind(kind: Any, options: Any) -> EvaluatorSpec:
    if not isinstance(kind, str):
        raise InvalidField("evaluators", f"has the key {kind!r}, must have kinds as text")
    if options is not None and not isinstance(options, Mapping):
        raise InvalidField(f'evaluators["{kind}"]', f"is a {type(options).__name__}, not a mapping of options")
    return EvaluatorSpec(kind=kind, options=options or {})


def _evaluator_spec(value: Any, index: int) -> EvaluatorSpec:
    if isinstance(value, EvaluatorSpec):
        return value
    if isinstance(value, str):
        return EvaluatorSpec(kind=value)
    alone = "; a mapping {kind: options} stands alone" if isinstance(value, Mapping) else ""
    message = f"is a {type(value).__name__}, neither a kind nor an EvaluatorSpec{alone}"
    raise InvalidField(f"evaluators[{index}]", message)


_SHORT_FORMS: Mapping[str, Callable[[Any], Any]] = {"model": _model, "evaluators": _evaluators, "dataset": Dataset.of}
