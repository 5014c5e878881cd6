"""What graders judge: what models said, with what is right."""

from __future__ import annotations

import dataclasses

from crucible_bridge.types.results import Verdict

__all__ = ["GradeItem", "RubricItem"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GradeItem:
    """A model's response and the right answers. Either `response` or `answer` is given."""

    id: str = ""
    """Echoed."""
    response: str | None = None
    """The whole response; the answer is extracted from it."""
    answer: str | None = None
    """The answer alone."""
    targets: tuple[str, ...] = ()
    """Any of these is right."""
    replaced: int = 0
    """U+FFFD in the text that stand for bytes that were not UTF-8; it travels as bytes, and the worker counts them."""

    @property
    def text(self) -> str:
        """The response or the answer, whichever is given; empty if neither is."""
        return (self.answer if self.response is None else self.response) or ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RubricItem:
    """A response to judge, or two of them to compare."""

    id: str = ""
    """Echoed."""
    question: str = ""
    """The question."""
    response: str
    """What a model answered."""
    references: tuple[str, ...] = ()
    """Right answers, shown to the judge."""
    other: str | None = None
    """Another response to the same question: the two are compared in both orders."""
    prior: Verdict | None = None
    """The verdict of another grader: INCORRECT is final, and no judge is queried."""
    replaced: int = 0
    """U+FFFD that stand for bytes that were not UTF-8; responses travel as bytes, and the worker counts them."""
