"""Callbacks that report the checkpoints of a trainer to a worker, one module for each trainer.

    from crucible_bridge.integrations.transformers import EvaluateCallback

Each module imports its trainer; nothing else here does.
"""

from __future__ import annotations

__all__: list[str] = []
