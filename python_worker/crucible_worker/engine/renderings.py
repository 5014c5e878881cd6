"""How the models of an evaluation are prompted: resolved once they are loaded, recorded, fixed, and shown to callers.

An evaluation that an earlier release began without such a record resumes with the rendering of that release: see
`SERVED`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import numpy as np

from crucible_bridge.errors import BackendError, BridgeError, NotFound, clipped
from crucible_bridge.problems import problem_of
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Conversation,
    Datum,
    EvaluateRequest,
    EvaluatorRendering,
    EvaluatorSpec,
    ModelInput,
    Problem,
    RenderedPrompt,
    RenderSampleResponse,
    Sample,
)
from crucible_worker.backends.base import ANSWERING, Capability, Model, Tokenizer, WrappedModel, too_long
from crucible_worker.datasets.loading import MalformedSample
from crucible_worker.engine.auxiliary_models import Unloaded
from crucible_worker.engine.preparation import Plan, Preparer
from crucible_worker.evaluators.base import (
    Evaluator,
    HoldsProcesses,
    SampleContext,
    as_asked,
    measures_likelihoods,
    stops_itself,
    wants_answers,
)
from crucible_worker.inference.retries import RetryingModel, RetryPolicy, sample_seed
from crucible_worker.journal import Transaction
from crucible_worker.journal.queries import find_rendering
from crucible_worker.journal.records import Joint, renderings_to_record
from crucible_worker.rendering import SERVED
from crucible_worker.rendering.answers import resolved
from crucible_worker.rendering.choices import ChoiceForm, UnnamedChoice, named_choice
from crucible_worker.rendering.prompts import AUTO, CHAT_TEMPLATE, RAW, before_next, plain_text

__all__ = ["JOINT_CHARS", "first_joint", "of_auto", "pinned", "render_sample", "resolve"]


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


# Shows the prompt of one sample: each evaluator runs on a model that records its first question and answers none.
#
# The evaluator itself makes the prompt, by the same code, so that what is shown is what will be sent.


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """The first question."""

    asked: str | Conversation | ModelInput
    """Text, messages, or tokens."""
    stop: tuple[str, ...] = ()
    """Stop strings of the answer."""
    answer: int = 0
    """Tokens of the context that the answer needs; -1 if the last token is only measured and need not be read."""


class _QuestionRecorded(BackendError):
    """The question is recorded; there is no answer."""

    def __init__(self) -> None:
        super().__init__("no question is sent", reason=Reason.BACKEND_FAILED, retryable=False)


class _PromptRecorder(WrappedModel):
    """A model that records its first question, and answers none."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.question: _Question | None = None
        """The first one."""

    async def _through(
        self,
        question: Capability,
        method: Callable[..., Awaitable[Any]],
        arguments: tuple[Any, ...],
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        asked, stop, answer = arguments[0], (), 0 if question is Capability.ARGMAX else -1
        if question in ANSWERING:
            stop, answer = arguments[1].stop, 1
        elif question in (Capability.FORWARD, Capability.PARTS):
            # The measured text after the input is a part of what the model reads.
            targets = np.asarray(asked[0].loss_fn_inputs["target_tokens"])
            asked = ModelInput.of([*asked[0].model_input.tokens().tolist(), *targets[-1:].tolist()])
        self.question = self.question or _Question(asked=asked, stop=stop, answer=answer)
        raise _QuestionRecorded


async def render_sample(preparer: Preparer, request: EvaluateRequest, sample_id: str) -> RenderSampleResponse:
    """Show the prompt that the model would get for a sample, from each evaluator.

    Args:
        preparer: finds data set and model.
        request: what would be evaluated.
        sample_id: which sample; the first one if empty.

    Raises:
        NotFound: there is no such sample (UNKNOWN_SAMPLE).
        BridgeError: the request could not be run.
    """
    plan = await preparer.prepare(request, await preparer.evaluators(request))
    sample = _sample_of(plan, sample_id)
    if Capability.SAMPLE_TEXT not in plan.model.capabilities:  # otherwise no server has to be reachable
        await plan.model.load()
    prompts = [await _prompt(plan, index, sample, rendering) for index, rendering in enumerate(resolve(plan))]
    return RenderSampleResponse(sample_id=sample.id, prompts=tuple(prompts))


def _sample_of(plan: Plan, sample_id: str) -> Sample | MalformedSample:
    if not sample_id:
        return plan.samples[0]
    for sample in plan.samples:
        if sample.id == sample_id:
            return sample
    raise NotFound(f"is {clipped(sample_id)}, not in the data set", reason=Reason.UNKNOWN_SAMPLE, field="sample_id")


async def _prompt(
    plan: Plan, index: int, sample: Sample | MalformedSample, rendering: EvaluatorRendering
) -> RenderedPrompt:
    _, evaluator = plan.evaluators[index]
    shown = RenderedPrompt(evaluator=rendering.evaluator, renderer=rendering.renderer)
    problem = plan.refused.get(index) or (sample.problem if isinstance(sample, MalformedSample) else None)
    if problem is None and stops_itself(evaluator):
        problem = Problem(reason=Reason.UNIMPLEMENTED, message="its tasks make their own prompts")
    if problem is not None or isinstance(sample, MalformedSample):
        return dataclasses.replace(shown, problem=problem)
    found = await _question(plan, index, sample)
    if isinstance(found, Problem):
        return dataclasses.replace(shown, problem=found)
    match found.asked:
        case str():
            return dataclasses.replace(shown, text=found.asked, stop=found.stop)
        case Conversation():
            return dataclasses.replace(
                shown, conversation=Conversation(found.asked.messages, found.asked.tools), stop=found.stop
            )
        case prompt:
            tokens = tuple(prompt.tokens().tolist())
            text = await _text(plan.model.tokenizer, tokens)
            long = too_long(len(tokens), plan.model.context_length, found.answer)
            problem = None if long is None else Problem(reason=Reason.PROMPT_TOO_LONG, message=f"the prompt {long}")
            return dataclasses.replace(shown, tokens=tokens, text=text, stop=found.stop, problem=problem)


async def _question(plan: Plan, index: int, sample: Sample) -> _Question | Problem:
    _, evaluator = plan.evaluators[index]
    gate, likewise = RetryPolicy(1), plan.reading if measures_likelihoods(evaluator) else None
    asked = _PromptRecorder(RetryingModel(plan.model, gate, reading=plan.reading))
    auxiliary_models: Mapping[str, Model] = {
        name: _PromptRecorder(RetryingModel(model, gate, reading=likewise))
        for name, model in plan.auxiliary_models.get(index, {}).items()
    }
    context = SampleContext(model=asked, repeat=0, seed=sample_seed(0, sample.id, 0), auxiliary_models=auxiliary_models)
    if wants_answers(evaluator):
        sample = as_asked(sample)
    try:
        await _run(evaluator, sample if plan.prompter is None else await plan.prompter.apply(sample), context)
    except BridgeError as error:
        if asked.question is None:
            return problem_of(error)
    return asked.question or Problem(reason=Reason.UNIMPLEMENTED, message="it sends the model nothing for this sample")


async def _run(evaluator: Evaluator, sample: Sample, context: SampleContext) -> None:
    if not isinstance(evaluator, HoldsProcesses):
        await evaluator.run(sample, context)
        return
    try:
        await evaluator.get_ready()
        await evaluator.run(sample, context)
    finally:
        evaluator.close()


async def _text(tokenizer: Tokenizer | None, tokens: Sequence[int]) -> str:
    """The text of tokens; empty if it is unknown."""
    return "" if tokenizer is None else await tokenizer.show(tokens)
