"""Plans for runs that are not known yet, in settings: "lab-*=plan.toml", or a table with the keys `runs` and `file`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crucible_worker.planning.plans import PatternPlan

__all__ = ["RunPlan", "read_plans"]

MAX_PATTERN = 200
"""Characters of a pattern."""

_WANTED = "RUNS=FILE, such as lab-*=plan.toml"
_KEYS = ("runs", "file")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What is evaluated of every run whose id fits a pattern."""

    runs: str
    """The pattern: "*" stands for any text."""
    file: Path
    """A plan's file, or a suite's: its evaluations are then due at every step."""

    def load(self) -> PatternPlan:
        """Read the file.

        Raises:
            ValueError: it cannot be read, or is no plan; the message has the file.
        """
        # Probes read settings as well, and should not import what this imports.
        from crucible_bridge.errors import InvalidField
        from crucible_bridge.suites import load_plan
        from crucible_worker.planning.plans import PatternPlan

        try:
            return PatternPlan(runs=self.runs, plan=load_plan(self.file, plan_id="run", run_id="run"))
        except OSError as error:
            raise ValueError(f"{self.file} cannot be read: {error.strerror}") from None
        except InvalidField as error:
            raise ValueError(f"{self.file}: {error}") from None


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
        if "file" not in table:
            raise ValueError(f"{_WANTED}: {runs} lacks its file")
        plans[runs] = RunPlan(runs=runs, file=_file(table["file"], base))
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


def _file(value: Any, base: Path) -> Path:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{_WANTED}: file is the path of a plan or a suite")
    return base / Path(value).expanduser()
