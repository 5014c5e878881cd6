"""The client of ModelService against canned replies: what it sends, and what it makes of what comes back."""

from __future__ import annotations

import asyncio
import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import crucible_bridge
from crucible_bridge import codec
from crucible_bridge.errors import FailedPrecondition, InternalError, InvalidField
from crucible_bridge.idempotency import without_side_effects
from crucible_bridge.types import (
    BatchLimits,
    ChatMessage,
    Conversation,
    Datum,
    EmbeddedModel,
    ForwardAnswer,
    ForwardOutput,
    LocalModel,
    LogprobsAnswer,
    ModelInput,
    Problem,
    SampleAnswer,
    SampledItem,
    SampledSequence,
    SampleItem,
    SamplingParams,
    SequenceLogprobs,
)
from crucible_bridge.v1 import models_pb2 as pb
from crucible_bridge.v1 import types_pb2
from tests.tables import rows
from tests.unit.bridge.strategies import plain
from tests.wire.conftest import CannedWorker

ROOM = 1 << 20
SAMPLING = SamplingParams(max_tokens=4, temperature=0.5, seed=3, stop=("x",))
PROBLEM = Problem(reason="PROMPT_TOO_LONG", message="is long", field="items[1].prompt")
SAMPLES = SampleAnswer(
    items=(
        SampledItem(
            sequences=(SampledSequence(text="a", tokens=(1, 2), logprobs=(-0.5, -1.0), stop_reason="length"),),
            prompt_tokens=3,
            seed=9,
        ),
        SampledItem(problem=PROBLEM),
    ),
    model_fingerprint="f",
)
LOGPROBS = LogprobsAnswer(sequences=(SequenceLogprobs(logprobs=np.array([-1.0])), SequenceLogprobs(problem=PROBLEM)))
OUTPUT = ForwardOutput(logprobs=np.array([-1.0]), loss=1.0)
OUTPUTS = ForwardAnswer(outputs=(OUTPUT, ForwardOutput(problem=PROBLEM)))
NAMED_OUTPUTS = ForwardAnswer(
    outputs=(OUTPUT, ForwardOutput(problem=dataclasses.replace(PROBLEM, field="data[1].prompt")))
)
"""As the client gives them: the caller wrote `data`."""


@pytest.fixture(autouse=True)
def replies(worker: CannedWorker) -> None:
    """What the worker answers."""
    worker.replies |= {
        "Sample": codec.sample_answer_to_v1(SAMPLES, ROOM),
        "ComputeLogprobs": codec.logprobs_answer_to_v1(LOGPROBS, ROOM),
        "Forward": codec.forward_answer_to_v1(OUTPUTS, ROOM),
    }


async def test_prompts_of_every_kind_are_sent(worker: CannedWorker, address: str):
    """Text, conversations, tokens and whole items; the answer comes back as it is, problems included."""
    conversation = Conversation((ChatMessage("user", "hi"),))
    own = SampleItem(prompt="c", num_samples=5, seed=-1)
    limits = BatchLimits(concurrency=2, deadline_ms=100, item_timeout_ms=50)

    async with crucible_bridge.connect(address) as bridge:
        answer = await bridge.models.sample(
            "local:run/7", ["a", conversation, [1, 2], np.array([3]), own], SAMPLING, num_samples=2, limits=limits
        )

    assert answer == SAMPLES
    request = codec.sample_request_from_v1(worker.requests[0][1])
    assert (request.model, request.sampling, request.limits) == (LocalModel("run/7"), SAMPLING, limits)
    prompts = ["a", conversation, ModelInput.of([1, 2]), ModelInput.of([3])]
    expected = [*(SampleItem(prompt=prompt, num_samples=2) for prompt in prompts), own]
    assert plain(request.items) == plain(expected)


async def test_sequences_and_data_are_sent(worker: CannedWorker, address: str):
    """Of data only what a forward pass reads, and those of tinker too."""
    tinkers: Any = SimpleNamespace(
        model_input=SimpleNamespace(to_ints=lambda: [7]), loss_fn_inputs={"target_tokens": np.array([8])}
    )
    ours = Datum(
        model_input=[1], loss_fn_inputs={"target_tokens": [2], "weights": [0.5], "advantages": [1.0], "mask": [1]}
    )
    async with crucible_bridge.connect(address) as bridge:
        logprobs = await bridge.models.compute_logprobs(EmbeddedModel("m"), [[1, 2], ModelInput.of([3])])
        outputs = await bridge.models.forward("embedded:m", [ours, tinkers])

    assert plain(logprobs) == plain(LOGPROBS)
    assert plain(outputs) == plain(NAMED_OUTPUTS)
    (_, first), (_, second) = worker.requests
    assert plain(codec.logprobs_request_from_v1(first).sequences) == plain([ModelInput.of([1, 2]), ModelInput.of([3])])
    sent = codec.forward_request_from_v1(second).data
    assert [sorted(datum.loss_fn_inputs) for datum in sent] == [["target_tokens", "weights"], ["target_tokens"]]  # type: ignore[union-attr]
    assert plain(sent[1]) == plain(Datum(model_input=[7], loss_fn_inputs={"target_tokens": [8]}))


@rows(
    ("call", "arguments", "field"),
    [
        ("sample", ("nowhere", ["a"], SAMPLING), "model"),
        ("sample", (5, ["a"], SAMPLING), "model"),
        ("sample", ("embedded:m", "a", SAMPLING), "items"),
        ("sample", ("embedded:m", 5, SAMPLING), "items"),
        ("sample", ("embedded:m", ["a", [0.5]], SAMPLING), "items[1]"),
        ("sample", ("embedded:m", ["a", None], SAMPLING), "items[1]"),
        ("sample", ("embedded:m", ["a"], 5), "sampling"),
        ("compute_logprobs", ("embedded:m", ModelInput.of([1])), "sequences"),
        ("compute_logprobs", ("embedded:m", [1, 2]), "sequences[0]"),
        ("compute_logprobs", ("embedded:m", [["text"]]), "sequences[0]"),
        ("forward", ("embedded:m", [5]), "data[0]"),
        (
            "forward",
            ("embedded:m", [SimpleNamespace(model_input=5, loss_fn_inputs={"weights": ["a"]})]),
            'data[0].loss_fn_inputs["weights"]',
        ),
    ],
)
async def test_what_cannot_be_sent_is_refused_by_its_place(
    worker: CannedWorker, address: str, call: str, arguments: Any, field: str
):
    """Before anything is sent."""
    async with crucible_bridge.connect(address) as bridge:
        with pytest.raises(InvalidField) as refused:
            await getattr(bridge.models, call)(*arguments)

    assert refused.value.field == field
    assert worker.requests == []


async def test_refusals_of_all_items_are_errors(worker: CannedWorker, address: str):
    """A status is raised as its class; a malformed reply is no fault of the request."""
    worker.replies["Forward"] = FailedPrecondition("does not train", reason="MISSING_CLIENT", field="model")
    odd = types_pb2.Tensor(dtype=types_pb2.DTYPE_F64, data=b"123")
    worker.replies["ComputeLogprobs"] = pb.ComputeLogprobsResponse(sequences=[pb.SequenceLogprobs(logprobs=odd)])

    async with crucible_bridge.connect(address) as bridge:
        with pytest.raises(FailedPrecondition) as refused:
            await bridge.models.forward("embedded:m", [])
        with pytest.raises(InternalError, match=r"sequences\[0\]\.logprobs"):
            await bridge.models.compute_logprobs("embedded:m", [[1]])

    assert (refused.value.reason, refused.value.field) == ("MISSING_CLIENT", "model")


def test_calls_that_ask_a_model_are_not_asked_again_by_the_channel():
    """The worker has asked again already."""
    assert not [path for path in without_side_effects() if "ModelService" in path]


async def test_the_blocking_twin_asks_too(address: str):
    """Without a second implementation."""

    def use() -> None:
        with crucible_bridge.connect_sync(address) as bridge:
            assert bridge.models.sample("embedded:m", ["a"], SAMPLING) == SAMPLES
            assert plain(bridge.models.compute_logprobs("embedded:m", [[1]])) == plain(LOGPROBS)
            assert plain(bridge.models.forward("embedded:m", [])) == plain(NAMED_OUTPUTS)
            assert {"sample", "compute_logprobs", "forward"} <= set(dir(bridge.models))

    await asyncio.wait_for(asyncio.to_thread(use), 20)
