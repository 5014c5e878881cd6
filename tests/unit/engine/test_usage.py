"""Usages add up exactly, whatever the order, and what is not known stays unknown."""

from __future__ import annotations

import dataclasses
import random

from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import ModelPrice, ModelUsage, OpenAIModel, OrchestratorModel, Usage
from crucible_worker.backends.metering import Meter
from crucible_worker.engine.usage import MAX_MODELS, Spending, Spent, judged_usage
from crucible_worker.journal.records import SampleKey
from crucible_worker.journal.usage import UsageSum, usage_measurements

COUNTS = ("prompt_tokens", "cached_prompt_tokens", "reasoning_tokens", "output_tokens")
counts = st.none() | st.integers(0, 10**6)
own = st.builds(
    Usage,
    **dict.fromkeys(COUNTS, counts),
    calls=st.integers(1, 9),
    unreported_calls=st.integers(0, 9),
    cost=st.none() | st.floats(0, 1e6),
)
judges = st.lists(st.builds(ModelUsage, model=st.sampled_from("ab"), usage=own), max_size=3).map(tuple)
usages = st.lists(st.none() | st.builds(dataclasses.replace, own, judges=judges), max_size=6)

LAB = OpenAIModel("lab", "m")


@given(usages, st.randoms())
def test_the_order_does_not_matter(several: list[Usage | None], rng: random.Random):
    """Costs included, bit for bit: a resumed evaluation sums its samples in another order."""
    shuffled = rng.sample(several, len(several))
    assert UsageSum.of(several).usage == UsageSum.of(shuffled).usage


@given(usages)
def test_a_number_is_known_where_anything_reports_it(several: list[Usage | None]):
    """It is the sum of those that are known, of the model and of each judge; None where none is."""
    total = UsageSum.of(several).usage
    there = [usage for usage in several if usage is not None]
    if total is None:
        assert not there
        return
    for name in (*COUNTS, "calls", "unreported_calls"):
        known = [number for usage in there if (number := getattr(usage, name)) is not None]
        assert getattr(total, name) == (sum(known) if known else None)
    for judge in total.judges:
        of_it = [each.usage for usage in there for each in usage.judges if each.model == judge.model]
        assert judge.usage == UsageSum.of(of_it).usage


@given(st.lists(st.lists(own, max_size=4), min_size=2, max_size=4))
def test_sums_of_sums_are_the_sum(parts: list[list[Usage]]):
    """Of counts; evaluators add up to their evaluation."""
    whole = UsageSum.of(usage for part in parts for usage in part).usage
    in_parts = UsageSum.of(UsageSum.of(part).usage for part in parts).usage
    assert (whole and dataclasses.replace(whole, cost=None)) == (in_parts and dataclasses.replace(in_parts, cost=None))


def test_what_is_run_again_takes_the_place_of_what_was():
    """By evaluator and in all; what is not run again stands."""
    one, other = Usage(prompt_tokens=1, calls=1), Usage(prompt_tokens=10, calls=1)
    spent = Spent()
    spent.restore({0: one}, {SampleKey(0, 0, 0): one, SampleKey(1, 1, 0): other})
    spent.add([(SampleKey(0, 0, 0), Usage(prompt_tokens=100, calls=1))])
    spent.add([(SampleKey(2, 1, 0), None)])
    assert spent.of(0) == Usage(prompt_tokens=101, calls=2)
    assert spent.of(1) == other
    assert spent.of(2) is None
    assert spent.usage == Usage(prompt_tokens=111, calls=3)
    assert spent.here == Usage(prompt_tokens=100, calls=1)


def test_two_options_may_name_one_judge():
    """It has one sum, and the model that is evaluated may have been asked nothing."""
    meters = {name: Meter() for name in ("a", "b", "c")}
    meters["a"].add(1, 2)
    meters["b"].add(3, 4)
    refs = {"a": LAB, "b": LAB, "c": LAB}
    (judge,) = (judged_usage(Meter(), meters, refs) or Usage()).judges
    assert judge == ModelUsage(model="openai:lab/m", usage=Usage(prompt_tokens=4, output_tokens=6, calls=2))
    assert judged_usage(Meter(), {"c": meters["c"]}, refs) is None


def test_measurements_add_judges_up():
    """What is not known has no measurement."""
    judge = Usage(output_tokens=1, calls=1, cost=0.5)
    usage = Usage(calls=2, judges=(ModelUsage(model="a", usage=judge), ModelUsage(model="b", usage=judge)))
    assert usage_measurements(usage) == {
        "usage.calls": 2.0,
        "usage.unreported_calls": 0.0,
        "usage.judges.output_tokens": 2.0,
        "usage.judges.calls": 2.0,
        "usage.judges.unreported_calls": 0.0,
        "usage.judges.cost": 1.0,
    }
    assert usage_measurements(None) == {}


def test_a_worker_tells_so_many_models_apart():
    """Requests may name any: the rest is one sum without a name."""
    spending = Spending((ModelPrice(pattern="*", prompt=1e6, output=1e6),))
    for index in range(MAX_MODELS + 5):
        charged = spending.charge(Usage(prompt_tokens=1, output_tokens=0, calls=1), OrchestratorModel(f"m{index}"))
        assert charged is not None
        assert charged.cost == 1.0
    found = spending.together([(LAB, Usage(prompt_tokens=1, calls=1))])
    assert len(found) == MAX_MODELS + 1
    assert (found[0].model, found[0].usage.calls) == ("", 6)
    assert {each.usage.calls for each in found[1:]} == {1}
    assert spending.charge(None, LAB) is None
