"""A data set as the library's cache has it; imported in the child process only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import config
from datasets.naming import camelcase_to_snakecase
from datasets.packaged_modules.cache.cache import Cache

from crucible_bridge.errors import InvalidField, NotFound
from crucible_bridge.reasons import Reason
from crucible_worker.datasets.hub.loading import FIELD

__all__ = ["cached", "find"]


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
            field=FIELD,
        )
    if request["config"] is None and len(configs) > 1:
        raise InvalidField(f"{FIELD}.config", f"is not given; there are {', '.join(configs)}")
    name = request["config"] or configs[0]
    chosen = [directory for directory in found if _config(directory) == name]
    if not chosen:
        raise NotFound(
            f"is {name!r}, which is not in the worker's cache; there are {', '.join(configs)}",
            reason=Reason.UNKNOWN_DATASET,
            field=f"{FIELD}.config",
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
