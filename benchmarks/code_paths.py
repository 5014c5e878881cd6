"""How much code one answer passes: files entered, calls made, hops from one file to another.

Counted in a warm worker in this process, of functions of `crucible_worker` alone: of an evaluation of one sample, of
each further sample, of `GradeMath` with one pair (in the worker, and in a child that grades), and of
`ComputeKLSampleTrain` with four tokens. A resumed coroutine is the same call; a comprehension is none.
"""

from __future__ import annotations

import asyncio
import collections
import dis
import functools
import logging
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np
import structlog
from _report import Claim, arguments, report

import crucible_worker
from crucible_bridge.types import Datum, GradeItem, MathPolicy, Sample, SamplingParams, Verdict
from crucible_worker.grading.math.judging import Question, judge
from crucible_worker.testing import RunningWorker, ScriptedModel, run_worker

WORKER = f"{Path(crucible_worker.__file__).parent}/"
FEW, MANY = 50, 150
"""Samples of two evaluations: what the second has more of is due to a sample."""


class Passed(NamedTuple):
    """What some work passes."""

    files: int
    calls: int
    hops: int


class Calls:
    """Every call since it was made, in every thread that has started since, and in this one."""

    def __init__(self) -> None:
        """Begin to count."""
        self.entered: collections.Counter[str] = collections.Counter()
        """By file."""
        self.hops = 0
        """Calls from another file of the worker."""
        threading.setprofile(self._count)
        sys.setprofile(self._count)

    async def of(self, work: Callable[[], Awaitable[object]], least: int = 1) -> Passed:
        """What some work passes; of a file that is entered less often than `least` times, nothing."""
        before, hops = collections.Counter(self.entered), self.hops
        await work()
        files = {file: times for file, times in (self.entered - before).items() if times >= least}
        return Passed(len(files), sum(files.values()), self.hops - hops)

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(WORKER) or frame.f_code.co_name in _COMPREHENSIONS:
            return
        if frame.f_lasti > _start(frame.f_code):  # a generator or coroutine is resumed
            return
        self.entered[file] += 1
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(WORKER):
            caller = caller.f_back
        self.hops += caller is not None and caller.f_code.co_filename != file


_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


@functools.cache
def _start(code: CodeType) -> int:
    """Where its frame stands when it is entered."""
    return next(one.offset for one in dis.get_instructions(code) if one.opname == "RESUME")


async def main() -> None:
    """Count and print."""
    options = arguments(__doc__)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    calls = Calls()
    found: list[dict[str, float]] = []
    async with run_worker({"scripted": ScriptedModel(answer=lambda prompt: "42")}, grading_processes=2) as worker:
        for letter in LETTERS[: options.runs + 1]:
            one = await calls.of(lambda: evaluate(worker, 1))
            few = await calls.of(lambda: evaluate(worker, FEW), least=FEW)
            many = await calls.of(lambda: evaluate(worker, MANY), least=MANY)
            pair = await calls.of(lambda: grade(worker, letter))  # noqa: B023 - called within the iteration
            child = await calls.of(lambda: in_a_child(letter))  # noqa: B023 - likewise
            kl = await calls.of(lambda: divergence(worker))
            found.append(
                {
                    "an evaluation of one sample, files": one.files,
                    "an evaluation of one sample, calls": one.calls,
                    "an evaluation of one sample, calls from another file": one.hops,
                    "each further sample, files": many.files,
                    "each further sample, calls": (many.calls - few.calls) / (MANY - FEW),
                    "GradeMath of one pair, files": pair.files,
                    "GradeMath of one pair, files in a child": child.files,
                    "ComputeKLSampleTrain of four tokens, files": kl.files,
                }
            )
    del found[0]  # what is imported, built or cached once
    report([claim(name, [row[name] for row in found]) for name in found[0]], as_json=options.json)


def claim(name: str, values: list[float]) -> Claim:
    """A figure of all runs."""
    most = MOST.get(name)
    return Claim(name=name, ours=values, unit="", at_most=most, claim="none" if most is None else f"at most {most}")


MOST = {
    "each further sample, files": 24,
    "each further sample, calls": 125,
    "GradeMath of one pair, files": 22,
    "GradeMath of one pair, files in a child": 14,
    "ComputeKLSampleTrain of four tokens, files": 14,
}
"""What was reached; a change that needs more says why, and raises it."""
LETTERS = "kmnpqrstuvwyz"
"""Unknowns of a pair, each in one run: a pair that was graded before is not graded again."""


async def evaluate(worker: RunningWorker, samples: int) -> None:
    """Some samples, from the call to its reply."""
    evaluation = await worker.bridge.evaluation.evaluate(
        model="embedded:scripted",
        evaluators=["accuracy"],
        dataset=[Sample(id=str(index), input=f"{index}*7=", targets=("42",)) for index in range(samples)],
        sampling=SamplingParams(max_tokens=4),
    )
    assert evaluation.done == samples


async def grade(worker: RunningWorker, letter: str) -> None:
    """One pair that only mathematics decides, and no cache has."""
    item = GradeItem(response=f"The answer is 1+2{letter}.", targets=(f"2{letter}+1",))
    graded = await worker.bridge.grading.grade_math([item])
    assert graded.grades[0].verdict is Verdict.CORRECT


async def in_a_child(letter: str) -> None:
    """The same pair, as a child that grades gets it."""
    assert judge(Question((f"2{letter}+1",), f"1+2{letter}", MathPolicy())).verdict is Verdict.CORRECT


async def divergence(worker: RunningWorker) -> None:
    """Of two policies on four tokens."""
    column = np.full(4, -1.0, dtype=np.float32)
    datum = Datum(model_input=[1, 2, 3, 4], loss_fn_inputs={"logprobs": column, "mask": np.ones(4, np.float32)})
    await worker.bridge.metrics.compute_kl_sample_train([datum], [column])


if __name__ == "__main__":
    asyncio.run(main())
