"""Gate policies as TOML files that people edit: how much worse each metric of a candidate may be.

    [[metrics]]
    key = "accuracy"
    max_drop = 0.01

A file is read strictly: an unknown key, a wrong type or a value out of range is refused with its path in the file,
`metrics[1].max_drop`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from crucible_bridge.codec.generated import gate_policy_from_v1, gate_policy_to_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.toml_fields import Reader, document_of, fields_of, list_of, number_of, text_of, whole_of, wrong
from crucible_bridge.types import GateMetric, GatePolicy, GateTier, Goal

__all__ = ["load_gate_policy", "parse_gate_policy"]

_Choice = TypeVar("_Choice", bound=StrEnum)


def load_gate_policy(path: Path | str) -> GatePolicy:
    """Read a policy's file.

    Raises:
        OSError: it cannot be read.
        InvalidField: it is not a policy; see `parse_gate_policy`.
    """
    content = Path(path).read_bytes()
    try:
        return parse_gate_policy(content.decode())
    except UnicodeDecodeError as error:
        raise InvalidField("policy", f"is not UTF-8, at byte {error.start}") from None


def parse_gate_policy(text: str) -> GatePolicy:
    """Read a policy.

    Args:
        text: TOML.

    Raises:
        InvalidField: it is not TOML, or a key is unknown, missing or given twice, or a value has the wrong type or is
            out of range. A worker checks whether the evaluations have the metrics.
    """
    fields = fields_of(document_of(text, "policy"), "", _POLICY, needed=("metrics",), file="the policy's file")
    # The message has the ranges.
    return gate_policy_from_v1(gate_policy_to_v1(GatePolicy(**fields), ""))


def _metrics(value: Any, path: str) -> tuple[GateMetric, ...]:
    tables = enumerate(list_of(value, path))
    return tuple(GateMetric(**fields_of(item, f"{path}[{index}]", _METRIC, needed=("key",))) for index, item in tables)


def _one_of(choices: type[_Choice]) -> Callable[[Any, str], _Choice]:
    def read(value: Any, path: str) -> _Choice:
        try:
            return choices(text_of(value, path))
        except ValueError:
            raise wrong(path, value, " or ".join(repr(choice.value) for choice in choices)) from None

    return read


_POLICY: Mapping[str, Reader] = {
    "metrics": _metrics,
    "confidence": number_of,
    "cluster_by": text_of,
    "max_unscored_share": number_of,
}
_METRIC: Mapping[str, Reader] = {
    "key": text_of,
    "max_drop": number_of,
    "max_relative_drop": number_of,
    "tier": _one_of(GateTier),
    "min_n": whole_of,
    "direction": _one_of(Goal),
}
