"""What is refused: code, reason and field of each, and that nothing was started."""

import grpc.aio
import pytest

from crucible_bridge.channel import channel_options
from crucible_bridge.client.evaluation import request_of
from crucible_bridge.codec.evaluation import evaluate_request_to_v1
from crucible_bridge.errors import BridgeError, Code
from crucible_bridge.events import EventKind
from crucible_bridge.status import from_rpc_error
from crucible_bridge.types import (
    Dataset,
    EmbeddedModel,
    EvaluationState,
    EvaluatorSpec,
    JsonlDataset,
    Limits,
    LocalModel,
    Sample,
    SamplingParams,
    Verdict,
)
from crucible_bridge.v1 import evaluation_pb2, evaluation_pb2_grpc
from crucible_worker.util.limits import MIN_MESSAGE_BYTES
from tests.service.evaluation_kit import SHOUT, accuracy, asked, log_of, nll, refused, rig, samples_of
from tests.tables import rows

pytestmark = pytest.mark.core

INVALID, NOT_FOUND = Code.INVALID_ARGUMENT, Code.NOT_FOUND


def _dataset(**fields):
    return Dataset(source=JsonlDataset(fields.pop("path", "data.jsonl")), **fields)


REQUESTS = {
    "unknown evaluator": (
        asked(evaluators=["accuracy", "wisdom"]),
        INVALID,
        "UNKNOWN_EVALUATOR",
        "evaluators[1].kind",
    ),
    "unknown option": (
        asked(evaluators=[accuracy(wisdom=1)]),
        INVALID,
        "UNKNOWN_OPTION",
        'evaluators[0].options["wisdom"]',
    ),
    "options of more than 1 MiB": (
        asked(evaluators=[accuracy(), nll(), accuracy("large", wisdom="x" * 1_100_000)]),
        INVALID,
        "INVALID_FIELD",
        "evaluators[2].options",
    ),
    "option of a wrong type": (
        asked(evaluators=[nll(), accuracy(samples_per_prompt="2")]),
        INVALID,
        "INVALID_FIELD",
        'evaluators[1].options["samples_per_prompt"]',
    ),
    "option out of range": (
        asked(evaluators=[accuracy(samples_per_prompt=0)]),
        INVALID,
        "INVALID_FIELD",
        'evaluators[0].options["samples_per_prompt"]',
    ),
    "unknown grader": (
        asked(evaluators=[accuracy(grader="wisdom")]),
        INVALID,
        "UNKNOWN_GRADER",
        'evaluators[0].options["grader"]',
    ),
    "unknown option of a grader": (
        asked(evaluators=[accuracy(grader_options={"wisdom": 1})]),
        INVALID,
        "UNKNOWN_OPTION",
        'evaluators[0].options["grader_options"]["wisdom"]',
    ),
    "no evaluator": (asked(evaluators=[]), INVALID, "INVALID_FIELD", "evaluators"),
    "evaluator without a kind": (asked(evaluators=[""]), INVALID, "INVALID_FIELD", "evaluators[0].kind"),
    "empty name": (asked(evaluators=[nll("")]), INVALID, "INVALID_FIELD", "evaluators[0].name"),
    "no sampling for accuracy": (asked(sampling=None), INVALID, "INVALID_FIELD", "sampling"),
    "empty data set": (asked(dataset=[]), INVALID, "EMPTY_DATASET", "dataset.inline"),
    "duplicate sample id": (
        asked(dataset=[Sample(id="a", input="x"), Sample(id="a", input="y")]),
        INVALID,
        "DUPLICATE_SAMPLE_ID",
        "dataset.inline",
    ),
    "id that an index takes": (
        asked(dataset=[Sample(id="1", input="x"), Sample(input="y")]),
        INVALID,
        "DUPLICATE_SAMPLE_ID",
        "dataset.inline",
    ),
    "unknown built-in data set": (
        asked(dataset="builtin:wisdom"),
        NOT_FOUND,
        "UNKNOWN_DATASET",
        "dataset.builtin",
    ),
    "no such file": (asked(dataset="jsonl:none.jsonl"), NOT_FOUND, "NO_SUCH_FILE", "dataset.jsonl_path"),
    "path out of the root": (
        asked(dataset="jsonl:../outside.jsonl"),
        Code.PERMISSION_DENIED,
        "OUTSIDE_ROOT",
        "dataset.jsonl_path",
    ),
    "absolute path": (
        asked(dataset="jsonl:/etc/hostname"),
        Code.PERMISSION_DENIED,
        "OUTSIDE_ROOT",
        "dataset.jsonl_path",
    ),
    "link out of the root": (
        asked(dataset="jsonl:link.jsonl"),
        Code.PERMISSION_DENIED,
        "OUTSIDE_ROOT",
        "dataset.jsonl_path",
    ),
    "malformed line": (asked(dataset=_dataset()), INVALID, "MALFORMED_LINE", "dataset.jsonl_path"),
    "file without samples": (
        asked(dataset=_dataset(path="empty.jsonl")),
        INVALID,
        "EMPTY_DATASET",
        "dataset.jsonl_path",
    ),
    "limit of no sample": (asked(dataset=_dataset(limit=0)), INVALID, "INVALID_FIELD", "dataset.limit"),
    "missing checkpoint": (asked(model="embedded:none"), NOT_FOUND, "UNKNOWN_MODEL", "model"),
    "model without a backend": (asked(model=LocalModel("x")), Code.FAILED_PRECONDITION, "NO_BACKEND", "model"),
    "model without a name": (asked(model=EmbeddedModel("")), INVALID, "INVALID_FIELD", "model.embedded"),
    "no token to sample": (
        asked(sampling=SamplingParams(max_tokens=0)),
        INVALID,
        "INVALID_FIELD",
        "sampling.max_tokens",
    ),
    "long id": (asked(evaluation_id="e" * 201), INVALID, "INVALID_FIELD", "evaluation_id"),
    "concurrency above the worker's": (
        asked(limits=Limits(concurrency=1025)),
        INVALID,
        "INVALID_FIELD",
        "limits.concurrency",
    ),
    **{
        f"limits {limits}": (asked(limits=limits), INVALID, "INVALID_FIELD", f"limits.{name}")
        for name, limits in (
            ("concurrency", Limits(concurrency=0)),
            ("deadline_ms", Limits(deadline_ms=0)),
            ("stall_timeout_ms", Limits(stall_timeout_ms=0)),
            ("sample_timeout_ms", Limits(sample_timeout_ms=-1)),
            ("max_unscored", Limits(max_unscored=-1)),
            ("max_unscored_share", Limits(max_unscored_share=-0.1)),
            ("max_unscored_share", Limits(max_unscored_share=1.01)),
            ("max_unscored_share", Limits(max_unscored_share=float("nan"))),
        )
    },
}


async def test_bad_requests_start_nothing(tmp_path):
    """Each bad request is refused with its code, reason and field, by Evaluate and Start alike, and leaves no event."""
    root = tmp_path / "data"
    root.mkdir()
    (tmp_path / "outside.jsonl").write_text('{"input": "a", "target": "A"}\n')
    (root / "link.jsonl").symlink_to(tmp_path / "outside.jsonl")
    (root / "data.jsonl").write_text('{"input": "a", "target": "A"}\n{"input": \n')
    (root / "empty.jsonl").write_text("\n\n")
    async with rig(data_roots=(root,)) as r:
        for what, (request, code, reason, field) in REQUESTS.items():
            print(what)
            await refused(r.evaluation.evaluate(request), code, reason, field)
            # Where the message has the request inside, paths of its structure say so.
            error = await refused_anywhere(r.evaluation.start_evaluation(request), code, reason)
            assert error.field in (field, f"request.{field}")
        assert await log_of(r.worker.bridge) == []
        assert (await r.evaluation.list_evaluations()).items == ()
        assert r.model.calls == r.model.loads == 0


async def refused_anywhere(call, code, reason):
    """The error that a call ends with, of this code and reason, at whatever field."""
    with pytest.raises(BridgeError) as caught:
        await call
    assert (caught.value.code, caught.value.reason) == (code, reason)
    return caught.value


async def test_requests_without_model_or_data_set():
    """What the typed client cannot even say: INVALID_ARGUMENT at the field that is missing."""
    whole = evaluate_request_to_v1(asked())
    async with rig() as r, grpc.aio.insecure_channel(r.worker.address) as channel:
        stub = evaluation_pb2_grpc.EvaluationServiceStub(channel)
        for field in ("model", "dataset", "evaluators"):
            request = evaluation_pb2.EvaluateRequest()
            request.CopyFrom(whole)
            request.ClearField(field)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Evaluate(request)
            error = from_rpc_error(caught.value)
            assert (error.code, error.field) == (INVALID, field)
        assert await log_of(r.worker.bridge) == []


async def test_malformed_line_is_named_by_its_number(tmp_path):
    """MALFORMED_LINE says which line, and what is wrong with it."""
    (tmp_path / "data.jsonl").write_text(
        '{"input": "a", "target": "A"}\n{"input": "b"}\n{"input": "c", "tarlet": "C"}\n'
    )
    async with rig(data_roots=(tmp_path,)) as r:
        error = await refused(
            r.evaluation.evaluate(asked(dataset=_dataset())), INVALID, "MALFORMED_LINE", "dataset.jsonl_path"
        )

    assert "line 3" in str(error)
    assert "tarlet" in str(error)


async def test_skipped_malformed_line_is_a_sample_in_error(tmp_path):
    """With skip_malformed the line is a sample with verdict ERROR, asked of no model, counted and never run again."""
    (tmp_path / "data.jsonl").write_text('{"input": "a", "target": "A"}\nnonsense\n{"input": "b", "target": "B"}\n')
    async with rig(data_roots=(tmp_path,)) as r:
        evaluation = await r.evaluation.evaluate(asked(dataset=_dataset(skip_malformed=True)))
        samples = await samples_of(r.worker.bridge)
        event = await r.recorder.wait_for(lambda event: event.metadata.get("verdict") == "error")

    assert [sample.verdict for sample in samples] == [Verdict.CORRECT, Verdict.ERROR, Verdict.CORRECT]
    malformed = samples[1]
    assert malformed.problem is not None
    assert (malformed.problem.reason, malformed.problem.retryable, malformed.attempts) == ("MALFORMED_LINE", False, 0)
    assert "line 2" in malformed.problem.message
    assert event.problem == malformed.problem
    assert (evaluation.results[0].n, evaluation.results[0].n_errors) == (3, 1)
    assert evaluation.metrics.values["accuracy"] == 1.0
    assert r.model.calls == 2


async def test_message_above_the_limit_is_refused():
    """A request larger than max_message_bytes is RESOURCE_EXHAUSTED; the worker goes on to serve, one below runs."""
    large = Sample(input="x" * MIN_MESSAGE_BYTES)
    async with rig(max_message_bytes=MIN_MESSAGE_BYTES) as r:
        channel = grpc.aio.insecure_channel(r.worker.address, options=channel_options())
        async with channel:
            stub = evaluation_pb2_grpc.EvaluationServiceStub(channel)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Evaluate(evaluate_request_to_v1(asked(dataset=[large])))
        assert from_rpc_error(caught.value).code is Code.RESOURCE_EXHAUSTED
        assert await log_of(r.worker.bridge) == []
        small = asked(dataset=[Sample(input="x" * (MIN_MESSAGE_BYTES - 4_000))], evaluators=["nll"])
        assert (await r.evaluation.evaluate(small)).state is EvaluationState.COMPLETED


async def test_unknown_and_empty_ids_on_every_call():
    """An id that no evaluation has is NOT_FOUND on every call that names one, an empty one INVALID_ARGUMENT."""
    async with rig() as r:
        calls = (
            r.evaluation.get_evaluation,
            r.evaluation.get_samples,
            r.evaluation.cancel_evaluation,
            lambda name: anext(r.evaluation.watch_evaluation(name)),
        )
        for call in calls:
            await refused(call("nobody"), NOT_FOUND, "UNKNOWN_EVALUATION", "evaluation_id")
            await refused(call(""), INVALID, "INVALID_FIELD", "evaluation_id")
        await r.evaluation.evaluate(asked())
        await refused(r.evaluation.generate_report(["e", "nobody"]), NOT_FOUND, "UNKNOWN_EVALUATION", "evaluation_id")
        await refused(r.evaluation.generate_report([]), INVALID, "INVALID_FIELD", "evaluation_ids")


@rows("after", [10**6, 2**63 - 1, 2**63, 2**64 - 1])
async def test_watch_from_beyond_the_log(after):
    """after_sequence beyond the log's end, however large, is OUT_OF_RANGE with the last sequence."""
    async with rig() as r:
        await r.evaluation.evaluate(asked())
        error = await refused(
            anext(r.evaluation.watch_evaluation("e", after_sequence=after)),
            Code.OUT_OF_RANGE,
            "BEYOND_LOG",
            "after_sequence",
        )
        assert error.metadata["last_sequence"] == str((await r.evaluation.get_evaluation("e")).last_sequence)


async def test_watch_with_the_log_id_of_another_journal():
    """A log_id of another journal is FAILED_PRECONDITION with the present one."""
    async with rig() as r:
        await r.evaluation.evaluate(asked())
        info = await r.worker.bridge.worker.get_info()
        error = await refused(
            anext(r.evaluation.watch_evaluation("e", after_sequence=1, log_id="another")),
            Code.FAILED_PRECONDITION,
            "OTHER_LOG",
            "log_id",
        )
        assert error.metadata["log_id"] == info.log_id


async def test_bounds_are_accepted_at_their_edge():
    """The largest concurrency, a share of 0 and 1, a count of 0 and times of 1 ms are sound."""
    async with rig(max_concurrency=64) as r:
        for index, limits in enumerate(
            (
                Limits(concurrency=64),
                Limits(max_unscored_share=0.0, max_unscored=0),
                Limits(max_unscored_share=1.0),
                Limits(sample_timeout_ms=2**40, stall_timeout_ms=2**40, deadline_ms=2**40),
            )
        ):
            request = asked(evaluation_id=f"e{index}", limits=limits)
            assert (await r.evaluation.evaluate(request)).state is EvaluationState.COMPLETED


async def test_ids_may_be_any_text():
    """An id of 200 bytes, of any letters, is found again as it is."""
    names = ("e" * 200, "é" * 100, "a/b c\n", "'; DROP TABLE evaluations; --", "\N{SNOWMAN}")
    async with rig() as r:
        for name in names:
            evaluation = await r.evaluation.evaluate(asked(evaluation_id=name, run_id=name, correlation_id=name))
            assert evaluation == await r.evaluation.get_evaluation(name)
            assert [sample.sample_id for sample in await samples_of(r.worker.bridge, name)] == ["0", "1"]
            stop = await r.told(EventKind.EVALUATION_STOP, name)
            assert (stop.run_id, stop.correlation_id) == (name, name)


async def test_options_and_keys_are_what_was_asked():
    """Options are kept as they were given: numbers, lists and objects come back equal."""
    spec = EvaluatorSpec(kind="accuracy", name="n", options={"grader": "contains", "grader_options": {}})
    async with rig() as r:
        evaluation = await r.evaluation.evaluate(
            request_of(model="embedded:m", evaluators=spec, dataset=SHOUT, sampling=SamplingParams(max_tokens=1))
        )
    assert evaluation.request.evaluators == (spec,)
