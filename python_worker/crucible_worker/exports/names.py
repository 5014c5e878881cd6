"""Names that other formats need: of data sets, of models, and of files."""

from __future__ import annotations

import datetime
import hashlib
import re
from pathlib import PurePosixPath

from crucible_bridge.types import (
    BuiltinDataset,
    Dataset,
    Evaluation,
    HubDataset,
    InlineDataset,
)

__all__ = ["dataset_name", "log_name", "utc"]

_SHOWN = 60
_UNPORTABLE = re.compile(r"[^A-Za-z0-9.-]+")


def dataset_name(dataset: Dataset) -> str:
    """A data set in a word: "arithmetic", "openai/gsm8k", the name of a file without its suffix, or "inline"."""
    match dataset.source:
        case BuiltinDataset(name):
            return name
        case HubDataset() as source:
            return source.repo_id
        case InlineDataset():
            return "inline"
        case source:
            return PurePosixPath(source.path).stem or "file"


def log_name(evaluation: Evaluation, journal: str) -> str:
    """The name of an evaluation's log in a folder of logs: no other evaluation of any journal has it.

        2026-01-31T08-15-00+00-00_arithmetic_nightly-320_1f0c9b2ad1e4.eval

    The time is that of the start. An evaluation has one name whichever attempt or worker ends it.

    Args:
        evaluation: which one.
        journal: identity of the journal's log.
    """
    began = utc(evaluation.created_unix_ns).replace(microsecond=0).isoformat().replace(":", "-")
    identity = f"{journal}\0{evaluation.evaluation_id}\0{evaluation.created_unix_ns}"
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    words = (dataset_name(evaluation.request.dataset), evaluation.evaluation_id)
    shown = [_UNPORTABLE.sub("-", word)[:_SHOWN].strip("-.") or "x" for word in words]
    return f"{'_'.join([began, *shown, digest])}.eval"


def utc(unix_ns: int) -> datetime.datetime:
    """A time of a record."""
    return datetime.datetime.fromtimestamp(unix_ns // 1_000_000_000, datetime.UTC) + datetime.timedelta(
        microseconds=unix_ns // 1_000 % 1_000_000
    )
