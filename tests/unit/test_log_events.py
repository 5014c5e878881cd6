"""The list of log events: what is read from the source, and what is refused there."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.log_events import Found, Unreadable, events_of
from tests.tables import rows

ROOT = Path(__file__).parents[2]

READ = {
    "levels and keys": (
        "_log.info('one', a=1)\nself._log.exception('two')\n_log.error('one', b=2, exc_info=error)",
        {"one": Found(("info", "error"), ("a", "b", "exception")), "two": Found(("error",), ("exception",))},
    ),
    "a name and a level of two": (
        "(log.debug if quiet else log.info)('lost' if lost else 'found', seconds=1)",
        {name: Found(("debug", "info"), ("seconds",)) for name in ("found", "lost")},
    ),
    "within another call": (
        "after(lambda: _log.info('one', given=_log.debug('two')))",
        {"one": Found(("info",), ("given",)), "two": Found(("debug",), ())},
    ),
    "a function with the event": (
        "def told(log, event, error, **facts):\n    log.error(event, exc_info=error, **facts)\ntold(x, 'one', e, a=1)",
        {"one": Found(("error",), ("exception", "a"))},
    ),
    "a method that passes it on": (
        "def told(event):\n    _log.info(event, a=1)\n"
        "class Some:\n"
        "    def _tell(self, event, **more):\n        told(event)\n        _log.error(event, b=2, **more)\n"
        "    def run(self):\n        self._tell('one', c=3)",
        {"one": Found(("info", "error"), ("b", "a", "c"))},
    ),
    "a constructor with the event": (
        "class Outages:\n    def __init__(self, event, **fields): pass\n"
        "    def failed(self): self._log.warning(self._event, reason=1, **self._fields)\n"
        "Outages('one', seconds=2)",
        {"one": Found(("warning",), ("reason", "seconds"))},
    ),
    "a line without a logger": (
        "put({'event': 'one', 'level': 'warning', 'count': n})",
        {"one": Found(("warning",), ("count",))},
    ),
    "a logger of numbers": ("np.log(one)\nself._run.log({**row})", {}),
}

REFUSED = {
    "a computed name": "_log.info(f'{what}_failed')",
    "a name in a variable": "_log.info(name)",
    "keys in a variable": "_log.info('one', **facts)",
    "a method in a variable": "say = _log.info",
    "another method": "_log.critical('one')",
    "no name": "_log.info(event='one')",
    "an event that is no parameter": "def tell(name):\n    event = name\n    _log.info(event)",
    "a computed name for a function": "def tell(event):\n    _log.info(event)\ntell(str(1))",
    "keys in a variable for a function": "def tell(event, **more):\n    _log.info(event, **more)\ntell('one', **facts)",
}


@rows(("source", "expected"), READ.values(), ids=READ)
def test_events_are_read_from_the_source(source, expected):
    """Each form in which the worker logs gives its name, its levels and its keys."""
    assert events_of([("module.py", source)]) == expected


@rows("source", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_refused(source):
    """A line whose name or keys only a run would show fails, with the place in the source."""
    with pytest.raises(Unreadable, match=r"^module\.py:\d+: "):
        events_of([("module.py", source)])


def test_a_private_function_is_that_of_its_module():
    """Functions of one name in two modules do not lend each other their keys."""
    tell = "def _tell(event):\n    _log.info(event, {key}=1)\n_tell('{event}')"
    sources = [(name, tell.format(key=name, event=f"of_{name}")) for name in ("a", "b")]

    assert {event: found.keys for event, found in events_of(sources).items()} == {"of_a": ("a",), "of_b": ("b",)}


@pytest.mark.parametrize("change", ["an event without a sentence", "a sentence without an event"])
def test_the_table_has_the_events_of_the_source_and_no_others(tmp_path, change):
    """The check of the pages fails in both directions, and names the event."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("pictures", "design", "site"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    sentences = tmp_path / "docs" / "log_events.toml"
    serving = next(line for line in sentences.read_text().splitlines(keepends=True) if line.startswith("serving ="))
    more = "" if change == "an event without a sentence" else serving + serving.replace("serving", "surfing", 1)
    sentences.write_text(sentences.read_text().replace(serving, more))

    checked = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert checked.returncode == 1
    assert ("'serving'" if not more else "'surfing'") in checked.stderr
