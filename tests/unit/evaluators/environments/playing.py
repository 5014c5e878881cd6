"""What the tests of environments share: environments that do what a test says, and groups of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crucible_bridge.types import SamplingParams
from crucible_worker.backends.base import Model
from crucible_worker.evaluators.answering import Answering
from crucible_worker.evaluators.environments import StepResult
from crucible_worker.evaluators.environments.episode import Asker
from crucible_worker.evaluators.environments.group import FailurePolicy, Group, Strategy, run
from crucible_worker.evaluators.environments.threaded_loop import guarded_call
from crucible_worker.testing import ScriptedModel

Steps = Callable[[int], Any]


async def here(function: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
    """Call a user's function where the test runs."""
    return await guarded_call(function, args, options)


def asker(model: Model | None = None, **params: Any) -> Asker:
    """One who asks a scripted model."""
    sampling = SamplingParams(**{"max_tokens": 16, "temperature": 1.0, **params})
    return Asker(model=ScriptedModel() if model is None else model, answering=Answering(sampling=sampling))


def step(**fields: Any) -> StepResult:
    """The last step of an episode, worth 1, but for what is given."""
    return StepResult(**{"reward": 1.0, "episode_done": True, **fields})


@dataclasses.dataclass
class Scripted:
    """An environment that begins and steps as it is told, and keeps what it was given."""

    steps: Steps = lambda turn: step()
    begins: Any = ("go", ())
    taken: list[tuple[list[int], Mapping[str, Any]]] = dataclasses.field(default_factory=list)

    async def initial_observation(self) -> Any:
        return self.begins

    async def step(self, action: list[int], *, extra: Any = None) -> Any:
        self.taken.append((action, extra))
        found = self.steps(len(self.taken) - 1)
        if isinstance(found, BaseException):
            raise found
        return found


@dataclasses.dataclass
class Scripts:
    """A group whose environments step as they are told: by how often environments were made, and which one it is."""

    steps: Callable[[int, int], Steps] = lambda made, index: lambda turn: step()
    size: int = 3
    made: int = 0

    async def make_envs(self) -> Sequence[Any]:
        self.made += 1
        return [Scripted(self.steps(self.made, index)) for index in range(self.size)]


async def grouped(builder: Any, strategy: Strategy = Strategy.RETRY, **options: Any) -> Group:
    """The group of a builder."""
    tolerance = FailurePolicy(
        strategy=strategy,
        max_retries=options.pop("max_retries", 2),
        min_successful=options.pop("min_successful", None),
    )
    model = options.pop("model", None)
    call = options.pop("call", here)
    return await run(lambda: builder, call, asker(model), tolerance, **{"seed": 5, "max_turns": 4, **options})
