"""What any backend refuses of sampling parameters, whatever its server would make of them."""

from __future__ import annotations

import math

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import SamplingParams

__all__ = ["check_sampling"]


def check_sampling(params: SamplingParams, num_samples: int) -> None:
    """Refuse what makes no sense.

    Raises:
        InvalidField: a parameter is out of range.
    """
    if num_samples < 1:
        raise InvalidField("num_samples", f"is {num_samples}, must be at least 1")
    if params.max_tokens < 1:
        raise InvalidField("sampling.max_tokens", f"is {params.max_tokens}, must be at least 1")
    if not (math.isfinite(params.temperature) and params.temperature >= 0):
        raise InvalidField("sampling.temperature", f"is {params.temperature}, must be finite and at least 0")
    if not 0 < params.top_p <= 1:
        raise InvalidField("sampling.top_p", f"is {params.top_p}, must be above 0 and at most 1")
    if params.top_k is not None and params.top_k < 1:
        raise InvalidField("sampling.top_k", f"is {params.top_k}, must be at least 1")
