"""What callers may pass in place of our types: the shorter forms, and types of other libraries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    Dataset,
    DatasetSource,
    EvaluatorSpec,
    ModelRef,
    Sample,
    Tensor,
    parse_model,
)

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["ArrayLike", "DatasetLike", "DatumLike", "EvaluatorsLike", "ModelLike", "as_model"]

ModelLike: TypeAlias = ModelRef | str
"""A reference to a model, or text as `parse_model` reads it: "embedded:NAME", "local:PATH", "openai:SERVER/MODEL"."""

EvaluatorsLike: TypeAlias = str | EvaluatorSpec | Iterable[str | EvaluatorSpec] | Mapping[str, Mapping[str, Any] | None]
"""One or several kinds ("nll") or EvaluatorSpecs, or a mapping of kinds to their options."""


class HasNumpy(Protocol):
    """An array of another library that has a copy for numpy, like tinker's TensorData."""

    def to_numpy(self) -> Any:
        """The array."""
        ...


class DatumLike(Protocol):
    """A Datum, or tinker's: `crucible_bridge.types.Datum` is one."""

    @property
    def model_input(self) -> Any:
        """The input."""
        ...

    @property
    def loss_fn_inputs(self) -> Mapping[str, Any]:
        """Arrays by name."""
        ...


DatasetLike: TypeAlias = Dataset | DatasetSource | str | Iterable[Sample | Mapping[str, Any] | DatumLike]
"""What `Dataset.of` accepts: a data set, its source, text ("builtin:NAME", "jsonl:PATH", "csv:PATH", "hub:..."), or a
list of samples, of rows (mappings such as {"question": ..., "answer": ...}) and of Datums."""

ArrayLike: TypeAlias = "Tensor | npt.ArrayLike | HasNumpy"
"""What `crucible_bridge.arrays.as_array` accepts: numpy arrays, torch tensors, lists, tinker's TensorData, Tensors."""


def as_model(model: Any, field: str = "model") -> ModelRef:
    """The reference that a caller gave, perhaps as text; a value of another type is refused as this field.

    Raises:
        InvalidField: it is none.
    """
    if isinstance(model, str):
        return parse_model(model)
    if not isinstance(model, ModelRef):
        raise InvalidField(field, f"is a {type(model).__name__}, not a reference to a model")
    return model
