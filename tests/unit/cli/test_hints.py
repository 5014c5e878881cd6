"""What `evaluate` says beside numbers."""

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

from crucible_bridge.types import EvaluatorResult, EvaluatorSpec, Metrics, Problem, Prompt, Sample
from crucible_worker.cli.hints import hints, messages_of, unseen_choices, without_repeats
from crucible_worker.evaluations import Evaluations
from tests.unit.reports.evaluations_made import ended, sampled

CHOSEN = EvaluatorSpec(kind="accuracy", options={"grader": "multiple_choice"})


def made(correct: int | None, scored: int = 20, template: str = "") -> Any:
    """An evaluation with so many right answers."""
    one = ended("night 1", {"accuracy": 0.0})
    result = EvaluatorResult(
        evaluator=CHOSEN, metrics=Metrics({"accuracy": 0.0}), n=20, n_scored=scored, n_correct=correct
    )
    dataset = dataclasses.replace(one.request.dataset, prompt=Prompt(template=template) if template else None)
    request = dataclasses.replace(one.request, evaluators=(CHOSEN,), dataset=dataset)
    return dataclasses.replace(one, results=(result,), request=request)


def test_an_accuracy_of_zero_says_where_to_look() -> None:
    """Not with one right answer, few scores, or where nothing is right or wrong."""
    (line,) = hints(made(0), ())
    assert "crucible-worker samples 'night 1' --verdict incorrect" in line
    assert "docs/zero_accuracy.md" in line
    for other in (made(1), made(0, scored=2), made(None)):
        assert list(hints(other, ())) == []
    assert "not shown the choices" in next(iter(hints(made(1), ("accuracy",))))


async def test_choices_that_no_prompt_shows_are_found() -> None:
    """A template with them, and a question that lists them, are no case."""

    class Read:
        """Evaluations with one sample."""

        def __init__(self, asked: str) -> None:
            self.asked = asked

        async def samples(self, evaluation_id: str, **options: Any) -> tuple[Sequence[Any], str]:
            sample = Sample(id="s", input=self.asked, targets=("A",), choices=("Rome", "Oslo"))
            return [dataclasses.replace(sampled(), sample=sample)], ""

    bare = cast(Evaluations, Read("Capital of Italy?"))
    assert await unseen_choices(bare, made(0)) == ["accuracy"]
    assert await unseen_choices(bare, made(0, template="{input} {choices}")) == ()
    assert await unseen_choices(cast(Evaluations, Read("Rome or Oslo?")), made(0)) == []


def test_a_message_is_said_once() -> None:
    """Also within a longer message; a short one may be said again."""
    first, longer = "x" * 50, f"5 of 5 samples failed; the first: {'x' * 50}"
    problems = [Problem(reason="A", message=text) for text in (first, longer, "short")]
    messages = messages_of([*problems, None])
    assert messages == [longer, first]
    assert without_repeats(f"accuracy: unscored: {first}", messages) == "accuracy: unscored: (see above)"
    assert without_repeats("short", messages) == "short"
