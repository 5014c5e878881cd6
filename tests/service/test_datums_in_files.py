"""A tokenized held-out set in a file: what is measured on it is what is measured on the same Datums in a request."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crucible_bridge
from crucible_bridge.types import Datum, Sample
from crucible_worker.config import Settings
from crucible_worker.server import Worker
from tests import needs

EVALUATORS = ("nll", "perplexity", "next_token_accuracy")


def worker_of(root: Path) -> Worker:
    """A worker that reads files of a folder."""
    settings = Settings(port=0, state_dir=root / "state", data_roots=(root,))
    return Worker(settings.validate())


def tokenized(count: int) -> list[dict[str, Any]]:
    """Rows of token ids, with weights of 32 bits that no decimal of a few digits has."""
    draw = np.random.default_rng(7)
    rows = []
    for _ in range(count):
        tokens = draw.integers(0, 12, 9)
        weights = draw.random(8, dtype=np.float32)
        rows.append({"tokens": tokens[:-1].tolist(), "target_tokens": tokens[1:].tolist(), "weights": weights.tolist()})
    return rows


def tinker_line(row: dict[str, Any]) -> str:
    """A row as tinker writes a Datum."""
    count = len(row["tokens"])
    arrays = {
        "target_tokens": {"data": row["target_tokens"], "dtype": "int64", "shape": [count]},
        "weights": {"data": row["weights"], "dtype": "float32", "shape": [count]},
    }
    chunks = [{"tokens": row["tokens"], "type": "encoded_text"}]
    return json.dumps({"model_input": {"chunks": chunks}, "loss_fn_inputs": arrays}) + "\n"


async def test_metrics_of_a_file_are_those_of_the_request(tmp_path: Path) -> None:
    """To the bit, for every evaluator of tokens, from JSON lines and from Parquet."""
    pa = pytest.importorskip("pyarrow", reason=needs.MISSING["pyarrow"])
    pq = pytest.importorskip("pyarrow.parquet", reason=needs.MISSING["pyarrow"])
    given = tokenized(12)
    (tmp_path / "held.jsonl").write_text("".join(map(tinker_line, given)))
    kinds = {"tokens": pa.int64(), "target_tokens": pa.int64(), "weights": pa.float32()}
    columns = {name: pa.array([row[name] for row in given], pa.list_(kind)) for name, kind in kinds.items()}
    pq.write_table(pa.table(columns), tmp_path / "held.parquet")
    inline = [
        Datum(
            model_input=row["tokens"],
            loss_fn_inputs={"target_tokens": row["target_tokens"], "weights": np.array(row["weights"], np.float32)},
        )
        for row in given
    ]

    async with worker_of(tmp_path) as worker, crucible_bridge.connect(worker.address) as bridge:
        found = [
            await bridge.evaluation.evaluate(
                model="embedded:arithmetic@600", evaluators=EVALUATORS, dataset=dataset, sampling=None
            )
            for dataset in (inline, "jsonl:held.jsonl", "parquet:held.parquet")
        ]
        read = [sample async for sample in bridge.evaluation.read_dataset("jsonl:held.jsonl")]

    expected, *others = ((dict(one.metrics.values), one.dataset_fingerprint) for one in found)
    assert {"nll", "perplexity", "next_token_accuracy"} <= expected[0].keys()
    assert others == [expected, expected]
    (first, *_) = read
    assert isinstance(first, Sample)
    assert isinstance(first.input, Datum)
    assert np.asarray(first.input.loss_fn_inputs["weights"]).tolist() == given[0]["weights"]


async def test_a_set_beyond_one_message_is_evaluated_from_its_file(tmp_path: Path) -> None:
    """Rows are spooled: the file may be larger than a message and than what is kept in memory."""
    rows = tokenized(40)
    pad = " " * 2_000_000  # a line of a long sequence, at the price of a short one
    (tmp_path / "held.jsonl").write_text("".join(tinker_line(row)[:-2] + pad + "}\n" for row in rows))
    assert (tmp_path / "held.jsonl").stat().st_size > 64 * 1024**2

    async with worker_of(tmp_path) as worker, crucible_bridge.connect(worker.address) as bridge:
        evaluation = await bridge.evaluation.evaluate(
            model="embedded:arithmetic@600", evaluators=("nll",), dataset="jsonl:held.jsonl", sampling=None
        )

    assert evaluation.metrics.values["nll"] > 0
    assert (evaluation.results[0].n_scored, evaluation.total) == (40, 40)
