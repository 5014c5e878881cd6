"""What an evaluation needs to run: its evaluators, samples and model, all checked before anything starts."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import functools
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import structlog

from crucible_bridge.errors import BridgeError, Cancelled, FailedPrecondition, InvalidField
from crucible_bridge.problems import at_field, problem_of
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    BuiltinDataset,
    Conversation,
    Dataset,
    DatasetSource,
    Datum,
    EvaluateRequest,
    EvaluatorSpec,
    FileDataset,
    HubDataset,
    InlineDataset,
    JsonlDataset,
    LocalModel,
    ModelInput,
    ModelPrice,
    ModelRef,
    OpenAIModel,
    PlannedEvaluation,
    Problem,
    Sample,
)
from crucible_worker.backends.base import Backend, Capability, Model, Reading
from crucible_worker.backends.endpoints import ServerPlace
from crucible_worker.backends.orchestrator import Caller
from crucible_worker.datasets.loading import DatasetCache, LoadedDataset, MalformedSample, load
from crucible_worker.engine.budgets import bounds_of, refuse_unpriced
from crucible_worker.engine.claims import Contents
from crucible_worker.engine.prompting import Prompter, prompter_of, refuse_further_parts
from crucible_worker.engine.specification import PlacedKeys, fingerprint, refuse_equal_keys, refuse_large_options
from crucible_worker.evaluators import registry
from crucible_worker.evaluators.base import (
    NAMED,
    Evaluator,
    HasAuxiliaryModels,
    as_asked,
    likelihood_cure,
    measures_auxiliary_models,
    measures_likelihoods,
    model_path,
    stops_itself,
    takes_models,
    wants_answers,
)
from crucible_worker.evaluators.registry import EvaluatorParts
from crucible_worker.grading.judge.grader import worker_model_of
from crucible_worker.grading.pool import GradingPool
from crucible_worker.history.rules import Graders, graders_named
from crucible_worker.inference.retries import RetryPolicy
from crucible_worker.util.options import load_checker, may_be_refused

__all__ = [
    "IDENTIFICATIONS",
    "PREPARATIONS",
    "START_PROBE_SECONDS",
    "Plan",
    "Prepare",
    "Preparer",
    "Sources",
    "keys_of",
    "option_path",
    "probe_likelihoods",
    "refuse_without_likelihoods",
]

# Calls that training waits for have priority over the reading of data sets, which is less urgent.
#
# Threads that parse and hash need the interpreter all the time; the threads of a call need it in dozens of short turns,
# one at each statement of SQLite, and lose most races for it. While two data sets were read, a step of a plan was
# answered after 90 ms (the median, on two cores); it takes 10 ms if the reading pauses meanwhile.

YIELD_SECONDS = 0.05
"""Longest pause of the reading; then it runs for as long, however many calls there are."""


class CallPriority:
    """Gives calls priority over reading threads in one process."""

    def __init__(self) -> None:
        self._calls = 0
        self._nobody = threading.Event()
        self._nobody.set()
        self._on_until = 0.0

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Have priority inside the block. On the event loop only."""
        self._calls += 1
        self._nobody.clear()
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._nobody.set()

    def yield_to_calls(self) -> None:
        """Pause while calls have priority, within bounds; a reading thread calls it repeatedly."""
        if self._nobody.is_set() or time.monotonic() < self._on_until:
            return
        if not self._nobody.wait(YIELD_SECONDS):
            # Two threads may both set it: either time will do.
            self._on_until = time.monotonic() + YIELD_SECONDS


PREPARATIONS = 2
"""Data sets of one kind of source that are loaded at once: a silent hub delays no file, and neither of them delays
inline samples."""
IDENTIFICATIONS = 2
"""Requests whose fingerprints are computed at once; no data set makes them wait."""

_log = structlog.get_logger(__name__)
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where models and samples come from."""

    backends: Mapping[type[ModelRef], Backend]
    """By the kind of reference that they open."""
    data_roots: Sequence[Path]
    """JSONL data sets lie below these."""
    builtins: Mapping[str, Callable[[], Sequence[Sample]]]
    """Data sets that ship with the worker."""
    parts: EvaluatorParts = dataclasses.field(default_factory=EvaluatorParts)
    """Parts that evaluators and graders use."""
    spool_dir: Path | None = None
    """Directory for samples of large data sets while they are evaluated; the system's temporary directory if None."""
    prices: tuple[ModelPrice, ...] = ()
    """What tokens cost."""
    hub_network: bool = False
    """Whether data sets may be fetched from the Hugging Face hub; otherwise only its cache on this machine is read."""
    templates: GradingPool | None = None
    """Processes in which templates of prompts run; None if the worker runs no templates."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An evaluation, ready to run."""

    evaluators: tuple[tuple[EvaluatorSpec, Evaluator], ...]
    """Specifications, each with its evaluator."""
    refused: Mapping[int, Problem]
    """By index, why an evaluator cannot work with this model: it fails, and the other evaluators finish."""
    samples: Sequence[Sample | MalformedSample]
    """In order."""
    dataset_fingerprint: str
    """Fingerprint of the samples."""
    model: Model
    """The model."""
    auxiliary_models: Mapping[int, Mapping[str, Model]] = dataclasses.field(default_factory=dict)
    """By index, the further models of an evaluator, by name."""
    prices: tuple[ModelPrice, ...] = ()
    """What tokens cost."""
    caller: Caller | None = None
    """Who requested it, if evaluators or the model stay there."""
    prompter: Prompter | None = None
    """Applies the prompt to samples; None if evaluators get them unchanged."""
    reading: Reading = Reading()
    """How the model reads the text of the data set."""

    @property
    def models(self) -> Sequence[Model]:
        """The model, then the further ones, evaluator by evaluator."""
        return [
            self.model,
            *(models[name] for _, models in sorted(self.auxiliary_models.items()) for name in sorted(models)),
        ]

    @property
    def model_fingerprint(self) -> str:
        """The fingerprint of the model, followed by those of judges if these affect the results."""
        return "+".join(model.evaluated_fingerprint for model in self.models)

    @property
    def served_fingerprint(self) -> str:
        """The same in the form of earlier releases, which did not prompt servers as a chat."""
        return "+".join(model.fingerprint for model in self.models)

    @property
    def total(self) -> int:
        """Runs of samples, of all evaluators that can work."""
        able = (item for index, (_, item) in enumerate(self.evaluators) if index not in self.refused)
        return len(self.samples) * sum(evaluator.repeats for evaluator in able)

    @property
    def contents(self) -> Contents:
        """What later attempts must find unchanged."""
        return Contents(
            dataset_fingerprint=self.dataset_fingerprint,
            model_fingerprint=self.model_fingerprint,
            served_fingerprint=self.served_fingerprint,
            total=self.total,
            examples_fingerprint="" if self.prompter is None else self.prompter.examples_fingerprint,
        )


Prepare = Callable[[], Awaitable[Plan]]
"""Makes the plan of one evaluation; see `Preparer.prepare`."""


def keys_of(
    request: EvaluateRequest | PlannedEvaluation, path: str = "", parts: EvaluatorParts | None = None
) -> Iterator[PlacedKeys]:
    """The metric keys that evaluators can yield; all evaluators must be known.

    Args:
        request: has the evaluators.
        path: of the request, put before each evaluator's.
        parts: of the worker that evaluates.
    """
    for index, spec in enumerate(request.evaluators):
        yield PlacedKeys(f"{path}evaluators[{index}]", request.metric_prefix, spec, registry.keys_of(spec, parts))


def named_models(texts: Mapping[str, str]) -> Mapping[str, ModelRef]:
    """The further models of a request, by role or name.

    Raises:
        InvalidField: one is not a model, or a model of the orchestrator.
    """
    for name in texts:
        if not name:
            raise InvalidField("models", "has an empty name")
    return {name: worker_model_of(text, model_path(name), what="a further model") for name, text in texts.items()}


def option_path(index: int, name: str) -> str:
    """Path in the request of what names a further model of an evaluator: its option, or an entry of `models`.

    An option may be nested: "grader_options.judge".
    """
    if name.startswith(NAMED):
        return model_path(name.removeprefix(NAMED))
    return f"evaluators[{index}].options" + "".join(f'["{step}"]' for step in name.split("."))


def _reading_of(dataset: Dataset) -> Reading:
    """How a model reads the text of a data set; those that ship with the worker have no delimiter if none is given."""
    delimiter = None if dataset.prompt is None else dataset.prompt.target_delimiter
    if delimiter is None and isinstance(dataset.source, BuiltinDataset):
        delimiter = ""
    return Reading(target_delimiter=delimiter, special_tokens=dataset.special_tokens)


def _load_schemas(specs: Sequence[EvaluatorSpec]) -> None:
    """Load what checks options: its first use takes tens of milliseconds, too long for the event loop."""
    for spec in specs:
        builtin = spec.kind in registry.EVALUATORS
        if not builtin or may_be_refused(spec.options, registry.info(spec.kind).options_schema):
            load_checker()


class Preparer:
    """Makes plans, a few at a time, on separate threads: a slow data set delays neither reads nor other calls."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self.parts = sources.parts
        """Parts that evaluators and graders use."""
        self._files = DatasetCache(sources.data_roots)
        self._threads = {
            kind: concurrent.futures.ThreadPoolExecutor(PREPARATIONS, thread_name_prefix="prepare")
            for kind in (InlineDataset, JsonlDataset, FileDataset, HubDataset, BuiltinDataset)
        }
        self._quick = concurrent.futures.ThreadPoolExecutor(IDENTIFICATIONS, thread_name_prefix="identify")
        self._closed = False
        self.priority = CallPriority()
        """For calls that have priority over what is loaded here."""

    async def evaluators(
        self, request: EvaluateRequest | PlannedEvaluation
    ) -> tuple[tuple[EvaluatorSpec, Evaluator], ...]:
        """Make a request's evaluators, or those of a part of a plan; a thread imports what they need, once.

        Raises:
            InvalidField: one is unknown, has wrong or too large options, or would yield a key that another one yields;
                or a message of the prompt is not text; or a further model is none of the worker's, or unused.
            FailedPrecondition: one needs what is not installed or what this worker lacks, or is a custom one that
                cannot be used.
        """
        refuse_large_options(request.evaluators)
        refuse_further_parts(request.dataset.prompt)
        await self._in_thread(_load_schemas, request.evaluators)
        parts = dataclasses.replace(self._sources.parts, models=named_models(request.models))
        if any(registry.is_installed(spec, parts) for spec in request.evaluators):
            await self._in_thread(registry.load_installed, request.evaluators, parts)
        made = tuple(
            (spec, registry.create(spec, index, request.sampling, parts))
            for index, spec in enumerate(request.evaluators)
        )
        if request.models and not any(takes_models(evaluator) for _, evaluator in made):
            kinds = ", ".join(spec.kind for spec in request.evaluators)
            raise InvalidField("models", f"is given, and no evaluator uses it: there are {kinds}; inspect does")
        refuse_equal_keys(keys_of(request, parts=parts))
        return made

    def graders(self, request: EvaluateRequest) -> Graders:
        """The present versions of the graders of a request's evaluators, which have been made."""
        return graders_named(request, self._sources.parts.grading)

    async def identify(self, request: EvaluateRequest) -> str:
        """The fingerprint of a request's specification."""
        return await self._in_thread(fingerprint, request)

    async def present_fingerprint(self, model: ModelRef) -> str | None:
        """The fingerprint of the files that a directory has now; None if it is none, or they cannot be read."""
        if not isinstance(model, LocalModel):
            return None
        try:
            return (await self.open(model)).evaluated_fingerprint
        except BridgeError as error:
            _log.debug("files_not_compared", model=str(model), error=str(error))
            return None

    def places(self, names: Iterable[str]) -> tuple[ServerPlace, ...]:
        """Where OpenAI-compatible servers are, by this worker's settings; those that it does not have are left out."""
        backend = self._sources.backends.get(OpenAIModel)
        found = [] if backend is None else [backend.place(name) for name in dict.fromkeys(names)]
        return tuple(place for place in found if place is not None)

    def places_of(
        self, request: EvaluateRequest, evaluators: tuple[tuple[EvaluatorSpec, Evaluator], ...]
    ) -> tuple[ServerPlace, ...]:
        """The same of the servers of a request's models, further ones included."""
        models = [request.model]
        for _, evaluator in evaluators:
            if isinstance(evaluator, HasAuxiliaryModels):
                models += evaluator.auxiliary_models.values()
        return self.places(model.server for model in models if isinstance(model, OpenAIModel))

    async def open(self, model: ModelRef) -> Model:
        """Open a model, without loading it.

        Raises:
            BridgeError: it cannot be; see `Backend.open`.
        """
        return await self._backend(model, "model").open(model)

    async def check_models(
        self, request: EvaluateRequest, evaluators: tuple[tuple[EvaluatorSpec, Evaluator], ...]
    ) -> None:
        """Refuse models that cannot be opened, as far as a quick check shows it.

        Raises:
            BridgeError: one cannot be; see `Backend.check`.
        """
        self.refuse_unpriced(request, evaluators)
        await self._backend(request.model, "model").check(request.model)
        for index, (_, evaluator) in enumerate(evaluators):
            if isinstance(evaluator, HasAuxiliaryModels):
                await self._others(index, evaluator, lambda backend, model: backend.check(model))

    def refuse_unpriced(
        self, request: EvaluateRequest, evaluators: tuple[tuple[EvaluatorSpec, Evaluator], ...]
    ) -> None:
        """Refuse a bound of the cost where a model of a request has no price.

        Raises:
            FailedPrecondition: one has none (NO_PRICE).
        """
        others = [
            model
            for _, evaluator in evaluators
            if isinstance(evaluator, HasAuxiliaryModels)
            for model in evaluator.auxiliary_models.values()
        ]
        refuse_unpriced(bounds_of(request.limits), (request.model, *others), self.prices)

    @property
    def prices(self) -> tuple[ModelPrice, ...]:
        """What tokens cost."""
        return self._sources.prices

    async def prepare(
        self,
        request: EvaluateRequest,
        evaluators: tuple[tuple[EvaluatorSpec, Evaluator], ...],
        caller: Caller | None = None,
    ) -> Plan:
        """Load the data set and open the model; gives up when it is cancelled, or this is closed.

        Args:
            request: what to run.
            evaluators: its evaluators.
            caller: whoever stays connected; its model is evaluated if it has one, otherwise that of the request is
                opened.

        Raises:
            BridgeError: either is not available; see `datasets.loading.load` and `Backend.open`.
        """
        backend = self._backend(request.model, "model")
        loaded = await self.load(request.dataset, evaluators)
        prompter = await self.prompter(request, evaluators, loaded)
        held = None if caller is None else caller.model
        model = await backend.open(request.model) if held is None else held
        refused: dict[int, Problem] = {}
        auxiliary_models: dict[int, Mapping[str, Model]] = {}
        for index, (_, evaluator) in enumerate(evaluators):
            # A further model that cannot be opened refuses the request, as the model does; if it is only unsuitable,
            # just its evaluator fails.
            if isinstance(evaluator, HasAuxiliaryModels):
                auxiliary_models[index] = await self._others(
                    index, evaluator, lambda backend, model: backend.open(model)
                )
            try:
                evaluator.check(model)
                if isinstance(evaluator, HasAuxiliaryModels):
                    evaluator.check_auxiliary_models(auxiliary_models[index])
            except BridgeError as error:
                refused[index] = problem_of(error)
        return Plan(
            evaluators=evaluators,
            refused=refused,
            samples=loaded.samples,
            dataset_fingerprint=loaded.fingerprint,
            model=model,
            auxiliary_models={index: models for index, models in auxiliary_models.items() if index not in refused},
            prices=self._sources.prices,
            caller=caller,
            prompter=prompter,
            reading=_reading_of(request.dataset),
        )

    async def load(
        self, dataset: Dataset, evaluators: tuple[tuple[EvaluatorSpec, Evaluator], ...] = ()
    ) -> LoadedDataset:
        """Check the samples of a request for its evaluators, and load its data set; gives up like `prepare`.

        Raises:
            BridgeError: see `datasets.loading.load`; or an inline sample is not what an evaluator needs.
        """
        threads = self._threads[type(dataset.source)]
        dataset = dataclasses.replace(dataset, prompt=None)  # a cached data set serves every prompt
        wanted = True

        def go_on() -> None:
            if self._closed or not wanted:
                raise Cancelled("no call waits for this data set any more")
            self.priority.yield_to_calls()

        try:
            await self._by(threads, _check_data, dataset.source, evaluators, go_on)
            read = functools.partial(
                load,
                dataset,
                data_roots=self._sources.data_roots,
                builtins=self._sources.builtins,
                spool_dir=self._sources.spool_dir,
                hub_network=self._sources.hub_network,
                go_on=go_on,
            )
            return await self._by(threads, self._files.load, dataset, read)
        finally:
            wanted = False

    async def prompter(
        self,
        request: EvaluateRequest | PlannedEvaluation,
        evaluators: tuple[tuple[EvaluatorSpec, Evaluator], ...],
        loaded: LoadedDataset,
    ) -> Prompter | None:
        """Prepare the prompt of a request's data set, if it has one; gives up like `prepare`.

        Raises:
            InvalidField: an evaluator takes none.
            BridgeError: see `prompting.prompter_of`.
        """
        dataset = request.dataset
        if dataset.prompt is None:
            return None
        _refuse_prompt(evaluators)
        return await prompter_of(
            dataset.prompt,
            loaded.samples,
            read=self.load,
            pool=self._sources.templates,
            skip_malformed=dataset.skip_malformed,
        )

    def close(self) -> None:
        """End what is being loaded or waits for that."""
        self._closed = True
        for threads in self._threads.values():
            threads.shutdown(wait=False)
        self._quick.shutdown(wait=False)

    def _backend(self, model: ModelRef, field: str) -> Backend:
        backend = self._sources.backends.get(type(model))
        if backend is None:
            message = f"is a {type(model).__name__}, for which this worker has no backend"
            raise FailedPrecondition(message, reason=Reason.NO_BACKEND, field=field)
        return backend

    async def _others(
        self, index: int, evaluator: HasAuxiliaryModels, ask: Callable[[Backend, ModelRef], Awaitable[T]]
    ) -> Mapping[str, T]:
        """By name, the answer for each further model of an evaluator; an error names its option."""
        answers: dict[str, T] = {}
        for name, model in evaluator.auxiliary_models.items():
            field = option_path(index, name)
            backend = self._backend(model, field)
            try:
                answers[name] = await ask(backend, model)
            except BridgeError as error:
                raise at_field(error, field, own="model") from error
        return answers

    async def _in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        """Run a function that waits for no data set."""
        return await self._by(self._quick, function, *arguments)

    async def _by(self, threads: concurrent.futures.Executor, function: Callable[..., T], *arguments: object) -> T:
        if self._closed:
            raise Cancelled("nothing is prepared any more")
        return await asyncio.get_running_loop().run_in_executor(threads, functools.partial(function, *arguments))


def _refuse_prompt(evaluators: tuple[tuple[EvaluatorSpec, Evaluator], ...]) -> None:
    for spec, evaluator in evaluators:
        if stops_itself(evaluator):
            message = f"is for rows, and {spec.label} runs tasks that make their own prompts: leave it out"
            raise InvalidField("dataset.prompt", message)


def _check_data(
    source: DatasetSource, evaluators: tuple[tuple[EvaluatorSpec, Evaluator], ...], go_on: Callable[[], None]
) -> None:
    if not isinstance(source, InlineDataset):
        return
    asked = [(evaluator, wants_answers(evaluator)) for _, evaluator in evaluators]
    for index, sample in enumerate(source.samples):
        go_on()
        for evaluator, answers in asked:
            try:
                is_chat = answers and isinstance(sample.input, Conversation)
                evaluator.check_sample(as_asked(sample) if is_chat else sample)
            except InvalidField as error:
                path = f"dataset.inline.samples[{index}].{error.field}"
                raise InvalidField(path, error.message, reason=error.reason) from None


# Whether servers return the log-probabilities that evaluators of likelihood need, found out before the first sample.
#
# Servers that only chat refuse the request. Others, such as llama.cpp, accept it and return those of the generated
# tokens only: every sample would fail, one after another. One short request shows it, or one in each of two forms.
#
# A new evaluation that can do nothing else is refused at its start. Where other evaluators can work, or the server did
# not answer at the start, the attempt finds it out, and only these evaluators fail.

START_PROBE_SECONDS = 3.0
"""How long the start of an evaluation waits for the servers; one that is away refuses nothing."""
_SHARE_OF_DEADLINE = 0.25
"""Most of the time until the evaluation's deadline that this may take."""

PROBE_TOKENS = 8
"""Most tokens of the first sample; fewer than two show nothing."""
_PROMPT = ModelInput.of([5, 9, 6, 11, 7, 10, 8, 12])
"""Sent at the start, before a data set is read: ids that every vocabulary has, in an order that no text has."""


async def refuse_without_likelihoods(
    preparer: Preparer, request: EvaluateRequest, evaluators: Sequence[tuple[EvaluatorSpec, Evaluator]]
) -> None:
    """Refuse a request if each of its evaluators measures likelihoods that a server does not return.

    Only servers of the settings are queried: they run already, whereas others would have to be started.

    Raises:
        FailedPrecondition: none of the evaluators could measure anything (NO_PROMPT_LOGPROBS); it names the first.
    """
    measured = [_measured(request, index, evaluator) for index, (_, evaluator) in enumerate(evaluators)]
    if not all(any(isinstance(model, OpenAIModel) for model in models.values()) for models in measured):
        return
    # A server that is away takes all of that time, and must not end an evaluation by its deadline before it starts.
    seconds = START_PROBE_SECONDS
    if request.limits.deadline_ms is not None:
        seconds = min(seconds, request.limits.deadline_ms / 1000 * _SHARE_OF_DEADLINE)
    wanted = {model for models in measured for model in models.values() if isinstance(model, OpenAIModel)}
    found: dict[ModelRef, FailedPrecondition | None] = {}
    try:
        async with asyncio.timeout(seconds):
            for model in wanted:
                found[model] = await _probe(preparer, model, evaluators)
    except (TimeoutError, BridgeError) as error:  # found out later, or raised by what follows
        _log.debug("likelihoods_not_probed", model=str(request.model), error=str(error))
    refusals: list[tuple[str, FailedPrecondition]] = []
    for models in measured:
        named = ((field, error) for field, model in models.items() if (error := found.get(model)) is not None)
        if (refusal := next(named, None)) is None:
            return
        refusals.append(refusal)
    field, error = refusals[0]
    message = _with_cures(error.message, [evaluator for _, evaluator in evaluators])
    raise FailedPrecondition(message, reason=error.reason, field=field) from error


def _measured(request: EvaluateRequest, index: int, evaluator: Evaluator) -> dict[str, ModelRef]:
    """The models whose likelihoods an evaluator measures, by the field that an error names; empty if there are none."""
    if not measures_likelihoods(evaluator):
        return {}
    found = {f"evaluators[{index}]": request.model}
    if isinstance(evaluator, HasAuxiliaryModels) and measures_auxiliary_models(evaluator):
        found |= {option_path(index, name): model for name, model in evaluator.auxiliary_models.items()}
    return found


async def _probe(
    preparer: Preparer, ref: OpenAIModel, evaluators: Sequence[tuple[EvaluatorSpec, Evaluator]]
) -> FailedPrecondition | None:
    """Why a server returns no log-probabilities of a prompt; None if it does.

    Raises:
        BridgeError: that cannot be found out, or an evaluator refuses the model for another reason.
    """
    model = await preparer.open(ref)
    for _, evaluator in evaluators:
        evaluator.check(model)
    try:
        await model.probe_logprobs(_PROMPT)
    except FailedPrecondition as error:
        if error.reason != Reason.NO_PROMPT_LOGPROBS:  # such as of numbers that cannot be: the samples show them
            raise
        return error
    return None


async def probe_likelihoods(plan: Plan, gate: RetryPolicy) -> Plan:
    """Fail the evaluators that measure what the model's server does not return; the others stay.

    Raises:
        BridgeError: the server could not be queried.
    """
    model, tokens = plan.model, _tokens(plan)
    asking = [
        index
        for index, (_, evaluator) in enumerate(plan.evaluators)
        if index not in plan.refused and measures_likelihoods(evaluator)
    ]
    if not asking or tokens is None or Capability.PROBE not in model.capabilities:
        return plan
    try:
        await gate.call(model.probe_logprobs, (tokens,), model=model)
    except FailedPrecondition as error:
        refused: dict[int, Problem] = dict(plan.refused)
        for index in asking:
            message = _with_cures(error.message, [plan.evaluators[index][1]])
            refused[index] = dataclasses.replace(problem_of(error), message=message)
        return dataclasses.replace(plan, refused=refused)
    return plan


def _with_cures(message: str, evaluators: Sequence[Evaluator]) -> str:
    """The message of an error, with what to evaluate by instead."""
    return "; ".join(dict.fromkeys(filter(None, [message, *map(likelihood_cure, evaluators)])))


def _tokens(plan: Plan) -> ModelInput | None:
    """The beginning of the first sample; None if it is not tokens, which a server without a tokenizer needs."""
    first = plan.samples[0]
    datum = getattr(first, "input", None)
    if not isinstance(datum, Datum):
        return None
    try:
        tokens = datum.model_input.tokens()[:PROBE_TOKENS]
    except InvalidField:  # an image: the sample itself will be refused
        return None
    return ModelInput.of(tokens) if tokens.size > 1 else None
