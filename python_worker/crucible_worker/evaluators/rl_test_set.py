"""The evaluator `rl_test_set`: the rewards of a model in environments, one group of rollouts for each sample.

See `crucible_worker.metrics.trajectory` for the keys `env/<tag>/...`, and `environments` for environments.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence

from crucible_bridge.errors import BackendError
from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Datum, Metrics, Sample, SampleResult
from crucible_worker.backends.base import Model
from crucible_worker.evaluators.answering import Answering
from crucible_worker.evaluators.base import Outcome, SampleContext
from crucible_worker.evaluators.environments import group
from crucible_worker.evaluators.environments.episode import Asker, called_here
from crucible_worker.evaluators.environments.options import KEYS, KIND, PROBLEMS, EnvironmentOptions
from crucible_worker.evaluators.environments.problems import CallerProblem, Problem, RewardRules, caller_of
from crucible_worker.evaluators.environments.processes import EnvironmentProcesses, GroupOrder, GroupReply
from crucible_worker.evaluators.environments.records import (
    counts_of,
    described,
    errors_of,
    outcome_of,
    uncounted_turns,
    without_uncounted,
)
from crucible_worker.evaluators.graded import check_question, grader_for
from crucible_worker.metrics.trajectory import TrajectoryTotals
from crucible_worker.rendering import check_input
from crucible_worker.rendering.answers import ended_by_stop, find_stops, resolved
from crucible_worker.rendering.prompts import stops_of

__all__ = ["RLTestSet"]


class RLTestSet(EnvironmentOptions, kind=KIND, keys=KEYS):
    """Runs the model in environments, a group of rollouts for each sample, and reports its rewards."""

    fallen: list[str] = dataclasses.field(default_factory=list, init=False)
    """With fail_fast, the samples that have failed; after one, no other sample begins. This only saves work: if it is
    not known, the other samples run, and the evaluator fails all the same."""
    stops: dict[str, Sequence[str]] = dataclasses.field(default_factory=dict, init=False)
    """The stop sequences of a renderer, once an answer needed them: the same for each sample."""

    @property
    def turns_kept(self) -> int | None:
        """See `evaluators.base.turns_kept`."""
        return self.num_groups_to_log

    @property
    def answering(self) -> Answering:
        """How the model is queried."""
        return Answering(sampling=self.sampling, renderer=self.renderer, thinking=self.thinking)

    @functools.cached_property
    def processes(self) -> EnvironmentProcesses | None:
        """The processes of an installed environment; None for problems of one turn, and for the caller's."""
        if self.environment == PROBLEMS or self.at_caller is not None:
            return None
        return self.environments.processes(self.environment)

    def check_sample(self, sample: Sample) -> None:
        """Refuse a sample that cannot be a problem; a user's environment decides itself about samples.

        Raises:
            InvalidField: names the conversation or the datum.
        """
        if self.environment == PROBLEMS:
            check_input(sample.input, self.renderer)
            check_question(self.judging, sample)

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Make the group of one sample; the score is the mean of its rollouts' total rewards.

        Raises:
            Cancelled: the evaluation has ended.
            BackendError: the processes of the environment cannot be started, or send invalid messages.
        """
        self.check(context.model)
        if self.fallen:
            raise BackendError(
                f"did not start: the sample {shorten(self.fallen[0], MAX_PROBLEM_BYTES)!r} has failed",
                reason=Reason.FAILED_FAST,
                retryable=True,
            )
        asker = Asker(model=context.model, answering=self.answering)
        if self.at_caller is not None:
            made = await self._played_at_caller(sample, context, asker)
        elif self.processes is None:
            made = await self._problem_solved(sample, context, asker)
        else:
            made = await self.processes.make(self._order(sample, context), asker)
        if made.fallen and self._fails_fast:
            self.fallen.append(sample.id)
        return made.outcome

    async def get_ready(self) -> None:
        """Load a user's environment; if that fails, its samples report it."""
        if self.processes is not None:
            await self.processes.get_ready()

    def close(self) -> None:
        """End the processes of a user's environment; does not wait."""
        if self.processes is not None:
            self.processes.close()

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """The keys `env/<tag>/...` over the successful groups, and `rollout_errors/...` if something failed.

        Raises:
            BackendError: with fail_fast, a sample has failed (reason ROLLOUT_FAILED).
            InvalidField: a key would occur twice, or there would be too many.
        """
        totals, uncounted = TrajectoryTotals(), set[str]()
        errors: collections.Counter[str] = collections.Counter()
        skipped, first = 0, ""
        for result in results:
            errors.update(errors_of(result))
            if result.group is None:
                skipped, first = skipped + 1, first or described(result)
            else:
                totals.add(result.group)
                uncounted.update(uncounted_turns(result))
        if skipped and self._fails_fast:
            raise BackendError(first, reason=Reason.ROLLOUT_FAILED, retryable=False)
        metrics = without_uncounted(totals.metrics(), uncounted)
        return Metrics({**metrics.values, **counts_of(errors, skipped)}, metrics.undefined)

    @property
    def _fails_fast(self) -> bool:
        return self.strategy is group.Strategy.FAIL_FAST

    async def _problem_solved(self, sample: Sample, context: SampleContext, asker: Asker) -> GroupReply:
        rules = RewardRules(
            grader=grader_for(self.judging, sample, context),
            format=self.format,
            format_coef=self.format_coef,
            stopped=self._stopped(sample, context.model) if self.require_stop_sequence_for_format else None,
        )
        problem = Problem(sample=sample, rules=rules, size=self.group_size, tag_by=self.tag_by)
        found = await group.run(
            lambda: problem, called_here, asker, self.tolerance, seed=context.seed, max_turns=self.max_turns
        )
        outcome = outcome_of(found, intermediates=self.intermediates, transcript=context.keeps_turns)
        return GroupReply(outcome=outcome, fallen=found.failure is not None)

    async def _played_at_caller(self, sample: Sample, context: SampleContext, asker: Asker) -> GroupReply:
        problem = CallerProblem(
            caller=caller_of(context),
            environment=self.at_caller or "",
            sample=sample,
            options=self.of_environment,
            size=self.group_size,
            seed=context.seed,
        )
        try:
            found = await group.run(
                lambda: problem, called_here, asker, self.tolerance, seed=context.seed, max_turns=self.max_turns
            )
        finally:
            problem.close()
        outcome = outcome_of(found, intermediates=self.intermediates, transcript=context.keeps_turns)
        return GroupReply(outcome=outcome, fallen=found.failure is not None)

    def _stopped(self, sample: Sample, model: Model) -> Callable[[Sequence[int]], Awaitable[bool]]:
        renderer, input = resolved(model, self.renderer), sample.input
        further = (*self.sampling.stop, *(() if isinstance(input, Datum) else stops_of(input)))

        async def stopped(tokens: Sequence[int]) -> bool:
            tokenizer = model.tokenizer
            if renderer not in self.stops:
                self.stops[renderer] = (await find_stops(tokenizer, renderer)).texts
            return await ended_by_stop(tokenizer, renderer, tokens, (*self.stops[renderer], *further))

        return stopped

    def _order(self, sample: Sample, context: SampleContext) -> GroupOrder:
        return GroupOrder(
            sample=sample,
            options=self.of_environment,
            size=self.group_size,
            tolerance=self.tolerance,
            seed=context.seed,
            max_turns=self.max_turns,
            intermediates=self.intermediates,
            transcript=context.keeps_turns,
        )
