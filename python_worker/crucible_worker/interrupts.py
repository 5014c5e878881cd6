"""Ctrl-C while a program is being loaded: it ends at once and says nothing, as nothing is begun that could be lost.

Python would raise KeyboardInterrupt in the middle of whatever import is at work, and show all of it as a traceback.
"""

from __future__ import annotations

# What `signal` is made of: that module also imports enum, and so takes 20 times as long until Ctrl-C is heard.
import _signal as signal  # pyright: ignore[reportMissingImports]
import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing would be imported for it
    from collections.abc import Sequence
    from types import FrameType

__all__ = ["INTERRUPTED", "end_quietly", "end_quietly_again", "raise_interrupts"]

INTERRUPTED: int = 128 + signal.SIGINT
"""Exit code, as shells tell of a command that Ctrl-C ended."""

_PROMISED = {"serve": 0}
"""Of commands that end so by whatever signal tells them to go."""


class _End:
    """A handler that ends the process."""

    def __init__(self, code: int) -> None:
        self._code = code

    def __call__(self, number: int, frame: FrameType | None) -> None:
        # No worker runs yet: there is nothing to clean up, and interpreters that end by themselves import more.
        os._exit(self._code)


def end_quietly(arguments: Sequence[str]) -> None:
    """From now on end at once by SIGINT, and by SIGTERM where the command promises its exit code for that too.

    Called in the main thread, before anything is imported that takes its time.

    Args:
        arguments: of the program; the first is its command.
    """
    command = arguments[0] if arguments else ""
    end = _End(_PROMISED.get(command, INTERRUPTED))
    for number in (signal.SIGINT, signal.SIGTERM) if command in _PROMISED else (signal.SIGINT,):
        # Whoever starts a program in the background may have it ignore Ctrl-C.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, end)


def end_quietly_again(arguments: Sequence[str]) -> None:
    """Undo `raise_interrupts`, if it was called: the work is done."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        end_quietly(arguments)


def raise_interrupts() -> None:
    """From now on raise KeyboardInterrupt by SIGINT, as work has begun that is to be cleaned up."""
    if isinstance(signal.getsignal(signal.SIGINT), _End):
        signal.signal(signal.SIGINT, signal.default_int_handler)
