"""ListEvaluations, GetSamples, GetEvaluation and GenerateReport: filters, order, pages, texts."""

import json

import pytest

from crucible_bridge.errors import Code
from crucible_bridge.types import EvaluationState, ReportFormat, Sample, Verdict
from crucible_worker.rpc.evaluation import EVALUATIONS_MAX, SAMPLES_MAX
from crucible_worker.testing import ScriptedModel
from tests.service.evaluation_kit import (
    SHOUT,
    HeldModel,
    accuracy,
    asked,
    failing,
    nll,
    numbered,
    refused,
    rig,
    samples_of,
)
from tests.tables import rows


async def run_some(r):
    """Five evaluations: steps 0 to 2 of run "x", one without a step, one of run "y"."""
    for name, run_id, step in (("x0", "x", 0), ("x1", "x", 1), ("x2", "x", 2), ("x", "x", None), ("y1", "y", 1)):
        await r.evaluation.evaluate(asked(evaluation_id=name, run_id=run_id, step=step, dataset=SHOUT[:1]))


async def test_list_filters():
    """Run, states, and steps from and to (inclusive) select; all together; newest first."""
    async with rig() as r:
        await run_some(r)

        async def ids(**filters):
            return [item.evaluation_id for item in (await r.evaluation.list_evaluations(**filters)).items]

        assert await ids() == ["y1", "x", "x2", "x1", "x0"]
        assert await ids(run_id="x") == ["x", "x2", "x1", "x0"]
        assert await ids(run_id="nobody's") == []
        assert await ids(from_step=1) == ["y1", "x2", "x1"]
        assert await ids(to_step=1) == ["y1", "x1", "x0"]
        assert await ids(from_step=1, to_step=1, run_id="x") == ["x1"]
        assert await ids(states=[EvaluationState.COMPLETED], to_step=0) == ["x0"]
        assert await ids(states=[EvaluationState.RUNNING, EvaluationState.QUEUED]) == []


async def test_list_tells_the_states():
    """A running, a queued, a cancelled and a completed evaluation are each found by their state."""
    async with rig(HeldModel(), max_running_evaluations=1) as r:
        await r.evaluation.start_evaluation(asked(evaluation_id="cancelled"))
        await r.evaluation.cancel_evaluation("cancelled")
        r.model.let_go.set()
        await r.evaluation.evaluate(asked(evaluation_id="completed"))
        r.model.let_go.clear()
        r.model.asked.clear()
        await r.evaluation.start_evaluation(asked(evaluation_id="running"))
        await r.model.asked.wait()
        await r.evaluation.start_evaluation(asked(evaluation_id="queued"))

        for state in ("running", "queued", "cancelled", "completed"):
            page = await r.evaluation.list_evaluations(states=[EvaluationState(state)])
            assert [item.evaluation_id for item in page.items] == [state]


@rows("size", [1, 2, 4, 5, 6])
async def test_list_pages(size):
    """Pages of any size hold every evaluation once, newest first, none empty; the last has no token."""
    async with rig() as r:
        await run_some(r)
        pages, token = [], ""
        while True:
            page = await r.evaluation.list_evaluations(page_size=size, page_token=token)
            pages.append([item.evaluation_id for item in page.items])
            token = page.next_page_token
            if not token:
                break
            assert len(page.items) == size

    assert [name for page in pages for name in page] == ["y1", "x", "x2", "x1", "x0"]
    assert all(pages)


async def test_pages_do_not_shift_when_evaluations_are_added():
    """A page token says where to go on, however many newer evaluations there are by then."""
    async with rig() as r:
        await run_some(r)
        first = await r.evaluation.list_evaluations(page_size=2)
        await r.evaluation.evaluate(asked(evaluation_id="new"))
        second = await r.evaluation.list_evaluations(page_size=2, page_token=first.next_page_token)

    assert [item.evaluation_id for item in second.items] == ["x2", "x1"]


async def test_samples_are_in_the_order_of_the_data_set():
    """By position, then evaluator, then repeat; however they were completed, and whatever the page size."""

    class Backwards(ScriptedModel):
        async def sample(self, prompt, params, num_samples=1):
            index = int("".join(map(chr, prompt.tokens()[1:])))
            self.latency = 0.002 * (12 - index)
            return await super().sample(prompt, params, num_samples)

    async with rig(Backwards()) as r:
        await r.evaluation.evaluate(
            asked(dataset=numbered(11), evaluators=[nll("z"), accuracy("a", samples_per_prompt=2)])
        )
        wanted = [
            (f"s{index}", evaluator, repeat)
            for index in range(11)
            for evaluator, repeat in (("z", 0), ("a", 0), ("a", 1))
        ]
        for size in (0, 1, 7, 33, 34):
            found = await samples_of(r.worker.bridge, page_size=size)
            assert [(sample.sample_id, sample.evaluator, sample.repeat) for sample in found] == wanted


async def test_sample_filters():
    """Verdicts and evaluator select, alone and together, and pages of a filter hold what it lets through."""
    samples = [
        Sample(id="right", input="a", targets=("A",)),
        Sample(id="wrong", input="b", targets=("x",)),
        Sample(id="broken", input="c", targets=("C",)),
        Sample(id="undecided", input="d"),
    ]
    async with rig(ScriptedModel(fault=lambda call: failing("c")(call) if call.method == "sample" else None)) as r:
        await r.evaluation.evaluate(asked(dataset=samples, evaluators=[accuracy(), accuracy("again"), nll()]))

        async def found(**filters):
            return [(sample.sample_id, sample.evaluator) for sample in await samples_of(r.worker.bridge, **filters)]

        assert await found(evaluator="again") == [(sample.id, "again") for sample in samples]
        assert await found(evaluator="nobody's") == []
        assert await found(verdicts=[Verdict.CORRECT]) == [("right", "accuracy"), ("right", "again")]
        assert await found(verdicts=[Verdict.ERROR, Verdict.UNDECIDED], evaluator="accuracy", page_size=1) == [
            ("broken", "accuracy"),
            ("undecided", "accuracy"),
        ]
        assert len(await found(verdicts=[Verdict.MEASURED])) == 3


async def test_samples_of_a_running_evaluation_are_those_that_are_done():
    """GetSamples and GetEvaluation tell how far it is while it runs."""
    async with rig(HeldModel()) as r:
        await r.evaluation.start_evaluation(asked(evaluators=[accuracy(), nll()]))
        await r.recorder.wait_for(lambda event: event.metadata.get("sample_id") == "1")

        assert {sample.evaluator for sample in await samples_of(r.worker.bridge)} == {"nll"}
        running = await r.evaluation.get_evaluation("e")
        assert (running.state, running.done, running.total) == (EvaluationState.RUNNING, 2, 4)
        assert (running.metrics.values, running.ended_unix_ns) == ({}, 0)


@pytest.mark.parametrize("report_format", list(ReportFormat))
async def test_report_of_several_steps(report_format):
    """One report over several evaluations names each, its metrics, and samples that are unscored with their reason."""
    async with rig(ScriptedModel(fault=failing("b"))) as r:
        for step in (1, 2):
            await r.evaluation.evaluate(asked(evaluation_id=f"at-{step}", step=step, run_id="run"))
        text = await r.evaluation.generate_report(["at-1", "at-2"], report_format)

    assert all(part in text for part in ("at-1", "at-2", "accuracy", "BACKEND_DOWN", "run"))
    assert text.isascii() or report_format is not ReportFormat.JSON
    if report_format is ReportFormat.JSON:
        json.loads(text, parse_constant=pytest.fail)


async def test_report_of_unfinished_evaluations():
    """A report can be had of what still runs, and of what was cancelled."""
    async with rig(HeldModel()) as r:
        await r.evaluation.start_evaluation(asked())
        await r.model.asked.wait()
        assert "running" in (await r.evaluation.generate_report("e")).lower()
        await r.evaluation.cancel_evaluation("e", "why not")
        assert "why not" in await r.evaluation.generate_report("e")


async def test_page_sizes():
    """0 is the default, the largest is accepted, one more or a negative size is INVALID_ARGUMENT at page_size."""
    async with rig() as r:
        await r.evaluation.evaluate(asked())
        for call, largest in (
            (r.evaluation.list_evaluations, EVALUATIONS_MAX),
            (lambda **page: r.evaluation.get_samples("e", **page), SAMPLES_MAX),
        ):
            for size in (0, 1, largest):
                assert (await call(page_size=size)).items
            for size in (-1, largest + 1):
                await refused(call(page_size=size), Code.INVALID_ARGUMENT, "INVALID_FIELD", "page_size")


@rows("token", ["x", "-1", "1.2", "1.2.3.4", "1.2.-3", "9" * 40, "\N{FULLWIDTH DIGIT NINE}", "1 "])
async def test_page_tokens_that_no_call_gave(token):
    """A token that is none is INVALID_ARGUMENT at page_token, in either listing."""
    async with rig() as r:
        await r.evaluation.evaluate(asked())
        for call in (
            r.evaluation.list_evaluations(page_token=token),
            r.evaluation.get_samples("e", page_token=token),
        ):
            await refused(call, Code.INVALID_ARGUMENT, "INVALID_FIELD", "page_token")
