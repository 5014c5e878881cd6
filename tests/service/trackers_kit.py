"""What experiment trackers have in their files, read without the loggers that wrote it."""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["Point", "mlflow_points", "tensorboard_points", "tensorboard_texts", "trackio_points", "wandb_records"]

_BLOCK = 32 * 1024
"""Of wandb's files, which are logs of LevelDB."""


@dataclasses.dataclass(frozen=True, order=True)
class Point:
    """A value of a metric at a step."""

    name: str
    step: int
    value: float


def trackio_points(folder: Path, project: str, run: str) -> list[Point]:
    """By trackio's own API, in a process that reads these files."""
    code = (
        "import json, sys; from trackio.sqlite_storage import SQLiteStorage as S; "
        "print(json.dumps(S.get_logs(sys.argv[1], sys.argv[2])))"
    )
    command = [sys.executable, "-c", code, project, run]
    environment = {**os.environ, "TRACKIO_DIR": str(folder)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    own = {"step", "timestamp"}
    logs: list[Mapping[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return sorted(
        Point(name, log["step"], float(value))
        for log in logs
        for name, value in log.items()
        if name not in own and not isinstance(value, dict)
    )


def mlflow_points(database: Path) -> list[Point]:
    """Every row of the table of metrics."""
    with sqlite3.connect(database) as connection:
        rows = connection.execute("SELECT key, step, value, is_nan FROM metrics").fetchall()
    connection.close()
    return sorted(Point(name, step, float("nan") if nan else value) for name, step, value, nan in rows)


def tensorboard_points(folder: Path) -> list[Point]:
    """Every scalar of every event file."""
    return sorted(
        Point(value.tag, event.step, round(value.simple_value, 6))
        for event in _events(folder)
        for value in event.summary.value
        if value.HasField("simple_value")
    )


def tensorboard_texts(folder: Path) -> dict[str, str]:
    """The texts, by tag."""
    return {
        value.tag: value.tensor.string_val[0].decode()
        for event in _events(folder)
        for value in event.summary.value
        if value.tensor.string_val
    }


def _events(folder: Path) -> Iterator[Any]:
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportMissingImports]

    for path in sorted(folder.glob("events.*")):
        data, place = path.read_bytes(), 0
        while place < len(data):
            (length,) = struct.unpack_from("<Q", data, place)
            yield Event.FromString(data[place + 12 : place + 12 + length])
            place += 12 + length + 4


def wandb_records(folder: Path) -> list[Any]:
    """Every record of every offline run below a folder."""
    from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportMissingImports]

    found: list[Any] = []
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        found += map(Record.FromString, _log_records(path.read_bytes()))
    return found


def _log_records(data: bytes) -> Iterator[bytes]:
    """The records of a log of LevelDB, after wandb's seven bytes at its beginning."""
    place, record = 7, b""
    while place + 7 <= len(data):
        if _BLOCK - place % _BLOCK < 7:
            place += _BLOCK - place % _BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""
