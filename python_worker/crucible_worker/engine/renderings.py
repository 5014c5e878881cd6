"""How the models of an evaluation are prompted: resolved once they are loaded, recorded, and fixed for later attempts.

An evaluation that an earlier release began without such a record resumes with the rendering of that release: see
`SERVED`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from crucible_bridge.types import Datum, EvaluatorRendering, EvaluatorSpec
from crucible_worker.backends.base import Model
from crucible_worker.datasets.loading import MalformedSample
from crucible_worker.engine.auxiliary_models import Unloaded
from crucible_worker.engine.preparation import Plan
from crucible_worker.evaluators.base import Evaluator, as_asked, measures_likelihoods, stops_itself, wants_answers
from crucible_worker.journal import Transaction
from crucible_worker.journal.queries import find_rendering
from crucible_worker.journal.records import Joint, renderings_to_record
from crucible_worker.rendering import SERVED
from crucible_worker.rendering.answers import resolved
from crucible_worker.rendering.choices import ChoiceForm, UnnamedChoice, named_choice
from crucible_worker.rendering.prompts import AUTO, CHAT_TEMPLATE, RAW, before_next, plain_text

__all__ = ["JOINT_CHARS", "first_joint", "of_auto", "pinned", "resolve"]

JOINT_CHARS = 40
"""Characters of a prompt's end, and of a target, that are recorded of the first sample."""

_JUDGE = "judge"


def resolve(plan: Plan) -> tuple[EvaluatorRendering, ...]:
    """How each evaluator of a plan renders; the models must be loaded."""
    return tuple(
        EvaluatorRendering(
            evaluator=spec.label,
            renderer=_of_model(plan.model, spec, evaluator),
            others={
                name: _of_other(model, name, spec, evaluator)
                for name, model in plan.auxiliary_models.get(index, {}).items()
                if not isinstance(model, Unloaded)
            },
        )
        for index, (spec, evaluator) in enumerate(plan.evaluators)
    )


async def first_joint(plan: Plan) -> Joint | None:
    """How the first sample's prompt and target meet, for the first evaluator that gives the model plain text.

    A target that is only generated is shown as a text that continues the prompt has it. None if every prompt is made by
    a template, or the sample has no target, or is malformed. The model must be loaded.

    Raises:
        BridgeError: the prompt cannot be made.
    """
    sample = plan.samples[0]
    if isinstance(sample, MalformedSample) or isinstance(sample.input, Datum):
        return None
    tokenizer = plan.model.tokenizer
    delimiter = plan.reading.target_delimiter
    if delimiter is None and tokenizer is not None:
        delimiter = tokenizer.target_delimiter
    for index, rendering in enumerate(resolve(plan)):
        _, evaluator = plan.evaluators[index]
        form = getattr(evaluator, "form", None)
        listed = form == ChoiceForm.LETTERS  # they are part of the prompt
        # An answer to "auto" is made by whoever has the template; what is measured with "auto" has none.
        plain = rendering.renderer == RAW or (rendering.renderer == AUTO and measures_likelihoods(evaluator))
        if index in plan.refused or stops_itself(evaluator) or listed or not plain:
            continue
        asked = as_asked(sample) if wants_answers(evaluator) else sample
        if not asked.targets:
            continue
        applied = asked if plan.prompter is None else await plan.prompter.apply(asked)
        assert not isinstance(applied.input, Datum)
        if (prompt := plain_text(applied.input, delimiter)) is None:
            continue
        target = asked.targets[0]
        if form == ChoiceForm.TEXT and asked.choices:
            with contextlib.suppress(UnnamedChoice):  # it is the error of the sample
                target = asked.choices[named_choice(target, asked.choices, asked.choice_labels)]
        own = getattr(evaluator, "delimiter", None)
        target = f"{before_next(prompt, target, own if isinstance(own, str) else delimiter)}{target}"
        return Joint(
            prompt=prompt if len(prompt) <= JOINT_CHARS else f"...{prompt[-JOINT_CHARS:]}",
            target=target if len(target) <= JOINT_CHARS else f"{target[:JOINT_CHARS]}...",
        )
    return None


def pinned(
    transaction: Transaction, number: int, plan: Plan, joint: Joint | None = None
) -> Sequence[EvaluatorRendering]:
    """The renderings for an attempt: those that the first attempt recorded, or records now with the first joint."""
    kept = find_rendering(transaction, number)
    if kept is None:
        return [_served(plan, index, spec) for index, (spec, _) in enumerate(plan.evaluators)]
    if kept.evaluators:
        return kept.evaluators
    found = resolve(plan)
    record = renderings_to_record(dataclasses.replace(kept, evaluators=found, joint=joint))
    transaction.execute("UPDATE evaluation_renderings SET record = ? WHERE number = ?", (record, number))
    return found


def of_auto(spec: EvaluatorSpec, rendering: EvaluatorRendering) -> str | None:
    """What `auto` resolves to with the model of an evaluator; None if its option is not `auto`."""
    return rendering.renderer if _option(spec, "renderer") == AUTO else None


def _served(plan: Plan, index: int, spec: EvaluatorSpec) -> EvaluatorRendering:
    others = dict.fromkeys(plan.auxiliary_models.get(index, {}), SERVED)
    return EvaluatorRendering(evaluator=spec.label, renderer=SERVED, others=others)


def _of_model(model: Model, spec: EvaluatorSpec, evaluator: Evaluator) -> str:
    renderer = _option(spec, "renderer")
    if renderer != AUTO or not measures_likelihoods(evaluator):
        return resolved(model, renderer)
    return CHAT_TEMPLATE if model.tokenizer is not None and model.tokenizer.has_chat_template else AUTO


def _of_other(model: Model, name: str, spec: EvaluatorSpec, evaluator: Evaluator) -> str:
    """How a further model is prompted: a model that measures as the evaluated one does is rendered likewise."""
    if measures_likelihoods(evaluator):
        return _of_model(model, spec, evaluator)
    return resolved(model, _option(spec, f"{name.removesuffix(_JUDGE)}judge_renderer"))


def _option(spec: EvaluatorSpec, path: str) -> str:
    """An option that names a renderer, also "grader_options.judge_renderer"; `auto` if it is not given."""
    found: Any = spec.options
    for step in path.split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found if isinstance(found, str) else AUTO
