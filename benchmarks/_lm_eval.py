"""lm-evaluation-harness as a baseline: run in each way that may be its fastest, and compared number by number.

LM_EVAL_PYTHON names an interpreter that has lm-eval (`make bench-lm-eval` makes one); without it nothing is measured.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _report import Claim

__all__ = ["TOLERANCE", "apart", "baseline", "claims", "interpreter"]

TOLERANCE = 1e-4
"""Largest accepted difference from the baseline's numbers."""
BATCH_SIZES, THREADS = (1, 64), (1, 2)
SCRIPT = Path(__file__).with_name("_lm_eval_baseline.py")


def interpreter(name: str) -> str | None:
    """The interpreter with lm-eval; without one None, with a message why nothing is measured."""
    python = os.environ.get("LM_EVAL_PYTHON")
    if not python:
        print(f"{name}: not measured, as LM_EVAL_PYTHON names no interpreter with lm-eval", file=sys.stderr)
    return python


def baseline(
    python: str, task: str, model: Path, documents: Sequence[Mapping[str, Any]], runs: int, folder: Path
) -> list[dict[str, Any]]:
    """The results of lm-evaluation-harness for a task, for each way to run it.

    Args:
        python: the interpreter.
        task: "choices" or "texts", see `_lm_eval_baseline.py`.
        model: directory of the checkpoint.
        documents: of the task.
        runs: how often each way is timed.
        folder: to write to.
    """
    file = folder / f"{task}.json"
    file.write_text(json.dumps(documents))
    command = [python, str(SCRIPT), task, str(model), str(file), str(runs)]
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hub")}
    found: list[dict[str, Any]] = []
    for size, threads in itertools.product(BATCH_SIZES, THREADS):
        done = subprocess.run(
            [*command, str(size), str(threads)], env=offline, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"lm-eval failed:\n{done.stderr}")
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return found


def apart(what: str, ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The largest difference from the baseline's numbers.

    Raises:
        SystemExit: further than `TOLERANCE`.
    """
    most = max(abs(mine - his) for mine, his in zip(ours, theirs, strict=True))
    if not most <= TOLERANCE:
        raise SystemExit(f"{what} are {most:g} apart, more than {TOLERANCE:g}")
    return most


def claims(
    name: str,
    count: int,
    unit: str,
    seconds: Sequence[float],
    baselines: Sequence[Mapping[str, Any]],
    *,
    alone_at_least: float | None = None,
) -> list[Claim]:
    """Claims that so many items take no longer than with the baseline's fastest way.

    Our whole call is compared with the baseline's, and with its evaluation alone.

    Args:
        name: what is measured.
        count: how many there are.
        unit: the noun for the items, plural.
        seconds: our runs.
        baselines: the baseline's, by the way of running it.
        alone_at_least: the claimed ratio to its evaluation alone; if None, that ratio is only printed.
    """
    made: list[Claim] = []
    for part, behind, told, at_least in (
        ("seconds", "", "equal to 1e-4, at least as fast as lm-evaluation-harness, call for call", 1.0),
        ("evaluating", "_evaluation_alone", "the same, against its evaluation alone", alone_at_least),
    ):
        best = min((one[part] for one in baselines), key=statistics.median)
        made.append(
            Claim(
                name=f"{name}{behind}",
                ours=[count / each for each in seconds],
                baseline=[count / each for each in best],
                unit=f"{unit}/s",
                ratio=statistics.median(best) / statistics.median(seconds),
                at_least=at_least,
                claim=told,
            )
        )
    return made
