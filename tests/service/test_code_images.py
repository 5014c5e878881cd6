"""Packages that programs and their tests can import, where a request names an image."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from crucible_bridge.errors import Code, InvalidField
from crucible_bridge.types import (
    Assertions,
    CallTest,
    CodeItem,
    CodeLimits,
    CodeTest,
    Grade,
    Sample,
    SamplingParams,
    StdioTest,
    Verdict,
)
from crucible_worker.grading.code.grader import CodeGrader
from crucible_worker.grading.code.images import CodeImage
from crucible_worker.grading.code.sandbox import SandboxSlots
from crucible_worker.testing import ScriptedModel, run_worker
from tests.service.code_kit import SMALL, code_grader, needs_sandbox, sandboxed
from tests.service.evaluation_kit import accuracy, asked, refused, rig

pytestmark = [needs_sandbox, pytest.mark.asyncio(loop_scope="module")]

LIBRARIES = ("numpy", "pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments", "sortedcontainers")
NP = "import numpy as np\n"
CORRECT, INCORRECT, ERROR = Verdict.CORRECT, Verdict.INCORRECT, Verdict.ERROR


@pytest.fixture(scope="module")
def folders() -> Iterator[dict[str, Path]]:
    """Two folders as `pip install --target` fills them, the first with the libraries of this process."""
    with tempfile.TemporaryDirectory(prefix="crucible-images-") as made:
        os.chmod(made, 0o755)  # for whoever builds the sandbox
        found = {name: Path(made, name) for name in ("sci", "tiny")}
        for name, folder in found.items():
            folder.mkdir()
            (folder / "shelf.py").write_text(f"NAME = {name!r}\ndef first(items): return min(items)\n")
            (folder / "json.py").write_text("raise ImportError('this is not the json of Python')\n")
        for library in LIBRARIES:
            spec = importlib.util.find_spec(library)
            assert spec is not None, library
            assert spec.origin is not None, library
            module = Path(spec.origin)
            source = module.parent
            if module.name != "__init__.py":
                shutil.copy(module, found["sci"])
                continue
            for each in (source, source.with_name(f"{library}.libs")):
                if each.is_dir():
                    ignored = shutil.ignore_patterns("tests", "__pycache__", "*.a")
                    shutil.copytree(each, found["sci"] / each.name, ignore=ignored)
        yield found


@pytest.fixture(scope="module")
def images(folders: dict[str, Path]) -> dict[str, CodeImage]:
    """The images of these folders."""
    return {name: CodeImage(name=name, directory=folder) for name, folder in folders.items()}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def grader(images: dict[str, CodeImage]) -> AsyncIterator[CodeGrader]:
    """A grader that has them."""
    async with code_grader(images=tuple(images.values())) as grader:
        yield grader


async def judged(
    grader: CodeGrader, image: CodeImage | None, program: str, test: str | CodeTest, limits: CodeLimits = SMALL
) -> Grade:
    """The grade of one program with an image."""
    tests = (Assertions(test) if isinstance(test, str) else test,)
    return await grader.grade(CodeItem(response=program, tests=tests), limits, image)


CROSSING: dict[str, tuple[str, str, Verdict]] = {
    "integer": ("def f(): return np.int64(3)", "assert f() == 3", CORRECT),
    "another integer": ("def f(): return np.int64(4)", "assert f() == 3", INCORRECT),
    "sum": ("def f(): return np.arange(4).sum()", "assert f() == 6 and type(f()) is int", CORRECT),
    "bool": ("def f(): return np.bool_(True)", "assert f() == True", CORRECT),
    "float": ("def f(): return np.float32(0.5)", "assert f() == 0.5", CORRECT),
    "complex": ("def f(): return np.complex128(1j)", "assert f() == 1j", CORRECT),
    "key": ("def f(): return {np.int64(1): [np.float64(2)]}", "assert f() == {1: [2.0]}", CORRECT),
    "not a number": ("def f(): return np.float64('nan')", "import math\nassert math.isnan(f())", CORRECT),
    "large unsigned": ("def f(): return np.uint64(2**64 - 1)", "assert f() == 2**64 - 1", CORRECT),
    "array of no dimension": ("def f(): return np.array(4)", "assert f() == 4", CORRECT),
    "another of no dimension": ("def f(): return np.array(5)", "assert f() == 4", INCORRECT),
    # In Python this comparison is an array, which is neither true nor false.
    "array for a list": ("def f(): return np.array([1, 2])", "assert f() == [1, 2]", INCORRECT),
    "array": ("def f(): return np.array([1, 2])", NP + "assert (f() == np.array([1, 2])).all()", CORRECT),
    "another array": ("def f(): return np.array([1, 3])", NP + "assert (f() == np.array([1, 2])).all()", INCORRECT),
    "list for an array": ("def f(): return [1, 2]", NP + "assert (f() == np.array([1, 2])).all()", CORRECT),
    "closeness": ("def f(): return np.array([1.0]) / 3", NP + "np.testing.assert_allclose(f(), [1 / 3])", CORRECT),
    "distance": ("def f(): return np.array([1.0]) / 4", NP + "np.testing.assert_allclose(f(), [1 / 3])", INCORRECT),
    "allclose": ("def f(): return np.eye(2) * 3", NP + "assert np.allclose(f(), [[3, 0], [0, 3]])", CORRECT),
    "not allclose": ("def f(): return np.eye(2) * 3", NP + "assert np.allclose(f(), [[3, 1], [0, 3]])", INCORRECT),
    "shape": (
        "def f(): return np.zeros((2, 0, 3), np.int8)",
        "assert (f().shape, f().dtype) == ((2, 0, 3), 'int8')",
        CORRECT,
    ),
    "rows": ("def f(): return np.array([[1, 2], [3, 4]]).T", "assert f().tolist() == [[1, 3], [2, 4]]", CORRECT),
    "items of an array": ("def f(): return np.array([1j, np.inf])", "assert list(f()) == [1j, float('inf')]", CORRECT),
    "nothing for an array": ("def f(): pass", NP + "assert np.array_equal(f(), [1])", INCORRECT),
    "text for numbers": ("def f(): return ['1']", NP + "assert np.array_equal(f(), [1])", INCORRECT),
    "argument": (
        "def f(a): return type(a).__name__, a.shape",
        NP + "assert f(np.ones((2, 3))) == ('ndarray', (2, 3))",
        CORRECT,
    ),
    "change in place": ("def f(a): a[:] = 7", NP + "a = np.zeros(2)\nf(a)\nassert (a == 7).all()", CORRECT),
    "no change in place": ("def f(a): a = a + 7", NP + "a = np.zeros(2)\nf(a)\nassert (a == 7).all()", INCORRECT),
    "sort in place": ("def f(a): a.sort()", NP + "a = np.array([2, 1])\nf(a)\nassert list(a) == [1, 2]", CORRECT),
    "objects for a value": ("def f(): return np.array([1, 'a'], object)", "assert f() == 1", INCORRECT),
    "objects for an array": (
        "def f(): return np.array([1, 2], object)",
        NP + "assert (f() == np.array([1, 2])).all()",
        INCORRECT,
    ),
    "objects as an argument": ("def f(a): return 1", NP + "assert f(np.array([1, []], object)) == 1", ERROR),
    "a mask as an argument": ("def f(a): return 1", NP + "assert f(np.ma.array([1, 2], mask=[0, 1])) == 1", ERROR),
    "what equals everything": (
        "class A(np.ndarray):\n    def __eq__(self, other): return np.array([True])\n"
        "def f(): return np.zeros(1).view(A)",
        NP + "assert (f() == np.array([1])).all()",
        INCORRECT,
    ),
    "a patched library": (
        "np.ndarray = list\nnp.testing.assert_allclose = np.allclose = lambda *given: True\ndef f(): return 5",
        NP + "np.testing.assert_allclose(f(), 4)",
        INCORRECT,
    ),
    "no numpy imported by tests": ("def f(): return np.array([2.5])", "assert f()[0] == 2.5", CORRECT),
    "seed": ("def f(): return np.random.randint(10**9)", "assert f() == 209652396", CORRECT),
    "algebra": (
        "def f(a): return np.linalg.solve(a, np.ones(50))",
        NP + "a = np.eye(50) * 2\nassert np.allclose(f(a), 0.5)",
        CORRECT,
    ),
}


@pytest.mark.parametrize("name", CROSSING)
async def test_values_of_numpy_cross(name: str, grader: CodeGrader, images: dict[str, CodeImage]):
    """Numbers as Python's own, arrays of numbers as arrays; whatever else stays where it is."""
    program, test, verdict = CROSSING[name]

    grade = await judged(grader, images["sci"], NP + program, test)

    assert grade.verdict is verdict, grade.reason
    assert (grade.problem.reason if grade.problem else "") == ("NOT_PASSABLE" if verdict is ERROR else "")


async def test_an_array_is_its_nested_lists_where_a_test_is_json(grader: CodeGrader, images: dict[str, CodeImage]):
    """Its shape counts, and so does each item."""
    table = {
        "[[1, 2], [3, 4]]": CORRECT,
        "[[1, 2], [3, 5]]": INCORRECT,
        "[1, 2, 3, 4]": INCORRECT,
        "[[1, 2], [3]]": INCORRECT,
        "[[[1, 2], [3, 4]]]": INCORRECT,
        "[]": INCORRECT,
        "4": INCORRECT,
    }
    for expected, verdict in table.items():
        test = CallTest(function="f", expected_json=expected)
        program = NP + "def f(): return np.array([[1, 2], [3, 4]])"
        assert (await judged(grader, images["sci"], program, test)).verdict is verdict, expected


LIBRARY_TESTS: dict[str, tuple[str, str, Verdict]] = {
    "raises": ("def f(x): raise ValueError(x)", "import pytest\nwith pytest.raises(ValueError): f(1)", CORRECT),
    "raises another": ("def f(x): raise KeyError(x)", "import pytest\nwith pytest.raises(ValueError): f(1)", INCORRECT),
    "raises nothing": ("def f(x): return x", "import pytest\nwith pytest.raises(ValueError): f(1)", INCORRECT),
    "raises with a text": (
        "def f(x): raise ValueError('no room')",
        "import pytest\nwith pytest.raises(ValueError, match='room') as found: f(1)\nassert 'no' in str(found.value)",
        CORRECT,
    ),
    "raises, called": ("def f(x): raise ValueError(x)", "import pytest\npytest.raises(ValueError, f, 1)", CORRECT),
    "approx": ("def f(x): return x / 3", "import pytest\nassert f(1) == pytest.approx(0.333333, abs=1e-5)", CORRECT),
    "not approx": (
        "def f(x): return x / 4",
        "import pytest\nassert f(1) == pytest.approx(0.333333, abs=1e-5)",
        INCORRECT,
    ),
    "approx of an array": (
        "import numpy as np\ndef f(x): return np.array([x / 3])",
        "import pytest\nassert f(1) == pytest.approx([1 / 3])",
        CORRECT,
    ),
    "a class that equals all": (
        "class A:\n    def __eq__(self, other): return True\ndef f(x): return A()",
        "import pytest\nassert f(1) == pytest.approx(0.3)",
        INCORRECT,
    ),
    "parameters": (
        "def f(x): return x",
        "import pytest\n@pytest.mark.parametrize('x', [1])\ndef test_f(x): assert f(x) == x\nfor x in 1, 2: test_f(x)",
        CORRECT,
    ),
    "sorted containers": (
        "from sortedcontainers import SortedList\ndef f(x): return list(SortedList(x))",
        "assert f([2, 1]) == [1, 2]",
        CORRECT,
    ),
    "a module of the image": ("import shelf\ndef f(x): return shelf.first(x)", "assert f([2, 1]) == 1", CORRECT),
    "a module that no image has": ("import shelve2\ndef f(x): return 1", "assert f([2, 1]) == 1", INCORRECT),
    "tests with a module of the image": (
        "def f(x): return 1",
        "import shelf\nassert f(1) == shelf.first([1])",
        CORRECT,
    ),
}


@pytest.mark.parametrize("name", LIBRARY_TESTS)
async def test_programs_and_tests_import_what_an_image_has(name: str, grader: CodeGrader, images: dict[str, CodeImage]):
    """Python's own modules stand before those of the image: here the programs could not be loaded otherwise."""
    program, test, verdict = LIBRARY_TESTS[name]

    grade = await judged(grader, images["sci"], program, test)

    assert grade.verdict is verdict, grade.reason


async def test_each_image_has_sandboxes_of_its_own(grader: CodeGrader, images: dict[str, CodeImage]):
    """What one has, another has not, nor has a run without one; a place keeps those of one image at most."""
    program = "import shelf\ndef f(): return shelf.NAME"
    seen: list[int] = []
    for name in ("sci", "tiny", "sci", "tiny"):
        assert (await judged(grader, images[name], program, f"assert f() == {name!r}")).verdict is CORRECT
        seen.append(len(sandboxed()))
    assert seen[2:] == seen[1:3]
    without = "import shelf\ndef f(): return shelf.NAME"
    assert (await judged(grader, None, without, "assert f() == 'tiny'")).verdict is INCORRECT
    bad = await judged(grader, None, "def f(): return 1", "import numpy\nassert f() == numpy.int64(1)")
    assert bad.problem is not None
    assert bad.problem.reason == "BAD_TESTS"


async def test_an_image_is_read_only_and_takes_nothing_of_the_walls_away(
    grader: CodeGrader, images: dict[str, CodeImage]
):
    """No write, no process, no network; memory and time have their limits."""
    program = (
        NP
        + """
import os, socket
def write():
    try:
        open(os.path.join(os.path.dirname(os.path.dirname(np.__file__)), "shelf.py"), "w")
    except OSError:
        return "refused"
def process():
    try:
        os.fork()
    except OSError:
        return "refused"
def network():
    try:
        socket.socket(socket.AF_INET)
    except OSError:
        return "refused"
def memory():
    try:
        np.ones(300 * 2**20, np.uint8)
    except MemoryError:
        return "refused"
def little(): return int(np.ones(50 * 2**20, np.uint8)[-1])
"""
    )
    for name in ("write", "process", "network", "memory"):
        grade = await judged(grader, images["sci"], program, f"assert {name}() == 'refused'")
        assert grade.verdict is CORRECT, (name, grade.reason)
    # What the image itself takes is not the program's.
    assert (await judged(grader, images["sci"], program, "assert little() == 1")).verdict is CORRECT
    endless = await judged(
        grader, images["sci"], NP + "def f():\n    while True: np.ones(9)", "f()", CodeLimits(timeout_ms=500)
    )
    assert endless.verdict is INCORRECT
    assert "500 ms" in endless.reason


async def test_an_array_counts_against_the_bytes_of_output(grader: CodeGrader, images: dict[str, CodeImage]):
    """As the list of its items would."""
    limits = CodeLimits(timeout_ms=20_000, memory_mb=128, output_bytes=10_000)
    for count, verdict in ((3_000, CORRECT), (6_000, INCORRECT)):
        test = NP + f"assert f().shape == ({count},)"
        grade = await judged(grader, images["sci"], NP + f"def f(): return np.zeros({count}, np.int8)", test, limits)
        assert grade.verdict is verdict, grade.reason


async def test_output_is_judged_with_an_image_too(grader: CodeGrader, images: dict[str, CodeImage]):
    """A script imports what a function does."""
    test = StdioTest(stdout="[3 3]")
    assert (await judged(grader, images["sci"], NP + "print(np.full(2, 3))", test)).verdict is CORRECT
    assert (await judged(grader, None, NP + "print(np.full(2, 3))", test)).verdict is INCORRECT


async def test_an_image_that_does_not_load_is_no_program_s_fault(folders: dict[str, Path]):
    """The error says what of it cannot be imported, and why."""
    broken = folders["tiny"].with_name("broken")
    (broken / "numpy").mkdir(parents=True)
    (broken / "numpy" / "__init__.py").write_text("raise ImportError('made for another Python')\n")
    image = CodeImage(name="broken", directory=broken)
    async with code_grader(images=[image]) as grader:
        error = await refused(
            judged(grader, image, "def f(): return 1", "assert f() == 1"), Code.FAILED_PRECONDITION, "NO_SANDBOX"
        )
    assert "numpy of the image cannot be imported: ImportError: made for another Python" in error.message


async def test_a_request_names_an_image_that_the_worker_tells_of(folders: dict[str, Path]):
    """GetInfo has their names; another name is refused, and the error lists them."""
    program = CodeItem(response="import shelf\ndef f(): return 1", tests=(Assertions("assert f() == 1"),))
    async with run_worker({"m": ScriptedModel()}, code_sandboxes=1, code_images=folders) as worker:
        grading = worker.bridge.grading
        assert (await worker.bridge.worker.get_info()).code_images == ("sci", "tiny")
        assert (await grading.grade_code([program], image="tiny")).grades[0].verdict is CORRECT
        assert (await grading.grade_code([program])).grades[0].verdict is INCORRECT
        error = await refused(
            grading.grade_code([program], image="large"), Code.INVALID_ARGUMENT, "INVALID_FIELD", "image"
        )
        assert "'large' is not an image of this worker; there are sci, tiny" in error.message


async def test_the_grader_by_name_takes_an_image(folders: dict[str, Path]):
    """As an option; an unknown one is refused before anything is sampled."""
    model = ScriptedModel(answer=lambda prompt: "import shelf\ndef f(): return 1")
    async with rig(model, code_sandboxes=1, code_images=folders) as worker:
        for image, value in (("tiny", 1.0), ("", 0.0)):
            evaluation = asked(
                evaluation_id=f"e{image}",
                evaluators=[accuracy(grader="code", grader_options={"image": image})],
                dataset=(Sample(id="a", input="a", targets=("assert f() == 1",)),),
                sampling=SamplingParams(max_tokens=100),
            )
            found = await worker.evaluation.evaluate(evaluation)
            assert found.metrics.values["accuracy"] == value
        unknown = asked(
            evaluation_id="unknown",
            evaluators=[accuracy(grader="code", grader_options={"image": "large"})],
            dataset=(Sample(id="a", input="a", targets=("assert f() == 1",)),),
            sampling=SamplingParams(max_tokens=100),
        )
        field = 'evaluators[0].options["grader_options"]["image"]'
        await refused(worker.evaluation.evaluate(unknown), Code.INVALID_ARGUMENT, "INVALID_FIELD", field)


async def test_places_without_images_say_so():
    """The error names the option that gives them."""
    with pytest.raises(
        InvalidField, match=r"'sci' is not an image of this worker; this worker has none \(--code-image\)"
    ):
        SandboxSlots(1).image("sci", "image")
    assert SandboxSlots(1).image("", "image") is None
