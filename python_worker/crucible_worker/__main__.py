"""`python -m crucible_worker`: the command line, where the script is not on the path."""

from crucible_worker.cli import main

if __name__ == "__main__":
    main()
