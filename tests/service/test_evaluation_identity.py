"""When two requests are the same evaluation, and what becomes of the second one."""

import asyncio
import dataclasses
import shutil
from pathlib import Path

import pytest

from crucible_bridge.errors import Code
from crucible_bridge.events import EventKind
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Dataset,
    Datum,
    EmbeddedModel,
    EvaluationState,
    InlineDataset,
    Limits,
    LocalModel,
    Sample,
    SamplingParams,
)
from crucible_worker.testing import ScriptedModel, run_worker
from tests.service.evaluation_kit import (
    SHOUT,
    HeldModel,
    accuracy,
    asked,
    kinds_of,
    log_of,
    nll,
    refused,
    rig,
)
from tests.service.follow_kit import QUESTIONS, following, save
from tests.service.plans_kit import plan, planned

pytestmark = pytest.mark.core

ONE = Sample(id="a", input="a", targets=("A",), choices=("x",), metadata={"k": "v"})
DATUM = Datum(model_input=[1, 2], loss_fn_inputs={"target_tokens": [2, 3], "weights": [1.0, 1.0]})
BASE = asked(
    evaluators=[accuracy(samples_per_prompt=1)],
    dataset=Dataset(source=InlineDataset((ONE, Sample(id="b", input="b"))), limit=2, shuffle_seed=1),
    sampling=SamplingParams(max_tokens=8, temperature=0.5, top_p=0.9, top_k=5, seed=1, stop=("\n",)),
    metric_prefix="p/",
    run_id="run",
    step=3,
)


def _with_sample(**changes):
    return dataclasses.replace(
        BASE, dataset=dataclasses.replace(BASE.dataset, source=_inline(dataclasses.replace(ONE, **changes)))
    )


def _inline(*samples):
    return InlineDataset((*samples, Sample(id="b", input="b")))


def _with(part, **changes):
    return dataclasses.replace(BASE, **{part: dataclasses.replace(getattr(BASE, part), **changes)})


OTHERS = {
    "model": dataclasses.replace(BASE, model=EmbeddedModel("other")),
    "evaluator's kind": dataclasses.replace(BASE, evaluators=(nll(),)),
    "evaluator's name": dataclasses.replace(BASE, evaluators=(accuracy("named", samples_per_prompt=1),)),
    "evaluator's option": dataclasses.replace(BASE, evaluators=(accuracy(samples_per_prompt=2),)),
    "further evaluator": dataclasses.replace(BASE, evaluators=(*BASE.evaluators, nll())),
    "sample's id": _with_sample(id="c"),
    "sample's input": _with_sample(input="c"),
    "sample's conversation": _with_sample(input=Conversation((ChatMessage("user", "a"),))),
    "sample's datum": _with_sample(input=DATUM),
    "sample's targets": _with_sample(targets=("A", "B")),
    "sample's choices": _with_sample(choices=()),
    "sample's metadata": _with_sample(metadata={"k": "w"}),
    "order of samples": _with("dataset", source=InlineDataset(tuple(reversed(_inline(ONE).samples)))),
    "data set's limit": _with("dataset", limit=1),
    "data set's shuffle_seed": _with("dataset", shuffle_seed=2),
    "data set's skip_malformed": _with("dataset", skip_malformed=True),
    "data set's source": dataclasses.replace(BASE, dataset=Dataset.of("builtin:arithmetic")),
    "no sampling": dataclasses.replace(BASE, sampling=None),
    "max_tokens": _with("sampling", max_tokens=9),
    "temperature": _with("sampling", temperature=0.6),
    "top_p": _with("sampling", top_p=1.0),
    "top_k": _with("sampling", top_k=None),
    "seed": _with("sampling", seed=None),
    "stop": _with("sampling", stop=()),
    "metric_prefix": dataclasses.replace(BASE, metric_prefix=""),
    "run_id": dataclasses.replace(BASE, run_id="other"),
    "step": dataclasses.replace(BASE, step=None),
    "step 0": dataclasses.replace(BASE, step=0),
}
DIFFER = {
    "model": "model",
    "evaluator's kind": 'evaluators[0].kind, evaluators[0].options["samples_per_prompt"]',
    "evaluator's name": "evaluators[0].name",
    "evaluator's option": 'evaluators[0].options["samples_per_prompt"]',
    "further evaluator": "evaluators",
    "data set's limit": "dataset.limit",
    "data set's shuffle_seed": "dataset.shuffle_seed",
    "data set's skip_malformed": "dataset.skip_malformed",
    "data set's source": "dataset.source, dataset.limit, dataset.shuffle_seed",
    "no sampling": "sampling",
    "max_tokens": "sampling.max_tokens",
    "temperature": "sampling.temperature",
    "top_p": "sampling.top_p",
    "top_k": "sampling.top_k",
    "seed": "sampling.seed",
    "stop": "sampling.stop",
    "metric_prefix": "metric_prefix",
    "run_id": "run_id",
    "step": "step",
    "step 0": "step",
}
"""What the refusal names; of samples that came with the requests it is their list."""
SAME = {
    "labels": dataclasses.replace(BASE, labels={"a": "b"}),
    "correlation_id": dataclasses.replace(BASE, correlation_id="c"),
    **{
        name: dataclasses.replace(BASE, limits=Limits(**{name: value}))
        for name, value in {
            "concurrency": 3,
            "deadline_ms": 60_000,
            "stall_timeout_ms": 60_000,
            "sample_timeout_ms": 60_000,
            "max_unscored_share": 0.5,
            "max_unscored": 5,
        }.items()
    },
}


async def test_each_part_of_the_specification_makes_it_another_one():
    """The id with another model, evaluator, data set, sampling, prefix, run or step is ALREADY_EXISTS."""
    async with rig() as r:
        await r.evaluation.evaluate(BASE)
        before = await log_of(r.worker.bridge)
        for what, request in OTHERS.items():
            for call in (r.evaluation.start_evaluation, r.evaluation.evaluate):
                error = await refused(call(request), Code.ALREADY_EXISTS, "OTHER_SPECIFICATION", "evaluation_id")
                prints = error.metadata["fingerprint"], error.metadata["requested_fingerprint"]
                assert len(set(prints)) == 2, what
                assert all(len(value) == 64 and value not in str(error) for value in prints), what
                assert error.metadata["differs"] == DIFFER.get(what, "dataset.inline.samples"), what
                assert f" other settings, in {error.metadata['differs']}: " in str(error)
        assert await log_of(r.worker.bridge) == before


async def test_of_what_differs_the_first_fields_are_named():
    """A refusal stays short, and shows no value: those may be long, or nobody else's business."""
    other = dataclasses.replace(
        BASE, model=EmbeddedModel("other"), sampling=SamplingParams(max_tokens=1), step=4, metric_prefix="secret/"
    )
    async with rig() as r:
        await r.evaluation.evaluate(BASE)
        error = await refused(r.evaluation.evaluate(other), Code.ALREADY_EXISTS, "OTHER_SPECIFICATION", "evaluation_id")

    named = "model, sampling.max_tokens, sampling.temperature, sampling.top_p, ..."
    assert error.metadata["differs"] == named
    assert "secret" not in str(error)


async def test_what_is_not_part_of_the_specification():
    """The same id with other limits, labels or correlation_id is the same evaluation."""
    async with rig() as r:
        first = await r.evaluation.evaluate(BASE)
        for what, request in SAME.items():
            assert await r.evaluation.evaluate(request) == first, what


async def test_ended_evaluation_is_returned_unchanged():
    """The same request again, however often and by whichever call: the same answer, no new event, no model call."""
    async with rig() as r:
        first = await r.evaluation.evaluate(asked())
        log, calls = await log_of(r.worker.bridge), r.model.calls

        again = await r.evaluation.evaluate(asked())
        started = await r.evaluation.start_evaluation(asked())

        assert again == first == started.evaluation
        assert started.existed
        assert (await log_of(r.worker.bridge), r.model.calls) == (log, calls)


async def test_cancelled_evaluations_are_returned_unchanged():
    """A CANCELLED evaluation does not run again; one that is FAILED is not CANCELLED later."""
    async with rig(HeldModel()) as r:
        await r.evaluation.start_evaluation(asked())
        cancelled = await r.evaluation.cancel_evaluation("e")
        failed = await r.evaluation.evaluate(asked(evaluation_id="f", limits=Limits(stall_timeout_ms=20)))

        assert (cancelled.state, failed.state) == (EvaluationState.CANCELLED, EvaluationState.FAILED)
        calls = r.model.calls
        assert await r.evaluation.evaluate(asked()) == cancelled
        assert await r.evaluation.cancel_evaluation("f", "late") == failed
        assert r.model.calls == calls


async def test_running_evaluation_is_attached_to():
    """The same request while it runs waits for that very evaluation: one START, every sample asked once."""
    async with rig(HeldModel()) as r:
        first = asyncio.create_task(r.evaluation.evaluate(asked()))
        await r.model.asked.wait()
        started = await r.evaluation.start_evaluation(asked())
        second = asyncio.create_task(r.evaluation.evaluate(asked()))
        r.model.let_go.set()

        assert await first == await second
        assert (started.existed, started.evaluation.state) == (True, EvaluationState.RUNNING)
        assert (await kinds_of(r.worker.bridge)).count(EventKind.EVALUATION_START) == 1
        assert r.model.counts["sample"] == 2


async def test_requests_of_one_id_at_the_same_moment_are_one_evaluation():
    """Ten requests of one id at once: one is the first, all get the one result."""
    async with rig() as r:
        started = await asyncio.gather(*(r.evaluation.start_evaluation(asked()) for _ in range(10)))
        ended = await asyncio.gather(*(r.evaluation.evaluate(asked()) for _ in range(10)))

        assert sorted(answer.existed for answer in started) == [False, *[True] * 9]
        assert all(evaluation == ended[0] for evaluation in ended)
        assert r.model.counts["sample"] == 2


async def test_labels_and_correlation_id_of_the_first_request_stand():
    """A later request of the same id changes neither labels nor correlation_id of the evaluation and its events."""
    async with rig(HeldModel()) as r:
        await r.evaluation.start_evaluation(asked(labels={"who": "first"}, correlation_id="first"))
        later = asyncio.create_task(r.evaluation.evaluate(asked(labels={"who": "later"}, correlation_id="later")))
        await r.model.asked.wait()
        r.model.let_go.set()
        evaluation = await later

        assert (evaluation.request.labels, evaluation.request.correlation_id) == ({"who": "first"}, "first")
        assert {event.correlation_id for event in await log_of(r.worker.bridge)} == {"first"}


async def test_deadline_of_the_first_request_stands_and_other_limits_are_those_of_the_attempt(tmp_path):
    """On going on, deadline_ms stays what it was; concurrency and the rest are the present request's."""
    first = asked(limits=Limits(deadline_ms=60_000, concurrency=1), labels={"who": "first"})
    model = HeldModel()
    async with rig(model, state_dir=tmp_path) as r:
        await r.evaluation.start_evaluation(first)
        await model.asked.wait()
    async with rig(ScriptedModel(), state_dir=tmp_path) as r:
        evaluation = await r.evaluation.evaluate(
            asked(limits=Limits(deadline_ms=1, concurrency=2, max_unscored=1), labels={"who": "later"})
        )

        assert evaluation.state is EvaluationState.COMPLETED
        assert evaluation.request.limits == Limits(deadline_ms=60_000, concurrency=2, max_unscored=1)
        assert evaluation.request.labels == {"who": "first"}


@pytest.mark.parametrize("call", ["start_evaluation", "evaluate"])
async def test_the_worker_makes_an_id_where_there_is_none(call):
    """Without an id each request is an evaluation of its own, with an id to find it by."""
    async with rig() as r:
        ids = set()
        for _ in range(2):
            answer = await getattr(r.evaluation, call)(asked(evaluation_id=""))
            evaluation = answer if call == "evaluate" else answer.evaluation
            ids.add(evaluation.evaluation_id)
            assert (await r.ended(evaluation.evaluation_id)).state is EvaluationState.COMPLETED
        assert len(ids) == 2
        assert "" not in ids


async def test_a_caller_that_goes_away_leaves_it_running():
    """Evaluate's caller hangs up: the evaluation goes on to its end."""
    async with rig(HeldModel()) as r:
        call = asyncio.create_task(r.evaluation.evaluate(asked()))
        await r.model.asked.wait()
        call.cancel()
        await asyncio.wait([call])
        r.model.let_go.set()

        assert (await r.ended("e")).state is EvaluationState.COMPLETED


async def test_grpc_deadline_bounds_the_call_alone():
    """Before gRPC's deadline the call answers DEADLINE_EXCEEDED with the evaluation's id; the evaluation goes on."""
    async with rig(HeldModel()) as r:
        error = await refused(
            r.evaluation.evaluate(asked(evaluation_id=""), timeout=0.4), Code.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"
        )
        r.model.let_go.set()

        assert (await r.ended(error.metadata["evaluation_id"])).state is EvaluationState.COMPLETED


async def test_records_say_what_was_asked_without_the_inline_samples():
    """The answer repeats the request, inline samples left out, with fingerprints of data set and checkpoint."""
    async with rig(ScriptedModel(fingerprint="weights")) as r:
        evaluation = await r.evaluation.evaluate(BASE)
        same = await r.evaluation.evaluate(dataclasses.replace(BASE, evaluation_id="same"))

        empty = dataclasses.replace(BASE.dataset, source=InlineDataset(()))
        assert evaluation.request == dataclasses.replace(BASE, dataset=empty)
        assert evaluation.model_fingerprint == "weights"
        assert same.dataset_fingerprint == evaluation.dataset_fingerprint
        assert (evaluation.total, evaluation.done, evaluation.attempt) == (2, 2, 1)
        assert 0 < evaluation.created_unix_ns <= evaluation.ended_unix_ns


async def test_equal_ids_of_different_journals_have_nothing_to_do_with_each_other():
    """Identity is per journal: another worker with another state directory runs the same id anew."""
    async with rig() as r:
        await r.evaluation.evaluate(asked())
        async with run_worker({"m": ScriptedModel()}) as other:
            started = await other.bridge.evaluation.start_evaluation(asked(dataset=SHOUT[:1]))
            assert not started.existed


async def test_a_directory_that_is_written_again_is_not_the_model_of_a_completed_evaluation(tmp_path: Path):
    """Its id is refused while other files are there, its results stay; put back or removed, the call gives them."""
    wanted = asked(model=LocalModel("run/checkpoint-1"), dataset=Dataset(source=InlineDataset(QUESTIONS)))
    async with following(tmp_path) as f:
        path = save(f.folder, 1)
        wanted = dataclasses.replace(wanted, model=LocalModel(str(path)))
        first = await f.bridge.evaluation.evaluate(wanted)
        shutil.rmtree(path)
        save(f.folder, 1, content=2)
        for call in (f.bridge.evaluation.evaluate, f.bridge.evaluation.start_evaluation):
            await refused(call(wanted), Code.FAILED_PRECONDITION, "MODEL_CHANGED", "model")
        assert await f.bridge.evaluation.get_evaluation(first.evaluation_id) == first
        other = await f.bridge.evaluation.evaluate(dataclasses.replace(wanted, evaluation_id="other"))
        assert [one.metrics.values["accuracy"] for one in (first, other)] == [0.0, 1.0]
        shutil.rmtree(path)
        assert await f.bridge.evaluation.evaluate(wanted) == first
        save(f.folder, 1)
        assert await f.bridge.evaluation.evaluate(wanted) == first


async def test_a_step_whose_directory_is_written_again_is_evaluated_again(tmp_path: Path):
    """Whoever reports the step; equal files, or another directory, start nothing."""
    async with following(tmp_path) as f:
        calls = f.bridge.evaluation
        dataset = Dataset(source=InlineDataset(QUESTIONS))
        await calls.register_plan(
            plan(eval_every=1, evaluations=(planned(accuracy(), dataset=dataset),), infrequent_evaluations=())
        )
        path = save(f.folder, 1)
        found: list[tuple[str, float, bool]] = []
        for content in (1, 1, 2, 2, 1):
            shutil.rmtree(path)
            save(f.folder, 1, content=content)
            (started,) = await calls.notify_step("p", 1, LocalModel(str(path)))
            name = started.evaluation.evaluation_id
            await f.recorder.wait_for(
                lambda event, name=name: (event.kind, event.evaluation_id) == (EventKind.EVALUATION_COMPLETE, name)
            )
            accuracy_of = (await calls.get_evaluation(name)).metrics.values["accuracy"]
            found.append((name, accuracy_of, started.existed))
        save(f.folder, 1, "other")
        other = calls.notify_step("p", 1, LocalModel(str(f.folder / "other")))
        await refused(other, Code.ALREADY_EXISTS, "OTHER_MODEL", "model")

    assert [(value, existed) for _, value, existed in found] == [
        (0.0, False),
        (0.0, True),
        (1.0, False),
        (1.0, True),
        (0.0, False),
    ]
    assert found[0][0] == "p-step-1-0"
    assert len({name for name, *_ in found}) == 3
