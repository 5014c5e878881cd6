"""What the server of a model refuses in requests, learned from its refusals and never from the name of a model.

OpenAI's reasoning models refuse `max_tokens` and name `max_completion_tokens` in its place, and accept only the default
temperature. The first refused request learns what else is refused while the other refused ones wait: each of them is
sent once more. What was left out of a request is recorded with its evaluation.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from crucible_worker.backends.openai.failures import RefusedParameter

__all__ = ["MAX_MODELS", "MAX_VALUES", "Adjustments", "Dialect", "Dialects"]

MAX_MODELS = 1_024
"""Models of a server whose refusals are remembered; the one that was used least recently is forgotten first."""
MAX_VALUES = 64
"""Refused values of a parameter that are remembered; with more, the next refusal is learned anew."""

_RENAMED: Mapping[str, str] = {"max_tokens": "max_completion_tokens"}
"""Parameters, each with the one that a refusal may name in its place."""
_AT_VALUES = frozenset({"temperature"})
"""Left out at each value that was refused: the server's default takes its place, which changes what is measured."""
_AT_ANY_VALUE = frozenset({"seed"})
"""Left out: answers are drawn alike, and are not repeatable."""
_APPLIED_HERE = frozenset({"stop"})
"""Left out: the worker applies it to every answer itself."""
_NEUTRAL: Mapping[str, float] = {"top_p": 1.0}
"""Left out at this value alone, which changes nothing; another value is what the caller wants, and stays refused."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Adjustments:
    """How a request differs from the one that was wanted."""

    not_applied: frozenset[str] = frozenset()
    """Parameters that were left out."""
    sent_as: frozenset[tuple[str, str]] = frozenset()
    """Parameters that were sent under another name; with an empty name, those that only the worker applies."""


_NONE = Adjustments()
_Send = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class Dialect:
    """What the server of one model refuses, as far as it is known."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._renamed: dict[str, str] = {}
        self._refused: dict[str, set[float]] = {}
        self._learning = asyncio.Lock()

    async def ask(self, body: dict[str, Any], send: _Send) -> tuple[dict[str, Any], Adjustments]:
        """Send a request without what the server refuses; one that it refuses for another parameter is sent again.

        Args:
            body: the request that is wanted.
            send: sends a request, and returns its answer.

        Returns:
            The answer, and how its request differed.

        Raises:
            RefusedParameter: the server refuses a parameter that cannot be left out.
            BridgeError: as `send`.
        """
        while True:
            sent, adjustments = self._adapted(body)
            try:
                return await send(sent), adjustments
            except RefusedParameter as error:
                refusal = error
            async with self._learning:
                # If another request has learned it meanwhile, this one is sent again at once, next to all others.
                while self._adapted(body)[1] == adjustments:
                    if not self._learn(refusal, sent):
                        raise refusal
                    sent, adjustments = self._adapted(body)
                    try:
                        return await send(sent), adjustments
                    except RefusedParameter as error:
                        refusal = error

    def _adapted(self, body: dict[str, Any]) -> tuple[dict[str, Any], Adjustments]:
        """A request without what is refused, and how it differs."""
        if not self._renamed and not self._refused:  # as a rule
            return body, _NONE
        adapted: dict[str, Any] = {}
        not_applied: set[str] = set()
        sent_as: set[tuple[str, str]] = set()
        for name, value in body.items():
            if name in self._renamed:
                adapted[self._renamed[name]] = value
                sent_as.add((name, self._renamed[name]))
            elif not self._refuses(name, value):
                adapted[name] = value
            elif name in _APPLIED_HERE:
                sent_as.add((name, ""))
            else:
                not_applied.add(name)
        return adapted, Adjustments(not_applied=frozenset(not_applied), sent_as=frozenset(sent_as))

    def _refuses(self, name: str, value: Any) -> bool:
        """Whether a parameter at this value is to be left out."""
        if name not in self._refused:
            return False
        return value in self._refused[name] if name in _AT_VALUES else _NEUTRAL.get(name, value) == value

    def _learn(self, refusal: RefusedParameter, sent: Mapping[str, Any]) -> bool:
        """Whether a request that was refused can be sent in another way now."""
        name, value = refusal.parameter, sent.get(refusal.parameter)
        if value is None:
            return False
        if refusal.instead and _RENAMED.get(name) == refusal.instead:
            self._renamed[name] = refusal.instead
            return True
        if name not in _AT_VALUES | _AT_ANY_VALUE | _APPLIED_HERE and _NEUTRAL.get(name) != value:
            return False
        values = self._refused.setdefault(name, set())
        if name in _AT_VALUES:
            if len(values) >= MAX_VALUES:
                values.clear()
            values.add(value)
        return True


class Dialects:
    """The dialects of a server's models."""

    def __init__(self) -> None:
        """Begin with none."""
        self._known: collections.OrderedDict[str, Dialect] = collections.OrderedDict()

    def of(self, model: str) -> Dialect:
        """That of a model, by its name there."""
        dialect = self._known.setdefault(model, Dialect())
        self._known.move_to_end(model)
        if len(self._known) > MAX_MODELS:
            self._known.popitem(last=False)
        return dialect
