"""What README, docs, protos and docstrings say is so."""

import dataclasses
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crucible_bridge.errors import Code
from crucible_bridge.events import Event, EventKind
from crucible_bridge.types import (
    Dataset,
    EmbeddedModel,
    EvaluateRequest,
    EvaluationPlan,
    EvaluationState,
    EvaluatorResult,
    EvaluatorSpec,
    Goal,
    Limits,
    Metrics,
    ModelUsage,
    Patience,
    Problem,
    SampleResult,
    ScoredCount,
    Usage,
    Verdict,
)
from crucible_worker.embedded import registry
from crucible_worker.evaluators.registry import EVALUATORS
from crucible_worker.events import run_events
from crucible_worker.grading.registry import GRADERS
from crucible_worker.journal.follows import CheckpointRow, CheckpointState
from crucible_worker.journal.plans import PatientPlan, PatientStep
from crucible_worker.journal.queries import EvaluationRow
from crucible_worker.journal.records import request_to_record
from crucible_worker.planning import follow_records
from crucible_worker.planning.patience import Improvement, best_event, plateau_event
from crucible_worker.server.worker import fixed_limits
from crucible_worker.util.limits import WorkerLimits
from tests.protos import CALLS
from tests.tables import rows

ROOT = Path(__file__).parents[2]
WORKER = ROOT / "python_worker" / "crucible_worker"
PROTOS = ROOT / "protos" / "crucible_bridge" / "v1"
PAGES = [ROOT / "README.md", ROOT / "elixir_client_example" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MAX_README_LINES = 150
# Metrics are told under keys of their own, which ListEvaluators names.
METRIC, UNDEFINED = "acc/a metric", "acc/an undefined metric"
# Reasons that the code puts together from parts.
COMPOSED = {"DATASET_CHANGED", "MODEL_CHANGED", "TOO_MANY_CALLS", "TOO_MANY_STREAMS"}


def test_every_limit_is_in_the_operators_page_with_its_default():
    """The page names each limit of the worker, with the value that holds."""
    page = (ROOT / "docs" / "operating.md").read_text()
    told = dict(re.findall(r"^\| `(\w+)` \| ([\d,.]+) \|", page, re.MULTILINE))

    expected = {field.name: f"{getattr(WorkerLimits(), field.name):,.0f}" for field in dataclasses.fields(WorkerLimits)}
    expected |= {name: f"{value:,}" for name, value in fixed_limits().items()}

    assert told == expected


def test_every_evaluator_and_grader_is_in_the_overview():
    """What the worker can do is said, and nothing is said that it cannot."""
    page = (ROOT / "docs" / "overview.md").read_text()
    table = page.partition("| evaluator | what it does | keys |\n")[2].partition("\n\n")[0]
    evaluators = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)

    assert sorted(evaluators) == sorted(EVALUATORS)
    for grader in GRADERS:
        assert f"`{grader}`" in page


def test_every_evaluator_and_grader_is_on_its_page_with_its_options():
    """Each evaluator has a section there, and each grader a row that names its options and no others."""
    page = (ROOT / "docs" / "evaluators.md").read_text()
    rows = re.findall(r"^\| (`[a-z0-9_`, ]+`) \| (?:[0-9]+ \| )?[^|]* \| ([^|]*) \|$", page, re.MULTILINE)
    told = {name: set(re.findall(r"`(\w+)`", options)) for names, options in rows for name in re.findall(r"\w+", names)}

    assert set(EVALUATORS) <= set(re.findall(r"^## `(\w+)`$", page, re.MULTILINE))
    for name, grader in GRADERS.items():
        # The value of an option may be told beside it.
        assert told[name] - {"boxed"} == set(grader.options_schema["properties"]), name


def test_every_call_is_in_the_overview_and_no_other():
    """The table of services is that of the protos."""
    page = (ROOT / "docs" / "overview.md").read_text()
    told = {
        service: set(re.findall(r"`(\w+)`", calls))
        for service, calls in re.findall(r"^\| `(\w+Service)` \| (.*) \|$", page, re.MULTILINE)
    }

    assert told == CALLS


def test_every_extra_that_a_model_or_data_set_needs_is_in_the_overview():
    """Who reads what there is knows what to install."""
    page = (ROOT / "docs" / "overview.md").read_text()
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]) - {
        "dev",
        "dev-all",
    }
    told = set(re.findall(r"^\| .* \| `(\w+)` \|$", page, re.MULTILINE)) | set(re.findall(r" need `(\w+)`", page))

    assert told == extras


def test_every_dependency_of_the_base_has_an_oldest_version_that_is_tried():
    """`make test-floors` reads all of them, and no other line."""
    script = re.search(r"sed -n '(.+)' pyproject\.toml", (ROOT / "Makefile").read_text())
    assert script is not None
    found = subprocess.run(
        ["sed", "-n", script[1], ROOT / "pyproject.toml"], capture_output=True, text=True, check=True
    )
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]

    assert found.stdout.split() == [re.sub(r",<.*", "", each).replace(">=", "==") for each in dependencies]


def test_every_test_that_the_makefile_names_is_there():
    """Else its command would end where a test was moved."""
    text = (ROOT / "Makefile").read_text()
    expanded = re.sub(
        r"\$\(addprefix (\S+?),([^)]*)\)", lambda found: " ".join(found[1] + name for name in found[2].split()), text
    )
    named = re.findall(r"\btests/[\w/]+(?:\.py)?", expanded)

    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_dependency_of_the_base_says_why_no_older_version_will_do():
    """The line above it is a comment that begins with the oldest version."""
    text = (ROOT / "pyproject.toml").read_text()
    dependencies = tomllib.loads(text)["project"]["dependencies"]
    explained = re.findall(r'^    # ([\d.]+): \S.*\n    "([\w-]+>=)\1([,"].*)$', text, re.MULTILINE)

    assert [(name + oldest + rest).rstrip(',"') for oldest, name, rest in explained] == dependencies


def test_every_figure_of_the_readme_is_on_the_page_of_measurements():
    """The bold figures of the README are those that a benchmark's row on the page has."""
    readme, page = ((ROOT / name).read_text() for name in ("README.md", "docs/measured.md"))
    figures = re.findall(r"\*\*([\d.,]+(?: \w+|x)?)\*\*", readme)

    assert len(figures) >= 5
    assert [figure for figure in figures if not re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d])", page)] == []


def test_every_script_of_the_page_of_measurements_is_there():
    """Each row of the page names the command that measures it."""
    scripts = re.findall(r"`python (benchmarks/\w+\.py)\b", (ROOT / "docs" / "measured.md").read_text())

    assert scripts
    assert [script for script in scripts if not (ROOT / script).is_file()] == []


def test_the_readme_is_short():
    """A newcomer reads it whole."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= MAX_README_LINES


@rows("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page: Path):
    """To a file that is there, and to a heading that it has."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith(("https://", "http://")):
            continue
        name, _, heading = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), target
        headings = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE) if heading else []
        assert not heading or heading in {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}


@rows("page", ["from_lm_eval", "from_inspect", "from_trl"])
def test_pages_for_those_who_come_from_elsewhere_name_what_is_there(page: str):
    """In the columns of this worker: options of its commands; names of evaluators, graders, options and metrics."""
    commands = (ROOT / "docs" / "reference" / "commands.md").read_text()
    declared = {*EVALUATORS, *GRADERS, *(spelled for each in EVALUATORS.values() for spelled in each.info.keys)}
    schemas = [each.info.options_schema for each in EVALUATORS.values()]
    schemas += [grader.options_schema for grader in GRADERS.values()]
    declared |= {option for schema in schemas for option in schema["properties"]}
    words = {name for name in re.findall(r"[a-z_]+", " ".join(declared)) if "_" in name}
    lines = re.findall(r"^\| [^|]+ \| (.*) \|$", (ROOT / "docs" / f"{page}.md").read_text(), re.MULTILINE)
    named = {word for line in lines for word in re.findall(r"`([a-z]+(?:_[a-z0-9]+)+)`", line.partition(" | ")[0])}

    assert len(lines) > 20
    flags = {flag for line in lines for flag in re.findall(r"`(--[a-z-]+)", line.partition(" | ")[0])}
    assert {flag for flag in flags if not re.search(rf"`(?:-\w, )?{flag}\b(?!-)", commands)} == set()
    # What is no declared name is a field of a request, of a result or of a plan.
    fields = {field.name for kind in (EvaluatorResult, Limits, EvaluationPlan) for field in dataclasses.fields(kind)}
    assert named - words - declared - fields == set()


def test_what_the_page_of_the_code_names_is_there():
    """A file that a reader is sent to exists, and the name that it is said to have stands in it."""
    page = (ROOT / "docs" / "how_it_works.md").read_text()
    files = {
        name: WORKER / name if (WORKER / name).exists() else ROOT / name
        for name in re.findall(r"`([\w./]+/[\w./]*|\w+\.py)`", page)
    }
    assert len(files) > 20
    assert [name for name, path in files.items() if not path.exists()] == []
    places = re.findall(r"^\| where .* \| `(\S+)` \| `(\w+)` \|$", page, re.MULTILINE)
    assert len(places) > 5
    assert [place for place in places if place[1] not in files[place[0]].read_text()] == []


@rows("page", PAGES, ids=lambda page: page.name)
def test_no_placeholder_is_left(page: Path):
    """A line of capitals alone is something that nobody has written yet."""
    assert re.findall(r"^[A-Z_]{6,}$", page.read_text(), re.MULTILINE) == []


def test_every_decision_has_a_number_of_its_own():
    """They are numbered one by one, in the file's name and in its title."""
    notes = sorted((ROOT / "docs" / "design").glob("*.md"))

    assert [note.name[:4] for note in notes] == [f"{number:03}-" for number in range(1, len(notes) + 1)]
    assert [note.read_text()[:6] for note in notes] == [f"# {note.name[:3]}:" for note in notes]


def test_every_embedded_model_that_is_named_ships():
    """An example that is copied works."""
    code = [path for package in ("bridge", "python_worker") for path in (ROOT / package).rglob("*.py")]
    named = {
        name
        for path in (*PAGES, *PROTOS.glob("*.proto"), *code)
        for name in re.findall(r"\barithmetic@\d+", path.read_text())
    }

    assert named
    assert named <= set(registry.names())


def comments_of_kinds() -> dict[EventKind, str]:
    """The comment of every value of the proto's EventKind."""
    text = (PROTOS / "events.proto").read_text()
    body = text.partition("enum EventKind {")[2].partition("}")[0]
    found = re.findall(r"((?:^ *//.*\n)+) *EVENT_KIND_(\w+) =", body, re.MULTILINE)
    return {EventKind(name): comment for comment, name in found if name != "UNSPECIFIED"}


def keys_told(comment: str, what: str) -> set[str]:
    """The words of a comment's list of measurements or metadata, what stands in brackets left out."""
    lists = re.split(r"(Measurements|Metadata): ", " ".join(comment.replace("//", "").split()))
    told = dict(zip(lists[1::2], lists[2::2], strict=True)).get(what, "")
    return set(re.findall(r"[\w.<>]*[\w>]", re.sub(r"\([^)]*\)", "", told)))


def a_row(request: EvaluateRequest) -> EvaluationRow:
    """An evaluation in a journal."""
    columns: dict[str, Any] = {
        field.name: {"int": 1, "str": "x"}.get(str(field.type)) for field in dataclasses.fields(EvaluationRow)
    }
    columns |= {"state": EvaluationState.RUNNING, "request": request_to_record(request)}
    return EvaluationRow(**columns)


def events_of_every_kind() -> Iterator[Event]:
    """What a worker writes, with every key that it may have."""
    spec = EvaluatorSpec(kind="accuracy", name="acc")
    request = EvaluateRequest(
        model=EmbeddedModel("arithmetic@320"), evaluators=(spec,), dataset=Dataset.of("builtin:arithmetic")
    )
    row = a_row(request)
    metrics, problem = Metrics({METRIC: 1.0}, {UNDEFINED: "none"}), Problem(reason="R", message="m")
    yield run_events.start(row, "worker")
    yield run_events.resume(row, "worker")
    yield run_events.interrupt(row, "cause")
    yield run_events.paused(row, EventKind.EVALUATION_PAUSED)
    yield run_events.paused(row, EventKind.EVALUATION_RESUMED)
    yield run_events.concurrency(row, 2, 1)
    yield run_events.progress(row, 1.0, {"questions_done": 1.0, "questions_total": 2.0})
    yield run_events.sample_complete(
        row, SampleResult(evaluator="acc", sample_id="a", verdict=Verdict.CORRECT, score=1.0), 1
    )
    yield run_events.evaluator_start(row, "acc", 1)
    known = Usage(prompt_tokens=1, cached_prompt_tokens=1, reasoning_tokens=1, output_tokens=1, calls=1, cost=1.0)
    usage = dataclasses.replace(known, judges=(ModelUsage(model="embedded:j", usage=known),))
    ended = EvaluatorResult(evaluator=spec, metrics=metrics, usage=usage)
    yield run_events.evaluator_end(row, ended, 1)
    yield run_events.evaluator_end(row, dataclasses.replace(ended, problem=problem), 1)
    yield run_events.complete(row, metrics, 1, 1, usage)
    yield run_events.stop(row, EvaluationState.COMPLETED, 1)
    yield run_events.exception(row, problem, 1)
    yield run_events.metrics_computed("ComputeMeanNLL", 1, 1)
    yield run_events.grading_complete("GradeMath", [Verdict.CORRECT, Verdict.ERROR], 1, policy_version="1")
    patience = Patience(metric=METRIC, goal=Goal.HIGHER, patience=1)
    plan = PatientPlan(plan_id="p", run_id="r", correlation_id="", patience=patience, parts=(0,), best_file=False)
    step = PatientStep(step=1, evaluation_id="e", model="embedded:m", value=1.0, best_step=1, since=0)
    for found in (
        Improvement(better=True, by="paired", difference=0.1, interval=(0.0, 0.2)),
        Improvement(better=True, by="value", difference=0.1, not_paired="NO_SCORES"),
    ):
        yield best_event(plan, step, step, found, ScoredCount(n=4, n_scored=3))
    yield plateau_event(plan, step, step, 1)
    checkpoint = CheckpointRow(
        name="checkpoint-1",
        identity="i",
        step=1,
        state=CheckpointState.HELD,
        source="/x",
        path="/x",
        model="local:/x",
        held="copy",
        held_identity="i",
        written_ns=0,
    )
    yield follow_records.checkpoint_found("run", checkpoint, 1, "no links")
    yield follow_records.checkpoint_skipped("run", checkpoint, 1, "gone")
    yield follow_records.checkpoint_released("run", checkpoint, 1, "changed", "/x/best/checkpoint-1")


def test_every_key_of_an_event_is_in_its_kinds_comment():
    """Whoever has the protos alone knows the measurements and metadata of each kind."""
    comments, events = comments_of_kinds(), list(events_of_every_kind())

    assert set(comments) == set(EventKind)
    assert {event.kind for event in events} == set(EventKind)
    for event in events:
        comment = comments[event.kind]
        assert set(event.measurements) - {METRIC} <= keys_told(comment, "Measurements"), event.kind
        assert {key.replace(UNDEFINED, "<key>") for key in event.metadata} <= keys_told(comment, "Metadata"), event.kind


def test_every_reason_in_the_protos_is_one_of_the_code():
    """What a caller is told to expect can come."""
    protos = "".join(path.read_text() for path in PROTOS.glob("*.proto"))
    told = {
        reason
        for status, reasons in re.findall(r"// (?:Errors: )?([A-Z_]+): ((?:[^.]|\n)*)", protos)
        if status in set(Code)
        for reason in re.findall(r"\b[A-Z]+_[A-Z_]+\b", reasons)
    }
    code = "".join(
        path.read_text() for package in ("bridge", "python_worker") for path in (ROOT / package).rglob("*.py")
    )
    raised = {*re.findall(r'"([A-Z]+_[A-Z_]+)"', code), *COMPOSED}

    assert {"OTHER_SPECIFICATION", "QUEUE_FULL", "MISSING_TOKEN", "UNKNOWN_EVALUATION", "CHECKPOINT_CHANGED"} <= told
    assert told <= raised


def test_every_telemetry_name_is_in_its_kinds_comment():
    """Elixir's names stand in the protos as Python has them."""
    for kind, comment in comments_of_kinds().items():
        name = Event(kind=kind).telemetry_name
        assert "[" + ", ".join(f":{part}" for part in name) + "]" in comment
