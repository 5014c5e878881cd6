"""Workers of one PostgreSQL journal, as users start them: each has a state directory of its own."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys

import pytest

import crucible_bridge
from crucible_bridge.types import EvaluationState, EvaluatorSpec, Limits, SamplingParams
from crucible_worker.reports.samples import searched_text

WORKER = (sys.executable, "-m", "crucible_worker")
SERVICE = "crucible_bridge.v1.EvaluationService"
pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("postgres_server")]
LONG = 120.0


class Serving:
    """A `crucible-worker serve` with a client of it."""

    def __init__(self, url, folder):
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self._ready = folder / "ready"
        self._ready.unlink(missing_ok=True)
        self._log = (folder / "log").open("ab")
        self.process = subprocess.Popen(
            [*WORKER, "serve", "--port=0", f"--ready-file={self._ready}", f"--state-dir={folder}", f"--journal={url}"],
            stdout=self._log,
            stderr=self._log,
        )

    async def connected(self, clients):
        """Wait until it serves; a client of it, closed with `clients`."""
        await until(self._ready.exists, self.process)
        self.address = self._ready.read_text()
        self.bridge = await clients.enter_async_context(crucible_bridge.connect(self.address))
        return self

    def kill(self):
        """SIGKILL."""
        self.process.kill()
        self.process.wait()
        self._log.close()


async def until(check, process=None):
    """Wait until a check holds, and the process lives."""
    async with asyncio.timeout(LONG):
        while not check():
            assert process is None or process.poll() is None, "the worker has ended"
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def serving(url, folder, count):
    """So many workers of one journal."""
    async with contextlib.AsyncExitStack() as clients:
        workers = []
        for index in range(count):
            workers.append(Serving(url, folder / f"worker-{index}"))
            clients.callback(workers[-1].kill)
        for worker in workers:
            await worker.connected(clients)
        yield workers


def start(bridge, evaluation_id):
    """Start an evaluation of arithmetic by the embedded model, or go on with it."""
    return bridge.evaluation.start_evaluation(
        model="embedded:arithmetic@600",
        dataset="builtin:arithmetic",
        evaluators=EvaluatorSpec(kind="accuracy", options={"grader": "numeric"}),
        sampling=SamplingParams(max_tokens=8),
        evaluation_id=evaluation_id,
        limits=Limits(concurrency=4),
    )


async def test_workers_with_folders_of_their_own_are_one_pool(postgres_server, tmp_path):
    """What one worker starts the other reads, watches and ends; the events of both are one log without a gap."""
    async with serving(postgres_server.new_database(), tmp_path, 2) as (one, two):
        await start(one.bridge, "e")
        watched = [event async for event in two.bridge.evaluation.watch_evaluation("e")]
        assert [event.sequence for event in watched] == sorted({event.sequence for event in watched})
        found = await two.bridge.evaluation.get_evaluation("e")
        assert (found.state, found.done) == (EvaluationState.COMPLETED, found.total)
        again = await start(two.bridge, "e")
        assert again.existed
        first, second = [await worker.bridge.worker.get_info() for worker in (one, two)]
        assert first.log_id == second.log_id


async def test_commands_read_the_journal_that_the_environment_names(postgres_server, tmp_path):
    """CRUCIBLE_JOURNAL stands for --journal; --state-dir means the journal in that folder."""
    url = postgres_server.new_database()
    environment = {**os.environ, "CRUCIBLE_JOURNAL": url, "XDG_STATE_HOME": str(tmp_path / "home")}

    async def run(*arguments):
        return await asyncio.to_thread(
            subprocess.run,
            [*WORKER, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=LONG,
        )

    evaluated = await run(
        "evaluate", "--model=embedded:arithmetic@600", "--data=builtin:arithmetic", "--evaluator=nll", "--id=e"
    )
    assert evaluated.returncode == 0, evaluated.stderr
    listed = await run("list", "--json")
    assert [one["evaluation_id"] for one in json.loads(listed.stdout)] == ["e"]
    elsewhere = await run("list", f"--state-dir={tmp_path / 'elsewhere'}")
    assert (elsewhere.returncode, "no journal" in elsewhere.stderr) == (2, True)
    checked = await run("doctor", "--json")
    journal = next(check for check in json.loads(checked.stdout)["checks"] if check["name"] == "journal")
    assert (journal["ok"], "evaluations: 1" in journal["detail"]) == (True, True)


async def test_a_database_that_cannot_be_reached_is_one_line(tmp_path):
    """A worker does not start, and says why without the password."""
    url = f"postgresql://me:secret@/lab?host={tmp_path}"
    ended = await asyncio.to_thread(
        subprocess.run,
        [*WORKER, "serve", "--port=0", f"--state-dir={tmp_path / 'state'}", f"--journal={url}"],
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    said = ended.stdout + ended.stderr
    assert ended.returncode != 0
    assert "--journal postgresql://me@/lab" in said
    assert "secret" not in said
    assert "Traceback" not in said


async def test_samples_are_found_as_in_a_file(postgres_server, tmp_path):
    """By text, with all conditions, in order; as a reader of all of them finds them."""
    async with serving(postgres_server.new_database(), tmp_path, 1) as (worker,):
        await start(worker.bridge, "e")
        assert [event async for event in worker.bridge.evaluation.watch_evaluation("e")]
        every = [one async for one in worker.bridge.evaluation.all_samples("e")]
        found = await worker.bridge.evaluation.find_samples("e", search="7", descending=True, limit=1000)
        wanted = [n for n, one in enumerate(every) if "7" in searched_text(one)]
        assert [row.n for row in found.rows] == wanted[::-1]
        assert (found.searched, found.total) == (len(every), len(every))
        page = await worker.bridge.evaluation.get_samples("e", page_size=1, page_token=found.rows[0].page_token)
        assert page.items[0] == every[wanted[-1]]
