"""Where our grader and Math-Verify disagree, by class: the subject of the pair, and the two verdicts.

Classes follow from the pair's form and our method, not from its meaning: they show where to look. `docs/grading.md`
explains them.
"""

from __future__ import annotations

import collections
import json
import re
import sys
from collections.abc import Callable

from _grading_pairs import Pair, baselines, load_pairs, pair_arguments

from crucible_bridge.types import MathPolicy
from crucible_worker.grading.math.judging import Judgement, Question, judge, prove

SHOWN = 3
"""Pairs of a class that `--show` prints."""

# The first that fits either side.
CLASSES: dict[str, Callable[[str], object]] = {
    "no value": re.compile(r"^\s*$|nan|/\s*0(?![.\d])|\{0\}\s*$", re.IGNORECASE).search,
    "matrix": re.compile(r"matrix|\\\\").search,
    "set operation": re.compile(r"\\cup|\\cap|\\setminus|\u222a|\u2229").search,
    "plus-minus": re.compile(r"\\pm|\\mp|±").search,
    "relation": re.compile(r"[<>≤≥]|\\l[et]|\\g[et]|\\neq|\\in(?![a-z])").search,
    "equation": re.compile(r"=").search,
    "interval, tuple or list": re.compile(r",\s*[^\d\s]|,\s|^[\s\\a-z]*[(\[{].*,", re.IGNORECASE).search,
    "degrees": re.compile(r"circ|°|degree").search,
    "percent": re.compile(r"%|percent").search,
    "unit or currency": re.compile(r"\\\$|^\$?\d.*\\(?:text|mathrm)|\d\s*[a-z]{2,}$", re.IGNORECASE).search,
    "base": re.compile(r"\d_\{?\d").search,
    "text": re.compile(r"^\W*(?:\\text\{)?[a-z]{2,}[^\\^]*$", re.IGNORECASE).search,
    "choice": re.compile(r"^\W*(?:\\text\{)?\W*[A-J]\W*$").search,
    "complex numbers": re.compile(r"(?<![a-z\\])i(?![a-z])").search,
    "thousands separator": re.compile(r"\d,\\?!?\d{3}").search,
    "ratio": re.compile(r":").search,
    "decimal": re.compile(r"\d\.\d").search,
    "root or function": re.compile(r"\\(?:sqrt|sin|cos|tan|log|ln|binom|pi)|!").search,
    "variables": re.compile(r"(?<![a-z\\])[a-z](?![a-z])").search,
}
OTHER = "number"


def class_of(pair: Pair) -> str:
    """The subject of the pair."""
    return next((name for name, fits in CLASSES.items() if fits(pair.target) or fits(pair.answer)), OTHER)


def ours(pair: Pair) -> Judgement:
    """Judge like a child of the worker, including the slow path."""
    judgement = judge(Question((pair.target,), pair.answer, MathPolicy()))
    return prove(judgement.pending) if judgement.pending else judgement


def main() -> None:
    """Compare and print a table: for each class, what only one of the two accepts."""
    parser = pair_arguments(__doc__)
    parser.add_argument("--show", action="store_true", help=f"print up to {SHOWN} pairs of each class as JSON lines")
    options = parser.parse_args()
    pairs = load_pairs(options.pairs)
    table: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    shown: dict[tuple[str, str], list[tuple[Pair, Judgement]]] = collections.defaultdict(list)
    with baselines() as others:
        baseline = next((baseline for baseline in others if baseline.name == "math_verify"), None)
        if baseline is None:
            return
        for pair in pairs:
            judgement = ours(pair)
            said = str(judgement.verdict).lower()
            graded = baseline.grade(pair)
            there = {None: "stopped", True: "accepted", False: "refused"}[graded.accepted]
            kind = "" if (said == "correct") == graded.accepted else f"{said}, {there} there"
            name = class_of(pair)
            table[name]["pairs"] += 1
            if kind:
                table[name][kind] += 1
                shown[name, kind].append((pair, judgement))
    _print(table, len(pairs))
    if options.show:
        for (name, kind), found in sorted(shown.items()):
            for pair, judgement in found[:SHOWN]:
                row = {"class": name, "kind": kind, "target": pair.target, "answer": pair.answer}
                print(json.dumps(row | {"method": judgement.method, "reason": judgement.reason}))


def _print(table: dict[str, collections.Counter[str]], count: int) -> None:
    kinds = sorted({kind for row in table.values() for kind in row if kind != "pairs"})
    print(f"{'class':<26}{'pairs':>7}", *(f"{kind:>32}" for kind in kinds))
    for name, row in sorted(table.items(), key=lambda entry: -entry[1]["pairs"]):
        print(f"{name:<26}{row['pairs']:>7}", *(f"{row[kind]:>32}" for kind in kinds))
    disagreements = sum(row[kind] for row in table.values() for kind in kinds)
    print(f"{disagreements:,} of {count:,} pairs are judged differently", file=sys.stderr)


if __name__ == "__main__":
    main()
