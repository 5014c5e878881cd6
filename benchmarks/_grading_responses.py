"""Labelled responses for the grading benchmark: our grader's and the baselines' verdicts on each whole response."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from _grading_pairs import tinker_module

from crucible_bridge.types import GradeItem, Verdict
from crucible_worker.grading.math.grader import MathGrader
from crucible_worker.grading.pool import GradingPool

__all__ = ["Response", "load_responses", "tables"]

_CHILDREN = 2
_LETTERS = tuple("ABCDEFGHIJ")


@dataclasses.dataclass(frozen=True, slots=True)
class Response:
    """A response, what it is graded against, and whether it is right."""

    kind: str
    """The name of the file that it is in."""
    text: str
    """The whole response."""
    target: str
    """The right answer."""
    right: bool
    """The label."""


def load_responses(path: Path) -> list[Response]:
    """Responses of a file, or of all files of a folder: JSON lines with "response", "target" or "gold", and "label"."""
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    return [
        Response(file.stem, row["response"], row["target"] if "target" in row else row["gold"], bool(row["label"]))
        for file in files
        for row in map(json.loads, file.read_text(encoding="utf-8").splitlines())
    ]


def tables(responses: Sequence[Response]) -> tuple[str, Mapping[str, Mapping[str, float]]]:
    """The accuracy of each grader by kind as a Markdown table, and the same figures by name."""
    verdicts = {"ours": asyncio.run(_ours(responses))}
    for name, load in _OTHERS.items():
        try:
            grade = load()
        except ImportError as error:
            print(f"without {name}: {error}; pip install {_INSTALL[name]}", file=sys.stderr)
            continue
        verdicts[name] = [grade(response) for response in responses]
    kinds = dict.fromkeys(response.kind for response in responses)
    rows = [[kind, *_row([each.kind == kind for each in responses], responses, verdicts)] for kind in kinds]
    rows.append(["all", *_row([True] * len(responses), responses, verdicts)])
    head = ["responses", "number", *verdicts]
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines), {name: _figures(responses, said) for name, said in verdicts.items()}


def _row(chosen: Sequence[bool], responses: Sequence[Response], verdicts: Mapping[str, Sequence[bool]]) -> list[str]:
    told = [str(sum(chosen))]
    for said in verdicts.values():
        figures = _figures(
            [response for response, is_chosen in zip(responses, chosen, strict=True) if is_chosen],
            [each for each, is_chosen in zip(said, chosen, strict=True) if is_chosen],
        )
        told.append(f"{figures['accuracy']:.1f} ({figures['false_positives']:.0f})")
    return told


def _figures(responses: Sequence[Response], said: Sequence[bool]) -> dict[str, float]:
    agree = sum(response.right is verdict for response, verdict in zip(responses, said, strict=True))
    accepted = sum(verdict and not response.right for response, verdict in zip(responses, said, strict=True))
    return {"accuracy": 100 * agree / len(responses), "false_positives": accepted, "responses": len(responses)}


async def _ours(responses: Sequence[Response]) -> list[bool]:
    """Graded like GradeMath."""
    pool = GradingPool(_CHILDREN)
    await pool.start()
    try:
        items = [GradeItem(response=response.text, targets=(response.target,)) for response in responses]
        return [grade.verdict is Verdict.CORRECT for grade in await MathGrader(pool).grade_batch(items)]
    finally:
        await pool.aclose()


def _math_verify() -> Callable[[Response], bool]:
    """Its defaults, and its extraction of letters if the target is one."""
    from math_verify import (
        ExprExtractionConfig,
        LatexExtractionConfig,
        StringExtractionConfig,
        parse,
        verify,
    )

    def grade(response: Response) -> bool:
        if response.target in _LETTERS:
            letters = [StringExtractionConfig(strings=_LETTERS), LatexExtractionConfig(), ExprExtractionConfig()]
            return bool(verify(parse(response.target, letters), parse(response.text, letters)))
        return bool(verify(parse(rf"\boxed{{{response.target}}}"), parse(response.text)))

    return grade


def _inspect_ai() -> Callable[[Response], bool]:
    """Its scorer of mathematics, on a state that has the response for output."""
    # By name: it is in an extra environment, not in the type checker's.
    model, scorers, solver = (importlib.import_module(f"inspect_ai.{name}") for name in ("model", "scorer", "solver"))
    scorer = scorers.math()
    loop = asyncio.new_event_loop()

    def grade(response: Response) -> bool:
        output = model.ModelOutput.from_content(model="none/none", content=response.text)
        state = solver.TaskState(
            model=model.ModelName("none/none"),
            sample_id=1,
            epoch=1,
            input="",
            messages=[],
            output=output,
            completed=True,
        )
        try:
            score = loop.run_until_complete(scorer(state, scorers.Target(response.target)))
        except ValueError:  # it cannot read the target
            return False
        return score is not None and score.value == scorers.CORRECT

    return grade


def _tinker_cookbook() -> Callable[[Response], bool]:
    """Like its environment of mathematics: the last box, and nothing without one."""
    module = tinker_module()

    def grade(response: Response) -> bool:
        try:
            return bool(module.grade_answer(module.extract_boxed(response.text), response.target))
        except ValueError:
            return False

    return grade


_OTHERS: Mapping[str, Callable[[], Callable[[Response], bool]]] = {
    "Math-Verify": _math_verify,
    "inspect_ai": _inspect_ai,
    "tinker-cookbook": _tinker_cookbook,
}
_INSTALL = {
    "Math-Verify": "math-verify",
    "inspect_ai": "inspect-ai sympy antlr4-python3-runtime",
    "tinker-cookbook": "tinker-cookbook pylatexenc",
}
