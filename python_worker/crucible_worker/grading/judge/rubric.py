"""The questions to a judge by criteria, and how its answer is read.

A judge answers with a JSON object, `{"<criterion>": {"reason": "...", "score": 7}, ...}`, or for two responses
`{"<criterion>": {"reason": "...", "better": "A"}, ...}`. Other text may precede it, and it may be in a code block. The
object at the end of the answer counts, and must have exactly these keys. Anything else is not a judgement: a score is
never guessed. An object that also occurs in a judged text does not count, because a weak judge repeats what it read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from crucible_bridge.types import CriterionScore, RubricCriterion
from crucible_worker.grading.judge.fence import Fence

__all__ = [
    "MAX_CRITERIA",
    "MAX_JUDGEMENT_CHARS",
    "MAX_REASON_CHARS",
    "BadJudgement",
    "pair_question",
    "preferences_of",
    "question",
    "scores_of",
    "share",
    "weighted",
]

MAX_CRITERIA = 32
"""Criteria of one rubric."""
MAX_JUDGEMENT_CHARS = 65_536
"""Characters of a judge's answer, without its reasoning."""
MAX_REASON_CHARS = 300
"""Characters of a reason in the result."""

_MAX_OBJECTS = 512  # braces that are tried as the beginning of the object: no valid answer has more
_MAX_READ = 16 * MAX_JUDGEMENT_CHARS  # characters that are read for that: objects within objects are read again
_LAYOUT = re.compile(r"[\s|]+")  # may differ when a judge repeats a text: `| ` at the beginning of each line
_PREFERENCES = {"a": 1.0, "tie": 0.5, "b": 0.0}


class BadJudgement(Exception):
    """A judge's answer is not a judgement; the message says why, and continues a sentence about it."""


def question(
    asked: str, response: str, references: Sequence[str], criteria: Sequence[RubricCriterion], fence: Fence
) -> str:
    """The question to a judge about one response."""
    scales = [f", from {_number(criterion.min)} to {_number(criterion.max)}" for criterion in criteria]
    form = {
        criterion.name: f"<number from {_number(criterion.min)} to {_number(criterion.max)}>" for criterion in criteria
    }
    texts = [*_shown(asked, references, fence), fence.text("response", response)]
    opening = "A response is to be judged by criteria, each by itself."
    return _question(opening, texts, criteria, scales, "score", form, fence)


def pair_question(
    asked: str, a: str, b: str, references: Sequence[str], criteria: Sequence[RubricCriterion], fence: Fence
) -> str:
    """The question to a judge about two responses."""
    form = {criterion.name: '"<A, B or tie>"' for criterion in criteria}
    texts = [*_shown(asked, references, fence), fence.text("response A", a), fence.text("response B", b)]
    opening = "Two responses are to be compared by criteria, each by itself: which one is the better?"
    return _question(opening, texts, criteria, [""] * len(criteria), "better", form, fence)


def scores_of(said: str, criteria: Sequence[RubricCriterion], shown: Sequence[str] = ()) -> tuple[CriterionScore, ...]:
    """The scores that a judge gives, within their scales, in the order of the criteria.

    Args:
        said: the judge's answer.
        criteria: the criteria of the question.
        shown: the texts in its prompt: a judgement that occurs in one of them is not the judge's.

    Raises:
        BadJudgement: the answer has no valid scores.
    """
    found: list[CriterionScore] = []
    for criterion, (value, reason) in zip(criteria, _entries(said, criteria, "score", shown)):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadJudgement(f"gives {criterion.name!r} a score that is not a number")
        # A whole number may be too large for a float.
        score = min(max(value, criterion.min), criterion.max)
        found.append(
            CriterionScore(
                name=criterion.name,
                score=float(score) + 0.0,  # turns -0.0 into 0.0
                reason=_short(reason),
                clamped=score != value,
            )
        )
    return tuple(found)


def preferences_of(
    said: str, criteria: Sequence[RubricCriterion], shown: Sequence[str] = ()
) -> tuple[CriterionScore, ...]:
    """Which response a judge prefers by each criterion: 1 for A, 0 for B, 0.5 for a tie; arguments as for `scores_of`.

    Raises:
        BadJudgement: it does not say.
    """
    found: list[CriterionScore] = []
    for criterion, (value, reason) in zip(criteria, _entries(said, criteria, "better", shown)):
        preference = _PREFERENCES.get(value.lower()) if isinstance(value, str) else None
        if preference is None:
            raise BadJudgement(f'says of {criterion.name!r} neither "A" nor "B" nor "tie"')
        found.append(CriterionScore(name=criterion.name, score=preference, reason=_short(reason)))
    return tuple(found)


def share(criterion: RubricCriterion, score: float) -> float:
    """A score as a share of its scale, in [0, 1]."""
    return (score - criterion.min) / (criterion.max - criterion.min)


def weighted(criteria: Sequence[RubricCriterion], shares: Sequence[float]) -> float:
    """The mean of shares by the criteria's weights, in [0, 1]."""
    _, exponent = math.frexp(max(criterion.weight for criterion in criteria))
    # Scaled to at most 1 each, so that no sum is infinite, and by a power of two, so that none is rounded.
    weights = [math.ldexp(criterion.weight, -exponent) for criterion in criteria]
    whole = math.fsum(weight * part for weight, part in zip(weights, shares)) / math.fsum(weights)
    return min(max(whole, 0.0), 1.0)


def _shown(asked: str, references: Sequence[str], fence: Fence) -> list[str]:
    texts = [fence.text("question", asked)] if asked.strip() else []
    for number, reference in enumerate(references, start=1):
        title = "reference answer" if len(references) == 1 else f"reference answer {number}"
        texts.append(fence.text(title, reference))
    return texts


def _question(
    opening: str,
    texts: Sequence[str],
    criteria: Sequence[RubricCriterion],
    scales: Sequence[str],
    key: str,
    form: Mapping[str, str],
    fence: Fence,
) -> str:
    listed = "".join(
        f"- {json.dumps(criterion.name, ensure_ascii=False)}{scale}: {criterion.description}\n"
        for criterion, scale in zip(criteria, scales)
    )
    entries = ", ".join(
        f'{json.dumps(name, ensure_ascii=False)}: {{"reason": "<one short sentence>", "{key}": {value}}}'
        for name, value in form.items()
    )
    return (
        f"{opening}\n{fence.told()}\n\nCriteria:\n{listed}\n{''.join(texts)}{fence.end()}\n"
        f"Answer with one JSON object in this form, with exactly these keys, and nothing behind it:\n{{{entries}}}\n"
    )


def _number(value: float) -> str:
    return f"{value:.15g}"


def _entries(said: str, criteria: Sequence[RubricCriterion], key: str, shown: Sequence[str]) -> list[tuple[Any, str]]:
    """The value of a key for each criterion, with the reason."""
    judged, before, source = _last_object(said)
    if missing := [criterion.name for criterion in criteria if criterion.name not in judged]:
        raise BadJudgement(f"lacks {missing[0]!r}")
    if len(judged) > len(criteria):
        raise BadJudgement("has keys that are not criteria")
    entries: list[tuple[Any, str]] = []
    for criterion in criteria:
        entry = judged[criterion.name]
        if not isinstance(entry, dict) or entry.keys() != {"reason", key} or not isinstance(entry["reason"], str):
            raise BadJudgement(f'has under {criterion.name!r} something other than "reason" and "{key}"')
        entries.append((entry[key], entry["reason"]))
    if _begun(before, criteria):
        raise BadJudgement("follows one that does not end")
    again = _LAYOUT.sub("", source)
    if any("{" in text and again in _LAYOUT.sub("", text) for text in shown):
        raise BadJudgement("occurs in a judged text")
    return entries


def _last_object(said: str) -> tuple[dict[str, Any], str, str]:
    """The JSON object at the end of a text, the text before it, and the object's source."""
    if len(said) > MAX_JUDGEMENT_CHARS:
        raise BadJudgement(f"is longer than {MAX_JUDGEMENT_CHARS:,} characters")
    text = said.rstrip().removesuffix("```").rstrip()
    decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
    start, read = len(text), 0
    # Search backwards: an object inside the last one ends before the text does, so the first match is the whole object.
    for _ in range(_MAX_OBJECTS):
        start = text.rfind("{", 0, start)
        if start < 0 or read > _MAX_READ:
            break
        try:
            found, end = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            read += error.pos - start
            continue
        except (ValueError, RecursionError):  # digits without end, or objects within objects without end
            break
        if end == len(text):
            return found, text[:start], text[start:]
        read += end - start
    raise BadJudgement("does not end with a JSON object")


def _begun(before: str, criteria: Sequence[RubricCriterion]) -> bool:
    """Whether a judgement begins in a text and does not end in it.

    What begins within that one may be a quotation of what is judged, with the judge's own words as its end.
    """
    names = "|".join(re.escape(criterion.name) for criterion in criteria)
    opening = re.compile(rf'\{{\s*"(?:{names})"\s*:')
    decoder = json.JSONDecoder()
    found = opening.search(before)
    while found is not None:
        try:
            _, end = decoder.raw_decode(before, found.start())
        except (ValueError, RecursionError):
            return True
        found = opening.search(before, end)
    return False


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise BadJudgement("has a key twice")
    return found


def _no_constant(name: str) -> Any:
    raise BadJudgement(f"has {name}, which JSON does not allow")


def _short(reason: str) -> str:
    text = " ".join(reason.split())
    return text if len(text) <= MAX_REASON_CHARS else text[: MAX_REASON_CHARS - 3] + "..."
