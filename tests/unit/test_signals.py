"""The tests run alike in a terminal, in the background, and under nohup."""

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHOWS = "import signal, tests.conftest; print([signal.getsignal(number) is signal.SIG_IGN for number in ({})])"


def test_what_tests_start_ignores_no_signal():
    """Whatever the program that started the tests ignores: a command that is sent Ctrl-C ends by it."""
    numbers = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)

    def ignore() -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)

    shown = subprocess.run(
        [sys.executable, "-c", SHOWS.format(", ".join(str(int(number)) for number in numbers))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=ignore,
    )

    assert shown.stdout == "[False, False, False, False]\n"
