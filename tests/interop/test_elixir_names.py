"""The Elixir client's names of metrics and options against those of our evaluators.

Read as text, so that no Elixir is needed.
"""

import re
from pathlib import Path

import pytest

from crucible_worker.evaluators.registry import EVALUATORS

LIB = Path(__file__).resolve().parents[2] / "elixir_client_example" / "lib" / "crucible_bridge"
BY_OPTION = {
    "score_<reduce>": {"score_mean", "score_sum"},
    "score_<reduce>_stderr": {"score_mean_stderr", "score_sum_stderr"},
}
"""Keys that a choice of few values makes."""


def test_every_bare_key_is_an_atom_there():
    """No atom is made of what a worker says, so that each has to stand in the client's own table."""
    names = _listed("results.ex", "names")

    keys = {key for evaluator in EVALUATORS.values() for key in evaluator.info.keys}
    bare = {key for key in keys if re.fullmatch(r"\w+", key)}.union(
        *(BY_OPTION[key] for key in keys & BY_OPTION.keys())
    )

    assert "accuracy" in bare
    assert bare - names == set()


@pytest.mark.parametrize(
    ("module", "kind"), [("evaluator/comparison.ex", "comparison"), ("evaluator/rl_test_set.ex", "rl_test_set")]
)
def test_every_option_can_be_given_there(module: str, kind: str):
    """Of the evaluators that have a module of their own."""
    assert _listed(module, "options") == set(EVALUATORS[kind].info.options_schema["properties"])


def _listed(module: str, attribute: str) -> set[str]:
    (listed,) = re.findall(rf"@{attribute} ~w\((.*?)\)a", (LIB / module).read_text(), re.DOTALL)
    return set(listed.split())
