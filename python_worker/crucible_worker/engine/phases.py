"""What an attempt at an evaluation does at a moment, for people who wait for it."""

from __future__ import annotations

import enum

__all__ = ["Phase"]


class Phase(enum.StrEnum):
    """What an attempt does; the values are words for people."""

    READING = "reading data"
    """Its data set is read, and its model is looked for."""
    WAITING = "waiting for its turn"
    """As many evaluations run as may run at once."""
    PAUSED = "paused"
    """A caller has paused it, and no query is in flight."""
    LOADING = "preparing the model"
    """Its models are loaded and examined, and its evaluators get ready."""
    ASKING = "asking"
    """At least one query of a model is in flight."""
    GRADING = "grading"
    """Samples are at work, and no query is in flight."""
