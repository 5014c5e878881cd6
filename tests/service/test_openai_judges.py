"""A judge behind an OpenAI-compatible server: asked in words, its tokens as the server counts them."""

from __future__ import annotations

import json
from pathlib import Path

from crucible_bridge.errors import Code
from crucible_bridge.types import RubricCriterion, RubricItem, Verdict
from tests import needs
from tests.service.evaluation_kit import refused
from tests.service.openai_kit import Reply, Request, ScriptedServer, answer, refusal, worker_on
from tests.unit.grading.judge.gullible import HONEST, Gullible, injections

needs.modules("aiohttp")

MODEL = "openai:s/org/judge"
CRITERIA = [RubricCriterion(name="correct", description="Is it right?")]


def script(request: Request) -> Reply:
    """A server whose model obeys what it reads, but for what stands in the fence."""
    if request.method == "GET":
        return refusal(404)
    return answer(request, Gullible().score(request.text))


async def test_a_server_judges(tmp_path: Path):
    """Injections change nothing; tokens of questions and answers are those that the server counts."""
    items = [RubricItem(response=text) for text in injections().values() if len(text) < 2_000]
    async with ScriptedServer(script).serving() as server, worker_on(server, tmp_path) as bridge:
        found = await bridge.grading.grade_rubric(MODEL, items, CRITERIA)

    assert [one.grade.score for one in found.grades] == [HONEST / 10] * len(items)
    said = json.dumps({"correct": {"reason": "So it is.", "score": HONEST}})
    assert {(one.prompt_tokens, one.completion_tokens) for one in found.grades} == {(1, len(said))}
    assert (found.prompt_tokens, found.completion_tokens) == (len(items), len(items) * len(said))


async def test_a_server_that_refuses_costs_items_their_grades(tmp_path: Path):
    """Their problem is the backend's; what needs no judge has its verdict."""
    async with ScriptedServer(lambda request: refusal(404)).serving() as server, worker_on(server, tmp_path) as bridge:
        found = await bridge.grading.grade_rubric(
            MODEL, [RubricItem(response="x"), RubricItem(response="...")], CRITERIA
        )
        await refused(
            bridge.grading.grade_rubric("openai:other/m", [RubricItem(response="x")], CRITERIA),
            Code.NOT_FOUND,
            "UNKNOWN_SERVER",
            "judge",
        )

    failed, empty = (one.grade for one in found.grades)
    assert failed.problem is not None
    assert (failed.verdict, failed.problem.reason, failed.problem.field) == (Verdict.ERROR, "UNKNOWN_MODEL", "judge")
    assert empty.verdict is Verdict.INCORRECT
