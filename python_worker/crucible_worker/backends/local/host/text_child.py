"""What runs in a child of a host that has one tokenizer and chat template, until it is killed.

Its memory is bounded, its time by the host. The first request loads the tokenizer, in that time and memory.
"""

from __future__ import annotations

import logging
import resource
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crucible_bridge.errors import BackendError, BridgeError
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.bounds import HostBounds
from crucible_worker.backends.local.frames import error_to_map, pack, read_frame
from crucible_worker.backends.local.host.texts import Texts
from crucible_worker.rendering import tinker_cookbook

__all__ = ["IMPORT_COOKBOOK", "LOAD", "Load", "serve"]

LOAD = "load"
"""The first request: load a tokenizer."""
IMPORT_COOKBOOK = "import_cookbook"
"""The request before the first one that a renderer of tinker-cookbook answers."""

Load = Callable[[dict[str, Any], int], tuple[Texts | None, Any]]
"""Loads what a first request names, with `max_rendered_chars`: its texts, if there are any, and the answer."""

_log = logging.getLogger(__name__)


def serve(endpoint: socket.socket, *, bounds: HostBounds, load: Load) -> None:
    """Answer requests until the host closes its end."""
    _bound_memory(bounds.max_rendering_bytes)
    requests, replies = endpoint.makefile("rb"), endpoint.makefile("wb")
    texts: Texts | None = None
    while (message := read_frame(requests)) is not None:
        try:
            if message["op"] == LOAD:
                texts, result = load(message, bounds.max_rendered_chars)
            elif message["op"] == IMPORT_COOKBOOK:
                result = tinker_cookbook.preload()
            else:
                assert texts is not None
                result = texts.answer(message)
            frame = pack({"result": result})
        except Exception as error:  # whatever it is, it is answered; the child has more to do
            frame = pack({"error": error_to_map(_told(error, bounds.max_rendering_bytes))})
        replies.write(frame)
        replies.flush()


def _told(error: Exception, max_bytes: int) -> BridgeError:
    if isinstance(error, BridgeError):
        return error
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return BackendError(
            f"the tokenizer or chat template needs more than {max_bytes:,} bytes of memory (max_rendering_bytes)",
            reason=Reason.RENDERING_LIMIT,
            retryable=False,
        )
    _log.error("a request failed", exc_info=error)
    return BackendError(f"the tokenizer failed: {type(error).__name__}", reason=Reason.MODEL_FAILED, retryable=False)


def _bound_memory(more: int) -> None:
    """Let this process have so much memory beside what it shares with the fork server."""
    status: dict[str, Any] = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    for limit, name in ((resource.RLIMIT_DATA, "VmData"), (resource.RLIMIT_AS, "VmSize")):
        bound = int(status[name].split()[0]) * 1024 + more
        _, hard = resource.getrlimit(limit)
        if hard != resource.RLIM_INFINITY:
            bound = min(bound, hard)
        resource.setrlimit(limit, (bound, bound))
