"""What was recorded before types and conversions were generated from the protos: every outcome stands.

`tests/cases/wire/messages.json.gz` holds messages of `tests.cases.wire.messages` and what became of each: where it
is refused, or what is encoded of the decoded value. `fingerprints.json` holds the fingerprints of
`tests.cases.wire.specifications`.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path

from crucible_bridge.types import SamplingParams
from crucible_worker.engine.specification import fingerprint, plan_fingerprint, settings_fingerprint, step_fingerprint
from tests.cases.wire import specifications
from tests.cases.wire.messages import decoders, outcome

CASES = Path(__file__).resolve().parents[2] / "cases" / "wire"


def test_recorded_messages_have_the_same_outcome():
    """Each message is refused at the same field, or gives the same bytes when its value is encoded again."""
    recorded = json.loads(gzip.decompress((CASES / "messages.json.gz").read_bytes()))
    assert {stem for stem, _, _ in recorded} <= decoders().keys()

    failures = [
        f"{stem} {content}: {found}, was {expected}"
        for stem, content, expected in recorded
        if (found := outcome(stem, bytes.fromhex(content))) != expected
    ]

    assert not failures, f"{len(failures)} of {len(recorded)}, the first: {failures[0]}"


def test_recorded_specifications_keep_their_fingerprints():
    """A journal's evaluations and plans are found again: the same specification has the same fingerprint."""
    recorded = json.loads((CASES / "fingerprints.json").read_text())

    assert fingerprints() == recorded


def test_a_field_that_joins_later_leaves_fingerprints_as_they_are():
    """A specification without the new field, or with its default, is the same; with another value it is another."""
    request = specifications.REQUESTS["sampling_all"]
    joined = dataclasses.make_dataclass(
        "SamplingParams",
        [("min_tokens", int, dataclasses.field(default=0)), ("bias", dict, dataclasses.field(default_factory=dict))],
        bases=(SamplingParams,),
        frozen=True,
        kw_only=True,
    )
    given = {field.name: getattr(request.sampling, field.name) for field in dataclasses.fields(SamplingParams)}

    def found(**fields: object) -> str:
        return fingerprint(dataclasses.replace(request, sampling=joined(**given, **fields)))

    assert found() == fingerprint(request)
    assert found(min_tokens=0, bias={}) == fingerprint(request)
    assert len({fingerprint(request), found(min_tokens=1), found(min_tokens=2), found(bias={"a": 1})}) == 4


def fingerprints() -> dict[str, str]:
    """Of every recorded specification."""
    found = {f"request {name}": fingerprint(request) for name, request in specifications.REQUESTS.items()}
    for name, plan in specifications.PLANS.items():
        found[f"plan {name}"] = plan_fingerprint(plan)
        for index, planned in enumerate((*plan.evaluations, *plan.infrequent_evaluations)):
            found[f"settings {name} {index}"] = settings_fingerprint(planned)
    for name, model in specifications.MODELS.items():
        found[f"step {name}"] = step_fingerprint("p", 7, model)
    return found
