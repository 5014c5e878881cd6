"""The logger `tensorboardx`: event files for TensorBoard, by tensorboardX."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from crucible_worker.loggers.base import Delivery, Experiment, Hparams, Logger, LongText, MetricRow, folder_for

__all__ = ["TensorboardxLogger"]


@dataclasses.dataclass(kw_only=True)
class TensorboardxLogger(Logger):
    """Event files, which TensorBoard shows."""

    target: ClassVar[str | None] = "directory"
    operator_options: ClassVar[frozenset[str]] = frozenset({"directory"})
    delivery: ClassVar[Delivery] = Delivery.AT_LEAST_ONCE
    library: ClassVar[str | None] = "tensorboardX"
    extra: ClassVar[str | None] = "tensorboard"

    directory: str = ""
    """Folder with a folder for each experiment, `--logdir` of TensorBoard; if empty, events are in the experiment's
    folder of the worker."""

    def open(self, experiment: Experiment) -> None:
        """Begin a file of events next to those of earlier processes: TensorBoard reads them as one run.

        Raises:
            OSError: it cannot be written.
        """
        # Not the library's SummaryWriter: a thread of it writes, and what it could not write is lost without a word.
        from tensorboardX import summary  # pyright: ignore[reportMissingImports]
        from tensorboardX.event_file_writer import EventsWriter  # pyright: ignore[reportMissingImports]
        from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportMissingImports]

        self._summary, self._event = summary, Event
        self._folder = folder_for(self.directory, experiment)
        # The library's name has the second alone, and a file of that name would be overwritten.
        self._writer = EventsWriter(str(self._folder / "events"), f".{os.getpid()}.{time.time_ns()}")
        if experiment.config and not experiment.resumed:
            self._write_text("config", _as_text(experiment.config), time.time_ns(), None)
        self._writer.flush()

    def log_metrics(self, rows: Sequence[MetricRow]) -> None:
        """Write a scalar for each value, at the row's step, or at step 0."""
        for row in rows:
            for name, value in row.values.items():
                self._write(self._summary.scalar(name, value), row.unix_time_ns, row.step)
        self._writer.flush()

    def log_hparams(self, hparams: Hparams) -> None:
        """Write them as a text."""
        self._write_text("config", _as_text(hparams.values), hparams.unix_time_ns, None)
        self._writer.flush()

    def log_long_text(self, text: LongText) -> None:
        """Write a text."""
        self._write_text(text.key, text.text, text.unix_time_ns, text.step)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def get_url(self) -> str:
        """The folder."""
        return str(self._folder)

    def _write_text(self, key: str, text: str, unix_time_ns: int, step: int | None) -> None:
        self._write(self._summary.text(key, text), unix_time_ns, step)

    def _write(self, summary: Any, unix_time_ns: int, step: int | None) -> None:
        self._writer.write_event(self._event(wall_time=unix_time_ns / 1e9, step=step or 0, summary=summary))


def _as_text(values: Mapping[str, Any]) -> str:
    """JSON as a block of Markdown, which TensorBoard renders."""
    return f"```\n{json.dumps(dict(values), indent=2)}\n```"
