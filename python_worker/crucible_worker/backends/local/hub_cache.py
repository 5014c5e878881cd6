"""Models of the Hugging Face hub in its cache: `models--OWNER--NAME/snapshots/COMMIT`, the library's layout.

The files there are links to `blobs`, in the same folder; a branch or tag is a file in `refs` that contains its commit.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crucible_bridge.errors import BridgeError, NotFound, Unavailable
from crucible_bridge.reasons import Reason
from crucible_bridge.types import HubModel
from crucible_worker.backends.local.paths import check_files
from crucible_worker.children.messages import error_from_map
from crucible_worker.children.process import Unanswered, ask_once

__all__ = ["AT_ONCE", "COMMIT", "FIELD", "HubCache", "fetch"]


COMMIT = re.compile(r"[0-9a-f]{40}")
FIELD = "model.hub"
"""Where a request names a model of the hub."""

_MAIN = "main"
_MAX_REF_BYTES = 100


class HubCache:
    """The cache of the hub, at the path that the worker's environment sets."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.root = _root(environment)
        """The folder of all repositories."""

    def repository(self, model: HubModel) -> Path:
        """The folder of a model's repository, which need not exist: all files of the model are below it."""
        return self.root / f"models--{model.repo_id.replace('/', '--')}"

    def snapshot(self, model: HubModel, commit: str | None = None) -> Path:
        """The folder of a model's files.

        Args:
            model: the reference.
            commit: of its repository; that of its revision if None.

        Raises:
            NotFound: the cache does not have it (NOT_CACHED).
        """
        commit = commit or self._commit(model)
        directory = None if commit is None else self.repository(model) / "snapshots" / commit
        if directory is None or not directory.is_dir():
            revision = f" of revision {model.revision!r}" if model.revision else ""
            raise NotFound(
                f"is {model.repo_id!r}{revision}, which is not in the worker's cache; the worker does not ask the hub",
                reason=Reason.NOT_CACHED,
                field=FIELD,
            )
        return directory

    def is_whole(self, model: HubModel) -> bool:
        """Whether the cache has all necessary files of a model."""
        try:
            directory = self.snapshot(model)
            check_files(directory, (self.repository(model),))
        except BridgeError:
            return False
        return True

    def _commit(self, model: HubModel) -> str | None:
        if model.revision is not None and COMMIT.fullmatch(model.revision):
            return model.revision
        try:
            with (self.repository(model) / "refs" / (model.revision or _MAIN)).open(encoding="ascii") as file:
                commit = file.read(_MAX_REF_BYTES).strip()
        except (OSError, UnicodeDecodeError):
            return None
        return commit if COMMIT.fullmatch(commit) else None


def _root(environment: Mapping[str, str]) -> Path:
    """The root of the cache, found as the library does."""
    if named := environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE"):
        return Path(named).expanduser()
    if home := environment.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    return Path(environment.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "huggingface" / "hub"


# A model of the hub, fetched into the worker's cache by a child process.

AT_ONCE = 2
"""Most models that are fetched at once."""

_FETCHER = "crucible_worker.backends.local.hub_fetcher"
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
