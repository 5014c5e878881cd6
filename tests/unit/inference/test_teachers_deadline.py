"""A deadline that is over before a round of questions to teachers: the error says what was awaited."""

import asyncio

from crucible_bridge.types import EmbeddedModel, LogprobsItem, LogprobsRequest, ModelInput, Problem, Teacher
from crucible_worker.inference.batches import BatchBounds
from crucible_worker.inference.model_calls import Backends
from crucible_worker.inference.teachers import _TeacherCalls
from crucible_worker.testing import ScriptedBackend, ScriptedModel
from tests.tables import rows


@rows(
    ("second", "awaited"),
    [
        (False, "the teacher was ready"),
        (True, "the teacher measured the likeliest tokens of the others"),
    ],
)
async def test_the_error_says_what_was_awaited(second: bool, awaited: str):
    """In the second round the teacher is ready, and has measured something."""
    items = (LogprobsItem(prompt=ModelInput.of([1, 2, 3])),)
    request = LogprobsRequest(items=items, teachers=(Teacher.of("embedded:m"),))
    bounds = BatchBounds(concurrency=1, item_seconds=1.0, deadline=asyncio.get_running_loop().time())
    backends: Backends = {EmbeddedModel: ScriptedBackend({"m": ScriptedModel()})}
    asking = _TeacherCalls(backends, request, bounds=bounds, room_bytes=1_000_000)

    ((problem,),) = [parts.values() for parts in await asking.round(items, [[0]], second=second)]

    assert isinstance(problem, Problem)
    assert (problem.reason, problem.field) == ("DEADLINE_EXCEEDED", "limits.deadline_ms")
    assert problem.message.endswith(f"was over before {awaited}")
