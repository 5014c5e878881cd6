"""Every tool, run once with the example that docs/snakepit.md prints."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgpack
import numpy as np
import pytest

from crucible_worker.snakepit.tools import ToolCall
from crucible_worker.testing import ScriptedModel
from tests.service.code_kit import MISSING, needs_sandbox
from tests.unit.snakepit.examples import Example, examples
from tests.unit.snakepit.tools_kit import tools_of


def adder(prompt: str) -> str:
    """A model that adds, and judges."""
    if "JSON object" in prompt:
        return '{"correct": {"reason": "It is.", "score": 8}, "clear": {"reason": "A child may ask.", "score": 3}}'
    left, right = prompt.rstrip("=").split("+")
    return str(int(left) + int(right))


def runnable() -> list[Example]:
    """The page's examples; without that of programs where nothing can run them."""
    return [example for example in examples() if not (MISSING and example.name == "grade_code")]


async def run_all() -> dict[str, Any]:
    """What the tools answer, by name: a result, or the chunks of a stream."""
    answers: dict[str, Any] = {}
    async with tools_of(ScriptedModel(answer=adder), grading_processes=2) as tools:
        for example in runnable():
            asked = (example.name, example.parameters, example.binary, ToolCall())
            if tools.streaming(example.name):
                answers[example.name] = [chunk async for chunk in tools.stream(*asked)]
            else:
                answers[example.name] = await tools.execute(*asked)
    return answers


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    """The answers to the page's examples, which are run once, in its order."""
    return asyncio.run(run_all())


def test_every_example_runs(answers: dict[str, Any]):
    """Each of them is answered, by values that are the same once they went through JSON."""
    for name, answer in answers.items():
        for value in answer if isinstance(answer, list) else [answer.value]:
            assert json.loads(json.dumps(value, allow_nan=False)) == value, name

    assert list(answers) == [example.name for example in runnable()]


def test_metrics_are_plain_numbers(answers: dict[str, Any]):
    """Metrics are numbers by key, and what has none says why beside them."""
    nll, penalty = answers["mean_nll"].value, answers["incorporate_kl_penalty"].value

    assert nll["metrics"]["nll"] == 1.0
    assert nll["undefined"] == {}
    assert penalty["metrics"] == {"kl_policy_base": 0.375}
    np.testing.assert_allclose(penalty["advantages"], [[0.4875, -0.4875]])
    assert answers["kl_post_update"].value["action_tokens"] == 3
    assert answers["pass_at_k"].value["metrics"]["pass@1"] == pytest.approx(0.15)
    assert answers["trajectory_metrics"].value["metrics"]["env/all/by_group/frac_mixed"] == 1.0


def test_verdicts_are_words(answers: dict[str, Any]):
    """Grades have words for verdicts, and the ids that items came with, whatever their type."""
    grades = answers["grade_math"].value["grades"]

    assert [(grade["id"], grade["verdict"]) for grade in grades] == [(1, "correct"), (2, "correct")]
    assert answers["score"].value["grades"][0]["verdict"] == "correct"
    assert [sample["verdict"] for sample in answers["get_samples"].value["samples"]] == ["correct", "correct"]


@needs_sandbox
def test_programs_are_run(answers: dict[str, Any]):
    """A program is graded by its tests, and counted for its problem."""
    value = answers["grade_code"].value

    assert [(grade["id"], grade["verdict"]) for grade in value["grades"]] == [("a", "correct")]
    assert value["metrics"] == {"pass@1": 1.0}


def test_evaluations_are_told_as_they_stand(answers: dict[str, Any]):
    """An evaluation has its state as a word, its model as text, and its metrics under their full keys."""
    evaluation = answers["evaluate"].value["evaluation"]

    assert evaluation["state"] == "completed"
    assert evaluation["request"]["model"] == "embedded:arithmetic@320"
    assert evaluation["metrics"]["test/accuracy"] == 1.0
    assert [each["evaluation_id"] for each in answers["list_evaluations"].value["evaluations"]] == [
        "run-7-step-640",
        "run-7-step-320",
    ]
    assert "run-7-step-320" in answers["generate_report"].value["report"]
    assert answers["notify_step"].value["evaluations"][0]["evaluation"]["evaluation_id"] == "run-8-step-320-0"


def test_streams_tell_events(answers: dict[str, Any]):
    """Chunks hold events with their telemetry names, and where to go on from."""
    watched = [event["name"] for chunk in answers["watch_evaluation"] for event in chunk["events"]]
    completed = [event for chunk in answers["subscribe"] for event in chunk["events"]]

    assert watched[0] == ["crucible_bridge", "evaluation", "start"]
    assert watched[-1] == ["crucible_bridge", "evaluation", "stop"]
    assert [event["kind"] for event in completed] == ["evaluation_complete"] * 2
    assert answers["subscribe"][-1]["through_sequence"] >= completed[-1]["sequence"]


def test_data_sets_are_streamed(answers: dict[str, Any]):
    """Chunks hold samples with their ids, and tell of the whole."""
    (chunk,) = answers["read_dataset"]

    assert [sample["text"] for sample in chunk["samples"]] == [f"{sample['id']}=" for sample in chunk["samples"]]
    assert (len(chunk["samples"]), chunk["total"]) == (2, 815)


def test_tensors_come_back_as_bytes(answers: dict[str, Any]):
    """ToolRequest for as bytes, tensors lie one after the other, and the answer says what and where they are."""
    result = answers["compute_logprobs"]
    described = [sequence["logprobs"] for sequence in result.value["sequences"]]

    assert described == [
        {"dtype": "f64", "shape": [2], "offset": 0, "bytes": 16},
        {"dtype": "f64", "shape": [1], "offset": 16, "bytes": 8},
    ]
    assert len(result.binary) == 24
    assert np.isfinite(np.frombuffer(result.binary, "<f8")).all()
    assert result.metadata == {"result_format": "binary"}


def test_answers_come_back_as_msgpack(answers: dict[str, Any]):
    """ToolRequest for as msgpack, all of the answer is there, tensors as bytes."""
    result = answers["forward"]
    output = msgpack.unpackb(result.binary)["outputs"][0]

    assert result.value == {"result_format": "msgpack"}
    assert output["logprobs"]["dtype"] == "f64"
    assert len(output["logprobs"]["data"]) == 24
    assert output["loss"] == -np.frombuffer(output["logprobs"]["data"], "<f8")[1:].sum()


def test_tools_tell_what_they_take(answers: dict[str, Any]):
    """The list of tools has each with a description and a schema."""
    listed = answers["list_tools"].value["tools"]

    assert [tool["name"] for tool in listed if tool["streaming"]] == [
        "read_dataset",
        "subscribe",
        "watch_evaluation",
    ]
    assert all(tool["description"] and tool["parameters"]["type"] == "object" for tool in listed)
