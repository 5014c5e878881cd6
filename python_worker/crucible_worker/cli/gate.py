"""`crucible-worker gate`: whether a candidate may take the place of a baseline, as an exit code."""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crucible_worker.cli.options import EXIT_INTERRUPTED, Config, Json, StateDir, settings_or_exit
from crucible_worker.cli.parsing import OnceCommand
from crucible_worker.cli.reading import (
    AcrossRules,
    Address,
    AddressTokenFile,
    AddressTrust,
    AddressTrustedName,
    Trust,
    evaluation_ids,
    read_or_exit,
    refuse,
    refuse_journal,
)

if TYPE_CHECKING:
    from crucible_bridge import Bridge
    from crucible_bridge.types import GatePolicy, GateResponse

__all__ = ["EXIT_BLOCKED", "EXIT_INCONCLUSIVE", "EXIT_REFUSED", "GateCommand", "gate"]

EXIT_BLOCKED, EXIT_INCONCLUSIVE = 1, 2
"""Exit status by verdict; of PASS and WARN it is 0."""
EXIT_REFUSED = 3
"""Exit status: there is no verdict, as the policy, the options or the ids are wrong, or results cannot be read."""

_TYPED_AS = {"baseline_id": "--baseline", "candidate_id": "--candidate"}

_Baseline = Annotated[
    str,
    typer.Option("--baseline", metavar="ID", help="The evaluation of what is in use.", autocompletion=evaluation_ids),
]
_Candidate = Annotated[
    str,
    typer.Option(
        "--candidate", metavar="ID", help="The evaluation of what may replace it.", autocompletion=evaluation_ids
    ),
]
_Policy = Annotated[
    Path, typer.Option("--policy", metavar="FILE", help="TOML file with the metrics, and how much worse each may be.")
]
_JUnit = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML there, a test case for each metric.")
]
_GitHub = Annotated[bool, typer.Option("--github", help="Print annotations for GitHub Actions as well.")]


class GateCommand(OnceCommand):
    """A command that refuses wrong options with EXIT_REFUSED: 1 and 2 are verdicts."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Parse as usual; an error of usage has another exit code.

        Raises:
            click.UsageError: the options are wrong.
        """
        try:
            return super().make_context(*args, **extra)
        except typer.Exit:  # of --help
            raise
        except Exception as raised:
            error: Any = raised  # click's, which typer may vendor
            if hasattr(error, "exit_code"):
                error.exit_code = EXIT_REFUSED
            raise


def gate(
    baseline: _Baseline,
    candidate: _Candidate,
    policy: _Policy,
    junit: _JUnit = None,
    github: _GitHub = False,
    across_rules: AcrossRules = False,
    config: Config = None,
    state_dir: StateDir = None,
    address: Address = None,
    token_file: AddressTokenFile = None,
    tls_ca: AddressTrust = None,
    tls_name: AddressTrustedName = None,
    as_json: Json = False,
) -> None:
    """Decide whether a candidate may take the place of a baseline, by a policy.

    Exit codes: 0 for PASS and WARN, 1 for BLOCK, 2 for INCONCLUSIVE, 3 if there is no verdict.

    Example: crucible-worker gate --baseline nightly-320 --candidate nightly-600 --policy gate.toml
    """
    with _refusing():
        if as_json and github:
            refuse("--json and --github exclude each other: both write to the standard output")
        if junit is not None and address is None:
            refuse_journal("--junit", junit, settings_or_exit(config, of_another=True, state_dir=state_dir).state_dir)
        held_to = _policy_or_exit(policy)

        async def decide(bridge: Bridge) -> GateResponse:
            return await _decide(bridge, baseline, candidate, held_to, policy, across_rules)

        report = read_or_exit(decide, config, state_dir, address, token_file, Trust(tls_ca, tls_name), _TYPED_AS)
        if junit is not None:
            _write_junit(junit, report, baseline, candidate)
        _print(report, baseline, candidate, github=github, as_json=as_json)
    raise typer.Exit(_exit_code(report))


def _exit_code(report: GateResponse) -> int:
    from crucible_bridge.types import GateVerdict

    codes = {GateVerdict.BLOCK: EXIT_BLOCKED, GateVerdict.INCONCLUSIVE: EXIT_INCONCLUSIVE}
    return codes.get(report.verdict, 0)


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Exit with EXIT_REFUSED in place of any other failure, so that none is mistaken for a verdict."""
    try:
        yield
    except typer.Exit as exited:
        if exited.exit_code == EXIT_INTERRUPTED:
            raise
        raise typer.Exit(EXIT_REFUSED) from None
    except Exception:
        # A defect: its traceback is shown as usual.
        traceback.print_exc()
        raise typer.Exit(EXIT_REFUSED) from None


def _policy_or_exit(file: Path) -> GatePolicy:
    from crucible_bridge.errors import InvalidField
    from crucible_bridge.gate_policies import load_gate_policy

    try:
        return load_gate_policy(file)
    except InvalidField as error:
        place = "" if error.field == "policy" else f" {error.field}"
        refuse(f"--policy {file}:{place} {error.message}")
    except (OSError, ValueError) as error:  # ValueError: a NUL in its name
        refuse(f"--policy {file} cannot be read: {getattr(error, 'strerror', None) or error}")


async def _decide(
    bridge: Bridge, baseline: str, candidate: str, policy: GatePolicy, file: Path, across_rules: bool
) -> GateResponse:
    from crucible_bridge.errors import InvalidField

    try:
        return await bridge.evaluation.gate(baseline, candidate, policy, across_rules=across_rules)
    except InvalidField as error:
        _, of_policy, place = error.field.partition("policy.")
        if not of_policy:
            raise
        raise InvalidField(f"--policy {file}: {place}", error.message) from None


def _write_junit(file: Path, report: GateResponse, baseline: str, candidate: str) -> None:
    from crucible_worker.exports.files import whole_file
    from crucible_worker.reports.gates import junit

    try:
        with whole_file(file) as opened:
            opened.write(junit(report, baseline, candidate))
    except (OSError, ValueError) as error:
        refuse(f"--junit {file} cannot be written: {getattr(error, 'strerror', None) or error}")


def _print(report: GateResponse, baseline: str, candidate: str, *, github: bool, as_json: bool) -> None:
    from crucible_worker.cli.tables import one_line
    from crucible_worker.reports.gates import gate_as_data, github_lines

    lines = [f"{report.verdict.name}: {one_line(candidate)} against {one_line(baseline)}"]
    for each in report.metrics:
        lines += [f"{each.verdict.name:<12} {one_line(each.key)}: {one_line(' '.join(each.reasons))}"]
    if github:
        lines += github_lines(report, candidate)
    if as_json:
        lines = [json.dumps(gate_as_data(report, baseline, candidate), allow_nan=False)]
    try:
        typer.echo("\n".join(lines))
        sys.stdout.flush()
    except BrokenPipeError:
        pass  # its reader has read enough: the verdict is in the exit code
    except OSError as error:
        refuse(f"cannot write to standard output: {error.strerror}")
