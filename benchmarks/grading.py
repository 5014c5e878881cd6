"""How fast math is graded: ours against Math-Verify and tinker-cookbook's grade_answer, on the same pairs.

All take turns, some pairs at a time, each in one process. Processor time counts, so other load of the machine does not
matter. Every pair is graded once, so that caches have no effect. The baselines run in processes that can be killed: a
pair that one of them does not finish in 10 s counts as 10 s. Pairs with the same text are reported separately, as they
need no mathematics: every target against itself. Then our own path through a worker is measured by the clock: batches
of a client on the same machine. Baselines that are not installed are left out.

With --responses it measures no speed, but the accuracy of each on labelled responses, in per cent, and in brackets how
many wrong ones it accepts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from _grading_pairs import PAIR_SECONDS, Pair, baselines, load_pairs, pair_arguments
from _grading_responses import load_responses, tables
from _processes import server_process
from _report import Claim, report

import crucible_bridge
from crucible_bridge.types import GradeItem, MathPolicy
from crucible_worker.grading.math.decide import Decision, decide
from crucible_worker.grading.math.grader import MathGrader
from crucible_worker.grading.math.literal import literally
from crucible_worker.grading.pool import GradingPool

TURN_PAIRS = 50
"""Pairs graded by one, then by the next. The first turn of each is not counted, as it includes late imports."""
BASELINE_PAIRS = 600
"""Pairs that the baselines grade as well, evenly chosen: Math-Verify takes seconds for a hundred."""
BATCH_PAIRS = 256
"""Pairs of a call to the worker."""
CALLS_AT_ONCE = 4
CHILDREN = 2
ENOUGH_PAIRS = 1_000
"""Pairs of a file from which claims are checked; for fewer, and for the tests' cases, speeds are only printed."""
POLICY = MathPolicy()


def timed(pairs: Sequence[Pair]) -> list[float]:
    """Seconds of this process's time that our grader takes for each pair."""
    taken = []
    for pair in pairs:
        started = time.process_time()
        ours(pair)
        taken.append(time.process_time() - started)
    return taken


def ours(pair: Pair) -> Decision:
    """The computation of a child of a worker."""
    return decide(pair.target, pair.answer, POLICY)


def alternate(pairs: Sequence[Pair]) -> dict[str, list[float]]:
    """Seconds that each grader takes for each pair."""
    with baselines() as others:
        taken: dict[str, list[float]] = {"ours": [], **{baseline.name: [] for baseline in others}}
        for start in range(0, len(pairs), TURN_PAIRS):
            turn = pairs[start : start + TURN_PAIRS]
            taken["ours"] += timed(turn)
            for baseline in others:
                taken[baseline.name] += [baseline.grade(pair).seconds for pair in turn]
        for baseline in others:
            if baseline.stopped:
                print(
                    f"{baseline.name}: {baseline.stopped} pairs were stopped after {PAIR_SECONDS:g} s", file=sys.stderr
                )
    return {name: seconds[TURN_PAIRS:] for name, seconds in taken.items()}


def per_second(seconds: Sequence[float]) -> float:
    """Pairs a second."""
    return len(seconds) / sum(seconds)


def percentile(seconds: Sequence[float], share: float) -> float:
    """The milliseconds that this share does not exceed."""
    return statistics.quantiles(seconds, n=1_000, method="inclusive")[round(share * 1_000) - 1] * 1e3


def speed(pairs: Sequence[Pair], *, claimed: bool) -> list[Claim]:
    """Our grader alone on all pairs that differ, then with the baselines on some of them."""
    step = max(1, len(pairs) // BASELINE_PAIRS)
    chosen, rest = pairs[::step], [pair for number, pair in enumerate(pairs) if number % step]
    beside = alternate(chosen)
    taken = timed(rest or pairs)
    claims = [
        Claim(
            name="non_identical",
            ours=[per_second(taken)],
            unit="pairs/s",
            claim="one core; printed only",
        ),
        Claim(name="non_identical_p50", ours=[percentile(taken, 0.5)], unit="ms", claim="told"),
        Claim(
            name="non_identical_p99",
            ours=[percentile(taken, 0.99)],
            unit="ms",
            claim="printed only",
        ),
        Claim(name="non_identical_longest", ours=[max(taken) * 1e3], unit="ms", claim="told"),
    ]
    bounds = {"math_verify": 100.0}
    for name, seconds in beside.items():
        if name == "ours":
            continue
        own, baseline = per_second(beside["ours"]), per_second(seconds)
        bound = bounds.get(name)
        claims.append(
            Claim(
                name=f"against_{name}",
                ours=[own],
                baseline=[baseline],
                unit="pairs/s",
                ratio=own / baseline,
                claim="goal: faster" if bound is None else f"at least {bound:g} times of a thousand pairs or more",
                at_least=bound if claimed else None,
            )
        )
        claims.append(Claim(name=f"{name}_p99", ours=[percentile(seconds, 0.99)], unit="ms", claim="of the baseline"))
    return claims


def slow_share(pairs: Sequence[Pair], *, claimed: bool) -> Claim:
    """How many pairs of a hundred the slow path takes."""
    share = 100 * sum(ours(pair).verdict is None for pair in pairs) / len(pairs)
    return Claim(
        name="slow_path",
        ours=[share],
        unit="%",
        claim="at most 0.2 % of a thousand pairs or more",
        at_most=0.2 if claimed else None,
    )


async def through_the_grader(pairs: Sequence[Pair], clock: Callable[[], float]) -> float:
    """Pairs a second through the grader of a worker, which has not seen them."""
    pool = GradingPool(CHILDREN)
    await pool.start()
    try:
        items = [GradeItem(answer=pair.answer, targets=(pair.target,)) for pair in pairs]
        grader = MathGrader(pool)
        started = clock()
        await grader.grade_batch(items)
        return len(items) / (clock() - started)
    finally:
        await pool.aclose()


def identical(pairs: Sequence[Pair], runs: int) -> list[Claim]:
    """Pairs written alike: those that need no child, by processor time, and all of them, by the clock."""
    literal = [pair for pair in pairs if literally((pair.target,), pair.answer, POLICY)]
    alone = [asyncio.run(through_the_grader(literal, time.process_time)) for _ in range(runs)]
    everything = [asyncio.run(through_the_grader(pairs, time.perf_counter)) for _ in range(runs)]
    share = 100 * len(literal) / len(pairs)
    return [
        Claim(
            name="identical",
            ours=alone,
            unit="pairs/s",
            claim="one core; printed only",
        ),
        Claim(name="identical_share", ours=[share], unit="%", claim="of those written alike, decided without a child"),
        Claim(name="identical_all", ours=everything, unit="pairs/s", claim="printed; children read the others"),
    ]


@contextlib.contextmanager
def worker() -> Iterator[str]:
    """A separate worker; yields its address once it grades."""
    with tempfile.TemporaryDirectory(prefix="crucible-grading-") as folder:
        ready = Path(folder, "ready")
        command = ["-m", "crucible_worker", "serve", "--port", "0", "--state-dir", str(Path(folder, "state"))]
        options = ["--log-level", "warning", "--grading-processes", str(CHILDREN)]
        with server_process([*command, "--ready-file", str(ready), *options], ready) as address:
            yield address


async def through_grpc(pairs: Sequence[Pair]) -> float:
    """Pairs a second, by a client in batches, several at once."""
    with worker() as address:
        async with crucible_bridge.connect(address) as bridge:
            while not await bridge.worker.health("crucible_bridge.v1.GradingService"):
                await asyncio.sleep(0.01)
            batches = [
                [GradeItem(answer=pair.answer, targets=(pair.target,)) for pair in pairs[start : start + BATCH_PAIRS]]
                for start in range(0, len(pairs), BATCH_PAIRS)
            ]
            waiting = iter(batches)

            async def call() -> None:
                for batch in waiting:
                    await bridge.grading.grade_math(batch)

            started = time.perf_counter()
            await asyncio.gather(*(call() for _ in range(CALLS_AT_ONCE)))
            return len(pairs) / (time.perf_counter() - started)


def main() -> None:
    """Measure and print."""
    parser = pair_arguments(__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--runs", type=int, default=3, help="runs through a worker, each with a new one")
    parser.add_argument(
        "--responses",
        type=Path,
        metavar="FILE",
        help='only this: accuracy on JSON lines with "response", "target" and "label" (1 or 0), or a folder of them',
    )
    options = parser.parse_args()
    if options.responses is not None:
        table, figures = tables(load_responses(options.responses))
        print(json.dumps(figures) if options.json else table)
        return
    pairs = load_pairs(options.pairs)
    alike = [Pair(target, target) for target in dict.fromkeys(pair.target for pair in pairs)]
    different = [pair for pair in pairs if pair.target != pair.answer]
    claimed = options.pairs is not None and len(different) >= ENOUGH_PAIRS
    claims = [*speed(different, claimed=claimed), slow_share(pairs, claimed=claimed)]
    remote = [asyncio.run(through_grpc(different)) for _ in range(options.runs)]
    cores = len(os.sched_getaffinity(0))
    claims += [
        *identical(alike, options.runs),
        Claim(
            name="grpc",
            ours=remote,
            unit="pairs/s",
            claim=f"{cores} cores; printed only",
        ),
    ]
    told = f"{len(different):,} pairs that differ, {len(alike):,} targets against themselves"
    print(told, file=sys.stderr)
    report(claims, as_json=options.json)


if __name__ == "__main__":
    main()
