"""An evaluation that began while servers were asked for answers in completions is not mixed with answers of today.

`tests/cases/journals/version_2_served.sqlite3.gz` is of a worker that recorded nothing of how models are asked. `whole`
has completed there, and `interrupted` was drained after 4 of its 12 results.
"""

import contextlib
import gzip
import sqlite3
from pathlib import Path

import pytest

from crucible_bridge.client import request_of
from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    EvaluateRequest,
    EvaluationState,
    EvaluatorSpec,
    Limits,
    Sample,
    SamplingParams,
)
from crucible_worker.journal.schema import JOURNAL_FILE
from tests import needs
from tests.service.openai_kit import ScriptedServer, answer, refusal, worker_on

needs.modules("aiohttp")

JOURNALS = Path(__file__).parent.parent / "cases" / "journals"
DONE = 4


def _sample(index: int) -> Sample:
    text = f"question {index}"
    asked = Conversation((ChatMessage("user", text),)) if index == 5 else text
    return Sample(id=f"s{index}", input=asked, targets=(text.upper(),))


def _request(evaluation_id: str) -> EvaluateRequest:
    return request_of(
        evaluation_id=evaluation_id,
        run_id="run",
        step=7,
        model="openai:s/org/name",
        evaluators=[EvaluatorSpec(kind="accuracy", options={"grader": "exact_match"})],
        dataset=[_sample(index) for index in range(12)],
        sampling=SamplingParams(max_tokens=32, temperature=1.0, seed=11),
        limits=Limits(concurrency=1),
    )


def _shouting(request):
    return answer(request, request.text.upper()) if request.method == "POST" else refusal(404)


def _asked(server: ScriptedServer) -> list[dict[str, object]]:
    return [{"path": request.path, "body": request.body} for request in server.asked]


@pytest.fixture
def folder(tmp_path):
    """A folder whose state directory has the journal of the release before."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    content = gzip.decompress((JOURNALS / "version_2_served.sqlite3.gz").read_bytes())
    (state / JOURNAL_FILE).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize("settings", [{}, {"renderer": "raw"}])
async def test_what_began_with_completions_is_not_finished_by_other_rules(folder, settings):
    """Nothing is asked for it, and what it has stays readable; what begins now is asked as settings say."""
    async with (
        ScriptedServer(_shouting).serving() as server,
        worker_on(server, folder, **settings) as bridge,
    ):
        with pytest.raises(FailedPrecondition) as refused:
            await bridge.evaluation.evaluate(_request("interrupted"))
        resumed = _asked(server)
        left = await bridge.evaluation.get_evaluation("interrupted")
        whole = await bridge.evaluation.get_evaluation("whole")
        await bridge.evaluation.evaluate(_request("new"))
        fresh = _asked(server)

    assert (refused.value.reason, resumed) == ("RULES_CHANGED", [])
    assert (left.state, left.attempt, left.done, left.rendering) == (EvaluationState.INTERRUPTED, 1, DONE, ())
    assert (whole.state, whole.rules_version) == (EvaluationState.COMPLETED, 1)
    assert {request["path"] for request in fresh} == {"/completions" if settings else "/chat/completions"}


async def test_what_begins_now_is_refused_by_the_release_before(folder):
    """That one compares the model with what it knows: it cannot go on with completions amid a chat."""
    async with ScriptedServer(_shouting).serving() as server, worker_on(server, folder) as bridge:
        await bridge.evaluation.evaluate(_request("new"))
    with contextlib.closing(sqlite3.connect(folder / "state" / JOURNAL_FILE)) as journal:
        kept = dict(journal.execute("SELECT evaluation_id, model_fingerprint FROM evaluations"))
    assert kept["interrupted"] == kept["whole"] != kept["new"]
