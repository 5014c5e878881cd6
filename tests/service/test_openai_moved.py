"""Evaluations whose server of one name is at another address than before."""

from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.client import Bridge
from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.types import Evaluation, EvaluationState, JsonlDataset, ModelServer, Sample, SamplingParams
from crucible_worker.reports.as_json import evaluation_as_json
from crucible_worker.reports.facts import facts_of
from tests import needs
from tests.service.openai_kit import ScriptedServer, worker_on

needs.modules("aiohttp")


async def evaluated(bridge: Bridge, **fields: Any) -> Evaluation:
    """Evaluation `e` of one sample."""
    known: dict[str, Any] = {
        "evaluation_id": "e",
        "model": "openai:s/m",
        "evaluators": ["accuracy"],
        "dataset": [Sample(id="1", input="a", targets=("A",))],
        "sampling": SamplingParams(max_tokens=4),
    }
    return await bridge.evaluation.evaluate(**{**known, **fields})


async def test_the_address_is_recorded(tmp_path: Path):
    """An evaluation names the base URL of its server, and that of a judge, in what is read and in JSON."""
    async with ScriptedServer().serving() as server, worker_on(server, tmp_path) as bridge:
        evaluation = await evaluated(bridge)
    assert evaluation.servers == (ModelServer(name="s", addresses=(server.url,)),)
    assert evaluation_as_json(evaluation)["servers"] == [{"name": "s", "addresses": [server.url]}]
    assert facts_of(evaluation)["server s"] == server.url


async def test_a_result_of_another_address_is_not_given(tmp_path: Path):
    """The id of a completed evaluation is refused if its server is elsewhere; the old address still gets the result."""
    async with ScriptedServer().serving() as first, ScriptedServer().serving() as second:
        async with worker_on(first, tmp_path) as bridge:
            before = await evaluated(bridge)
        async with worker_on(second, tmp_path) as bridge:
            with pytest.raises(FailedPrecondition) as caught:
                await evaluated(bridge)
            assert (caught.value.reason, caught.value.field) == ("MODEL_CHANGED", "model")
            assert caught.value.metadata["addresses"] == first.url
            assert caught.value.metadata["present_addresses"] == second.url
            assert (await bridge.evaluation.get_evaluation("e")).state is EvaluationState.COMPLETED
        async with worker_on(first, tmp_path) as bridge:
            assert (await evaluated(bridge)).ended_unix_ns == before.ended_unix_ns
    assert not second.asked


async def test_a_server_that_may_move_keeps_its_results(tmp_path: Path):
    """With any_address the operator says that it is the same server, so the result of the old address is given."""
    async with ScriptedServer().serving() as first, ScriptedServer().serving() as second:
        async with worker_on(first, tmp_path) as bridge:
            before = await evaluated(bridge)
        async with worker_on(second, tmp_path, any_address=True) as bridge:
            assert (await evaluated(bridge)).ended_unix_ns == before.ended_unix_ns


@pytest.mark.parametrize("may_move", [False, True])
async def test_the_rest_is_not_run_at_another_address(tmp_path: Path, may_move: bool):
    """An interrupted evaluation is neither resumed by a call nor taken over there; with any_address it says so."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"id": "{number}", "input": "a", "target": "A"}}\n' for number in range(4)))
    fields: dict[str, Any] = {"dataset": JsonlDataset("rows.jsonl")}
    async with ScriptedServer().serving() as first, ScriptedServer().serving() as second:
        first.answering.clear()
        async with worker_on(first, tmp_path, data_roots=(tmp_path,)) as bridge:
            known: dict[str, Any] = {"model": "openai:s/m", "evaluators": ["accuracy"], "evaluation_id": "e"}
            await bridge.evaluation.start_evaluation(**known, sampling=SamplingParams(max_tokens=4), **fields)
        async with worker_on(second, tmp_path, data_roots=(tmp_path,), any_address=may_move) as bridge:
            if not may_move:
                with pytest.raises(FailedPrecondition) as caught:
                    await evaluated(bridge, **fields)
                assert caught.value.reason == "MODEL_CHANGED"
                assert (await bridge.evaluation.get_evaluation("e")).state is EvaluationState.INTERRUPTED
                assert not second.asked
                return
            evaluation = await evaluated(bridge, **fields)
    assert evaluation.state is EvaluationState.COMPLETED
    assert [server.addresses for server in evaluation.servers] == [(first.url,), (second.url,)]
    assert facts_of(evaluation)["several addresses"].startswith("samples may be of different models")
