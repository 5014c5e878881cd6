"""Which samples a report holds: those that people look for first, and never more than it may."""

import json
from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import SampleResult, Verdict
from crucible_worker.reports.plain_json import inline_json, json_bytes
from crucible_worker.reports.writing import ChosenSamples, SampleChoice
from tests.unit.reports.evaluations_made import sampled

VERDICTS = {
    "c": Verdict.CORRECT,
    "w": Verdict.INCORRECT,
    "p": Verdict.PARTIAL,
    "u": Verdict.UNDECIDED,
    "e": Verdict.ERROR,
    "m": Verdict.MEASURED,
}


def _results(verdicts: str) -> Sequence[SampleResult]:
    return [sampled(f"s{n}", verdict=VERDICTS[letter]) for n, letter in enumerate(verdicts)]


def _kept(
    evaluations: Mapping[str, str], max_samples: int, max_bytes: int | None = None
) -> tuple[ChosenSamples, Mapping[str, Sequence[int]]]:
    choice = SampleChoice(max_samples)
    for evaluation_id, verdicts in evaluations.items():
        choice.begin(evaluation_id)
        for result in _results(verdicts):
            choice.add(evaluation_id, result)
    kept = ChosenSamples(choice.chosen(), max_bytes)
    for evaluation_id, verdicts in evaluations.items():
        for result in _results(verdicts):
            kept.add(evaluation_id, result)
    return kept, {one: [sample["n"] for sample in json.loads(kept.block(one))] for one in evaluations}


def test_what_fits_is_all_there() -> None:
    """In the order of the data set, and nothing is said to be left out."""
    kept, found = _kept({"a": "cwu"}, 3)

    assert found == {"a": [0, 1, 2]}
    assert (kept.shown("a"), kept.total("a"), kept.left_out("a")) == (3, 3, None)


def test_what_people_look_for_comes_first() -> None:
    """Without a score, then wrong, then changed, then the first of the rest; back in the order of the data set."""
    one, other = "ccccmuwp", "ccwcmccc"
    places = [_kept({"a": one, "b": other}, bound)[1] for bound in range(7)]

    assert places[1] == {"a": [5], "b": []}
    assert places[2] == {"a": [5], "b": [2]}  # wrong, and the first of them
    assert places[4] == {"a": [5, 6, 7], "b": [2]}
    assert places[5] == {"a": [2, 5, 6, 7], "b": [2]}  # the sample that the other one has wrong
    assert places[6] == {"a": [2, 5, 6, 7], "b": [2, 5]}


def test_what_is_left_out_is_said() -> None:
    """How many of how many there are, and by which bound; of each evaluation."""
    kept, _ = _kept({"a": "cwwc", "b": "w"}, 3)

    assert (kept.left_out("a") or "").startswith("2 of 4 samples are in this file: first those without a score")
    assert (kept.left_out("a") or "").endswith("holds at most 3 samples.")
    assert kept.left_out("b") is None


def test_bytes_bound_samples_too() -> None:
    """Those that were chosen last go first, until the others fit; each one more byte short is one sample less."""
    whole, _ = _kept({"a": "cwc"}, 3)
    size = sum(json_bytes(inline_json(sample)) + 1 for sample in json.loads(whole.block("a")))
    kept, found = _kept({"a": "cwc"}, 3, size)
    less, fewer = _kept({"a": "cwc"}, 3, size - 1)

    assert (found, kept.left_out("a")) == ({"a": [0, 1, 2]}, None)
    assert fewer == {"a": [0, 1]}
    assert (less.left_out("a") or "").endswith(f"holds at most {size - 1:,} bytes of samples.")
    assert _kept({"a": "cwc"}, 3, 0)[1] == {"a": []}


def test_a_sample_that_came_meanwhile_is_not_chosen() -> None:
    """Of an evaluation that runs, the second reading has more results than the first one."""
    choice = SampleChoice(10)
    choice.add("a", sampled("s0"))
    kept = ChosenSamples(choice.chosen())
    kept.add("a", sampled("new"))
    kept.add("a", sampled("s0"))

    assert [(one["sample_id"], one["n"]) for one in json.loads(kept.block("a"))] == [("s0", 1)]


def test_an_evaluation_without_results_has_an_empty_block() -> None:
    """It is there all the same."""
    kept, found = _kept({"a": ""}, 5)

    assert (found, kept.left_out("a")) == ({"a": []}, None)


@given(st.lists(st.text("cwpuem", max_size=8), min_size=1, max_size=3), st.integers(0, 20))
def test_the_bound_is_used_and_kept(verdicts: list[str], max_samples: int) -> None:
    """As many as there may be, or all; none without a score is missing where a right one is there."""
    evaluations = {f"e{n}": each for n, each in enumerate(verdicts)}
    _, found = _kept(evaluations, max_samples)
    held = {(one, n) for one, places in found.items() for n in places}
    unscored = {(one, n) for one, each in evaluations.items() for n, letter in enumerate(each) if letter in "ue"}

    assert len(held) == min(max_samples, sum(map(len, verdicts)))
    assert unscored <= held or held <= unscored
