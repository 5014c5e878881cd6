"""Tasks of Inspect for the tests: small, on local data, and each with one thing that can go wrong."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from inspect_ai import Epochs, Task, task  # pyright: ignore[reportMissingImports]
from inspect_ai.dataset import Sample, json_dataset  # pyright: ignore[reportMissingImports]
from inspect_ai.model import GenerateConfig, get_model  # pyright: ignore[reportMissingImports]
from inspect_ai.scorer import (  # pyright: ignore[reportMissingImports]
    SampleScore,
    Score,
    Target,
    accuracy,
    includes,
    match,
    mean,
    metric,
    model_graded_qa,
    scorer,
    stderr,
)
from inspect_ai.solver import (  # pyright: ignore[reportMissingImports]
    Generate,
    TaskState,
    generate,
    solver,
    system_message,
    use_tools,
)
from inspect_ai.tool import tool  # pyright: ignore[reportMissingImports]

_QUESTIONS = Path(__file__).with_name("questions.jsonl")
"""Words, and what becomes of them in capitals; the third target is another word's."""


def _questions() -> Any:
    return json_dataset(str(_QUESTIONS))


@task
def capitals(system: str = "", temperature: float | None = None) -> Task:
    """Words to be said in capitals, read by two scorers."""
    steps = [system_message(system), generate()] if system else [generate()]
    config = GenerateConfig(temperature=temperature)
    return Task(dataset=_questions(), solver=steps, scorer=[match(), includes()], config=config)


@metric
def lowest() -> Any:
    """The lowest score; a name that another metric of the same scorer has, too."""

    def compute(scores: list[SampleScore]) -> float:
        return min(score.score.as_float() for score in scores)

    return compute


@metric
def never() -> Any:
    """A metric that is no number."""

    def compute(scores: list[SampleScore]) -> float:
        return float("nan")

    return compute


@scorer(metrics={"length": [mean(), stderr()], "a/b": [mean(), lowest(), lowest()]})
def measured() -> Any:
    """Two numbers for each answer, one of them with a slash in its name."""

    async def score(state: TaskState, target: Target) -> Score:
        said = state.output.completion
        return Score(value={"length": len(said), "a/b": said.count("A")})

    return score


@scorer(metrics=[never(), accuracy(), accuracy()])
def odd() -> Any:
    """A metric that is no number beside one that is, twice; answers with an M have no score."""

    async def score(state: TaskState, target: Target) -> Score:
        said = state.output.completion
        return Score(value=float("nan") if "M" in said else float(said == target.text))

    return score


@task
def many() -> Task:
    """One scorer twice, one with numbers by name, and one whose first metric is not finite."""
    return Task(dataset=_questions(), solver=generate(), scorer=[match(), match(location="any"), measured(), odd()])


@task
def undecided() -> Task:
    """The metric that sums it up is no number."""
    return Task(dataset=_questions(), solver=generate(), scorer=odd())


@task
def repeated() -> Task:
    """Three epochs, read by two reducers."""
    return Task(dataset=_questions(), solver=generate(), scorer=match(), epochs=Epochs(3, ["mean", "at_least_2"]))


@task
def cached() -> Task:
    """Answers that Inspect may take from its cache."""
    return Task(dataset=_questions(), solver=generate(cache=True), scorer=match())


@scorer(metrics=[mean()])
def silent() -> Any:
    """Scores answers without an M, and gives the others none."""

    async def score(state: TaskState, target: Target) -> Score | None:
        return None if "M" in state.output.completion else Score(value=1)

    return score


@task
def partly() -> Task:
    """One scorer gives no score to one of three answers, after which the conversation may go on no longer."""
    steps = [generate(), generate()]
    return Task(dataset=_questions(), solver=steps, scorer=[match(), silent()], message_limit=2)


@task
def original_model() -> Task:
    """Brings a model of its own."""
    return Task(dataset=_questions(), solver=generate(), scorer=match(), model="mockllm/model")


@task
def judged() -> Task:
    """Answers that a model judges, in the role of the grader."""
    return Task(dataset=_questions(), solver=generate(), scorer=model_graded_qa())


@task
def judged_by(model: str = "", judges: list[str] | None = None) -> Task:
    """Answers that models judge which the task names."""
    return Task(dataset=_questions(), solver=generate(), scorer=model_graded_qa(model=judges or model))


@task
def asks_role(role: str) -> Task:
    """A step asks another model, by its role."""

    @solver
    def asking() -> Any:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            state.output = await get_model(role=role, required=True).generate(state.input)
            return state

        return solve

    return Task(dataset=_questions(), solver=asking(), scorer=match())


@task
def asks_name(name: str) -> Task:
    """A step asks another model, by its name."""

    @solver
    def asking() -> Any:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            state.output = await get_model(name).generate(state.input, config=GenerateConfig(temperature=0.5))
            return state

        return solve

    return Task(dataset=_questions(), solver=asking(), scorer=match())


@task
def tuned(parameter: str, value: Any) -> Task:
    """Every answer with a parameter."""
    return Task(dataset=_questions(), solver=generate(), scorer=match(), config=GenerateConfig(**{parameter: value}))


@task
def several_answers() -> Task:
    """Two answers to one question, of which the second is read."""

    @solver
    def second() -> Any:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            answers = await get_model().generate(state.input, config=GenerateConfig(num_choices=2, stop_seqs=["!"]))
            state.output = answers
            state.output.completion = answers.choices[1].message.text
            return state

        return solve

    return Task(dataset=_questions(), solver=second(), scorer=match())


@tool
def clock() -> Any:
    """Tells the time."""

    async def execute() -> str:
        """Tell the time."""
        return "now"

    return execute


@task
def with_tools() -> Task:
    """Gives the model a tool."""
    return Task(dataset=_questions(), solver=[use_tools(clock()), generate()], scorer=match())


@solver
def misbehaving(how: str) -> Any:
    """Does what no task should, once the model has answered."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state = await generate(state)
        if how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "leave":
            sys.exit(3)
        if how == "exit":
            os._exit(3)
        if how == "hang":
            while True:  # no cancellation is heard in here
                time.sleep(1)  # noqa: ASYNC251 - that is what is wrong with it
        if how == "print":
            print("noise", file=sys.stdout, flush=True)
            os.write(1, b"more noise")
        if how == "environment":
            Path(os.environ["TMPDIR"], "left").touch()
            state.output.completion = " ".join(sorted(os.environ))
        return state

    return solve


@task
def bad(how: str) -> Task:
    """See `misbehaving`."""
    return Task(dataset=_questions(), solver=misbehaving(how), scorer=match())


@task
def broken() -> Task:
    """Cannot be made."""
    raise RuntimeError("this task is broken")


@task
def environment() -> Task:
    """Says which variables its process has."""
    return Task(dataset=[Sample(id="e", input="?", target="")], solver=misbehaving("environment"), scorer=spoken())


@scorer(metrics=[accuracy()])
def spoken() -> Any:
    """Its value is what was said."""

    async def score(state: TaskState, target: Target) -> Score:
        return Score(value=state.output.completion)

    return score


@scorer(metrics=[accuracy()])
def seen() -> Any:
    """Its value is what a task sees of an answer: how many choices, the parts of the first, and its text; as JSON."""

    async def score(state: TaskState, target: Target) -> Score:
        content = state.output.message.content
        parts = [content] if isinstance(content, str) else [getattr(part, part.type) for part in content]
        told = {"choices": len(state.output.choices), "parts": parts, "text": state.output.completion}
        return Score(value=json.dumps(told))

    return score


@task
def looked_at() -> Task:
    """Says what it sees of one answer, and asks once more behind it."""
    return Task(dataset=[Sample(id="s", input="?", target="")], solver=[generate(), generate()], scorer=seen())


@metric
def dividing() -> Any:
    """A metric that cannot be computed."""

    def compute(scores: list[SampleScore]) -> float:
        return 1 / 0

    return compute


@scorer(metrics=[dividing()])
def divided() -> Any:
    """Scores, and has such a metric."""

    async def score(state: TaskState, target: Target) -> Score:
        return Score(value=1.0)

    return score


@task
def uncountable() -> Task:
    """All of its questions are scored, and it fails."""
    return Task(dataset=_questions(), solver=generate(), scorer=divided())


@solver
def waiting_for_ever() -> Any:
    """Answers at once but for the last question, about which it asks the model once the others are scored."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        if state.sample_id != 3:
            return await generate(state)
        while len(_SCORED) < 2:
            await asyncio.sleep(0.01)
        return await generate(state)

    return solve


_SCORED: list[str] = []


@scorer(metrics=[accuracy()])
def counted() -> Any:
    """Scores, and says so."""

    async def score(state: TaskState, target: Target) -> Score:
        _SCORED.append(str(state.sample_id))
        return Score(value=float(state.output.completion == target.text))

    return score


@task
def endless() -> Task:
    """Three questions, of which the last is never done while the model does not answer it."""
    questions = [Sample(id=number, input=text, target=text.upper()) for number, text in enumerate("abc", 1)]
    return Task(dataset=questions, solver=waiting_for_ever(), scorer=counted())
