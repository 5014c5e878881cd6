"""How an attempt begins: which worker owns its evaluation, and what that consists of. Each is one transaction.

An evaluation may be claimed before its data set was read. The first attempt that reads it then writes what the
evaluation consists of, and START waits for that; see `lifecycle.open_log`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence

from crucible_bridge.errors import AlreadyExists, FailedPrecondition, InternalError
from crucible_bridge.reasons import Reason
from crucible_bridge.types import EvaluateRequest, EvaluationState, ModelServer, Verdict
from crucible_worker.backends.endpoints import ServerPlace
from crucible_worker.engine import budgets, controls
from crucible_worker.engine.specification import differing_fields
from crucible_worker.events import run_events
from crucible_worker.history import lifecycle, resumptions
from crucible_worker.history.rules import Graders, graders_named, other_rules, record_rules, refuse_other_rules
from crucible_worker.journal import Journal, Transaction
from crucible_worker.journal.queries import EvaluationRow, Reads, find, find_by_number, find_rendering
from crucible_worker.journal.records import (
    Renderings,
    apart_to_record,
    renderings_to_record,
    request_from_record,
    request_to_record,
    result_from_record,
)
from crucible_worker.journal.store import Owners
from crucible_worker.util.fingerprints import same

__all__ = [
    "Claim",
    "Contents",
    "EvaluationOwners",
    "claim",
    "complete_model",
    "fails_for_now",
    "prepared",
    "refuse_other_contents",
    "refuse_other_servers",
    "refuse_other_specification",
]

# Which worker owns an evaluation.
#
# Workers of an earlier release with `--share-work` may run parts of one whose owner is gone. It is free once none of
# them lives any more: they are recorded in the table `parts`.


class EvaluationOwners:
    """What one worker owns of evaluations; see `crucible_worker.journal.store.Owners`."""

    def __init__(self, journal: Journal) -> None:
        """Own nothing yet."""
        self._owners, self._parts = journal.owners("owners"), journal.owners("parts")
        self._journal = journal

    def acquire(self, number: int, transaction: Transaction) -> bool:
        """Become the owner, inside a transaction; False if the evaluation is another worker's."""
        return self._has_no_parts(number, transaction) and self._owners.acquire(number, transaction)

    def is_free(self, number: int, transaction: Transaction) -> bool:
        """Whether no worker has the evaluation, inside a transaction."""
        return self._owners.is_free(number, transaction) and self._has_no_parts(number, transaction)

    async def take(self, number: int) -> bool:
        """As `acquire`, on the loop and outside of a transaction."""
        return await self._journal.submit(lambda transaction: self.acquire(number, transaction))

    async def looks_free(self, number: int) -> bool:
        """Whether no worker seems to have the evaluation, on the loop."""
        if not await self._owners.looks_free(number):
            return False
        for part in await self._journal.read(_one_of_each_holder, number):
            if not await self._parts.looks_free(part):
                return False
        return True

    def check(self, number: int, transaction: Transaction) -> None:
        """Refuse to write for an owner that is none any more; see `Owners.check`."""
        self._owners.check(number, transaction)

    async def confirm(self, number: int) -> None:
        """Refuse what an owner that is none any more would change elsewhere; see `Owners.confirm`."""
        await self._owners.confirm(number)

    def release(self, number: int) -> None:
        """Be no longer the owner; does nothing if this worker is not."""
        self._owners.release(number)

    def release_in(self, transaction: Transaction, number: int) -> None:
        """Be no longer the owner from the commit of a transaction on."""
        self._owners.release_in(transaction, number)

    def close(self) -> None:
        """Own nothing any more."""
        self._owners.close()
        self._parts.close()

    def _has_no_parts(self, number: int, transaction: Transaction) -> bool:
        return all(self._parts.is_free(part, transaction) for part in _one_of_each_holder(transaction, number))


def _one_of_each_holder(source: Reads, number: int) -> Sequence[int]:
    """A part of each worker that has some: they live and die together."""
    sql = "SELECT MIN(part) FROM parts WHERE number = ? AND holder IS NOT NULL GROUP BY holder"
    return [part for (part,) in source.execute(sql, (number,)).fetchall()]


MAX_NAMED_FIELDS = 4
"""Most fields that the refusal of another specification names."""
MAX_SERVERS = 64
"""Most places of servers that an evaluation records; those of further attempts are left out."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What an evaluation consists of, as far as its later attempts must find the same."""

    dataset_fingerprint: str
    """Fingerprint of the samples."""
    model_fingerprint: str
    """Fingerprints of the checkpoint and of the judges' checkpoints."""
    total: int
    """Number of runs of samples."""
    examples_fingerprint: str = ""
    """Fingerprint of the examples that prompts show."""
    served_fingerprint: str = ""
    """The `model_fingerprint` that evaluations without a recorded rendering have; the same one if empty."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The outcome of a claim."""

    row: EvaluationRow
    """Its current state."""
    existed: bool
    """Whether the evaluation existed already."""
    owned: bool
    """This worker is its owner from now on."""


def claim(
    transaction: Transaction,
    locks: Owners,
    request: EvaluateRequest,
    *,
    fingerprint: str,
    contents: Contents | None,
    worker_id: str,
    graders: Graders | None = None,
    places: Sequence[ServerPlace] = (),
    again: bool = True,
    by_itself: bool = False,
) -> Claim:
    """Become the owner of an evaluation that is new, interrupted or to be run again; else return its current state.

    Args:
        transaction: the transaction.
        locks: this worker's.
        request: what to run.
        fingerprint: of its specification.
        contents: what it consists of; None if that is not known yet: `prepared` writes it later.
        worker_id: this worker's.
        graders: present versions of the graders of its evaluators; those of built-in ones if None.
        places: where the servers of its models are here.
        again: whether to run one again that has failed; see `fails_for_now`.
        by_itself: whether no call asks for it.

    Raises:
        AlreadyExists: the id belongs to another specification.
        FailedPrecondition: the data set, the checkpoint or the address of a server is no longer what it was at the
            start, or other rules have begun it.
    """
    if graders is None:
        graders = graders_named(request)
    row = find(transaction, request.evaluation_id)
    if row is None:
        return _create(transaction, locks, request, fingerprint, contents, worker_id, graders, places)
    refuse_other_specification(row, request, fingerprint)
    if lifecycle.reap(transaction, locks, row.number):
        row = find_by_number(transaction, row.number)
    ended = row.state.terminal and not (again and fails_for_now(row))
    if ended or not locks.acquire(row.number, transaction):
        return Claim(row=row, existed=True, owned=False)
    transaction.if_undone(lambda: locks.release(row.number))
    refuse_other_rules(row, graders)
    if contents is not None:
        _record_contents(transaction, row, contents)
    _record_places(transaction, row, places)
    if not by_itself:
        resumptions.forget(transaction, row.number)
    return Claim(row=_take_over(transaction, row, request, worker_id, graders), existed=True, owned=True)


def fails_for_now(row: EvaluationRow) -> bool:
    """Whether an evaluation has failed in a way that another attempt may mend: for a while, or before any score.

    None can if other rules have begun it, or its `deadline_ms` is used up: its results stand.
    """
    if row.state is not EvaluationState.FAILED or other_rules(row):
        return False
    deadline_ms = request_from_record(row.request).limits.deadline_ms
    if deadline_ms is not None and (row.past_active_ns + row.active_ns) / 1e6 >= deadline_ms:
        return False
    problem = None if row.result is None else result_from_record(row.result, row.apart).problem
    return row.done == row.unscored or (problem is not None and problem.retryable)


def prepared(transaction: Transaction, number: int, contents: Contents, worker_id: str) -> EvaluationRow:
    """Write what an evaluation that was claimed without contents consists of, and START if it is not written yet.

    Raises:
        FailedPrecondition: an earlier attempt found another data set or checkpoint.
    """
    _record_contents(transaction, find_by_number(transaction, number), contents)
    lifecycle.open_log(transaction, number, worker_id)
    return find_by_number(transaction, number)


def refuse_other_contents(source: Reads, row: EvaluationRow, contents: Contents) -> None:
    """Refuse what is not what the evaluation consists of; its contents are known.

    Raises:
        FailedPrecondition: another data set or checkpoint.
    """
    rendering = find_rendering(source, row.number)
    examples = "" if rendering is None else rendering.examples_fingerprint
    model = _model_of(contents, recorded=rendering is not None)
    if contents.dataset_fingerprint != row.dataset_fingerprint:
        raise _changed(Reason.DATASET_CHANGED, "data set", row.dataset_fingerprint, contents.dataset_fingerprint)
    _refuse_other_model(row.model_fingerprint, model)
    if contents.examples_fingerprint != examples:
        raise _changed(Reason.DATASET_CHANGED, "prompt's source of examples", examples, contents.examples_fingerprint)


def refuse_other_servers(recorded: Sequence[ModelServer], places: Iterable[ServerPlace]) -> None:
    """Refuse a server that is not where an evaluation has found it: its name alone does not tell which model it has.

    Replicas are one server, so one common address is enough. Nothing is refused of a server whose operator says that it
    is the same everywhere, nor of one whose address is not recorded.

    Args:
        recorded: by the attempts before.
        places: of the present servers.

    Raises:
        FailedPrecondition: one is at another address (MODEL_CHANGED).
    """
    for place in places:
        before = [address for server in recorded if server.name == place.name for address in server.addresses]
        if not before or place.movable or not set(before).isdisjoint(place.addresses):
            continue
        was, now = ", ".join(dict.fromkeys(before)), ", ".join(place.addresses)
        raise FailedPrecondition(
            f"is of server {place.name!r}, which was at {was} when the evaluation was run, and is at {now} here, where "
            "another model may be: take another id, or the address that it had; if it is the same server at another "
            f"address, say so by any_address = true in the table openai_servers.{place.name} of the file of --config",
            reason=Reason.MODEL_CHANGED,
            field="model",
            metadata={"server": place.name, "addresses": was, "present_addresses": now},
        )


def complete_model(transaction: Transaction, number: int, found: str) -> None:
    """Record the digests of an evaluation's models that were found after its start.

    One that an earlier attempt recorded, and that this one could not find, is not that of all samples: it goes.

    Args:
        transaction: the transaction.
        number: of the evaluation.
        found: the fingerprint with these digests.

    Raises:
        FailedPrecondition: an earlier attempt found others (MODEL_CHANGED).
    """
    _refuse_other_model(find_by_number(transaction, number).model_fingerprint, found)
    transaction.execute("UPDATE evaluations SET model_fingerprint = ? WHERE number = ?", (found, number))


def refuse_other_specification(row: EvaluationRow, request: EvaluateRequest, fingerprint: str) -> None:
    """Raise AlreadyExists if the evaluation of this id has another specification; the error names what differs."""
    if row.fingerprint == fingerprint:
        return
    wanted = request_from_record(request_to_record(request), apart_to_record(request))
    fields = differing_fields(request_from_record(row.request, row.apart), wanted)
    differs = ", ".join(fields[:MAX_NAMED_FIELDS]) + (", ..." if len(fields) > MAX_NAMED_FIELDS else "")
    raise AlreadyExists(
        f"{row.evaluation_id!r} is that of an evaluation with other settings, in {differs}: take another id for these, "
        "or the settings that it was started with",
        reason=Reason.OTHER_SPECIFICATION,
        field="evaluation_id",
        metadata={"fingerprint": row.fingerprint, "requested_fingerprint": fingerprint, "differs": differs},
    )


def _create(
    transaction: Transaction,
    locks: Owners,
    request: EvaluateRequest,
    fingerprint: str,
    contents: Contents | None,
    worker_id: str,
    graders: Graders,
    places: Sequence[ServerPlace],
) -> Claim:
    (number,) = transaction.execute(
        """INSERT INTO evaluations (evaluation_id, run_id, step, state, fingerprint, dataset_fingerprint,
           model_fingerprint, request, correlation_id, attempt, total, created_ns)
           VALUES (?, ?, ?, ?, ?, '', '', ?, ?, 1, 0, ?) RETURNING number""",
        (
            request.evaluation_id,
            request.run_id,
            request.step,
            EvaluationState.QUEUED,
            fingerprint,
            request_to_record(request),
            request.correlation_id,
            time.time_ns(),
        ),
    ).fetchone()
    if not locks.acquire(number, transaction):
        raise InternalError(f"the owner lock of the new evaluation {number} is taken")
    transaction.if_undone(lambda: locks.release(number))
    _record_large_parts(transaction, number, request)
    _record_rendering(transaction, number, Renderings(servers=tuple(map(_server_at, places))))
    record_rules(transaction, number, 1, graders)
    budgets.create(transaction, number, request.run_id, budgets.bounds_of(request.limits))
    row = (
        find_by_number(transaction, number) if contents is None else prepared(transaction, number, contents, worker_id)
    )
    return Claim(row=row, existed=False, owned=True)


def _record_contents(transaction: Transaction, row: EvaluationRow, contents: Contents) -> None:
    """Write what an evaluation consists of, or compare it with what is written already."""
    if row.contents_known:
        refuse_other_contents(transaction, row, contents)
        return
    model = _model_of(contents, recorded=find_rendering(transaction, row.number) is not None)
    transaction.execute(
        "UPDATE evaluations SET dataset_fingerprint = ?, model_fingerprint = ?, total = ? WHERE number = ?",
        (contents.dataset_fingerprint, model, contents.total, row.number),
    )
    if contents.examples_fingerprint:
        kept = find_rendering(transaction, row.number) or Renderings()
        kept = dataclasses.replace(kept, examples_fingerprint=contents.examples_fingerprint)
        _record_rendering(transaction, row.number, kept)


def _record_places(transaction: Transaction, row: EvaluationRow, places: Sequence[ServerPlace]) -> None:
    """Compare where the servers are with what the attempts before recorded, and record what is new."""
    kept = find_rendering(transaction, row.number)
    if kept is None or not kept.servers:  # an earlier release began it, and recorded no address
        return
    refuse_other_servers(kept.servers, places)
    new = [server for server in map(_server_at, places) if server not in kept.servers]
    if new and len(kept.servers) + len(new) <= MAX_SERVERS:
        _record_rendering(transaction, row.number, dataclasses.replace(kept, servers=(*kept.servers, *new)))


def _server_at(place: ServerPlace) -> ModelServer:
    return ModelServer(name=place.name, addresses=place.addresses)


def _model_of(contents: Contents, *, recorded: bool) -> str:
    """The model's fingerprint in the form of evaluations with a recorded rendering, or of those without."""
    model = contents.model_fingerprint if recorded else contents.served_fingerprint
    return model or contents.model_fingerprint


def _record_rendering(transaction: Transaction, number: int, renderings: Renderings) -> None:
    """Record how models are prompted, as far as that is known."""
    record = renderings_to_record(renderings)
    transaction.execute("INSERT OR REPLACE INTO evaluation_renderings VALUES (?, ?)", (number, record))


def _record_large_parts(transaction: Transaction, number: int, request: EvaluateRequest) -> None:
    """Record what is too large for the evaluation's row, which is written with each batch of samples."""
    if (record := apart_to_record(request)) is not None:
        transaction.execute("INSERT OR REPLACE INTO requests_apart VALUES (?, ?)", (number, record))
    else:
        transaction.execute("DELETE FROM requests_apart WHERE number = ?", (number,))


def _take_over(
    transaction: Transaction, row: EvaluationRow, request: EvaluateRequest, worker_id: str, graders: Graders
) -> EvaluationRow:
    record_rules(transaction, row.number, row.attempt + 1, graders)
    controls.clear_waits(transaction, row.number)
    if row.state.terminal:
        lifecycle.undo_end(transaction, row)
    first = request_from_record(row.request, row.apart)
    _record_large_parts(
        transaction, row.number, dataclasses.replace(first, record=request.record, log_to=request.log_to)
    )
    limits = dataclasses.replace(request.limits, deadline_ms=first.limits.deadline_ms)
    transaction.execute(
        """UPDATE evaluations SET state = ?, attempt = attempt + 1, request = ?, interrupted_ns = 0,
           past_active_ns = past_active_ns + active_ns, active_ns = 0,
           done = (SELECT COUNT(*) FROM samples WHERE samples.number = evaluations.number AND (retryable = 0
                   OR evaluator IN (SELECT evaluator FROM evaluator_spans AS spans
                                    WHERE spans.number = evaluations.number AND result IS NOT NULL))),
           unscored = (SELECT COUNT(*) FROM samples WHERE samples.number = evaluations.number AND (retryable = 0
                       OR evaluator IN (SELECT evaluator FROM evaluator_spans AS spans
                                        WHERE spans.number = evaluations.number AND result IS NOT NULL))
                       AND verdict IN (?, ?))
           WHERE number = ?""",
        (
            EvaluationState.QUEUED,
            request_to_record(dataclasses.replace(first, limits=limits)),
            Verdict.UNDECIDED,
            Verdict.ERROR,
            row.number,
        ),
    )
    row = find_by_number(transaction, row.number)
    lifecycle.append(transaction, row.number, (run_events.resume(row, worker_id),))
    return find_by_number(transaction, row.number)


def _refuse_other_model(recorded: str, found: str) -> None:
    match same(recorded, found):
        case False:
            raise _changed(Reason.MODEL_CHANGED, "checkpoint", recorded, found)
        case None:
            raise FailedPrecondition(
                "may not be what it was when the evaluation started: the checkpoint's fingerprint was "
                f"{recorded}, from an earlier release, and is {found} now, which is another kind: take another id",
                reason=Reason.MODEL_CHANGED,
                field="model",
                metadata={"fingerprint": recorded, "present_fingerprint": found},
            )
        case _:
            pass


def _changed(reason: Reason, what: str, before: str, now: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"is not what it was when the evaluation started: the {what}'s fingerprint was {before}, now it is {now}",
        reason=reason,
        field="dataset" if reason is Reason.DATASET_CHANGED else "model",
        metadata={"fingerprint": before, "present_fingerprint": now},
    )
