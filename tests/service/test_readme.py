"""The Python snippets of README and docs do what is said of them."""

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest

from crucible_worker.backends.openai.servers import OpenAIServer
from crucible_worker.config import Settings
from crucible_worker.server import Worker
from tests import needs
from tests.service.openai_kit import Reply, Request, ScriptedServer, answer, shout
from tests.tables import rows

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.docs


PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def snippets_of(page: Path) -> list[str]:
    """The Python of a page; a fence within a line of it is a part of it."""
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


@rows("page", PAGES, ids=lambda page: page.name)
def test_every_python_snippet_is_a_whole_module(page: Path):
    """It can be copied into a file: no fragment that awaits outside of a function, no line left out."""
    for snippet in snippets_of(page):
        compile(snippet, str(page), "exec")


async def run_snippet(about: str, address: str, folder: Path) -> list[str]:
    """Run the one that has this word, with another address; what it prints."""
    (snippet,) = [snippet for page in PAGES for snippet in snippets_of(page) if about in snippet]
    script = folder / "snippet.py"
    script.write_text(snippet.replace("127.0.0.1:50051", address))
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return output.decode().splitlines()


async def test_the_python_snippet_runs_as_it_stands(tmp_path):
    """Copied into a file, with the worker's address alone changed, it prints the metrics; none is undefined."""
    async with Worker(Settings(port=0, state_dir=tmp_path / "state").validate()) as worker:
        (line,) = await run_snippet("run-7-step-400", worker.address, tmp_path)

    assert "'accuracy': 0.7" in line
    assert line.endswith(" {}")


async def test_the_loop_of_the_plan_runs_as_it_stands(tmp_path):
    """It starts what is due at each of its steps, and waits for none of it."""
    async with Worker(Settings(port=0, state_dir=tmp_path / "state").validate()) as worker:
        lines = await run_snippet("register_plan", worker.address, tmp_path)

    assert lines == [
        "180 ['run-8-step-180-0']",
        "200 []",
        "240 ['run-8-step-240-0']",
        "320 ['run-8-step-320-1']",
        "600 ['run-8-step-600-0']",
    ]


async def test_two_checkpoints_are_compared_as_it_stands(tmp_path):
    """The later one adds better, and is the best; the interval holds the difference."""
    async with Worker(Settings(port=0, state_dir=tmp_path / "state").validate()) as worker:
        lines = await run_snippet("compare_evaluations", worker.address, tmp_path)

    difference, low, high = (float(number) for number in re.findall(r"[+-][\d.]+", lines[0]))
    assert 0 < low < difference < high
    assert re.fullmatch(r"[1-9]\d* improved, \d+ regressed; best: \S+", lines[1])


async def test_a_model_that_stays_with_its_caller_runs_as_it_stands(tmp_path):
    """The object of the snippet is asked over the stream, and adds without a mistake."""
    async with Worker(Settings(port=0, state_dir=tmp_path / "state").validate()) as worker:
        lines = await run_snippet("class Adder:", worker.address, tmp_path)

    assert lines == ["1.0"]


@rows("about", ["async def adds", "class Sums:"])
async def test_graders_and_environments_that_stay_with_their_caller_run_as_they_stand(tmp_path, about):
    """The worker's checkpoint adds well, by a grader of the snippet as by an environment."""
    async with Worker(Settings(port=0, state_dir=tmp_path / "state").validate()) as worker:
        lines = await run_snippet(about, worker.address, tmp_path)

    (share,) = lines
    assert 0.6 < float(share) <= 1


async def test_rollouts_become_arrays_as_it_stands(tmp_path):
    """Eight answers to each prompt, in rows; where a prompt's rewards differ there is something to learn."""
    async with Worker(Settings(port=0, state_dir=tmp_path / "state").validate()) as worker:
        lines = await run_snippet("pad_rollouts", worker.address, tmp_path)

    reward = re.fullmatch(r"prompts: 32 mean reward: (0\.\d+)", lines[0])
    sizes = re.fullmatch(r"tokens: \(256, \d+\) to learn from: (\d+)", lines[1])
    assert reward is not None
    assert sizes is not None
    assert 0 < float(reward[1]) < 1
    assert int(sizes[1]) > 0


async def test_a_rubric_is_judged_as_it_stands(tmp_path):
    """Its weights count: 8 of 10 twice, and 2 of 5 once."""

    def judge(request: Request) -> Reply:
        if request.method != "POST":
            return shout(request)
        said = {"correct": {"reason": "r", "score": 8}, "clear": {"reason": "r", "score": 2}}
        return answer(request, json.dumps(said))

    async with ScriptedServer(judge).serving() as server:
        servers = (OpenAIServer(name="judge", base_url=server.url),)
        settings = Settings(port=0, state_dir=tmp_path / "state", endpoints=servers).validate()
        async with Worker(settings) as worker:
            lines = await run_snippet("grade_rubric", worker.address, tmp_path)

    score, criteria = lines[0].split(" ", 1)
    assert float(score) == pytest.approx((2 * 0.8 + 0.4) / 3)
    assert criteria.startswith("[('correct', 8.0), ('clear', 2.0)] ")


async def test_results_become_a_frame_as_it_stands(tmp_path):
    """The metric falls with the steps, and each value says of how many scores it is."""
    pytest.importorskip("pandas", reason=needs.MISSING["pandas"])
    async with Worker(Settings(port=0, state_dir=tmp_path / "state").validate()) as worker:
        lines = await run_snippet("frames.metrics", worker.address, tmp_path)

    values = [line.split() for line in lines[2:]]
    assert [(step, scored) for step, _, scored in values] == [("320", values[0][2]), ("600", values[0][2])]
    assert float(values[0][1]) > float(values[1][1]) > 0
