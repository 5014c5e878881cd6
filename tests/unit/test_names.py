"""Names of classes: each is one thing, in the terms of the field."""

from __future__ import annotations

import ast
import collections
from pathlib import Path

WORKER = Path(__file__).parents[2] / "python_worker" / "crucible_worker"
NOT_OF_THE_FIELD = {
    *("Alarms", "Asks", "Course", "Failures", "Glance", "Handed", "KeptTasks", "Lane", "Ledger", "LivedTime"),
    *("Looked", "Lookout", "News", "OwnLoop", "Patience", "Place", "Ran", "Room", "SampleRuns", "Seat", "Observation"),
    *("Stamp", "Tolerance", "Typed", "Wall"),
}
"""A reader who knows the field looks for other nouns: for a queue of time-outs, not for `Alarms`."""


def _classes() -> list[tuple[str, str]]:
    """Each top-level class of the worker, with its file."""
    return [
        (node.name, file.relative_to(WORKER).as_posix())
        for file in sorted(WORKER.rglob("*.py"))
        if not file.stem.endswith(("_pb2", "_pb2_grpc"))
        for node in ast.parse(file.read_bytes()).body
        if isinstance(node, ast.ClassDef)
    ]


def test_no_two_classes_have_one_name():
    """A reader who looks a name up finds one class."""
    files = collections.defaultdict[str, list[str]](list)
    for name, file in _classes():
        files[name].append(file)
    assert {name: found for name, found in files.items() if len(found) > 1} == {}


def test_classes_are_named_in_the_terms_of_the_field():
    """What has a standard term has that name."""
    assert [(name, file) for name, file in _classes() if name.lstrip("_") in NOT_OF_THE_FIELD] == []
