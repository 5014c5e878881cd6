"""The logger `trackio`: a project of trackio in files of this machine, which `trackio show` opens."""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from crucible_worker.loggers.base import Delivery, Experiment, Hparams, Logger, LongText, MetricRow

__all__ = ["TrackioLogger"]


@dataclasses.dataclass(kw_only=True)
class TrackioLogger(Logger):
    """A local project of trackio."""

    target: ClassVar[str | None] = "project"
    operator_options: ClassVar[frozenset[str]] = frozenset({"directory"})
    delivery: ClassVar[Delivery] = Delivery.EXACTLY_ONCE
    library: ClassVar[str | None] = "trackio"
    extra: ClassVar[str | None] = "trackio"
    variables: ClassVar[tuple[str, ...]] = ("TRACKIO_DIR", "TRACKIO_CACHE_DIR")

    project: str = "crucible-bridge"
    """The project that the experiment is a run of."""
    directory: str = ""
    """Folder of trackio's files; if empty, trackio's own: TRACKIO_DIR, or below ~/.cache/huggingface."""

    def open(self, experiment: Experiment) -> None:
        """Make the project, if it is missing.

        Raises:
            ValueError: trackio does not accept the project's name.
            OSError: its folder cannot be used.
        """
        if self.directory:
            os.environ["TRACKIO_DIR"] = os.path.expanduser(self.directory)  # read when it is imported
        # Not trackio.init: a thread of it writes, and what it could not write is lost after a warning. Here each call
        # is one transaction, which says what it could not do; and an entry that is there already is left as it is.
        from trackio.markdown import Markdown  # pyright: ignore[reportMissingImports]
        from trackio.sqlite_storage import SQLiteStorage  # pyright: ignore[reportMissingImports]
        from trackio.utils import RESERVED_KEYS  # pyright: ignore[reportMissingImports]

        SQLiteStorage.validate_project_name(self.project)
        self._storage, self._markdown = SQLiteStorage, Markdown
        self._reserved = frozenset(RESERVED_KEYS)
        self._experiment = experiment
        self._path = SQLiteStorage.init_db(self.project)
        created = datetime.datetime.now(datetime.UTC).isoformat()
        old = SQLiteStorage.get_run_config(self.project, experiment.name, run_id=experiment.run_id)
        self._config = {"_Created": created, "_Group": None, "_Username": None, **_as_config(experiment.config)}
        self._config |= old or {}
        last = SQLiteStorage.get_last_step(self.project, experiment.name, run_id=experiment.run_id)
        self._next_step = 0 if last is None else last + 1
        if old is None:
            self._log([{}], [0], [self._id(0)], [created], self._config)

    def log_metrics(self, rows: Sequence[MetricRow]) -> None:
        """Write the rows; a row without a step gets the step after the highest one."""
        self._log(
            [self._named(row.values) for row in rows],
            [self._step(row.step) for row in rows],
            [self._id(row.sequence) for row in rows],
            [_time(row.unix_time_ns) for row in rows],
        )

    def log_hparams(self, hparams: Hparams) -> None:
        """Add them to the run's configuration."""
        self._config |= _as_config(hparams.values)
        self._log([{}], [0], [self._id(hparams.sequence)], [_time(hparams.unix_time_ns)], self._config)

    def log_long_text(self, text: LongText) -> None:
        """Write a text, which the dashboard renders as Markdown."""
        value = self._markdown(text.text)._to_dict()
        values = self._named({text.key: value})
        self._log([values], [text.step or 0], [self._id(text.sequence)], [_time(text.unix_time_ns)])

    def get_url(self) -> str:
        """The project's database."""
        return str(self._path)

    def _log(
        self,
        metrics: list[dict[str, Any]],
        steps: list[int],
        ids: list[str],
        times: list[str],
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._storage.bulk_log(
            project=self.project,
            run=self._experiment.name,
            run_id=self._experiment.run_id,
            metrics_list=metrics,
            steps=steps,
            timestamps=times,
            log_ids=ids,
            config=None if config is None else dict(config),
        )

    def _step(self, step: int | None) -> int:
        """A row's step, or the one after the highest: trackio looks for the highest one before a batch alone."""
        step = self._next_step if step is None else step
        self._next_step = max(self._next_step, step + 1)
        return step

    def _id(self, sequence: int) -> str:
        """The key by which trackio's table of metrics has an entry once."""
        return f"{self._experiment.run_id}:{sequence}"

    def _named(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values under names that are not trackio's own, as trackio itself renames them."""
        return {f"__{name}" if name in self._reserved else name: value for name, value in values.items()}


def _as_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as trackio can keep it.

    Names have no "_" at the beginning, which is for trackio's own, and whole numbers of more than 64 bits are texts.
    """
    return {name.lstrip("_") or "underscore": _bounded(value) for name, value in config.items()}


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return str(value)
    if isinstance(value, Mapping):
        return {name: _bounded(inner) for name, inner in value.items()}
    return [_bounded(inner) for inner in value] if isinstance(value, list | tuple) else value


def _time(unix_time_ns: int) -> str:
    seconds = datetime.datetime.fromtimestamp(unix_time_ns // 1_000_000_000, datetime.UTC)
    return seconds.replace(microsecond=unix_time_ns % 1_000_000_000 // 1_000).isoformat()
