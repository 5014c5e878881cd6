"""The evaluator `rl_test_set`: what a model earns in environments, one group of rollouts for each sample.

See `crucible_worker.metrics.trajectory` for the keys `env/<tag>/...`, and `environments` for what an environment is.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from crucible_bridge.errors import BackendError, InvalidField
from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import EvaluatorInfo, Metrics, ModelRef, Sample, SampleResult, SamplingParams
from crucible_worker.backends.base import Model
from crucible_worker.evaluators.answering import KEEP_THINKING, Answering, check_sampling_client
from crucible_worker.evaluators.base import Outcome, SampleContext
from crucible_worker.evaluators.environments import group
from crucible_worker.evaluators.environments.episode import Asker, called_here
from crucible_worker.evaluators.environments.options import RL_TEST_SET, Chosen, chosen
from crucible_worker.evaluators.environments.player import Found, Order
from crucible_worker.evaluators.environments.problems import Problem, Rules
from crucible_worker.evaluators.environments.processes import Processes
from crucible_worker.evaluators.environments.records import (
    counts_of,
    described,
    errors_of,
    outcome_of,
    unseen_turns,
    without_observations,
)
from crucible_worker.evaluators.graded import check_judge, check_question, grader_for, judges_of, needs_judge
from crucible_worker.metrics.trajectory_totals import TrajectoryTotals
from crucible_worker.rendering import check_input

if TYPE_CHECKING:
    from crucible_worker.evaluators.environments.described import Environments
    from crucible_worker.grading.parts import GradingParts

__all__ = ["RLTestSet", "RLTestSetType"]


class RLTestSetType:
    """The kind `rl_test_set`."""

    @property
    def info(self) -> EvaluatorInfo:
        """What it is."""
        return RL_TEST_SET

    def create(
        self,
        options: Mapping[str, Any],
        sampling: SamplingParams | None,
        *,
        grading: GradingParts,
        environments: Environments,
    ) -> RLTestSet:
        """Make one.

        Raises:
            InvalidField: `sampling` is missing; there is no such environment or grader, or an option is wrong; several
                rollouts of a problem are asked for without a temperature, which would all be the same.
            FailedPrecondition: an environment, grader or renderer cannot be used.
        """
        if sampling is None:
            raise InvalidField("sampling", "is missing, and rl_test_set samples answers: give at least max_tokens")
        answering = Answering(sampling=sampling, renderer=options["renderer"], thinking=options["thinking"])
        found = chosen(options, sampling, grading=grading, environments=environments)
        processes = None if found.environment is None else environments.processes(found.environment)
        return RLTestSet(chosen=found, answering=answering, processes=processes)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RLTestSet:
    """Makes a group of rollouts of each sample."""

    wants_answers: ClassVar[bool] = True
    """See `evaluators.base.wants_answers`."""
    chosen: Chosen
    """What the options say."""
    answering: Answering
    """How the model is asked."""
    processes: Processes | None = None
    """Where a user's environment runs; None for problems of one turn."""
    fallen: list[str] = dataclasses.field(default_factory=list)
    """With fail_fast, the samples that have failed: behind them none is begun. Nothing but a short cut: where it is not
    known, the others are run and the evaluator fails all the same."""

    @property
    def repeats(self) -> int:
        """Once: the rollouts of a sample are one group."""
        return 1

    @property
    def others(self) -> Mapping[str, ModelRef]:
        """The grader's judge, where it asks one."""
        return judges_of(self.chosen.grader)

    def check(self, model: Model) -> None:
        """Refuse a model that cannot generate.

        Raises:
            FailedPrecondition: the model lacks a sampling client (reason MISSING_CLIENT).
        """
        check_sampling_client(model, "rl_test_set")

    def check_others(self, others: Mapping[str, Model]) -> None:
        """Refuse a judge that cannot generate; raises as `check` does."""
        check_judge(others, "rl_test_set")

    @property
    def needs_others(self) -> bool:
        """Unless its grader decides some answers without the judge."""
        return needs_judge(self.chosen.grader)

    def check_sample(self, sample: Sample) -> None:
        """Refuse what a problem cannot be; what a user's environment makes of a sample is its own business.

        Raises:
            InvalidField: names the conversation or the datum.
        """
        if self.processes is None:
            check_input(sample.input, self.answering.renderer)
            check_question(self.chosen.grader, sample)

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Make the group of one sample; the score is the mean of its rollouts' total rewards.

        Raises:
            Cancelled: the evaluation has ended.
            BackendError: the processes of the environment cannot be started, or say what makes no sense.
        """
        self.check(context.model)
        if self.fallen:
            raise BackendError(
                f"was not begun: the sample {shorten(self.fallen[0], MAX_PROBLEM_BYTES)!r} has failed",
                reason=Reason.FAILED_FAST,
                retryable=True,
            )
        asker = Asker(model=context.model, answering=self.answering)
        if self.processes is None:
            made = await self._problem_solved(sample, context, asker)
        else:
            made = await self.processes.make(self._order(sample, context), asker)
        if made.fallen and self._fails_fast:
            self.fallen.append(sample.id)
        return made.outcome

    async def get_ready(self) -> None:
        """Have a user's environment loaded; where it cannot be, its samples say so."""
        if self.processes is not None:
            await self.processes.get_ready()

    def close(self) -> None:
        """End the processes of a user's environment; does not wait."""
        if self.processes is not None:
            self.processes.close()

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """The keys `env/<tag>/...` over the groups that stand, and `rollout_errors/...` where something failed.

        Raises:
            BackendError: with fail_fast, a sample has failed (reason ROLLOUT_FAILED).
            InvalidField: a key would be there twice, or there would be too many.
        """
        totals, unseen = TrajectoryTotals(), 0
        errors: collections.Counter[str] = collections.Counter()
        skipped, first = 0, ""
        for result in results:
            errors.update(errors_of(result))
            if result.group is None:
                skipped, first = skipped + 1, first or described(result)
            else:
                totals.add(result.group)
                unseen += unseen_turns(result)
        if skipped and self._fails_fast:
            raise BackendError(first, reason=Reason.ROLLOUT_FAILED, retryable=False)
        metrics = without_observations(totals.metrics()) if unseen else totals.metrics()
        return Metrics({**metrics.values, **counts_of(errors, skipped)}, metrics.undefined)

    @property
    def _fails_fast(self) -> bool:
        return self.chosen.tolerance.strategy is group.Strategy.FAIL_FAST

    async def _problem_solved(self, sample: Sample, context: SampleContext, asker: Asker) -> Found:
        chosen = self.chosen
        rules = Rules(
            grader=grader_for(chosen.grader, sample, context),
            format=chosen.format,
            format_coef=chosen.format_coef,
            keep_thinking=self.answering.thinking == KEEP_THINKING,
        )
        problem = Problem(sample=sample, rules=rules, size=chosen.group_size, tag_by=chosen.tag_by)
        found = await group.run(
            lambda: problem, called_here, asker, chosen.tolerance, seed=context.seed, max_turns=chosen.max_turns
        )
        outcome = outcome_of(found, intermediates=chosen.intermediates, transcript=context.keeps_turns)
        return Found(outcome=outcome, fallen=found.failure is not None)

    def _order(self, sample: Sample, context: SampleContext) -> Order:
        return Order(
            sample=sample,
            options=self.chosen.environment_options,
            size=self.chosen.group_size,
            tolerance=self.chosen.tolerance,
            seed=context.seed,
            max_turns=self.chosen.max_turns,
            intermediates=self.chosen.intermediates,
            transcript=context.keeps_turns,
        )
