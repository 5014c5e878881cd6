"""Workers of one journal give the same answer to every call that reads or computes, whichever of them is asked."""

import re
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio
from google.protobuf import json_format

import crucible_bridge
from crucible_bridge.channel import open_channel
from crucible_bridge.client.evaluation import request_of
from crucible_bridge.codec.evaluation import evaluate_request_to_v1
from crucible_bridge.idempotency import of_one_worker, service_modules, without_side_effects
from crucible_bridge.types import EvaluationPlan, PlannedEvaluation, Sample, SamplingParams
from tests.service.pool_kit import LONG, pool

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).parents[2]
ASKED = {
    "dataset": [{"input": "1+1=", "target": "2"}, {"input": "2+2=", "target": "4"}, {"input": "3+3=", "target": "6"}],
    "evaluators": {"accuracy": {"grader": "numeric"}},
}
MODEL = {"embedded": "arithmetic@600"}
CHAT = {"messages": [{"role": "user", "content": "1+1="}]}
REQUESTS = {
    "WatchEvaluation": {"evaluation_id": "one", "new_kinds": True, "records": True},
    "GetEvaluation": {"evaluation_id": "one"},
    "ListEvaluations": {"run_id": "r"},
    "GetSamples": {"evaluation_id": "one"},
    "FindSamples": {"evaluation_id": "one", "search": "1"},
    "ListRuns": {"run_id": "r"},
    "GenerateReport": {"run_id": "r", "format": "REPORT_FORMAT_MARKDOWN"},
    "ReadDataset": {"dataset": {"builtin": "arithmetic"}, "limit": 3},
    "CompareEvaluations": {"evaluation_ids": ["one", "two"]},
    "Gate": {"baseline_id": "one", "candidate_id": "two", "policy": {"metrics": [{"key": "accuracy", "max_drop": 1}]}},
    "Subscribe": {"until_now": True, "new_kinds": True, "records": True},
    "ComputeClassificationMetrics": {"predictions": ["a", "b"], "targets": ["a", "a"]},
    "Tokenize": {"model": MODEL, "texts": ["1+1="]},
    "Detokenize": {"model": MODEL, "sequences": [{"tokens": [1, 2]}]},
    "GetStopSequences": {"model": MODEL},
    "BuildGenerationPrompt": {"model": MODEL, "conversations": [CHAT]},
    "BuildSupervisedExample": {"model": MODEL, "conversations": [CHAT]},
}
"""Requests by call; a call without one is sent an empty request, and gives the same answer or refusal."""


def calls():
    """Every call of every service: its path and its descriptor."""
    for module in service_modules():
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                yield f"/{service.full_name}/{method.name}", method


def message(descriptor, fields):
    """A message of fields as JSON; those that a call does not have are an error of the table above."""
    from google.protobuf.message_factory import GetMessageClass

    return json_format.ParseDict(fields, GetMessageClass(descriptor)())


async def answer(channel, path, method, request):
    """What a worker answers: messages, or the status of a refusal."""
    from google.protobuf.message_factory import GetMessageClass

    coding = {
        "request_serializer": type(request).SerializeToString,
        "response_deserializer": GetMessageClass(method.output_type).FromString,
    }
    try:
        if method.server_streaming:
            # How events are put into batches is a matter of time.
            parts = [part async for part in channel.unary_stream(path, **coding)(request, timeout=LONG)]
            return [event for part in parts for event in getattr(part, "events", [part])]
        return [await channel.unary_unary(path, **coding)(request, timeout=LONG)]
    except grpc.aio.AioRpcError as error:
        return [error.code(), error.details()]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def two(tmp_path_factory):
    """Two workers; each has run an evaluation. Whatever else a test starts has ended when it ends."""
    async with pool(tmp_path_factory.mktemp("pool"), 2) as workers:
        for worker, name in zip(workers, ("one", "two"), strict=True):
            async with crucible_bridge.connect(worker.address) as bridge:
                await bridge.wait_for_worker(LONG)
                await bridge.evaluation.evaluate(**fields(name), timeout=LONG)
        yield workers


def fields(evaluation_id):
    """An evaluation of the run "r"."""
    return {"evaluation_id": evaluation_id, "run_id": "r", "model": "embedded:arithmetic@600", **dataset()}


def dataset():
    """The samples and evaluators, as the client takes them."""
    samples = [
        Sample(id=str(n), input=one["input"], targets=(one["target"],)) for n, one in enumerate(ASKED["dataset"])
    ]
    return {"dataset": samples, "evaluators": ASKED["evaluators"], "sampling": SamplingParams(max_tokens=8)}


def request_to(path, method):
    """The request of a call; that of RenderSample is made of an evaluation's."""
    name = path.rpartition("/")[2]
    request: Any = message(method.input_type, REQUESTS.get(name, {}))
    if name == "RenderSample":
        request.request.CopyFrom(evaluate_request_to_v1(request_of(None, **fields("three"))))
    return request


async def test_reads_and_computations_have_one_answer(two):
    """Every call without side effects, except those about the worker itself, is sent to both; all answers are equal."""
    wanted = without_side_effects() - of_one_worker()
    found, refused = {}, set()
    async with open_channel(two[0].address) as first, open_channel(two[1].address) as second:
        for path, method in calls():
            if path in wanted:
                request = request_to(path, method)
                found[path] = [await answer(channel, path, method, request) for channel in (first, second)]
                if isinstance(found[path][0][0], grpc.StatusCode):
                    refused.add((path.rpartition("/")[2], found[path][0][1]))

    assert set(found) == wanted
    assert [path for path, (one, other) in found.items() if one != other] == []
    # Requests of the table are answered, so that it is answers which are compared.
    assert [refusal for refusal in sorted(refused) if refusal[0] in REQUESTS] == []


async def test_pages_continue_at_another_worker(two):
    """A page's token is good at every worker: the list is the same, whoever has which page."""
    async with crucible_bridge.connect([worker.address for worker in two]) as bridge:
        whole = (await bridge.evaluation.list_evaluations()).items
        assert [one async for one in bridge.evaluation.all_evaluations(page_size=1)] == list(whole)
        samples = [sample.sample_id async for sample in bridge.evaluation.all_samples("one", page_size=1)]
        assert samples == ["0", "1", "2"]


async def test_a_plan_and_a_cancel_count_at_every_worker(two):
    """What is registered at one worker is known at the other, and an evaluation is cancelled by whoever is asked."""
    first, second = two
    async with (
        crucible_bridge.connect(first.address) as one,
        crucible_bridge.connect(second.address) as other,
    ):
        planned = PlannedEvaluation(**request_fields())
        await one.evaluation.register_plan(
            EvaluationPlan(plan_id="p", run_id="r", eval_every=1, evaluations=(planned,))
        )
        started = await other.evaluation.notify_step("p", 3, "embedded:arithmetic@600")
        again = await one.evaluation.notify_step("p", 3, "embedded:arithmetic@600")
        assert [each.evaluation.evaluation_id for each in started] == [each.evaluation.evaluation_id for each in again]
        assert all(each.existed for each in again)
        for each in started:
            async for _ in other.evaluation.watch_evaluation(each.evaluation.evaluation_id):
                pass


def request_fields():
    """Fields that a planned evaluation shares with a request."""
    request = request_of(None, **fields("x"))
    return {"evaluators": request.evaluators, "dataset": request.dataset, "sampling": request.sampling}


async def test_the_page_has_every_service_and_call():
    """The table of which worker answers names each service once, and as exceptions the calls of one worker."""
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    (table,) = re.findall(r"^\| calls \|.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE)
    named = [name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    services = {service.name for module in service_modules() for service in module.DESCRIPTOR.services_by_name.values()}

    assert sorted(name for name in named if name in services) == sorted(services)
    assert [name for name in named if name not in services] == ["EvaluateWithOrchestratorModel"]
    (own,) = [row for row in table.splitlines() if "`WorkerService`" in row]
    assert {path.split("/")[1].rpartition(".")[2] for path in of_one_worker()} == {"WorkerService"}
    assert "the worker that receives them" in own
