"""`crucible-worker prompt`: the prompts of one sample, before anything is generated."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crucible_worker.cli.options import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    FIRST,
    After,
    RunOptions,
    command,
)
from crucible_worker.cli.reading import AddressTokenFile, AddressTrust, AddressTrustedName, Trust, worker_at
from crucible_worker.cli.workspace import Termination, opened, state_folder, with_roots
from crucible_worker.util.interrupts import raise_interrupts

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import TypeAlias

    from crucible_bridge import BlockingBridge
    from crucible_bridge.types import RenderedPrompt, RenderSampleResponse
    from crucible_worker.cli.requests import EvaluationToRun
    from crucible_worker.config import Settings
    from crucible_worker.server.parts import CustomFiles

    _Remote: TypeAlias = AbstractContextManager[BlockingBridge]

__all__ = ["PromptOptions", "as_map", "as_text", "prompt"]


class PromptOptions(RunOptions):
    """The options of `crucible-worker prompt`."""

    model: Annotated[
        str,
        typer.Option(metavar="MODEL", help="As for `crucible-worker evaluate`."),
        FIRST,
    ]
    state_dir: Annotated[
        Path | None,
        typer.Option("--state-dir", metavar="DIR", help="As for `crucible-worker evaluate`; not written to."),
        After("evaluation_id"),
    ] = None
    sample: Annotated[
        str,
        typer.Option("--sample", metavar="ID", help="Which sample. [default: the first]"),
    ] = ""
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="The worker that renders the prompt, with its models, roots and servers; also unix:PATH. "
            "[default: this process]",
        ),
    ] = None
    token_file: AddressTokenFile = None
    tls_ca: AddressTrust = None
    tls_name: AddressTrustedName = None

    # No tasks of Inspect, and no results.
    task: tuple[()] = ()
    inspect_root: None = None
    inspect_package: None = None
    log_dir: None = None
    log_to: None = None

    @property
    def models(self) -> Sequence[str]:
        """The one."""
        return (self.model,)


@command(PromptOptions)
def prompt(typed: PromptOptions) -> None:
    """Show the prompt of one sample, for each evaluator. Nothing is generated.

    Takes the options of `crucible-worker evaluate`, except those for tasks of Inspect and for results: put
    "prompt" in place of "evaluate". Options that do not change a prompt are checked and have no effect.

    Shows the text with special tokens if the tokenizer is on this machine, and the messages or the text that are sent
    if the model is on a server. A prompt that is longer than the model's context is shown with PROMPT_TOO_LONG.

    Exits with 0 if every evaluator has a prompt that fits the model, 1 if one has not, 2 if the request is refused.

    Example: crucible-worker prompt --model embedded:arithmetic@600 --data builtin:arithmetic --evaluator accuracy
    """
    importlib.import_module("crucible_worker.cli.running")
    # Everything is loaded; from here on there is something to clean up.
    raise_interrupts()
    try:
        with state_folder(None) as folder:
            settings = with_roots(typed.settings(folder))
            trust = Trust(typed.tls_ca, typed.tls_name)
            remote = None if typed.address is None else worker_at(typed.address, typed.token_file, trust)
            raise typer.Exit(_run(settings, typed, remote))
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _run(settings: Settings, typed: PromptOptions, remote: _Remote | None) -> int:
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
        with refusing(settings, typed.evaluator):
            typed, custom = custom_files_of(typed, typed.address)
        with refusing(settings, typed.evaluator):
            _, asked = evaluations_to_run(typed, custom.evaluator_parts)
        found = (
            _of_worker(remote, settings, typed, asked)
            if remote is not None
            else asyncio.run(_here(settings, typed, asked, custom))
        )
        shown = [(each.name, response) for each, response in zip(asked, found)]
    except Refused as refused:
        write_error(refused.error, str(refused), OutputFormat(as_json=typed.as_json))
        return EXIT_USAGE
    except BridgeError as error:
        write_error(error, str(error), OutputFormat(as_json=typed.as_json))
        return EXIT_FAILED
    except asyncio.CancelledError:  # SIGTERM
        return EXIT_FAILED
    finally:
        log_writer.close(1.0)
    if typed.as_json:
        typer.echo(json.dumps([as_map(name, response) for name, response in shown]))
    else:
        typer.echo("\n\n".join(as_text(name, response) for name, response in shown))
    problems = [prompt.problem for _, response in shown for prompt in response.prompts]
    return 0 if all(problem is None for problem in problems) else EXIT_FAILED


async def _here(
    settings: Settings, typed: PromptOptions, asked: Sequence[EvaluationToRun], custom: CustomFiles
) -> list[RenderSampleResponse]:
    Termination()
    from crucible_worker.cli.refusals import refusing

    found: list[RenderSampleResponse] = []
    async with opened(settings, custom) as parts:
        for each in asked:
            with refusing(settings, typed.evaluator, each.path, model=each.model):
                found.append(await parts.evaluations.render(each.request, typed.sample))
    return found


def _of_worker(
    remote: _Remote, settings: Settings, typed: PromptOptions, asked: Sequence[EvaluationToRun]
) -> list[RenderSampleResponse]:
    from crucible_worker.cli.refusals import refusing

    found: list[RenderSampleResponse] = []
    with remote as bridge:
        for each in asked:
            with refusing(settings, typed.evaluator, each.path, model=each.model):
                found.append(bridge.evaluation.render_sample(each.request, typed.sample))
    return found


def as_text(name: str, response: RenderSampleResponse) -> str:
    """The prompts of a model, for people; the name is that of a suite's evaluation, or empty."""
    title = f"{name}: sample {response.sample_id}" if name else f"sample {response.sample_id}"
    return "\n\n".join([title, *map(_prompt_as_text, response.prompts)])


def _prompt_as_text(prompt: RenderedPrompt) -> str:
    from crucible_bridge.types import message_text, tool_to_json

    said = [f"renderer {prompt.renderer}"]
    if prompt.tokens:
        said.append(f"{len(prompt.tokens):,} tokens")
    said += [f"stops at {json.dumps(stop)}" for stop in prompt.stop]
    lines = [f"--- {prompt.evaluator}: {', '.join(said)}"]
    if prompt.problem is not None:
        lines.append(f"{prompt.problem.reason}: {prompt.problem.message}")
    if prompt.conversation is not None:
        lines += [f"[tool]\n{json.dumps(tool_to_json(tool))}" for tool in prompt.conversation.tools]
        lines += [f"[{message.role}]\n{message_text(message)}" for message in prompt.conversation.messages]
    if prompt.text or prompt.tokens:
        lines.append(prompt.text or " ".join(map(str, prompt.tokens)))
    return "\n".join(lines)


def as_map(name: str, response: RenderSampleResponse) -> dict[str, Any]:
    """The same, for programs."""
    named = {"evaluation": name} if name else {}
    return {**named, "sample_id": response.sample_id, "prompts": [_prompt_as_map(each) for each in response.prompts]}


def _prompt_as_map(prompt: RenderedPrompt) -> dict[str, Any]:
    from crucible_bridge.types import message_to_json, tool_to_json

    messages = prompt.conversation.messages if prompt.conversation is not None else ()
    tools = prompt.conversation.tools if prompt.conversation is not None else ()
    problem = prompt.problem
    return {
        "evaluator": prompt.evaluator,
        "renderer": prompt.renderer,
        "messages": [message_to_json(message) for message in messages],
        **({"tools": [tool_to_json(tool) for tool in tools]} if tools else {}),
        "text": prompt.text,
        "tokens": list(prompt.tokens),
        "stop": list(prompt.stop),
        "problem": None if problem is None else {"reason": problem.reason, "message": problem.message},
    }
