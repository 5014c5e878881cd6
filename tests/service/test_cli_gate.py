"""`crucible-worker gate`: exit codes, files, and what is refused; and what `compare` says of ties and clusters."""

from __future__ import annotations

import contextlib
import json
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from crucible_bridge.types import EvaluatorSpec, Sample, SamplingParams
from crucible_worker.testing import ScriptedModel, run_worker
from tests.service.test_cli_results import run
from tests.tables import rows

COUNT = 60
SAMPLES = [
    Sample(id=f"s{n}", input=f"in {n:02}", targets=(f"IN {n:02}",), metadata={"text": str(n // 6)})
    for n in range(COUNT)
]


def _answering(wrong: int) -> ScriptedModel:
    """A model that answers so many questions wrongly, the first ones."""
    return ScriptedModel(answer=lambda prompt: "no" if int(prompt.split()[1]) < wrong else prompt.upper())


MODELS = {"base": _answering(6), "same": _answering(6), "doubtful": _answering(9), "worse": _answering(40)}


@pytest.fixture(params=["--state-dir", "--address"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sequence[str]]:
    """The options that name where evaluations are: a journal that no worker has open, and a worker."""
    async with contextlib.AsyncExitStack() as running:
        worker = await running.enter_async_context(run_worker(MODELS, state_dir=tmp_path / "state"))
        for step, model in enumerate(MODELS):
            await worker.bridge.evaluation.evaluate(
                evaluation_id=model,
                run_id="run",
                step=step,
                model=f"embedded:{model}",
                evaluators=[EvaluatorSpec(kind="accuracy", options={"grader": "exact_match"})],
                dataset=SAMPLES,
                sampling=SamplingParams(max_tokens=8),
            )
        if request.param == "--state-dir":
            await running.aclose()
            yield ("--state-dir", str(tmp_path / "state"))
        else:
            yield ("--address", worker.address)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A policy's file: accuracy may drop by 2 points."""
    file = tmp_path / "gate.toml"
    file.write_text('[[metrics]]\nkey = "accuracy"\nmax_drop = 0.02\n')
    return file


async def test_a_verdict_is_an_exit_code(place: Sequence[str], policy: Path, tmp_path: Path):
    """0, 1 and 2; the text, the JSON, the JUnit file and the annotations say the same."""
    for candidate, verdict, code in (("same", "PASS", 0), ("worse", "BLOCK", 1), ("doubtful", "INCONCLUSIVE", 2)):
        words = ("gate", "--baseline", "base", "--candidate", candidate, "--policy", str(policy), *place)
        text = await run(*words, "--github", "--junit", str(tmp_path / "junit.xml"))
        data = await run(*words, "--json")

        assert (text.code, data.code, text.err) == (code, code, "")
        first, second, third = text.out.splitlines()
        assert first == f"{verdict}: {candidate} against base"
        assert second.startswith(f"{verdict:<12} accuracy: ")
        assert third.startswith("::") and f" title={verdict}%3A accuracy of {candidate}::" in third  # noqa: PT018
        told = json.loads(data.out)
        assert (told["verdict"], told["metrics"][0]["key"]) == (verdict.lower(), "accuracy")
        assert told["metrics"][0]["metrics"]["max_drop"] == 0.02
        suite = ET.parse(tmp_path / "junit.xml").getroot()[0]
        assert (suite.get("failures"), suite.get("skipped")) == (str(int(code == 1)), str(int(code == 2)))


async def test_a_warning_lets_pass(place: Sequence[str], policy: Path):
    """A metric of tier warn is said, and the exit code is 0."""
    policy.write_text(policy.read_text() + 'tier = "warn"\n')
    found = await run("gate", "--baseline", "base", "--candidate", "worse", "--policy", str(policy), *place)

    assert (found.code, found.out.splitlines()[0]) == (0, "WARN: worse against base")


async def test_what_is_refused_is_no_verdict(place: Sequence[str], policy: Path, tmp_path: Path):
    """Exit code 3, whatever is wrong, with one line that names it."""
    bad, missing, other = tmp_path / "bad.toml", tmp_path / "missing.toml", tmp_path / "other.toml"
    bad.write_text(policy.read_text() + '[[metrics]]\nkey = "nll"\nmax_drop = nan\n')
    other.write_text('[[metrics]]\nkey = "acuracy"\nmax_drop = 0\n')
    junit = str(tmp_path / "no-such" / "junit.xml")
    good = ("--baseline", "base", "--candidate", "worse", "--policy", str(policy))
    for words, said in (
        (
            (*good[:4], "--policy", str(bad)),
            f"--policy {bad}: metrics[1].max_drop is nan, must be finite and at least 0",
        ),
        ((*good[:4], "--policy", str(missing)), f"--policy {missing} cannot be read: No such file or directory"),
        (
            (*good[:4], "--policy", str(other)),
            f"--policy {other}: metrics[0].key is 'acuracy', which neither evaluation",
        ),
        ((*good[:2], "--candidate", "nobody", *good[4:]), "--candidate is 'nobody': no evaluation has this id"),
        (("--baseline", "nobody", *good[2:]), "--baseline is 'nobody': no evaluation has this id"),
        ((*good, "--json", "--github"), "--json and --github exclude each other"),
        ((*good, "--junit", junit), f"--junit {junit} cannot be written: No such file or directory"),
    ):
        found = await run("gate", *words, *place)
        assert (found.code, found.out) == (3, ""), words
        assert said in found.err
        assert len(found.err.splitlines()) == 1


@rows(
    ("words", "said"),
    [
        ((), "Missing option '--baseline'"),
        (("--baseline", "a", "--candidate", "b", "--policy", "p", "--polcy", "q"), "No such option: --polcy"),
        (("--baseline", "a", "--baseline", "b"), "--baseline is given 2 times"),
        (("--baseline", "a", "--candidate", "b", "--policy", "p", "more"), "unexpected extra argument"),
    ],
)
async def test_wrong_options_are_no_verdict(words: Sequence[str], said: str):
    """Errors of usage would be 2 elsewhere, which is INCONCLUSIVE here."""
    found = await run("gate", *words)
    assert found.code == 3
    assert said in found.err
    assert (await run("gate", "--help")).code == 0


async def test_a_worker_that_cannot_be_reached_is_no_verdict(policy: Path):
    """Nor is a journal that is not there."""
    words = ("gate", "--baseline", "a", "--candidate", "b", "--policy", str(policy))
    assert (await run(*words, "--address", "127.0.0.1:1")).code == 3
    assert (await run(*words, "--state-dir", str(policy.parent / "nothing"))).code == 3


async def test_compare_names_ties_and_clusters(place: Sequence[str]):
    """The best of a metric with what is tied with it, and the clusters of a comparison, as text and as JSON."""
    words = ("compare", "base", "same", "worse", "--rank-by", "accuracy", "--cluster-by", "text", *place)
    text = await run(*words)
    data = json.loads((await run(*words, "--json")).out)
    lowest = await run("compare", "base", "worse", "--rank-by", "accuracy", "--lowest", *place)

    assert text.out.splitlines()[-1] == "best by accuracy: base; tied with it, by paired scores: same"
    assert " of 60 samples in 10 clusters" in text.out
    assert (data["best_evaluation_id"], data["tied_evaluation_ids"], data["tied_by"]) == (
        "base",
        ["same"],
        "paired_scores",
    )
    assert {"p", "holm_p", "n_clusters"} <= data["differences"][1]["metrics"].keys()
    assert lowest.out.splitlines()[-1] == "best by accuracy: worse; tied with it, by paired scores: none"


async def test_compare_names_the_option_of_what_is_wrong(place: Sequence[str]):
    """A key that no sample has, and a goal without a metric."""
    unknown = await run("compare", "base", "worse", "--cluster-by", "page", *place)
    alone = await run("compare", "base", "worse", "--lowest", *place)

    assert (unknown.code, alone.code) == (2, 2)
    assert unknown.err.startswith(
        "crucible-worker: --cluster-by is 'page', which no sample has; keys of their metadata:"
    )
    assert alone.err == "crucible-worker: --lowest goes with --rank-by\n"
