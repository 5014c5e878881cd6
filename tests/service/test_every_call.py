"""Each call of the services that keep something, once: the Python client, a real worker, embedded models."""

from __future__ import annotations

import asyncio
import functools
import importlib.metadata
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.errors import Code, NotFound, Unavailable
from crucible_bridge.events import EventKind
from crucible_bridge.types import (
    BuiltinDataset,
    Dataset,
    Evaluation,
    EvaluationPlan,
    EvaluationState,
    EvaluatorSpec,
    GateMetric,
    GatePolicy,
    GateVerdict,
    LoggedMetrics,
    PlannedEvaluation,
    ReportFormat,
    SampledSequence,
    SamplingParams,
)
from crucible_worker.embedded.arithmetic import held_out
from crucible_worker.evaluators import registry
from crucible_worker.rpc import chain
from crucible_worker.rpc.calls import Context, Handle, Method
from crucible_worker.rpc.chain import call_logged
from crucible_worker.server import Worker
from tests.protos import CALLS, COMPUTING
from tests.service.evaluation_kit import numbered, refused
from tests.service.follow_kit import save
from tests.service.server_kit import settings_for

pytestmark = [pytest.mark.core, pytest.mark.asyncio(loop_scope="module")]

COUNT = 40
"""Samples of an evaluation."""
ARITHMETIC = Dataset(source=BuiltinDataset("arithmetic"), limit=COUNT)
GREEDY = SamplingParams(max_tokens=8)
SECONDS = 120.0
"""For a worker to begin an evaluation or to write to a logger, on a loaded machine; a bound, not an expectation."""

_covered: set[str] = set()
_received: set[str] = set()

Test = Callable[..., Coroutine[Any, Any, None]]


def covers(*calls: str) -> Callable[[Test], Test]:
    """A test of these calls: a worker must have received each of them."""
    _covered.update(calls)

    def of(test: Test) -> Test:
        @functools.wraps(test)
        async def checked(**fixtures: Any) -> None:
            _received.clear()
            await test(**fixtures)
            assert set(calls) <= _received

        return checked

    return of


@pytest.fixture(scope="module", autouse=True)
def calls_are_noted() -> Iterator[None]:
    """Have workers note the calls that they receive."""

    def noted(inner: Handle, method: Method) -> Handle:
        logged = call_logged(inner, method)

        async def handle(request: Any, context: Context) -> Any:
            _received.add(method.name)
            return await logged(request, context)

        return handle

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "call_logged", noted)
        yield


class Waiting:
    """A model of the caller's: its answers wait until they are let go."""

    def __init__(self) -> None:
        self.queried, self.let_go = asyncio.Event(), asyncio.Event()

    async def sample(self, prompt: str, params: SamplingParams, num_samples: int) -> list[SampledSequence]:
        """Answer in upper case."""
        self.queried.set()
        await self.let_go.wait()
        return [SampledSequence(text=prompt.upper(), tokens=(1,))] * num_samples


async def evaluate_waiting(bridge: Bridge, model: Waiting, evaluation_id: str) -> Evaluation:
    """Evaluate a model of the caller's on four samples."""
    return await bridge.evaluation.evaluate_with_orchestrator_model(
        evaluation_id=evaluation_id,
        model=model,
        name="waiting",
        evaluators=["accuracy"],
        dataset=numbered(4),
        sampling=GREEDY,
        patience=0.0,
    )


async def begun(bridge: Bridge, model: Waiting) -> asyncio.Task[Evaluation]:
    """The evaluation `held`, which is at work until the model's answers are let go."""
    running = asyncio.create_task(evaluate_waiting(bridge, model, "held"))
    async with asyncio.timeout(SECONDS):
        await model.queried.wait()
    return running


def part(*evaluators: str) -> PlannedEvaluation:
    """A part of a plan."""
    specs = tuple(EvaluatorSpec(kind=kind) for kind in evaluators)
    return PlannedEvaluation(evaluators=specs, dataset=ARITHMETIC, sampling=GREEDY)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which runs save their checkpoints."""
    return tmp_path_factory.mktemp("runs")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bridge(root: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bridge]:
    """The client of a worker that has evaluated two checkpoints of the run `run`: `e320` and `e600`."""
    settings = settings_for(tmp_path_factory.mktemp("state"), model_roots=(root,), grading_processes=0)
    async with Worker(settings) as worker, crucible_bridge.connect(worker.address) as bridge:
        for step in (320, 600):
            await bridge.evaluation.evaluate(
                evaluation_id=f"e{step}",
                run_id="run",
                step=step,
                model=f"embedded:arithmetic@{step}",
                evaluators=["accuracy"],
                dataset=ARITHMETIC,
                sampling=GREEDY,
            )
        yield bridge


@pytest_asyncio.fixture(loop_scope="module")
async def held(bridge: Bridge) -> AsyncIterator[tuple[Waiting, asyncio.Task[Evaluation]]]:
    """The evaluation `held` at work, and deleted after the test."""
    model = Waiting()
    running = await begun(bridge, model)
    yield model, running
    model.let_go.set()
    await running
    await bridge.evaluation.delete_evaluation("held")


async def test_every_call_has_its_test():
    """Here, or by a line of its own in the page of one-liners."""
    kept = [calls for service, calls in CALLS.items() if service not in COMPUTING]
    assert _covered == {"Check", *frozenset().union(*kept)}


@covers("ListEvaluators")
async def test_evaluators_are_listed(bridge: Bridge):
    """All that ship, each with its keys and the schema of its options."""
    found = {info.kind: info for info in await bridge.evaluation.list_evaluators()}
    assert found.keys() >= registry.EVALUATORS.keys()
    assert "accuracy" in found["accuracy"].keys
    assert "grader" in found["accuracy"].options_schema["properties"]


@covers("Evaluate", "GetEvaluation", "GetSamples")
async def test_an_evaluation_counts_right_answers(bridge: Bridge):
    """Its accuracy is the share of samples with the target as output; the journal has it as the caller got it."""
    fields: dict[str, Any] = {"dataset": ARITHMETIC, "sampling": GREEDY, "evaluators": ["accuracy"]}
    evaluation = await bridge.evaluation.evaluate(evaluation_id="e", model="embedded:arithmetic@320", **fields)
    page = await bridge.evaluation.get_samples("e", page_size=COUNT)
    targets = [sample.targets[0] for sample in held_out(COUNT)]
    right = [sample.output == target for sample, target in zip(page.items, targets, strict=True)]

    assert evaluation.state is EvaluationState.COMPLETED
    assert evaluation.metrics.values["accuracy"] == sum(right) / COUNT
    assert 0 < sum(right) < COUNT
    assert await bridge.evaluation.get_evaluation("e") == evaluation


@covers("FindSamples")
async def test_samples_are_found_by_their_texts(bridge: Bridge):
    """In the data set's order, with the number of those that match and of those that were looked through."""
    await bridge.evaluation.evaluate(
        evaluation_id="f", model="embedded:arithmetic@320", evaluators=["nll"], dataset=ARITHMETIC
    )
    wanted = [
        n for n, sample in enumerate(held_out(COUNT)) if "7" in f"{sample.id}\n{sample.input}\n{sample.targets[0]}"
    ]
    found = await bridge.evaluation.find_samples("f", search="7", limit=2)

    assert [row.n for row in found.rows] == wanted[:2]
    assert (found.matching, found.searched, found.total) == (len(wanted), COUNT, COUNT)


@covers("StartEvaluation", "WatchEvaluation")
async def test_an_evaluation_outlives_the_call_and_is_watched_to_its_end(bridge: Bridge):
    """Its events: START, one SAMPLE_COMPLETE for each sample, COMPLETE and STOP. The same request finds it again."""
    fields: dict[str, Any] = {"evaluation_id": "started", "model": "embedded:arithmetic@320", "evaluators": ["nll"]}
    started = await bridge.evaluation.start_evaluation(**fields, dataset=ARITHMETIC)
    async with bridge.evaluation.watch_evaluation("started") as stream:
        kinds = [event.kind async for event in stream]
    again = await bridge.evaluation.start_evaluation(**fields, dataset=ARITHMETIC)

    assert (started.existed, again.existed) == (False, True)
    assert again.evaluation.state is EvaluationState.COMPLETED
    assert (kinds[0], kinds[-2:]) == (
        EventKind.EVALUATION_START,
        [EventKind.EVALUATION_COMPLETE, EventKind.EVALUATION_STOP],
    )
    assert kinds.count(EventKind.SAMPLE_COMPLETE) == COUNT


@covers("EvaluateWithOrchestratorModel")
async def test_a_model_of_the_caller_is_evaluated(bridge: Bridge):
    """The worker queries it over the stream, and grades what it answers."""
    model = Waiting()
    model.let_go.set()
    evaluation = await evaluate_waiting(bridge, model, "caller")
    assert (evaluation.state, evaluation.metrics.values["accuracy"]) == (EvaluationState.COMPLETED, 1.0)


@covers("PauseEvaluation", "ResumeEvaluation", "SetEvaluationConcurrency")
async def test_an_evaluation_is_paused_resumed_and_slowed(
    bridge: Bridge, held: tuple[Waiting, asyncio.Task[Evaluation]]
):
    """The state says so, the log has both moments, and the evaluation completes."""
    model, running = held
    paused = await bridge.evaluation.pause_evaluation("held")
    slowed = await bridge.evaluation.set_evaluation_concurrency("held", 1)
    resumed = await bridge.evaluation.resume_evaluation("held")
    model.let_go.set()
    evaluation = await running
    async with bridge.evaluation.watch_evaluation("held") as stream:
        kinds = [event.kind async for event in stream]

    assert (paused.paused, slowed.paused, resumed.paused) == (True, True, False)
    assert (paused.concurrency, slowed.concurrency) == (None, 1)
    assert (evaluation.state, evaluation.concurrency) == (EvaluationState.COMPLETED, 1)
    assert kinds.count(EventKind.EVALUATION_PAUSED) == kinds.count(EventKind.EVALUATION_RESUMED) == 1


@covers("CancelEvaluation")
async def test_an_evaluation_is_cancelled(bridge: Bridge, held: tuple[Waiting, asyncio.Task[Evaluation]]):
    """Its caller gets it with the reason; what waited has no verdict."""
    model, running = held
    await bridge.evaluation.cancel_evaluation("held", "enough")
    evaluation = await running

    assert evaluation.state is EvaluationState.CANCELLED
    assert evaluation.problem is not None
    assert (evaluation.problem.reason, evaluation.problem.message) == ("CANCELLED", "enough")
    assert evaluation.done == 0
    assert not model.let_go.is_set()


@covers("DeleteEvaluation")
async def test_an_evaluation_is_deleted(bridge: Bridge):
    """The answer is the evaluation as it was; then there is none."""
    fields: dict[str, Any] = {"dataset": ARITHMETIC, "evaluators": ["nll"]}
    evaluation = await bridge.evaluation.evaluate(evaluation_id="gone", model="embedded:arithmetic@320", **fields)
    assert await bridge.evaluation.delete_evaluation("gone") == evaluation
    await refused(bridge.evaluation.get_evaluation("gone"), Code.NOT_FOUND, "UNKNOWN_EVALUATION", "evaluation_id")


@covers("ListEvaluations", "ListRuns")
async def test_runs_and_their_evaluations_are_listed(bridge: Bridge):
    """Evaluations newest first, checkpoints by step; the better checkpoint is marked."""
    evaluations = await bridge.evaluation.list_evaluations(run_id="run", states=[EvaluationState.COMPLETED])
    runs = await bridge.evaluation.list_runs()
    run = await bridge.evaluation.list_runs(run_id="run")

    assert [each.evaluation_id for each in evaluations.items] == ["e600", "e320"]
    assert "run" in [each.run_id for each in runs.runs]
    assert [checkpoint.step for checkpoint in run.checkpoints] == [320, 600]
    assert ["accuracy" in checkpoint.results[0].best for checkpoint in run.checkpoints] == [False, True]
    assert run.runs[0].completed == 2


@covers("GenerateReport")
async def test_a_report_has_the_numbers(bridge: Bridge):
    """As JSON and as Markdown."""
    accuracy = (await bridge.evaluation.get_evaluation("e320")).metrics.values["accuracy"]
    report = json.loads(await bridge.evaluation.generate_report("e320", ReportFormat.JSON))
    text = await bridge.evaluation.generate_report("e320")

    assert report["evaluations"][0]["metrics"]["accuracy"] == accuracy
    assert "e320" in text
    assert f"{accuracy:g}" in text


@covers("ReadDataset")
async def test_a_data_set_is_read(bridge: Bridge):
    """Its samples from an offset, in order."""
    samples = [sample async for sample in bridge.evaluation.read_dataset("builtin:arithmetic", offset=3, limit=2)]
    assert [(sample.id, sample.input, sample.targets) for sample in samples] == [
        (sample.id, sample.input, sample.targets) for sample in held_out(5)[3:]
    ]


@covers("RenderSample")
async def test_a_sample_is_rendered(bridge: Bridge):
    """As the model would get it: text and tokens."""
    request = (await bridge.evaluation.get_evaluation("e320")).request
    problem = held_out(2)[1]
    found = await bridge.evaluation.render_sample(request, problem.id)

    (prompt,) = found.prompts
    assert (found.sample_id, prompt.evaluator, prompt.text) == (problem.id, "accuracy", problem.input)
    assert len(prompt.tokens) == len(prompt.text)


@covers("CompareEvaluations")
async def test_evaluations_are_compared(bridge: Bridge):
    """The mean difference over the samples is that of the two accuracies."""
    before, after = [(await bridge.evaluation.get_evaluation(f"e{step}")).metrics.values for step in (320, 600)]
    (pair,) = (await bridge.evaluation.compare_evaluations(["e320", "e600"])).comparisons

    assert pair.n_matched == COUNT
    assert pair.metrics.values["difference"] == pytest.approx(after["accuracy"] - before["accuracy"])
    assert pair.n_improved - pair.n_regressed == round(COUNT * pair.metrics.values["difference"])


@covers("Gate")
async def test_a_gate_lets_the_better_one_pass(bridge: Bridge):
    """And not the other way round."""
    policy = GatePolicy(metrics=(GateMetric(key="accuracy", max_drop=0.0),))
    passed = await bridge.evaluation.gate("e320", "e600", policy)
    stopped = await bridge.evaluation.gate("e600", "e320", policy)

    assert passed.verdict is GateVerdict.PASS
    assert stopped.verdict in (GateVerdict.BLOCK, GateVerdict.INCONCLUSIVE)
    assert stopped.metrics[0].metrics.values["drop"] == -passed.metrics[0].metrics.values["drop"] > 0


@covers("RegisterPlan", "NotifyStep")
async def test_a_plan_starts_what_is_due(bridge: Bridge):
    """At step 2 nothing, at step 3 one evaluation of the step's model."""
    plan = EvaluationPlan(plan_id="plan", run_id="planned", eval_every=3, evaluations=(part("nll"),))
    registered = [await bridge.evaluation.register_plan(plan) for _ in range(2)]
    idle = await bridge.evaluation.notify_step("plan", 2, "embedded:arithmetic@320")
    (due,) = await bridge.evaluation.notify_step("plan", 3, "embedded:arithmetic@320")
    async with bridge.evaluation.watch_evaluation(due.evaluation.evaluation_id) as stream:
        kinds = [event.kind async for event in stream]
    evaluation = await bridge.evaluation.get_evaluation("plan-step-3-0")

    assert [each.existed for each in registered] == [False, True]
    assert registered[0].fingerprint == registered[1].fingerprint
    assert idle == ()
    assert kinds[-1] is EventKind.EVALUATION_STOP
    assert (evaluation.state, evaluation.request.run_id, evaluation.request.step) == (
        EvaluationState.COMPLETED,
        "planned",
        3,
    )
    assert evaluation.metrics.values["nll"] > 0


@covers("FollowRun", "UnfollowRun")
async def test_a_run_is_followed(bridge: Bridge, root: Path):
    """The worker finds a checkpoint in its directory, and skips it as it is not due; then it is left alone."""
    plan = EvaluationPlan(plan_id="followed", run_id="followed", eval_every=3, evaluations=(part("nll"),))
    answers = [await bridge.follow("followed", plan) for _ in range(2)]
    save(root / "followed", 10)
    async with bridge.telemetry.subscribe(kinds=[EventKind.CHECKPOINT_SKIPPED], run_id="followed") as stream:
        skipped = await anext(stream)
    left = [await bridge.unfollow("followed") for _ in range(2)]

    assert [(answer.plan_id, answer.existed) for answer in answers] == [("followed", False), ("followed", True)]
    assert (skipped.step, skipped.metadata["name"]) == (10, "checkpoint-10")
    assert left == [True, False]


@covers("Subscribe")
async def test_the_log_is_read_to_its_end(bridge: Bridge):
    """Of one run and two kinds: what was evaluated, in order; nothing comes after the last sequence."""
    kinds = [EventKind.EVALUATION_START, EventKind.EVALUATION_STOP]
    async with bridge.telemetry.subscribe(kinds=kinds, run_id="run", until_now=True) as stream:
        events = [event async for event in stream]
    async with bridge.telemetry.subscribe(events[-1].sequence, run_id="run", until_now=True) as stream:
        later = [event async for event in stream]

    assert [(event.evaluation_id, event.kind) for event in events] == [
        (name, kind) for name in ("e320", "e600") for kind in kinds
    ]
    assert later == []


@covers("OpenExperiment", "LogHparams", "LogMetrics", "LogLongText", "Sync", "GetUrl", "CloseExperiment")
async def test_an_experiment_is_logged(bridge: Bridge):
    """Each entry has the next sequence, and the logger has written all of them before the close is answered."""
    experiments = bridge.experiments
    opened = await experiments.open_experiment("experiment", log_to=["jsonl"])
    rows = [LoggedMetrics(values={"loss": 1.0 / (step + 1)}, step=step) for step in range(3)]
    sequences = [
        await experiments.log_hparams("experiment", {"lr": 0.1}),
        await experiments.log_metrics("experiment", rows),
        await experiments.log_long_text("experiment", "answer", text="46", step=2),
    ]
    synced = await experiments.sync("experiment", int(SECONDS * 1000))
    url = await experiments.get_url("experiment")
    closed = await experiments.close_experiment("experiment", int(SECONDS * 1000))

    assert not opened.existed
    assert sequences == [1, 4, 5]
    assert (synced.synced, closed.synced) == (True, True)
    assert synced.experiment.last_sequence == synced.experiment.loggers[0].synced_sequence == 5
    assert closed.experiment.closed_unix_ns > 0
    (file,) = Path(url.removeprefix("file://")).rglob("metrics.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["step"], line["loss"]) for line in lines if "loss" in line] == [(0, 1.0), (1, 0.5), (2, 1 / 3)]


@covers("GetInfo", "Check")
async def test_a_worker_tells_what_it_has_and_that_it_serves(bridge: Bridge):
    """Version, data sets, the log's end. Services are ready, except grading without processes; others do not exist."""
    info = await bridge.worker.get_info()
    ready = {service: await bridge.worker.health(f"crucible_bridge.v1.{service}") for service in CALLS}

    assert info.version == importlib.metadata.version("crucible-bridge")
    assert "arithmetic" in info.datasets
    assert (info.running, info.queued, info.draining) == (0, 0, False)
    assert info.last_sequence > 0
    assert ready == {service: service != "GradingService" for service in CALLS}
    assert await bridge.worker.health()
    with pytest.raises(NotFound):
        await bridge.worker.health("crucible_bridge.v1.NoService")


@covers("Drain")
async def test_a_drain_interrupts_what_runs(tmp_path: Path):
    """The answer names the evaluation, its caller gets UNAVAILABLE, and the worker ends."""
    model, ended = Waiting(), asyncio.Event()
    async with (
        Worker(settings_for(tmp_path, grading_processes=0), on_drain=ended.set) as worker,
        crucible_bridge.connect(worker.address) as bridge,
    ):
        running = await begun(bridge, model)
        report = await bridge.worker.drain()
        with pytest.raises(Unavailable) as caught:
            await running

    assert report.interrupted == ("held",)
    assert (caught.value.reason, caught.value.metadata["evaluation_id"]) == ("DRAINING", "held")
    assert ended.is_set()
