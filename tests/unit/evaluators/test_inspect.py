"""The evaluator `inspect` without Inspect: what may be run, how a task is answered, how its findings become keys."""

import asyncio
import dataclasses
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import BackendError, BridgeError, Code, FailedPrecondition, InvalidField
from crucible_bridge.types import (
    Datum,
    EvaluatorSpec,
    Problem,
    Sample,
    SampledSequence,
    SampleResult,
    SamplingParams,
    Verdict,
    parse_model,
)
from crucible_worker.children.frames import HEADER
from crucible_worker.evaluators import registry
from crucible_worker.evaluators.base import Bound, SampleContext
from crucible_worker.evaluators.inspect import evaluator as inspect_evaluator
from crucible_worker.evaluators.inspect.allowed import MAX_NAME_CHARS, InspectAllowlist, parse_task
from crucible_worker.evaluators.inspect.evaluator import MAX_METRICS, TaskResponder, outcome_of, task_metrics
from crucible_worker.evaluators.inspect.frames import MAX_CONTAINERS, pack, unpack
from crucible_worker.evaluators.registry import EvaluatorParts
from crucible_worker.testing import ScriptedModel
from tests.service.evaluation_kit import failing
from tests.tables import rows


def create(sampling: SamplingParams | None = None, allowed: InspectAllowlist | None = None, **options: Any) -> Any:
    """The evaluator with these options, in a worker whose operator allows these tasks."""
    return registry.create(EvaluatorSpec(kind="inspect", options=options), 0, sampling, EvaluatorParts(inspect=allowed))


@pytest.fixture
def tasks(tmp_path: Path) -> InspectAllowlist:
    """A root with one file, and one package, are allowed."""
    root = tmp_path / "root"
    (root / "below").mkdir(parents=True)
    (root / "below" / "a.py").touch()
    (tmp_path / "outside.py").touch()
    (root / "link.py").symlink_to(tmp_path / "outside.py")
    return InspectAllowlist(roots=(tmp_path / "other", root), packages=("inspect_evals",))


@rows(
    ("text", "place", "task", "label"),
    [
        ("inspect_evals/gsm8k", "inspect_evals", "gsm8k", "gsm8k"),
        ("my-evals/nested/task", "my-evals", "nested/task", "nested.task"),
        ("below/a.py@words", "below/a.py", "words", "words"),
        ("a b.py@_1", "a b.py", "_1", "_1"),
    ],
)
def test_a_task_is_named_by_its_package_or_its_file(text: str, place: str, task: str, label: str) -> None:
    """Its keys begin with its own name, which has no slash."""
    name = parse_task(text)

    assert (name.place, name.task, name.label, name.in_file) == (place, task, label, "@" in text)


@rows(
    "text",
    [
        "",
        "gsm8k",
        "/gsm8k",
        "a.py",
        "a.py@",
        "a.py@1x",
        "a.txt@x",
        "a.py@x\n",
        "p/\0",
        "../x",
        "p/../x",
        "p/x.py",
        "p//x",
        "p/" + "x" * (MAX_NAME_CHARS - 1),
    ],
)
def test_what_names_no_task_is_refused(text: str) -> None:
    """At the input of its sample, before anything runs."""
    with pytest.raises(InvalidField) as caught:
        create().check_sample(Sample(input=text))

    assert caught.value.field == "input"


def test_a_name_has_a_bounded_length() -> None:
    """One character below the first that is refused."""
    create().check_sample(Sample(input="p/" + "x" * (MAX_NAME_CHARS - 2)))


def test_only_what_the_operator_names_is_run(tasks: InspectAllowlist) -> None:
    """Files below the roots, whatever links and dots say, and tasks of the packages."""
    assert tasks.locate(parse_task("below/a.py@x")).endswith("/root/below/a.py@x")
    assert tasks.locate(parse_task("inspect_evals/gsm8k")) == "inspect_evals/gsm8k"
    for text, code, reason in [
        ("../outside.py@x", Code.PERMISSION_DENIED, "PATH_OUT_OF_ROOT"),
        ("link.py@x", Code.PERMISSION_DENIED, "PATH_OUT_OF_ROOT"),
        ("../nothing.py@x", Code.PERMISSION_DENIED, "PATH_OUT_OF_ROOT"),
        (f"{tasks.roots[1]}/../outside.py@x", Code.PERMISSION_DENIED, "PATH_OUT_OF_ROOT"),
        ("below/b.py@x", Code.NOT_FOUND, "TASK_NOT_FOUND"),
        (f"{'a' * 5_000}.py@x", Code.NOT_FOUND, "TASK_NOT_FOUND"),
        ("inspect_ai/x", Code.PERMISSION_DENIED, "TASK_NOT_ALLOWED"),
    ]:
        with pytest.raises(BridgeError) as caught:
            tasks.locate(parse_task(text))
        assert (caught.value.code, caught.value.reason) == (code, reason), text


def test_without_inspect_or_tasks_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a listing and for each request, and other evaluators of the request stand."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FailedPrecondition, match=r"pip install 'crucible-bridge\[inspect\]'") as caught:
        create().check(ScriptedModel())
    assert caught.value.reason == "EXTRA_NOT_INSTALLED"
    assert "pip install" in registry.info("inspect").unavailable

    monkeypatch.setattr(inspect_evaluator, "missing_extra", lambda: "")
    with pytest.raises(FailedPrecondition, match="--inspect-root") as caught:
        create().check(ScriptedModel())
    assert caught.value.reason == "NO_INSPECT_TASKS"
    (listed,) = [info for info in registry.infos(EvaluatorParts()) if info.kind == "inspect"]
    assert "--inspect-root" in listed.unavailable


def test_where_tasks_are_allowed_it_is_there(monkeypatch: pytest.MonkeyPatch, tasks: InspectAllowlist) -> None:
    """For models that generate, and judges that do."""
    monkeypatch.setattr(inspect_evaluator, "missing_extra", lambda: "")

    assert registry.info("inspect").unavailable == ""
    create(allowed=tasks).check(ScriptedModel())
    create(allowed=tasks, judge="openai:s/m").check_auxiliary_models({"judge": ScriptedModel()})
    mute = ScriptedModel(sampled=False)
    for check in (
        lambda: create(allowed=tasks).check(mute),
        lambda: create(allowed=tasks).check_auxiliary_models({"judge": mute}),
    ):
        with pytest.raises(FailedPrecondition) as caught:
            check()
        assert caught.value.reason == "MISSING_CLIENT"


@rows(
    ("metadata", "field"),
    [
        ({"limit": "0"}, 'metadata["limit"]'),
        ({"limit": "true"}, 'metadata["limit"]'),
        ({"epochs": "1001"}, 'metadata["epochs"]'),
        ({"epochs": "many"}, 'metadata["epochs"]'),
        ({"task_args": "[1]"}, 'metadata["task_args"]'),
        ({"task_args": "["}, 'metadata["task_args"]'),
        ({"task_args": "[" * 100_000}, 'metadata["task_args"]'),
    ],
)
def test_metadata_that_is_no_option_is_refused(metadata: dict[str, str], field: str) -> None:
    """Before anything runs; other metadata is nobody's business."""
    with pytest.raises(InvalidField) as caught:
        create().check_sample(Sample(input="p/x", metadata=metadata))

    assert caught.value.field == field
    create().check_sample(Sample(input="p/x", metadata={"split": "test"}))


@rows("text", ["null", "7", "7.0"])
def test_metadata_has_the_values_that_the_option_has(text: str) -> None:
    """Null too: the option's own null, which asks for every sample of a task."""
    create(limit=5).check_sample(Sample(input="p/x", metadata={"limit": text}))


def test_whole_numbers_may_be_doubles() -> None:
    """As google.protobuf.Struct has them."""
    given: dict[str, Any] = {"limit": 4.0, "epochs": 2.0, "num_choices": 3.0, "seed": 5.0}
    made = create(**given)

    assert {name: getattr(made, name) for name in given} == given
    assert {type(getattr(made, name)) for name in given} == {int}
    assert create().limit is None


def test_tokens_name_no_task() -> None:
    """A sample is text."""
    with pytest.raises(InvalidField, match="names a task"):
        create().check_sample(Sample(input=Datum(model_input=[1], loss_fn_inputs={})))


@pytest.mark.parametrize("judge", ["orchestrator", "nobody", "openai:"])
def test_a_judge_is_a_model_of_the_worker(judge: str) -> None:
    """The error names the option."""
    with pytest.raises(InvalidField) as caught:
        create(judge=judge)

    assert caught.value.field == 'evaluators[0].options["judge"]'


def test_models_of_the_request_are_further_models() -> None:
    """Each is loaded, counted and compared as a judge is; a role has one model."""
    models = {"grader": parse_model("openai:s/m"), "openai/gpt-5": parse_model("local:b")}
    parts = EvaluatorParts(models=models)

    made: Any = registry.create(EvaluatorSpec(kind="inspect"), 0, None, parts)

    assert dict(made.auxiliary_models) == {f"models:{name}": model for name, model in models.items()}
    assert not made.needs_auxiliary_models
    with pytest.raises(InvalidField, match="and the option judge name the same model") as caught:
        registry.create(EvaluatorSpec(kind="inspect", options={"judge": "local:b"}), 0, None, parts)
    assert caught.value.field == 'models["grader"]'


async def test_a_task_that_is_not_there_is_an_error_of_its_name(tasks: InspectAllowlist) -> None:
    """Nothing is started for it."""
    context = SampleContext(model=ScriptedModel(), repeat=0, seed=1)

    outcome = await create(allowed=tasks).run(Sample(input="below/b.py@words"), context)

    assert (outcome.verdict, outcome.method, outcome.problem.reason) == (Verdict.ERROR, "words", "TASK_NOT_FOUND")


def answers(model: ScriptedModel | None = None, seed: int = 1, *, keep_thinking: bool = False) -> TaskResponder:
    """Of one model in both roles."""
    model = ScriptedModel() if model is None else model
    both = {"model": "auto", "grader": "raw"}
    return TaskResponder(dict.fromkeys(both, model), both, seed=seed, keep_thinking=keep_thinking)


def question(*messages: tuple[str, str], which: str = "model", **sampling: Any) -> dict[str, Any]:
    """As a task asks it."""
    plain = {"max_tokens": 100, "temperature": 1.0, "top_p": None, "top_k": None, "stop": [], "seed": None, "count": 1}
    return {"id": 1, "which": which, "messages": [list(message) for message in messages], "sampling": plain | sampling}


@dataclasses.dataclass(kw_only=True)
class Watched(ScriptedModel):
    """Remembers how it was sampled."""

    seen: list[SamplingParams] = dataclasses.field(default_factory=list)

    @property
    def sampling(self) -> "Watched":
        return self

    async def sample(self, prompt: Any, params: SamplingParams, num_samples: int = 1) -> list[SampledSequence]:
        self.seen.append(params)
        return list(await super().sample(prompt, params, num_samples))


async def test_conversations_and_single_messages_are_asked() -> None:
    """A single message of a user is text; stop reasons and tokens are told."""
    asked = answers()

    told = [
        await asked.answer(question(("user", "a"))),
        await asked.answer(question(("system", "s"), ("user", "u"), max_tokens=1)),
        await asked.answer(question(("user", "bc"), count=2)),
    ]

    assert [choice for answer in told for choice in answer["choices"]] == [
        {"text": "A", "cut": False, "ended": "stop", "tokens": 1},
        {"text": "S", "cut": True, "ended": "length", "tokens": 1},
        *[{"text": "BC", "cut": False, "ended": "stop", "tokens": 2}] * 2,
    ]
    assert (asked.output_tokens, asked.stop_reason, asked.first_problem) == (6, "length", None)


async def test_seeds_follow_from_the_question_and_how_often_it_was_asked() -> None:
    """Not from the order of different questions; greedy answers need none, and a task's own seed is part of it."""
    first, second = Watched(), Watched()
    a, b, cold = question(("user", "a")), question(("user", "b")), question(("user", "a"), temperature=0)
    for model, order in ((first, [a, a, b, cold]), (second, [b, a, cold, a])):
        asked = answers(model)
        for one in order:
            await asked.answer(one)

    drawn = [params.seed for params in first.seen]
    assert drawn[3] is None
    assert len(set(drawn[:3])) == 3
    assert all(seed is not None and 0 <= seed < 2**63 for seed in drawn[:3])
    assert [params.seed for params in second.seen] == [drawn[2], drawn[0], None, drawn[1]]

    other = Watched()
    await answers(other, seed=2).answer(a)
    await answers(other).answer(question(("user", "a"), seed=7))
    assert not {params.seed for params in other.seen} & set(drawn)


async def test_sampling_is_that_of_the_question() -> None:
    """What a task leaves open is neutral."""
    model = Watched()

    await answers(model).answer(question(("user", "a"), temperature=0, top_p=0.5, top_k=3, stop=["x"]))
    await answers(model).answer(question(("user", "a"), temperature=0))

    assert model.seen == [
        SamplingParams(max_tokens=100, top_p=0.5, top_k=3, stop=("x",)),
        SamplingParams(max_tokens=100),
    ]


@pytest.mark.parametrize("keep", [True, False])
async def test_thoughts_are_told_where_they_are_wanted(keep: bool) -> None:
    """A task reads the answer alone otherwise."""
    thinker = ScriptedModel(answer=lambda prompt: "<think>hm</think> 4")

    (choice,) = (await answers(thinker, keep_thinking=keep).answer(question(("user", "2+2"))))["choices"]

    assert choice["text"] == ("<think>hm</think> 4" if keep else "4")


async def test_reasoning_stands_apart_from_the_answer() -> None:
    """Where there is some and it is not kept in the text; of a thought that was cut, all is reasoning."""
    for said, keep, expected in [
        ("<think>hm</think> 4", False, {"text": "4", "reasoning": "hm"}),
        ("<think>hm", False, {"text": "", "reasoning": "hm"}),
        ("4", False, {"text": "4"}),
        ("<think>hm</think> 4", True, {"text": "<think>hm</think> 4"}),
    ]:
        model = ScriptedModel(answer=lambda prompt, said=said: said)
        (choice,) = (await answers(model, keep_thinking=keep).answer(question(("user", "2+2"))))["choices"]
        assert {key: choice[key] for key in choice if key in ("text", "reasoning")} == expected


@rows(("given", "passed"), [(7, 7), (0, 0), (2**63 - 1, 2**63 - 1), (2**63, 0), (-1, 2**63 - 1)])
@rows("temperature", [0, 1.0])
async def test_a_tasks_own_seed_stands(given: int, passed: int, temperature: float) -> None:
    """However often it is asked with it, as with every provider of Inspect's; it is within what models take."""
    model = Watched()
    asked = answers(model)
    for _ in range(2):
        await asked.answer(question(("user", "a"), seed=given, temperature=temperature))

    assert [params.seed for params in model.seen] == [passed, passed]


async def test_an_answer_that_fails_is_an_error_with_its_reason() -> None:
    """The first is kept: it is why a task fails whose samples all do."""
    asked = answers(ScriptedModel(fault=failing(retryable=True), context_length=1))

    told = [await asked.answer(question(("user", text))) for text in ("a", "too long")]

    assert asked.stop_reason == ""
    assert told[0] == {"error": "BACKEND_DOWN: is out of order"}
    assert told[1]["error"].startswith("PROMPT_TOO_LONG: ")
    assert asked.first_problem is not None
    assert (asked.first_problem.reason, asked.first_problem.retryable) == ("BACKEND_DOWN", True)


async def test_a_task_that_does_not_stop_is_ended() -> None:
    """After its time, and that to wind up."""
    problem = Problem(reason="SAMPLE_TIMEOUT", message="m", retryable=True)
    bound = Bound(seconds=0.01, wind_up_seconds=0.01, problem=problem)
    context = SampleContext(model=ScriptedModel(), repeat=0, seed=1, bound=bound)

    async def run() -> None:
        async with inspect_evaluator._bounded(context) as stop:
            await stop.wait()
            await asyncio.get_running_loop().create_future()

    with pytest.raises(BackendError) as refused:
        await run()
    assert (refused.value.reason, refused.value.retryable) == ("SAMPLE_TIMEOUT", True)


async def test_a_pause_is_no_part_of_a_tasks_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clock stands still meanwhile: the task is not asked to stop until the time has passed that it had."""
    monkeypatch.setattr(inspect_evaluator, "_LOOK_SECONDS", 0.001)
    problem, now, looks = Problem(reason="SAMPLE_TIMEOUT", message="m", retryable=True), 0.0, 0

    def clock() -> float:
        nonlocal looks
        looks += 1
        return now

    bound = Bound(seconds=0.01, wind_up_seconds=60.0, problem=problem, clock=clock)
    context = SampleContext(model=ScriptedModel(), repeat=0, seed=1, bound=bound)
    async with asyncio.timeout(60), inspect_evaluator._bounded(context) as stop:
        while looks < 50:  # many times as long as the bound
            await asyncio.sleep(0.001)
        assert not stop.is_set()
        now = 1.0
        await stop.wait()


async def test_waiting_for_a_turn_is_no_stall_and_ends_at_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other evaluations may hold every turn for hours; a task that is bounded gives up its place in the queue."""
    monkeypatch.setattr(inspect_evaluator, "_LOOK_SECONDS", 0.001)
    turns, stop, looked = asyncio.Semaphore(0), asyncio.Event(), asyncio.Event()
    seen = 0

    def progressed() -> None:
        nonlocal seen
        seen += 1
        if seen == 3:
            looked.set()

    bound = Bound(
        seconds=1.0, wind_up_seconds=1.0, problem=Problem(reason="SAMPLE_TIMEOUT", message="m", retryable=True)
    )
    context = SampleContext(model=ScriptedModel(), repeat=0, seed=1, bound=bound, progressed=progressed)

    async def wait() -> None:
        async with inspect_evaluator._turn(turns, stop, context):
            raise AssertionError("it had no turn")

    waiting = asyncio.create_task(wait())
    await asyncio.wait_for(looked.wait(), 10)
    stop.set()
    with pytest.raises(BackendError) as refused:
        await waiting
    assert (refused.value.reason, refused.value.retryable) == ("SAMPLE_TIMEOUT", True)
    turns.release()
    async with inspect_evaluator._turn(turns, asyncio.Event(), context):
        assert turns.locked()
    assert not turns.locked()


def score(
    metrics: dict[str, float | None], scorer: str = "match", reducer: str | None = None, unscored: int = 0
) -> dict[str, Any]:
    """What a process says of one scorer."""
    return {"scorer": scorer, "reducer": reducer, "scored": 1, "unscored": unscored, "metrics": metrics}


def found(*scores: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """What a process says at its end."""
    first = next(((s["scorer"], s["reducer"], name) for s in scores for name in s["metrics"]), None)
    plain = {"op": "found", "scores": scores, "headline": None if first is None else list(first), "samples": 2}
    counts = {"errored": 0, "truncated": 0, "records": [], "records_left_out": 0, "first_error": ""}
    return {**plain, **counts, **fields}


COUNTS = {"samples": 2.0, "errored_samples": 0.0, "truncated_samples": 0.0}


def test_every_scorer_and_every_metric_is_read() -> None:
    """Not the first scorer alone; the score is the metric that sums the task up."""
    message = found(
        score({"accuracy": 0.5, "stderr": 0.1}),
        score({"mean": 3.0}, "other", unscored=1),
        headline=["other", None, "mean"],
    )

    outcome = outcome_of("t", message, answers())

    assert (outcome.verdict, outcome.score, outcome.extracted) == (Verdict.MEASURED, 3.0, "other/mean")
    assert outcome.measurements == {
        **COUNTS,
        "match/accuracy": 0.5,
        "match/stderr": 0.1,
        "other/mean": 3.0,
        "other/unscored_samples": 1.0,
    }


def test_views_of_one_scorer_have_keys_of_their_own() -> None:
    """By the reducer; names with slashes are parts all the same, and what still collides is numbered."""
    message = found(
        score({"accuracy": 0.5}, "s", "mean"),
        score({"accuracy": 1.0}, "s", "max"),
        score({"accuracy": 0.25}, "s"),
        score({"c/d": 1.0, "c.d": 2.0}, "a/b"),
        score({"c.d": 3.0}, "a.b"),
    )

    measured = outcome_of("t", message, answers()).measurements

    assert {key: value for key, value in measured.items() if key not in COUNTS} == {
        "s[mean]/accuracy": 0.5,
        "s[max]/accuracy": 1.0,
        "s[all]/accuracy": 0.25,
        "a.b/c.d": 1.0,
        "a.b/c.d#2": 2.0,
        "a.b/c.d#3": 3.0,
    }


_NAMES = st.text("ab/.#[]", max_size=3)


@given(st.lists(st.builds(score, st.dictionaries(_NAMES, st.none() | st.floats(0, 1)), _NAMES, st.none() | _NAMES)))
def test_no_metric_takes_the_place_of_another(scores: list[dict[str, Any]]) -> None:
    """Whatever scorers, reducers and metrics are called, each has a key of its own, in three parts at most."""
    measured = outcome_of("t", found(*scores), answers()).measurements

    assert len(measured) == len(COUNTS) + sum(len(each["metrics"]) for each in scores)
    assert all(key.count("/") == (2 if key.endswith("/undefined") else 1) for key in measured if key not in COUNTS)


@rows(
    ("message", "verdict", "reason"),
    [
        (found(score({"accuracy": None})), Verdict.UNDECIDED, "UNDECIDED"),
        (found(), Verdict.UNDECIDED, "UNDECIDED"),
        (found(score({"accuracy": 1.0}), errored=1, first_error="boom"), Verdict.MEASURED, None),
        (found(errored=2, first_error="boom"), Verdict.ERROR, "INSPECT_SAMPLES_FAILED"),
        ({"op": "failed", "message": "x" * 5_000}, Verdict.ERROR, "INSPECT_FAILED"),
        (found(score({f"m{n}": 1.0 for n in range(MAX_METRICS)})), Verdict.MEASURED, None),
        (found(score({f"m{n}": 1.0 for n in range(MAX_METRICS + 1)})), Verdict.ERROR, "TOO_MANY_METRICS"),
    ],
)
def test_a_verdict_says_whether_the_task_has_a_number(message: Any, verdict: Verdict, reason: str | None) -> None:
    """And a problem why it has none; the number is nowhere silently 0."""
    outcome = outcome_of("t", message, answers())

    assert (outcome.verdict, outcome.method) == (verdict, "t")
    assert (outcome.problem and outcome.problem.reason) == reason
    assert (outcome.score is None) is (reason is not None)


def test_what_was_scored_stands_where_a_task_fails_on_its_way() -> None:
    """Under an ERROR with the task's own reason, which the records name, too."""
    message = found(score({"accuracy": 0.5}), records=[{"id": 1}], failure="ZeroDivisionError: division by zero")

    outcome = outcome_of("t", message, answers(), log={"log": "kept/a.eval"})

    assert outcome.problem is not None
    assert (outcome.verdict, outcome.score, outcome.problem.reason) == (Verdict.ERROR, None, "INSPECT_FAILED")
    assert outcome.problem.message == "ZeroDivisionError: division by zero"
    assert outcome.measurements["match/accuracy"] == 0.5
    assert json.loads(outcome.output) == {
        "samples": [{"id": 1}],
        "left_out": 0,
        "log": "kept/a.eval",
        "failure": "ZeroDivisionError: division by zero",
    }


def test_a_task_that_came_to_nothing_names_its_log() -> None:
    """Where one is kept; otherwise it has no output."""
    failed = {"op": "failed", "message": "m"}

    assert json.loads(outcome_of("t", failed, answers(), log={"log": "kept/a.eval"}).output) == {"log": "kept/a.eval"}
    assert outcome_of("t", failed, answers()).output == ""


async def test_a_task_whose_metadata_is_wrong_is_an_error_of_its_name(tasks: InspectAllowlist) -> None:
    """Where a file names it, and no request was refused: its keys are the task's, not those of a number."""
    context = SampleContext(model=ScriptedModel(), repeat=0, seed=1)
    sample = Sample(input="below/a.py@words", metadata={"limit": "many"})

    outcome = await create(allowed=tasks).run(sample, context)

    assert (outcome.verdict, outcome.method) == (Verdict.ERROR, "words")
    assert 'metadata["limit"]' in outcome.problem.message or outcome.problem.field == 'metadata["limit"]'


async def test_a_task_that_fails_by_the_model_has_the_models_reason() -> None:
    """So that it runs again where that may help."""
    asked = answers(ScriptedModel(fault=failing(retryable=True)))
    await asked.answer(question(("user", "a")))

    problem = outcome_of("t", found(errored=2, first_error="boom"), asked).problem

    assert problem is not None
    assert (problem.reason, problem.retryable) == ("BACKEND_DOWN", True)
    assert "boom" in problem.message


def result(sample_id: str, method: str = "", **measurements: float) -> SampleResult:
    """Of a task."""
    return SampleResult(
        evaluator="inspect",
        sample_id=sample_id,
        verdict=Verdict.MEASURED if measurements else Verdict.ERROR,
        method=method,
        measurements=measurements,
    )


def test_tasks_never_share_a_key() -> None:
    """Two of one name bear their sample's ids; one that did not run has its name, or at least its sample's id."""
    measured = {"samples": 1.0, "errored_samples": 0.0, "truncated_samples": 0.0}

    metrics = task_metrics(
        [
            result("0", "a", **measured, **{"s/m": 1.0}),
            result("x/y", "b", **measured, **{"s/m": 2.0}),
            result("2", "b", **measured, **{"s/m/undefined": 1.0}),
            result("3", "c"),
            result("4/5"),
            result("x.y", "b", **measured, **{"s/m": 4.0}),
        ]
    )

    assert {key: value for key, value in metrics.values.items() if key.endswith("/s/m")} == {
        "a/s/m": 1.0,
        "b[x.y]/s/m": 2.0,
        "b[x.y]#2/s/m": 4.0,
    }
    assert metrics.undefined["b[2]/s/m"] == "is not finite, or no sample has such a score"
    assert metrics.undefined["c/samples"] == "the task did not finish"
    assert metrics.undefined["4.5/truncated_samples"] == "the task did not finish"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), _JSON, max_size=6))
def test_messages_come_back_equal(message: dict[str, Any]) -> None:
    """Whatever text they hold, lone surrogates too."""
    frame = pack(message | {"lone": "\ud800"})

    assert HEADER.unpack(frame[: HEADER.size]) == (len(frame) - HEADER.size,)
    assert unpack(frame[HEADER.size :]) == message | {"lone": "\ud800"}


@rows(
    "body", [b"[]", b"1", b"{", b"\xff", b"", b'{"a":' + b"[" * 100_000, b'{"a":[' + b"{}," * MAX_CONTAINERS + b"0]}"]
)
def test_what_is_no_message_is_refused(body: bytes) -> None:
    """A message is a map, of bounded depth and number of parts."""
    with pytest.raises(ValueError, match=r".*"):
        unpack(body)


def test_numbers_that_are_not_finite_are_not_sent() -> None:
    """JSON has none."""
    with pytest.raises(ValueError, match="JSON"):
        pack({"value": float("nan")})


def test_names_that_differ_too_late_are_numbered() -> None:
    """Each task has its own keys, also if the names of tasks are equal after they are shortened."""
    label = "x" * 300
    results = [
        SampleResult(evaluator="inspect", sample_id=f"{label}{number}", repeat=0, verdict=Verdict.ERROR)
        for number in range(3)
    ]

    keys = {key.rpartition("/")[0] for key in task_metrics(results).undefined}

    assert len(keys) == 3
    assert sorted(key.rpartition("#")[2] for key in keys if "#" in key) == ["2", "3"]


async def test_records_stand_in_the_output() -> None:
    """As JSON, with how many were left out."""
    outcome = outcome_of("t", found(score({"m": 1.0}), records=[{"id": 1}], records_left_out=3), answers())

    assert json.loads(outcome.output) == {"samples": [{"id": 1}], "left_out": 3}
