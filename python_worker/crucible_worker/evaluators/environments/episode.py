"""One rollout: a model acts in an environment until the environment or a limit of it ends the episode."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Conversation, Datum, ModelInput, SampledSequence
from crucible_worker.backends.base import Model
from crucible_worker.backends.metering import known_sum
from crucible_worker.evaluators.answering import Answer, Answering
from crucible_worker.evaluators.environments.base import Action, Env, Nothing, Rollout, Turn
from crucible_worker.evaluators.environments.threaded_loop import ForeignFailure
from crucible_worker.metrics.trajectory import BUILT_IN_KEYS
from crucible_worker.util.entry_points import error_text

__all__ = [
    "CONTEXT_OVERFLOW",
    "MAX_METRICS",
    "MAX_NAME_CHARS",
    "MAX_TURNS",
    "TRUNCATIONS",
    "Asker",
    "Budget",
    "EnvironmentCaller",
    "EpisodeCalls",
    "SentObservation",
    "called_here",
    "finite",
    "numbers_of",
    "play",
    "seed_of",
]

# Limits that an environment defines in `rollout_limits`, like tinker-cookbook's `RolloutLimits`.
#
# Limits of time are refused: a sample has its time-out, and a limit that depends on a clock would not give the same
# result twice. The error says so.

MAX_TURNS = "max_turns"
"""Why an episode was ended that did not end itself, by tinker-cookbook's stop reasons."""

_OF_TOKENS = ("max_turn_tokens", "max_trajectory_tokens", "max_sampled_tokens")
_OF_TIME = ("rollout_timeout_seconds", "sampling_turn_timeout_seconds")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of one rollout."""

    max_turns: int
    """Turns."""
    max_turn_tokens: int | None = None
    """Tokens that the model generates in one turn; if None, here and below, the request's limit."""
    max_trajectory_tokens: int | None = None
    """Tokens of an observation and the answer to it; an observation contains everything before it."""
    max_sampled_tokens: int | None = None
    """Tokens that the model generates in all turns."""

    @classmethod
    def of(cls, env: Any, max_turns: int) -> Budget:
        """The limits of an environment; it may have fewer turns than the request allows.

        Raises:
            ForeignFailure: it defines limits of time, or limits that are not whole numbers from 1.
        """
        limits = getattr(env, "rollout_limits", None)
        for name in _OF_TIME:
            if getattr(limits, name, None) is not None:
                message = f"has rollout_limits.{name}, and is bound by the sample's time-out alone"
                raise ForeignFailure(Reason.BAD_ENVIRONMENT, message)
        turns = _whole(limits, "max_turns")
        calls = _whole(limits, "max_tool_calls")
        if calls is not None:
            env.set_max_tool_calls(calls)
        return cls(
            max_turns=max_turns if turns is None else min(turns, max_turns),
            **{name: _whole(limits, name) for name in _OF_TOKENS},
        )

    def spent(self, turns: int, observation: object, sampled: int | None) -> str | None:
        """Why there is no further turn; None if there may be one.

        Args:
            turns: so far.
            observation: of the next turn.
            sampled: tokens generated so far; None if the model's server does not report them.

        Raises:
            ForeignFailure: observations are counted, and this one is not in tokens.
            FailedPrecondition: generated tokens are limited, and not reported.
        """
        if turns >= self.max_turns:
            return MAX_TURNS
        # A single remaining token is not used, as in the original.
        if self.max_trajectory_tokens is not None and self.max_trajectory_tokens - _length(observation) <= 1:
            return "max_tokens"
        if self.max_sampled_tokens is None:
            return None
        if sampled is None:
            message = "the environment has rollout_limits.max_sampled_tokens, and the model's server reports no tokens"
            raise FailedPrecondition(message, reason=Reason.NO_TOKENS)
        return "max_sampled_tokens" if self.max_sampled_tokens - sampled <= 1 else None

    def turn_tokens(self, max_tokens: int, observation: object, sampled: int | None) -> int:
        """How many tokens may be generated in the next turn, of those that the request allows."""
        allowed = [max_tokens]
        if self.max_turn_tokens is not None:
            allowed.append(self.max_turn_tokens)
        if self.max_trajectory_tokens is not None:
            allowed.append(self.max_trajectory_tokens - _length(observation))
        if self.max_sampled_tokens is not None and sampled is not None:
            allowed.append(self.max_sampled_tokens - sampled)
        return min(allowed)


def _whole(limits: Any, name: str) -> int | None:
    value = getattr(limits, name, None)
    if value is not None and not (isinstance(value, int) and value >= 1):
        raise ForeignFailure(Reason.BAD_ENVIRONMENT, f"has {str(value)[:60]} as rollout_limits.{name}")
    return value


def _length(observation: object) -> int:
    if not isinstance(observation, ModelInput):
        message = "has rollout_limits.max_trajectory_tokens, which is for observations in tokens"
        raise ForeignFailure(Reason.BAD_ENVIRONMENT, message)
    return observation.tokens().size


MAX_METRICS = 256
"""Metrics of one turn or rollout."""
MAX_NAME_CHARS = 200
"""Characters of a metric's name, and of a tag."""

CONTEXT_OVERFLOW = "context_overflow"
"""The stop reason of an episode with an observation that did not fit into the model's context."""
TRUNCATIONS = "num_truncations_max_turn_tokens"
"""The metric of a last turn that counts truncated answers after which the episode continued; tinker-cookbook's name."""

SentObservation: TypeAlias = str | Conversation | ModelInput
"""An observation in a form that can be sent to a model."""

_STOP = "stop/"
_NOTHING = SampledSequence(text="", tokens=(), logprobs=())


class EnvironmentCaller(Protocol):
    """Calls a function of an environment in the right thread, and waits for its result."""

    async def __call__(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        """Call it.

        Raises:
            ForeignFailure: it raised an error, or returned something invalid.
        """
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """A model, and how it is queried in an episode."""

    model: Model
    """Who acts."""
    answering: Answering
    """How it is queried; `max_tokens` is for one turn."""

    @property
    def max_tokens(self) -> int:
        """Tokens that it may generate in one turn."""
        return self.answering.sampling.max_tokens

    async def ask(
        self, observation: SentObservation, stop: Sequence[str | int], *, seed: int, max_tokens: int
    ) -> Answer:
        """Let it answer an observation.

        Args:
            observation: its input.
            stop: texts or token ids that end its answer, in addition to those of the request and the renderer.
            seed: of this answer, if sampling is random.
            max_tokens: of this answer.

        Raises:
            BridgeError: as for `Answering`.
            FailedPrecondition: token ids should end the answer, but the model's server reports none (NO_TOKENS).
        """
        sampling = self.answering.sampling
        texts = dict.fromkeys((*sampling.stop, *(each for each in stop if isinstance(each, str))))
        params = dataclasses.replace(sampling, stop=tuple(texts), max_tokens=max_tokens)
        asked = dataclasses.replace(self.answering, sampling=params)
        shown = observation if not isinstance(observation, ModelInput) else _as_datum(observation)
        answer = await asked.answer(self.model, shown, seed)
        ids = frozenset(each for each in stop if not isinstance(each, str))
        return _ended_at(answer, ids) if ids else answer


class EpisodeCalls(Protocol):
    """Queries the model in an episode."""

    @property
    def max_tokens(self) -> int:
        """Tokens that it may generate in one turn."""
        ...

    async def ask(
        self, observation: SentObservation, stop: Sequence[str | int], *, seed: int, max_tokens: int
    ) -> Answer:
        """Let it answer an observation; see `Asker`.

        Raises:
            ForeignFailure: no model can be queried with it.
            BridgeError: it could not be queried.
        """
        ...


async def called_here(function: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
    """A caller for built-in environments, which never block; their errors are raised unchanged."""
    given = function(*args, **options)
    return await given if inspect.isawaitable(given) else given


async def play(
    env: Env, call: EnvironmentCaller, asker: EpisodeCalls, *, seed: Callable[[int], int], max_turns: int
) -> Rollout:
    """Let a model act in an environment.

    An episode is ended after `max_turns`, when a limit of the environment is reached, and when an
    observation does not fit into the model's context any more: its last turn then has the metric `stop/<reason>`.

    Args:
        env: used once.
        call: calls it in the right thread.
        asker: the model.
        seed: of each turn, from 0.
        max_turns: at least 1.

    Raises:
        ForeignFailure: the environment failed.
        BridgeError: the model could not be queried; the first observation is longer than its context.
    """
    begun = await call(_begun, env, max_turns)
    if isinstance(begun, Rollout):
        return begun
    budget, given, observation, stop = begun
    turns: list[Turn] = []
    cut = 0
    sampled: int | None = 0
    while (reason := budget.spent(len(turns), observation, sampled)) is None:
        most = budget.turn_tokens(asker.max_tokens, observation, sampled)
        try:
            answer = await asker.ask(observation, stop, seed=seed(len(turns)), max_tokens=most)
        except InvalidField as error:
            if error.reason != Reason.PROMPT_TOO_LONG or not turns:
                raise
            reason = CONTEXT_OVERFLOW
            break
        turn, following = await call(_stepped, env, given, answer)
        turns.append(turn)
        given, observation, stop = following
        sampled = known_sum((sampled, answer.sequence.output_tokens))
        if turn.episode_done:
            break
        cut += answer.sequence.stop_reason == "length"
    return _ended(turns, given, reason, cut)


def seed_of(seed: int, *places: int) -> int:
    """A seed that depends on another seed and on where it is used."""
    text = "\0".join(map(str, (seed, *places))).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little") >> 1


def numbers_of(metrics: Any, what: str) -> dict[str, float]:
    """Metrics of an environment as floats; None is left out.

    Raises:
        ForeignFailure: they are not metrics, have the name of a built-in key, or are not finite (NOT_FINITE).
    """
    if not isinstance(metrics, Mapping) or len(metrics) > MAX_METRICS:
        raise ForeignFailure(
            Reason.BAD_ENVIRONMENT, f"gave {what} metrics that are not at most {MAX_METRICS} numbers by name"
        )
    found: dict[str, float] = {}
    for name, value in metrics.items():
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARS:
            message = f"gave a {what} metric whose name is not text of 1 to {MAX_NAME_CHARS} characters"
            raise ForeignFailure(Reason.BAD_ENVIRONMENT, message)
        if name in BUILT_IN_KEYS:
            raise ForeignFailure(Reason.BAD_ENVIRONMENT, f"gave the {what} metric {name!r}, which is a built-in key")
        if value is not None:
            found[name] = finite(value, f"the {what} metric {name!r}")
    return found


def finite(value: Any, what: str) -> float:
    """A number of an environment as a float.

    Raises:
        ForeignFailure: it is not a number, or not finite (NOT_FINITE).
    """
    # Also numpy and torch scalars, such as sums and comparisons of arrays.
    if not hasattr(value, "__float__") or getattr(value, "ndim", 0):
        raise ForeignFailure(Reason.BAD_ENVIRONMENT, f"gave a {type(value).__name__} as {what}, not a number")
    number = float(value)
    if not math.isfinite(number):
        raise ForeignFailure(Reason.NOT_FINITE, f"gave {number} as {what}")
    return number


async def _begun(env: Env, max_turns: int) -> Rollout | tuple[Budget, Any, SentObservation, Sequence[str | int]]:
    budget = Budget.of(env, max_turns)
    initial = await env.initial_observation()
    if isinstance(initial, tuple | list) and len(initial) == 2:
        given, stop = initial
        return budget, given, _observed(given), _stops(stop)
    reward = getattr(initial, "reward", None)
    if reward is None:
        raise ForeignFailure(
            Reason.BAD_ENVIRONMENT, f"began with a {type(initial).__name__}, not an observation and its stop"
        )
    turn = _unasked(finite(reward, "the reward"), numbers_of(getattr(initial, "metrics", {}), "turn's"))
    turn.logs = getattr(initial, "logs", {})
    return Rollout(transitions=[turn], final_ob=turn.ob, stop_reason=_reason_of(turn.metrics))


async def _stepped(
    env: Env, given: Any, answer: Answer
) -> tuple[Turn, tuple[Any, SentObservation, Sequence[str | int]]]:
    action = _action(answer.sequence, answer.text)
    told = {"stop_reason": action.stop_reason, "text": action.text, "no_answer": answer.no_answer}
    step = await env.step(list(action.tokens), extra=told)
    for name in ("reward", "episode_done"):
        if not hasattr(step, name):
            raise ForeignFailure(Reason.BAD_ENVIRONMENT, f"stepped to a {type(step).__name__}, which has no {name}")
    done = bool(step.episode_done)
    turn = Turn(
        ob=given,
        ac=action,
        reward=finite(step.reward, "the reward"),
        episode_done=done,
        metrics=numbers_of(getattr(step, "metrics", {}), "turn's"),
        logs=getattr(step, "logs", {}),
        seen=answer.prompt,
        said=answer.sequence,
        output=answer.output,
        unfinished=answer.unfinished,
    )
    following = getattr(step, "next_observation", "")
    if done:
        return turn, (following, "", ())
    return turn, (following, _observed(following), _stops(getattr(step, "next_stop_condition", ())))


def _observed(observation: Any) -> SentObservation:
    if isinstance(observation, str | Conversation | ModelInput):
        return observation
    try:
        tokens = observation.to_ints() if hasattr(observation, "to_ints") else observation
        # A copy: the next step may write to the array.
        return ModelInput.of(tokens.copy() if isinstance(tokens, np.ndarray) else tokens)
    except (TypeError, ValueError, InvalidField) as error:
        message = f"observed a {type(observation).__name__}, which is neither text nor tokens: {error_text(error)}"
        raise ForeignFailure(Reason.BAD_ENVIRONMENT, message) from error


def _stops(stop: Any) -> Sequence[str | int]:
    stops = () if stop is None else stop
    plain = isinstance(stops, list | tuple) and all(isinstance(each, str | numbers.Integral) for each in stops)
    if not plain or "" in stops:
        raise ForeignFailure(Reason.BAD_ENVIRONMENT, "gave a stop condition that is not a list of texts or token ids")
    return tuple(stops)


def _ended_at(answer: Answer, ids: frozenset[int]) -> Answer:
    said = answer.sequence
    if not said.tokens and said.output_tokens != 0:
        message = "the environment ends answers by token ids, but the model's server reports none"
        raise FailedPrecondition(message, reason=Reason.NO_TOKENS)
    at = next((index for index, token in enumerate(said.tokens) if token in ids), None)
    if at is None:
        return answer
    if at + 1 == len(said.tokens):
        return dataclasses.replace(answer, sequence=dataclasses.replace(said, stop_reason="stop"))
    logprobs = None if said.logprobs is None else said.logprobs[: at + 1]
    cut = SampledSequence(
        text="",
        tokens=said.tokens[: at + 1],
        logprobs=logprobs,
        stop_reason="stop",
        cached_prompt_tokens=said.cached_prompt_tokens,
    )
    # The text of the part alone is not known.
    return dataclasses.replace(answer, sequence=cut, output="", text="", no_answer="", unfinished=False)


def _as_datum(tokens: ModelInput) -> Datum:
    return Datum(model_input=tokens, loss_fn_inputs={})


def _action(said: SampledSequence, text: str) -> Action:
    return Action(
        tokens=list(said.tokens),
        maybe_logprobs=None if said.logprobs is None else list(said.logprobs),
        stop_reason=said.stop_reason,
        text=text,
    )


def _unasked(reward: float, metrics: dict[str, float]) -> Turn:
    """The only turn of an episode in which the model is not queried."""
    return Turn(
        ob=Nothing(),
        ac=_action(_NOTHING, ""),
        reward=reward,
        episode_done=True,
        metrics=metrics,
        logs={},
        seen=ModelInput(()),
        said=_NOTHING,
    )


def _ended(turns: list[Turn], given: Any, reason: str | None, cut: int) -> Rollout:
    """A rollout that ended by itself, if there is no reason, or was ended."""
    turns = turns or [_unasked(0.0, {})]
    last = turns[-1]
    if reason is not None:
        kept = {name: value for name, value in last.metrics.items() if not name.startswith(_STOP)}
        last.metrics, last.episode_done = {**kept, f"{_STOP}{reason}": 1.0}, True
    if cut:
        last.metrics[TRUNCATIONS] = float(cut)
    return Rollout(transitions=turns, final_ob=given, stop_reason=_reason_of(last.metrics))


def _reason_of(metrics: Mapping[str, float]) -> str | None:
    return next((name.removeprefix(_STOP) for name in metrics if name.startswith(_STOP)), None)
