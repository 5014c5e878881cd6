"""What callers of workers asked and were answered while faults happened, and the rules that every such history keeps.

A history is recorded by `history_traffic`. Each rule yields one sentence for each violation; `violations` applies all.
Two calls are in order only if the first was answered before the second was asked.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from crucible_bridge.client import StartedEvaluation
from crucible_bridge.client.evaluation import EvaluationPage
from crucible_bridge.errors import BridgeError
from crucible_bridge.events import Event, EventKind
from crucible_bridge.reasons import Code, Reason
from crucible_bridge.types import CheckpointResult, Evaluation, EvaluationState, SampleResult, Verdict
from tests.robustness.evidence import bits

__all__ = [
    "NOT_GRADED",
    "RULES",
    "Call",
    "Ended",
    "History",
    "Reading",
    "Reference",
    "SampleKey",
    "comparable",
    "violations",
]

UNKNOWN_TIME = math.inf
"""When a call took effect whose caller had no answer: at any time since."""
UNKNOWN_OUTCOMES = (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.CANCELLED, Code.INTERNAL)
"""Codes of calls that may have taken effect all the same."""
NOT_GRADED = -1.0
"""In place of a grade: an error of the grader that is retryable."""
RELATIVE_ERROR = 1e-12
"""Of a metric and its direct computation."""
FINAL = (EvaluationState.COMPLETED, EvaluationState.CANCELLED)
"""States that nothing follows."""
ALWAYS_DESERVED = (Reason.CLIENT_CLOSED, Reason.UNKNOWN_EVALUATION)
"""The caller has closed the client of a worker that was replaced; `known_evaluations_stay_known` has the other one."""
BAD_FILE = (Reason.DATASET_CHANGED, Reason.MALFORMED_LINE, Reason.MALFORMED_FILE, Reason.EMPTY_DATASET)
"""The data file is damaged, or has another content than at the start of the evaluation."""
DESERVED: Mapping[str, Collection[Reason]] = {
    "start": BAD_FILE,
    "start_other": (Reason.OTHER_SPECIFICATION,),
    "pause": (Reason.EVALUATION_ENDED,),
    "concurrency": (Reason.EVALUATION_ENDED,),
    "resume": (Reason.EVALUATION_ENDED, Reason.NEEDS_CALLER, *BAD_FILE),
}
"""Refusals that are not retryable, and are right all the same: by call."""
BEGINS = (EventKind.EVALUATION_START, EventKind.EVALUATION_RESUME)
ENDS = (EventKind.EVALUATION_INTERRUPT, EventKind.EVALUATION_EXCEPTION, EventKind.EVALUATION_STOP)
OUTSIDE = (EventKind.EVALUATION_PAUSED, EventKind.EVALUATION_RESUMED, EventKind.EVALUATION_CONCURRENCY)
"""Kinds that need no attempt."""

SampleKey = tuple[str, str, int]
"""Evaluator, id and repeat of a sample's result."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of a caller."""

    name: str
    """What was asked."""
    worker: str
    """Which worker, and which of its lives."""
    subject: str = ""
    """The evaluation, plan or run that it is about."""
    asked: float
    """When it was asked, seconds."""
    answered: float
    """When it was answered or refused, seconds."""
    answer: Any = None
    """The answer; None if it was refused."""
    error: BridgeError | None = None
    """Why it was refused."""
    expected: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """What the answer must be, if that is computed directly."""

    @property
    def effect(self) -> float:
        """The latest moment at which it took effect."""
        unknown = self.error is not None and self.error.code in UNKNOWN_OUTCOMES
        return UNKNOWN_TIME if unknown else self.answered

    @property
    def evaluations(self) -> Sequence[Evaluation]:
        """The evaluations of its answer."""
        match self.answer:
            case Evaluation():
                return (self.answer,)
            case StartedEvaluation():
                return (self.answer.evaluation,)
            case [EvaluationPage(), *_]:
                return [one for page in self.answer for one in page.items]
            case [StartedEvaluation(), *_]:
                return [started.evaluation for started in self.answer]
        return ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one stream of events returned."""

    reader: str
    """Who read: the readings of one reader continue each other."""
    evaluation_id: str = ""
    """The evaluation that was watched; the whole log if empty."""
    after: int
    """The position at which it began."""
    through: int
    """The position at which it ended."""
    events: Sequence[Event]
    """What it returned."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The result of an evaluation without a fault."""

    metrics: Mapping[str, str]
    """To the last bit."""
    samples: Mapping[SampleKey, SampleResult]
    """As `comparable` has them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An evaluation as a worker shows it when the faults are over."""

    worker: str
    """The worker."""
    evaluation: Evaluation
    """The evaluation."""
    samples: Sequence[SampleResult]
    """Its samples."""


@dataclasses.dataclass(kw_only=True)
class History:
    """All that was asked and answered."""

    references: Mapping[str, Mapping[str, Reference]]
    """Results by the kind of the evaluation, then by the fingerprint of its data set."""
    kinds: dict[str, str] = dataclasses.field(default_factory=dict)
    """The kind of each evaluation."""
    calls: list[Call] = dataclasses.field(default_factory=list)
    """In the order of their answers."""
    readings: list[Reading] = dataclasses.field(default_factory=list)
    """In the order in which they ended."""
    log: list[Event] = dataclasses.field(default_factory=list)
    """The log at the end."""
    ended: dict[str, list[Ended]] = dataclasses.field(default_factory=dict)
    """Each evaluation at the end, at each worker."""
    run_results: dict[str, CheckpointResult] = dataclasses.field(default_factory=dict)
    """What ListRuns shows of each evaluation of a run at the end."""

    def reads(self) -> dict[str, list[tuple[Call, Evaluation]]]:
        """Every evaluation of every answer, by its id, in the order of the answers."""
        found: dict[str, list[tuple[Call, Evaluation]]] = collections.defaultdict(list)
        for call in self.calls:
            for evaluation in call.evaluations:
                found[evaluation.evaluation_id].append((call, evaluation))
        return found

    def events_of(self) -> dict[str, list[Event]]:
        """The log by evaluation."""
        found: dict[str, list[Event]] = collections.defaultdict(list)
        for event in self.log:
            if event.evaluation_id:
                found[event.evaluation_id].append(event)
        return found

    def write(self, path: Path) -> None:
        """Write it as text with what breaks a rule, for the search after a cause."""
        with path.open("w") as file:
            file.writelines(f"{told}\n" for told in violations(self))
            for call in self.calls:
                outcome = f"refused: {call.error.reason} {call.error}" if call.error else _shown(call.answer)
                file.write(
                    f"{call.asked:.3f} {call.answered:.3f} {call.worker} {call.name} {call.subject}: {outcome}\n"
                )
            for event in self.log:
                if event.kind is not EventKind.SAMPLE_COMPLETE:
                    file.write(
                        f"{event.sequence} {event.evaluation_id} {event.kind} {event.evaluator} "
                        f"{dict(event.metadata)} {event.problem}\n"
                    )


def _shown(answer: Any) -> str:
    match answer:
        case Evaluation():
            return (
                f"{answer.state} attempt {answer.attempt}, {answer.done} of {answer.total}, sequence "
                f"{answer.last_sequence}, paused {answer.paused}, {answer.waiting_for} {answer.problem}"
            )
        case StartedEvaluation():
            return f"{_shown(answer.evaluation)}, existed {answer.existed}"
        case [EvaluationPage(), *_]:
            listed = [one for page in answer for one in page.items]
            return "; ".join(f"{one.evaluation_id} {one.state} {one.attempt} {one.done}" for one in listed)
        case [StartedEvaluation(), *_]:
            return "; ".join(map(_shown, answer))
        case list() | tuple():
            return f"{len(answer)} items"
    return str(answer)


def comparable(samples: Sequence[SampleResult]) -> dict[SampleKey, SampleResult]:
    """Samples by their key, without what two runs of one sample may differ in: its time and its calls."""
    return {
        (sample.evaluator, sample.sample_id, sample.repeat): dataclasses.replace(
            sample, duration_ns=0, attempts=0, usage=None
        )
        for sample in samples
    }


def _identity(evaluation: Evaluation) -> tuple[object, ...]:
    """What every read of an evaluation that has ended for good must have in common."""
    return (
        evaluation.state,
        tuple(sorted(bits(evaluation.metrics).items())),
        repr(evaluation.results),
        evaluation.done,
        evaluation.total,
        evaluation.attempt,
        evaluation.last_sequence,
        evaluation.ended_unix_ns,
        repr(evaluation.problem),
        evaluation.dataset_fingerprint,
    )


def refusals_have_reasons(history: History) -> Iterator[str]:
    """A refusal has a reason of the catalogue with a code of it, and is never a bug; one that is final is deserved."""
    for call in history.calls:
        if (error := call.error) is None:
            continue
        told = f"{call.name} {call.subject} at {call.worker} was refused by {error.code} {error.reason}: {error}"
        if error.reason not in set(Reason):
            yield f"{told}; that is no reason of the catalogue"
        elif error.reason in (Reason.INTERNAL, Reason.UNKNOWN):
            yield f"{told}; that is a bug"
        elif error.code not in Reason(error.reason).codes:
            yield f"{told}; the reason has other codes"
        elif not error.retryable and error.reason not in (*ALWAYS_DESERVED, *DESERVED.get(call.name, ())):
            yield f"{told}; nothing was wrong with the call"


def other_specifications_are_refused(history: History) -> Iterator[str]:
    """An id with another specification is refused."""
    for call in history.calls:
        if call.name == "start_other" and call.answer is not None:
            yield f"{call.subject} was started with another specification at {call.worker}"


def known_evaluations_stay_known(history: History) -> Iterator[str]:
    """What a caller saw of an evaluation is found by each later call, and by each later list, once."""
    first_seen = {identity: min(call.answered for call, _ in reads) for identity, reads in history.reads().items()}
    for call in history.calls:
        if call.error is not None and call.error.reason == Reason.UNKNOWN_EVALUATION:
            if first_seen.get(call.subject, UNKNOWN_TIME) < call.asked:
                yield f"{call.name} {call.subject} at {call.worker}: it is not known any more"
        elif call.name == "list" and call.answer is not None:
            listed = collections.Counter(one.evaluation_id for page in call.answer for one in page.items)
            for identity, seen in first_seen.items():
                if seen < call.asked and listed[identity] != 1:
                    yield f"the list of {call.worker} has {identity} {listed[identity]} times"


def starts_are_new_once(history: History) -> Iterator[str]:
    """At most one answer says that an evaluation did not exist before."""
    new: collections.Counter[str] = collections.Counter()
    for call in history.calls:
        started = call.answer if isinstance(call.answer, list | tuple) else [call.answer]
        for one in started:
            if isinstance(one, StartedEvaluation) and not one.existed:
                new[one.evaluation.evaluation_id] += 1
    for identity, count in new.items():
        if count > 1:
            yield f"{identity} was new {count} times"


def ends_are_final(history: History) -> Iterator[str]:
    """An evaluation that one caller saw COMPLETED or CANCELLED is that for each later read, with the same bits."""
    for identity, reads in history.reads().items():
        ends = [(call, one) for call, one in reads if one.state in FINAL]
        if not ends:
            continue
        first = min(ends, key=lambda end: end[0].answered)
        for call, one in ends:
            if _identity(one) != _identity(first[1]):
                told = f"{identity} ended as {_shown(first[1])} at {first[0].worker}"
                yield f"{told}, and as {_shown(one)} at {call.worker}"
        for call, one in reads:
            if one.state not in FINAL and call.asked > first[0].answered:
                yield (
                    f"{identity} was {first[1].state} at {first[0].worker}, and later {_shown(one)} by "
                    f"{call.name} at {call.worker}"
                )


def progress_never_goes_back(history: History) -> Iterator[str]:
    """What was answered of attempts, and of samples done within an attempt, never goes back in a later answer."""
    for identity, reads in history.reads().items():
        by_asked = sorted(reads, key=lambda read: read[0].asked)
        by_answered = iter(sorted(reads, key=lambda read: read[0].answered))
        before = next(by_answered, None)
        most, seen_by = (0, 0, 0), ""
        for call, one in by_asked:
            while before is not None and before[0].answered < call.asked:
                reached = (before[1].attempt, before[1].done, before[1].last_sequence)
                if reached > most:
                    most, seen_by = reached, f"{before[0].name} at {before[0].worker}"
                before = next(by_answered, None)
            attempt, done, sequence = one.attempt, one.done, one.last_sequence
            if attempt < most[0] or (attempt == most[0] and done < most[1]) or sequence < most[2]:
                yield (
                    f"{identity} had attempt, done and last sequence {most} by {seen_by}, and later "
                    f"{(attempt, done, sequence)} by {call.name} at {call.worker}"
                )


def pauses_last(history: History) -> Iterator[str]:
    """A paused evaluation is paused in each later answer, until it is resumed or ends."""
    resumed: dict[str, list[Call]] = collections.defaultdict(list)
    for call in history.calls:
        if call.name == "resume":
            resumed[call.subject].append(call)
    reads = history.reads()
    for pause in history.calls:
        if pause.name != "pause" or pause.error is not None or not pause.answer.paused:
            continue
        # A resumption that was over before the pause was asked has no effect on it.
        later = [call.asked for call in resumed[pause.subject] if call.effect > pause.asked]
        until = min(later, default=UNKNOWN_TIME)
        for call, one in reads[pause.subject]:
            if pause.answered < call.asked and call.answered < until and not (one.paused or one.state.terminal):
                yield f"{pause.subject} was paused at {pause.worker}, and was not in {call.name} at {call.worker}"


def samples_are_those_of_an_undisturbed_run(history: History) -> Iterator[str]:
    """Each sample that has a score, whenever it is read, is there once, stays, and has the bits of another run."""
    for identity, kind in history.kinds.items():
        known = [reference.samples for reference in history.references[kind].values()]
        seen: dict[SampleKey, float] = {}
        reads = [
            (call.asked, call.answered, call.worker, call.answer)
            for call in history.calls
            if call.name == "samples" and call.subject == identity and call.answer is not None
        ]
        reads += [(math.inf, math.inf, end.worker, end.samples) for end in history.ended.get(identity, ())]
        for asked, answered, worker, samples in sorted(reads, key=lambda read: read[0]):
            found = comparable(samples)
            if len(found) != len(samples):
                yield f"{identity} has a sample twice at {worker}"
            scored = {key: sample for key, sample in found.items() if sample.problem is None}
            if not any(all(reference.get(key) == sample for key, sample in scored.items()) for reference in known):
                yield f"{identity} has samples at {worker} that no undisturbed run has"
            for key, at in seen.items():
                if at < asked and key not in scored:
                    yield f"{identity} has lost the sample {key} at {worker}"
            for key in scored:
                seen[key] = min(answered, seen.get(key, UNKNOWN_TIME))


def results_are_those_of_an_undisturbed_run(history: History) -> Iterator[str]:
    """A completed evaluation has the metrics, to the last bit, and all samples of a run without a fault."""
    for identity, ends in history.ended.items():
        for end in ends:
            if end.evaluation.state is not EvaluationState.COMPLETED:
                continue
            references = history.references[history.kinds[identity]]
            reference = references.get(end.evaluation.dataset_fingerprint)
            if reference is None:
                yield f"{identity} was evaluated on a data set that never was"
            elif bits(end.evaluation.metrics) != reference.metrics:
                yield f"{identity} has other metrics at {end.worker} than an undisturbed run: {end.evaluation.metrics}"
            elif comparable(end.samples) != reference.samples:
                yield f"{identity} has other samples at {end.worker} than an undisturbed run"


def totals_agree(history: History) -> Iterator[str]:
    """Counts of an evaluation, its samples, its events, the list and the run are the same."""
    events = history.events_of()
    for identity, ends in history.ended.items():
        for end in ends:
            one = end.evaluation
            scored = collections.Counter(sample.evaluator for sample in end.samples if sample.problem is None)
            recorded = collections.Counter(sample.evaluator for sample in end.samples)
            # Those without a score that another attempt was to run again are not done.
            if not scored.total() <= one.done <= len(end.samples):
                yield f"{identity} has {one.done} samples done, and {len(end.samples)} samples at {end.worker}"
            for result in one.results:
                label = result.evaluator.label
                correct = sum(s.evaluator == label and s.verdict is Verdict.CORRECT for s in end.samples)
                if result.n_scored + result.n_unscored != result.n or result.n_scored != scored[label]:
                    yield f"{identity}: {label} counts {result.n_scored} of {result.n}, its samples {scored[label]}"
                if one.state is EvaluationState.COMPLETED and recorded[label] != result.n:
                    yield f"{identity}: {label} counts {result.n}, and there are {recorded[label]} samples"
                if result.n_correct is not None and result.n_correct != correct:
                    yield f"{identity}: {label} counts {result.n_correct} correct, its samples {correct}"
            if one.state is EvaluationState.COMPLETED and one.done != one.total:
                yield f"{identity} has completed with {one.done} of {one.total}"
            mine = events[identity]
            told = {
                (e.evaluator, e.metadata["sample_id"], int(e.metadata["repeat"]))
                for e in mine
                if e.kind is EventKind.SAMPLE_COMPLETE
            }
            if told != set(comparable(end.samples)):
                yield f"{identity}: its events tell of {len(told)} samples, {end.worker} has {len(end.samples)}"
            if mine and one.last_sequence != mine[-1].sequence:
                yield f"{identity} has the last sequence {one.last_sequence}, its last event {mine[-1].sequence}"
            for event in mine:
                if event.kind is EventKind.EVALUATION_COMPLETE:
                    measured = {key: event.measurements.get(key) for key in one.metrics.values}
                    if measured != dict(one.metrics.values):
                        yield f"{identity}: its last event measures {measured}, {end.worker} {one.metrics.values}"
            if (shown := history.run_results.get(identity)) is not None:
                if (shown.state, shown.done) != (one.state, one.done):
                    yield f"{identity} is {one.state} with {one.done}, its run shows {shown.state} with {shown.done}"
                if one.state is EvaluationState.COMPLETED and dict(shown.metrics) != dict(one.metrics.values):
                    yield f"{identity} has {one.metrics.values}, its run shows {shown.metrics}"
            elif one.request.run_id:
                yield f"{identity} is missing in its run {one.request.run_id}"


def events_are_in_order(history: History) -> Iterator[str]:
    """The log is gap-free; attempts begin and end in turn, results come within them, and nothing follows the end."""
    sequences = [event.sequence for event in history.log]
    if sequences != list(range(1, len(sequences) + 1)):
        gaps = [pair for pair in itertools.pairwise([0, *sequences]) if pair[1] != pair[0] + 1]
        yield f"the log has gaps: {gaps[:5]}"
    for identity, events in history.events_of().items():
        yield from (f"{identity}: {told}" for told in _disorder(events))
        attempts = sum(event.kind in BEGINS for event in events)
        for end in history.ended.get(identity, ()):
            if end.evaluation.attempt != attempts and end.evaluation.state is EvaluationState.COMPLETED:
                yield f"{identity} has {end.evaluation.attempt} attempts, and events of {attempts}"


def _disorder(events: Sequence[Event]) -> Iterator[str]:
    """What is wrong with the order of an evaluation's events."""
    running, over, last = False, False, None
    scored: set[SampleKey] = set()
    of_attempt: set[SampleKey] = set()
    for event in events:
        told = f"{event.kind} ({event.sequence})"
        if over:
            yield f"{told} follows the end"
        if event.kind in BEGINS:
            if running:
                yield f"{told} begins an attempt in another one"
            if (event.kind is EventKind.EVALUATION_START) != (last is None):
                yield f"{told} follows {last}"
            running, of_attempt = True, set()
        elif event.kind in ENDS:
            # What is cancelled between two attempts, or before the first one, has a STOP alone.
            cancelled = event.metadata.get("state") == "cancelled"
            if not running and not cancelled:
                yield f"{told} ends no attempt"
            if event.kind is EventKind.EVALUATION_STOP:
                over = True
                if (last is EventKind.EVALUATION_COMPLETE) == cancelled:
                    yield f"{told} with the state {event.metadata.get('state')} follows {last}"
            running = False
        elif not running and event.kind not in OUTSIDE:
            yield f"{told} is outside of an attempt"
        if event.kind is EventKind.SAMPLE_COMPLETE:
            key = (event.evaluator, event.metadata["sample_id"], int(event.metadata["repeat"]))
            if key in of_attempt or key in scored:
                yield f"{told} is the second one of {key}"
            of_attempt.add(key)
            if event.problem is None:
                scored.add(key)
        if last is EventKind.EVALUATION_COMPLETE and event.kind is not EventKind.EVALUATION_STOP:
            yield f"{told} follows {last}"
        last = event.kind


def readers_get_everything_once(history: History) -> Iterator[str]:
    """Each stream returns the log after its position, and a reader that comes again continues where it was."""
    positions: dict[tuple[str, str], int] = {}
    for reading in history.readings:
        name = f"{reading.reader} {reading.evaluation_id}".strip()
        key = (reading.reader, reading.evaluation_id)
        if reading.after != positions.get(key, 0):
            yield f"{name} was at {positions.get(key, 0)}, and began at {reading.after}"
        positions[key] = reading.through
        expected = [
            event
            for event in history.log[reading.after : reading.through]
            if reading.evaluation_id in ("", event.evaluation_id)
        ]
        if list(reading.events) != expected:
            got = [event.sequence for event in reading.events]
            yield (
                f"{name} read {len(got)} events from {reading.after} to {reading.through}, there are {len(expected)}: "
                f"missing {sorted({e.sequence for e in expected} - set(got))[:5]}, "
                f"twice {[s for s, n in collections.Counter(got).items() if n > 1][:5]}"
            )


def arithmetic_is_right(history: History) -> Iterator[str]:
    """Metrics and grades equal their direct computation."""
    for call in history.calls:
        if call.expected and call.answer is not None:
            same = call.answer.keys() == call.expected.keys() and all(
                (call.name == "grade" and call.answer[key] == NOT_GRADED)
                or math.isclose(call.answer[key], value, rel_tol=RELATIVE_ERROR, abs_tol=RELATIVE_ERROR)
                for key, value in call.expected.items()
            )
            if not same:
                yield f"{call.name} at {call.worker} answered {call.answer}, not {call.expected}"


def plans_start_each_step_once(history: History) -> Iterator[str]:
    """A step of a plan has the same evaluations, at each worker that is notified of it, and however often."""
    steps: dict[str, tuple[str, ...]] = {}
    for call in history.calls:
        if call.name == "notify" and call.answer is not None:
            ids = tuple(started.evaluation.evaluation_id for started in call.answer)
            if steps.setdefault(call.subject, ids) != ids:
                yield f"the step {call.subject} has the evaluations {steps[call.subject]} and {ids}"


def everything_ends(history: History) -> Iterator[str]:
    """After the faults each evaluation comes to its end: cancelled by a caller or its deadline, else completed."""
    cancelled = {call.subject for call in history.calls if call.name == "cancel"}
    for identity in history.kinds:
        ends = history.ended.get(identity, ())
        if not ends and any(identity == one for one in history.reads()):
            yield f"{identity} was started, and has no end"
        for end in ends:
            may_be_cancelled = identity in cancelled or end.evaluation.request.limits.deadline_ms is not None
            allowed = FINAL if may_be_cancelled else (EvaluationState.COMPLETED,)
            if end.evaluation.state not in allowed:
                yield f"{identity} has not ended at {end.worker}: {_shown(end.evaluation)}"


RULES: Sequence[Callable[[History], Iterator[str]]] = (
    refusals_have_reasons,
    other_specifications_are_refused,
    known_evaluations_stay_known,
    starts_are_new_once,
    ends_are_final,
    progress_never_goes_back,
    pauses_last,
    samples_are_those_of_an_undisturbed_run,
    results_are_those_of_an_undisturbed_run,
    totals_agree,
    events_are_in_order,
    readers_get_everything_once,
    arithmetic_is_right,
    plans_start_each_step_once,
    everything_ends,
)
"""Every rule."""


def violations(history: History) -> list[str]:
    """What breaks a rule, each with the rule's name before it."""
    return [f"{rule.__name__}: {told}" for rule in RULES for told in rule(history)]
