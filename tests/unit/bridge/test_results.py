"""Results in the shape of crucible_datasets' EvaluationResult."""

from __future__ import annotations

import json

import pytest

from crucible_bridge.errors import InvalidField
from crucible_bridge.results import evaluation_result
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Dataset,
    EmbeddedModel,
    EvaluateRequest,
    Evaluation,
    EvaluationState,
    EvaluatorResult,
    EvaluatorSpec,
    Metrics,
    Problem,
    Sample,
    SampleResult,
    Verdict,
)

KEYS = (
    "dataset_name dataset_version model total_items correct_items accuracy metrics item_results timestamp duration_ms"
)
"""Of the struct, in its order."""
ITEM_KEYS = "id predicted expected correct score metrics metadata"
ACCURACY = EvaluatorSpec(kind="accuracy")


def evaluation(*specs: EvaluatorSpec) -> Evaluation:
    """One that has ended."""
    return Evaluation(
        evaluation_id="e",
        state=EvaluationState.COMPLETED,
        request=EvaluateRequest(
            model=EmbeddedModel("arithmetic@320"), evaluators=specs, dataset=Dataset.of("builtin:arithmetic")
        ),
        results=tuple(
            EvaluatorResult(evaluator=spec, metrics=Metrics({f"{spec.label}/accuracy": 0.5})) for spec in specs
        ),
        dataset_fingerprint="d",
        ended_unix_ns=1_700_000_000_000_000_000,
        duration_ns=2_500_000_000,
    )


def result(sample_id: str, verdict: Verdict, **fields) -> SampleResult:
    """Of one sample."""
    defaults = {"evaluator": "accuracy", "score": float(verdict is Verdict.CORRECT), "output": "it is 4"}
    return SampleResult(**{**defaults, "sample_id": sample_id, "verdict": verdict, **fields})


def test_a_conversation_without_targets_expects_the_answer_that_it_ends_with():
    """The last message is what was expected, if the assistant said it behind another message."""
    question, answer = ChatMessage("user", "2+2"), ChatMessage("assistant", "4")
    for messages, expected in (((question, answer), "4"), ((question,), None), ((answer,), None), ((), None)):
        sample = Sample(id="a", input=Conversation(messages))
        told = evaluation_result(evaluation(ACCURACY), [result("a", Verdict.CORRECT, sample=sample)])
        assert told["item_results"][0]["expected"] == expected, messages


def test_each_run_of_a_sample_is_an_item():
    """What was expected and predicted stands beside the verdict; an item without one is not counted as wrong."""
    results = [
        result(
            "a",
            Verdict.CORRECT,
            extracted="4",
            sample=Sample(id="a", input="2+2", targets=("4",), metadata={"level": "1"}),
        ),
        result("b", Verdict.INCORRECT, sample=Sample(id="b", input="x", targets=("1", "2"))),
        result("c", Verdict.UNDECIDED, score=None, problem=Problem(reason="UNDECIDED", message="who knows")),
        result("a", Verdict.MEASURED, evaluator="nll"),
    ]
    told = evaluation_result(evaluation(ACCURACY), results)

    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert " ".join(told) == KEYS
    assert (told["dataset_name"], told["dataset_version"]) == ("arithmetic", "d")
    assert (told["model"], told["duration_ms"]) == ("embedded:arithmetic@320", 2500)
    assert (told["total_items"], told["correct_items"], told["accuracy"]) == (3, 1, 0.5)
    assert (told["metrics"], told["timestamp"]) == ({"accuracy/accuracy": 0.5}, "2023-11-14T22:13:20Z")
    right, wrong, undecided = told["item_results"]
    assert " ".join(right) == ITEM_KEYS
    assert (right["predicted"], right["expected"], right["correct"], right["score"]) == ("4", "4", True, 1.0)
    assert right["metadata"] == {"level": "1", "verdict": "correct", "repeat": 0}
    assert (wrong["predicted"], wrong["expected"], wrong["correct"]) == ("it is 4", ["1", "2"], False)
    assert (undecided["expected"], undecided["score"], undecided["correct"]) == (None, None, False)
    assert undecided["metadata"]["problem"] == "UNDECIDED: who knows"


def test_of_several_evaluators_one_has_to_be_named():
    """The error names the argument and the evaluators; nothing scored has no accuracy."""
    both = evaluation(ACCURACY, EvaluatorSpec(kind="accuracy", name="strict"))
    for given in (None, "another"):
        with pytest.raises(InvalidField, match="accuracy, strict") as caught:
            evaluation_result(both, [], evaluator=given)
        assert caught.value.field == "evaluator"
    told = evaluation_result(both, [], evaluator="strict", dataset_name="mine")
    assert (told["dataset_name"], told["accuracy"], told["item_results"]) == ("mine", None, [])
