"""`crucible-worker prompt`: the prompts of one sample, before anything is generated."""

from __future__ import annotations

import asyncio
import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crucible_worker.cli.options import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    Concurrency,
    ConfigWithOptions,
    Data,
    DataRoot,
    Device,
    EnvironmentVariable,
    EvaluationId,
    Evaluators,
    FewShot,
    FewShotSeed,
    Grader,
    HubNetwork,
    Json,
    Labels,
    MaxTokens,
    MaxUnscored,
    ModelRoot,
    Only,
    OpenAIServer,
    Options,
    Prefix,
    Price,
    Record,
    Renderer,
    Roles,
    RunId,
    Samples,
    Seed,
    ShuffleSeed,
    SpecialTokens,
    Step,
    Stop,
    SuiteFile,
    System,
    TargetDelimiter,
    Temperature,
    Template,
    Timeout,
    TinkerService,
    Where,
    settings_or_exit,
)
from crucible_worker.cli.reading import AddressTokenFile, AddressTrust, AddressTrustedName, Trust, worker_at
from crucible_worker.cli.workspace import Termination, opened, state_folder, with_roots
from crucible_worker.util.interrupts import raise_interrupts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from typing import TypeAlias

    from crucible_bridge import BlockingBridge
    from crucible_bridge.types import RenderedPrompt, RenderSampleResponse
    from crucible_worker.cli.requests import EvaluateOptions, EvaluationToRun
    from crucible_worker.config import Settings
    from crucible_worker.server.parts import CustomFiles

    _Remote: TypeAlias = AbstractContextManager[BlockingBridge]

__all__ = ["as_map", "as_text", "prompt"]

_Model = Annotated[str, typer.Option(metavar="MODEL", help="As for `crucible-worker evaluate`.")]
_State = Annotated[
    Path | None,
    typer.Option("--state-dir", metavar="DIR", help="As for `crucible-worker evaluate`; not written to."),
]
_Sample = Annotated[str, typer.Option("--sample", metavar="ID", help="Which sample. [default: the first]")]
_Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="The worker that renders the prompt, with its models, roots and servers; also unix:PATH. "
        "[default: this process]",
    ),
]


def prompt(
    model: _Model,
    data: Data = None,
    evaluator: Evaluators = None,
    option: Options = None,
    grader: Grader = None,
    renderer: Renderer = None,
    system: System = None,
    template: Template = None,
    target_delimiter: TargetDelimiter = None,
    special_tokens: SpecialTokens = None,
    few_shot: FewShot = None,
    few_shot_seed: FewShotSeed = None,
    suite: SuiteFile = None,
    only: Only = None,
    samples: Samples = None,
    where: Where = None,
    shuffle_seed: ShuffleSeed = None,
    concurrency: Concurrency = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    seed: Seed = None,
    stop: Stop = None,
    max_unscored: MaxUnscored = None,
    record: Record = None,
    run_id: RunId = None,
    step: Step = None,
    label: Labels = None,
    role: Roles = None,
    prefix: Prefix = None,
    timeout: Timeout = None,
    evaluation_id: EvaluationId = None,
    state_dir: _State = None,
    sample: _Sample = "",
    address: _Address = None,
    token_file: AddressTokenFile = None,
    tls_ca: AddressTrust = None,
    tls_name: AddressTrustedName = None,
    config: ConfigWithOptions = None,
    model_root: ModelRoot = None,
    data_root: DataRoot = None,
    hub_network: HubNetwork = None,
    environment_variable: EnvironmentVariable = None,
    device: Device = None,
    openai_server: OpenAIServer = None,
    tinker_service: TinkerService = None,
    price: Price = None,
    as_json: Json = False,
) -> None:
    """Show the prompt of one sample, for each evaluator. Nothing is generated.

    Takes the options of `crucible-worker evaluate`, except those for tasks of Inspect and for results: put
    "prompt" in place of "evaluate". Options that do not change a prompt are checked and have no effect.

    Shows the text with special tokens if the tokenizer is on this machine, and the messages or the text that are sent
    if the model is on a server. A prompt that is longer than the model's context is shown with PROMPT_TOO_LONG.

    Exits with 0 if every evaluator has a prompt that fits the model, 1 if one has not, 2 if the request is refused.

    Example: crucible-worker prompt --model embedded:arithmetic@600 --data builtin:arithmetic --evaluator accuracy
    """
    parameters = locals().copy()  # by name, for `EvaluateOptions`
    from crucible_worker.cli.requests import EvaluateOptions

    importlib.import_module("crucible_worker.cli.running")
    # Everything is loaded; from here on there is something to clean up.
    raise_interrupts()
    typed = EvaluateOptions.of((model,), parameters, kept=True)
    try:
        with state_folder(None) as folder:
            settings = with_roots(
                settings_or_exit(
                    config,
                    state_dir=folder,
                    device=device,
                    model_roots=model_root,
                    data_roots=data_root,
                    hub_network=hub_network,
                    environment_variables=environment_variable,
                    openai_servers=openai_server,
                    tinker_services=tinker_service,
                    prices=price,
                )
            )
            remote = None if address is None else worker_at(address, token_file, Trust(tls_ca, tls_name))
            raise typer.Exit(_run(settings, typed, sample, address, remote, as_json=as_json))
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _run(
    settings: Settings,
    typed: EvaluateOptions,
    sample: str,
    address: str | None,
    remote: _Remote | None,
    *,
    as_json: bool,
) -> int:
    """Show the prompts; returns the exit status."""
    from crucible_bridge.errors import BridgeError
    from crucible_worker.cli.custom_files import custom_files_of
    from crucible_worker.cli.refusals import Refused, refusing
    from crucible_worker.cli.requests import evaluations_to_run
    from crucible_worker.cli.running import OutputFormat, write_error
    from crucible_worker.telemetry import configure_logging

    shown: list[tuple[str, RenderSampleResponse]] = []
    log_writer = configure_logging("console", "warning")
    try:
        with refusing(settings, typed.evaluators):
            typed, custom = custom_files_of(typed, address)
        with refusing(settings, typed.evaluators):
            _, asked = evaluations_to_run(typed, custom.evaluator_parts)
        found = (
            _of_worker(remote, settings, typed, asked, sample)
            if remote is not None
            else asyncio.run(_here(settings, typed, asked, sample, custom))
        )
        shown = [(each.name, response) for each, response in zip(asked, found)]
    except Refused as refused:
        write_error(refused.error, str(refused), OutputFormat(as_json=as_json))
        return EXIT_USAGE
    except BridgeError as error:
        write_error(error, str(error), OutputFormat(as_json=as_json))
        return EXIT_FAILED
    except asyncio.CancelledError:  # SIGTERM
        return EXIT_FAILED
    finally:
        log_writer.close(1.0)
    if as_json:
        typer.echo(json.dumps([as_map(name, response) for name, response in shown]))
    else:
        typer.echo("\n\n".join(as_text(name, response) for name, response in shown))
    problems = [prompt.problem for _, response in shown for prompt in response.prompts]
    return 0 if all(problem is None for problem in problems) else EXIT_FAILED


async def _here(
    settings: Settings, typed: EvaluateOptions, asked: Sequence[EvaluationToRun], sample: str, custom: CustomFiles
) -> list[RenderSampleResponse]:
    Termination()
    from crucible_worker.cli.refusals import refusing

    found: list[RenderSampleResponse] = []
    async with opened(settings, custom) as parts:
        for each in asked:
            with refusing(settings, typed.evaluators, each.path, model=each.model):
                found.append(await parts.evaluations.render(each.request, sample))
    return found


def _of_worker(
    remote: _Remote, settings: Settings, typed: EvaluateOptions, asked: Sequence[EvaluationToRun], sample: str
) -> list[RenderSampleResponse]:
    from crucible_worker.cli.refusals import refusing

    found: list[RenderSampleResponse] = []
    with remote as bridge:
        for each in asked:
            with refusing(settings, typed.evaluators, each.path, model=each.model):
                found.append(bridge.evaluation.render_sample(each.request, sample))
    return found


def as_text(name: str, response: RenderSampleResponse) -> str:
    """The prompts of a model, for people; the name is that of a suite's evaluation, or empty."""
    title = f"{name}: sample {response.sample_id}" if name else f"sample {response.sample_id}"
    return "\n\n".join([title, *map(_prompt_as_text, response.prompts)])


def _prompt_as_text(prompt: RenderedPrompt) -> str:
    from crucible_bridge.types import message_text

    said = [f"renderer {prompt.renderer}"]
    if prompt.tokens:
        said.append(f"{len(prompt.tokens):,} tokens")
    said += [f"stops at {json.dumps(stop)}" for stop in prompt.stop]
    lines = [f"--- {prompt.evaluator}: {', '.join(said)}"]
    if prompt.problem is not None:
        lines.append(f"{prompt.problem.reason}: {prompt.problem.message}")
    if prompt.conversation is not None:
        lines += [f"[{message.role}]\n{message_text(message)}" for message in prompt.conversation.messages]
    if prompt.text or prompt.tokens:
        lines.append(prompt.text or " ".join(map(str, prompt.tokens)))
    return "\n".join(lines)


def as_map(name: str, response: RenderSampleResponse) -> dict[str, Any]:
    """The same, for programs."""
    named = {"evaluation": name} if name else {}
    return {**named, "sample_id": response.sample_id, "prompts": [_prompt_as_map(each) for each in response.prompts]}


def _prompt_as_map(prompt: RenderedPrompt) -> dict[str, Any]:
    from crucible_bridge.types import message_to_json

    messages = prompt.conversation.messages if prompt.conversation is not None else ()
    problem = prompt.problem
    return {
        "evaluator": prompt.evaluator,
        "renderer": prompt.renderer,
        "messages": [message_to_json(message) for message in messages],
        "text": prompt.text,
        "tokens": list(prompt.tokens),
        "stop": list(prompt.stop),
        "problem": None if problem is None else {"reason": problem.reason, "message": problem.message},
    }
