"""The parts of a worker, and how they are built from its settings."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from crucible_bridge.codec.events import event_to_record
from crucible_bridge.types import (
    BackendInfo,
    EvaluatorInfo,
    Fleet,
    InstalledModel,
    ModelRef,
    OrchestratorModel,
)
from crucible_worker.backends.base import Backend
from crucible_worker.backends.builtin import BUILTIN
from crucible_worker.backends.installed import InstalledBackends
from crucible_worker.config import Settings
from crucible_worker.datasets.loading import BUILTIN_DATASETS
from crucible_worker.engine.preparation import Sources
from crucible_worker.engine.prompting import TEMPLATE_MODULE
from crucible_worker.evaluations import Evaluations
from crucible_worker.evaluators import registry
from crucible_worker.evaluators.environments.processes import Environments
from crucible_worker.evaluators.inspect.allowed import InspectAllowlist
from crucible_worker.evaluators.installed import GuardedType
from crucible_worker.evaluators.registry import EvaluatorParts
from crucible_worker.grading.base import GraderType
from crucible_worker.grading.code.sandbox import SandboxSlots
from crucible_worker.grading.fanout.fanout import Fanout
from crucible_worker.grading.fanout.graders import ClusterPlaces, check_installed
from crucible_worker.grading.pool import MIN_CHILDREN, GradingPool
from crucible_worker.grading.registry import GradingParts
from crucible_worker.planning.plans import PatternPlan

__all__ = ["Build", "CustomFiles", "Parts", "build", "build_with"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts that services call."""

    evaluations: Evaluations
    """All evaluations, with an open journal."""
    backends: Sequence[Backend]
    """Backends; the worker closes them at its end."""
    evaluators: Callable[[], Iterable[EvaluatorInfo]]
    """Returns the evaluators; may take seconds, as those that users have installed are imported."""
    evaluator_kinds: Callable[[], Iterable[str]]
    """Returns only their kinds; imports nothing."""
    datasets: Sequence[str]
    """Built-in data sets."""
    models: Mapping[type[ModelRef], Backend] = dataclasses.field(default_factory=dict)
    """Backends by the kind of reference that they open."""
    grading: GradingPool | Fanout | None = None
    """What grades math, processes or a cluster; the worker starts and closes it. None if it grades no math."""
    templates: GradingPool | None = None
    """Processes for templates of prompts; may be the same pool. None if the worker runs no templates."""
    code: SandboxSlots | ClusterPlaces | None = None
    """Sandboxes for programs; nothing is started before the first program. None if the worker runs none."""
    fanout: Fanout | None = None
    """The cluster that grades in the worker's place; None if the worker grades itself."""
    custom_graders: Mapping[str, GraderType] = dataclasses.field(default_factory=dict)
    """Graders of files that a user names on the command line, by name."""
    plans: Sequence[PatternPlan] = ()
    """Plans of runs that register none."""

    def backend_infos(self) -> Sequence[BackendInfo]:
        """Descriptions of the backends; one backend may have several names."""
        return [info for backend in self.backends for info in backend.infos()]

    def fleets(self) -> Sequence[Fleet]:
        """The present state of the replicas of models that have several."""
        return [fleet for backend in self.backends for fleet in backend.fleets()]

    def _pools(self) -> Iterable[GradingPool | Fanout]:
        """The pools for grading and for templates, which may be the same, and the cluster."""
        pools = (self.grading, self.templates, self.fanout)
        return {id(pool): pool for pool in pools if pool is not None}.values()

    def aclose_children(self) -> Awaitable[Any]:
        """End the processes of backends and graders, all at once."""
        closing: list[Awaitable[None]] = [backend.aclose() for backend in self.backends]
        closing += [pool.aclose() for pool in self._pools()]
        if self.code is not None:
            closing.append(self.code.aclose())
        return asyncio.gather(*closing)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CustomFiles:
    """Evaluators and graders from files that a user names on the command line. No call can add one."""

    evaluators: Mapping[str, GuardedType] = dataclasses.field(default_factory=dict)
    """By kind."""
    graders: Mapping[str, GraderType] = dataclasses.field(default_factory=dict)
    """By name."""

    @property
    def evaluator_parts(self) -> EvaluatorParts:
        """Evaluator parts with only these."""
        return EvaluatorParts(grading=GradingParts(custom_graders=self.graders), custom_evaluators=self.evaluators)


Build = Callable[[Settings], Awaitable[Parts]]
"""Builds the parts of a worker; tests pass their own function."""


async def build(settings: Settings, custom: CustomFiles | None = None, *, feed_all: bool = True) -> Parts:
    """Build the parts of a worker from its settings; nothing heavy is imported before it is used.

    Args:
        settings: of the worker.
        custom: evaluators and graders from files that a user names on the command line; none if None.
        feed_all: feed the loggers of all experiments of the journal; a command feeds those that it logs to.

    Raises:
        FailedPrecondition: the journal cannot be used.
    """
    backends = _built_in(settings, lambda kind: _EVERYWHERE.isdisjoint(kind.opens))
    return await build_with(settings, backends=backends, custom=custom, feed_all=feed_all)


async def build_with(
    settings: Settings,
    *,
    backends: Mapping[type[ModelRef], Backend],
    custom: CustomFiles | None = None,
    feed_all: bool = True,
) -> Parts:
    """Build the parts of a worker with the given backends, and those that every worker has, and open the journal.

    Raises:
        FailedPrecondition: the journal cannot be used.
    """
    orchestrators = _built_in(settings, lambda kind: OrchestratorModel in kind.opens)
    backends = {**backends, **orchestrators, InstalledModel: InstalledBackends(settings)}
    # Its children are forked when it starts.
    fanout = _fanout(settings)
    grading = None if settings.grading_processes == 0 else fanout or GradingPool(settings.grading_processes)
    code = None if settings.code_sandboxes == 0 else _places(settings, fanout)
    parts = EvaluatorParts(
        grading=GradingParts(pool=grading, places=code, custom_graders={} if custom is None else custom.graders),
        inspect=_inspect(settings),
        environments=Environments(settings.environment_variables),
        custom_evaluators={} if custom is None else custom.evaluators,
    )
    # Its processes load their modules with the first template, unless they grade as well.
    own_pool = grading if isinstance(grading, GradingPool) else None
    templates = GradingPool(MIN_CHILDREN, modules=(TEMPLATE_MODULE,)) if own_pool is None else own_pool
    sources = Sources(
        backends=backends,
        data_roots=settings.data_roots,
        builtins=BUILTIN_DATASETS,
        parts=parts,
        spool_dir=settings.state_dir,
        hub_network=settings.hub_network,
        prices=settings.prices,
        templates=templates,
    )
    evaluations = await Evaluations.open(
        settings.state_dir,
        event_to_record,
        journal_url=settings.journal,
        sources=sources,
        limits=settings.limits,
        log_dir=settings.log_dir,
        model_roots=settings.model_roots,
        log_to=settings.log_to,
        feed_all=feed_all,
        resume_interrupted=settings.resume_interrupted,
    )
    return Parts(
        evaluations=evaluations,
        backends=tuple(dict.fromkeys(backends.values())),
        evaluators=lambda: registry.infos(parts),
        evaluator_kinds=registry.kinds,
        datasets=tuple(BUILTIN_DATASETS),
        models=backends,
        grading=grading,
        templates=templates,
        code=code,
        fanout=fanout,
        custom_graders=parts.grading.custom_graders,
        plans=tuple(plan.load() for plan in settings.plans),
    )


_EVERYWHERE = frozenset((OrchestratorModel, InstalledModel))
"""Forms of references that every worker knows, whatever backends it is built with."""


def _built_in(settings: Settings, wanted: Callable[[type[Backend]], bool]) -> Mapping[type[ModelRef], Backend]:
    """Some of the backends in the box, by the forms of references that they open."""
    made = [kind.create(settings) for kind in (entry.load() for entry in BUILTIN) if wanted(kind)]
    return {form: backend for backend in made for form in backend.opens}


def _fanout(settings: Settings) -> Fanout | None:
    if settings.fanout is None:
        return None
    check_installed()
    return Fanout(settings.fanout, settings.limits.max_fanout_chunks)


def _places(settings: Settings, fanout: Fanout | None) -> SandboxSlots | ClusterPlaces:
    if fanout is None:
        return SandboxSlots(settings.code_sandboxes, settings.code_images)
    return ClusterPlaces(fanout, settings.code_images)


def _inspect(settings: Settings) -> InspectAllowlist | None:
    if not settings.inspect_roots and not settings.inspect_packages:
        return None
    return InspectAllowlist(
        roots=settings.inspect_roots,
        packages=settings.inspect_packages,
        network=settings.hub_network,
        turns=asyncio.Semaphore(settings.limits.max_inspect_tasks),
    )
