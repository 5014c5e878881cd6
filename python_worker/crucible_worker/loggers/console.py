"""The logger `console`: a line for each row, on the worker's stderr."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Annotated, ClassVar

from msgspec import Meta

from crucible_worker.loggers.base import Delivery, Experiment, Hparams, Logger, LongText, MetricRow

__all__ = ["ConsoleLogger"]


@dataclasses.dataclass(kw_only=True)
class ConsoleLogger(Logger):
    """Lines on the worker's stderr."""

    delivery: ClassVar[Delivery] = Delivery.AT_LEAST_ONCE
    prints: ClassVar[bool] = True

    text_characters: Annotated[int, Meta(ge=0, le=100_000)] = 200
    """Characters of a text that are shown."""

    def open(self, experiment: Experiment) -> None:
        """Show the configuration."""
        self._name = _printable(experiment.name)
        if experiment.config and not experiment.resumed:
            self._print(f"config {json.dumps(dict(experiment.config))}")

    def log_metrics(self, rows: Sequence[MetricRow]) -> None:
        """Show each row."""
        for row in rows:
            place = "" if row.step is None else f"step {row.step:,}  "
            values = "  ".join(f"{_printable(name)} {value:.6g}" for name, value in row.values.items())
            self._print(f"{place}{values}")

    def log_hparams(self, hparams: Hparams) -> None:
        """Show them."""
        self._print(f"config {json.dumps(dict(hparams.values))}")

    def log_long_text(self, text: LongText) -> None:
        """Show its beginning."""
        more = "..." if len(text.text) > self.text_characters else ""
        self._print(f"{_printable(text.key)}: {_printable(text.text[: self.text_characters])}{more}")

    def sync(self) -> None:
        """Flush the stream."""
        sys.stderr.flush()

    def _print(self, line: str) -> None:
        print(f"{self._name}: {line}", file=sys.stderr, flush=True)


def _printable(text: str) -> str:
    """A text without what a terminal would obey."""
    return "".join(char if char.isprintable() else " " for char in text)
