"""Evaluations of models of a Tinker service, from the client's call to the journal, on a scripted library."""

import asyncio

import pytest

from crucible_bridge.types import (
    EvaluationState,
    Limits,
    ModelInput,
    ReportFormat,
    Sample,
    SampleItem,
    SamplingParams,
    TinkerModel,
    Verdict,
)
from tests.service.evaluation_kit import log_of, numbered, samples_of, state_of
from tests.service.tinker_kit import (
    KEY,
    SAMPLER,
    STATE,
    Call,
    Fault,
    ScriptedLibrary,
    failed,
    logprob,
    status,
    worker_on,
)

PARAMS = SamplingParams(max_tokens=8)

MILLISECONDS_AFTER_CANCEL = 50
"""After a cancel at the owner no call is begun any more."""


async def test_accuracy_of_sampler_weights(tmp_path):
    """Answers are sampled, graded and recorded, with their tokens counted and truncation told."""
    samples = [
        Sample(id="right", input="a", targets=("A",)),
        Sample(id="wrong", input="b", targets=("C",)),
        Sample(id="cut", input="d" * 9, targets=("D" * 9,)),
    ]
    library = ScriptedLibrary()
    async with worker_on(library, tmp_path) as bridge:
        evaluation = await bridge.evaluation.evaluate(
            model=SAMPLER, evaluators=["accuracy"], dataset=samples, sampling=PARAMS
        )
        results = {result.sample_id: result for result in await samples_of(bridge, evaluation.evaluation_id)}
        stands = await bridge.evaluation.get_evaluation(evaluation.evaluation_id)
        info = await bridge.worker.get_info()
    assert stands.request.model == TinkerModel(model_path=SAMPLER)
    assert evaluation.metrics.values["accuracy"] == pytest.approx(1 / 3)
    assert {name: result.verdict for name, result in results.items()} == {
        "right": Verdict.CORRECT,
        "wrong": Verdict.INCORRECT,
        "cut": Verdict.INCORRECT,
    }
    assert results["cut"].output == "D" * 8
    assert ("tinker", "") in [(backend.name, backend.unavailable) for backend in info.backends]


async def test_nll_by_prompt_and_by_forward_pass(tmp_path):
    """Weights that sample are asked for log-probabilities of a prompt, a training state for a forward pass: equal."""
    samples = [Sample(id="a", input="12+3=", targets=("15",)), Sample(id="b", input="7-7=", targets=("0",))]
    library = ScriptedLibrary()
    async with worker_on(library, tmp_path) as bridge:
        found = [
            await bridge.evaluation.evaluate(model=model, evaluators=["nll"], dataset=samples)
            for model in (SAMPLER, STATE)
        ]
    assert [evaluation.state for evaluation in found] == [EvaluationState.COMPLETED] * 2
    first, second = (evaluation.metrics.values["nll"] for evaluation in found)
    assert first == second
    wanted = [(ord(" "), 5), (ord("1"), 6), (ord("5"), 7), (0, 8), (ord(" "), 4), (ord("0"), 5), (0, 6)]
    assert first == pytest.approx(-sum(logprob(token, position) for token, position in wanted) / len(wanted))
    assert (len(library.of("compute_logprobs")), len(library.of("forward"))) == (2, 2)
    assert not library.of("sample")


async def test_model_calls(tmp_path):
    """ModelService opens the same clients, with a problem of its own for each item that fails."""
    library = ScriptedLibrary(lambda call: failed("no", "user") if call.kind == "sample" and call.text == "b" else None)
    items = [SampleItem(prompt=ModelInput.of([ord(letter)])) for letter in "ab"]
    async with worker_on(library, tmp_path) as bridge:
        answer = await bridge.models.sample("tinker:tiny/one", items, sampling=PARAMS)
    assert [item.problem and item.problem.reason for item in answer.items] == [None, "BACKEND_REFUSED"]
    assert [sequence.text for sequence in answer.items[0].sequences] == ["A"]


async def test_a_service_that_fails_now_and_then_is_evaluated_to_the_end(tmp_path):
    """What is busy or garbled is asked again, within a budget; what is refused never is."""
    fatal = "sample 7"

    def script(call: Call):
        if call.kind != "sample":
            return None
        if call.text == fatal:
            return failed("no", "user")
        return (
            (status(503), failed("engine died", "server"), status(429, **{"Retry-After": "0"}))[call.index // 10 % 3]
            if call.index % 10 == 0
            else None
        )

    library = ScriptedLibrary(script)
    samples = [Sample(id=str(i), input=f"sample {i}", targets=(f"SAMPLE {i}",)) for i in range(200)]
    async with worker_on(library, tmp_path) as bridge:
        evaluation = await bridge.evaluation.evaluate(
            model=SAMPLER, evaluators=["accuracy"], dataset=samples, sampling=SamplingParams(max_tokens=16)
        )
        results = await samples_of(bridge, evaluation.evaluation_id)
    unscored = {result.sample_id: result.problem.reason for result in results if result.problem is not None}
    assert unscored == {"7": "BACKEND_REFUSED"}
    assert len(results) == len(samples)
    assert sum(call.text == fatal for call in library.of("sample")) == 1
    assert len(library.of("sample")) <= 1.4 * len(samples)


async def test_no_call_is_made_after_a_cancel(tmp_path):
    """What is under way is cancelled at the library, too."""
    library = ScriptedLibrary(lambda call: Fault.STALL if call.kind == "sample" else None)
    async with worker_on(library, tmp_path) as bridge:
        started = await bridge.evaluation.start_evaluation(
            model=SAMPLER,
            evaluators=["accuracy"],
            dataset=numbered(64),
            sampling=PARAMS,
            limits=Limits(concurrency=4),
        )
        async with asyncio.timeout(30):
            while len(library.of("sample")) < 4:
                await asyncio.sleep(0.001)
        await bridge.evaluation.cancel_evaluation(started.evaluation.evaluation_id)
        await asyncio.sleep(MILLISECONDS_AFTER_CANCEL / 1000)
        asked = library.of("sample")
        await asyncio.sleep(MILLISECONDS_AFTER_CANCEL / 1000)
        assert len(library.of("sample")) == len(asked)
        assert all(call.future.cancelled() for call in asked)


@pytest.mark.parametrize("kind", ["session", "sampler"])
async def test_a_refused_key_fails_the_evaluation_and_is_nowhere(tmp_path, kind, capfd):
    """Not in what the worker writes, says or answers, whatever the service says back."""
    said = f"your key {KEY} is wrong"
    library = ScriptedLibrary(lambda call: status(403, said) if call.kind == kind else None)
    told = []
    async with worker_on(library, tmp_path) as bridge:
        evaluation = await bridge.evaluation.evaluate(
            model=SAMPLER, evaluators=["accuracy"], dataset=numbered(4), sampling=PARAMS
        )
        told.append(repr(evaluation))
        told += map(repr, await log_of(bridge))
        for report_format in ReportFormat:
            told.append(await bridge.evaluation.generate_report([evaluation.evaluation_id], report_format))
    assert state_of(evaluation) == (EvaluationState.FAILED, "BACKEND_FORBIDDEN")
    told += capfd.readouterr()
    written = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert written
    assert not [path for path in written if KEY.encode() in path.read_bytes()]
    assert not [text for text in told if KEY in text]
