"""The public data sets of the suites that ship, with the columns that their cards tell: each row becomes a sample."""

import asyncio
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.suites import SuiteMember, parse_suite
from crucible_bridge.types import HubDataset, Verdict
from crucible_worker import suites
from crucible_worker.datasets.hub.reader import rows
from crucible_worker.grading.registry import create
from tests import needs

datasets = pytest.importorskip("datasets", reason=needs.MISSING["datasets"])

from tests.service.hub_cache import fill  # noqa: E402 (needs datasets)
from tests.service.openai_kit import ScriptedServer, shout  # noqa: E402 (likewise)

MEMBERS = {
    f"{name}/{member.name}": member
    for name in suites.names()
    for member in parse_suite(suites.text(name)).members
    if isinstance(member.evaluation.dataset.source, HubDataset)
}
TEXT, LETTER = datasets.Value("string"), datasets.ClassLabel(names=["A", "B", "C", "D"])
TEXTS = datasets.List(TEXT)
MESSAGES = datasets.List({"content": TEXT, "role": TEXT})
TALK = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
SOLUTION = "48/2 = <<48/2=24>>24 in May.\n48+24 = <<48+24=72>>72 in all.\n#### 72"
CHECK = "\n\ndef check(twice):\n    assert twice(2) == 4\n\ncheck(twice)"
HUMANEVAL = {"task_id": "Python/0", "prompt": "def twice(n):\n", "canonical_solution": "    return 2 * n\n"}
HUMANEVAL |= {"instruction": "Write twice(n).", "test": CHECK, "entry_point": "twice"}

# What the card of each tells, and what a sample of it has to be.
CARDS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "chat/no_robots": (
        {"prompt": TEXT, "prompt_id": TEXT, "messages": MESSAGES, "category": TEXT},
        {"prompt": "Hi", "prompt_id": "f0", "messages": TALK, "category": "Chat"},
        {"input": TALK, "id": "f0"},
    ),
    "chat/mmlu": (
        {"question": TEXT, "subject": TEXT, "choices": TEXTS, "answer": LETTER},
        {"question": "1+1?", "subject": "sums", "choices": ["1", "2", "3", "4"], "answer": 1},
        {"input": "1+1?", "choices": ["1", "2", "3", "4"], "target": "B"},
    ),
    "chat/arc_challenge": (
        {"id": TEXT, "question": TEXT, "choices": {"text": TEXTS, "label": TEXTS}, "answerKey": TEXT},
        {"id": "M1", "question": "?", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "B"},
        {"input": "?", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "target": "B", "id": "M1"},
    ),
    "code/humaneval": (
        dict.fromkeys(HUMANEVAL, TEXT),
        HUMANEVAL,
        {"input": "Write twice(n).", "target": CHECK, "id": "Python/0"},
    ),
    "code/humaneval_solutions": (
        dict.fromkeys(HUMANEVAL, TEXT),
        HUMANEVAL,
        {"input": "def twice(n):\n", "target": "    return 2 * n\n", "id": "Python/0"},
    ),
    "math/gsm8k": (
        {"question": TEXT, "answer": TEXT},
        {"question": "How many?", "answer": SOLUTION},
        {"input": "How many?", "target": SOLUTION},
    ),
    "math/math_500": (
        dict.fromkeys(("problem", "solution", "answer", "subject", "unique_id"), TEXT)
        | {"level": datasets.Value("int64")},
        {
            "problem": "1/2?",
            "solution": "So",
            "answer": "\\frac12",
            "subject": "Algebra",
            "unique_id": "a/1",
            "level": 2,
        },
        {"input": "1/2?", "target": "\\frac12", "id": "a/1"},
    ),
    "math/aime_2024": (
        {"id": datasets.Value("int64"), "problem": TEXT, "solution": TEXT, "answer": TEXT, "url": TEXT, "year": TEXT},
        {"id": 60, "problem": "?", "solution": "So", "answer": "204", "url": "https://x", "year": "2024"},
        {"input": "?", "target": "204"},
    ),
    "tool_use/apigen": ({"messages": MESSAGES}, {"messages": TALK}, {"input": TALK}),
}


def _source(member: SuiteMember) -> HubDataset:
    assert isinstance(member.evaluation.dataset.source, HubDataset)
    return member.evaluation.dataset.source


def test_every_public_data_set_is_looked_at():
    """None is named whose columns nobody has compared with its card."""
    assert set(CARDS) == set(MEMBERS)


@pytest.mark.parametrize("name", CARDS)
def test_the_columns_make_a_sample(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Input, target, choices and id are found, and are what an evaluator needs of them."""
    features, row, record = CARDS[name]
    source = _source(MEMBERS[name])
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path))
    config = source.config or "default"
    fill(tmp_path, source.repo_id, {source.split: [row]}, features=datasets.Features(features), config=config)

    assert list(rows({**dataclasses.asdict(source), "limit": None})) == [record]


async def test_the_number_behind_a_solution_is_the_target():
    """Of GSM8K, whose answers are solutions that end with it."""
    (spec,) = MEMBERS["math/gsm8k"].evaluation.evaluators
    grader = create(
        spec.options["grader"], spec.options["grader_options"], name_field="grader", options_field="options"
    )

    assert (await grader.grade("48 + 24 = 72.", [SOLUTION])).verdict is Verdict.CORRECT
    assert (await grader.grade("She sold 24.", [SOLUTION])).verdict is Verdict.INCORRECT


async def test_a_suite_that_ships_runs_to_its_end_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What the overview shows: `--suite math`, its data sets in the cache, exits with 0."""
    cache = tmp_path / "cache"
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(cache))
    for name in ("gsm8k", "math_500", "aime_2024"):
        features, row, _ = CARDS[f"math/{name}"]
        source = _source(MEMBERS[f"math/{name}"])
        config = source.config or "default"
        fill(cache, source.repo_id, {source.split: [row]}, features=datasets.Features(features), config=config)
    async with ScriptedServer(shout).serving() as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "crucible_worker", "evaluate", "--suite=math", "--json"),
            *("--model=openai:here/model", f"--openai-server=here={server.url}"),
            cwd=tmp_path,
            env={**os.environ, "HF_DATASETS_CACHE": str(cache), "CRUCIBLE_GRADING_PROCESSES": ""},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate()

    assert process.returncode == 0, errors.decode() + output.decode()
    told = json.loads(output)["evaluations"]
    assert [(each["name"], each["state"], each["n_unscored"]) for each in told] == [
        ("gsm8k", "completed", 0),
        ("math_500", "completed", 0),
        ("aime_2024", "completed", 0),
    ]
