"""The test kit keeps what its documentation says: its example runs, scripts are followed, events are recorded."""

import asyncio
import textwrap
from pathlib import Path

import numpy as np
import pytest

import crucible_worker.testing
from crucible_bridge.errors import BackendError, InvalidField, NotFound, Unavailable
from crucible_bridge.events import EventKind
from crucible_bridge.types import Datum, EmbeddedModel, EvaluationState, LocalModel, ModelInput, Sample, SamplingParams
from crucible_worker.testing import STALL, Call, ScriptedBackend, ScriptedModel, record_events, run_worker

PARAMS = SamplingParams(max_tokens=4)


def prompt(text):
    """A prompt as the scripted tokenizer makes it."""
    return ModelInput.of([ord(character) for character in text])


async def test_example_of_the_documentation_runs():
    """The code in the package's docstring runs as it stands, and its evaluation is right."""
    documentation = crucible_worker.testing.__doc__
    assert documentation is not None
    code = textwrap.dedent("\n".join(line for line in documentation.splitlines() if line.startswith("    ")))
    names = {
        "run_worker": run_worker,
        "record_events": record_events,
        "ScriptedModel": ScriptedModel,
        "Sample": Sample,
        "SamplingParams": SamplingParams,
        "EventKind": EventKind,
    }
    source = f"async def example():\n{textwrap.indent(code, '    ')}\n    return evaluation, recorder.events\n"
    exec(compile(source, "docstring", "exec"), names)
    evaluation, events = await names["example"]()

    assert evaluation.metrics.values["accuracy"] == 1.0
    assert events[-1].kind is EventKind.EVALUATION_STOP


def test_every_name_is_exported():
    """What is listed exists, and has a docstring."""
    for name in crucible_worker.testing.__all__:
        thing = getattr(crucible_worker.testing, name)
        assert name == "STALL" or thing.__doc__


async def test_nothing_is_left_behind():
    """The temporary state directory is gone, and so are the worker's tasks."""
    before = asyncio.all_tasks()
    async with run_worker({}) as worker:
        state_dir = worker.state_dir
        assert state_dir.is_dir()
    assert not state_dir.exists()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() <= before


async def test_a_given_state_directory_stays(tmp_path):
    """A journal in a directory of one's own can be opened again."""
    models = {"m": ScriptedModel()}
    fields = {"model": "embedded:m", "evaluators": "nll", "dataset": [Sample(input="a", targets=("b",))]}
    async with run_worker(models, state_dir=tmp_path) as worker:
        first = await worker.bridge.evaluation.evaluate(evaluation_id="e", **fields)
    async with run_worker(models, state_dir=tmp_path) as worker:
        assert await worker.bridge.evaluation.get_evaluation("e") == first


async def test_model_answers_as_the_script_says():
    """Answers are cut at max_tokens, which stop_reason tells; every token has its log-probability."""
    model = ScriptedModel(answer=lambda text: text * 3, logprob=lambda token, position: -float(position))
    (short,) = await model.sample(prompt("a"), PARAMS)
    cut, again = await model.sample(prompt("ab"), PARAMS, num_samples=2)
    assert (short.text, short.stop_reason) == ("aaa", "stop")
    assert (cut.text, cut.stop_reason, cut.logprobs) == ("abab", "length", (0.0, -1.0, -2.0, -3.0))
    assert cut == again
    assert await model.compute_logprobs(prompt("abc")) == [None, -0.0, -1.0]
    (found,) = await model.forward([Datum(model_input=[1, 2], loss_fn_inputs={"target_tokens": [2, 3]})])
    assert np.array_equal(found, [0.0, -1.0])


async def test_model_is_deterministic():
    """Without a script of one's own the same prompt gives the same, in every model."""
    one, other = ScriptedModel(), ScriptedModel()
    found = await one.compute_logprobs(prompt("abc"))
    assert found == await other.compute_logprobs(prompt("abc"))
    assert all(value is not None and value < 0 for value in found[1:])
    assert await one.sample(prompt("abc"), PARAMS) == await other.sample(prompt("abc"), PARAMS)


async def test_faults_and_counters():
    """A fault sees index, method and prompt of each call; calls are counted by method, finished if they went well."""
    seen: list[Call] = []

    def fault(call):
        seen.append(call)
        return BackendError("down") if call.index == 1 else None

    model = ScriptedModel(fault=fault)
    await model.sample(prompt("a"), PARAMS)
    with pytest.raises(BackendError):
        await model.compute_logprobs(prompt("b"))
    assert seen == [Call(0, "sample", "a"), Call(1, "compute_logprobs", "b")]
    assert (model.calls, model.counts["sample"], model.counts["compute_logprobs"]) == (2, 1, 1)
    assert (model.counts["finished"], model.counts["in_flight"], model.counts["peak"]) == (1, 0, 1)


async def test_stalled_call_can_be_cancelled():
    """STALL never answers, and counts as in flight until it is cancelled."""
    model = ScriptedModel(fault=lambda call: STALL)
    calls = [asyncio.create_task(model.sample(prompt("a"), PARAMS)) for _ in range(3)]
    await asyncio.sleep(0)
    assert (model.counts["in_flight"], model.counts["peak"]) == (3, 3)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    assert model.counts["in_flight"] == 0


@pytest.mark.parametrize(("length", "sound"), [(2, True), (3, True), (4, False)])
async def test_context_length(length, sound):
    """A prompt of context_length tokens is asked, one more is refused."""
    model = ScriptedModel(context_length=3)
    if sound:
        await model.sample(prompt("a" * length), PARAMS)
    else:
        with pytest.raises(InvalidField) as caught:
            await model.sample(prompt("a" * length), PARAMS)
        assert caught.value.reason == "PROMPT_TOO_LONG"


async def test_call_file_has_a_line_for_every_call(tmp_path: Path):
    """Calls are on disk before they are answered, failed ones included."""
    file = tmp_path / "calls"
    model = ScriptedModel(call_file=file, fault=lambda call: BackendError("down") if call.text == "b" else None)
    await model.sample(prompt("a"), PARAMS)
    with pytest.raises(BackendError):
        await model.sample(prompt("b"), PARAMS)
    assert file.read_text() == "sample\ta\nsample\tb\n"


async def test_backend_opens_models_by_name_alone():
    """A name that it does not have, or another kind of reference, is NotFound."""
    model = ScriptedModel()
    backend = ScriptedBackend({"m": model})
    assert await backend.open(EmbeddedModel("m")) is model
    assert backend.info().models == ("m",)
    for reference in (EmbeddedModel("n"), LocalModel("m")):
        with pytest.raises(NotFound):
            await backend.open(reference)


async def test_sides_can_be_left_out():
    """A model without a side has None there."""
    assert ScriptedModel(sampled=False).sampling is None
    assert ScriptedModel(trained=False).training is None


async def test_recorder_finds_what_came_and_what_comes():
    """wait_for returns the first event that is wanted, recorded before or yet to come; `of` picks by kind and id."""
    fields = {"model": "embedded:m", "evaluators": "nll", "dataset": [Sample(input="a", targets=("b",))]}
    async with run_worker({"m": ScriptedModel()}) as worker, record_events(worker.bridge) as recorder:
        waiting = asyncio.create_task(recorder.wait_for(lambda event: event.kind is EventKind.EVALUATION_STOP))
        evaluation = await worker.bridge.evaluation.evaluate(evaluation_id="e", **fields)
        stop = await waiting
        again = await recorder.wait_for(lambda event: event.kind is EventKind.EVALUATION_STOP)

        assert evaluation.state is EvaluationState.COMPLETED
        assert stop is again
        assert recorder.of(EventKind.EVALUATION_STOP) == recorder.of(EventKind.EVALUATION_STOP, "e") == [stop]
        assert recorder.of(EventKind.EVALUATION_STOP, "other") == []
        with pytest.raises(TimeoutError):
            await recorder.wait_for(lambda event: False, seconds=0.01)


async def test_recorder_tells_that_the_stream_ended():
    """Whoever waits when the worker drains gets the error, in place of waiting on."""
    async with run_worker({}) as worker, record_events(worker.bridge) as recorder:
        waiting = asyncio.create_task(recorder.wait_for(lambda event: False))
        await asyncio.sleep(0)
        await worker.bridge.worker.drain()
        with pytest.raises(Unavailable):
            await waiting
