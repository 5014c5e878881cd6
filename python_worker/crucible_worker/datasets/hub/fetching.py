"""A data set from the hub itself, into the cache; imported in the child process only."""

from __future__ import annotations

import logging
from typing import Any

from datasets import config, load_dataset_builder
from datasets.exceptions import DataFilesNotFoundError, DatasetNotFoundError
from huggingface_hub import HfApi
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

from crucible_bridge.errors import BridgeError, FailedPrecondition, InvalidField, NotFound, Unavailable
from crucible_bridge.reasons import Reason
from crucible_worker.datasets.hub.loading import FIELD
from crucible_worker.util.hub_requests import SILENT_SECONDS, bound_silence, is_of_network

__all__ = ["fetched"]

_log = logging.getLogger(__name__)


def fetched(request: dict[str, Any]) -> Any:
    """The builder of a data set; afterwards the whole data set is in the cache.

    Raises:
        BridgeError: see `datasets.hub.loading.read_rows`.
    """
    bound_silence()
    try:
        # Queried first, and once: the library would retry for half a minute.
        api = HfApi(endpoint=config.HF_ENDPOINT)
        commit = api.dataset_info(request["repo_id"], revision=request["revision"], timeout=SILENT_SECONDS).sha
    except Exception as error:
        raise _problem(request, error) from error
    try:
        # This address names a repository of the hub, never a local directory of the same name.
        builder = load_dataset_builder(f"hf://datasets/{request['repo_id']}", name=request["config"], revision=commit)
    except Exception as error:
        raise _problem(request, error) from error
    if builder.hash != commit:  # the connection was lost meanwhile, and the library used its cache
        raise _unreachable()
    try:
        builder.download_and_prepare()
    except Exception as error:
        raise _problem(request, error) from error
    return builder


def _problem(request: dict[str, Any], error: Exception) -> BridgeError:
    """Our error for one of the library; its text may contain signed URLs, and goes only to the worker's log."""
    if is_of_network(error):
        return _unreachable()
    missing = (DatasetNotFoundError, DataFilesNotFoundError, RepositoryNotFoundError, RevisionNotFoundError)
    if isinstance(error, missing):
        commit = f" of commit {request['revision']}" if request["revision"] else ""
        return NotFound(
            f"is {request['repo_id']!r}{commit}, which the hub does not have, or does not show to this worker",
            reason=Reason.UNKNOWN_DATASET,
            field=FIELD,
        )
    told = str(error).partition("\n")[0]
    if isinstance(error, ValueError) and told.startswith(("BuilderConfig ", "Config name is missing")):
        # The library has no class for these errors; their text lists the configurations.
        if request["config"] is None:
            return InvalidField(f"{FIELD}.config", f"is not given: {told}")
        return NotFound(f"is {request['config']!r}: {told}", reason=Reason.UNKNOWN_DATASET, field=f"{FIELD}.config")
    _log.error("data set %s cannot be fetched", request["repo_id"], exc_info=error)
    return FailedPrecondition(
        f"cannot be fetched: {type(error).__name__}", reason=Reason.HUB_DATASET_REFUSED, field=FIELD
    )


def _unreachable() -> Unavailable:
    return Unavailable(
        "names a data set of the Hugging Face hub, which cannot be reached",
        reason=Reason.HUB_UNREACHABLE,
        retryable=True,
        field=FIELD,
    )
