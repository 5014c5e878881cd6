"""Paths in what people send on, as reports and exports: relative to a root, and never with anybody's home directory.

    shown = ShownPaths([Path("/home/ann/runs"), Path("/data")])
    shown.text("/home/ann/runs/sums/step-600 has no config.json")   # "sums/step-600 has no config.json"
    shown.text("local:/home/ann/other/model")                       # "local:~/other/model"

What samples ask, what models answered and what is right are data, and stay as they are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pwd
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from crucible_bridge.types import Evaluation, EvaluationComparison, InlineDataset, SampleResult

__all__ = ["ShownPaths"]

T = TypeVar("T")

_BEFORE = r"(?:(?<=\\[nrt])|(?<=-[ILo])|(?<![\w.~-]))"
"""A path begins here: "/data" is none in "x/data". A URL of a file may stand before it, a line end as `repr` shows it,
or a flag of a compiler."""
_END = r"(?![\w.-])"
_HOMES = r"(?:/var)?/(?:home|Users)/+[^/\s\"'`,;:)\]}?&]+|/root"


class ShownPaths:
    """Shortens paths for people elsewhere."""

    def __init__(self, roots: Iterable[Path] = ()) -> None:
        """Shorten paths below these roots, and below home directories.

        Args:
            roots: folders of models and of data.
        """
        below = _patterns(os.path.abspath(root) for root in roots)
        own = [os.path.expanduser("~")]
        with contextlib.suppress(KeyError):  # the user of a container may have no entry
            own.append(pwd.getpwuid(os.getuid()).pw_dir)
        homes = _patterns(own)
        self._roots = re.compile(f"{_BEFORE}(?:{'|'.join(below)})(?:/+|{_END})") if below else None
        self._homes = re.compile(f"{_BEFORE}(?:{'|'.join([*homes, _HOMES])}){_END}")

    def text(self, text: str) -> str:
        """A text with shortened paths; a root itself is "."."""
        if "/" not in text:
            return text
        if self._roots is not None:
            text = self._roots.sub(lambda found: "" if found[0].endswith("/") else ".", text)
        return self._homes.sub("~", text)

    def evaluation(self, evaluation: Evaluation) -> Evaluation:
        """An evaluation with shortened paths in all of its texts, but for samples in its request."""
        return self._mapped(evaluation)

    def comparison(self, comparison: EvaluationComparison) -> EvaluationComparison:
        """Likewise, with the reasons why evaluations are not compared."""
        return dataclasses.replace(
            comparison,
            evaluations=self._mapped(comparison.evaluations),
            comparisons=tuple(
                dataclasses.replace(pair, problem=self._mapped(pair.problem)) for pair in comparison.comparisons
            ),
        )

    def sample(self, result: SampleResult) -> SampleResult:
        """A result with shortened paths in what the worker says of it."""
        if result.problem is None and result.usage is None and not result.turns:  # as a rule
            return result
        return dataclasses.replace(
            result,
            problem=self._mapped(result.problem),
            usage=self._mapped(result.usage),
            turns=tuple(dataclasses.replace(turn, model=self.text(turn.model)) for turn in result.turns),
        )

    def _mapped(self, value: T) -> T:
        mapped: Any = self._any(value)
        return mapped

    def _any(self, value: Any) -> Any:
        if isinstance(value, str):
            return value if type(value) is not str else self.text(value)
        if isinstance(value, InlineDataset):
            return value
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {name: getattr(value, name) for name in _fields(type(value))}
            changed = {name: new for name, old in fields.items() if (new := self._any(old)) is not old}
            return dataclasses.replace(value, **changed) if changed else value
        if isinstance(value, Mapping):
            mapped = {self._any(key): self._any(item) for key, item in value.items()}
            return value if mapped == value else mapped
        if isinstance(value, tuple | list):
            items = [self._any(item) for item in value]
            return value if all(new is old for new, old in zip(items, value)) else type(value)(items)
        return value


@functools.cache
def _fields(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind) if field.init)


def _patterns(folders: Iterable[str]) -> list[str]:
    """Folders and what they link to, the longest first; without that of the whole file system."""
    found = {path.rstrip("/") for folder in folders for path in (folder, os.path.realpath(folder))} - {""}
    return [re.escape(path) for path in sorted(found, key=len, reverse=True)]
