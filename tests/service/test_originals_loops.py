"""What docs/from_tinker_cookbook.md says of the training loops, read in tinker-cookbook's own source.

The loops themselves import more than is installed for tests, so their functions are taken out of their modules.
"""

from __future__ import annotations

import ast
import importlib.util
import types
from pathlib import Path
from typing import Any

from tests import needs
from tests.tables import rows

SPEC = importlib.util.find_spec("tinker_cookbook")

pytestmark = needs.installed("tinker_cookbook")

LOOPS = (
    "supervised/train.py",
    "preference/train_dpo.py",
    "rl/train.py",
    "distillation/sdft.py",
    "distillation/train_off_policy.py",
    "distillation/train_on_policy.py",
)


def source(loop: str) -> ast.Module:
    """A module of theirs, parsed."""
    assert SPEC is not None
    assert SPEC.origin is not None
    return ast.parse((Path(SPEC.origin).parent / loop).read_text())


def prefixes(loop: str) -> set[str]:
    """The constant beginnings of formatted texts that end in a slash and have one more part: f"test/{key}"."""
    texts = [node for node in ast.walk(source(loop)) if isinstance(node, ast.JoinedStr) and len(node.values) == 2]
    firsts = [text.values[0] for text in texts]
    return {str(first.value) for first in firsts if isinstance(first, ast.Constant) and first.value == "test/"}


def conditions(loop: str, name: str) -> list[str]:
    """Every condition of a loop in which a setting decides whether there is an evaluation."""
    tests = [node.test for node in ast.walk(source(loop)) if isinstance(node, ast.If)]
    tests += [node.value for node in ast.walk(source(loop)) if isinstance(node, ast.Return) and node.value is not None]
    found = [ast.unparse(test) for test in tests if isinstance(test, ast.BoolOp)]
    return [test for test in found if f".{name} " in test]


@rows("loop", LOOPS)
def test_only_the_loops_of_distillation_put_test_before_keys(loop: str):
    """Of the others, `test/` is the name of an evaluator."""
    assert prefixes(loop) == ({"test/"} if loop.startswith("distillation/") else set())


@rows("loop", LOOPS)
def test_no_step_is_evaluated_where_the_cadence_is_zero(loop: str):
    """Wherever `eval_every` is read to decide, it must be above 0 first."""
    decisions = [test for test in conditions(loop, "eval_every") if "%" in test]
    assert decisions
    for test in decisions:
        assert "eval_every > 0" in test
        assert test.index("eval_every > 0") < test.index("%")


@rows("loop", LOOPS)
def test_two_loops_evaluate_the_last_step(loop: str):
    """Whether it is divided by the cadence or not."""
    decisions = [test for test in conditions(loop, "eval_every") if "%" in test and "infrequent" not in test]
    lasts = [test for test in decisions if "end_step" in test or "is_final_step" in test]
    assert bool(lasts) is (loop in ("preference/train_dpo.py", "rl/train.py"))


@rows(("every", "step", "due"), [(0, 7, False), (0, 0, False), (5, 7, True), (5, 5, True), (5, 6, False)])
def test_the_rl_loop_decides_as_the_page_says(every: int, step: int, due: bool):
    """Its own function, with 7 as the last step."""
    (function,) = [
        node
        for node in source("rl/train.py").body
        if isinstance(node, ast.FunctionDef) and node.name == "_should_run_evals"
    ]
    for argument in (*function.args.args, *function.args.kwonlyargs):
        argument.annotation = None
    names: dict[str, Any] = {}
    exec(compile(ast.Module([function], []), "rl/train.py", "exec"), names)
    assert names["_should_run_evals"](["one"], types.SimpleNamespace(eval_every=every), step, end_step=7) is due
