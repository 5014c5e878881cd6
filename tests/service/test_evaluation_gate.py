"""Gates: whether a candidate may replace a baseline, from the journal of a real worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Any

import pytest
import pytest_asyncio

import crucible_bridge
from crucible_bridge.client.evaluation import EvaluationClient
from crucible_bridge.errors import BackendError, BridgeError, Code
from crucible_bridge.types import (
    Dataset,
    EvaluatorSpec,
    GateMetric,
    GatePolicy,
    GateTier,
    GateVerdict,
    Goal,
    Limits,
    RankBy,
    Record,
    Sample,
    SamplingParams,
)
from crucible_worker.testing import Call, ScriptedModel, run_worker
from tests.service.evaluation_kit import HeldModel, asked, refused, rig
from tests.tables import rows

pytestmark = [pytest.mark.core, pytest.mark.asyncio(loop_scope="module")]

COUNT = 40
SAMPLES = tuple(
    Sample(id=f"s{n}", input=f"question {n}", targets=("YES",), metadata={"text": f"t{n // 4}", "level": "1"})
    for n in range(COUNT)
)
ACCURACY = GateMetric(key="accuracy", max_drop=0.02)
NLL = GateMetric(key="nll", max_drop=0.5, direction=Goal.LOWER, tier=GateTier.WARN)


def _model(
    wrong: Collection[int], logprob: float = -1.0, broken: Collection[int] = (), measured: bool = True
) -> ScriptedModel:
    def index(prompt: str) -> int:
        return int("".join(filter(str.isdigit, prompt)))

    def fault(call: Call) -> BridgeError | None:
        lost = (call.method == "sample" or not measured) and index(call.text) in broken
        return BackendError("this one is lost", reason="LOST", retryable=False) if lost else None

    return ScriptedModel(
        answer=lambda prompt: "no" if index(prompt) in wrong else "YES",
        logprob=lambda position, token: logprob - position / 10,
        fault=fault,
    )


MODELS = {
    "base": _model(range(4)),
    "alike": _model(range(1, 5)),
    "doubtful": _model(range(7)),
    "worse": _model(range(20)),
    "surprised": _model(range(4), logprob=-3.0),
    "broken": _model(range(4), broken=range(30, 40)),
    "lossy": _model(range(4), broken=range(38, 40)),
    "mute": _model((), broken=range(40)),
    "partly": _model((), broken=range(30, 40), measured=False),
}


async def _evaluate(evaluation: EvaluationClient, name: str, **fields: Any) -> None:
    given: dict[str, Any] = {"evaluators": ["accuracy", "nll"], "dataset": Dataset.of(SAMPLES)} | fields
    await evaluation.evaluate(
        evaluation_id=fields.pop("evaluation_id", name),
        model=f"embedded:{name}",
        sampling=SamplingParams(max_tokens=8),
        **{key: value for key, value in given.items() if key != "evaluation_id"},
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def evaluation() -> AsyncIterator[EvaluationClient]:
    """The client of a worker that has evaluated each model."""
    async with run_worker(models=MODELS) as worker:
        for name in MODELS:
            await _evaluate(worker.bridge.evaluation, name)
        yield worker.bridge.evaluation


def policy(*metrics: GateMetric, **fields: Any) -> GatePolicy:
    """A policy of these metrics."""
    return GatePolicy(metrics=metrics, **fields)


async def test_each_verdict_has_its_reason(evaluation: EvaluationClient):
    """The same scores pass, half as many stop, and in between the samples cannot tell."""
    found = {name: await evaluation.gate("base", name, policy(ACCURACY)) for name in ("alike", "doubtful", "worse")}

    assert {name: report.verdict for name, report in found.items()} == {
        "alike": GateVerdict.PASS,
        "doubtful": GateVerdict.INCONCLUSIVE,
        "worse": GateVerdict.BLOCK,
    }
    assert found["alike"].reasons == ()
    (text,) = found["worse"].reasons
    assert text.startswith(
        "accuracy: worse by 0.4 (0.9 in the baseline, 0.5 in the candidate), over 40 samples; 0.02 is allowed. "
        "The drop is larger than allowed (p "
    )
    (metric,) = found["doubtful"].metrics
    assert (metric.evaluator, metric.rests_on, metric.n) == ("accuracy", "paired_scores", COUNT)
    assert metric.metrics.values["drop"] == pytest.approx(3 / 40)
    assert metric.metrics.values["drop_ci_low"] < 0.02 < metric.metrics.values["drop_ci_high"]
    assert metric.metrics.values["needed_n"] > COUNT
    assert "The samples cannot tell: the drop lies between " in metric.reasons[1]


async def test_a_warning_does_not_stop(evaluation: EvaluationClient):
    """A metric of tier WARN is WARN, alone and in all; one of tier BLOCK beside it counts more."""
    alone = await evaluation.gate("base", "surprised", policy(NLL))
    both = await evaluation.gate("base", "surprised", policy(ACCURACY, NLL))
    blocked = await evaluation.gate("base", "worse", policy(NLL, ACCURACY))

    assert (alone.verdict, alone.metrics[0].verdict, alone.metrics[0].tier) == (
        GateVerdict.WARN,
        GateVerdict.WARN,
        GateTier.WARN,
    )
    assert (both.verdict, [each.verdict for each in both.metrics]) == (
        GateVerdict.WARN,
        [GateVerdict.PASS, GateVerdict.WARN],
    )
    assert (blocked.verdict, [each.key for each in blocked.metrics]) == (GateVerdict.BLOCK, ["nll", "accuracy"])


async def test_what_is_no_mean_of_scores_is_compared_by_value(evaluation: EvaluationClient):
    """If answers are missing, `accuracy_strict` is no mean of scores: the reason says so, and min_n counts scores."""
    metric = GateMetric(key="accuracy_strict", max_relative_drop=0.1)
    found = await evaluation.gate("base", "broken", policy(metric))
    few = await evaluation.gate("base", "broken", policy(GateMetric(key="accuracy_strict", max_drop=0, min_n=31)))

    (each,) = found.metrics
    assert found.verdict is GateVerdict.BLOCK
    assert (each.rests_on, each.n) == ("values", 30)
    assert dict(each.metrics.values) == pytest.approx(
        {"baseline": 0.9, "candidate": 0.65, "drop": 0.25, "max_drop": 0.09}
    )
    assert "The values alone are compared, without an interval" in each.reasons[1]
    assert few.verdict is GateVerdict.INCONCLUSIVE
    assert few.metrics[0].reasons[1] == "30 samples are fewer than min_n, which is 31."


async def test_clusters_count_once(evaluation: EvaluationClient):
    """Samples of one text are one observation: the drop that blocks without clusters is doubtful with them."""
    plain = await evaluation.gate("base", "worse", policy(ACCURACY))
    clustered = await evaluation.gate("base", "worse", policy(ACCURACY, cluster_by="text"))

    assert plain.verdict is GateVerdict.BLOCK
    values = clustered.metrics[0].metrics.values
    assert values["n_clusters"] == COUNT / 4
    assert values["drop_ci_high"] - values["drop_ci_low"] > (
        plain.metrics[0].metrics.values["drop_ci_high"] - plain.metrics[0].metrics.values["drop_ci_low"]
    )
    assert "over 40 samples in 10 clusters" in clustered.metrics[0].reasons[0]


async def test_samples_without_a_score_are_counted(evaluation: EvaluationClient):
    """If the policy allows them, they are left out of the pairs, and the reason says how many; too few cannot tell."""
    found = await evaluation.gate("base", "broken", policy(ACCURACY, max_unscored_share=0.5))
    fewer = GateMetric(key="accuracy", max_drop=0.02, min_n=31)
    few = await evaluation.gate("base", "broken", policy(fewer, max_unscored_share=0.5))

    assert (found.verdict, found.metrics[0].n) == (GateVerdict.PASS, 30)
    assert found.metrics[0].reasons[-1] == "10 samples have a score in one of the two alone, and are left out."
    assert few.verdict is GateVerdict.INCONCLUSIVE


async def test_a_candidate_that_loses_samples_does_not_pass(evaluation: EvaluationClient):
    """It blocks if it would with these as wrong; else, and of a metric without right and wrong, nothing is known."""
    blocked = await evaluation.gate("base", "broken", policy(ACCURACY))
    few = await evaluation.gate("base", "lossy", policy(ACCURACY))
    none = await evaluation.gate("base", "mute", policy(ACCURACY))
    unmeasured = await evaluation.gate(
        "base", "partly", policy(GateMetric(key="nll", max_drop=9, direction=Goal.LOWER))
    )
    strict = await evaluation.gate("base", "lossy", policy(GateMetric(key="accuracy_strict", max_drop=0.1)))
    regained = await evaluation.gate("broken", "base", policy(ACCURACY))

    assert [one.verdict for one in (blocked, few, none, unmeasured, strict, regained)] == [
        *(GateVerdict.BLOCK, GateVerdict.INCONCLUSIVE, GateVerdict.BLOCK, GateVerdict.INCONCLUSIVE),
        *(GateVerdict.PASS, GateVerdict.PASS),
    ]
    assert blocked.metrics[0].reasons[-1] == (
        "10 of the 40 samples with a score in the baseline have none in the candidate (10 LOST), more than "
        "max_unscored_share allows, 0.02. If they are wrong, the candidate is worse by 0.25 (0.9 in the baseline, 0.65 "
        "in the candidate), which blocks."
    )
    assert "larger than allowed" not in " ".join(blocked.metrics[0].reasons)  # the samples that are left did not drop
    assert few.metrics[0].reasons[-1].startswith("2 of the 40 samples")
    assert "Nothing is known of them" in unmeasured.metrics[0].reasons[-1]


async def test_a_candidate_that_loses_some_repeats_of_each_sample_does_not_pass():
    """Each result counts, although every sample has a score; a lost one is wrong, next to the others of its sample."""
    seen: set[str] = set()

    def first_alone(call: Call) -> BridgeError | None:
        known = call.text in seen
        seen.add(call.text)
        return BackendError("this one is lost", reason="LOST", retryable=False) if known else None

    found = {"base": _model(range(4)), "flaky": ScriptedModel(answer=lambda prompt: "YES", fault=first_alone)}
    twice = [EvaluatorSpec(kind="accuracy", options={"grader": "exact_match", "samples_per_prompt": 2})]
    async with run_worker(models=found) as worker:
        for name in found:
            await _evaluate(worker.bridge.evaluation, name, evaluators=twice)
        gated = await worker.bridge.evaluation.gate("base", "flaky", policy(ACCURACY))
        allowed = await worker.bridge.evaluation.gate("base", "flaky", policy(ACCURACY, max_unscored_share=0.5))

    assert (gated.verdict, allowed.verdict) == (GateVerdict.BLOCK, GateVerdict.PASS)
    assert gated.metrics[0].reasons[-1] == (
        "40 of the 80 results with a score in the baseline have none in the candidate (40 LOST), more than "
        "max_unscored_share allows, 0.02. If they are wrong, the candidate is worse by 0.4 (0.9 in the baseline, 0.5 "
        "in the candidate), which blocks."
    )


async def test_what_has_no_score_is_counted_by_its_reason(evaluation: EvaluationClient):
    """With the right ones, as fields of the evaluator's result; without right and wrong there are none of these."""
    broken, base = [await evaluation.get_evaluation(name) for name in ("broken", "base")]

    accuracy, nll = broken.results
    assert (accuracy.n_correct, dict(accuracy.unscored_by_reason)) == (26, {"LOST": 10})
    assert (nll.n_correct, dict(nll.unscored_by_reason)) == (None, {})
    assert (base.results[0].n_correct, dict(base.results[0].unscored_by_reason)) == (36, {})


async def test_what_cannot_be_compared_is_inconclusive(evaluation: EvaluationClient):
    """A metric that one of the two lacks, or whose options differ, decides nothing, and says why."""
    await _evaluate(evaluation, "base", evaluation_id="without", evaluators=["nll"])
    other = EvaluatorSpec(kind="accuracy", options={"grader": "contains"})
    await _evaluate(evaluation, "base", evaluation_id="otherwise", evaluators=[other])

    for candidate, why in (
        ("without", "'without' has no metric of this key"),
        ("otherwise", "its options in 'otherwise' are not those in the baseline"),
    ):
        found = await evaluation.gate("base", candidate, policy(ACCURACY))
        assert found.verdict is GateVerdict.INCONCLUSIVE
        assert found.reasons == (f"accuracy: it cannot be compared: {why}.",)


@pytest.mark.parametrize("given", [{"max_drop": 1.7e308}, {"max_relative_drop": 1.7e308}])
@pytest.mark.parametrize("key", ["accuracy", "accuracy_strict"])
async def test_a_drop_beyond_every_score_is_inconclusive(key: str, given: dict[str, Any], evaluation: EvaluationClient):
    """Its square overflows; this is a verdict with its reason, and no internal error."""
    found = await evaluation.gate("base", "broken", policy(GateMetric(key=key, min_n=1, **given)))

    assert found.reasons == (f"{key}: it cannot be compared: the drop that is allowed is beyond 1e+150.",)
    assert found.verdict is GateVerdict.INCONCLUSIVE


async def test_both_clients_decide_alike(evaluation: EvaluationClient):
    """The blocking client has the call too."""
    async with run_worker(models=MODELS) as worker:
        for name in ("base", "worse"):
            await _evaluate(worker.bridge.evaluation, name)

        def ask() -> object:
            with crucible_bridge.connect_sync(worker.address) as bridge:
                return bridge.evaluation.gate("base", "worse", policy(ACCURACY))

        assert await asyncio.to_thread(ask) == await worker.bridge.evaluation.gate("base", "worse", policy(ACCURACY))


@rows(
    ("arguments", "code", "field"),
    [
        (("", "worse", policy(ACCURACY)), Code.INVALID_ARGUMENT, "baseline_id"),
        (("base", "", policy(ACCURACY)), Code.INVALID_ARGUMENT, "candidate_id"),
        (("base", "base", policy(ACCURACY)), Code.INVALID_ARGUMENT, "candidate_id"),
        (("nobody", "worse", policy(ACCURACY)), Code.NOT_FOUND, "baseline_id"),
        (("base", "nobody", policy(ACCURACY)), Code.NOT_FOUND, "candidate_id"),
        (("base", "worse", policy()), Code.INVALID_ARGUMENT, "policy.metrics"),
        (("base", "worse", policy(ACCURACY, ACCURACY)), Code.INVALID_ARGUMENT, "policy.metrics[1].key"),
        (("base", "worse", policy(GateMetric(key="a"))), Code.INVALID_ARGUMENT, "policy.metrics[0].max_drop"),
        (
            ("base", "worse", policy(GateMetric(key="acuracy", max_drop=0))),
            Code.INVALID_ARGUMENT,
            "policy.metrics[0].key",
        ),
        (
            ("base", "worse", policy(GateMetric(key="accuracy", max_drop=float("nan")))),
            Code.INVALID_ARGUMENT,
            "policy.metrics[0].max_drop",
        ),
        (("base", "worse", policy(ACCURACY, cluster_by="page")), Code.INVALID_ARGUMENT, "policy.cluster_by"),
    ],
)
async def test_bad_requests_name_the_field(evaluation: EvaluationClient, arguments, code, field):
    """What a policy may not say is refused with its path."""
    with pytest.raises(BridgeError) as found:
        await evaluation.gate(*arguments)
    assert (found.value.code, found.value.field) == (code, field)


async def test_an_unknown_key_is_told_from_the_known_ones(evaluation: EvaluationClient):
    """A typing error is no verdict: the metrics that there are help to find it."""
    with pytest.raises(BridgeError, match="'acuracy', which neither evaluation has; their metrics are: accuracy, "):
        await evaluation.gate("base", "worse", policy(GateMetric(key="acuracy", max_drop=0)))
    with pytest.raises(BridgeError, match="'page', which no sample has; keys of their metadata: 'level', 'text'"):
        await evaluation.gate("base", "worse", policy(ACCURACY, cluster_by="page"))


async def test_clusters_need_the_record_of_samples():
    """Where results alone are recorded, the metadata is not known, unless another evaluation of the data has it."""
    async with run_worker(models=MODELS) as worker:
        evaluation = worker.bridge.evaluation
        for name in ("base", "alike"):
            await _evaluate(evaluation, name, record=Record.NONE)
        clustered = policy(ACCURACY, cluster_by="text")
        await refused(
            evaluation.gate("base", "alike", clustered),
            Code.FAILED_PRECONDITION,
            "METADATA_NOT_RECORDED",
            "policy.cluster_by",
        )
        call = evaluation.compare_evaluations(["base", "alike"], cluster_by="text")
        await refused(call, Code.FAILED_PRECONDITION, "METADATA_NOT_RECORDED", "cluster_by")

        await _evaluate(evaluation, "worse")
        assert (await evaluation.gate("base", "alike", clustered)).metrics[0].metrics.values["n_clusters"] == 10


async def test_other_data_and_what_runs_are_refused(evaluation: EvaluationClient):
    """There is nothing to pair."""
    await _evaluate(evaluation, "base", evaluation_id="elsewhere", dataset=Dataset.of(SAMPLES[:3]))
    call = evaluation.gate("base", "elsewhere", policy(ACCURACY))
    await refused(call, Code.FAILED_PRECONDITION, "DIFFERENT_DATASETS")
    async with rig(HeldModel()) as r:
        for name in "ab":
            await r.evaluation.start_evaluation(asked(evaluation_id=name))
        await refused(r.evaluation.gate("a", "b", policy(ACCURACY)), Code.FAILED_PRECONDITION, "NOT_ENDED")
        r.model.let_go.set()
        for name in "ab":
            await r.ended(name)


async def test_comparisons_by_clusters_have_their_error(evaluation: EvaluationClient):
    """Each key says so, in every comparison."""
    found = await evaluation.compare_evaluations(["base", "worse"], cluster_by="text")

    accuracy, _ = found.comparisons
    assert accuracy.interval_method == "cluster_t"
    assert accuracy.metrics.values["n_clusters"] == 10
    assert "mcnemar_p" not in accuracy.metrics.values


async def test_p_values_are_corrected_for_the_evaluators_of_one_evaluation(evaluation: EvaluationClient):
    """Of two evaluators the smaller p-value counts twice; another evaluation is another family."""
    found = await evaluation.compare_evaluations(["base", "worse", "surprised"])

    by_evaluation: dict[str, list[tuple[float, float]]] = {}
    for pair in found.comparisons:
        values = pair.metrics.values
        by_evaluation.setdefault(pair.evaluation_id, []).append((values["p"], values["holm_p"]))
    for chances in by_evaluation.values():
        (small, first), (large, second) = sorted(chances)
        assert first == pytest.approx(min(1.0, 2 * small))
        assert second == pytest.approx(max(large, first))


async def test_what_is_tied_with_the_best_is_named(evaluation: EvaluationClient):
    """By the paired scores where the metric is their mean, whatever its value; else only equal values are tied."""
    accuracy = crucible_bridge.types.RankBy(metric="accuracy", goal=Goal.HIGHER)
    strict = crucible_bridge.types.RankBy(metric="accuracy_strict", goal=Goal.HIGHER)
    nothing = crucible_bridge.types.RankBy(metric="f1", goal=Goal.HIGHER)
    names = ["base", "alike", "doubtful", "worse"]
    found = await evaluation.compare_evaluations(names, rank_by=accuracy)
    await _evaluate(evaluation, "broken", evaluation_id="allowed", limits=Limits(max_unscored_share=0.5))
    alone = await evaluation.compare_evaluations(["allowed", "worse"], rank_by=strict)
    none = await evaluation.compare_evaluations(names, rank_by=nothing)

    assert (found.best_evaluation_id, found.tied_by) == ("base", "paired_scores")
    assert found.tied_evaluation_ids[0] == "alike"
    assert "worse" not in found.tied_evaluation_ids
    assert (alone.best_evaluation_id, alone.tied_by, alone.tied_evaluation_ids) == ("allowed", "values", ())
    assert (none.best_evaluation_id, none.tied_by, none.tied_evaluation_ids) == ("", "", ())


async def test_a_metric_may_be_named_without_its_prefix(evaluation: EvaluationClient):
    """As everywhere, if one key alone ends so: by a gate, and where evaluations are ranked."""
    for name in ("base", "worse"):
        await _evaluate(evaluation, name, evaluation_id=f"{name}-prefixed", metric_prefix="sums/")
    pair = ("base-prefixed", "worse-prefixed")

    found = await evaluation.gate(*pair, policy(ACCURACY))
    ranked = await evaluation.compare_evaluations(pair, rank_by=RankBy(metric="nll", goal=Goal.LOWER))

    assert (found.verdict, found.metrics[0].key) == (GateVerdict.BLOCK, "sums/accuracy")
    assert ranked.best_evaluation_id in pair
