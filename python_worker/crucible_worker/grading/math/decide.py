"""Whether an answer equals a target.

The order is: texts that are alike, the trees, and the rest when words around it are removed. A target
without a value (empty, `nan`, 1/0) equals nothing, and no answer can be wrong by it: UNDECIDED, whatever the answer.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Sequence

from crucible_bridge.types import MathPolicy, Verdict
from crucible_worker.grading.base import MAX_TEXT_BYTES, TOO_LONG
from crucible_worker.grading.characters import with_plain_digits
from crucible_worker.grading.math.compare_relations import (
    approximate_part,
    compare_equation_with_value,
    compare_relations,
    parts_of,
)
from crucible_worker.grading.math.compare_sets import at_points, compare_sets, is_real_set, variables_of
from crucible_worker.grading.math.compare_values import (
    compare_collections,
    compare_matrices,
    compare_values,
    is_reduced,
    match,
)
from crucible_worker.grading.math.extras.notations import (
    compare_durations,
    compare_formulas,
    compare_moments,
    has_number_inside,
    in_components,
    other_capitals,
    other_clock,
)
from crucible_worker.grading.math.extras.sizes import value_of
from crucible_worker.grading.math.extras.spellings import (
    apart,
    in_english,
    in_upright_type,
    is_bare_number,
    is_measured,
    respelled,
    written_out_units,
)
from crucible_worker.grading.math.grammar import words_of
from crucible_worker.grading.math.identity import MathOutcome, Pair, Scope, all_of, any_of, different, equal, unknown
from crucible_worker.grading.math.lexer import restored
from crucible_worker.grading.math.literal import LITERAL, literally
from crucible_worker.grading.math.reading import (
    EMPTY,
    LEFT_OUT,
    MAX_CACHED_CHARS,
    OUTSIZE,
    WITHOUT_VALUE,
    ParsedText,
    compare_digits,
    compare_unread,
    has_outsize,
    is_small,
    leaves_out,
    read,
    read_target,
    readings_of,
)
from crucible_worker.grading.math.text import (
    as_list,
    boxed,
    choice,
    compare_text,
    condition,
    counted,
    formulas_of,
    is_empty_set,
    other_domains,
    with_decimal_point,
)
from crucible_worker.grading.math.tree import (
    Based,
    Collection,
    Constant,
    FunctionCall,
    Interval,
    Matrix,
    Node,
    Number,
    Power,
    Product,
    Quantity,
    Relation,
    SetOperation,
    Sum,
    Symbol,
    Text,
    ordered_symbols,
    replaced,
)
from crucible_worker.grading.qualification import with_conjunctions

__all__ = [
    "MAX_FORMS",
    "MAX_RENAMED",
    "MAX_SEARCHED_CHARS",
    "Decision",
    "Pending",
    "compare",
    "decide",
    "decide_unsent",
    "settle",
]

# Comparing two trees of any shape.

_NUMBERLESS = frozenset({FunctionCall, Sum})
_VALUES = frozenset({Number, Constant, Sum, Product, Power, FunctionCall, Based, Quantity})


def compare(target: Node, answer: Node, scope: Scope) -> MathOutcome:
    """Compare two trees: the target and the answer."""
    if not scope.charge():
        return unknown("too much to compare")
    if type(target) in _VALUES and type(answer) in _VALUES:
        return _compare_numberless(target, answer, scope) or compare_values(target, answer, scope)
    if target == answer:
        return equal("text" if isinstance(target, Text) else "structure")
    if isinstance(target, Text) or isinstance(answer, Text) or is_empty_set(target) or is_empty_set(answer):
        return _compare_text(target, answer, scope)
    if is_real_set(target) or is_real_set(answer):
        outcome = _compare_sets(target, answer, scope)
        if outcome is not None:
            return outcome
        outcome = _compare_shapes(target, answer, scope)
        described = is_real_set(target) and is_real_set(answer)
        open_still = outcome.kind != "equal" and not outcome.pairs
        return at_points(target, answer, outcome) if described and open_still else outcome
    return _compare_shapes(target, answer, scope)


def _compare_shapes(target: Node, answer: Node, scope: Scope) -> MathOutcome:
    """Compare two nodes, neither of which is words, by their parts."""
    if scope.policy.vector_notations and (components := in_components(target, answer)) is not None:
        return scope.compare(*components, scope)
    if isinstance(target, Relation) or isinstance(answer, Relation):
        return _compare_relations(target, answer, scope)
    if isinstance(target, Matrix) or isinstance(answer, Matrix):
        return compare_matrices(target, answer, scope)
    if isinstance(target, Collection) or isinstance(answer, Collection):
        return _compare_collections(target, answer, scope)
    if isinstance(target, Interval | SetOperation) or isinstance(answer, Interval | SetOperation):
        return _compare_parts(target, answer, scope)
    return compare_values(target, answer, scope)


def _compare_text(target: Node, answer: Node, scope: Scope) -> MathOutcome:
    """Words, or an equation whose value is words; or the empty set, which an inequality without solutions describes."""
    for one, other in ((target, answer), (answer, target)):
        if is_empty_set(one) and isinstance(other, Relation) and is_real_set(other):
            return compare_sets(Collection("set", ()), other, scope) or different("structure", "not of numbers")
    for one, other, reverse in ((target, answer, False), (answer, target, True)):
        if isinstance(one, Relation) and not isinstance(other, Relation):
            return compare_equation_with_value(one, other, scope, reverse=reverse)
        if isinstance(one, Collection) and len(one.items) == 1 and not isinstance(other, Collection):
            return scope.compare(other, one.items[0], scope) if reverse else scope.compare(one.items[0], other, scope)
    return compare_text(target, answer)


def _compare_sets(target: Node, answer: Node, scope: Scope) -> MathOutcome | None:
    outcome = compare_sets(target, answer, scope)
    if outcome is None or outcome.kind == "equal":
        return outcome
    if isinstance(target, Relation) and isinstance(answer, Relation):
        return any_of((compare_relations(target, answer, scope), outcome))
    return outcome


def _compare_relations(target: Node, answer: Node, scope: Scope) -> MathOutcome:
    """Two nodes at least one of which is a relation."""
    if isinstance(target, Relation) and isinstance(answer, Relation):
        return compare_relations(target, answer, scope)
    for one, other, reverse in ((target, answer, False), (answer, target, True)):
        if not isinstance(one, Relation):
            continue
        parts = parts_of(one)
        if parts is not None and isinstance(other, Collection):
            by_part = scope.compare(other, parts, scope) if reverse else scope.compare(parts, other, scope)
            if by_part.kind == "equal":
                return by_part
        if one.operators == ("=",) and isinstance(other, Collection) and other.items:
            solutions = compare_sets(target, answer, scope) if _are_relations(other.items) else None
            if solutions is not None and solutions.kind == "equal":
                return solutions
        if "in" in one.operators and one.operators == ("in",):
            value = one.operands[1]
            return scope.compare(other, value, scope) if reverse else scope.compare(value, other, scope)
        return compare_equation_with_value(one, other, scope, reverse=reverse)
    return different()


def _are_relations(nodes: Sequence[Node]) -> bool:
    return all(isinstance(node, Relation) for node in nodes)


def _compare_collections(target: Node, answer: Node, scope: Scope) -> MathOutcome:
    """Two nodes at least one of which is several things."""
    if isinstance(target, Collection) and isinstance(answer, Collection):
        return compare_collections(target, answer, scope)
    for one, other, reverse in ((target, answer, False), (answer, target, True)):
        if isinstance(one, Collection) and len(one.items) == 1:
            return scope.compare(other, one.items[0], scope) if reverse else scope.compare(one.items[0], other, scope)
    return different("structure", "several things on one side only")


def _compare_parts(target: Node, answer: Node, scope: Scope) -> MathOutcome:
    """Intervals and unions of other things than real numbers, as written."""
    match target, answer:
        case Interval(), Interval():
            if (target.low_closed, target.high_closed) != (answer.low_closed, answer.high_closed):
                return different("structure", "open and closed bounds")
            return all_of(scope.each((target.low, target.high), (answer.low, answer.high)))
        case SetOperation(operator, operands), SetOperation(other, others) if operator == other:
            if operator in ("union", "intersection"):
                return match(operands, others, scope)
            if len(operands) == len(others):
                return all_of(scope.each(operands, others))
    return different("structure", "sets of another form")


def _compare_residues(target: Node, answer: Node, scope: Scope) -> MathOutcome | None:
    """Values by a modulus: two moduli must be equal, a modulus on one side only is accepted."""
    match target, answer:
        case FunctionCall("mod" | "residue", (value, modulus)), FunctionCall("mod" | "residue", (said, other)):
            left, right = (FunctionCall("mod", (part, modulus)) for part in (value, said))
            return all_of((scope.compare(modulus, other, scope), compare_values(left, right, scope)))
        case (FunctionCall("residue"), Based()) | (Based(), FunctionCall("residue")):
            return different("structure", "a modulus on one side and a base on the other")
        case FunctionCall("residue", (value, _)), _:
            return compare_values(value, answer, scope)
        case _, FunctionCall("residue", (said, _)):
            return compare_values(target, said, scope)
        case _:
            return None


def _compare_numberless(target: Node, answer: Node, scope: Scope) -> MathOutcome | None:
    """Nodes that are not numbers: ratios of three and more, hours with minutes, formulas by cases, builders of sets."""
    if type(target) not in _NUMBERLESS and type(answer) not in _NUMBERLESS:
        return None
    if (_adds_quantities(target) or _adds_quantities(answer)) and scope.policy.dates_and_times:
        duration = compare_durations(target, answer, scope)
        if duration is not None:
            return duration
    match target, answer:
        case FunctionCall("ratio", (first, *parts)), FunctionCall("ratio", (other, *others)) if len(parts) > 1:
            if len(parts) != len(others):
                return different("structure", "ratios of different lengths")
            crosswise = ((Product((part, other)), Product((first, said))) for part, said in zip(parts, others))
            return all_of(scope.compare(left, right, scope) for left, right in crosswise)
        case (FunctionCall("ratio", parts), _) | (_, FunctionCall("ratio", parts)) if len(parts) > 2:
            return different("structure", "a ratio on one side only")
        case Sum(terms), Sum(others) if all(isinstance(term, Quantity) for term in (*terms, *others)):
            return match(terms, others, scope)
        case FunctionCall("cases", cases), FunctionCall("cases", others):
            return match(cases, others, scope)
        case FunctionCall("set", parts), FunctionCall("set", others) if len(parts) == len(others):
            return all_of(scope.each(parts, others))
        case FunctionCall("conjunction" | "disjunction" as logic, parts), FunctionCall(other, others):
            return match(parts, others, scope) if logic == other else different("structure", "other propositions")
        case (FunctionCall("mod" | "residue"), _) | (_, FunctionCall("mod" | "residue")):
            return _compare_residues(target, answer, scope)
        case FunctionCall("cross", parts), FunctionCall("cross", others):
            return all_of(scope.each(parts, others))
        case (FunctionCall("cases" | "set"), _) | (_, FunctionCall("cases" | "set")):
            return different("structure", "of another kind")
        case _:
            return None


def _adds_quantities(node: Node) -> bool:
    return isinstance(node, Sum) and isinstance(next(iter(node.terms), None), Quantity)


# Comparing two texts.

MAX_SEARCHED_CHARS = 50_000
"""Characters at the end of a text that are searched for an answer. Texts that are parsed are far shorter."""
MAX_FORMS = 8
"""Forms of one value that an answer may list."""
MAX_RENAMED = 4
"""Variables that are permuted if a policy lets their names differ."""

_UNSENT = f"the answer is longer than {MAX_TEXT_BYTES:,} bytes"
# Two letters and more in one case, which may have been read as a product: no, NO, No.
_WORD = re.compile(r"[A-Z]?(?:[a-z]+|[A-Z]+)(?<=..)[.!]?")
_DELIMITERS = re.compile(r"\$(?<!\\\$)\$?|\\(?:[()\[\]]|(?:left|right|displaystyle)(?![A-Za-z]))")
# Text after a choice that shows that it is not a label: "(A) is wrong", "(A) or (B)".
_NO_LABEL = re.compile(
    r"(?:is|are|was|must be)\s(?:\w{1,12}ly\s)?(?:wrong|incorrect|false|out|ruled out|eliminated|excluded|impossible)\b"
    r"|(?:(?:is|was|can|does)(?: ?not|n['\u2019]t)|cannot)\s(?:be )?(?:correct|right|true|the|it|possible|work)\b"
    r"|(?:or|and|nor|&)\s?\(?[A-J](?![A-Za-z])",
    re.IGNORECASE,
)
# A chemical formula has a capital; other capitals than those of ASCII differ as well.
# The letters of several choices, and the same without anything between them.
_CHOICES = re.compile(r"[A-J](?:, ?[A-J]){1,9}")
_CHOICES_JOINED = re.compile(r"[A-J]{2,10}")
_MAY_BE_FORMULA = re.compile(r"[A-Z\x80-\U0010ffff]")
# Every choice has this: a letter without another one next to it.
_LONE_LETTER = re.compile(r"[A-Ja-j](?<![A-Za-z].)(?![A-Za-z])", re.DOTALL)
_LETTER = re.compile(r"(?:(?:[Oo]ption|[Cc]hoice) )?(?:\\text\w*\{)?\(?([A-Ja-j])\)?\}?\.?")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """The proof that a verdict needs. It is pickled between processes."""

    pairs: tuple[Pair, ...]
    """Trees of arithmetic: the answer is right if both of each pair are proven equal."""
    agrees: bool
    """Numbers agreed so far for every pair; otherwise they decided nothing."""
    reason: str
    """Why the numbers could not decide."""
    outsize: bool = False
    """Without a proof the answer is wrong: it has a number with very many digits, and the target is small."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The verdict on one answer by one target."""

    verdict: Verdict | None
    """CORRECT, INCORRECT or UNDECIDED; None if `pending` must be proven first."""
    method: str = ""
    """How it came about: "literal", "rational", "text", "structure", "identity", "symbolic", "too_long"."""
    reason: str = ""
    """The reason, for people."""
    pending: Pending | None = None
    """The needed proof."""


def decide(target: str, answer: str, policy: MathPolicy, *, whole: bool = False) -> Decision:
    """Decide whether an answer equals a target, in bounded time. Pure, and never raises.

    Args:
        target: a right answer.
        answer: the given answer.
        policy: what counts as equivalent.
        whole: only the whole text counts: words around an answer, or around a box, are not dropped.
    """
    # A tab at the start may be the rest of "\\text", so it is repaired before blanks are dropped.
    target, answer = restored(target[-MAX_SEARCHED_CHARS:]).strip(), restored(answer[-MAX_SEARCHED_CHARS:]).strip()
    target, answer = (with_conjunctions(text) if " " in text else text for text in (target, answer))
    if not (target.isascii() and answer.isascii()):
        spelled = map(with_plain_digits, (target, answer))
        target, answer = (in_english(text, words=policy.chinese_words) for text in spelled)
    if policy.dates_and_times and ":" in target and (clock := other_clock(target, answer)) is not None:
        return _decision(clock)
    if (
        policy.chemical_formulas
        and (_MAY_BE_FORMULA.search(target) or _MAY_BE_FORMULA.search(answer))
        and (has_number_inside(target) or has_number_inside(answer) or other_capitals(target, answer))
    ):
        formula = _compare_kinds(_Texts.of(target, answer, whole=whole), policy)
        if formula is not None:
            return _decision(formula)
    if (choices := _compare_joined(target, answer, policy)) is not None:
        return _decision(choices)
    literal = _as_text(target, answer, policy)
    if literal is not None:
        return literal
    texts = _Texts.of(target, answer, whole=whole)
    written = _as_read(texts, policy)
    if written.verdict is Verdict.CORRECT:
        return written
    kind = _compare_kinds(texts, policy)
    return _respelled(texts, written, policy) if kind is None else _decision(kind)


@dataclasses.dataclass(slots=True)
class _Texts:
    """The two texts of a decision, and the content of their boxes."""

    target: str
    answer: str
    whole: bool
    """Only the whole answer counts."""
    expected: str
    """The content of the target's box; the target if it has none."""
    inner: str
    """The content of the answer's box; the answer if it has none."""
    said: str
    """The same, or the answer if the whole answer counts."""

    @classmethod
    def of(cls, target: str, answer: str, *, whole: bool) -> _Texts:
        inner = boxed(answer) or answer
        return cls(target, answer, whole, boxed(target) or target, inner, answer if whole else inner)


def _respelled(texts: _Texts, written: Decision, policy: MathPolicy) -> Decision:
    """The decision for other spellings of an answer, if it is not right as written."""
    spelled = respelled(texts.target, texts.answer, policy)
    if spelled is not None:
        other = _as_respelled(*spelled, policy, whole=texts.whole)
        # A spelling may make a target readable, or an answer right; it never makes an undecided answer wrong.
        if other.verdict is Verdict.CORRECT or (written.verdict is Verdict.INCORRECT and other.verdict is None):
            return other
        if written.verdict is Verdict.UNDECIDED and read_target(texts.target).flaw:
            written = other
    divided = apart(*(spelled or (texts.target, texts.answer)))
    if divided is not None:
        other = _as_respelled(*divided, policy, whole=texts.whole)
        if other.verdict is Verdict.CORRECT or (written.verdict is Verdict.INCORRECT and other.verdict is None):
            return other
    return written


def _as_respelled(target: str, answer: str, policy: MathPolicy, *, whole: bool) -> Decision:
    decision = _as_written(target, answer, policy, whole=whole)
    return dataclasses.replace(decision, method="structure") if decision.method == LITERAL else decision


def _as_written(target: str, answer: str, policy: MathPolicy, *, whole: bool) -> Decision:
    return _as_text(target, answer, policy) or _as_read(_Texts.of(target, answer, whole=whole), policy)


def _as_text(target: str, answer: str, policy: MathPolicy) -> Decision | None:
    """The decision on the same text, or on two integers; None for others."""
    literal = literally((target,), answer, policy) if answer == target or answer[-1:].isdigit() else None
    return None if literal is None else Decision(verdict=literal, method=LITERAL)


def _as_read(texts: _Texts, policy: MathPolicy) -> Decision:
    expected = read_target(texts.target)
    outcome = _compare_choices(texts.expected, texts.said, policy)
    if expected.flaw and outcome is None:
        return _without_target(texts, expected)
    if outcome is None or (outcome.kind != "equal" and not expected.flaw):
        outcome = _compare_said(texts, expected, policy)
    if outcome.kind == "unknown":
        said = read(texts.inner)
        if is_small(expected) and leaves_out(said, expected):
            return _decision(_with_dots(expected, said, policy))
        outsize = not outcome.agrees and is_small(expected) and has_outsize(said)
        return _undecided(outcome, outsize=outsize)
    return _decision(outcome)


def _with_dots(expected: ParsedText, said: ParsedText, policy: MathPolicy) -> MathOutcome:
    """Compare an answer that leaves something out with a target that does not."""
    value = value_of(said.nodes[0]) if policy.expand_dots and len(said.nodes) == 1 else None
    if value is None:
        return different("structure", LEFT_OUT)
    outcome = _compare_readings(expected, ParsedText((value,)), policy)
    return outcome if outcome.kind == "equal" else different("structure", LEFT_OUT)


def _compare_joined(target: str, answer: str, policy: MathPolicy) -> MathOutcome | None:
    """Compare the letters of several choices, "A, C", with an answer "CA"; None for other texts."""
    if not (_CHOICES.fullmatch(target) and _CHOICES_JOINED.fullmatch(answer)):
        return None
    letters = target.replace(",", "").replace(" ", "")
    same = letters == answer if policy.ordered_lists else sorted(letters) == sorted(answer)
    return equal("text") if same else different("text", "other letters")


def _decision(outcome: MathOutcome) -> Decision:
    verdict = Verdict.CORRECT if outcome.kind == "equal" else Verdict.INCORRECT
    return Decision(verdict=verdict, method=outcome.method, reason=outcome.reason)


def _compare_kinds(texts: _Texts, policy: MathPolicy) -> MathOutcome | None:
    """Compare texts with a special form that is not mathematics as a whole; None if one side has no such form."""
    target, answer = texts.expected, texts.said
    if policy.math_in_prose and (formulas := formulas_of(target, answer)) is not None:
        found = (_as_written(expected, said, policy, whole=True).verdict for expected, said in formulas)
        if all(verdict is Verdict.CORRECT for verdict in found):
            return equal("structure", "the same words, and formulas that are equal")
    if policy.dates_and_times and (outcome := compare_moments(target, answer)) is not None:
        return outcome
    if policy.chemical_formulas:
        return compare_formulas(target, answer, ordered=policy.ordered_lists)
    return None


def decide_unsent(target: str) -> Decision:
    """Decide about an answer that is too long to be sent to a child."""
    expected = read_target(restored(target[-MAX_SEARCHED_CHARS:]).strip())
    if is_small(expected):
        return Decision(verdict=Verdict.INCORRECT, method=TOO_LONG, reason=_UNSENT)
    reason = f"the target {expected.flaw}" if expected.flaw else _UNSENT
    return Decision(verdict=Verdict.UNDECIDED, method="structure", reason=reason)


def settle(pending: Pending, proofs: Sequence[bool | None]) -> Decision:
    """The verdict, by the proof for each pair: equal, different, or none."""
    if any(proof is False for proof in proofs):
        return Decision(verdict=Verdict.INCORRECT, method="symbolic", reason="proven different")
    if proofs and all(proofs):
        return Decision(verdict=Verdict.CORRECT, method="symbolic", reason="proven equal")
    if pending.outsize:
        return Decision(verdict=Verdict.INCORRECT, method=TOO_LONG, reason=OUTSIZE)
    so_far = "equal as far as numbers tell, but not proven" if pending.agrees else pending.reason
    return Decision(verdict=Verdict.UNDECIDED, method="symbolic", reason=so_far)


def _undecided(outcome: MathOutcome, *, outsize: bool) -> Decision:
    if not outcome.pairs and outsize:
        return Decision(verdict=Verdict.INCORRECT, method=TOO_LONG, reason=OUTSIZE)
    if not outcome.pairs:
        return Decision(verdict=Verdict.UNDECIDED, method=outcome.method, reason=outcome.reason)
    pending = Pending(pairs=outcome.pairs, agrees=outcome.agrees, reason=outcome.reason, outsize=outsize)
    return Decision(verdict=None, method=outcome.method, reason=outcome.reason, pending=pending)


def _without_target(texts: _Texts, expected: ParsedText) -> Decision:
    """A target that cannot be read may still be said in its own words; one without a value cannot."""
    if expected.flaw not in (EMPTY, WITHOUT_VALUE) and _same_words(texts.target, texts.answer):
        return Decision(verdict=Verdict.CORRECT, method="text")
    if expected.digits is not None and (outcome := compare_digits(expected, read(texts.inner))):
        verdict = Verdict.CORRECT if outcome.kind == "equal" else Verdict.INCORRECT
        return Decision(verdict=verdict, method=outcome.method)
    return Decision(verdict=Verdict.UNDECIDED, method="structure", reason=f"the target {expected.flaw}")


def _same_words(target: str, answer: str) -> bool:
    words = words_of(target)
    return bool(words) and words.isprintable() and words == words_of(answer)


def _compare_said(texts: _Texts, expected: ParsedText, policy: MathPolicy) -> MathOutcome:
    """Compare the target with each reading of an answer."""
    target, answer = texts.target, texts.answer
    readings = (read(answer),) if texts.whole else readings_of(answer, expected)
    outcome = any_of(_compare_readings(expected, said, policy) for said in readings)
    if outcome.kind == "equal" and (other_domains(target, answer) or _counts_once(target, answer, expected)):
        return different("structure", "numbers of another kind")
    if outcome.kind == "equal" and _other_conditions(target, answer, policy):
        return different("structure", "under another condition")
    if outcome.kind != "different" or outcome.method == TOO_LONG:
        return outcome
    if (outcome.method == "text" or (_WORD.fullmatch(target) and _WORD.fullmatch(answer))) and _same_words(
        target, answer
    ):
        return equal("text")
    if (value := _in_several_forms(expected, read(answer), policy)) is not None:
        outcome = _compare_readings(expected, value, policy)
    return any_of((outcome, *_compare_rewritten(texts, expected, policy)))


def _compare_rewritten(texts: _Texts, expected: ParsedText, policy: MathPolicy) -> Iterator[MathOutcome]:
    """The outcome of a wrong answer by other readings of its signs; each is tried if it applies."""
    inner = read(texts.inner)
    if "," in texts.target or "," in texts.answer:
        yield from _with_other_commas(texts.target, expected, texts.answer, policy)
    yield from _with_letter_unit(texts.target, expected, texts.inner, policy)
    if Relation in expected.kinds or Relation in inner.kinds:
        yield from _approximated(expected, inner, policy)


def _approximated(expected: ParsedText, said: ParsedText, policy: MathPolicy) -> Iterator[MathOutcome]:
    r"""The value of an approximation, on either side: `\pi \approx 3.14` is 3.14, in addition to its exact side."""
    for reading, exact in ((said, expected), (expected, said)):
        rounded = [approximate_part(node) for node in reading.nodes]
        if len(rounded) == 1 and rounded[0] is not None:
            near = ParsedText((rounded[0],))
            yield _compare_readings(exact, near, policy) if reading is said else _compare_readings(near, exact, policy)


def _in_several_forms(expected: ParsedText, said: ParsedText, policy: MathPolicy) -> ParsedText | None:
    """A list of one value in several forms, `1/2 or 0.5`, as that value; None for others, and if a list is expected.

    A value that is written twice alike may be meant twice.
    """
    if Collection not in said.kinds or any(isinstance(node, Collection) for node in expected.nodes):
        return None
    match said.nodes:
        case (Collection("list", (first, *others)),) if len(others) < MAX_FORMS and set(others) != {first}:
            exactly = dataclasses.replace(policy, rounding_digits=0)
            alike = all(_compare_nodes(first, other, exactly).kind == "equal" for other in others)
            return ParsedText((others[-1],)) if alike else None
        case _:
            return None


def _counts_once(target: str, answer: str, expected: ParsedText) -> bool:
    """Whether an inequality holds for integers on one side only: x > 0 for x of the integers is not x > 0."""
    names = counted(target) ^ counted(answer)
    nodes = (*expected.nodes, *read(answer).nodes) if names else ()
    return any(is_real_set(node) and variables_of(node) & names for node in nodes)


def _other_conditions(target: str, answer: str, policy: MathPolicy) -> bool:
    """Whether both give their values by an inequality, and these differ: x^2 for x > 0, and for x < 0."""
    expected, said = condition(target), condition(answer)
    if expected is None or said is None:
        return False
    return _compare_readings(read(expected), read(said), policy).kind == "different"


def _with_other_commas(target: str, expected: ParsedText, answer: str, policy: MathPolicy) -> Iterator[MathOutcome]:
    """2,74 is 2.74 if the other side has a decimal point, 70,110 is a list if the other side is one."""
    for text in _with_commas(target, answer, lambda: read(answer), policy, decimals=2):
        yield _compare_readings(read_target(text), read(answer), policy)
    for text in _with_commas(answer, target, lambda: expected, policy, decimals=1):
        for candidate in readings_of(text, expected):
            yield _compare_readings(expected, candidate, policy)


def _with_letter_unit(target: str, expected: ParsedText, answer: str, policy: MathPolicy) -> Iterator[MathOutcome]:
    r"""757 g is a quantity if a bare number is expected, or one side has a unit in upright type, 757\text{ g}."""
    text = in_upright_type(answer)
    if text is not None and (is_bare_number(expected) or is_measured(expected)):
        said = read(written_out_units(text) if policy.unit_names else text)
        if is_measured(said):
            yield _compare_readings(expected, said, policy)
    text = in_upright_type(boxed(target) or target)
    if text is not None and is_measured(said := read(answer)):
        wanted = read_target(written_out_units(text) if policy.unit_names else text)
        if is_measured(wanted):
            yield _compare_readings(wanted, said, policy)


def _with_commas(
    text: str, other: str, reading: Callable[[], ParsedText], policy: MathPolicy, *, decimals: int
) -> Iterator[str]:
    """The meaning of the commas of a text, by the other side; no list begins with 0 as decimals do."""
    if "," not in text:
        return
    pointed = with_decimal_point(text, decimals=decimals) if policy.regional_numerals else None
    listed = as_list(text)
    if pointed is not None and ("." in other or pointed.lstrip("$-").startswith("0.")):
        yield pointed
    if listed is not None and any(isinstance(node, Collection) for node in reading().nodes):
        yield listed


def _compare_choices(target: str, answer: str, policy: MathPolicy) -> MathOutcome | None:
    """Compare choices by letter, by text, or by both; None if neither side is a choice."""
    if not (_LONE_LETTER.search(target) or _LONE_LETTER.search(answer)):
        return None
    target, answer = _undelimited(target), _undelimited(answer)
    expected, said = choice(target), choice(answer)
    letter, letter_said = _LETTER.fullmatch(target), _LETTER.fullmatch(answer)
    if letter and letter_said:
        # A single small letter may be a variable, which differs from its capital.
        wanted = letter[1].upper() if len(target) > 1 else letter[1]
        if wanted == letter_said[1].upper():
            return equal("text")
        return different("text", "another choice") if letter[1].isupper() and letter_said[1].isupper() else None
    if expected is None and said is None:
        return None
    if said and not expected and _NO_LABEL.match(said[1]):
        return different("text", "a choice that is ruled out, or several")
    if expected and said and expected[0] != said[0]:
        return different("text", "another choice")
    if expected and letter_said:
        return equal("text") if expected[0] == letter_said[1].upper() else different("text", "another choice")
    if letter and said:
        return equal("text") if letter[1] == said[0] else different("text", "another choice")
    reading = read_target(expected[1] if expected else target)
    if reading.flaw:
        return None
    return _compare_readings(reading, read(said[1] if said else answer), policy)


def _undelimited(text: str) -> str:
    """A text without the signs around mathematics in it, around a choice: $(B) 12$."""
    if "$" not in text and "\\" not in text:
        return text
    return _DELIMITERS.sub("", text[:MAX_CACHED_CHARS]).strip() + text[MAX_CACHED_CHARS:]


def _compare_readings(expected: ParsedText, said: ParsedText, policy: MathPolicy) -> MathOutcome:
    """Compare the readings of a target with those of an answer."""
    if said.too_large:
        return compare_unread(expected, said, Scope(policy, compare))
    if said.flaw:
        return different("structure", f"the answer {said.flaw}")
    if policy.require_reduced and not all(map(is_reduced, said.nodes)):
        return different("structure", "a fraction is not reduced")
    if len(expected.nodes) == len(said.nodes) == 1:
        return _compare_nodes(expected.nodes[0], said.nodes[0], policy)
    count = max(len(expected.nodes), len(said.nodes))
    pairs = zip(_padded(expected.nodes, count), _padded(said.nodes, count))
    return any_of(_compare_nodes(target, answer, policy) for target, answer in pairs)


def _padded(nodes: tuple[Node, ...], count: int) -> tuple[Node, ...]:
    return nodes + nodes[-1:] * (count - len(nodes))


def _compare_nodes(target: Node, answer: Node, policy: MathPolicy) -> MathOutcome:
    scope = Scope(policy, compare)
    outcome = compare(target, answer, scope)
    if outcome.kind == "equal" or not policy.rename_variables:
        return outcome
    renamings = _renamings(target, answer)
    return any_of((outcome, *(compare(target, replaced(answer, names), scope) for names in renamings)))


def _renamings(target: Node, answer: Node) -> Iterator[dict[str, Node]]:
    """Every way to rename the answer's variables to the target's."""
    names, others = ordered_symbols(target), ordered_symbols(answer)
    if len(names) != len(others) or len(names) > MAX_RENAMED:
        return
    for chosen in itertools.permutations(names):
        if chosen != others:
            yield {other: Symbol(name) for other, name in zip(others, chosen)}
