"""Answers without content: some judges call a bare "Solution:" right, so such answers never go to a judge."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from crucible_worker.grading.judge.fence import readable

__all__ = ["says_nothing"]

_MAX_CHARS = 2_000  # characters of an answer that may consist only of openings
_OPENINGS = (
    "let us solve this problem step by step",
    "let us solve this step by step",
    "let us think about this step by step",
    "let us think step by step",
    "let us go step by step",
    "let us break it down",
    "let us break this down",
    "let us begin",
    "let us start",
    "let s solve this problem step by step",
    "let s solve this step by step",
    "let s think about this step by step",
    "let s think step by step",
    "let s go step by step",
    "let s break it down",
    "let s break this down",
    "let s begin",
    "let s start",
    "step by step",
    "thought process",
    "thinking process",
    "reasoning process",
    "reasoning",
    "thoughts",
    "thought",
    "analysis",
    "explanation",
    "proof",
    "here is the solution",
    "here is the answer",
    "here is my answer",
    "here s the solution",
    "the solution is",
    "the final answer is",
    "the answer is",
    "the solution",
    "the answer",
    "final solution",
    "final answer",
    "final response",
    "solution",
    "answer",
    "response",
    "assistant",
    "output",
    "result",
    "respuesta final",
    "respuesta",
    "la respuesta es",
    "solución",
    "vamos a resolver este problema paso a paso",
    "paso a paso",
    "réponse",
    "la réponse est",
    "lösung",
    "antwort",
    "die antwort ist",
    "schritt für schritt",
    "resposta",
    "solução",
    "risposta",
    "soluzione",
    "ответ",
    "решение",
    "解",
    "解答",
    "解析",
    "答",
    "答案",
    "答え",
    "思考过程",
    "让我们一步一步地思考",
    "让我们一步一步地解决这个问题",
    "かいせつ",
    "解説",
    "ステップバイステップで考えましょう",
    "풀이",
    "정답",
    "답",
)
"""Words that open an answer and are not an answer: letters and digits alone, case folded. They come from published
attacks on judges ("master keys"), with similar words of other languages and the openings of chat templates."""

# The start of a block of code, with its language, or the end.
_BLOCK = re.compile(r"^[ \t]*+```[ \t]*+\w*+[ \t]*+$", re.MULTILINE)
# Longest first, and never given back: linear in the answer.
_ONLY_OPENINGS = re.compile(f"(?>(?:(?>{'|'.join(sorted(_OPENINGS, key=len, reverse=True))})(?: |$))+)")


def says_nothing(response: str, references: Sequence[str] = ()) -> bool:
    """Whether a response has no content: nothing visible, punctuation alone, or words that only open an answer.

    A response that equals a reference, except for case and white space, has content: "Solution" may be the answer.
    """
    text = readable(response)
    if len(text) > _MAX_CHARS:
        return not any(map(_is_content, text)) and response not in references
    text = unicodedata.normalize("NFC", text)  # only of a short text: many marks on one letter take long
    if any(_folded(text) == _folded(reference) for reference in references):
        return False
    text = _BLOCK.sub("", text)
    if not any(map(_is_content, text)):
        return True
    plain = unicodedata.normalize("NFKC", text).casefold()  # letters may be set in bold, or wide
    words = " ".join("".join(c if c.isalnum() else " " for c in plain).split())
    return _ONLY_OPENINGS.fullmatch(words) is not None


def _is_content(character: str) -> bool:
    # Letters, numbers and symbols ("+", "$"), except those that only change a letter: "^", "`".
    category = unicodedata.category(character)
    return category[0] in "LNS" and category != "Sk"


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())
