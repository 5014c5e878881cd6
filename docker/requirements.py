"""Print what the project and some of its extras require, a line each: what pip installs before there is any source.

    python docker/requirements.py EXTRA...

A layer that holds these alone stays as it is while the source changes.
"""

import sys
import tomllib
from pathlib import Path

PYPROJECT = Path("pyproject.toml")


def main(extras: list[str]) -> None:
    """Read pyproject.toml of the working directory; a KeyError names an extra that is not there."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"]]
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    print(*lines, sep="\n")


main(sys.argv[1:])
