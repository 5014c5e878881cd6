"""GradingService: decode, call, encode.

Requests and responses are bytes here: parsing a large batch is a thread's work, as is scoring texts. Mathematics is the
work of the grading pool's processes.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from crucible_bridge.codec import grades as answers
from crucible_bridge.codec import grading as codec
from crucible_bridge.codec.spans import parsed
from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.events import Event
from crucible_bridge.types import Grade, MathGrades
from crucible_bridge.v1 import grading_pb2 as pb
from crucible_worker.grading.math.grader import POLICY_VERSION, MathGrader
from crucible_worker.grading.scorers import scorer_of
from crucible_worker.interceptors.methods import Context
from crucible_worker.runs.run_events import grading_complete
from crucible_worker.services.grading_answers import extracted, finished, noted

__all__ = ["LARGE_REQUEST_BYTES", "SLICE_SECONDS", "THREADS", "GradingService"]

LARGE_REQUEST_BYTES = 16 * 1024
"""Requests from here on are parsed by a thread, which also writes their responses: some hundred items take a while."""

SLICE_SECONDS = 0.05
"""For so long, and for the item begun then, a thread scores or extracts before it looks whether the call still runs and
lets others have their turn."""

THREADS = 2
"""Large calls at work at once, of each kind of work."""

R = TypeVar("R")
T = TypeVar("T")


class GradingService:
    """Graders, over the wire."""

    def __init__(self, note: Callable[[Event], None], math: MathGrader | None, *, max_items: int) -> None:
        """Tell of each call by `note`; refuse batches beyond `max_items`, and math where there is no grader for it."""
        self._note, self._math, self._max_items = note, math, max_items
        # Three lanes: scoring many texts must not keep others' requests from being parsed, nor a short call waiting.
        self._codec = concurrent.futures.ThreadPoolExecutor(THREADS, thread_name_prefix="grading-codec")
        self._short = concurrent.futures.ThreadPoolExecutor(THREADS, thread_name_prefix="grading-short")
        self._long = concurrent.futures.ThreadPoolExecutor(THREADS, thread_name_prefix="grading-long")

    def handler(self) -> grpc.GenericRpcHandler:
        """What a server is given: the generated registration would parse on the event loop."""
        calls = {"GradeMath": self._grade_math, "ExtractAnswer": self._extract_answer, "Score": self._score}
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
        for threads in (self._codec, self._short, self._long):
            threads.shutdown(wait=False, cancel_futures=True)

    async def _grade_math(self, data: bytes, context: Context) -> bytes:
        started = time.perf_counter_ns()
        if self._math is None:
            raise FailedPrecondition("this worker grades no math: --grading-processes is 0", reason="NO_GRADING_POOL")
        request = await self._run(
            data, lambda: codec.grade_math_request_from_v1(self._checked(pb.GradeMathRequest, data, "items"))
        )
        grades = await self._math.grade_batch(request.items, request.policy)
        result = MathGrades(grades=finished(request.items, grades), policy_version=POLICY_VERSION)
        response = await self._run(data, lambda: answers.math_grades_to_v1(result).SerializeToString())
        self._tell("GradeMath", result.grades, started, policy_version=POLICY_VERSION)
        return response

    async def _extract_answer(self, data: bytes, context: Context) -> bytes:
        request = await self._run(
            data,
            lambda: codec.extract_answer_request_from_v1(self._checked(pb.ExtractAnswerRequest, data, "responses")),
        )
        found = await self._sliced(lambda: map(extracted, request.responses))
        if request.replaced:
            found = list(map(noted, found, request.replaced))
        return await self._run(data, lambda: answers.extracted_answers_to_v1(tuple(found)).SerializeToString())

    async def _score(self, data: bytes, context: Context) -> bytes:
        started = time.perf_counter_ns()
        request = await self._run(
            data, lambda: codec.score_request_from_v1(self._checked(pb.ScoreRequest, data, "items"))
        )
        found = await self._sliced(lambda: map(scorer_of(request.options), request.items))
        grades = finished(request.items, found)
        response = await self._run(data, lambda: answers.scores_to_v1(grades).SerializeToString())
        self._tell("Score", grades, started)
        return response

    def _checked(self, message: type[Any], data: bytes, field: str) -> Any:
        """Parse a request whose batch is not too large."""
        request: Message = parsed(message, data)
        count = len(getattr(request, field))
        if count > self._max_items:
            raise InvalidField(field, f"has {count:,}, at most {self._max_items:,} are accepted")
        return request

    async def _run(self, data: bytes, work: Callable[[], T]) -> T:
        """Do a request's parsing or its answer's writing, in a thread where its size says so."""
        if len(data) < LARGE_REQUEST_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._codec, work)

    async def _sliced(self, work: Callable[[], Iterator[R]]) -> list[R]:
        """All that an iterator yields, in a thread and a slice of time at once: a call that has ended is left there.

        The first slice has threads of its own, so that a short call waits for no long one.
        """
        loop, results = asyncio.get_running_loop(), []
        following = await loop.run_in_executor(self._short, _begun, work, results)
        while following is not None:
            following = await loop.run_in_executor(self._long, _slice, following, results)
        return results

    def _tell(self, call: str, grades: Sequence[Grade], started: int, *, policy_version: str | None = None) -> None:
        verdicts = [grade.verdict for grade in grades]
        duration_ns = time.perf_counter_ns() - started
        self._note(grading_complete(call, verdicts, duration_ns, policy_version=policy_version))


def _begun(work: Callable[[], Iterator[R]], results: list[R]) -> Iterator[R] | None:
    return _slice(work(), results)


def _slice(following: Iterator[R], results: list[R]) -> Iterator[R] | None:
    """Add what an iterator yields in a slice of time, at least one; None where that was all."""
    end = time.monotonic() + SLICE_SECONDS
    for result in following:
        results.append(result)
        if time.monotonic() >= end:
            return following
    return None
