"""Tests that meet exceptions of a program, by what they do with them. Exceptions of `ERRORS` are raised by name."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["CAUGHT", "ERRORS", "PROTOCOLS", "UNCAUGHT"]

PROTOCOLS: Mapping[str, str] = {
    "map": "assert all(each == 1 for each in map(f, [1, 2]))",
    "filter": "assert list(filter(lambda x: f(x) != 1, [1, 2])) == []",
    "zip": "assert [a for a, b in zip(map(f, [1]), [1]) if a != 1] == []",
    "a loop": """
for each in map(f, [1, 2]):
    assert each == 1
""",
    "until": "assert set(iter(lambda: f(1), 1)) <= set()",
    "an iterator": """
class Rows:
    def __iter__(self): return self
    n = 0
    def __next__(self):
        self.n += 1
        if self.n > 2: raise StopIteration
        return f(self.n)
assert all(row == 1 for row in Rows())
""",
    "a sequence": """
class Rows:
    def __getitem__(self, at):
        if at == 2: raise IndexError
        return f(at)
assert all(row == 1 for row in Rows())
""",
    "membership": """
class Rows:
    def __getitem__(self, at):
        if at == 2: raise IndexError
        return f(at)
assert 7 not in Rows()
""",
    "reversed": """
class Rows:
    def __getitem__(self, at): return f(at)
    def __len__(self): return 2
assert all(row == 1 for row in reversed(Rows()))
""",
    "hasattr": """
class Row:
    @property
    def wrong(self): assert f(1) == 1; raise AttributeError
assert not hasattr(Row(), 'wrong')
""",
    "getattr": """
class Row:
    @property
    def right(self): return f(1) == 1
assert getattr(Row(), 'right', True)
""",
    "a fallback": """
class Row:
    def __getattribute__(self, name): return f(1) == 1
    def __getattr__(self, name): return True
assert Row().right
""",
    "a length hint": """
class Rows:
    def __iter__(self): return iter(())
    def __length_hint__(self): return f(1)
assert list(Rows()) == []
""",
    "a generator that is closed": """
def rows():
    try:
        yield 1
    finally:
        assert f(1) == 1
g = rows()
next(g)
g.close()
""",
    "delegation": """
class Rows:
    def __iter__(self): return self
    n = 0
    def __next__(self):
        self.n += 1
        if self.n > 2: raise StopIteration
        return f(self.n)
def rows():
    yield from Rows()
assert all(row == 1 for row in rows())
""",
    "a guarded iterator": """
class Rows:
    def __iter__(self): return self
    n = 0
    def __next__(self):
        self.n += 1
        if self.n > 2: raise StopIteration
        try:
            return f(self.n)
        except MemoryError:
            return 1
assert all(row == 1 for row in Rows())
""",
    "a statement in an iterator": """
import contextlib
class Rows:
    def __iter__(self): return self
    n = 0
    def __next__(self):
        self.n += 1
        if self.n > 2: raise StopIteration
        with contextlib.suppress(MemoryError):
            return f(self.n)
        return 1
assert all(row == 1 for row in Rows())
""",
    "an asynchronous loop": """
import asyncio
class Rows:
    def __aiter__(self): return self
    n = 0
    async def __anext__(self):
        self.n += 1
        if self.n > 2: raise StopAsyncIteration
        return f(self.n)
async def main():
    async for row in Rows(): assert row == 1
asyncio.run(main())
""",
    "an end": """
import sys
if f(1) != 1:
    raise AssertionError
""",
}
"""Python swallows some exceptions in these, and goes on; `f(x)` should be 1."""

ERRORS = """
import json
class Mine(ValueError): pass
class Other(Mine, KeyError): pass
class Two(Exception):
    def __init__(self, a, b): super().__init__(a, b); self.a = a
    def __str__(self): return f"two {self.a}"
KINDS = {"stop": StopIteration("end"), "index": IndexError("list index"), "key": KeyError("no"), "mine": Mine("no"),
    "other": Other("no"), "two": Two(1, 2), "exit": SystemExit(3), "none": ZeroDivisionError(),
    "file": OSError(2, "no")}
def f(kind):
    if kind == "text": b"\\xff".decode()
    if kind == "json": json.loads("{")
    if kind in KINDS: raise KINDS[kind]
    return kind
"""
"""A program whose `f` raises what its argument names, or returns it."""

_CASE = "import unittest\nclass T(unittest.TestCase): pass\nt = T()\n"

CAUGHT: Mapping[str, str] = {
    "its type": """
try:
    f('index')
except IndexError as e:
    assert str(e) == 'list index' and type(e) is IndexError
""",
    "a base": """
try:
    f('index')
except LookupError:
    pass
else:
    assert False
""",
    "one of several": """
try:
    f('key')
except (IndexError, KeyError) as e:
    assert e.args == ('no',)
""",
    "anything": """
try:
    f('key')
except:
    done = True
assert done
""",
    "its text": """
try:
    f('key')
except Exception as e:
    assert str(e) == "'no'" and repr(e) == "KeyError('no')"
""",
    "the end of an iterator": """
try:
    f('stop')
except StopIteration as e:
    done = e.value
assert done == 'end'
""",
    "an exit": """
try:
    f('exit')
except SystemExit as e:
    assert e.code == 3
else:
    assert False
""",
    "one of many arguments": """
try:
    f('text')
except UnicodeDecodeError as e:
    assert 'codec' in str(e)
""",
    "an error number": """
try:
    f('file')
except FileNotFoundError as e:
    assert e.errno == 2
""",
    "a class of a library": """
try:
    f('json')
except ValueError as e:
    assert type(e).__name__ == 'JSONDecodeError'
""",
    "again": """
def g():
    try:
        f('index')
    except IndexError:
        raise
try:
    g()
except IndexError:
    done = True
assert done
""",
    "outside": """
try:
    try:
        f('index')
    except KeyError:
        pass
except IndexError:
    done = 1
assert done
""",
    "at last": """
n = []
try:
    try:
        f('key')
    finally:
        n.append(1)
except KeyError:
    n.append(2)
assert n == [1, 2]
""",
    "another instead": """
try:
    try:
        f('key')
    except KeyError as e:
        raise ValueError('x') from e
except ValueError as e:
    assert type(e.__cause__) is KeyError
""",
    "a group": """
try:
    f('key')
except* KeyError:
    done = True
assert done
""",
    "a statement": """
import contextlib
with contextlib.suppress(KeyError):
    f('key')
assert f(1) == 1
""",
    "a manager of its own": """
import contextlib
@contextlib.contextmanager
def raising(kind):
    try:
        yield
    except kind:
        return
    assert False
with raising(KeyError):
    f('key')
    assert False
f(2)
""",
    "many managers": """
import contextlib
with contextlib.ExitStack() as s:
    s.enter_context(contextlib.suppress(KeyError))
    f('key')
assert f(1)
""",
    "an asynchronous one": """
import asyncio, contextlib
@contextlib.asynccontextmanager
async def raising(kind):
    try:
        yield
    except kind:
        done.append(1)
done = []
async def main():
    async with raising(KeyError):
        f('key')
asyncio.run(main())
assert done
""",
    "assertRaises as a statement": _CASE
    + """
with t.assertRaises(KeyError) as c:
    f('key')
assert c.exception.args == ('no',)
""",
    "assertRaises as a call": _CASE
    + """
t.assertRaises(KeyError, f, 'key')
t.assertRaises(LookupError, lambda: f('key'))
""",
    "assertRaisesRegex": _CASE + "t.assertRaisesRegex(IndexError, 'list', f, 'index')",
    "a method of a case": """
import unittest
class T(unittest.TestCase):
    def test(self):
        with self.assertRaises(KeyError):
            f('key')
        self.assertEqual(f(1), 1)
r = unittest.TestResult()
unittest.defaultTestLoader.loadTestsFromTestCase(T).run(r)
assert r.wasSuccessful() and r.testsRun == 1, r.errors
""",
    "a class of the program": """
try:
    f('mine')
except Mine as e:
    assert str(e) == 'no' and isinstance(e, ValueError)
else:
    assert False
""",
    "a base of the program": """
try:
    f('other')
except Mine as e:
    assert isinstance(e, LookupError)
else:
    assert False
""",
    "a class of the program in a case": _CASE
    + """
t.assertRaises(Two, f, 'two')
with t.assertRaisesRegex(Two, 'two 1'):
    f('two')
""",
    "no text": """
try:
    f('none')
except ZeroDivisionError as e:
    assert str(e) == ''
""",
    "a future": """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(2) as pool:
    done = [pool.submit(f, kind) for kind in ('key', 1, 'index', 2)]
assert isinstance(done[0].exception(), KeyError) and done[1].result() == 1
try:
    done[2].result()
except IndexError:
    assert done[3].result() == 2
else:
    assert False
""",
    "many threads": """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    assert list(pool.map(f, range(200))) == list(range(200))
""",
    "a return": """
def g():
    for n in range(3):
        try:
            f('key')
        except KeyError:
            return n
assert g() == 0
""",
    "a loop that goes on": """
n = 0
for k in ('key', 'index'):
    try:
        f(k)
    except KeyError:
        continue
    except IndexError:
        n += 1
        break
assert n == 1
""",
    "the tests' own exit": """
import sys
assert f(1) == 1
sys.exit(0)
""",
    "a deep sum": "try:\n    f('key')\nexcept KeyError:\n    assert " + "1 + " * 2_000 + "1",
}
"""Passed by `ERRORS`."""

UNCAUGHT: Mapping[str, str] = {
    "another type": """
try:
    f('index')
except KeyError:
    pass
""",
    "a type below": """
try:
    f('mine')
except Other:
    pass
""",
    "a type beside": """
try:
    f('two')
except Mine:
    pass
""",
    "an exit is no exception": """
try:
    f('exit')
except Exception:
    pass
""",
    "a statement": """
import contextlib
with contextlib.suppress(KeyError):
    f('index')
""",
    "assertRaises as a statement": _CASE
    + """
with t.assertRaises(KeyError):
    f('index')
""",
    "assertRaises as a call": _CASE + "t.assertRaises(KeyError, f, 'index')",
    "assertRaises without one": _CASE + "t.assertRaises(KeyError, f, 1)",
    "a handler that raises it again": """
try:
    f('stop')
except StopIteration as e:
    again = e
raise again
""",
    "a handler that raises an exit again": """
import sys
try:
    f('exit')
except SystemExit as e:
    e.code = 0
    again = e
raise again
""",
    "nothing": "f('key')",
    "the tests' own exit": """
import sys
f(1)
sys.exit(1)
""",
}
"""Not passed by `ERRORS`."""
