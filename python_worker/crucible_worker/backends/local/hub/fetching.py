"""A model of the hub, fetched into the worker's cache by a child process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from typing import Any

from crucible_bridge.errors import Unavailable
from crucible_bridge.reasons import Reason
from crucible_bridge.types import HubModel
from crucible_worker.backends.local.frames import error_from_map
from crucible_worker.backends.local.hub.cache import FIELD

__all__ = ["AT_ONCE", "fetch"]

AT_ONCE = 2
"""Models that are fetched at once."""

_FETCHER = "crucible_worker.backends.local.hub.fetcher"
_ENVIRONMENT = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # Its transfers know no bound on silence.
    "HF_HUB_DISABLE_XET": "1",
}


async def fetch(model: HubModel) -> str:
    """Have all files of a model in the cache; its commit. The child ends with this.

    Raises:
        NotFound: the hub has no such repository or revision, or does not show it to this worker (MODEL_NOT_FOUND).
        FailedPrecondition: it has no safetensors (NO_SAFETENSORS, PICKLED_WEIGHTS_REFUSED), or cannot be fetched
            (MODEL_REFUSED).
        Unavailable: the hub cannot be reached (HUB_UNREACHABLE), or the child has died (HUB_READER_DIED).
    """
    process = await asyncio.create_subprocess_exec(
        # -P: the directory that the worker happens to stand in is no place to import from.
        *(sys.executable, "-P", "-m", _FETCHER, str(os.getpid())),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **_ENVIRONMENT},
        process_group=0,
    )
    request = json.dumps({"repo_id": model.repo_id, "revision": model.revision}).encode()
    try:
        answer, _ = await process.communicate(request)
    finally:
        with contextlib.suppress(ProcessLookupError):  # it has ended
            process.kill()
        await process.wait()
    return _commit_of(answer)


def _commit_of(answer: bytes) -> str:
    try:
        told: dict[str, Any] = json.loads(answer)
    except ValueError:
        raise Unavailable(
            "the process that fetches models of the hub has died", reason=Reason.HUB_READER_DIED, field=FIELD
        ) from None
    if "error" in told:
        raise error_from_map(told["error"])
    return told["commit"]
