"""Equal specifications have equal fingerprints and unequal ones do not; keys and seeds follow from them."""

import dataclasses
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.codec.evaluation import evaluate_request_from_v1, evaluate_request_to_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import EvaluateRequest, EvaluationPlan, EvaluatorSpec, InlineDataset, PlannedEvaluation
from crucible_worker.datasets.identity import SampleCache, with_kept_samples
from crucible_worker.engine.specification import (
    MAX_OPTIONS_BYTES,
    PlacedKeys,
    differing_fields,
    fingerprint,
    metric_key,
    plan_fingerprint,
    refuse_equal_keys,
    refuse_large_options,
)
from crucible_worker.inference.retries import sample_seed
from crucible_worker.journal.packing import pack
from tests.tables import rows
from tests.unit.bridge.strategies import labels, limits, plain, text
from tests.unit.bridge.strategies import requests as any_requests
from tests.unit.journal.journals import request

PARTS = ("model", "evaluators", "dataset", "sampling", "metric_prefix", "run_id", "step", "models")


def _sendable(value: EvaluateRequest) -> bool:
    try:
        evaluate_request_from_v1(evaluate_request_to_v1(value))
    except InvalidField:
        return False
    return True


requests = any_requests.filter(_sendable)


def _received(value: EvaluateRequest) -> EvaluateRequest:
    """The request as a worker gets it."""
    return evaluate_request_from_v1(evaluate_request_to_v1(value))


def _specification(value: EvaluateRequest) -> list[object]:
    return [plain(getattr(value, part)) for part in PARTS]


def test_further_models_belong_to_the_specification():
    """A request without them keeps the fingerprint of earlier releases; another model is named where they differ."""
    without, one, other = request(), request(models={"grader": "local:a"}), request(models={"grader": "local:b"})

    assert len({fingerprint(each) for each in (without, one, other)}) == 3
    assert differing_fields(one, other) == ['models["grader"]']


@given(requests, limits, labels, text, text)
def test_what_is_no_specification_leaves_the_fingerprint(original, other_limits, other_labels, name, correlation):
    """A request that was sent twice, with other limits, labels, ids, has one fingerprint."""
    again = dataclasses.replace(
        original, limits=other_limits, labels=other_labels, evaluation_id=name, correlation_id=correlation
    )
    assert fingerprint(_received(original)) == fingerprint(_received(again))


@given(requests, requests, st.sampled_from(PARTS))
def test_fingerprints_are_equal_where_specifications_are(one, other, part):
    """Of two requests that differ in one part at most: equal fingerprint if, and only if, that part is equal."""
    changed = dataclasses.replace(one, **{part: getattr(other, part)})
    first, second = _received(one), _received(changed)
    assert (fingerprint(first) == fingerprint(second)) is (_specification(first) == _specification(second))


@given(requests.filter(lambda each: isinstance(each.dataset.source, InlineDataset)))
def test_kept_samples_are_the_same_samples(original):
    """A plan's samples have the digest of their content, computed once: its requests are those of anybody else."""
    received = _received(original)
    planned = PlannedEvaluation(evaluators=received.evaluators, dataset=received.dataset, sampling=received.sampling)
    plan = EvaluationPlan(plan_id="p", run_id="r", eval_every=1, evaluations=(planned,))
    kept = with_kept_samples(plan)

    assert kept == plan
    assert plan_fingerprint(kept) == plan_fingerprint(plan)
    dataset = kept.evaluations[0].dataset
    assert fingerprint(dataclasses.replace(received, dataset=dataset)) == fingerprint(received)
    assert isinstance(dataset.source, InlineDataset)
    assert isinstance(dataset.source.samples, SampleCache)
    assert dataset.source.samples.digest is dataset.source.samples.digest


def test_fingerprint_is_the_same_in_every_process():
    """It depends on no hash seed: another process finds the same."""
    code = (
        "from tests.unit.journal.journals import request\n"
        "from crucible_worker.engine.specification import fingerprint\n"
        "print(fingerprint(request(run_id='r', labels={'a': 'b'})))\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == fingerprint(request(run_id="r"))


def test_order_of_options_is_no_difference():
    """Options are a map: their order does not count; that of evaluators does."""
    one = EvaluatorSpec(kind="a", options={"x": 1, "y": {"p": 1, "q": 2}})
    same = EvaluatorSpec(kind="a", options={"y": {"q": 2, "p": 1}, "x": 1})
    other = EvaluatorSpec(kind="b")
    assert fingerprint(request(evaluators=[one, other])) == fingerprint(request(evaluators=[same, other]))
    assert fingerprint(request(evaluators=[one, other])) != fingerprint(request(evaluators=[other, one]))


@given(st.integers(-(2**63), 2**63 - 1), text, st.integers(0, 1000))
def test_seeds_are_non_negative_and_fit(seed, sample_id, repeat):
    """A seed is within 0 and 2**63 - 1, and the same each time."""
    made = sample_seed(seed, sample_id, repeat)
    assert 0 <= made < 2**63
    assert made == sample_seed(seed, sample_id, repeat)


def test_seeds_differ_by_each_part():
    """Seed, sample and repeat each change it, and do not run into each other."""
    seeds = {sample_seed(seed, name, repeat) for seed in (0, 1, 11) for name in ("", "1", "1\0") for repeat in (0, 1)}
    assert len(seeds) == 18


def test_seed_is_what_it_has_always_been():
    """A worker of the next version must go on with the seeds of this one."""
    assert sample_seed(1, "a", 0) == 2170595579459010110


@rows(("prefix", "name", "key"), [("", None, "nll"), ("t/", None, "t/nll"), ("", "a", "a/nll"), ("t/", "a", "t/a/nll")])
def test_metric_keys(prefix, name, key):
    """Prefix, then the name where there is one."""
    assert metric_key(prefix, EvaluatorSpec(kind="nll", name=name), "nll") == key


def test_equal_keys_across_names_are_refused():
    """A collision counts however it comes about: a name with a slash may make another one's key."""
    bare = EvaluatorSpec(kind="x")
    named = EvaluatorSpec(kind="y", name="a")
    refuse_equal_keys(
        [PlacedKeys("evaluators[0]", "", bare, ("nll", "b/nll")), PlacedKeys("evaluators[1]", "", named, ("nll",))]
    )
    with pytest.raises(InvalidField) as caught:
        refuse_equal_keys(
            [
                PlacedKeys("evaluators[0]", "p/", bare, ("nll", "a/nll")),
                PlacedKeys("evaluators[1]", "p/", named, ("nll",)),
            ]
        )
    assert (caught.value.field, caught.value.reason) == ("evaluators[1].name", "EQUAL_KEYS")
    assert "p/a/nll" in str(caught.value)


RUBRIC = ("rubric", None, ("rubric_score", "rubric/<criterion>"))


@rows(
    ("first", "second", "key"),
    [
        (RUBRIC, ("accuracy", "rubric", ("accuracy",)), "rubric/accuracy"),
        (("accuracy", "rubric", ("accuracy",)), RUBRIC, "rubric/accuracy"),
        (RUBRIC, ("accuracy", "rubrics", ("accuracy",)), None),
        (RUBRIC, ("nll", "rubric/a", ("nll",)), None),
        (RUBRIC, ("inspect", None, ("<task>/<scorer>/<metric>",)), None),
        (("inspect", None, ("<task>/samples",)), ("x", "a", ("samples",)), None),
        (("p", "a", ("pass@<k>",)), ("x", "a", ("pass@2",)), "a/pass@2"),
        (("p", "<a>", ("pass@<k>",)), ("x", "b", ("pass@2",)), None),
    ],
)
def test_what_a_key_may_be_is_refused_where_it_is_known(first, second, key):
    """Something else stands in place of `<...>`: the second one is named, in whichever order they come."""
    placed = [
        PlacedKeys(f"evaluators[{index}]", "p/", EvaluatorSpec(kind=kind, name=name), keys)
        for index, (kind, name, keys) in enumerate((first, second))
    ]
    if key is None:
        refuse_equal_keys(placed)
        return
    with pytest.raises(InvalidField, match=f"evaluators\\[1\\].name must differ .* 'p/{key}'"):
        refuse_equal_keys(placed)


def sized(size: int) -> EvaluatorSpec:
    """An evaluator whose options have so many bytes."""
    around = len(pack({"text": "x" * 70_000})) - 70_000
    return EvaluatorSpec(kind="nll", options={"text": "x" * (size - around)})


def test_options_are_bounded_together():
    """The bound is that of all evaluators; one byte more is refused at the first evaluator beyond."""
    half = MAX_OPTIONS_BYTES // 2
    refuse_large_options([sized(half), sized(half)])
    with pytest.raises(InvalidField) as caught:
        refuse_large_options([sized(half), sized(half + 1)])
    assert caught.value.field == "evaluators[1].options"
    assert f"{MAX_OPTIONS_BYTES + 1:,}" in str(caught.value)
