"""GradingService: decode, call, encode.

Requests and responses are bytes here: a thread parses a large batch, and scores texts. The grading pool's processes
grade mathematics, programs run in sandboxes, and judges are models.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from crucible_bridge.codec import code as programs
from crucible_bridge.codec import grades as answers
from crucible_bridge.codec import grading as codec
from crucible_bridge.codec import rubric as rubrics
from crucible_bridge.codec.field_ranges import parsed
from crucible_bridge.errors import InvalidField
from crucible_bridge.events import Event
from crucible_bridge.types import Grade, MathGrades
from crucible_bridge.v1 import grading_pb2 as pb
from crucible_worker.engine.usage import Charge
from crucible_worker.events.run_events import grading_complete
from crucible_worker.grading.code.bubblewrap import none_wanted
from crucible_worker.grading.code.places import Places
from crucible_worker.grading.fanout.fanout import CHUNK_LEAST, Fanout
from crucible_worker.grading.fanout.graders import ClusterMath, ClusterPlaces, ProgramGrader, programs_on
from crucible_worker.grading.math.grader import POLICY_VERSION, MathGrader
from crucible_worker.grading.pool import no_pool
from crucible_worker.grading.scorers import scorer_of
from crucible_worker.inference.model_calls import Backends
from crucible_worker.inference.rubric_calls import ask_rubric
from crucible_worker.rpc import registration
from crucible_worker.rpc.grading_answers import extracted, extracted_program, finished, judged, noted
from crucible_worker.rpc.grading_lanes import LARGE_REQUEST_BYTES, Lanes
from crucible_worker.rpc.methods import Context
from crucible_worker.rpc.work import WorkBound, counted
from crucible_worker.util.limits import WorkerLimits
from crucible_worker.util.turns import FewAtOnce

__all__ = ["HEAVY_ITEM", "GradingService"]

HEAVY_ITEM = 16
"""A program, or a judgement of a model, is as much work as so many answers."""

# A call of so many bytes holds up other large ones for so long at most, a smaller one for less.
_LARGE_BYTES, _LARGE_SECONDS = 64 * 1024, 0.1

T = TypeVar("T")


class GradingService:
    """Graders, over the wire."""

    def __init__(
        self,
        note: Callable[[Event], None],
        math: MathGrader | ClusterMath | None,
        places: Places | ClusterPlaces | None,
        models: Backends,
        charge: Charge,
        *,
        limits: WorkerLimits,
        fanout: Fanout | None = None,
    ) -> None:
        """Report each call to `note`; refuse calls beyond the limits, and those without their grader or sandbox.

        `charge` counts the usage of judges. Many texts are scored on `fanout`, if there is one.
        """
        self._fanout = fanout
        self._note, self._math, self._places, self._models, self._limits = note, math, places, models, limits
        self._charge = charge
        self._code: ProgramGrader | None = None
        self._lanes = Lanes()
        self._large = FewAtOnce(len(os.sched_getaffinity(0)))

    def handler(self) -> grpc.GenericRpcHandler:
        """The handler for a server; threads parse large requests, not the event loop."""
        return registration.registered(
            pb.DESCRIPTOR.services_by_name["GradingService"],
            {
                "GradeMath": self._bounded(self._grade_math, pb.GradeMathRequest),
                "ExtractAnswer": self._bounded(self._extract_answer, pb.ExtractAnswerRequest, "responses"),
                "Score": self._bounded(self._score, pb.ScoreRequest),
                "GradeCode": self._bounded(self._grade_code, pb.GradeCodeRequest, weight=HEAVY_ITEM),
                "ExtractCode": self._bounded(self._extract_code, pb.ExtractCodeRequest, "responses"),
                "GradeRubric": self._bounded(self._grade_rubric, pb.GradeRubricRequest, weight=HEAVY_ITEM),
            },
        )

    def close(self) -> None:
        """End the threads, once no call is open."""
        self._lanes.close()

    def _bounded(
        self, function: Callable[[bytes, Context], Any], message: type[Message], items: str = "items", weight: int = 1
    ) -> registration.Registration:
        """Register a function, with a bound of the work in its calls: they wait for the same children or threads."""

        def register(method: MethodDescriptor) -> grpc.RpcMethodHandler:
            size_of = counted(message, items, weight, self._limits.max_grading_items)
            work = WorkBound(method.name, self._limits.max_grading_work, size_of)
            return registration.over_bytes(paced, work=work)(method)

        async def paced(data: bytes, context: Context) -> bytes:
            if len(data) < LARGE_REQUEST_BYTES:
                return await function(data, context)
            async with self._large.begun(_LARGE_SECONDS * min(1.0, len(data) / _LARGE_BYTES)):
                return await function(data, context)

        return register

    async def _grade_math(self, data: bytes, context: Context) -> bytes:
        started = time.perf_counter_ns()
        if self._math is None:
            raise no_pool()
        request = await self._read(data, pb.GradeMathRequest, codec.grade_math_request_from_v1)
        grades = await self._math.grade_batch(request.items, request.policy)
        result = MathGrades(grades=finished(request.items, grades), policy_version=POLICY_VERSION)
        response = await self._lanes.run(data, lambda: answers.math_grades_to_v1(result).SerializeToString())
        self._report("GradeMath", result.grades, started, policy_version=POLICY_VERSION)
        return response

    async def _extract_answer(self, data: bytes, context: Context) -> bytes:
        request = await self._read(data, pb.ExtractAnswerRequest, codec.extract_answer_request_from_v1, "responses")
        found = await self._lanes.sliced(lambda: map(extracted, request.responses))
        if request.replaced:
            found = list(map(noted, found, request.replaced))
        return await self._lanes.run(data, lambda: answers.extracted_answers_to_v1(tuple(found)).SerializeToString())

    async def _extract_code(self, data: bytes, context: Context) -> bytes:
        request = await self._read(data, pb.ExtractCodeRequest, programs.extract_code_request_from_v1, "responses")
        names = frozenset(request.names)
        found = await self._lanes.sliced(lambda: (extracted_program(text, names) for text in request.responses))
        if request.replaced:
            found = list(map(noted, found, request.replaced))
        return await self._lanes.run(data, lambda: answers.extracted_programs_to_v1(tuple(found)).SerializeToString())

    async def _score(self, data: bytes, context: Context) -> bytes:
        started = time.perf_counter_ns()
        request = await self._read(data, pb.ScoreRequest, codec.score_request_from_v1)
        if self._fanout is None or len(request.items) < CHUNK_LEAST:
            found = await self._lanes.sliced(lambda: map(scorer_of(request.options), request.items))
        else:
            await self._lanes.run(data, lambda: scorer_of(request.options))  # refuses options that cannot be used
            found = await self._fanout.grades("text", request.items, request.options)
        grades = finished(request.items, found)
        response = await self._lanes.run(data, lambda: answers.scores_to_v1(grades).SerializeToString())
        self._report("Score", grades, started)
        return response

    async def _grade_code(self, data: bytes, context: Context) -> bytes:
        started = time.perf_counter_ns()
        if self._places is None:
            raise none_wanted()
        if self._code is None:
            self._code = programs_on(self._places)
        request = await self._read(data, pb.GradeCodeRequest, programs.grade_code_request_from_v1)
        found = await self._code.grade_batch(request)
        result = dataclasses.replace(found, grades=finished(request.items, found.grades))
        response = await self._lanes.run(data, lambda: programs.code_grades_to_v1(result).SerializeToString())
        self._report("GradeCode", result.grades, started)
        return response

    async def _grade_rubric(self, data: bytes, context: Context) -> bytes:
        started, received = time.perf_counter_ns(), asyncio.get_running_loop().time()
        request = await self._read(data, pb.GradeRubricRequest, rubrics.grade_rubric_request_from_v1)
        found = await ask_rubric(self._models, request, limits=self._limits, received=received)
        found = dataclasses.replace(found, usage=self._charge(found.usage, request.judge))
        result, room = judged(request.items, found), self._limits.max_message_bytes
        response = await self._lanes.run(data, lambda: rubrics.rubric_grades_to_v1(result, room).SerializeToString())
        self._report("GradeRubric", [one.grade for one in result.grades], started)
        return response

    async def _read(self, data: bytes, message: type[Any], decode: Callable[[Any], T], items: str = "items") -> T:
        """Parse a request; refuse a batch that is too large."""

        def read() -> T:
            request: Message = parsed(message, data)
            if (count := len(getattr(request, items))) > (most := self._limits.max_grading_items):
                raise InvalidField(items, f"has {count:,}, at most {most:,} are accepted")
            return decode(request)

        return await self._lanes.run(data, read)

    def _report(self, call: str, grades: Sequence[Grade], started: int, *, policy_version: str | None = None) -> None:
        took, verdicts = time.perf_counter_ns() - started, [grade.verdict for grade in grades]
        self._note(grading_complete(call, verdicts, took, policy_version=policy_version))
