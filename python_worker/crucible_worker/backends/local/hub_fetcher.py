"""The child process that fetches a model of the hub: `python -m crucible_worker.backends.local.hub_fetcher`.

It receives a request as JSON, and answers with the commit that the cache has then, or with an error.
"""

from __future__ import annotations

import glob
import json
import logging
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

from crucible_bridge.errors import BridgeError, FailedPrecondition, NotFound, Unavailable
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.hub_cache import FIELD
from crucible_worker.backends.local.paths import PICKLED_SUFFIXES, RELEVANT_SUFFIXES
from crucible_worker.children.messages import error_to_map
from crucible_worker.children.process import answer_once
from crucible_worker.util.hub_requests import SILENT_SECONDS, bound_silence, is_of_network

__all__ = ["main"]

_log = logging.getLogger(__name__)


def main() -> None:
    """Answer one request."""
    answer_once(__spec__.name, _answer)


def _answer(question: bytes) -> bytes:
    request = json.loads(question)
    bound_silence()
    try:
        answer: dict[str, Any] = {"commit": _fetched(request["repo_id"], request["revision"])}
    except BridgeError as error:
        answer = {"error": error_to_map(error)}
    return json.dumps(answer).encode()


def _fetched(repo_id: str, revision: str | None) -> str:
    try:
        # Queried first, and with a time-out: a repository without safetensors need not be fetched.
        info = HfApi().model_info(repo_id, revision=revision, timeout=SILENT_SECONDS)
        names = [sibling.rfilename for sibling in info.siblings or () if "/" not in sibling.rfilename]
        wanted = _wanted(repo_id, names)
        folder = snapshot_download(repo_id, revision=revision, allow_patterns=[glob.escape(name) for name in wanted])
    except BridgeError:
        raise
    except Exception as error:
        raise _problem(repo_id, revision, error) from error
    commit = Path(folder).name
    if commit != info.sha:  # the connection was lost meanwhile, and the library used its cache
        raise _unreachable()
    return commit


def _wanted(repo_id: str, names: list[str]) -> list[str]:
    """The files of a model, among those at the top of its repository."""
    suffixes = {Path(name).suffix for name in names}
    if ".safetensors" not in suffixes:
        if suffixes & PICKLED_SUFFIXES:
            raise FailedPrecondition(
                f"{repo_id!r} holds pickled weights, which can run code; a revision with safetensors is needed",
                reason=Reason.PICKLED_WEIGHTS_REFUSED,
                field=FIELD,
            )
        raise FailedPrecondition(f"{repo_id!r} has no *.safetensors", reason=Reason.NO_SAFETENSORS, field=FIELD)
    return [name for name in names if Path(name).suffix in RELEVANT_SUFFIXES]


def _problem(repo_id: str, revision: str | None, error: Exception) -> BridgeError:
    """Our error for one of the library; its text may contain signed URLs, and goes only to the worker's log."""
    if is_of_network(error):
        return _unreachable()
    if isinstance(error, (RepositoryNotFoundError, RevisionNotFoundError)):
        of = f" of revision {revision!r}" if revision else ""
        return NotFound(
            f"is {repo_id!r}{of}, which the hub does not have, or does not show to this worker",
            reason=Reason.MODEL_NOT_FOUND,
            field=FIELD,
        )
    _log.error("model %s cannot be fetched", repo_id, exc_info=error)
    return FailedPrecondition(f"cannot be fetched: {type(error).__name__}", reason=Reason.MODEL_REFUSED, field=FIELD)


def _unreachable() -> Unavailable:
    return Unavailable(
        "names a model of the Hugging Face hub, which cannot be reached",
        reason=Reason.HUB_UNREACHABLE,
        retryable=True,
        field=FIELD,
    )


if __name__ == "__main__":
    main()
