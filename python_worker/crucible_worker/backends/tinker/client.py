"""The tinker library and its errors as ours: it is imported only here, by a thread, as that takes a while.

Its plain methods are used, which return futures; their variants with the suffix `_async` are deprecated. It has one
connection pool and one session per service, in a separate thread. Its telemetry and its logs are off: our errors have
its messages, without the key.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, cast

import numpy as np

# Read by the library when it is imported, and when it makes a session.
os.environ["TINKER_TELEMETRY"] = "0"
os.environ.pop("TINKER_LOG", None)

import re

import tinker
from tinker.lib.retry_handler import RetryConfig
from tinker.types import RequestErrorCategory
from tinker.types.topk_logprobs import TopkLogprobs

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition, InvalidField, clipped
from crucible_bridge.reasons import Reason
from crucible_bridge.types import SamplingParams
from crucible_worker.backends.distributions import NO_TOKEN, Measured, Wanted, ordered
from crucible_worker.backends.openai.failures import (
    MAX_REPEATED_CHARS,
    FailedRequest,
    Silence,
    final,
    garbage,
    of_connection,
    of_status,
)
from crucible_worker.backends.tinker.services import TinkerService
from crucible_worker.backends.tinker.tokenizer import TokenizerName

__all__ = ["Columns", "Sampled", "Sampler", "Service", "Trainer", "of_error", "told"]

# Maps an error of the tinker library to one of our errors, with the time of a retry.
#
# The library itself has retried for minutes before it raises a retryable error. A part of its text is repeated in ours,
# without the key; its text about a refused key is not.

_KEYS = re.compile(r"\b(?:tml-|eyJ)[\w.~+/=-]*")
"""Recognizes keys, and the tokens that the library exchanges them for, by their beginning."""

_TOO_LONG = re.compile(r"context.?(length|window|size)|prompt is too long|too many tokens|max(imum)? context", re.I)


def of_error(error: BaseException, service: str, model: str, key: str) -> BridgeError:
    """Our error for one of the library.

    Args:
        error: of the library.
        service: name of the service.
        model: its name there.
        key: must not appear in the error.
    """
    # A refusal during the fetch of an answer arrives as the cause of a ValueError.
    cause = error.__cause__
    if isinstance(error, ValueError) and isinstance(cause, tinker.APIError):
        error = cause
    where = f"Tinker service {service!r}"
    if isinstance(error, tinker.APIStatusError):
        response = error.response
        asked = FailedRequest(server=service, model=model, path=response.request.url.path, key=key)
        body = _KEYS.sub("[key]", response.text).encode("utf-8", "replace")
        return of_status(asked, response.status_code, response.headers, body)
    if isinstance(error, tinker.APITimeoutError):
        return BackendError(f"{where} sent nothing in time", reason=Reason.BACKEND_TIMEOUT)
    if isinstance(error, tinker.APIConnectionError):
        asked = FailedRequest(server=service, model=model, path="")
        return of_connection(asked, Silence.UNREACHABLE, type(error).__name__, stall_seconds=0.0)
    if isinstance(error, tinker.RequestFailedError):
        return _of_request(error, where, key)
    if isinstance(error, tinker.APIResponseValidationError):
        return garbage(service, "it does not follow its API")
    if isinstance(error, tinker.TinkerError):  # about its key: missing, expired, or of another kind
        return FailedPrecondition(
            f"{where} needs another kind of key: {told(str(error), key)}", reason=Reason.BACKEND_KEY
        )
    if isinstance(error, ValueError):
        return garbage(service, told(str(error), key))
    return BackendError(
        f"{where} failed: {type(error).__name__}: {told(str(error), key)}", reason=Reason.BACKEND_FAILED
    )


def told(text: str, key: str) -> str:
    """A foreign text, safe to repeat: on one line, not too long, without keys."""
    words = " ".join(_KEYS.sub("[key]", text.replace(key, "[key]")).encode("utf-8", "replace").decode().split())
    return words if len(words) <= MAX_REPEATED_CHARS else words[: MAX_REPEATED_CHARS - 1] + "…"


def _of_request(error: tinker.RequestFailedError, where: str, key: str) -> BridgeError:
    """Our error for a request that was accepted and failed later."""
    words = told(error.message, key)
    if error.category is not RequestErrorCategory.User:
        return BackendError(f"{where} failed: {words}", reason=Reason.BACKEND_FAILED)
    if _TOO_LONG.search(words):
        return InvalidField("prompt", f"is longer than {where} takes: {words}", reason=Reason.PROMPT_TOO_LONG)
    return final(f"{where} refuses this: {words}", Reason.BACKEND_REFUSED)


# It logs the answers of a service, which may contain prompts; its HTTP library logs every request.
logging.getLogger("tinker").setLevel(logging.CRITICAL)
logging.getLogger("httpx").setLevel(logging.WARNING)

_MAX_INT = (1 << 31) - 1
"""Token ids have 32 bits on the wire."""

_NO_LOGPROB = -99999.0
"""What the library writes beside a likeliest token that is not there."""

Columns = tuple[np.ndarray, np.ndarray]
"""Tokens, int32, and their log-probabilities, float64, both of shape (rows, k)."""

Sampled = tuple[tuple[int, ...], tuple[float, ...] | None, str, int | None, Columns | None]
"""Tokens, their log-probabilities, the stop reason ("stop" or "length"), the prompt's tokens from a cache, and the
likeliest tokens in place of each token, if they were requested."""


class Service:
    """A session at one service. Only the constructor blocks: call it in a thread.

    Args:
        service: its settings.
        key: its key.
        library: makes the library's client of address and key.
    """

    def __init__(self, service: TinkerService, key: str, library: Any = tinker.ServiceClient) -> None:
        self._name = service.name
        self._client = cast("tinker.ServiceClient", library(base_url=service.base_url, api_key=key))
        # The caller retries, within a budget; the library's own retries below this cannot be turned off.
        self._retries = RetryConfig(enable_retry_logic=False, progress_timeout=service.stall_seconds)
        _ = self._client.holder  # makes the session, and waits for it

    def sampler(self, *, model_path: str | None, base_model: str | None) -> Future[tinker.SamplingClient]:
        """Begin to make a client that samples."""
        making = self._client.create_sampling_client(
            model_path=model_path, base_model=base_model, retry_config=self._retries
        )
        return making.future()

    def sampling(self, client: tinker.SamplingClient) -> Sampler:
        """The client, with our types."""
        return Sampler(client, self._name)

    def trainer(self, state_path: str) -> Future[tinker.TrainingClient]:
        """Begin to load a training state, without its optimizer."""
        return self._client.create_training_client_from_state(state_path).future()

    def training(self, client: tinker.TrainingClient) -> Trainer:
        """The client, with our types."""
        return Trainer(client, self._name)

    def close(self) -> Future[None]:
        """Begin to finish the session, and what the service has for it."""
        return self._client.close("success").future()


class Sampler:
    """A sampling client with our types: requests begin at once, and answers are read without trust."""

    def __init__(self, client: tinker.SamplingClient, service: str) -> None:
        self._client = client
        self._service = service

    @property
    def tokenizer_name(self) -> TokenizerName:
        """Name of the tokenizer of its base model."""
        return TokenizerName(self._client.get_base_model())

    def sample(
        self, tokens: list[int], params: SamplingParams, num_samples: int, top: int = 0
    ) -> Future[tinker.SampleResponse]:
        """Begin to sample, with the `top` likeliest tokens in place of each."""
        told = tinker.SamplingParams(
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            top_p=params.top_p,
            top_k=-1 if params.top_k is None else params.top_k,
            seed=params.seed,
            # With an empty list, the end-of-sequence token would not end a sample.
            stop=list(params.stop) or None,
        )
        further: dict[str, Any] = {"topk_sample_logprobs": top} if top else {}
        return self._client.sample(tinker.ModelInput.from_ints(tokens), num_samples, told, **further).future()

    def compute_logprobs(self, tokens: list[int]) -> Future[list[float | None]]:
        """Begin to compute log-probabilities of a prompt."""
        return self._client.compute_logprobs(tinker.ModelInput.from_ints(tokens)).future()

    def compute_target_logprobs(
        self, tokens: list[int], targets: Sequence[tuple[int, int]]
    ) -> Future[tinker.SampleResponse]:
        """Begin to compute log-probabilities of targets at positions of a prompt; it also generates one token."""
        params = tinker.SamplingParams(max_tokens=1)
        wanted = _wanted(len(tokens) - 1, targets)
        prompt = tinker.ModelInput.from_ints(tokens)
        return self._client.sample(prompt, 1, params, target_prompt_logprobs=wanted).future()

    def compute_distributions(
        self, tokens: list[int], wanted: Wanted, targets: tinker.TensorData | None
    ) -> Future[tinker.SampleResponse]:
        """Begin to compute distributions at the last tokens of a prompt; the request also generates one token.

        Args:
            tokens: the prompt.
            wanted: what is wanted.
            targets: what `rows_of_targets` made of its targets.
        """
        further: dict[str, Any] = {}
        if wanted.last < len(tokens) - 1:
            further["prompt_logprobs_last_n"] = wanted.last
        if targets is not None:
            further["target_prompt_logprobs"] = targets
        if wanted.top_k:
            further["topk_prompt_logprobs"] = wanted.top_k
        prompt, params = tinker.ModelInput.from_ints(tokens), tinker.SamplingParams(max_tokens=1)
        return self._client.sample(prompt, 1, params, include_prompt_logprobs=True, **further).future()

    def rows_of_targets(self, count: int, targets: np.ndarray) -> tinker.TensorData | None:
        """Targets as a request for a prompt of `count` tokens has them; None if none is a token.

        Args:
            count: tokens of the prompt.
            targets: those at its last tokens, shape (last, m), int64; `NO_TOKEN` is none.
        """
        shape, before = (count - 1, targets.shape[1]), count - 1 - len(targets)
        rows, columns = (targets != NO_TOKEN).nonzero()
        if not rows.size:
            return None
        if count + 2 * rows.size >= math.prod(shape):
            ids = np.full(shape, NO_TOKEN, np.int64)
            ids[before:] = targets
            return _tensor(ids)
        starts = np.concatenate([[0], np.bincount(rows + before, minlength=count - 1).cumsum()])
        return tinker.TensorData(
            data=targets[rows, columns].tolist(),
            dtype="int64",
            shape=list(shape),
            sparse_crow_indices=starts.tolist(),
            sparse_col_indices=columns.tolist(),
        )

    def read_distributions(
        self, response: tinker.SampleResponse, count: int, wanted: Wanted, targets: tinker.TensorData | None
    ) -> Measured:
        """Distributions at the last tokens of a prompt of `count` tokens.

        Raises:
            FailedPrecondition: the service returned no likeliest tokens (NO_TOP_LOGPROBS), or no log-probabilities of
                targets (NO_TARGET_LOGPROBS).
            BackendError: they do not fit the request (BACKEND_ANSWER).
        """
        own = np.array([np.nan if value is None else value for value in response.prompt_logprobs or ()])
        if own.size != count or np.isnan(own[-wanted.last :]).any():
            raise garbage(self._service, f"no log-probabilities of the last {wanted.last:,} tokens of a prompt")
        columns = (None, None)
        if wanted.top_k:
            told = response.topk_prompt_logprobs_np
            if told is None:
                raise self._lacks("likeliest tokens of a prompt", Reason.NO_TOP_LOGPROBS)
            if len(told.token_ids) != count:
                raise garbage(self._service, f"likeliest tokens that do not fit a prompt of {count:,} tokens")
            columns = self._read_columns(told, slice(count - wanted.last, count), wanted.top_k)
        return Measured(
            logprobs=own[-wanted.last :],
            top_tokens=columns[0],
            top_logprobs=columns[1],
            target_logprobs=None
            if wanted.targets is None
            else self._read_target_rows(response.target_prompt_logprobs, wanted.targets, targets),
        )

    def _read_target_rows(
        self, answer: tinker.TensorData | None, targets: np.ndarray, asked: tinker.TensorData | None
    ) -> np.ndarray:
        """Log-probabilities of targets, float64 of their shape."""
        values = np.full(targets.shape, np.nan)
        if asked is None:
            return values
        if answer is None:
            raise self._lacks("log-probabilities of tokens that are not the prompt's", Reason.NO_TARGET_LOGPROBS)
        layout = (asked.shape, asked.sparse_crow_indices, asked.sparse_col_indices)
        if (answer.shape, answer.sparse_crow_indices, answer.sparse_col_indices) != layout or (
            answer.dtype != "float32" or len(answer.data) != len(asked.data)
        ):
            raise garbage(self._service, "log-probabilities of other targets than the requested ones")
        given, found = targets != NO_TOKEN, np.array(answer.data, np.float64)
        values[given] = found if asked.sparse_crow_indices is not None else found[-targets.size :][given.ravel()]
        return values

    def _read_columns(self, told: TopkLogprobs, rows: slice, width: int) -> Columns:
        """The likeliest tokens of some rows, by falling log-probability.

        Raises:
            BackendError: they are invalid, or a row has none (BACKEND_ANSWER).
        """
        tokens, logprobs = told.token_ids[rows], told.logprobs[rows]
        if tokens.ndim != 2 or tokens.shape != logprobs.shape or tokens.shape[1] > width or (tokens < 0).any():
            raise garbage(self._service, "invalid likeliest tokens")
        absent = logprobs <= _NO_LOGPROB
        if absent.all(axis=1).any() or np.isnan(logprobs).any():
            raise garbage(self._service, "a token without likeliest ones in its place")
        return ordered(np.where(absent, NO_TOKEN, tokens), np.where(absent, -np.inf, logprobs))

    def _lacks(self, what: str, reason: Reason) -> FailedPrecondition:
        return FailedPrecondition(f"Tinker service {self._service!r} returns no {what}", reason=reason)

    def compute_argmax(self, tokens: list[int]) -> Future[tinker.SampleResponse]:
        """Begin to compute the likeliest token at each position; the request also generates one token."""
        params = tinker.SamplingParams(max_tokens=1)
        prompt = tinker.ModelInput.from_ints(tokens)
        return self._client.sample(prompt, 1, params, include_prompt_logprobs=True, topk_prompt_logprobs=1).future()

    def read_argmax(self, response: tinker.SampleResponse, count: int) -> tuple[int | None, ...] | None:
        """The likeliest tokens in a prompt of `count` tokens; None if the service returned none at all.

        Raises:
            BackendError: they do not fit the request (BACKEND_ANSWER).
        """
        answer = response.topk_prompt_logprobs
        if answer is None:
            return None
        if len(answer) != count or not all(answer[1:]):
            raise garbage(self._service, f"no likeliest token at each position of a prompt of {count:,} tokens")
        tokens = [top[0][0] for top in answer[1:] if top]
        if not all(0 <= token <= _MAX_INT for token in tokens):
            raise garbage(self._service, "invalid token ids")
        return (None, *tokens)

    def read_targets(
        self, response: tinker.SampleResponse, count: int, targets: Sequence[tuple[int, int]]
    ) -> tuple[float, ...] | None:
        """Log-probabilities of the targets in a prompt of `count` tokens; None if the service returned none at all.

        Raises:
            BackendError: they do not fit the request (BACKEND_ANSWER).
        """
        answer = response.target_prompt_logprobs
        if answer is None:
            return None
        asked = _wanted(count - 1, targets)
        if asked.shape is None or answer.shape != asked.shape or answer.dtype != "float32":
            found = f"{answer.dtype} of shape {answer.shape}"
            raise garbage(self._service, f"log-probabilities of targets that are {found} in place of {asked.shape}")
        values, cells = answer.data, _cells(targets)
        if answer.sparse_crow_indices is None:
            columns = asked.shape[1]
            return tuple(float(values[row * columns + column]) for row, column in cells)
        layout = (answer.sparse_crow_indices, answer.sparse_col_indices)
        if layout != _layout(count - 1, cells) or len(values) != len(cells):
            raise garbage(self._service, "other targets than the requested ones")
        listed = {cell: float(value) for cell, value in zip(sorted(cells), values, strict=True)}
        return tuple(listed[cell] for cell in cells)

    def read_samples(self, response: tinker.SampleResponse, num_samples: int, top: int = 0) -> list[Sampled]:
        """The samples of a response.

        Raises:
            FailedPrecondition: the `top` likeliest tokens are wanted, and there are none (NO_TOP_LOGPROBS).
            BackendError: the response is invalid (BACKEND_ANSWER).
        """
        if len(response.sequences) != num_samples:
            raise garbage(self._service, f"{len(response.sequences)} samples, {num_samples} were requested")
        # The library has 0 where the service reports none.
        cached = response.prompt_cache_hit_tokens or None
        return [self._read_sample(sequence, cached, top) for sequence in response.sequences]

    def read_logprobs(self, values: list[float | None] | None, count: int) -> tuple[float | None, ...]:
        """Log-probabilities of a prompt of `count` tokens.

        Raises:
            BackendError: their number is wrong (BACKEND_ANSWER).
        """
        if values is None or len(values) != count:
            got = "no log-probabilities" if values is None else f"{len(values):,} log-probabilities"
            raise garbage(self._service, f"{got} for a prompt of {count:,} tokens")
        return (None, *values[1:])

    def _read_sample(self, sequence: tinker.SampledSequence, cached: int | None, top: int) -> Sampled:
        tokens = sequence.tokens
        if not all(isinstance(token, int) and 0 <= token <= _MAX_INT for token in tokens):
            raise garbage(self._service, "invalid token ids")
        logprobs = sequence.logprobs
        if logprobs is not None and len(logprobs) != len(tokens):
            raise garbage(self._service, f"{len(logprobs):,} log-probabilities for {len(tokens):,} tokens")
        if sequence.stop_reason not in ("stop", "length"):
            raise garbage(self._service, f"a sample with the stop reason {clipped(str(sequence.stop_reason))}")
        columns = None
        if top:
            told = sequence.topk_logprobs_np
            if told is None:
                raise self._lacks("likeliest tokens of a sample", Reason.NO_TOP_LOGPROBS)
            if len(told.token_ids) != len(tokens):
                raise garbage(self._service, f"likeliest tokens that do not fit {len(tokens):,} generated ones")
            columns = self._read_columns(told, slice(len(tokens)), top)
        return tuple(tokens), None if logprobs is None else tuple(logprobs), sequence.stop_reason, cached, columns


class Trainer:
    """A training client with our types: it is only used for forward passes, which change nothing."""

    def __init__(self, client: tinker.TrainingClient, service: str) -> None:
        self._client = client
        self._service = service

    @property
    def tokenizer_name(self) -> TokenizerName:
        """Name of the tokenizer of its base model."""
        data = self._client.get_info().model_data
        return TokenizerName(data.model_name or "", data.tokenizer_id)

    def forward(self, pairs: list[tuple[np.ndarray, np.ndarray]]) -> Future[tinker.ForwardBackwardOutput]:
        """Begin a forward pass over pairs of input and targets, int64 and of one shape."""
        data = [
            tinker.Datum(
                model_input=tinker.ModelInput.from_ints(tokens.tolist()),
                # The loss is not read, so any weights will do; with these, no target is left out.
                loss_fn_inputs={"target_tokens": _tensor(targets), "weights": _tensor(np.ones(targets.size, "f4"))},
            )
            for tokens, targets in pairs
        ]
        return self._client.forward(data, "cross_entropy").future()

    def read_logprobs(self, output: tinker.ForwardBackwardOutput, lengths: list[int]) -> tuple[np.ndarray, ...]:
        """Log-probabilities of the targets, float32, one array per datum.

        Raises:
            BackendError: their number or lengths do not fit the request (BACKEND_ANSWER).
        """
        answers = [datum["logprobs"].to_numpy() for datum in output.loss_fn_outputs if "logprobs" in datum]
        if [answer.shape for answer in answers] != [(length,) for length in lengths]:
            shapes = ", ".join(str(answer.shape) for answer in answers[:3]) or "none"
            raise self._nonsense(f"log-probabilities of shapes {shapes} for {len(lengths):,} data")
        return tuple(answers)

    def _nonsense(self, what: str) -> BackendError:
        return garbage(self._service, what)


def _cells(targets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Row and column of each target: the row before its position, and the next free column of it."""
    taken: dict[int, int] = {}
    cells: list[tuple[int, int]] = []
    for place, _ in targets:
        taken[place] = taken.get(place, 0) + 1
        cells.append((place - 1, taken[place] - 1))
    return cells


def _layout(rows: int, cells: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """CSR indices of a matrix of these cells: where its rows begin among its values, and the columns of the values."""
    counts = np.bincount([row for row, _ in cells], minlength=rows)
    return [0, *np.cumsum(counts).tolist()], [column for _, column in sorted(cells)]


def _wanted(rows: int, targets: Sequence[tuple[int, int]]) -> tinker.TensorData:
    """Targets as a matrix of token ids with -1 elsewhere; sparse if that is less to send."""
    cells = _cells(targets)
    columns = 1 + max(column for _, column in cells)
    ids = {cell: token for cell, (_, token) in zip(cells, targets, strict=True)}
    if rows + 1 + 2 * len(cells) < rows * columns:
        starts, places = _layout(rows, cells)
        return tinker.TensorData(
            data=[ids[cell] for cell in sorted(cells)],
            dtype="int64",
            shape=[rows, columns],
            sparse_crow_indices=starts,
            sparse_col_indices=places,
        )
    dense = np.full((rows, columns), -1, np.int64)
    for cell, token in ids.items():
        dense[cell] = token
    return _tensor(dense)


def _tensor(array: np.ndarray) -> tinker.TensorData:
    return tinker.TensorData.from_numpy(array)
