"""GradingService: decode, call, encode.

Requests and responses are bytes here: parsing a large batch is a thread's work, as is scoring texts. Mathematics is the
work of the grading pool's processes, and programs are run in sandboxes.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import Message

from crucible_bridge.codec import code as programs
from crucible_bridge.codec import grades as answers
from crucible_bridge.codec import grading as codec
from crucible_bridge.codec.spans import parsed
from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.events import Event
from crucible_bridge.types import Grade, MathGrades
from crucible_bridge.v1 import grading_pb2 as pb
from crucible_worker.grading.code.bubblewrap import none_wanted
from crucible_worker.grading.code.places import Places
from crucible_worker.grading.math.grader import POLICY_VERSION, MathGrader
from crucible_worker.grading.scorers import scorer_of
from crucible_worker.interceptors.methods import Context
from crucible_worker.runs.run_events import grading_complete
from crucible_worker.services.grading_answers import extracted, finished, noted
from crucible_worker.services.grading_lanes import Lanes

if TYPE_CHECKING:
    from crucible_worker.grading.code.grader import CodeGrader

__all__ = ["GradingService"]


class GradingService:
    """Graders, over the wire."""

    def __init__(
        self, note: Callable[[Event], None], math: MathGrader | None, places: Places | None, *, max_items: int
    ) -> None:
        """Tell of each call by `note`; refuse batches beyond `max_items`, and what there is no grader or place for."""
        self._note, self._math, self._places, self._max_items = note, math, places, max_items
        self._code: CodeGrader | None = None
        self._lanes = Lanes()

    def handler(self) -> grpc.GenericRpcHandler:
        """What a server is given: the generated registration would parse on the event loop."""
        calls = {
            "GradeMath": self._grade_math,
            "ExtractAnswer": self._extract_answer,
            "Score": self._score,
            "GradeCode": self._grade_code,
        }
        service = pb.DESCRIPTOR.services_by_name["GradingService"]
        methods = {
            name: grpc.unary_unary_rpc_method_handler(
                calls[name], request_deserializer=bytes, response_serializer=bytes
            )
            for name in service.methods_by_name
        }
        return grpc.method_handlers_generic_handler(service.full_name, methods)

    def close(self) -> None:
        """Let the threads go, once no call is open."""
        self._lanes.close()

    async def _grade_math(self, data: bytes, context: Context) -> bytes:
        started = time.perf_counter_ns()
        if self._math is None:
            raise FailedPrecondition("this worker grades no math: --grading-processes is 0", reason="NO_GRADING_POOL")
        request = await self._lanes.run(
            data, lambda: codec.grade_math_request_from_v1(self._checked(pb.GradeMathRequest, data, "items"))
        )
        grades = await self._math.grade_batch(request.items, request.policy)
        result = MathGrades(grades=finished(request.items, grades), policy_version=POLICY_VERSION)
        response = await self._lanes.run(data, lambda: answers.math_grades_to_v1(result).SerializeToString())
        self._tell("GradeMath", result.grades, started, policy_version=POLICY_VERSION)
        return response

    async def _extract_answer(self, data: bytes, context: Context) -> bytes:
        request = await self._lanes.run(
            data,
            lambda: codec.extract_answer_request_from_v1(self._checked(pb.ExtractAnswerRequest, data, "responses")),
        )
        found = await self._lanes.sliced(lambda: map(extracted, request.responses))
        if request.replaced:
            found = list(map(noted, found, request.replaced))
        return await self._lanes.run(data, lambda: answers.extracted_answers_to_v1(tuple(found)).SerializeToString())

    async def _score(self, data: bytes, context: Context) -> bytes:
        started = time.perf_counter_ns()
        request = await self._lanes.run(
            data, lambda: codec.score_request_from_v1(self._checked(pb.ScoreRequest, data, "items"))
        )
        found = await self._lanes.sliced(lambda: map(scorer_of(request.options), request.items))
        grades = finished(request.items, found)
        response = await self._lanes.run(data, lambda: answers.scores_to_v1(grades).SerializeToString())
        self._tell("Score", grades, started)
        return response

    async def _grade_code(self, data: bytes, context: Context) -> bytes:
        started = time.perf_counter_ns()
        if self._places is None:
            raise none_wanted()
        if self._code is None:
            from crucible_worker.grading.code.grader import CodeGrader  # 20 ms that most workers never spend

            self._code = CodeGrader(self._places)
        request = await self._lanes.run(
            data, lambda: programs.grade_code_request_from_v1(self._checked(pb.GradeCodeRequest, data, "items"))
        )
        found = await self._code.grade_batch(request)
        result = dataclasses.replace(found, grades=finished(request.items, found.grades))
        response = await self._lanes.run(data, lambda: programs.code_grades_to_v1(result).SerializeToString())
        self._tell("GradeCode", result.grades, started)
        return response

    def _checked(self, message: type[Any], data: bytes, field: str) -> Any:
        """Parse a request whose batch is not too large."""
        request: Message = parsed(message, data)
        count = len(getattr(request, field))
        if count > self._max_items:
            raise InvalidField(field, f"has {count:,}, at most {self._max_items:,} are accepted")
        return request

    def _tell(self, call: str, grades: Sequence[Grade], started: int, *, policy_version: str | None = None) -> None:
        verdicts = [grade.verdict for grade in grades]
        duration_ns = time.perf_counter_ns() - started
        self._note(grading_complete(call, verdicts, duration_ns, policy_version=policy_version))
