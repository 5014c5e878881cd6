"""The choice of a replica: by outstanding work, by what failed, and by what the same prompt had before."""

import collections
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import ReplicaState
from crucible_worker.backends.balancer import (
    BUSIER_REQUESTS,
    FAILURES_IN_A_ROW,
    FIRST_WAIT_SECONDS,
    LONGEST_WAIT_SECONDS,
    MAX_HOMES,
    Balancer,
    NoReplicaLeft,
)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def of(*names: str, most_requests: float = math.inf, clock: Clock | None = None) -> Balancer:
    """A balancer of these replicas."""
    return Balancer(names, most_requests=most_requests, clock=clock or Clock())


def serving(balancer: Balancer) -> list[str]:
    """The replicas that get requests."""
    return [state.address for state in balancer.states() if state.state is ReplicaState.SERVING]


def fail(balancer: Balancer, name: str, times: int = FAILURES_IN_A_ROW) -> list[bool]:
    """Let requests to a replica fail, whatever would be chosen; returns which of them ejected it."""
    others = [state.address for state in balancer.states() if state.address != name]
    ejected = []
    for _ in range(times):
        assert balancer.choose(1, avoid=others) == name
        ejected.append(balancer.failed(name, 1, "FAILED"))
    return ejected


def test_the_least_outstanding_work_counts_not_the_number_of_requests():
    """A replica with one long request gets the next one after those with several short ones."""
    balancer = of("a", "b")
    assert balancer.choose(10) == "a"
    assert [balancer.choose(3) for _ in range(4)] == ["b"] * 4
    assert balancer.choose(3) == "a"


def test_replicas_without_work_take_turns():
    """Requests that come one after another do not all go to the first replica."""
    balancer = of("a", "b", "c")
    chosen = []
    for _ in range(6):
        name = balancer.choose(1)
        assert name is not None
        balancer.answered(name, 1)
        chosen.append(name)
    assert chosen == ["a", "b", "c"] * 2


def test_a_replica_has_at_most_as_many_requests_as_it_may():
    """If each has as many, none is chosen; with the first answer, one is."""
    balancer = of("a", "b", most_requests=2)
    assert sorted(balancer.choose(1) or "" for _ in range(4)) == ["a", "a", "b", "b"]
    assert balancer.choose(1) is None
    balancer.answered("b", 1)
    assert balancer.choose(1) == "b"


def test_repeats_of_a_prompt_go_to_its_replica_until_that_is_much_busier():
    """The prompt's replica may be ahead by a few requests, not by more."""
    balancer = of("a", "b")
    chosen = [balancer.choose(1, "prompt") for _ in range(2 + int(BUSIER_REQUESTS))]
    assert chosen == ["a"] * (1 + int(BUSIER_REQUESTS)) + ["b"]
    # The prompt's replica stays the same: it has the prompt in its cache.
    for _ in range(3):
        balancer.answered("a", 1)
    assert balancer.choose(1, "prompt") == "a"
    assert balancer.choose(1, "other") == "b"


def test_an_ejected_replica_loses_its_prompts():
    """Repeats then have another replica, also after the first one has returned."""
    clock = Clock()
    balancer = of("a", "b", clock=clock)
    assert balancer.choose(1, "prompt") == "a"
    assert balancer.failed("a", 1, "LOST", at_once=True)
    assert balancer.choose(1, "prompt") == "b"
    clock.now += FIRST_WAIT_SECONDS
    assert balancer.due() == ["a"]
    assert balancer.probed("a", works=True)
    assert balancer.choose(1, "prompt") == "b"


def test_prompts_are_forgotten_in_the_order_of_their_last_use():
    """The memory of prompts is bounded."""
    balancer = of("a", "b")
    first = balancer.choose(1, "first")
    assert first == "a"
    for index in range(MAX_HOMES):
        name = balancer.choose(1, index)
        assert name is not None
        balancer.answered(name, 1)
    # It is a new prompt again: it goes where the least work is.
    assert balancer.choose(1, "first") == "b"


def test_several_failures_in_a_row_eject_a_replica_an_answer_between_them_does_not():
    """A single failure may be the fault of the request."""
    balancer = of("a", "b")
    assert fail(balancer, "a", FAILURES_IN_A_ROW - 1) == [False] * (FAILURES_IN_A_ROW - 1)
    assert balancer.choose(1, avoid=["b"]) == "a"
    balancer.answered("a", 1)
    assert fail(balancer, "a") == [False] * (FAILURES_IN_A_ROW - 1) + [True]
    assert serving(balancer) == ["b"]


def test_without_a_connection_one_failure_ejects():
    """No other request would get one; those that fail after it change nothing."""
    balancer = of("a", "b")
    balancer.choose(1)
    balancer.choose(1)
    balancer.choose(1)
    assert balancer.failed("a", 1, "LOST", at_once=True)
    before = balancer.wait_of("a")
    assert not balancer.failed("a", 1, "LOST", at_once=True)
    assert (serving(balancer), balancer.wait_of("a")) == (["b"], before)


def test_the_wait_doubles_until_a_request_is_answered():
    """Probes become rare, up to a bound; an answered request makes the next wait short again."""
    clock = Clock()
    balancer = of("a", "b", clock=clock)
    assert balancer.eject("a")
    waits = []
    for _ in range(40):
        waits.append(balancer.wait_of("a"))
        assert balancer.due() == []
        clock.now += waits[-1]
        assert balancer.due() == ["a"]
        assert balancer.due() == [], "a replica has one probe at a time"
        assert not balancer.probed("a", works=False)
    assert waits[:3] == [FIRST_WAIT_SECONDS, 2 * FIRST_WAIT_SECONDS, 4 * FIRST_WAIT_SECONDS]
    assert waits[-1] == max(waits) == LONGEST_WAIT_SECONDS
    clock.now += LONGEST_WAIT_SECONDS
    assert balancer.due() == ["a"]
    assert balancer.probed("a", works=True)
    assert serving(balancer) == ["a", "b"]
    # The first real request fails: the wait is still the longest.
    assert fail(balancer, "a", 1) == [True]
    assert balancer.wait_of("a") == LONGEST_WAIT_SECONDS
    clock.now += LONGEST_WAIT_SECONDS
    assert balancer.due() == ["a"]
    assert balancer.probed("a", works=True)
    assert balancer.choose(1, avoid=["b"]) == "a"
    balancer.answered("a", 1)
    assert balancer.eject("a")
    assert balancer.wait_of("a") == FIRST_WAIT_SECONDS


def test_a_late_answer_does_not_bring_a_replica_back():
    """Only a probe does: it also compares what the replica serves."""
    balancer = of("a", "b")
    balancer.choose(1)
    assert balancer.eject("a")
    balancer.answered("a", 1)
    assert serving(balancer) == ["b"]


def test_a_probe_that_fails_late_does_not_eject_what_was_shown_to_work():
    """An evaluation that starts has reached the replica meanwhile."""
    clock = Clock()
    balancer = of("a", "b", clock=clock)
    balancer.eject("a")
    clock.now += FIRST_WAIT_SECONDS
    assert balancer.due() == ["a"]
    assert balancer.probed("a", works=True)
    assert not balancer.probed("a", works=False)
    assert serving(balancer) == ["a", "b"]


def test_a_replica_that_limits_the_rate_rests():
    """It is not ejected, and needs no probe: after the time that it names it gets requests."""
    clock = Clock()
    balancer = of("a", "b", clock=clock)
    assert balancer.choose(1) == "a"
    balancer.rest("a", 1, "BUSY", 5.0)
    assert (serving(balancer), balancer.due()) == (["b"], [])
    clock.now += 5.0
    assert serving(balancer) == ["a", "b"]


def test_if_none_serves_any_is_chosen():
    """The caller then has a replica's error, and does not wait for ever."""
    balancer = of("a", "b")
    for name in ("a", "b"):
        balancer.eject(name)
    assert balancer.choose(1) in ("a", "b")


def test_replicas_that_failed_a_request_are_avoided():
    """Those that serve alone count: an ejected replica is no alternative to one that serves."""
    balancer = of("a", "b")
    assert balancer.choose(1, "prompt") == "a"
    assert balancer.choose(1, "prompt", ["a"]) == "b"
    with pytest.raises(NoReplicaLeft):
        balancer.choose(1, "prompt", ["a", "b"])
    balancer.eject("b")
    with pytest.raises(NoReplicaLeft):
        balancer.choose(1, "prompt", ["a"])


def test_replicas_can_be_replaced():
    """Those that stay keep their requests; answers of those that are gone are ignored."""
    balancer = of("a", "b")
    assert [balancer.choose(1), balancer.choose(1)] == ["a", "b"]
    assert balancer.replace(["b", "c"]) == ("c",)
    balancer.answered("a", 1)
    assert not balancer.failed("a", 1, "LOST", at_once=True)
    assert not balancer.probed("a", works=True)
    assert [(state.address, state.outstanding) for state in balancer.states()] == [("b", 1), ("c", 0)]


NAMES = ("a", "b", "c")
STEP = st.tuples(
    st.sampled_from(["choose", "choose", "answered", "failed", "lost", "withdrawn", "rest", "probe", "wait"]),
    st.integers(0, 40),
    st.floats(0.1, 1e6),
)


@given(st.lists(STEP, max_size=120), st.integers(1, 4))
def test_whatever_happens_requests_are_counted_and_bounded(steps: list[tuple[str, int, float]], most: int):
    """Each request is at one replica until it ends; a replica that serves never waits idle while one is refused."""
    clock = Clock()
    balancer = of(*NAMES, most_requests=most, clock=clock)
    running: list[tuple[str, float]] = []
    for step, number, amount in steps:
        if step == "choose":
            before = serving(balancer)
            name = balancer.choose(amount, number % 3)
            counts = collections.Counter(name for name, _ in running)
            if name is None:
                assert all(counts[each] == most for each in before or NAMES)
                continue
            assert name in (before or NAMES)
            assert counts[name] < most
            running.append((name, amount))
        elif step == "wait":
            clock.now += number
        elif step == "probe":
            for name in balancer.due():
                assert name not in serving(balancer)
                balancer.probed(name, works=bool(number % 2))
        elif running:
            name, work = running.pop(number % len(running))
            match step:
                case "answered":
                    balancer.answered(name, work)
                case "failed" | "lost":
                    balancer.failed(name, work, "LOST", at_once=step == "lost")
                case "rest":
                    balancer.rest(name, work, "BUSY", number)
                case _:
                    balancer.withdrawn(name, work)
        counts = collections.Counter(name for name, _ in running)
        assert {state.address: state.outstanding for state in balancer.states()} == {
            name: counts[name] for name in NAMES
        }
