"""What the pages of the tests show: a run of five steps with answers, judges and rollouts, some of it hostile."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from crucible_bridge.types import ChatMessage, Conversation, EvaluatorSpec, Sample, SamplingParams, ToolSpec
from crucible_worker.testing import ScriptedModel, run_worker
from tests.pages.hostile import PAYLOADS

__all__ = ["HOSTILE", "RUN", "STEPS", "make_results", "models", "questions"]

RUN = "lab"
STEPS = (100, 200, 300, 400, 500)
HOSTILE = "hostile"
"""The evaluation with hostile texts everywhere."""
_SUM = re.compile(r"(\d+) \+ (\d+)")


def questions(count: int) -> list[Sample]:
    """Sums, with their level as metadata."""
    return [
        Sample(
            id=f"sum-{n}", input=f"What is {n} + {n + 3}?", targets=(str(2 * n + 3),), metadata={"level": str(n % 4)}
        )
        for n in range(count)
    ]


def _answers(step: int) -> Callable[[str], str]:
    """The later the step, the more sums are right."""

    def answer(prompt: str) -> str:
        found = _SUM.search(prompt)
        if found is None:
            return "7"
        a, b = int(found[1]), int(found[2])
        right = (a * 7919) % 10 < 2 + step // 75
        return f"<think>{a} and {b}: I add them.</think>The answer is {a + b if right else a + b + 1}."

    return answer


def _hostile_answer(prompt: str) -> str:
    found = re.search(r"#(\d+)#", prompt)
    return "The answer is " + (PAYLOADS[int(found[1])] if found else PAYLOADS[0])


def models() -> dict[str, ScriptedModel]:
    """Models by name: one for each step, one with hostile answers, one that calls tools, and a judge."""
    return {
        **{f"step-{step}": ScriptedModel(answer=_answers(step)) for step in STEPS},
        "hostile": ScriptedModel(answer=_hostile_answer),
        "tools": ScriptedModel(
            answer=lambda prompt: '<tool_call>{"name": "add"}</tool_call></tool_call> The answer is 5.'
        ),
        "called": ScriptedModel(
            answer=lambda prompt: (
                '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call><tool_call>{</tool_call>'
            )
        ),
        "judge": ScriptedModel(answer=lambda prompt: f"A\n{PAYLOADS[0]}"),
    }


async def make_results(state_dir: Path, *, count: int = 120) -> None:
    """Evaluate everything into the journal of this folder."""
    accuracy = EvaluatorSpec(kind="accuracy", options={"grader": "numeric"})
    sampling = SamplingParams(max_tokens=80, temperature=1.0)
    async with run_worker(models(), state_dir=state_dir) as worker:
        evaluate = worker.bridge.evaluation.evaluate
        for step in STEPS:
            await evaluate(
                evaluation_id=f"{RUN}-{step}",
                run_id=RUN,
                step=step,
                model=f"embedded:step-{step}",
                evaluators=[accuracy, "nll"],
                dataset=questions(count),
                sampling=sampling,
            )
        await evaluate(
            evaluation_id="rollouts",
            model="embedded:step-500",
            evaluators=[
                EvaluatorSpec(
                    kind="rl_test_set", options={"group_size": 3, "grader": "contains", "intermediates": True}
                )
            ],
            dataset=questions(5),
            sampling=sampling,
        )
        await evaluate(
            evaluation_id="tools",
            model="embedded:tools",
            evaluators=[EvaluatorSpec(kind="rl_test_set", options={"group_size": 2, "grader": "contains"})],
            dataset=questions(2),
            sampling=sampling,
        )
        add = ToolSpec(name="add", description="Adds <b>two</b>.", parameters='{"type": "object"}')
        await evaluate(
            evaluation_id="called",
            model="embedded:called",
            evaluators=[accuracy],
            dataset=[Sample(id="sum", input=Conversation((ChatMessage("user", "1+1?"),), (add,)), targets=("2",))],
            sampling=SamplingParams(max_tokens=200),
        )
        await evaluate(
            evaluation_id=HOSTILE,
            model="embedded:hostile",
            evaluators=[
                EvaluatorSpec(kind="accuracy", options={"grader": "contains"}),
                EvaluatorSpec(kind="comparison", options={"judge": "embedded:judge"}),
            ],
            dataset=[
                Sample(
                    id=f"{n}-{payload}",
                    input=f"#{n}# {payload}",
                    targets=(payload,),
                    metadata={payload.replace(chr(0), ""): payload},
                )
                for n, payload in enumerate(PAYLOADS)
            ],
            labels={PAYLOADS[0]: PAYLOADS[1]},
            sampling=sampling,
        )
