"""The index of samples: what matches, in which order, while more of them come."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crucible_bridge.errors import NotFound
from crucible_bridge.types import Sample, SampleResult, Verdict
from crucible_worker.web import samples_index
from crucible_worker.web.samples_index import SampleIndex, SampleQuery

TEXTS = st.sampled_from(["", "ab", "AB", "x%y", "a_b", "ß", "STRASSE", "'", "\u2028", "a\x00b", "\ud800"])


def result(n: int, *, output: str = "out", verdict: Verdict = Verdict.CORRECT, **fields: Any) -> SampleResult:
    """A result with a record."""
    sample = Sample(id=str(n), input=f"in {n}", targets=("t",), metadata=fields.pop("metadata", {}))
    return SampleResult(
        evaluator=fields.pop("evaluator", "accuracy"),
        sample_id=str(n),
        verdict=verdict,
        output=output,
        sample=sample,
        **fields,
    )


class Worker:
    """Answers GetSamples of evaluations by id, in pages; a call waits until it may go on."""

    def __init__(self, evaluations: dict[str, list[SampleResult]]) -> None:
        self.evaluations = evaluations
        self.calls = 0
        self.go_on: Callable[[int], Any] = lambda call: asyncio.sleep(0)
        self.evaluation = self

    async def get_samples(self, evaluation_id: str, *, page_size: int, page_token: str = "") -> Any:
        self.calls += 1
        await self.go_on(self.calls)
        if evaluation_id not in self.evaluations:
            raise NotFound(f"no {evaluation_id}")
        start = int(page_token or 0)
        items = self.evaluations[evaluation_id][start : start + page_size]
        end = start + len(items)
        token = str(end) if end < len(self.evaluations[evaluation_id]) else ""
        return types.SimpleNamespace(items=tuple(items), next_page_token=token)


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of three samples."""
    monkeypatch.setattr(samples_index, "PAGE_SIZE", 3)


async def found(worker: Worker, folder: Path, evaluation_id: str = "e", **query: Any) -> Sequence[str]:
    """The ids that match, of all samples."""
    index = SampleIndex(worker, folder)  # pyright: ignore[reportArgumentType] - as much of a client as it needs
    try:
        while not (page := await index.find(evaluation_id, SampleQuery(**query))).complete:
            pass
        assert page.matching >= len(page.rows)
        return [row["id"] for row in page.rows]
    finally:
        await index.aclose()
        (folder / "samples.sqlite3").unlink()


RESULTS = st.lists(
    st.builds(
        lambda output, verdict, score, tokens, level, stop: {
            "output": output,
            "verdict": verdict,
            "score": score,
            "output_tokens": tokens,
            "metadata": {"level": level},
            "stop_reason": stop,
        },
        TEXTS,
        st.sampled_from(list(Verdict)),
        st.none() | st.floats(0, 1),
        st.integers(0, 3),
        TEXTS,
        st.sampled_from(["stop", "length", ""]),
    ),
    max_size=12,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    RESULTS,
    st.sampled_from(["", "all", "wrong", "unscored", "truncated"]),
    TEXTS,
    st.none() | TEXTS,
    st.sampled_from(["", "n", "score", "tokens"]),
    st.booleans(),
)
async def test_it_finds_what_a_loop_finds(tmp_path, small_pages, rows, kind, search, level, sort, descending):
    """Any filter, search, metadata and order gives what a filter and a sort of the list give."""
    results = [result(n, **fields) for n, fields in enumerate(rows)]
    passes = {
        "wrong": lambda one: one.verdict is Verdict.INCORRECT,
        "unscored": lambda one: not one.verdict.scored,
        "truncated": lambda one: one.stop_reason == "length",
    }.get(kind, lambda one: True)
    expected = [
        one
        for one, fields in zip(results, rows, strict=True)
        if passes(one)
        and search.casefold() in f"{one.sample_id}\nin {one.sample_id}\nt\n{one.output}".casefold()
        and (level is None or fields["metadata"]["level"] == level)
    ]
    if sort in ("score", "tokens"):
        value = (lambda one: one.score) if sort == "score" else (lambda one: one.output_tokens)
        known = sorted((one for one in expected if value(one) is not None), key=value)
        if descending:  # samples of one value stay in the data set's order
            known = sorted((one for one in expected if value(one) is not None), key=value, reverse=True)
        expected = known + [one for one in expected if value(one) is None]
    elif descending:
        expected.reverse()

    ids = await found(
        Worker({"e": results}),
        tmp_path,
        filter=kind,
        search=search,
        where={} if level is None else {"level": level},
        sort=sort,
        descending=descending,
    )

    assert ids == [one.sample_id for one in expected]


async def test_changed_samples_have_another_verdict_elsewhere(tmp_path, small_pages):
    """Of the other evaluation, by evaluator, id and repeat; a sample that it does not have has not changed."""
    one = [result(n) for n in range(8)]
    other = [result(n, verdict=Verdict.INCORRECT if n % 3 == 0 else Verdict.CORRECT) for n in range(7)]

    assert await found(Worker({"e": one, "o": other}), tmp_path, filter="changed", other="o") == ["0", "3", "6"]


async def test_the_first_page_does_not_wait_for_the_rest(tmp_path, small_pages):
    """What has been read is shown, and the answer says that there is more."""
    worker = Worker({"e": [result(n) for n in range(9)]})
    held = asyncio.Event()
    worker.go_on = lambda call: held.wait() if call > 1 else asyncio.sleep(0)
    index = SampleIndex(worker, tmp_path)  # pyright: ignore[reportArgumentType]

    first = await index.find("e", SampleQuery(limit=3))
    assert ([row["id"] for row in first.rows], first.read, first.complete) == (["0", "1", "2"], 3, False)
    held.set()
    while not (page := await index.find("e", SampleQuery())).complete:
        pass
    assert page.matching == 9
    await index.aclose()


async def test_an_evaluation_that_moves_is_read_again(tmp_path, small_pages, monkeypatch):
    """After it has moved, not before; samples that are gone leave, others take their places."""
    monkeypatch.setattr(samples_index, "_AGAIN_LEAST_SECONDS", 0.0)
    monkeypatch.setattr(samples_index, "_AGAIN", 0.0)
    worker = Worker({"e": [result(n) for n in (0, 2, 4, 6)]})
    index = SampleIndex(worker, tmp_path)  # pyright: ignore[reportArgumentType]
    while not (await index.find("e", SampleQuery())).complete:
        pass
    calls = worker.calls

    await index.find("e", SampleQuery())
    assert worker.calls == calls
    worker.evaluations["e"] = [result(n) for n in (0, 1, 2)]
    index.moved("e")
    while [row["id"] for row in (await index.find("e", SampleQuery())).rows] != ["0", "1", "2"]:
        await asyncio.sleep(0)
    assert await index.sample("e", "accuracy", "4", 0) is None
    found = await index.sample("e", "accuracy", "1", 0)
    assert found is not None
    assert (found[0], found[1].sample_id) == (1, "1")
    await index.aclose()


async def test_a_problem_of_the_worker_is_told(tmp_path):
    """And another look tries again."""
    worker = Worker({})
    index = SampleIndex(worker, tmp_path)  # pyright: ignore[reportArgumentType]

    with pytest.raises(NotFound):
        await index.find("e", SampleQuery())
    worker.evaluations["e"] = [result(0)]
    assert (await index.find("e", SampleQuery())).matching == 1
    await index.aclose()


async def test_the_index_is_bounded(tmp_path, small_pages, monkeypatch):
    """Beyond the bound the evaluations that were not looked at for the longest time leave."""
    monkeypatch.setattr(samples_index, "MAX_INDEXED", 10)
    worker = Worker({name: [result(n) for n in range(6)] for name in "abc"})
    index = SampleIndex(worker, tmp_path)  # pyright: ignore[reportArgumentType]
    for name in "abc":
        while not (await index.find(name, SampleQuery())).complete:
            pass
    calls = worker.calls

    await index.find("c", SampleQuery())
    assert worker.calls == calls
    while not (await index.find("a", SampleQuery())).complete:
        pass
    assert worker.calls > calls
    await index.aclose()
