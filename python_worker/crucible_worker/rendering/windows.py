"""Windows that fit into a model's context, for longer texts: every token is measured once.

The windows are those of lm-evaluation-harness's rolling log-likelihoods with one token of context: the first holds as
many tokens as fit, each later one starts with the last token of the previous one. The last window has usually fewer
tokens to measure, and reaches back as far as fits: these tokens have more context, never less.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from crucible_bridge.types import Datum, ModelInput

__all__ = ["Window", "windows_of"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A part of a datum, by indices of its targets."""

    start: int
    """The index where its input begins."""
    first: int
    """The index of the first target that is measured in it."""
    end: int
    """The index after the last one."""

    def cut(self, datum: Datum, targets: np.ndarray, weights: np.ndarray) -> Datum:
        """A part of a datum: input, `target_tokens` and `weights`, which are 0 for tokens of other windows.

        Args:
            datum: the whole datum; returned unchanged if the window covers all of it.
            targets: its `target_tokens`, shape (n,).
            weights: its `weights`, shape (n,).

        Raises:
            InvalidField: the datum contains an image, and has to be split.
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
        """The values of the targets that are measured in this window, from those of all its targets."""
        return values[self.first - self.start :]


def windows_of(count: int, size: int | None) -> list[Window]:
    """The windows in which so many targets are measured, in order: together they measure each of them once.

    Args:
        count: targets, at least one.
        size: targets that fit into a window; one window has all if this is None, or below 1.
    """
    if size is None or size < 1 or count <= size:
        return [Window(start=0, first=0, end=count)]
    ends = [*range(size, count, size), count]
    return [Window(start=end - size, first=first, end=end) for first, end in zip([0, *ends], ends)]
