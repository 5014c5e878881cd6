"""Rewards for trainers: a grader as a function that every trainer can call.

    from crucible_bridge.rewards import math_reward

    trainer = GRPOTrainer(model, reward_funcs=[math_reward], train_dataset=data)

One object serves TRL, verl, OpenRLHF, AReaL, verifiers and others (`calls` has their forms), in any thread, event loop,
fork or Ray actor. Grading runs in killable processes: in a pool of this process, or at workers (`address`). A text that
hangs costs its own limit. What cannot be decided is None, never 0 without a word.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal

from crucible_bridge.errors import InvalidField
from crucible_bridge.rewards.calls import Call, Form, Graded, counts_of, read_call, texts_of
from crucible_bridge.rewards.process import BY_ADDRESS, IN_CHILDREN, GradingProcess, grades_of, shared

__all__ = [
    "DEFAULT_PATIENCE_SECONDS",
    "Graded",
    "Reward",
    "RewardCounts",
    "Undecided",
    "answer_reward",
    "code_reward",
    "format_reward",
    "math_reward",
]

DEFAULT_PATIENCE_SECONDS = 600.0
"""How long workers at an address may be gone or full before a reward raises."""
CHUNK_ITEMS, CHUNK_CHARS = 256, 4_000_000
"""Most responses that are sent together, and the most of their characters; one may have more."""
LOG_SECONDS = 60.0
"""Between two lines of the log about responses that are graded one by one."""

# A response of more bytes is judged by its length alone: the rest need not be sent.
_MAX_RESPONSE_CHARS = 1_000_001

_log = logging.getLogger("crucible_bridge.rewards")


class Undecided(Exception):
    """A response is undecided, or an error, and the reward has undecided="raise".

    Attributes:
        graded: its result.
    """

    def __init__(self, graded: Graded) -> None:
        super().__init__(f"{graded.verdict}: {graded.reason}")
        self.graded = graded

    def __reduce__(self) -> tuple[type[Undecided], tuple[Graded]]:
        return Undecided, (self.graded,)


class RewardCounts:
    """How many responses a reward has graded in this process, and how many have no score; logged once a step."""

    def __init__(self) -> None:
        self._begin()

    def __reduce__(self) -> tuple[type[RewardCounts], tuple[()]]:
        return RewardCounts, ()

    @property
    def total(self) -> Mapping[str, int]:
        """The numbers of `graded`, `undecided`, `timeouts` (undecided at a limit of time) and `errors`."""
        return dict(self._total)

    def add(self, name: str, grades: Sequence[Graded], *, step: bool) -> None:
        """Count grades, and log what has no score: of a step at once, of single responses once a minute."""
        if self._pid != os.getpid():  # the parent of a fork may have held the lock
            self._begin()
        numbers = {"graded": len(grades), **counts_of(grades)}
        now = time.monotonic()
        with self._lock:
            for kind, number in numbers.items():
                self._total[kind] += number
                self._unlogged[kind] += number
            logged = dict(self._unlogged)
            if (not step and now < self._logged + LOG_SECONDS) or not logged["undecided"] + logged["errors"]:
                return
            self._logged, self._unlogged = now, dict.fromkeys(numbers, 0)
        reasons = [grade.reason for grade in grades if grade.score is None]
        _log.warning(
            "%s: %d responses, %d undecided (%d of them at a limit of time), %d errors%s",
            *(name, logged["graded"], logged["undecided"], logged["timeouts"], logged["errors"]),
            f"; the last: {reasons[-1]}" if reasons else "",
        )

    def _begin(self) -> None:
        self._pid, self._lock, self._logged = os.getpid(), threading.Lock(), -math.inf
        self._total = {"graded": 0, **counts_of(())}
        self._unlogged = dict(self._total)


@dataclasses.dataclass(frozen=True, eq=False)
class Reward:
    """A grader as a reward function; `calls` has the forms in which trainers call it.

    Raises:
        InvalidField: an argument cannot be used. What only the grader knows, such as its options, is checked by
            `start`, or by the first call.
    """

    grader: str = "math"
    """The name of a grader: `crucible-worker graders` lists them."""
    options: Mapping[str, Any] | None = None
    """Its options."""
    _: dataclasses.KW_ONLY
    undecided: float | Literal["raise"] | None = None
    """The reward of a response without a score, undecided or an error; "raise" raises `Undecided`. TRL leaves out a
    None. For trainers that take only numbers, None is refused at the first call, so that nothing becomes 0 silently."""
    scale: float | tuple[float, float] = 1.0
    """The reward of a score of 1; or the rewards of the scores 0 and 1."""
    target: str = ""
    """The column with the right answers, or the tests; if empty, the one that has a usual name."""
    details: bool = False
    """Whether the trainer also gets verdict, method, reason and extracted answer, where it has a place for them."""
    address: str | Sequence[str] | None = None
    """The workers that grade, as `crucible_bridge.connect` takes them; None for a pool of this process."""
    token: str | None = None
    """Of the workers."""
    tls: str | Mapping[str, str] | None = None
    """The path of their authority's certificate, or the fields of `crucible_bridge.Tls`; plain text if None."""
    patience: float = DEFAULT_PATIENCE_SECONDS
    """Seconds for which workers may be gone or full."""
    processes: int | None = None
    """Processes of the pool; one a core, 2 to 4, if None."""
    name: str = ""
    """Its name at the trainer; made of the grader's name if empty."""
    counts: RewardCounts = dataclasses.field(default_factory=RewardCounts, init=False, repr=False)
    """What this object has graded in this process."""

    def __post_init__(self) -> None:
        """Check what needs no grader."""
        if self.undecided not in (None, "raise") and not _is_number(self.undecided):
            raise InvalidField("undecided", f'is {self.undecided!r}, must be None, a number or "raise"')
        if not all(map(_is_number, self._bounds)) or len(self._bounds) != 2:
            raise InvalidField("scale", f"is {self.scale!r}, must be a number, or two: of the scores 0 and 1")
        try:
            json.dumps(self._options)
        except (TypeError, ValueError) as error:
            raise InvalidField("options", f"cannot be written as JSON: {error}") from None
        if not self.name:
            object.__setattr__(self, "name", f"{self.grader}_reward")

    @property
    def __name__(self) -> str:
        """Its name, as functions have one."""
        return self.name

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Grade what a trainer passes; returns what it expects, to verifiers something to await.

        verl's `reward_kwargs` may have fields of the reward.

        Raises:
            TypeError: no known trainer calls like this.
            InvalidField: an option is wrong, no column has the targets, or `undecided` is None and must be a number.
            Undecided: a response has no score, and `undecided` is "raise".
            BridgeError: nothing can be graded: no process starts, or no worker answers in time.
        """
        if not named.keys().isdisjoint(("solution_str", "solution_strs")) and (changes := _FIELDS & named.keys()):
            changed = dataclasses.replace(self, **{name: named.pop(name) for name in changes})
            object.__setattr__(changed, "counts", self.counts)
            return changed(*given, **named)
        call = read_call(Form(self.name, self.target, self.grader, self.details), given, named)
        if call.trainer and self.undecided is None:
            refused = InvalidField(
                "undecided",
                f"is None, and {call.trainer} takes only numbers: give {self.name} one for responses without a score, "
                'undecided=0.0 for instance, or undecided="raise"',
            )
            _log.error("%s", refused)  # some trainers catch what a reward raises
            raise refused
        if call.awaited:
            return self._awaited(call)
        return self._finished(call, self.grade(call.responses, call.targets, call.choices, step=not call.single))

    def start(self) -> None:
        """Start the processes that grade, and check the options; otherwise the first call does it, and takes seconds.

        Raises:
            BridgeError: as of a call.
        """
        grades_of(self._process.ask(self._request(())).result())

    def grade(
        self, responses: Sequence[str], targets: Sequence[Any], choices: Sequence[Any] = (), *, step: bool = True
    ) -> list[Graded]:
        """The results for responses, in order.

        Args:
            responses: what a model answered.
            targets: of each response a right answer, or several of which any is right; of a program its tests.
            choices: of each response, for the grader multiple_choice.
            step: these are all responses of a step, which is logged.

        Raises:
            InvalidField: an option is wrong, or a target is neither text nor a number.
            BridgeError: nothing can be graded: no process starts, or no worker answers in time.
        """
        return self._graded([answer.result() for answer in self._sent(responses, targets, choices)], step=step)

    async def grade_async(
        self, responses: Sequence[str], targets: Sequence[Any], choices: Sequence[Any] = (), *, step: bool = True
    ) -> list[Graded]:
        """Like `grade`, without blocking the event loop."""
        import asyncio  # 60 ms of the import, which most trainers have anyway

        answers = [asyncio.wrap_future(answer) for answer in self._sent(responses, targets, choices)]
        return self._graded(await asyncio.gather(*answers), step=step)

    async def score(self, response: str, target: Any, choices: Sequence[str] = ()) -> float | None:
        """The reward of one response, without blocking the event loop; raises as a call does."""
        (graded,) = await self.grade_async([response], [target], [choices] if choices else (), step=False)
        return self.reward_of(graded)

    def reward_of(self, graded: Graded) -> float | None:
        """The reward of a result.

        Raises:
            Undecided: it has no score, and `undecided` is "raise".
        """
        if graded.score is None:
            if self.undecided == "raise":
                raise Undecided(graded)
            return self.undecided
        wrong, right = self._bounds
        return wrong + (right - wrong) * graded.score

    @property
    def _bounds(self) -> Sequence[float]:
        return self.scale if isinstance(self.scale, Sequence) else (0.0, self.scale)

    @property
    def _options(self) -> dict[str, Any]:
        return dict(self.options or {})

    @property
    def _process(self) -> GradingProcess:
        if self.address is None:
            return shared(IN_CHILDREN, {"processes": self.processes})
        address = self.address if isinstance(self.address, str) else list(self.address)
        settings = {"address": address, "token": self.token, "tls": self.tls, "patience": self.patience}
        return shared(BY_ADDRESS, settings)

    def _request(self, items: Sequence[Any]) -> dict[str, Any]:
        return {"grader": self.grader, "options": self._options, "items": items}

    def _sent(self, responses: Sequence[str], targets: Sequence[Any], choices: Sequence[Any]) -> list[Future[bytes]]:
        if len(responses) != len(targets) or (choices and len(choices) != len(responses)):
            raise InvalidField(
                "targets", f"are {len(targets)}, and choices {len(choices)}, of {len(responses)} responses"
            )
        tests = self.grader == "code"
        items = [
            (response[:_MAX_RESPONSE_CHARS], texts_of(target, tests=tests), texts_of(options, tests=False))
            for response, target, options in zip(responses, targets, choices or ((),) * len(responses))
        ]
        process = self._process
        return [process.ask(self._request(chunk)) for chunk in _chunks(items)]

    def _graded(self, answers: Sequence[bytes], *, step: bool) -> list[Graded]:
        grades = [Graded(*grade) for answer in answers for grade in grades_of(answer)]
        self.counts.add(self.name, grades, step=step)
        return grades

    async def _awaited(self, call: Call) -> Any:
        grades = await self.grade_async(call.responses, call.targets, call.choices, step=not call.single)
        return self._finished(call, grades)

    def _finished(self, call: Call, grades: Sequence[Graded]) -> Any:
        return call.result([self.reward_of(grade) for grade in grades], grades)


_FIELDS = frozenset(field.name for field in dataclasses.fields(Reward) if field.init)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _chunks(items: Sequence[tuple[str, Any, Any]]) -> Iterator[Sequence[tuple[str, Any, Any]]]:
    start = chars = 0
    for place, (response, _, _) in enumerate(items):
        if place - start == CHUNK_ITEMS or (chars and chars + len(response) > CHUNK_CHARS):
            yield items[start:place]
            start, chars = place, 0
        chars += len(response)
    if items:
        yield items[start:]


math_reward = Reward("math")
"""Whether the answer in a response equals a right answer, as mathematics."""
code_reward = Reward("code")
"""Whether the program in a response passes its tests, in a sandbox."""
format_reward = Reward("format")
"""Whether a response has a boxed answer."""


def answer_reward(grader: str, options: Mapping[str, Any] | None = None, **fields: Any) -> Reward:
    """The reward of a grader of answers, such as numeric, exact_match or multiple_choice.

    Args:
        grader: its name.
        options: its options.
        **fields: other fields of `Reward`.
    """
    return Reward(grader, options, **fields)
