"""Which versions of the rules and of graders have measured a value, and which values of two versions can be compared.

Of graders, by name:

    {"exact_match": 2}    an evaluation of this release
    {}                    nothing was graded, or by an older release: each grader was then of version 1
    {"exact_match": 0}    attempts of several releases have judged
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from crucible_bridge.types import EvaluatorResult, GraderVersions

__all__ = [
    "by_in_words",
    "grader_versions",
    "graders_in_words",
    "key_of",
    "of_latest_rules",
    "order_of",
    "other_grader",
    "rules_in_words",
    "version_in_words",
    "versions_by_metric",
]

FIRST = 1
"""The version of every grader in releases before versions were recorded."""


class _Measured(Protocol):
    @property
    def rules_version(self) -> int: ...


class _Judged(Protocol):
    @property
    def graders(self) -> Mapping[str, GraderVersions]: ...

    @property
    def results(self) -> Sequence[EvaluatorResult]: ...


_T = TypeVar("_T", bound=_Measured)


def other_grader(ours: Mapping[str, int], theirs: Mapping[str, int]) -> str | None:
    """The first grader of two evaluators that is of two versions, or of several; None if there is none.

    A grader that only one of two recorded evaluators has makes them differ in their options.
    """
    for name in sorted({*ours, *theirs}):
        one, other = _version(name, ours), _version(name, theirs)
        if None not in (one, other) and (one != other or one == 0):
            return name
    return None


def _version(name: str, versions: Mapping[str, int]) -> int | None:
    return versions.get(name) if versions else FIRST


def of_latest_rules(measured: Iterable[_T], versions_of: Callable[[_T], Mapping[str, int]]) -> Sequence[_T]:
    """Those by the latest rules, and of which no grader has a later version in another of these, in their order."""
    everything = list(measured)
    rules = max((one.rules_version for one in everything), default=0)
    found = [(one, versions_of(one)) for one in everything if one.rules_version == rules]
    newest: dict[str, int] = {}
    for _, versions in found:
        for name, version in versions.items():
            newest[name] = max(version, newest.get(name, 0))
    return [one for one, versions in found if not _is_outdated(versions, newest)]


def _is_outdated(versions: Mapping[str, int], newest: Mapping[str, int]) -> bool:
    own = {name: _version(name, versions) for name in newest}
    return any(version is not None and version < newest[name] for name, version in own.items())


def key_of(versions: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """What is equal for values that can be compared: those of older releases have none, as first versions have."""
    return tuple(sorted((name, version) for name, version in versions.items() if version != FIRST))


def order_of(versions: Mapping[str, int]) -> int:
    """A number that is higher for later versions of the same graders."""
    return sum(version - FIRST for version in versions.values())


def version_in_words(name: str, versions: Mapping[str, int]) -> str:
    """A grader with its version: "math version 5", "math of an older release"."""
    version = versions.get(name)
    if version is None:
        return f"{name} of an older release"
    return f"{name} version {version}" if version else f"{name} of several versions"


def rules_in_words(version: int) -> str:
    """A version of the rules of measurement in words."""
    return f"version {version}" if version else "of several versions"


def by_in_words(rules: int, versions: Mapping[str, int]) -> str:
    """What a value was measured by: "version 2, exact_match version 2"."""
    return ", ".join([rules_in_words(rules), *(version_in_words(name, versions) for name in sorted(versions))])


def graders_in_words(graders: Mapping[str, GraderVersions]) -> Mapping[str, str]:
    """The graders of each evaluator with their versions, by evaluator."""
    return {
        label: ", ".join(version_in_words(name, found.versions) for name in sorted(found.versions))
        for label, found in graders.items()
    }


def grader_versions(evaluation: _Judged, label: str) -> Mapping[str, int]:
    """The versions of the graders of one evaluator, by its label."""
    return evaluation.graders[label].versions if label in evaluation.graders else {}


def versions_by_metric(evaluation: _Judged) -> Mapping[str, Mapping[str, int]]:
    """The versions of the graders behind each metric, by its full key."""
    found: dict[str, Mapping[str, int]] = {}
    for result in evaluation.results:
        if versions := grader_versions(evaluation, result.evaluator.label):
            found |= dict.fromkeys((*result.metrics.values, *result.metrics.undefined), versions)
    return found
