"""What a logger is: it writes the entries of one experiment into one tracker, in a process of its own.

    @dataclasses.dataclass(kw_only=True)
    class Csv(Logger):
        "Lines of a file."
        target: ClassVar[str | None] = "path"
        delivery: ClassVar[Delivery] = Delivery.AT_LEAST_ONCE

        path: str

        def open(self, experiment: Experiment) -> None: ...
        def log_metrics(self, rows: Sequence[MetricRow]) -> None: ...

A package announces it in the entry-point group `crucible_worker.loggers`; its name there is its kind. The fields of
the class are its options, as `util.options` reads them: after `csv = "my_package:Csv"`, `csv:/tmp/a.csv` makes
`Csv(path="/tmp/a.csv")`.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from crucible_worker.util.files import make_private_folder

__all__ = [
    "Delivery",
    "Entry",
    "EntryRefused",
    "Experiment",
    "Hparams",
    "Logger",
    "LoggerSpec",
    "LongText",
    "MetricRow",
    "Missed",
    "folder_for",
    "make_folder",
    "replace_file",
]


class Delivery(enum.Enum):
    """How often an entry is in the tracker if the worker or the logger was killed on the way."""

    EXACTLY_ONCE = "exactly once"
    """The tracker can tell what it has."""
    AT_LEAST_ONCE = "at least once"
    """It cannot: what was sent and not yet acknowledged is sent again."""
    NOT_THE_LAST = "unless it was logged in the last seconds before"
    """Its library acknowledges what it has not written yet: a kill loses that."""


class EntryRefused(Exception):
    """The tracker will never take this entry; the others of the batch may be sent again without it."""

    def __init__(self, sequence: int, message: str) -> None:
        super().__init__(message)
        self.sequence = sequence


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoggerSpec:
    """A logger as `log_to` names it: "trackio", "jsonl:DIR", "wandb:PROJECT?mode=offline"; made by `registry.read`."""

    kind: str
    """Its name in the registry."""
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """JSON values, checked, without those that have their default."""
    text: str
    """As it was named; equal texts are one logger."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """What a tracker shows as one run."""

    name: str
    """The name that the tracker shows; one to 255 characters."""
    run_id: str
    """Identifies it, in this journal and among the runs of a tracker, over restarts."""
    directory: Path
    """A folder of the worker for files of this experiment; it may not exist yet. Loggers that write files write below
    it, unless the operator names another place."""
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The configuration that it was opened with, JSON values."""
    resumed: bool = False
    """Whether the tracker may have entries of it already, of a process that ended before."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """Metrics that belong together, at one step."""

    sequence: int
    """Rises by at least 1 with each entry of the experiment, of any kind; from 1."""
    unix_time_ns: int
    """When it was logged."""
    values: Mapping[str, float]
    """By name; NaN and infinities included."""
    step: int | None = None
    """Where it belongs on its axis: a late row has a lower one than the rows before it. None: nowhere."""
    family: str = ""
    """The axis of its steps: "train", or the prefix of an evaluation's metrics; empty for the experiment's own."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Hparams:
    """Hyperparameters, which add to those before and replace those of the same name."""

    sequence: int
    unix_time_ns: int
    values: Mapping[str, Any]
    """JSON values."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LongText:
    """A text under a key, such as a sample of what the model answered."""

    sequence: int
    unix_time_ns: int
    key: str
    text: str
    step: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """Entries that were removed from the journal before this logger had them."""

    sequence: int
    """Of the last of them."""
    unix_time_ns: int
    count: int
    """How many."""


Entry = MetricRow | Hparams | LongText | Missed


class Logger(abc.ABC):
    """Writes the entries of one experiment into one tracker.

    It runs in a child process of the worker, which calls one method at a time. What a method was given is acknowledged
    when it returns: it has to be in the tracker, or in a place that survives the end of the process. A method that
    raises is called again in a new process, later and later; one that blocks is killed. `EntryRefused` alone is not
    repeated.
    """

    target: ClassVar[str | None] = None
    """The option that the text after the colon sets: of "jsonl:DIR", the field `directory`."""
    operator_options: ClassVar[frozenset[str]] = frozenset()
    """Options that only the operator of the worker may set, and no request: places where it writes or sends to."""
    delivery: ClassVar[Delivery] = Delivery.AT_LEAST_ONCE
    """How often an entry is there after a kill."""
    library: ClassVar[str | None] = None
    """The module that it imports when it is opened; None if it needs none."""
    extra: ClassVar[str | None] = None
    """The extra of crucible-bridge that brings the library."""
    variables: ClassVar[tuple[str, ...]] = ()
    """Variables of the worker's environment that its process gets; `WANDB_*` stands for all that begin like this."""
    prints: ClassVar[bool] = False
    """Whether what its process prints belongs to the user, on the worker's stderr; otherwise it is discarded."""

    @abc.abstractmethod
    def open(self, experiment: Experiment) -> None:
        """Begin, or resume, the experiment; called first, once.

        Raises:
            Exception: the tracker cannot be reached, or its library is missing.
        """

    @abc.abstractmethod
    def log_metrics(self, rows: Sequence[MetricRow]) -> None:
        """Write rows, in this order."""

    def position(self) -> int | None:
        """The sequence of the last entry that the tracker has, after `open`; None if it cannot tell."""
        return None

    def log_hparams(self, hparams: Hparams) -> None:  # noqa: B027 - a tracker may have no place for them
        """Write hyperparameters; does nothing by default."""

    def log_long_text(self, text: LongText) -> None:  # noqa: B027 - likewise
        """Write a text; does nothing by default."""

    def log_missed(self, missed: Missed) -> None:
        """Report that entries are missing; as a text by default."""
        message = f"{missed.count:,} entries were removed before this logger had them, up to number {missed.sequence:,}"
        self.log_long_text(
            LongText(
                sequence=missed.sequence, unix_time_ns=missed.unix_time_ns, key="crucible_bridge/missed", text=message
            )
        )

    def sync(self) -> None:  # noqa: B027 - most have nothing to wait for
        """Wait until everything has left this process, also what need not have before."""

    def close(self) -> None:  # noqa: B027 - likewise
        """End the experiment; called last, once, and not if the process is killed."""

    def get_url(self) -> str:
        """Where a person looks at it, a link or a path; empty if nowhere."""
        return ""


# Folders and files of loggers that write files.

_MARK = ".run_id"
_MAX_NAME = 200  # bytes of a file's name are at most 255; characters above that may take more than one


def folder_for(directory: str, experiment: Experiment) -> Path:
    """The folder of an experiment, made if it is missing.

    Below a folder that the operator named it has the experiment's name. Another experiment of the same name has
    NAME-2, and so on: a tracker must not take the entries of one for those of the other.

    Args:
        directory: named by the operator; if empty, the experiment's own folder of the worker.
        experiment: what it is for.

    Raises:
        OSError: it cannot be made.
    """
    if not directory:
        folders = iter((experiment.directory,))
    else:
        base = Path(directory).expanduser() / _file_name(experiment.name)
        further = (base.with_name(f"{base.name}-{number}") for number in itertools.count(2))
        folders = itertools.chain((base,), further)
    for folder in folders:
        make_folder(folder, private=not directory)
        mark = folder / _MARK
        try:
            owner = mark.read_text()
        except FileNotFoundError:
            replace_file(mark, experiment.run_id.encode())
            return folder
        if owner == experiment.run_id:
            return folder
    raise OSError(f"{experiment.directory} has the files of another experiment")


def make_folder(folder: Path, *, private: bool) -> None:
    """Make a folder with those above it: that of the operator by the umask, and that of the worker private.

    Raises:
        OSError: it cannot be made.
    """
    if private:
        make_private_folder(folder)
    else:
        folder.mkdir(parents=True, exist_ok=True)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file as a whole: a kill leaves the old one or the new one.

    Raises:
        OSError: it cannot be written; the old one is left.
    """
    new = path.with_name(f"{path.name}.new")
    try:
        new.write_bytes(data)
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def _file_name(name: str) -> str:
    """A name as one of a file: without separators, and neither hidden nor "..", in at most 200 bytes."""
    plain = "".join(char if char.isalnum() or char in "._- " else "_" for char in name)
    plain = plain.encode()[:_MAX_NAME].decode(errors="ignore").strip()
    return f"_{plain}" if not plain or plain.startswith(".") else plain
