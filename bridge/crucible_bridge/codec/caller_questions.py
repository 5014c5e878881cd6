"""Questions to graders and environments of a caller, and the answers <-> v1."""

from __future__ import annotations

import math
from collections.abc import Mapping

from crucible_bridge.codec.bulk import vector_from_v1
from crucible_bridge.codec.content import model_input_to_v1
from crucible_bridge.codec.data import content_of, set_prompt
from crucible_bridge.codec.fields import (
    at_least,
    at_most_bytes,
    at_most_count,
    child,
    entry,
    finite_map,
    none_empty,
    one_of,
    within,
)
from crucible_bridge.codec.options import options_from_v1, options_to_v1
from crucible_bridge.codec.tensors import array_to_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    AnsweredEnvironment,
    Datum,
    EnvironmentQuestion,
    EpisodeAction,
    ModelInput,
    OpenEpisode,
    Sample,
    bounds,
)
from crucible_bridge.v1 import orchestrator_pb2 as pb

__all__ = [
    "asked_sample_from_v1",
    "asked_sample_to_v1",
    "environment_answer_from_v1",
    "environment_answer_to_v1",
    "environment_question_from_v1",
    "environment_question_to_v1",
    "measurements_from_v1",
    "share_from_v1",
]


def environment_question_to_v1(question: EnvironmentQuestion) -> pb.EnvironmentQuestion:
    """Encode a question to an environment."""
    message = pb.EnvironmentQuestion(environment=question.environment, episode=question.episode)
    match question.question:
        case OpenEpisode() as opened:
            message.open.CopyFrom(
                pb.OpenEpisode(
                    evaluator=opened.evaluator,
                    sample=asked_sample_to_v1(opened.sample),
                    seed=opened.seed,
                    rollout=opened.rollout,
                    options=options_to_v1(opened.options, "question.environment.open.options"),
                )
            )
        case EpisodeAction() as action:
            tokens = array_to_v1(ModelInput.of(action.tokens).tokens()) if action.tokens else None
            message.step.CopyFrom(
                pb.EpisodeAction(turn=action.turn, text=action.text, tokens=tokens, stop_reason=action.stop_reason)
            )
    return message


def environment_question_from_v1(message: pb.EnvironmentQuestion, field: str) -> EnvironmentQuestion:
    """Decode a question to an environment.

    Raises:
        InvalidField: it asks nothing, or is malformed.
    """
    match message.WhichOneof("question"):
        case "open":
            opened, path = message.open, child(field, "open")
            question: OpenEpisode | EpisodeAction = OpenEpisode(
                evaluator=opened.evaluator,
                sample=asked_sample_from_v1(opened.sample, child(path, "sample")),
                seed=opened.seed,
                rollout=opened.rollout,
                options=options_from_v1(opened.options, child(path, "options")),
            )
        case "step":
            question = _action_from_v1(message.step, child(field, "step"))
        case _:
            raise InvalidField(field, "asks nothing")
    return EnvironmentQuestion(environment=message.environment, episode=message.episode, question=question)


def environment_answer_to_v1(answer: AnsweredEnvironment) -> pb.AnsweredEnvironment:
    """Encode what follows in an episode.

    Raises:
        InvalidField: the observation is none.
    """
    message = pb.AnsweredEnvironment(
        reward=answer.reward,
        done=answer.done,
        metrics=answer.metrics,
        stop=[each for each in answer.stop if isinstance(each, str)],
        stop_tokens=[each for each in answer.stop if not isinstance(each, str)],
        tags=answer.tags,
    )
    if answer.observation is not None:
        set_prompt(message, answer.observation, "answer.environment.observation")
    return message


def environment_answer_from_v1(message: pb.AnsweredEnvironment, field: str) -> AnsweredEnvironment:
    """Decode what follows in an episode.

    Raises:
        InvalidField: an episode that is not done has no observation, or a value is out of its bounds.
    """
    observation = content_of(message, "observation", field)
    if observation is None and not message.done:
        raise InvalidField(field, "has no observation, and the episode is not done")
    if not math.isfinite(message.reward):
        raise InvalidField(child(field, "reward"), f"is {message.reward}, must be finite")
    stop, tags = child(field, "stop"), child(field, "tags")
    at_most_count(message.stop, bounds.ANSWERED_ENVIRONMENT_STOP_MAX_COUNT, stop)
    none_empty(message.stop, stop)
    for index, text in enumerate(message.stop):
        at_most_bytes(text, bounds.ANSWERED_ENVIRONMENT_STOP_MAX_BYTES, f"{stop}[{index}]")
    at_most_count(message.stop_tokens, bounds.ANSWERED_ENVIRONMENT_STOP_TOKENS_MAX_COUNT, child(field, "stop_tokens"))
    for index, token in enumerate(message.stop_tokens):
        at_least(token, 0, f"{child(field, 'stop_tokens')}[{index}]")
    at_most_count(message.tags, bounds.ANSWERED_ENVIRONMENT_TAGS_MAX_COUNT, tags)
    none_empty(message.tags, tags)
    for index, tag in enumerate(message.tags):
        at_most_bytes(tag, bounds.ANSWERED_ENVIRONMENT_TAGS_MAX_BYTES, f"{tags}[{index}]")
    return AnsweredEnvironment(
        observation=observation,
        reward=message.reward,
        done=message.done,
        metrics=measurements_from_v1(message.metrics, child(field, "metrics")),
        stop=(*message.stop, *message.stop_tokens),
        tags=tuple(message.tags),
    )


def _action_from_v1(message: pb.EpisodeAction, field: str) -> EpisodeAction:
    one_of(message.stop_reason, bounds.EPISODE_ACTION_STOP_REASON_ONE_OF, child(field, "stop_reason"))
    tokens: tuple[int, ...] = ()
    if message.HasField("tokens"):
        array = vector_from_v1(message.tokens, child(field, "tokens"))
        if array.dtype.name not in ("int32", "int64"):
            raise InvalidField(child(field, "tokens"), f"holds {array.dtype}, not token ids")
        tokens = tuple(array.tolist())
    return EpisodeAction(turn=message.turn, text=message.text, tokens=tokens, stop_reason=message.stop_reason)


def asked_sample_to_v1(sample: Sample) -> pb.AskedSample:
    """Encode the sample of a question."""
    message = pb.AskedSample(
        id=sample.id,
        targets=sample.targets,
        choices=sample.choices,
        choice_labels=sample.choice_labels,
        metadata=sample.metadata,
    )
    match sample.input:
        case str():
            message.text = sample.input
        case Datum(model_input=tokens):
            message.model_input.CopyFrom(model_input_to_v1(tokens))
        case conversation:
            set_prompt(message, conversation, "question.sample.input")
    return message


def asked_sample_from_v1(message: pb.AskedSample, field: str) -> Sample:
    """Decode the sample of a question.

    Raises:
        InvalidField: it has no input, or the input is malformed.
    """
    asked = content_of(message, "input", field)
    if asked is None:
        raise InvalidField(field, "has no input")
    return Sample(
        id=message.id,
        input=Datum(model_input=asked, loss_fn_inputs={}) if isinstance(asked, ModelInput) else asked,
        targets=tuple(message.targets),
        choices=tuple(message.choices),
        choice_labels=tuple(message.choice_labels),
        metadata=dict(message.metadata),
    )


def share_from_v1(score: float, field: str) -> float:
    """A score from 0 to 1; raises InvalidField if it is another number."""
    within(score, 0, 1, field)
    return score


def measurements_from_v1(values: Mapping[str, float], field: str) -> dict[str, float]:
    """Finite numbers by name.

    Raises:
        InvalidField: they are more than one turn or sample may have, or one is not finite or has no name.
    """
    at_most_count(values, bounds.ANSWERED_GRADE_MEASUREMENTS_MAX_COUNT, field)
    for name in values:
        at_most_bytes(name, bounds.ANSWERED_GRADE_MEASUREMENTS_MAX_BYTES, entry(field, name[:20]))
        if not name:
            raise InvalidField(field, "has a number without a name")
    return finite_map(values, field)
