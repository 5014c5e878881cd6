"""The likeliest tokens in place of each token of a sequence, and given ones, beside the sequence's own.

Each sequence is measured by a pass of its own, as `scoring` does without related ones: the answer is the same in every
call.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

from crucible_bridge.errors import BackendError
from crucible_bridge.reasons import Reason
from crucible_worker.backends.distributions import NO_TOKEN
from crucible_worker.backends.local.arrays import floats_to_bytes, tokens_from_bytes, tokens_to_bytes
from crucible_worker.backends.local.host.loading import LoadedModel
from crucible_worker.backends.local.host.scoring import POSITIONS_AT_ONCE, logits_of

__all__ = ["TokenDistributions", "likeliest"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TokenDistributions:
    """What one pass measures after the last tokens of a sequence."""

    tokens: np.ndarray
    """Shape (n,), int64: the tokens that are read."""
    own: np.ndarray
    """Shape (rows,), int64: the tokens that follow the last ones that are read."""
    top_k: int
    """Number of the likeliest tokens in place of each; may be 0."""
    targets: np.ndarray
    """Shape (rows, m), int64: further tokens in place of each; `NO_TOKEN` is none."""

    @classmethod
    def of(cls, message: dict[str, Any]) -> TokenDistributions:
        """As the worker requests them."""
        own = tokens_from_bytes(message["own"])
        targets = tokens_from_bytes(message["targets"]).reshape(own.size, -1)
        return cls(tokens_from_bytes(message["tokens"]), own, message["top_k"], targets)

    @property
    def sizes(self) -> tuple[int]:
        """Number of measured tokens."""
        return (self.own.size,)

    @property
    def positions(self) -> int:
        """Number of tokens that are read."""
        return self.tokens.size

    def measured(self, loaded: LoadedModel) -> list[dict[str, Any]]:
        """Compute them by one pass.

        Returns:
            One map: `logprobs`, shape (rows,), `targets`, shape (rows, m), and `top_logprobs`, shape (rows, k), nats,
            float64, of logits normalized in float64; `top_tokens`, int64, by falling log-probability and then by id.

        Raises:
            BackendError: logits are no distribution (LOGITS_NOT_FINITE).
        """
        rows = self.own.size
        logits = logits_of(loaded, self.tokens[None], keep=rows)[0, -rows:]
        wanted = torch.tensor(np.column_stack([self.own, self.targets]), device=logits.device)
        values: list[np.ndarray] = []
        tokens: list[np.ndarray] = []
        tops: list[np.ndarray] = []
        for start in range(0, rows, POSITIONS_AT_ONCE):
            part = slice(start, start + POSITIONS_AT_ONCE)
            distribution = logits[part].double()
            normalizer = distribution.logsumexp(1, keepdim=True)
            if not normalizer.isfinite().all():
                raise BackendError(
                    "the model's logits are not finite", reason=Reason.LOGITS_NOT_FINITE, retryable=False
                )
            values.append((distribution.gather(1, wanted[part].clamp(min=0)) - normalizer).cpu().numpy())
            if self.top_k:
                # Logits beyond the vocabulary are padding.
                best, found = likeliest(distribution[:, : loaded.vocabulary], self.top_k)
                tokens.append(found.cpu().numpy())
                tops.append((best - normalizer).cpu().numpy())
        columns = np.concatenate(values)
        columns[:, 1:][self.targets == NO_TOKEN] = np.nan
        return [
            {
                "logprobs": floats_to_bytes(columns[:, 0]),
                "targets": floats_to_bytes(columns[:, 1:]),
                "top_tokens": tokens_to_bytes(np.concatenate(tokens)) if tokens else b"",
                "top_logprobs": floats_to_bytes(np.concatenate(tops)) if tops else b"",
            }
        ]


def likeliest(logits: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The greatest logits of each row, and their tokens, in falling order; among equal ones the lowest ids come first.

    Args:
        logits: shape (rows, vocabulary), without NaN.
        count: number of tokens; as many as there are, if there are fewer.
    """
    count = min(count, logits.shape[1])
    least = logits.topk(count).values[:, -1:]
    # topk takes any of several equal logits, and types of few bits have many: the lowest ids are taken here.
    above, equal = logits > least, logits == least
    free = count - above.sum(1, keepdim=True)
    taken = above | (equal & (equal.cumsum(1) <= free))
    tokens = taken.nonzero()[:, 1].reshape(-1, count)
    values, order = logits.gather(1, tokens).sort(dim=1, descending=True, stable=True)
    return values, tokens.gather(1, order)
