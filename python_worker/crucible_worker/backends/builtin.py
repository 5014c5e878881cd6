"""The backends that are in the box: a new one is its folder and its line in `BUILTIN`.

Each is found as an installed one is, by a name and the place of its class, and has the same interface, `base.Backend`.
What the settings say about its servers is declared here too, since settings are read where no backend is loaded.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

from crucible_worker.backends.endpoints import Kind
from crucible_worker.backends.managed.settings import KIND as MANAGED
from crucible_worker.backends.openai.servers import KIND as OPENAI
from crucible_worker.backends.tinker.services import KIND as TINKER

if TYPE_CHECKING:
    from crucible_worker.backends.base import Backend

__all__ = ["BUILTIN", "ENDPOINTS", "BuiltinBackend"]


class BuiltinBackend(NamedTuple):
    """A backend in the box; nothing of it is imported before `load`."""

    name: str
    """Its name; the scheme of its references, if those are of the form that installed backends have."""
    place: str
    """Its class, as an entry point names it: "module:Class"."""
    endpoints: Kind[Any] | None = None
    """Settings of its servers; None if it has none."""

    def load(self) -> type[Backend[Any]]:
        """Import its class."""
        module, _, name = self.place.partition(":")
        return getattr(importlib.import_module(module), name)


BUILTIN = (
    BuiltinBackend("local", "crucible_worker.backends.local.backend:LocalBackend"),
    BuiltinBackend("openai", "crucible_worker.backends.openai.backend:OpenAIBackend", OPENAI),
    BuiltinBackend("tinker", "crucible_worker.backends.tinker.backend:TinkerBackend", TINKER),
    BuiltinBackend("orchestrator", "crucible_worker.backends.orchestrator:OrchestratorBackend"),
    BuiltinBackend("managed", "crucible_worker.backends.managed.backend:ManagedBackend", MANAGED),
)
"""All of them, in the order in which GetInfo lists them."""

ENDPOINTS = tuple(backend.endpoints for backend in BUILTIN if backend.endpoints is not None)
"""The kinds of servers that settings may have."""
