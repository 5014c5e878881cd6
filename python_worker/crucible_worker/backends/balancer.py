"""Chooses the replica of each request: the one with the least outstanding work, among those that answer.

    SERVING --(no connection, or several failures in a row)--> EJECTED --(a wait, then a probe)--> SERVING

The wait doubles with every ejection until a request is answered again. Requests with the same key, as repeats of a
sample are, go to the replica that had the key before: it may have the prompt in its cache. If that replica is much
busier than another one, they do not.

Nothing here waits or sends: the caller reports how requests and probes end, and the clock is handed over.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence

from crucible_bridge.types import Replica, ReplicaState
from crucible_worker.util.tasks import Backoff

__all__ = [
    "BUSIER_REQUESTS",
    "BUSIER_SHARE",
    "FAILURES_IN_A_ROW",
    "FIRST_WAIT_SECONDS",
    "LONGEST_WAIT_SECONDS",
    "MAX_HOMES",
    "Balancer",
    "NoReplicaLeft",
]

FAILURES_IN_A_ROW = 3
"""Failures without an answer between them that eject a replica; a single one may be a request's own fault."""
FIRST_WAIT_SECONDS = 1.0
"""From an ejection to the first probe."""
LONGEST_WAIT_SECONDS = 30.0
"""Longest wait before a probe."""
BUSIER_SHARE = 1.25
BUSIER_REQUESTS = 8.0
"""A replica is much busier if its work exceeds this share of the least work by more than so many such requests."""
MAX_HOMES = 16_384
"""Keys with a known replica; the one that was used least recently is forgotten first."""


class NoReplicaLeft(LookupError):
    """Raised when a request may go to no replica: it has tried all that serve."""


@dataclasses.dataclass(slots=True, eq=False)
class _Replica:
    name: str
    requests: int = 0
    work: float = 0.0
    chosen: int = 0
    failures: int = 0
    ejections: int = 0
    ejected: bool = False
    probing: bool = False
    not_before: float = 0.0
    answers: int = 0
    all_failures: int = 0
    last_error: str = ""

    def serves(self, now: float) -> bool:
        return not self.ejected and self.not_before <= now

    def count_failure(self, reason: str) -> None:
        self.all_failures += 1
        self.last_error = reason

    def shown(self, now: float) -> Replica:
        paused = ReplicaState.EJECTED if self.ejected else ReplicaState.RESTING
        return Replica(
            address=self.name,
            state=ReplicaState.SERVING if self.serves(now) else paused,
            outstanding=self.requests,
            done=self.answers,
            failures=self.all_failures,
            last_error=self.last_error,
        )


class Balancer:
    """The replicas of one server or model.

    Args:
        names: of the replicas; at least one.
        most_requests: that a replica has at once.
        clock: seconds that never decrease.
    """

    def __init__(self, names: Sequence[str], *, most_requests: float, clock: Callable[[], float]) -> None:
        self._most = most_requests
        self._clock = clock
        self._requests = 0
        self._replicas: dict[str, _Replica] = {}
        self._homes: collections.OrderedDict[Hashable, str] = collections.OrderedDict()
        self.replace(names)

    def replace(self, names: Iterable[str]) -> tuple[str, ...]:
        """Let these be the replicas; those that stay keep their state. Returns the new ones."""
        wanted = dict.fromkeys(names)
        new = tuple(name for name in wanted if name not in self._replicas)
        for name in [name for name in self._replicas if name not in wanted]:
            del self._replicas[name]
        for name in new:
            self._replicas[name] = _Replica(name)
        return new

    def choose(self, work: float, key: Hashable = None, avoid: Collection[str] = ()) -> str | None:
        """Choose a replica, and count the request as its own; None if each has as many requests as it may have.

        If no replica serves, any of them is chosen: its error is worth more than an endless wait.

        Args:
            work: how much the request takes, in any unit, above 0.
            key: of requests that profit from the same replica; None if there are none.
            avoid: replicas that have failed this request.

        Raises:
            NoReplicaLeft: all that serve are to be avoided.
        """
        now = self._clock()
        serving = [replica for replica in self._replicas.values() if replica.serves(now)]
        allowed = [replica for replica in serving or self._replicas.values() if replica.name not in avoid]
        if not allowed:
            raise NoReplicaLeft
        free = [replica for replica in allowed if replica.requests < self._most]
        if not free:
            return None
        least = min(free, key=lambda replica: (replica.work, replica.chosen))
        chosen = least if key is None else self._near(key, work, least, free, allowed)
        chosen.requests += 1
        self._requests += 1
        chosen.chosen = self._requests
        chosen.work += work
        return chosen.name

    def answered(self, name: str, work: float) -> None:
        """A request has an answer, be it a refusal: the replica works."""
        replica = self._released(name, work)
        if replica is not None:
            replica.answers += 1
            replica.failures = 0
            if not replica.ejected:
                replica.ejections = 0

    def withdrawn(self, name: str, work: float) -> None:
        """A request has ended without a sign of the replica: it was cancelled."""
        self._released(name, work)

    def failed(self, name: str, work: float, reason: str, *, at_once: bool = False) -> bool:
        """A request has failed by the replica's fault. Returns whether this ejects the replica.

        Args:
            name: of the replica.
            work: as `choose` got it.
            reason: of its error.
            at_once: no other request can succeed now, as without any connection.
        """
        return self._released(name, work) is not None and self.blamed(name, reason, at_once=at_once)

    def blamed(self, name: str, reason: str, *, at_once: bool = False) -> bool:
        """A request that is no longer counted has turned out to have failed; as `failed`."""
        replica = self._replicas.get(name)
        if replica is None:
            return False
        replica.count_failure(reason)
        if replica.ejected:
            return False
        replica.failures += 1
        if not at_once and replica.failures < FAILURES_IN_A_ROW:
            return False
        self._eject(replica)
        return True

    def eject(self, name: str, reason: str = "") -> bool:
        """Eject a replica that does not answer, or is new. Returns whether it was serving before.

        Args:
            name: of the replica.
            reason: of the error of a check; empty if it has had none.
        """
        replica = self._replicas.get(name)
        if replica is None:
            return False
        if reason:
            replica.count_failure(reason)
        if replica.ejected:
            return False
        self._eject(replica)
        return True

    def rest(self, name: str, work: float, reason: str, seconds: float) -> None:
        """A request was refused because there were too many: the replica gets none for so long."""
        replica = self._released(name, work)
        if replica is not None:
            replica.count_failure(reason)
            replica.not_before = max(replica.not_before, self._clock() + seconds)

    def due(self) -> list[str]:
        """Ejected replicas to be probed now; each is listed once, until its probe is reported."""
        now = self._clock()
        due = [
            replica
            for replica in self._replicas.values()
            if replica.ejected and not replica.probing and replica.not_before <= now
        ]
        for replica in due:
            replica.probing = True
        return [replica.name for replica in due]

    def probed(self, name: str, *, works: bool, reason: str = "") -> bool:
        """A probe has ended; if the replica works, it serves again. Returns whether it was ejected before.

        Args:
            name: of the replica.
            works: whether it does.
            reason: of the probe's error, if it has one.
        """
        replica = self._replicas.get(name)
        if replica is None:
            return False
        asked, replica.probing = replica.probing, False
        if not works:
            if reason:
                replica.count_failure(reason)
            if asked:  # else something else has shown meanwhile that it works
                self._eject(replica)
            return False
        before = replica.ejected
        if before:
            # A probe is a small request: the first failure of a real one ejects the replica again.
            replica.ejected, replica.failures, replica.not_before = False, FAILURES_IN_A_ROW - 1, 0.0
        return before

    def wait_of(self, name: str) -> float:
        """Seconds until a replica may be probed or used; 0 if it may now."""
        replica = self._replicas.get(name)
        return 0.0 if replica is None else max(0.0, replica.not_before - self._clock())

    def next_wait(self) -> float | None:
        """Seconds until another replica may be probed or used; None if no replica waits for a time."""
        now = self._clock()
        times = [
            replica.not_before for replica in self._replicas.values() if not replica.probing and not replica.serves(now)
        ]
        return max(0.0, min(times) - now) if times else None

    def states(self) -> tuple[Replica, ...]:
        """The state of each replica, in the order in which they were given."""
        now = self._clock()
        return tuple(replica.shown(now) for replica in self._replicas.values())

    def _near(
        self, key: Hashable, work: float, least: _Replica, free: list[_Replica], allowed: list[_Replica]
    ) -> _Replica:
        """The replica that has had a key, unless it is much busier; else the one with the least work."""
        home = self._replicas.get(self._homes.get(key, ""))
        if home is None or home not in allowed:
            self._homes[key] = least.name
            home = least
            if len(self._homes) > MAX_HOMES:
                self._homes.popitem(last=False)
        self._homes.move_to_end(key)
        busier = home.work > BUSIER_SHARE * least.work + BUSIER_REQUESTS * work
        return least if busier or home not in free else home

    def _released(self, name: str, work: float) -> _Replica | None:
        """A replica with one request fewer; None if it is no longer one."""
        replica = self._replicas.get(name)
        if replica is None or not replica.requests:  # it was replaced meanwhile
            return None
        replica.requests -= 1
        # Sums of different works round; without requests there is none.
        replica.work = replica.work - work if replica.requests else 0.0
        return replica

    def _eject(self, replica: _Replica) -> None:
        replica.ejected = True
        replica.ejections += 1
        replica.not_before = self._clock() + Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS).after(replica.ejections)
