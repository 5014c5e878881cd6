"""What one pool does with 1 to 64 workers, by a simulator of discrete events.

Everything that the model needs is measured first, on this machine. Then the model is compared with 1, 2 and 3 worker
processes that share one evaluation: on the load that is predicted, and on a faster model server, which this machine's
cores cannot follow. These processes, their clients and PostgreSQL share the cores of this machine, in the model too.
At last it predicts pools whose workers have hosts of their own. `_pool_model` says what the model assumes.

Where it does not fit: with few workers, real event loops have more results in each transaction than the model's, so
that the model overestimates how busy the lock is. Rates of samples are close, and so are waits once the lock is busy.

There is no promise: the figures are those of this machine's CPU and disk. `--runs` is how often each comparison is
made.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import statistics
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import _pool_model
from _pool import Load, Run, evaluated, server
from _pool_measures import Measure, Measured, measured
from _pool_model import Commit, Outcome, Parameters, Pool, simulate, waited

PROCESSES = (1, 2, 3)
"""Workers with which the model is compared."""
FASTER = 10
"""By how much the other model server is faster."""
WORKERS = (1, 2, 4, 8, 16, 32, 64)
WINDOW = (30.0, 40.0)
"""Seconds of an evaluation without an end that are counted: before, what waits for the journal may still grow."""
BUSY = 0.9
"""Utilisation from which a resource is a bottleneck, and share of the ideal below which a pool has one."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one evaluation by a pool, measured or simulated."""

    seconds: float
    transactions: int
    lock: float
    """Share of time in which the head row's lock was held."""
    wait_p50: float
    """Seconds from the begin of a transaction until it has the lock."""
    wait_p99: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Of measured evaluations with a simulated one."""

    latency: float
    workers: int
    measured: Figures
    """Medians."""
    simulated: Figures
    other_cores: float
    """Cores of the machine that other programs used meanwhile, the median."""

    @property
    def ratio(self) -> float:
        """Measured seconds, as a multiple of simulated ones."""
        return self.measured.seconds / self.simulated.seconds


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """Where something begins."""

    what: str
    workers: int | None
    """None if it does not begin in a pool of the largest size."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is simulated."""

    samples: int
    latency: float
    concurrency: int
    runs: int
    host_cores: int
    workers_per_host: int
    database_cores: int
    seed: int

    def pool(self, workers: int) -> Pool:
        """A pool that is predicted."""
        return Pool(
            workers=workers,
            concurrency=self.concurrency,
            host_cores=self.host_cores,
            workers_per_host=self.workers_per_host,
            database_cores=self.database_cores,
        )

    def ideal(self, workers: int) -> float:
        """Samples a second of workers that do nothing but wait for the model server."""
        return workers * self.concurrency / self.latency


async def compared(postgres: Any, parameters: Parameters, options: Options) -> Sequence[Comparison]:
    """The model with real processes."""
    comparisons: list[Comparison] = []
    for latency in (options.latency, options.latency / FASTER):
        load = Load(samples=options.samples, latency=latency, concurrency=options.concurrency)
        runs: dict[int, list[Run]] = {workers: [] for workers in PROCESSES}
        for _ in range(options.runs):
            for workers, its in runs.items():
                its.append(await evaluated(postgres.new_database(), workers, load, recorded=True))
        for workers, its in runs.items():
            other_cores = statistics.median(run.other_cpu / run.seconds for run in its)
            simulated = simulate(
                dataclasses.replace(parameters, latency=latency),
                Pool(
                    workers=workers,
                    concurrency=options.concurrency,
                    host_cores=os.cpu_count() or 1,
                    workers_per_host=workers,
                    database_cores=None,
                    other_cores=other_cores,
                ),
                samples=options.samples,
                seed=options.seed,
            )
            comparisons.append(
                Comparison(
                    latency=latency,
                    workers=workers,
                    measured=_median([_figures(run.seconds, _commits(run)) for run in its]),
                    simulated=_figures(simulated.seconds, simulated.commits),
                    other_cores=other_cores,
                )
            )
    return comparisons


def predicted(parameters: Parameters, options: Options) -> dict[int, Outcome]:
    """Pools of each size."""
    return {
        workers: simulate(parameters, options.pool(workers), window=WINDOW, seed=options.seed) for workers in WORKERS
    }


def bottlenecks(
    parameters: Parameters, options: Options, outcomes: dict[int, Outcome]
) -> Iterator[tuple[Bottleneck, Outcome | None]]:
    """Where the throughput leaves the ideal, and where each resource is busy, with the pool's outcome there."""

    def begins(reached: Callable[[int, Outcome], bool]) -> tuple[int | None, Outcome | None]:
        below = 0
        for workers, outcome in outcomes.items():
            if reached(workers, outcome):
                break
            below = workers
        else:
            return None, None
        while workers - below > 1:
            between = (workers + below) // 2
            tried = simulate(parameters, options.pool(between), window=WINDOW, seed=options.seed)
            if reached(between, tried):
                workers, outcome = between, tried
            else:
                below = between
        return workers, outcome

    workers, outcome = begins(lambda count, one: one.rate < BUSY * options.ideal(count))
    yield Bottleneck(what=f"less than {BUSY:.0%} of the ideal", workers=workers), outcome
    for name in next(iter(outcomes.values())).utilisations:
        workers, outcome = begins(lambda _, one, name=name: one.utilisations[name] >= BUSY)
        yield Bottleneck(what=f"{name} is busy {BUSY:.0%} of the time", workers=workers), outcome


def _commits(run: Run) -> Sequence[Commit]:
    return [
        Commit(one.asked, one.locked, one.released, one.submissions, one.events)
        for commits in run.commits
        for one in commits
        if run.began <= one.asked and one.released <= run.ended
    ]


def _figures(seconds: float, commits: Sequence[Commit]) -> Figures:
    """Waits are those of transactions that wrote samples."""
    wrote = [one for one in commits if one.events]
    return Figures(
        seconds=seconds,
        transactions=len(wrote),
        lock=sum(one.released - one.locked for one in commits) / seconds,
        wait_p50=waited(wrote, 0.5),
        wait_p99=waited(wrote, 0.99),
    )


def _median(figures: Sequence[Figures]) -> Figures:
    medians = {
        field.name: statistics.median(getattr(one, field.name) for one in figures)
        for field in dataclasses.fields(Figures)
    }
    return Figures(**medians)


def _print_measures(measures: Sequence[Measure]) -> None:
    print(f"\nMeasured on this machine ({os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}):")
    before = ""
    for one in measures:
        print(f"- {one.name}: {one.value}")
        if one.how == before:
            continue
        before = one.how
        print(textwrap.fill(one.how, 110, initial_indent="    (", subsequent_indent="    ") + ")")


def _print_comparisons(comparisons: Sequence[Comparison], options: Options) -> None:
    print(f"\nModel against processes that share this machine's cores: {options.samples:,} samples,")
    print(f"{options.concurrency} at work at each worker, medians of {options.runs}; measured / simulated")
    rows = [
        (
            f"{one.latency * 1e3:.0f} ms",
            str(one.workers),
            f"{one.measured.seconds:.2f} / {one.simulated.seconds:.2f}",
            f"{one.ratio:.2f}",
            f"{one.measured.transactions:.0f} / {one.simulated.transactions}",
            f"{one.measured.lock:.0%} / {one.simulated.lock:.0%}",
            f"{one.measured.wait_p50 * 1e3:.1f} / {one.simulated.wait_p50 * 1e3:.1f}",
            f"{one.measured.wait_p99 * 1e3:.0f} / {one.simulated.wait_p99 * 1e3:.0f}",
            f"{one.other_cores:.1f}",
        )
        for one in comparisons
    ]
    _print_table(
        (
            "latency", "workers", "seconds", "ratio", "transactions", "lock held", "wait p50, ms", "wait p99, ms",
            "other programs, cores",
        ),
        rows,
    )  # fmt: skip


def _print_predictions(outcomes: dict[int, Outcome], options: Options) -> None:
    print(f"\nPredicted: {options.latency * 1e3:.0f} ms, {options.concurrency} at work at each worker; ", end="")
    print(f"hosts of {options.host_cores} cores with {options.workers_per_host} workers each,")
    print(f"a database of {options.database_cores} cores; {WINDOW[1] - WINDOW[0]:.0f} s of a steady state")
    rows = [
        (
            str(workers),
            f"{one.rate:,.0f}",
            f"{one.rate / options.ideal(workers):.0%}",
            f"{len(one.commits) / one.seconds:,.0f}",
            f"{one.samples / max(1, len(one.commits)):,.1f}",
            f"{one.lock:.0%}",
            f"{waited(one.commits, 0.5) * 1e3:,.1f}",
            f"{waited(one.commits, 0.99) * 1e3:,.0f}",
            f"{one.interpreter:.0%}",
            f"{one.host:.0%}",
            f"{one.database:.0%}",
        )
        for workers, one in outcomes.items()
    ]
    _print_table(
        (
            "workers", "samples/s = events/s", "of ideal", "transactions/s", "events each", "lock", "wait p50, ms",
            "wait p99, ms", "interpreter", "host", "database",
        ),
        rows,
    )  # fmt: skip


def _print_bottlenecks(found: Sequence[tuple[Bottleneck, Outcome | None]]) -> None:
    print("\nBottlenecks:")
    for one, outcome in found:
        if one.workers is None or outcome is None:
            print(f"- {one.what}: not with {WORKERS[-1]} workers or fewer")
        else:
            name, busy = max(outcome.utilisations.items(), key=lambda item: item[1])
            print(f"- {one.what}: from {one.workers} workers on ({outcome.rate:,.0f} samples/s; {name}: {busy:.0%})")


def _print_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(names, *rows)]
    for row in (names, *rows):
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths)))


def _as_json(
    known: Measured,
    comparisons: Sequence[Comparison],
    outcomes: dict[int, Outcome],
    found: Sequence[tuple[Bottleneck, Outcome | None]],
) -> str:
    predictions = {
        workers: {
            "samples_per_second": one.rate,
            "transactions_per_second": len(one.commits) / one.seconds,
            "wait_p50": waited(one.commits, 0.5),
            "wait_p99": waited(one.commits, 0.99),
            "utilisations": one.utilisations,
        }
        for workers, one in outcomes.items()
    }
    report = {
        "known": dataclasses.asdict(known),
        "compared": [{**dataclasses.asdict(one), "ratio": one.ratio} for one in comparisons],
        "predicted": predictions,
        "bottlenecks": {one.what: one.workers for one, _ in found},
    }
    return json.dumps(report, indent=2)


def _options() -> tuple[Options, bool]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--runs", type=int, default=3, help="measured evaluations of each comparison")
    parser.add_argument("--samples", type=int, default=6_000, help="of an evaluation that is compared")
    parser.add_argument("--latency", type=float, default=0.1, help="of the model server, in seconds")
    parser.add_argument("--concurrency", type=int, default=32, help="samples at work at each worker")
    parser.add_argument("--host-cores", type=int, default=2, help="of each host of predicted workers")
    parser.add_argument("--workers-per-host", type=int, default=1, help="predicted workers on each host")
    parser.add_argument("--database-cores", type=int, default=2, help="of the predicted database's host")
    parser.add_argument("--seed", type=int, default=0, help="of the simulator")
    given = vars(parser.parse_args())
    as_json = given.pop("json")
    return Options(**given), as_json


async def main() -> None:
    """Measure, compare, predict and report."""
    options, as_json = _options()
    with server() as postgres:
        if postgres is None:
            print("nothing is simulated: all parameters are those of a journal in PostgreSQL", file=sys.stderr)
            return
        known = await measured(postgres, options.latency)
        if not as_json:
            print(f"{__doc__}\n{_pool_model.__doc__}")
            _print_measures(known.measures)
        comparisons = await compared(postgres, known.disturbed, options)
    if not as_json:
        _print_comparisons(comparisons, options)
    outcomes = predicted(known.undisturbed, options)
    found = list(bottlenecks(known.undisturbed, options, outcomes))
    if as_json:
        print(_as_json(known, comparisons, outcomes, found))
        return
    _print_predictions(outcomes, options)
    _print_bottlenecks(found)


if __name__ == "__main__":
    asyncio.run(main())
