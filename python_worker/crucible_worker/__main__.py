"""`crucible-worker` and `python -m crucible_worker`: the command line, which Ctrl-C ends quietly while it loads."""

import sys

from crucible_worker.interrupts import end_quietly, end_quietly_again

__all__ = ["main"]


def main() -> None:
    """Run the command line; never returns."""
    end_quietly(sys.argv[1:])
    from crucible_worker.cli import main as run  # a tenth of a second of imports

    try:
        run()
    finally:
        # What was begun is cleaned up: only the interpreter's own end is still to come.
        end_quietly_again(sys.argv[1:])


if __name__ == "__main__":
    main()
