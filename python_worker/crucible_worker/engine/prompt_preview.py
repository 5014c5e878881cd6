"""Shows the prompt of one sample: each evaluator runs on a model that records its first question and answers none.

The evaluator itself makes the prompt, by the same code, so that what is shown is what will be sent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import numpy as np

from crucible_bridge.errors import BackendError, BridgeError, NotFound
from crucible_bridge.problems import problem_of
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Conversation,
    EvaluateRequest,
    EvaluatorRendering,
    ModelInput,
    Problem,
    RenderedPrompt,
    RenderSampleResponse,
    Sample,
)
from crucible_worker.backends.base import ANSWERING, Capability, Model, Tokenizer, WrappedModel, too_long
from crucible_worker.datasets.loading import MalformedSample
from crucible_worker.engine.preparation import Plan, Preparer
from crucible_worker.engine.renderings import resolve
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

__all__ = ["render_sample"]


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
    raise NotFound(f"is {sample_id[:200]!r}, not in the data set", reason=Reason.UNKNOWN_SAMPLE, field="sample_id")


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
            return dataclasses.replace(shown, conversation=Conversation(found.asked.messages), stop=found.stop)
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
