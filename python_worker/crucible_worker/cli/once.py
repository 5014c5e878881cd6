"""Commands that refuse a repeated option with one value; parsers would use the last one without a message."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

from typer.core import TyperCommand

__all__ = ["OnceCommand"]

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
