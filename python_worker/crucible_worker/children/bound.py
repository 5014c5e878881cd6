"""`python -m crucible_worker.children.bound PARENT COMMAND...`: a command that the kernel kills with its parent."""

from __future__ import annotations

import os
import sys

from crucible_worker.children.lifetime import die_with

if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
