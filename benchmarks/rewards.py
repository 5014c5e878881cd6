"""Rewards of 4,096 completions by 16 threads, of which 1 % are hostile: ours against Math-Verify as trainers call it.

In TRL's form a call has 16 completions; as TRL does it, Math-Verify runs in the calling thread, without a limit of time
because its limits need the main thread. In verl's form a call has one completion, and Math-Verify runs in a pool of
four processes, with 30 s for each. Each side is a process of its own, which is stopped after LIMIT_SECONDS: what is not
graded by then never is, and a call that is still open counts as that long. Half of the completions are pairs of the
tests, half numbers as models write them. Starting the processes that grade is not counted on either side.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import logging
import multiprocessing
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from _grading_pairs import Pair, load_pairs
from _report import Claim, arguments, report

COMPLETIONS, THREADS, BATCH = 4_096, 16, 16
HOSTILE_SHARE = 0.01
LIMIT_SECONDS = 90.0
VERL_PROCESSES, VERL_SECONDS = 4, 30.0
HOSTILE = (
    Pair("x+1", r"8^{8^{8^{8^{8}}}}"),
    Pair(r"\frac{1}{3}", "1000000007!"),
    Pair(r"\frac{1}{3}", r"\binom{2000000000}{1000000000}"),
    Pair(r"\frac{1}{3}", r"\int_0^1 \cos(x^{x^{x}})\sin(e^{x^3}) dx"),
    Pair("7", r"((10^{100})^{100})^{100000}"),
)
SEED = 7

Grade = Callable[[Sequence[Pair]], object]


class Measured(NamedTuple):
    """A run of one side."""

    rate: float
    """Completions a second."""
    slowest: float
    """Seconds of the slowest call."""
    share: float
    """Per cent that were graded."""


def completions() -> list[Pair]:
    """Targets, and responses with an answer in a box; the same in every run."""
    drawn = random.Random(SEED)
    pairs = drawn.sample(load_pairs(None), COMPLETIONS // 2)
    while len(pairs) < COMPLETIONS:
        value = drawn.randrange(1, 100_000)
        pairs.append(Pair(str(value), f"{value + drawn.choice((0, 0, 1)):,}"))
    drawn.shuffle(pairs)
    for number in range(round(COMPLETIONS * HOSTILE_SHARE)):
        pairs[number * 99 + 50] = HOSTILE[number % len(HOSTILE)]
    return [
        Pair(pair.target, f"Step {n}: it follows.\nThe answer is \\boxed{{{pair.answer}}}.")
        for n, pair in enumerate(pairs)
    ]


def ours() -> Grade:
    """Our reward, which is called alike in both forms."""
    from crucible_bridge.rewards import Reward

    logging.disable(logging.WARNING)
    reward = Reward("math")
    reward.start()
    return lambda batch: reward.grade([pair.answer for pair in batch], [pair.target for pair in batch])


def trl() -> Grade:
    """Math-Verify as `trl.rewards.accuracy_reward` uses it outside of the main thread."""
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse, verify

    logging.disable(logging.ERROR)
    boxed = LatexExtractionConfig(
        normalization_config=NormalizationConfig(units=True), boxed_match_priority=0, try_extract_without_anchor=False
    )

    def grade(batch: Sequence[Pair]) -> list[float]:
        rewards = []
        for pair in batch:
            gold = parse(f"${pair.target}$", parsing_timeout=None)  # pyright: ignore[reportArgumentType]
            found = parse(
                pair.answer,
                [boxed],
                extraction_mode="first_match",
                parsing_timeout=None,  # pyright: ignore[reportArgumentType]
            )
            rewards.append(float(verify(gold, found, timeout_seconds=None)))
        return rewards

    return grade


def verl() -> Grade:
    """Math-Verify as verl's `reward_score.math_verify` uses it."""
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(VERL_PROCESSES, context)
    list(pool.map(verified, ["\\boxed{1}"] * VERL_PROCESSES, ["1"] * VERL_PROCESSES))

    def grade(batch: Sequence[Pair]) -> float:
        (pair,) = batch
        try:
            return pool.submit(verified, f"\\boxed{{{pair.target}}}", pair.answer).result(VERL_SECONDS)
        except Exception:  # as there: whatever it is, the reward is 0
            return 0.0

    return grade


def verified(target: str, answer: str) -> float:
    """Math-Verify's verdict, in a process where its limits of time work."""
    from math_verify.grader import verify
    from math_verify.parser import ExprExtractionConfig, LatexExtractionConfig, parse

    gold = parse(target, (LatexExtractionConfig(),))
    found = parse(answer, (ExprExtractionConfig(), LatexExtractionConfig()))
    return max((float(any(verify(right, each) for right in gold)) for each in found), default=0.0)


SIDES: dict[str, tuple[Callable[[], Grade], int]] = {
    "ours_batches": (ours, BATCH),
    "trl": (trl, BATCH),
    "ours_single": (ours, 1),
    "verl": (verl, 1),
}


def run(side: str) -> None:
    """Have threads grade everything; after each call, print how many are graded, the seconds, and the slowest call."""
    make, size = SIDES[side]
    pairs = completions()
    grade = make()
    waiting = iter([pairs[start : start + size] for start in range(0, len(pairs), size)])
    lock, slowest, graded = threading.Lock(), 0.0, 0
    print(json.dumps([0, 0.0, 0.0]), flush=True)
    start = time.monotonic()

    def work() -> None:
        nonlocal slowest, graded
        while True:
            with lock:
                batch = next(waiting, None)
            if batch is None:
                return
            began = time.monotonic()
            grade(batch)
            with lock:
                now = time.monotonic()
                slowest, graded = max(slowest, now - began), graded + len(batch)
                print(json.dumps([graded, now - start, slowest]), flush=True)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def measured(side: str) -> Measured:
    """A run in a process of its own, which is killed with its children at the limit: some hold the interpreter."""
    command = [sys.executable, __file__, "--side", side]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it is ready
        stop = threading.Timer(LIMIT_SECONDS, os.killpg, (process.pid, signal.SIGKILL))
        stop.start()
        graded, seconds, slowest = 0, 0.0, 0.0
        for line in process.stdout:
            if line.endswith(b"\n"):
                graded, seconds, slowest = json.loads(line)
            if graded == COMPLETIONS:
                break
        stop.cancel()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if graded < COMPLETIONS:
        seconds = slowest = LIMIT_SECONDS
    return Measured(graded / seconds, slowest, 100 * graded / COMPLETIONS)


def claims_of(form: str, own: Sequence[Measured], other: Sequence[Measured], least: float) -> list[Claim]:
    """The claims of one form."""
    own_rate, other_rate = (statistics.median(each.rate for each in runs) for runs in (own, other))
    return [
        Claim(
            name=f"{form}_rate",
            ours=[each.rate for each in own],
            baseline=[each.rate for each in other],
            unit="completions/s",
            ratio=own_rate / max(other_rate, 1 / LIMIT_SECONDS),
            claim=f"at least {least:g} times",
            at_least=least,
        ),
        Claim(
            name=f"{form}_slowest_call",
            ours=[each.slowest for each in own],
            baseline=[each.slowest for each in other],
            unit="s",
            claim="printed only",
        ),
        Claim(
            name=f"{form}_graded",
            ours=[each.share for each in own],
            baseline=[each.share for each in other],
            unit="%",
            claim="all of them",
            at_least=100.0,
        ),
    ]


def main() -> None:
    """Measure each side in turn."""
    if sys.argv[1:2] == ["--side"]:
        run(sys.argv[2])
        return
    given = arguments(__doc__)
    runs: dict[str, list[Measured]] = {side: [] for side in SIDES}
    for _ in range(given.runs):
        for side, found in runs.items():
            found.append(measured(side))
    claims = claims_of("batches_of_16_as_trl", runs["ours_batches"], runs["trl"], 10.0)
    claims += claims_of("single_as_verl", runs["ours_single"], runs["verl"], 10.0)
    report(claims, as_json=given.json)


if __name__ == "__main__":
    main()
