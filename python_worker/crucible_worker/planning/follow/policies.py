"""Which of the checkpoints that are whole are evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crucible_bridge.types import FollowPolicy
from crucible_worker.planning.follow.checkpoints import Checkpoint

__all__ = ["chosen"]


def chosen(
    policy: FollowPolicy, every: int, new: Sequence[Checkpoint], *, before: int, latest: int | None
) -> Iterator[tuple[Checkpoint, str]]:
    """Each new checkpoint with the reason to skip it; an empty reason if it is evaluated.

    Args:
        policy: the policy.
        every: of the policy EVERY: checkpoints for each evaluated one.
        new: checkpoints that were not seen before, by step.
        before: how many were seen before.
        latest: the latest step that was taken before; None if none was.
    """
    newest = max((checkpoint.step for checkpoint in new), default=0)
    for index, checkpoint in enumerate(new, before):
        reason = ""
        if policy is FollowPolicy.EVERY and index % every:
            reason = f"the policy evaluates one of {every} checkpoints"
        elif policy is FollowPolicy.LATEST and checkpoint is not new[-1]:
            reason = f"the policy evaluates the latest checkpoint, and there is one of step {newest}"
        elif policy is FollowPolicy.LATEST and latest is not None and checkpoint.step < latest:
            reason = f"the policy evaluates the latest checkpoint, and one of step {latest} was found before"
        yield checkpoint, reason
