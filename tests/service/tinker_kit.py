"""A Tinker service as the tinker library shows it, made of the library's own types, that does as a script says."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import itertools
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests import needs

tinker = pytest.importorskip("tinker", reason=needs.MISSING["tinker"])

from tinker.lib.public_interfaces import AwaitableConcurrentFuture  # noqa: E402
from tinker.lib.public_interfaces.sampling_client import _check_target_prompt_logprobs  # noqa: E402
from tinker.types import RequestErrorCategory  # noqa: E402

import crucible_bridge  # noqa: E402
from crucible_bridge.client import Bridge  # noqa: E402
from crucible_bridge.errors import FailedPrecondition  # noqa: E402
from crucible_bridge.types import TinkerModel  # noqa: E402
from crucible_worker.backends.local.host.texts import Texts  # noqa: E402
from crucible_worker.backends.local.tokenizer import HostedTokenizer  # noqa: E402
from crucible_worker.backends.tinker.backend import ServedModel, TinkerBackend  # noqa: E402
from crucible_worker.backends.tinker.services import TinkerService  # noqa: E402
from crucible_worker.backends.tinker.tokenizer import TokenizerName  # noqa: E402
from crucible_worker.config import Settings  # noqa: E402
from crucible_worker.server import Worker  # noqa: E402
from crucible_worker.server.parts import build_with  # noqa: E402
from crucible_worker.util.limits import WorkerLimits  # noqa: E402

KEY = "tml-canary-7c2f9b1e5d"
"""A key that must turn up nowhere but at the library."""

URL = "http://127.0.0.1:9"
"""Where nobody listens: the scripted library asks nobody."""

SAMPLER = "tinker://run/sampler_weights/final"
STATE = "tinker://run/weights/final"

EOS = 0
"""Ends what is sampled; every other token is a character."""


class Fault(enum.Enum):
    """What a script returns in place of an answer."""

    STALL = enum.auto()
    """Nothing is ever answered."""


@dataclasses.dataclass(frozen=True)
class Call:
    """A call as it arrived."""

    index: int
    """Of all calls of its kind, from 0."""
    kind: str
    """"session", "sampler", "trainer", "sample", "targets", "greedy", "distributions", "compute_logprobs", ..."""
    asked: dict[str, Any]
    future: Future[Any]

    @property
    def text(self) -> str:
        """The prompt."""
        return "".join(map(chr, self.asked["tokens"]))


Script = Callable[[Call], Any]
"""None for the plain answer, another answer, an exception to raise, or a Fault."""


def status(code: int, message: str = "no", **headers: str) -> Exception:
    """What the library raises for a refusal."""
    response = httpx.Response(
        code, json={"detail": message}, headers=headers, request=httpx.Request("POST", f"{URL}/x")
    )
    kinds = {
        400: tinker.BadRequestError,
        401: tinker.AuthenticationError,
        402: tinker.BillingError,
        403: tinker.PermissionDeniedError,
        404: tinker.NotFoundError,
        409: tinker.ConflictError,
        422: tinker.UnprocessableEntityError,
        429: tinker.RateLimitError,
    }
    return kinds.get(code, tinker.InternalServerError)(message, response=response, body=response.json())


def failed(message: str, category: str) -> Exception:
    """What the library raises for a request that was taken, and failed later."""
    return tinker.RequestFailedError(message, "request-1", RequestErrorCategory(category))


def logprob(token: int, position: int) -> float:
    """What the scripted model thinks of a token, exact in 32 bits."""
    return -((token % 8) + position % 4 + 1) / 8


class Characters:
    """A tokenizer whose tokens are characters."""

    eos_token_id = EOS
    bos_token_id = None
    bos_token = None
    chat_template = None
    name_or_path = "tiny/characters"

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [ord(character) for character in text]

    def __call__(self, texts: list[str], **options: bool) -> dict[str, list[list[int]]]:
        return {"input_ids": [self.encode(text) for text in texts]}

    def decode(self, tokens: list[int], **options: bool) -> str:
        assert options.keys() == {"skip_special_tokens", "clean_up_tokenization_spaces"}
        assert not options["clean_up_tokenization_spaces"]
        skipped = {EOS} if options["skip_special_tokens"] else set()
        return "".join(chr(token) for token in tokens if token not in skipped)


class HereLoaded:
    """The tokenizers of a scripted library, which do no harm and are queried in this process."""

    def __init__(self, library: ScriptedLibrary) -> None:
        self._library = library

    async def load(self, name: TokenizerName) -> HostedTokenizer:
        assert name.base_model == self._library.base_model
        try:
            tokenizer = self._library.tokenizer()
        except Exception as error:
            why = f"that of {name.base_model!r} cannot be loaded ({type(error).__name__})"
            raise FailedPrecondition(why, reason="NO_TOKENIZER") from error
        texts = Texts(tokenizer, WorkerLimits().max_rendered_chars)

        async def call(op: str, **fields: Any) -> Any:
            return texts.answer({"op": op, **fields})

        return HostedTokenizer(
            call=call,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            has_chat_template=bool(tokenizer.chat_template),
        )

    async def aclose(self) -> None:
        """Nothing was started."""


class ScriptedLibrary:
    """Stands for `tinker.ServiceClient`; counts what came."""

    def __init__(self, script: Script = lambda call: None) -> None:
        self.script = script
        self.calls: list[Call] = []
        self.keys: set[str] = set()
        self.closed = 0
        self.tokenizer: Callable[[], Any] = Characters
        self.base_model = "tiny/characters"
        self._lock = threading.Lock()

    def __call__(self, *, base_url: str, api_key: str) -> ScriptedLibrary:
        assert base_url.startswith("http")
        self.keys.add(api_key)
        return self

    def of(self, kind: str) -> list[Call]:
        """The calls of a kind."""
        return [call for call in self.calls if call.kind == kind]

    def begin(self, kind: str, plain: Callable[[], Any], **asked: Any) -> AwaitableConcurrentFuture[Any]:
        """Begin a call, and answer it as the script says."""
        future: Future[Any] = Future()
        with self._lock:
            call = Call(len(self.of(kind)), kind, asked, future)
            self.calls.append(call)
        answer = self.script(call)
        if isinstance(answer, Exception):
            future.set_exception(answer)
        elif answer is not Fault.STALL:
            future.set_result(plain() if answer is None else answer)
        return AwaitableConcurrentFuture(future)

    # What the backend calls of tinker.ServiceClient.

    @property
    def holder(self) -> object:
        return self.begin("session", object).result()

    def create_sampling_client(
        self, model_path: str | None = None, base_model: str | None = None, retry_config: Any = None
    ) -> AwaitableConcurrentFuture[Any]:
        assert not retry_config.enable_retry_logic
        return self.begin("sampler", lambda: ScriptedSampler(self), model_path=model_path, base_model=base_model)

    def create_training_client_from_state(self, path: str) -> AwaitableConcurrentFuture[Any]:
        return self.begin("trainer", lambda: ScriptedTrainer(self), path=path)

    def close(self, status: str) -> AwaitableConcurrentFuture[None]:
        self.closed += 1
        done: Future[None] = Future()
        done.set_result(None)
        return AwaitableConcurrentFuture(done)


class _Client:
    def __init__(self, library: ScriptedLibrary) -> None:
        self._library = library

    def get_base_model(self) -> str:
        return self._library.base_model

    def get_info(self) -> Any:
        data = tinker.types.ModelData(model_name=self._library.base_model)
        return tinker.types.GetInfoResponse(model_data=data, model_id="run:train:0")


class ScriptedSampler(_Client):
    """Stands for `tinker.SamplingClient`; says a prompt back in upper case."""

    def sample(
        self,
        prompt: Any,
        num_samples: int,
        sampling_params: Any,
        *,
        include_prompt_logprobs: bool = False,
        topk_prompt_logprobs: int = 0,
        topk_sample_logprobs: int = 0,
        target_prompt_logprobs: Any = None,
        prompt_logprobs_last_n: int | None = None,
    ) -> AwaitableConcurrentFuture[Any]:
        tokens = prompt.to_ints()
        further = topk_prompt_logprobs > 1 or prompt_logprobs_last_n is not None or target_prompt_logprobs is not None
        if include_prompt_logprobs and further:
            assert (num_samples, sampling_params.max_tokens) == (1, 1)
            asked = {"top": topk_prompt_logprobs, "last": prompt_logprobs_last_n, "targets": target_prompt_logprobs}
            return self._library.begin(
                "distributions", functools.partial(distributions, tokens, **asked), tokens=tokens, **asked
            )
        if topk_prompt_logprobs:
            assert (include_prompt_logprobs, topk_prompt_logprobs) == (True, 1)
            assert (num_samples, sampling_params.max_tokens) == (1, 1)
            return self._library.begin("greedy", functools.partial(foretold, tokens), tokens=tokens)
        if target_prompt_logprobs is not None:
            _check_target_prompt_logprobs(target_prompt_logprobs)
            assert (num_samples, sampling_params.max_tokens) == (1, 1)
            wanted = target_prompt_logprobs.to_torch(pad_value=-1).numpy()
            assert wanted.shape[0] == len(tokens) - 1
            plain = functools.partial(measured, target_prompt_logprobs)
            return self._library.begin("targets", plain, tokens=tokens, wanted=wanted.tolist())
        said = [ord(chr(token).upper()) for token in tokens][: sampling_params.max_tokens]
        return self._library.begin(
            "sample",
            functools.partial(
                sampled, said, num_samples, cut=len(said) == sampling_params.max_tokens, top=topk_sample_logprobs
            ),
            tokens=tokens,
            num_samples=num_samples,
            params=sampling_params,
        )

    def compute_logprobs(self, prompt: Any) -> AwaitableConcurrentFuture[list[float | None]]:
        tokens = prompt.to_ints()
        values = [None, *(logprob(token, position) for position, token in enumerate(tokens[1:], 1))]
        return self._library.begin("compute_logprobs", lambda: values, tokens=tokens)


class ScriptedTrainer(_Client):
    """Stands for `tinker.TrainingClient`; it has no method that would change it."""

    def forward(self, data: list[Any], loss_fn: str) -> AwaitableConcurrentFuture[Any]:
        assert loss_fn == "cross_entropy"
        targets = [datum.loss_fn_inputs["target_tokens"].to_numpy() for datum in data]
        answers = [
            np.array([logprob(token, position) for position, token in enumerate(some, 1)], np.float32)
            for some in targets
        ]
        return self._library.begin("forward", lambda: forwarded(answers), targets=[some.tolist() for some in targets])


def top_of(tokens: list[int], count: int) -> Any:
    """For each token so many likeliest ones, the last a sentinel: that token and those after it, in another order."""
    steps = range(count - 2, -1, -1)
    ids = np.array([[*(token + step for step in steps), 0] for token in tokens], np.int32).reshape(-1, count)
    values = [[*(-1.0 - step // 2 for step in steps), -99999.0]] * len(tokens)
    return tinker.types.topk_logprobs.TopkLogprobs(ids, np.array(values, np.float32).reshape(-1, count))


def distributions(tokens: list[int], *, top: int, last: int | None, targets: Any) -> Any:
    """A response with all that is wanted of a prompt; of earlier tokens than the last ones it has nothing."""
    first = 1 if last is None else len(tokens) - last
    own = [np.nan if place < first else logprob(token, place) for place, token in enumerate(tokens)]
    tops = top_of(tokens, top) if top else None
    if tops is not None:
        tops.token_ids[:first], tops.logprobs[:first] = 0, -99999.0
    (answer,) = sampled([ord("x")], cut=True).sequences
    return tinker.SampleResponse(
        sequences=[answer],
        prompt_logprobs_np=np.array(own, np.float32),
        topk_prompt_logprobs_np=tops,
        target_prompt_logprobs=None if targets is None else measured(targets).target_prompt_logprobs,
    )


def sampled(
    tokens: list[int], num_samples: int = 1, *, cut: bool = False, logprobs: list[float] | None = None, top: int = 0
) -> Any:
    """A response as the library reads it from the wire."""
    whole = tokens if cut else [*tokens, EOS]
    values = [logprob(token, 0) for token in whole] if logprobs is None else logprobs
    sequence = tinker.SampledSequence(
        stop_reason="length" if cut else "stop",
        sequence_id="s",
        tokens_np=np.array(whole, np.int32),
        logprobs_np=np.array(values, np.float32),
        topk_logprobs_np=top_of(whole, top) if top else None,
    )
    return tinker.SampleResponse(sequences=[sequence] * num_samples)


def measured(wanted: Any, **changed: Any) -> Any:
    """A response with log-probabilities of these targets, in their layout, but for what is changed of it."""
    if wanted.sparse_crow_indices is None:
        ids = wanted.to_numpy()
        values = [
            [0.0 if token == -1 else logprob(token, row + 1) for token in tokens]
            for row, tokens in enumerate(ids.tolist())
        ]
    else:
        starts = wanted.sparse_crow_indices
        rows = [row for row, (start, end) in enumerate(itertools.pairwise(starts)) for _ in range(start, end)]
        values = [logprob(token, row + 1) for row, token in zip(rows, wanted.data, strict=True)]
    fields = {
        "data": np.array(values, np.float32),
        "dtype": "float32",
        "shape": wanted.shape,
        "sparse_crow_indices": wanted.sparse_crow_indices,
        "sparse_col_indices": wanted.sparse_col_indices,
        **changed,
    }
    (answer,) = sampled([ord("x")], cut=True).sequences
    return tinker.SampleResponse(sequences=[answer], target_prompt_logprobs=tinker.TensorData(**fields))


def likeliest(token: int, position: int) -> int:
    """What the scripted model holds for the likeliest where a prompt has this token."""
    return token if position % 2 else token + 1


def foretold(tokens: list[int], **changed: Any) -> Any:
    """A response with the likeliest token of each place, but for what is changed of its two matrices."""
    ids = [0, *(likeliest(token, position) for position, token in enumerate(tokens[1:], 1))]
    fields = {
        "token_ids": np.array([ids], np.int32).T,
        "logprobs": np.array([[-99999.0], *([-0.5] for _ in tokens[1:])], np.float32),
        **changed,
    }
    (answer,) = sampled([ord("x")], cut=True).sequences
    told = tinker.types.topk_logprobs.TopkLogprobs(**fields)
    return tinker.SampleResponse(sequences=[answer], topk_prompt_logprobs_np=told)


def forwarded(answers: list[np.ndarray]) -> Any:
    """What a forward pass answers."""
    outputs = [{"logprobs": tinker.TensorData.from_numpy(answer)} for answer in answers]
    return tinker.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord", loss_fn_outputs=outputs)


def service(folder: Path, **settings: Any) -> TinkerService:
    """The default service, with the key in a file."""
    key = folder / "key"
    key.touch(mode=0o600)
    key.write_text(f"{KEY}\n")
    return TinkerService(**{"name": "default", "base_url": URL, "key_file": key, **settings})


@contextlib.asynccontextmanager
async def served(
    folder: Path, script: Script = lambda call: None, ref: TinkerModel | None = None, **settings: Any
) -> AsyncIterator[tuple[ScriptedLibrary, ServedModel]]:
    """A model of a scripted service, not loaded: its sampler weights unless another is named."""
    library = ScriptedLibrary(script)
    backend = TinkerBackend([service(folder, **settings)], library, tokenizers=HereLoaded(library))
    try:
        yield library, await backend.open(ref or TinkerModel(model_path=SAMPLER))
    finally:
        await backend.aclose()


@contextlib.asynccontextmanager
async def worker_on(library: ScriptedLibrary, folder: Path, **settings: Any) -> AsyncIterator[Bridge]:
    """A client of a worker that knows the scripted service as its default one."""
    backend = TinkerBackend([service(folder, **settings)], library, tokenizers=HereLoaded(library))

    async def build(told: Settings) -> Any:
        return await build_with(told, backends={TinkerModel: backend})

    told = Settings(port=0, state_dir=folder / "state", grading_processes=0).validate()
    async with Worker(told, build=build) as worker, crucible_bridge.connect(worker.address) as bridge:
        yield bridge
