"""Random calls to two workers of one journal while random faults happen, recorded as a history.

Every choice comes from one seed. The moments at which things happen do not: a seed repeats what is done, not each race.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import glob
import json
import math
import random
import resource
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crucible_bridge.client import Bridge
from crucible_bridge.client.streams import EventStream
from crucible_bridge.errors import BridgeError
from crucible_bridge.events import Event
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Datum,
    EvaluateRequest,
    EvaluationPlan,
    EvaluationState,
    Grade,
    Limits,
    PlannedEvaluation,
    Sample,
    SampleResult,
    Verdict,
)
from tests.postgres_server import PostgresServer
from tests.robustness.evidence import bits, log_of, request
from tests.robustness.harness import LOCK_FILES, WorkerProcess, Workshop, workshop
from tests.robustness.history import FINAL, NOT_GRADED, Call, Ended, History, Reading, Reference, comparable
from tests.robustness.replicas_kit import Replica, replicas

__all__ = ["record"]

PLACES = 2
"""Workers at once; one that is killed is replaced in its place."""
CALLERS = 10
DISTURBERS = 2
"""Faults at once, at most: each at another worker, or elsewhere."""
LATENCY = 0.03
"""Of a model call, seconds."""
SAMPLES = 40
CONCURRENCY = 3
UNFINISHED = 10
"""Evaluations begun and not known to have ended, at most."""
DEADLINE_MS = 4_000
OUTAGE_SECONDS = (600.0, 2.0)
"""How long an evaluation waits for a model, in some runs: longer than each outage, or shorter."""
PATIENCE_SECONDS = 8.0
"""For a call."""
SETTLE_SECONDS = 240.0
"""After the last fault, until everything has ended."""
READ_SECONDS = 60.0
"""For the whole log, at the end."""
CALM_SECONDS = 0.05
FAULT_SECONDS = (0.2, 4.0)
"""How long a fault lasts."""
QUIET_SECONDS = (0.2, 2.5)
"""Between two faults."""
DESCRIPTORS = (3, 400)
"""Open files that a worker may have meanwhile: fewer than it has, or a few more."""
DAY = 24 * 60 * 60
CLOCKS = (-2 * DAY, 3600, 40 * DAY)
"""How far a wrong clock is ahead, seconds."""
WRONG_CLOCKS = 0.2
"""Share of the workers with a wrong clock."""
RUN = "run"
PAIRS: Sequence[tuple[str, str, Verdict]] = (
    ("1/2", "0.5", Verdict.CORRECT),
    ("(x+1)^2", "x^2+2x+1", Verdict.CORRECT),
    ("(x+1)^2", "x^2+2x+2", Verdict.INCORRECT),
    ("12", "13", Verdict.INCORRECT),
    ("3:4", "0.75", Verdict.CORRECT),
)
"""Targets, answers, and how they are graded."""


def _rows(count: int, word: str) -> list[dict[str, str]]:
    """Rows of the data file. Every third answer is wrong."""
    return [
        {
            "id": f"s{number}",
            "input": f"{word} {number}",
            "target": "no" if number % 3 == 2 else f"{word} {number}".upper(),
        }
        for number in range(count)
    ]


def _text(rows: Sequence[Mapping[str, str]]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


CONTENTS = {
    "whole": _text(_rows(SAMPLES, "question")),
    "shorter": _text(_rows(SAMPLES // 2, "question")),
    "other": _text(_rows(SAMPLES, "rewritten")),
}
"""What the data file may have; at the end each of them for a while, so that each evaluation can be resumed."""
MATH = tuple(
    Sample(id=f"m{number}", input=f"{number}/{number + 1}", targets=(f"{2 * number}/{2 * number + 2}",))
    for number in range(1, SAMPLES + 1)
)
LIMITS = Limits(concurrency=CONCURRENCY, max_unscored=0)
"""No sample may stay without a score: a result is the same whatever happened."""


def _kinds() -> dict[str, Mapping[str, Any]]:
    """The fields of the requests of each kind of evaluation."""
    return {
        "likelihood": {},
        "repeated": {"evaluators": {"pass_at_k": {"grader": "exact_match", "ks": [1, 2], "samples_per_prompt": 2}}},
        "math": {"evaluators": {"accuracy": {"grader": "math"}}, "dataset": MATH},
        "file": {"dataset": "jsonl:rows.jsonl"},
        "server": {"model": "openai:s/m", "evaluators": ["accuracy"]},
        "large": {"samples": 3 * SAMPLES, "limits": dataclasses.replace(LIMITS, concurrency=4 * CONCURRENCY)},
        "bounded": {"limits": dataclasses.replace(LIMITS, deadline_ms=DEADLINE_MS)},
    }


def _request(identity: str, kind: str, step: int, limits: Limits | None = None) -> EvaluateRequest:
    fields = {"samples": SAMPLES, "run_id": RUN, "step": step, "limits": LIMITS, **_kinds()[kind]}
    return request(identity, **(fields if limits is None else {**fields, "limits": limits}))


def _plan() -> EvaluationPlan:
    """One evaluation at each step, of the kind `likelihood`."""
    whole = request("unused", samples=SAMPLES)
    planned = PlannedEvaluation(
        evaluators=whole.evaluators, dataset=whole.dataset, sampling=whole.sampling, limits=LIMITS
    )
    return EvaluationPlan(plan_id="p", run_id="planned", eval_every=1, evaluations=(planned,))


async def _references(folder: Path, replica: Replica) -> dict[str, dict[str, Reference]]:
    """What each kind of evaluation comes to at a worker without faults, by the fingerprint of its data set."""
    folder.mkdir()
    rows = folder / "rows.jsonl"
    rows.write_text(CONTENTS["whole"])
    found: dict[str, dict[str, Reference]] = {}
    async with workshop(
        folder, {"m": {}}, data_roots=(folder,), servers={"s": replica.url}, grading_processes=2
    ) as shop:
        bridge = (await shop.start()).bridge

        async def add(kind: str, wanted: EvaluateRequest) -> None:
            ended = await bridge.evaluation.evaluate(wanted)
            assert ended.state is EvaluationState.COMPLETED, ended
            samples = comparable(await _samples(bridge, ended.evaluation_id))
            found.setdefault(kind, {})[ended.dataset_fingerprint] = Reference(
                metrics=bits(ended.metrics), samples=samples
            )

        for kind in _kinds():
            for name, text in CONTENTS.items() if kind == "file" else [("", "")]:
                if text:
                    rows.write_text(text)
                await add(kind, _request(f"{kind} {name}", kind, 0, Limits(concurrency=16)))
    return found


async def _samples(bridge: Bridge, identity: str) -> list[SampleResult]:
    return [sample async for sample in bridge.evaluation.all_samples(identity, page_size=17)]


class Traffic:
    """Callers, readers and faults. Made by `record`."""

    def __init__(
        self, shop: Workshop, rng: random.Random, history: History, replica: Replica, server: PostgresServer | None
    ) -> None:
        self._shop, self._rng, self._replica, self._server = shop, rng, replica, server
        self.history = history
        self.faults: list[str] = []
        self._places: list[WorkerProcess] = []
        self._spares: list[WorkerProcess] = []
        self._lives = [0] * PLACES
        self._busy = [asyncio.Lock() for _ in range(PLACES)]
        self._elsewhere = asyncio.Lock()
        self._wanted: dict[str, EvaluateRequest] = {}
        self._unfinished: set[str] = set()
        self._cancelled: set[str] = set()
        self._steps: set[int] = set()
        self._positions: dict[tuple[str, str], tuple[int, str | None]] = {}
        self._rows = shop.data_roots[0] / "rows.jsonl"
        self._over = asyncio.Event()
        self._restarted = asyncio.Event()
        self._faketime = next(iter(glob.glob("/usr/lib/*/faketime/libfaketime.so.1")), None)
        if self._faketime is None:
            print("libfaketime is not installed: clocks are wrong only as workers read them, not for their libraries")

    async def run(self, seconds: float) -> None:
        """Call and disturb for so long; then end the faults, and wait until everything has come to its end."""
        first = [self._launch(place) for place in range(PLACES)]
        self._spares = [self._launch(place) for place in range(PLACES)]
        self._places = [await worker.ready() for worker in first]
        async with asyncio.TaskGroup() as tasks:
            calling = [tasks.create_task(self._call()) for _ in range(CALLERS)]
            reading = [tasks.create_task(self._read(f"subscriber {number}")) for number in range(PLACES)]
            reading.append(tasks.create_task(self._watch()))
            disturbing = [tasks.create_task(self._disturb()) for _ in range(DISTURBERS)]
            await asyncio.sleep(seconds)
            self._over.set()
            await asyncio.gather(*disturbing)
            await asyncio.gather(*calling, *reading)
        await self._settle()

    # Faults.

    def _launch(self, place: int) -> WorkerProcess:
        """A worker that stands by; some have a wrong clock."""
        shop, rng = self._shop, self._rng
        if self._server is not None:
            shop.state_dir = shop.folder / f"machine-{place}"
        shop.clock_ahead_seconds, shop.environment = 0.0, {}
        if rng.random() < WRONG_CLOCKS:
            ahead = rng.choice(CLOCKS)
            if self._faketime is not None and rng.random() < 0.5:
                shop.environment = {"LD_PRELOAD": self._faketime, "FAKETIME": f"{ahead:+d}s"}
            else:
                shop.clock_ahead_seconds = ahead
        return shop.launch(standby=True)

    async def _disturb(self) -> None:
        """One fault after the other."""
        of_workers: dict[str, Callable[[int], Awaitable[None]]] = {
            "kill": self._kill,
            "drain": self._drain,
            "stop": self._stop,
            "stop and kill": self._stop_and_kill,
            "unwritable": self._unwritable,
            "no descriptors": self._no_descriptors,
            "lost locks": self._lost_locks,
        }
        elsewhere: dict[str, Callable[[], Awaitable[None]]] = {
            "data file": self._damage_file,
            "model server refuses": self._refuse,
            "model server is away": self._away,
        }
        if self._server is not None:
            elsewhere["database crash"] = self._crash_database
        while not self._over.is_set():
            await self._pause(*QUIET_SECONDS)
            name = self._rng.choice([*of_workers, *elsewhere])
            place = self._rng.randrange(PLACES)
            began = time.monotonic()
            if name in elsewhere:
                async with self._elsewhere:
                    await elsewhere[name]()
            else:
                async with self._busy[place]:
                    await of_workers[name](place)
                    if not self._places[place].alive:
                        raise AssertionError(f"a worker ended by itself:\n{self._places[place].log_tail()}")
            self.faults.append(f"{began:.3f} {time.monotonic():.3f} {name} {'' if name in elsewhere else place}")

    async def _pause(self, least: float, most: float) -> None:
        """Wait for some time, or until the faults are over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._rng.uniform(least, most)):
                await self._over.wait()

    async def _replace(self, place: int, end: Callable[[WorkerProcess], Awaitable[None]]) -> None:
        """End the worker of a place, and let the one that stands by begin there."""
        old = self._places[place]
        await end(old)
        self._lives[place] += 1
        self._places[place] = await self._spares[place].ready()
        self._spares[place] = self._launch(place)
        await old.close()

    async def _kill(self, place: int) -> None:
        async def end(worker: WorkerProcess) -> None:
            worker.kill()

        await self._replace(place, end)

    async def _drain(self, place: int) -> None:
        async def end(worker: WorkerProcess) -> None:
            worker.terminate()
            assert await worker.exit_code(30) == 0, worker.log_tail()

        await self._replace(place, end)

    async def _stop(self, place: int) -> None:
        with self._places[place].stopped():
            # Longer than a lease, now and then.
            await self._pause(0.1, 8.0)

    async def _stop_and_kill(self, place: int) -> None:
        async def end(worker: WorkerProcess) -> None:
            with worker.stopped():
                await self._pause(*FAULT_SECONDS)
                worker.kill()

        await self._replace(place, end)

    async def _unwritable(self, place: int) -> None:
        with self._places[place].unable_to_write():
            await self._pause(*FAULT_SECONDS)

    async def _no_descriptors(self, place: int) -> None:
        with self._places[place].limited(resource.RLIMIT_NOFILE, self._rng.choice(DESCRIPTORS)):
            await self._pause(*FAULT_SECONDS)

    async def _lost_locks(self, place: int) -> None:
        folder = self._shop.state_dir if self._server is None else self._shop.folder / f"machine-{place}"
        for name in self._rng.sample(LOCK_FILES, self._rng.randint(1, len(LOCK_FILES))):
            (folder / name).unlink(missing_ok=True)

    async def _damage_file(self) -> None:
        """The data file is truncated, written in two pieces, and written again as it was."""
        text = CONTENTS[self._rng.choice(list(CONTENTS))]
        await self._write_rows(text)
        await self._pause(*FAULT_SECONDS)
        await self._write_rows(CONTENTS["whole"])

    async def _write_rows(self, text: str) -> None:
        # The first piece ends within a row: it can be no data set.
        middle = text.index("\n", self._rng.randrange(len(text) - 1)) - 5
        with self._rows.open("w", buffering=1 << 20) as file:
            await self._pause(0.0, 0.3)
            file.write(text[:middle])
            file.flush()
            await self._pause(0.0, 0.3)
            file.write(text[middle:])

    async def _refuse(self) -> None:
        with self._replica.refusing():
            await self._pause(*FAULT_SECONDS)

    async def _away(self) -> None:
        self._replica.kill()
        await self._pause(*FAULT_SECONDS)
        await self._replica.start()

    async def _crash_database(self) -> None:
        assert self._server is not None
        async with contextlib.AsyncExitStack() as held:
            # A worker that starts without its database ends: its supervisor starts it again.
            for lock in self._busy:
                await held.enter_async_context(lock)
            await asyncio.to_thread(self._server.stop, self._rng.choice((signal.SIGQUIT, signal.SIGINT)))
            await self._pause(0.0, 2.0)
            await asyncio.to_thread(self._server.start)

    # Calls.

    async def _ask(
        self,
        name: str,
        subject: str,
        made: Callable[[Bridge], Awaitable[Any]],
        *,
        place: int | None = None,
        expected: Mapping[str, float] | None = None,
    ) -> Any:
        """Ask a worker, and record what came of it; None if the call was refused."""
        place = self._rng.randrange(PLACES) if place is None else place
        worker, asked = f"{place}.{self._lives[place]}", time.monotonic()
        answer, error = None, None
        try:
            answer = await made(self._places[place].bridge)
        except BridgeError as refusal:
            error = refusal
        self.history.calls.append(
            Call(
                name=name,
                worker=worker,
                subject=subject,
                asked=asked,
                answered=time.monotonic(),
                answer=answer,
                error=error,
                expected=expected or {},
            )
        )
        for evaluation in self.history.calls[-1].evaluations:
            if evaluation.state in FINAL:
                self._unfinished.discard(evaluation.evaluation_id)
        return answer

    async def _call(self) -> None:
        """One call after the other, each of a random kind."""
        calls: dict[Callable[[], Awaitable[Any]], int] = {
            self._start: 6,
            self._start_other: 1,
            self._get: 6,
            self._list: 2,
            self._get_samples: 3,
            self._cancel: 1,
            self._hold: 1,
            self._limit: 1,
            self._resume: 2,
            self._notify: 2,
            self._kl: 1,
            self._nll: 1,
            self._grade: 1,
            self._score: 1,
        }
        while not self._over.is_set():
            (made,) = self._rng.choices(list(calls), list(calls.values()))
            await made()
            await self._pause(0.0, 4 * CALM_SECONDS)

    def _anyone(self) -> str | None:
        """An evaluation, mostly one that is at work."""
        known = self._unfinished if self._unfinished and self._rng.random() < 0.7 else self.history.kinds
        return self._rng.choice(sorted(known)) if known else None

    async def _start(self) -> None:
        """Start an evaluation, or an earlier one again; wait for its end or not."""
        if len(self._unfinished) < UNFINISHED and self._rng.random() < 0.6:
            identity = f"e{len(self._wanted)}"
            kind = self._rng.choice(list(_kinds()))
            self._wanted[identity] = _request(identity, kind, len(self._wanted))
            self.history.kinds[identity] = kind
            self._unfinished.add(identity)
        elif self._wanted:
            identity = self._rng.choice(list(self._wanted)[-2 * UNFINISHED :])
        else:
            return
        wanted = self._wanted[identity]
        if self._rng.random() < 0.7:
            await self._ask(
                "start", identity, lambda b: b.evaluation.start_evaluation(wanted, timeout=PATIENCE_SECONDS)
            )
        else:
            seconds = self._rng.uniform(1, PATIENCE_SECONDS)
            await self._ask("start", identity, lambda b: b.evaluation.evaluate(wanted, timeout=seconds))

    async def _start_other(self) -> None:
        """An id that was seen is not to be had with another step."""
        seen = [one.evaluation_id for call in self.history.calls[-40:] for one in call.evaluations]
        known = [identity for identity in seen if identity in self._wanted]
        if known:
            identity = self._rng.choice(known)
            other = dataclasses.replace(self._wanted[identity], step=10_000)
            await self._ask(
                "start_other", identity, lambda b: b.evaluation.start_evaluation(other, timeout=PATIENCE_SECONDS)
            )

    async def _of_one(self, name: str, made: Callable[[Bridge, str], Awaitable[Any]]) -> None:
        if (identity := self._anyone()) is not None:
            await self._ask(name, identity, lambda b: made(b, identity))

    async def _get(self) -> None:
        await self._of_one("get", lambda b, one: b.evaluation.get_evaluation(one, timeout=PATIENCE_SECONDS))

    async def _get_samples(self) -> None:
        await self._of_one("samples", _samples)

    async def _cancel(self) -> None:
        if self._rng.random() < 0.5 and (identity := self._anyone()) is not None:
            self._cancelled.add(identity)
            await self._ask(
                "cancel", identity, lambda b: b.evaluation.cancel_evaluation(identity, timeout=PATIENCE_SECONDS)
            )

    async def _hold(self) -> None:
        await self._of_one("pause", lambda b, one: b.evaluation.pause_evaluation(one, timeout=PATIENCE_SECONDS))

    async def _limit(self) -> None:
        most = self._rng.randint(1, 2 * CONCURRENCY)
        await self._of_one(
            "concurrency",
            lambda b, one: b.evaluation.set_evaluation_concurrency(one, most, timeout=PATIENCE_SECONDS),
        )

    async def _resume(self) -> None:
        await self._of_one("resume", lambda b, one: b.evaluation.resume_evaluation(one, timeout=PATIENCE_SECONDS))

    async def _list(self) -> None:
        await self._ask("list", "", _pages)

    async def _notify(self) -> None:
        if len(self._unfinished) < UNFINISHED or not self._steps:
            step = len(self._steps)
        else:
            step = self._rng.choice(sorted(self._steps))
        await self._notify_of(step)

    async def _notify_of(self, step: int) -> None:
        if await self._ask("register", "p", lambda b: b.evaluation.register_plan(_plan(), timeout=PATIENCE_SECONDS)):
            self._steps.add(step)
            started = await self._ask(
                "notify",
                f"p {step}",
                lambda b: b.evaluation.notify_step("p", step, "embedded:m", timeout=PATIENCE_SECONDS),
            )
            for one in started or ():
                identity = one.evaluation.evaluation_id
                if identity not in self.history.kinds:
                    self.history.kinds[identity] = "likelihood"
                    self._unfinished.add(identity)

    def _numbers(self) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
        """Log-probabilities of two models, and masks."""
        lengths = [self._rng.randint(1, 20) for _ in range(5)]
        made = [[np.array([-self._rng.random() for _ in range(length)]) for length in lengths] for _ in range(2)]
        masks = [np.array([1.0, *(float(self._rng.random() < 0.5) for _ in range(n - 1))]) for n in lengths]
        return made[0], made[1], masks

    async def _kl(self) -> None:
        sampling, training, masks = self._numbers()
        data = [
            Datum(
                model_input=tuple(range(len(mask))),
                loss_fn_inputs={"logprobs": logprobs, "mask": mask, "target_tokens": np.arange(len(mask))},
            )
            for logprobs, mask in zip(sampling, masks)
        ]
        triples = [
            (float(s), float(t))
            for sampled, trained, mask in zip(sampling, training, masks)
            for s, t, m in zip(sampled, trained, mask)
            if m
        ]
        expected = {
            "optim/kl_sample_train_v1": math.fsum(s - t for s, t in triples) / len(triples),
            "optim/kl_sample_train_v2": math.fsum((s - t) ** 2 for s, t in triples) / 2 / len(triples),
            "optim/entropy": -math.fsum(s for s, _ in triples) / len(triples),
        }

        async def made(bridge: Bridge) -> dict[str, float]:
            answer = await bridge.metrics.compute_kl_sample_train(data, training, timeout=PATIENCE_SECONDS)
            return dict(answer.metrics.values)

        await self._ask("kl", "", made, expected=expected)

    async def _nll(self) -> None:
        logprobs, _, weights = self._numbers()
        pairs = [(float(v), float(w)) for values, ws in zip(logprobs, weights) for v, w in zip(values, ws)]
        nll = -math.fsum(v * w for v, w in pairs) / math.fsum(w for _, w in pairs)

        async def made(bridge: Bridge) -> dict[str, float]:
            return dict(
                (await bridge.metrics.compute_mean_nll(logprobs, weights, timeout=PATIENCE_SECONDS)).metrics.values
            )

        await self._ask("nll", "", made, expected={"nll": nll, "perplexity": math.exp(nll)})

    async def _grade(self) -> None:
        pairs = self._rng.sample(PAIRS, 3)

        async def made(bridge: Bridge) -> dict[str, float]:
            items = [(target, answer) for target, answer, _ in pairs]
            answer = await bridge.grading.grade_math(items, timeout=PATIENCE_SECONDS)
            return {str(index): _graded(grade) for index, grade in enumerate(answer.grades)}

        expected = {str(index): _number(verdict) for index, (_, _, verdict) in enumerate(pairs)}
        await self._ask("grade", "", made, expected=expected)

    async def _score(self) -> None:
        async def made(bridge: Bridge) -> dict[str, float]:
            grades = await bridge.grading.score(
                [("a", "a"), ("a", "b")],
                "exact_match",
                timeout=PATIENCE_SECONDS,  # type: ignore[arg-type]
            )
            return {str(index): _number(grade.verdict) for index, grade in enumerate(grades)}

        await self._ask("score", "", made, expected={"0": _number(Verdict.CORRECT), "1": _number(Verdict.INCORRECT)})

    # Streams.

    async def _read(self, reader: str) -> None:
        """Subscribe again and again, each time where the last stream ended."""
        while not self._over.is_set():
            await self._stream(reader, "", lambda b, after, log: b.telemetry.subscribe(after, log))
            await self._pause(0.0, 10 * CALM_SECONDS)

    async def _watch(self) -> None:
        """Watch one evaluation for a while, then another one."""
        while not self._over.is_set():
            if (identity := self._anyone()) is not None:
                await self._stream(
                    "watcher",
                    identity,
                    lambda b, after, log, one=identity: b.evaluation.watch_evaluation(one, after, log),
                )
            await self._pause(0.0, 10 * CALM_SECONDS)

    async def _stream(
        self, reader: str, identity: str, opened: Callable[[Bridge, int, str | None], EventStream]
    ) -> None:
        """Read a stream for some time, or to its end."""
        after, log_id = self._positions.get((reader, identity), (0, None))
        events: list[Event] = []
        place = self._rng.randrange(PLACES)
        stream = opened(self._places[place].bridge, after, log_id)

        async def read(_: Bridge) -> None:
            async with stream:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._rng.uniform(0.1, 5)):
                        async for event in stream:
                            events.append(event)  # noqa: PERF401 (what came before the time was over counts)

        await self._ask("watch" if identity else "subscribe", identity, read, place=place)
        self._positions[reader, identity] = (stream.through_sequence, stream.log_id)
        self.history.readings.append(
            Reading(reader=reader, evaluation_id=identity, after=after, through=stream.through_sequence, events=events)
        )

    # The end.

    async def _settle(self) -> None:
        """Repeat what began each evaluation until it has ended, and read everything at each worker."""
        deadline = time.monotonic() + SETTLE_SECONDS
        contents = list(CONTENTS.values())
        for index in range(1_000_000):
            waiting = [one for one in self.history.kinds if not await self._has_ended(one)]
            if not waiting or time.monotonic() > deadline:
                break
            self._rows.write_text(contents[index % len(contents)])
            for identity in waiting:
                await self._ask(
                    "resume",
                    identity,
                    lambda b, one=identity: b.evaluation.resume_evaluation(one, timeout=PATIENCE_SECONDS),
                )
                if (wanted := self._wanted.get(identity)) is not None:
                    await self._ask(
                        "start",
                        identity,
                        lambda b, w=wanted: b.evaluation.start_evaluation(w, timeout=PATIENCE_SECONDS),
                    )
            for step in self._steps if any(one not in self._wanted for one in waiting) else ():
                await self._notify_of(step)
            await asyncio.sleep(1.0)
        await self._read_everything()

    async def _has_ended(self, identity: str) -> bool:
        """Whether an evaluation has ended for good, or never began."""
        found = await self._ask(
            "get", identity, lambda b: b.evaluation.get_evaluation(identity, timeout=PATIENCE_SECONDS)
        )
        if found is None:
            refusal = self.history.calls[-1].error
            return refusal is not None and refusal.reason == Reason.UNKNOWN_EVALUATION
        return found.state in FINAL

    async def _read_everything(self) -> None:
        bridges = [worker.bridge for worker in self._places]
        ids = [one.evaluation_id for page in await _pages(bridges[0]) for one in page.items]
        for identity in ids:
            for place, bridge in enumerate(bridges):
                evaluation = await bridge.evaluation.get_evaluation(identity)
                samples = await _samples(bridge, identity)
                ended = Ended(worker=str(place), evaluation=evaluation, samples=samples)
                self.history.ended.setdefault(identity, []).append(ended)
        for run in {one[0].evaluation.request.run_id for one in self.history.ended.values()}:
            token = ""
            while True:
                page = await bridges[1].evaluation.list_runs(run_id=run, page_token=token)
                for checkpoint in page.checkpoints:
                    self.history.run_results.update({one.evaluation_id: one for one in checkpoint.results})
                if not (token := page.next_page_token):
                    break
        await self._catch_up()

    async def _catch_up(self) -> None:
        """Every reader to the end of what every worker shows."""
        # A worker that hears of a commit a moment later has shown less.
        end = max((one[0].evaluation.last_sequence for one in self.history.ended.values()), default=0)
        log: list[Event] = []
        async with asyncio.timeout(READ_SECONDS):
            while not log or log[-1].sequence < end:
                log = await log_of(self._places[0].bridge)
        self.history.log = log
        for reader, identity in [*self._positions]:
            if not identity:
                async with asyncio.timeout(READ_SECONDS):
                    while self._positions[reader, ""][0] < end:
                        await self._stream(
                            reader, "", lambda b, after, log: b.telemetry.subscribe(after, log, until_now=True)
                        )
        # Notes of calls may have been written since.
        self.history.log = await log_of(self._places[0].bridge)


def _graded(grade: Grade) -> float:
    """The verdict of a grade; a grader that cannot be asked now is no wrong one."""
    if grade.problem is not None and grade.problem.retryable:
        return NOT_GRADED
    return _number(grade.verdict)


def _number(verdict: Verdict) -> float:
    return float(list(Verdict).index(verdict))


async def _pages(bridge: Bridge) -> list[Any]:
    """Every page of the list of evaluations."""
    pages, token = [], ""
    while True:
        page = await bridge.evaluation.list_evaluations(page_size=7, page_token=token, timeout=PATIENCE_SECONDS)
        pages.append(page)
        if not (token := page.next_page_token):
            return pages


@contextlib.asynccontextmanager
async def _replica(folder: Path) -> AsyncIterator[Replica]:
    async with replicas(folder, LATENCY) as (replica,):
        yield replica


async def record(folder: Path, seed: int, seconds: float, server: PostgresServer | None = None) -> History:
    """Record a history.

    Args:
        folder: for all files.
        seed: of every choice.
        seconds: how long faults happen; the end takes longer.
        server: of a journal in PostgreSQL; the journal is in SQLite if None.
    """
    rng = random.Random(seed)
    data = folder / "data"
    data.mkdir()
    (data / "rows.jsonl").write_text(CONTENTS["whole"])
    async with _replica(folder) as replica:
        history = History(references=await _references(folder / "undisturbed", replica))
        async with workshop(
            folder,
            {"m": {"latency": LATENCY}},
            data_roots=(data,),
            servers={"s": replica.url},
            journal=None if server is None else server.new_database(),
            resume_interrupted=rng.random() < 0.5,
            grading_processes=2,
            limits={"outage_seconds": rng.choice(OUTAGE_SECONDS)},
            seconds=seconds + SETTLE_SECONDS + 120,
        ) as shop:
            traffic = Traffic(shop, rng, history, replica, server)
            try:
                await traffic.run(seconds)
            finally:
                history.write(folder / "history.txt")
                (folder / "faults.txt").write_text("\n".join(traffic.faults))
    return history
