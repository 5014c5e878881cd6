"""The grader `rubric`: a judge's score, after a grader that decides what it can."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import pytest

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.types import ChatMessage, Conversation, OpenAIModel, Verdict
from crucible_worker.grading import registry
from crucible_worker.grading.base import AsksJudge, Grade
from crucible_worker.grading.judge.grader import MAX_JUDGE_TOKENS
from crucible_worker.grading.judge.rubric import MAX_CRITERIA
from crucible_worker.testing import ScriptedModel
from tests.tables import rows

CLEAR = {"name": "clear", "description": "Is it?"}


def made(**options: Any) -> Any:
    """The grader with options."""
    return registry.create("rubric", {"judge": "openai:s/m", **options}, name_field="grader", options_field="options")


def says(score: Any, name: str = "correct") -> str:
    """A judgement."""
    return json.dumps({name: {"reason": "So it is.", "score": score}})


async def graded(response: str, *targets: str, said: str = says(1), question: Any = "?", **options: Any) -> Any:
    """A grade, and what the judge was asked."""
    asked: list[str] = []
    judge = ScriptedModel(answer=lambda prompt: asked.append(prompt) or said)
    grade: Grade = await made(**options).bound(judge, question).grade(response, targets)
    return grade, asked


async def test_a_judge_sees_question_response_and_targets() -> None:
    """The targets as reference answers; of a conversation every message."""
    conversation = Conversation((ChatMessage("system", "Be brief."), ChatMessage("user", "Why?")))

    grade, (asked,) = await graded("so", "because", question=conversation)

    assert "| system: Be brief.\n| \n| user: Why?\n" in asked
    assert "reference answer\n| because\n" in asked
    assert "response\n| so\n" in asked
    assert (grade.verdict, grade.score, grade.method) == (Verdict.CORRECT, 1.0, "judged: correct 1: So it is.")


async def test_numbers_are_kept_for_the_sample() -> None:
    """The score of each criterion, and what the judge took of tokens."""
    grade, (asked,) = await graded("so")

    assert grade.measurements == {
        "rubric/correct": 1.0,
        "judge_prompt_tokens": float(len(asked)),
        "judge_completion_tokens": float(len(says(1))),
    }


@rows(
    ("options", "verdict", "score"),
    [
        ({}, Verdict.INCORRECT, 0.0),
        ({"partial": True}, Verdict.PARTIAL, 0.4),
        ({"threshold": 0.4}, Verdict.CORRECT, 1.0),
        ({"threshold": 0.4, "partial": True}, Verdict.CORRECT, 0.4),
    ],
)
async def test_a_response_is_right_or_wrong_unless_parts_count(
    options: dict[str, Any], verdict: Verdict, score: float
) -> None:
    """From the threshold on it is right; the judge's own score counts where that is wanted."""
    grade, _ = await graded("so", said=says(4, "clear"), criteria=[CLEAR], **options)

    assert (grade.verdict, grade.score) == (verdict, score)


@pytest.mark.parametrize(
    ("response", "target", "verdict", "method", "calls"),
    [
        ("It is 5.", "4", Verdict.INCORRECT, "number", 0),
        ("It is 4.", "4", Verdict.CORRECT, "number", 0),
        ("It is 4.", "2 and 2", Verdict.CORRECT, "judged: correct 1: So it is.", 1),
    ],
)
async def test_what_is_decided_first_is_not_overturned(
    response: str, target: str, verdict: Verdict, method: str, calls: int
) -> None:
    """The judge, which holds everything for right, is asked about what the other cannot tell alone."""
    grade, asked = await graded(response, target, first="numeric")

    assert (grade.verdict, grade.method, len(asked)) == (verdict, method, calls)


async def test_an_error_of_the_first_is_one() -> None:
    """It is not for a judge to hide that a grader failed."""

    class Broken:
        async def grade(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> Grade:
            return Grade(verdict=Verdict.ERROR, reason="it broke")

    judge = ScriptedModel(answer=lambda prompt: says(1))
    grade = await dataclasses.replace(made(), first=Broken()).bound(judge, "?").grade("x", ["y"])

    assert (grade.verdict, grade.reason, judge.calls) == (Verdict.ERROR, "it broke", 0)


async def test_a_blank_target_leaves_it_undecided() -> None:
    """As every grader has it."""
    grade, asked = await graded("so", " ")

    assert (grade.verdict, asked) == (Verdict.UNDECIDED, [])


async def test_an_unreadable_judgement_has_its_problem() -> None:
    """An ERROR, and no score."""
    grade, _ = await graded("so", said="10")

    assert (grade.verdict, grade.score) == (Verdict.ERROR, None)
    assert grade.problem is not None
    assert grade.problem.reason == "INVALID_JUDGEMENT"


async def test_without_a_judge_there_is_no_grade() -> None:
    """Whoever uses the grader has to open the model that it names."""
    grader = made()

    assert isinstance(grader, AsksJudge)
    assert grader.judge == OpenAIModel("s", "m")
    with pytest.raises(FailedPrecondition) as refused:
        await registry.create("rubric", {"judge": "openai:s/m"}, name_field="grader", options_field="options").grade(
            "x", ["x"]
        )
    assert refused.value.reason == "NO_JUDGE"


@rows(
    ("options", "field"),
    [
        ({"judge": "gpt"}, '["judge"]'),
        ({"judge": "orchestrator:m"}, '["judge"]'),
        ({"judge_max_tokens": MAX_JUDGE_TOKENS + 1}, '["judge_max_tokens"]'),
        ({"judge_renderer": "chatml"}, '["judge_renderer"]'),
        ({"threshold": 1.5}, '["threshold"]'),
        ({"criteria": []}, '["criteria"]'),
        ({"criteria": [CLEAR | {"name": str(index)} for index in range(MAX_CRITERIA + 1)]}, '["criteria"]'),
        ({"criteria": [CLEAR, CLEAR]}, '["criteria"][1].name'),
        ({"criteria": [CLEAR | {"weight": 0}]}, '["criteria"][0]["weight"]'),
        ({"criteria": [CLEAR | {"min": 10}]}, '["criteria"][0].max'),
        ({"first": "oracle"}, '["first"]'),
        ({"first": "rubric", "first_options": {"judge": "openai:s/m"}}, '["first"]'),
        ({"first": "numeric", "first_options": {"x": 1}}, '["first_options"]["x"]'),
    ],
)
def test_wrong_options_are_named_by_their_path(options: dict[str, Any], field: str) -> None:
    """As the schema has them, or as what they name has."""
    with pytest.raises(InvalidField) as refused:
        made(**options)
    assert refused.value.field == f"options{field}"


def test_limits_are_allowed() -> None:
    """As many criteria and tokens as there may be."""
    criteria = [CLEAR | {"name": str(index)} for index in range(MAX_CRITERIA)]

    assert len(made(criteria=criteria, judge_max_tokens=MAX_JUDGE_TOKENS).rubric.criteria) == MAX_CRITERIA
