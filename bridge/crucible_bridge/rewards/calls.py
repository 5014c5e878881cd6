"""How trainers call a reward function: what each passes, and what it wants back.

TRL                  f(prompts=..., completions=[...], answer=[...], trainer_state=..., log_metric=..., ...)
verl                 f(data_source=..., solution_str=..., ground_truth=..., extra_info=...), also by position
verl, batches        f(data_sources=..., solution_strs=[...], ground_truths=[...], extra_infos=[...])
OpenRLHF             f(queries, prompts, labels)
AReaL                f(prompt, completions, prompt_ids, completion_ids, answer=..., ...)
verifiers, rubrics   await f(completion=..., answer=..., state=..., info=..., ...)
any                  f(response, target)
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from crucible_bridge.errors import InvalidField, clipped

__all__ = ["DETAILS", "TARGETS", "TESTS", "Call", "Form", "Graded", "counts_of", "read_call", "texts_of"]

TARGETS = (
    "answer",
    "solution",
    "ground_truth",
    "target",
    "targets",
    "label",
    "gold",
    "reference_answer",
    "final_answer",
)
"""Columns that may have the targets of an answer."""
TESTS = ("tests", "test_cases", "test_list", "test", "input_output", "ground_truth")
"""Columns that may have the tests of a program."""
DETAILS = ("verdict", "method", "reason", "extracted")
"""What is known of a result besides its score."""

_OF_TRL = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric", "environments")
_OF_VERIFIERS = ("completion", "info", "parser", "prompt", "state", "task")


class Graded(NamedTuple):
    """The result for one response."""

    verdict: str
    """"correct", "incorrect", "partial", "undecided" or "error"."""
    score: float | None
    """From 0 to 1; None if there is none."""
    method: str
    """How it was decided."""
    reason: str
    """Why, for people; may be empty."""
    extracted: str
    """The answer or the program that was found in the response."""

    @property
    def timed_out(self) -> bool:
        """Whether it was left undecided at a limit of time."""
        return self.score is None and "it took longer than" in self.reason


Rewards = Sequence[float | None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is to be graded, and the form of the result."""

    responses: Sequence[str]
    targets: Sequence[Any]
    choices: Sequence[Any] = ()
    """Of each response; empty if there are none."""
    result: Callable[[Rewards, Sequence[Graded]], Any]
    """What the trainer gets."""
    trainer: str = ""
    """Its name, if it takes numbers only."""
    awaited: bool = False
    """Whether it awaits the result."""
    single: bool = False
    """Whether it has one response of many that are graded in a step."""


class Form(NamedTuple):
    """What a reward says of its calls."""

    name: str
    """The name of the reward."""
    column: str
    """The column that has the targets; one of the known ones if empty."""
    grader: str
    """The name of the grader."""
    details: bool
    """Whether the trainer gets more than the reward."""


def read_call(form: Form, given: Sequence[Any], named: Mapping[str, Any]) -> Call:
    """Recognize the trainer by what it passes.

    Raises:
        InvalidField: the column of the targets is missing, or there are several.
        TypeError: no trainer calls in this form.
    """
    if "solution_strs" in named:
        return _verl_batch(form, named)
    if "solution_str" in named:
        return _verl(form, named)
    if "completion" in named:
        return _verifiers(form, named)
    if isinstance(named.get("completions"), list | tuple):
        return _trl(form, named)
    if len(given) == 4 and isinstance(given[3], Mapping | None):
        return _verl(form, {**dict(zip(("data_source", "solution_str", "ground_truth", "extra_info"), given)), **named})
    areal = {**dict(zip(("prompt", "completions", "prompt_ids", "completion_ids"), given)), **named}
    if len(given) in (0, 4) and isinstance(areal.get("completions"), str):
        return _areal(form, areal)
    openrlhf = {**dict(zip(("queries", "prompts", "labels"), given)), **named}
    if len(given) in (0, 3) and openrlhf.keys() >= {"queries", "prompts", "labels"}:
        return _openrlhf(openrlhf["queries"], openrlhf["prompts"], openrlhf["labels"])
    if len(given) == 2 and not named:
        return Call(responses=[text_of(given[0])], targets=[given[1]], result=_first, single=True)
    raise TypeError(
        f"{form.name} was given {len(given)} arguments by position and {', '.join(sorted(named)) or 'none'} by name, "
        "which is the call of none of TRL, verl, OpenRLHF, AReaL and verifiers; call it with a response and a target"
    )


def _first(rewards: Rewards, grades: Sequence[Graded]) -> float | None:
    return rewards[0]


def _trl(form: Form, named: Mapping[str, Any]) -> Call:
    count = len(named["completions"])

    def result(rewards: Rewards, grades: Sequence[Graded]) -> Rewards:
        if (log_metric := named.get("log_metric")) is not None:
            for name, value in counts_of(grades).items():
                log_metric(f"{form.name}/{name}", float(value))
        if form.details and (log_extra := named.get("log_extra")) is not None:
            for name in DETAILS:
                log_extra(f"{form.name}/{name}", [getattr(grade, name) for grade in grades])
        return list(rewards)

    columns = {name: value for name, value in named.items() if name not in _OF_TRL}
    targets = _targets(form, columns)
    return Call(
        responses=[text_of(completion) for completion in named["completions"]],
        targets=[""] * count if targets is None else targets,
        choices=_choices(form, columns),
        result=result,
    )


def _verl(form: Form, named: Mapping[str, Any]) -> Call:
    info = named.get("extra_info") or {}
    return Call(
        responses=[named["solution_str"]],
        targets=[named.get("ground_truth")],
        choices=_choices(form, {name: [value] for name, value in info.items()}),
        result=lambda rewards, grades: _score(form, rewards[0], grades[0]),
        trainer="verl",
        single=True,
    )


def _verl_batch(form: Form, named: Mapping[str, Any]) -> Call:
    infos = [info or {} for info in named.get("extra_infos", ())]
    columns = {"choices": [info.get("choices") for info in infos]} if any("choices" in info for info in infos) else {}
    return Call(
        responses=list(named["solution_strs"]),
        targets=list(named["ground_truths"]),
        choices=_choices(form, columns),
        result=lambda rewards, grades: [_score(form, *each) for each in zip(rewards, grades)],
        trainer="verl",
    )


def _score(form: Form, reward: float | None, grade: Graded) -> float | dict[str, Any] | None:
    """A number, or what verl records of a sample and averages over samples, by name."""
    if not form.details:
        return reward
    details = {name: getattr(grade, name) for name in DETAILS}
    return {"score": reward, **counts_of([grade]), **details}


def _verifiers(form: Form, named: Mapping[str, Any]) -> Call:
    def result(rewards: Rewards, grades: Sequence[Graded]) -> float | None:
        if form.details and isinstance(state := named.get("state"), dict):
            state.setdefault("grades", {})[form.name] = grades[0]._asdict()
        return rewards[0]

    info = named.get("info")
    columns = {
        name: [value]
        for given in (info if isinstance(info, Mapping) else {}, named)
        for name, value in given.items()
        if name not in _OF_VERIFIERS and not (value is None or (isinstance(value, str) and not value))
    }
    if columns.keys().isdisjoint(TARGETS):  # a row without an answer is undecided
        columns["answer"] = [named.get("answer")]
    targets = _targets(form, columns)
    return Call(
        responses=[text_of(named["completion"])],
        targets=[""] if targets is None else targets,
        choices=_choices(form, columns),
        result=result,
        trainer="verifiers",
        awaited=True,
        single=True,
    )


def _areal(form: Form, named: Mapping[str, Any]) -> Call:
    columns = {name: [value] for name, value in named.items()}
    targets = _targets(form, columns)
    return Call(
        responses=[named["completions"]],
        targets=[""] if targets is None else targets,
        choices=_choices(form, columns),
        result=_first,
        trainer="AReaL",
        single=True,
    )


def _openrlhf(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any]) -> Call:
    def result(rewards: Rewards, grades: Sequence[Graded]) -> dict[str, Any]:
        counts = {name: [float(counts_of([grade])[name]) for grade in grades] for name in counts_of([])}
        return {"rewards": _tensor(rewards), "scores": _tensor(rewards), "extra_logs": _tensors(counts)}

    return Call(
        responses=[_continuation(query, prompt) for query, prompt in zip(queries, prompts)],
        targets=list(labels),
        result=result,
        trainer="OpenRLHF",
        single=len(queries) == 1,
    )


def _continuation(query: str, prompt: str) -> str:
    """What a model wrote after a prompt; marks of a tokenizer may stand before that."""
    _, found, continuation = query.partition(prompt)
    if not found:
        raise InvalidField("queries", f"have {clipped(query)}, which does not have its prompt {clipped(prompt)}")
    return continuation


def _tensors(columns: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    return {name: _tensor(values) for name, values in columns.items()}


def _tensor(values: Sequence[Any]) -> Any:
    """As a tensor where the trainer has loaded PyTorch, which this package never does."""
    torch = sys.modules.get("torch")
    return list(values) if torch is None else torch.tensor(list(values), dtype=torch.float32)


def counts_of(grades: Sequence[Graded]) -> dict[str, int]:
    """How many are undecided, of these at a limit of time, and errors."""
    return {
        "undecided": sum(grade.verdict == "undecided" for grade in grades),
        "timeouts": sum(grade.timed_out for grade in grades),
        "errors": sum(grade.verdict == "error" for grade in grades),
    }


# Columns of data sets.


def _targets(form: Form, columns: Mapping[str, Any]) -> Sequence[Any] | None:
    """The column of the targets; None if the grader reads none."""
    if form.column:
        if form.column not in columns:
            raise InvalidField("target", f"is {clipped(form.column)}, and the columns are {', '.join(sorted(columns))}")
        return columns[form.column]
    usual = [name for name in (TESTS if form.grader == "code" else TARGETS) if name in columns]
    if len(usual) == 1:
        return columns[usual[0]]
    if form.grader == "format":
        return None
    if usual:
        raise InvalidField("target", f"is not given, and the columns {', '.join(usual)} have usual names: name one")
    names = ", ".join(sorted(columns))
    raise InvalidField("target", f"is not given, and the columns {names} have no usual name: name one")


def _choices(form: Form, columns: Mapping[str, Any]) -> Sequence[Any]:
    return columns.get("choices", ()) if form.grader == "multiple_choice" else ()


def text_of(completion: Any) -> str:
    """The text of a completion: itself, or what the assistant says last in its messages."""
    if isinstance(completion, str):
        return completion
    for message in reversed(completion):
        if _of(message, "role") == "assistant":
            content = _of(message, "content")
            if isinstance(content, str):
                return content
            texts = (_of(part, "text") for part in content or ())
            return "".join(text for text in texts if isinstance(text, str))
    return ""


def _of(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def texts_of(targets: Any, *, tests: bool) -> list[Any]:
    """The targets of one response: one or several texts, or numbers; for programs tests, texts or objects."""
    if hasattr(targets, "tolist"):  # an array of numpy, as files of tables give lists
        targets = targets.tolist()
    if targets is None:
        return []
    several = targets if isinstance(targets, list | tuple) else [targets]
    return [_plain(target, tests=tests) for target in several]


def _plain(target: Any, *, tests: bool) -> Any:
    if isinstance(target, str) or (tests and isinstance(target, Mapping)):
        return target
    if isinstance(target, int | float) and not isinstance(target, bool):
        return str(target)
    raise InvalidField("targets", f"have a {type(target).__name__}, which is neither text nor a number")
