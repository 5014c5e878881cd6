"""The Python client of a pool: calls take turns, and a lost worker ends neither evaluations nor streams."""

import asyncio
import collections
import contextlib
import signal
import socket
from typing import Any

import pytest

import crucible_bridge
from crucible_bridge.errors import InvalidField, Unavailable
from crucible_bridge.events import EventKind
from crucible_bridge.types import EvaluationState
from tests.service.dns_kit import names_at
from tests.service.pool_kit import LONG, PoolWorker, held_evaluation, held_model, ids_of, owner_of, pool


def addresses(workers):
    """Where workers listen."""
    return [worker.address for worker in workers]


async def counted(bridge, calls):
    """How many of so many calls each worker answered."""
    return collections.Counter([(await bridge.worker.get_info()).worker_id for _ in range(calls)])


async def all_connected(bridge, wanted):
    """Wait until calls reach every one of these workers."""
    async with asyncio.timeout(LONG):
        while set(await counted(bridge, 2 * len(wanted))) != set(wanted):
            await asyncio.sleep(0.05)


async def test_calls_take_turns_over_the_workers(tmp_path):
    """Each of three workers answers a third of the calls; after one is killed, each of two answers half."""
    async with pool(tmp_path, 3) as workers, crucible_bridge.connect(addresses(workers)) as bridge:
        by_id = await ids_of(workers)
        await bridge.wait_for_worker(LONG)
        await all_connected(bridge, by_id)

        assert set((await counted(bridge, 30)).values()) == {10}
        workers[0].kill()
        lost = next(name for name, worker in by_id.items() if worker is workers[0])
        left = set(by_id) - {lost}
        # No call fails: those that were on their way to the lost worker are repeated at another one.
        await all_connected(bridge, left)
        assert set((await counted(bridge, 30)).items()) == {(name, 15) for name in left}


async def test_no_call_fails_that_may_be_repeated(tmp_path):
    """Callers that read and callers that grade, without a pause: a worker is killed under them, and none sees it."""
    async with pool(tmp_path, 3) as workers, crucible_bridge.connect(addresses(workers)) as bridge:
        await all_connected(bridge, await ids_of(workers))
        killed, answered = asyncio.Event(), 0

        async def call(kind):
            nonlocal answered
            after = 0
            while after < 50:
                if kind == "reads":
                    await bridge.evaluation.list_evaluations()
                else:
                    assert (await bridge.grading.score([("a", "a")], "exact_match"))[0].score == 1
                answered += 1
                after += killed.is_set()

        async with asyncio.timeout(LONG), asyncio.TaskGroup() as callers:
            for kind in ("reads", "grades") * 4:
                callers.create_task(call(kind))
            while answered < 100:
                await asyncio.sleep(0.01)
            workers[0].kill()
            killed.set()


async def test_a_draining_worker_gets_no_more_calls(tmp_path):
    """SIGTERM: gRPC learns of it by the worker's health, so that no call of the client fails."""
    async with pool(tmp_path, 2) as workers, crucible_bridge.connect(",".join(addresses(workers))) as bridge:
        by_id = await ids_of(workers)
        await all_connected(bridge, by_id)
        workers[0].process.send_signal(signal.SIGTERM)
        left = {name for name, worker in by_id.items() if worker is workers[1]}
        async with asyncio.timeout(LONG):
            while set(await counted(bridge, 4)) != left:
                await bridge.evaluation.list_evaluations()


async def whole(bridge, evaluation_id):
    """The events of an evaluation, from the beginning."""
    return [event async for event in bridge.evaluation.watch_evaluation(evaluation_id)]


async def killed_under_evaluate(workers, server):
    """Kill the owner of an evaluation that a client waits for and watches; what the client saw."""
    async with crucible_bridge.connect(addresses(workers)) as bridge, asyncio.timeout(LONG):
        await all_connected(bridge, await ids_of(workers))
        watched: list = []

        async def subscribe():
            async for event in bridge.telemetry.subscribe():
                watched.append(event)
                if event.kind is EventKind.EVALUATION_STOP:
                    return

        reading = asyncio.create_task(subscribe())
        waiting = asyncio.create_task(bridge.evaluation.evaluate(**held_evaluation("e")))
        owner = await owner_of_started(workers, bridge)
        owner.kill()
        server.let_go()
        result = await waiting
        await reading
        return result, watched, await whole(bridge, "e")


async def owner_of_started(workers, bridge):
    """The owner of "e", which a task has just asked for."""
    while not (await bridge.evaluation.list_evaluations()).items:
        await asyncio.sleep(0.02)
    return await owner_of(workers, "e")


async def resumed(folder, *options):
    """An evaluation and a subscription outlive the worker that they were at."""
    async with held_model(folder) as (server, known), pool(folder, 3, *known, *options) as workers:
        result, watched, events = await killed_under_evaluate(workers, server)

    assert (result.evaluation_id, result.state, result.done) == ("e", EvaluationState.COMPLETED, result.total)
    # One log without a gap, a repeat or another order, whatever worker it was read from.
    assert [event.sequence for event in watched] == list(range(1, len(watched) + 1))
    kinds = collections.Counter(event.kind for event in events)
    assert (kinds[EventKind.EVALUATION_START], kinds[EventKind.EVALUATION_COMPLETE]) == (1, 1)
    assert kinds[EventKind.EVALUATION_RESUME] == kinds[EventKind.EVALUATION_INTERRUPT] == 1


async def test_an_evaluation_whose_worker_dies_is_resumed_at_another(tmp_path):
    """With one SQLite journal: `evaluate` returns the result, and a subscriber sees every event once."""
    await resumed(tmp_path)


@pytest.mark.postgres
async def test_an_evaluation_is_resumed_with_a_database(tmp_path, postgres_server):
    """With one PostgreSQL journal, as replicas on several machines have it."""
    await resumed(tmp_path, f"--journal={postgres_server.new_database()}")


async def test_streams_continue_whichever_worker_they_were_at(tmp_path):
    """Six subscriptions over three workers: one worker is killed, and each of them has every event."""
    async with (
        held_model(tmp_path) as (server, known),
        pool(tmp_path, 3, *known) as workers,
        crucible_bridge.connect(addresses(workers)) as bridge,
    ):
        await all_connected(bridge, await ids_of(workers))

        async def read():
            found = []
            async for event in bridge.telemetry.subscribe():
                found.append(event.sequence)
                if event.kind is EventKind.EVALUATION_STOP:
                    break
            return found

        async with asyncio.timeout(LONG):
            readers = [asyncio.create_task(read()) for _ in range(6)]
            await bridge.evaluation.start_evaluation(**held_evaluation("e"))
            owner = await owner_of(workers, "e")
            next(worker for worker in workers if worker is not owner).kill()
            server.let_go()
            logs = await asyncio.gather(*readers)

    assert all(log == list(range(1, len(log) + 1)) for log in logs)


async def test_a_client_of_one_worker_is_told_of_its_end(tmp_path):
    """Without a pool nothing is sent again, unless the caller has patience."""
    async with (
        held_model(tmp_path) as (_, known),
        pool(tmp_path, 1, *known) as (worker,),
        crucible_bridge.connect(worker.address) as bridge,
    ):
        stream = bridge.telemetry.subscribe()
        waiting = asyncio.create_task(bridge.evaluation.evaluate(**held_evaluation("e")))
        await owner_of_started([worker], bridge)
        worker.kill()
        with pytest.raises(Unavailable):
            await waiting
        with pytest.raises(Unavailable):
            _ = [event async for event in stream]


async def test_patience_waits_for_the_successor_of_the_only_worker(tmp_path):
    """A worker is killed and started again at its port: with `patience` the call has its result."""
    async with held_model(tmp_path) as (server, known), pool(tmp_path, 1, *known) as (worker,):
        port = worker.address.rpartition(":")[2]
        async with crucible_bridge.connect(worker.address, patience=LONG) as bridge, asyncio.timeout(LONG):
            waiting = asyncio.create_task(bridge.evaluation.evaluate(**held_evaluation("e")))
            await owner_of_started([worker], bridge)
            worker.kill()
            server.let_go()
            successor = PoolWorker(tmp_path, "next", f"--port={port}", *known)
            try:
                assert (await waiting).state is EvaluationState.COMPLETED
            finally:
                successor.kill()


async def test_a_timeout_ends_the_patience():
    """All workers are gone: `timeout` is kept, however long the patience is."""
    with contextlib.ExitStack() as ports:
        gone = [ports.enter_context(socket.socket()) for _ in range(2)]
        for one in gone:
            one.bind(("127.0.0.1", 0))
        found = ["{}:{}".format(*one.getsockname()) for one in gone]
    async with crucible_bridge.connect(found, patience=1.0) as bridge:
        with pytest.raises(Unavailable):
            await asyncio.wait_for(bridge.evaluation.evaluate(**held_evaluation("e"), timeout=60), LONG)


async def test_a_name_of_dns_has_all_its_workers_and_their_successors(tmp_path):
    """As at a headless service: one port, an address each; a worker that is new in the name gets calls."""
    hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    options = (f"--state-dir={tmp_path / 'state'}",)
    async with pool(tmp_path, 1, *options, hosts=hosts) as (first,):
        port = first.address.rpartition(":")[2]
        others = [PoolWorker(tmp_path, host, f"--host={host}", f"--port={port}", *options) for host in hosts[1:]]
        with names_at({"workers.test": hosts[:2]}) as names:
            try:
                workers = [first, *[await other.served() for other in others]]
                by_id = await ids_of(workers)
                before = {name for name, worker in by_id.items() if worker is not workers[2]}
                target = f"dns://{names.address}/workers.test:{port}"
                async with crucible_bridge.connect(target) as bridge:
                    await bridge.wait_for_worker(LONG)
                    await all_connected(bridge, before)
                    names.records["workers.test"] = hosts[1:]
                    first.kill()
                    after = {name for name, worker in by_id.items() if worker is not first}
                    await all_connected(bridge, after)
            finally:
                for other in others:
                    other.kill()


async def test_what_is_no_pool_is_refused():
    """A wrong patience names its parameter; a list with TLS needs the name in the certificates."""
    wrong: tuple[Any, ...] = (-1, float("nan"), "60")
    for patience in wrong:
        with pytest.raises(InvalidField, match="patience"):
            async with crucible_bridge.connect("127.0.0.1:1", patience=patience):
                pass
    with pytest.raises(InvalidField, match=r"tls\.server_name"):
        async with crucible_bridge.connect("127.0.0.1:1,127.0.0.1:2", tls=crucible_bridge.Tls(ca=b"")):
            pass
    with pytest.raises(Unavailable, match="no address"):
        async with crucible_bridge.connect("worker.invalid:1,other.invalid:2"):
            pass


async def test_a_name_of_a_list_that_is_gone_leaves_the_others(tmp_path):
    """As that of a node that was taken down: the pool has one worker fewer, and connects all the same."""
    async with pool(tmp_path, 1) as workers:
        listed = ["worker.invalid:1", *addresses(workers)]
        async with crucible_bridge.connect(listed) as bridge:
            await bridge.wait_for_worker(LONG)
            assert set(await counted(bridge, 5)) == set(await ids_of(workers))
