"""The transcript of a group of rollouts: observation, answer and reward of each turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crucible_bridge.types import ChatMessage, Conversation, ModelInput, TokensChunk
from crucible_bridge.types import Turn as RecordedTurn
from crucible_worker.evaluators.environments.base import Nothing, Rollout, Turn

__all__ = ["MAX_TRANSCRIPT_BYTES", "transcript_of"]

MAX_TRANSCRIPT_BYTES = 8 * 1024 * 1024
"""Bytes of the texts of a group; later ones are left out, and counted."""


def transcript_of(rollouts: Sequence[Rollout]) -> tuple[tuple[RecordedTurn, ...], int]:
    """The turns of a group, and how many bytes of their texts were left out.

    An observation that repeats everything before it, like a growing conversation, is recorded without that part.
    """
    turns: list[RecordedTurn] = []
    room, left_out = MAX_TRANSCRIPT_BYTES, 0
    for index, rollout in enumerate(rollouts):
        for turn in _turns_of(rollout, index):
            # An upper bound of the bytes: examining all characters would take too long.
            size = 4 * len(turn.text) if not turn.text.isascii() else len(turn.text)
            if size > room:
                left_out += len(turn.text.encode("utf-8", "surrogatepass"))
                continue
            room -= size
            turns.append(turn)
    return tuple(turns), left_out


def _turns_of(rollout: Rollout, index: int) -> Iterator[RecordedTurn]:
    messages: list[tuple[str, str]] = []
    text = ""
    for turn in rollout.transitions:
        seen = None if turn.seen is None else _length(turn.seen)
        given = turn.ob
        if isinstance(given, str):
            yield RecordedTurn(role="user", text=_new_part(text, str(given)), tokens=seen, rollout=index)
            text = str(given) + _text_of(turn)
        elif isinstance(given, Conversation):
            shown = [_plain(message) for message in given.messages]
            new = shown[len(messages) :] if shown[: len(messages)] == messages else shown
            for place, (role, content) in enumerate(new, 1):
                yield RecordedTurn(role=role, text=content, tokens=seen if place == len(new) else None, rollout=index)
            messages = [*shown, ("assistant", _text_of(turn))]
        elif not isinstance(given, Nothing):
            yield RecordedTurn(role="user", text="", tokens=seen, rollout=index)
        yield RecordedTurn(
            role="assistant",
            text=turn.output,
            reward=float(turn.reward),
            tokens=turn.said.output_tokens,
            rollout=index,
            reasoning=turn.said.reasoning,
            refusal=turn.said.refusal,
            tool_calls=turn.said.tool_calls,
        )


def _new_part(before: str, text: str) -> str:
    return text[len(before) :] if before and text.startswith(before) else text


def _text_of(turn: Turn) -> str:
    return turn.ac.text if isinstance(turn.ac.text, str) else ""


def _plain(message: ChatMessage) -> tuple[str, str]:
    # An environment may put anything there; what is not text cannot be sent to a model either.
    role, content = message.role, message.content
    return (str(role) if isinstance(role, str) else "", str(content) if isinstance(content, str) else "")


def _length(seen: ModelInput) -> int:
    return sum(
        len(chunk.tokens) if isinstance(chunk, TokensChunk) else chunk.expected_tokens or 0 for chunk in seen.chunks
    )
