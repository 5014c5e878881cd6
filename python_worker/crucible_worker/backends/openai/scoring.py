"""Log-probabilities of a prompt, in the two forms in which servers return them, or an error if this one does not.

Those of a fixed prompt also show whether a server still has the weights that it had before.

vLLM returns `prompt_logprobs`; vLLM, SGLang and others echo the prompt (`echo`) with the log-probabilities of its
tokens. A server that knows neither ignores the field or refuses the request, so that only a try shows it.

If the likeliest token at each position is requested, the same answers name it: by its id, or by a text without an id.
From such a text only one thing is known: whether it is the prompt's token. If several are requested, they need ids:
`prompt_logprobs` has them as its keys, and vLLM writes "token_id:N" in an echo with `return_tokens_as_token_ids`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_worker.backends.base import UNKNOWN_TOKEN
from crucible_worker.backends.distributions import Measured, Wanted, columns_of
from crucible_worker.backends.openai.answers import (
    float_or_garbage,
    named_pairs,
    no_top_logprobs,
    only_choice,
    other_prompt,
    possible,
)
from crucible_worker.backends.openai.bodies import echo_body, prompt_logprobs_body
from crucible_worker.backends.openai.connection import DECISIVE, ServerConnection
from crucible_worker.backends.openai.documents import apart
from crucible_worker.backends.openai.failures import garbage

__all__ = [
    "BYTES_TO_READ",
    "PROBE",
    "TOLERANCE",
    "LogprobsOfProbe",
    "Scorer",
    "distance",
    "measure",
    "measure_all",
    "refuse_change",
    "refuse_difference",
    "told_of_distance",
]


_CURE = (
    "likelihoods need a server that returns those of a prompt (vLLM does; llama.cpp returns only those of generated "
    "tokens), or the checkpoint as local:PATH"
)

BYTES_TO_READ = 256
"""Approximate bytes of an answer per token."""

_MAX_ID = (1 << 31) - 1
"""Token ids have 32 bits on the wire."""

_Ask = Callable[[dict[str, Any], int], Awaitable[dict[str, Any]]]
"""Sends a request; the answer may list so many tokens."""
_Logprobs = tuple[float | None, ...]
_Likeliest = tuple[int | None, ...]
_Pairs = list[list[tuple[int, float]]]
"""For each token, the listed ones with their log-probabilities."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Way:
    body: Callable[[str, Sequence[int], int], dict[str, Any]]
    """The request, given the model, the prompt, and the number of likeliest tokens; 0 is the server's least."""
    read: Callable[[dict[str, Any], Sequence[int], str], _Logprobs | None]
    """Reads the log-probabilities of the prompt; None if the answer has none."""
    read_likeliest: Callable[[dict[str, Any], _Logprobs, Sequence[int], str], _Likeliest | None]
    """Reads the likeliest tokens of such an answer; None if it has none."""
    read_top: Callable[[dict[str, Any], int, int, str], _Pairs | None]
    """Reads several of them by their ids, given the prompt's length and how many of its last tokens are wanted; None if
    it has none."""


class Scorer:
    """Requests log-probabilities from the server of one model, and remembers in which form it returns them."""

    def __init__(self, server: str, model: str, ask: _Ask) -> None:
        self._server = server
        self._model = model
        self._ask = ask
        self._ways: tuple[_Way, ...] = (
            _Way(prompt_logprobs_body, _from_prompt_logprobs, _likeliest_of_prompt_logprobs, _top_of_prompt_logprobs),
            _Way(echo_body, _from_echo, _likeliest_of_echo, _top_of_echo),
        )

    async def likeliest(self, tokens: Sequence[int], ask: _Ask | None = None) -> _Likeliest:
        """Likeliest token at each position given those before it; the first is None.

        `UNKNOWN_TOKEN` if it is not the prompt's token, and the answer has only its text.

        Args:
            tokens: the prompt.
            ask: sends these requests, in place of the default.

        Raises:
            FailedPrecondition: the server gives no log-probabilities (NO_PROMPT_LOGPROBS), or only those of the
                prompt's tokens (NO_GREEDY_TOKENS).
            BridgeError: it could not be queried, or its answer is invalid.
        """
        way, document, logprobs = await self._query(tokens, ask or self._ask)
        size = len(tokens) * BYTES_TO_READ
        if (found := await apart(size, way.read_likeliest, document, logprobs, tokens, self._server)) is None:
            raise FailedPrecondition(
                f"server {self._server!r} does not return the likeliest tokens next to a prompt's",
                reason=Reason.NO_GREEDY_TOKENS,
            )
        return found

    async def distributions(self, tokens: Sequence[int], wanted: Wanted, ask: _Ask | None = None) -> Measured:
        """Log-probabilities of the last tokens, and the likeliest ones in their place. Arguments as of `likeliest`.

        Raises:
            FailedPrecondition: targets are wanted, of which a server is not asked (NO_TARGET_LOGPROBS); the server
                gives no log-probabilities (NO_PROMPT_LOGPROBS), or names no tokens by their ids (NO_TOP_LOGPROBS).
            BridgeError: it could not be queried, or its answer is invalid.
        """
        if wanted.targets is not None:
            raise FailedPrecondition(
                f"server {self._server!r} measures only a prompt's tokens and the likeliest ones, not given targets: "
                "local and Tinker models do",
                reason=Reason.NO_TARGET_LOGPROBS,
            )
        top = wanted.top_k
        way, document, logprobs = await self._query(tokens, ask or self._ask, top)
        own = np.array(logprobs[-wanted.last :], np.float64)
        if not top:
            return Measured(logprobs=own)
        size = len(tokens) * (1 + top) * BYTES_TO_READ

        def read() -> tuple[np.ndarray, np.ndarray] | None:
            pairs = way.read_top(document, len(tokens), wanted.last, self._server)
            return None if pairs is None else columns_of(pairs, top)

        if (columns := await apart(size, read)) is None:
            raise no_top_logprobs(self._server)
        return Measured(logprobs=own, top_tokens=columns[0], top_logprobs=columns[1])

    async def score(self, tokens: Sequence[int], ask: _Ask | None = None) -> _Logprobs:
        """Log-probability of each token given those before it, nats; the first is None. Arguments as of `likeliest`.

        Raises:
            FailedPrecondition: the server gives none (NO_PROMPT_LOGPROBS).
            BridgeError: it could not be queried, or its answer is invalid.
        """
        return (await self._query(tokens, ask or self._ask))[-1]

    async def probe(self, tokens: Sequence[int]) -> None:
        """Check that log-probabilities cover a prompt, and can be.

        Raises:
            FailedPrecondition: they do not cover it (NO_PROMPT_LOGPROBS), are of another one (PROMPT_DIFFERS), or
                cannot be (IMPOSSIBLE_LOGPROBS).
            BridgeError: the server could not be queried.
        """
        try:
            scores = await self.score(tokens)
            # A model may be certain of how each text begins, and of no text that is read backwards.
            if _all_zero(scores) and _all_zero(await self.score(tokens[::-1])):
                raise FailedPrecondition(
                    f"server {self._server!r} returns 0 for the log-probability of each token of a prompt, as if all "
                    f"of them were certain; {_CURE}",
                    reason=Reason.IMPOSSIBLE_LOGPROBS,
                )
        except BackendError as error:
            if error.reason == Reason.BACKEND_ANSWER:
                raise FailedPrecondition(f"{error.message}; {_CURE}", reason=Reason.NO_PROMPT_LOGPROBS) from error
            if error.reason in (Reason.PROMPT_DIFFERS, Reason.IMPOSSIBLE_LOGPROBS):
                raise FailedPrecondition(error.message, reason=error.reason) from error
            raise

    async def _query(self, tokens: Sequence[int], ask: _Ask, top: int = 0) -> tuple[_Way, dict[str, Any], _Logprobs]:
        """The form that works, the answer in it, and its log-probabilities."""
        refusal: BridgeError | None = None
        for way in self._ways:
            try:
                document = await ask(way.body(self._model, tokens, top), (len(tokens) + 1) * (1 + top))
            except BridgeError as error:
                # A server without /completions answers the same as one without the model.
                if error.reason not in (Reason.BACKEND_REFUSED, Reason.UNKNOWN_MODEL) or len(self._ways) == 1:
                    raise
                refusal = error
                continue
            found = await apart(len(tokens) * BYTES_TO_READ, way.read, document, tokens, self._server)
            if found is not None:
                self._ways = (way,)
                return way, document, found
        if refusal is None:
            self._ways = ()  # no form of its answers has them: later calls need not try
        words = "" if refusal is None else f": {refusal.message}"
        raise FailedPrecondition(
            f"server {self._server!r} gives no log-probabilities of a prompt{words}; {_CURE}",
            reason=Reason.NO_PROMPT_LOGPROBS,
        )


def _all_zero(scores: _Logprobs) -> bool:
    return not any(scores[1:])


def _from_prompt_logprobs(document: dict[str, Any], tokens: Sequence[int], server: str) -> _Logprobs | None:
    """For each token a map from ids, as text, to their entries; the first is null."""
    entries = _entries(document, server)
    if entries is None:
        return None
    if not isinstance(entries, list):
        raise garbage(server, "prompt_logprobs that are no list")
    if len(entries) != len(tokens):
        raise other_prompt(server, f"it returns prompt_logprobs of {len(entries):,} tokens", len(tokens))
    return (None, *(_of_token(entry, token, server) for entry, token in zip(entries[1:], tokens[1:])))


def _likeliest_of_prompt_logprobs(
    document: dict[str, Any], logprobs: _Logprobs, tokens: Sequence[int], server: str
) -> _Likeliest | None:
    found = [_first_rank(entry, token, server) for entry, token in zip(_entries(document, server)[1:], tokens[1:])]
    told = [token for token in found if token is not None]
    return (None, *told) if len(told) == len(found) else None


def _first_rank(entry: dict[str, Any], token: int, server: str) -> int | None:
    """The id of rank 1, or of the greatest log-probability if there are no ranks; None if there is only one entry."""
    ranks = {key: known.get("rank") for key, known in entry.items() if isinstance(known, dict)}
    # If the prompt's token shares the first rank with another one, its rank comes after that one's.
    if first := [key for key, rank in ranks.items() if rank == 1]:
        return _token_id(first[0], server)
    if isinstance(ranks.get(str(token)), int):
        return UNKNOWN_TOKEN  # only the prompt's token has a rank, and it is not the first
    if len(entry) < 2:
        return None
    values = {
        key: possible(float_or_garbage(known.get("logprob") if isinstance(known, dict) else known, server))
        for key, known in entry.items()
    }
    return _token_id(max(values, key=lambda key: values[key]), server)


def _token_id(key: str, server: str) -> int:
    # A number with too many digits is not parsed.
    if not key.isascii() or not key.isdigit() or len(key) > len(str(_MAX_ID)) or int(key) > _MAX_ID:
        raise garbage(server, "a token that is not an id")
    return int(key)


def _entries(document: dict[str, Any], server: str) -> Any:
    return only_choice(document, server).get("prompt_logprobs", document.get("prompt_logprobs"))


def _of_token(entry: Any, token: int, server: str) -> float:
    known = entry.get(str(token)) if isinstance(entry, dict) else None
    value = known.get("logprob") if isinstance(known, dict) else known
    if value is None:
        raise garbage(server, f"no log-probability of token {token}")
    return possible(float_or_garbage(value, server))


def _from_echo(document: dict[str, Any], tokens: Sequence[int], server: str) -> _Logprobs | None:
    """A number for each token of the prompt and of what was generated; the first is null."""
    logprobs = only_choice(document, server).get("logprobs")
    values = logprobs.get("token_logprobs") if isinstance(logprobs, dict) else None
    # At most one generated token: a server that returns only that did not echo the prompt.
    if values is None or (isinstance(values, list) and len(values) <= 1 < len(tokens)):
        return None
    if not isinstance(values, list):
        raise garbage(server, "token_logprobs that are no list")
    if not len(tokens) <= len(values) <= len(tokens) + 1:
        raise other_prompt(server, f"it echoes {len(values):,} tokens", len(tokens))
    return (None, *(possible(float_or_garbage(value, server)) for value in values[1 : len(tokens)]))


def _likeliest_of_echo(
    document: dict[str, Any], logprobs: _Logprobs, tokens: Sequence[int], server: str
) -> _Likeliest | None:
    """A map from texts to log-probabilities for each token: whether any is greater than the token's own."""
    tops = only_choice(document, server)["logprobs"].get("top_logprobs")
    if not isinstance(tops, list):
        return None
    if not len(tokens) <= len(tops) <= len(tokens) + 1:
        raise garbage(server, f"top_logprobs that do not fit the {len(tokens):,} tokens of the prompt")
    found: list[int] = []
    for top, own, token in zip(tops[1:], logprobs[1:], tokens[1:]):
        if not isinstance(top, dict) or not top or own is None:
            return None
        greatest = max(possible(float_or_garbage(value, server)) for value in top.values())
        found.append(token if own >= greatest else UNKNOWN_TOKEN)
    return (None, *found)


def _top_of_prompt_logprobs(document: dict[str, Any], count: int, last: int, server: str) -> _Pairs | None:
    found = [
        [(_token_id(key, server), _listed(known, server)) for key, known in entry.items()]
        for entry in _entries(document, server)[count - last :]
    ]
    return found if all(found) else None


def _listed(known: Any, server: str) -> float:
    return possible(float_or_garbage(known.get("logprob") if isinstance(known, dict) else known, server))


def _top_of_echo(document: dict[str, Any], count: int, last: int, server: str) -> _Pairs | None:
    tops = only_choice(document, server)["logprobs"].get("top_logprobs")
    if not isinstance(tops, list) or len(tops) < count:
        return None
    return named_pairs(tops[count - last : count], server)


# Whether a server has the same weights at the end of an evaluation as at its start, though none shows its weights.
#
# A fixed prompt is measured at each replica: the log-probabilities of its tokens depend on all weights. Two
# measurements are not equal bit for bit, as a GPU computes a prompt in batches with others. So the mean of their
# differences counts.

PROBE: tuple[int, ...] = (
    *(40, 71, 33, 86, 52, 97, 65, 110, 38, 79, 44, 101, 58, 92, 36, 83),
    *(107, 49, 74, 60, 95, 41, 88, 54, 112, 67, 35, 99, 46, 81, 63, 90),
)
"""The prompt: ids that every vocabulary has, in an order that no text has, so that no token is certain."""

TOLERANCE = 0.125
"""Largest mean difference of two measurements of the same weights, in nats for each token.

bfloat16 has 8 significant bits: logits from 16 to 32 are multiples of 0.125, and those from 8 to 16 of 0.0625. Another
batch rounds a logit to the next multiple at worst, up or down, and the mean over all tokens stays below one step. Other
training steps of a model differ by more as soon as a run has learned; a single step of it may differ by less.
"""

LogprobsOfProbe = tuple[float, ...]
"""Log-probabilities of all tokens of the prompt but the first, nats."""


class HasConnections(Protocol):
    """One server, or replicas of it."""

    async def connections(self, *, serving: bool = True) -> Mapping[str, ServerConnection]:
        """The connection to each replica, by its name."""
        ...


async def measure(connection: ServerConnection, model: str) -> LogprobsOfProbe:
    """Measure the prompt at one replica.

    Raises:
        FailedPrecondition: the server returns no log-probabilities of a prompt (NO_PROMPT_LOGPROBS).
        BackendError: there is no valid answer.
    """

    async def ask(body: dict[str, Any], tokens: int) -> dict[str, Any]:
        return await connection.ask("/completions", body, model, tokens=tokens)

    scores = await Scorer(connection.server.name, model, ask).score(PROBE)
    return tuple(score for score in scores[1:] if score is not None)


async def measure_all(connection: HasConnections, model: str) -> Mapping[str, LogprobsOfProbe]:
    """Measure the prompt at each replica that serves; those that are gone meanwhile are left out.

    Raises:
        FailedPrecondition: a server returns no log-probabilities of a prompt (NO_PROMPT_LOGPROBS).
        BackendError: no replica answers.
    """
    replicas = dict(await connection.connections())
    found = await asyncio.gather(*(measure(one, model) for one in replicas.values()), return_exceptions=True)
    measured: dict[str, LogprobsOfProbe] = {}
    absent: BaseException | None = None
    for name, result in zip(replicas, found, strict=True):
        if not isinstance(result, BaseException):
            measured[name] = result
        elif isinstance(result, BridgeError) and result.reason in DECISIVE:
            absent = result
        else:
            raise result
    if not measured:
        if absent is None:
            raise BackendError("no replica of the server serves", reason=Reason.BACKEND_UNREACHABLE, retryable=True)
        raise absent
    return measured


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """Mean difference of two measurements, nats for each token; infinite if they have not the same length."""
    if len(one) != len(other) or not one:
        return float("inf")
    return sum(abs(left - right) for left, right in zip(one, other, strict=True)) / len(one)


def told_of_distance(before: Mapping[str, LogprobsOfProbe], now: Mapping[str, LogprobsOfProbe]) -> str:
    """How two measurements of a server differ, in words; empty if they agree.

    A replica without a measurement before is compared with any other one: all have the same weights.
    """
    some = next(iter(before.values()))
    for name, measured in now.items():
        if (far := distance(before.get(name, some), measured)) > TOLERANCE:
            return (
                f"the log-probabilities of a fixed prompt at {name} differ by {far:.3g} nats a token, more than "
                f"{TOLERANCE:g}"
            )
    return ""


def refuse_difference(server: str, model: str, measured: Mapping[str, LogprobsOfProbe]) -> None:
    """Refuse replicas whose weights differ.

    Raises:
        FailedPrecondition: two of them differ (REPLICAS_DIFFER).
    """
    first = dict([next(iter(measured.items()))])
    if what := told_of_distance(first, measured):
        raise FailedPrecondition(
            f"the replicas of server {server!r} do not serve the same weights as {model!r}: {what} from those at "
            f"{next(iter(first))}",
            reason=Reason.REPLICAS_DIFFER,
        )


def refuse_change(server: str, model: str, what: str) -> None:
    """Refuse an evaluation if something has changed.

    Args:
        server: its name.
        model: name of the model.
        what: how it differs; empty if it does not.

    Raises:
        FailedPrecondition: it has changed (MODEL_CHANGED).
    """
    if what:
        raise FailedPrecondition(
            f"the model {model!r} of server {server!r} changed while it was evaluated: {what}. Its results are of "
            "different weights: start another evaluation, and let nothing load weights meanwhile",
            reason=Reason.MODEL_CHANGED,
            field="model",
        )
