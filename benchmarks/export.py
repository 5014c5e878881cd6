"""`crucible-worker export --format inspect` of 200,000 samples: samples a second, and memory; the command as a whole.

The baseline is Inspect's own writer on the log that the command has written of 2,000 of these samples. INSPECT_PYTHON
names an interpreter that has inspect-ai (`make test-inspect` makes one, .venv-inspect/bin/python); without it there is
no baseline, and the ratio is not measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from _report import Claim, arguments, report

from crucible_bridge.types import EvaluatorSpec, Limits, SamplingParams
from crucible_worker.testing import ScriptedModel, run_worker

LARGE, SMALL, BASELINE = 200_000, 20_000, 2_000
GOAL = 4_000
"""Samples a second."""
MOST_GROWTH = 1.1
"""Of the memory, from the small to the large evaluation."""
LOOK_SECONDS = 0.02
"""Between two looks at the memory of the command."""
LEAST_RATIO = 2.0
"""To Inspect's writer."""
_WRITE = """
import sys, time
from inspect_ai.log import read_eval_log, write_eval_log
log = read_eval_log(sys.argv[1])
began = time.perf_counter()
write_eval_log(log, sys.argv[2])
print(len(log.samples) / (time.perf_counter() - began))
"""


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    inspect = os.environ.get("INSPECT_PYTHON")
    with tempfile.TemporaryDirectory(prefix="crucible-") as name:
        folder = Path(name)
        asyncio.run(evaluate(folder, (LARGE, SMALL, BASELINE)))
        export(folder, BASELINE)
        large, small, theirs = [], [], []
        for _ in range(options.runs):
            large.append(export(folder, LARGE))
            small.append(export(folder, SMALL))
            if inspect:
                theirs.append(written_by_inspect(inspect, folder))
    rates = [LARGE / seconds for seconds, _ in large]
    claims = [
        Claim(
            name=f"an .eval file of {LARGE:,} samples: samples a second",
            ours=rates,
            baseline=theirs,
            unit="samples/s",
            ratio=statistics.median(rates) / statistics.median(theirs) if theirs else None,
            at_least=LEAST_RATIO if theirs else None,
            claim=f"goal {GOAL:,} samples a second; {LEAST_RATIO:g} times Inspect's own writer",
        ),
        Claim(
            name=f"memory of the command at {LARGE:,} samples, against that at {SMALL:,}",
            ours=[mebibytes for _, mebibytes in large],
            baseline=[mebibytes for _, mebibytes in small],
            unit="MB",
            ratio=statistics.median(one for _, one in large) / statistics.median(one for _, one in small),
            at_most=MOST_GROWTH,
            claim="it does not grow with the samples",
        ),
    ]
    if not inspect:
        print("Inspect's writer: not measured, as INSPECT_PYTHON names no interpreter with it", file=sys.stderr)
    report(claims, as_json=options.json)


async def evaluate(folder: Path, sizes: Sequence[int]) -> None:
    """Evaluate data sets of these sizes, into the folder's journal."""
    model = ScriptedModel(answer=lambda prompt: "<think>I add the two numbers.</think>The answer is 7.")
    async with run_worker({"m": model}, state_dir=folder, data_roots=(folder,)) as worker:
        for count in sizes:
            lines = (f"What is {n} + {n + 3}?,{2 * n + 3},{n % 5}\n" for n in range(count))
            (folder / f"{count}.csv").write_text("question,answer,level\n" + "".join(lines))
            await worker.bridge.evaluation.evaluate(
                evaluation_id=str(count),
                model="embedded:m",
                evaluators=[EvaluatorSpec(kind="accuracy", options={"grader": "numeric"})],
                dataset=f"csv:{count}.csv",
                sampling=SamplingParams(max_tokens=64),
                limits=Limits(concurrency=64),
            )


def export(folder: Path, count: int) -> tuple[float, float]:
    """Seconds of the command, and its largest memory in MB."""
    words = (str(count), "--format", "inspect", "--output", f"{folder}/{count}.eval", "--state-dir", str(folder))
    began = time.perf_counter()
    command = subprocess.Popen([sys.executable, "-m", "crucible_worker", "export", *words], stdout=subprocess.DEVNULL)
    largest = 0
    # The kernel's number for a process that has ended includes what this process had when it started it.
    while command.poll() is None:
        largest = peak_bytes(command.pid) or largest
        time.sleep(LOOK_SECONDS)
    seconds = time.perf_counter() - began
    if command.returncode:
        raise SystemExit(f"export has ended with {command.returncode}")
    return seconds, largest / 1e6


def peak_bytes(pid: int) -> int:
    """The largest memory of a process so far; 0 if it has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def written_by_inspect(python: str, folder: Path) -> float:
    """Samples a second of Inspect's writer."""
    command = [python, "-c", _WRITE, f"{folder}/{BASELINE}.eval", f"{folder}/theirs.eval"]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
