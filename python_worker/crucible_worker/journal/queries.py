"""What is read from the journal. Each function takes a connection, or a transaction, and returns plain values."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from crucible_bridge.errors import InvalidField, NotFound
from crucible_bridge.events import NEW_KINDS
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Evaluation, EvaluationState, GraderVersions, Metrics, SampleResult, Usage, Verdict
from crucible_worker.journal.contents import Frame, frame_from_record, metadata_of, with_reply
from crucible_worker.journal.packing import unpack
from crucible_worker.journal.records import (
    Ended,
    Renderings,
    SampleKey,
    renderings_from_record,
    reply_of_usage,
    request_from_record,
    result_from_record,
    sample_from_record,
    score_from_record,
    usage_from_record,
    with_record,
)
from crucible_worker.journal.usage import UsageSum

__all__ = [
    "EVENT_PAGE_BYTES",
    "SAMPLE_PAGE_BYTES",
    "EvaluationRow",
    "Extent",
    "Head",
    "JournalDamaged",
    "PackedSample",
    "Reads",
    "SnapshotReads",
    "StatementResult",
    "contents_by_sample",
    "evaluation_of",
    "extent_of",
    "find",
    "find_by_number",
    "find_rendering",
    "graders_of",
    "head",
    "list_rows",
    "metadata_by_sample",
    "packed_samples",
    "read_events",
    "read_graders",
    "read_samples",
    "results_of",
    "rules_of",
    "runs_before",
    "sample_at",
    "sample_of_event",
    "scores_of",
    "spent_before",
    "spent_of",
    "token_after",
]

SAMPLE_PAGE_BYTES = 8 * 1024 * 1024
"""A page of samples ends when its records have this size, so that it stays well below the message limit."""


EVENT_PAGE_BYTES = 1024 * 1024
"""A page of events ends when its records have this size: encoding one takes a millisecond, during which the interpreter
does nothing else, and a stream that is not read keeps one in memory."""
EVALUATION_PAGE_BYTES = 8 * 1024 * 1024
"""Likewise a page of evaluations."""


class JournalDamaged(Exception):
    """The journal lacks what every journal has."""


class StatementResult(Protocol):
    """What a statement has found or changed."""

    @property
    def rowcount(self) -> int:
        """Rows that were changed."""
        ...

    def fetchone(self) -> Any:
        """The next row; None if there is none."""
        ...

    def fetchall(self) -> list[Any]:
        """The rows that are left."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """The rows that are left, one at a time."""
        ...


class Reads(Protocol):
    """A connection or a transaction."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> StatementResult:
        """Run one statement, in SQL that every database of a journal understands; "?" stands for a parameter."""
        ...


class SnapshotReads(Reads, Protocol):
    """A connection that only reads."""

    def snapshot(self) -> contextlib.AbstractContextManager[None]:
        """All reads of the block are of one moment of the journal, whatever is written meanwhile."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Head:
    """The event log as a whole."""

    log_id: str
    sequence: int
    oldest: int


@dataclasses.dataclass(frozen=True, slots=True)
class Extent:
    """Where in the log an evaluation's events are, and whether more of them can come."""

    state: EvaluationState
    first_sequence: int
    """0 if there is none yet."""
    last_sequence: int


@dataclasses.dataclass(frozen=True, slots=True)
class EvaluationRow:
    """The row of an evaluation; see the schema for the meaning of the columns."""

    number: int
    evaluation_id: str
    run_id: str
    step: int | None
    state: EvaluationState
    fingerprint: str
    dataset_fingerprint: str
    model_fingerprint: str
    request: bytes
    correlation_id: str
    attempt: int
    total: int
    done: int
    unscored: int
    created_ns: int
    ended_ns: int
    interrupted_ns: int
    past_active_ns: int
    active_ns: int
    first_sequence: int
    last_sequence: int
    cancel_reason: str | None
    result: bytes | None
    apart: bytes | None = None
    """The parts of the request that are stored separately."""
    rendering: bytes | None = None
    """How models are prompted, as far as that is known."""
    change: int = 0
    """How often callers have changed what follows."""
    paused: bool = False
    """Whether no sample may begin."""
    concurrency: int | None = None
    """How many samples may be at work at once; None if its request says it."""
    rules: int = 1
    """The version of the rules by which it measures; 0 if several did."""
    graders: Mapping[str, GraderVersions] = dataclasses.field(default_factory=dict)
    """The versions of the graders by which it judges, by evaluator."""
    waiting_for: str = ""
    """Models that do not answer, and since when; empty if there is none."""
    not_before_ns: int = 0
    """No attempt begins before, because of an outage."""

    @property
    def contents_known(self) -> bool:
        """Whether its data set and its model have been found: `total` and the fingerprints of both are known."""
        return bool(self.dataset_fingerprint)


_RECORDS_OF_SAMPLES = """LEFT JOIN sample_records AS r ON r.number = s.number AND r.position = s.position
                             AND r.evaluator = s.evaluator AND r.repeat = s.repeat AND r.attempt = s.attempt
                         """
_APART = "(SELECT record FROM requests_apart WHERE requests_apart.number = evaluations.number)"
_RENDERING = "(SELECT record FROM evaluation_renderings AS kept WHERE kept.number = evaluations.number)"


def rules_of(table: str) -> str:
    """SQL for the version of the rules of the evaluation that has the `number` of a table's row."""
    return f"COALESCE((SELECT rules FROM evaluation_rules WHERE evaluation_rules.number = {table}.number), 1)"


def graders_of(table: str) -> str:
    """SQL for the versions of the graders of that evaluation, as text for `read_graders`."""
    return (
        "(SELECT CASE WHEN mixed = 1 THEN '~' || graders ELSE graders END FROM evaluation_graders "
        f"WHERE evaluation_graders.number = {table}.number)"
    )


def read_graders(text: str | None) -> Mapping[str, GraderVersions]:
    """Versions of graders by evaluator; of several releases each is 0, and there are none of an older release."""
    if text is None:
        return {}
    found = msgspec.json.decode(text.removeprefix("~"), type=dict[str, dict[str, int]])
    mixed = text.startswith("~")
    return {
        label: GraderVersions(versions=dict.fromkeys(versions, 0) if mixed else versions)
        for label, versions in found.items()
    }


_CONTROLS = "FROM evaluation_controls AS control WHERE control.number = evaluations.number"
_BUDGETS = "FROM evaluation_budgets AS budget WHERE budget.number = evaluations.number AND budget.spent <> ''"
_WAITS = "FROM evaluation_waits AS wait WHERE wait.number = evaluations.number"
_ELSEWHERE = {
    "apart": _APART,
    "rendering": _RENDERING,
    "change": f"COALESCE((SELECT change {_CONTROLS}), 0)",
    "paused": f"COALESCE((SELECT paused {_CONTROLS}), 0)",
    "concurrency": f"(SELECT concurrency {_CONTROLS})",
    "rules": rules_of("evaluations"),
    "graders": graders_of("evaluations"),
    "waiting_for": f"COALESCE((SELECT spent {_BUDGETS}), (SELECT waiting_for {_WAITS}), '')",
    "not_before_ns": f"COALESCE((SELECT not_before_ns {_WAITS}), 0)",
}
MAX_ID_CHARS = 1_000
"""No id is longer: a longer one is not looked up."""
_COLUMNS = ", ".join(_ELSEWHERE.get(field.name, field.name) for field in dataclasses.fields(EvaluationRow))
_GRADERS = [field.name for field in dataclasses.fields(EvaluationRow)].index("graders")
# An evaluation that is being removed has an id that no caller can name, so that queries by id need no condition.
_THERE = "number NOT IN (SELECT number FROM removals)"


def head(source: Reads) -> Head:
    """The log's identity and bounds.

    Raises:
        JournalDamaged: its row is missing.
    """
    row = source.execute("SELECT log_id, sequence, oldest FROM head").fetchone()
    if row is None:
        raise JournalDamaged("the journal is damaged: the row of its event log is missing")
    return Head(*row)


def find(source: Reads, evaluation_id: str) -> EvaluationRow | None:
    """An evaluation by its id.

    Raises:
        JournalDamaged: a lost page may show as an index without entries.
    """
    row = None
    if len(evaluation_id) <= MAX_ID_CHARS:
        sql = f"SELECT {_COLUMNS} FROM evaluations WHERE evaluation_id = ?"
        row = source.execute(sql, (evaluation_id,)).fetchone()
    if row is None:
        head(source)
        return None
    return _row(row)


def find_by_number(source: Reads, number: int) -> EvaluationRow:
    """An evaluation by its number.

    Raises:
        NotFound: it was removed.
    """
    sql = f"SELECT {_COLUMNS} FROM evaluations WHERE number = ? AND {_THERE}"
    row = source.execute(sql, (number,)).fetchone()
    if row is None:
        raise _removed()
    return _row(row)


def find_rendering(source: Reads, number: int) -> Renderings | None:
    """How the models of an evaluation are prompted; None if an earlier release started it and did not record that."""
    row = source.execute("SELECT record FROM evaluation_renderings WHERE number = ?", (number,)).fetchone()
    return None if row is None else renderings_from_record(row[0])


def _removed() -> NotFound:
    message = "this evaluation was deleted, or removed after its retention"
    return NotFound(message, reason=Reason.UNKNOWN_EVALUATION, field="evaluation_id")


def extent_of(source: Reads, number: int) -> Extent:
    """Where the events of an evaluation are; does not read its request and its result, which may be large.

    Raises:
        NotFound: it was removed.
    """
    sql = f"SELECT state, first_sequence, last_sequence FROM evaluations WHERE number = ? AND {_THERE}"
    row = source.execute(sql, (number,)).fetchone()
    if row is None:
        raise _removed()
    return Extent(EvaluationState(row[0]), row[1], row[2])


def list_rows(
    source: Reads,
    *,
    run_id: str | None = None,
    states: Sequence[EvaluationState] = (),
    from_step: int | None = None,
    to_step: int | None = None,
    before: int | None = None,
    limit: int | None = None,
    without_result_row: bool = False,
) -> tuple[list[EvaluationRow], bool]:
    """Evaluations, newest first, and whether there are more; `before` is the last number of the page before.

    At most `limit` of them, and, if there is a limit, no more once they have `EVALUATION_PAGE_BYTES` together. With
    `without_result_row` only those that have no row of `checkpoint_results`.
    """
    conditions: list[tuple[str, Sequence[object]]] = [(_THERE, ())]
    if run_id is not None:
        conditions.append(("run_id = ?", (run_id,)))
    if states:
        conditions.append((f"state IN ({_marks(states)})", [state.value for state in states]))
    if from_step is not None:
        conditions.append(("step >= ?", (from_step,)))
    if to_step is not None:
        conditions.append(("step <= ?", (to_step,)))
    if before is not None:
        conditions.append(("number < ?", (before,)))
    if without_result_row:
        conditions.append(("number NOT IN (SELECT number FROM checkpoint_results)", ()))
    where, parameters = _where(conditions)
    sql = f"SELECT {_COLUMNS} FROM evaluations {where} ORDER BY number DESC"
    page: list[EvaluationRow] = []
    size = 0
    for values in source.execute(sql, parameters):
        if limit is not None and (len(page) == limit or size >= EVALUATION_PAGE_BYTES):
            return page, True
        row = _row(values)
        page.append(row)
        size += len(row.request) + len(row.result or b"") + len(row.apart or b"")
    return page, False


def evaluation_of(row: EvaluationRow) -> Evaluation:
    """The evaluation of a row."""
    ended = Ended(metrics=Metrics({})) if row.result is None else result_from_record(row.result, row.apart)
    rendering = Renderings() if row.rendering is None else renderings_from_record(row.rendering)
    return Evaluation(
        evaluation_id=row.evaluation_id,
        state=row.state,
        request=request_from_record(row.request, row.apart),
        metrics=ended.metrics,
        results=ended.results,
        done=row.done,
        total=row.total,
        dataset_fingerprint=row.dataset_fingerprint,
        model_fingerprint=row.model_fingerprint,
        created_unix_ns=row.created_ns,
        ended_unix_ns=row.ended_ns,
        duration_ns=row.past_active_ns + row.active_ns,
        attempt=row.attempt,
        last_sequence=row.last_sequence,
        usage=ended.usage,
        engine=ended.engine,
        problem=ended.problem,
        rendering=rendering.evaluators,
        servers=rendering.servers,
        paused=row.paused and not row.state.terminal,
        waiting_for="" if row.state.terminal else row.waiting_for,
        concurrency=row.concurrency,
        rules_version=row.rules,
        graders=row.graders,
    )


def read_events(
    source: Reads,
    *,
    after: int,
    through: int,
    number: int | None = None,
    kinds: Sequence[str] = (),
    without_kind: str | None = None,
    run_id: str | None = None,
    new_kinds: bool = False,
    limit: int,
    page_bytes: int = EVENT_PAGE_BYTES,
) -> tuple[list[tuple[int, bytes]], int]:
    """Sequences and records of the events after one sequence, through another; and the last sequence examined.

    At most `limit` of them, and no more once they have `page_bytes` together. Events of `NEW_KINDS` are included only
    if `new_kinds` is set, or `kinds` names them.
    """
    first = [kind for kind in kinds if kind not in NEW_KINDS]
    later = [kind for kind in kinds if kind in NEW_KINDS]
    only = _EventConditions(after, number, without_kind, run_id)
    page: list[tuple[int, bytes]] = []
    if first or not kinds:
        page, through = _event_page(source, "events", only, through, first, limit, page_bytes)
    if later or (new_kinds and not kinds):
        # They are rare: most pages have none, and need no sorting.
        more, through = _event_page(source, "later_events", only, through, later, limit, page_bytes)
        if more:
            page = sorted([*(row for row in page if row[0] <= through), *more])
        if len(page) > limit:
            del page[limit:]
            through = page[-1][0]
    return page, max(after, through)


@dataclasses.dataclass(frozen=True, slots=True)
class _EventConditions:
    """Which events are wanted, of whichever kind; see `read_events`."""

    after: int
    number: int | None
    without_kind: str | None
    run_id: str | None


def _event_page(
    source: Reads, table: str, only: _EventConditions, through: int, kinds: Sequence[str], limit: int, page_bytes: int
) -> tuple[list[tuple[int, bytes]], int]:
    conditions: list[tuple[str, Sequence[object]]] = [("sequence > ? AND sequence <= ?", (only.after, through))]
    if only.number is not None:
        conditions.append(("number = ?", (only.number,)))
    if kinds:
        conditions.append((f"kind IN ({_marks(kinds)})", kinds))
    if only.without_kind is not None:
        conditions.append(("kind <> ?", (only.without_kind,)))
    if only.run_id is not None:
        conditions.append(("run_id = ?", (only.run_id,)))
    where, parameters = _where(conditions)
    sql = f"SELECT sequence, record FROM {table} {where} ORDER BY sequence LIMIT ?"
    page: list[tuple[int, bytes]] = []
    size = 0
    for sequence, record in source.execute(sql, (*parameters, limit)):
        page.append((sequence, record))
        size += len(record)
        if len(page) == limit or size >= page_bytes:
            return page, sequence
    return page, through


def read_samples(
    source: Reads,
    number: int,
    *,
    verdicts: Sequence[Verdict] = (),
    evaluator: str | None = None,
    page_size: int,
    page_token: str = "",
    records: bool = True,
    page_bytes: int = SAMPLE_PAGE_BYTES,
) -> tuple[list[SampleResult], str]:
    """A page of samples in the data set's order, with their records unless these are not wanted.

    It ends once its records have `page_bytes`.

    Returns:
        The page, and the token of the next one (empty at the end).

    Raises:
        NotFound: the evaluation was removed.
    """
    conditions: list[tuple[str, Sequence[object]]] = [("s.number = ?", (number,))]
    if verdicts:
        conditions.append((f"s.verdict IN ({_marks(verdicts)})", [verdict.value for verdict in verdicts]))
    if evaluator is not None:
        conditions.append(("s.label = ?", (evaluator,)))
    if page_token:
        conditions.append(("(s.position, s.evaluator, s.repeat) > (?, ?, ?)", _place(page_token)))
    page: list[SampleResult] = []
    size = 0
    last: tuple[int, int, int] | None = (0, 0, 0)
    for place, result, count in _results(source, number, conditions, records=records, limit=page_size + 1):
        if len(page) == page_size or size >= page_bytes:
            break
        page.append(result)
        size += count
        last = place
    else:
        last = None
    # Samples are removed after their evaluation: if it is there now, its samples were there before.
    extent_of(source, number)
    return page, "" if last is None else token_after(last)


def sample_of_event(
    source: Reads, sequence: int, evaluation_id: str, position: int, label: str, repeat: int, attempt: int
) -> SampleResult | None:
    """The result of a sample in the run that an event reports, with its record.

    None if the evaluation is no longer retained, or the sample has run again since.
    """
    # A later evaluation of the same id begins after the event.
    found = source.execute(
        "SELECT number FROM evaluations WHERE evaluation_id = ? AND first_sequence <= ?", (evaluation_id, sequence)
    ).fetchone()
    if found is None:
        return None
    (number,) = found
    conditions: list[tuple[str, Sequence[object]]] = [
        ("s.number = ?", (number,)),
        ("s.position = ?", (position,)),
        ("s.label = ? AND s.repeat = ? AND s.attempt = ?", (label, repeat, attempt)),
    ]
    rows = _results(source, number, conditions, records=True, limit=1)
    return next((result for _, result, _ in rows), None)


def _results(
    source: Reads, number: int, conditions: Sequence[tuple[str, Sequence[object]]], *, records: bool, limit: int
) -> Iterator[tuple[tuple[int, int, int], SampleResult, int]]:
    """Results of an evaluation in order, each between its place and its approximate size in bytes."""
    rows = _rows(source, number, conditions, records=records, limit=limit)
    frames: dict[tuple[int, int], Frame] = {}

    def frame_of(evaluator: int, frame: int) -> Frame:
        if (evaluator, frame) not in frames:
            (packed,) = source.execute(
                "SELECT record FROM prompt_frames WHERE number = ? AND evaluator = ? AND frame = ?",
                (number, evaluator, frame),
            ).fetchone()
            frames[evaluator, frame] = frame_from_record(packed)
        return frames[evaluator, frame]

    for position, evaluator, repeat, label, verdict, record, usage, recorded, content in rows:
        result = sample_from_record(label, verdict, record, usage)
        size = len(record)
        if recorded is not None:
            result, told = with_record(result, recorded, content, functools.partial(frame_of, evaluator))
            size += told
        if records:
            result, told = with_reply(result, reply_of_usage(usage))
            size += told
        yield (position, evaluator, repeat), result, size


def _rows(
    source: Reads,
    number: int,
    conditions: Sequence[tuple[str, Sequence[object]]],
    *,
    records: bool,
    limit: int | None = None,
) -> StatementResult:
    """Place, label, verdict, result, usage, record and content, packed, in order."""
    where, parameters = _where(conditions)
    joined, columns = _RECORDS_OF_SAMPLES, "r.usage, NULL, NULL"
    before: list[object] = []
    if records:
        columns = "r.usage, r.record, c.record"
        joined += """LEFT JOIN dataset_contents AS d ON r.record IS NOT NULL AND d.position = s.position
                        AND d.dataset = (SELECT dataset FROM recorded_evaluations WHERE number = ?)
                    LEFT JOIN contents AS c ON c.content = d.content"""
        before = [number]
    sql = f"""SELECT s.position, s.evaluator, s.repeat, s.label, s.verdict, s.record, {columns}
              FROM samples AS s {joined} {where} ORDER BY s.position, s.evaluator, s.repeat"""
    if limit is not None:
        sql, parameters = f"{sql} LIMIT ?", [*parameters, limit]
    return source.execute(sql, (*before, *parameters))


class PackedSample(NamedTuple):
    """A result of which only the result itself is unpacked."""

    place: tuple[int, int, int]
    label: str
    verdict: str
    values: Mapping[str, Any]
    """Those of `SampleResult`."""
    usage: bytes | None
    recorded: bytes | None
    """The record of its prompt and its turns."""
    content: bytes | None
    """What the sample is."""


def packed_samples(source: Reads, number: int, *, contents: bool) -> Iterator[PackedSample]:
    """Every result of an evaluation in order, one at a time; with what its sample is, if `contents` are wanted."""
    rows = _rows(source, number, [("s.number = ?", (number,))], records=contents)
    for position, evaluator, repeat, label, verdict, record, usage, recorded, content in rows:
        place = position, evaluator, repeat
        yield PackedSample(place, label, verdict, unpack(record), usage, recorded, content)


def sample_at(source: Reads, number: int, place: tuple[int, int, int]) -> SampleResult:
    """The result at a place, with its record."""
    conditions = [("s.number = ?", (number,)), ("(s.position, s.evaluator, s.repeat) = (?, ?, ?)", place)]
    ((_, result, _),) = _results(source, number, conditions, records=True, limit=1)
    return result


def results_of(source: Reads, number: int, evaluator: int) -> Iterator[SampleResult]:
    """Every result of one evaluator, by its index, in the data set's order, one at a time; without usage."""
    sql = "SELECT label, verdict, record FROM samples WHERE number = ? AND evaluator = ? ORDER BY position, repeat"
    for label, verdict, record in source.execute(sql, (number, evaluator)):
        yield sample_from_record(label, verdict, record)


def spent_before(source: Reads, number: int) -> tuple[Mapping[int, Usage], Mapping[SampleKey, Usage]]:
    """Usage of the samples that were run before.

    Of those with a final verdict the sum, by the evaluator's index; of the others each, by its place.
    """
    totals: dict[int, UsageSum] = {}
    again: dict[SampleKey, Usage] = {}
    sql = f"""SELECT s.position, s.evaluator, s.repeat, s.retryable, r.usage FROM samples AS s {_RECORDS_OF_SAMPLES}
              WHERE s.number = ?"""
    for position, evaluator, repeat, retryable, record in source.execute(sql, (number,)):
        usage = usage_from_record(record)
        if retryable and usage is not None:
            again[SampleKey(position, evaluator, repeat)] = usage
        else:
            totals.setdefault(evaluator, UsageSum()).add((usage,))
    return {index: usage for index, total in totals.items() if (usage := total.usage) is not None}, again


def spent_of(source: Reads, number: int) -> Usage | None:
    """Total usage of the samples that were run before; None if no model was queried."""
    final, again = spent_before(source, number)
    return UsageSum.of((*final.values(), *again.values())).usage


def scores_of(source: Reads, number: int, evaluator: int) -> Iterator[tuple[str, float]]:
    """Sample id and score of every scored result of one evaluator, by its index, in the data set's order."""
    sql = "SELECT record FROM samples WHERE number = ? AND evaluator = ? ORDER BY position, repeat"
    for (record,) in source.execute(sql, (number, evaluator)):
        sample_id, score = score_from_record(record)
        if score is not None:
            yield sample_id, score


def metadata_by_sample(
    source: Reads, number: int, evaluator: int, dataset_fingerprint: str
) -> Iterator[tuple[str, Mapping[str, str] | None]]:
    """Sample id and metadata of every result of one evaluator, by its index, in the data set's order.

    None if the metadata is not recorded by any evaluation of this data set, or not completely.
    """
    for sample_id, content in _contents(source, number, evaluator, dataset_fingerprint):
        yield sample_id, None if content is None else metadata_of(content)


def contents_by_sample(
    source: Reads, number: int, evaluator: int, dataset_fingerprint: str, wanted: Collection[str]
) -> Iterator[tuple[str, bytes]]:
    """Sample id and packed content of some samples, once each, as far as an evaluation of this data set records it."""
    left = set(wanted)
    for sample_id, content in _contents(source, number, evaluator, dataset_fingerprint) if left else ():
        if sample_id in left:
            left.remove(sample_id)
            if content is not None:
                yield sample_id, content
            if not left:
                return


def _contents(
    source: Reads, number: int, evaluator: int, dataset_fingerprint: str
) -> Iterator[tuple[str, bytes | None]]:
    sql = """SELECT s.record, c.record FROM samples AS s
             LEFT JOIN dataset_contents AS d ON d.position = s.position
                 AND d.dataset = (SELECT dataset FROM recorded_datasets WHERE fingerprint = ?)
             LEFT JOIN contents AS c ON c.content = d.content
             WHERE s.number = ? AND s.evaluator = ? ORDER BY s.position, s.repeat"""
    for record, content in source.execute(sql, (dataset_fingerprint, number, evaluator)):
        yield score_from_record(record)[0], content


def runs_before(source: Reads, number: int) -> Mapping[int, array[int]]:
    """The samples that were run before, by the evaluator's index, in the data set's order.

    Four numbers for each, as there may be millions: position, repeat, attempts so far, and whether it is final (1 or
    0): every verdict is, except a retryable error.
    """
    sql = """SELECT position, evaluator, repeat, attempt, retryable = 0 FROM samples WHERE number = ?
             ORDER BY position, evaluator, repeat"""
    rows: dict[int, array[int]] = {}
    for position, evaluator, *rest in source.execute(sql, (number,)):
        rows.setdefault(evaluator, array("q")).extend((position, *rest))
    return rows


def _row(values: Sequence[Any]) -> EvaluationRow:
    row = EvaluationRow(*values)
    graders = read_graders(values[_GRADERS])
    return dataclasses.replace(row, state=EvaluationState(row.state), paused=bool(row.paused), graders=graders)


def _where(conditions: Sequence[tuple[str, Sequence[object]]]) -> tuple[str, list[object]]:
    if not conditions:
        return "", []
    clauses = " AND ".join(clause for clause, _ in conditions)
    return f"WHERE {clauses}", [value for _, values in conditions for value in values]


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def token_after(place: tuple[int, int, int]) -> str:
    """The token of the page that begins after a place."""
    return ".".join(map(str, place))


def _place(token: str) -> tuple[int, ...]:
    parts = token.split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        raise InvalidField("page_token", "is not one that this call gave")
    return tuple(int(part) for part in parts)
