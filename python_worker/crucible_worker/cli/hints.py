"""What an evaluation says beside its numbers: causes of a number that are not the model, and each error once."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence

from crucible_bridge.types import Evaluation, Problem
from crucible_worker.evaluations import Evaluations
from crucible_worker.reports.as_json import asked_text

__all__ = ["hints", "messages_of", "unseen_choices", "without_repeats"]

CHOICES = "multiple_choice"
"""The grader that compares answers with choices."""
FEW = 3
"""With fewer scores, none of them right is nothing to wonder at."""
SHORT = 40
"""Characters of a message that may be said again."""


async def unseen_choices(evaluations: Evaluations, evaluation: Evaluation) -> Sequence[str]:
    """The evaluators that compare answers with choices, of whose first sample neither text nor template has these."""
    prompt = evaluation.request.dataset.prompt
    if prompt is not None and "choices" in prompt.template:
        return ()
    found: list[str] = []
    for spec in evaluation.request.evaluators:
        if spec.options.get("grader") != CHOICES:
            continue
        samples, _ = await evaluations.samples(evaluation.evaluation_id, evaluator=spec.label, page_size=1)
        choices = samples[0].sample.choices if samples and samples[0].sample is not None else ()
        if any(choice not in asked_text(samples[0]) for choice in choices):
            found.append(spec.label)
    return found


def hints(evaluation: Evaluation, unseen: Sequence[str]) -> Iterator[str]:
    """Lines for people.

    Args:
        evaluation: which has ended.
        unseen: see `unseen_choices`.
    """
    for label in unseen:
        yield (
            f"warning: {label}: the model was not shown the choices, with which the grader {CHOICES} compares its "
            "answers: put {choices} into the template (--template '{input}\\n{choices}')"
        )
    for result in evaluation.results:
        if result.n_correct == 0 and result.n_scored >= FEW:
            samples = f"crucible-worker samples {shlex.quote(evaluation.evaluation_id)} --verdict incorrect"
            yield (
                f"{result.evaluator.label}: no answer is right: {samples} shows what was compared; --grader names "
                "another comparison (docs/zero_accuracy.md)"
            )


def messages_of(problems: Iterable[Problem | None]) -> Sequence[str]:
    """The messages of problems, the longest first: one may contain another."""
    messages = {each.message for each in problems if each is not None and len(each.message) > SHORT}
    return sorted(messages, key=len, reverse=True)


def without_repeats(line: str, said: Sequence[str]) -> str:
    """A line without the messages that lines above have whole."""
    for message in said:
        line = line.replace(message, "(see above)")
    return line
