"""Records of the journal: what is packed comes back equal, bit for bit."""

import dataclasses

from hypothesis import given

from crucible_bridge.types import InlineDataset
from crucible_worker.runs.journal.records import (
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
    assert plain(request_from_record(request_to_record(request))) == plain(kept)


@given(sample_results)
def test_samples(sample):
    """A result comes back as it was, with the columns that stand beside its record."""
    assert plain(sample_from_record(sample.evaluator, sample.verdict.value, sample_to_record(sample))) == plain(sample)


@given(metrics, several(evaluator_results), optional(problems))
def test_results(found, results, problem):
    """What an evaluation ended with comes back as it was."""
    assert plain(result_from_record(result_to_record(found, results, problem))) == plain((found, results, problem))
