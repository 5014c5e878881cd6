"""The evaluator `inspect`: results of Inspect AI tasks for a model, with every scorer and every metric.

One sample of the data set is one task. Inspect runs users' code, and one evaluation at a time per process. So each task
has a separate process, which queries the worker for every answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition, InvalidField
from crucible_bridge.problems import MAX_PROBLEM_BYTES, problem_of, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Metrics,
    ModelRef,
    Sample,
    SampleResult,
    SamplingParams,
)
from crucible_worker.backends.base import ANSWERING, Model
from crucible_worker.declared_options import Handed
from crucible_worker.evaluators.answering import KEEP_THINKING, REMOVE_THINKING
from crucible_worker.evaluators.base import NAMED, Bound, Outcome, SampleContext, model_path
from crucible_worker.evaluators.declared import BaseEvaluator
from crucible_worker.evaluators.inspect.allowed import (
    InspectAllowlist,
    TaskName,
    missing_extra,
    nothing_allowed,
    parse_task,
)
from crucible_worker.evaluators.inspect.answers import MODEL, TaskResponder
from crucible_worker.evaluators.inspect.found import not_run, outcome_of, task_metrics
from crucible_worker.evaluators.inspect.logs import LogKeeper
from crucible_worker.evaluators.inspect.process import run_in_process
from crucible_worker.grading.judge.grader import DEFAULT_JUDGE_TOKENS, JudgeRenderer, JudgeTokens, judge_of
from crucible_worker.rendering import RendererName

__all__ = ["MAX_CHOICES", "MAX_CONNECTIONS", "MAX_EPOCHS", "MAX_LIMIT", "MAX_SEED", "Inspect"]

MAX_CONNECTIONS = 1_024
"""Questions of one task that are open at once."""
MAX_EPOCHS = 1_000
"""How often a task's samples are run."""
MAX_LIMIT = 1_000_000_000
"""Samples of a task."""
MAX_CHOICES = 128
"""Answers to each question of a task that wants one."""
MAX_SEED = 2**53 - 1
"""A whole number that google.protobuf.Struct stores exactly."""
DEFAULT_TEMPERATURE, DEFAULT_MAX_TOKENS = 1.0, 1_000
"""How a model is sampled if neither the request nor the task says it."""

_LOOK_SECONDS = 1.0
"""Seconds between signs of progress of a task that waits for its turn, so that it never counts as stalled."""

GRADER = "grader"
"""The role of the model that judges answers in tasks."""
_JUDGE = "judge"
_METADATA = ("limit", "epochs", "task_args")
"""Options that a sample's metadata may set for its own task, as JSON."""


class Inspect(
    BaseEvaluator,
    kind="inspect",
    keys={
        "<task>/<scorer>/<metric>": "as the metric has it",
        "<task>/samples": "samples, epochs included",
        "<task>/errored_samples": "samples",
        "<task>/truncated_samples": "samples",
    },
    score_goal=None,  # a task's metric may be an error rate
):
    """Runs tasks of Inspect AI, one for each sample, and reports every metric of every scorer."""

    limit: Annotated[int | None, Meta(ge=1, le=MAX_LIMIT)] = None
    """Samples of each task, the first ones; all if null."""
    epochs: Annotated[int | None, Meta(ge=1, le=MAX_EPOCHS)] = None
    """How often each sample of a task is run; the task's own number if null."""
    task_args: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Arguments of tasks that accept them; a sample's metadata may set some for its own task, as JSON."""
    max_connections: Annotated[int, Meta(ge=1, le=MAX_CONNECTIONS)] = 32
    """Questions of each task that are open at once."""
    renderer: RendererName = "auto"
    thinking: Literal["remove", "keep"] = REMOVE_THINKING
    """remove: the text of an answer is without reasoning, as in `accuracy`; a task gets the reasoning as Inspect's
    ContentReasoning. keep: it stays in the text."""
    num_choices: Annotated[int | None, Meta(ge=1, le=MAX_CHOICES)] = None
    """Answers to each question, for tasks that read several; the task's own number if null."""
    seed: Annotated[int | None, Meta(ge=0, le=MAX_SEED)] = None
    """Of each answer, if a task's own steps set none. If null, seeds follow from the request's seed, the question, and
    how often it was asked."""
    metadata: Annotated[Mapping[str, str], Meta(max_length=64)] = dataclasses.field(default_factory=dict)
    """Written into Inspect's log, with the further metadata of the sample."""
    keep_log: bool = False
    """Keep Inspect's log (.eval) of each task in the worker's state directory, as long as the evaluation; the result
    names it."""
    judge: Annotated[str | None, Meta(min_length=1, examples=["openai:SERVER/MODEL", "local:PATH"])] = None
    """The model in the role of 'grader'; if null, and if the request's `models` have none, tasks judge themselves."""
    judge_max_tokens: JudgeTokens = DEFAULT_JUDGE_TOKENS
    judge_renderer: JudgeRenderer = "auto"

    inspect: Handed[InspectAllowlist | None] = None
    """The tasks that may be run. None if none may."""
    models: Handed[Mapping[str, ModelRef]] = dataclasses.field(default_factory=dict)
    """Further models of the request, by their roles and names in tasks."""
    takes_models: ClassVar[bool] = True
    """See `evaluators.base.takes_models`."""

    def __post_init__(self) -> None:
        """Refuse a judge that is not a model of this worker; without `sampling` the tasks set how the model is sampled.

        Raises:
            InvalidField: names the option.
            FailedPrecondition: a renderer needs a library that is not installed.
        """
        super().__post_init__()
        if self.judging is not None and GRADER in self.models:
            raise InvalidField(model_path(GRADER), "and the option judge name the same model: leave one of them out")

    @functools.cached_property
    def judging(self) -> ModelRef | None:
        """The model in the role of the grader."""
        return None if self.judge is None else judge_of(self.judge, "options")

    @classmethod
    def unavailable(cls) -> str:
        """What is missing on this worker, if anything."""
        return missing_extra()

    @property
    def stops_itself(self) -> bool:
        """A task may take hours: the evaluation bounds it, and its scores up to then are kept."""
        return True

    @property
    def auxiliary_models(self) -> Mapping[str, ModelRef]:
        """The judge, if there is one, and the further models of the request."""
        judge = {} if self.judging is None else {_JUDGE: self.judging}
        return judge | {f"{NAMED}{name}": model for name, model in self.models.items()}

    def check(self, model: Model) -> None:
        """Refuse a model that cannot generate, and every model if no task can be run.

        Raises:
            FailedPrecondition: Inspect is not installed (EXTRA_NOT_INSTALLED), no task is allowed here
                (NO_INSPECT_TASKS), or the model lacks a sampling client (MISSING_CLIENT).
        """
        if missing := missing_extra():
            raise FailedPrecondition(missing, reason=Reason.EXTRA_NOT_INSTALLED)
        _check_allowed(self.inspect)
        _check_client(model, "the model")

    def check_auxiliary_models(self, auxiliary_models: Mapping[str, Model]) -> None:
        """Refuse a judge or a further model that cannot generate; raises as `check` does."""
        for name, model in auxiliary_models.items():
            _check_client(model, "the judge" if name == _JUDGE else model_path(name.removeprefix(NAMED)))

    @property
    def needs_auxiliary_models(self) -> bool:
        """False: tasks without a model-based scorer do not need it."""
        return False

    def check_sample(self, sample: Sample) -> None:
        """Refuse a sample that names no task, or whose metadata has wrong options for one.

        Raises:
            InvalidField: names what is wrong.
        """
        _name_of(sample)
        self._options_of(sample)

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Run the task that a sample names, when its turn has come.

        Returns:
            MEASURED, with the task's headline metric as the score and every metric among the measurements; UNDECIDED
            if that metric has no finite value; ERROR if the task is not allowed, does not exist, did not finish,
            or every sample of it failed. A task that was stopped has the metrics of what was scored, and so has
            one that failed on its way.
            The records of the task's samples are the output, as JSON.

        Raises:
            InvalidField: the sample names no task.
            FailedPrecondition: as for `check`.
        """
        allowed, name = _check_allowed(self.inspect), _name_of(sample)
        keeper = self._keeper(context, name, sample)
        answers = TaskResponder(
            {MODEL: context.model, **context.auxiliary_models},
            {MODEL: self.renderer, **dict.fromkeys(context.auxiliary_models, self.judge_renderer)},
            seed=context.seed,
            keep_thinking=self.thinking == KEEP_THINKING,
        )

        async def answer(question: Mapping[str, Any]) -> dict[str, Any]:
            answered = await answers.answer(question)
            context.progressed()
            return answered

        def count(done: int, total: int) -> None:
            context.progressed()
            context.counted(done, total)

        try:
            order = self._order(allowed.locate(name), sample)
            async with _bounded(context) as stop, _turn(allowed.turns, stop, context):
                found = await run_in_process(
                    order,
                    answer,
                    network=allowed.network,
                    stop=stop,
                    count=count,
                    keep=_keep_nothing if keeper is None else keeper.keep,
                )
        except BridgeError as error:  # of the task or its process, not of a model: the result has the task's name
            return not_run(name.label, problem_of(error), None if keeper is None else keeper.told)
        stopped = context.bound.problem if context.bound is not None and found.get("stopped") else None
        return outcome_of(name.label, found, answers, stopped=stopped, log=None if keeper is None else keeper.told)

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """Every metric of every task, under the task's own key."""
        return task_metrics(results)

    def _order(self, task: str, sample: Sample) -> dict[str, Any]:
        options = self._options_of(sample)
        defaults = {"temperature": DEFAULT_TEMPERATURE, "max_tokens": DEFAULT_MAX_TOKENS}
        given = {name: getattr(self, name) for name in ("num_choices", "seed") if getattr(self, name) is not None}
        further = {name: value for name, value in sample.metadata.items() if name not in _METADATA}
        named = {name: f"{NAMED}{name}" for name in self.models}
        return {
            "task": task,
            "task_args": options["task_args"],
            "own_args": options["own_args"],
            "limit": options["limit"],
            "epochs": options["epochs"],
            "max_connections": self.max_connections,
            "defaults": {**defaults, **given},
            "metadata": {**further, **self.metadata},
            "config": {} if self.sampling is None else _config(self.sampling),
            "roles": named if self.judge is None else {GRADER: _JUDGE, **named},
            "names": named,
            "role_defaults": {"temperature": 0.0, "max_tokens": self.judge_max_tokens},
        }

    def _keeper(self, context: SampleContext, name: TaskName, sample: Sample) -> LogKeeper | None:
        if not self.keep_log or context.folder is None:
            return None
        return LogKeeper(context.folder, name.label, sample.id)

    def _options_of(self, sample: Sample) -> dict[str, Any]:
        own = {name: _parsed(name, sample.metadata[name]) for name in _METADATA if name in sample.metadata}
        options = {name: getattr(self, name) for name in _METADATA}
        args = own.get("task_args", {})
        return {**options, **own, "task_args": {**options["task_args"], **args}, "own_args": list(args)}


@contextlib.asynccontextmanager
async def _bounded(context: SampleContext) -> AsyncIterator[asyncio.Event]:
    """An event that is set at the bound of a sample.

    Raises:
        BridgeError: it took longer to stop than it was allowed.
    """
    stop, bound = asyncio.Event(), context.bound
    if bound is None:
        yield stop
        return
    timer = asyncio.get_running_loop().call_later(bound.seconds, stop.set)
    try:
        async with asyncio.timeout(bound.seconds + bound.wind_up_seconds):
            yield stop
    except TimeoutError:
        raise _over(bound) from None
    finally:
        timer.cancel()


@contextlib.asynccontextmanager
async def _turn(turns: asyncio.Semaphore, stop: asyncio.Event, context: SampleContext) -> AsyncIterator[None]:
    """A task's turn; other evaluations may have theirs for long, so waiting does not count as stalled.

    Raises:
        BridgeError: the sample's bound came before its turn.
    """
    waiting, stopping = asyncio.ensure_future(turns.acquire()), asyncio.ensure_future(stop.wait())
    try:
        while not waiting.done() and not stopping.done():
            context.progressed()
            await asyncio.wait({waiting, stopping}, timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done() and context.bound is not None:
            raise _over(context.bound)
        yield
    finally:
        stopping.cancel()
        if not waiting.cancel() and not waiting.cancelled():
            turns.release()


def _keep_nothing(logs: Path) -> None:
    """Keeps no log."""


def _over(bound: Bound) -> BackendError:
    return BackendError(bound.problem.message, reason=bound.problem.reason, retryable=bound.problem.retryable)


def _check_allowed(allowed: InspectAllowlist | None) -> InspectAllowlist:
    if allowed is None:
        raise nothing_allowed()
    return allowed


def _check_client(model: Model, who: str) -> None:
    if model.capabilities.isdisjoint(ANSWERING):
        raise FailedPrecondition(f"inspect needs a sampling client, which {who} lacks", reason=Reason.MISSING_CLIENT)


def _name_of(sample: Sample) -> TaskName:
    if not isinstance(sample.input, str):
        raise InvalidField("input", "is not text: each sample names a task")
    return parse_task(sample.input)


def _parsed(name: str, text: str) -> Any:
    """An option from a sample's metadata, whose values are always text."""
    field = f'metadata["{name}"]'
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidField(field, f"is not JSON: {shorten(str(error), MAX_PROBLEM_BYTES)}") from error
    if name == "task_args":
        if not isinstance(value, dict):
            raise InvalidField(field, "is not an object")
        return value
    most = MAX_LIMIT if name == "limit" else MAX_EPOCHS
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise InvalidField(field, f"is {text[:60]!r}, not a whole number from 1 to {most:,}")
    return value


def _config(sampling: SamplingParams) -> dict[str, Any]:
    """Parameters that override the task's own; stop strings only if given, as a task's are part of its form."""
    config = {"temperature": sampling.temperature, "max_tokens": sampling.max_tokens, "top_p": sampling.top_p}
    top_k = {} if sampling.top_k is None else {"top_k": sampling.top_k}
    return {**config, **top_k, **({"stop_seqs": list(sampling.stop)} if sampling.stop else {})}
