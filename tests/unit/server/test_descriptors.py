"""How many files a worker's process may have open."""

import json
import subprocess
import sys

import pytest

from tests.tables import rows

PROGRAM = """
import json, resource, sys
from crucible_worker.util.limits import WorkerLimits
from crucible_worker.server.process import with_descriptors
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
limits = with_descriptors(WorkerLimits(max_connections=300))
print(json.dumps([limits.max_connections, *resource.getrlimit(resource.RLIMIT_NOFILE)]))
"""


@pytest.mark.long
@rows(
    ("soft", "hard", "connections"),
    [(64, 600, 300), (300, 556, 300), (555, 555, 299), (64, 400, 144), (64, 200, 1)],
)
def test_all_that_the_system_allows_is_used_and_some_is_kept_from_connections(
    soft: int, hard: int, connections: int
) -> None:
    """The soft limit becomes the hard one; where that is too low, there are fewer connections, and the log says so."""
    command = [sys.executable, "-c", PROGRAM, str(soft), str(hard)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *said, found = done.stdout.splitlines()
    assert json.loads(found) == [connections, hard, hard]
    assert any("few_descriptors" in line for line in said) is (connections < 300)
