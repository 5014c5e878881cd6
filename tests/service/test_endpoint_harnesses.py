"""Harnesses as they are, through the endpoint of OpenAI's API: their numbers are those of the model itself."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from crucible_worker.config import Settings
from crucible_worker.embedded import registry
from crucible_worker.server import Worker
from crucible_worker.server.parts import build
from tests import needs

pytestmark = pytest.mark.endpoint

MODEL = "embedded:arithmetic@320"
SUMS = ((12, 34), (13, 29), (40, 41), (11, 11), (77, 22), (5, 6), (36, 47), (18, 18))
CLOSE = 1e-4
"""Most nats between two computations: each rounds to float32 in its own order."""

_TASK = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {rows}}}}}
test_split: test
doc_to_text: "{{{{input}}}}"
"""
_CHOICE = """\
output_type: multiple_choice
doc_to_target: right
doc_to_choice: choices
target_delimiter: ""
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
_SAID = """\
output_type: generate_until
doc_to_target: "{{target}}"
generation_kwargs: {until: ["+"], max_gen_toks: 4, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
_INSPECT = """\
from inspect_ai import Task, task
from inspect_ai.dataset import Sample, json_dataset
from inspect_ai.scorer import match
from inspect_ai.solver import generate


@task
def sums():
    rows = json_dataset("rows.jsonl", lambda row: Sample(input=row["input"], target=row["target"]))
    return Task(dataset=rows, solver=generate(), scorer=match(location="exact"))
"""
_LITELLM = """\
import json, sys
import litellm

asked = {"model": sys.argv[1], "api_base": sys.argv[2], "api_key": "any", "temperature": 0, "max_tokens": 8}
for line in open("rows.jsonl"):
    messages = [{"role": "user", "content": json.loads(line)["input"]}]
    whole = litellm.completion(messages=messages, **asked).choices[0].message.content
    stream = litellm.completion(messages=messages, stream=True, **asked)
    print(json.dumps([whole, "".join(piece.choices[0].delta.content or "" for piece in stream)]))
"""


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[Worker]:
    """A worker with its own models, as it is served; beside it lie the rows."""
    rows = [
        {
            "input": f"{a}+{b}=",
            "choices": [str(a + b), str(a + b - 1), str(a + b + 10)],
            "right": 0,
            "target": str(a + b),
        }
        for a, b in SUMS
    ]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    settings = Settings(port=0, state_dir=tmp_path / "state", grading_processes=0, openai_listen=("127.0.0.1", 0))
    async with Worker(settings.validate(), build=build) as running:
        yield running


async def run(folder: Path, *command: str, **variables: str) -> str:
    """Run a program without the hub, and return what it prints."""
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hub")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=folder, env={**os.environ, **offline, **variables},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return out.decode()


async def lm_eval(folder: Path, model: str, arguments: str) -> Mapping[str, Sequence[Any]]:
    """What lm-evaluation-harness finds of each sample, by task."""
    options = ["--include_path", "tasks", "--tasks", "sums_choice,sums_said", "--log_samples", "--device", "cpu"]
    await run(
        folder, "-m", "lm_eval", "--model", model, "--model_args", arguments, "--output_path", f"out/{model}", *options
    )
    found: dict[str, Sequence[Any]] = {}
    for name in ("sums_choice", "sums_said"):
        (file,) = (folder / "out" / model).rglob(f"samples_{name}_*.jsonl")
        samples = [json.loads(line) for line in file.read_text().splitlines()]
        found[name] = sorted(samples, key=lambda sample: sample["doc_id"])
    return found


@needs.installed("lm_eval")
async def test_lm_evaluation_harness(worker: Worker, tmp_path: Path):
    """`local-completions` has the log-probabilities, the likeliest answers and the texts of the model on its disk."""
    (tmp_path / "tasks").mkdir()
    for name, further in (("sums_choice", _CHOICE), ("sums_said", _SAID)):
        text = _TASK.format(name=name, rows=tmp_path / "rows.jsonl") + further
        (tmp_path / "tasks" / f"{name}.yaml").write_text(text)
    files, url = registry.path("arithmetic@320"), worker.openai_address

    served = await lm_eval(
        tmp_path,
        "local-completions",
        f"model={MODEL},base_url={url}/completions,tokenizer={files},max_length=32,num_concurrent=4",
    )
    direct = await lm_eval(tmp_path, "hf", f"pretrained={files},dtype=float32,max_length=32")

    for ours, theirs in zip(served["sums_choice"], direct["sums_choice"], strict=True):
        assert ours["acc"] == theirs["acc"]
        for (value, greedy), (expected, expected_greedy) in zip(ours["filtered_resps"], theirs["filtered_resps"]):
            assert float(value) == pytest.approx(float(expected), abs=CLOSE)
            assert greedy == expected_greedy
    said = [sample["filtered_resps"] for sample in served["sums_said"]]
    assert said == [sample["filtered_resps"] for sample in direct["sums_said"]]
    assert len(said) == len(SUMS)


@needs.installed("inspect_ai")
async def test_inspect(worker: Worker, tmp_path: Path):
    """`inspect eval` with `openai-api/` has the answers of the worker's own calls, with log-probabilities."""
    (tmp_path / "sums.py").write_text(_INSPECT)
    await run(
        tmp_path, "-m", "inspect_ai", "eval", "sums.py", "--model", f"openai-api/worker/{MODEL}", "--temperature", "0",
        "--max-tokens", "8", "--logprobs", "--top-logprobs", "2", "--display", "plain", "--log-format", "json",
        WORKER_BASE_URL=worker.openai_address, WORKER_API_KEY="any",
    )  # fmt: skip

    (file,) = (tmp_path / "logs").glob("*.json")
    log = json.loads(file.read_text())
    assert log["status"] == "success"
    samples = sorted(log["samples"], key=lambda sample: sample["id"])
    choices = [sample["output"]["choices"][0] for sample in samples]
    assert [choice["message"]["content"] for choice in choices] == await answers(worker)
    assert all(len(token["top_logprobs"]) == 2 for choice in choices for token in choice["logprobs"]["content"])


@needs.installed("litellm")
async def test_litellm(worker: Worker, tmp_path: Path):
    """Whole and as a stream."""
    (tmp_path / "ask.py").write_text(_LITELLM)

    printed = await run(
        tmp_path, "ask.py", f"openai/{MODEL}", worker.openai_address, LITELLM_LOCAL_MODEL_COST_MAP="True"
    )

    expected = [[answer, answer] for answer in await answers(worker)]
    assert [json.loads(line) for line in printed.splitlines()] == expected


async def answers(worker: Worker) -> list[str]:
    """The likeliest answers, by the worker's own call."""
    import crucible_bridge
    from crucible_bridge.types import SampleItem, SamplingParams

    async with crucible_bridge.connect(worker.address) as bridge:
        items = [SampleItem(prompt=f"{a}+{b}=") for a, b in SUMS]
        answer = await bridge.models.sample(MODEL, items, SamplingParams(max_tokens=8))
    return [item.sequences[0].text for item in answer.items]
