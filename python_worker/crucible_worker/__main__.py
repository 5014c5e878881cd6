"""`crucible-worker` and `python -m crucible_worker`: the command line, which Ctrl-C ends quietly while it loads."""

import sys

from crucible_worker.util.interrupts import end_quietly, end_quietly_again

__all__ = ["main"]


def main() -> None:
    """Run the command line; never returns."""
    end_quietly(sys.argv[1:])
    from crucible_worker.cli import main as run  # a tenth of a second of imports

    try:
        run()
    finally:
        # All work is cleaned up; only the interpreter still has to end.
        end_quietly_again(sys.argv[1:])


if __name__ == "__main__":
    main()
