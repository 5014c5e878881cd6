"""FindSamples: which results match, in which order, of how many; the same as a reader of all of them finds."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.errors import BridgeError, InvalidField, NotFound
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    EvaluatorSpec,
    Sample,
    SampleOrder,
    SampleResult,
    SampleRow,
    SamplingParams,
    Verdict,
)
from crucible_worker.analysis import sample_search
from crucible_worker.reports.plain_json import replace_surrogates
from crucible_worker.reports.samples import searched_text
from crucible_worker.testing import RunningWorker, ScriptedModel, run_worker
from crucible_worker.util.limits import WorkerLimits

ODD = ["", "ab", "AB", "x%y", "a_b", "ß", "STRASSE", "'", "\u2028", "ﬁne", "\u212a", "a\x00b"]
SAMPLES = [
    *(
        Sample(id=f"s{n}", input=f"q {text}", targets=(text or "none",), metadata={"level": str(n % 3), "k": text})
        for n, text in enumerate(ODD)
    ),
    Sample(
        id="talk",
        input=Conversation((ChatMessage("system", "be brief"), ChatMessage("user", "Ab?"))),
        targets=("Zed",),
    ),
]
"""Inputs, targets and metadata with texts that differ only in case, or that look like patterns."""


def said(prompt: Any) -> str:
    """Half of the answers are the target of their question; some are long."""
    text = prompt if isinstance(prompt, str) else prompt.messages[-1].content
    return f"<think>ab</think>{text.removeprefix('q ')}" * (1 + len(text) % 2)


async def evaluated(worker: RunningWorker, name: str, **fields: Any) -> Sequence[SampleResult]:
    """An evaluation of the samples, twice each, and all of its results."""
    spec = EvaluatorSpec(kind="pass_at_k", options={"grader": "exact_match", "ks": [1, 2], "samples_per_prompt": 2})
    await worker.bridge.evaluation.evaluate(
        evaluation_id=name,
        model="embedded:m",
        dataset=SAMPLES,
        evaluators=[spec],
        sampling=SamplingParams(max_tokens=64, temperature=1.0),
        **fields,
    )
    return [result async for result in worker.bridge.evaluation.all_samples(name)]


def matches(result: SampleResult, search: str, metadata: dict[str, str]) -> bool:
    """Whether it has a text and metadata, from the whole result."""
    held = {} if result.sample is None else result.sample.metadata
    text = replace_surrogates(searched_text(result)).casefold()
    return search.casefold() in text and all(held.get(key) == value for key, value in metadata.items())


@pytest.mark.parametrize("room", [None, 700], ids=["recorded", "records left out"])
async def test_what_is_found_is_what_a_reader_of_all_finds(tmp_path: Path, room: int | None):
    """By text, metadata, verdict; also where the room for records was used up before the last sample."""
    limits = WorkerLimits() if room is None else WorkerLimits(max_evaluation_record_bytes=room)
    async with run_worker({"m": ScriptedModel(answer=said)}, state_dir=tmp_path, limits=limits) as worker:
        results = await evaluated(worker, "e")
        find = worker.bridge.evaluation.find_samples
        found = await find("e")
        for search, metadata in itertools.product(
            ["", "ab", "AB", "%", "_", "ss", "ß", "k", "fi", "user: ab", "zed", "\x00", "s1\nq", "nowhere"],
            [{}, {"level": "1"}, {"level": "1", "k": "AB"}, {"none": ""}],
        ):
            wanted = [n for n, result in enumerate(results) if matches(result, search, metadata)]
            found = await find("e", search=search, metadata=metadata, limit=1000)
            assert [row.n for row in found.rows] == wanted, (search, metadata)
            assert (found.matching, found.searched, found.total) == (len(wanted), len(results), len(results))
        for verdict in {result.verdict for result in results}:
            found = await find("e", verdicts=[verdict], limit=1000)
            assert [row.n for row in found.rows] == [n for n, one in enumerate(results) if one.verdict is verdict]
        if room is None:
            assert [(field.key, field.values_left_out) for field in found.fields] == [("k", False), ("level", False)]
            assert found.fields[1].values == ("0", "1", "2")


async def test_a_content_that_another_evaluation_recorded_is_not_that_of_a_record_without_one(tmp_path: Path):
    """As readers of the whole result see it: what was left out of a record is not searched either."""
    model = {"m": ScriptedModel(answer=said)}
    async with run_worker(model, state_dir=tmp_path, limits=WorkerLimits(max_evaluation_record_bytes=300)) as worker:
        await evaluated(worker, "small")
    async with run_worker(model, state_dir=tmp_path) as worker:
        await evaluated(worker, "large")
        results = [result async for result in worker.bridge.evaluation.all_samples("small")]
        assert any(result.sample is None for result in results)
        wanted = [n for n, result in enumerate(results) if matches(result, "q ", {})]
        assert [row.n for row in (await worker.bridge.evaluation.find_samples("small", search="q ")).rows] == wanted


async def test_order_pages_and_tokens(tmp_path: Path):
    """Without a value last, both ways; equal ones in the data set's order; a token reads its result whole."""
    async with run_worker({"m": ScriptedModel(answer=said)}, state_dir=tmp_path) as worker:
        results = await evaluated(worker, "e")
        find = worker.bridge.evaluation.find_samples
        values = {
            SampleOrder.SCORE: lambda one: one.score,
            SampleOrder.OUTPUT_TOKENS: lambda one: one.output_tokens,
            SampleOrder.DURATION: lambda one: one.duration_ns or None,
            SampleOrder.SAMPLE_ID: lambda one: one.sample_id,
        }
        rows: list[SampleRow] = []
        for order, value in values.items():
            for descending in (False, True):
                have = [n for n, one in enumerate(results) if value(one) is not None]
                have.sort(key=lambda n, value=value: value(results[n]), reverse=descending)
                wanted = [*have, *(n for n, one in enumerate(results) if value(one) is None)]
                rows = [
                    row
                    for offset in range(0, len(results), 7)
                    for row in (await find("e", order_by=order, descending=descending, offset=offset, limit=7)).rows
                ]
                assert [row.n for row in rows] == wanted, (order, descending)
        for row in rows:
            page = await worker.bridge.evaluation.get_samples("e", page_size=1, page_token=row.page_token)
            assert page.items[0] == results[row.n]
        found = await find("e", sample_id="s3", evaluator="pass_at_k")
        assert [(row.sample_id, row.repeat) for row in found.rows] == [("s3", 0), ("s3", 1)]
        assert (await find("e", evaluator="other")).matching == 0
        whole = results[next(n for n, one in enumerate(results) if one.sample_id == "s3")]
        assert whole.sample is not None
        both = await find("e", sample_id="s3", metadata=dict(whole.sample.metadata), search=str(whole.sample.input))
        assert {row.sample_id for row in both.rows} == {"s3"}


async def test_what_changed_from_another_evaluation(tmp_path: Path):
    """Results with another verdict; those that the other one does not have are left out."""
    models = {"m": ScriptedModel(answer=said)}
    async with run_worker(models, state_dir=tmp_path) as worker:
        before = await evaluated(worker, "before")
        models["m"].answer = lambda prompt: "ab"
        after = await evaluated(worker, "after")
        wanted = [n for n, (one, other) in enumerate(zip(before, after)) if one.verdict is not other.verdict]
        found = await worker.bridge.evaluation.find_samples("after", changed_from="before", limit=1000)

        assert wanted
        assert [row.n for row in found.rows] == wanted
        for name, other in (("none", None), ("after", "none")):
            with pytest.raises(NotFound):
                await worker.bridge.evaluation.find_samples(name, changed_from=other)
        with pytest.raises(InvalidField):
            await worker.bridge.evaluation.find_samples("after", offset=-1)


async def test_a_search_ends_with_its_time_or_its_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It says how far it came; one whose caller has left gives its turn to the next."""
    monkeypatch.setattr(sample_search, "_BETWEEN_LOOKS", 1)
    async with run_worker({"m": ScriptedModel(answer=said)}, state_dir=tmp_path) as worker:
        results = await evaluated(worker, "e")
        clock = iter(range(10**6))
        monkeypatch.setattr(sample_search, "_now", lambda: float(next(clock)))
        found = await worker.bridge.evaluation.find_samples("e", within_ms=5_000)
        assert (found.matching, found.searched, found.total) == (5, 5, len(results))

        seen = asyncio.Event()
        loop = asyncio.get_running_loop()

        def endless(*args: Any, **named: Any) -> Any:
            for packed in itertools.cycle(packed_samples(*args, **named)):
                loop.call_soon_threadsafe(seen.set)
                yield packed

        packed_samples = sample_search.packed_samples
        with monkeypatch.context() as patched:
            patched.setattr(sample_search, "packed_samples", endless)
            search = asyncio.create_task(worker.bridge.evaluation.find_samples("e"))
            await seen.wait()
            search.cancel()
            with pytest.raises((asyncio.CancelledError, BridgeError)):
                await search
        assert (await worker.bridge.evaluation.find_samples("e")).searched == len(results)
        assert Verdict.CORRECT in {one.verdict for one in results}
