"""An Inspect task from its order to its findings: its models, its progress, and its log.

Errors of its code are reported, not raised.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from inspect_ai import eval_async  # pyright: ignore[reportMissingImports]
from inspect_ai._util.registry import (  # pyright: ignore[reportMissingImports]
    RegistryInfo,
    registry_add,
    registry_find,
    registry_info,
)
from inspect_ai.hooks import (  # pyright: ignore[reportMissingImports]
    Hooks,
    SampleEnd,  # pyright: ignore[reportMissingImports]
    TaskStart,
    hooks,
)
from inspect_ai.log import (  # pyright: ignore[reportMissingImports]  # pyright: ignore[reportMissingImports]
    EvalLog,
    EvalResults,
    EvalSample,
    EvalScore,
    EvalSpec,  # pyright: ignore[reportMissingImports]
    read_eval_log,
    recompute_metrics,
)
from inspect_ai.model import (  # pyright: ignore[reportMissingImports]  # pyright: ignore[reportMissingImports]  # pyright: ignore[reportMissingImports]
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    Content,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    Model,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    modelapi,
)

from crucible_worker.evaluators.inspect.host.line import WorkerClient
from crucible_worker.evaluators.inspect.host.parameters import refused

__all__ = [
    "MAX_RECORDS_BYTES",
    "OWN",
    "CannotAsk",
    "WorkerModel",
    "count_questions",
    "findings",
    "name_models",
    "run_task",
]

# The worker's model for Inspect: a model API that requests every answer from the worker.

OWN = "crucible"
"""The name of the worker's provider of models in Inspect."""
_STOP_REASONS = {"stop": "stop", "length": "max_tokens"}
"""Inspect's names; any other reason is "unknown" there."""


class CannotAsk(Exception):
    """The worker's model does not support this question, or did not answer; ends the sample."""

    def __repr__(self) -> str:
        # The text that Inspect shows.
        return str(self)


@modelapi(name=OWN)
class WorkerModel(ModelAPI):
    """One of the worker's models.

    Args:
        line: the connection to the worker.
        which: the worker's name of the model.
        name: the task's name of it.
        defaults: how it is sampled if the task does not say it.
    """

    def __init__(self, line: WorkerClient, which: str, name: str, defaults: Mapping[str, Any]) -> None:
        super().__init__(name)
        self._line, self._which, self._defaults = line, which, defaults

    def auto_reasoning_history(self) -> Literal["none"]:
        """The worker's models get the text of earlier answers."""
        return "none"

    async def generate(
        self, input: list[ChatMessage], tools: list[Any], tool_choice: Any, config: GenerateConfig
    ) -> ModelOutput:
        """Query the worker, which counts, limits and retries calls as for every evaluator.

        Raises:
            CannotAsk: with the worker's reason, or because of tools, pictures or a parameter that it does not know; or
                the task is refused.
        """
        if self._line.refused:
            raise CannotAsk(self._line.refused)
        _check_tools(tools)
        if (name := refused(config)) is not None:
            raise CannotAsk(f"PARAMETER_UNSUPPORTED: the task asks for {name}, which the worker's models lack")
        messages = [(message.role, _text(message)) for message in input]
        asked = time.monotonic()
        try:
            sampling = _sampling(config, self._defaults)
            answer = await self._line.ask(which=self._which, messages=messages, sampling=sampling)
        except ValueError as error:
            raise CannotAsk(f"PROMPT_TOO_LONG: {error}") from error
        if (error := answer.get("error")) is not None:
            raise CannotAsk(error)
        counts = [choice["tokens"] for choice in answer["choices"]]
        tokens = None if None in counts else sum(counts)
        return ModelOutput(
            model=self.model_name,
            choices=[
                ChatCompletionChoice(
                    message=ChatMessageAssistant(content=_content(choice), model=self.model_name, source="generate"),
                    stop_reason=_STOP_REASONS.get(choice["ended"], "unknown"),
                )
                for choice in answer["choices"]
            ],
            time=time.monotonic() - asked,
            usage=None if tokens is None else ModelUsage(output_tokens=tokens, total_tokens=tokens),
        )


def _sampling(config: GenerateConfig, defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "max_tokens": defaults["max_tokens"] if config.max_tokens is None else config.max_tokens,
        "temperature": defaults["temperature"] if config.temperature is None else config.temperature,
        "top_p": config.top_p,
        "top_k": config.top_k,
        "stop": config.stop_seqs or [],
        "seed": config.seed,
        "count": config.num_choices or 1,
    }


def _content(choice: Mapping[str, Any]) -> str | list[Content]:
    """The content for a task: a text, or reasoning and a text; scorers read only the text."""
    if not choice.get("reasoning"):
        return choice["text"]
    return [ContentReasoning(reasoning=choice["reasoning"]), ContentText(text=choice["text"])]


def _check_tools(tools: Sequence[Any]) -> None:
    if tools:
        raise CannotAsk("TOOLS_UNSUPPORTED: the task has tools, and the worker's models cannot call them")


def _text(message: ChatMessage) -> str:
    if isinstance(message, ChatMessageTool) or getattr(message, "tool_calls", None):
        raise CannotAsk("TOOLS_UNSUPPORTED: there are calls of tools, and the worker's models cannot call them")
    if isinstance(message.content, str):
        return message.content
    for part in message.content:
        if not isinstance(part, ContentText | ContentReasoning):
            raise CannotAsk(f"CONTENT_UNSUPPORTED: a message holds content of type {part.type}, only text is accepted")
    return "\n".join(part.text for part in message.content if isinstance(part, ContentText))


# Progress of a task: the worker is notified of every question that has ended, scored or failed.


def count_questions(line: WorkerClient) -> None:
    """From now on, report to the worker how many questions of the task are done, counting each epoch."""

    # Inspect creates the only instance, so the line comes from this scope.
    @hooks(name="crucible_questions", description="Tells the worker how many questions are done.")
    class _Counting(Hooks):
        def __init__(self) -> None:
            self._done, self._total = 0, 0

        async def on_task_start(self, data: TaskStart) -> None:
            dataset, epochs = data.spec.dataset, data.spec.config.epochs or 1
            questions = dataset.samples or 0 if dataset.sample_ids is None else len(dataset.sample_ids)
            self._done, self._total = 0, questions * epochs
            await self._tell()

        async def on_sample_end(self, data: SampleEnd) -> None:
            self._done += 1
            await self._tell()

        async def _tell(self) -> None:
            # A task may have more questions than it announced, if it finds them while it runs.
            await line.tell({"op": "count", "done": self._done, "total": max(self._done, self._total)})


# Models that a task names: each name is one of the worker's models, or has no model at all.
#
# A scorer such as `model_graded_qa(model="openai/gpt-5")` would query that provider itself. Here the name stands for
# the model that the request gives for it; without one the task fails before its first sample, as far as Inspect shows
# what its scorers name, and otherwise with the first question.

_KEPT = (OWN, "none", "mockllm")
"""Providers that query nothing: that of the worker, and those of Inspect for tests."""


def name_models(line: WorkerClient, names: Mapping[str, str], defaults: Mapping[str, Any]) -> None:
    """From now on, a model that a task names is the worker's.

    Args:
        line: the connection to the worker.
        names: the worker's name of a model, by the task's.
        defaults: how these models are sampled if the task does not say it.
    """
    known = {registry_info(each).name for each in registry_find(lambda info: info.type == "modelapi")}
    of_names = {name.partition("/")[0] for name in names if "/" in name}
    for full in (*known, *(of_names - {_short(name) for name in known})):
        if (short := _short(full)) not in _KEPT:
            # In the place of the provider, which Inspect finds by its short name.
            registry_add(_provider(short, line, names, defaults), RegistryInfo(type="modelapi", name=full))
    _refuse_unnamed(line, names)


def _short(name: str) -> str:
    return name.rpartition("/")[2]


def _provider(short: str, line: WorkerClient, names: Mapping[str, str], defaults: Mapping[str, Any]) -> Any:
    def made(model_name: str, **given: Any) -> ModelAPI:
        name = f"{short}/{model_name}"
        if name in names:
            return WorkerModel(line, names[name], model_name, defaults)
        return _Unnamed(model_name, _unnamed(name))

    class Provider(ModelAPI):
        """Makes the model of a name; never an instance of itself."""

        def __new__(cls, model_name: str, **given: Any) -> Any:
            return made(model_name, **given)

    return modelapi(name=short)(Provider)


class _Unnamed(ModelAPI):
    """A model that a task names and the request does not: a task may have one that it never queries."""

    def __init__(self, model_name: str, why: str) -> None:
        super().__init__(model_name)
        self._why = why

    async def generate(self, input: Any, tools: Any, tool_choice: Any, config: Any) -> ModelOutput:
        """Refuse.

        Raises:
            CannotAsk: always, with the cure.
        """
        raise CannotAsk(self._why)


def _unnamed(name: str, role: str = "") -> str:
    return (
        f"MODEL_NOT_NAMED: the task names the model {name!r}: say which model of the worker it is, by `models` of the "
        f"request or --role {role or name}=MODEL"
    )


def _refuse_unnamed(line: WorkerClient, names: Mapping[str, str]) -> None:
    @hooks(name="crucible_named_models", description="Refuses tasks that name a model which the request does not.")
    class _Refusing(Hooks):
        async def on_task_start(self, data: TaskStart) -> None:
            for name, role in _named(data.spec):
                if "/" in name and name not in names and name.partition("/")[0] not in _KEPT:
                    line.refuse(_unnamed(name, role))
                    return


def _named(spec: EvalSpec) -> Iterator[tuple[str, str]]:
    """Names of models of a task, each with its role, or without one if a scorer has it."""
    for scorer in spec.scorers or ():
        given = (scorer.options or {}).get("model")
        for name in given if isinstance(given, list) else [given]:
            if isinstance(name, str):
                yield name, ""
    for role, bound in (spec.model_roles or {}).items():
        for config in bound if isinstance(bound, list) else [bound]:
            yield config.model, role


# The contents of an Inspect log: every scorer, every metric, and the result of every sample.

MAX_RECORDS_BYTES = 512 * 1024
"""Bytes of the records of samples, as JSON; further ones are left out, and counted."""

_CUT = ("max_tokens", "model_length")


def findings(results: EvalResults | None, samples: Sequence[EvalSample]) -> dict[str, Any]:
    """A log, as a message.

    Args:
        results: of its scorers; None if every sample has failed.
        samples: all that were run, failed ones included.

    Returns:
        `scores`: for each scorer and reducer its metrics, null if one is not finite or no sample has a score.
        `headline`: scorer, reducer and metric that summarise the task, null if there are none. `samples`, `errored`,
        `truncated`: counts, epochs included. `records`: one for each sample, as far as there is room. `first_error`:
        of the first sample that failed.
    """
    errors = [sample.error.message for sample in samples if sample.error is not None]
    headline = None if results is None else results.headline
    records, left_out = _records(samples)
    return {
        "op": "found",
        "scores": [] if results is None else [_score(score, samples) for score in results.scores],
        "headline": None
        if headline is None
        else [_scorer(headline.scorer, headline.score), headline.reducer, headline.metric],
        "samples": len(samples),
        "errored": len(errors),
        "truncated": sum(_stop_reason(sample) in _CUT for sample in samples),
        "records": records,
        "records_left_out": left_out,
        "first_error": errors[0][:_MAX_SHOWN] if errors else "",
    }


def _score(score: EvalScore, samples: Sequence[EvalSample]) -> dict[str, Any]:
    run = [sample for sample in samples if sample.error is None]
    # Inspect counts samples whose score is not a number, but not those without a score in any epoch.
    given = {sample.id for sample in run if (sample.scores or {}).get(score.scorer) is not None}
    without = len({sample.id for sample in run} - given)
    none_scored = score.scored_samples == 0
    return {
        "scorer": _scorer(score.scorer, score.name),
        "reducer": score.reducer,
        "scored": score.scored_samples,
        "unscored": (score.unscored_samples or 0) + without,
        "metrics": {
            name: float(metric.value) if math.isfinite(metric.value) and not none_scored else None
            for name, metric in score.metrics.items()
        },
    }


def _scorer(scorer: str, score: str) -> str:
    """A scorer's name; if it gives several numbers, their names follow it, which other scorers may use too."""
    return scorer if scorer == score else f"{scorer}.{score}"


def _records(samples: Sequence[EvalSample]) -> tuple[list[dict[str, Any]], int]:
    records: list[dict[str, Any]] = []
    room = MAX_RECORDS_BYTES
    for sample in samples:
        record = {
            "id": sample.id,
            "epoch": sample.epoch,
            "scores": {name: _plain(score.value) for name, score in (sample.scores or {}).items()},
            "stop_reason": _stop_reason(sample),
            "limit": None if sample.limit is None else sample.limit.type,
            "error": None if sample.error is None else sample.error.message[:_MAX_SHOWN],
        }
        room -= len(json.dumps(record))
        if room < 0:
            break
        records.append(record)
    return records, len(samples) - len(records)


def _stop_reason(sample: EvalSample) -> str:
    return sample.output.stop_reason if sample.output.choices else ""


def _plain(value: Any) -> Any:
    """A score's value as JSON: null if it is not finite."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_MAX_SHOWN = 500  # characters of a task's own error


async def run_task(order: Mapping[str, Any], line: WorkerClient) -> dict[str, Any]:
    """Run a task by an order.

    Returns:
        The message with its findings (`findings`), or why there are none.
    """
    try:
        return await _run(order, line)
    except (Exception, SystemExit) as error:  # foreign code may raise anything
        return _failed(f"{type(error).__name__}: {error}")


async def _run(order: Mapping[str, Any], line: WorkerClient) -> dict[str, Any]:
    if own := set(order["own_args"]):
        # Inspect would ignore arguments that the task does not accept.
        (log,) = await eval_async(order["task"], task_args=order["task_args"], run_samples=False, **_quietly(order))
        if unknown := own - log.eval.task_args_passed.keys():
            return _failed(f"the task accepts no argument {', '.join(sorted(unknown))}")
    count_questions(line)
    name_models(line, order["names"], order["role_defaults"])
    model = _model(line, "model", "model", order["defaults"])
    running = eval_async(
        order["task"],
        model=model,
        model_roles={role: _model(line, which, role, order["role_defaults"]) for role, which in order["roles"].items()},
        task_args=order["task_args"],
        limit=order["limit"],
        epochs=order["epochs"],
        # A failed sample affects no other, is not repeated, and is counted.
        fail_on_error=False,
        retry_on_error=0,
        max_connections=order["max_connections"],
        metadata=order.get("metadata") or None,
        **_quietly(order),
        **order["config"],
    )
    logs = await _unless_stopped(running, line)
    if line.refused:
        return _failed(line.refused)
    if logs is None:
        return _scored_so_far(Path(order["log_dir"]))
    if not logs:
        return _failed("it ended without a log, as when one of its steps exits")
    if len(logs) > 1:
        return _failed(f"{len(logs)} tasks have this name")
    (log,) = logs
    if log.eval.model != str(model):
        # Inspect would prefer that model, and report its results as the worker's model's.
        return _failed(f"the task sets its own model {log.eval.model!r}, which is not the evaluated one")
    if log.status != "success":
        message = f"it ended with the status {log.status}" if log.error is None else log.error.message
        return {**_ended(log), "failure": message[:_MAX_SHOWN]} if log.samples else _failed(message)
    return findings(log.results, log.samples or [])


async def _unless_stopped(running: Coroutine[Any, Any, list[EvalLog]], line: WorkerClient) -> list[EvalLog] | None:
    """The logs of a run; None if the worker stopped it before, its scores so far are then in a file."""
    evaluating, stopping = asyncio.create_task(running), asyncio.create_task(line.stopped.wait())
    try:
        try:
            await asyncio.wait({evaluating, stopping}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # A step has exited: asyncio ends its loop with SystemExit, and cancels every task, including this one.
            with contextlib.suppress(asyncio.CancelledError, SystemExit):
                await evaluating
            return []
        if evaluating.done():
            return evaluating.result()
        evaluating.cancel()
        with contextlib.suppress(asyncio.CancelledError):  # Inspect raises it, or returns without a log
            await evaluating
        return None
    finally:
        stopping.cancel()


def _scored_so_far(folder: Path) -> dict[str, Any]:
    """Findings of the samples that had ended when the task was stopped."""
    logs = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns) if folder.is_dir() else []
    if not logs:
        return {**_failed("it was stopped before its first sample"), "stopped": True}
    return {**_ended(read_eval_log(str(logs[-1]))), "stopped": True}


def _ended(log: EvalLog) -> dict[str, Any]:
    """Findings of the ended samples of a log, although the task as a whole has not ended."""
    ended = [sample for sample in log.samples or [] if not _was_stopped(sample)]
    log.samples = ended
    try:
        if ended:
            recompute_metrics(log)
    except Exception as error:  # a metric is foreign code, and may be why the task has not ended: records are kept
        return {**findings(None, ended), "failure": f"{type(error).__name__}: {error}"[:_MAX_SHOWN]}
    return findings(log.results if ended else None, ended)


def _was_stopped(sample: EvalSample) -> bool:
    return sample.error is not None and sample.error.message.startswith("CancelledError")


def _quietly(order: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "log_dir": order["log_dir"],
        "log_level": "critical",
        "log_realtime": False,
        "score_display": False,
        "ctl_server": False,
    }


def _model(line: WorkerClient, which: str, name: str, defaults: Mapping[str, Any]) -> Model:
    return Model(WorkerModel(line, which, name, defaults), GenerateConfig(**defaults))


def _failed(message: str) -> dict[str, Any]:
    return {"op": "failed", "message": message[:_MAX_SHOWN]}
