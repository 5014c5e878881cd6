"""Questions to a model that is held elsewhere: ids, the window, withdrawals, and what becomes of answers."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition, InvalidField, Unavailable
from crucible_bridge.types import (
    Datum,
    Forwarded,
    LikeliestTokens,
    LogprobsQuestion,
    ModelInput,
    OrchestratorCall,
    OrchestratorModel,
    Problem,
    SampledSequence,
    SamplingParams,
)
from crucible_worker.backends.orchestrator import (
    CallerSession,
    ClosedEpisode,
    OrchestratorBackend,
    PendingQuestion,
    RemoteOrchestratorModel,
    Withdrawn,
)
from tests.tables import rows

PARAMS = SamplingParams(max_tokens=4)
EVERY = frozenset(OrchestratorCall)
SAID = (SampledSequence(text="yes", tokens=(1,)),)


def question(token: int) -> LogprobsQuestion:
    """A question that can be told from others."""
    return LogprobsQuestion(sequence=ModelInput.of([token]))


async def settle() -> None:
    """Let every task go on until it waits."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_answers_may_come_in_any_order():
    """Each answer reaches who asked, by its id."""
    session = CallerSession(4)
    asking = [asyncio.create_task(session.ask(question(index))) for index in range(3)]
    frames = session.frames()
    asked = [await anext(frames) for _ in range(3)]
    numbers = [frame.id for frame in asked]
    for frame in reversed(asked):
        assert isinstance(frame, PendingQuestion)
        assert isinstance(frame.question, LogprobsQuestion)
        session.answer(frame.id, np.array([float(frame.question.sequence.tokens()[0])]))
    answers = await asyncio.gather(*asking)
    assert numbers == [1, 2, 3]
    assert [float(answer[0]) for answer in answers if isinstance(answer, np.ndarray)] == [0.0, 1.0, 2.0]
    await frames.aclose()


async def test_no_more_questions_are_open_than_the_window_holds():
    """What is beyond the window is asked once an answer has made room."""
    session = CallerSession(2)
    asking = [asyncio.create_task(session.ask(question(index))) for index in range(3)]
    frames = session.frames()
    first, second = await anext(frames), await anext(frames)
    third = asyncio.create_task(anext(frames))
    await settle()
    assert not third.done()
    session.answer(first.id, SAID)
    assert (await third).id == 3
    session.answer(second.id, SAID)
    session.answer(3, SAID)
    await asyncio.gather(*asking)
    await frames.aclose()


async def test_a_question_that_is_given_up_is_withdrawn_before_the_next():
    """The window holds at the other end, too: it hears of the withdrawal first."""
    session = CallerSession(1)
    given_up = asyncio.create_task(session.ask(question(1)))
    next_one = asyncio.create_task(session.ask(question(2)))
    frames = session.frames()
    assert (await anext(frames)).id == 1
    given_up.cancel()
    await settle()
    assert await anext(frames) == Withdrawn(1)
    assert (await anext(frames)).id == 2
    session.answer(2, SAID)
    assert await next_one == SAID
    await frames.aclose()


async def test_episodes_have_numbers_of_their_own_and_end_before_the_next_question():
    """The other end hears in order what it need not keep, and a session that is closed tells nothing."""
    session = CallerSession(2)
    numbers = [session.new_episode(), session.new_episode()]
    asking = asyncio.create_task(session.ask(question(1)))
    await settle()
    session.close_episode(2)
    session.close_episode(1)
    frames = session.frames()
    told_first = [await anext(frames) for _ in range(3)]
    session.close()
    session.close_episode(1)
    assert numbers == [1, 2]
    assert told_first[:2] == [ClosedEpisode(2), ClosedEpisode(1)]
    assert told_first[2].id == 1
    assert [frame async for frame in frames] == []
    with pytest.raises(Unavailable):
        await asking


async def test_a_question_that_nobody_has_seen_needs_no_withdrawal():
    """What is given up before it went out is not told at all, and its id is never asked."""
    session = CallerSession(2)
    given_up = asyncio.create_task(session.ask(question(1)))
    stays = asyncio.create_task(session.ask(question(2)))
    await settle()
    given_up.cancel()
    await settle()
    frames = session.frames()
    assert (await anext(frames)).id == 2
    session.answer(2, SAID)
    await stays
    await frames.aclose()


async def test_answers_to_what_is_not_open_are_counted_and_ignored():
    """Unknown, answered, withdrawn and unsent ids change nothing."""
    session = CallerSession(2)
    first = asyncio.create_task(session.ask(question(1)))
    unsent = asyncio.create_task(session.ask(question(2)))
    frames = session.frames()
    await anext(frames)
    for number in (0, 2, 99):
        session.answer(number, SAID)
    session.answer(1, SAID)
    session.answer(1, ())
    assert await first == SAID
    assert session.ignored == 4
    assert not unsent.done()
    unsent.cancel()
    await frames.aclose()


async def test_a_closed_session_fails_whoever_asks():
    """Those that wait, those that wait for room, and those that come later: all learn that nobody is there."""
    session = CallerSession(1)
    asking = [asyncio.create_task(session.ask(question(index))) for index in range(2)]
    await settle()
    session.close()
    session.close()
    results = await asyncio.gather(*asking, return_exceptions=True)
    with pytest.raises(Unavailable):
        await session.ask(question(3))
    assert [type(result) for result in results] == [Unavailable, Unavailable]
    assert [frame async for frame in session.frames()] == []


async def told(call: Any, session: CallerSession, answer: Any) -> Any:
    """Give the one question of a call this answer; what the call returns or raises."""
    task = asyncio.create_task(call)
    frames = session.frames()
    session.answer((await anext(frames)).id, answer)
    await frames.aclose()
    try:
        return await task
    except BridgeError as error:
        return error


DATUM = Datum(model_input=[1, 2], loss_fn_inputs={"target_tokens": [2, 3], "weights": [1.0, 1.0]})


@rows(
    ("call", "answer"),
    [
        (lambda model: model.sample(ModelInput.of([1]), PARAMS), ()),
        (lambda model: model.sample(ModelInput.of([1]), PARAMS), SAID * 2),
        (lambda model: model.sample_text("x", PARAMS), np.zeros(1)),
        (lambda model: model.compute_logprobs(ModelInput.of([1, 2])), SAID),
        (lambda model: model.compute_logprobs(ModelInput.of([1, 2])), np.zeros(2)),
        (lambda model: model.forward([DATUM]), np.zeros(2)),
        (lambda model: model.forward([DATUM]), Forwarded(())),
        (lambda model: model.forward([DATUM]), Forwarded((np.zeros(3),))),
        (lambda model: model.compute_argmax(ModelInput.of([1, 2])), np.zeros(1)),
        (lambda model: model.compute_argmax(ModelInput.of([1, 2])), LikeliestTokens(np.zeros(2, np.int64))),
        (lambda model: model.compute_argmax(ModelInput.of([1, 2])), LikeliestTokens(np.array([-2]))),
    ],
)
async def test_an_answer_that_does_not_fit_is_final(call: Any, answer: Any):
    """Asking again would bring the same: such an answer costs its sample, and no retry."""
    session = CallerSession(1)
    error = await told(call(RemoteOrchestratorModel("m", EVERY, session)), session, answer)
    assert isinstance(error, BackendError)
    assert (error.reason, error.retryable) == ("BACKEND_ANSWER", False)


@pytest.mark.parametrize("retryable", [True, False])
async def test_a_problem_is_an_error_of_the_backend(retryable: bool):
    """The orchestrator says whether asking again may help; its words and its reason are kept."""
    session = CallerSession(1)
    problem = Problem(reason="BUSY", message="come back later", retryable=retryable)
    error = await told(RemoteOrchestratorModel("m", EVERY, session).sample_text("x", PARAMS), session, problem)
    assert isinstance(error, BackendError)
    assert (error.reason, error.message, error.retryable) == ("BUSY", "come back later", retryable)


async def test_answers_that_fit_come_through():
    """Log-probabilities get their first place back; of a datum, only the targets are sent."""
    session = CallerSession(1)
    model = RemoteOrchestratorModel("m", EVERY, session)
    assert await told(model.compute_logprobs(ModelInput.of([1, 2])), session, np.array([-0.5])) == (None, -0.5)
    likeliest = LikeliestTokens(np.array([7, -1], np.int32))
    assert await told(model.compute_argmax(ModelInput.of([1, 2, 3])), session, likeliest) == (None, 7, -1)
    (array,) = await told(model.forward([DATUM]), session, Forwarded((np.array([-1.0, -2.0]),)))
    assert array.tolist() == [-1.0, -2.0]
    task = asyncio.create_task(model.forward([DATUM]))
    frames = session.frames()
    asked = await anext(frames)
    assert isinstance(asked, PendingQuestion)
    assert list(asked.question.data[0].loss_fn_inputs) == ["target_tokens"]  # pyright: ignore[reportAttributeAccessIssue]
    task.cancel()
    await frames.aclose()


async def test_a_model_is_asked_only_for_what_it_can():
    """Which sides it has follows from its calls, and what is missing is MISSING_CLIENT without a question."""
    session = CallerSession(1)
    only_logprobs = RemoteOrchestratorModel("m", frozenset({OrchestratorCall.LOGPROBS}), session)
    assert only_logprobs.sampling is only_logprobs
    assert only_logprobs.training is None
    with pytest.raises(FailedPrecondition) as caught:
        await only_logprobs.sample_text("x", PARAMS)
    assert caught.value.reason == "MISSING_CLIENT"
    with pytest.raises(FailedPrecondition, match="argmax") as caught:
        await only_logprobs.compute_argmax(ModelInput.of([1]))
    assert caught.value.reason == "MISSING_CLIENT"
    only_forward = RemoteOrchestratorModel("m", frozenset({OrchestratorCall.FORWARD}), session)
    assert (only_forward.sampling, only_forward.training) == (None, only_forward)


async def test_input_that_can_never_work_is_refused_here():
    """An empty prompt, and a datum without targets, are not asked at all."""
    model = RemoteOrchestratorModel("m", EVERY, CallerSession(1))
    with pytest.raises(InvalidField, match=r"^prompt"):
        await model.compute_logprobs(ModelInput.of([]))
    with pytest.raises(InvalidField, match=r"^prompt"):
        await model.compute_argmax(ModelInput.of([]))
    with pytest.raises(InvalidField, match=r"^data\[0\]"):
        await model.forward([Datum(model_input=[1], loss_fn_inputs={})])


def test_name_and_calls_are_what_a_model_is_known_by():
    """The same name and calls are the same model, on any stream."""
    here = RemoteOrchestratorModel("m", EVERY, CallerSession(1)).fingerprint
    assert RemoteOrchestratorModel("m", EVERY, CallerSession(9)).fingerprint == here
    assert RemoteOrchestratorModel("n", EVERY, CallerSession(1)).fingerprint != here
    assert RemoteOrchestratorModel("m", frozenset({OrchestratorCall.SAMPLE}), CallerSession(1)).fingerprint != here


async def test_the_backend_names_the_call_that_reaches_such_a_model():
    """Any other call is refused with the name of the right one."""
    backend = OrchestratorBackend()
    with pytest.raises(FailedPrecondition, match="EvaluateWithOrchestratorModel") as caught:
        await backend.open(OrchestratorModel("m"))
    assert (caught.value.reason, caught.value.field) == ("HELD_BY_ORCHESTRATOR", "model")
    assert (backend.info().name, backend.info().unavailable) == ("orchestrator", "")
