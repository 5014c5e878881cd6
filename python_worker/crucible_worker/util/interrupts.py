"""Ctrl-C while a program is being loaded: it ends at once and prints nothing, as there is no work yet to lose.

Python would raise KeyboardInterrupt in the middle of an import, and print its traceback.
"""

from __future__ import annotations

# The C module below `signal`: `signal` also imports enum, so Ctrl-C would take effect 20 times later.
import _signal as signal  # pyright: ignore[reportMissingImports]
import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing would be imported for it
    from collections.abc import Sequence
    from types import FrameType

__all__ = ["INTERRUPTED", "end_quietly", "end_quietly_again", "raise_interrupts"]

INTERRUPTED: int = 128 + signal.SIGINT
"""Exit code of a command that Ctrl-C ended, as in shells."""

_PROMISED = {"serve": 0}
"""Of commands that end so by whatever signal tells them to go."""


class _EndingHandler:
    """A handler that ends the process."""

    def __init__(self, code: int) -> None:
        self._code = code

    def __call__(self, number: int, frame: FrameType | None) -> None:
        # No worker runs yet: there is nothing to clean up, and a normal end of the interpreter imports more.
        os._exit(self._code)


def end_quietly(arguments: Sequence[str]) -> None:
    """From now on end at once by SIGINT, and by SIGTERM where the command promises its exit code for that too.

    Call it in the main thread, before any slow import.

    Args:
        arguments: those of the program; the first is its command.
    """
    command = arguments[0] if arguments else ""
    end = _EndingHandler(_PROMISED.get(command, INTERRUPTED))
    for number in (signal.SIGINT, signal.SIGTERM) if command in _PROMISED else (signal.SIGINT,):
        # The parent may have set SIGINT to be ignored, for a program in the background.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, end)


def end_quietly_again(arguments: Sequence[str]) -> None:
    """Undo `raise_interrupts`, if it was called: the work is done."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        end_quietly(arguments)


def raise_interrupts() -> None:
    """From now on raise KeyboardInterrupt by SIGINT, as work has begun that needs cleanup."""
    if isinstance(signal.getsignal(signal.SIGINT), _EndingHandler):
        signal.signal(signal.SIGINT, signal.default_int_handler)
