"""Where a response ends: at the turn of another speaker, or at a token that ends the text.

Some models write on after it, often a question of their own and its answer: "#### 18</s>Question: ...".
"""

from __future__ import annotations

import re

__all__ = ["first_turn"]

# The turn of another speaker, or the end of the text, after which some models write on.
_TURN = re.compile(
    r"<\|(?:im_start|start_header_id|start)\|>\s?(?:user|system|human)\b|<\|(?:user|human|system|endoftext"
    r"|end_of_text)\|>"
    r"|<start_of_turn>\s?user\b|\[INST\]|<\uff5c(?:User|end\u2581of\u2581sentence)\uff5c>"
    r"|<\|(?:im_end|eot_id)\|>(?!\s{0,4}(?:<\|(?:im_start|start_header_id)\|>\s?assistant|\Z))|</s>\s{0,4}(?:<s>"
    r"|\[INST\])|<\|end\|>(?!\s{0,4}(?:<\|(?:start\|>\s?assistant|assistant\|>)|\Z))"
    r"|<end_of_turn>(?!\s{0,4}(?:<start_of_turn>\s?model|\Z))|<eos>"
)
_OF_TURNS = ("<|", "<start_of", "<end_of", "</s>", "<eos>", "<\uff5c")


def first_turn(text: str) -> str:
    """A text up to the turn of another speaker, or the end of the text. All of it, if nothing is before that."""
    if not ("<" in text and any(map(text.__contains__, _OF_TURNS))) and "[INST]" not in text:
        return text
    turn = _TURN.search(text)
    end = len(text) if turn is None else turn.start()
    close = text.find("</s>", 0, end)
    # "<s>13</s> 12" strikes the 13 through.
    if close >= 0 and "<s>" not in text[:close]:
        end = close
    return text[:end] if text[:end].strip() else text
