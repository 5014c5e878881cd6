"""Renderers and thoughts, from the client's request to the journal and the report."""

import dataclasses
import json

import pytest

import crucible_bridge
from crucible_bridge.errors import Code
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Dataset,
    EvaluationState,
    ReportFormat,
    Sample,
    SamplingParams,
    Verdict,
)
from crucible_worker.evaluators.answering import NO_ANSWER, NO_ANSWER_CUT
from crucible_worker.server import Worker
from crucible_worker.testing import ScriptedModel
from tests import needs
from tests.service.evaluation_kit import accuracy, asked, nll, refused, rig, samples_of
from tests.service.openai_kit import ScriptedServer, worker_on
from tests.service.server_kit import settings_for

SAID = {
    "right": "<think>1 + 1 is 2</think>2",
    "opened": "1 + 1 is 2</think>2",
    "wrong": "<think>2</think>3",
    "silent": "<think>2</think>",
    "cut": "<think>2, or" + " is it" * 20,
    "long": "2" * 99,
}
"""What a model thinks and says of a question."""
THINKING = [Sample(id=name, input=name, targets=("2",)) for name in SAID]
CHAT = Conversation((ChatMessage("user", "b"),))
TOLD = Conversation((ChatMessage("system", "be"), *CHAT.messages))


async def test_thoughts_are_recorded_and_not_graded():
    """Answers are judged by what follows the thought; what was cut is counted and said, in record and report."""
    async with rig(ScriptedModel(answer=SAID.__getitem__)) as worker:
        evaluation = await worker.evaluation.evaluate(asked(dataset=THINKING, sampling=SamplingParams(max_tokens=40)))
        results = {result.sample_id: result for result in await samples_of(worker.worker.bridge)}
        report = json.loads(await worker.evaluation.generate_report("e", ReportFormat.JSON))

    right = ("right", "opened")
    assert {name for name, result in results.items() if result.verdict is Verdict.CORRECT} == set(right)
    assert {results[name].verdict for name in results.keys() - set(right)} == {Verdict.INCORRECT}
    assert all(results[name].output == said[:40] for name, said in SAID.items())
    assert (results["silent"].method, results["silent"].extracted) == (NO_ANSWER, "")
    assert (results["cut"].method, results["cut"].stop_reason) == (NO_ANSWER_CUT, "length")
    assert results["long"].stop_reason == "length"
    assert evaluation.metrics.values["accuracy"] == 2 / 6
    assert evaluation.results[0].n_truncated == 2
    assert evaluation.results[0].n_truncated_reasoning == 1
    (reported,) = report["evaluations"]
    assert reported["evaluators"][0]["n_truncated"] == 2
    assert reported["evaluators"][0]["n_truncated_reasoning"] == 1
    assert results["right"].reasoning == results["opened"].reasoning == "1 + 1 is 2"
    assert results["cut"].reasoning.startswith("2, or is it")
    assert results["long"].reasoning == ""


async def test_a_renderer_is_part_of_what_is_asked():
    """Two evaluators of one evaluation may render in their own ways, each with its stop sequences."""
    seen = []

    @dataclasses.dataclass
    class Listening(ScriptedModel):
        async def sample(self, prompt, params, num_samples=1):
            seen.append(("".join(map(chr, prompt.tokens().tolist())), params.stop))
            return await super().sample(prompt, params, num_samples)

    model = Listening(answer=lambda prompt: " B\n\nUser: c" if prompt.startswith("User:") else prompt.upper())
    async with rig(model) as worker:
        evaluation = await worker.evaluation.evaluate(
            asked(
                evaluators=[accuracy("plain", renderer="raw"), accuracy("colon", renderer="role_colon")],
                dataset=[Sample(id="b", input="b", targets=("B",))],
                sampling=SamplingParams(max_tokens=20),
            )
        )

    assert set(seen) == {("b", ()), ("User: b\n\nAssistant:", ("\n\nUser:",))}
    assert (evaluation.metrics.values["plain/accuracy"], evaluation.metrics.values["colon/accuracy"]) == (1.0, 1.0)


@pytest.mark.parametrize("evaluator", [accuracy(renderer="raw"), nll(renderer="raw")])
async def test_a_conversation_for_raw_is_refused_at_its_place(evaluator):
    """Nothing starts that could never be asked."""
    async with rig() as worker:
        request = asked(evaluators=[evaluator], dataset=[Sample(input="a", targets=("A",)), Sample(input=TOLD)])
        await refused(
            worker.evaluation.evaluate(request),
            Code.INVALID_ARGUMENT,
            "RAW_CONVERSATION",
            "dataset.inline.samples[1].conversation",
        )


async def test_the_schema_of_renderers_is_listed():
    """Whoever asks for the evaluators is told which options there are."""
    async with rig() as worker:
        schemas = {info.kind: info.options_schema for info in await worker.evaluation.list_evaluators()}

    for kind in ("accuracy", "nll"):
        assert schemas[kind]["properties"]["renderer"]["default"] == "auto"
    assert schemas["accuracy"]["properties"]["thinking"]["enum"] == ["remove", "keep"]


async def test_an_embedded_model_takes_renderers(tmp_path):
    """Without a chat template raw asks what auto asks, and measures the same but for the end of sequence."""
    pytest.importorskip("torch", reason=needs.MISSING["torch"])
    pytest.importorskip("transformers", reason=needs.MISSING["transformers"])
    async with Worker(settings_for(tmp_path)) as worker, crucible_bridge.connect(worker.address) as bridge:
        evaluation = await bridge.evaluation.evaluate(
            model="embedded:arithmetic@320",
            evaluators=[
                *(accuracy(name, renderer=name) for name in ("auto", "raw", "chat_template")),
                *(nll(f"nll-{name}", renderer=name) for name in ("auto", "raw")),
            ],
            dataset=dataclasses.replace(Dataset.of("builtin:arithmetic"), limit=20),
            sampling=SamplingParams(max_tokens=8),
        )
        answers = {
            name: [result.output for result in await samples_of(bridge, evaluation.evaluation_id, evaluator=name)]
            for name in ("auto", "raw")
        }
        refusals = await samples_of(bridge, evaluation.evaluation_id, evaluator="chat_template")

    values = evaluation.metrics.values
    assert answers["auto"] == answers["raw"]
    assert 0 < values["auto/accuracy"] == values["raw/accuracy"] < 1
    assert 0 < values["nll-auto/nll"] != values["nll-raw/nll"] > 0
    assert {result.problem.reason for result in refusals if result.problem} == {"NO_CHAT_TEMPLATE"}
    assert evaluation.results[2].n_errors == 20


async def test_a_server_is_asked_in_the_renderers_words(tmp_path):
    """role_colon is a completion with its stop sequence, though the server's settings have text for chats."""
    pytest.importorskip("aiohttp", reason=needs.MISSING["aiohttp"])
    sampling = SamplingParams(max_tokens=8)
    async with ScriptedServer().serving() as server, worker_on(server, tmp_path) as bridge:
        remote = await bridge.evaluation.evaluate(
            model="openai:s/name",
            evaluators=[accuracy(renderer="role_colon")],
            dataset=[Sample(id="b", input=CHAT, targets=("USER: B\n\nASSISTANT:",))],
            sampling=sampling,
        )
    (request,) = server.asked
    assert request.path.endswith("/completions")
    assert not request.path.endswith("/chat/completions")
    assert (request.body["prompt"], request.body["stop"]) == ("User: b\n\nAssistant:", ["\n\nUser:"])
    assert (remote.state, remote.metrics.values["accuracy"]) == (EvaluationState.COMPLETED, 1.0)
