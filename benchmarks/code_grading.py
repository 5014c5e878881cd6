"""Programs graded: how many a second by a worker's own sandboxes, and how long one takes from its start to its verdict.

The programs are trivial, with one plain test each, so that the sandbox is measured. The baseline runs them with their
tests without one: a new interpreter for each, as many at once as there are sandboxes. With `--labelled FILE`, JSON
lines with `prompt`, `completion`, `test`, `entry_point` and `label` (1 if the program is right), it also counts how
many wrong programs pass, and how many right ones fail. Needs bubblewrap.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from pathlib import Path

from _report import Claim, report

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.types import Assertions, CodeItem, CodeLimits, GradeCodeRequest, Verdict
from crucible_worker.grading.code.grader import CodeGrader
from crucible_worker.grading.code.sandbox import SandboxSlots

PLACES = 2
RUNS_A_BATCH = 300
TRIVIAL = CodeItem(response="def f(x):\n    return x + 1\n", tests=(Assertions("assert f(1) == 2"),))
BARE_PROGRAMS = 50
"""Programs that the baseline runs in a round."""
LEAST, MOST = 1.0, 1.0
"""Bounds, relative to the baseline: programs a second, and time of one program."""
LABELLED_LIMITS = CodeLimits(timeout_ms=1_500)


async def measured(rounds: int, labelled: Path | None) -> list[Claim]:
    places = SandboxSlots(PLACES)
    grader = CodeGrader(places)
    try:
        await speed(grader, PLACES)  # starts the sandboxes
        measured = [(await speed(grader, RUNS_A_BATCH), await bare_speed()) for _ in range(rounds)]
        claims = [
            Claim(
                name="programs graded",
                ours=[ours[0] for ours, _ in measured],
                baseline=[bare[0] for _, bare in measured],
                unit="runs/s",
                ratio=statistics.median(ours[0] / bare[0] for ours, bare in measured),
                at_least=LEAST,
                claim=f"at least {LEAST:g} times a new interpreter for each, without a sandbox",
            ),
            Claim(
                name="one program, median",
                ours=[ours[1] for ours, _ in measured],
                baseline=[bare[1] for _, bare in measured],
                unit="ms",
                ratio=statistics.median(ours[1] / bare[1] for ours, bare in measured),
                at_most=MOST,
                claim=f"at most {MOST:g} times such an interpreter",
            ),
            Claim(
                name="one program, 99th percentile",
                ours=[ours[2] for ours, _ in measured],
                unit="ms",
                claim="printed only",
            ),
        ]
        return claims if labelled is None else [*claims, *await verdicts(grader, labelled)]
    finally:
        await places.aclose()


async def speed(grader: CodeGrader, count: int) -> tuple[float, float, float]:
    """Runs a second, and the median and the 99th percentile of one's milliseconds."""
    began = time.perf_counter()
    found = await grader.grade_batch(GradeCodeRequest(items=(TRIVIAL,) * count))
    seconds = time.perf_counter() - began
    assert all(grade.verdict is Verdict.CORRECT for grade in found.grades)
    taken = sorted(grade.duration_ns / 1e6 for grade in found.grades)
    return count / seconds, statistics.median(taken), taken[int(0.99 * (len(taken) - 1))]


async def bare_speed() -> tuple[float, float]:
    """Runs a second of the baseline, and the median of one's milliseconds."""
    (test,) = TRIVIAL.tests
    assert isinstance(test, Assertions)
    program = f"{TRIVIAL.response}\n{test.source}\n"
    taken: list[float] = []
    left = iter(range(BARE_PROGRAMS))

    async def take() -> None:
        for _ in left:
            began = time.perf_counter()
            child = await asyncio.create_subprocess_exec(sys.executable, "-I", "-c", program)
            assert await child.wait() == 0
            taken.append((time.perf_counter() - began) * 1e3)

    began = time.perf_counter()
    await asyncio.gather(*(take() for _ in range(PLACES)))
    return BARE_PROGRAMS / (time.perf_counter() - began), statistics.median(taken)


async def verdicts(grader: CodeGrader, labelled: Path) -> list[Claim]:
    """How many wrong programs pass, and how many right ones fail."""
    rows = [json.loads(line) for line in labelled.read_text().splitlines()]
    items = tuple(
        CodeItem(
            response=row["completion"],
            prefix=row["prompt"],
            tests=(Assertions(f"{row['test']}\ncheck({row['entry_point']})\n"),),
        )
        for row in rows
    )
    found = await grader.grade_batch(GradeCodeRequest(items=items, limits=LABELLED_LIMITS))
    passed = [(row["label"] == 1, grade.verdict is Verdict.CORRECT) for row, grade in zip(rows, found.grades)]
    false_passes, false_failures = passed.count((False, True)), passed.count((True, False))
    return [
        Claim(name="wrong programs that pass", ours=[false_passes], unit="programs", claim="none", at_most=0),
        Claim(name="right programs that fail", ours=[false_failures], unit="programs", claim="none", at_most=0),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--runs", type=int, default=5, help="rounds; the median is reported")
    parser.add_argument("--labelled", type=Path, metavar="FILE", help="labelled programs")
    given = parser.parse_args()
    try:
        claims = asyncio.run(measured(given.runs, given.labelled))
    except FailedPrecondition as error:
        raise SystemExit(error.message) from None
    report(claims, as_json=given.json)


if __name__ == "__main__":
    main()
