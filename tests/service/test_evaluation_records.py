"""What is recorded of samples: what each is, what the model got, what went between it and its judges."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from crucible_bridge.client import Bridge
from crucible_bridge.errors import BackendError, InvalidField
from crucible_bridge.events import EventKind
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Dataset,
    Datum,
    EvaluationPlan,
    EvaluatorSpec,
    JsonlDataset,
    Limits,
    PlannedEvaluation,
    Record,
    ReportFormat,
    Sample,
    SampleResult,
    SamplingParams,
    TokenPrompt,
    TruncatedPart,
    Verdict,
)
from crucible_worker.journal.schema import JOURNAL_FILE
from crucible_worker.testing import STALL, ScriptedModel, run_worker
from crucible_worker.util.limits import MIN_MESSAGE_BYTES, WorkerLimits
from tests.service.openai_kit import ScriptedServer, worker_on
from tests.tables import rows

CHAT = Conversation((ChatMessage("system", "Be loud."), ChatMessage("user", "hello")))
SAMPLES = (
    Sample(id="text", input="ab", targets=("AB", "Ab"), choices=("AB", "CD"), metadata={"of": "a test"}),
    Sample(id="chat", input=CHAT, targets=("BE LOUD.HELLO",)),
)
TABLES = (
    "contents",
    "recorded_datasets",
    "dataset_contents",
    "recorded_evaluations",
    "prompt_frames",
    "sample_records",
)
PARAMS = SamplingParams(max_tokens=32)


async def evaluated(bridge: Bridge, evaluation_id: str = "e", **fields) -> dict[tuple[str, str], SampleResult]:
    """The results of an evaluation, by evaluator and sample."""
    defaults = {"model": "embedded:m", "evaluators": ["accuracy"], "dataset": SAMPLES, "sampling": PARAMS}
    await bridge.evaluation.evaluate(evaluation_id=evaluation_id, **{**defaults, **fields})
    return {(each.evaluator, each.sample_id): each async for each in bridge.evaluation.all_samples(evaluation_id)}


@contextlib.contextmanager
def journal_of(state_dir: Path) -> Iterator[sqlite3.Connection]:
    """A connection to the journal of a worker, beside it."""
    with contextlib.closing(sqlite3.connect(state_dir / JOURNAL_FILE, isolation_level=None)) as connection:
        yield connection


def rows_in(state_dir: Path) -> dict[str, int]:
    """How many rows each table of records has."""
    with journal_of(state_dir) as journal:
        return {table: journal.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in TABLES}


async def test_turns_of_the_first_groups_alone_are_recorded_on_request(tmp_path):
    """With num_groups_to_log, later groups have result, sample and prompt, but no turns; nothing is truncated."""
    questions = [Sample(id=str(n), input=f"ab{n}", targets=(f"AB{n}",)) for n in range(3)]
    found: dict[int | None, dict[tuple[str, str], SampleResult]] = {}
    async with run_worker({"m": ScriptedModel()}, state_dir=tmp_path) as worker:
        for kept in (None, 0, 2):
            options = {"group_size": 2} | ({} if kept is None else {"num_groups_to_log": kept})
            spec = EvaluatorSpec(kind="rl_test_set", options=options)
            sampling = SamplingParams(max_tokens=32, temperature=1.0)
            found[kept] = await evaluated(
                worker.bridge, f"e-{kept}", evaluators=[spec], dataset=questions, sampling=sampling
            )

    turns = {kept: [len(one.turns) for one in results.values()] for kept, results in found.items()}
    assert turns == {None: [4, 4, 4], 0: [0, 0, 0], 2: [4, 4, 0]}
    last = found[2]["rl_test_set", "2"]
    whole = found[None]["rl_test_set", "2"]
    assert (last.sample, last.prompt, last.truncated) == (questions[2], whole.prompt, ())
    assert (last.score, last.output) == (whole.score, whole.output)


async def test_a_record_gives_the_whole_sample_back(tmp_path):
    """Input, targets, choices, metadata and the prompt, of answers and of likelihoods, at a later worker as well."""
    async with run_worker({"m": ScriptedModel()}, state_dir=tmp_path) as worker:
        found = await evaluated(worker.bridge, evaluators=["accuracy", "nll"])
    async with run_worker({}, state_dir=tmp_path) as worker:
        again = {(each.evaluator, each.sample_id): each async for each in worker.bridge.evaluation.all_samples("e")}
    assert found == again
    for (_, sample_id), result in found.items():
        assert result.sample == SAMPLES[sample_id == "chat"]
        assert result.truncated == ()
        assert result.turns == (), "one question and its answer are prompt and output"
    asked = Conversation((ChatMessage("user", "ab"),))
    assert found["accuracy", "text"].prompt == found["nll", "text"].prompt == asked
    assert found["accuracy", "chat"].prompt == CHAT


@rows(
    ("record", "output", "sample", "extracted"),
    [
        (Record.FULL, "AB", SAMPLES[0], "AB"),
        (Record.OUTPUTS, "AB", None, "AB"),
        (Record.NONE, "", None, ""),
        ("outputs", "AB", None, "AB"),
    ],
)
async def test_record_says_how_much_is_kept(record, output, sample, extracted):
    """Less is recorded, and the metrics are the same to the last bit."""
    async with run_worker({"m": ScriptedModel()}) as worker:
        whole = await worker.bridge.evaluation.evaluate(
            model="embedded:m", evaluators=["accuracy", "nll"], dataset=SAMPLES, sampling=PARAMS
        )
        found = await evaluated(worker.bridge, evaluators=["accuracy", "nll"], record=record)
        result = found["accuracy", "text"]
        assert (result.output, result.sample, result.extracted) == (output, sample, extracted)
        assert (result.verdict, result.score, result.output_tokens) == (Verdict.CORRECT, 1.0, 2)
        assert (result.prompt is None) == (record != Record.FULL)
        evaluation = await worker.bridge.evaluation.get_evaluation("e")
        assert evaluation.request.record == record
        assert evaluation.metrics == whole.metrics


async def test_record_is_no_part_of_the_specification():
    """The same id with another `record` is the same evaluation, which is returned as it is."""
    async with run_worker({"m": ScriptedModel()}) as worker:
        await evaluated(worker.bridge, record=Record.NONE)
        found = await evaluated(worker.bridge, record=Record.FULL)
        assert found["accuracy", "text"].output == ""


async def test_a_wrong_record_is_refused():
    """The error names the field, and what it may be."""
    async with run_worker({"m": ScriptedModel()}) as worker:
        with pytest.raises(InvalidField, match="full, outputs, none") as caught:
            await evaluated(worker.bridge, record="everything")
        assert caught.value.field == "record"


async def test_of_an_attempt_that_resumes_its_own_record_holds(tmp_path):
    """What a first attempt recorded stays; the rest is recorded as the request that resumes says."""
    dataset = [Sample(id=str(n), input=f"q{n}", targets=(f"Q{n}",)) for n in range(6)]
    fields = {"dataset": dataset, "limits": Limits(concurrency=1)}
    held = ScriptedModel(fault=lambda call: STALL if call.index == 3 else None)
    async with run_worker({"m": held}, state_dir=tmp_path) as worker:
        await worker.bridge.evaluation.start_evaluation(
            evaluation_id="e", model="embedded:m", evaluators=["accuracy"], sampling=PARAMS, **fields
        )
        async with worker.bridge.evaluation.watch_evaluation("e") as events:
            async for event in events:
                if event.metadata.get("sample_id") == "2":
                    break
    async with run_worker({"m": ScriptedModel()}, state_dir=tmp_path) as worker:
        found = await evaluated(worker.bridge, record=Record.OUTPUTS, **fields)
        recorded = [found["accuracy", str(n)].sample is not None for n in range(6)]
        assert recorded == [True] * 3 + [False] * 3
        assert (await worker.bridge.evaluation.get_evaluation("e")).request.record is Record.OUTPUTS


async def test_tokens_say_that_they_were_tokens():
    """Of a Datum the record has the tokens and how many there were; no text is made up."""
    datum = Datum(model_input=[65, 66, 67], loss_fn_inputs={"target_tokens": [66, 67, 68], "weights": [0.0, 1.0, 1.0]})
    async with run_worker({"m": ScriptedModel()}) as worker:
        found = await evaluated(worker.bridge, evaluators=["nll"], dataset=[Sample(id="d", input=datum)], sampling=None)
        result = found["nll", "d"]
        assert result.prompt == TokenPrompt(3)
        assert result.sample is not None
        assert isinstance(result.sample.input, Datum)
        assert result.sample.input.model_input.tokens().tolist() == [65, 66, 67]


async def test_a_sample_that_fails_has_its_prompt():
    """What a model could not be asked is recorded: it is what one wants to see."""
    refusing = ScriptedModel(fault=lambda call: BackendError("no", retryable=False))
    async with run_worker({"m": refusing}) as worker:
        result = (await evaluated(worker.bridge))["accuracy", "text"]
        assert result.verdict is Verdict.ERROR
        assert result.sample == SAMPLES[0]
        assert result.prompt == Conversation((ChatMessage("user", "ab"),))


async def test_a_line_that_is_no_sample_has_no_record(tmp_path):
    """It has its problem; the others are recorded."""
    (tmp_path / "data.jsonl").write_text('{"input": "a", "target": "A"}\nnothing\n')
    async with run_worker({"m": ScriptedModel()}, data_roots=(tmp_path,)) as worker:
        dataset = Dataset(source=JsonlDataset("data.jsonl"), skip_malformed=True)
        found = await evaluated(worker.bridge, dataset=dataset)
        assert [(each.sample is None, each.prompt is None) for each in found.values()] == [(False, False), (True, True)]


async def test_judges_have_their_turns():
    """Of a comparison: the answer, then both questions to the judge, each with what it said to it and its tokens."""
    judge = ScriptedModel(answer=lambda prompt: "A")
    async with run_worker({"m": ScriptedModel(), "judge": judge}) as worker:
        spec = EvaluatorSpec(kind="comparison", options={"judge": "embedded:judge"})
        turns = (await evaluated(worker.bridge, evaluators=[spec]))["comparison", "text"].turns
        assert [(turn.role, turn.model) for turn in turns] == [
            *[("user", ""), ("assistant", "")],
            *[("user", "judge"), ("assistant", "judge")] * 2,
        ]
        assert [turn.text for turn in turns[:2]] == ["ab", "AB"]
        assert [turn.text for turn in turns[3::2]] == ["A", "A"]
        assert turns[2].text.startswith("Two answers to one question are to be compared.")
        assert all(turn.tokens == len(turn.text) for turn in turns)


@pytest.mark.parametrize("intermediates", [False, True])
async def test_rollouts_have_their_turns(intermediates):
    """Each rollout of a group with its reward and its tokens; ids and log-probabilities where they are asked for."""
    options = {"group_size": 2, "grader": "exact_match", "intermediates": intermediates}
    specs = [
        EvaluatorSpec(kind="rl_test_set", options=options),
        EvaluatorSpec(kind="rollout", options={"grader": "exact_match", "intermediates": intermediates}),
    ]
    async with run_worker({"m": ScriptedModel()}) as worker:
        found = await evaluated(
            worker.bridge, evaluators=specs, sampling=SamplingParams(max_tokens=8, temperature=1.0), dataset=SAMPLES[:1]
        )
        for kind, rollouts in (("rl_test_set", 2), ("rollout", 1)):
            turns = found[kind, "text"].turns
            assert [(turn.role, turn.text, turn.reward, turn.tokens, turn.rollout) for turn in turns] == [
                each
                for rollout in range(rollouts)
                for each in (("user", "ab", None, 2, rollout), ("assistant", "AB", 1.0, 2, rollout))
            ]
            for turn in turns[1::2]:
                if intermediates:
                    assert turn.token_ids is not None
                    assert turn.logprobs is not None
                    assert (turn.token_ids.tolist(), len(turn.logprobs)) == ([65, 66], 2)
                else:
                    assert (turn.token_ids, turn.logprobs) == (None, None)


async def test_a_server_gets_what_is_recorded(tmp_path):
    """The prompt of a server's model is what went over the wire: its messages, or its text."""
    server = ScriptedServer()
    async with server.serving(), worker_on(server, tmp_path) as bridge:
        found = await evaluated(bridge, model="openai:s/m", dataset=[Sample(id="chat", input=CHAT)])
        assert found["accuracy", "chat"].prompt == CHAT
        (asked,) = [request for request in server.asked if request.path.endswith("/chat/completions")]
        assert [(each["role"], each["content"]) for each in asked.body["messages"]] == [
            (message.role, message.content) for message in CHAT.messages
        ]


async def test_contents_are_kept_once(tmp_path):
    """By content: for all evaluations of a data set, of another order of it, and for all evaluators and repeats."""
    async with run_worker({"m": ScriptedModel()}, state_dir=tmp_path) as worker:
        await evaluated(worker.bridge, "one")
        first = rows_in(tmp_path)
        assert (first["contents"], first["dataset_contents"]) == (2, 2)
        await evaluated(worker.bridge, "two", evaluators=["accuracy", "nll"])
        await evaluated(worker.bridge, "backwards", dataset=SAMPLES[::-1])
        await evaluated(worker.bridge, "outputs", dataset=SAMPLES[:1], record=Record.OUTPUTS)
        found = rows_in(tmp_path)
        assert (found["contents"], found["recorded_datasets"], found["dataset_contents"]) == (2, 2, 4)


async def test_contents_go_with_the_last_evaluation_that_needs_them(tmp_path):
    """Whoever removes it, by the statements of releases that know of no records: nothing is left behind."""
    async with run_worker({"m": ScriptedModel()}, state_dir=tmp_path) as worker:
        for evaluation_id in ("one", "two"):
            await evaluated(worker.bridge, evaluation_id)
        await evaluated(worker.bridge, "three", record=Record.OUTPUTS)
    with journal_of(tmp_path) as journal:

        def remove(evaluation_id: str) -> None:
            (number,) = journal.execute(
                "SELECT number FROM evaluations WHERE evaluation_id = ?", (evaluation_id,)
            ).fetchone()
            journal.execute("DELETE FROM samples WHERE number = ?", (number,))
            journal.execute("DELETE FROM evaluations WHERE number = ?", (number,))

        remove("one")
        assert rows_in(tmp_path)["contents"] == 2
        remove("two")
    # The third one has recorded no samples; what they took stands in two rows.
    assert rows_in(tmp_path) == dict.fromkeys(TABLES, 0) | {"sample_records": 2}
    async with run_worker({}, state_dir=tmp_path) as worker:
        assert [each.sample async for each in worker.bridge.evaluation.all_samples("three")] == [None, None]


@rows(("most", "whole"), [(2 * 4096, True), (2 * 4095, False)], ids=["as long as the bound", "a byte more"])
async def test_a_sample_is_bounded(most, whole):
    """A sample has half of its bound; what is longer is truncated, and the record says what, and by how much."""
    # A list of input, targets, choices and metadata: 7 bytes beside the text.
    sample = Sample(id="long", input="x" * (4096 - 7))
    async with run_worker({"m": ScriptedModel()}, limits=WorkerLimits(max_sample_record_bytes=most)) as worker:
        result = (await evaluated(worker.bridge, dataset=[sample]))["accuracy", "long"]
        assert result.sample is not None
        assert isinstance(result.sample.input, str)
        assert isinstance(sample.input, str)
        lost = len(sample.input) - len(result.sample.input)
        assert sample.input.startswith(result.sample.input)
        expected = () if whole else (("sample.input", lost), ("prompt", lost))
        assert tuple((part.part, part.bytes) for part in result.truncated) == expected
        assert (lost == 0) == whole


async def test_an_evaluation_is_bounded():
    """Samples behind the bound have their results, and say that they are recorded without; those before are whole."""
    dataset = [Sample(id=str(n), input=f"{n:03}" + "abcdefgh" * 8, targets=("x",)) for n in range(20)]
    limits = WorkerLimits(max_evaluation_record_bytes=1000)
    async with run_worker({"m": ScriptedModel()}, limits=limits) as worker:
        found = await evaluated(worker.bridge, dataset=dataset, limits=Limits(concurrency=1))
        results = [found["accuracy", str(n)] for n in range(20)]
        recorded = [result.sample is not None for result in results]
        assert recorded == sorted(recorded, reverse=True)
        assert 0 < sum(recorded) < 20
        for sample, result in zip(dataset, results):
            assert result.output
            if result.sample is not None:
                assert (result.sample, result.truncated) == (sample, ())
            else:
                parts = {part.part: part for part in result.truncated}
                assert set(parts) == {"sample", "prompt"}
                assert all(part.limit == "max_evaluation_record_bytes" for part in parts.values())
                assert parts["prompt"].bytes == len("user") + len(str(sample.input))


async def test_events_carry_results_on_request():
    """With `records` SAMPLE_COMPLETE has the result as GetSamples gives it; without, and of other events, none."""
    async with run_worker({"m": ScriptedModel()}) as worker:
        found = await evaluated(worker.bridge)
        streams = {
            records: [
                worker.bridge.evaluation.watch_evaluation("e", records=records),
                worker.bridge.telemetry.subscribe(until_now=True, records=records),
            ]
            for records in (True, False)
        }
        for records, opened in streams.items():
            for stream in opened:
                async with stream as events:
                    async for event in events:
                        expected = None
                        if records and event.kind is EventKind.SAMPLE_COMPLETE:
                            expected = found["accuracy", event.metadata["sample_id"]]
                            assert event.position == SAMPLES.index(expected.sample)
                        assert event.sample_result == expected


async def test_a_stream_of_large_records_comes_in_small_batches():
    """Batches end by their size: any number of large results passes the limit of messages."""
    dataset = [Sample(id=str(n), input="y" * 500_000) for n in range(12)]
    async with run_worker({"m": ScriptedModel()}, limits=WorkerLimits(max_message_bytes=4 * 1024 * 1024)) as worker:
        for n in range(0, 12, 4):
            await evaluated(worker.bridge, f"e{n}", dataset=dataset[n : n + 4])
        async with worker.bridge.telemetry.subscribe(until_now=True, records=True) as events:
            results = [event.sample_result async for event in events if event.kind is EventKind.SAMPLE_COMPLETE]
    assert [len(str(result.sample.input)) for result in results if result and result.sample] == [500_000] * 12


@pytest.mark.parametrize("records", [True, False])
async def test_pages_end_below_a_small_limit_of_messages(records):
    """Results and events come in as many messages as the worker's limit needs, with records and without."""
    dataset = [Sample(id=str(n), input="y" * 500 + str(n)) for n in range(600)]
    async with run_worker({"m": ScriptedModel()}, limits=WorkerLimits(max_message_bytes=MIN_MESSAGE_BYTES)) as worker:
        for n in range(0, 600, 150):
            await evaluated(worker.bridge, f"e{n}", dataset=dataset[n : n + 150])
        read = [each async for each in worker.bridge.evaluation.all_samples("e0", without_records=not records)]
        async with worker.bridge.telemetry.subscribe(until_now=True, records=records) as events:
            told = [event async for event in events if event.kind is EventKind.SAMPLE_COMPLETE]
    assert (len(read), len(told)) == (150, 600)
    assert (
        {each.sample is not None for each in read} == {event.sample_result is not None for event in told} == {records}
    )


async def test_of_a_sample_that_ran_again_the_last_event_has_the_result(tmp_path):
    """An event of an earlier run of a sample has no result: what is kept is that of the last run."""
    down = ScriptedModel(fault=lambda call: BackendError("down", retryable=True))
    async with run_worker({"m": down}, state_dir=tmp_path) as worker:
        await worker.bridge.evaluation.start_evaluation(
            evaluation_id="e",
            model="embedded:m",
            evaluators=["accuracy", EvaluatorSpec(kind="accuracy", name="second")],
            sampling=PARAMS,
            dataset=SAMPLES[:1],
            limits=Limits(sample_timeout_ms=50, concurrency=1),
        )
        async with worker.bridge.evaluation.watch_evaluation("e") as events:
            async for event in events:
                if event.kind is EventKind.SAMPLE_COMPLETE:
                    break
    with journal_of(tmp_path) as journal:
        journal.execute("UPDATE samples SET attempt = attempt + 1")
    async with (
        run_worker({}, state_dir=tmp_path) as worker,
        worker.bridge.telemetry.subscribe(until_now=True, records=True) as events,
    ):
        found = [event.sample_result async for event in events if event.kind is EventKind.SAMPLE_COMPLETE]
        assert found
        assert set(found) == {None}
        read = [each async for each in worker.bridge.evaluation.all_samples("e")]
        assert [(each.sample, each.prompt) for each in read] == [(None, None)] * len(read)


async def test_pages_of_large_records_end_by_their_size():
    """A page stays below the limit of messages, whatever is recorded; all of them together are everything."""
    dataset = [Sample(id=str(n), input=f"{n}" + "z" * 900_000) for n in range(24)]
    async with run_worker({"m": ScriptedModel()}) as worker:
        found = await evaluated(worker.bridge, dataset=dataset)
        assert [each.sample for each in found.values()] == dataset
        first = await worker.bridge.evaluation.get_samples("e")
        assert len(first.items) < 24
        bare = await worker.bridge.evaluation.get_samples("e", without_records=True)
        assert [(each.sample, each.prompt, each.output != "") for each in bare.items] == [(None, None, True)] * 24


async def test_plans_say_what_is_recorded():
    """Planned evaluations that differ in it are evaluations of their own."""
    plan = EvaluationPlan(
        plan_id="p",
        run_id="r",
        eval_every=1,
        evaluations=tuple(
            PlannedEvaluation(
                evaluators=(EvaluatorSpec(kind="accuracy", name=record.value),),
                dataset=Dataset.of(SAMPLES),
                sampling=PARAMS,
                record=record,
            )
            for record in Record
        ),
    )
    async with run_worker({"m": ScriptedModel()}) as worker:
        await worker.bridge.evaluation.register_plan(plan)
        started = await worker.bridge.evaluation.notify_step("p", 0, "embedded:m")
        assert [each.evaluation.request.record for each in started] == list(Record)


async def test_reports_show_what_was_asked():
    """Of samples that failed: input, targets and prompt in JSON, input and target in Markdown."""
    refusing = ScriptedModel(fault=lambda call: BackendError("no", retryable=False))
    async with run_worker({"m": refusing}) as worker:
        await evaluated(worker.bridge)
        told = json.loads(await worker.bridge.evaluation.generate_report("e", ReportFormat.JSON))
        text, chat = told["evaluations"][0]["failures"]
        assert (text["input"], text["targets"], text["metadata"]) == ("ab", ["AB", "Ab"], {"of": "a test"})
        assert text["prompt"] == [{"role": "user", "content": "ab"}]
        assert [message["content"] for message in chat["input"]] == ["Be loud.", "hello"]
        markdown = await worker.bridge.evaluation.generate_report("e", ReportFormat.MARKDOWN)
        assert "| text | 0 | error | ab | AB, Ab |" in markdown


def test_truncated_parts_are_compared_by_their_fields():
    """Callers look for them in sets and lists."""
    parts: Sequence[TruncatedPart] = [TruncatedPart(part="prompt", bytes=3, limit="max_sample_record_bytes")] * 2
    assert len(set(parts)) == 1
