"""Grading on a Ray cluster: the same verdicts as in the worker, every answer once, and clear errors."""

from __future__ import annotations

import asyncio
import dataclasses
import os

import pytest
import pytest_asyncio

from tests import needs

pytest.importorskip("ray", reason=needs.MISSING["ray"])

from crucible_bridge.errors import FailedPrecondition, InvalidField, Unavailable
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    CallTest,
    ChoiceScorer,
    CodeItem,
    CodeLimits,
    EvaluatorSpec,
    GradeCodeRequest,
    GradeItem,
    RegexScorer,
    Sample,
    SamplingParams,
    ScoreOptions,
    Verdict,
)
from crucible_worker.grading.code.grader import CodeGrader
from crucible_worker.grading.code.sandbox import SandboxSlots
from crucible_worker.grading.fanout import fanout as module
from crucible_worker.grading.fanout.fanout import ClusterConnection, Fanout
from crucible_worker.grading.fanout.graders import ClusterMath, ClusterPlaces, ClusterPrograms
from crucible_worker.grading.math.grader import MathGrader
from crucible_worker.grading.pool import GradingPool
from crucible_worker.testing import ScriptedModel, run_worker
from tests.processes import alive, processes_below
from tests.service.code_kit import needs_sandbox
from tests.service.fanout_kit import pairs, ray_cluster, timeless
from tests.tables import rows

pytestmark = [pytest.mark.clusters, pytest.mark.asyncio(loop_scope="module")]

HARD = tuple(
    GradeItem(id=f"hard-{n}", answer=rf"\sqrt[7]{{2^{{x}}+{n}^{{y}}}}-\sqrt[5]{{x^{{7}}+y^{{11}}}}", targets=("x",))
    for n in range(2, 5)
)
"""Of answers that take a while, and of those that only a limit ends."""
BOMB = GradeItem(id="bomb", answer=r"\sum_{k=1}^{1000000000}\sin(k)", targets=("17",))


@pytest.fixture(scope="module", autouse=True)
def two_nodes():
    """A cluster of two nodes, for the tests of this module."""
    with ray_cluster(2) as cluster:
        yield cluster


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fanout(two_nodes):
    """A connection to it."""
    fanout = Fanout("auto", 8)
    yield fanout
    await fanout.aclose()


async def test_verdicts_are_those_of_the_worker_itself(fanout):
    """Also of answers that exceed a limit: the children of a node have the same limits."""
    items = [*pairs(2_000), *HARD, BOMB]
    pool = GradingPool(2)
    try:
        local = await MathGrader(pool).grade_batch(items)
    finally:
        await pool.aclose()

    there = await ClusterMath(fanout).grade_batch(items)

    assert timeless(there) == timeless(local)
    assert {grade.verdict for grade in there} >= {Verdict.CORRECT, Verdict.INCORRECT}


async def test_texts_that_are_no_unicode_arrive(fanout):
    """A lone surrogate, which JSON can hold, is graded like other text, and comes back."""
    (grade,) = await ClusterMath(fanout).grade_batch([GradeItem(answer="\ud800", targets=("x",))])

    assert grade.extracted == "\ud800"


async def test_few_answers_of_many_callers_share_a_chunk(fanout, monkeypatch):
    """As those of an evaluation, which come one by one; each caller gets its own."""
    await fanout.start()
    sizes: list[int] = []
    sent = module.sent
    monkeypatch.setattr(module, "sent", lambda order: sizes.append(len(order.items)) or sent(order))
    math = ClusterMath(fanout)

    grades = await asyncio.gather(*(math.grade(f"It is {n}.", [str(n % 3)]) for n in range(12)))

    assert [grade.verdict is Verdict.CORRECT for grade in grades] == [n < 3 for n in range(12)]
    assert sum(sizes) == 12
    assert len(sizes) < 12


async def test_a_large_chunk_is_halved(fanout, monkeypatch):
    """Long texts never make a message that the cluster's memory cannot hold."""
    sizes: list[int] = []
    sent = module.sent
    monkeypatch.setattr(module, "CHUNK_BYTES", 20_000)
    monkeypatch.setattr(module, "sent", lambda order: sizes.append(len(order.items)) or sent(order))
    items = [GradeItem(response=f"{'so ' * 3_000} \\boxed{{{n}}}", targets=("3",)) for n in range(8)]

    grades = await ClusterMath(fanout).grade_batch(items)

    assert [grade.verdict is Verdict.CORRECT for grade in grades] == [n == 3 for n in range(8)]
    assert {2, 4, 8} <= set(sizes)


@needs_sandbox
async def test_programs_run_in_the_sandboxes_of_the_nodes(fanout):
    """With the same verdicts: right, wrong, too slow."""
    test = CallTest(function="f", arguments_json="[1]", expected_json="2")
    programs = ("def f(x): return x + 1", "def f(x): return x", "def f(x):\n    while True: pass", "no program")
    request = GradeCodeRequest(
        items=tuple(CodeItem(id=str(n), response=programs[n % 4], tests=(test,), problem_id="p") for n in range(24)),
        limits=CodeLimits(timeout_ms=500),
        k=(1,),
    )
    places = SandboxSlots(2)
    try:
        local = await CodeGrader(places).grade_batch(request)
    finally:
        await places.aclose()

    there = await ClusterPrograms(ClusterPlaces(fanout)).grade_batch(request)

    assert timeless(there.grades) == timeless(local.grades)
    assert (there.problems, there.metrics) == (local.problems, local.metrics)


@rows("address", ["auto", "local"])
async def test_a_cancelled_call_leaves_nothing_behind(address, fanout):
    """Its chunks are cancelled in the cluster, also in one that the worker has started; the next call has the nodes."""
    if address == "auto":
        await _cancelled(fanout)
        return
    local = Fanout(address, 8)
    try:
        await _cancelled(local)
    finally:
        await local.aclose()


async def _cancelled(fanout):
    await fanout.start()
    endless = [dataclasses.replace(BOMB, id=str(n), answer=f"{BOMB.answer}+{n}") for n in range(1_400)]
    call = asyncio.create_task(ClusterMath(fanout).grade_batch(endless))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(call, 1.0)

    async with asyncio.timeout(60):  # all of it would take minutes
        grades = await ClusterMath(fanout).grade_batch(pairs(512))

    assert len(grades) == 512


async def test_another_release_on_a_node_is_refused(monkeypatch):
    """Its verdicts might differ: the error says what is installed where."""
    monkeypatch.setattr(module, "release", lambda: "0.0.1")
    fanout = Fanout("auto", 8)
    try:
        with pytest.raises(FailedPrecondition, match=r"this worker 0\.0\.1: install the same") as caught:
            await fanout.start()
    finally:
        await fanout.aclose()
    assert caught.value.reason == Reason.FANOUT_NODE


async def test_a_cluster_without_a_free_processor_is_an_error_for_all_who_wait(monkeypatch):
    """Nothing would say why no answer comes; callers at the same time share one attempt."""
    asked: list[bytes] = []

    async def never(self, release, body):
        asked.append(body)
        await asyncio.Event().wait()

    monkeypatch.setattr(ClusterConnection, "ask", never)
    monkeypatch.setattr(module, "BEGIN_SECONDS", 0.2)
    fanout = Fanout("auto", 8)
    try:
        errors = await asyncio.gather(*(fanout.start() for _ in range(3)), return_exceptions=True)
        assert [str(error).count("of the cluster's 2 processors was free") for error in errors] == [1, 1, 1]
        assert [error.reason for error in errors if isinstance(error, Unavailable)] == [Reason.FANOUT_UNREACHABLE] * 3
        assert len(asked) == 1

        monkeypatch.setattr(module, "BEGIN_SECONDS", 600.0)
        waiting = asyncio.create_task(fanout.start())
        async with asyncio.timeout(60):
            while len(asked) < 2:
                await asyncio.sleep(0.05)
            await fanout.aclose()  # it does not wait for the cluster
        with pytest.raises(Unavailable) as caught:
            await waiting
        assert caught.value.reason == Reason.GRADING_CLOSED
    finally:
        await fanout.aclose()


async def test_a_worker_grades_and_evaluates_there():
    """Calls and evaluations, mathematics and texts; the worker itself has no children that grade."""
    items = pairs(600)
    texts = [GradeItem(answer=f"n{n}", targets=(r"n\d*7",)) for n in range(300)]
    options = ScoreOptions(scorer=RegexScorer())
    models = {"m": ScriptedModel(answer=lambda prompt: "So it is 42.")}
    async with (
        run_worker(models, grading_processes=2) as local,
        run_worker(models, grading_processes=2, fanout="auto") as worker,
    ):
        graded = [await one.bridge.grading.grade_math(items) for one in (worker, local)]
        scored = [await one.bridge.grading.score(texts, options) for one in (worker, local)]
        assert timeless(graded[0].grades) == timeless(graded[1].grades)
        assert timeless(scored[0]) == timeless(scored[1])
        with pytest.raises(InvalidField) as caught:
            await worker.bridge.grading.score(texts, ScoreOptions(scorer=ChoiceScorer(choices=("a", "a"))))
        assert caught.value.field.startswith("options")
        evaluation = await worker.bridge.evaluation.evaluate(
            model="embedded:m",
            dataset=[Sample(id=str(n), input=f"{n}", targets=(str(n),)) for n in range(40, 44)],
            evaluators=[EvaluatorSpec(kind="accuracy", options={"grader": "math"})],
            sampling=SamplingParams(max_tokens=32),
        )
    assert evaluation.metrics.values["accuracy"] == 0.25


async def test_a_local_cluster_ends_with_the_worker():
    """Every process of it."""
    fanout = Fanout("local", 8)
    before = processes_below(os.getpid())
    try:
        await fanout.start()
        started = processes_below(os.getpid()) - before
        (grade,) = await ClusterMath(fanout).grade_batch([GradeItem(answer="0.5", targets=("1/2",))])
    finally:
        await fanout.aclose()
    assert grade.verdict is Verdict.CORRECT
    assert len(started) > 3
    async with asyncio.timeout(30):
        while alive(started):
            await asyncio.sleep(0.05)
