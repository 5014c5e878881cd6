"""ExperimentService, typed."""

from __future__ import annotations

from crucible_bridge.client.calls import Calls
from crucible_bridge.client.plain_calls import PlainExperimentCalls

__all__ = ["ExperimentsClient"]


class ExperimentsClient(PlainExperimentCalls):
    """What runs log, and the loggers that it goes to."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
