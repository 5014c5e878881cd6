"""What is longer than a model's context, in windows that fit: every token is measured once.

The windows are those of lm-evaluation-harness's rolling log-likelihoods with one token of context: the first holds as
many tokens as fit, each later one goes on with the last token before it. The last window, which is shorter as a rule,
reaches back as far as fits: what it measures has more before it, never less.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from crucible_bridge.types import Datum, ModelInput

__all__ = ["Window", "windows_of"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A part of a datum, by the places of its targets."""

    start: int
    """Where its input begins."""
    first: int
    """The first target that is measured in it."""
    end: int
    """Behind the last one."""

    def cut(self, datum: Datum, targets: np.ndarray, weights: np.ndarray) -> Datum:
        """A datum's part: input, `target_tokens` and `weights`, 0 for what another window measures.

        Args:
            datum: what is cut; returned as it is where the window holds all of it.
            targets: its `target_tokens`, shape (n,).
            weights: its `weights`, shape (n,).

        Raises:
            InvalidField: the datum holds an image, and is to be cut.
        """
        if self.first == 0 and self.end == targets.size:
            return datum
        part = slice(self.start, self.end)
        own = weights[part].copy()
        own[: self.first - self.start] = 0
        return Datum(
            model_input=ModelInput.of(datum.model_input.tokens()[part]),
            loss_fn_inputs={"target_tokens": targets[part], "weights": own},
        )

    def measured(self, values: np.ndarray) -> np.ndarray:
        """Of values for each target of the part, those that are measured in it."""
        return values[self.first - self.start :]


def windows_of(count: int, size: int | None) -> list[Window]:
    """The windows in which so many targets are measured, in order: together they measure each of them once.

    Args:
        count: targets, at least one.
        size: targets that fit into a window; one window holds all where this is None, or below 1.
    """
    if size is None or size < 1 or count <= size:
        return [Window(start=0, first=0, end=count)]
    ends = [*range(size, count, size), count]
    return [Window(start=end - size, first=first, end=end) for first, end in zip([0, *ends], ends)]
