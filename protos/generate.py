"""Generates everything that follows from the protos; the result is committed.

    python protos/generate.py            writes it
    python protos/generate.py --check    exits 1 when what is committed is not what would be written

`protos/generator/` has one module for each output.
"""

from __future__ import annotations

import sys

from generator.frame import main

if __name__ == "__main__":
    sys.exit(main())
