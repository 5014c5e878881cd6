"""Bytes of the journal for each sample, by the recorded parts: everything, outputs, or only results.

Each figure is the growth of a journal by one evaluation, all its tables and indices, events included. "First" evaluates
a data set that the journal does not know yet; "again" evaluates it once more, as the next step of a training run does.
The questions are as long as those of GSM8K, with a target that has its reasoning; a chat template puts some 200
characters around each. Figures do not depend on the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path

import structlog
from _report import Claim, arguments, report

from crucible_bridge.types import ChatMessage, ModelInput, Record, SampledSequence, SamplingParams, ToolSpec
from crucible_worker.backends.base import Rendered
from crucible_worker.journal.schema import JOURNAL_FILE
from crucible_worker.testing import RunningWorker, ScriptedModel, run_worker

SAMPLES = 2_000
QUESTION_WORDS, TARGET_WORDS, ANSWER_WORDS = 45, 50, 60
FRAME = "Answer the question. Think step by step, then give the number alone on the last line.\n\n{}\n\n" + "-" * 100
FIRST, AGAIN = "first", "again"


async def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    words = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="crucible-") as folder:
        data = Path(folder) / "data.jsonl"
        data.write_text("".join(json.dumps(line(index, words)) + "\n" for index in range(SAMPLES)))
        size = data.stat().st_size / SAMPLES
        claims = []
        for record in Record:
            found = await measured(record, data, Path(folder) / record.value)
            for name, count in found.items():
                claims.append(
                    Claim(
                        name=f"record={record.value}, {name}",
                        ours=[count],
                        unit="bytes/sample",
                        claim=f"nothing; the file has {size:,.0f} bytes a sample",
                    )
                )
    report(claims, as_json=options.json)


async def measured(record: Record, data: Path, state_dir: Path) -> dict[str, float]:
    """Bytes of a sample in a journal, for a data set that is new to it, and for one that it knows."""
    model, found = WordyModel(), {}
    async with run_worker({"scripted": model}, data_roots=(data.parent,), state_dir=state_dir) as worker:
        for name in (FIRST, AGAIN):
            before = size_of(state_dir)
            await evaluate(worker, name, record)
            found[name] = (size_of(state_dir) - before) / SAMPLES
    return found


async def evaluate(worker: RunningWorker, evaluation_id: str, record: Record) -> None:
    """One evaluation."""
    evaluation = await worker.bridge.evaluation.evaluate(
        evaluation_id=evaluation_id,
        model="embedded:scripted",
        evaluators=["accuracy"],
        dataset="jsonl:data.jsonl",
        sampling=SamplingParams(max_tokens=10_000),
        record=record,
    )
    assert evaluation.done == SAMPLES


def size_of(state_dir: Path) -> int:
    """Pages in use, whether they are in the journal's file or still in its log."""
    with contextlib.closing(sqlite3.connect(state_dir / JOURNAL_FILE)) as connection:
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
    return (pages - free) * size


class WordyModel(ScriptedModel):
    """A model with a chat template that answers in as many words as usual for such questions."""

    @property
    def sampling(self) -> WordyModel:
        """Its sampling side."""
        return self

    @property
    def tokenizer(self) -> WordyModel:
        """Its tokenizer."""
        return self

    async def render_chat(
        self, messages: Sequence[ChatMessage], *, generation_prompt: bool, tools: Sequence[ToolSpec] = ()
    ) -> Rendered:
        """The frame with the question in it."""
        text = FRAME.format(messages[-1].content)
        return Rendered(tokens=await self.encode(text), text=text)

    async def sample(
        self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1
    ) -> Sequence[SampledSequence]:
        """A text that depends on the prompt."""
        text = sentence(random.Random(prompt.tokens().tobytes()), ANSWER_WORDS)
        return [SampledSequence(text=text, tokens=tuple(map(ord, text)))] * num_samples


def line(index: int, words: random.Random) -> dict[str, str]:
    """A sample of the data set."""
    return {"id": str(index), "input": sentence(words, QUESTION_WORDS), "target": sentence(words, TARGET_WORDS)}


def sentence(words: random.Random, count: int) -> str:
    """So many words."""
    return " ".join("".join(words.choices("etaoinshrdlu", k=words.randint(2, 9))) for _ in range(count))


if __name__ == "__main__":
    asyncio.run(main())
