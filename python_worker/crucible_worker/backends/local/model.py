"""An open model: its sampling, its forward passes and its tokenizer, all of them calls to the host.

Input is checked here, where the field's path is known; the host gets only input that its model supports.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import math
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import structlog

from crucible_bridge.errors import BridgeError, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Conversation, Datum, ModelInput, Replica, SampledSequence, SamplingParams
from crucible_worker.backends.balancer import Balancer, NoReplicaLeft
from crucible_worker.backends.base import Capability, Model, check_sampling, too_long
from crucible_worker.backends.distributions import NO_TOKEN, Measured, Wanted
from crucible_worker.backends.local.checkpoint import Checkpoint, CheckpointIdentity, Fingerprints, changed
from crucible_worker.backends.local.process import HostProcess
from crucible_worker.backends.local.protocol import floats_from_bytes, tokens_from_bytes, tokens_to_bytes
from crucible_worker.backends.local.tokenizer import HostedTokenizer
from crucible_worker.util.fingerprints import is_full

__all__ = ["Facts", "HostedModel", "HostedModels", "ModelCalls", "ReplicatedModels", "replica_names"]


_MANY_TARGETS = 100_000
"""More take longer to check than the event loop should wait."""

_Key = tuple[str, str | None, str | None]
"""Key, default type and device of an open model."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the host reports about a model that it has opened."""

    key: str
    """The host's name for it: one checkpoint in two types or on two devices makes two models."""
    context: int | None
    """Context length in tokens; None if the model names no limit."""
    vocabulary: int
    """Size of the vocabulary: token ids are below this."""
    bos: int | None
    """The token that begins a text."""
    eos: int | None
    """The end-of-sequence token."""
    has_tokenizer: bool
    """Whether there is a tokenizer next to the weights."""
    has_chat_template: bool
    """Whether it has a chat template."""
    tool_form: str = ""
    """The form in which it writes calls of tools; empty without a template."""
    tokens: int | None = None
    """Number of tokens of its tokenizer, which may have fewer than the weights; None without one."""


class ModelCalls(Protocol):
    """Calls to a model, on one device or on one of several."""

    async def call(self, op: str, checkpoint: Checkpoint, identity: CheckpointIdentity, **fields: Any) -> Any:
        """Call a model, which is opened again if necessary."""

    async def ensure(self, checkpoint: Checkpoint, identity: CheckpointIdentity) -> Facts:
        """Make sure that a model is loaded, and return its facts."""
        ...

    async def full_fingerprint(self, checkpoint: Checkpoint, identity: CheckpointIdentity) -> str | None:
        """The digest of every byte of a checkpoint; see `Fingerprints.full`."""
        ...


class HostedModels:
    """The models in the host: opens them, and opens them again after the host died or evicted them.

    Args:
        host: the process.
        fingerprints: of checkpoints, shared with other hosts; its own if None.
    """

    def __init__(self, host: HostProcess, fingerprints: Fingerprints | None = None) -> None:
        self.host = host
        self._fingerprints = fingerprints or Fingerprints()
        self._open: dict[_Key, Facts] = {}
        self._opening: weakref.WeakValueDictionary[_Key, asyncio.Lock] = weakref.WeakValueDictionary()
        self._life = 0

    async def open(self, checkpoint: Checkpoint) -> HostedModel:
        """The model of the checkpoint's present files; the host is not called before its `load`.

        Raises:
            NotFound: a directory no longer exists.
        """
        return HostedModel(models=self, checkpoint=checkpoint, identity=await self.identify(checkpoint))

    async def identify(self, checkpoint: Checkpoint) -> CheckpointIdentity:
        """The identity of the checkpoint's present files; raises as `Fingerprints.identify`."""
        return await asyncio.to_thread(self._fingerprints.identify, checkpoint)

    async def full_fingerprint(self, checkpoint: Checkpoint, identity: CheckpointIdentity) -> str | None:
        """The digest of every byte of a checkpoint; see `Fingerprints.full`."""
        return await self._fingerprints.full(checkpoint, identity.key)

    async def call(self, op: str, checkpoint: Checkpoint, identity: CheckpointIdentity, **fields: Any) -> Any:
        """Call a model, which is opened again if necessary."""
        while True:
            facts = await self.ensure(checkpoint, identity)
            try:
                return await self.host.call(op, model=facts.key, **fields)
            except BridgeError as error:
                if error.reason != Reason.MODEL_NOT_OPEN:
                    raise
            self._open.pop(_key(checkpoint, identity), None)

    async def ensure(self, checkpoint: Checkpoint, identity: CheckpointIdentity) -> Facts:
        """Make sure that the host has a model, and return its facts.

        Raises:
            FailedPrecondition: the files cannot be loaded, or are no longer those that were opened
                (CHECKPOINT_CHANGED); this machine has no such device (DEVICE_NOT_FOUND).
            BackendError: the host failed.
        """
        key = _key(checkpoint, identity)
        if (facts := self._known_facts(key)) is not None:
            return facts
        # Evaluations of one model usually begin together: the host loads it once for all of them.
        async with self._opening.setdefault(key, asyncio.Lock()):
            return self._known_facts(key) or await self._ask_for(checkpoint, identity)

    def _known_facts(self, key: _Key) -> Facts | None:
        """The facts of a model that the present host process has; None if it has not."""
        if self._life != self.host.life:
            self._open.clear()
        return self._open.get(key)

    async def _ask_for(self, checkpoint: Checkpoint, identity: CheckpointIdentity) -> Facts:
        answer = await self.host.call(
            "open",
            key=identity.key,
            path=str(checkpoint.directory),
            adapter=None if checkpoint.adapter is None else str(checkpoint.adapter),
            dtype=checkpoint.dtype or checkpoint.default_dtype,
            device=checkpoint.device,
        )
        facts = Facts(**answer)
        # Checked after the loading: a checkpoint that was replaced meanwhile must not count as the requested one.
        if not identity.continues(await self.identify(checkpoint)):
            await self.host.call("close", model=facts.key)
            raise changed(checkpoint)
        self._life = self.host.life
        self._open[_key(checkpoint, identity)] = facts
        return facts


def _key(checkpoint: Checkpoint, identity: CheckpointIdentity) -> _Key:
    return identity.key, checkpoint.default_dtype, checkpoint.device


class HostedModel(Model):
    """A model in the host, bound to the files of its checkpoint: if one changes, it is not loaded again."""

    def __init__(self, *, models: ModelCalls, checkpoint: Checkpoint, identity: CheckpointIdentity) -> None:
        self._models = models
        self._checkpoint = checkpoint
        self._identity = identity
        self.fingerprint = identity.fingerprint
        """Digest of the checkpoint's files, see `checkpoint.py`."""
        self._facts: Facts | None = None

    async def load(self) -> None:
        """Load it in the host: starting the host takes seconds, a large checkpoint minutes.

        Raises:
            FailedPrecondition: the files cannot be loaded, or have changed since the model was opened.
            BackendError: the host failed.
        """
        await self._known()

    async def full_fingerprint(self) -> str:
        """The fingerprint with a digest of every byte, if the files can still be read; this may take minutes."""
        if is_full(self.fingerprint):
            return self.fingerprint
        full = await self._models.full_fingerprint(self._checkpoint, self._identity)
        return self.fingerprint if full is None else f"{self.fingerprint},{full}"

    async def sample(
        self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1
    ) -> tuple[SampledSequence, ...]:
        """Generate continuations, batched with other requests of the same time.

        Greedy sampling yields the same tokens in any batch, up to ties that the rounding of another batch shape may
        break. If the context is full, a sample ends with stop_reason "length".

        Raises:
            InvalidField: the prompt is empty, has unknown tokens or leaves no room for one more token
                (reason PROMPT_TOO_LONG); the parameters are out of range.
        """
        return await self._sample(prompt, params, num_samples, top=0)

    async def sample_with_top(
        self, input: ModelInput | str | Conversation, params: SamplingParams, num_samples: int, top: int
    ) -> tuple[SampledSequence, ...]:
        """As `sample`, of tokens, with the likeliest tokens in place of each generated one."""
        if not isinstance(input, ModelInput):
            self._refuse(Capability.SAMPLE_TEXT)
        return await self._sample(input, params, num_samples, top=top)

    async def _sample(
        self, prompt: ModelInput, params: SamplingParams, num_samples: int, *, top: int
    ) -> tuple[SampledSequence, ...]:
        check_sampling(params, num_samples)
        facts = await self._known()
        if params.stop and not facts.has_tokenizer:
            raise InvalidField("sampling.stop", "cannot be used: the model has no tokenizer")
        tokens = _checked(facts, prompt, "prompt", room=1)
        room = params.max_tokens if facts.context is None else facts.context - len(tokens)
        sequences = await self.call(
            "sample",
            prompt=tokens_to_bytes(tokens),
            max_tokens=min(params.max_tokens, room),
            temperature=float(params.temperature),
            top_p=float(params.top_p),
            top_k=params.top_k,
            # Seeds have 64 bits in the host; any integer is reduced to them.
            seed=None if params.seed is None else params.seed % (1 << 64),
            stop=[stop for stop in params.stop if stop],
            num_samples=num_samples,
            top=top,
        )
        return tuple(
            SampledSequence(
                text=sequence["text"],
                tokens=tuple(sequence["tokens"]),
                logprobs=tuple(sequence["logprobs"]),
                stop_reason=sequence["stop_reason"],
                top_tokens=columns[0],
                top_logprobs=columns[1],
            )
            for sequence in sequences
            for columns in (_top_columns(sequence, len(sequence["tokens"]), top),)
        )

    async def compute_logprobs(self, prompt: ModelInput) -> tuple[float | None, ...]:
        """Log-probability of every token given those before it, nats; the first is None. Bit-equal on every call.

        Raises:
            InvalidField: the prompt is empty, has unknown tokens, or is longer than the context.
        """
        tokens = _checked(await self._known(), prompt, "prompt", room=0)
        (logprobs,) = await self._score([(tokens[:-1], tokens[1:])])
        return (None, *logprobs.tolist())

    async def compute_continuation_logprobs(
        self, prompt: ModelInput, continuations: Sequence[Sequence[int]]
    ) -> tuple[np.ndarray, ...]:
        """Log-probabilities of each continuation's tokens after a prompt, nats, float64. Bit-equal on every call.

        The prompt is read once for all continuations.

        Raises:
            InvalidField: the prompt or a continuation is empty, has unknown tokens, or together they are longer than
                the context; there is no continuation.
        """
        facts = await self._known()
        tokens = _checked(facts, prompt, "prompt", room=0)
        given = [np.array(continuation, np.int64) for continuation in continuations]
        if not given:
            raise InvalidField("continuations", "is empty")
        for index, continuation in enumerate(given):
            _check_continuation(facts, tokens, continuation, f"continuations[{index}]")
        packed = [tokens_to_bytes(continuation) for continuation in given]
        found = await self.call("continue", prompt=tokens_to_bytes(tokens), continuations=packed)
        return tuple(map(floats_from_bytes, found))

    async def compute_argmax(self, prompt: ModelInput) -> tuple[int | None, ...]:
        """Likeliest token at every position of a prompt given those before it; the first is None. Equal on every call.

        Among equally likely tokens, it is the one with the lowest id.

        Raises:
            InvalidField: the prompt is empty, has unknown tokens, or is longer than the context.
            BackendError: the model's logits are not finite (LOGITS_NOT_FINITE).
        """
        tokens = _checked(await self._known(), prompt, "prompt", room=0)
        (likeliest,) = await self.call("greedy", items=[tokens_to_bytes(tokens[:-1])])
        return (None, *tokens_from_bytes(likeliest).tolist())

    async def compute_distributions(self, prompt: ModelInput, wanted: Wanted) -> Measured:
        """The distributions at the last tokens of a prompt. Bit-equal on every call with as many measured tokens.

        Raises:
            InvalidField: the prompt has unknown tokens, or is longer than the context; a target is no token.
            BackendError: the model's logits are not finite (LOGITS_NOT_FINITE).
        """
        facts = await self._known()
        tokens = _checked(facts, prompt, "prompt", room=0)
        rows = wanted.last
        targets = np.empty((rows, 0), np.int64) if wanted.targets is None else wanted.targets

        def packed() -> bytes:
            _check_known(facts, targets, "targets", but=NO_TOKEN)
            return tokens_to_bytes(targets)

        given = await asyncio.to_thread(packed) if targets.size > _MANY_TARGETS else packed()
        (found,) = await self.call(
            "distributions",
            tokens=tokens_to_bytes(tokens[:-1]),
            own=tokens_to_bytes(tokens[-rows:]),
            top_k=wanted.top_k,
            targets=given,
        )
        columns = _top_columns(found, rows, wanted.top_k)
        return Measured(
            logprobs=floats_from_bytes(found["logprobs"]),
            target_logprobs=None
            if wanted.targets is None
            else floats_from_bytes(found["targets"]).reshape(targets.shape),
            top_tokens=columns[0],
            top_logprobs=columns[1],
        )

    async def forward(self, data: Sequence[Datum]) -> tuple[np.ndarray, ...]:
        """Log-probabilities of `target_tokens`, float64, one array per datum. Bit-equal on every call.

        Raises:
            InvalidField: names the datum: lengths differ, tokens are unknown, the input is longer than the context.
        """
        return await self._forward(data, together=False)

    async def forward_parts(self, data: Sequence[Datum]) -> tuple[np.ndarray, ...]:
        """As `forward`, but consecutive data are computed together. Bit-equal on every such call.

        Raises:
            InvalidField: as of `forward`.
        """
        return await self._forward(data, together=True)

    async def _forward(self, data: Sequence[Datum], *, together: bool) -> tuple[np.ndarray, ...]:
        facts = await self._known()
        pairs: list[tuple[np.ndarray, np.ndarray]] = []
        for index, datum in enumerate(data):
            field = f"data[{index}]"
            tokens = _checked(facts, datum.model_input, f"{field}.model_input", room=0)
            targets = _checked_targets(facts, datum, tokens, f'{field}.loss_fn_inputs["target_tokens"]')
            pairs.append((tokens, targets))
        return await self._score(pairs, together=together) if pairs else ()

    async def call(self, op: str, **fields: Any) -> Any:
        """Call the host for this model."""
        return await self._models.call(op, self._checkpoint, self._identity, **fields)

    async def _score(
        self, pairs: Sequence[tuple[np.ndarray, np.ndarray]], *, together: bool = False
    ) -> tuple[np.ndarray, ...]:
        items = [(tokens_to_bytes(tokens), tokens_to_bytes(targets)) for tokens, targets in pairs]
        return tuple(floats_from_bytes(values) for values in await self.call("score", items=items, together=together))

    async def _known(self) -> Facts:
        facts = self._facts
        if facts is None:
            facts = await self._models.ensure(self._checkpoint, self._identity)
            self._facts, self.context_length = facts, facts.context
            if facts.has_tokenizer:
                self.tokenizer = HostedTokenizer(
                    call=self.call,
                    bos_token_id=facts.bos,
                    eos_token_id=facts.eos,
                    has_chat_template=facts.has_chat_template,
                    tool_form=facts.tool_form,
                    vocabulary=facts.tokens,
                    target_delimiter=self._checkpoint.target_delimiter,
                )
        return facts


def _checked(facts: Facts, model_input: ModelInput, field: str, *, room: int) -> np.ndarray:
    """The input's tokens; refuses unknown ones, and an input that leaves no `room` in the context."""
    try:
        tokens = model_input.tokens()
    except InvalidField as error:  # an image; the error has only the path within the input
        raise InvalidField(error.field.replace("model_input", field, 1), error.message) from None
    if tokens.size == 0:
        raise InvalidField(field, "is empty: a model needs at least one token")
    if problem := too_long(len(tokens), facts.context, room):
        raise InvalidField(field, problem, reason=Reason.PROMPT_TOO_LONG)
    _check_known(facts, tokens, field)
    return tokens


def _check_continuation(facts: Facts, prompt: np.ndarray, continuation: np.ndarray, field: str) -> None:
    if continuation.size == 0:
        raise InvalidField(field, "is empty")
    # Its last token is measured, but not read.
    read = prompt.size + continuation.size - 1
    if facts.context is not None and read > facts.context:
        fit = f"at most {facts.context + 1} fit the context"
        message = f"has {continuation.size} tokens after a prompt of {prompt.size}; together {fit}"
        raise InvalidField(field, message, reason=Reason.PROMPT_TOO_LONG)
    _check_known(facts, continuation, field)


def _checked_targets(facts: Facts, datum: Datum, tokens: np.ndarray, field: str) -> np.ndarray:
    targets = datum.loss_fn_inputs.get("target_tokens")
    if targets is None:
        raise InvalidField(field, "is missing")
    if not isinstance(targets, np.ndarray) or targets.dtype.kind not in "iu":
        raise InvalidField(field, f"holds {targets.dtype}, not token ids")
    if targets.shape != tokens.shape:
        raise InvalidField(field, f"has shape {targets.shape}, model_input {tokens.shape}")
    _check_known(facts, targets, field)
    return targets


def _check_known(facts: Facts, tokens: np.ndarray, field: str, *, but: int | None = None) -> None:
    """Refuse unknown tokens, `but` for this one."""
    unknown = (tokens < 0) | (tokens >= facts.vocabulary)
    if but is not None:
        unknown &= tokens != but
    if unknown.any():
        place = np.unravel_index(int(unknown.argmax()), tokens.shape)
        path = "".join(f"[{index}]" for index in place)
        raise InvalidField(f"{field}{path}", f"is {tokens[place]}; the vocabulary has {facts.vocabulary} tokens")


def _top_columns(found: Mapping[str, Any], rows: int, top: int) -> tuple[np.ndarray, np.ndarray] | tuple[None, None]:
    """The columns of the likeliest tokens that the host answered with, if any were requested."""
    if not top:
        return None, None
    tokens = tokens_from_bytes(found["top_tokens"]).reshape(rows, -1).astype(np.int32)
    return tokens, floats_from_bytes(found["top_logprobs"]).reshape(rows, -1)


# One model on several devices: a host process for each, and calls that go to the one with the least outstanding work.
#
# A host that dies is started again, and its model loaded, while the others answer; the call that it had goes to
# another.

_TOKEN_BYTES = 8
"""Of a token in a call to a host."""

_log = structlog.get_logger(__name__)


def replica_names(devices: Sequence[str]) -> dict[str, str]:
    """A name for each replica, and its device: a device that is named twice has two."""
    names: dict[str, str] = {}
    seen: collections.Counter[str] = collections.Counter()
    for device in devices:
        seen[device] += 1
        names[device if seen[device] == 1 else f"{device} #{seen[device]}"] = device
    return names


class ReplicatedModels:
    """The models of some devices; takes the place of `HostedModels`.

    Args:
        replicas: of each name, the device and the models of its host.
        clock: seconds that never decrease.
    """

    def __init__(
        self, replicas: Mapping[str, tuple[str, HostedModels]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._replicas = dict(replicas)
        self._balancer = Balancer(tuple(replicas), most_requests=math.inf, clock=clock)
        self._starting: set[asyncio.Task[None]] = set()

    def states(self) -> tuple[Replica, ...]:
        """The state of each replica."""
        return self._balancer.states()

    async def open(self, checkpoint: Checkpoint) -> HostedModel:
        """As `HostedModels.open`; the model is the same on each device."""
        identity = await self._first.identify(checkpoint)
        return HostedModel(models=self, checkpoint=checkpoint, identity=identity)

    async def full_fingerprint(self, checkpoint: Checkpoint, identity: CheckpointIdentity) -> str | None:
        """As `HostedModels.full_fingerprint`."""
        return await self._first.full_fingerprint(checkpoint, identity)

    async def ensure(self, checkpoint: Checkpoint, identity: CheckpointIdentity) -> Facts:
        """Load the model on each device at once; its facts are those of any of them.

        Raises:
            BridgeError: as `HostedModels.ensure`, of the first device that cannot load it.
        """
        found = await asyncio.gather(
            *(models.ensure(_on(checkpoint, device), identity) for device, models in self._replicas.values()),
            return_exceptions=True,
        )
        for facts in found:
            if isinstance(facts, BaseException):
                raise facts
        for name in self._replicas:
            self._returned(name, works=True)
        return next(facts for facts in found if not isinstance(facts, BaseException))

    async def call(self, op: str, checkpoint: Checkpoint, identity: CheckpointIdentity, **fields: Any) -> Any:
        """Call the model on one of the devices, and on another one if the host of the first dies.

        Raises:
            BridgeError: the host's error, or that of the last host that had the call.
        """
        work = _work(fields)
        failed: dict[str, BridgeError] = {}
        while True:
            for name in self._balancer.due():
                self._start(name, checkpoint, identity)
            try:
                name = self._balancer.choose(work, avoid=failed)
            except NoReplicaLeft:
                raise failed.popitem()[1] from None
            assert name is not None, "a host has no bound on its calls"
            device, models = self._replicas[name]
            try:
                answer = await models.call(op, _on(checkpoint, device), identity, **fields)
            except BridgeError as error:
                if error.reason != Reason.HOST_DIED:
                    self._balancer.answered(name, work)
                    raise
                if self._balancer.failed(name, work, error.reason, at_once=True):
                    _log.warning("replica_ejected", device=name, reason=str(error.reason))
                if failed:  # a call that ends hosts must not end them all
                    raise
                failed[name] = error
            except BaseException:
                self._balancer.withdrawn(name, work)
                raise
            else:
                self._balancer.answered(name, work)
                return answer

    async def aclose(self) -> None:
        """Stop starting hosts. Idempotent."""
        for task in tuple(self._starting):
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)

    @property
    def _first(self) -> HostedModels:
        (_, first), *_ = self._replicas.values()
        return first

    def _start(self, name: str, checkpoint: Checkpoint, identity: CheckpointIdentity) -> None:
        task = asyncio.create_task(self._load(name, checkpoint, identity), name="start of a model's host")
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _load(self, name: str, checkpoint: Checkpoint, identity: CheckpointIdentity) -> None:
        device, models = self._replicas[name]
        works, reason = False, ""
        try:
            await models.ensure(_on(checkpoint, device), identity)
            works = True
        except BridgeError as error:
            reason = error.reason
            _log.warning("replica_not_started", device=name, reason=str(error.reason))
        finally:
            self._returned(name, works=works, reason=reason)

    def _returned(self, name: str, *, works: bool, reason: str = "") -> None:
        if self._balancer.probed(name, works=works, reason=reason):
            _log.info("replica_returned", device=name)


def _on(checkpoint: Checkpoint, device: str) -> Checkpoint:
    return dataclasses.replace(checkpoint, device=device)


def _work(fields: Mapping[str, Any]) -> float:
    """About how many tokens a call takes: those that it has, and those that it may generate."""
    given = sum(map(_bytes, fields.values())) / _TOKEN_BYTES
    return 1 + given + fields.get("max_tokens", 0) * fields.get("num_samples", 1)


def _bytes(value: Any) -> int:
    if isinstance(value, bytes):
        return len(value)
    return sum(map(_bytes, value)) if isinstance(value, list | tuple) else 0
