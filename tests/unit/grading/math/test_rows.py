r"""Lists over the rows of a formula: lines, wide blanks and environments, with and without delimiters."""

import itertools

import pytest

from crucible_bridge.types import MathPolicy, Verdict
from crucible_worker.grading.extract import extract, spoken
from crucible_worker.grading.math.grader import whole_of
from crucible_worker.grading.math.judging import Question, judge
from tests.tables import rows

# Elements, none of which equals the list: numbers, equations of one name and of two, fractions, amounts.
_VALUES = (
    ("8", "4"),
    ("8", "-4"),
    ("x=8", "x=4"),
    ("x=8", "y=4"),
    ("x = -\\frac{1}{2}", "x = \\frac{3}{4}"),
    ("\\frac{1}{2}", "\\sqrt{2}"),
    ("2\\pi", "0"),
    ("8", "4", "6"),
)
_JOINTS = (
    *("\\\\", " \\\\ ", " \\\\\n", " \\\\[2pt] ", " \\\\ [1ex] ", " \\\\\\\\ ", ", \\\\ ", " \\\\ \\text{or} \\\\ "),
    *(" \\newline ", "\\newline\n", " \\linebreak ", " \\tabularnewline ", " \\cr ", " \\par "),
    *(" \\quad ", "\\qquad ", " \\quad \\quad ", ",\\quad ", "\\quad\\text{and}\\quad ", " \\hspace{1cm} "),
    *("; ", ";", ";\\quad "),
)
# Further joints of equations: a blank between numbers multiplies them.
_JOINTS_OF_EQUATIONS = (" \\; ", " \\ ", "~~")
_ENVIRONMENTS = ("aligned", "align*", "gathered", "gather", "split", "eqnarray*", "equation", "multline")
_DELIMITERS = (("", ""), ("$", "$"), ("$$", "$$"), ("\\[", "\\]"))


def _lists() -> list[tuple[tuple[str, ...], str]]:
    """Elements, with a text that lists them over rows."""
    found = []
    for values in _VALUES:
        joints = _JOINTS + (_JOINTS_OF_EQUATIONS if all("=" in value for value in values) else ())
        found += [(values, joint.join(values)) for joint in joints]
        layouts = itertools.cycle(itertools.product((" \\\\ ", ", \\\\\n", " \\\\\n"), ("", "&")))
        for name, (joint, align) in zip(_ENVIRONMENTS, layouts):
            rows = joint.join(value.replace("=", "&=") if "=" in value else align + value for value in values)
            found.append((values, f"\\begin{{{name}}}\n{rows} \\\\\n\\end{{{name}}}"))
    return found


def _verdict(target: str, answer: str) -> Verdict | None:
    return judge(Question((target,), answer, MathPolicy())).verdict


def _verdict_on(target: str, response: str) -> Verdict | None:
    answer = extract(response).answer
    return judge(Question((target,), answer, MathPolicy(), whole_of(spoken(response), answer, (target,)))).verdict


@pytest.mark.long
@rows(("opening", "closing"), _DELIMITERS)
def test_no_element_equals_the_list_of_its_rows(opening: str, closing: str) -> None:
    """The list equals its elements with commas, and none of them alone: as answer, as target, and in a response."""
    failures: list[tuple[str, str, str]] = []
    for values, lines in _lists():
        listed, plain = opening + lines + closing, ", ".join(values)
        right = [(listed, plain), (plain, listed), (listed, listed)]
        failures += [("not the list", *pair) for pair in right if _verdict(*pair) is not Verdict.CORRECT]
        right = [(plain, listed), (plain, f"The answer is {listed}.")]
        failures += [("not the list in", *pair) for pair in right if _verdict_on(*pair) is not Verdict.CORRECT]
        for value in values:
            wrong = [(value, listed), (listed, value)]
            failures += [("an element", *pair) for pair in wrong if _verdict(*pair) is Verdict.CORRECT]
            wrong += [(value, f"The answer is {listed}."), (listed, f"The answer is {opening}{value}{closing}.")]
            failures += [("an element in", *pair) for pair in wrong if _verdict_on(*pair) is Verdict.CORRECT]

    assert not failures


@rows(
    ("response", "answer"),
    [
        ("$$\\begin{aligned} x &= 2 + 3 \\\\ &= 5 \\end{aligned}$$", "5"),
        ("$$\\begin{aligned} 2x &= 6 \\\\ x &= 3 \\end{aligned}$$", "x = 3"),
        ("\\begin{align*}\n2x &= 6 \\\\\nx &= 3\n\\end{align*}", "x = 3"),
        ("$2x = 6 \\\\ x = 3$", "x = 3"),
        ("$A = \\pi r^2 \\quad = 9\\pi$", "9\\pi"),
        ("$3 + 4 \\\\ = 7$", "7"),
        ("$x = 8 y = 4$", "4"),
    ],
)
def test_the_last_step_of_a_derivation_is_its_answer(response: str, answer: str) -> None:
    """Rows that are steps are no list: what the last one comes to counts."""
    assert extract(response).answer == answer


@rows(
    "formula",
    [
        "f(x) = \\begin{cases} 1 & x = 0 \\\\ 2 & x = 1 \\end{cases}",
        "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}",
        "A = \\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}",
        "\\begin{cases} x + y = 1 \\\\ x - y = 3 \\end{cases}",
    ],
)
def test_rows_of_a_matrix_are_no_list(formula: str) -> None:
    """What has rows of its own is one value, and taken as it is."""
    assert extract(f"So ${formula}$.").answer == formula
