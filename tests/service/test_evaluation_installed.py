"""Evaluators that users have installed, over the wire: listed, run, and kept from doing harm to the others."""

import importlib
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import crucible_bridge
from crucible_bridge.errors import Code
from crucible_bridge.types import EvaluationState, EvaluatorSpec, Sample, SamplingParams, Verdict
from crucible_worker.evaluators.installed import GROUP
from crucible_worker.testing import ScriptedModel
from tests.distributions import lay_out, lay_out_evaluator_package
from tests.service.evaluation_kit import accuracy, asked, log_of, refused, rig, samples_of, verdicts_of
from tests.service.serving import serving

FRAGILE = """
from crucible_bridge.types import EvaluatorInfo, EvaluatorKind, Metrics, Verdict
from crucible_worker.evaluators.base import Outcome

SCORE = [2.0]

class Fragile:
    repeats = 1

    def __init__(self, where):
        self.where = where

    def _break(self, where):
        if self.where == where:
            raise ValueError("broken")

    def check(self, model):
        self._break("check")

    def check_sample(self, sample):
        self._break("check_sample")

    async def run(self, sample, context):
        if sample.input == "b":
            self._break("run")
        return Outcome(verdict=Verdict.MEASURED, score=SCORE[0])

    def aggregate(self, results):
        scores = [result.score for result in results if result.verdict.scored]
        self._break("aggregate")
        return Metrics({"fragile": sum(scores)})

class FragileType:
    info = EvaluatorInfo(
        kind="fragile",
        kinds=(EvaluatorKind.SAMPLING,),
        description="Breaks where it is told.",
        options_schema={
            "type": "object",
            "properties": {"where": {"type": "string", "default": ""}},
            "additionalProperties": False,
        },
        keys={"fragile": "ones"},
    )

    def create(self, options, sampling):
        return Fragile(options["where"])

FRAGILE = FragileType()
"""

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a distribution with an evaluator where this process finds it."""
    folder = tmp_path / "installed"
    monkeypatch.syspath_prepend(folder)

    def distribution(name: str, source: str) -> None:
        lay_out(folder, f"users_{name}", source, GROUP, {name: f"users_{name}:{name.upper()}"})
        importlib.invalidate_caches()
        monkeypatch.delitem(sys.modules, f"users_{name}", raising=False)

    return distribution


def fragile(where: str = "") -> EvaluatorSpec:
    """The evaluator above, which breaks there."""
    return EvaluatorSpec(kind="fragile", options={"where": where})


async def test_the_example_package_works_in_a_worker_as_it_is_started(tmp_path: Path):
    """Installed on its path, it is listed, told by GetInfo, and evaluates a model beside one of ours."""
    lay_out_evaluator_package(tmp_path / "installed")
    path = os.pathsep.join([str(tmp_path / "installed"), *filter(None, [os.environ.get("PYTHONPATH")])])
    async with (
        serving(tmp_path / "worker", "", environment={"PYTHONPATH": path}) as worker,
        crucible_bridge.connect(worker.address) as bridge,
    ):
        listed = {info.kind: info for info in await bridge.evaluation.list_evaluators()}
        info = await bridge.worker.get_info()
        evaluation = await bridge.evaluation.evaluate(
            model="embedded:arithmetic@320",
            evaluators=[EvaluatorSpec(kind="brevity", options={"max_words": 1}), "accuracy"],
            dataset=[Sample(input="12+34=", targets=("46",)), Sample(input="1+1=", targets=("2",))],
            sampling=SamplingParams(max_tokens=4),
        )

    assert listed["brevity"].keys == {"brevity": "fraction of 1", "words": "words"}
    assert list(info.evaluators) == list(listed)
    assert evaluation.state is EvaluationState.COMPLETED
    assert evaluation.metrics.values["brevity"] == 1.0
    assert evaluation.metrics.values["words"] == 1.0
    assert "accuracy" in evaluation.metrics.values
    assert [result.problem for result in evaluation.results] == [None, None]


async def test_an_exception_is_an_error_of_its_sample(install: Install):
    """The other sample stands, and so does the other evaluator."""
    install("fragile", FRAGILE)
    async with rig() as r:
        evaluation = await r.evaluation.evaluate(asked(evaluators=[fragile("run"), accuracy()]))
        problems = [sample.problem for sample in await samples_of(r.worker.bridge) if sample.problem is not None]
        verdicts = await verdicts_of(r.worker.bridge)

    assert evaluation.state is EvaluationState.COMPLETED
    assert evaluation.metrics.values["fragile"] == 2.0
    assert evaluation.metrics.values["accuracy"] == 1.0
    assert (evaluation.results[0].n_errors, evaluation.results[0].problem) == (1, None)
    assert sorted(verdicts) == sorted([Verdict.MEASURED, Verdict.ERROR, Verdict.CORRECT, Verdict.CORRECT])
    (problem,) = problems
    assert problem.reason == "EVALUATOR_FAILED"
    assert re.fullmatch("ValueError in the evaluator; error id [0-9a-f]{16} in the worker's log", problem.message)


async def test_the_error_id_of_a_failure_stands_in_the_workers_log_with_its_traceback(tmp_path: Path):
    """Of a sample that failed and of an aggregation: one line each, with what the problem does not tell."""
    lay_out(tmp_path / "installed", "users_fragile", FRAGILE, GROUP, {"fragile": "users_fragile:FRAGILE"})
    path = os.pathsep.join([str(tmp_path / "installed"), *filter(None, [os.environ.get("PYTHONPATH")])])
    async with (
        serving(tmp_path / "worker", 'log_format = "json"', environment={"PYTHONPATH": path}) as worker,
        crucible_bridge.connect(worker.address) as bridge,
    ):
        evaluation = await bridge.evaluation.evaluate(
            model="embedded:arithmetic@320",
            evaluators=[fragile("run"), EvaluatorSpec(kind="fragile", name="late", options={"where": "aggregate"})],
            dataset=[Sample(input="b", targets=("46",))],
            sampling=SamplingParams(max_tokens=4),
        )
        samples = (await bridge.evaluation.get_samples(evaluation.evaluation_id)).items
        await worker.drained()
        lines = [json.loads(line) for line in worker.log.read_text().splitlines()]

    problems = [sample.problem for sample in samples] + [result.problem for result in evaluation.results]
    messages = [problem.message for problem in problems if problem and problem.reason == "EVALUATOR_FAILED"]
    ids = re.findall("error id ([0-9a-f]{16})", "\n".join(messages))
    logged = {line["error_id"]: line for line in lines if "error_id" in line}
    assert len(ids) == len(set(ids)) == 2
    assert sorted(ids) == sorted(logged)
    assert all("ValueError: broken" in logged[each]["exception"] for each in ids)
    assert all("broken" not in message for message in messages)


@pytest.mark.parametrize(("where", "reason"), [("check", "BAD_EVALUATOR"), ("aggregate", "EVALUATOR_FAILED")])
async def test_an_evaluator_that_breaks_fails_alone(install: Install, where: str, reason: str):
    """Before its first sample or behind its last: the other evaluator finishes and stands."""
    install("fragile", FRAGILE)
    async with rig() as r:
        evaluation = await r.evaluation.evaluate(asked(evaluators=[fragile(where), accuracy()]))

    broken, sound = evaluation.results
    assert evaluation.state is EvaluationState.COMPLETED
    assert broken.problem is not None
    assert (broken.problem.reason, sound.problem) == (reason, None)
    assert "fragile" not in {**evaluation.metrics.values, **evaluation.metrics.undefined}
    assert evaluation.metrics.values["accuracy"] == 1.0


async def test_what_cannot_be_used_is_refused_before_anything_starts(install: Install):
    """At the start, with the reason; the listing says so too, and tells of the others all the same."""
    install("fragile", FRAGILE)
    install("broken", "raise RuntimeError('no luck')")
    async with rig() as r:
        await refused(
            r.evaluation.start_evaluation(asked(evaluators=["broken"])), Code.FAILED_PRECONDITION, "BAD_EVALUATOR"
        )
        await refused(
            r.evaluation.start_evaluation(asked(evaluators=[fragile("check_sample")])),
            Code.FAILED_PRECONDITION,
            "BAD_EVALUATOR",
        )
        await refused(
            r.evaluation.start_evaluation(asked(evaluators=[EvaluatorSpec(kind="fragile", options={"were": "run"})])),
            Code.INVALID_ARGUMENT,
            "UNKNOWN_OPTION",
            'evaluators[0].options["were"]',
        )
        listed = {info.kind: info.unavailable for info in await r.evaluation.list_evaluators()}
        log = await log_of(r.worker.bridge)

    assert log == []
    assert "RuntimeError: no luck" in listed.pop("broken")
    assert "fragile" in listed
    # An operator has to allow tasks.
    assert {kind for kind, unavailable in listed.items() if unavailable} == {"inspect"}


async def test_a_compared_evaluation_outlives_its_evaluator(install: Install, monkeypatch: pytest.MonkeyPatch):
    """Scores are compared where it is installed no longer; only which of them are better is not known any more."""
    install("fragile", FRAGILE)
    async with rig(ScriptedModel()) as r:
        await r.evaluation.evaluate(asked(evaluation_id="before", evaluators=[fragile()]))
        sys.modules["users_fragile"].SCORE[0] = 3.0
        await r.evaluation.evaluate(asked(evaluation_id="after", evaluators=[fragile()]))
        monkeypatch.setattr(sys, "path", [place for place in sys.path if not place.endswith("installed")])
        comparison = await r.evaluation.compare_evaluations(["before", "after"])

    (pair,) = comparison.comparisons
    assert (pair.problem, pair.n_matched, pair.n_improved, pair.n_regressed) == (None, 2, 0, 0)
    assert pair.metrics.values["difference"] == 1.0


async def test_an_evaluator_that_asks_the_sides_of_a_model_works_unchanged(install: Install):
    """Written when a model had a sampling and a training client: both are the model, behind the gate."""
    asking = """
    async def run(self, sample, context):
        from crucible_bridge.types import Datum, ModelInput, SamplingParams
        model = context.model
        tokens = await model.tokenizer.encode(sample.input)
        (answer,) = await model.sampling.sample(ModelInput.of(tokens), SamplingParams(max_tokens=2))
        data = [Datum(model_input=tokens, loss_fn_inputs={"target_tokens": tokens})]
        (logprobs,) = await model.training.forward(data)
        return Outcome(verdict=Verdict.MEASURED, score=float(len(logprobs)), output=answer.text)
"""
    before, rest = FRAGILE.split("    async def run(self, sample, context):")
    install("fragile", before + asking + "\n" + rest[rest.index("    def aggregate") :])
    async with rig() as r:
        evaluation = await r.evaluation.evaluate(asked(evaluators=[fragile()]))
        samples = await samples_of(r.worker.bridge)

    assert evaluation.state is EvaluationState.COMPLETED
    assert [(sample.output, sample.score, sample.attempts) for sample in samples] == [("A", 1.0, 2), ("B", 1.0, 2)]
