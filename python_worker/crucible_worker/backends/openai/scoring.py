"""Log-probabilities of a prompt, in the two ways in which servers give them, or a plain word that this one does not.

vLLM answers `prompt_logprobs`; vLLM, SGLang and others say the prompt back (`echo`) with the log-probabilities of its
tokens. A server that knows neither ignores the wish or refuses the request, so that it can only be told by trying.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from crucible_bridge.errors import BridgeError, FailedPrecondition
from crucible_worker.backends.openai.answers import float_or_garbage, only_choice
from crucible_worker.backends.openai.bodies import echo_body, prompt_logprobs_body
from crucible_worker.backends.openai.failures import garbage

__all__ = ["Scorer"]

_IMPOSSIBLE = -9999.0
"""What vLLM writes for minus infinity, which JSON has no word for."""

_Ask = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
_Read = Callable[[dict[str, Any], Sequence[int], str], tuple[float | None, ...] | None]


@dataclasses.dataclass(frozen=True, slots=True)
class _Way:
    body: Callable[[str, Sequence[int]], dict[str, Any]]
    read: _Read


class Scorer:
    """How one model's server gives log-probabilities, once that is known."""

    def __init__(self, server: str, model: str, ask: _Ask) -> None:
        self._server = server
        self._model = model
        self._ask = ask
        self._ways: tuple[_Way, ...] = (
            _Way(prompt_logprobs_body, _from_prompt_logprobs),
            _Way(echo_body, _from_echo),
        )

    async def score(self, tokens: Sequence[int]) -> tuple[float | None, ...]:
        """Log-probability of each token given those before it, nats; the first is None.

        Raises:
            FailedPrecondition: the server gives none (NO_PROMPT_LOGPROBS).
            BridgeError: it could not be asked, or its answer makes no sense.
        """
        refusal: BridgeError | None = None
        for way in self._ways:
            try:
                document = await self._ask(way.body(self._model, tokens))
            except BridgeError as error:
                # A server without /completions says the same as one without the model.
                if error.reason not in ("BACKEND_REFUSED", "UNKNOWN_MODEL") or len(self._ways) == 1:
                    raise
                refusal = error
                continue
            found = way.read(document, tokens, self._server)
            if found is not None:
                self._ways = (way,)
                return found
        if refusal is None:
            self._ways = ()  # it has answered every way without them: no need to ask again
        words = "" if refusal is None else f": {refusal.message}"
        raise FailedPrecondition(
            f"server {self._server!r} gives no log-probabilities of a prompt{words}", reason="NO_PROMPT_LOGPROBS"
        )


def _from_prompt_logprobs(
    document: dict[str, Any], tokens: Sequence[int], server: str
) -> tuple[float | None, ...] | None:
    """For each token a map from ids, as text, to what is known of them; the first is null."""
    entries = only_choice(document, server).get("prompt_logprobs", document.get("prompt_logprobs"))
    if entries is None:
        return None
    if not isinstance(entries, list) or len(entries) != len(tokens):
        raise garbage(server, f"prompt_logprobs that do not fit the {len(tokens):,} tokens of the prompt")
    return (None, *(_of_token(entry, token, server) for entry, token in zip(entries[1:], tokens[1:])))


def _of_token(entry: Any, token: int, server: str) -> float:
    known = entry.get(str(token)) if isinstance(entry, dict) else None
    value = known.get("logprob") if isinstance(known, dict) else known
    if value is None:
        raise garbage(server, f"no log-probability of token {token}")
    return _possible(float_or_garbage(value, server))


def _from_echo(document: dict[str, Any], tokens: Sequence[int], server: str) -> tuple[float | None, ...] | None:
    """A number for each token of the prompt and of what was generated; the first is null."""
    logprobs = only_choice(document, server).get("logprobs")
    values = logprobs.get("token_logprobs") if isinstance(logprobs, dict) else None
    # One that was generated, at most: whoever answers that alone did not say the prompt back.
    if values is None or (isinstance(values, list) and len(values) <= 1 < len(tokens)):
        return None
    if not isinstance(values, list) or not len(tokens) <= len(values) <= len(tokens) + 1:
        raise garbage(server, f"log-probabilities that do not fit the {len(tokens):,} tokens of the prompt")
    return (None, *(_possible(float_or_garbage(value, server)) for value in values[1 : len(tokens)]))


def _possible(value: float) -> float:
    return -math.inf if value <= _IMPOSSIBLE else value
