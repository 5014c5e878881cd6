"""Samples as data of pages: rows, whole samples, answers, and where the graded part stands."""

import json
import math
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Problem,
    SampleResult,
    Trajectory,
    TrajectoryGroup,
    Transition,
    Turn,
    Verdict,
)
from crucible_worker.reports.samples import (
    MAX_ROW_CHARS,
    answers_as_data,
    extracted_span,
    reasoning_span,
    row_as_data,
    searched_text,
    whole_sample_as_data,
)
from crucible_worker.util.reasoning import part_thinking, reasoning_spans
from tests.tables import rows
from tests.unit.reports.evaluations_made import ended, sampled

PIECES = st.sampled_from(["<think>", "</think>", "</thinking>", "a", "46", " ", "\n"])


@rows(
    ("output", "extracted", "marked"),
    [
        ("46", "46", "[46]"),
        ("46 or 46.", "46", "46 or [46]."),
        ("<think>46</think>46", "46", "<think>46</think>[46]"),
        ("46<think>46</think>", "46", "[46]<think>46</think>"),
        ("46</think> no", "46", None),
        ("<think>46", "46", None),
        ("46", "", None),
        ("½", "0.5", None),
        ("aaa", "aa", "a[aa]"),
    ],
)
def test_the_extracted_part_is_where_it_was_said_last(output: str, extracted: str, marked: str | None) -> None:
    """The last place outside of the reasoning; none where the grader wrote it in another way."""
    span = extracted_span(output, extracted)
    found = None if span is None else f"{output[: span[0]]}[{output[slice(*span)]}]{output[span[1] :]}"

    assert found == marked


@rows(
    ("output", "reasoning"),
    [
        ("<think>hm</think>46", "<think>hm</think>"),
        ("It is <think>hm</think>46", "<think>hm</think>"),
        ("hm</think> 46", "hm</think>"),
        ("<think>a</think>\n<think>b</think>46", "<think>a</think>\n<think>b</think>"),
        ("<think>a</think>4<think>b</think>6", "<think>a</think>"),
        ("<think>a", "<think>a"),
        ("46", None),
        ("46 <think>a", "<think>a"),
    ],
)
def test_the_reasoning_is_what_graders_do_not_see(output: str, reasoning: str | None) -> None:
    """With its tags; parts that white space separates are one."""
    span = reasoning_span(output)

    assert (None if span is None else output[slice(*span)]) == reasoning


@given(st.lists(PIECES, max_size=12).map("".join))
def test_spans_agree_with_what_is_graded(output: str) -> None:
    """What lies outside of the spans is the answer, as graders get it."""
    spans = reasoning_spans(output)
    ends, starts = [0, *(end for _, end in spans)], [*(start for start, _ in spans), len(output)]
    outside = " ".join(output[end:start] for end, start in zip(ends, starts, strict=True))

    assert part_thinking(output)[1] == (outside.strip() if spans else output)


def test_a_long_answer_of_one_character_is_searched_in_one_pass() -> None:
    """A search that begins again at each place would take minutes."""
    assert extracted_span("a" * 3_000_000, "b" + "a" * 999) is None


def test_a_row_is_short() -> None:
    """What a table shows, without the reasoning; texts are shortened."""
    found = row_as_data(7, sampled(output=f"<think>hm</think> {'x' * 1000}", text="y" * MAX_ROW_CHARS))

    assert (found["n"], found["id"], found["verdict"], found["score"], found["target"]) == (
        7,
        "12+34",
        "correct",
        1,
        "46",
    )
    assert (found["tokens"], found["seconds"], found["stop"], found["reason"]) == (2, 0.5, "stop", "")
    assert found["output"] == "x" * (MAX_ROW_CHARS - 1) + "…"
    assert found["input"] == "y" * MAX_ROW_CHARS


def test_a_row_without_a_record_has_what_there_is() -> None:
    """Of a result of an earlier release, or without records, the question is empty."""
    problem = Problem(reason="SAMPLE_TIMEOUT", message="slow")
    found = row_as_data(0, sampled(sample=None, verdict=Verdict.ERROR, score=None, duration_ns=0, problem=problem))

    assert (found["input"], found["target"], found["score"], found["seconds"]) == ("", "", None, None)
    assert found["reason"] == "SAMPLE_TIMEOUT"


def _transition(reward: float, tokens: list[int] | None = None) -> Transition:
    action = None if tokens is None else np.array(tokens, np.int32)
    logprobs = None if tokens is None else np.array([-0.5 * token for token in tokens], np.float32)
    return Transition(
        observation_tokens=5, action_tokens=len(tokens or ()), reward=reward, action=action, action_logprobs=logprobs
    )


def _rolled(*trajectories: Trajectory, **changes: Any) -> SampleResult:
    return sampled(group=TrajectoryGroup(trajectories=trajectories), **changes)


def test_a_whole_sample_has_its_rollouts() -> None:
    """Turn by turn, with what the model that is evaluated said in each."""
    turns = (
        Turn(role="user", text="guess"),
        Turn(role="assistant", text="first"),
        Turn(role="assistant", text="a judge's", model="judge"),
        Turn(role="assistant", text="of the other", rollout=1),
        Turn(role="assistant", text="second"),
    )
    one = Trajectory(transitions=(_transition(0.0), _transition(1.0)), final_reward=0.5, metrics={"solved": 1.0})
    found = whole_sample_as_data(3, _rolled(one, Trajectory(transitions=(_transition(0.25),)), turns=turns))

    assert [rollout["reward"] for rollout in found["rollouts"]] == [1.5, 0.25]
    assert (found["rollouts"][0]["final_reward"], found["rollouts"][0]["metrics"]) == (0.5, {"solved": 1.0})
    assert [turn["text"] for turn in found["rollouts"][0]["turns"]] == ["first", "second"]
    assert found["rollouts"][1]["turns"] == [
        {
            "observation_tokens": 5,
            "action_tokens": 0,
            "reward": 0.25,
            "stop": "",
            "metrics": {},
            "logprobs": None,
            "text": "of the other",
        }
    ]
    assert found["logprobs"] is None


def test_log_probabilities_are_those_of_the_one_rollout() -> None:
    """Token by token over its turns, under the ids, as no text of a token is recorded; of several rollouts by turn."""
    one = Trajectory(transitions=(_transition(0.0, [1, 2]), _transition(0.0), _transition(1.0, [3])))
    found = whole_sample_as_data(0, _rolled(one))
    several = whole_sample_as_data(0, _rolled(one, one))

    assert found["logprobs"] == [["1", -0.5], ["2", -1.0], ["3", -1.5]]
    assert several["logprobs"] is None
    assert several["rollouts"][1]["turns"][0]["logprobs"] == [["1", -0.5], ["2", -1.0]]


def test_a_whole_sample_is_everything_that_is_recorded() -> None:
    """As JSON for programs has it, with its position and the places in its output."""
    found = whole_sample_as_data(3, sampled(output="<think>46</think>so 46", extracted="46"))

    assert (found["n"], found["sample_id"], found["targets"], found["seconds"]) == (3, "12+34", ["46"], 0.5)
    assert (found["reasoning_span"], found["extracted_span"]) == ((0, 17), (20, 22))
    assert found["rollouts"] == []
    assert found["attempts"] == sampled().attempts


def test_whole_samples_are_strict_json() -> None:
    """Halves of surrogate pairs and numbers that are not finite are gone, and places stay where they are."""
    one = Trajectory(transitions=(_transition(math.inf, [1]),), metrics={"\ud800": math.nan})
    found = whole_sample_as_data(0, _rolled(one, output="\ud800 46", score=math.nan))
    written = json.dumps([found, row_as_data(0, sampled("\ud800"))], ensure_ascii=False, allow_nan=False)

    assert written.encode()
    assert found["output"][slice(*found["extracted_span"])] == "46"


def test_answers_stand_next_to_each_other() -> None:
    """One sample over evaluations: its question once, an answer for each result of the evaluator."""
    first, second = ended("a", {}, step=1), ended("b", {}, step=2)
    found = answers_as_data(
        "right",
        "12+34",
        [
            (first, [sampled(sample=None, output="45", extracted="45", verdict=Verdict.INCORRECT, score=0.0)]),
            (second, [sampled(), sampled(evaluator="loss"), sampled("1+1")]),
        ],
    )

    assert (found["id"], found["input"], found["targets"]) == ("12+34", "12+34=", ["46"])
    assert [(one["evaluation"], one["step"], one["output"], one["score"]) for one in found["answers"]] == [
        ("a", 1, "45", 0.0),
        ("b", 2, "46", 1.0),
    ]


def test_a_sample_that_nothing_answered_is_empty() -> None:
    """Nothing is known of it, not even what was asked."""
    assert answers_as_data("right", "1+1", []) == {"id": "1+1", "input": None, "targets": None, "answers": []}


def test_a_search_looks_through_what_people_see() -> None:
    """Id, question, answer, extracted part and targets; a conversation by its messages."""
    asked = Conversation((ChatMessage(role="user", content="How many?"),))
    text = searched_text(sampled(text=asked, output="so 46", extracted="forty-six"))  # pyright: ignore[reportArgumentType]

    assert text.split("\n") == ["12+34", "user: How many?", "so 46", "forty-six", "46"]
