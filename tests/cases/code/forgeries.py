"""Programs that want to pass tests which they fail, or to harm what runs them, by name.

Each defines `f` where it can, and is run as a script besides. Whatever a program learns, it must never learn `SECRET`,
which is what `f` is expected to return, or to be written; and no program knows it by itself.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["FORGERIES", "SECRET"]

SECRET = "zq-7f3a9c51-secret"
"""What the tests expect."""

_EQUAL = """
class Equal{base}:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __bool__(self): return True
    def __lt__(self, other): return True
    def __contains__(self, other): return True
    def __getattr__(self, name): return lambda *a, **k: self
    def __reduce__(self): return (str, ("zq",))
def f(x): return Equal()
print(Equal())
"""

_HUNT = """
import gc, sys, threading
def found():
    seen = [o for o in gc.get_objects() if isinstance(o, (dict, list, tuple))]
    for frame in sys._current_frames().values():
        while frame is not None:
            seen += [frame.f_locals, frame.f_globals]
            frame = frame.f_back
    for holder in seen:
        for value in list(holder.values() if isinstance(holder, dict) else holder):
            text = value if isinstance(value, str) else repr(value)[:1000] if isinstance(value, bytes) else ""
            at = text.find("zq" + "-")
            if at >= 0: return text[at:at + 18]
"""

_CHANNELS = """
import os, json, sys, gc
def nonces():
    frame = sys._getframe()
    while frame is not None:
        for value in list(frame.f_locals.values()):
            if isinstance(value, dict) and "nonce" in value: yield value["nonce"]
        frame = frame.f_back
def write_all():
    for nonce in list(nonces()) or ["0" * 16]:
        for message in (dict(nonce=nonce, passed=True), dict(nonce=nonce, loaded=True), dict(nonce=nonce, value=True),
                        dict(code=0, touched=False), dict(passed=True), True, "passed", [], None):
            data = json.dumps(message).encode()
            for fd in range(64):
                for framed in (len(data).to_bytes(4, "little") + data, data):
                    try: os.write(fd, framed)
                    except OSError: pass
"""

FORGERIES: Mapping[str, str] = {
    "an object that equals everything": _EQUAL.format(base=""),
    "a text that equals everything": _EQUAL.format(base="(str)"),
    "a number that equals everything": _EQUAL.format(base="(int)"),
    "a list that equals everything": _EQUAL.format(base="(list)"),
    "a dict that equals everything": _EQUAL.format(base="(dict)"),
    "a tuple that equals everything": _EQUAL.format(base="(tuple)"),
    "a deque that equals everything": "from collections import deque" + _EQUAL.format(base="(deque)"),
    "a named tuple that equals everything": "from collections import namedtuple"
    + _EQUAL.format(base="(namedtuple('N', ''))"),
    "a Counter that equals everything": "from collections import Counter" + _EQUAL.format(base="(Counter)"),
    "a date that equals everything": "import datetime"
    + _EQUAL.format(base="(datetime.date)").replace("Equal()", "Equal(2024, 1, 2)"),
    "an array that equals everything": "from array import array"
    + _EQUAL.format(base="(array)").replace("Equal()", "Equal('b')"),
    "an iterator that equals everything": _EQUAL.format(base="")
    + "Equal.__iter__ = lambda self: self\nEqual.__next__ = lambda self: self\n",
    "a node that equals everything": _EQUAL.format(base="").replace("Equal", "TreeNode")
    + "TreeNode.__init__ = lambda self: setattr(self, 'val', self)\n",
    "a function that equals everything": _EQUAL.format(base="") + "Equal.__call__ = lambda self, *a: self\n",
    "lies about its type": """
class Lie:
    def __init__(self, kind): self.kind = kind
    @property
    def __class__(self): return self.kind
    def __eq__(self, other): return True
    def __hash__(self): return 0
    def __iter__(self): return iter(())
    def __getattr__(self, name): return lambda *a, **k: True
n = 0
def f(x):
    global n
    n += 1
    import collections, datetime, array
    kinds = (str, int, list, dict, tuple, set, collections.deque, collections.Counter, datetime.date, array.array)
    return Lie(kinds[n % len(kinds)])
print(f(1))
""",
    "an iterator that differs each time": """
import itertools
class Other:
    n = 0
    def __iter__(self): self.n += 1; return iter("zq-" if self.n % 2 else "secret")
    def __next__(self): return "z"
    def __len__(self): return 18
def f(x): return Other()
print(*f(1))
""",
    "hands objects back as others": """
import sys
values = sys.modules["crucible_worker.grading.code.inside.wire"]
n = 0
def encode(value, depth=0, kept=None):
    global n
    n += 1
    return ({"object": n % 5}, {"iterator": n % 5}, {"node": n % 5}, {"object": -1}, {"iterator": "x"})[n % 5]
values.encode = encode
class F:
    def f(self, x): return self
    def __getattr__(self, name): return lambda *a, **k: True
def f(x): return F()
""",
    "changes nodes that are not its own": """
import sys
values = sys.modules["crucible_worker.grading.code.inside.wire"]
frames = sys.modules["crucible_worker.grading.code.inside.wire"]
true = frames.pack
rows = [[n, "TreeNode", [["val", True], ["left", {"node": n}]]] for n in range(6)]
odd = [[[], "TreeNode", []], [0, "type", []], [0, "TreeNode", [["__class__", 1]]], [0, "TreeNode", [["val"]]], 7]
n = 0
def pack(message):
    global n
    n += 1
    return true({**message, "nodes": [*rows, odd[n % 5]] if n % 2 else rows, "value": {"node": n % 6}, "changed": []})
frames.pack = pack
def f(x): return 1
""",
    "an iterable that gives whatever is wanted": """
class F:
    looks = 0
    def __init__(self, *given): pass
    def f(self, x): return self
    def __iter__(self):
        self.looks += 1
        return iter([] if self.looks % 2 else ["z", "q", self])
    def __len__(self): return 18
    def __getitem__(self, key): return self
    def __contains__(self, other): return True
    def __eq__(self, other): return True
    def __hash__(self): return 0
    def keys(self): return self
    def __instancecheck__(self, other): return True
def f(x): return F()
""",
    "an iterable of what equals everything": """
class Equal:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return hash("z")
class F:
    def f(self, x): return [Equal()] * 18
def f(x): return [Equal()] * 18
""",
    "says what is not true of its objects": """
import sys
program = sys.modules["crucible_worker.grading.code.inside.program"]
odd = [
    {"object": None}, {"object": -1, "gives": 5}, {"object": 0, "lineage": [[]], "gives": [{}]}, {"object": "zq"},
    {"object": 0, "callable": True, "lineage": ["str", "F"], "gives": ["iter", "len", "getitem", "keys"]}, 7,
]
n = 0
def told(self, value):
    global n
    n += 1
    return odd[n % len(odd)]
program._Kept.told = told
class F:
    def f(self, x): return [F(), F()]
    def __iter__(self): return iter("zq")
def f(x): return F() if n % 2 else [F(), F()]
""",
    "a class that equals everything": """
class Meta(type):
    def __eq__(cls, other): return True
    def __hash__(cls): return 0
class f(metaclass=Meta): pass
""",
    "ends well while it is loaded": "import os\nos._exit(0)",
    "ends well when it is called": "import os\ndef f(x): os._exit(0)",
    "exits": "import sys\nsys.exit(0)",
    "exits when it is called": "def f(x): raise SystemExit(0)",
    "exits at the end": "import atexit, os\natexit.register(os._exit, 0)\ndef f(x): return None",
    "raises what stops a test": "def f(x): raise StopIteration",
    "raises what no test catches": "def f(x): raise KeyboardInterrupt",
    "raises an assertion that is none": """
class AssertionError(Exception):
    def __bool__(self): return False
def f(x): raise AssertionError
""",
    "walks the frames": _HUNT + "def f(x): return found()\nprint(found())",
    "walks the frames of a thread": _HUNT
    + "out = []\nt = threading.Thread(target=lambda: out.append(found())); t.start(); t.join()\n"
    + "def f(x): return out[0]\nprint(out[0])",
    "traces its caller": """
import sys
def trace(frame, event, arg):
    frame.f_trace_opcodes = True
    for name in list(frame.f_locals): frame.f_locals[name] = True
    return trace
sys.settrace(trace); sys.setprofile(trace)
def f(x): return True
""",
    "reads what is there": """
import os
def found():
    for folder in ("/", "/sandbox", "/tmp", "/proc", "/proc/1", "/etc", "/dev", "/root", "/home", "/run", "."):
        for path, _, names in os.walk(folder):
            if path.count("/") > 4 or path.startswith(("/usr", "/root/.")): continue
            for name in names:
                try:
                    if not os.path.isfile(os.path.join(path, name)): continue
                    text = open(os.path.join(path, name), errors="replace").read(100_000)
                except OSError: continue
                at = text.find("zq" + "-")
                if at >= 0: return text[at:at + 18]
def f(x): return found()
print(found())
""",
    "reads the memory of others": """
import os, ctypes
def found():
    libc = ctypes.CDLL(None, use_errno=True)
    said = [libc.ptrace(16, pid, 0, 0) for pid in range(1, 9)]
    for pid in range(1, 9):
        for name in (f"/proc/{pid}/mem", f"/proc/{pid}/environ", f"/proc/{pid}/cmdline", f"/proc/{pid}/maps"):
            try: return open(name, "rb").read(18).decode()
            except OSError: pass
    return said
def f(x): return found()
print(found())
""",
    "reads its descriptors": """
import os
def found():
    for fd in range(64):
        try:
            os.set_blocking(fd, False)
            data = os.read(fd, 1 << 20)
        except OSError: continue
        at = data.find(b"zq" + b"-")
        if at >= 0: return data[at:at + 18].decode()
def f(x): return found()
print(found())
""",
    "writes to the channel while it is loaded": _CHANNELS + "write_all()\ndef f(x): return True",
    "writes to the channel when it is called": _CHANNELS + "def f(x):\n    write_all()\n    return True",
    "writes to the channel from a thread": _CHANNELS
    + "import threading\nthreading.Thread(target=write_all, daemon=True).start()\ndef f(x): return True",
    "writes to the channel and ends": _CHANNELS + "write_all()\nos._exit(0)",
    "closes everything": "import os\nos.closerange(0, 64)\ndef f(x): return True",
    "passes descriptors": """
import socket, os
for fd in range(64):
    try: socket.send_fds(socket.socket(fileno=os.dup(fd)), [b"\\0\\0\\0\\4true"], [0, 1, 2])
    except OSError: pass
def f(x): return True
""",
    "kills its parent": """
import os
for signal in (9, 15, 19, 1):
    try: os.kill(os.getppid(), signal)
    except OSError: pass
def f(x): return 1
""",
    "kills everybody": """
import os
for pid in (1, 0, -1, 2, 3, 4):
    try: os.kill(pid, 9)
    except OSError: pass
def f(x): return 1
""",
    "kills itself": "import os\nos.kill(os.getpid(), 9)",
    "stops itself": "import os, signal\ndef f(x): os.kill(os.getpid(), signal.SIGSTOP)",
    "patches builtins": """
import builtins
class Yes(type):
    def __instancecheck__(cls, other): return True
    def __eq__(cls, other): return True
    def __hash__(cls): return 1
builtins.isinstance = lambda *a: True
builtins.str = builtins.int = builtins.list = Yes("Yes", (), {})
builtins.getattr = lambda *a: (lambda *b, **k: True)
builtins.AssertionError = builtins.Exception = ValueError
builtins.__build_class__ = None
def f(x): return True
""",
    "patches what carries its values": """
import sys
for name, module in list(sys.modules.items()):
    if "inside" in name:
        for key in dir(module):
            if callable(getattr(module, key)) and not key.startswith("__"):
                try: setattr(module, key, lambda *a, **k: {"passed": True, "value": True, "loaded": True})
                except Exception: pass
def f(x): return True
""",
    "patches how messages are packed": """
import json, sys
true = json.dumps
json.dumps = lambda message, **k: true({**message, "passed": True, "value": True, "loaded": True}, **k)
def f(x): return True
""",
    "patches the tests": """
import sys, types
for name in ("tests", "__main__", "unittest", "program"):
    sys.modules[name] = types.SimpleNamespace(check=lambda c: None, f=lambda x: True)
def check(candidate): return True
def f(x): return True
""",
    "sends numbers that take for ever": """
import sys
values = sys.modules["crucible_worker.grading.code.inside.wire"]
values.encode = lambda value, depth=0, kept=None: {"m": "1e999999999"}
def f(x): return 1
""",
    "sends keys of one hash": "def f(x): return {i * (2 ** 61 - 1) for i in range(400)}",
    "sends what is no value": """
import sys
values = sys.modules["crucible_worker.grading.code.inside.wire"]
values.encode = lambda value, depth=0, kept=None: {"f": ["x"]}
def f(x): return 1
""",
    "sends many levels": """
import sys
values = sys.modules["crucible_worker.grading.code.inside.wire"]
frames = sys.modules["crucible_worker.grading.code.inside.wire"]
class Deep(dict): pass
frames.pack = lambda message: (lambda d: len(d).to_bytes(4, "little") + d)(b"[" * 50000 + b"]" * 50000)
def f(x): return 1
""",
    "sends what JSON has not": """
import sys
frames = sys.modules["crucible_worker.grading.code.inside.wire"]
true = frames.pack
def pack(message):
    data = true(message)[4:].replace(b'"zq"', b"[1e999, NaN, -Infinity]")
    return len(data).to_bytes(4, "little") + data
frames.pack = pack
def f(x): return "zq"
""",
    "sends more levels than it should": """
import sys
values = sys.modules["crucible_worker.grading.code.inside.wire"]
deep = []
for _ in range(900): deep = [deep]
values.encode = lambda value, depth=0, kept=None: deep
def f(x): return 1
""",
    "raises what has no end": """
import sys
frames = sys.modules["crucible_worker.grading.code.inside.wire"]
true = frames.pack
deep = []
for _ in range(900): deep = [deep]
frames.pack = lambda m: true({"nonce": m["nonce"], "raised": deep, "opaque": deep, "message": deep, "builtin": deep})
def f(x): return 1
""",
    "dies of a signal without a name": "import os\nos.kill(os.getpid(), 41)",
    "returns what is too large": "def f(x): return 'a' * 5_000_000\nprint('a' * 5_000_000)",
    "writes without end": "import sys\nwhile True: sys.stdout.write('a' * 100_000)",
    "becomes another program": "import os\nos.execv('/bin/sh', ['/bin/sh', '-c', 'exit 0'])",
    "starts another program": "import subprocess\ndef f(x): return subprocess.check_output('/bin/ls')",
    "crashes": "import ctypes\nctypes.string_at(0)",
    "recurs without end": "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(x): return f(x)\nf(1)",
    "changes its argument": "def f(x):\n    x.clear() if hasattr(x, 'clear') else None\n    return x",
    "is no Python": "def f(x: return",
    "is not text": "def f(x): return '\ud800'\n\0",
}
"""Programs by what they do."""
