"""Evaluations of which the caller has a part: they run as long as the caller stays connected."""

from __future__ import annotations

from crucible_bridge.errors import BridgeError, Code
from crucible_bridge.problems import problem_of
from crucible_bridge.reasons import Reason
from crucible_bridge.types import EvaluateRequest, Evaluation, Problem
from crucible_worker.backends.orchestrator import Caller
from crucible_worker.engine.admission import CALLER_LEFT, Admission
from crucible_worker.engine.controls import Ending
from crucible_worker.engine.engine import Attempt
from crucible_worker.journal import Journal, JournalUnavailable
from crucible_worker.journal.queries import EvaluationRow, evaluation_of, find_by_number
from crucible_worker.journal.store import Owners

__all__ = ["ELSEWHERE_RETRY_SECONDS", "CallerConnection", "connect_caller"]

ELSEWHERE_RETRY_SECONDS = 1.0
"""Seconds after which a caller may retry if its evaluation runs at another worker."""

_TAKEN_OVER = Problem(reason=Reason.TAKEN_OVER, message="another stream of the same evaluation took over")


class CallerConnection:
    """The connection of one caller to an evaluation. Made by `connect_caller`."""

    def __init__(
        self, admission: Admission, journal: Journal, row: EvaluationRow, *, existed: bool, attempt: Attempt | None
    ) -> None:
        self.evaluation = evaluation_of(row)
        """Its state when it was accepted."""
        self.existed = existed
        """Whether the evaluation existed already."""
        self._admission, self._journal, self._row, self._attempt = admission, journal, row, attempt
        self._left: BridgeError | None = None

    def leave(self, error: BridgeError | None = None) -> None:
        """The caller has disconnected: interrupt the evaluation, unless it has ended. The first call counts.

        Args:
            error: the error that `ended` raises then, for a call that still waits.
        """
        if self._attempt is not None and self._left is None:
            self._left = error
            self._attempt.stop(Ending.LEFT, CALLER_LEFT if error is None else problem_of(error))

    async def ended(self) -> Evaluation:
        """Wait for the end of the evaluation.

        Raises:
            BridgeError: it was interrupted: the error of `leave`, TAKEN_OVER, or the worker drains or cannot write.
        """
        row, attempt = self._row, self._attempt
        if attempt is not None:
            await attempt.finished.wait()
            row = await self._journal.read(find_by_number, row.number)
            if attempt.ending is Ending.LEFT and not row.state.terminal:
                raise _named(self._left or _aborted(_TAKEN_OVER), row)
        if row.state.terminal:
            return evaluation_of(row)
        self._admission.refuse_if_unable(row.evaluation_id)
        # The journal may be writable again by now; what interrupted the attempt is reported all the same.
        raise _named(JournalUnavailable("the journal could not be written"), row)


async def connect_caller(
    admission: Admission, journal: Journal, locks: Owners, request: EvaluateRequest, caller: Caller
) -> CallerConnection:
    """Start or resume an evaluation of which its caller has a part.

    An earlier caller at this worker is disconnected first, even if it is still there: the worker cannot distinguish a
    broken stream from an idle one.

    Args:
        admission: this worker's.
        journal: where evaluations are recorded.
        locks: this worker's.
        request: what to run; its id is set.
        caller: the caller.

    Raises:
        BridgeError: it cannot be run; or ABORTED (HELD_ELSEWHERE), as it runs at another worker.
    """
    try:
        while True:
            row, existed = await admission.admit(request, caller=caller)
            attempt = None if row.state.terminal else admission.attempt(row.number)
            if row.state.terminal or (attempt is not None and attempt.caller is caller):
                return CallerConnection(admission, journal, row, existed=existed, attempt=attempt)
            if attempt is not None:
                attempt.stop(Ending.LEFT, _TAKEN_OVER)
                await attempt.finished.wait()
            elif not await locks.looks_free(row.number):
                raise _named(_runs_elsewhere(), row)
    except BaseException:
        admission.release(caller, CALLER_LEFT)
        raise


def _runs_elsewhere() -> BridgeError:
    return BridgeError(
        "the evaluation runs at another worker, to which its caller is connected",
        code=Code.ABORTED,
        reason=Reason.HELD_ELSEWHERE,
        retryable=True,
        retry_after=ELSEWHERE_RETRY_SECONDS,
    )


def _aborted(problem: Problem) -> BridgeError:
    return BridgeError(problem.message, code=Code.ABORTED, reason=problem.reason)


def _named(error: BridgeError, row: EvaluationRow) -> BridgeError:
    error.metadata["evaluation_id"] = row.evaluation_id
    return error
