"""Records of the journal: what is packed comes back equal, bit for bit."""

import dataclasses

from hypothesis import given

from crucible_bridge.client import request_of
from crucible_bridge.types import EvaluatorResult, EvaluatorSpec, InlineDataset, Metrics
from crucible_worker.runs.journal.records import (
    MAX_ROW_BYTES,
    apart_to_record,
    request_from_record,
    request_to_record,
    result_from_record,
    result_to_record,
    sample_from_record,
    sample_to_record,
)
from tests.unit.bridge.strategies import evaluator_results, metrics, optional, plain, problems, sample_results, several
from tests.unit.bridge.strategies import requests as any_requests


@given(any_requests)
def test_requests(request):
    """A request comes back as it was; an inline data set comes back empty, as its samples are not kept."""
    kept = request
    if isinstance(request.dataset.source, InlineDataset):
        kept = dataclasses.replace(request, dataset=dataclasses.replace(request.dataset, source=InlineDataset(())))
    assert plain(request_from_record(request_to_record(request), apart_to_record(request))) == plain(kept)


def large(size=10 * MAX_ROW_BYTES):
    """A request of three evaluators, two of them with large options, and large labels."""
    options = [{"text": "x" * size}, {"choices": ["y" * size, {"z": 1}]}, {"grader": "numeric"}]
    specs = [EvaluatorSpec(kind="accuracy", name=str(index), options=each) for index, each in enumerate(options)]
    labels = {f"label {index}": "v" * 500 for index in range(20)}
    return request_of(model="embedded:m", evaluators=specs, dataset=[], labels=labels)


def test_what_is_large_is_kept_apart():
    """A request's row has small options as they are and digests of large ones; with the rest it is whole again."""
    request = large()
    record, apart = request_to_record(request), apart_to_record(request)
    assert len(record) < 4 * MAX_ROW_BYTES
    assert request_from_record(record, apart) == request
    alone = request_from_record(record)
    assert alone.evaluators[2] == request.evaluators[2]
    assert alone.evaluators[0].options != alone.evaluators[1].options
    assert apart_to_record(alone) is None
    assert request_to_record(alone) == record


def test_results_have_the_options_of_their_request():
    """What an evaluation ended with repeats no large options, and has them when it is read."""
    request = large()
    results = [EvaluatorResult(evaluator=spec, metrics=Metrics({})) for spec in request.evaluators]
    record = result_to_record(Metrics({}), results, None)
    assert len(record) < 4 * MAX_ROW_BYTES
    assert result_from_record(record, apart_to_record(request))[1] == tuple(results)


def test_what_is_small_stays_in_the_row():
    """Nothing is kept apart of a request as they usually are."""
    request = dataclasses.replace(large(10), labels={"a": "b"})
    assert apart_to_record(request) is None
    assert request_from_record(request_to_record(request)) == request


@given(sample_results)
def test_samples(sample):
    """A result comes back as it was, with the columns that stand beside its record."""
    assert plain(sample_from_record(sample.evaluator, sample.verdict.value, sample_to_record(sample))) == plain(sample)


@given(metrics, several(evaluator_results), optional(problems))
def test_results(found, results, problem):
    """What an evaluation ended with comes back as it was."""
    assert plain(result_from_record(result_to_record(found, results, problem))) == plain((found, results, problem))
