"""Responses with several answers, and targets given back as responses."""

import json
import os
import random
from pathlib import Path

import pytest

from crucible_bridge.types import MathPolicy, Verdict
from crucible_worker.grading.extract import extract, spoken
from crucible_worker.grading.math.grader import whole_of
from crucible_worker.grading.math.judging import Judgement, Question, judge, prove
from tests import needs

# A folder with sets of labelled pairs, `gold` among the fields of each; beside the checkout where nothing else is said.
_DATA = Path(os.environ.get("GRADING_DATA") or Path(__file__).parents[5] / "shared" / "data" / "grading")


def _judged(target: str, response: str) -> Judgement:
    """What the grader of math says of a response, as it and its children do together."""
    answer = extract(response).answer
    judgement = judge(Question((target,), answer, MathPolicy(), whole_of(spoken(response), answer, (target,))))
    return prove(judgement.pending) if judgement.pending else judgement


def test_every_target_is_right_as_a_response() -> None:
    """A target of a labelled set, given back as the whole response, is right."""
    files = sorted(_DATA.glob("*.jsonl"))
    if not files:
        pytest.skip(needs.LABELLED)
    golds = {
        gold: path.name
        for path in files
        for line in path.read_text(encoding="utf-8").splitlines()
        if isinstance(gold := json.loads(line).get("gold"), str)
    }

    wrong = [(name, gold) for gold, name in golds.items() if _judged(gold, gold).verdict is not Verdict.CORRECT]

    assert len(golds) > 2_000
    assert wrong == []


_VALUES = ("8", "4", "-6", "0", "12", "\\frac{1}{2}", "-\\frac{3}{4}", "\\sqrt{2}", "2\\pi", "(1,2)", "(-6,6)", "0.25")
_JOINTS = {
    "boxes": (("\\boxed{", "}"), (", ", " and ", " or ", " ", "\n", "\\quad ")),
    "display": (("$$\\boxed{", "}$$"), ("\n", "\n\n", " ")),
    "formulas": (("$", "$"), (", ", " and ", " or ")),
    "brackets": (("\\(", "\\)"), (", ", " and ", " or ")),
    "lines": (("$$", "$$"), ("\n",)),
    "plain": (("", ""), (", ",)),
}
_AROUND = (("", ""), ("The solutions are ", "."), ("Answer: ", ""), ("We get ", ", and we are done."))


@pytest.mark.long
def test_no_element_equals_its_list() -> None:
    """Of lists, boxes and formulas in any order, each equals the list in any order, and none of its elements."""
    drawn = random.Random(20261123)
    failures: list[tuple[str, str, str]] = []
    for _ in range(5_000):
        values = drawn.sample(_VALUES, drawn.choice((2, 2, 2, 3, 4)))
        target = ", ".join(drawn.sample(values, len(values)))
        form = drawn.choice(list(_JOINTS))
        (opening, closing), joints = _JOINTS[form]
        joint, (before, behind) = drawn.choice(joints), drawn.choice(_AROUND)
        if form in ("plain", "lines", "display"):
            before, behind = ("", "") if form == "plain" else (before and "They are:\n", "")
        response = before + joint.join(f"{opening}{value}{closing}" for value in values) + behind
        if _judged(target, response).verdict is not Verdict.CORRECT:
            failures.append(("not its list", target, response))
        element = drawn.choice(values)
        if _judged(element, response).verdict is not Verdict.INCORRECT:
            failures.append(("its element", element, response))
        alone = f"{before}{opening}{element}{closing}{behind}"
        if _judged(target, alone).verdict is not Verdict.INCORRECT:
            failures.append(("the element for the list", target, alone))

    assert failures == []
