"""Every line of the page of one-liners runs: on embedded models, a scripted judge, and a worker that all share."""

import asyncio
import contextlib
import importlib
import importlib.util
import re
import shlex
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

import crucible_bridge
from crucible_bridge.types import GetStopSequencesResponse, Metrics, Verdict
from crucible_worker.backends.openai.servers import OpenAIServer
from crucible_worker.cli import app
from crucible_worker.cli.requests import EvaluationToRun
from crucible_worker.cli.running import Compared, EvaluationRun
from crucible_worker.config import Settings
from crucible_worker.evaluators import registry
from crucible_worker.server import Worker
from tests import needs
from tests.distributions import lay_out_evaluator_package
from tests.protos import CALLS, COMPUTING
from tests.service.code_kit import MISSING
from tests.service.openai_kit import Reply, Request, ScriptedServer, answer

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "one_line_each.md").read_text()
LINES = dict(re.findall(r"^\| `(\w+)` \| `(.+)` \|$", PAGE, re.MULTILINE))
JUDGE_URL = "http://127.0.0.1:8000/v1"
READY_SECONDS = 60.0

pytestmark = pytest.mark.core


class Shared(NamedTuple):
    """What the lines are run on."""

    address: str
    judge_url: str


def judged(request: Request) -> Reply:
    """What a judge says: a score by the one criterion, where it is asked for one, or that the first is the better."""
    if request.method != "POST":
        return Reply({"data": []})
    by_criterion = '{"clear": {"reason": "It is one number.", "score": 8}}'
    return answer(request, by_criterion if '"score"' in request.text else "Both are read.\nA")


@contextlib.asynccontextmanager
async def _serving(folder: Path) -> AsyncIterator[Shared]:
    async with ScriptedServer(judged).serving() as judge:
        settings = Settings(
            port=0,
            state_dir=folder / "state",
            data_roots=(folder,),
            endpoints=(OpenAIServer(name="judge", base_url=judge.url),),
            grading_processes=2,
            code_sandboxes=1,
        )
        async with Worker(settings.validate()) as worker:
            yield Shared(worker.address, judge.url)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the lines are typed in, with the files that the section says how to make."""
    folder = tmp_path_factory.mktemp("lines")
    for content, name in re.findall(r"^    echo '(.*)' > (\S+)$", PAGE, re.MULTILINE):
        (folder / name).write_text(f"{content}\n")
    return folder


@pytest.fixture(scope="module")
def shared(folder: Path) -> Iterator[Shared]:
    """A worker in a thread of its own: what asks it blocks."""
    started: Future[tuple[Shared, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        try:
            async with _serving(folder) as shared:
                over = asyncio.Event()
                started.set_result((shared, asyncio.get_running_loop(), over))
                await over.wait()
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="worker of the lines")
    thread.start()
    shared, loop, over = started.result(READY_SECONDS)
    yield shared
    loop.call_soon_threadsafe(over.set)
    thread.join()


@pytest.fixture
def run_there(shared: Shared, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[EvaluationRun]:
    """Have `evaluate` query the shared worker, as a separate process for each line takes longer; what it got."""
    told: list[EvaluationRun] = []

    async def run(
        _settings: Settings,
        asked: Sequence[EvaluationToRun],
        _evaluators: Sequence[str],
        ended: list[EvaluationRun],
        _own: object,
        *,
        quiet: bool,
        rerun: bool,
    ) -> Sequence[Compared]:
        async with crucible_bridge.connect(shared.address) as bridge:
            for each in asked:
                evaluation = await bridge.evaluation.evaluate(each.request)
                told.append(EvaluationRun(model=each.model, name=each.name, evaluation=evaluation, first_unscored={}))
        ended.extend(told)
        return ()

    monkeypatch.setattr("crucible_worker.cli.running.run", run)
    monkeypatch.chdir(folder)
    return told


@pytest.fixture
def brevity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An evaluator of a user's, installed."""
    monkeypatch.syspath_prepend(tmp_path)
    lay_out_evaluator_package(tmp_path)
    importlib.invalidate_caches()
    yield
    sys.modules.pop("brevity", None)


def test_every_evaluator_and_every_call_has_its_line():
    """Those that ship, one of a user's, and each call of the services that compute; and nothing else."""
    calls = frozenset().union(*[CALLS[service] for service in COMPUTING])

    assert set(LINES) == {*registry.EVALUATORS, "brevity", *calls}


@pytest.mark.usefixtures("brevity")
@pytest.mark.parametrize("name", [name for name, line in LINES.items() if line.startswith("crucible-worker ")])
def test_an_evaluators_line_gives_numbers(name: str, shared: Shared, run_there: list[EvaluationRun]):
    """Typed as it stands, it exits with 0, and its evaluator has judged samples and found its keys."""
    _skip_without_what_it_needs(LINES[name])
    program, *arguments = shlex.split(LINES[name].replace(JUDGE_URL, shared.judge_url))

    result = CliRunner().invoke(app, [*arguments, "--verbose"])

    assert (program, result.exit_code) == ("crucible-worker", 0), result.output
    ((found,),) = [ran.evaluation.results for ran in run_there]
    assert found.evaluator.kind == name
    assert found.n == found.n_scored > 0
    assert found.metrics.values
    assert all(key in result.stdout.replace("\n", "") for key in found.metrics.values if len(key) < 20)


@pytest.mark.parametrize("name", [name for name, line in LINES.items() if line.startswith("bridge.")])
def test_a_calls_line_gives_an_answer(name: str, shared: Shared):
    """In place of the last line of the snippet above the table, it prints metrics, grades, or what a model says."""
    _skip_without_what_it_needs(LINES[name])
    (snippet,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    before, line, _ = snippet.replace("127.0.0.1:50051", shared.address).rpartition("    print(")
    found: dict[str, Any] = {}

    exec(f"{before}    found = {LINES[name]}\n", found)

    assert line
    _assert_answered(found["found"])


def _skip_without_what_it_needs(line: str) -> None:
    for part, module in (("openai:", "aiohttp"), ("--evaluator inspect", "inspect_ai")):
        if part in line and importlib.util.find_spec(module) is None:
            pytest.skip(needs.MISSING[module])
    if "grade_code" in line and MISSING:
        pytest.skip(MISSING)


def _assert_answered(found: Any) -> None:
    """There are grades, answers of a model or a tokenizer, or else metrics; each is one, and nothing is a problem."""
    if isinstance(found, GetStopSequencesResponse):
        assert found.eos_token is not None
        return
    lists = [getattr(found, name, ()) for name in ("grades", "items", "sequences", "outputs")]
    several = found if isinstance(found, tuple) else next(filter(None, lists), ())
    for each in several:
        graded = getattr(each, "grade", each)
        assert getattr(graded, "problem", None) is None
        assert getattr(graded, "verdict", Verdict.CORRECT) is Verdict.CORRECT
        assert getattr(each, "answer", "5") == "5"
    if not several:
        metrics = getattr(found, "metrics", found)
        assert isinstance(metrics, Metrics)
        assert metrics.values
