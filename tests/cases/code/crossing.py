"""Programs and tests between which more than numbers, texts and containers pass, by what that is."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["NOT_PASSED", "PASSED", "UNPASSABLE"]

_NODES = """
class ListNode:
    def __init__(self, val=0, next=None): self.val, self.next = val, next
class TreeNode:
    def __init__(self, val=0, left=None, right=None): self.val, self.left, self.right = val, left, right
"""
_LISTS = """
def linked(items):
    head = None
    for item in reversed(items): head = ListNode(item, head)
    return head
def items_of(head):
    items = []
    while head: items.append(head.val); head = head.next
    return items
"""
_REVERSE = """
class Solution:
    def reverse(self, head):
        last = None
        while head: head.next, last, head = last, head, head.next
        return last
"""
_TREES = """
class Solution:
    def invert(self, root):
        if root: root.left, root.right = self.invert(root.right), self.invert(root.left)
        return root
    def common(self, root, p, q):
        if root in (None, p, q): return root
        left, right = self.common(root.left, p, q), self.common(root.right, p, q)
        return root if left and right else left or right
    def build(self, items): return TreeNode(items[0], TreeNode(items[1]), TreeNode(items[2])) if items else None
"""

_SHAPES = """
class Shape:
    def area(self): return 0
    def pop(self): return 'popped'
class Square(Shape):
    def __init__(self, side): self.side = side
    def area(self): return self.side ** 2
class Circle(Shape):
    def __init__(self, radius): self.radius = radius
def f(x): return Square(x)
def many(n):
    made = [Square(x) for x in range(n)]
    return made, dict(enumerate(made)), tuple(made)
def keys(n): return {Square(x): x for x in range(n)}, {Square(x) for x in range(n)}
def total(shapes): return sum(s.area() for s in shapes)
"""
_SQUARES = """
class Squares:
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def __getitem__(self, i):
        if i < 0: i += self.n
        if not 0 <= i < self.n: raise IndexError(i)
        return i * i
def f(n): return Squares(n)
"""

PASSED: Mapping[str, tuple[str, str]] = {
    "a module that the program imports": (
        "import math, re\ndef f(x): return math.pi * x",
        "assert math.isclose(f(1), 3.14159, rel_tol=1e-3)\nx = f(1)\nassert abs(x - math.pi) < 1e-9",
    ),
    "a module of a package": ("import os.path\ndef f(): return '/'", "assert os.path.isabs(f())"),
    "a name of a module that the program imports": (
        "from collections import (Counter, deque)\ndef f(x): return Counter(x)",
        "assert f([1, 1]) == Counter([1, 1])",
    ),
    "a function with the name of a module": (
        "def string(x): return str(x)\ndef f(): return 1",
        "assert f() == 1\nx = string(1)\nassert x == '1'",
    ),
    "a generator": ("def f(n): yield from range(n)", "assert list(f(3)) == [0, 1, 2] and sum(f(4)) == 6"),
    "a generator without end": (
        "def f():\n    n = 0\n    while True:\n        yield n\n        n += 1",
        "import itertools\ng = f()\nassert [next(g), next(g)] == [0, 1] and list(itertools.islice(g, 2)) == [2, 3]",
    ),
    "a generator that never comes to its next item": (
        "def f():\n    yield 1\n    yield 2\n    while True: pass",
        "g = f()\nassert next(g) == 1\nassert next(g) == 2",
    ),
    "a long generator": ("def f(n): yield from range(n)", "assert list(f(5000)) == list(range(5000))"),
    "what a generator is": (
        "def f(n): yield n",
        "import types, inspect, collections.abc\n"
        "assert isinstance(f(1), types.GeneratorType) and inspect.isgenerator(f(1)) and iter(g := f(1)) is g\n"
        "assert isinstance(f(1), collections.abc.Iterator)",
    ),
    "the end of a generator": (
        "def f(n): yield n",
        "g = f(1)\nassert next(g) == 1 and next(g, 'end') == 'end'\n"
        "try:\n    next(g)\nexcept StopIteration:\n    done = True\nassert done",
    ),
    "an exception of a generator": (
        "def f():\n    yield 1\n    raise KeyError('no')",
        "g = f()\nassert next(g) == 1\ntry:\n    next(g)\nexcept KeyError as e:\n    assert e.args == ('no',)\n"
        "else:\n    assert False",
    ),
    "a second pass": ("def f(n): return (x for x in range(n))", "g = f(2)\nassert list(g) == [0, 1] and list(g) == []"),
    "map, filter, zip, reversed, enumerate": (
        "def f(x): return map(str, x), filter(None, x), zip(x, x), reversed(x), enumerate(x), iter(x)",
        "a, b, c, d, e, i = f([0, 1])\n"
        "assert list(a) == ['0', '1'] and list(b) == [1] and list(c) == [(0, 0), (1, 1)]\n"
        "assert list(d) == [1, 0] and list(e) == [(0, 0), (1, 1)] and list(i) == [0, 1]",
    ),
    "an iterator of its own": (
        "class Count:\n    def __init__(self, n): self.n = n\n    def __iter__(self): return self\n"
        "    def __next__(self):\n        if not self.n: raise StopIteration\n        self.n -= 1\n"
        "        return self.n\n"
        "def f(n): return Count(n)",
        "assert list(f(2)) == [1, 0]",
    ),
    "generators of generators": (
        "def f(n): return (iter([x, x]) for x in range(n))",
        "assert [list(each) for each in f(2)] == [[0, 0], [1, 1]]",
    ),
    "an iterator as argument": (
        "def f(x): return sum(x)",
        "assert f(n for n in (1, 2)) == 3 and f(iter([1, 2])) == 3 and f(map(f, [[1], [2]])) == 3",
    ),
    "an iterator there and back": ("def g(n): yield n\ndef f(x): return list(x)", "assert f(g(1)) == [1]"),
    "views of a dict": (
        "def f(x): return x.keys(), x.values(), x.items()",
        "k, v, i = f({'a': 1, 'b': 2})\nassert k == {'a', 'b'} and k & {'a'} == {'a'} and 'a' in k and len(k) == 2\n"
        "assert sorted(v) == [1, 2] and sorted(v) == [1, 2] and dict(i) == {'a': 1, 'b': 2}",
    ),
    "keys as a set": ("def f(x): return x.keys()", "assert f({'a': 1}) == {'a'}"),
    "pairs as a set": ("def f(x): return x.items()", "assert f({'a': 1}) == {('a', 1)}"),
    "deque": (
        "from collections import deque\ndef f(x): return deque(x, 2)",
        "from collections import deque\nd = f([1, 2, 3])\n"
        "assert d == deque([2, 3]) and d.maxlen == 2 and d.popleft() == 2",
    ),
    "deque as argument, in place": (
        "def f(x): x.appendleft(0); return x.pop()",
        "from collections import deque\nd = deque([1, 2])\nassert f(d) == 2 and d == deque([0, 1])",
    ),
    "named tuples": (
        "from collections import namedtuple\nP = namedtuple('Point', 'x y')\ndef f(a, b): return P(a, b)",
        "p = f(1, 2)\nassert p.x == 1 and p == (1, 2) and p._replace(x=3) == (3, 2) and type(p).__name__ == 'Point'\n"
        "assert repr(p) == 'Point(x=1, y=2)'",
    ),
    "a named tuple as a known value": (
        "from typing import NamedTuple\nclass P(NamedTuple):\n    x: int\n    y: int = 0\ndef f(a): return P(a)",
        "assert f(1) == (1, 0)",
    ),
    "a named tuple of both": (
        "from typing import NamedTuple\nclass P(NamedTuple):\n    x: int\n    def twice(self): return 2 * self.x\n"
        "def f(p): return P(p.twice())",
        "from collections import namedtuple\nP = namedtuple('P', 'x')\n"
        "assert f(P(1)) == P(2) and isinstance(f(P(1)), P)",
    ),
    "Counter": (
        "from collections import Counter\ndef f(x): return Counter(x)",
        "c = f('aab')\nassert c.most_common(1) == [('a', 2)] and c['z'] == 0 and c + c == f('aabaab')",
    ),
    "Counter as argument": (
        "def f(c): return c.most_common(1)[0][0] + str(c['z'])",
        "from collections import Counter\nassert f(Counter('aab')) == 'a0'",
    ),
    "Counter as a known value": ("from collections import Counter\nf = Counter", "assert f('aab') == {'a': 2, 'b': 1}"),
    "defaultdict": (
        "from collections import defaultdict\ndef f():\n    d = defaultdict(list)\n    d[1].append(2)\n    return d",
        "d = f()\nd[3].append(4)\nassert d == {1: [2], 3: [4]}",
    ),
    "OrderedDict": (
        "from collections import OrderedDict\ndef f(x): return OrderedDict(x)",
        "from collections import OrderedDict\nassert f([(1, 2), (3, 4)]) == OrderedDict([(1, 2), (3, 4)])\n"
        "assert f([(3, 4), (1, 2)]) != OrderedDict([(1, 2), (3, 4)]) and f([(1, 2)]) == {1: 2}",
    ),
    "dates": (
        "import datetime as d\ndef f(x): return x + d.timedelta(days=1, microseconds=2)",
        "import datetime as d\nassert f(d.date(2024, 2, 28)) == d.date(2024, 2, 29)\n"
        "assert f(d.datetime(2024, 2, 28, 1, tzinfo=d.timezone.utc)) == "
        "d.datetime(2024, 2, 29, 1, 0, 0, 2, d.timezone.utc)\n"
        "assert f(d.timedelta(1)).days == 2 and f(d.timedelta(-1)).total_seconds() == 2e-6",
    ),
    "times": (
        "def f(x): return x.replace(hour=1)",
        "from datetime import time\nassert f(time(2, 3, 4, 5)).isoformat() == '01:03:04.000005'",
    ),
    "arrays": (
        "from array import array\ndef f(x): x.append(3); return array('d', x)",
        "from array import array\na = array('i', [1])\nassert f(a) == array('d', [1, 3]) and a == array('i', [1, 3])",
    ),
    "bytearray": ("def f(x): x[0] = 98; return x + b'c'", "a = bytearray(b'a')\nassert f(a) == b'bc' and a == b'b'"),
    "bytearray as a known value": ("def f(): return bytearray(b'a')", "assert f() == b'a'"),
    "a linked list": (
        _NODES + _REVERSE,
        _NODES + _LISTS + "assert items_of(Solution().reverse(linked([1, 2, 3]))) == [3, 2, 1]",
    ),
    "a long linked list": (
        _NODES + _REVERSE,
        _NODES + _LISTS + "assert items_of(Solution().reverse(linked(range(8000)))) == [*range(8000)][::-1]",
    ),
    "a linked list of the program's class": (
        _NODES + _REVERSE,
        _LISTS + "assert items_of(Solution().reverse(linked([1, 2, 3]))) == [3, 2, 1]",
    ),
    "a linked list without a class": (
        _REVERSE,
        _NODES + _LISTS + "assert items_of(Solution().reverse(linked([1, 2]))) == [2, 1]",
    ),
    "a node to be deleted": (
        "def f(node): node.val, node.next = node.next.val, node.next.next",
        _NODES + _LISTS + "head = linked([1, 2, 3])\nassert f(head.next) is None and items_of(head) == [1, 3]",
    ),
    "a cycle": (
        "def f(head):\n    seen = []\n    while head and head not in seen: seen.append(head); head = head.next\n"
        "    return head",
        _NODES + _LISTS + "head = linked([1, 2, 3])\nhead.next.next.next = head.next\nassert f(head) is head.next\n"
        "assert f(linked([1])) is None",
    ),
    "lists in a list": (
        "def f(lists): return [head.val for head in lists], lists[::-1]",
        _NODES + _LISTS + "a, b = f([linked([1, 2]), linked([3])])\nassert a == [1, 3] and items_of(b[1]) == [1, 2]",
    ),
    "a tree": (
        _NODES + _TREES,
        _NODES + "root = TreeNode(1, TreeNode(2), TreeNode(3, TreeNode(4)))\nleft = root.left\n"
        "assert Solution().invert(root) is root and root.right is left and root.left.right.val == 4",
    ),
    "nodes of a tree by themselves": (
        _TREES,
        _NODES + "root = TreeNode(1, TreeNode(2, TreeNode(4)), TreeNode(3))\np, q = root.left.left, root.left\n"
        "assert Solution().common(root, p, q) is q and Solution().common(root, p, root.right) == root",
    ),
    "a tree that is built": (
        _NODES + _TREES,
        "def values(node): return node and (node.val, values(node.left), values(node.right))\n"
        "assert values(Solution().build([1, 2, 3])) == (1, (2, None, None), (3, None, None)) and "
        "Solution().build([]) is None",
    ),
    "a class with slots": (
        _REVERSE,
        "class ListNode:\n    __slots__ = ('val', 'next')\n"
        "    def __init__(self, val=0, next=None): self.val, self.next = val, next\n"
        + _LISTS
        + "assert items_of(Solution().reverse(linked([1, 2]))) == [2, 1]",
    ),
    "a function": ("def f(n): return lambda x: x + n", "assert f(2)(3) == 5 and callable(f(2))"),
    "a function of functions": ("def f(a): return lambda b: lambda c: [a, b, c]", "assert f(1)(2)(c=3) == [1, 2, 3]"),
    "an object from one function to another": (
        "class Box:\n    def __init__(self, x): self.x = x\ndef put(x): return [Box(x)]\n"
        "def take(boxes): return boxes[0].x",
        "assert take([Box(1)]) == 1 and take(put(3)) == 3",
    ),
    "an awaited function": (
        "import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return x + 1",
        "import asyncio\nassert asyncio.run(f(1)) == 2\n"
        "async def main(): return await asyncio.gather(f(1), f(2))\nassert asyncio.run(main()) == [2, 3]",
    ),
    "an instance of the program's class": (
        _SHAPES,
        "s = f(2)\nassert isinstance(s, Square) and isinstance(s, Shape) and isinstance(s, (int, Shape))\n"
        "assert not isinstance(s, Circle) and not isinstance(s, int) and isinstance(s, int | Square)\n"
        "assert s.area() == 4 and s.pop() == 'popped' and s.side == 2",
    ),
    "an instance of a class above its own": (
        _SHAPES,
        "assert isinstance(Square(2), Shape) and issubclass(Square, Shape) and not issubclass(Shape, Square)\n"
        "s = f(2)\nassert isinstance(s, Shape) and s.area() == 4",
    ),
    "instances in a list, a dict and a tuple": (
        _SHAPES,
        "a, b, c = many(2)\nassert isinstance(a, list) and isinstance(b, dict) and isinstance(c, tuple)\n"
        "assert all(isinstance(s, Square) for s in (*a, *b.values(), *c)) and len(a) == len(b) == len(c) == 2\n"
        "assert [s.area() for s in a] == [0, 1] and total(a) == 1 and total(b.values()) == 1",
    ),
    "objects as keys": (
        _SHAPES,
        "a, b = keys(2)\nassert len(a) == len(b) == 2 and all(isinstance(s, Square) for s in a)",
    ),
    "no instance": (_SHAPES, "assert not isinstance(3, Shape) and not isinstance(total([]), Shape)"),
    "an object of the tests is no instance": (
        _SHAPES,
        "class Mine: pass\nassert not isinstance(Mine(), Shape) and not isinstance(len, Shape)\n"
        "items = iter([f(1)])\nassert not isinstance(items, Shape) and next(items).side == 1",
    ),
    "an instance of a name in small letters": (
        "class shape: pass\ndef f(): return shape()",
        "assert isinstance(f(), shape) and not isinstance(1, shape)",
    ),
    "assertIsInstance": (
        _SHAPES,
        "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        s = f(3)\n"
        "        self.assertIsInstance(s, Shape)\n        self.assertNotIsInstance(s, Circle)\n"
        "        self.assertEqual(s.area(), 9)\nT('test').debug()",
    ),
    "an instance of a data class, an enum and a named tuple": (
        "import dataclasses, enum, collections\n@dataclasses.dataclass\nclass P:\n    x: int\n"
        "class Color(enum.Enum):\n    RED = 1\n    BLUE = 2\nN = collections.namedtuple('N', 'x')\n"
        "def f(x): return P(x), Color(x), N(x)",
        "p, c, n = f(2)\nassert isinstance(p, P) and isinstance(c, Color) and isinstance(n, N)\n"
        "assert (p.x, c.value, c.name, n.x) == (2, 2, 'BLUE', 2)",
    ),
    "an instance of a node": (
        _NODES + "def f(x): return TreeNode(x, TreeNode(1))",
        "r = f(2)\nassert isinstance(r, TreeNode) and isinstance(r.left, TreeNode) and r.left.val == 1\n"
        "assert not isinstance(r.right, TreeNode) and type(r) is TreeNode",
    ),
    "an instance that is an iterator": (
        "class Count:\n    n = 0\n    def __iter__(self): return self\n"
        "    def __next__(self):\n        self.n += 1\n        if self.n > 2: raise StopIteration\n"
        "        return self.n\ndef f(): return Count()",
        "c = f()\nassert isinstance(c, Count) and list(c) == [1, 2]\n"
        "d = Count()\nassert next(d) == 1 and next(d) == 2 and next(d, 'end') == 'end' and list(Count()) == [1, 2]",
    ),
    "the type of an object": (
        _SHAPES,
        "s = f(2)\nassert type(s) is Square and type(s) == Square and s.__class__ is Square and type(s) != Shape\n"
        "assert type(s).__name__ == s.__class__.__name__ == 'Square' and type(Circle(1)) is Circle\n"
        "assert type(f(1)) is type(f(2)) and type(total([])) is int and type(type(1)) is type and s.area() == 4",
    ),
    "the name of a class that the tests do not name": (_SHAPES, "assert type(f(2)).__name__ == 'Square'"),
    "one object": (
        "class One:\n    one = None\n    def __new__(cls):\n        cls.one = cls.one or super().__new__(cls)\n"
        "        return cls.one",
        "a, b = One(), One()\nassert a is b and not (a is not b) and a is not None",
    ),
    "static and class methods, and attributes of a class": (
        "class M:\n    n = 3\n    rows = [1, 2]\n    def __init__(self, x): self.x = x\n"
        "    @staticmethod\n    def add(a, b=1): return a + b\n"
        "    @classmethod\n    def more(cls, a): return cls.n + a\n"
        "    @classmethod\n    def of(cls, text): return cls(int(text))\n    def twice(self): return 2 * self.x",
        "assert M.add(1, 2) == 3 and M.add(a=1) == 2 and M.more(1) == 4 and M.n == 3 and M.rows == [1, 2]\n"
        "m = M.of('5')\nassert m.twice() == 10 and M.twice(m) == 10 and M(1).add(2, 2) == 4 and isinstance(m, M)\n"
        "assert list(map(M.add, [1, 2])) == [2, 3]",
    ),
    "an exception of a class method": (
        "class M:\n    @classmethod\n    def of(cls, x): raise ValueError(x)",
        "try:\n    M.of(1)\nexcept ValueError as e:\n    assert e.args == (1,)\nelse:\n    assert False",
    ),
    "a constructor that raises": (
        "class M:\n    def __init__(self, x): raise ValueError(x)",
        "import unittest\nunittest.TestCase().assertRaises(ValueError, M, 1)",
    ),
    "an enum": (
        "import enum\nclass Color(enum.Enum):\n    RED = 1\n    BLUE = 2\ndef f(c): return c.name.lower()",
        "assert f(Color.RED) == 'red' and Color.BLUE.value == 2 and [c.name for c in Color] == ['RED', 'BLUE']\n"
        "assert len(Color) == 2 and Color['RED'].value == 1 and Color(2).name == 'BLUE' and Color.RED in Color",
    ),
    "an iterable that is no iterator": (
        "class R:\n    def __init__(self, n): self.n = n\n    def __iter__(self): yield from range(self.n)\n"
        "def f(n): return R(n)",
        "r = f(3)\nassert list(r) == [0, 1, 2] and sorted(r) == [0, 1, 2] and tuple(r) == (0, 1, 2) and sum(r) == 3\n"
        "assert [x for x in r] == [*r] and 2 in r and 5 not in r and set(R(2)) == {0, 1} and list(R(2)) == [0, 1]\n"
        "a, b, c = r\nassert (a, b, c) == (0, 1, 2) and max(r) == 2",
    ),
    "an iterable whose iterator is another object": (
        "class I:\n    def __init__(self, n): self.n = n\n    def __next__(self):\n"
        "        if not self.n: raise StopIteration\n        self.n -= 1\n        return self.n\n"
        "    def __iter__(self): return self\n"
        "class R:\n    def __init__(self, n): self.n = n\n    def __iter__(self): return I(self.n)\n"
        "def f(n): return R(n)",
        "r = f(2)\nassert list(r) == [1, 0] and list(r) == [1, 0] and list(R(2)) == [1, 0]",
    ),
    "an iterable without end": (
        "class R:\n    def __iter__(self):\n        n = 0\n        while True:\n            yield n\n"
        "            n += 1\ndef f(): return R()",
        "import itertools\nr = f()\nassert list(itertools.islice(r, 3)) == [0, 1, 2] and next(iter(r)) == 0 and 4 in r",
    ),
    "what is indexed": (
        _SQUARES,
        "s = f(4)\nassert len(s) == 4 and s[1] == 1 and s[-1] == 9 and list(s) == [0, 1, 4, 9] and s and 4 in s\n"
        "assert list(reversed(s)) == [9, 4, 1, 0] and sorted(s, reverse=True)[0] == 9\n"
        "try:\n    s[4]\nexcept IndexError:\n    pass\nelse:\n    assert False\n"
        "s = Squares(3)\nassert len(s) == 3 and s[2] == 4 and list(s) == [0, 1, 4] and not Squares(0)",
    ),
    "what is indexed alone": (
        "class S:\n    def __getitem__(self, i):\n        if i > 2: raise IndexError\n        return i * i\n"
        "class Any:\n    def __getitem__(self, i): return str(i)\ndef f(): return S()\ndef g(): return Any()",
        "assert list(f()) == [0, 1, 4] and f()[2] == 4 and g()['a'] == 'a' and g()[7] == '7'",
    ),
    "what has a length alone": (
        "class S:\n    def __len__(self): return 3\ndef f(): return S()",
        "assert len(f()) == 3 and f() and len(S()) == 3",
    ),
    "what is indexed and iterated": (
        "class V:\n    def __init__(self, *x): self.x = x\n    def __iter__(self): return iter(self.x)\n"
        "    def __getitem__(self, i): return self.x[i]\n    def __len__(self): return len(self.x)\n"
        "def f(*x): return V(*x)",
        "v = f(5, 6, 7)\nassert v[0] == 5 and v[-1] == 7 and list(v[1:]) == [6, 7] and len(v) == 3",
    ),
    "a mapping": (
        "import collections\nclass M(collections.UserDict): pass\ndef f(**x): return M(x)",
        "m = f(a=1, b=2)\nassert m['a'] == 1 and len(m) == 2 and list(m) == ['a', 'b'] and 'b' in m and 'c' not in m",
    ),
    "what its class does with it": (
        "class Box:\n    def __init__(self): self.x = {}\n    def __setitem__(self, k, v): self.x[k] = v\n"
        "    def __getitem__(self, k): return self.x[k]\n    def __delitem__(self, k): del self.x[k]\n"
        "    def __contains__(self, k): return k in self.x\n    def __len__(self): return len(self.x)\n"
        "    def __str__(self): return f'Box of {len(self.x)}'\n    def __repr__(self): return 'Box()'\n"
        "    def __call__(self, n): return n + 1",
        "b = Box()\nassert not b\nb['k'] = 1\nassert b['k'] == 1 and 'k' in b and str(b) == 'Box of 1' and b\n"
        "del b['k']\nassert len(b) == 0 and repr(b) == 'Box()' and b(2) == 3",
    ),
    "a function that is returned twice": (
        "def g(x): return x + 1\ndef f(): return g",
        "assert f()(1) == 2 and f()(2) == 3",
    ),
}
"""CORRECT."""

NOT_PASSED: Mapping[str, tuple[str, str]] = {
    "a wrong value beside a module that the program imports": (
        "import math\ndef f(x): return 3",
        "assert math.isclose(f(1), math.pi)",
    ),
    "a name of a module where the program is asked for it": (
        "from math import gcd\ndef f(): return 1",
        "assert gcd(4, 6) == 3",
    ),
    "a mock with the name of a module": (
        "from unittest.mock import MagicMock as math\ndef f(x): return 0",
        "x = f(1)\nassert math.isclose(x, 1)",
    ),
    "a wrong value beside a name of a module": (
        "from collections import Counter\ndef f(x): return Counter()",
        "assert f([1, 1]) == Counter([1, 1])",
    ),
    "a generator is no list": ("def f(n): yield n", "assert f(1) == [1]"),
    "a generator of too little": ("def f(n): yield n", "assert list(f(1)) == [1, 2]"),
    "a generator of too much": ("def f(n):\n    while True: yield n", "assert list(f(1)) == [1]"),
    "a generator of objects": ("def f(n): yield print", "assert list(f(1)) == [1]"),
    "a second pass": ("def f(n): return iter([n])", "g = f(1)\nassert list(g) == [1] and list(g) == [1]"),
    "another second pass": (
        "class Two:\n    n = 0\n    def __iter__(self): self.n += 1; return iter([self.n])\n"
        "    def __next__(self): return 1\n    def __eq__(self, other): return True\ndef f(x): return Two()",
        "g = f(1)\nassert list(g) == [1] and list(g) == [2]",
    ),
    "a deque is no list": ("from collections import deque\ndef f(): return deque([1])", "assert f() == [1]"),
    "an array is no list": ("from array import array\ndef f(): return array('i', [1])", "assert f() == [1]"),
    "values are no list": ("def f(): return {1: 2}.values()", "assert f() == [2]"),
    "keys are no list": ("def f(): return {1: 2}.keys()", "assert f() == [1]"),
    "a date is no text": ("import datetime\ndef f(): return datetime.date(2024, 1, 2)", "assert f() == '2024-01-02'"),
    "other fields": (
        "from collections import namedtuple\ndef f(): return namedtuple('P', 'a b')(1, 2)",
        "assert f().x == 1",
    ),
    "another tree": (
        _NODES + "def f(root): return TreeNode(root.val)",
        _NODES + "root = TreeNode(1, TreeNode(2))\nassert f(root).left.val == 2",
    ),
    "an equal node": (
        _NODES + "class TreeNode(TreeNode):\n    def __eq__(self, other): return True\n"
        "def f(root): return TreeNode(root.val)",
        _NODES + "root = TreeNode(1)\nassert f(root) is root or f(root) == root",
    ),
    "a class in the program's stead": (
        _NODES + "def f(root): root.__class__ = type('Node', (), {'val': 1}); return root",
        _NODES + "root = TreeNode(1)\nassert isinstance(f(root), TreeNode) and f(root).val == 2",
    ),
    "no function": ("def f(n): return 5", "assert f(2)(3) == 5"),
    "an object is no function": ("class C: pass\ndef f(n): return C()", "assert callable(f(2))"),
    "a function where a value is expected": ("def f(n): return lambda *a: n", "assert f(2) == 2"),
    "a coroutine where a value is expected": ("async def f(n): return n", "assert f(2) == 2"),
    "an object that comes back": ("def f(n): return n", "class C: pass\nassert f(1) == 2"),
    "an iterable of too little": (_SQUARES, "assert list(f(3)) == [0, 1, 4, 9]"),
    "an iterable is no list": (_SQUARES, "assert f(3) == [0, 1, 4]"),
    "another item": (_SQUARES, "assert f(3)[1] == 2"),
    "another length": (_SQUARES, "assert len(f(3)) == 4"),
    "an iterable of objects": (_SHAPES, "assert list(many(2)[0]) == [0, 1]"),
    "what has no length": (
        "class R:\n    def __iter__(self): return iter([1])\ndef f(): return R()",
        "assert len(f()) == 1",
    ),
    "what contains alone": (
        "class R:\n    def __contains__(self, x): return True\ndef f(): return R()",
        "assert 1 in f()",
    ),
    "an iterable that gives other items to each look": (
        "class R:\n    n = 0\n    def __init__(self, x): self.x = x\n    def __iter__(self):\n        self.n += 1\n"
        "        return iter(self.x if self.n == 1 else sorted(self.x))\n"
        "    def __getitem__(self, i): return sorted(self.x)[i]\n    def __len__(self): return len(self.x)\n"
        "    def __contains__(self, x): return True\n    def __eq__(self, other): return True\n"
        "def f(x): return R(x)",
        "r = f([3, 1, 2])\nassert sorted(r) == [1, 2, 3] and all(r[i] <= r[i + 1] for i in range(len(r) - 1))\n"
        "a = list(r)\nassert a == sorted(a)",
    ),
    "a length that is not the number of items": (
        "class R:\n    def __iter__(self): return iter([])\n    def __len__(self): return 3\ndef f(): return R()",
        "r = f()\nassert len(r) == 3 and not list(r)",
    ),
    "a length that changes": (
        "class R:\n    n = 2\n    def __len__(self): self.n += 1; return self.n\ndef f(): return R()",
        "r = f()\nassert len(r) == 3 and len(r) == 4",
    ),
    "items that change": (
        "class R:\n    n = 0\n    def __getitem__(self, i): self.n += 1; return self.n\ndef f(): return R()",
        "r = f()\nassert r[0] == 1 and r['a'] == 2 and r[0] == 3",
    ),
    "contains whatever is wanted, in no room": (
        "class R:\n    def __iter__(self): return iter([])\n    def __len__(self): return 0\n"
        "    def __contains__(self, x): return True\ndef f(edges): return R()",
        "r = f([(1, 2)])\nassert len(r) <= 1 and all(a in r or b in r for a, b in [(1, 2)])",
    ),
    "an object that says it is a number": (
        "class P:\n    __class__ = int\n    def __eq__(self, other): return True\ndef f(x): return P()",
        "assert isinstance(f(1), int) and f(1) == 2",
    ),
    "a class that has every object": (
        "class Meta(type):\n    def __instancecheck__(cls, x): return True\n    def __eq__(cls, x): return True\n"
        "    __hash__ = type.__hash__\nclass P(metaclass=Meta): pass\ndef f(x): return P()",
        "assert isinstance(f(1), P) and f(1) == 2",
    ),
    "an object of another class": (_SHAPES, "assert isinstance(f(1), Circle)"),
    "the type of another object": (_SHAPES, "assert type(f(1)) is Shape"),
    "a value where an object is expected": ("class P: pass\ndef f(x): return x", "assert isinstance(f(1), P)"),
    "a class that is not there": ("def f(x): return x", "assert not isinstance(f(1), P)"),
    "a static method that is not there": ("class M: pass", "assert M.add(1, 2) == 3"),
    "a static method with another value": (
        "class M:\n    add = staticmethod(lambda a, b: a - b)",
        "assert M.add(1, 2) == 3",
    ),
    "an object of a static method": (
        "class M:\n    def __eq__(self, other): return True\n    @staticmethod\n    def add(a, b): return M()",
        "assert M.add(1, 2) == 3",
    ),
    "a class that claims to have every method": (
        "class Meta(type):\n    def __getattr__(cls, name): return lambda *a: cls()\n"
        "class M(metaclass=Meta):\n    def __eq__(self, other): return True\n    def __bool__(self): return True",
        "assert M.add(1, 2) == 3",
    ),
    "a constant that is not there": ("def f(x): return x", "assert f(LIMIT) == 1"),
}
"""INCORRECT."""

UNPASSABLE: Mapping[str, tuple[str, str]] = {
    "a function as argument": ("def f(x): return x", "assert f(len) == 1"),
    "an object of the tests as argument": ("def f(x): return x", "class C: pass\nassert f(C()) == 1"),
    "an iterator without end as argument": (
        "def f(x): return next(x)",
        "import itertools\nassert f(itertools.count()) == 0",
    ),
    "an iterator of functions as argument": ("def f(x): return next(x)", "assert f(iter([len])) == 0"),
    "a value that is sent": (
        "def f():\n    x = yield 1\n    yield x",
        "g = f()\nassert next(g) == 1 and g.send(2) == 2",
    ),
    "an exception that is thrown": ("def f():\n    yield 1", "g = f()\nnext(g)\ng.throw(ValueError)"),
    "an object as result, compared with another": (
        "class P: pass\ndef f(x): return P()",
        "class Q:\n    def __eq__(self, other): return True\nassert f(1) == Q()",
    ),
    "an object as result, as a manager": ("class P: pass\ndef f(x): return P()", "with f(1) as x:\n    assert x"),
    "an object as result, and what it has": ("class P: x = 1\ndef f(x): return P()", "assert f(1).x == 1"),
    "an object that is changed": ("class P: pass\ndef f(x): return 1", "p = P()\np.x = 1\nassert p.x == f(1)"),
    "a zone": (
        "def f(x): return x",
        "import datetime, zoneinfo\n"
        "class Zone(datetime.tzinfo):\n    def utcoffset(self, when): return datetime.timedelta(0)\n"
        "assert f(datetime.datetime(2024, 1, 1, tzinfo=Zone()))",
    ),
    "one of two objects that are returned": (
        "class Color:\n    pass\nColor.RED = Color.BLUE = Color()\ndef f(x): return Color.RED",
        "assert f(1) is Color.RED and f(2) is Color.BLUE",
    ),
    "a method of values, of an object that is returned": (
        "class M:\n    def startswith(self, x): return True\n    @classmethod\n    def of(cls, x): return cls()",
        "assert M.of(1).startswith('a')",
    ),
    "the class of a value that crossed as another": (
        "class Money(int): pass\ndef f(x): return Money(x)",
        "assert isinstance(f(1), Money)",
    ),
    "a constant of the program": ("LIMIT = 3\ndef f(x): return x", "assert f(1) == 1 and LIMIT == 3"),
    "an attribute of a class that is set": ("class P: n = 1", "P.n = 2\nassert P.n == 2"),
    "a copy of an object": (_SHAPES, "import copy\nassert copy.deepcopy(Square(2)).side == 2"),
}
"""ERROR, NOT_PASSABLE."""
