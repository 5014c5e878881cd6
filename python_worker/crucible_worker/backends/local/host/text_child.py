"""What runs in a child of the host that has one checkpoint's tokenizer and chat template, until it is killed.

Its memory is bounded, its time by the host. First it finds out whether the checkpoint can be loaded at all: whether
its configuration describes what its weights hold, and whether its tokenizer can be read in that time and memory.
"""

from __future__ import annotations

import logging
import resource
import socket
from pathlib import Path
from typing import Any

from crucible_bridge.errors import BackendError, BridgeError
from crucible_worker.backends.local.bounds import HostBounds
from crucible_worker.backends.local.frames import error_to_map, pack, read_frame
from crucible_worker.backends.local.host.loading import load_tokenizer
from crucible_worker.backends.local.host.refusals import refusing
from crucible_worker.backends.local.host.sizes import check_sizes
from crucible_worker.backends.local.host.texts import RENDERING_LIMIT, Texts, check_tokenizer
from crucible_worker.rendering import tinker_cookbook

__all__ = ["IMPORT_COOKBOOK", "LOAD", "serve"]

LOAD = "load"
"""The first request: check a checkpoint, and read its tokenizer."""
IMPORT_COOKBOOK = "import_cookbook"
"""The request before the first one that a renderer of tinker-cookbook answers."""

_log = logging.getLogger(__name__)


def serve(endpoint: socket.socket, bounds: HostBounds) -> None:
    """Answer requests until the host closes its end."""
    _bound_memory(bounds.max_rendering_bytes)
    requests, replies = endpoint.makefile("rb"), endpoint.makefile("wb")
    texts: Texts | None = None
    while (message := read_frame(requests)) is not None:
        try:
            if message["op"] == LOAD:
                texts = _load(Path(message["path"]), bounds.max_rendered_chars)
                result = texts is not None
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


def _load(directory: Path, max_rendered_chars: int) -> Texts | None:
    """The checkpoint's texts; None if it has no tokenizer."""
    with refusing(directory, "MODEL_REFUSED"):
        check_sizes(directory)
        tokenizer = load_tokenizer(directory)
    if tokenizer is None:
        return None
    check_tokenizer(tokenizer, directory)
    return Texts(tokenizer, max_rendered_chars)


def _told(error: Exception, max_bytes: int) -> BridgeError:
    if isinstance(error, BridgeError):
        return error
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return BackendError(
            f"the tokenizer or chat template needs more than {max_bytes:,} bytes of memory (max_rendering_bytes)",
            reason=RENDERING_LIMIT,
            retryable=False,
        )
    _log.error("a request failed", exc_info=error)
    return BackendError(f"the tokenizer failed: {type(error).__name__}", reason="MODEL_FAILED", retryable=False)


def _bound_memory(more: int) -> None:
    """Let this process have so much memory beside what it shares with the fork server."""
    status: dict[str, Any] = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    for limit, name in ((resource.RLIMIT_DATA, "VmData"), (resource.RLIMIT_AS, "VmSize")):
        bound = int(status[name].split()[0]) * 1024 + more
        _, hard = resource.getrlimit(limit)
        if hard != resource.RLIM_INFINITY:
            bound = min(bound, hard)
        resource.setrlimit(limit, (bound, bound))
