"""How models are asked: resolved once they are loaded, written down, and the same for every later attempt."""

import dataclasses

import pytest

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.types import EvaluatorRendering, EvaluatorSpec, Sample, SamplingParams
from crucible_worker.backends.base import Reading
from crucible_worker.engine import claims
from crucible_worker.engine.claims import Contents
from crucible_worker.engine.preparation import Plan
from crucible_worker.engine.renderings import first_joint, of_auto, pinned, resolve
from crucible_worker.evaluators import registry
from crucible_worker.history import lifecycle
from crucible_worker.journal import queries
from crucible_worker.journal.records import Joint
from crucible_worker.testing import ScriptedModel
from tests.tables import rows
from tests.unit.journal.journals import claim, request
from tests.unit.rendering.test_asking import WordyModel

SAMPLES = (Sample(id="a", input="1+1="),)


class Served(WordyModel):
    """A model behind a server, which says how it wants to be asked."""

    def __init__(self, renderer: str) -> None:
        super().__init__()
        self.renderer = renderer


class Base(ScriptedModel):
    """A model without a chat template."""

    @property
    def has_chat_template(self) -> bool:
        return False


class Chat(ScriptedModel):
    """A model with one."""


def plan_of(model, *specs: EvaluatorSpec, auxiliary_models=None) -> Plan:
    """A plan of these evaluators."""
    made = tuple((spec, registry.create(spec, index, SamplingParams(max_tokens=8))) for index, spec in enumerate(specs))
    return Plan(
        evaluators=made,
        refused={},
        samples=SAMPLES,
        dataset_fingerprint="d",
        model=model,
        auxiliary_models=auxiliary_models or {},
    )


def spec(kind: str, **options) -> EvaluatorSpec:
    """A specification of an evaluator."""
    return EvaluatorSpec(kind=kind, options=options)


ROW = Sample(id="a", input="1+1=", targets=("2",), choices=("3", "2"))
AMBIGUOUS = dataclasses.replace(ROW, targets=("A",), choices=("B", "A"))
LABELLED = Sample(id="a", input="1+1=", targets=("1",), choices=("3", "1"), choice_labels=("1", "2"))


@rows(
    ("model", "specs", "row", "delimiter", "joint"),
    [
        (Base(), [spec("nll")], ROW, None, ("1+1=", " 2")),
        (Base(), [spec("accuracy")], ROW, None, ("1+1=", " 2")),
        (Base(), [spec("nll")], ROW, "", ("1+1=", "2")),
        (Base(), [spec("multiple_choice", delimiter="-")], ROW, "", ("1+1=", "-2")),
        (Base(), [spec("multiple_choice")], dataclasses.replace(ROW, targets=("B",)), None, ("1+1=", " 2")),
        (
            Base(),
            [spec("multiple_choice")],
            dataclasses.replace(ROW, targets=("1",), choices=("3", "2"), choice_labels=("2", "1")),
            None,
            ("1+1=", " 2"),
        ),
        (Base(), [spec("multiple_choice")], dataclasses.replace(ROW, targets=("none",)), None, ("1+1=", " none")),
        (Base(), [spec("nll")], dataclasses.replace(ROW, targets=("none",)), None, ("1+1=", " none")),
        (Base(), [spec("accuracy")], dataclasses.replace(ROW, targets=("B",)), None, ("1+1=", " B")),
        (Base(), [spec("multiple_choice", form="letters"), spec("nll")], ROW, None, ("1+1=", " 2")),
        (Base(), [spec("multiple_choice")], LABELLED, None, ("1+1=", " 3")),
        (Base(), [spec("multiple_choice")], dataclasses.replace(ROW, targets=("9",)), None, ("1+1=", " 9")),
        (Base(), [spec("accuracy")], AMBIGUOUS, None, ("1+1=", " A")),
        (Base(), [spec("nll", renderer="role_colon")], ROW, None, None),
        (Base(), [spec("nll")], dataclasses.replace(ROW, targets=()), None, None),
        (Base(), [spec("nll")], dataclasses.replace(ROW, input="x" * 41 + "\n"), None, ("..." + "x" * 39 + "\n", "2")),
        (Base(), [spec("nll")], dataclasses.replace(ROW, targets=("y" * 40,)), None, ("1+1=", " " + "y" * 39 + "...")),
        (Chat(), [spec("nll"), spec("accuracy")], ROW, None, None),
        (Chat(), [spec("nll"), spec("accuracy", renderer="raw")], ROW, None, ("1+1=", " 2")),
        (WordyModel(), [spec("accuracy")], ROW, None, None),
        (Served("raw"), [spec("accuracy")], ROW, None, ("1+1=", " 2")),
    ],
)
async def test_how_the_first_prompt_and_its_target_meet(model, specs, row, delimiter, joint):
    """Of the first evaluator that gives the model plain text; what a template or a server joins is not known."""
    plan = dataclasses.replace(plan_of(model, *specs), samples=(row,), reading=Reading(target_delimiter=delimiter))
    assert await first_joint(plan) == (None if joint is None else Joint(prompt=joint[0], target=joint[1]))


@rows(
    ("model", "asked", "answers", "measures"),
    [
        (Chat(), "auto", "chat_template", "chat_template"),
        (Base(), "auto", "raw", "auto"),
        (WordyModel(), "auto", "auto", "auto"),
        (Served("chat_template"), "auto", "chat_template", "auto"),
        (Served("raw"), "auto", "raw", "auto"),
        (Served("raw"), "chat_template", "chat_template", "chat_template"),
        (Served("chat_template"), "raw", "raw", "raw"),
        (Base(), "role_colon", "role_colon", "role_colon"),
    ],
    ids=lambda given: given if isinstance(given, str) else type(given).__name__,
)
def test_what_auto_comes_to(model, asked, answers, measures):
    """The template of the model or of its server, or plain text; what measures keeps `auto` where text is plain."""
    plan = plan_of(model, spec("accuracy", renderer=asked), spec("nll", renderer=asked))
    assert [rendering.renderer for rendering in resolve(plan)] == [answers, measures]


def test_judges_are_resolved_as_models_are():
    """Each by the option that names it, also within a grader's options."""
    plan = plan_of(
        Base(),
        spec("rubric", judge="openai:s/j", criteria=[{"name": "c", "description": "d"}]),
        spec("comparison", judge="openai:s/j", judge_renderer="role_colon"),
        spec("accuracy", grader="rubric", grader_options={"judge": "openai:s/j", "judge_renderer": "raw"}),
        auxiliary_models={
            0: {"judge": Served("chat_template")},
            1: {"judge": Served("chat_template")},
            2: {"grader_options.judge": Served("chat_template")},
        },
    )
    assert [rendering.others for rendering in resolve(plan)] == [
        {"judge": "chat_template"},
        {"judge": "role_colon"},
        {"grader_options.judge": "raw"},
    ]


async def test_the_first_attempt_is_what_counts(journal, locks):
    """Later ones have what it wrote, whatever their model would come to."""
    row = (await claim(journal, locks)).row
    accuracy = spec("accuracy")
    first = await journal.submit(lambda t: pinned(t, row.number, plan_of(Served("chat_template"), accuracy)))
    again = await journal.submit(lambda t: pinned(t, row.number, plan_of(Served("raw"), accuracy)))

    assert tuple(first) == tuple(again) == (EvaluatorRendering(evaluator="accuracy", renderer="chat_template"),)
    kept = queries.evaluation_of(await journal.read(queries.find_by_number, row.number))
    assert kept.rendering == tuple(first)
    assert of_auto(accuracy, first[0]) == "chat_template"
    assert of_auto(spec("accuracy", renderer="raw"), dataclasses.replace(first[0], renderer="raw")) is None


async def test_what_began_before_goes_on_as_it_began(journal, locks):
    """Nothing was kept of it: text is left to servers as it stands, and nothing is written down."""
    row = (await claim(journal, locks)).row
    await journal.submit(lambda t: t.execute("DELETE FROM evaluation_renderings"))
    plan = plan_of(Served("chat_template"), spec("accuracy"), auxiliary_models={0: {"judge": Served("chat_template")}})
    for _ in range(2):
        (found,) = await journal.submit(lambda t: pinned(t, row.number, plan))
        assert (found.renderer, found.others) == ("served", {"judge": "served"})
    assert queries.evaluation_of(await journal.read(queries.find_by_number, row.number)).rendering == ()


@pytest.mark.parametrize(("began_before", "refused"), [(False, "old"), (True, "new")])
async def test_fingerprints_of_servers_are_those_of_the_beginning(journal, locks, began_before, refused):
    """An evaluation keeps with its model how that is asked; one that began before kept no such thing."""
    both = Contents(dataset_fingerprint="d", model_fingerprint="new", total=10, served_fingerprint="old")
    row = (await claim(journal, locks, model_fingerprint="old" if began_before else "new")).row
    if began_before:
        await journal.submit(lambda t: t.execute("DELETE FROM evaluation_renderings"))
    await journal.submit(lambda t: claims.prepared(t, row.number, both, "w"))
    other = dataclasses.replace(both, model_fingerprint="x", served_fingerprint="x")
    await journal.submit(lambda t: lifecycle.interrupt(t, locks, row, 0, "drain"))
    with pytest.raises(FailedPrecondition) as caught:
        await journal.submit(
            lambda t: claims.claim(t, locks, request(), fingerprint="f", contents=other, worker_id="w")
        )
    assert caught.value.reason == "MODEL_CHANGED"
    assert caught.value.metadata["fingerprint"] != refused


async def test_it_goes_with_its_evaluation(journal, locks):
    """Whichever release's worker removes that."""
    row = (await claim(journal, locks)).row
    await journal.submit(lambda t: t.execute("DELETE FROM evaluations WHERE number = ?", (row.number,)))
    assert await journal.read(queries.find_rendering, row.number) is None
