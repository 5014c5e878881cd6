"""GenerateReport in HTML: of evaluations, a run, or numbers by themselves, within the limit of messages."""

import json
import re
from typing import Any

import pytest

from crucible_bridge.errors import NotFound, ResourceExhausted
from crucible_bridge.reasons import Reason
from crucible_bridge.types import InlineDataset, ReportFormat, Sample
from crucible_worker.snakepit.tools import ToolCall
from crucible_worker.testing import ScriptedModel
from tests.service.evaluation_kit import asked, rig
from tests.unit.snakepit.tools_kit import tools_of

pytestmark = pytest.mark.core

HTML = ReportFormat.HTML


def _blocks(page: str) -> dict[str, Any]:
    found = re.findall(r'<script type="application/json" id="([^"]+)">(.*?)</script>', page, re.DOTALL)
    return {name: json.loads(text) for name, text in found}


async def test_a_run_in_html_has_its_steps_and_what_is_best() -> None:
    """The two steps of a run are compared: the page knows that equal ones are tied."""
    async with rig() as r:
        for step in (2, 1):
            await r.evaluation.evaluate(asked(evaluation_id=f"at-{step}", step=step, run_id="run"))
        await r.evaluation.evaluate(asked(evaluation_id="other"))
        blocks = _blocks(await r.evaluation.generate_report((), HTML, run_id="run"))

    data = blocks["data"]
    assert list(data["evaluations"]) == ["at-1", "at-2"]
    accuracy = next(series for series in data["runs"]["run"]["series"] if series["key"] == "accuracy")
    assert (accuracy["goal"], accuracy["best"], accuracy["tied"]) == ("higher", "at-1", ["at-2"])
    assert accuracy["points"][0]["low"] <= accuracy["points"][0]["value"] <= accuracy["points"][0]["high"]
    assert [pair["n_matched"] for pair in data["compare"]["comparisons"]] == [2, 2]
    assert [len(blocks[name]) for name in ("samples-0", "samples-1")] == [2, 2]
    assert data["about"]["version"]


async def test_a_report_holds_as_many_samples_as_a_message() -> None:
    """A page that would be larger than a message has fewer samples, and says so: the call does not fail for that."""
    samples = tuple(Sample(id=f"s{n}", input="½" * 2_000, targets=("A",)) for n in range(40))
    async with rig(max_message_bytes=256 * 1024) as r:
        await r.evaluation.evaluate(asked(dataset=InlineDataset(samples)))
        page = await r.evaluation.generate_report("e", HTML)
        few = await r.evaluation.generate_report("e", HTML, max_samples=3)

    held = _blocks(page)["data"]["samples"]["e"]
    assert len(page.encode()) < 256 * 1024
    assert 0 < held["shown"] < held["total"] == 40
    assert "bytes of samples" in held["left_out"]
    assert len(_blocks(few)["samples-0"]) == 3


async def test_a_report_that_has_no_room_is_refused_with_the_cure() -> None:
    """Without one sample, too, it is larger than a message."""
    async with rig(max_message_bytes=128 * 1024) as r:
        for n in range(8):
            await r.evaluation.evaluate(asked(evaluation_id=f"e{n}", labels={"l": "x" * 900}))
        with pytest.raises(ResourceExhausted, match="report fewer evaluations") as refused:
            await r.evaluation.generate_report([f"e{n}" for n in range(8)], HTML)

    assert refused.value.reason == Reason.ANSWER_TOO_LARGE


async def test_numbers_by_themselves_need_no_evaluation() -> None:
    """What was found elsewhere is reported in every format."""
    async with rig() as r:
        reports = {
            each: await r.evaluation.generate_report((), each, metrics={"accuracy": 0.5}, title="Mine")
            for each in ReportFormat
        }

    assert "| accuracy | 0.5 |" in reports[ReportFormat.MARKDOWN]
    assert json.loads(reports[ReportFormat.JSON])["metrics"] == {"accuracy": 0.5}
    assert _blocks(reports[HTML])["data"]["evaluations"]["Mine"]["metrics"] == {"accuracy": 0.5}


async def test_a_run_that_is_not_there_is_not_an_empty_report() -> None:
    """It names the field."""
    async with rig() as r:
        with pytest.raises(NotFound) as refused:
            await r.evaluation.generate_report(run_id="nosuch")

    assert (refused.value.reason, refused.value.field) == (Reason.UNKNOWN_RUN, "run_id")


async def test_a_tool_answers_in_html_too() -> None:
    """The page is a text in the answer's JSON."""
    async with tools_of(ScriptedModel()) as tools:
        parameters = {"format": "html", "metrics": {"accuracy": 0.5}, "title": "Mine"}
        answer = await tools.execute("generate_report", parameters, {}, ToolCall())

    assert _blocks(json.loads(answer.json())["report"])["data"]["title"] == "Mine"


async def test_a_stage_like_kitchens_has_its_report_in_every_format() -> None:
    """What Kitchen's stage does with its port, by the tools of Snakepit: evaluate, then report what came back."""
    async with tools_of(ScriptedModel()) as tools:
        parameters = {
            "model": "embedded:arithmetic@320",
            "evaluators": ["accuracy"],
            "dataset": [{"input": "ab", "target": "AB"}],
            "sampling": {"max_tokens": 8},
        }
        results = json.loads((await tools.execute("evaluate", parameters, {}, ToolCall())).json())["evaluation"]
        for name, start in (("markdown", "# Evaluation"), ("html", "<!doctype html>"), ("json", "{")):
            wanted = {"format": name, "evaluation_ids": [results["evaluation_id"]]}
            report = json.loads((await tools.execute("generate_report", wanted, {}, ToolCall())).json())["report"]
            assert report.startswith(start)
            assert results["evaluation_id"] in report


async def test_a_run_that_is_too_large_to_compare_is_reported_all_the_same() -> None:
    """The page has no comparison then, and nothing is tied."""
    async with rig(max_compared_samples=3) as r:
        for step in (1, 2):
            await r.evaluation.evaluate(asked(evaluation_id=f"at-{step}", step=step, run_id="run"))
        data = _blocks(await r.evaluation.generate_report((), HTML, run_id="run"))["data"]

    assert data["compare"] is None
    assert all(series["tied"] == [] for series in data["runs"]["run"]["series"])
