"""Rewards in the trainers themselves, or in their own code that calls reward functions, where a wheel has it."""

from __future__ import annotations

import asyncio
import functools
import importlib.metadata
import importlib.util
import logging
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.rewards import Reward, math_reward
from crucible_worker.embedded import registry
from tests.service.rewards_page import block, defined

pytestmark = [pytest.mark.trainers, pytest.mark.filterwarnings("ignore")]

SUMS = ((23, 74), (61, 20), (40, 35), (52, 27))
BLANK = " "
"""A target that no grader can use."""


def test_trl_trains_by_rewards(tmp_path: Path):
    """GRPOTrainer with a real model: a row that cannot be decided is left out, and counts are among its metrics."""
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    rows = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a, b in SUMS] + [{"prompt": "1+1=", "answer": BLANK}] * 4
    arguments = trl.GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=16,
        num_generations=2,
        max_completion_length=6,
        max_steps=1,
        logging_steps=1,
        shuffle_dataset=False,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        log_completions=True,
        disable_tqdm=True,
    )
    right = Reward(name="right", details=True)
    trainer = trl.GRPOTrainer(
        model=str(registry.path("arithmetic@600")),
        reward_funcs=[right, Reward("format", scale=0.1)],
        args=arguments,
        train_dataset=datasets.Dataset.from_list(rows),
    )

    trainer.train()

    logged = trainer.state.log_history[0]
    assert logged["right/undecided"] == 8
    assert logged["rewards/right/mean"] > 0.5  # of those that were decided
    assert logged["rewards/format_reward/mean"] == 0
    assert right.counts.total == {"graded": 16, "undecided": 8, "timeouts": 0, "errors": 0}


class _Tokenizer:
    """Reads tokens as characters."""

    def decode(self, tokens: Any, skip_special_tokens: bool = True) -> str:
        return "".join(chr(int(each)) for each in tokens)


def _verl_batch(verl: Any, rows: list[tuple[str, str]]) -> Any:
    """Responses and ground truths as verl passes them to its reward managers."""
    import numpy as np
    import torch

    length = max(len(response) for response, _ in rows)
    responses = torch.zeros((len(rows), length), dtype=torch.long)
    mask = torch.zeros((len(rows), length + 1), dtype=torch.long)
    for number, (response, _) in enumerate(rows):
        responses[number, : len(response)] = torch.tensor([ord(each) for each in response])
        mask[number, : 1 + len(response)] = 1
    tensors = {"prompts": torch.ones((len(rows), 1), dtype=torch.long), "responses": responses, "attention_mask": mask}
    others = {
        "data_source": np.array(["sums"] * len(rows), dtype=object),
        "reward_model": np.array([{"ground_truth": target} for _, target in rows], dtype=object),
        "extra_info": np.array([{"index": number} for number in range(len(rows))], dtype=object),
    }
    return verl.DataProto.from_dict(tensors=tensors, non_tensors=others)


ROWS = [("The answer is 4.", "4"), ("The answer is 5.", "4"), ("4", BLANK)]


async def test_verl_scores_single_responses():
    """The manager of its reward loop: in its threads, with the keyword arguments of the configuration."""
    verl = pytest.importorskip("verl")
    naive = pytest.importorskip("verl.experimental.reward_loop.reward_manager.naive")
    reward = pytest.importorskip("verl.trainer.ppo.reward")
    compute_score = functools.partial(reward._call_with_kwargs, math_reward, {"undecided": -1.0, "details": True})
    config = types.SimpleNamespace(reward=types.SimpleNamespace())
    manager = naive.NaiveRewardManager(config=config, tokenizer=_Tokenizer(), compute_score=compute_score)
    batch = _verl_batch(verl, ROWS)

    scores = await asyncio.gather(*(manager.run_single(batch[number : number + 1]) for number in range(len(ROWS))))

    assert [score["reward_score"] for score in scores] == [1.0, 0.0, -1.0]
    assert [score["reward_extra_info"]["verdict"] for score in scores] == ["correct", "incorrect", "undecided"]
    assert [score["reward_extra_info"]["undecided"] for score in scores] == [0, 0, 1]


def test_verl_scores_batches():
    """The manager that passes all responses of a batch."""
    verl = pytest.importorskip("verl")
    manager_type = pytest.importorskip("verl.workers.reward_manager.batch").BatchRewardManager
    manager = manager_type(_Tokenizer(), 0, Reward(undecided=0.0, details=True), "data_source")

    result = manager(_verl_batch(verl, ROWS), return_dict=True)

    assert result["reward_tensor"].sum(dim=-1).tolist() == [1.0, 0.0, 0.0]
    assert result["reward_extra_info"]["verdict"] == ["correct", "incorrect", "undecided"]


async def test_openrlhf_loads_a_reward_function(tmp_path: Path):
    """Its executor, with the file that `--reward.remote_url` names; what it returns becomes tensors there."""
    agent, torch = pytest.importorskip("openrlhf.utils.agent"), pytest.importorskip("torch")
    path = tmp_path / "reward.py"
    path.write_text("from crucible_bridge.rewards import Reward\nreward_func = Reward(undecided=0.0)\n")
    executor = agent.SingleTurnAgentExecutor(str(path))
    prompts = ["1+1=2\n2+2="] * 2

    found = await executor._fetch_rewards_via_func([f"{prompts[0]}4</s>", f"{prompts[1]}5"], prompts, ["4", "4"])

    assert [torch.tensor([each["rewards"]]).flatten().tolist() for each in found] == [[1.0], [0.0]]
    assert all(each["extra_logs"]["undecided"].flatten()[0].item() == 0 for each in found)


async def test_areal_calls_a_reward_in_its_processes(monkeypatch: pytest.MonkeyPatch):
    """Its own wrapper, which pickles the function; the package around it wants a GPU's libraries."""
    try:
        path = importlib.metadata.distribution("areal").locate_file("areal/api/reward_api.py")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("AReaL is missing (make test-trainers)")
    utils: Any = types.ModuleType("areal.utils")
    utils.logging = logging
    for name, module in (("areal", types.ModuleType("areal")), ("areal.utils", utils)):
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("reward_api", str(path))
    assert spec is not None
    assert spec.loader is not None
    api: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(api)
    wrapper = api.AsyncRewardWrapper(Reward(undecided=0.0), timeout_seconds=60, max_workers=1)
    try:
        rewards = [await wrapper("2+2?", said, [1], [2], answer="4", task="sums") for said in ("so 4", "so 5")]
    finally:
        wrapper._atexit_shutdown_all()

    assert rewards == [1.0, 0.0]


async def test_verifiers_scores_a_trace():
    """The task of the page: its `@vf.reward` awaits the reward of the last reply."""
    pytest.importorskip("verifiers.v1")
    trace_type = pytest.importorskip("verifiers.v1.trace").Trace
    names = defined("verifiers and prime-rl")
    task = names["SumTask"](names["SumData"](prompt="2+2?", answer="4"))
    rewards = []
    for said in ("The answer is 4.", "The answer is 5."):
        trace = trace_type.model_construct(task=task.data, root_reply=said, rewards={}, metrics={})
        await task.score(trace)
        rewards.append(trace.reward)

    assert rewards == [1.0, 0.0]


def test_the_page_trains_with_trl(tmp_path: Path):
    """Its block as it stands, with a model that is here, on the CPU, for one step."""
    pytest.importorskip("trl")
    here = block("TRL").replace('"Qwen/Qwen3-0.6B"', repr(str(registry.path("arithmetic@600"))))
    small = "max_steps=1, per_device_train_batch_size=8, use_cpu=True, bf16=False, report_to=[], save_strategy='no'"
    here = here.replace('output_dir="runs/one"', f"output_dir={str(tmp_path)!r}, {small}, logging_steps=1")
    names: dict[str, Any] = {}

    exec(compile(here, "TRL", "exec"), names)

    (logged, _) = names["trainer"].state.log_history
    assert logged["math_reward/undecided"] == 0
    assert logged["rewards/math_reward/mean"] > 0.5


def test_the_libraries_are_there():
    """Here nothing is skipped without a word: `make test-trainers` installs them."""
    missing = [name for name in ("trl", "verifiers", "verl") if importlib.util.find_spec(name) is None]

    assert missing == []
