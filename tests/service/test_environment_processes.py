"""Processes of users' environments: what one does harms its own group alone, and nothing of it is left."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    EvaluateRequest,
    Evaluation,
    EvaluationState,
    EvaluatorSpec,
    Limits,
    Sample,
    SamplingParams,
    Verdict,
)
from crucible_worker.evaluators.environments import group, processes, wire
from crucible_worker.evaluators.environments.entry_points import GROUP
from crucible_worker.evaluators.environments.group import FailurePolicy, Strategy
from crucible_worker.evaluators.environments.processes import EnvironmentProcesses
from crucible_worker.evaluators.environments.records import outcome_of
from crucible_worker.evaluators.environments.threaded_loop import guarded_call
from tests.distributions import install, lay_out
from tests.processes import children_of, is_alive
from tests.robustness.harness import count_lines, until, workshop
from tests.robustness.starved import Starved
from tests.service.evaluation_kit import Rig, asked, rig, samples_of
from tests.unit.evaluators.environments.playing import asker

SAMPLING = SamplingParams(max_tokens=8, temperature=1.0)
SOURCE = (Path(__file__).parents[1] / "cases" / "acting.py").read_text()

GONE_SECONDS = 10.0
"""For the kernel to take killed processes away, on a machine that has other things to do; a bound, no expectation."""
DEADLINE_REPLY_SECONDS = 0.1
"""The contract's: from the deadline to the reply."""
DEADLINES_MS = (6_000, 15_000, 60_000)
"""The shortest that 32 processes start within counts, and the next where the disk has other things to do."""
JUST_BEFORE_SECONDS = 0.2
"""When time without a processor begins to be counted: it is no delay of ours that 32 processes want the only one."""

Act = Callable[..., EvaluatorSpec]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where environments leave a file for each step: what they do, and in which process."""
    path = tmp_path / "acted"
    path.mkdir()
    return path


@pytest.fixture
def act(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Act:
    """Installs the environment, which gives up cleaning up after a moment."""
    installed = tmp_path / "installed"
    lay_out(installed, "users_acting", SOURCE, GROUP, {"acting": "users_acting:ACTING"})
    install(monkeypatch, installed)
    monkeypatch.setattr(processes, "CLEANUP_SECONDS", 0.1)
    monkeypatch.setattr(processes, "SETTLE_SECONDS", 0.1)

    def specify(**options: Any) -> EvaluatorSpec:
        return EvaluatorSpec(
            kind="rl_test_set",
            options={"environment": "acting", "environment_options": {"folder": str(folder)}, **options},
        )

    return specify


def _does(*what: str) -> list[Sample]:
    return [Sample(id=f"{index} {each}", input=each, targets=("Q",)) for index, each in enumerate(what)]


def _pids(folder: Path, what: str) -> set[int]:
    return {int(path.name.rpartition(" ")[2]) for path in folder.glob(f"{what} *")}


def _children(parent: int) -> set[int]:
    """Processes of environments that one has started itself."""
    return set(children_of(parent, b"environments.host"))


def _sockets() -> set[str]:
    """Those that this process has open, by the kernel's names."""
    found = set()
    for entry in os.scandir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(entry.path))
    return {name for name in found if name.startswith("socket:")}


def _order(what: str, options: dict[str, Any]) -> processes.GroupOrder:
    return processes.GroupOrder(
        sample=Sample(id="s", input=what),
        options=options,
        size=3,
        tolerance=FailurePolicy(strategy=Strategy.RETRY, max_retries=2, min_successful=None),
        seed=7,
        max_turns=4,
        intermediates=True,
    )


async def _until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def _gone(pids: set[int]) -> None:
    async with asyncio.timeout(GONE_SECONDS):
        while any(map(is_alive, pids)):
            await asyncio.sleep(0.01)


async def test_thirty_two_that_spin_delay_nobody(act: Act, folder: Path) -> None:
    """Neither a deadline nor another evaluation, nor what the worker says of its health; and none of them is left."""

    async def late(r: Rig, number: int, deadline_ms: int) -> float | None:
        """Seconds that the reply came after its deadline; None if that was over too early to tell."""
        for path in folder.iterdir():
            path.unlink()
        start = time.monotonic()
        spinning = asyncio.create_task(
            r.evaluation.evaluate(
                asked(
                    evaluation_id=f"spin {number}",
                    evaluators=[act()],
                    dataset=_does(*["spin"] * 32),
                    sampling=SAMPLING,
                    limits=Limits(deadline_ms=deadline_ms, concurrency=32),
                )
            )
        )
        while len(_pids(folder, "spin")) < 32:
            if spinning.done():  # a busy machine starts them more slowly
                return None
            await asyncio.sleep(0.01)
        other = await r.evaluation.evaluate(asked(evaluation_id=f"other {number}"))
        assert other.state is EvaluationState.COMPLETED
        assert await r.worker.bridge.worker.health()
        if spinning.done():  # they had just been started
            return None
        await asyncio.wait([spinning], timeout=deadline_ms / 1000 - JUST_BEFORE_SECONDS - (time.monotonic() - start))
        starved = Starved()
        found = await spinning
        seconds = time.monotonic() - start - deadline_ms / 1000 - starved.seconds()
        assert (found.state, found.done) == (EvaluationState.CANCELLED, 0)
        await _gone(_pids(folder, "spin"))
        return seconds

    async with rig() as r:
        measured: list[float] = []
        for number, deadline_ms in enumerate(DEADLINES_MS):
            seconds = await late(r, number, deadline_ms)
            measured += [] if seconds is None else [seconds]
            if measured and min(measured) < DEADLINE_REPLY_SECONDS:
                break
        assert measured, "no deadline was long enough to start 32 processes within"
        assert min(measured) < DEADLINE_REPLY_SECONDS
    await _until(lambda: not _children(os.getpid()))


async def test_one_that_spins_ends_with_its_time(act: Act, folder: Path) -> None:
    """The others of its evaluation stand, and its process is killed while they go on."""
    limits = Limits(sample_timeout_ms=5_000, concurrency=4)
    dataset = _does("spin", "sleep", *["end"] * 4)
    async with rig() as r:
        await r.evaluation.evaluate(asked(evaluators=[act()], dataset=dataset, sampling=SAMPLING, limits=limits))
        spun, slept, *others = await samples_of(r.worker.bridge)
        await _gone(_pids(folder, "spin") | _pids(folder, "sleep"))

    assert [each.problem and each.problem.reason for each in (spun, slept)] == ["SAMPLE_TIMEOUT"] * 2
    assert [each.verdict for each in others] == [Verdict.MEASURED] * 4


@pytest.mark.parametrize(
    ("what", "told"), [("exit", "ended (exit status 3)"), ("kill", "ended (signal 9)"), ("leave", "exit status 3")]
)
async def test_the_end_of_a_process_is_a_failure_of_its_rollouts(act: Act, folder: Path, what: str, told: str) -> None:
    """Of its group alone: with the reason, counted by rollout and try, and another process serves the next ones."""
    async with rig() as r:
        found = await r.evaluation.evaluate(
            asked(
                evaluators=[act(group_size=2, max_retries=4)],
                dataset=_does(what, "end", "end"),
                sampling=SAMPLING,
                limits=Limits(concurrency=1, max_unscored_share=1.0),
            )
        )
        broken, *others = await samples_of(r.worker.bridge)

    assert broken.problem is not None
    assert (broken.problem.reason, broken.problem.retryable) == (Reason.ENVIRONMENT_ENDED, True)
    assert broken.problem.message.startswith(
        "0 of 2 rollouts succeeded; rollout 0 failed: the process of its environments "
    )
    assert told in broken.problem.message
    assert found.metrics.values["rollout_errors/ENVIRONMENT_ENDED"] == 2 * 3
    assert len(_pids(folder, what)) == 3
    assert [each.verdict for each in others] == [Verdict.MEASURED] * 2
    if what == "leave":
        await _gone({int((folder / "left").read_text())})


@pytest.mark.parametrize(
    ("options", "stands"),
    [
        ({"strategy": "retry", "max_retries": 2}, True),
        ({"strategy": "retry", "max_retries": 1}, False),
        ({"strategy": "fail_fast"}, False),
        ({"strategy": "min_viable_group", "min_successful": 1, "max_retries": 1}, True),
        ({"strategy": "min_viable_group", "min_successful": 2, "max_retries": 1}, False),
    ],
)
async def test_strategies_bear_the_end_of_a_process(act: Act, options: dict[str, Any], stands: bool) -> None:
    """As any other failure: all rollouts of the group have failed, and as many are made again as the strategy says."""
    async with rig() as r:
        found = await r.evaluation.evaluate(
            asked(evaluators=[act(group_size=2, **options)], dataset=_does("exit once"), sampling=SAMPLING)
        )
        (sample,) = await samples_of(r.worker.bridge)

    assert (sample.group is not None) is stands
    if options["strategy"] == "fail_fast":
        (result,) = found.results
        assert result.problem is not None
        assert result.problem.reason == "ROLLOUT_FAILED"
        assert "ended (exit status 3)" in result.problem.message
    else:
        assert found.metrics.values["rollout_errors/ENVIRONMENT_ENDED"] == 2


async def test_one_that_ends_its_process_behind_its_rollouts_fails_its_group(act: Act) -> None:
    """Once, as what else goes wrong there: the rollouts had come to their end."""
    async with rig() as r:
        found = await r.evaluation.evaluate(
            asked(evaluators=[act(group_size=2)], dataset=_does("exit late"), sampling=SAMPLING)
        )

    assert found.metrics.values["rollout_errors/ENVIRONMENT_ENDED"] == 1


async def test_the_fork_server_that_is_killed_is_replaced(act: Act, folder: Path) -> None:
    """What it has started dies with it, and is a failure of those rollouts; later groups have another one."""
    async with rig() as r:
        running = asyncio.create_task(
            r.evaluation.evaluate(
                asked(
                    evaluators=[act(max_retries=0)],
                    dataset=_does("wait", "end", "end"),
                    sampling=SAMPLING,
                    limits=Limits(concurrency=1),
                )
            )
        )
        await _until(lambda: _pids(folder, "wait"))
        (server,) = _children(os.getpid())
        os.kill(server, signal.SIGKILL)
        await running
        waited, *others = await samples_of(r.worker.bridge)
        await _gone(_pids(folder, "wait"))

    assert waited.problem is not None
    assert (waited.problem.reason, "signal 9" in waited.problem.message) == (Reason.ENVIRONMENT_ENDED, True)
    assert [each.verdict for each in others] == [Verdict.MEASURED] * 2


async def test_a_fork_server_that_has_ended_holds_up_no_end(act: Act, folder: Path) -> None:
    """Of an evaluation that needs no other one."""
    async with rig() as r:
        running = asyncio.create_task(
            r.evaluation.evaluate(asked(evaluators=[act(max_retries=0)], dataset=_does("wait"), sampling=SAMPLING))
        )
        await _until(lambda: _pids(folder, "wait"))
        (server,) = _children(os.getpid())
        os.kill(server, signal.SIGKILL)
        async with asyncio.timeout(GONE_SECONDS):
            found = await running

    assert (found.state, found.done) == (EvaluationState.COMPLETED, 1)


async def test_processes_that_cannot_be_ended_hold_up_no_end(act: Act, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of their evaluation: what it held is another one's."""
    close = EnvironmentProcesses.close

    def closed_badly(processes: EnvironmentProcesses) -> None:
        close(processes)
        raise RuntimeError("they could not be ended")

    monkeypatch.setattr(EnvironmentProcesses, "close", closed_badly)
    async with rig() as r, asyncio.timeout(60):
        found = await r.evaluation.evaluate(asked(evaluators=[act()], dataset=_does("end"), sampling=SAMPLING))

    assert found.state is EvaluationState.COMPLETED


@pytest.mark.parametrize(
    ("language", "what", "reason"),
    [("children", "exit", Reason.ENVIRONMENT_ENDED), ("full", "end", "ENVIRONMENT_NOT_STARTED")],
)
async def test_what_happens_to_one_group_is_nothing_to_the_others(
    act: Act, monkeypatch: pytest.MonkeyPatch, language: str, what: str, reason: str
) -> None:
    """Where a package asks to hear of no child that ends, and where no further process can be started."""
    monkeypatch.setenv("LANG", language)
    async with rig() as r:
        await r.evaluation.evaluate(
            asked(
                evaluators=[act(max_retries=0)],
                dataset=_does("end", what),
                sampling=SAMPLING,
                limits=Limits(concurrency=2),
            )
        )
        first, second = await samples_of(r.worker.bridge)

    assert first.verdict is Verdict.MEASURED
    assert second.problem is not None
    assert second.problem.reason == reason
    assert "signal" not in second.problem.message


async def test_what_an_import_has_started_ends_with_the_evaluation(act: Act, monkeypatch: pytest.MonkeyPatch) -> None:
    """As what groups start does."""
    monkeypatch.setenv("LANG", "child")
    async with rig() as r:
        found = await r.evaluation.evaluate(asked(evaluators=[act()], dataset=_does("end"), sampling=SAMPLING))
        await _gone({int(found.metrics.values["env/all/child"])})


async def test_what_cannot_be_loaded_is_tried_once(act: Act, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one attempt, however many samples want it: an import may take long to fail."""
    tried, start = [], processes.start

    def counted(what: str, *arguments: Any) -> Any:
        if what == "keep":
            tried.append(arguments)
        return start(what, *arguments)

    monkeypatch.setattr(processes, "start", counted)
    monkeypatch.setenv("LANG", "broken")
    async with rig() as r:
        await r.evaluation.evaluate(asked(evaluators=[act()], dataset=_does(*["end"] * 3), sampling=SAMPLING))
        samples = await samples_of(r.worker.bridge)

    assert [each.problem and each.problem.reason for each in samples] == ["BAD_ENVIRONMENT"] * 3
    assert len(tried) == 1


async def test_what_does_not_end_loading_is_no_other_failure(act: Act, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each of its samples: that its process was killed for that is not what they are told."""
    monkeypatch.setenv("LANG", "slow")
    monkeypatch.setattr(processes, "LOAD_SECONDS", 0.5)
    async with rig() as r:
        await r.evaluation.evaluate(asked(evaluators=[act()], dataset=_does("end", "end"), sampling=SAMPLING))
        samples = await samples_of(r.worker.bridge)

    for each in samples:
        assert each.problem is not None
        assert "did not load within" in each.problem.message


async def test_what_did_not_load_gives_its_socket_back_when_it_is_closed(
    act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its process has been seen to end, which a loop that ends does not wait for."""
    monkeypatch.setenv("LANG", "slow")
    monkeypatch.setattr(processes, "LOAD_SECONDS", 0.05)
    before = _sockets()
    kept = EnvironmentProcesses(act().options["environment"])
    with pytest.raises(FailedPrecondition, match="did not load within"):
        await kept.make(_order("end", {}), asker())
    held = _sockets() - before
    kept.close()

    assert (len(held), held & _sockets()) == (1, set())


async def test_a_cancelled_evaluation_leaves_no_process(act: Act, folder: Path) -> None:
    """Neither of those that wait nor of those that spin."""
    async with rig() as r:
        await r.evaluation.start_evaluation(
            asked(evaluators=[act()], dataset=_does("wait", "spin", "sleep"), sampling=SAMPLING)
        )
        await _until(lambda: all(_pids(folder, what) for what in ("wait", "spin", "sleep")))
        pids = _pids(folder, "*") | _children(os.getpid())
        await r.evaluation.cancel_evaluation("e", "enough")
        await _gone(pids)


async def test_they_die_with_the_worker(act: Act, folder: Path, tmp_path: Path) -> None:
    """By a SIGKILL of it, too, which closes nothing in order; so does what they have started."""
    async with workshop(tmp_path, {"m": {}}) as shop:
        worker = await shop.start()
        await worker.bridge.evaluation.start_evaluation(
            asked(evaluators=[act(group_size=1)], dataset=_does("wait", "spin", "start"), sampling=SAMPLING)
        )
        await _until(lambda: all(_pids(folder, what) for what in ("wait", "spin")))
        await _until(lambda: (folder / "left").exists() and (folder / "left").read_text())
        servers = _children(worker.pid)
        assert len(servers) == 1
        worker.kill()
        await _gone(_pids(folder, "*") | servers | {int((folder / "left").read_text())})


async def test_the_next_worker_goes_on(act: Act, tmp_path: Path) -> None:
    """After a SIGKILL: groups that were whole stand, the others are played again, as an undisturbed run finds it."""

    def ask(evaluation_id: str) -> EvaluateRequest:
        return asked(
            evaluation_id=evaluation_id,
            evaluators=[act(group_size=2)],
            dataset=_does(*["plain"] * 12),
            sampling=SAMPLING,
            limits=Limits(concurrency=2),
        )

    def but_for_processes(found: Evaluation) -> dict[str, float]:
        return {key: value for key, value in found.metrics.values.items() if "pid" not in key}

    calls = tmp_path / "calls"
    async with workshop(tmp_path, {"m": {"latency": 0.1, "call_file": str(calls)}}) as shop:
        worker = await shop.start()
        whole = await worker.bridge.evaluation.evaluate(ask("whole"))
        await worker.bridge.evaluation.start_evaluation(ask("killed"))
        await until(lambda: count_lines(calls) >= 24 + 10)
        worker.kill()
        following = await shop.start()
        again = await following.bridge.evaluation.evaluate(ask("killed"))
        asked_in_all = count_lines(calls)

    assert again.attempt == 2
    assert but_for_processes(again) == but_for_processes(whole)
    assert but_for_processes(whole)["env/all/total_episodes"] == 24
    assert asked_in_all < 24 + 10 + 24


async def test_what_is_printed_goes_nowhere(act: Act, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither between the messages nor into the worker's own output."""
    async with rig() as r:
        found = await r.evaluation.evaluate(asked(evaluators=[act()], dataset=_does("print"), sampling=SAMPLING))

    printed = capfd.readouterr()
    assert found.metrics.values["env/all/total_episodes"] == 1
    assert "xxxxx" not in printed.out + printed.err
    assert "yyyyy" not in printed.err
    assert "zzzzz" not in printed.out


async def test_secrets_of_the_worker_stay_with_it(act: Act, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its variables an environment gets those that are none, and those that the operator names."""
    for name in ("TINKER_API_KEY", "HF_TOKEN", "CRUCIBLE_TOKEN_FILE", "HTTPS_PROXY", "ANYTHING"):
        monkeypatch.setenv(name, "canary-5d1e")
    async with rig() as r:
        found = await r.evaluation.evaluate(asked(evaluators=[act()], dataset=_does("variables"), sampling=SAMPLING))

    async with rig(environment_variables=["ANYTHING", "UNSET"]) as r:
        named = await r.evaluation.evaluate(asked(evaluators=[act()], dataset=_does("variables"), sampling=SAMPLING))

    assert found.metrics.values["env/all/secrets"] == 0
    assert named.metrics.values["env/all/secrets"] == 1


async def test_a_group_lives_in_one_process(act: Act) -> None:
    """Its environments share what they hold, and wait for each other."""
    async with rig() as r:
        await r.evaluation.evaluate(
            asked(evaluators=[act(group_size=3)], dataset=_does("together", "together"), sampling=SAMPLING)
        )
        groups = [each.group for each in await samples_of(r.worker.bridge)]

    for each in groups:
        assert each is not None
        assert sorted(trajectory.final_reward for trajectory in each.trajectories) == [0.0, 1.0, 2.0]
        assert len({trajectory.transitions[0].metrics["pid"] for trajectory in each.trajectories}) == 1


@pytest.mark.parametrize(("language", "here"), [("C", 0.0), ("threads", 1.0)])
async def test_one_that_has_threads_is_not_forked(
    act: Act, monkeypatch: pytest.MonkeyPatch, language: str, here: float
) -> None:
    """Each process loads it then; without threads it is loaded once. A process that is free takes the next group."""
    monkeypatch.setenv("LANG", language)
    async with rig() as r:
        found = await r.evaluation.evaluate(
            asked(evaluators=[act()], dataset=_does("end", "end"), sampling=SAMPLING, limits=Limits(concurrency=1))
        )
        samples = await samples_of(r.worker.bridge)

    assert found.metrics.values["env/all/loaded_here"] == here
    assert len({each.group.trajectories[0].transitions[0].metrics["pid"] for each in samples if each.group}) == 1


@pytest.mark.parametrize(
    ("what", "reason", "told"),
    [
        (
            "odd",
            "BAD_ENVIRONMENT",
            "observed a Conversation that cannot be sent to a model: TypeError: a int where text should be",
        ),
        ("map", "BAD_ENVIRONMENT", "observed a Conversation that cannot be sent to a model: AttributeError"),
        ("stop", "BAD_ENVIRONMENT", "cannot be sent to a model: OverflowError"),
        ("object", "BAD_ENVIRONMENT", "observed a object, which is neither text nor tokens"),
        ("raise", "LookupError", "LookupError: no luck"),
    ],
)
async def test_what_cannot_be_asked_is_refused(act: Act, what: str, reason: str, told: str) -> None:
    """With a sentence; what is raised arrives with its type and message."""
    async with rig() as r:
        await r.evaluation.evaluate(asked(evaluators=[act()], dataset=_does(what), sampling=SAMPLING))
        (sample,) = await samples_of(r.worker.bridge)

    assert sample.problem is not None
    assert sample.problem.reason == reason
    assert told in sample.problem.message


@pytest.mark.parametrize("what", ["end", "together", "raise"])
async def test_nothing_is_different_from_what_it_would_be_here(act: Act, folder: Path, what: str) -> None:
    """Rewards, metrics, tokens and log-probabilities, to the last bit, and what failed."""
    options = act().options["environment_options"]
    order = _order(what, options)
    here: dict[str, Any] = {"__name__": "acting"}
    exec(compile(SOURCE, "acting.py", "exec"), here)
    expected = await group.run(
        lambda: here["ACTING"].group(order.sample, options, order.size),
        lambda function, *arguments, **named: guarded_call(function, arguments, named),
        asker(),
        order.tolerance,
        seed=order.seed,
        max_turns=order.max_turns,
    )

    processes = EnvironmentProcesses("acting")
    try:
        found = await processes.make(order, asker())
    finally:
        processes.close()

    assert found.fallen is (expected.failure is not None)
    told, wanted = (wire.outcome_to_map(each) for each in (found.outcome, outcome_of(expected, intermediates=True)))
    for each in (told, wanted):
        for trajectory in (each["group"] or {"trajectories": []})["trajectories"]:
            for turn in trajectory["transitions"]:
                assert turn["metrics"].pop("pid")
                turn["metrics"].pop("loaded_here")
    assert told == wanted


async def test_loading_is_no_part_of_a_samples_time(act: Act, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the package takes to be imported."""
    monkeypatch.setenv("LANG", "slow")
    limits = Limits(sample_timeout_ms=2_500)
    async with rig() as r:
        await r.evaluation.evaluate(asked(evaluators=[act()], dataset=_does("end"), sampling=SAMPLING, limits=limits))
        (sample,) = await samples_of(r.worker.bridge)

    assert sample.problem is None


async def test_a_process_that_ends_between_groups_fails_none(act: Act, folder: Path) -> None:
    """The next group finds another one."""
    processes = EnvironmentProcesses("acting")
    environment_options = act().options["environment_options"]
    try:
        await processes.make(_order("end later", environment_options), asker())
        await _gone(_pids(folder, "end later"))
        found = await processes.make(_order("end", environment_options), asker())
    finally:
        processes.close()

    assert found.outcome.verdict is Verdict.MEASURED
    assert not found.outcome.measurements


async def test_a_process_that_cannot_be_started_is_told_of(act: Act, monkeypatch: pytest.MonkeyPatch) -> None:
    """As something that may go better another time."""
    async with rig() as r:
        spec = act()
        await r.evaluation.evaluate(asked(evaluation_id="before", evaluators=[spec], dataset=_does("end")))
        monkeypatch.setattr(sys, "executable", "/no/python")
        monkeypatch.setattr("crucible_worker.evaluators.registry.load_installed", lambda wanted, parts: None)
        await r.evaluation.evaluate(asked(evaluators=[spec], dataset=_does("end"), sampling=SAMPLING))
        (sample,) = await samples_of(r.worker.bridge)

    assert sample.problem is not None
    assert (sample.problem.reason, sample.problem.retryable) == ("ENVIRONMENT_NOT_STARTED", True)
    assert sys.executable not in sample.problem.message
