"""Plans for runs that are not known yet, in settings: "lab-*=suite.toml", or a table of the file.

A table has the keys `runs` and `file`, and if needed `eval_every`, `infrequent_file` and `infrequent_eval_every`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crucible_worker.runs.run_patterns import PatternPlan

__all__ = ["RunPlan", "read_plans"]

MAX_PATTERN = 200
"""Characters of a pattern."""

_WANTED = "RUNS=FILE, such as lab-*=suite.toml"
_KEYS = ("runs", "file", "eval_every", "infrequent_file", "infrequent_eval_every")
_MOST = 2**63 - 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What is evaluated of every run whose id fits a pattern."""

    runs: str
    """The pattern: "*" stands for any text."""
    file: Path
    """The suite whose evaluations are due often."""
    eval_every: int = 1
    """Steps between two times that they are due; 0 is at the last step alone."""
    infrequent_file: Path | None = None
    """The suite whose evaluations are due seldom; none if None."""
    infrequent_eval_every: int = 0
    """Likewise, of these."""

    def load(self) -> PatternPlan:
        """Read the files.

        Raises:
            ValueError: a file cannot be read, or is not a suite, or the two have an evaluation twice; the message
                has the file.
        """
        # Probes read settings as well, and should not import what this imports.
        from crucible_bridge.types import EvaluationPlan
        from crucible_worker.runs.run_patterns import PatternPlan

        plan = EvaluationPlan(
            plan_id="run",
            run_id="run",
            eval_every=self.eval_every,
            evaluations=_evaluations(self.file),
            infrequent_eval_every=self.infrequent_eval_every,
            infrequent_evaluations=() if self.infrequent_file is None else _evaluations(self.infrequent_file),
        )
        return PatternPlan(runs=self.runs, plan=plan)


def read_plans(value: Any, base: Path) -> tuple[RunPlan, ...]:
    """Read plans from a TOML list of tables, from texts "RUNS=FILE", or from such texts separated as in PATH.

    Args:
        value: what the operator gave.
        base: folder that paths are relative to.

    Raises:
        ValueError: the value cannot be used; the message says what is expected.
    """
    plans: dict[str, RunPlan] = {}
    for table in _tables(value):
        if unknown := sorted(set(table) - set(_KEYS)):
            raise ValueError(f"a table with {', '.join(_KEYS)}: {unknown[0]!r} is unknown")
        runs = table.get("runs")
        if not isinstance(runs, str) or not 0 < len(runs) <= MAX_PATTERN:
            raise ValueError(f"{_WANTED}: runs is a pattern of 1 to {MAX_PATTERN} characters")
        if runs in plans:
            raise ValueError(f"one plan for each pattern: {runs} is given twice")
        if "infrequent_eval_every" in table and "infrequent_file" not in table:
            raise ValueError(f"a plan whose infrequent_eval_every has an infrequent_file: {runs} lacks it")
        files = {name: _file(table[name], name, base) for name in ("file", "infrequent_file") if name in table}
        if "file" not in files:
            raise ValueError(f"{_WANTED}: {runs} lacks its file")
        every = {name: _steps(table[name], name) for name in _KEYS if name.endswith("_every") and name in table}
        plans[runs] = RunPlan(runs=runs, **files, **every)  # pyright: ignore[reportArgumentType]
    return tuple(plans.values())


def _tables(value: Any) -> Iterator[Mapping[str, Any]]:
    parts = [part for part in value.split(os.pathsep) if part] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ValueError(f"a list of {_WANTED}")
    for part in parts:
        if isinstance(part, Mapping):
            yield part
            continue
        runs, separator, file = part.partition("=") if isinstance(part, str) else ("", "", "")
        if not separator:
            raise ValueError(_WANTED)
        yield {"runs": runs, "file": file}


def _file(value: Any, name: str, base: Path) -> Path:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{_WANTED}: {name} is the path of a suite")
    return base / Path(value).expanduser()


def _steps(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST:
        raise ValueError(f"a plan whose {name} is a whole number from 0")
    return value


def _evaluations(file: Path) -> Any:
    from crucible_bridge.errors import InvalidField
    from crucible_bridge.suites import load_suite

    try:
        return load_suite(file).evaluations
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from None
    except InvalidField as error:
        raise ValueError(f"{file}: {error}") from None
