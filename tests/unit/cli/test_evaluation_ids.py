"""Ids that are made for evaluations."""

import datetime
import re

from crucible_worker.cli.evaluate import MAX_PART, EvaluateOptions, new_id
from crucible_worker.cli.requests import evaluations_to_run
from tests.tables import rows

NOW = datetime.datetime(2026, 11, 24, 21, 15, 30)


@rows(
    ("model", "made_for", "names"),
    [
        ("embedded:arithmetic@600", "builtin:arithmetic", "arithmetic-600-arithmetic"),
        ("local:run/checkpoint-500", "jsonl:data/sums.jsonl?input=q", "checkpoint-500-sums"),
        ("hub:Qwen/Qwen3-0.6B?revision=main", "hub:openai/gsm8k?split=test", "Qwen3-0.6B-gsm8k"),
        ("tinker://run/weights/7", "csv:sums.csv", "7-sums"),
        ("openai:lab/gpt-4o", "inspect_evals/arc_easy", "gpt-4o-arc_easy"),
        ("", "chat", "chat"),
        ("local:-rf", "jsonl:$(reboot).jsonl", "rf-reboot"),
        ("local:ü", "mine.toml", "mine"),
        ("local:" + "x" * 99, "builtin:a", "x" * MAX_PART + "-a"),
    ],
)
def test_an_id_names_model_data_and_time(model: str, made_for: str, names: str):
    """In characters that a shell leaves alone; four random ones make it unique."""
    first, second = (new_id(model, made_for, NOW) for _ in range(2))

    assert re.fullmatch(rf"{re.escape(names)}-20261124-211530-[2-9a-z]{{4}}", first)
    assert first != second


def test_ids_of_several_models_are_made_of_one():
    """As with --id, so that one id resumes them all; one that would be too long is shortened, and stays distinct."""
    models = (*("embedded:arithmetic@600", "local:" + "x" * 199), "local:" + "x" * 198)
    typed = EvaluateOptions(model=models, data="builtin:arithmetic", evaluator=("nll",), made_id="made")

    first, *long = [each.request.evaluation_id for each in evaluations_to_run(typed)[1]]

    assert first == "made-embedded:arithmetic@600"
    assert len({*long}) == 2
    assert all(re.fullmatch(r"made-[0-9a-f]{16}", each) for each in long)
