"""What strangers send costs time in proportion to its size, wherever it is read outside of killable processes.

A row is a function and the maker of an input that is as bad for it as any of that size. To add one, name it in `ROWS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.util
import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from crucible_bridge.codec.elements import request_parsed
from crucible_bridge.codec.metric_results import metrics_from_bytes, metrics_to_bytes
from crucible_bridge.codec.options import options_from_v1, options_to_v1
from crucible_bridge.errors import BridgeError
from crucible_bridge.types import (
    InputOutputTests,
    MathPolicy,
    Metrics,
    OutputComparison,
    RawResponse,
    Sample,
    SampleResult,
    ToolSpec,
    TrajectoryBatch,
    Verdict,
    tools_from_json,
)
from crucible_bridge.v1 import metrics_pb2
from crucible_bridge.v1.evaluation_pb2 import EvaluateRequest
from crucible_worker.backends.openai.documents import read_document
from crucible_worker.backends.openai.failures import FailedRequest, of_status, retry_after
from crucible_worker.backends.openai.scoring import Scorer
from crucible_worker.evaluators.comparison import judgement
from crucible_worker.evaluators.inspect.allowed import parse_task
from crucible_worker.evaluators.inspect.evaluator import TaskResponder, outcome_of, task_metrics
from crucible_worker.evaluators.inspect.frames import unpack
from crucible_worker.evaluators.preference import pair_of
from crucible_worker.grading.base import DirectGrader
from crucible_worker.grading.code.assertions import Proxied, read_assertions, with_modules
from crucible_worker.grading.code.compare import Allowed, difference, equals, equals_json
from crucible_worker.grading.code.extract import program_of
from crucible_worker.grading.code.records import read_input_output
from crucible_worker.grading.extract import extract
from crucible_worker.grading.json_schema import JsonSchema
from crucible_worker.grading.judge.texts import readable, says_nothing
from crucible_worker.grading.math.extras.sizes import digits_of
from crucible_worker.grading.math.extras.spellings import apart, in_english, in_upright_type, respelled
from crucible_worker.grading.math.lexer import tokenize
from crucible_worker.grading.math.literal import literally
from crucible_worker.grading.math.text import formulas_of
from crucible_worker.grading.registry import create
from crucible_worker.metrics.trajectory import trajectory_metrics
from crucible_worker.planning.follow.contents import JsonReader
from crucible_worker.rendering.answers import Stops, parse_text
from crucible_worker.rendering.tool_calls import parse_calls
from crucible_worker.util.reasoning import part_thinking
from tests.robustness.linear_time import MAX_RATIO, Row, ratios

SCHEMA = JsonSchema.parse('{"uniqueItems": true}', "schema")
CLOSE = OutputComparison(absolute_tolerance=0.1)
TESTS = Proxied(sources=("assert math.isclose(f(1), 1)",), classes={"f": False, "math": False})
KEY = "canary-0123456789"
RESPONSE = metrics_pb2.ComputeTrajectoryMetricsResponse


def refused(run: Callable[[Any], object], value: Any) -> None:
    """Work that may end in a refusal, which must not cost more either."""
    with contextlib.suppress(BridgeError):
        run(value)


def _hex(digits: int, seed: int) -> str:
    """An odd number without a pattern, in hexadecimal."""
    return random.Random(seed).randbytes(digits // 2).hex() + "1"


def _graded(name: str, response: str, target: str = "46 a") -> object:
    grader = create(name, {}, name_field="grader", options_field="options")
    assert isinstance(grader, DirectGrader)
    return grader.grade_now(response, (target,), ("46 a", "not"))


def _matched(compare: str, response: str) -> object:
    grader = create("exact_match", {"compare": compare}, name_field="grader", options_field="options")
    assert isinstance(grader, DirectGrader)
    return grader.grade_now(response, ("46" if compare == "number" else "[46]",))


def _letters_apart(text: str) -> object:
    return apart("A B", text)


def _spelled(text: str) -> object:
    """An answer within the parser's bounds, beyond which it is not respelled."""
    return respelled("x", text, MathPolicy(log_is_natural=True))


def _labelled(count: int) -> bytes:
    request = EvaluateRequest()
    for number in range(count):
        request.labels[f"{number:x}"] = ""
    return request.SerializeToString()


def _tagged(tags: list[str]) -> object:
    ones = np.ones(2)
    batch = TrajectoryBatch(
        trajectories_per_group=np.ones(2, np.int64),
        transitions_per_trajectory=np.ones(2, np.int64),
        rewards=ones,
        final_rewards=ones,
        action_tokens=np.ones(2, np.int64),
        observation_tokens=np.ones(2, np.int64),
        tags=(tuple(tags), ()),
    )
    return trajectory_metrics(batch)


def _modules_imported(program: str) -> object:
    return with_modules(TESTS, program)


ROWS = {
    "code: imports with blanks": Row(make=lambda n: "import" + " " * n + "\n", run=_modules_imported, size=4_000),
    "code: many imports": Row(
        make=lambda n: "from a import " + "b," * 90 + "from " * n, run=_modules_imported, size=4_000
    ),
    "code: lines of imports": Row(make=lambda n: "import math, x\n" * n, run=_modules_imported, size=4_000),
    "code: one line of letters between fences": Row(make=lambda n: "```" + "a" * n + "`", run=program_of, size=4_000),
    "code: one line of blanks between fences": Row(make=lambda n: "```" + " " * n + "`", run=program_of, size=4_000),
    "code: a fence of tildes that ends in a backtick": Row(make=lambda n: "~" * n + "`", run=program_of, size=4_000),
    "code: one line of tags": Row(make=lambda n: "<a>" * n + "`", run=program_of, size=4_000),
    "code: a block of lines that end in marks of another kind": Row(
        make=lambda n: "~~~\n" + "x```\n" * n + "~~ \n" * n, run=program_of, size=4_000
    ),
    "code: marks before blanks": Row(make=lambda n: "```\n" + ("x```" + " " * 9 + "x") * n, run=program_of, size=4_000),
    "code: a block of marks": Row(make=lambda n: "```\nx" + "`" * n + "x", run=program_of, size=4_000),
    "code: a long mark and fences that are shorter": Row(
        make=lambda n: "~" * n + "\n" + "~~~\n" * n, run=program_of, size=4_000
    ),
    "code: a mark that is long": Row(make=lambda n: "~" * n + "\n" + "x~~~\n" * n, run=program_of, size=4_000),
    "code: an indented block of blanks": Row(make=lambda n: "   ```\n" + " " * n, run=program_of, size=4_000),
    "code: many fences": Row(make=lambda n: "```\n" * n, run=program_of, size=4_000),
    **{
        f"code: {name}": Row(make=lambda n, part=part: part * n, run=lambda text: program_of(text, ["f"]), size=size)
        for name, part, size in (
            ("many openings of reasoning", "<think>", 4_000),
            ("many ends of reasoning", "x</think>", 4_000),
            ("many backticks", "`", 8_000),
            ("words with backticks", "x ``` ", 4_000),
            ("quotes", '"', 8_000),
            ("apostrophes", "'", 8_000),
            ("escaped quotes", '\\"', 4_000),
            ("long strings", '\\"""', 4_000),
            ("brackets", "(", 8_000),
            ("sentences", "This is it.\n", 2_000),
            ("words", "This ", 4_000),
            ("sentences and programs", "This is it.\nx = 1\n", 1_000),
            ("marks", "<a>\n", 4_000),
            ("marks behind blanks", "</a>\n" + " " * 9 + "\n", 2_000),
            ("special tokens", "<|im_end|>", 4_000),
            ("special tokens in quotes", '"<|im_end|>" x\n', 2_000),
            ("special tokens behind texts", 'x """ <|a|> """ \n', 2_000),
            ("blocks behind sentences", "a: ```python\nx\n```\n", 2_000),
            ("questions", "```\nx\n```\nQuestion:", 2_000),
            ("null bytes", "\0", 8_000),
            ("surrogates", "\ud800 ", 4_000),
        )
    },
    "code: special tokens in a text": Row(make=lambda n: 'x = """' + "<|a|> " * n + '"""', run=program_of, size=4_000),
    "code: escaped quotes and tags": Row(make=lambda n: "'" + '<think>\\"' * n, run=program_of, size=4_000),
    "code: a value of many numbers within a tolerance": Row(
        make=lambda n: [0.1] * n, run=lambda value: equals_json(value, [0.2] * len(value), Allowed(CLOSE)), size=4_000
    ),
    "code: a value of numbers at the edge of a tolerance": Row(
        make=lambda n: [0.8] * n, run=lambda value: equals_json(value, [0.7] * len(value), Allowed(CLOSE)), size=500
    ),
    "code: a returned Fraction within a tolerance": Row(
        make=lambda n: {"q": [_hex(n, 1), _hex(n, 2)]},
        run=lambda value: equals_json(value, 1.5, Allowed(CLOSE)),
        size=50_000,
    ),
    "code: a returned integer within a tolerance": Row(
        make=lambda n: {"i": _hex(n, 1)}, run=lambda value: equals_json(value, 1.5, Allowed(CLOSE)), size=50_000
    ),
    "code: a definition without a name": Row(
        make=lambda n: "```\n" + "async " * n + "\n" + "x" + " " * n,
        run=lambda text: program_of(text, ["f"]),
        size=4_000,
    ),
    "code: as many definitions as wanted names": Row(
        make=lambda n: ("```\n" + "def g(): pass\n" * n, [f"f{number}" for number in range(n)]),
        run=lambda given: program_of(*given),
        size=500,
    ),
    "code: a returned Fraction": Row(
        make=lambda n: {"q": [_hex(n, 1), _hex(n, 2)]}, run=lambda value: equals(value, 1.5), size=50_000
    ),
    "code: a returned Fraction as a key": Row(
        make=lambda n: {"s": [{"q": [_hex(n, 1), _hex(n, 2)]}]}, run=lambda value: equals(value, {1.5}), size=50_000
    ),
    "code: a returned range": Row(
        make=lambda n: {"r": [0, {"i": _hex(n, 1)}, {"i": _hex(n // 2, 2)}]},
        run=lambda value: equals(value, 1),
        size=20_000,
    ),
    "code: a returned Decimal with many digits": Row(
        make=lambda n: {"m": "7" * n}, run=lambda value: equals(value, 1), size=50_000
    ),
    "code: a large integer where a Decimal is returned": Row(
        make=lambda n: int(_hex(n, 1), 16), run=lambda expected: equals({"m": "0.5"}, expected), size=50_000
    ),
    "code: blank lines of output": Row(
        make=lambda n: "\n" * n, run=lambda text: difference(text.encode(), "a", OutputComparison()), size=20_000
    ),
    **{
        f"code: output of {part!r}, {'by token' if by_token else 'by line'}": Row(
            make=lambda n, part=part: (part * n + "1.0", part * n + "1.1"),
            run=lambda texts, by_token=by_token: difference(
                texts[0].encode(), texts[1], OutputComparison(by_token=by_token, relative_tolerance=0.5)
            ),
            # Between 8,000 and 16,000 tokens the processor's cache or the allocator adds a step of its own.
            size=1_000 if by_token and part in ("1e900 ", "x ") else 16_000,
        )
        for part in ("7", "7.", "1e900 ", "\n", " ", "x ", "1e", "-", "0.")
        for by_token in (False, True)
    },
    "code: numbers that are close": Row(
        make=lambda n: ("1.5e900 " * n, "1.6e900 " * n),
        run=lambda texts: difference(texts[0].encode(), texts[1], OutputComparison(relative_tolerance=0.5)),
        size=2_000,
    ),
    "code: a set of integers of one hash": Row(
        make=lambda n: f"assert f(1) == {{{', '.join(str((2**61 - 1) * k) for k in range(n))}}}",
        run=read_assertions,
        size=1_000,
    ),
    "code: helpers of many assertions": Row(
        make=lambda n: "assert f(1) == slow(1) + 1\n" * n, run=read_assertions, size=100
    ),
    "code: helpers behind many variables": Row(
        make=lambda n: "a = slow(1)\n" + "b = a\na = b\n" * n + "assert f(1) == a\n", run=read_assertions, size=100
    ),
    "extract: boxes that do not end": Row(make=lambda n: r"\boxed{" * n, run=extract, size=4_000),
    "extract: dollars": Row(make=lambda n: "$a" * n, run=extract, size=8_000),
    "extract: semicolons behind a marker": Row(make=lambda n: "The answer is " + "1; " * n, run=extract, size=1_000),
    "extract: joined boxes": Row(make=lambda n: r"\boxed{5} and " * n, run=extract, size=4_000),
    "extract: braces before a box": Row(make=lambda n: "}" * n + r"\boxed{5}", run=extract, size=40_000),
    "extract: joined formulas": Row(make=lambda n: "$x=1$ and " * n, run=extract, size=4_000),
    "extract: conditions": Row(make=lambda n: "it is $5$ when $x=2$ " * n, run=extract, size=4_000),
    "extract: one number far from the end": Row(make=lambda n: "5" + " word" * n + "x" * n, run=extract, size=2_000),
    "extract: a box with braces in braces": Row(make=lambda n: r"\boxed{" + "{a}" * n + "{{", run=extract, size=4_000),
    "extract: a box that is never closed": Row(make=lambda n: r"\boxed{" + "{" * n, run=extract, size=8_000),
    "extract: a box with braces of some levels": Row(
        make=lambda n: r"\boxed{" + "{{{{a}}}}" * n + "{{{", run=extract, size=2_000
    ),
    "extract: words before a marker at the end": Row(
        make=lambda n: "The " + "final answer is " * n + "5", run=extract, size=4_000
    ),
    "extract: a long numeral behind a marker": Row(make=lambda n: "A: " + "1,1/" * n + "x", run=extract, size=4_000),
    "extract: a line that begins a list": Row(
        make=lambda n: "the solutions are: " + "\t" * n + "x\n2\n3", run=extract, size=4_000
    ),
    "extract: commas before conjunctions": Row(make=lambda n: "or else" + " , ,\n" * n + "5", run=extract, size=4_000),
    "extract: joined numbers": Row(make=lambda n: "so we have 5 and " * n + "5", run=extract, size=4_000),
    "extract: numbers behind a marker": Row(make=lambda n: "Answer:\n" + "1\n" * n, run=extract, size=4_000),
    "extract: values below each other": Row(make=lambda n: "They are:\n" + "$x+1$\n" * n, run=extract, size=4_000),
    "extract: conjunctions": Row(make=lambda n: "we get 2 as well as " * n + "5", run=extract, size=4_000),
    "extract: formulas and numbers": Row(make=lambda n: "1, 2 and $3$, " * n, run=extract, size=4_000),
    "extract: numbers around a formula": Row(
        make=lambda n: "it is " + "1, " * n + "$2$" + ", 3" * n, run=extract, size=4_000
    ),
    "extract: boxes and operators": Row(make=lambda n: r"\boxed{2} to " * n + r"\boxed{3}", run=extract, size=4_000),
    "extract: formulas in plain text": Row(make=lambda n: "we get x = 2 x 3 and " * n + "5", run=extract, size=4_000),
    "extract: brackets in plain text": Row(make=lambda n: "we get (2" * n + " 5" + ")" * n, run=extract, size=4_000),
    "extract: one formula in plain text": Row(make=lambda n: "we get " + "2x5 " * n, run=extract, size=8_000),
    "extract: lines": Row(make=lambda n: "we get\n" + "x = 1\n" * n, run=extract, size=8_000),
    # Of more lines the marker is not in the tail: another stage.
    "extract: lines behind a marker": Row(make=lambda n: "Answer:\n" + "- 1\n" * n, run=extract, size=12_000),
    "extract: blanks between boxes": Row(
        make=lambda n: r"\boxed{5}" + " " * n + r"\boxed{4}", run=extract, size=50_000
    ),
    "extract: rows": Row(make=lambda n: "$" + r"x = 1 \\ " * n + "$", run=extract, size=4_000),
    "extract: rows over lines": Row(make=lambda n: "\\\\ \n \n" * n + "5", run=extract, size=8_000),
    "extract: blanks in rows": Row(make=lambda n: "$x = 1" + "~" * n + " " * n + r"\quad$", run=extract, size=20_000),
    "extract: environments": Row(
        make=lambda n: "$" + r"\begin{align} x " * n + r"\end{align} " * n + "$", run=extract, size=2_000
    ),
    "extract: a chain that names itself": Row(make=lambda n: "$x" + " = 1 x" * n + "$", run=extract, size=4_000),
    "extract: markers": Row(make=lambda n: "the answer is " * n, run=extract, size=4_000),
    "extract: markers in text": Row(make=lambda n: r"\text{Answer: " * n, run=extract, size=2_000),
    "extract: tags": Row(make=lambda n: "'<answer>5</answer>'" * n, run=extract, size=2_000),
    "extract: joined tags": Row(make=lambda n: "<answer>5</answer> and " * n, run=extract, size=4_000),
    "extract: joined objects": Row(make=lambda n: '{"answer": 5}\n' * n, run=extract, size=4_000),
    "extract: joined markers": Row(make=lambda n: "Answer: 5\n" * n, run=extract, size=4_000),
    "extract: joined signs of answers": Row(make=lambda n: "#### 5\n" * n, run=extract, size=8_000),
    "extract: answers that are taken back": Row(
        make=lambda n: r"<answer>5</answer> is wrong. \boxed{5} is wrong. " * n, run=extract, size=1_000
    ),
    "extract: objects that are taken back": Row(make=lambda n: "{" * n + "} is wrong. " * n, run=extract, size=4_000),
    "extract: tags that do not end": Row(make=lambda n: "<answer>" * n, run=extract, size=4_000),
    "extract: objects": Row(make=lambda n: '{"answer":' * n + "1" + "}" * n, run=extract, size=4_000),
    "extract: commands in an object": Row(make=lambda n: '{"answer":"' + r"\\" * n + '"}', run=extract, size=20_000),
    "extract: numbers that are ruled out": Row(make=lambda n: "it is not 5; " * n, run=extract, size=2_000),
    "extract: special tokens": Row(make=lambda n: "<|x|>" * n, run=extract, size=8_000),
    "thinking: tags that do not end": Row(make=lambda n: "<think>" * n, run=part_thinking, size=8_000),
    "thinking: tags that only end": Row(make=lambda n: "</think>" * n, run=part_thinking, size=8_000),
    "judge: a text of marks": Row(make=lambda n: "<|" * n, run=readable, size=8_000),
    "judge: empty blocks": Row(make=lambda n: "``` \n" * n, run=says_nothing, size=8_000),
    "judge: a verdict behind blanks": Row(make=lambda n: "answer" + " " * n + "!", run=judgement, size=8_000),
    "choice: letters": Row(make=lambda n: "A or " * n, run=lambda text: _graded("multiple_choice", text), size=2_000),
    "choice: what rules out": Row(
        make=lambda n: "not " * n + "A", run=lambda text: _graded("multiple_choice", text), size=4_000
    ),
    "choice: clauses": Row(
        make=lambda n: "I do not think that option A, B or C is right, but " * n,
        run=lambda text: _graded("multiple_choice", text),
        size=400,
    ),
    "choice: labels with their texts": Row(
        make=lambda n: "D: a " * n, run=lambda text: _graded("multiple_choice", text), size=2_000
    ),
    "choice: an option in Chinese": Row(
        make=lambda n: "\u9009\u9879A\u4e5f\u4e0d" * n, run=lambda text: _graded("multiple_choice", text), size=2_000
    ),
    "numeric: one long number": Row(make=lambda n: "7" * n, run=lambda text: _graded("numeric", text), size=8_000),
    "numeric: digits and commas": Row(make=lambda n: "7," * n, run=lambda text: _graded("numeric", text), size=4_000),
    "numeric: a huge exponent": Row(
        make=lambda n: f"1e{10**9 + n}", run=lambda text: _graded("numeric", text), size=1_000
    ),
    "contains: a target that nearly occurs": Row(
        make=lambda n: ("ab " * n, "ab " * (n // 2) + "a"),
        run=lambda texts: _graded("contains", texts[0], texts[1]),
        size=4_000,
    ),
    "regex: nested repetition": Row(
        make=lambda n: "a" * n, run=lambda text: _graded("regex", text, "(a*)*b"), size=8_000
    ),
    "exact_match: marks that combine": Row(
        make=lambda n: "e" + "\u0301\u0323" * n, run=lambda text: _graded("exact_match", text), size=2_000
    ),
    "exact_match: one long number": Row(make=lambda n: "7" * n, run=lambda text: _matched("number", text), size=8_000),
    "exact_match: groups of digits": Row(
        make=lambda n: "7" + ",777" * n + "x", run=lambda text: _matched("number", text), size=4_000
    ),
    "exact_match: a long exponent": Row(
        make=lambda n: "1e" + "7" * n, run=lambda text: _matched("number", text), size=8_000
    ),
    **{
        f"exact_match: a list of {part!r}": Row(
            make=lambda n, part=part: "[" + part * n, run=lambda text: _matched("list", text), size=2_000
        )
        for part in (
            "1,",
            "1e999,",
            "'a,",
            "' ",
            "'\\',",
            '"a" ',
            "[",
            "[],",
            "]",
            "f(1,",
            "(),",
            "'(",
            "(1,)",
            "{a}x",
            "'a'    x,",
            '\\","',
            " ",
        )
    },
    "math: a number as it is written": Row(
        make=lambda n: "9" * n, run=lambda text: literally(("7",), text, MathPolicy()), size=8_000
    ),
    "math: other spellings of vectors": Row(
        make=lambda n: "\\mathbf{a}" * n + "\\mathbf{" * n + "\\hat{i}", run=_spelled, size=68
    ),
    "math: digits of a numeral in groups": Row(make=lambda n: "1" + ",234" * n + "!", run=digits_of, size=8_000),
    "math: digits of a numeral behind blanks": Row(
        make=lambda n: "$ " * n + "1" * n + " $" * n + "!", run=digits_of, size=8_000
    ),
    "math: digits of a numeral as a value": Row(
        make=lambda n: "1" * n, run=lambda text: digits_of(text) == digits_of("7" + text), size=20_000
    ),
    "math: letters of names": Row(make=lambda n: "AB_" * n + "\\text{" * n, run=_letters_apart, size=130),
    "math: letters of long names": Row(make=lambda n: "A" * n + "^{" + "B" * n, run=_letters_apart, size=600),
    "math: letters of many names": Row(make=lambda n: "AB " * n + "A B", run=_letters_apart, size=100),
    "math: groups of digits by points": Row(make=lambda n: "1" + ".234" * n + ".", run=tokenize, size=300),
    "math: groups of digits by apostrophes": Row(make=lambda n: "1" + "'234" * n + "'", run=tokenize, size=300),
    "math: letters behind a number": Row(make=lambda n: "5" + " m" * n + "!", run=in_upright_type, size=8_000),
    "math: blanks behind a number": Row(make=lambda n: "5" + " " * n + "m!", run=in_upright_type, size=8_000),
    "math: empty groups": Row(make=lambda n: "{ }" * n + "^", run=tokenize, size=150),
    "math: raised characters": Row(make=lambda n: "\u00b9\u207b" * n + "\u2044", run=tokenize, size=150),
    "math: other spellings of numerals": Row(make=lambda n: "a0" * n + "_{16", run=_spelled, size=600),
    "math: other spellings of grouped numerals": Row(make=lambda n: "1.234" * n + ",5", run=_spelled, size=230),
    "math: other spellings of units": Row(make=lambda n: "5 \\mu \\text{   " * n, run=_spelled, size=80),
    "math: formulas in prose": Row(
        make=lambda n: "a$" * n + "\\(" * n, run=lambda text: formulas_of("the sum is $5$", text), size=60
    ),
    "math: units in Chinese": Row(
        make=lambda n: "5$$$$$$平方千米/平方千米/" * n, run=lambda text: in_english(text, words=True), size=500
    ),
    "math: other spellings of logarithms": Row(make=lambda n: "log    " * n + "_{16}", run=_spelled, size=170),
    "options: many keys": Row(
        make=lambda n: options_to_v1({f"key {number}": number for number in range(n)}, "options"),
        run=lambda message: options_from_v1(message, "options"),
        size=2_000,
    ),
    "requests: labels in protobuf's own order": Row(
        make=_labelled, run=lambda data: refused(functools.partial(request_parsed, EvaluateRequest), data), size=10_000
    ),
    "schema: items that are integers of one hash": Row(
        make=lambda n: [(2**61 - 1) * k for k in range(n)],
        run=lambda items: SCHEMA.check().flaw(SCHEMA.root, items, 0),
        size=1_000,
    ),
    "metrics: many tags of one group": Row(
        # From this size on the steps in which a set grows are small beside the work.
        make=lambda n: [f"tag{number}" for number in range(n)],
        run=lambda tags: refused(_tagged, tags),
        size=8_000,
    ),
    "metrics: an answer with many keys": Row(
        make=lambda n: Metrics.of({f"env/tag{number}/reward/total": 1.0 for number in range(n)}),
        run=lambda metrics: metrics_from_bytes(RESPONSE, metrics_to_bytes(RESPONSE, metrics)),
        size=10_000,
    ),
}


def _answered(body: bytes) -> object:
    return read_document(body, len(body), "s")


def _prompt_logprobs(entries: int) -> dict[str, Any]:
    told = [None, *({"7": {"logprob": -1.0, "rank": 2}, "8": {"logprob": -0.5, "rank": 1}} for _ in range(entries - 1))]
    return {"choices": [{"text": "", "finish_reason": "length", "prompt_logprobs": told}]}


def _scored(given: tuple[dict[str, Any], list[int]]) -> object:
    document, tokens = given

    async def ask(body: dict[str, Any], count: int) -> dict[str, Any]:
        return document

    return asyncio.run(Scorer("s", "m", ask).likeliest(tokens))


def _refusal(body: bytes) -> object:
    return of_status(FailedRequest(server="s", model="m", path="/p", key=KEY), 400, {}, body)


def _task_results(count: int) -> list[SampleResult]:
    """Of tasks that were not run, whose names differ beyond what is shown of a name."""
    names = ("x" * 300 + str(number) for number in range(count))
    return [SampleResult(evaluator="inspect", sample_id=name, repeat=0, verdict=Verdict.ERROR) for name in names]


def _scores(count: int) -> dict[str, Any]:
    metrics = {"x" * 300 + str(number): 1.0 for number in range(count)}
    message = {"op": "found", "headline": None, "records": [], "records_left_out": 0, "first_error": ""}
    counts = {"samples": 1, "errored": 0, "truncated": 0}
    return {**message, **counts, "scores": [{"scorer": "s", "reducer": None, "unscored": 0, "metrics": metrics}]}


def _parsed(text: str) -> object:
    return parse_text(RawResponse(text=text), text, Stops(texts=("<|im_end|>",)), "chat_template")


def _called(form: str) -> Callable[[str], object]:
    tools = tuple(ToolSpec(name=name) for name in ("a", "f"))
    return lambda text: parse_calls(text, form, tools)


def _tools(text: str) -> object:
    return tools_from_json(text, "tools")


def _passed_over(text: str) -> object:
    reader = JsonReader(text)
    for _ in reader.members():
        reader.pass_over()
    return reader.ended()


def _pair(answer: str) -> object:
    return pair_of(Sample(input="q", metadata={"chosen": "a", "rejected": answer}))


def _found(message: dict[str, Any]) -> object:
    return outcome_of("t", message, TaskResponder({}, {}, seed=0, keep_thinking=True))


ROWS |= {
    "code: tests as APPS has them": Row(
        make=lambda n: json.dumps({"fn_name": "f", "inputs": [[{"1": [1]}]] * n, "outputs": [[1]] * n}).encode(),
        run=lambda data: read_input_output(InputOutputTests(json=data.decode()), 1_000_000),
        size=2_000,
    ),
    "server: lists in lists": Row(make=lambda n: b"[" * n, run=lambda body: refused(_answered, body), size=20_000),
    "server: empty lists": Row(make=lambda n: b'{"a":[' + b"[]," * n + b"0]}", run=_answered, size=5_000),
    "server: one number of many digits": Row(
        make=lambda n: b'{"a":' + b"9" * n + b"}", run=lambda body: refused(_answered, body), size=100_000
    ),
    "server: one fraction of many digits": Row(
        make=lambda n: b'{"a":0.' + b"1" * n + b"}", run=_answered, size=100_000
    ),
    "server: numbers as long as they are read": Row(
        make=lambda n: b'{"a":[' + (b"9" * 4_300 + b",") * n + b"0]}", run=_answered, size=50
    ),
    "server: one key over and over": Row(make=lambda n: b"{" + b'"a":1,' * n + b'"b":1}', run=_answered, size=20_000),
    "server: halves of surrogate pairs": Row(
        make=lambda n: b'{"a":"' + b"\\ud800" * n + b'"}', run=_answered, size=50_000
    ),
    "server: log-probabilities of a prompt": Row(
        make=lambda n: (_prompt_logprobs(n), [7] * n), run=_scored, size=2_000
    ),
    "server: a refusal of blanks": Row(make=lambda n: b'{"error":"' + b" " * n + b'"}', run=_refusal, size=50_000),
    "server: a refusal that begins the words it is searched for": Row(
        make=lambda n: b'{"error":{"message":"x","code":"' + b"maximum contex prompt is too lon " * n + b'"}}',
        run=_refusal,
        size=2_000,
    ),
    "server: a refusal of keys": Row(make=lambda n: KEY.encode() * n, run=_refusal, size=5_000),
    "server: Retry-After of many digits": Row(
        make=lambda n: {"Retry-After": "Thu, " + "1" * n + " Jan 2026 00:00:00 GMT"}, run=retry_after, size=100_000
    ),
    "answer: reasoning that is opened and never closed": Row(
        make=lambda n: "<think>" * n, run=part_thinking, size=5_000
    ),
    "answer: reasoning that is closed and never opened": Row(
        make=lambda n: " </think>" * n, run=part_thinking, size=5_000
    ),
    "response: calls of tools that do not end": Row(make=lambda n: "<tool_call>" * n, run=_parsed, size=5_000),
    "response: empty calls of tools": Row(make=lambda n: "<tool_call></tool_call>" * n, run=_parsed, size=2_000),
    "response: calls in XML that do not end": Row(
        make=lambda n: f"<tool_call><function=f>{'</parameter>' * n}{'<parameter=a>' * n}</tool_call>",
        run=_called("tagged"),
        size=2_000,
    ),
    "response: calls in XML without a name": Row(
        make=lambda n: f"<tool_call><function=f>{'<parameter=' * n}</tool_call>", run=_called("tagged"), size=5_000
    ),
    "response: one call of Mistral's": Row(
        make=lambda n: f'[TOOL_CALLS]f[ARGS]{{"a":[{"1," * n}1]}}', run=_called("mistral"), size=10_000
    ),
    "response: many objects of Llama's calls": Row(
        make=lambda n: '{"name":"f"};' * n, run=_called("llama"), size=5_000
    ),
    "response: calls in Python within calls": Row(
        make=lambda n: f"[f(a={'[' * n}", run=_called("pythonic"), size=15_000
    ),
    "response: marks of Kimi's calls": Row(make=lambda n: "<|tool_call_begin|>" * n, run=_called("kimi"), size=10_000),
    "tools: brackets": Row(make=lambda n: '["\\"[",' * n, run=lambda text: refused(_tools, text), size=5_000),
    "response: stop sequences": Row(make=lambda n: "<|im_end|>" * n, run=_parsed, size=20_000),
    # The smallest one is longer than what is read at once.
    "checkpoint: a long list of objects": Row(
        make=lambda n: '{"a":[' + '{"b":1},' * n + "0]}", run=_passed_over, size=40_000
    ),
    "pair: blanks before messages": Row(make=lambda n: "[" + " " * n + "{", run=_pair, size=50_000),
    "inspect: a name of a task": Row(
        make=lambda n: "a/" * n + "!", run=lambda text: refused(parse_task, text), size=2_000
    ),
    "inspect: a file of a task": Row(
        make=lambda n: ".py" * n + "@", run=lambda text: refused(parse_task, text), size=2_000
    ),
    "inspect: a message of lists": Row(make=lambda n: b'{"a":[' + b"[]," * n + b"0]}", run=unpack, size=5_000),
    "inspect: metrics of one name": Row(make=_scores, run=_found, size=1_000),
    "inspect: tasks of one name": Row(make=_task_results, run=task_metrics, size=300),
}

if importlib.util.find_spec("tinker") is not None:
    from crucible_worker.backends.tinker.client import told

    ROWS |= {
        "tinker: what is like keys": Row(
            make=lambda n: "tml-eyJ" * n + " " + "tml" * n, run=lambda text: told(text, KEY), size=10_000
        ),
    }


@pytest.mark.parametrize("name", ROWS)
def test_time_is_linear(name: str) -> None:
    """CPU time less than triples at each of three doublings of the input."""
    found = ratios(ROWS[name])

    assert max(found) < MAX_RATIO, [round(ratio, 2) for ratio in found]
