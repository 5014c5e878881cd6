"""The grader `sorted`: the words of a response are in order. As the release before had it in its docstrings."""

from collections.abc import Sequence

from crucible_worker.grading.base import Grade, GraderType, Verdict


class Sorted:
    """Judges whether words are in order."""

    async def grade(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> Grade:
        """Judge one response."""
        fine = response.split() == sorted(response.split())
        return Grade(verdict=Verdict.CORRECT if fine else Verdict.INCORRECT, score=float(fine), method="sorted")


SORTED = GraderType(name="sorted", description="The words are in order.", make=lambda options: Sorted())
