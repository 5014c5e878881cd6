"""What ends an answer to a renderer's prompt."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import ChatMessage
from crucible_worker.backends.base import Tokenizer
from crucible_worker.rendering import role_colon
from crucible_worker.rendering.prompts import render_question
from crucible_worker.rendering.renderers import AUTO, CHAT_TEMPLATE, COOKBOOK, RAW, ROLE_COLONS
from crucible_worker.util.reasoning import opening_of_prompt

__all__ = ["Stops", "ended_by_stop", "find_stops", "takes_template"]

_QUESTION = "question"
_ANSWER = "answer"
"""Contents of the messages by which a template shows what it writes after an answer."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stops:
    """What ends an answer."""

    texts: Sequence[str] = ()
    """Stop sequences of the renderer."""
    tokens: Sequence[int] = ()
    """Those of them that are one token, in the same order."""
    end: str = ""
    """The text of the end-of-sequence token; empty if there is none, or if its text is not known."""
    opening: str = ""
    """What the renderer opens the answer with: the end of a prompt, if it is a tag of reasoning."""


def takes_template(tokenizer: Tokenizer, renderer: str) -> bool:
    """Whether the model's chat template makes the prompt."""
    return renderer == CHAT_TEMPLATE or (renderer == AUTO and tokenizer.has_chat_template)


async def find_stops(tokenizer: Tokenizer | None, renderer: str) -> Stops:
    """Find out what ends an answer.

    A chat template does not say. It is rendered with an answer, and a special token that follows it is what ends one.

    Args:
        tokenizer: the model's; None if the renderer is `raw` or one of `ROLE_COLONS`, and no tokens are wanted.
        renderer: see `renderers.py`.

    Raises:
        FailedPrecondition: the renderer cannot be used with the tokenizer.
    """
    texts: Sequence[str] = (role_colon.STOP,) if renderer in ROLE_COLONS else ()
    if tokenizer is None:
        return Stops(texts=texts)
    opening = ""
    if renderer.startswith(COOKBOOK):
        texts = tuple((await render_question(tokenizer, _QUESTION, renderer)).stop)
    elif takes_template(tokenizer, renderer):
        texts, opening = await _closing(tokenizer), await _opening(tokenizer)
    encoded = await tokenizer.tokenize(texts, add_special_tokens=False) if texts else ()
    end = "" if tokenizer.eos_token_id is None else await tokenizer.show([tokenizer.eos_token_id])
    return Stops(
        texts=texts, tokens=tuple(tokens[0] for tokens in encoded if len(tokens) == 1), end=end, opening=opening
    )


async def ended_by_stop(
    tokenizer: Tokenizer | None, renderer: str, tokens: Sequence[int], stops: Sequence[str]
) -> bool:
    """Whether a stop sequence ended an answer, and not the model's end-of-sequence token alone.

    A token may be both, as with most chat templates; then it is a stop sequence. A model whose server makes the prompt
    by its own chat template ends every answer that is not truncated as that template does.

    Args:
        tokenizer: the model's; None if it is the server's.
        renderer: what made the prompt, see `renderers.py`.
        tokens: what was generated, up to and including what ended it.
        stops: the stop sequences of the renderer, the prompt and the request.

    Raises:
        FailedPrecondition: the server does not say what ended an answer to a plain text (NO_TOKENS); the tokenizer
            cannot decode (NO_TOKENIZER).
    """
    if tokenizer is None:
        if renderer in (RAW, *ROLE_COLONS):
            message = f"whether a stop sequence ended an answer cannot be known of the renderer {renderer!r}"
            raise FailedPrecondition(f"{message}: the model's server gives no tokens", reason=Reason.NO_TOKENS)
        return True
    shown = await tokenizer.show(tokens) or await tokenizer.decode(tokens)
    return any(stop in shown for stop in stops)


async def _closing(tokenizer: Tokenizer) -> tuple[str, ...]:
    """The special token that a chat template writes after an answer, if it writes one."""
    messages = (ChatMessage("user", _QUESTION), ChatMessage("assistant", _ANSWER))
    try:
        text = (await tokenizer.render_chat(messages, generation_prompt=False)).text or ""
    except InvalidField:  # a template of another kind of conversation: only its end-of-sequence token is known
        return ()
    _, found, closing = text.rpartition(_ANSWER)
    (tokens,) = await tokenizer.tokenize([closing.lstrip()], add_special_tokens=False)
    if not found or not tokens or await tokenizer.decode(tokens[:1]):
        return ()
    return (await tokenizer.show(tokens[:1]),)


async def _opening(tokenizer: Tokenizer) -> str:
    """The tag of reasoning with which a prompt ends, if it does."""
    try:
        text = (await tokenizer.render_chat((ChatMessage("user", _QUESTION),), generation_prompt=True)).text or ""
    except InvalidField:
        return ""
    return opening_of_prompt(text)
