"""An environment that does what a sample says, in whatever process it runs: laid out as a distribution by tests."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from crucible_bridge.types import ChatMessage, Conversation
from crucible_worker.api import StepResult

if os.environ.get("LANG") == "threads":  # a variable that processes of environments get
    import threading

    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()

if os.environ.get("LANG") == "slow":
    time.sleep(3)

if os.environ.get("LANG") == "broken" and "keep" in sys.argv:
    raise RuntimeError("not here")

if os.environ.get("LANG") == "children":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)

CHILD = 0
if os.environ.get("LANG") == "child" and not (CHILD := os.fork()):
    time.sleep(3600)

if os.environ.get("LANG") == "full":
    forks = iter([os.fork])

    def one_fork():
        """The first, and no other."""
        for fork in forks:
            return fork()
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    os.fork = one_fork

LOADED = os.getpid()


class Shared:
    """What the environments of a group have in common."""

    def __init__(self, size):
        self.barrier = asyncio.Barrier(size)
        self.places = []


class Acts:
    """One episode of a turn."""

    def __init__(self, what, index, shared, folder):
        self.what, self.index, self.shared, self.folder = what, index, shared, folder

    async def initial_observation(self):
        if self.what == "odd":
            content: Any = 3
            return Conversation((ChatMessage("user", content),)), ()
        if self.what == "map":
            message: Any = {"role": "user", "content": "q"}
            return Conversation((message,)), ()
        if self.what == "stop":
            return "q", (2**70,)
        if self.what == "object":
            return object(), ()
        return "q", ()

    async def step(self, action, *, extra=None):
        (self.folder / f"{self.what} {os.getpid()}").touch()
        first = len(list(self.folder.glob(f"{self.what} *"))) == 1
        metrics = {"pid": os.getpid(), "loaded_here": os.getpid() == LOADED, "child": CHILD}
        if self.what == "spin":
            while True:
                pass
        if self.what == "sleep":
            time.sleep(3600)  # noqa: ASYNC251 - that is what it is asked for
        if self.what == "exit" or (self.what == "exit once" and first and self.index == 0):
            os._exit(3)
        if self.what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.what == "wait" or (self.what == "exit once" and first):
            await asyncio.Event().wait()
        if self.what == "end later":
            signal.setitimer(signal.ITIMER_REAL, 0.5)  # ends the process, when its group is done
        if self.what in ("leave", "start"):
            # Whoever is started by an environment holds all that it inherits.
            sleeping = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], close_fds=False)
            (self.folder / "left").write_text(str(sleeping.pid))
            if self.what == "leave":
                os._exit(3)
            await asyncio.Event().wait()
        if self.what == "print":
            print("x" * 100_000, flush=True)
            print("y" * 100_000, file=sys.stderr, flush=True)
            os.write(1, b"z" * 100_000)
        if self.what == "variables":
            metrics["secrets"] = sum("canary" in value for value in os.environ.values())
        if self.what == "together":
            await self.shared.barrier.wait()
            self.shared.places.append(self.index)
        if self.what == "raise":
            raise LookupError("no luck \ud800")
        return StepResult(reward=0.1 * len(action), episode_done=True, metrics=metrics)


class Group:
    """Of as many as are asked for."""

    def __init__(self, what, size, folder):
        self.what, self.size, self.folder = what, size, folder

    async def make_envs(self):
        shared = Shared(self.size)
        return [Acts(self.what, index, shared, self.folder) for index in range(self.size)]

    async def compute_group_rewards(self, rollouts, envs):
        if self.what == "exit late":
            os._exit(3)
        return [(env.shared.places.index(env.index) if env.shared.places else 0, {}) for env in envs]


OPTIONS = {"type": "object", "properties": {"folder": {"type": "string"}}, "additionalProperties": False}


class Acting:
    """The environment."""

    description = "Does what a sample says."
    options_schema = OPTIONS

    def group(self, sample, options, size):
        return Group(sample.input, size, Path(options["folder"]))


ACTING = Acting()
