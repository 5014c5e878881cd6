"""docs/trainers.md as a whole: its worker, its suite, and its Python, in the page's order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests import needs
from tests.service.test_console_blocks import files_of

pytestmark = [pytest.mark.docs, needs.installed("torch", "transformers", "accelerate")]

PAGE = (Path(__file__).parents[2] / "docs" / "trainers.md").read_text()
ADDRESS = "127.0.0.1:50051"


def blocks() -> dict[str, list[str]]:
    """The page's Python, by the heading above it."""
    sections = re.split(r"^## (.*)$", PAGE, flags=re.MULTILINE)[1:]
    return {
        heading: re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        for heading, text in zip(sections[::2], sections[1::2], strict=True)
    }


@contextlib.asynccontextmanager
async def page_worker(folder: Path) -> AsyncIterator[str]:
    """The address of the worker that the page starts, with its own commands, but for the port."""
    commands = re.findall(r"^    (mkdir .*|crucible-worker .*)$", PAGE, re.MULTILINE)
    assert [each.split()[0] for each in commands] == ["mkdir", "crucible-worker"]
    for name, content in files_of(PAGE).items():
        (folder / name).write_text(content)
    script = f"{commands[0]} && exec {sys.executable} -m {commands[1].replace('-', '_', 1)} --port 0 --log-format json"
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    worker = await asyncio.create_subprocess_exec("bash", "-c", script, cwd=folder, env=environment, stderr=PIPE)
    assert worker.stderr is not None
    try:
        logged = [line async for line in _until_serving(worker.stderr)]
        reading = asyncio.create_task(worker.stderr.read())
        yield json.loads(logged[-1])["address"]
        worker.send_signal(signal.SIGTERM)
        await reading
    finally:
        if worker.returncode is None:
            worker.kill()
        await worker.wait()


async def _until_serving(lines: asyncio.StreamReader) -> AsyncIterator[bytes]:
    async for line in lines:
        yield line
        if b'"serving"' in line:
            return


async def printed(code: str, address: str, folder: Path) -> list[str]:
    """What a program prints, with another address alone."""
    (folder / "program.py").write_text(code.replace(ADDRESS, address))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "program.py", cwd=folder, env=environment, stdout=PIPE, stderr=PIPE
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return output.decode().splitlines()


async def test_the_trainer_of_transformers_runs_as_the_page_has_it(tmp_path: Path):
    """Its checkpoints are evaluated by the page's suite, and training stops early in the section about that."""
    found = blocks()
    code = "\n".join((*found["Transformers"], *found["Early stopping"]))
    assert code.count(ADDRESS) == 2
    async with page_worker(tmp_path) as address:
        lines = await printed(code, address, tmp_path)
    history = next(line for line in lines if line.startswith("["))
    assert re.findall(r"'step': (\d+)", history) == ["10", "20"]
    assert lines[-1].startswith("likelihood/nll of step ")
    assert lines[-1].endswith(": training is stopped")


LIGHTNING = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from lightning.pytorch import LightningModule
from crucible_worker.embedded import registry

class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.tokenizer = AutoTokenizer.from_pretrained(registry.path("arithmetic@180"))
        self.model = AutoModelForCausalLM.from_pretrained(registry.path("arithmetic@180"), dtype="float32")

    def training_step(self, batch, index):
        return self.model(input_ids=batch, labels=batch).loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-5)

    def train_dataloader(self):
        ids = torch.tensor(self.tokenizer("1+1=2")["input_ids"])
        return torch.utils.data.DataLoader([ids] * 256, batch_size=4)

module = Module()
"""
"""The module of a user, which the page does not show."""


@needs.installed("lightning")
async def test_the_trainer_of_lightning_runs_as_the_page_has_it(tmp_path: Path):
    """Both checkpoints are written in the form of Hugging Face, and evaluated."""
    (code,) = blocks()["Lightning"]
    async with page_worker(tmp_path) as address:
        lines = await printed(f"{LIGHTNING}\n{code}", address, tmp_path)
    assert sorted(path.name for path in (tmp_path / "runs" / "three").iterdir()) == ["step-10", "step-20"]
    assert sorted(set(re.findall(r"step=(\d+)", lines[-1]))) == ["10", "20"]
