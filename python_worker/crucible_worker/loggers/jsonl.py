"""The logger `jsonl`: files that any tool reads, one folder for each experiment.

config.json     the experiment's name and its hyperparameters
metrics.jsonl   one line for each row: {"step": 10, "test/accuracy": 0.5, "_family": "test", "_sequence": 3, ...}
texts.jsonl     one line for each text
code.diff       what the code differs by from its commit, if `code_diff` names it
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import math
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from crucible_worker.loggers.base import (
    Delivery,
    Experiment,
    Hparams,
    Logger,
    LongText,
    MetricRow,
    folder_for,
    replace_file,
)
from crucible_worker.util.files import is_at

__all__ = ["JsonlLogger"]

_PAGE = 4096
"""Bytes that the kernel writes as a whole, at a multiple of this: a kill comes before or after."""
_TAIL = 1 << 16  # bytes that are read at once, backwards from the end of a file
_DIFF_SECONDS = 30
_MAX_DIFF_BYTES = 16 * 1024 * 1024
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""Numbers that JSON does not have, as the JSON form of protobuf spells them."""
_encode = msgspec.json.Encoder().encode
_OWN = frozenset({"step", "_family", "_sequence", "_unix_time_ns"})


@dataclasses.dataclass(kw_only=True)
class JsonlLogger(Logger):
    """Lines of JSON in files of a folder."""

    target: ClassVar[str | None] = "directory"
    operator_options: ClassVar[frozenset[str]] = frozenset({"directory", "code_diff"})
    delivery: ClassVar[Delivery] = Delivery.EXACTLY_ONCE
    variables: ClassVar[tuple[str, ...]] = ("XDG_CONFIG_HOME",)

    directory: str = ""
    """Folder with a folder for each experiment; if empty, files are in the experiment's folder of the worker."""
    code_diff: str = ""
    """A git repository: what its files differ by from its commit is written to code.diff when the experiment begins."""

    def __post_init__(self) -> None:
        self._position = 0
        self._files: dict[str, _LineFile] = {}

    def open(self, experiment: Experiment) -> None:
        """Begin or resume the files; what a kill left of a line is removed.

        Raises:
            OSError: the folder cannot be used, or another process writes there.
        """
        self._experiment = experiment
        self._folder = folder_for(self.directory, experiment)
        self._files = {name: _LineFile(self._folder / name) for name in ("metrics.jsonl", "texts.jsonl")}
        positions = [lines.last().get("_sequence", 0) for lines in self._files.values()]
        try:
            self._config = json.loads((self._folder / "config.json").read_bytes())
        except FileNotFoundError:
            self._write_config(dict(experiment.config), 0)
        self._position = max(*positions, self._config["_sequence"])
        diff = self._folder / "code.diff"
        if self.code_diff and not diff.exists():
            replace_file(diff, _diff_of(Path(self.code_diff)))

    def position(self) -> int | None:
        """The last sequence in any of the files."""
        return self._position

    def log_metrics(self, rows: Sequence[MetricRow]) -> None:
        """Append a line for each row."""
        self._files["metrics.jsonl"].append(map(_line_of, rows))

    def log_hparams(self, hparams: Hparams) -> None:
        """Write config.json anew."""
        self._write_config(self._config["config"] | dict(hparams.values), hparams.sequence)

    def log_long_text(self, text: LongText) -> None:
        """Append a line with the text."""
        line = {"step": text.step, "key": text.key, "text": text.text, **_own(text.sequence, text.unix_time_ns)}
        self._files["texts.jsonl"].append([json.dumps(line).encode()])

    def sync(self) -> None:
        """Have the disk write what the kernel holds."""
        for lines in self._files.values():
            lines.sync()

    def close(self) -> None:
        """Close the files."""
        for lines in self._files.values():
            lines.close()

    def get_url(self) -> str:
        """The folder."""
        return str(self._folder)

    def _write_config(self, config: Mapping[str, Any], sequence: int) -> None:
        self._config = {
            "name": self._experiment.name,
            "run_id": self._experiment.run_id,
            "config": config,
            "_sequence": sequence,
        }
        replace_file(self._folder / "config.json", json.dumps(self._config, indent=2).encode() + b"\n")


class _LineFile:
    """A file of lines, each of which ends with its newline: no line is left in part."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise OSError(f"{path} is being written by another process") from None
        self._end = self._whole()

    def last(self) -> dict[str, Any]:
        """The last line; nothing if there is none."""
        if not self._end:
            return {}
        begin = _line_before(self._fd, self._end - 1)
        return json.loads(os.pread(self._fd, self._end - begin, begin))

    def append(self, lines: Iterable[bytes]) -> None:
        """Write lines; none is left in part, neither if the disk is full nor if a kill comes between two pages.

        A line that does not fit into what is left of a page begins the next one, and the line before it gets spaces at
        its end, which JSON ignores. Only a line of more than a page can be found in part after a kill; `_whole`
        removes it.

        Raises:
            OSError: not all could be written; those that could are there. The file was moved, removed or replaced.
        """
        if not is_at(self._path, self._fd):
            raise OSError(f"{self._path} was moved, removed or replaced")
        page = bytearray()
        for line in lines:
            room = _PAGE - (self._end + len(page)) % _PAGE
            if len(line) >= room and room < _PAGE:
                if page:
                    page[-1:] = b" " * room + b"\n"
                    self._write(page, self._end)
                    page.clear()
                else:
                    self._write(b" " * room + b"\n", self._end - 1)
            page += line
            page += b"\n"
            if len(page) >= _PAGE:
                self._write(page, self._end)
                page.clear()
        if page:
            self._write(page, self._end)

    def _write(self, data: bytes | bytearray, place: int) -> None:
        """Write at the end, or from the last newline on."""
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self._fd, data[written:], place + written)
        except OSError:
            os.ftruncate(self._fd, self._end)
            if place < self._end:
                os.pwrite(self._fd, b"\n", place)
            raise
        self._end = place + len(data)

    def sync(self) -> None:
        """Have the disk write it."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Close it."""
        os.close(self._fd)

    def _whole(self) -> int:
        """Remove the bytes after the last newline; returns the length that remains."""
        size = os.fstat(self._fd).st_size
        end = _line_before(self._fd, size)
        if end != size:
            os.ftruncate(self._fd, end)
        return end


def _line_before(fd: int, end: int) -> int:
    """Where the last line before a place begins: behind a newline, or at 0."""
    while end > 0:
        begin = max(0, end - _TAIL)
        found = os.pread(fd, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def _line_of(row: MetricRow) -> bytes:
    line: dict[str, Any] = {"step": row.step}
    for name, value in row.values.items():
        line[f"metric/{name}" if name in _OWN else name] = value if math.isfinite(value) else _NOT_FINITE[str(value)]
    return _encode(line | {"_family": row.family} | _own(row.sequence, row.unix_time_ns))


def _own(sequence: int, unix_time_ns: int) -> dict[str, int]:
    return {"_sequence": sequence, "_unix_time_ns": unix_time_ns}


def _diff_of(repository: Path) -> bytes:
    """The commit of a git repository, the files it does not know, and what the others differ by; or what went wrong."""
    try:
        commit = _git(repository, "rev-parse", "HEAD")
        status = _git(repository, "status", "--porcelain")
        diff = _git(repository, "diff", "--no-ext-diff", "--no-textconv", "--binary", "HEAD")
    except OSError as error:
        return f"# {error}\n".encode()
    head = b"".join(b"# " + line + b"\n" for line in (b"commit " + commit.strip(), *status.splitlines()))
    return (head + diff)[:_MAX_DIFF_BYTES]


def _git(repository: Path, *arguments: str) -> bytes:
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(repository), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_DIFF_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise OSError(f"git {arguments[0]} in {repository} did not finish within {_DIFF_SECONDS} s") from None
    if done.returncode:
        raise OSError(f"git {arguments[0]} in {repository} failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
