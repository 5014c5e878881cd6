"""Several evaluators, their keys, repeats, bounds on what is unscored, and sums that do not depend on order."""

import json
import math
import re

import jsonschema
import numpy as np
import pytest

from crucible_bridge.errors import Code
from crucible_bridge.events import EventKind
from crucible_bridge.types import EvaluationState, EvaluatorKind, EvaluatorSpec, Limits, Sample, SamplingParams, Verdict
from crucible_worker.testing import ScriptedModel
from tests.service.evaluation_kit import (
    accuracy,
    asked,
    failing,
    kinds_of,
    log_of,
    nll,
    numbered,
    refused,
    rig,
    samples_of,
    state_of,
)
from tests.tables import rows

pytestmark = pytest.mark.core

REQUIRED = {
    "classification": {"labels": ["A", "B"]},
    "comparison": {"judge": "embedded:m"},
    "preference": {"reference": "embedded:m"},
    "rubric": {"judge": "embedded:m", "criteria": [{"name": "clear", "description": "Is it?"}]},
}
"""Options without a default, or that all keys need, by kind."""


async def test_an_evaluator_that_cannot_work_fails_alone():
    """One without its client gets an EVALUATOR_EXCEPTION; the others finish and stand, the evaluation is COMPLETED."""
    async with rig(ScriptedModel(trained=False)) as r:
        evaluation = await r.evaluation.evaluate(asked(evaluators=[nll(client="training"), accuracy()]))
        kinds = await kinds_of(r.worker.bridge)
        exception = await r.told(EventKind.EVALUATOR_EXCEPTION)

    broken, sound = evaluation.results
    assert evaluation.state is EvaluationState.COMPLETED
    assert broken.problem is not None
    assert (broken.problem.reason, sound.problem) == ("MISSING_CLIENT", None)
    assert (broken.n, broken.n_scored, broken.n_unscored, broken.n_errors) == (2, 0, 2, 0)
    assert evaluation.metrics.values["accuracy"] == 1.0
    assert "nll" not in {**evaluation.metrics.values, **evaluation.metrics.undefined}
    assert (evaluation.total, evaluation.done) == (2, 2)
    assert kinds.count(EventKind.EVALUATOR_EXCEPTION) == kinds.count(EventKind.EVALUATOR_COMPLETE) == 1
    assert kinds[-2:] == [EventKind.EVALUATION_COMPLETE, EventKind.EVALUATION_STOP]
    assert exception.problem == broken.problem
    assert exception.measurements == {
        "n": 2.0,
        "n_scored": 0.0,
        "n_unscored": 2.0,
        "n_errors": 0.0,
        "n_truncated_reasoning": 0.0,
    }


async def test_evaluators_that_all_cannot_work_fail_the_evaluation():
    """COMPLETED needs one evaluator that finished; without, FAILED, and no model call was made."""
    async with rig(ScriptedModel(trained=False)) as r:
        evaluation = await r.evaluation.evaluate(asked(evaluators=[nll(client="training")]))

    assert state_of(evaluation) == (EvaluationState.FAILED, "NO_EVALUATOR_FINISHED")
    assert r.model.calls == 0


async def test_names_and_prefix_make_the_keys():
    """Bare keys, `<name>/<key>` with a name, metric_prefix before all; samples are filed under name or kind."""
    async with rig() as r:
        evaluation = await r.evaluation.evaluate(
            asked(evaluators=[nll(), nll("other"), accuracy("acc")], metric_prefix="test/")
        )
        labels = {sample.evaluator for sample in await samples_of(r.worker.bridge)}

    accuracies = ("accuracy", "accuracy_strict", "accuracy_stderr", "accuracy_ci95_low", "accuracy_ci95_high")
    assert evaluation.metrics.values.keys() == {
        "test/nll",
        "test/other/nll",
        *(f"test/acc/{key}" for key in accuracies),
    }
    assert evaluation.results[2].metrics.values.keys() == {f"test/acc/{key}" for key in accuracies}
    assert labels == {"nll", "other", "acc"}


@pytest.mark.parametrize(
    ("evaluators", "field"),
    [
        ([nll(), nll()], "evaluators[1].name"),
        ([nll("x"), accuracy(), nll("x", client="sampling")], "evaluators[2].name"),
        ([accuracy(), accuracy(grader="contains")], "evaluators[1].name"),
    ],
)
async def test_equal_keys_are_refused(evaluators, field):
    """Two specifications that would yield the same key are INVALID_ARGUMENT, and nothing is started."""
    async with rig() as r:
        await refused(
            r.evaluation.start_evaluation(asked(evaluators=evaluators)), Code.INVALID_ARGUMENT, "EQUAL_KEYS", field
        )
        assert await log_of(r.worker.bridge) == []


async def test_repeats_are_samples_of_their_own_and_cluster():
    """samples_per_prompt asks each sample so often: n counts answers, uncertainty is clustered by sample."""
    asked_for = {"a": 0, "b": 0}

    def answer(prompt: str) -> str:
        asked_for[prompt] += 1
        return "A" if prompt == "a" or asked_for[prompt] > 3 else "?"

    async with rig(ScriptedModel(answer=answer)) as r:
        evaluation = await r.evaluation.evaluate(
            asked(evaluators=[accuracy(samples_per_prompt=4)], limits=Limits(concurrency=1))
        )
        repeats = [(sample.sample_id, sample.repeat) for sample in await samples_of(r.worker.bridge)]
        events = await log_of(r.worker.bridge, kinds=[EventKind.SAMPLE_COMPLETE])
        complete = await r.told(EventKind.EVALUATION_COMPLETE)

    (result,) = evaluation.results
    assert repeats == [(sample, repeat) for sample in "01" for repeat in range(4)]
    assert [event.metadata["repeat"] for event in events] == ["0", "1", "2", "3"] * 2
    assert (evaluation.total, result.n, result.n_scored) == (8, 8, 8)
    assert evaluation.metrics.values["accuracy"] == 0.5
    # Scores 1, 1, 1, 1 and 0, 0, 0, 0: two clusters that differ wholly, C / (C - 1) * (2^2 + 2^2) / 8^2.
    assert evaluation.metrics.values["accuracy_stderr"] == pytest.approx(0.5)
    assert complete.measurements["sample_count"] == 2.0


async def test_seeds_are_a_function_of_evaluation_seed_sample_and_repeat():
    """Random sampling gives every answer a seed of its own, the same in the same evaluation elsewhere."""
    seeds: list[int | None] = []

    class Seeded(ScriptedModel):
        async def sample(self, prompt, params, num_samples=1):
            seeds.append(params.seed)
            return await super().sample(prompt, params, num_samples)

    def request(**changes):
        return asked(
            evaluators=[accuracy(samples_per_prompt=2)],
            sampling=SamplingParams(max_tokens=2, temperature=1.0, **changes),
            limits=Limits(concurrency=1),
            evaluation_id="",
        )

    async with rig(Seeded()) as r:
        for changes in ({"seed": 1}, {"seed": 1}, {"seed": 2}):
            await r.evaluation.evaluate(request(**changes))

    first, second, other = seeds[:4], seeds[4:8], seeds[8:]
    assert first == second
    assert len({*first, *other}) == 8


async def test_counts_tell_unscored_from_errors():
    """UNDECIDED is unscored but no error, ERROR is both; neither counts as wrong in accuracy, both do in the strict."""
    samples = [
        Sample(id="right", input="a", targets=("A",)),
        Sample(id="wrong", input="b", targets=("x",)),
        Sample(id="undecided", input="c", targets=()),
        Sample(id="broken", input="d", targets=("D",)),
    ]
    async with rig(ScriptedModel(fault=failing("d"))) as r:
        evaluation = await r.evaluation.evaluate(asked(dataset=samples))
        by_id = {sample.sample_id: sample for sample in await samples_of(r.worker.bridge)}

    (result,) = evaluation.results
    assert by_id["undecided"].verdict is Verdict.UNDECIDED
    assert by_id["broken"].verdict is Verdict.ERROR
    assert (result.n, result.n_scored, result.n_unscored, result.n_errors) == (4, 2, 2, 1)
    values = evaluation.metrics.values
    assert (values["accuracy"], values["accuracy_strict"]) == (0.5, 0.25)
    assert not {"n", "n_scored", "n_unscored", "n_errors"} & values.keys()


@rows(
    ("limits", "failed"),
    [
        (Limits(max_unscored=2), False),
        (Limits(max_unscored=1), True),
        (Limits(max_unscored=0), True),
        (Limits(max_unscored_share=0.5), False),
        (Limits(max_unscored_share=0.49), True),
    ],
)
async def test_bounds_on_unscored_samples(limits, failed):
    """More unscored samples than max_unscored or max_unscored_share fail the evaluator; as many do not."""
    async with rig(ScriptedModel(fault=failing("q0", "q1"))) as r:
        evaluation = await r.evaluation.evaluate(asked(dataset=numbered(4), limits=limits))

    reason = evaluation.results[0].problem.reason if evaluation.results[0].problem else None
    assert (reason == "TOO_MANY_UNSCORED") is failed
    assert (evaluation.state is EvaluationState.FAILED) is failed


async def test_the_metrics_of_a_failed_evaluation_are_those_of_the_evaluators_that_finished():
    """The evaluator with too many unscored fails; another one on the same samples stands, with its keys alone."""
    async with rig(ScriptedModel(fault=lambda call: failing()(call) if call.method == "sample" else None)) as r:
        evaluation = await r.evaluation.evaluate(asked(evaluators=[accuracy(), nll()], limits=Limits(max_unscored=1)))

    assert evaluation.state is EvaluationState.FAILED
    assert evaluation.metrics.values.keys() == {"nll"}
    assert evaluation.metrics.undefined == {}


async def test_result_does_not_depend_on_the_order_of_completion():
    """Sums are exact and in the data set's order: every order of completion gives the same bits."""
    values = [1e16, 1.0, 1.0, 3.14159, 1e-7, 2.5, 1e8]
    samples = [Sample(id=str(index), input="q", targets=(chr(65 + index),)) for index in range(len(values))]

    class Shuffled(ScriptedModel):
        spread = 1

        async def forward(self, data):
            target = np.asarray(data[0].loss_fn_inputs["target_tokens"])[-1]
            self.latency = 0.002 * ((int(target) * self.spread) % 7)
            return await super().forward(data)

    found = set()
    for spread in (1, 3, 5):
        model = Shuffled(logprob=lambda token, position: -values[token - 65] if token >= 65 else 0.0)
        model.spread = spread
        async with rig(model) as r:
            evaluation = await r.evaluation.evaluate(asked(dataset=samples, evaluators=[nll()]))
            order = [event.metadata["sample_id"] for event in await log_of(r.worker.bridge, kinds=["SAMPLE_COMPLETE"])]
            found.add((evaluation.metrics.values["nll"].hex(), tuple(order)))

    assert len({bits for bits, _ in found}) == 1
    assert len({order for _, order in found}) > 1, "the orders of completion did not differ"
    assert float.fromhex(next(iter(found))[0]) == math.fsum(values) / len(values)


async def test_listing_of_evaluators_is_what_they_take():
    """ListEvaluators names kinds, clients and keys; its schemas are valid, and their defaults pass them."""
    async with rig() as r:
        infos = {info.kind: info for info in await r.evaluation.list_evaluators()}

    assert infos.keys() >= {"accuracy", "nll"}
    assert infos["nll"].kinds == (EvaluatorKind.TRAINING, EvaluatorKind.SAMPLING)
    assert infos["accuracy"].kinds == (EvaluatorKind.SAMPLING,)
    for info in infos.values():
        jsonschema.Draft202012Validator.check_schema(info.options_schema)
        properties = info.options_schema["properties"]
        defaults = {key: schema["default"] for key, schema in properties.items() if "default" in schema}
        defaults |= REQUIRED.get(info.kind, {})
        jsonschema.validate(json.loads(json.dumps(defaults)), info.options_schema)
        assert info.options_schema["additionalProperties"] is False
        assert info.description
        assert all(info.keys.values()), "a key without its unit"


async def test_each_listed_evaluator_yields_the_keys_that_it_lists():
    """An evaluation by every listed kind that can be used has exactly the listed keys, with a value or a reason."""
    async with rig() as r:
        infos = [info for info in await r.evaluation.list_evaluators() if not info.unavailable]
        for info in infos:
            # Labels stand in the options, not in the sample.
            choices = ("A", "B") if info.kind == "multiple_choice" else ()
            pair = {"rejected": "B"} if info.kind == "preference" else {}
            samples = [Sample(input="a", targets=("A",), choices=choices, metadata=pair)]
            spec = EvaluatorSpec(kind=info.kind, options=REQUIRED.get(info.kind, {}))
            sampling = SamplingParams(max_tokens=2, temperature=1.0)
            evaluation = await r.evaluation.evaluate(
                asked(evaluation_id="", evaluators=[spec], dataset=samples, sampling=sampling)
            )
            found = {*evaluation.metrics.values, *evaluation.metrics.undefined}
            announced = {key: re.sub("<.+?>", "[^/]+", re.escape(key)) for key in info.keys}
            assert all(any(re.fullmatch(pattern, key) for pattern in announced.values()) for key in found)
            # Where no rollout failed, and no turn reports cached tokens, there is no key that says so.
            maybe = ("rollout_errors/", "env/<tag>/total_cached_ob_tokens")
            wanted = [pattern for key, pattern in announced.items() if not key.startswith(maybe)]
            assert all(any(re.fullmatch(pattern, key) for key in found) for pattern in wanted)
