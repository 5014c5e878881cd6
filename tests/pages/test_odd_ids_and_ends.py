"""Ids with signs of addresses, and the end of the command by signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from crucible_bridge.types import ReportFormat, Sample, SamplingParams
from crucible_worker.testing import ScriptedModel, run_worker
from tests.pages.conftest import Visit, in_thread, viewing

IDS = ("a,b", "c/d?e#f%2C", "constructor")


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal of evaluations with odd ids, and their report."""
    folder = tmp_path_factory.mktemp("odd")

    async def make() -> None:
        async with run_worker({"m": ScriptedModel(answer=lambda prompt: "4")}, state_dir=folder / "j") as worker:
            for one in IDS:
                await worker.bridge.evaluation.evaluate(
                    evaluation_id=one,
                    model="embedded:m",
                    evaluators=["accuracy"],
                    dataset=[Sample(id="s,1", input="2 + 2?", targets=("4",))],
                    sampling=SamplingParams(max_tokens=8),
                )
            report = await worker.bridge.evaluation.generate_report(IDS, ReportFormat.HTML)
            (folder / "report.html").write_text(report, "utf-8")

    in_thread(make())
    return folder


COMPARE = "compare/a%252Cb%2Cc%2Fd%3Fe%23f%25252C%2Cconstructor"


def test_ids_with_commas_are_compared(odd: Path, visits: Callable[..., Visit]):
    """A comma, slash or per cent sign of an id is not one of the address, in a file and live."""
    file = visits((odd / "report.html").as_uri())
    file.page.goto(file.home)
    file.shown()
    assert file.title == f"Comparison of {', '.join(IDS)}"
    file.open("evaluation/toString")
    assert file.title == "This page cannot be shown"
    with viewing("--state-dir", str(odd / "j")) as address:
        live = visits(address.partition("?")[0])
        live.page.goto(address)
        live.shown()
        live.open(COMPARE)
        assert live.title == f"Comparison of {', '.join(IDS)}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_view_and_leaves_no_folder(results: Path, tmp_path: Path, number: signal.Signals):
    """The temporary database and the socket's folder are gone, and nothing is printed."""
    command = [sys.executable, "-m", "crucible_worker", "view", "--state-dir", str(results)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as view:
        assert view.stdout is not None
        assert view.stdout.readline().startswith("Open ")
        assert list(tmp_path.iterdir()) != []
        view.send_signal(number)
        _, said = view.communicate(timeout=60)

    assert (view.returncode, said, list(tmp_path.iterdir())) == (130, "", [])


def test_a_list_has_a_column_for_each_kind_of_evaluator(tmp_path: Path, visits: Callable[..., Visit]):
    """Three metrics have a column as most evaluations have them, and each evaluation has one of its own at least."""
    common, rare = ("accuracy", "nll", "perplexity"), "next_token_accuracy"

    async def make() -> None:
        async with run_worker({"m": ScriptedModel(answer=lambda prompt: "4")}, state_dir=tmp_path / "j") as worker:
            for one, kinds in (("a", common), ("b", common), ("c", (rare,))):
                await worker.bridge.evaluation.evaluate(
                    evaluation_id=one,
                    model="embedded:m",
                    evaluators=kinds,
                    dataset=[Sample(input="2 + 2?", targets=("4",))],
                    sampling=SamplingParams(max_tokens=8),
                )

    in_thread(make())
    with viewing("--state-dir", str(tmp_path / "j")) as address:
        live = visits(address.partition("?")[0])
        live.page.goto(address)
        live.shown()
        heads = live.page.locator("table:has(caption:text('Evaluations')) th").all_inner_texts()
        assert {*common, rare} <= set(heads)
        live.page.goto("about:blank")


def test_a_list_of_many_kinds_of_evaluators_fits(tmp_path: Path, visits: Callable[..., Visit]):
    """Where each kind would take a column, one column has the metrics of every evaluation, with their intervals."""
    kinds = ("accuracy", "nll", "perplexity", "bits_per_byte", "next_token_accuracy", "rollout", "pass_at_k")

    async def make() -> None:
        async with run_worker({"m": ScriptedModel(answer=lambda prompt: "4")}, state_dir=tmp_path / "j") as worker:
            for kind in kinds:
                await worker.bridge.evaluation.evaluate(
                    evaluation_id=kind,
                    model="embedded:m",
                    evaluators=[kind],
                    dataset=[Sample(input=f"{n} + 2?", targets=("4",)) for n in range(4)],
                    sampling=SamplingParams(max_tokens=8, temperature=1.0),
                )

    in_thread(make())
    with viewing("--state-dir", str(tmp_path / "j")) as address:
        live = visits(address.partition("?")[0])
        live.page.goto(address)
        live.shown()
        table = live.page.locator("table:has(caption:text('Evaluations'))")
        column = table.locator("th").all_inner_texts().index("metrics") + 1
        cells = {
            row.locator("a").first.inner_text(): row.locator(f"td:nth-child({column})").inner_text()
            for row in table.locator("tbody tr").all()
        }
        assert cells.keys() == set(kinds)
        assert all(cells.values())
        assert cells["accuracy"].startswith("accuracy 1 0.5101 to 1")
        assert cells["pass_at_k"].startswith("pass@1 1")
        width = "document.documentElement.scrollWidth <= window.innerWidth"
        assert live.page.evaluate(width)
        assert live.page.evaluate(
            "[...document.querySelectorAll('.scroll')].every((one) => one.scrollWidth <= one.clientWidth)"
        )
        live.page.goto("about:blank")


def test_an_evaluation_without_a_score_says_so(tmp_path: Path, visits: Callable[..., Visit]):
    """Its own page and the list of evaluations name it beside the state, in a file and live."""

    async def make() -> None:
        async with run_worker({"m": ScriptedModel(answer=lambda prompt: "4")}, state_dir=tmp_path / "j") as worker:
            for one, target in (("none", ""), ("some", "4")):
                await worker.bridge.evaluation.evaluate(
                    evaluation_id=one,
                    model="embedded:m",
                    evaluators=["accuracy"],
                    dataset=[Sample(input="2 + 2?", targets=(target,) if target else ())],
                    sampling=SamplingParams(max_tokens=8),
                )
            report = await worker.bridge.evaluation.generate_report(("none", "some"), ReportFormat.HTML)
            (tmp_path / "report.html").write_text(report, "utf-8")

    in_thread(make())
    file = visits((tmp_path / "report.html").as_uri())
    file.open("evaluation/none")
    assert "completed nothing scored" in file.text
    file.open("evaluation/some")
    assert "nothing scored" not in file.text
    with viewing("--state-dir", str(tmp_path / "j")) as address:
        live = visits(address.partition("?")[0])
        live.page.goto(address)
        live.shown()
        assert live.text.count("nothing scored") == 1


def test_a_page_says_that_it_loads(server: tuple[str, str], visits: Callable[..., Visit]):
    """Until the data have arrived, and no longer."""
    address, token = server
    live = visits(address)
    shown = "getComputedStyle(document.getElementById('main'), '::before').{}"
    held: list[Callable[[], None]] = []
    live.page.route("**/api/**", lambda route: held.append(route.continue_))
    live.page.goto(f"{address}?token={token}")
    live.until(f"{shown.format('visibility')} === 'visible' && {shown.format('content')}.includes('Loading')")
    assert held
    while held:
        held.pop()()
    live.page.unroute("**/api/**")
    live.shown()
    assert "Loading" not in live.page.evaluate(shown.format("content"))
