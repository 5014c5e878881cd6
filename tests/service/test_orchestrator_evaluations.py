"""Evaluations on a model that lives with the caller, by the client that is made for it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import crucible_bridge
from crucible_bridge.channel import MAX_MESSAGE_BYTES
from crucible_bridge.client.orchestrator import Answerer
from crucible_bridge.errors import BackendError, Code, InvalidField
from crucible_bridge.events import EventKind
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Datum,
    EvaluationState,
    Limits,
    ModelInput,
    Sample,
    SampledSequence,
    SamplingParams,
)
from tests.service.evaluation_kit import accuracy, kinds_of, nll, numbered, refused, rig, samples_of, state_of
from tests.service.orchestrator_kit import Shouter, asked
from tests.tables import rows

DATUM = Sample(input=Datum(model_input=[1, 2], loss_fn_inputs={"target_tokens": [2, 3], "weights": [1.0, 3.0]}))


class Scores:
    """Computes log-probabilities, and nothing else."""

    def compute_logprobs(self, model_input: ModelInput) -> list[float | None]:
        return [None, *(-float(token) for token in model_input.tokens()[1:])]


class Trains:
    """Makes forward passes, and nothing else."""

    def forward(self, data: Any) -> list[list[float]]:
        return [[-2.0, -3.0] for _ in data]


async def test_a_model_of_the_caller_is_evaluated():
    """Whatever object samples is asked in words, and graded as any other model."""
    model = Shouter()
    async with rig() as it:
        evaluation = await it.evaluation.evaluate_with_orchestrator_model(asked(), model=model)
        samples = await samples_of(it.worker.bridge)
        kinds = await kinds_of(it.worker.bridge)
    assert evaluation.state is EvaluationState.COMPLETED
    assert evaluation.metrics.values["accuracy"] == 1.0
    assert sorted(model.prompts) == ["a", "b"]
    assert [(sample.output, sample.output_tokens) for sample in samples] == [("A", 1), ("B", 1)]
    assert kinds[0] is EventKind.EVALUATION_START
    assert kinds[-2:] == [EventKind.EVALUATION_COMPLETE, EventKind.EVALUATION_STOP]


async def test_name_and_id_need_not_be_given_in_a_request():
    """The model's name makes the reference to it, and an evaluation without an id gets one."""
    async with rig() as it:
        evaluation = await it.evaluation.evaluate_with_orchestrator_model(
            model=Shouter(),
            name="policy@3",
            evaluators="accuracy",
            dataset=numbered(3),
            sampling=SamplingParams(max_tokens=8),
        )
        found = await it.evaluation.get_evaluation(evaluation.evaluation_id)
    assert evaluation.evaluation_id
    assert found.request.model == crucible_bridge.types.OrchestratorModel("policy@3")
    assert found.metrics.values["accuracy"] == 1.0


def test_the_blocking_twin_has_it_too():
    """A plain method of a plain object is asked in threads, by a client that blocks."""
    ready, done = threading.Event(), threading.Event()
    address: list[str] = []

    async def serve() -> None:
        async with rig() as it:
            address.append(it.worker.address)
            ready.set()
            await asyncio.to_thread(done.wait, 60)

    class Plain:
        def sample(self, prompt: str, params: Any, num_samples: int) -> list[SampledSequence]:
            assert threading.current_thread().name.startswith("orchestrator-model")
            return [SampledSequence(text=prompt.upper(), tokens=())] * num_samples

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(60)
        with crucible_bridge.connect_sync(address[0]) as bridge:
            evaluation = bridge.evaluation.evaluate_with_orchestrator_model(asked(), model=Plain())
    finally:
        done.set()
        thread.join()
    assert evaluation.metrics.values["accuracy"] == 1.0


async def test_conversations_go_as_they_are():
    """No tokenizer is needed here: what has roles is rendered by whoever answers."""
    talk = Conversation((ChatMessage("system", "shout"), ChatMessage("user", "hi")))
    seen: list[Any] = []

    class Talks:
        async def sample(self, prompt: Any, params: SamplingParams, num_samples: int) -> list[SampledSequence]:
            seen.append((prompt, params.max_tokens, params.temperature))
            return [SampledSequence(text="HI", tokens=())]

    async with rig() as it:
        evaluation = await it.evaluation.evaluate_with_orchestrator_model(
            asked(dataset=[Sample(input=talk, targets=("HI",))]), model=Talks()
        )
    assert evaluation.metrics.values["accuracy"] == 1.0
    assert seen == [(talk, 8, 0.0)]


@pytest.mark.parametrize(("model", "method"), [(Scores(), "compute_logprobs"), (Trains(), "forward")])
async def test_nll_is_measured_on_tokens_by_what_the_model_has(model: object, method: str):
    """A training side is asked for forward passes, a sampling side for log-probabilities; the number is the same."""
    async with rig() as it:
        evaluation = await it.evaluation.evaluate_with_orchestrator_model(
            asked(evaluators=["nll"], dataset=[DATUM]), model=model
        )
        (sample,) = await samples_of(it.worker.bridge)
    assert evaluation.metrics.values["nll"] == (2.0 + 3 * 3.0) / 4
    assert sample.method == method


async def test_text_has_no_nll_without_a_tokenizer():
    """What must be in tokens and is text is a problem of its sample, said so."""
    async with rig() as it:
        await it.evaluation.evaluate_with_orchestrator_model(
            asked(evaluators=["nll"], dataset=[Sample(input="a", targets=("b",))]), model=Scores()
        )
        (sample,) = await samples_of(it.worker.bridge)
    assert sample.problem is not None
    assert sample.problem.reason == "NO_TOKENIZER"


async def test_what_the_model_cannot_do_is_said():
    """An nll that wants a training client fails without one; accuracy of what does not sample has no scored sample."""
    async with rig() as it:
        evaluation = await it.evaluation.evaluate_with_orchestrator_model(
            asked(evaluators=[nll("t", client="training"), nll("s"), accuracy("a")], dataset=[DATUM]), model=Scores()
        )
        samples = await samples_of(it.worker.bridge, evaluator="a")
    trained, scored, _ = evaluation.results
    assert trained.problem is not None
    assert trained.problem.reason == "MISSING_CLIENT"
    assert scored.metrics.values["s/nll"] > 0
    assert [sample.problem.reason for sample in samples if sample.problem is not None] == ["MISSING_CLIENT"]


@rows(
    ("error", "reason"),
    [
        (BackendError("later", reason="BACKEND_BUSY"), None),
        (BackendError("never", reason="BACKEND_NEVER", retryable=False), "BACKEND_NEVER"),
        (ConnectionResetError("a secret"), None),
        (ValueError("a secret"), "BACKEND_FAILED"),
    ],
)
async def test_what_a_model_raises_is_the_problem_of_its_question(error: Exception, reason: str | None):
    """Asked again where that may help, final otherwise; an exception's text never leaves the caller."""
    calls = 0

    class Fails:
        async def sample(self, prompt: str, params: Any, num_samples: int) -> list[SampledSequence]:
            nonlocal calls
            calls += prompt == "a"
            if prompt == "a" and calls == 1:
                raise error
            return [SampledSequence(text=prompt.upper(), tokens=())]

    async with rig() as it:
        await it.evaluation.evaluate_with_orchestrator_model(asked(), model=Fails())
        failed, stands = await samples_of(it.worker.bridge)
    assert stands.problem is None
    assert (failed.problem and failed.problem.reason) == reason
    assert "secret" not in str(failed.problem)
    assert calls == failed.attempts == (2 if reason is None else 1)


async def test_an_answer_that_no_message_can_carry_costs_its_sample_alone():
    """It is told as a problem: sent, it would break this stream, and the next one, and so on."""

    class Verbose:
        async def sample(self, prompt: str, params: Any, num_samples: int) -> list[SampledSequence]:
            return [SampledSequence(text=prompt.upper() * (MAX_MESSAGE_BYTES if prompt == "a" else 1), tokens=())]

    async with rig() as it:
        await it.evaluation.evaluate_with_orchestrator_model(asked(), model=Verbose())
        failed, stands = await samples_of(it.worker.bridge)
    assert stands.problem is None
    assert (failed.problem and failed.problem.reason, failed.attempts) == ("ANSWER_TOO_LARGE", 1)


async def test_a_model_is_called_no_more_often_at_once_than_the_window_says():
    """The window bounds calls, whatever concurrency the request wants; less concurrency bounds them, too."""
    for concurrency, peak in ((64, 3), (2, 2)):
        model = Shouter(crowd=peak)
        async with rig() as it:
            await it.evaluation.evaluate_with_orchestrator_model(
                asked(dataset=numbered(60), limits=Limits(concurrency=concurrency)), model=model, window=3
            )
        assert model.peak == peak


async def test_a_worker_with_a_smaller_window_has_its_way():
    """Its own limit is max_orchestrator_window, told by GetInfo."""
    model = Shouter(crowd=2)
    async with rig(max_orchestrator_window=2) as it:
        info = await it.worker.bridge.worker.get_info()
        await it.evaluation.evaluate_with_orchestrator_model(asked(dataset=numbered(40)), model=model, window=30)
    assert info.limits["max_orchestrator_window"] == 2
    assert "orchestrator" in [backend.name for backend in info.backends]
    assert model.peak == 2


async def test_a_sample_that_takes_too_long_is_withdrawn_and_its_call_cancelled():
    """What the worker gives up, the caller's model need not finish."""
    cancelled = asyncio.Event()

    class Hangs:
        async def sample(self, prompt: str, params: Any, num_samples: int) -> list[SampledSequence]:
            if prompt == "b":
                return [SampledSequence(text="B", tokens=())]
            try:
                return await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                cancelled.set()
                raise

    async with rig() as it:
        evaluation = await it.evaluation.evaluate_with_orchestrator_model(
            asked(limits=Limits(sample_timeout_ms=200, max_unscored_share=1.0)), model=Hangs(), window=1
        )
        samples = await samples_of(it.worker.bridge)
        await asyncio.wait_for(cancelled.wait(), 10)
    assert evaluation.metrics.values["accuracy"] == 1.0
    assert [None if sample.problem is None else sample.problem.reason for sample in samples] == ["SAMPLE_TIMEOUT", None]


async def test_cancel_and_deadline_end_it_as_any_other():
    """CancelEvaluation and limits.deadline_ms end the stream well, with a CANCELLED evaluation."""

    class Waits:
        def __init__(self) -> None:
            self.asked = asyncio.Event()

        async def sample(self, prompt: str, params: Any, num_samples: int) -> list[SampledSequence]:
            self.asked.set()
            return await asyncio.get_running_loop().create_future()

    async with rig() as it:
        model = Waits()
        call = asyncio.create_task(it.evaluation.evaluate_with_orchestrator_model(asked(), model=model))
        await model.asked.wait()
        await it.evaluation.cancel_evaluation("e", "enough")
        assert state_of(await call) == (EvaluationState.CANCELLED, "CANCELLED")
        late = asked(evaluation_id="late", limits=Limits(deadline_ms=300))
        evaluation = await it.evaluation.evaluate_with_orchestrator_model(late, model=Waits())
    assert state_of(evaluation) == (EvaluationState.CANCELLED, "DEADLINE_EXCEEDED")


async def test_what_has_ended_is_returned_as_it_is():
    """The same id and specification is the same evaluation: nothing is asked."""
    async with rig() as it:
        first = await it.evaluation.evaluate_with_orchestrator_model(asked(), model=Shouter())
        model = Shouter()
        again = await it.evaluation.evaluate_with_orchestrator_model(asked(), model=model)
        assert (await it.evaluation.evaluate(asked())).metrics == first.metrics
    assert again.metrics == first.metrics
    assert model.prompts == []


async def test_other_calls_name_the_one_to_make():
    """Evaluate and StartEvaluation cannot reach such a model; neither can ModelService."""
    async with rig() as it:
        for call in (it.evaluation.evaluate(asked()), it.evaluation.start_evaluation(asked())):
            error = await refused(call, Code.FAILED_PRECONDITION, "HELD_BY_ORCHESTRATOR", "model")
            assert "EvaluateWithOrchestratorModel" in error.message
        sampling = SamplingParams(max_tokens=1)
        asking = it.worker.bridge.models.sample("orchestrator:policy", ["x"], sampling)
        await refused(asking, Code.FAILED_PRECONDITION, "HELD_BY_ORCHESTRATOR", "model")


async def test_a_call_that_cannot_work_is_refused():
    """A model without a method, a window of none, another kind of model, an id of another specification."""
    async with rig() as it:
        call = it.evaluation.evaluate_with_orchestrator_model
        with pytest.raises(InvalidField, match=r"^model is a object"):
            await call(asked(), model=object())
        with pytest.raises(InvalidField, match=r"^window"):
            await call(asked(), model=Shouter(), window=0)
        await refused(call(asked(model="embedded:m"), model=Shouter()), Code.INVALID_ARGUMENT, "INVALID_FIELD", "model")
        await call(asked(), model=Shouter())
        other = call(asked(), model=Shouter(), name="another")
        await refused(other, Code.ALREADY_EXISTS, "OTHER_SPECIFICATION", "evaluation_id")


async def test_a_plain_method_may_return_something_to_wait_for():
    """Not every coroutine is made by a coroutine function."""

    class Returns:
        def forward(self, data: Any) -> Any:
            async def answer() -> list[list[float]]:
                return [[-1.0]]

            return answer()

    answerer = Answerer(Returns(), threads=1)
    question = crucible_bridge.types.ForwardQuestion(data=())
    forwarded = await answerer.answer(question)
    answerer.close()
    assert isinstance(forwarded, crucible_bridge.types.Forwarded)
    assert forwarded.logprobs[0].tolist() == [-1.0]
