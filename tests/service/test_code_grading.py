"""What programs are found to be, in real sandboxes: verdicts, scores, reasons."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    Assertions,
    CallTest,
    CodeItem,
    CodeLimits,
    CodeTest,
    GradeCodeRequest,
    ProblemCounts,
    StdioTest,
    Verdict,
)
from crucible_worker.grading.base import MAX_TEXT_BYTES
from crucible_worker.grading.code import grader as code
from crucible_worker.grading.code.grader import MAX_TESTS, MAX_TIMEOUTS, CodeGrader
from tests.service.code_kit import SMALL, code_grader, graded, needs_sandbox
from tests.tables import rows

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_sandbox]

CORRECT, INCORRECT, PARTIAL = Verdict.CORRECT, Verdict.INCORRECT, Verdict.PARTIAL
UNDECIDED, ERROR = Verdict.UNDECIDED, Verdict.ERROR


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def grader() -> AsyncIterator[CodeGrader]:
    """One for all."""
    async with code_grader(2) as grader:
        yield grader


PASSING: dict[str, tuple[str, CodeTest]] = {
    "a call": ("def f(x): return x + 1", Assertions("assert f(1) == 2")),
    "named arguments": ("def f(x, *, y): return x - y", Assertions("assert f(x=3, y=1) == 2")),
    "containers": (
        "def f(): return {1: (2.5, [None]), 'a': {1}}",
        Assertions("assert f() == {1: (2.5, [None]), 'a': {1}}"),
    ),
    "a large number": ("def f(): return 2 ** 4000", Assertions(f"assert f() == {2**4000}")),
    "text": ("def f(): return 'é\\ud800\\0'", Assertions("assert f() == 'é\\ud800\\0'")),
    "state": ("n = []\ndef f(): n.append(1); return len(n)", Assertions("assert f() == 1\nassert f() == 2")),
    "a subclass": (
        "import collections\ndef f(): return collections.Counter('aa')",
        Assertions("assert f() == {'a': 2}"),
    ),
    "nearly": ("def f(): return 0.1 + 0.2", Assertions("assert abs(f() - 0.3) < 1e-9")),
    "an exception": (
        "class Mine(KeyError): pass\ndef f(x): raise Mine('no')",
        Assertions("try:\n    f(1)\nexcept KeyError as error:\n    assert 'no' in str(error)\nelse:\n    assert False"),
    ),
    "one of no kind": (
        "class Mine(BaseException): pass\ndef f(x): raise Mine('no')",
        Assertions(
            "try:\n    f(1)\nexcept Exception as error:\n    assert str(error) == 'no'\nelse:\n    assert False"
        ),
    ),
    "arguments in place": (
        "def f(x, y): x.sort(); y['a'] = 1",
        Assertions("a, b = [2, 1], {}\nf(a, b)\nassert a == [1, 2] and b['a']"),
    ),
    "a set in place": ("def f(x): x.add(2)", Assertions("a = {1}\nf(a)\nassert a == {1, 2}")),
    "a reference": (
        "def f(x): return sorted(x)",
        Assertions("for n in range(9):\n    assert f([n, -n]) == sorted([n, -n])"),
    ),
    "passed on": ("def f(x): return x * x", Assertions("assert list(map(f, [1, 2])) == [1, 4]")),
    "back again": ("def f(x): return (x,)", Assertions("assert f(f(1)) == ((1,),)")),
    "an object that nobody looks at": ("def f(x): return print", Assertions("f(1)\nassert f(2) is not None")),
    "chance": (
        "import random\ndef f(): return random.random()",
        Assertions("import random\nassert 0 <= f() < 1 and random.random()"),
    ),
    "objects": (
        "class Stack:\n"
        "    def __init__(self, *items): self.items = list(items)\n"
        "    def push(self, item): self.items.append(item)\n"
        "    def pop(self): return self.items.pop()",
        Assertions("a, b = Stack(1), Stack()\na.push(2)\nassert (a.pop(), a.pop()) == (2, 1) and b.items == []"),
    ),
    "an object that is a list besides": (
        "class Stack(list):\n    def push(self, item): self.append(item)\n    def size(self): return len(self)",
        Assertions("a = Stack()\na.push(2)\nassert a.size() == 1 and a.pop() == 2"),
    ),
    "a method in place": (
        "class Solution:\n    def sort(self, x): x.sort()",
        Assertions("a = [2, 1]\nSolution().sort(a)\nassert a == [1, 2]"),
    ),
    "an exception of a method": (
        "class Stack:\n    def pop(self): raise IndexError('empty')",
        Assertions("try:\n    Stack().pop()\nexcept IndexError:\n    pass\nelse:\n    assert False"),
    ),
    "json": (
        "def f(x): return {1: (x, None)}",
        CallTest(function="f", arguments_json="[2]", expected_json='{"1": [2.0, null]}'),
    ),
    "no arguments": ("f = lambda: True", CallTest(function="f", expected_json="true")),
    "lines": ("for line in open(0): print(line.strip() + '  ')\nprint()", StdioTest(stdin="a\nb", stdout="a\nb")),
    "input": ("print(int(input()) * 2)", StdioTest(stdin="21\n", stdout="42\n")),
    "a main": ("if __name__ == '__main__': print(1)", StdioTest(stdout="1")),
    "an exit": ("import sys\nprint(1)\nsys.exit()", StdioTest(stdout="1")),
    "exit by name": ("print(1)\nexit(0)", StdioTest(stdout="1")),
    "an end without a word": ("import os\nos.write(1, b'1\\n')\nos._exit(0)", StdioTest(stdout="1")),
    "buffers": ("import sys\nsys.stdout.write(sys.stdin.read())", StdioTest(stdin="x" * 300_000, stdout="x" * 300_000)),
    "nothing": ("x = 1", StdioTest(stdout="")),
    "threads that nobody joins": (
        "import threading, time\ndef run(n):\n    time.sleep(n / 20)\n    print(n)\n"
        "for n in (2, 1): threading.Thread(target=run, args=(n,)).start()\nprint(0)",
        StdioTest(stdout="0\n1\n2"),
    ),
    "a pool that nobody waits for": (
        "import concurrent.futures, time\npool = concurrent.futures.ThreadPoolExecutor(1)\n"
        "for n in range(3): pool.submit(lambda n=n: (time.sleep(0.02), print(n)))",
        StdioTest(stdout="0\n1\n2"),
    ),
    "functions at the end": (
        "import atexit, threading\natexit.register(print, 3)\natexit.register(print, 2)\n"
        "threading.Timer(0.05, print, [1]).start()",
        StdioTest(stdout="1\n2\n3"),
    ),
    "functions at the end, after an exit": (
        "import atexit, sys\natexit.register(print, 1)\natexit.register(int, 'x')\nsys.exit()",
        StdioTest(stdout="1"),
    ),
    "output that is gathered": (
        "import atexit, io, sys\nsys.stdout = io.StringIO()\n"
        "atexit.register(lambda: sys.__stdout__.write(sys.stdout.getvalue()))\nprint(1)",
        StdioTest(stdout="1"),
    ),
    "a file that nobody closes": ("out = open(1, 'w')\nout.write('1')", StdioTest(stdout="1")),
    "output that is replaced": (
        "import io, sys\ntrue = sys.stdout\nsys.stdout = io.StringIO()\ntrue.write('1')\nprint(2)",
        StdioTest(stdout="1"),
    ),
    "a destructor": (
        "class Last:\n    def __del__(self): print(2)\nlast = Last()\nlast.itself = last\nprint(1)",
        StdioTest(stdout="1\n2"),
    ),
    "output that is closed": ("import sys\nprint(1)\nsys.stdout.close()", StdioTest(stdout="1")),
    "a thread that ends with the program": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nprint(1)",
        StdioTest(stdout="1"),
    ),
}


@rows("name", PASSING)
async def test_what_is_right_is_correct(grader: CodeGrader, name: str):
    """With the score 1 and no reason."""
    program, test = PASSING[name]

    grade = await graded(grader, program, test)

    assert (grade.verdict, grade.score, grade.reason) == (CORRECT, 1.0, "")
    assert grade.duration_ns > 0


FAILING: dict[str, tuple[str, CodeTest, str]] = {
    "another value": (
        "def f(x): return x",
        Assertions("\nassert f(1) == 2"),
        "line 2 of the tests: f returned another value",
    ),
    "a list for a tuple": ("def f(): return [1]", Assertions("assert f() == (1,)"), "another value"),
    "no function": ("def g(x): return x", Assertions("assert f(1) == 2"), "the program does not define f"),
    "no function, for other tests": ("def g(x): return x", Assertions("assert f(1) > 2"), "does not define f"),
    "no function, where anything is caught": (
        "def g(x): return x",
        Assertions("try:\n    f(1)\nexcept Exception:\n    pass"),
        "does not define f",
    ),
    "no class, nor function": ("def g(x): return x", Assertions("assert Solution().f(1) == 2"), "not define Solution"),
    "none of two functions": ("def g(x): return x", Assertions("assert decode(encode(1)) == 1"), "not define encode"),
    "one of two functions": (
        "def encode(x): return x",
        Assertions("assert decode(encode(1)) == 1"),
        "not define decode",
    ),
    "a function that a variable comes of": (
        "def g(x): return x",
        Assertions("y = f(1)\nx = 2\nassert y == x"),
        "not define f",
    ),
    "a function on the other side": ("def g(x): return x", Assertions("x = [1]\nassert x == f(1)"), "not define f"),
    "a function that changes": ("def g(x): return x", Assertions("x = [1]\nf(x)\nassert x == g([1])"), "not define f"),
    "its own module": ("import numpy_is_not_here\ndef f(x): return x", Assertions("assert f(1) > 2"), "ModuleNotFound"),
    "a module within": ("def f(x): import numpy_is_not_here", Assertions("assert f(1) > 2"), "ModuleNotFound"),
    "what it returns takes too much of the tests": (
        "def f(x): return 10 ** 4",
        Assertions("n = f(1)\nassert [0] * n ** 4 == 1"),
        "MemoryError",
    ),
    "an exception": ("def f(x): return 1 // 0", Assertions("assert f(1) == 2"), "f raised ZeroDivisionError: integer"),
    "while it is loaded": ("import nothing", Assertions("assert f(1) == 2"), "the program raised ModuleNotFoundError"),
    "no Python": ("Certainly! Here it is.", Assertions("assert f(1) == 2"), "the program raised SyntaxError"),
    "an object": (
        "def f(x): return print",
        Assertions("assert f(1) == 2"),
        "builtin_function_or_method, which is not a plain",
    ),
    "an object passed on": (
        "class Stack: pass\ndef f(x): return x",
        Assertions("assert f(Stack()) == 0"),
        "not a plain",
    ),
    "an object in an argument": (
        "def f(x): x.append(print)",
        Assertions("a = []\nf(a)\nassert a == [1]"),
        "not a plain",
    ),
    "a method": (
        "class Solution:\n    def f(self, x): return x",
        Assertions("assert Solution().f(1) == 2"),
        "AssertionError",
    ),
    "no method": ("class Solution: pass", Assertions("assert Solution().f(1) == 2"), "AttributeError"),
    "an object of a method": (
        "class Solution:\n    def f(self, x): return self",
        Assertions("assert Solution().f(1) == 2"),
        "not a plain",
    ),
    "an object where a value is expected": (
        "class F:\n    def __init__(self, x): pass\n    def __eq__(self, other): return True",
        Assertions("y = 2\nassert F(1) == y"),
        "not a plain",
    ),
    "no class": ("def Solution(): return 1", Assertions("assert Solution().f(1) == 2"), "AttributeError"),
    "the tests": (
        "def f(x): return x",
        Assertions("x = f(1)\nassert x > 1, 'too small'"),
        "line 2 of the tests: AssertionError: too small",
    ),
    "its type": ("def f(x): return None", Assertions("assert len(f(1)) == 1"), "TypeError"),
    "json": ("def f(x): return 1", CallTest(function="f", arguments_json="[1]", expected_json="true"), "another value"),
    "output": ("print(1)\nprint(3)", StdioTest(stdout="1\n2"), "line 2"),
    "too little output": ("print(1)", StdioTest(stdout="1\n2"), "line 2"),
    "its exit": ("import sys\nprint(1)\nsys.exit(3)", StdioTest(stdout="1"), "SystemExit: 3"),
    "its end": ("import os\nos.write(1, b'1')\nos._exit(3)", StdioTest(stdout="1"), "exited with 3"),
    "a signal": ("import os\nos.abort()", StdioTest(stdout=""), "was killed by SIGABRT"),
    "its time": ("import time\ntime.sleep(60)", Assertions("assert f(1) == 2"), "took longer than 300 ms"),
    "its time, in a thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\nprint(1)",
        StdioTest(stdout="1"),
        "took longer than 300 ms",
    ),
    "its time, at the end": (
        "import atexit, time\natexit.register(time.sleep, 60)\nprint(1)",
        StdioTest(stdout="1"),
        "took longer than 300 ms",
    ),
    "its output at the end": ("import atexit\natexit.register(print, 2)\nprint(1)", StdioTest(stdout="1"), "line 2"),
    "its output in a thread": (
        "import threading\nthreading.Timer(0.05, print, [2]).start()\nprint(1)",
        StdioTest(stdout="1"),
        "line 2",
    ),
    "its exit at the end": (
        "import atexit, os\natexit.register(os._exit, 3)\nprint(1)",
        StdioTest(stdout="1"),
        "exited with 3",
    ),
    "its time, in the tests": (
        "def f(x): return 10 ** 3",
        Assertions("assert sum(1 for _ in range(f(1) ** 9)) == 2"),
        "took longer than 300 ms",
    ),
    "its time, before tests without end": (
        "import time\ntime.sleep(60)",
        Assertions("assert f(1) == 10 ** 10 ** 10"),
        "took longer than 300 ms",
    ),
    "its memory": ("x = bytearray(1 << 30)", Assertions("assert f(1) == 2"), "MemoryError"),
    "its size": ("def f(x): return 'a' * 10_000_000", Assertions("assert f(1) == 2"), "more than is allowed"),
    "its output": ("print('a' * 10_000_000)", StdioTest(stdout="a"), "more than 1,000,000 bytes"),
    "nothing": (" \n", Assertions("assert f(1) == 2"), "there is no program"),
}


@rows("name", FAILING)
async def test_what_is_wrong_is_incorrect(grader: CodeGrader, name: str):
    """With the score 0, and the reason for a person."""
    program, test, reason = FAILING[name]

    limits = dataclasses.replace(SMALL, timeout_ms=300) if name.startswith("its time") else SMALL

    grade = await graded(grader, program, test, limits=limits)

    assert (grade.verdict, grade.score) == (INCORRECT, 0.0)
    assert reason in grade.reason


UNKNOWABLE: dict[str, tuple[CodeTest, str, str]] = {
    "a function as argument": (Assertions("assert f(lambda: 1) == 1"), "NOT_PASSABLE", "function"),
    "an object as argument": (Assertions("assert f(object()) == 1"), "NOT_PASSABLE", "object"),
    "an object compared": (Assertions("assert Stack() == Stack()"), "NOT_PASSABLE", "Stack"),
    "the sum of objects": (Assertions("assert Stack() + Stack()"), "NOT_PASSABLE", "Stack"),
    "a method": (Assertions("assert g().push(1)"), "NOT_PASSABLE", ".push"),
    "too large an argument": (Assertions("assert f('a' * 5_000_000)"), "NOT_PASSABLE", "bytes"),
    "no Python": (Assertions("assert f(1) =="), "BAD_TESTS", "not Python"),
    "asks nothing": (Assertions("if 0:\n    assert f(1)"), "BAD_TESTS", "nothing"),
    "no JSON": (CallTest(function="f", expected_json="{"), "BAD_TESTS", "JSON"),
    "no array": (CallTest(function="f", arguments_json="1", expected_json="1"), "BAD_TESTS", "array"),
    "a module that is not there": (Assertions("import numpy_is_not_here\nassert f(1) == 1"), "BAD_TESTS", "numpy_is"),
    "a name that a module lacks": (Assertions("from math import nothing\nassert f(1) == 1"), "BAD_TESTS", "nothing"),
    "a module that is not there, later": (
        Assertions("assert f(1) > 0\nimport numpy_is_not_here"),
        "BAD_TESTS",
        "numpy_is",
    ),
    "a module that is not there, in a check": (
        Assertions("def check(c):\n    assert c(1) > 0\n    from numpy_is_not_here.a import b\ncheck(f)"),
        "BAD_TESTS",
        "numpy_is",
    ),
    "a helper that is not there": (Assertions("assert f(1) == slow(1)"), "BAD_TESTS", "slow"),
    "a helper that is not there, in a variable": (
        Assertions(
            "def check(c):\n    for n in range(3):\n        wanted = slow(n)\n        assert c(n) == wanted\ncheck(f)"
        ),
        "BAD_TESTS",
        "slow",
    ),
    "a helper that is not there, in a function": (
        Assertions("def wanted(n): return slow(n)\nassert f(1) == wanted(1)"),
        "BAD_TESTS",
        "slow",
    ),
    "a class below one of the program": (Assertions("class T(Stack): pass\nassert f(1) == 1"), "NOT_PASSABLE", "Stack"),
    "a failure of their own": (Assertions("x = [][0]\nassert f(1) == x"), "BAD_TESTS", "IndexError"),
    "a claim of their own": (Assertions("x = 1\nassert x == 2\nassert f(1) == x"), "BAD_TESTS", "before"),
    "the tests end": (Assertions("import os\nf(1)\nos._exit(0)"), "TESTS_FAILED", "ended"),
}


@rows("name", UNKNOWABLE)
async def test_what_nobody_can_tell_is_an_error(grader: CodeGrader, name: str):
    """Without a score, and said why; never wrong."""
    test, reason, says = UNKNOWABLE[name]
    program = "class Stack: pass\ndef f(x=1): return x\ndef g(): return Stack()"

    grade = await graded(grader, program, test)

    assert (grade.verdict, grade.score) == (ERROR, None)
    assert grade.problem is not None
    assert (grade.problem.reason, grade.reason) == (reason, grade.problem.message)
    assert says in grade.reason


SUM = "x = " + "1 + " * 3_000 + "1\n"
TOO_DEEP = {
    "a call": (SUM, "def f(x): return x", CallTest(function="f", arguments_json="[1]", expected_json="1")),
    "an assertion": (SUM, "def f(x): return x", Assertions("assert f(1) == 1")),
    "tests": (SUM, "def f(x): return x", Assertions("assert f(1) > 0")),
    "output": (SUM, "print(1)", StdioTest(stdout="1")),
    "behind a head": (f"{SUM}def f(x):\n", "    return x", Assertions("assert f(1) == 1")),
}


@rows("name", TOO_DEEP)
async def test_a_prefix_that_python_cannot_compile_is_no_fault_of_the_program(grader: CodeGrader, name: str):
    """Whatever the tests are like: the item is an error, and the grade says that it is the prefix."""
    prefix, program, test = TOO_DEEP[name]

    grade = await graded(grader, program, test, prefix=prefix)

    assert (grade.verdict, grade.score) == (ERROR, None), grade.reason
    assert grade.problem is not None
    assert (grade.problem.reason, "prefix" in grade.reason) == ("BAD_TESTS", True)


@rows("program", [SUM, "raise RecursionError", "def g(): g()\ng()"])
@rows("prefix", ["y = 1\n", "def f(x):\n    return x\n"])
async def test_a_program_that_python_cannot_compile_is_wrong(grader: CodeGrader, program: str, prefix: str):
    """Also behind a prefix, if that compiles by itself."""
    grade = await graded(grader, program, Assertions("assert f(1) == 1"), prefix=prefix)

    assert (grade.verdict, grade.score) == (INCORRECT, 0.0), grade.reason


ENDLESS = {
    "what is expected": "assert f(1) == 10 ** 10 ** 10",
    "an argument": "assert f(10 ** 10 ** 10) == 1",
    "a definition": "def g(x=10 ** 10 ** 10): pass\nassert f(1) > 0",
    "a check": "def check(c):\n    assert c(1) == 1\n    assert c(2) == 10 ** 10 ** 10\ncheck(f)",
    "a loop": "assert f(1) == 1\nwhile True: pass",
    "memory": "x = f(1)\nassert x == len([0] * 10 ** 12)",
    "memory before anything": "x = [0] * 10 ** 12\nassert f(1) == x",
}


@rows("name", ENDLESS)
@rows("program", ["def f(x): return x", "def f(x): return None", "raise ValueError", "import os; os._exit(0)"])
async def test_tests_without_an_end_are_undecided(grader: CodeGrader, name: str, program: str):
    """Where they compute without end, or beyond their memory, by themselves; a program that ends before has failed."""
    grade = await graded(grader, program, Assertions(ENDLESS[name]), limits=CodeLimits(timeout_ms=600))

    reached = "return x" in program or name in ("an argument", "a definition", "memory before anything")
    if "None" in program and name not in ("a check", "a loop"):
        reached = True
    assert (grade.verdict, grade.score) == ((UNDECIDED, None) if reached else (INCORRECT, 0.0)), grade.reason
    if reached:
        assert "by themselves" in grade.reason


async def test_tests_that_a_program_keeps_busy_are_its_own_fault(grader: CodeGrader):
    """Neither an endless loop over what it returns nor its threads make of a wrong program one that nobody can tell."""
    spins = "import threading\ndef spin():\n    while True: pass\n"
    spins += "for _ in range(8): threading.Thread(target=spin).start()\n"
    cases = {
        "while True: pass": "assert f(1) > 1",
        "def f(x):\n    while True: yield 1": "assert list(f(1)) == [1]",
        "def f(x): return [0] * 10": "x = f(1)\nwhile x: pass\nassert x == []",
        f"{spins}def f(x):\n    while True: pass": "assert f(1) > 1",
        "def f(x): return 10 ** 6": "x = f(1)\nassert x ** x ** x == 1",
    }
    grades = [
        await graded(grader, program, Assertions(test), limits=CodeLimits(timeout_ms=600))
        for program, test in cases.items()
    ]

    assert [grade.verdict for grade in grades] == [INCORRECT] * len(cases), [grade.reason for grade in grades]


async def test_what_is_too_much_to_read_is_undecided(grader: CodeGrader):
    """At the limit it is read."""
    test = Assertions("assert f(1) == 1")
    program = "def f(x): return x\n"

    at = await graded(grader, program + "#" * (MAX_TEXT_BYTES - len(program)), test)
    beyond = await graded(grader, program + "#" * (MAX_TEXT_BYTES - len(program) + 1), test)
    tests = await graded(grader, program, Assertions(f"{test.source} #{'a' * MAX_TEXT_BYTES}"))
    many = await graded(grader, program, *(test,) * (MAX_TESTS + 1))

    assert [each.verdict for each in (at, beyond, tests, many)] == [CORRECT, UNDECIDED, UNDECIDED, UNDECIDED]
    assert "1,000,000 bytes" in beyond.reason
    assert f"{MAX_TESTS:,}" in many.reason


async def test_the_score_is_the_share_of_tests(grader: CodeGrader):
    """CORRECT means all of them; the first that was not passed is told of."""
    right, wrong = Assertions("assert f(1) == 1"), CallTest(function="f", arguments_json="[1]", expected_json="2")

    grade = await graded(grader, "def f(x): return x", right, wrong, right, wrong)

    assert (grade.verdict, grade.score) == (PARTIAL, 0.5)
    assert grade.reason.startswith("test 2 of 4: ")


async def test_a_program_that_takes_too_long_is_run_no_more(grader: CodeGrader, monkeypatch: pytest.MonkeyPatch):
    """After some tests it has failed the others, too."""
    run: list[object] = []
    true = code.run_test
    monkeypatch.setattr(code, "run_test", lambda *given: run.append(given) or true(*given))
    tests = (Assertions("assert f(1) == 1"),) * (MAX_TIMEOUTS + 5)

    grade = await graded(grader, "while True: pass", *tests, limits=CodeLimits(timeout_ms=30))

    assert (grade.verdict, grade.score) == (INCORRECT, 0.0)
    assert len(run) == MAX_TIMEOUTS


PREFIX = 'import math\n\n\ndef twice(x):\n    return 2 * x\n\n\ndef f(x):\n    """Doubles."""\n'


@pytest.mark.parametrize(
    ("response", "how"),
    [
        ("    return twice(x)\n", "whole"),
        ("Here:\n```python\ndef f(x):\n    return twice(x)\n```", "block"),
        ("```python\n    return twice(x)\n```", "block"),
    ],
)
async def test_a_program_goes_on_where_its_prefix_ends(grader: CodeGrader, response: str, how: str):
    """A body, or a block that says all again."""
    grade = await graded(grader, response, Assertions("assert f(2) == twice(2)"), prefix=PREFIX)

    assert (grade.verdict, grade.extraction) == (CORRECT, how)


async def test_auxiliary_functions_of_the_prefix_are_out_of_reach(grader: CodeGrader):
    """A program that defines one anew deceives itself alone."""
    forged = "    return 0\n\ndef twice(x):\n    return 0\n"

    grade = await graded(grader, forged, Assertions("assert f(2) == twice(2)"), prefix=PREFIX)

    assert grade.verdict is INCORRECT


async def test_a_batch_is_answered_in_order_and_counted_by_problem(grader: CodeGrader):
    """Unscored samples count as none; an item without a problem is of none."""
    right, wrong = "def f(x): return x", "def f(x): return -x"
    given = [("a", right), ("b", wrong), ("a", wrong), ("", wrong), ("a", right)]
    test, unknown = Assertions("assert f(1) == 1"), Assertions("assert f(print) == 1")
    items = [CodeItem(id=str(n), response=text, tests=(test,), problem_id=name) for n, (name, text) in enumerate(given)]
    items.append(CodeItem(id="5", response=right, tests=(unknown,), problem_id="b"))

    found = await grader.grade_batch(GradeCodeRequest(items=tuple(items), limits=SMALL, k=(1, 3)))

    assert [grade.id for grade in found.grades] == [item.id for item in items]
    assert [grade.verdict for grade in found.grades] == [CORRECT, INCORRECT, INCORRECT, INCORRECT, CORRECT, ERROR]
    assert found.problems == (
        ProblemCounts(problem_id="a", samples=3, correct=2, unscored=0),
        ProblemCounts(problem_id="b", samples=1, correct=0, unscored=1),
    )
    assert found.metrics.values == {"pass@1": pytest.approx(1 / 3), "pass@3": 1.0}


async def test_pass_at_k_without_problems_is_undefined(grader: CodeGrader):
    """And a k that cannot be is refused before anything is run."""
    item = CodeItem(response="def f(x): return x", tests=(Assertions("assert f(1) == 1"),))

    found = await grader.grade_batch(GradeCodeRequest(items=(item,), k=(1,)))

    assert found.metrics.values == {}
    assert "problem" in found.metrics.undefined["pass@1"]
    with pytest.raises(InvalidField) as refused:
        await grader.grade_batch(GradeCodeRequest(items=(item,), k=(1, 0)))
    assert refused.value.field == "k[1]"


async def test_the_same_program_gets_the_same_grade(grader: CodeGrader):
    """Chance and the order of sets are the same in every run, whichever sandbox it is in."""
    program = "import random\nraise ValueError(random.random(), *set('abcdef'))"

    first = await graded(grader, program, StdioTest(stdout=""))
    async with code_grader() as another:
        second = await graded(another, program, StdioTest(stdout=""))

    assert "ValueError" in first.reason
    assert first.reason == second.reason


async def test_tests_are_read_once(grader: CodeGrader, monkeypatch: pytest.MonkeyPatch):
    """Samples of one problem share them."""
    read: list[str] = []
    true = code.read_assertions
    monkeypatch.setattr(code, "read_assertions", lambda source, prefix: read.append(source) or true(source, prefix))
    item = CodeItem(response="def f(x): return x", tests=(Assertions("assert f(7) == 7"),))

    for _ in range(3):
        await grader.grade(item, SMALL)

    assert len(read) == 1
