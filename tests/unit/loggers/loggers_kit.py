"""Rows and experiments of the tests of loggers, and a package of loggers that fail in every way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from crucible_worker.loggers.base import Experiment, LoggerSpec, MetricRow
from crucible_worker.loggers.registry import read
from crucible_worker.loggers.runner import Timing
from tests.distributions import install, lay_out

QUICK = Timing(batch_seconds=2.0, first_back_off_seconds=0.01, max_back_off_seconds=0.1)
"""Failures are found and repeated soon; a batch takes a thousandth of this."""

_SOURCE = '''
"""Loggers that write lines, and fail as they are told."""
import dataclasses, json, os, pathlib, resource, time
from crucible_worker.loggers.base import EntryRefused, Logger
from crucible_worker.loggers.jsonl import JsonlLogger

@dataclasses.dataclass(kw_only=True)
class Scripted(Logger):
    """Appends what it is given to a file, and its process id to another."""
    target = "path"
    operator_options = frozenset({"secret"})
    path: str
    fault: str = ""
    """What the first processes do with rows."""
    times: int = 1
    """How many processes do that."""
    refuse: int = 0
    """The sequence that it refuses."""
    secret: str = ""

    def open(self, experiment):
        with open(self.path + ".pids", "a") as file:
            file.write(f"{os.getpid()}\\n")
        self.processes = len(pathlib.Path(self.path + ".pids").read_text().split())
        self.say({"open": experiment.name, "resumed": experiment.resumed, "config": experiment.config})

    def say(self, line):
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\\n")

    def log_metrics(self, rows):
        if self.fault and self.processes <= self.times:
            print("what a logger prints is not the worker's")
            if self.fault == "raise":
                raise RuntimeError("no luck")
            if self.fault == "exit":
                os._exit(7)
            if self.fault == "block":
                time.sleep(10_000)
        for row in rows:
            if row.sequence == self.refuse:
                raise EntryRefused(row.sequence, "not this one")
        for row in rows:
            self.say({"sequence": row.sequence, "step": row.step, "values": dict(row.values), "family": row.family})

    def log_hparams(self, hparams):
        self.say({"sequence": hparams.sequence, "hparams": dict(hparams.values)})

    def log_long_text(self, text):
        self.say({"sequence": text.sequence, "key": text.key, "text": text.text})

    def sync(self):
        self.say({"sync": True})

    def close(self):
        if self.fault == "block at close":
            time.sleep(10_000)
        self.say({"close": True})

    def position(self):
        wrong = {"position": "last", "negative position": -1, "large position": 10**30}
        return wrong.get(self.fault) if self.processes <= self.times else None

    def get_url(self):
        wrong = {"url": 5, "long url": "u" * 10_000_000, "path": "file:\\udcff"}
        return wrong.get(self.fault, "file:" + self.path) if self.processes <= self.times else "file:" + self.path

@dataclasses.dataclass(kw_only=True)
class FullDisk(JsonlLogger):
    """Writes no file beyond as many bytes as another file says."""
    bytes_file: str
    def open(self, experiment):
        most = int(pathlib.Path(self.bytes_file).read_text())
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        super().open(experiment)

NOT_A_LOGGER = 7
class NoDataclass(Scripted.__mro__[1]):
    def open(self, experiment): pass
    def log_metrics(self, rows): pass
'''


def install_loggers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with the loggers `scripted`, `full_disk`, and two that are none."""
    points = {
        "scripted": "scripted_loggers:Scripted",
        "full_disk": "scripted_loggers:FullDisk",
        "no_logger": "scripted_loggers:NOT_A_LOGGER",
        "no_dataclass": "scripted_loggers:NoDataclass",
        "missing": "scripted_loggers:Missing",
        "jsonl": "scripted_loggers:Scripted",
    }
    lay_out(folder, "scripted_loggers", _SOURCE, "crucible_worker.loggers", points)
    install(monkeypatch, folder)


def spec(text: str) -> LoggerSpec:
    """A logger as the operator names it."""
    return read(text, "--log-to", by_operator=True)


def experiment(folder: Path, **fields: Any) -> Experiment:
    """An experiment whose folder is below another one."""
    return Experiment(**{"name": "run", "run_id": "run-1", "directory": folder / "own", **fields})


def row(sequence: int, values: Mapping[str, float] | None = None, **fields: Any) -> MetricRow:
    """The row of a sequence, at a step of the same number."""
    values = {"loss": sequence / 7} if values is None else values
    return MetricRow(
        **{"sequence": sequence, "unix_time_ns": sequence * 10**9, "step": sequence, "values": values} | fields
    )


def rows(first: int, last: int) -> list[MetricRow]:
    """Rows with these sequences."""
    return [row(sequence) for sequence in range(first, last + 1)]


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; each has to end, and to be JSON."""
    text = path.read_text()
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def sequences(path: Path, key: str = "sequence") -> list[int]:
    """The sequences in a file, in its order."""
    return [line[key] for line in lines_of(path) if key in line]
