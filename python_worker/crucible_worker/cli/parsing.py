"""How commands are parsed: a repeated option is refused, and a file may hold options of `crucible-worker evaluate`.

The file is the one that --config names. Its table [evaluate] has these options:

    [evaluate]
    model = "embedded:arithmetic@600"
    data = "builtin:arithmetic"
    evaluator = ["nll", "accuracy"]
    max-tokens = 8

A key is the long name of an option. What is typed wins over the file; a typed option that is repeatable replaces the
file's whole list.

`follow` and `prompt` read the same table. What they have no option for, such as `output`, does not concern them.
"""

from __future__ import annotations

import collections
import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand

from crucible_worker.cli.options import EXIT_USAGE, RequestOptions, flags
from crucible_worker.config import SettingsError, evaluate_table, set_in

__all__ = ["FileOptionsCommand", "OnceCommand"]

# A repeated option with one value is refused; parsers would use the last one without a message.

_INSTEAD = {
    "data": "an evaluation has one data set: run the command for each, or name them in a suite's file (--suite)",
    "suite": "run the command for each, or write their evaluations into one file",
    "evaluation_id": "an evaluation has one id",
}
"""What to do instead, by parameter; for other options there is no such advice."""


class OnceCommand(TyperCommand):
    """A command that refuses an option with one value that is given several times."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # typer may vendor click, or import it
        """Parse as usual, unless an option occurs twice.

        Raises:
            click.UsageError: names it, and what to do instead.
        """
        if not ctx.resilient_parsing:
            # A copy: the parser removes what it reads from the list.
            typed, _, order = self.make_parser(ctx).parse_args(list(args))
            for parameter, times in collections.Counter(order).items():
                if times > 1 and parameter.nargs == 1 and not _takes_several(parameter):
                    instead = _INSTEAD.get(parameter.name or "", "only one value can count")
                    ctx.fail(f"{max(parameter.opts, key=len)} is given {times} times; {instead}.")
            self.before_parsing(ctx, typed)
        return super().parse_args(ctx, args)

    def before_parsing(self, ctx: Any, typed: Mapping[str, Any]) -> None:
        """Called with what was typed, by parameter, before it is checked; does nothing here."""


def _takes_several(parameter: Any) -> bool:
    """Whether a second value adds to the first, or means the same, like a flag's."""
    return getattr(parameter, "multiple", False) or getattr(parameter, "is_flag", False)


_NOT_IN_FILE = frozenset({"--config", "--help"})
_ALTERNATIVES = (frozenset({"data", "task", "suite"}), frozenset({"state_dir", "no_keep"}))
"""Options that exclude each other, by parameter: if one is typed, the others of the file do not count."""
_NEAR = 0.5
"""The least likeness of a name that is suggested."""


class FileOptionsCommand(OnceCommand):
    """A command whose options may also be in the table [evaluate] of a file: `evaluate`, or one that shares options."""

    def before_parsing(self, ctx: Any, typed: Mapping[str, Any]) -> None:
        """Take the file's values as defaults of the options that are not typed."""
        if typed.get("help"):
            return
        config = typed.get("config")
        try:
            file, table = evaluate_table(os.environ, None if config is None else Path(config))
        except SettingsError as error:
            _refuse(str(error))
        if file is not None and table:
            found = self._own(ctx, file, _defaults(ctx, _evaluate_of(self, ctx), file, table), typed)
            for alternatives in (*_ALTERNATIVES, *([_of_plan()] if typed.get("plan") else [])):
                if any(typed.get(name) for name in alternatives):
                    found = {name: value for name, value in found.items() if name not in alternatives}
            ctx.default_map = found

    def _own(self, ctx: Any, file: Path, found: Mapping[str, Any], typed: Mapping[str, Any]) -> Mapping[str, Any]:
        """Those values for which this command has an option, too; one value where it takes only one."""
        own: dict[str, Any] = {}
        for parameter in self.get_params(ctx):
            name = str(parameter.name)
            if name not in found or typed.get(name):
                continue
            value = found[name]
            if isinstance(value, list) and not getattr(parameter, "multiple", False):
                if len(value) > 1:
                    _refuse(f"{file}: evaluate.{name} has {len(value)} values; choose one with --{name}")
                value = value[0] if value else None
            own[name] = value
        return own


def _evaluate_of(command: Any, ctx: Any) -> Any:
    """The command whose options the table has."""
    return getattr(ctx.find_root().command, "commands", {}).get("evaluate", command)


def _of_plan() -> frozenset[str]:
    """--plan, and the parameters that a plan's file takes the place of."""
    return frozenset({"plan", *flags(RequestOptions)} - {"run_id"})


def _defaults(ctx: Any, evaluate: Any, file: Path, table: Mapping[str, Any]) -> Mapping[str, Any]:
    """The table's values, by parameter of `evaluate`."""
    options = {
        name.removeprefix("--"): parameter
        for parameter in evaluate.get_params(ctx)
        for name in parameter.opts
        if name.startswith("--") and name not in _NOT_IN_FILE
    }
    found: dict[str, Any] = {}
    for key, value in table.items():
        place = f"{file}: evaluate.{key}"
        name = key.replace("_", "-")
        if name not in options:
            near = difflib.get_close_matches(name, options, n=1, cutoff=_NEAR)
            known = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(options))}"
            _refuse(f"{place} is no option of evaluate; {known}")
        parameter, known_as = options[name], str(options[name].name)
        if known_as in found:
            _refuse(f"{place}: {name} is given twice; only one value can count")
        read = _read(ctx, parameter, value, place, file.absolute().parent)
        # A variable wins over the file, as for every setting of a worker.
        if not set_in(os.environ, known_as):
            found[known_as] = read
    return found


def _read(ctx: Any, parameter: Any, value: Any, place: str, base: Path) -> Any:
    """A value as the option takes it; paths are relative to the file."""
    if getattr(parameter, "is_flag", False):
        if not isinstance(value, bool):
            _refuse(f"{place} is {value!r}, not true or false")
        return value
    kind = _KINDS.get(parameter.type.name.partition(" ")[0], _text)
    if getattr(parameter, "multiple", False):
        read: Any = [kind(each, place, base) for each in (value if isinstance(value, list) else [value])]
    else:
        read = kind(value, place, base)
    try:
        parameter.type_cast_value(ctx, read)
    except typer.BadParameter as error:
        _refuse(f"{place}: {error.message}")
    return read


def _whole(value: Any, place: str, base: Path) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        _refuse(f"{place} is {value!r}, not a whole number")
    return value


def _number(value: Any, place: str, base: Path) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        _refuse(f"{place} is {value!r}, not a number")
    return value


def _text(value: Any, place: str, base: Path) -> str:
    if not isinstance(value, str):
        _refuse(f"{place} is {value!r}, not a text")
    return value


def _path(value: Any, place: str, base: Path) -> str:
    if "\0" in _text(value, place, base):
        from crucible_bridge.errors import clipped

        _refuse(f"{place} is {clipped(value)}, which is no path: it has a NUL character")
    return str(base / Path(_text(value, place, base)).expanduser())


_KINDS = {"int": _whole, "integer": _whole, "float": _number, "path": _path}
"""How a value is read, by the first word of an option's type; others are texts."""


def _refuse(message: str) -> NoReturn:
    typer.echo(f"crucible-worker: {message}", err=True)
    raise typer.Exit(EXIT_USAGE)
