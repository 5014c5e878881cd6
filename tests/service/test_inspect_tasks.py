"""Tasks of Inspect through a worker: every scorer is read, nothing vanishes, and whatever a task does stays with it."""

import asyncio
import dataclasses
import json
import os
import re
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.errors import BackendError
from crucible_bridge.events import EventKind
from crucible_bridge.types import (
    Evaluation,
    EvaluationState,
    EvaluatorSpec,
    Limits,
    Sample,
    SampleResult,
    SamplingParams,
    Verdict,
)
from crucible_worker.evaluators.inspect.host.parameters import PARAMETERS, Use, refused
from crucible_worker.evaluators.inspect.process import run_in_process
from crucible_worker.testing import STALL, Call, ScriptedModel, run_worker
from tests import needs
from tests.distributions import lay_out
from tests.service.evaluation_kit import HeldModel, asked, failing, rig, samples_of

pytestmark = pytest.mark.inspect

TASKS = Path(__file__).parents[1] / "inspect_tasks"
BOUND_SECONDS = 30.0
"""For what must come to an end, on a machine that has other things to do; a bound, no expectation."""


def task(name: str, **fields: Any) -> Sample:
    """A sample that names a task of the tests."""
    return Sample(input=f"tasks.py@{name}", **fields)


def request(*samples: Sample, **fields: Any) -> Any:
    """Evaluation `e` of these tasks; the tasks say how the model is sampled."""
    options = fields.pop("options", {})
    return asked(
        **{
            "evaluators": [EvaluatorSpec(kind="inspect", options=options)],
            "dataset": samples,
            "sampling": None,
            **fields,
        }
    )


async def evaluated(
    model: ScriptedModel | None, *samples: Sample, **fields: Any
) -> tuple[Evaluation, list[SampleResult]]:
    """An evaluation that has ended, and what became of its tasks."""
    async with rig(model, inspect_roots=[TASKS]) as r:
        evaluation = await r.evaluation.evaluate(request(*samples, **fields))
        return evaluation, await samples_of(r.worker.bridge)


def records(result: SampleResult) -> list[dict[str, Any]]:
    """Of the samples of a task."""
    found = json.loads(result.output)
    assert found["left_out"] == 0
    return found["samples"]


@pytest.mark.parametrize("name", ["capitals", "many", "undecided", "repeated"])
async def test_metrics_are_those_of_inspect_itself(name: str) -> None:
    """Every metric of every scorer, reducer and number has the value that Inspect gives by itself."""
    alone = await asyncio.create_subprocess_exec(
        sys.executable,
        TASKS / "inspect_alone.py",
        f"{TASKS / 'tasks.py'}@{name}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    (evaluation, _), (_, told) = await asyncio.gather(evaluated(None, task(name)), alone.communicate())
    there = json.loads(told.splitlines()[-1])
    reducers = {reducer for _, _, reducer, _, _ in there}

    expected: dict[str, float | None] = {}
    for scorer, score, reducer, metric, value in there:
        of = scorer if score == scorer else f"{scorer}.{score}".replace("/", ".")
        of = f"{of}[{reducer}]" if len(reducers) > 1 else of
        expected[f"{name}/{of}/{metric}"] = value if value == value else None

    counts = ("samples", "errored_samples", "truncated_samples", "unscored_samples")
    metrics = evaluation.metrics
    found = {**metrics.values, **dict.fromkeys(metrics.undefined)}
    assert {key: value for key, value in found.items() if not key.endswith(counts)} == expected


async def test_tasks_of_one_data_set_keep_to_their_own_keys() -> None:
    """Where tinker-cookbook names keys by the data set, so that two tasks on one overwrite each other."""
    evaluation, results = await evaluated(
        None, task("capitals"), task("many"), task("repeated", metadata={"epochs": "2"})
    )

    assert evaluation.state is EvaluationState.COMPLETED
    assert {key.partition("/")[0] for key in evaluation.metrics.values} == {"capitals", "many", "repeated"}
    assert evaluation.metrics.values["repeated/samples"] == 6
    assert evaluation.metrics.values["many/odd/accuracy"] == 1.0
    assert evaluation.metrics.values["many/odd/accuracy2"] == 1.0
    assert "many/odd/never" in evaluation.metrics.undefined
    assert evaluation.metrics.values["many/odd/unscored_samples"] == 1
    assert [(result.method, result.verdict, result.extracted) for result in results] == [
        ("capitals", Verdict.MEASURED, "match/accuracy"),
        ("many", Verdict.MEASURED, "match/accuracy"),
        ("repeated", Verdict.MEASURED, "match[mean]/accuracy"),
    ]
    assert [record["scores"]["match"] for record in records(results[0])] == ["C", "C", "I"]


async def test_one_task_with_two_arguments_has_the_keys_of_both() -> None:
    """Each behind its sample's id; arguments of a sample go before those of the options."""
    asked_for: list[str] = []
    evaluation, _ = await evaluated(
        ScriptedModel(fault=lambda call: asked_for.append(call.text)),
        task("capitals", id="plain"),
        task("capitals", id="with/more", metadata={"task_args": '{"system": "!"}', "limit": "1"}),
        options={"limit": 2, "task_args": {"system": "?", "colour": "of another task"}},
    )

    values = evaluation.metrics.values
    assert (values["capitals[plain]/samples"], values["capitals[with.more]/samples"]) == (2, 1)
    assert sorted(asked_for) == ["!alpha", "?alpha", "?beta"]


async def test_samples_that_fail_are_counted_and_left_out_of_the_metrics() -> None:
    """Where they vanish in tinker-cookbook; the records name the reason."""
    evaluation, (result,) = await evaluated(ScriptedModel(fault=failing("beta")), task("capitals"))

    values = evaluation.metrics.values
    assert (values["capitals/samples"], values["capitals/errored_samples"]) == (3, 1)
    assert values["capitals/match/accuracy"] == 0.5
    assert [record["error"] for record in records(result)] == [None, "BACKEND_DOWN: is out of order", None]


async def test_samples_without_a_score_and_those_that_were_ended_are_told() -> None:
    """Of each scorer its own; the limit that ended a sample stands in its record."""
    evaluation, (result,) = await evaluated(None, task("partly"))

    values = evaluation.metrics.values
    assert (values["partly/silent/mean"], values["partly/silent/unscored_samples"]) == (1.0, 1.0)
    assert "partly/match/unscored_samples" not in values
    assert [record["limit"] for record in records(result)] == ["message"] * 3


async def test_a_task_whose_every_sample_fails_has_no_metric() -> None:
    """It is an ERROR with the model's reason, and goes on another time where that may help."""
    evaluation, (result,) = await evaluated(ScriptedModel(fault=failing(retryable=True)), task("capitals"))

    assert result.problem is not None
    assert (result.verdict, result.problem.reason, result.problem.retryable) == (Verdict.ERROR, "BACKEND_DOWN", True)
    assert "is out of order" in result.problem.message
    assert evaluation.metrics.values == {
        "capitals/samples": 3,
        "capitals/errored_samples": 3,
        "capitals/truncated_samples": 0,
    }
    assert evaluation.results[0].n_errors == 1


async def test_answers_that_are_cut_are_told_as_such() -> None:
    """Where tinker-cookbook tells Inspect that the model stopped by itself."""
    evaluation, (result,) = await evaluated(None, task("capitals"), sampling=SamplingParams(max_tokens=4))

    assert [record["stop_reason"] for record in records(result)] == ["max_tokens", "stop", "max_tokens"]
    assert evaluation.metrics.values["capitals/truncated_samples"] == 2
    assert (result.stop_reason, result.output_tokens) == ("length", 12)
    assert evaluation.results[0].n_truncated == 1


@dataclasses.dataclass(kw_only=True)
class Watched(ScriptedModel):
    """Remembers how it was sampled."""

    params: list[SamplingParams] = dataclasses.field(default_factory=list)

    @property
    def sampling(self) -> "Watched":
        return self

    async def sample(self, prompt: Any, params: SamplingParams, num_samples: int = 1) -> Any:
        self.params.append(params)
        return await super().sample(prompt, params, num_samples)


async def test_the_request_rules_how_the_model_is_sampled() -> None:
    """Without it the task does; and where that says nothing, temperature 1 and 1,000 tokens."""
    model = Watched()
    cold = {"task_args": '{"temperature": 0.25}', "limit": "1"}
    async with rig(model, inspect_roots=[TASKS]) as r:
        for number, sampling in enumerate([None, SamplingParams(max_tokens=7, top_k=5, stop=("x",))]):
            await r.evaluation.evaluate(
                request(
                    task("capitals", metadata=cold),
                    task("capitals", id="b", metadata={"limit": "1"}),
                    evaluation_id=f"e{number}",
                    sampling=sampling,
                )
            )

    by_task, ruled = model.params[:2], model.params[2:]
    assert sorted((params.temperature, params.max_tokens, params.top_k) for params in by_task) == [
        (0.25, 1_000, None),
        (1.0, 1_000, None),
    ]
    assert all(params.seed is not None for params in by_task)
    wanted = SamplingParams(max_tokens=7, top_k=5, stop=("x",))
    assert ruled == [wanted, wanted]


async def test_epochs_are_drawn_with_seeds_of_their_own_and_the_same_another_time() -> None:
    """Whatever order they come in."""
    model = Watched()
    async with rig(model, inspect_roots=[TASKS]) as r:
        for number in range(2):
            await r.evaluation.evaluate(request(task("repeated"), evaluation_id=f"e{number}"))

    first, second = ({params.seed for params in model.params[start : start + 9]} for start in (0, 9))
    assert len(first) == 9
    assert first == second


async def test_what_one_model_said_is_no_answer_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inspect's cache of answers lasts no longer than the task: to it all models of the worker are one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    right, _ = await evaluated(ScriptedModel(), task("cached"))
    wrong, _ = await evaluated(ScriptedModel(answer=lambda prompt: "no"), task("cached"))

    assert right.metrics.values["cached/match/accuracy"] == 2 / 3
    assert wrong.metrics.values["cached/match/accuracy"] == 0.0


async def test_a_task_may_ask_for_several_answers_at_once() -> None:
    """By the parameters of Inspect."""
    model = Watched()
    evaluation, _ = await evaluated(model, task("several_answers"))

    assert evaluation.metrics.values["several_answers/match/accuracy"] == 2 / 3
    assert {params.stop for params in model.params} == {("!",)}


async def test_questions_show_while_their_task_is_at_work() -> None:
    """Each epoch for itself, those that fail included; of all that there are after the limit."""
    model = HeldModel(fault=failing("beta"))
    async with rig(model, inspect_roots=[TASKS]) as r:
        sample = task("capitals", metadata={"limit": "2", "epochs": "3"})
        await r.evaluation.start_evaluation(request(sample))
        # Those of one question fail, the others wait for the model.
        seen = await r.recorder.wait_for(lambda event: event.measurements.get("questions_done") == 3)
        model.let_go.set()
        last = await r.told(EventKind.EVALUATION_STOP)

    assert (seen.kind, seen.measurements["questions_total"]) == (EventKind.EVALUATION_PROGRESS, 6)
    assert (seen.measurements["done"], seen.measurements["total"]) == (0, 1)
    assert last.metadata["state"] == "completed"


async def test_a_task_sees_reasoning_apart_and_as_many_answers_as_are_wanted() -> None:
    """As Inspect's own content; no later question repeats it, and its text is that of the answer alone."""
    asked_for: list[str] = []
    model = Watched(answer=lambda prompt: "<think>hm</think> 4", fault=lambda call: asked_for.append(call.text))
    options = {"num_choices": 2, "seed": 5}
    _, (apart,) = await evaluated(model, task("looked_at"), options=options)
    _, (within,) = await evaluated(Watched(answer=model.answer), task("looked_at"), options={"thinking": "keep"})

    assert [json.loads(records(each)[0]["scores"]["seen"]) for each in (apart, within)] == [
        {"choices": 2, "parts": ["hm", "4"], "text": "4"},
        {"choices": 1, "parts": ["<think>hm</think> 4"], "text": "<think>hm</think> 4"},
    ]
    assert {params.seed for params in model.params} == {5}
    assert asked_for == ["?", "?4"]


async def test_a_kept_log_is_one_of_inspect(tmp_path: Path) -> None:
    """Which reads it, with every sample, what was said to it, and the metadata."""
    from inspect_ai.log import read_eval_log  # pyright: ignore[reportMissingImports]

    options = {"keep_log": True, "metadata": {"run": "7"}}
    async with rig(None, inspect_roots=[TASKS], state_dir=tmp_path) as r:
        await r.evaluation.evaluate(request(task("capitals", metadata={"level": "easy"}), options=options))
        (result,) = await samples_of(r.worker.bridge)

    log = read_eval_log(str(tmp_path / json.loads(result.output)["log"]))
    assert (log.status, log.eval.metadata) == ("success", {"run": "7", "level": "easy"})
    assert log.samples is not None
    assert [sample.output.completion for sample in log.samples] == ["ALPHA", "BETA", "GAMMA"]


async def test_what_was_scored_stands_where_a_metric_fails() -> None:
    """The records, under an ERROR with the reason; the counts are there, the metric is not."""
    evaluation, (result,) = await evaluated(None, task("uncountable"))

    assert result.problem is not None
    assert (result.verdict, result.problem.reason) == (Verdict.ERROR, "INSPECT_FAILED")
    assert "division by zero" in result.problem.message
    assert [record["scores"] for record in json.loads(result.output)["samples"]] == [{"divided": 1.0}] * 3
    assert evaluation.metrics.values["uncountable/samples"] == 3


async def test_a_task_is_named_by_a_flag(tmp_path: Path) -> None:
    """Without a data set and without roots: from the current folder, which whoever types the command may name."""
    pytest.importorskip("torch", reason=needs.MISSING["torch"])
    arguments = ["--model", "embedded:arithmetic@600", "--task", "arithmetic.py@additions", "--samples", "5"]
    arguments += ["--option", "inspect.keep_log=true", "--state-dir", str(tmp_path), "--json"]

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "crucible_worker", "evaluate", *arguments, cwd=TASKS, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate()

    values = json.loads(told)["metrics"]
    assert process.returncode == 0
    assert values["additions/samples"] == 5
    assert "additions/match/accuracy" in values
    assert len(list(tmp_path.glob("kept/*/0/additions-*.eval"))) == 1


async def test_a_judge_is_another_model_of_the_worker() -> None:
    """In the role of the grader, which the model itself has where no judge is named."""
    judge = ScriptedModel(answer=lambda prompt: "GRADE: C" if "ALPHA" in prompt else "GRADE: I")
    async with run_worker({"m": ScriptedModel(), "j": judge}, inspect_roots=[TASKS]) as worker:
        evaluation = await worker.bridge.evaluation.evaluate(
            request(task("judged"), options={"judge": "embedded:j", "judge_max_tokens": 64})
        )

    assert evaluation.metrics.values["judged/model_graded_qa/accuracy"] == 1 / 3
    assert judge.counts["sample"] == 3


GRADES = ScriptedModel(answer=lambda prompt: "GRADE: C" if "ALPHA" in prompt else "GRADE: I")
"""A judge to whom one of three answers is right."""


def args(name: str, /, **given: Any) -> Sample:
    """A sample that names a task with arguments."""
    return task(name, metadata={"task_args": json.dumps(given)})


@pytest.mark.parametrize(
    ("sample", "models"),
    [
        (task("judged"), {"grader": "embedded:j"}),
        (args("judged_by", model="openai/gpt-5"), {"openai/gpt-5": "embedded:j"}),
        (args("judged_by", model="elsewhere/any/model"), {"elsewhere/any/model": "embedded:j"}),
        (
            args("judged_by", judges=["openai/a", "google/b", "x/c"]),
            dict.fromkeys(["openai/a", "google/b", "x/c"], "embedded:j"),
        ),
    ],
)
async def test_a_model_that_a_task_names_is_one_of_the_workers(sample: Sample, models: dict[str, str]) -> None:
    """By its role, or by the name that the task has for it, of whatever provider; its tokens are those of a judge."""
    judge = ScriptedModel(answer=GRADES.answer)
    async with run_worker({"m": ScriptedModel(), "j": judge}, inspect_roots=[TASKS]) as worker:
        evaluation = await worker.bridge.evaluation.evaluate(request(sample, models=models))

    name = str(sample.input).partition("@")[2]
    assert evaluation.metrics.values[f"{name}/model_graded_qa/accuracy"] == 1 / 3
    assert judge.counts["sample"] == 3 * len(models)
    assert evaluation.usage is not None
    assert [used.model for used in evaluation.usage.judges] == ["embedded:j"]
    assert evaluation.request.models == models


@pytest.mark.parametrize(
    ("sample", "models"),
    [
        (args("asks_role", role="speaker"), {"speaker": "embedded:j"}),
        (args("asks_name", name="anthropic/claude"), {"anthropic/claude": "embedded:j"}),
    ],
)
async def test_steps_of_a_task_ask_named_models(sample: Sample, models: dict[str, str]) -> None:
    """The evaluated model is not called in its place."""
    model, other = ScriptedModel(), ScriptedModel(answer=lambda prompt: "ALPHA")
    async with run_worker({"m": model, "j": other}, inspect_roots=[TASKS]) as worker:
        evaluation = await worker.bridge.evaluation.evaluate(request(sample, models=models))

    name = str(sample.input).partition("@")[2]
    assert evaluation.metrics.values[f"{name}/match/accuracy"] == 1 / 3
    assert (model.counts["sample"], other.counts["sample"]) == (0, 3)


@pytest.mark.parametrize(
    ("sample", "cure", "asked"),
    [
        (args("judged_by", model="openai/gpt-5"), "--role openai/gpt-5=MODEL", 0),
        (args("judged_by", judges=["openai/gpt-5", "google/b"]), "--role google/b=MODEL", 0),
        (args("asks_name", name="google/b"), "--role google/b=MODEL", 0),
        (args("asks_role", role="speaker"), "Model role 'speaker' is required", 0),
    ],
)
async def test_a_name_without_a_model_is_refused(sample: Sample, cure: str, asked: int) -> None:
    """What scorers name is known before the first sample; nothing is sent to the provider of that name."""
    model = ScriptedModel()
    async with run_worker({"m": model, "j": ScriptedModel()}, inspect_roots=[TASKS]) as worker:
        await worker.bridge.evaluation.evaluate(
            request(sample, models={"openai/gpt-5": "embedded:j"} if "google" in cure else {})
        )
        (result,) = await samples_of(worker.bridge)

    assert result.verdict is Verdict.ERROR
    assert cure in f"{result.problem} {result.output}"
    assert model.counts["sample"] == asked


def test_every_parameter_of_inspect_has_its_place() -> None:
    """A new field of the class, or one that is gone, fails here."""
    from inspect_ai.model import GenerateConfig  # pyright: ignore[reportMissingImports]

    assert GenerateConfig.model_fields.keys() == PARAMETERS.keys()


REFUSED = {
    "best_of": 2,
    "frequency_penalty": 0.5,
    "presence_penalty": 0.5,
    "logit_bias": {"1": 2.0},
    "logprobs": True,
    "top_logprobs": 2,
    "prompt_logprobs": 1,
    "fallback_models": ["a"],
    "verbosity": "low",
    "effort": "low",
    "reasoning_effort": "low",
    "reasoning_mode": "pro",
    "reasoning_tokens": 0,
    "reasoning_summary": "concise",
    "reasoning_history": "all",
    "response_schema": {"name": "a", "json_schema": {"type": "object"}},
    "extra_headers": {"a": "b"},
    "extra_body": {"a": 1},
    "modalities": ["image"],
}
"""A value of each refused parameter."""


def test_every_refused_parameter_is_refused_by_name() -> None:
    """A value that asks for what is done anyway is accepted."""
    from inspect_ai.model import GenerateConfig  # pyright: ignore[reportMissingImports]

    assert REFUSED.keys() == {name for name, use in PARAMETERS.items() if use is Use.REFUSED}
    for name, value in REFUSED.items():
        assert refused(GenerateConfig(**{name: value})) == name
    neutral = GenerateConfig(
        best_of=1,
        frequency_penalty=0.0,
        presence_penalty=0.0,
        logprobs=False,
        extra_body={},
        reasoning_history="auto",
        max_tokens=4,
        parallel_tool_calls=False,
    )
    assert refused(neutral) is None


async def test_a_parameter_that_no_model_gets_fails_the_task() -> None:
    """With its name; the model is not called without it."""
    model = ScriptedModel()
    _, (result,) = await evaluated(model, args("tuned", parameter="reasoning_effort", value="high"))

    assert result.problem is not None
    assert "PARAMETER_UNSUPPORTED: the task asks for reasoning_effort" in result.problem.message
    assert model.counts["sample"] == 0


INSTALLED = """
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import match
from inspect_ai.solver import generate


@task
def greeting() -> Task:
    return Task(dataset=[Sample(input="hello", target="HELLO")], solver=generate(), scorer=match())
"""


async def test_installed_tasks_are_run_where_their_package_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the name of the package, which announces them to Inspect; others stay refused."""
    # What Inspect takes for installed.
    site = tmp_path / "site-packages"
    lay_out(site, "own_evals", INSTALLED, "inspect_ai", {"own_evals": "own_evals"})
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")

    async with rig(None, inspect_packages=["own_evals"]) as r:
        samples = [Sample(input="own_evals/greeting"), Sample(input="inspect_evals/gsm8k"), task("capitals")]
        evaluation = await r.evaluation.evaluate(request(*samples))
        _, *others = await samples_of(r.worker.bridge)

    assert evaluation.metrics.values["greeting/match/accuracy"] == 1.0
    assert [other.problem and other.problem.reason for other in others] == ["TASK_NOT_ALLOWED", "TASK_NOT_FOUND"]


async def test_the_line_of_the_page_runs() -> None:
    """On an embedded model, as it stands, from the folder of the checkout."""
    pytest.importorskip("torch", reason=needs.MISSING["torch"])
    root = TASKS.parents[1]
    page = (root / "docs" / "one_line_each.md").read_text()
    (line,) = re.findall(r"^\| `inspect` \| `(crucible-worker .+)` \|$", page, re.MULTILINE)
    assert line in (root / "docs" / "inspect.md").read_text()
    program, *arguments = shlex.split(line)
    assert program == "crucible-worker"

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "crucible_worker", *arguments, "--json", cwd=root, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate()

    values = json.loads(told)["metrics"]
    assert process.returncode == 0
    assert values["additions/samples"] == 24
    assert values["additions/match/accuracy"] == values["additions/includes/accuracy"] > 0.5


def bad(how: str, **fields: Any) -> Sample:
    """A sample whose task misbehaves."""
    return task("bad", metadata={"task_args": json.dumps({"how": how})}, **fields)


_NOTHING = [
    (task("with_tools"), "INSPECT_SAMPLES_FAILED", "TOOLS_UNSUPPORTED"),
    (task("broken"), "INSPECT_FAILED", "this task is broken"),
    (task("nowhere"), "INSPECT_FAILED", "not found"),
    (task("capitals", metadata={"task_args": '{"colour": 1}'}), "INSPECT_FAILED", "no argument colour"),
    (bad("exit"), "INSPECT_ENDED", "exit status 3"),
    (bad("die"), "INSPECT_ENDED", "signal 9"),
    (bad("leave"), "INSPECT_FAILED", "ended without a log"),
    (task("original_model"), "INSPECT_FAILED", "sets its own model 'mockllm/model'"),
    (Sample(input="elsewhere.py@x"), "TASK_NOT_FOUND", "no file"),
    (Sample(input="../service/serving.py@x"), "PATH_OUT_OF_ROOT", "leads out"),
    (Sample(input="inspect_evals/gsm8k"), "TASK_NOT_ALLOWED", "allowed packages: none"),
]
"""Tasks that come to nothing, with reason and message."""


async def test_a_task_that_comes_to_nothing_is_an_error_of_its_own() -> None:
    """With a reason, and undefined in the metrics; the others stand."""
    evaluation, results = await evaluated(None, *(sample for sample, _, _ in _NOTHING), task("capitals", id="good"))

    for result, (sample, reason, message) in zip(results[:-1], _NOTHING, strict=True):
        assert result.problem is not None, sample
        assert (result.verdict, result.problem.reason) == (Verdict.ERROR, reason), sample
        assert message in result.problem.message
        assert result.problem.retryable is (reason == "INSPECT_ENDED")
    assert results[-1].verdict is Verdict.MEASURED
    assert evaluation.metrics.values["capitals[good]/match/accuracy"] == 2 / 3
    assert evaluation.metrics.values["with_tools/errored_samples"] == 3
    assert {key.partition("/")[0] for key in evaluation.metrics.undefined} == {
        *("broken", "nowhere", "capitals[3]", "bad[4]", "bad[5]", "bad[6]", "original_model", "x[8]", "x[9]", "gsm8k")
    }


async def test_what_a_task_prints_gets_into_nobodys_way() -> None:
    """Neither into the worker's log nor between the messages of its process."""
    evaluation, _ = await evaluated(None, bad("print"))

    assert evaluation.metrics.values["bad/match/accuracy"] == 2 / 3


async def test_no_secret_of_the_worker_is_there_for_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a task need a key to ask the model."""
    monkeypatch.setenv("OPENAI_API_KEY", "canary-0f3a")
    _, (result,) = await evaluated(None, task("environment"))

    (record,) = records(result)
    assert "PATH" in record["scores"]["spoken"]
    assert "OPENAI_API_KEY" not in record["scores"]["spoken"]


def hosts() -> set[int]:
    """Processes of tasks that are children of this one."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            parent = re.search(r"^PPid:\t(\d+)$", status.read_text(), re.MULTILINE)
            command = status.with_name("cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent is not None and int(parent[1]) == os.getpid() and b"evaluators.inspect.host" in command:
            found.add(int(status.parent.name))
    return found


async def _none_left() -> None:
    async with asyncio.timeout(BOUND_SECONDS):
        while hosts():
            await asyncio.sleep(0.01)


async def test_a_process_that_is_killed_amid_its_work_is_told_of() -> None:
    """As an error that may pass another time, in place of the half that it has found."""
    calls: list[str] = []

    def kill_at_first(call: Call) -> BackendError | None:
        calls.append(call.text)
        if len(calls) == 1:
            for pid in hosts():
                os.kill(pid, signal.SIGKILL)
        return None

    _, (result,) = await evaluated(ScriptedModel(fault=kill_at_first), task("capitals"))

    assert result.problem is not None
    assert (result.problem.reason, result.problem.retryable) == ("INSPECT_ENDED", True)
    await _none_left()


async def test_a_task_that_hangs_has_its_time() -> None:
    """Which is that of a sample, and some seconds to stop; its process is gone afterwards."""
    async with rig(ScriptedModel(), inspect_roots=[TASKS]) as r:
        evaluation = await r.evaluation.evaluate(request(bad("hang"), limits=Limits(sample_timeout_ms=4_000)))
        (result,) = await samples_of(r.worker.bridge)

    assert result.problem is not None
    assert result.problem.reason == "SAMPLE_TIMEOUT"
    # It hangs once it runs; where Inspect takes all the time to begin, it hears that it is to stop.
    assert evaluation.metrics.values.get("bad/samples", 0) == 0
    await _none_left()


async def test_what_was_scored_stands_when_a_task_is_stopped() -> None:
    """Inspect's own metrics of the samples that had ended; the one at work is in none of them, and is no error."""
    stop = asyncio.Event()

    async def answer(question: Any) -> dict[str, Any]:
        ((_, text),) = question["messages"]
        if text == "c":  # the others are scored
            stop.set()
            await asyncio.get_running_loop().create_future()
        return {"choices": [{"text": "A" if text == "a" else "wrong", "cut": False, "ended": "stop", "tokens": 1}]}

    order = {
        "task": f"{TASKS / 'tasks.py'}@endless",
        "task_args": {},
        "own_args": [],
        "limit": None,
        "epochs": None,
        "max_connections": 8,
        "defaults": {"max_tokens": 8, "temperature": 0.0},
        "config": {},
        "roles": {},
        "names": {},
        "role_defaults": {},
    }
    async with asyncio.timeout(BOUND_SECONDS):
        found = await run_in_process(order, answer, network=False, stop=stop)

    assert found["stopped"]
    assert [record["id"] for record in found["records"]] == [1, 2]
    assert (found["samples"], found["errored"], found["headline"]) == (2, 0, ["counted", None, "accuracy"])
    assert [score["metrics"] for score in found["scores"]] == [{"accuracy": 0.5}]
    await _none_left()


@pytest.mark.parametrize("how", ["hang", "stall"])
async def test_a_cancel_ends_the_process_too(how: str) -> None:
    """Whether the task computes or waits for the model."""
    model = ScriptedModel(fault=lambda call: STALL if how == "stall" else None)
    async with rig(model, inspect_roots=[TASKS]) as r:
        await r.evaluation.start_evaluation(request(bad("hang")))
        async with asyncio.timeout(BOUND_SECONDS):
            while not model.counts["sample"]:
                await asyncio.sleep(0.01)
        assert hosts()
        await r.evaluation.cancel_evaluation("e")
        evaluation = await r.ended("e")
        await _none_left()

    assert evaluation.state is EvaluationState.CANCELLED


async def test_a_drain_leaves_no_process_behind() -> None:
    """The evaluation is interrupted, its task runs again when it goes on."""
    model = ScriptedModel(fault=lambda call: STALL)
    async with rig(model, inspect_roots=[TASKS]) as r:
        await r.evaluation.start_evaluation(request(task("capitals")))
        async with asyncio.timeout(BOUND_SECONDS):
            while not model.counts["sample"]:
                await asyncio.sleep(0.01)
    await _none_left()


async def test_tasks_take_their_turns() -> None:
    """No more of them run at once than the worker lets."""
    peak = 0

    def look(call: Call) -> None:
        nonlocal peak
        peak = max(peak, len(hosts()))

    async with rig(ScriptedModel(fault=look), inspect_roots=[TASKS], max_inspect_tasks=1) as r:
        samples = [task("capitals", id=str(number), metadata={"limit": "1"}) for number in range(3)]
        evaluation = await r.evaluation.evaluate(request(*samples))

    assert evaluation.metrics.values["capitals[2]/samples"] == 1
    assert peak == 1
