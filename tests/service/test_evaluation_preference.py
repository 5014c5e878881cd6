"""Evaluations of preference pairs: rows of a file and of a request, a reference model, and what is refused."""

import json
import math

import pytest

import crucible_bridge
from crucible_bridge.errors import Code
from crucible_bridge.types import EvaluationState, EvaluatorSpec, Sample, Verdict
from crucible_worker.server import Worker
from crucible_worker.testing import ScriptedModel, run_worker
from tests.service.evaluation_kit import asked, refused, samples_of
from tests.service.server_kit import settings_for

PROMPT, CHOSEN, REJECTED = "2+2=", "4", "5"
USER = {"role": "user", "content": PROMPT}
ROWS = [
    {"prompt": PROMPT, "chosen": CHOSEN, "rejected": REJECTED},
    {
        "prompt": [USER],
        "chosen": [{"role": "assistant", "content": CHOSEN}],
        "rejected": [{"role": "assistant", "content": REJECTED}],
    },
    {
        "chosen": [USER, {"role": "assistant", "content": CHOSEN}],
        "rejected": [USER, {"role": "assistant", "content": REJECTED}],
    },
]
"""The same pair in the three shapes of TRL."""


def preference(**options):
    """The evaluator, with these options."""
    return EvaluatorSpec(kind="preference", options=options)


def likes(letter: str, logprob: float) -> ScriptedModel:
    """A model with this log-probability for a letter, and -3 for every other one."""
    return ScriptedModel(
        logprob=lambda token, position: logprob if token == ord(letter) else -3.0, fingerprint=f"likes {letter}"
    )


@pytest.mark.parametrize("row", ROWS, ids=["texts", "answers", "conversations"])
async def test_the_shapes_of_preference_data_need_no_columns(row, tmp_path):
    """A file and rows of a request give the same pair: one of DPO's losses, by hand."""
    (tmp_path / "pairs.jsonl").write_text(json.dumps(row) + "\n")
    spec = preference(reference="embedded:r", beta=0.5)
    async with run_worker({"m": likes("4", -1.0), "r": likes("4", -2.0)}, data_roots=(tmp_path,)) as worker:
        found = [
            (await worker.bridge.evaluation.evaluate(asked(evaluation_id=name, evaluators=[spec], dataset=dataset)))
            for name, dataset in (("file", "jsonl:pairs.jsonl"), ("rows", [row]))
        ]

    for evaluation in found:
        values = evaluation.metrics.values
        assert evaluation.state is EvaluationState.COMPLETED
        # The policy gives the chosen answer 1 nat more than the reference does, and the rejected one as much.
        assert (values["chosen_reward"], values["rejected_reward"], values["margin"]) == (0.5, 0.0, 0.5)
        assert values["dpo_loss"] == pytest.approx(math.log1p(math.exp(-0.5)))
        assert (values["accuracy"], values["accuracy_strict"]) == (1.0, 1.0)


async def test_the_reference_is_a_model_of_the_evaluation():
    """It is opened, loaded and counted; a resumed evaluation needs the same one."""
    policy, reference = likes("4", -1.0), likes("4", -2.0)
    async with run_worker({"m": policy, "r": reference}) as worker:
        evaluation = await worker.bridge.evaluation.evaluate(
            asked(evaluators=[preference(reference="embedded:r")], dataset=ROWS[:1] * 3)
        )
        samples = await samples_of(worker.bridge)
        await refused(
            worker.bridge.evaluation.start_evaluation(
                asked(evaluation_id="none", evaluators=[preference(reference="embedded:absent")], dataset=ROWS[:1] * 3)
            ),
            Code.NOT_FOUND,
            "UNKNOWN_MODEL",
            'evaluators[0].options["reference"]',
        )

    assert [sample.verdict for sample in samples] == [Verdict.CORRECT] * 3
    assert evaluation.model_fingerprint == "likes 4+likes 4"
    assert reference.loads > 0
    assert policy.counts["forward"] == reference.counts["forward"] == 6


async def test_pairs_of_an_embedded_model_are_measured(tmp_path):
    """The trained model prefers right sums to wrong ones, and more than a less trained one does."""
    pairs = [
        Sample(input=f"{a}+{b}=", targets=(str(a + b),), metadata={"rejected": str(a + b + 11)})
        for a, b in ((17, 25), (31, 46), (52, 29), (64, 18))
    ]
    specs = [
        preference(),
        EvaluatorSpec(kind="preference", name="dpo", options={"reference": "embedded:arithmetic@180"}),
    ]
    async with (
        Worker(settings_for(tmp_path)) as worker,
        crucible_bridge.connect(worker.address) as bridge,
    ):
        evaluation = await bridge.evaluation.evaluate(
            asked(model="embedded:arithmetic@600", evaluators=specs, dataset=pairs)
        )

    values = evaluation.metrics.values
    assert values["accuracy"] == values["dpo/accuracy"] == 1.0
    assert values["margin"] > 0
    assert values["dpo/dpo_loss"] < math.log(2)
    assert values["dpo/chosen_reward"] > values["dpo/rejected_reward"]


async def test_a_sample_that_is_no_pair_refuses_the_request():
    """The error names the missing answer."""
    async with run_worker({"m": ScriptedModel()}) as worker:
        await refused(
            worker.bridge.evaluation.start_evaluation(
                asked(evaluators=[preference()], dataset=[Sample(input=PROMPT, metadata={"chosen": CHOSEN})])
            ),
            Code.INVALID_ARGUMENT,
            "INVALID_FIELD",
            'dataset.inline.samples[0].metadata["rejected"]',
        )
