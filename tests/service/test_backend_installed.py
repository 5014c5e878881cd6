"""Backends that users have installed, over the wire: the page's example is evaluated, others are kept from harm."""

import asyncio
import importlib
import os
import re
import sys
import threading
import tomllib
import types
from collections.abc import Callable
from pathlib import Path

import pytest

import crucible_bridge
from crucible_bridge.errors import BridgeError, Code
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    EvaluationState,
    EvaluatorSpec,
    InstalledModel,
    Sample,
    SamplingParams,
)
from crucible_worker.backends.installed import GROUP
from crucible_worker.testing import ScriptedModel
from tests.distributions import lay_out
from tests.service.evaluation_kit import accuracy, asked, refused, rig, samples_of
from tests.service.serving import serving
from tests.tables import rows

PAGE = (Path(__file__).parents[2] / "docs" / "backends.md").read_text()
FOUR = SamplingParams(max_tokens=4)

ODD = """
from crucible_bridge.types import SampledSequence
from crucible_worker.backends.base import Backend, Model

CLOSED = []

class Odd(Model):
    fingerprint = "odd"

    def __init__(self, where):
        self.where = where

    async def load(self):
        if self.where == "load":
            raise ValueError("a secret")

    async def sample_text(self, input, params, num_samples=1, *, plain=False):
        if self.where == "sample":
            raise ValueError("a secret")
        if self.where == "text":
            return ["46"]
        if self.where == "count":
            return []
        return [SampledSequence(text="46", tokens=(), token_count=1)] * num_samples

class OddBackend(Backend):
    async def open(self, model):
        if model.name == "open":
            raise ValueError("a secret")
        if model.name == "none":
            return None
        odd = Odd(model.name)
        if model.name == "anonymous":
            odd.fingerprint = ""
        return odd

    async def aclose(self):
        CLOSED.append(True)
"""

TOLD = f"""{ODD}
class ToldBackend(OddBackend):
    def __init__(self, device):
        self.device = device

    @classmethod
    def create(cls, settings):
        return cls(settings.device)

    async def open(self, model):
        return Told(self.device)

class Told(Odd):
    async def sample_text(self, input, params, num_samples=1, *, plain=False):
        return [SampledSequence(text=self.where, tokens=(), token_count=1)] * num_samples
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a distribution with a backend where this process finds it."""
    folder = tmp_path / "installed"
    monkeypatch.syspath_prepend(folder)
    known: set[str] = set()

    def distribution(scheme: str, source: str, place: str) -> None:
        if scheme in known:  # by an earlier row of a table
            return
        known.add(scheme)
        lay_out(folder, f"users_{scheme}", source, GROUP, {scheme: f"users_{scheme}:{place}"})
        importlib.invalidate_caches()
        monkeypatch.delitem(sys.modules, f"users_{scheme}", raising=False)

    return distribution


def lay_out_the_page(folder: Path) -> None:
    """The package of the page: its first block of Python, announced as its first block of TOML says."""
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (project,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    ((group, points),) = tomllib.loads(project)["project"]["entry-points"].items()
    assert len(source.splitlines()) < 60
    lay_out(folder, "sums", source, group, points)


async def test_the_example_of_the_page_is_a_backend_of_a_worker_as_it_is_started(tmp_path: Path):
    """Installed on its path: named by GetInfo, evaluated, sampled; it refuses a model."""
    lay_out_the_page(tmp_path / "installed")
    path = os.pathsep.join([str(tmp_path / "installed"), *filter(None, [os.environ.get("PYTHONPATH")])])
    async with (
        serving(tmp_path / "worker", "", environment={"PYTHONPATH": path}) as worker,
        crucible_bridge.connect(worker.address) as bridge,
    ):
        info = await bridge.worker.get_info()
        exact, wrong = [
            await bridge.evaluation.evaluate(
                model=f"sums:{name}",
                evaluators=["accuracy"],
                dataset=[Sample(input="12+34=", targets=("46",)), Sample(input="1+1=", targets=("2",))],
                sampling=FOUR,
            )
            for name in ("exact", "off-by-one")
        ]
        sampled = await bridge.models.sample(
            InstalledModel("sums", "exact"), ["1+2", Conversation((ChatMessage("user", "3+4"),)), "none"], FOUR
        )
        await refused(
            bridge.evaluation.evaluate(
                model="sums:odd", evaluators=["accuracy"], dataset=[Sample(input="1")], sampling=FOUR
            ),
            Code.NOT_FOUND,
            "UNKNOWN_MODEL",
            "model",
        )

    assert (exact.state, exact.metrics.values["accuracy"]) == (EvaluationState.COMPLETED, 1.0)
    assert (wrong.state, wrong.metrics.values["accuracy"]) == (EvaluationState.COMPLETED, 0.0)
    assert exact.request.model == InstalledModel("sums", "exact")
    assert [[one.text for one in item.sequences] for item in sampled.items] == [["3"], ["7"], []]
    assert "sums" in [backend.name for backend in info.backends]


async def test_an_unknown_scheme_is_refused_with_those_there_are_and_the_cure(install: Install):
    """Wherever a model is named: by the path of what the caller wrote."""
    install("odd", ODD, "OddBackend")
    judge = EvaluatorSpec(kind="comparison", options={"judge": "od:x"})
    async with rig(ScriptedModel()) as r:
        for request, field, scheme, meant in (
            (asked(model="od:x"), "model", "od", "odd"),
            (asked(model="embeded:m"), "model", "embeded", "embedded"),
            (asked(evaluators=[judge]), 'evaluators[0].options["judge"]', "od", "odd"),
        ):
            error = await refused(r.evaluation.start_evaluation(request), Code.FAILED_PRECONDITION, "NO_BACKEND", field)
            assert error.message == (
                f"has the scheme {scheme!r}, for which this worker has no backend; there are embedded, local, hub, "
                f"openai, tinker, orchestrator, odd: write {meant}:, or install a package that announces {scheme!r} in "
                "the entry-point group 'crucible_worker.backends' in the worker's environment"
            )


async def test_a_backend_may_read_the_worker_s_settings(install: Install):
    """Its `create` gets them, in place of a call of the class without arguments."""
    install("told", TOLD, "ToldBackend")
    async with rig(ScriptedModel()) as r:
        answer = await r.worker.bridge.models.sample("told:x", ["a"], FOUR)

    assert answer.items[0].sequences[0].text == "auto"


@rows(
    ("name", "reason", "told"),
    [
        ("open", "BACKEND_FAILED", "^ValueError in the backend 'odd'; error id [0-9a-f]{16} in the worker's log$"),
        ("none", "BAD_BACKEND", "^the backend 'odd' opened a NoneType, not a Model$"),
        ("anonymous", "BAD_BACKEND", "fingerprint is no text"),
        ("load", "BACKEND_FAILED", "^ValueError in the backend 'odd'; error id"),
    ],
)
async def test_a_backend_that_breaks_ends_its_call(install: Install, name: str, reason: str, told: str):
    """With its own name and an error id, and without the text of its exception."""
    install("odd", ODD, "OddBackend")
    async with rig(ScriptedModel()) as r:
        with pytest.raises(BridgeError) as caught:
            await r.worker.bridge.models.sample(f"odd:{name}", ["a"], FOUR)
        stands = await r.worker.bridge.models.sample("odd:sound", ["a"], FOUR)

    assert caught.value.reason == reason
    assert re.search(told, caught.value.message)
    assert "secret" not in str(caught.value)
    assert stands.items[0].sequences[0].text == "46"


@rows(
    ("name", "reason", "told"),
    [
        ("sample", "BACKEND_FAILED", "^ValueError in the backend 'odd'; error id [0-9a-f]{16} in the worker's log$"),
        ("text", "BACKEND_ANSWER", "^the backend 'odd' answered sample_text with no 1 SampledSequence$"),
        ("count", "BACKEND_ANSWER", "^the backend 'odd' answered sample_text with no 1 SampledSequence$"),
    ],
)
async def test_what_a_model_raises_or_answers_in_error_is_the_problem_of_its_sample(
    install: Install, name: str, reason: str, told: str
):
    """Once each, as it would be no better the next time; the evaluation ends in order, and the backend is closed."""
    install("odd", ODD, "OddBackend")
    async with rig(ScriptedModel()) as r:
        evaluation = await r.evaluation.evaluate(asked(model=f"odd:{name}", evaluators=[accuracy()]))
        problems = [(sample.problem, sample.attempts) for sample in await samples_of(r.worker.bridge)]

    assert evaluation.results[0].n_errors == len(problems) > 0
    assert {problem.reason for problem, _ in problems if problem is not None} == {reason}
    assert all(problem is not None and re.search(told, problem.message) for problem, _ in problems)
    assert {attempts for _, attempts in problems} == {1}
    assert sys.modules["users_odd"].CLOSED


@rows(
    ("source", "place", "reason", "told"),
    [
        ("raise RuntimeError('no luck')", "It", "BAD_BACKEND", "cannot be loaded from .*RuntimeError: no luck"),
        ("import no_such_library", "It", "EXTRA_NOT_INSTALLED", "needs 'no_such_library', which is not installed"),
        ("IT = 7", "IT", "BAD_BACKEND", "is a int at 'users_bad.*:IT', not a subclass of Backend"),
        ("class It: pass", "It", "BAD_BACKEND", "is the class It at .*, not a subclass of Backend"),
        (f"{ODD}\nclass It(OddBackend):\n    def __init__(self, x): pass", "It", "BAD_BACKEND", "cannot be made from"),
        ("from crucible_worker.backends.base import Backend as It", "It", "BAD_BACKEND", "cannot be made from"),
    ],
)
async def test_what_is_no_backend_is_refused_when_its_model_is_named(
    install: Install, source: str, place: str, reason: str, told: str
):
    """And not before: the worker starts, and lists the scheme."""
    scheme = f"bad{len(source)}"
    install(scheme, source, place)
    async with rig(ScriptedModel()) as r:
        names = [info.name for info in (await r.worker.bridge.worker.get_info()).backends]
        error = await refused(
            r.evaluation.start_evaluation(asked(model=f"{scheme}:x")), Code.FAILED_PRECONDITION, reason
        )

    assert scheme in names
    assert re.search(told, error.message)


async def test_an_installed_backend_takes_no_scheme_of_the_worker(install: Install):
    """One that calls itself embedded is neither listed nor loaded."""
    install("embedded", "raise RuntimeError('loaded')", "It")
    async with rig(ScriptedModel()) as r:
        names = [info.name for info in (await r.worker.bridge.worker.get_info()).backends]
        evaluation = await r.evaluation.evaluate(asked())

    assert "embedded" not in names
    assert evaluation.state is EvaluationState.COMPLETED


async def test_a_backend_that_is_imported_slowly_stops_no_other_call(install: Install, monkeypatch: pytest.MonkeyPatch):
    """The worker answers while the import waits; two calls of its models import it once."""
    gate = types.ModuleType("users_gate")
    began, go = threading.Event(), threading.Event()
    monkeypatch.setitem(sys.modules, "users_gate", gate)
    vars(gate).update(began=began, go=go, imports=[])
    slow = "import users_gate\nusers_gate.imports.append(1)\nusers_gate.began.set()\nassert users_gate.go.wait(30)\n"
    install("slow", slow + ODD, "OddBackend")
    async with rig(ScriptedModel()) as r:
        calls = [asyncio.create_task(r.worker.bridge.models.sample("slow:x", ["a"], FOUR)) for _ in range(2)]
        assert await asyncio.to_thread(began.wait, 30)
        other = await r.worker.bridge.models.sample("embedded:m", ["a"], FOUR)
        go.set()
        answers = await asyncio.gather(*calls)

    assert other.items[0].sequences[0].text == "A"
    assert [answer.items[0].sequences[0].text for answer in answers] == ["46", "46"]
    assert vars(gate)["imports"] == [1]
