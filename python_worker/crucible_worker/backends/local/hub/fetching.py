"""A model of the hub, fetched into the worker's cache by a child process."""

from __future__ import annotations

import json
import os
from typing import Any

from crucible_bridge.errors import Unavailable
from crucible_bridge.reasons import Reason
from crucible_bridge.types import HubModel
from crucible_worker.backends.local.hub.cache import FIELD
from crucible_worker.children.messages import error_from_map
from crucible_worker.children.process import Unanswered, ask_once

__all__ = ["AT_ONCE", "fetch"]

AT_ONCE = 2
"""Most models that are fetched at once."""

_FETCHER = "crucible_worker.backends.local.hub.fetcher"
_ENVIRONMENT = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # Xet's transfers have no time-out for silence.
    "HF_HUB_DISABLE_XET": "1",
}


async def fetch(model: HubModel) -> str:
    """Fetch all files of a model into the cache; returns its commit. The child ends with this call.

    Raises:
        NotFound: the hub has no such repository or revision, or does not show it to this worker (MODEL_NOT_FOUND).
        FailedPrecondition: it has no safetensors (NO_SAFETENSORS, PICKLED_WEIGHTS_REFUSED), or cannot be fetched
            (MODEL_REFUSED).
        Unavailable: the hub cannot be reached (HUB_UNREACHABLE), or the child has died (HUB_READER_DIED).
    """
    request = {"repo_id": model.repo_id, "revision": model.revision}
    try:
        answer = await ask_once(
            _FETCHER, json.dumps(request).encode(), environment={**os.environ, **_ENVIRONMENT}, logs=True
        )
    except Unanswered:
        raise Unavailable(
            "the process that fetches models of the hub has died", reason=Reason.HUB_READER_DIED, field=FIELD
        ) from None
    told: dict[str, Any] = json.loads(answer)
    if "error" in told:
        raise error_from_map(told["error"])
    return told["commit"]
