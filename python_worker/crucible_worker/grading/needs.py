"""The parts of the worker that a grader or an evaluator needs, as named in the signature of its constructor.

    def math_grader_of(options: Mapping[str, Any], *, pool: GradingPool | None) -> MathGrader: ...

The registry passes it the worker's pool, because `pool` is the name of a part in `GradingParts`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["handed"]


def handed(make: Callable[..., Any], parts: object) -> dict[str, Any]:
    """The parts that the keyword-only parameters of a function name.

    Raises:
        AttributeError: there is no part of such a name.
    """
    parameters = inspect.signature(make).parameters.values()
    return {needed.name: getattr(parts, needed.name) for needed in parameters if needed.kind is needed.KEYWORD_ONLY}
