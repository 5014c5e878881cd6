"""The evaluator `inspect`: results of Inspect AI tasks for a model, with every scorer and every metric.

One sample of the data set is one task. Inspect runs users' code, and one evaluation at a time per process. So each task
has a separate process, which queries the worker for every answer.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition, InvalidField
from crucible_bridge.problems import MAX_PROBLEM_BYTES, problem_of, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Metrics,
    ModelRef,
    Problem,
    Sample,
    SampleResult,
    SamplingParams,
    Verdict,
)
from crucible_worker.backends.base import ANSWERING, Model
from crucible_worker.backends.metering import known_sum
from crucible_worker.evaluators.answering import KEEP_THINKING, REMOVE_THINKING, TRUNCATED_REASONING
from crucible_worker.evaluators.base import NAMED, Bound, Outcome, SampleContext, model_path
from crucible_worker.evaluators.declared import BaseEvaluator
from crucible_worker.evaluators.inspect.allowed import (
    InspectAllowlist,
    TaskName,
    missing_extra,
    nothing_allowed,
    parse_task,
)
from crucible_worker.evaluators.inspect.files import LogKeeper
from crucible_worker.evaluators.inspect.process import run_in_process
from crucible_worker.grading.judge.grader import DEFAULT_JUDGE_TOKENS, JudgeRenderer, JudgeTokens, judge_of
from crucible_worker.rendering import Finished, RendererName, answer_of, ask
from crucible_worker.util.options import Handed, checked_options, schema_of, values_of

__all__ = [
    "COUNTS",
    "MAX_CHOICES",
    "MAX_CONNECTIONS",
    "MAX_EPOCHS",
    "MAX_LIMIT",
    "MAX_METRICS",
    "MAX_SEED",
    "MODEL",
    "Inspect",
    "TaskResponder",
    "not_run",
    "outcome_of",
    "task_metrics",
]

# The worker's side of a task's questions: each becomes a call of a model, and its result the task's answer.

MODEL = "model"
"""A task's name for the evaluated model."""

_SURROGATES = re.compile("[\ud800-\udfff]")
_SEEDS = 1 << 63
"""Seeds that models take, from 0; those of Inspect may be negative."""


class TaskResponder:
    """Answers the questions of one task.

    Args:
        models: the models, by the task's names for them.
        renderers: the renderer of each, by the same names.
        seed: of the task's sample.
        keep_thinking: whether reasoning stays in the text of an answer; otherwise it is returned separately.
    """

    def __init__(
        self, models: Mapping[str, Model], renderers: Mapping[str, str], *, seed: int, keep_thinking: bool
    ) -> None:
        self._models, self._renderers, self._seed, self._keep_thinking = models, renderers, seed, keep_thinking
        self._asked: collections.Counter[bytes] = collections.Counter()
        self.output_tokens: int | None = 0
        """Tokens generated so far by all models together."""
        self.unfinished = 0
        """Answers of the evaluated model that end within their reasoning."""
        self.stop_reason = ""
        """"length" if an answer was truncated, else that of the first one; empty without an answer, or if its server
        reports none."""
        self.first_problem: Problem | None = None
        """The problem of the first question without an answer."""

    async def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a question: `choices`, or an `error` that names its reason."""
        try:
            choices = await self._sampled(question)
        except BridgeError as error:
            problem = problem_of(error)
            if self.first_problem is None:
                self.first_problem = problem
            return {"error": f"{problem.reason}: {problem.message}"}
        which = question["which"]
        if which == MODEL:
            self.unfinished += sum(choice.unfinished for choice in choices)
        return {"choices": [self._choice(choice, self._renderers[which]) for choice in choices]}

    async def _sampled(self, question: Mapping[str, Any]) -> list[Finished]:
        which, count = question["which"], question["sampling"]["count"]
        messages = tuple(ChatMessage(role, content) for role, content in question["messages"])
        # A single user message becomes text, because a model without a chat template accepts that.
        plain = len(messages) == 1 and messages[0].role == "user"
        asked = await ask(
            self._models[which],
            messages[0].content if plain else Conversation(messages),
            self._params(question),
            count,
            renderer=self._renderers[which],
        )
        if len(asked.answers) != count:
            message = f"was asked for {count} answers and gave {len(asked.answers)}"
            raise BackendError(message, reason=Reason.BACKEND_ANSWER, retryable=False)
        return list(asked.answers)

    def _params(self, question: Mapping[str, Any]) -> SamplingParams:
        given = question["sampling"]
        temperature = float(given["temperature"])
        seed = None if given["seed"] is None else given["seed"] % _SEEDS
        return SamplingParams(
            max_tokens=given["max_tokens"],
            temperature=temperature,
            top_p=1.0 if given["top_p"] is None else float(given["top_p"]),
            top_k=given["top_k"],
            stop=tuple(given["stop"]),
            # A seed of the task is used, as with every provider of Inspect.
            seed=self._drawn(question) if seed is None and temperature > 0 else seed,
        )

    def _drawn(self, question: Mapping[str, Any]) -> int:
        """A seed from the question and how often it was asked before: epochs differ, and another run repeats it."""
        text = json.dumps([self._seed, question["which"], question["messages"], question["sampling"]])
        digest = hashlib.sha256(text.encode()).digest()
        self._asked[digest] += 1
        drawn = hashlib.sha256(digest + self._asked[digest].to_bytes(8, "big")).digest()
        return int.from_bytes(drawn[:8], "big") >> 1

    def _choice(self, found: Finished, renderer: str) -> dict[str, Any]:
        choice = found.sequence
        cut = choice.stop_reason == "length"
        self.stop_reason = "length" if cut else self.stop_reason or choice.stop_reason
        self.output_tokens = known_sum((self.output_tokens, choice.output_tokens))
        reasoning, said = ("", found.whole) if self._keep_thinking else (choice.reasoning, found.answer)
        text = answer_of(_SURROGATES.sub("\ufffd", said), renderer)
        reasoning = _SURROGATES.sub("\ufffd", reasoning)
        told = {"text": text, "cut": cut, "ended": choice.stop_reason, "tokens": choice.output_tokens}
        return {**told, "reasoning": reasoning} if reasoning else told


# The findings of a task as the result of a sample, and the metrics of all tasks.

COUNTS = ("samples", "errored_samples", "truncated_samples")
"""The counts of each task, by the names of their keys."""
MAX_METRICS = 1_000
"""Metrics of one task, all scorers together."""

_UNDEFINED = "undefined"
"""The suffix of a measurement that says that its metric has no value."""
_MAX_PART_BYTES = 200


def outcome_of(
    label: str,
    message: Mapping[str, Any],
    answers: TaskResponder,
    *,
    stopped: Problem | None = None,
    log: Mapping[str, str] | None = None,
) -> Outcome:
    """The result of a sample whose task has ended.

    Args:
        label: the task's name.
        message: the last message of its process.
        answers: the answers that it received.
        stopped: why it was stopped, if it was; scores up to then are kept, under an ERROR.
        log: entries about its log.
    """
    log = log or {}
    if message["op"] == "failed":
        if stopped is not None:
            return not_run(label, stopped, log)
        return not_run(label, _failed(message["message"]), log)
    measurements: dict[str, float] = {key: float(message[key.partition("_")[0]]) for key in COUNTS}
    if (count := _count(message["scores"])) > MAX_METRICS:
        text = f"the task has {count:,} metrics, at most {MAX_METRICS:,} are recorded"
        problem = Problem(reason=Reason.TOO_MANY_METRICS, message=text)
        return Outcome(verdict=Verdict.ERROR, method=label, problem=problem, measurements=measurements)
    named = _named(message["scores"])
    for key, (_, value) in named.items():
        measurements[key if value is not None else f"{key}/{_UNDEFINED}"] = 1.0 if value is None else value
    if answers.unfinished:
        measurements[TRUNCATED_REASONING] = float(answers.unfinished)
    headline = next((key for key, (place, _) in named.items() if place == message["headline"]), "")
    score = named[headline][1] if headline else None
    failure = message.get("failure", "")
    problem = stopped or (_failed(failure) if failure else _problem(message, headline, score, answers))
    output = {"samples": message["records"], "left_out": message["records_left_out"], **log}
    return Outcome(
        verdict=_verdict(problem),
        score=score if problem is None else None,
        output=json.dumps({**output, "failure": failure} if failure else output),
        extracted=headline,
        method=label,
        stop_reason=answers.stop_reason,
        output_tokens=answers.output_tokens,
        problem=problem,
        measurements=measurements,
    )


def not_run(label: str, problem: Problem, log: Mapping[str, str] | None = None) -> Outcome:
    """The result of a sample whose task did not finish, with entries about its log."""
    return Outcome(verdict=Verdict.ERROR, method=label, problem=problem, output=json.dumps(dict(log)) if log else "")


def task_metrics(results: Iterable[SampleResult]) -> Metrics:
    """Metrics of all tasks, each after the name of its task.

    If two samples are one task, the sample's id follows it, in brackets. A task that ended before it had a name has
    only the sample's id. Ids that would be equal as parts of a key are numbered.
    """
    found = [(result.method or _part(result.sample_id), result) for result in results]
    names = collections.Counter(label for label, _ in found)
    values: dict[str, float] = {}
    undefined: dict[str, str] = {}
    keys = _Keys()
    for label, result in found:
        task = keys.unused(label if names[label] == 1 else f"{label}[{_part(result.sample_id)}]")
        for name in COUNTS:
            if name not in result.measurements:
                undefined[f"{task}/{name}"] = _why_not_run(result)
        for name, value in result.measurements.items():
            if name == TRUNCATED_REASONING:
                continue  # a count of the evaluator's result, no metric
            if name.count("/") == 2:
                key = f"{task}/{name.removesuffix(f'/{_UNDEFINED}')}"
                undefined[key] = "is not finite, or no sample has such a score"
            else:
                values[f"{task}/{name}"] = value
    return Metrics.of(values, undefined)


def _count(scores: Sequence[Mapping[str, Any]]) -> int:
    """Metrics of all scorers, with the counts of samples without a score."""
    return sum(len(score["metrics"]) + bool(score["unscored"]) for score in scores)


def _named(scores: Sequence[Mapping[str, Any]]) -> dict[str, tuple[list[Any], float | None]]:
    """Every metric by its key, with its place in the log, and its value if it has one."""
    keys = _Keys()
    views = collections.Counter(score["scorer"] for score in scores)
    named: dict[str, tuple[list[Any], float | None]] = {}
    for score in scores:
        scorer = _part(score["scorer"])
        if views[score["scorer"]] > 1:
            # One scorer may occur several times: with several reducers of epochs, or with none.
            scorer = f"{scorer}[{_part(score['reducer'] or 'all')}]"
        for metric, value in score["metrics"].items():
            place = [score["scorer"], score["reducer"], metric]
            named[keys.unused(f"{scorer}/{_part(metric)}")] = (place, value)
        if score["unscored"]:
            key = keys.unused(f"{scorer}/unscored_samples")
            named[key] = ([score["scorer"], score["reducer"], None], float(score["unscored"]))
    return named


class _Keys:
    """Unique keys; one that is taken gets a number after it, the first free one."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def unused(self, key: str) -> str:
        """The key, or a free one made from it."""
        free = key
        if key in self._taken:
            number = self._next.get(key, 2)
            while (free := f"{key}#{number}") in self._taken:
                number += 1
            self._next[key] = number + 1
        self._taken.add(free)
        return free


def _part(text: str) -> str:
    """A name as a part of a key, without slashes, which would split it."""
    return shorten(text.replace("/", "."), _MAX_PART_BYTES) or "unnamed"


def _problem(message: Mapping[str, Any], headline: str, score: float | None, answers: TaskResponder) -> Problem | None:
    if message["errored"] and message["errored"] >= message["samples"]:
        text = f"every sample of the task failed, the first with: {message['first_error']}"
        first = answers.first_problem
        return Problem(
            reason=Reason.INSPECT_SAMPLES_FAILED if first is None else first.reason,
            message=shorten(text, MAX_PROBLEM_BYTES),
            retryable=first is not None and first.retryable,
        )
    if score is not None:
        return None
    text = f"{headline} has no finite value" if headline else "the task has no scorer"
    return Problem(reason=Reason.UNDECIDED, message=text)


def _failed(message: str) -> Problem:
    return Problem(reason=Reason.INSPECT_FAILED, message=shorten(message, MAX_PROBLEM_BYTES))


def _verdict(problem: Problem | None) -> Verdict:
    if problem is None:
        return Verdict.MEASURED
    return Verdict.UNDECIDED if problem.reason == Reason.UNDECIDED else Verdict.ERROR


def _why_not_run(result: SampleResult) -> str:
    if result.problem is None:
        return "the task did not finish"
    return f"the task did not finish: {result.problem.reason}"


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
        read = {name: _parsed(name, sample.metadata[name]) for name in _METADATA if name in sample.metadata}
        checked = values_of(type(self), checked_options(read, schema_of(type(self)), "metadata")) if read else {}
        own = {name: checked[name] for name in read}
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
    killed = asyncio.timeout(None)
    watching = asyncio.create_task(_watch(bound, stop, killed))
    try:
        async with killed:
            yield stop
    except TimeoutError:
        raise _over(bound) from None
    finally:
        watching.cancel()


async def _watch(bound: Bound, stop: asyncio.Event, killed: asyncio.Timeout) -> None:
    """Request a stop at a bound, and end the block some time later."""
    await _passed(bound.clock, bound.seconds)
    stop.set()
    await _passed(bound.clock, bound.wind_up_seconds)
    killed.reschedule(asyncio.get_running_loop().time())


async def _passed(clock: Callable[[], float], seconds: float) -> None:
    """Wait until so much time has passed by a clock, which stands still in pauses."""
    ends = clock() + seconds
    while True:
        if (left := ends - clock()) <= 0:
            return
        await asyncio.sleep(min(left, _LOOK_SECONDS))


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
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidField(field, f"is not JSON: {shorten(str(error), MAX_PROBLEM_BYTES)}") from error


def _config(sampling: SamplingParams) -> dict[str, Any]:
    """Parameters that override the task's own; stop strings only if given, as a task's are part of its form."""
    config = {"temperature": sampling.temperature, "max_tokens": sampling.max_tokens, "top_p": sampling.top_p}
    top_k = {} if sampling.top_k is None else {"top_k": sampling.top_k}
    return {**config, **top_k, **({"stop_seqs": list(sampling.stop)} if sampling.stop else {})}
