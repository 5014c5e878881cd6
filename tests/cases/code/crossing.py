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

PASSED: Mapping[str, tuple[str, str]] = {
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
}
"""CORRECT."""

NOT_PASSED: Mapping[str, tuple[str, str]] = {
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
}
"""ERROR, NOT_PASSABLE."""
