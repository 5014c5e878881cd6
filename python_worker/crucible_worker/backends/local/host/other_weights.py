"""Refuses a model if its files do not have exactly the weights that its configuration describes.

transformers only logs such weights: it drops those that the model lacks, and makes random ones in place of those that
the files lack. The number of such a model is that of no checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.host.sizes import read_shapes

__all__ = ["refuse_other_weights"]

_MAX_NAMED = 3
"""Most weights that an error names."""
_MAX_NAME_CHARS = 120
"""Most characters of one of them, its shapes included."""
_MASKS = (".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias")
"""Ends of the names of attention masks, which old releases of transformers saved: a table, and one number."""
_MASK_DIMENSIONS = 4
"""Of the table: (1, 1, context, context). A bias that was trained has one."""


def refuse_other_weights(directory: Path, model: Any, report: Mapping[str, Any]) -> None:
    """Refuse what transformers would load without some of the weights.

    Args:
        directory: of the model.
        model: as transformers loaded it.
        report: its `loading_info`, without what the model's class declares as ignorable.

    Raises:
        FailedPrecondition: names weights that are missing, that have another shape, or that are not used
            (MODEL_REFUSED).
    """
    if missing := sorted(report["missing_keys"]):
        raise _refused(directory, f"lacks {_few(missing)} of its model: save all of it with save_pretrained()")
    if mismatched := sorted(report["mismatched_keys"], key=lambda each: each[0]):
        shapes = [
            f"{name} has {_by(there)} in the files, {_by(described)} in the model"
            for name, there, described in mismatched
        ]
        raise _refused(directory, f"has {_few(shapes, 'of other shapes')}: config.json is not that of these weights")
    if unused := _unused(directory, model, report["unexpected_keys"]):
        raise _refused(
            directory,
            f"has {_few(unused)} that its configuration does not use: write the config.json that describes them "
            "(number of layers, biases ...), or remove them from the files",
        )
    if untied := _untied(model):
        raise _refused(
            directory,
            f"has {_few(untied)} that config.json ties to other weights, with other values: set tie_word_embeddings to "
            "false there, or remove them from the files",
        )


def _unused(directory: Path, model: Any, names: Collection[str]) -> Sequence[str]:
    """Those that are no tables which the model computes."""
    trained = set(names) - {name for name, _ in model.named_buffers()}
    if any(name.endswith(_MASKS) for name in trained):
        shapes = read_shapes(directory)
        trained = {name for name in trained if not (name.endswith(_MASKS) and _is_mask(shapes.get(name)))}
    return sorted(trained)


def _is_mask(shape: Sequence[int] | None) -> bool:
    return shape is not None and (len(shape) == _MASK_DIMENSIONS or math.prod(shape) == 1)


def _untied(model: Any) -> Sequence[str]:
    """Weights that the configuration ties to others, and that the files have with other values."""
    tied: Mapping[str, str] = model.get_expanded_tied_weights_keys(all_submodels=True)
    return sorted(
        target for target, source in tied.items() if model.get_parameter(target) is not model.get_parameter(source)
    )


def _by(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "no dimension"


def _few(names: Sequence[str], kind: str = "") -> str:
    """The first of some weights, after their number."""
    named = ", ".join(name[:_MAX_NAME_CHARS] for name in names[:_MAX_NAMED]) + (
        ", ..." if len(names) > _MAX_NAMED else ""
    )
    return " ".join(filter(None, (f"{len(names):,}", "weight" if len(names) == 1 else "weights", kind, f"({named})")))


def _refused(directory: Path, why: str) -> FailedPrecondition:
    return FailedPrecondition(f"{directory.name!r} {why}", reason=Reason.MODEL_REFUSED)
