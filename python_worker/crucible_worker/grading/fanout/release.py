"""The release of a worker and of a node: verdicts are equal where releases are."""

from __future__ import annotations

import functools
import importlib.metadata

from crucible_worker.grading.math.grader import POLICY_VERSION

__all__ = ["release"]


@functools.cache
def release() -> str:
    """The version of the installed distribution, and that of the math grader's rules."""
    return f"{importlib.metadata.version('crucible-bridge')} (rules of mathematics {POLICY_VERSION})"
