"""GradingService: decode, call, encode.

Requests and responses are bytes here: a thread parses a large batch, and scores texts. The grading pool's processes
grade mathematics, programs run in sandboxes, and judges are models.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
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
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    CodeItem,
    ExtractedAnswer,
    ExtractedProgram,
    Grade,
    GradeItem,
    MathGrades,
    Problem,
    RubricGrades,
    RubricItem,
)
from crucible_bridge.v1 import grading_pb2 as pb
from crucible_worker.children.lifetime import lower_priority
from crucible_worker.engine.usage import Charge
from crucible_worker.events.run_events import grading_complete
from crucible_worker.grading.base import MAX_TEXT_BYTES, exceeds, excerpt, noted
from crucible_worker.grading.code.extract import NO_PROGRAM, program_of
from crucible_worker.grading.code.sandbox import none_wanted
from crucible_worker.grading.extract import extract
from crucible_worker.grading.fanout.fanout import CHUNK_LEAST, Fanout
from crucible_worker.grading.fanout.graders import ClusterMath, ProgramGrader, programs_on
from crucible_worker.grading.math.grader import POLICY_VERSION, MathGrader
from crucible_worker.grading.pool import no_pool
from crucible_worker.grading.registry import GradingParts
from crucible_worker.grading.scorers import ItemScorer, decides_at_once
from crucible_worker.inference.model_calls import Backends, ask_rubric
from crucible_worker.rpc import registration
from crucible_worker.rpc.byte_budget import WorkBound, counted
from crucible_worker.rpc.calls import Context
from crucible_worker.util.limits import WorkerLimits
from crucible_worker.util.tasks import FewAtOnce

__all__ = ["HEAVY_ITEM", "GradingService", "extracted", "extracted_program", "finished", "judged"]

# Results of graders in the form in which they are sent: short, and with a note about replaced bytes.

_TOO_LONG = Problem(reason=Reason.RESPONSE_TOO_LONG, message=f"the response is longer than {MAX_TEXT_BYTES:,} bytes")


def extracted(response: str) -> ExtractedAnswer:
    """The answer in a response; a problem if the response is too long."""
    if exceeds((response,)):
        return ExtractedAnswer(problem=_TOO_LONG)
    found = extract(response)
    return ExtractedAnswer(answer=found.answer, extraction=found.how, reason=found.reason)


def extracted_program(response: str, names: frozenset[str]) -> ExtractedProgram:
    """The program in a response, which must define one of the names; a problem if the response is too long."""
    if exceeds((response,)):
        return ExtractedProgram(problem=_TOO_LONG)
    program, extraction = program_of(response, names)
    if not program.strip():
        return ExtractedProgram(reason=NO_PROGRAM)
    return ExtractedProgram(program=program, extraction=extraction)


def finished(items: Sequence[GradeItem | CodeItem | RubricItem], grades: Sequence[Grade]) -> tuple[Grade, ...]:
    """Grades in the form in which they are sent, for items in the same order."""
    return tuple(noted(_shortened(grade), item.replaced) for item, grade in zip(items, grades))


def judged(items: Sequence[RubricItem], found: RubricGrades) -> RubricGrades:
    """Results of a judge in the form in which they are sent, for items in the same order."""
    grades = finished(items, [one.grade for one in found.grades])
    whole = tuple(dataclasses.replace(one, grade=grade) for one, grade in zip(found.grades, grades))
    return dataclasses.replace(found, grades=whole)


def _shortened(grade: Grade) -> Grade:
    """A grade with its answer truncated; ExtractAnswer returns the whole answer."""
    told = excerpt(grade.extracted)
    return grade if told is grade.extracted else dataclasses.replace(grade, extracted=told)


# The thread of GradingService: it parses, serializes, scores and extracts what is large.
#
# It is one, whatever the number of cores: a thread needs the interpreter's lock, and the event loop has to wait for all
# threads each time that it asks for it. With five, and slices of 5 ms, a health check waited for up to 0.7 s under the
# mixed load of `benchmarks/overload.py`, seconds after 200 callers had begun; with one, for 14 ms. Its priority is
# lower than that of the event loop: where both wait for one core, refusals took 33 ms at the 99th percentile, now 13.

LARGE_REQUEST_BYTES = 16 * 1024
"""A thread parses requests from this size and serializes their responses: some hundred items take a while."""

SLICE_SECONDS = 0.002
"""Seconds, and the rest of the item begun then, that the thread scores or extracts before it checks whether the call is
still open, and other calls have their turn."""

_SHORT, _LONG = 0, 1

R = TypeVar("R")


class Lanes:
    """Two queues for one thread, which takes from them in turn: a short call is not behind all that long ones wait for.

    Used in one event loop.
    """

    def __init__(self) -> None:
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "grading", lower_priority)
        self._waiting: tuple[_Queue, _Queue] = (collections.deque(), collections.deque())
        self._running, self._last = False, _LONG

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def run(self, data: bytes, work: Callable[[], T]) -> T:
        """Parse a request or serialize its answer, in the thread if the request is large."""
        return work() if len(data) < LARGE_REQUEST_BYTES else await self._in_thread(_SHORT, work)

    async def sliced(self, work: Callable[[], Iterator[R]]) -> list[R]:
        """All that an iterator yields, computed in the thread, slice by slice of time; stops if the call has ended."""
        results: list[R] = []
        following = await self._in_thread(_SHORT, lambda: _slice(work(), results))
        while following is not None:
            following = await self._in_thread(_LONG, functools.partial(_slice, following, results))
        return results

    async def _in_thread(self, lane: int, work: Callable[[], T]) -> T:
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting[lane].append((result, work))
        self._go_on()
        return await result

    def _go_on(self) -> None:
        """Begin what is next, if the thread is idle: of the other queue, if anything waits there."""
        for lane in (1 - self._last, self._last):
            while self._waiting[lane] and not self._running:
                result, work = self._waiting[lane].popleft()
                if not result.done():  # else its call has ended
                    self._running, self._last = True, lane
                    done = asyncio.get_running_loop().run_in_executor(self._thread, work)
                    done.add_done_callback(functools.partial(self._done, result))

    def _done(self, result: asyncio.Future[T], done: asyncio.Future[T]) -> None:
        self._running = False
        if done.cancelled():  # the worker ends
            result.cancel()
            return
        error = done.exception()
        if not result.done():
            if error is None:
                result.set_result(done.result())
            else:
                result.set_exception(error)
        self._go_on()


_Queue = collections.deque[tuple[asyncio.Future[Any], Callable[[], Any]]]


def _slice(following: Iterator[R], results: list[R]) -> Iterator[R] | None:
    """Add what an iterator yields in a slice of time, at least one; returns None if that was all."""
    end = time.monotonic() + SLICE_SECONDS
    for result in following:
        results.append(result)
        if time.monotonic() >= end:
            return following
    return None


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
        parts: GradingParts,
        models: Backends,
        charge: Charge,
        *,
        limits: WorkerLimits,
        fanout: Fanout | None = None,
    ) -> None:
        """Report each call to `note`; refuse calls beyond the limits, and those without their grader or sandbox.

        `parts` are those that graders use; programs run in its places. `charge` counts the usage of judges. Many texts
        are scored on `fanout`, if there is one.
        """
        self._fanout = fanout
        self._note, self._math, self._parts, self._models, self._limits = note, math, parts, models, limits
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
        options = request.options
        if options.grader and not decides_at_once(options.grader):
            # In the thread: a grader that users have installed is imported.
            (scorer,) = await self._lanes.sliced(lambda: iter([ItemScorer(options, self._parts)]))
            found = await asyncio.gather(*map(scorer.grade, request.items))
        elif self._fanout is None or len(request.items) < CHUNK_LEAST:
            found = await self._lanes.sliced(lambda: map(ItemScorer(options), request.items))
        else:
            await self._lanes.run(data, lambda: ItemScorer(options))  # refuses options that cannot be used
            found = await self._fanout.grades("text", request.items, options)
        grades = finished(request.items, found)
        response = await self._lanes.run(data, lambda: answers.scores_to_v1(grades).SerializeToString())
        self._report("Score", grades, started)
        return response

    async def _grade_code(self, data: bytes, context: Context) -> bytes:
        started = time.perf_counter_ns()
        if self._parts.places is None:
            raise none_wanted()
        if self._code is None:
            self._code = programs_on(self._parts.places)
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
