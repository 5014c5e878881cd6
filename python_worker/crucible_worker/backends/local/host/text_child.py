"""Runs in a child of a host, with one tokenizer and chat template, until it is killed.

Its memory is bounded; the host bounds its time. The first request loads the tokenizer, within the same bounds.
"""

from __future__ import annotations

import logging
import resource
import socket
from collections.abc import Callable
from typing import Any

from crucible_bridge.errors import BackendError, BridgeError
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.bounds import HostBounds
from crucible_worker.backends.local.host.texts import Texts
from crucible_worker.children.frames import receive
from crucible_worker.children.lifetime import limit_growth
from crucible_worker.children.messages import error_to_map, pack, unpack
from crucible_worker.rendering import tinker_cookbook

__all__ = ["IMPORT_COOKBOOK", "LOAD", "Load", "serve"]

LOAD = "load"
"""The first request: load a tokenizer."""
IMPORT_COOKBOOK = "import_cookbook"
"""The request that comes before the first one to a renderer of tinker-cookbook."""

Load = Callable[[dict[str, Any], int], tuple[Texts | None, Any]]
"""Loads what the first request names, with `max_rendered_chars`; returns its texts, or None, and the answer."""

_log = logging.getLogger(__name__)


def serve(endpoint: socket.socket, *, bounds: HostBounds, load: Load) -> None:
    """Answer requests until the host closes its end."""
    limit_growth(bounds.max_rendering_bytes, resource.RLIMIT_DATA, resource.RLIMIT_AS)
    texts: Texts | None = None
    while (body := receive(endpoint)) is not None:
        message = unpack(body)
        try:
            if message["op"] == LOAD:
                texts, result = load(message, bounds.max_rendered_chars)
            elif message["op"] == IMPORT_COOKBOOK:
                result = tinker_cookbook.preload()
            else:
                assert texts is not None
                result = texts.answer(message)
            frame = pack({"result": result})
        except Exception as error:  # any error is an answer; the child continues
            frame = pack({"error": error_to_map(_error_of(error, bounds.max_rendering_bytes))})
        endpoint.sendall(frame)


def _error_of(error: Exception, max_bytes: int) -> BridgeError:
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
