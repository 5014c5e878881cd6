"""What calls of models took: results, answers and GetInfo say what the server counted, to the token."""

from __future__ import annotations

import asyncio
import collections
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crucible_bridge.events import EventKind
from crucible_bridge.types import (
    Datum,
    EvaluationState,
    EvaluatorSpec,
    Limits,
    ModelInput,
    ModelPrice,
    ReportFormat,
    RubricCriterion,
    RubricItem,
    SampledSequence,
    SampleResult,
    SamplingParams,
    Usage,
    Verdict,
)
from crucible_worker.cli.samples import CSV_COLUMNS, csv_row
from crucible_worker.exports.rows import row_of
from crucible_worker.reports.as_json import sample_as_data
from crucible_worker.reports.distributions import ResultDistributions
from crucible_worker.reports.samples import row_as_data
from crucible_worker.testing import ScriptedModel, record_events
from tests import needs
from tests.service.evaluation_kit import accuracy, asked, nll, numbered, rig, samples_of
from tests.service.openai_kit import Fault, Reply, Request, ScriptedServer, answer, refusal, worker_on

needs.modules("aiohttp")

PARAMS = SamplingParams(max_tokens=8)
MODEL = "openai:s/m"
JUDGE = "openai:s/judge"
COUNTS = ("prompt_tokens", "cached_prompt_tokens", "reasoning_tokens", "output_tokens", "calls", "unreported_calls")


class Counting:
    """Answers with a usage of its own making, and adds up what it has reported in whole answers, by model."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.counted: dict[str, dict[str, int]] = {}

    def charged(self, request: Request, reply: Reply) -> Reply:
        """An answer with its usage, counted."""
        rng = self._rng
        tokens = request.body.get("prompt")
        prompt = len(tokens) if isinstance(tokens, list) else rng.randrange(1, 5000)
        output = rng.randrange(1, 5000)
        cached, reasoning = rng.randrange(prompt + 1), rng.randrange(output + 1)
        counted = self.counted.setdefault(request.body["model"], dict.fromkeys(COUNTS, 0))
        for name, number in zip(COUNTS, (prompt, cached, reasoning, output, 1, 0), strict=True):
            counted[name] += number
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }
        return Reply({**reply.body, "usage": usage})

    def unreliable(self, request: Request) -> Reply | Fault:
        """Fails one call in four: refuses, says nonsense, hangs up in the middle, or answers and charges in vain."""
        if request.method == "GET":
            return Reply({"data": []})
        match self._rng.randrange(20):
            case 0 | 1:
                return refusal(500)
            case 2:
                return Reply(b"<html>oops</html>")
            case 3:
                return Fault.CUT
            case 4:
                # Charged, and no answer that can be read.
                return self.charged(request, answer(request, "x", finish_reason="abort"))
            case _:
                return self.charged(request, self.said(request))

    def reliable(self, request: Request) -> Reply:
        """Answers whatever is asked."""
        return Reply({"data": []}) if request.method == "GET" else self.charged(request, self.said(request))

    def said(self, request: Request) -> Reply:
        """In upper case, as a judge, or the log-probabilities of a prompt of tokens."""
        if request.body["model"] == "judge":
            return answer(request, json.dumps({"correct": {"reason": "So it is.", "score": 5}}))
        if isinstance(prompt := request.body.get("prompt"), list):
            entries = [None, *({str(token): {"logprob": -1.0}} for token in prompt[1:])]
            return answer(request, "x", prompt_logprobs=entries)
        return answer(request, request.text.upper())

    def usage(self, model: str) -> Usage:
        """What was counted of a model."""
        counted: dict[str, Any] = self.counted[model]
        return Usage(**counted)


def summed(results: list[SampleResult]) -> Mapping[str, int]:
    """The sums of the samples' numbers, each of which is known."""
    usages = [result.usage for result in results if result.usage is not None]
    return {name: sum(getattr(usage, name) for usage in usages) for name in COUNTS}


async def test_sums_equal_the_servers_own_count_over_a_thousand_calls_with_retries(tmp_path: Path):
    """Every answer counts once, be it of use or not: in samples, the evaluator, the evaluation and its events."""
    server = Counting(seed=7)
    async with ScriptedServer(server.unreliable).serving() as fake, worker_on(fake, tmp_path) as bridge:
        evaluation = await bridge.evaluation.evaluate(
            evaluation_id="e",
            model=MODEL,
            evaluators=["accuracy"],
            dataset=numbered(1000),
            sampling=PARAMS,
            limits=Limits(concurrency=32),
        )
        results = await samples_of(bridge, "e")
        report = json.loads(await bridge.evaluation.generate_report(["e"], ReportFormat.JSON))
        async with bridge.evaluation.watch_evaluation("e", without_samples=True) as stream:
            events = [event async for event in stream]
    assert evaluation.state is EvaluationState.COMPLETED
    assert len(fake.asked) > 1100
    assert server.counted["m"]["calls"] > 1000
    assert evaluation.usage == evaluation.results[0].usage == server.usage("m")
    assert summed(results) == server.counted["m"]
    assert {name: report["evaluations"][0]["usage"][name] for name in COUNTS} == server.counted["m"]
    told = {f"usage.{name}": float(number) for name, number in server.counted["m"].items()}
    for kind in (EventKind.EVALUATOR_COMPLETE, EventKind.EVALUATION_COMPLETE):
        (event,) = [event for event in events if event.kind is kind]
        assert {key: value for key, value in event.measurements.items() if key.startswith("usage.")} == told


async def test_judges_stand_apart_and_each_model_has_its_sum(tmp_path: Path):
    """What the judge took is no part of the model's; two evaluators with one judge have one sum of it together."""
    server = Counting(seed=8)
    options = {"judge": JUDGE, "criteria": [{"name": "correct", "description": "Is it right?"}]}
    evaluators = [EvaluatorSpec(kind="rubric", name=name, options=options) for name in ("a", "b")]
    prices = (ModelPrice(pattern="*/judge", prompt=1.0, output=2.0), ModelPrice(pattern="*", prompt=0.0, output=1e6))
    async with (
        ScriptedServer(server.unreliable).serving() as fake,
        worker_on(fake, tmp_path, prices=prices) as bridge,
    ):
        evaluation = await bridge.evaluation.evaluate(
            evaluation_id="e", model=MODEL, evaluators=evaluators, dataset=numbered(50), sampling=PARAMS
        )
        results = await samples_of(bridge, "e")
        info = await bridge.worker.get_info()
        text = await bridge.evaluation.generate_report(["e"], ReportFormat.MARKDOWN)
    own, judge = server.usage("m"), server.usage("judge")
    assert own.output_tokens is not None
    assert judge.prompt_tokens is not None
    assert judge.output_tokens is not None
    usage = evaluation.usage
    assert usage is not None
    assert {name: getattr(usage, name) for name in COUNTS} == server.counted["m"]
    (found,) = usage.judges
    assert found.model == JUDGE
    assert {name: getattr(found.usage, name) for name in COUNTS} == server.counted["judge"]
    assert usage.cost == pytest.approx(own.output_tokens)
    assert found.usage.cost == pytest.approx((judge.prompt_tokens + 2 * judge.output_tokens) / 1e6)
    parts = [result.usage for result in evaluation.results]
    assert sum(part.judges[0].usage.calls for part in parts if part is not None) == judge.calls
    assert summed(results) == server.counted["m"]
    assert sum(each.usage.judges[0].usage.calls for each in results if each.usage and each.usage.judges) == judge.calls
    assert f"{judge.prompt_tokens:,}" in text
    # The worker's own count, by model.
    assert [each.model for each in info.usage] == [JUDGE, MODEL]
    assert {name: getattr(info.usage[1].usage, name) for name in COUNTS} == server.counted["m"]
    assert info.prices == prices


async def test_what_is_not_reported_is_not_zero(tmp_path: Path):
    """A server that says nothing leaves numbers absent, and the calls are counted as unreported."""

    def silent(request: Request) -> Reply:
        if request.method == "GET":
            return refusal(404)
        return Reply({"choices": answer(request, request.text.upper()).body["choices"]})

    async with ScriptedServer(silent).serving() as fake, worker_on(fake, tmp_path) as bridge:
        evaluation = await bridge.evaluation.evaluate(
            model=MODEL, evaluators=["accuracy"], dataset=numbered(3), sampling=PARAMS
        )
        results = [each async for each in bridge.evaluation.all_samples(evaluation.evaluation_id)]
        events = [event async for event in bridge.evaluation.watch_evaluation(evaluation.evaluation_id)]
    assert evaluation.usage == Usage(calls=3, unreported_calls=3)
    spread = ResultDistributions()
    for result in results:
        spread.add(result)
        assert result.output_tokens is None
        assert sample_as_data(result)["output_tokens"] is None
        assert row_of(evaluation, result)["output_tokens"] is None
        assert row_as_data(0, result)["tokens"] is None
        assert dict(zip(CSV_COLUMNS, csv_row(result)))["output_tokens"] is None
        assert [turn.tokens for turn in result.turns if turn.role == "assistant"] == [None] * len(result.turns[1:])
    assert spread.as_data()["accuracy"]["output_tokens"] is None
    samples = [event for event in events if event.kind is EventKind.SAMPLE_COMPLETE]
    assert [sorted(event.measurements) for event in samples] == [["score"]] * 3


async def test_tokens_that_a_judge_does_not_report_are_absent(tmp_path: Path):
    """Of the call, of each sample and of the metrics; what a server samples for a call has none either."""

    def silent(request: Request) -> Reply:
        if request.method == "GET":
            return refusal(404)
        said = '{"correct": {"score": 10, "reason": "so"}}' if request.body["model"] == "judge" else "an answer"
        return Reply({"choices": answer(request, said).body["choices"]})

    named = {"name": "correct", "description": "It is correct."}
    criteria = [RubricCriterion(name="correct", description="It is correct.")]
    async with ScriptedServer(silent).serving() as fake, worker_on(fake, tmp_path) as bridge:
        graded = await bridge.grading.grade_rubric(JUDGE, [RubricItem(response="r")], criteria)
        evaluation = await bridge.evaluation.evaluate(
            model=MODEL,
            evaluators=[EvaluatorSpec(kind="rubric", options={"judge": JUDGE, "criteria": [named]})],
            dataset=numbered(2),
            sampling=PARAMS,
        )
        sampled = await bridge.models.sample(MODEL, ["a"], sampling=PARAMS)
    assert [one.completion_tokens for one in (graded, *graded.grades)] == [None, None]
    assert evaluation.metrics.values["rubric_score"] == 1.0
    assert [one.grade.verdict for one in graded.grades] == [Verdict.CORRECT]
    for key in ("judge_prompt_tokens", "judge_completion_tokens"):
        assert evaluation.metrics.undefined[key] == "the judge's server reports no number"
    assert [one.output_tokens for one in sampled.items[0].sequences] == [None]


@pytest.mark.parametrize("nonsense", [None, [], "x", {"prompt_tokens": -1, "completion_tokens": True}, {"x": [1]}])
async def test_a_usage_that_makes_no_sense_is_none(tmp_path: Path, nonsense: Any):
    """It costs no sample its verdict where an answer needs no usage, and nothing is counted from it."""

    def script(request: Request) -> Reply:
        if request.method == "GET":
            return Reply({"data": []})
        details = {"prompt_tokens_details": [1], "completion_tokens_details": {"reasoning_tokens": "seven"}}
        usage = {**nonsense, **details} if isinstance(nonsense, dict) else nonsense
        said = {"prompt_logprobs": [None, {"2": {"logprob": -1.0}}, {"3": {"logprob": -1.0}}]}
        return Reply({"choices": [{"text": "x", "finish_reason": "stop", **said}], "usage": usage})

    async with ScriptedServer(script).serving() as fake, worker_on(fake, tmp_path) as bridge:
        answered = await bridge.models.compute_logprobs(MODEL, [[1, 2, 3]])
    assert [item.problem for item in answered.sequences] == [None]
    # What was sent is known to the worker itself; what was generated is not.
    assert answered.usage == Usage(prompt_tokens=3, calls=1, unreported_calls=1)


async def test_calls_and_metrics_that_query_a_model_say_what_that_took(tmp_path: Path):
    """Sample, ComputeLogprobs, GradeRubric, KL and penalty calls: each has its cost, and GetInfo has the sum."""
    server = Counting(seed=9)
    datum = Datum(
        model_input=[1, 2],
        loss_fn_inputs={
            "target_tokens": np.array([2, 3]),
            "logprobs": np.array([-1.0, -1.0]),
            "mask": np.array([1.0, 1.0]),
            "advantages": np.array([1.0, 1.0]),
        },
    )
    price = ModelPrice(pattern="openai:s/*", prompt=3.0, output=5.0, cached=1.0)
    async with (
        ScriptedServer(server.reliable).serving() as fake,
        worker_on(fake, tmp_path, prices=(price,)) as bridge,
    ):
        criteria = [RubricCriterion(name="correct", description="Is it right?")]
        answers = [
            await bridge.models.sample(MODEL, ["a", "b"], PARAMS),
            await bridge.models.compute_logprobs(MODEL, [[1, 2], [3, 4, 5]]),
            await bridge.metrics.compute_kl_post_update([datum] * 3, MODEL),
            await bridge.metrics.incorporate_kl_penalty([datum] * 4, MODEL, coef=0.1),
            await bridge.grading.grade_rubric(JUDGE, [RubricItem(response="x")], criteria),
        ]
        info = await bridge.worker.get_info()
    assert [given.usage.calls for given in answers if given.usage is not None] == [2, 2, 3, 4, 1]
    for given in answers:
        usage = given.usage
        assert usage is not None
        assert usage.prompt_tokens is not None
        assert usage.cached_prompt_tokens is not None
        assert usage.output_tokens is not None
        uncached = usage.prompt_tokens - usage.cached_prompt_tokens
        whole = 3.0 * uncached + 1.0 * usage.cached_prompt_tokens + 5.0 * usage.output_tokens
        assert usage.cost == pytest.approx(whole / 1e6)
    for model, found in zip(("judge", "m"), info.usage, strict=True):
        assert {name: getattr(found.usage, name) for name in COUNTS} == server.counted[model]


async def test_a_resumed_evaluation_counts_each_kept_sample_once(tmp_path: Path):
    """Samples of two attempts are summed as they stand: what is run again takes the place of what was run before."""
    down = True

    def script(request: Request) -> Reply | Fault:
        if request.method == "GET":
            return Reply({"data": []})
        number = int(request.text[1:])
        if down and number >= 20:
            return Fault.STALL
        if down and number < 5:
            # Charged for, and no answer: an error that may go away, so the sample runs again in the next attempt.
            return Reply({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 0}})
        choices = answer(request, request.text.upper()).body["choices"]
        return Reply({"choices": choices, "usage": {"prompt_tokens": 1000 + number, "completion_tokens": 1}})

    request = asked(model=MODEL, dataset=numbered(30), limits=Limits(concurrency=4))
    async with ScriptedServer(script).serving() as fake:
        async with worker_on(fake, tmp_path) as bridge:
            await bridge.evaluation.start_evaluation(request)
            async with record_events(bridge) as recorder:
                await recorder.wait_for(lambda _: len(recorder.of(EventKind.SAMPLE_COMPLETE)) >= 20)
            await bridge.worker.drain()
        down = False
        async with worker_on(fake, tmp_path) as bridge:
            interrupted = await bridge.evaluation.get_evaluation("e")
            before = {each.sample_id: each.usage for each in await samples_of(bridge, "e")}
            evaluation = await bridge.evaluation.evaluate(request)
            results = await samples_of(bridge, "e")
            info = await bridge.worker.get_info()
    garbage = [usage for name in ("s0", "s1", "s2", "s3", "s4") if (usage := before[name]) is not None]
    assert sum(usage.prompt_tokens or 0 for usage in garbage) == 7 * sum(usage.calls for usage in garbage) > 0
    assert interrupted.state is EvaluationState.INTERRUPTED
    assert interrupted.usage is not None
    assert interrupted.usage.prompt_tokens == sum(each.prompt_tokens or 0 for each in before.values() if each)
    whole = Usage(prompt_tokens=sum(range(1000, 1030)), output_tokens=30, calls=30)
    assert evaluation.usage == evaluation.results[0].usage == whole
    assert {each.sample_id: each.usage for each in results} == {
        f"s{number}": Usage(prompt_tokens=1000 + number, output_tokens=1, calls=1) for number in range(30)
    }
    # The worker counts what it took itself.
    again = 30 - len(before) + len(garbage)
    assert [each.usage.calls for each in info.usage] == [again]


async def test_a_cancelled_evaluation_says_what_it_took(tmp_path: Path):
    """With an owner, and without: then it is what the owner wrote down when it was interrupted."""
    server = Counting(seed=10)

    def script(request: Request) -> Reply | Fault:
        return Fault.STALL if request.method == "POST" and int(request.text[1:]) >= 5 else server.reliable(request)

    async with ScriptedServer(script).serving() as fake, worker_on(fake, tmp_path) as bridge:
        for evaluation_id in ("owned", "interrupted"):
            fake.stalled.clear()
            request = asked(
                evaluation_id=evaluation_id, model=MODEL, dataset=numbered(20), limits=Limits(concurrency=1)
            )
            await bridge.evaluation.start_evaluation(request)
            await asyncio.wait_for(fake.stalled.wait(), 60)
            if evaluation_id == "owned":
                await bridge.evaluation.cancel_evaluation("owned")
        await bridge.worker.drain()
    async with worker_on(fake, tmp_path) as bridge:
        for evaluation_id in ("owned", "interrupted"):
            ended = await bridge.evaluation.cancel_evaluation(evaluation_id)
            results = await samples_of(bridge, evaluation_id)
            assert (ended.state, len(results)) == (EvaluationState.CANCELLED, 5)
            assert ended.usage is not None
            assert {name: getattr(ended.usage, name) for name in COUNTS} == summed(results)


class Reports:
    """A caller's model that says what its service counted, of words as of tokens."""

    async def sample(self, prompt: Any, params: SamplingParams, num_samples: int) -> list[SampledSequence]:
        assert isinstance(prompt, str)
        known: dict[str, Any] = {"prompt_tokens": 10, "cached_prompt_tokens": 4, "reasoning_tokens": 1}
        return [SampledSequence(text=prompt.upper(), tokens=(1, 2), **(known if prompt == "a" else {}))]


async def test_a_model_that_the_orchestrator_holds_is_counted_from_its_answers():
    """Numbers that an answer bears are taken; a prompt in words that nobody counted is not known."""
    async with rig() as it:
        evaluation = await it.evaluation.evaluate_with_orchestrator_model(
            asked(model="orchestrator:policy"), model=Reports()
        )
        samples = await samples_of(it.worker.bridge)
    known = Usage(prompt_tokens=10, cached_prompt_tokens=4, reasoning_tokens=1, output_tokens=2, calls=1)
    assert [sample.usage for sample in samples] == [known, Usage(output_tokens=2, calls=1, unreported_calls=1)]
    assert evaluation.usage == Usage(
        prompt_tokens=10, cached_prompt_tokens=4, reasoning_tokens=1, output_tokens=4, calls=2, unreported_calls=1
    )


async def test_a_model_of_tokens_is_counted():
    """A prompt counts once whatever is sampled of it, measured tokens are read, and failed tries cost nothing."""
    async with rig(ScriptedModel()) as it:
        evaluation = await it.evaluation.evaluate(asked(evaluators=[accuracy(), nll()], dataset=numbered(4)))
        sampled = await it.worker.bridge.models.sample("embedded:m", [ModelInput.of([1, 2, 3])], PARAMS)
    assert [result.usage for result in evaluation.results] == [
        Usage(prompt_tokens=8, output_tokens=8, calls=4),
        Usage(prompt_tokens=sum(len(f"q{n}Q{n}") - 1 for n in range(4)), output_tokens=0, calls=4),
    ]
    assert sampled.usage == Usage(prompt_tokens=3, output_tokens=3, calls=1)


SERVERS: list[tuple[str, Mapping[str, Reply], dict[str, str]]] = [
    (
        "vllm",
        {"/models": Reply({"data": [{"id": "m", "owned_by": "vllm"}]}), "/version": Reply({"version": "0.9.1"})},
        {"name": "vllm", "version": "0.9.1"},
    ),
    ("vllm without a list", {"/version": Reply({"version": "0.9.1"})}, {"name": "vllm", "version": "0.9.1"}),
    (
        "llama.cpp",
        {"/models": Reply({"data": [{"owned_by": "llamacpp"}]}), "/props": Reply({"build_info": "b5-abc"})},
        {"name": "llama.cpp", "version": "b5-abc", "fingerprint": "b5-abc"},
    ),
    ("a header", {"/models": Reply({"data": []}, headers={"Server": "lab/2"})}, {"name": "lab/2"}),
    ("a fingerprint", {}, {"fingerprint": "fp_1"}),
]


@pytest.mark.parametrize(("said", "engine"), [case[1:] for case in SERVERS], ids=[case[0] for case in SERVERS])
async def test_an_evaluation_names_the_engine(tmp_path: Path, said: Mapping[str, Reply], engine: dict[str, str]):
    """What the server says is in the result and in reports; a server is asked once an evaluation."""

    def script(request: Request) -> Reply:
        if request.method == "GET":
            return said.get(request.path, refusal(404))
        reply = answer(request, request.text.upper())
        return Reply({**reply.body, "system_fingerprint": engine.get("fingerprint")})

    async with ScriptedServer(script).serving() as fake, worker_on(fake, tmp_path) as bridge:
        evaluation = await bridge.evaluation.evaluate(asked(model=MODEL, dataset=numbered(20)))
        text = await bridge.evaluation.generate_report(["e"], ReportFormat.MARKDOWN)
    assert evaluation.engine is not None
    found = {name: getattr(evaluation.engine, name) for name in ("name", "version", "fingerprint")}
    assert found == {"name": "", "version": "", "fingerprint": "", **engine}
    assert engine.get("version", "") in text
    assert max(collections.Counter(request.path for request in fake.requests if request.method == "GET").values()) <= 2


SILENT: list[tuple[str, Any]] = [
    ("refused", refusal(500)),
    ("no JSON", Reply(b"<html>")),
    ("another form", Reply([1])),
    ("wrong kinds", Reply({"data": [7], "version": 7, "build_info": {}})),
    ("a redirect", Reply({}, status=302, headers={"Location": "/elsewhere"})),
    ("compressed", Reply({}, headers={"Content-Encoding": "gzip"})),
    ("too long", Reply({"version": "x" * (2 << 20)})),
    ("dropped", Fault.DROP),
    ("stalled", Fault.STALL),
]


@pytest.mark.parametrize("reply", [case[1] for case in SILENT], ids=[case[0] for case in SILENT])
async def test_a_server_that_does_not_name_its_engine_costs_nothing(tmp_path: Path, reply: Reply | Fault):
    """Whatever goes wrong with that, the evaluation is the same, and names none."""
    reached: list[str] = []

    def script(request: Request) -> Reply | Fault:
        if request.method == "POST":
            return answer(request, request.text.upper())
        reached.append(request.path)
        return Reply({"data": []}) if len(reached) == 1 else reply  # the first one is to find out whether it is there

    async with ScriptedServer(script).serving() as fake, worker_on(fake, tmp_path) as bridge:
        evaluation = await bridge.evaluation.evaluate(asked(model=MODEL))
    assert evaluation.metrics.values["accuracy"] == 1.0
    assert evaluation.engine is not None
    assert (evaluation.engine.name, evaluation.engine.version, evaluation.engine.fingerprint) == ("", "", "")
    assert evaluation.engine.sampling_defaults == "unknown"
    assert len(reached) > 1


async def test_the_usage_of_a_cancelled_evaluation_is_that_of_its_kept_samples():
    """At whatever moment it is cancelled, also while results are being written."""
    async with rig(ScriptedModel(latency=0.002)) as r:
        for at in range(20, 420, 40):
            reached, name = r.model.calls + at, f"e{at}"
            await r.evaluation.start_evaluation(
                asked(evaluation_id=name, dataset=numbered(2_000), limits=Limits(concurrency=4))
            )
            while r.model.calls < reached:
                await asyncio.sleep(0.001)
            cancelled = await r.evaluation.cancel_evaluation(name, "enough")
            kept = [sample async for sample in r.evaluation.all_samples(name)]

            assert cancelled.state is EvaluationState.CANCELLED
            assert cancelled.usage is not None
            assert (cancelled.done, cancelled.usage.calls) == (len(kept), len(kept))
