"""The contract of the crucible bridge, shared by client and worker.

    async with crucible_bridge.connect("127.0.0.1:50051") as bridge:
        result = await bridge.evaluation.evaluate(
            model="embedded:arithmetic@320", evaluators="accuracy", dataset="builtin:arithmetic",
            sampling=crucible_bridge.types.SamplingParams(max_tokens=8),
        )

`types` has the values that are sent and received, `events` what is reported meanwhile, `errors` what can go wrong. None
of them depends on the wire format. `client` has the calls, one file for each service. `codec` converts types to the
messages of `v1`, which are generated from `protos/`.

Importing it imports neither gRPC nor numpy; they are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crucible_bridge import errors, events, types
    from crucible_bridge.channel import Tls
    from crucible_bridge.client import BlockingBridge, Bridge, connect, connect_sync
    from crucible_bridge.errors import BridgeError

__all__ = [
    "BlockingBridge",
    "Bridge",
    "BridgeError",
    "Tls",
    "connect",
    "connect_sync",
    "errors",
    "events",
    "types",
]

_HOMES = {
    "BlockingBridge": "crucible_bridge.client",
    "Bridge": "crucible_bridge.client",
    "BridgeError": "crucible_bridge.errors",
    "Tls": "crucible_bridge.channel",
    "connect": "crucible_bridge.client",
    "connect_sync": "crucible_bridge.client",
}
_MODULES = ("errors", "events", "types")


# Hidden from type checkers: they would accept any name as part of the package.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return getattr(importlib.import_module(_HOMES[name]), name)
        if name in _MODULES:
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
