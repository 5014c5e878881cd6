"""The versions of the rules by which evaluations measure, and what evaluations of two versions may do with each other.

    version 1: "...France?" and "Paris" are joined to "...France?Paris"
    version 2: they are joined to "...France? Paris"

Raise `RULES_VERSION` with each change that gives another number for the same request: how prompts and targets are
joined, what of an answer is graded (reasoning, stop strings), the tokens before a prompt, how values of files are read.
`docs/upgrading.md` has a row for each version. Graders have versions of their own, see `GraderType.version`: an
evaluation records those of its graders, and resumes only with them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import EvaluateRequest
from crucible_worker.evaluators.registry import graders_of
from crucible_worker.grading.registry import GradingParts
from crucible_worker.journal import Transaction
from crucible_worker.journal.queries import EvaluationRow
from crucible_worker.journal.records import request_from_record
from crucible_worker.reports.versions import other_grader, rules_in_words, version_in_words

__all__ = ["RULES_VERSION", "Graders", "graders_named", "other_rules", "record_rules", "refuse_other_rules"]

RULES_VERSION = 2
"""Of this release."""

Graders = Mapping[str, Mapping[str, int]]
"""Versions of graders by name, by evaluator."""


def graders_named(request: EvaluateRequest, grading: GradingParts | None = None) -> Graders:
    """The present versions of the graders of a request's evaluators; see `evaluators.registry.graders_of`."""
    found = {spec.label: graders_of(spec, grading) for spec in request.evaluators}
    return {label: versions for label, versions in found.items() if versions}


def record_rules(transaction: Transaction, number: int, attempt: int, graders: Graders) -> None:
    """Record that an attempt measures by the rules of this release, in the transaction that begins it."""
    transaction.execute("INSERT OR REPLACE INTO evaluation_rules VALUES (?, ?, ?)", (number, RULES_VERSION, attempt))
    record = msgspec.json.encode(graders).decode()
    transaction.execute("INSERT OR REPLACE INTO evaluation_graders VALUES (?, ?, ?, 0)", (number, record, attempt))


def other_rules(row: EvaluationRow, graders: Graders | None = None) -> bool:
    """Whether other rules have begun an evaluation; without a result of a sample, nothing has begun.

    Args:
        row: of the evaluation.
        graders: present versions of its graders; those of built-in ones if None.
    """
    return row.done > 0 and (row.rules != RULES_VERSION or _other_grader(row, graders) is not None)


def _other_grader(
    row: EvaluationRow, graders: Graders | None
) -> tuple[str, Mapping[str, int], Mapping[str, int]] | None:
    """A grader of which another version has judged: its name, the versions that are recorded, and those of now."""
    now = graders_named(request_from_record(row.request)) if graders is None else graders
    for label, versions in now.items():
        recorded = row.graders[label].versions if label in row.graders else {}
        if (name := other_grader(recorded, versions)) is not None:
            return name, recorded, versions
    return None


def refuse_other_rules(row: EvaluationRow, graders: Graders | None = None) -> None:
    """Refuse to resume what other rules have begun, see `other_rules`.

    Raises:
        FailedPrecondition: it was begun by other rules, or other versions of graders (RULES_CHANGED).
    """
    if not other_rules(row, graders):
        return
    begun, present = f"rules {rules_in_words(row.rules)}", rules_in_words(RULES_VERSION)
    metadata = {"rules_version": str(row.rules), "present_rules_version": str(RULES_VERSION)}
    changed = _other_grader(row, graders)
    if row.rules == RULES_VERSION and changed is not None:
        name, recorded, versions = changed
        begun, present = f"the grader {version_in_words(name, recorded)}", f"version {versions[name]}"
        metadata = {
            "grader": name,
            "grader_version": str(recorded.get(name, "")),
            "present_grader_version": str(versions[name]),
        }
    raise FailedPrecondition(
        f"{row.evaluation_id!r} was begun by {begun}, this release has {present}: start it under another id, or "
        "finish it with the release that began it",
        reason=Reason.RULES_CHANGED,
        field="evaluation_id",
        metadata=metadata,
    )
