"""Data sets by the library of the hub, from its cache or from the hub itself; imported in the child process only."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import config, load_dataset_builder
from datasets.exceptions import DataFilesNotFoundError, DatasetNotFoundError
from datasets.naming import camelcase_to_snakecase
from datasets.packaged_modules.cache.cache import Cache
from huggingface_hub import HfApi
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

from crucible_bridge.errors import BridgeError, FailedPrecondition, InvalidField, NotFound, Unavailable
from crucible_bridge.reasons import Reason
from crucible_worker.datasets.row_process import HUB_FIELD
from crucible_worker.util.hub_requests import SILENT_SECONDS, bound_silence, is_of_network

__all__ = ["cached", "fetched", "find"]

# A data set as the library's cache has it; imported in the child process only.


def find(request: dict[str, Any]) -> Sequence[Path]:
    """Paths of a data set in the cache: <owner>___<name>/<configuration>/<version>/<commit>, of the given commit."""
    owner, name = request["repo_id"].split("/")
    root = Path(config.HF_DATASETS_CACHE).expanduser() / f"{owner}___{camelcase_to_snakecase(name)}"
    return [
        directory
        for directory in root.glob("*/*/*")
        if request["revision"] in (None, directory.name) and (directory / "dataset_info.json").is_file()
    ]


def cached(request: dict[str, Any], found: Sequence[Path]) -> Any:
    """The builder of what was found; if there are several commits, the last one written.

    Raises:
        NotFound: nothing was found (NOT_CACHED), or not the configuration (UNKNOWN_DATASET).
        InvalidField: there are several configurations, and none is given.
    """
    configs = sorted({_config(directory) for directory in found})
    if not configs:
        commit = f" of commit {request['revision']}" if request["revision"] else ""
        raise NotFound(
            f"is {request['repo_id']!r}{commit}, which is not in the worker's cache; the worker does not ask the hub",
            reason=Reason.NOT_CACHED,
            field=HUB_FIELD,
        )
    if request["config"] is None and len(configs) > 1:
        raise InvalidField(f"{HUB_FIELD}.config", f"is not given; there are {', '.join(configs)}")
    name = request["config"] or configs[0]
    chosen = [directory for directory in found if _config(directory) == name]
    if not chosen:
        raise NotFound(
            f"is {name!r}, which is not in the worker's cache; there are {', '.join(configs)}",
            reason=Reason.UNKNOWN_DATASET,
            field=f"{HUB_FIELD}.config",
        )
    newest = max(chosen, key=lambda directory: directory.stat().st_mtime_ns)
    return Cache(
        cache_dir=str(newest.parents[3]),
        repo_id=request["repo_id"],
        dataset_name=request["repo_id"].split("/")[1],
        config_name=name,
        version=newest.parent.name,
        hash=newest.name,
    )


def _config(directory: Path) -> str:
    return directory.parents[1].name


_log = logging.getLogger(__name__)


def fetched(request: dict[str, Any]) -> Any:
    """The builder of a data set; afterwards the whole data set is in the cache.

    Raises:
        BridgeError: see `datasets.row_process.read_rows`.
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
            field=HUB_FIELD,
        )
    told = str(error).partition("\n")[0]
    if isinstance(error, ValueError) and told.startswith(("BuilderConfig ", "Config name is missing")):
        # The library has no class for these errors; their text lists the configurations.
        if request["config"] is None:
            return InvalidField(f"{HUB_FIELD}.config", f"is not given: {told}")
        return NotFound(f"is {request['config']!r}: {told}", reason=Reason.UNKNOWN_DATASET, field=f"{HUB_FIELD}.config")
    _log.error("data set %s cannot be fetched", request["repo_id"], exc_info=error)
    return FailedPrecondition(
        f"cannot be fetched: {type(error).__name__}", reason=Reason.HUB_DATASET_REFUSED, field=HUB_FIELD
    )


def _unreachable() -> Unavailable:
    return Unavailable(
        "names a data set of the Hugging Face hub, which cannot be reached",
        reason=Reason.HUB_UNREACHABLE,
        retryable=True,
        field=HUB_FIELD,
    )
