"""`crucible-worker grade`: answers or programs in a file, graded by this process and its children, without a server."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import io
import itertools
import json
import os
import re
import sys
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Protocol, TextIO, cast

import typer

from crucible_worker.cli.options import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, Json
from crucible_worker.cli.workspace import Termination
from crucible_worker.exports.files import whole_file
from crucible_worker.util.interrupts import raise_interrupts

if TYPE_CHECKING:
    from crucible_bridge.types import CodeItem, CodeLimits, Grade, GradeItem, MathPolicy
    from crucible_worker.cli.pairs import PairLine
    from crucible_worker.grading.base import Grader
    from crucible_worker.grading.code.sandbox import SandboxSlots
    from crucible_worker.grading.pool import GradingPool

__all__ = ["Batches", "CodeBatches", "GraderBatches", "MathBatches", "batches_of", "grade"]

CHUNK_RECORDS = 512
"""Records that are graded together."""

CHUNK_CHARS = 4_000_000
"""A chunk ends at so much text, too: so little of the file is in memory, however long its lines are."""

CHUNKS_IN_FLIGHT = 2
"""Chunks at once: one is graded while the next is read and the one before is written."""

SHOWN_PROBLEMS = 10
"""Lines that are not records and are reported on stderr; the output has all of them."""

_VERDICTS = ("correct", "incorrect", "partial", "undecided", "error")

_Input = Annotated[
    Path,
    typer.Option(
        "--input",
        metavar="FILE",
        help='JSON lines with "id", "gold" (text, or a list; with --code tests), "pred" or "response", and "choices" '
        "if the grader reads them.",
    ),
]
_Output = Annotated[
    Path, typer.Option("--output", metavar="FILE", help="Takes a JSON line for each record, all at the end.")
]
_Policy = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="NAME=VALUE",
        help="A rule of what counts as equivalent, for instance degrees=false, or a bound of programs; repeatable.",
    ),
]
_Processes = Annotated[
    int | None,
    typer.Option("--processes", metavar="N", help="Child processes that grade. [default: one a core, 2 to 4]"),
]
_Code = Annotated[
    bool, typer.Option("--code", help="Grade programs: each is run against the tests in its gold, in a sandbox.")
]
_Grader = Annotated[
    str | None,
    typer.Option(
        "--grader",
        metavar="NAME",
        help="The grader of answers: one of `crucible-worker graders`, its options in --policy, or FILE.py:FUNCTION, "
        "a function of your own. [default: math]",
    ),
]
_CodeImage = Annotated[
    Path | None,
    typer.Option("--code-image", metavar="DIR", help="Folder of packages that programs of --code can import."),
]


@dataclasses.dataclass(slots=True)
class _Tally:
    """The counted results."""

    verdicts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    methods: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    malformed: int = 0
    seconds: float = 0.0

    @property
    def lines(self) -> int:
        return self.verdicts.total() + self.malformed


def grade(
    input_file: _Input,
    output_file: _Output,
    policy: _Policy = None,
    processes: _Processes = None,
    code: _Code = False,
    code_image: _CodeImage = None,
    grader: _Grader = None,
    as_json: Json = False,
) -> None:
    """Grade math answers, programs, or answers by another grader, here and now, without a worker.

    Each line of the output is the result of one line of the input, in order: {"id", "verdict", "score", "method",
    "reason", "extracted", "micros"}. The verdict is correct, incorrect, undecided or error. The score is 1, 0, or null
    if there is none. micros is the time spent on the record. A line that is not a record has the verdict error, the id
    null, and a reason with its number. The output file is replaced once it is complete; if the command ends before, an
    older file stays.

    A record may have the "choices" of its question, a list of texts, with "labels" if they have some, for the graders
    math and multiple_choice and for functions that take choices; another grader refuses a file with them. A gold is
    then the letter, the label, the text or the index of a choice. Other keys are not read, such as prompt or weight:
    every record counts once.

    Exits with 0 if every record got a verdict, undecided and error included; 1 if a line was not a record, or nothing
    could be graded or written; 2 if the options are wrong; 130 if it was interrupted.

    Rules for --policy: ordered_lists, rounding_digits, percent_lenient, units_optional, equation_value,
    interval_or_pair, require_reduced, degrees, rename_variables, tuple_or_set, log_is_natural, delta_value,
    math_in_prose, integration_constants, chemical_formulas, vector_notations, chinese_words, dates_and_times,
    regional_numerals, unit_names, fold_base_letters, expand_dots, log_abs_optional.

    With --code a gold is a test or a list of them: Python assertions, or an object {"stdin", "stdout"}, {"function",
    "arguments", "expected"}, {"inputs", "outputs"}, which holds several as APPS has them, or {"prefix"}, which is put
    before the program. An object may also be JSON in a text. Objects with outputs may have "by_token",
    "absolute_tolerance" and "relative_tolerance". A program that passes some of its tests is partial, and its score is
    their share. Bounds for --policy: timeout_ms, memory_mb, output_bytes. --code-image names a folder that `pip install
    --target` has filled.
    """
    from crucible_bridge.errors import BridgeError, InvalidField

    raise_interrupts()
    try:
        batches = batches_of(policy or (), processes, code=code, packages=code_image, grader=grader)
        with _opened(input_file, output_file) as (file, source), _replacing(output_file) as sink:
            tally = asyncio.run(_grade(file, source, sink, batches, code=code, quiet=as_json))
    except InvalidField as error:
        typer.echo(f"crucible-worker: {error}", err=True)
        raise typer.Exit(EXIT_USAGE) from None
    except (BridgeError, OSError, asyncio.CancelledError, KeyboardInterrupt) as error:
        typer.echo(f"crucible-worker: {_why(error)}", err=True)
        raise typer.Exit(EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else EXIT_FAILED) from None
    _write(tally, output_file, batches, as_json=as_json)
    raise typer.Exit(EXIT_FAILED if tally.malformed else 0)


@contextlib.contextmanager
def _opened(source: Path, output: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """The input as it is on disk, and its text."""
    from crucible_bridge.errors import FailedPrecondition, InvalidField
    from crucible_bridge.reasons import Reason
    from crucible_worker.datasets.jsonl import text_file

    if output.exists() and source.exists() and output.samefile(source):
        raise InvalidField("--output", "is the input, which would be lost")
    try:
        file = source.open("rb")
    except OSError as error:
        raise InvalidField("--input", f"{source} cannot be read: {error.strerror}") from None
    with contextlib.ExitStack() as opened:
        opened.enter_context(file)
        try:
            text = opened.enter_context(text_file(file, "--input"))
        except OSError as error:
            raise FailedPrecondition(f"--input: cannot be read: {error.strerror}", reason=Reason.UNREADABLE) from error
        yield file, text


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[TextIO]:
    """A file that replaces `path` once it is complete; a pipe or device is written to directly."""
    with whole_file(path) as raw:
        file = io.TextIOWrapper(raw, encoding="ascii")
        yield file
        file.detach()


async def _grade(
    file: BinaryIO, source: BinaryIO, sink: TextIO, batches: Batches, *, code: bool, quiet: bool
) -> _Tally:
    Termination()  # like an interrupt: children are ended and the draft is removed
    from crucible_worker.cli.progress import counting
    from crucible_worker.telemetry import configure_logging

    log_writer, tally = configure_logging("console", "warning"), _Tally()
    size = os.fstat(file.fileno()).st_size  # 0 of a pipe
    place = file.tell if file.seekable() else lambda: 0
    try:
        await batches.start()
        began = time.perf_counter()
        flying: collections.deque[tuple[Sequence[PairLine], asyncio.Task[Sequence[Grade]], int]] = collections.deque()
        with counting(sys.stderr, "grading", "records", size or None, quiet=quiet) as show:
            chunks = _chunks(_read(source, batches, code=code))
            while True:
                for lines in itertools.islice(chunks, CHUNKS_IN_FLIGHT - len(flying)):
                    flying.append((lines, _graded(batches, lines), place()))
                if not flying:
                    break
                lines, grades, read = flying.popleft()
                _put(sink, lines, await grades, tally)
                show(tally.lines, read)
        tally.seconds = time.perf_counter() - began
        return tally
    finally:
        await batches.aclose()
        log_writer.close(1.0)


def _read(source: BinaryIO, batches: Batches, *, code: bool) -> Iterator[PairLine]:
    from crucible_bridge.errors import FailedPrecondition, InvalidField
    from crucible_bridge.reasons import Reason
    from crucible_worker.cli.pairs import read_pairs
    from crucible_worker.datasets.jsonl import MalformedLine

    try:
        for line in read_pairs(source, code=code):
            if line.choices.texts and not batches.reads_choices:
                message = f'line {line.number} has "choices", which {batches.name} does not read: leave them out'
                raise InvalidField("--input", f"{message}, or use --grader multiple_choice or math")
            yield line
    except MalformedLine as error:
        raise FailedPrecondition(f"--input: a line {error}", reason=Reason.UNREADABLE) from error
    except OSError as error:
        raise FailedPrecondition(f"--input: cannot be read: {error.strerror}", reason=Reason.UNREADABLE) from error


def _chunks(lines: Iterator[PairLine]) -> Iterator[Sequence[PairLine]]:
    chunk: list[PairLine] = []
    chars = 0
    for line in lines:
        chunk.append(line)
        chars += line.chars
        if len(chunk) == CHUNK_RECORDS or chars >= CHUNK_CHARS:
            yield chunk
            chunk, chars = [], 0
    if chunk:
        yield chunk


def _graded(batches: Batches, lines: Sequence[PairLine]) -> asyncio.Task[Sequence[Grade]]:
    return asyncio.ensure_future(batches.grade([line for line in lines if line.item is not None]))


def _put(sink: TextIO, lines: Sequence[PairLine], grades: Sequence[Grade], tally: _Tally) -> None:
    """Write a chunk: each record with its grade, and each other line with what is wrong."""
    from crucible_worker.grading.base import excerpt, noted

    following = iter(grades)
    for line in lines:
        record = {"id": line.id, "verdict": "error", "score": None, "method": "", "reason": "", "extracted": ""}
        if line.item is None:
            record |= {"reason": f"line {line.number} {line.problem}", "micros": 0.0}
            tally.malformed += 1
            if tally.malformed <= SHOWN_PROBLEMS:
                typer.echo(f"crucible-worker: line {line.number} {line.problem}", err=True)
        else:
            found = next(following)
            if found.problem is not None:
                found = dataclasses.replace(found, reason=found.problem.message)
            found = noted(found, line.item.replaced)
            record |= {
                "verdict": found.verdict.value,
                "score": found.score,
                "method": found.method,
                "reason": found.reason,
                "extracted": excerpt(found.extracted),
                "micros": found.duration_ns / 1000,
            }
            tally.verdicts[found.verdict.value] += 1
            tally.methods[found.method] += 1
        sink.write(json.dumps(record, allow_nan=False) + "\n")


def _why(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
        return "ended before all was graded; a file at --output is unchanged"
    if isinstance(error, OSError):
        return f"cannot write the output: {error.strerror or error}"
    return str(error)


def _write(tally: _Tally, output: Path, batches: Batches, *, as_json: bool) -> None:
    from crucible_worker.cli.tables import write_table

    verdicts = [each for each in _VERDICTS if each != "partial" or tally.verdicts[each]]
    scored = tally.verdicts["correct"] + tally.verdicts["incorrect"] + tally.verdicts["partial"]
    accuracy = tally.verdicts["correct"] / scored if scored else None
    if as_json:
        told = {
            "records": tally.verdicts.total(),
            **{verdict: tally.verdicts[verdict] for verdict in verdicts},
            "malformed": tally.malformed,
            "accuracy": accuracy,
            "methods": dict(tally.methods),
            "seconds": tally.seconds,
            "grader": batches.name,
            **({} if batches.version is None else {"grader_version": batches.version}),
            **({"policy_version": batches.policy_version} if batches.policy_version else {}),
            "output": str(output),
        }
        typer.echo(json.dumps(told))
        return
    rows = [[verdict, f"{tally.verdicts[verdict]:,}"] for verdict in verdicts]
    rows.append(["lines that are not records", f"{tally.malformed:,}"])
    rows.append(["accuracy over the scored", "nothing was scored" if accuracy is None else f"{accuracy:.2%}"])
    rows += [[f"by {method or 'no method'}", f"{count:,}"] for method, count in tally.methods.most_common()]
    rate = tally.verdicts.total() / tally.seconds
    by = batches.name if batches.version is None else f"{batches.name} version {batches.version}"
    title = f"{output}, by {by}: {tally.verdicts.total():,} records in {tally.seconds:.1f} s, {rate:,.0f} a second"
    write_table(sys.stdout, title, ("what", "records"), rows)


# The graders of `grade`: mathematics in processes, programs in sandboxes, or another grader.

_RULE_FIELD = re.compile(r"policy\[\"([^\"]*)\"\]")
"""Path of a rule in the options, as errors have it."""


class Batches(Protocol):
    """Grades items, once it has been started."""

    policy_version: str
    """Fingerprint of the rules; empty if there are none."""
    name: str
    """The name of the grader."""
    version: int | None
    """Its version, if it has one."""
    reads_choices: bool
    """Whether it reads the choices of a record."""

    async def start(self) -> None:
        """Start the processes that grade.

        Raises:
            BridgeError: it does not start.
        """
        ...

    async def grade(self, lines: Sequence[PairLine]) -> Sequence[Grade]:
        """Grades of lines that are records, in order."""
        ...

    async def aclose(self) -> None:
        """End what was started."""
        ...


class MathBatches:
    """Answers, compared as mathematics."""

    name, reads_choices = "math", True

    def __init__(self, pool: GradingPool, policy: MathPolicy) -> None:
        from crucible_worker.grading.math.grader import POLICY_VERSION, MathGrader
        from crucible_worker.grading.registry import version_of

        self.policy_version, self.version = POLICY_VERSION, version_of(self.name)
        self._pool, self._policy, self._grader = pool, policy, MathGrader(pool)

    async def start(self) -> None:
        """Start the processes."""
        await self._pool.start()

    async def grade(self, lines: Sequence[PairLine]) -> Sequence[Grade]:
        """Grades of answers; those with choices by the choice that they are."""
        grades = await self._batch([cast("GradeItem", line.item) for line in lines])
        return await asyncio.gather(*(self._chosen(*each) for each in zip(lines, grades, strict=True)))

    async def _batch(self, items: Sequence[GradeItem]) -> list[Grade]:
        return await self._grader.grade_batch(items, self._policy)

    async def _chosen(self, line: PairLine, grade: Grade) -> Grade:
        from crucible_worker.grading.math.grader import chosen

        item = cast("GradeItem", line.item)
        return await chosen(self._batch, grade, item.text, item.targets, line.choices.texts, line.choices.labels)

    async def aclose(self) -> None:
        """End the processes."""
        await self._pool.aclose()


class CodeBatches:
    """Programs, run against tests."""

    policy_version = ""
    name, reads_choices = "code", False

    def __init__(self, places: SandboxSlots, limits: CodeLimits) -> None:
        """Run them with the packages of the one image that the places have, if they have one."""
        from crucible_worker.grading.code.grader import CodeGrader
        from crucible_worker.grading.registry import version_of

        self.version = version_of(self.name)
        self._places, self._limits, self._grader = places, limits, CodeGrader(places)
        self._image = next(iter(places.images), "")

    async def start(self) -> None:
        """Start one sandbox, so that an error is reported at once if none can start."""
        async with self._places.place(self._places.image(self._image, "--code-image")) as place:
            await place.prepare()

    async def grade(self, lines: Sequence[PairLine]) -> Sequence[Grade]:
        """Grades of programs."""
        from crucible_bridge.types import GradeCodeRequest

        if not lines:
            return ()
        items = tuple(cast("CodeItem", line.item) for line in lines)
        request = GradeCodeRequest(items=items, limits=self._limits, image=self._image)
        return (await self._grader.grade_batch(request)).grades

    async def aclose(self) -> None:
        """End the sandboxes."""
        await self._places.aclose()


class GraderBatches:
    """Answers, judged by a named grader or by one in a user's own file."""

    policy_version = ""

    def __init__(self, grader: Grader, name: str, version: int | None, *, reads_choices: bool) -> None:
        """Judge by it, one answer after the other."""
        self._grader, self.name, self.version, self.reads_choices = grader, name, version, reads_choices

    async def start(self) -> None:
        """Nothing is started."""

    async def grade(self, lines: Sequence[PairLine]) -> Sequence[Grade]:
        """Grades of answers."""
        return [await self._graded(line) for line in lines]

    async def aclose(self) -> None:
        """Nothing was started."""

    async def _graded(self, line: PairLine) -> Grade:
        from crucible_worker.grading.base import with_labels

        began, item = time.perf_counter_ns(), cast("GradeItem", line.item)
        grader = with_labels(self._grader, line.choices.labels)
        grade = await grader.grade(item.text, item.targets, line.choices.texts)
        return dataclasses.replace(grade, duration_ns=time.perf_counter_ns() - began)


def batches_of(
    options: Sequence[str],
    processes: int | None,
    *,
    code: bool,
    packages: Path | None = None,
    grader: str | None = None,
) -> Batches:
    """The grader that the options describe.

    Args:
        options: NAME=VALUE, values as JSON writes them.
        processes: how many; as many as there are cores, about, if None.
        code: programs, not answers.
        packages: folder of packages that programs can import.
        grader: the grader of answers, by name or FILE.py:FUNCTION; mathematics if None.

    Raises:
        InvalidField: an option is wrong, or the number.
    """
    from crucible_bridge.errors import InvalidField
    from crucible_bridge.types import CodeLimits, MathPolicy
    from crucible_worker.grading.code.images import CodeImage
    from crucible_worker.grading.code.options import limits_schema
    from crucible_worker.grading.code.sandbox import SandboxSlots
    from crucible_worker.grading.math.grader import MathOptions
    from crucible_worker.grading.pool import GradingPool
    from crucible_worker.util.options import checked_options, schema_of

    if grader not in (None, "math"):
        return _by_grader(grader, _policy_of(options), code=code or packages is not None, processes=processes)
    if grader is not None and code:
        raise InvalidField("--grader", "is for answers, and --code grades programs; leave out one of them")
    try:
        read = _policy_of(options)
        math, programs = schema_of(MathOptions), limits_schema()
        _check_kind(read, math=math["properties"], programs=programs["properties"], code=code)
        checked = checked_options(read, programs if code else math, "policy")
    except InvalidField as error:
        raise InvalidField(_RULE_FIELD.sub(r"--policy \1", error.field), error.message) from None
    images = () if packages is None else (CodeImage(name="packages", directory=packages),)
    if packages is not None and not packages.is_dir():
        raise InvalidField("--code-image", f"{packages} is not a folder")
    if packages is not None and not code:
        raise InvalidField("--code-image", "is for programs: --code is needed")
    try:
        if code:
            return CodeBatches(SandboxSlots(processes, images), CodeLimits(**checked))
        return MathBatches(GradingPool(processes), MathPolicy(**checked))
    except ValueError as error:
        raise InvalidField("--processes", str(error)) from None


def _by_grader(text: str, options: Mapping[str, Any], *, code: bool, processes: int | None) -> GraderBatches:
    from crucible_bridge.errors import FailedPrecondition, InvalidField, clipped
    from crucible_worker.cli.custom_files import CustomFilesReader
    from crucible_worker.grading import registry
    from crucible_worker.grading.base import AsksJudge
    from crucible_worker.grading.caller import CallerGrader
    from crucible_worker.grading.registry import GradingParts

    if code or text == "code":
        raise InvalidField("--grader", "is for answers; --code grades programs without it")
    if processes is not None:
        raise InvalidField("--processes", f"are for mathematics and programs, and --grader is {clipped(text)}")
    files = CustomFilesReader()
    name = files.grader(text)
    parts = GradingParts(custom_graders=files.graders)
    try:
        made = registry.create(name, options, parts, name_field="--grader", options_field="policy")
    except InvalidField as error:
        raise InvalidField(_RULE_FIELD.sub(r"--policy \1", error.field), error.message) from None
    except FailedPrecondition as error:
        raise InvalidField("--grader", f"{name!r} cannot be used here: {error.message}") from None
    if isinstance(made, AsksJudge):
        raise InvalidField("--grader", f"{name!r} queries a model, which an evaluation has: `crucible-worker evaluate`")
    if isinstance(made, CallerGrader):
        raise InvalidField("--grader", f"{name!r} is a grader of the caller of EvaluateWithOrchestratorModel")
    return GraderBatches(made, name, registry.version_of(name, parts), reads_choices=_reads_choices(made))


def _reads_choices(grader: Grader) -> bool:
    """Whether a grader reads choices: of a user's own, all but functions that do not take them."""
    from crucible_worker.grading.base import ReadsLabels
    from crucible_worker.grading.custom import FunctionGrader, GuardedGrader

    own = grader.grader if isinstance(grader, GuardedGrader) else grader
    if isinstance(own, FunctionGrader):
        return own.choices
    return isinstance(grader, GuardedGrader | ReadsLabels)


def _check_kind(names: Iterable[str], *, math: Container[str], programs: Container[str], code: bool) -> None:
    """Refuse a rule of mathematics if programs are graded, and a bound of programs if they are not."""
    from crucible_bridge.errors import InvalidField

    for name in names:
        if code and name in math and name not in programs:
            raise InvalidField(
                f"--policy {name}", "is a rule of math, which --code does not read; leave out one of them"
            )
        if not code and name in programs and name not in math:
            raise InvalidField(f"--policy {name}", "is a bound of programs; add --code to grade programs")


def _policy_of(options: Sequence[str]) -> dict[str, Any]:
    from crucible_bridge.errors import InvalidField

    read: dict[str, Any] = {}
    for text in options:
        name, separator, value = text.partition("=")
        if not separator:
            raise InvalidField("--policy", f"is {text!r}, not NAME=VALUE, for instance degrees=false")
        if name in read:
            raise InvalidField(f"--policy {name}", "is given twice; only one value can count")
        try:
            read[name] = json.loads(value)
        except ValueError:
            read[name] = value  # the schema says which kind of value the rule has
    return read
