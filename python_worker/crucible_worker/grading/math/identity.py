"""Whether two expressions are equal; the outcome of comparing two trees, and the state that comparisons share.

An expression is compared by a prime field if that decides, otherwise by numbers. Equal means equal wherever both sides
are real: ln(a/b) is ln a - ln b, sqrt(x^2) is not x. If i occurs, or nothing is real, complex values decide. A
removable singularity does not matter.

1. A prime field proves rational functions equal or different, and many other expressions equal. 2. Balls of few bits
distinguish different expressions at one point. 3. Expressions that agree there at every point are compared with many
bits: constants, and functions at some points. Functions that agree there to 50 digits count as equal, except those
that jump (floor, gcd): these are left open.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Literal, TypeAlias

from crucible_bridge.types import MathPolicy
from crucible_worker.grading.math.balls import FEW_BITS, Ball, NotReal, Trait, agreement, exactly
from crucible_worker.grading.math.evaluate import Evaluation, approximate
from crucible_worker.grading.math.exact import NoValue, Undefined, Work, rational
from crucible_worker.grading.math.modular import PRIMES, ModularEvaluation
from crucible_worker.grading.math.tree import (
    FunctionCall,
    Node,
    Number,
    Power,
    Product,
    Sum,
    nodes_of,
    ordered_symbols,
    rebuilt,
    replaced,
)

__all__ = [
    "MAX_COMPARISONS",
    "MAX_PAIRS",
    "MAX_STEPS",
    "MAX_SYMBOLS",
    "PRECISIONS",
    "ExpressionRelation",
    "IdentityFinding",
    "MathOutcome",
    "Pair",
    "Scope",
    "all_of",
    "any_of",
    "different",
    "equal",
    "examine",
    "identical",
    "points",
    "unknown",
]

# Points at which two expressions are compared: drawn at random once, ordered so that early ones distinguish most.

MAX_SYMBOLS = 16
"""Symbols in a pair that are given values."""

_Coordinates = tuple[float, ...]

_SIGNS = ("+", "-", "+-", "-+", "++--", "--++", "+--+", "-++-")
_MIDDLE, _SMALL, _LARGE = (1.1, 4.0), (0.1, 0.95), (4.0, 40.0)
_MAX_BREAKS = 12
_LEAST_RATIO = 1.001  # between two numbers if points are placed between them
_NEAREST, _FARTHEST = 1e-6, 1e12


def _drawn(lot: random.Random) -> Iterator[_Coordinates]:
    """Sizes in turn for each pattern of signs: functions differ by their signs, domains end at 0 or 1.

    As all sizes are mixed, every domain of a few inequalities between the symbols is reached soon.
    """
    for signs, sizes in itertools.product(_SIGNS, ((_MIDDLE,), (_SMALL,), (_LARGE,), (_SMALL, _MIDDLE, _LARGE))):
        sign = itertools.cycle(signs)
        yield tuple((1 if next(sign) == "+" else -1) * lot.uniform(*lot.choice(sizes)) for _ in range(MAX_SYMBOLS))
    for falling in (True, False):
        # Far apart and in order: where the difference of two symbols must have a sign.
        ordered = sorted((10 ** lot.uniform(-1, 2) for _ in range(MAX_SYMBOLS)), reverse=falling)
        yield tuple(ordered)
        yield tuple(-size for size in ordered)


_REAL_POINTS = tuple(_drawn(random.Random(2_026)))
_ORDERED = 4  # points at the end
_PATTERNS = {1: 2, 2: 4}  # of signs, by the number of symbols
_ROUND = 4  # points for each of them


def _whole(lot: random.Random) -> Iterator[_Coordinates]:
    for number in range(1, 17):
        # The first symbol counts; of two symbols, the second is mostly smaller, as in a binomial.
        yield (float(number), *(float(lot.randint(1, max(2, number - 1))) for _ in range(MAX_SYMBOLS - 1)))
    for _ in range(8):
        yield tuple(float(lot.randint(1, 40)) for _ in range(MAX_SYMBOLS))


_WHOLE_POINTS: Sequence[_Coordinates] = tuple(_whole(random.Random(2_027)))
"""Points of natural numbers."""


def points(names: Sequence[str]) -> Iterator[dict[str, float]]:
    """Real points of both signs."""
    patterns = _PATTERNS.get(len(names), len(_SIGNS)) * _ROUND
    chosen = itertools.chain(_REAL_POINTS[:patterns], _REAL_POINTS[-_ORDERED:])
    return (dict(zip(names, point)) for point in chosen)


def _complex_point(names: Sequence[str]) -> dict[str, complex]:
    """A point off the real axis."""
    lot = random.Random(2_028)
    return {name: complex(lot.uniform(0.3, 2), lot.choice((-1, 1)) * lot.uniform(0.3, 2)) for name in names}


def _points_between(names: Sequence[str], trees: Iterable[Node]) -> Iterator[dict[str, float]]:
    """Points between and beyond the written numbers, where the pieces of expressions with corners meet."""
    written = sorted({abs(value) for tree in trees for value in _numbers(tree) if _NEAREST < abs(value) < _FARTHEST})
    breaks = [0.0]
    for number in map(float, written):
        if len(breaks) <= _MAX_BREAKS and number > breaks[-1] * _LEAST_RATIO:
            breaks.append(number)
    lot = random.Random(2_029)
    sizes = [low + (high - low) * lot.uniform(0.3, 0.7) for low, high in itertools.pairwise(breaks)]
    sizes += [breaks[-1] * lot.uniform(1.1, 1.4) + 0.1, breaks[-1] * lot.uniform(2, 4) + 1]
    for size, sign in itertools.product(sizes, (1, -1)):
        others = (lot.choice((1, -1)) * lot.choice(sizes) * lot.uniform(0.98, 1.02) for _ in names[1:])
        yield dict(zip(names, (sign * size, *others)))


def _numbers(node: Node) -> Iterator[Fraction]:
    match node:
        case Number():
            yield node.value
        case Sum(parts) | Product(parts) | FunctionCall(_, parts):
            for part in parts:
                yield from _numbers(part)
        case Power():
            yield from _numbers(node.base)
            yield from _numbers(node.exponent)
        case _:
            return


# Comparing two expressions.


MAX_STEPS = 3_000
"""Nodes evaluated for one pair, a function with many digits counting several times: about 5 ms."""
PRECISIONS = (266, 532, 2_048)
"""Bits of the precise evaluation: 80 digits, and more where too many of these cancel or are hidden by large terms."""
MIN_AGREEMENT_BITS = 167
"""Bits that must agree, given the error bounds: 50 digits of the smallest term of any sum."""

_MIN_POINTS = 6  # of a function without branches
_MIN_WHOLE_POINTS = 8
_MANY_POINTS = Trait.BRANCHES | Trait.COUNTS
_MAX_BLURRED = 3
_RESERVE = 1_500  # steps that are reserved for many digits
_TYPICAL_SIZE = 1.6  # 1 itself is special
_TYPICAL_WHOLE, _MAX_WHOLE = 6.0, 4
_CLOSE_BITS = 20  # bits that must agree for few bits to count as a value


class ExpressionRelation(enum.Enum):
    """The relation of two expressions."""

    EQUAL = enum.auto()
    """They are equal wherever both are defined."""
    DIFFERENT = enum.auto()
    """They are not, or one of them is defined nowhere."""
    UNKNOWN = enum.auto()
    """This could not be determined."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class IdentityFinding:
    """The result, and why."""

    identity: ExpressionRelation
    """What."""
    reason: str
    """Why: a few words."""
    agrees: bool = False
    """For UNKNOWN: there were points for a comparison, and they were equal there."""
    one_sided: bool = False
    """There was a point where one is real and the other is not."""


_PROVEN = IdentityFinding(identity=ExpressionRelation.EQUAL, reason="equal in a prime field")
_APART = IdentityFinding(identity=ExpressionRelation.DIFFERENT, reason="different in a prime field")


def identical(left: Node, right: Node) -> ExpressionRelation:
    """Whether two expressions are equal; `examine` says why, too."""
    return examine(left, right).identity


def examine(left: Node, right: Node) -> IdentityFinding:
    """Whether two expressions are equal. Never raises, and computes no more than `MAX_STEPS`."""
    comparison = _Comparison(left, right)
    try:
        finding = comparison.finding()
        if comparison.one_sided:
            finding = dataclasses.replace(finding, one_sided=True)
    except NoValue as error:
        finding = IdentityFinding(identity=ExpressionRelation.UNKNOWN, reason=str(error))
    except Undefined as error:
        return IdentityFinding(identity=ExpressionRelation.DIFFERENT, reason=str(error))
    except RecursionError:
        return IdentityFinding(identity=ExpressionRelation.UNKNOWN, reason="too deep")
    if finding.identity is ExpressionRelation.UNKNOWN:
        if left == right:
            return _equal("written alike")
        first, second = approximate(left), approximate(right)
        if first is not None and second is not None and (math.isinf(first) or math.isinf(second)):
            return _equal("infinite alike") if first == second else _unequal("only one is infinite so")
    return finding


class _At(enum.Enum):
    """What few bits say about a point."""

    APART = enum.auto()
    """The sides differ."""
    CLOSE = enum.auto()
    """They agree, as far as they are known."""
    BLURRED = enum.auto()
    """Few bits cannot decide."""
    OUTSIDE = enum.auto()
    """One of them has no real value."""


_Point: TypeAlias = Mapping[str, complex]


def _equal(reason: str) -> IdentityFinding:
    return IdentityFinding(identity=ExpressionRelation.EQUAL, reason=reason)


def _unequal(reason: str) -> IdentityFinding:
    return IdentityFinding(identity=ExpressionRelation.DIFFERENT, reason=reason)


def _unknown(reason: str, *, agrees: bool = False) -> IdentityFinding:
    return IdentityFinding(identity=ExpressionRelation.UNKNOWN, reason=reason, agrees=agrees)


def _above(value: complex) -> bool:
    return value.real > 0


def _placed(point: _Point) -> dict[str, Ball]:
    return {name: exactly(value) for name, value in point.items()}


def _nearest(where: Sequence[_Point], size: float) -> list[_Point]:
    """Points by how close their values are to a size: for large values, the fastest-growing term hides all others."""
    return sorted(where, key=lambda point: max(abs(math.log(abs(value) / size)) for value in point.values()))


class _Comparison:
    """One pair's."""

    __slots__ = (
        "_formal",
        "_kinks",
        "_known",
        "_names",
        "_outside",
        "_sides",
        "_traits",
        "_work",
        "one_sided",
    )

    def __init__(self, left: Node, right: Node) -> None:
        self._sides = (left, right)
        self._work = Work(MAX_STEPS)
        self._names: Sequence[str] = ()
        self._formal = False
        self._traits = 0
        self._kinks: dict[tuple[int, int], set[int]] = {}
        self._outside = False
        self.one_sided = False
        self._known: dict[tuple[int, bool], dict[int, Ball]] = {}

    def finding(self) -> IdentityFinding:
        proof = self._in_prime_fields()
        if proof is not None:
            return proof
        if not self._names:
            return self._constants()
        if len(self._names) > MAX_SYMBOLS:
            return _unknown("too many symbols")
        return self._functions()

    def _in_prime_fields(self) -> IdentityFinding | None:
        left, right = self._sides
        opaque = False
        for prime in PRIMES:
            field = ModularEvaluation(prime, self._work)
            try:
                same = field.value(left) == field.value(right)
            except NoValue:
                self._names = tuple(dict.fromkeys(ordered_symbols(left) + ordered_symbols(right)))
                return None
            self._names = tuple(field.names)
            opaque = field.opaque
            if not same:
                return None if opaque else _APART
        # Opaque constants may have no value: tan(pi/2).
        self._formal = opaque and not self._names
        return None if self._formal else _PROVEN

    def _constants(self) -> IdentityFinding:
        agreement = self._in_few_bits({}, real=False)
        if agreement is _At.APART:
            return _unequal("numbers differ")
        if self._formal:
            if agreement is not _At.CLOSE:
                self._require_value(*self._sides)
            return _PROVEN
        return _equal("equal to 50 digits") if self._in_many_bits({}, real=False) else _unequal("digits differ")

    def _functions(self) -> IdentityFinding:
        close, blurred, apart = self._over(points(self._names), real=True)
        if apart is None and self._traits & Trait.BRANCHES and close and self._work.steps > _RESERVE:
            # Points that depend on the written numbers find corners, but are too special to prove anything.
            _, more_blurred, apart = self._over(_points_between(self._names, self._sides), real=True)
            blurred += more_blurred
        if apart is not None:
            return self._where_counted(apart) if self._traits & Trait.COUNTS else _unequal(f"different {apart}")
        if close or blurred:
            return self._off_axis(self._confirmed(self._either_sign(close), blurred, real=True))
        return self._nowhere_real()

    def _either_sign(self, close: Sequence[_Point]) -> Sequence[_Point]:
        """A point where the first symbol is above zero, and one where it is below."""
        name, near = self._names[0], _nearest(close, _TYPICAL_SIZE)
        return near[:1] + [point for point in near[1:] if _above(point[name]) != _above(near[0][name])][:1]

    def _where_counted(self, apart: str) -> IdentityFinding:
        """Expressions that differ at real numbers may be equal at natural ones, the intended ones: n! sin(pi n) = 0."""
        close, _, apart_there = self._over(map(self._named, _WHOLE_POINTS), real=True)
        if apart_there is None and len(close) >= _MIN_WHOLE_POINTS:
            return _unknown("equal at natural numbers only", agrees=True)
        return _unequal(f"different {apart_there or apart}")

    def _nowhere_real(self) -> IdentityFinding:
        """(-1)^n is real at integers, e^(i x) almost never."""
        self._traits |= Trait.COUNTS
        close, blurred, apart = self._over(map(self._named, _WHOLE_POINTS), real=True)
        if apart is not None:
            return _unequal(f"different {apart}")
        if len(close) >= _MIN_WHOLE_POINTS:
            return self._confirmed(_nearest(close, _TYPICAL_WHOLE)[:_MAX_WHOLE], blurred, real=True)
        close, blurred, apart = self._over(points(self._names), real=False)
        if apart is not None:
            return self._at_naturals() or _unequal(f"different {apart}")
        if not close and not blurred:
            return self._valueless("no point has a value")
        return self._off_axis(self._confirmed(self._either_sign(close), blurred, real=False))

    def _at_naturals(self) -> IdentityFinding | None:
        """(-1)^(2n) is 1 at integers, which may be its intended domain; None if they differ there."""
        equal = 0
        for point in _WHOLE_POINTS:
            values: dict[str, Node] = {name: Number(Fraction(value)) for name, value in zip(self._names, point)}
            left, right = (rational(replaced(side, values)) for side in self._sides)
            if None not in (left, right):
                if left != right:
                    return None
                equal += 1
        return _unknown("equal at natural numbers only", agrees=True) if equal >= _MIN_WHOLE_POINTS else None

    def _off_axis(self, finding: IdentityFinding) -> IdentityFinding:
        """The conjugate of z is z at real points: such functions must agree at complex points as well."""
        if finding.identity is not ExpressionRelation.EQUAL or not self._traits & Trait.CONJUGATES:
            return finding
        if self._in_few_bits(_complex_point(self._names), real=False) is _At.CLOSE:
            return finding
        return _unknown("equal for real symbols only", agrees=True)

    def _named(self, point: Sequence[float]) -> dict[str, float]:
        return dict(zip(self._names, point))

    def _over(self, where: Iterable[_Point], *, real: bool) -> tuple[list[_Point], list[_Point], str | None]:
        """The points at which the sides agree in few bits, the undecided ones, and the first where they differ."""
        close: list[_Point] = []
        blurred: list[_Point] = []
        for point in where:
            found = self._in_few_bits(point, real=real)
            if found is _At.APART:
                return close, blurred, "at " + ", ".join(f"{name} = {value:.4g}" for name, value in point.items())
            if found is _At.CLOSE:
                close.append(point)
            elif found is _At.BLURRED:
                blurred.append(point)
            if len(close) >= _MIN_POINTS and not (self._traits & _MANY_POINTS and self._work.steps > _RESERVE):
                break
        return close, blurred, None

    def _in_few_bits(self, point: _Point, *, real: bool) -> _At:
        balls: list[Ball] = []
        values = _placed(point)
        found, unreal = _At.CLOSE, 0
        for side, node in enumerate(self._sides):
            evaluation = self._evaluation(values, FEW_BITS, real=real)
            try:
                balls.append(evaluation.value(node))
            except (NotReal, Undefined) as error:
                if not point and isinstance(error, Undefined):
                    raise
                self._outside = True
                found = _At.OUTSIDE
                unreal += isinstance(error, NotReal)
            except NoValue:
                if self._work.steps < 0:
                    raise
                found = _At.BLURRED if found is _At.CLOSE else found
            self._traits |= evaluation.balls.traits
            for index, sign in enumerate(evaluation.balls.kinks):
                self._kinks.setdefault((side, index), set()).add(sign)
        if len(balls) < 2:
            self.one_sided = self.one_sided or (len(balls) == unreal == 1)
            return found
        left, right = balls
        if left != right:  # balls that compare unequal certainly differ
            return _At.APART
        return _At.CLOSE if min(ball.rel_accuracy_bits() for ball in balls) >= _CLOSE_BITS else _At.BLURRED

    def _confirmed(self, chosen: Sequence[_Point], blurred: list[_Point], *, real: bool) -> IdentityFinding:
        """Compare with many bits at the chosen points, and at those where few bits decide nothing."""
        compared = 0
        for point in [*chosen, *blurred[:_MAX_BLURRED]]:
            try:
                if not self._in_many_bits(point, real=real):
                    return _unequal("digits differ")
                compared += 1
            except (NoValue, Undefined):
                if self._work.steps < 0:
                    raise
        if compared == 0:
            return self._valueless("no point could be compared to 50 digits", agrees=bool(chosen))
        if self._traits & Trait.JUMPS:
            return _unknown("equal where tried, but it jumps", agrees=True)
        if not self._outside and any(len(signs) == 1 for signs in self._kinks.values()):
            return _unknown("equal where tried, on one side of a corner", agrees=True)
        return _equal("equal to 50 digits at points of both signs")

    def _in_many_bits(self, point: _Point, *, real: bool) -> bool:
        """Whether both are equal to 50 digits.

        Raises:
            NoValue: the digits do not suffice, or there are none.
            Undefined: there is no value at this point.
        """
        left, right = self._sides
        values = _placed(point)
        needed = MIN_AGREEMENT_BITS
        for bits in PRECISIONS:
            if bits < needed:
                continue
            evaluation = self._evaluation(values, bits, real=real)
            balls = evaluation.value(left), evaluation.value(right)
            needed = MIN_AGREEMENT_BITS + self._work.hidden
            common = agreement(*balls)
            if common is None:
                return False
            if common >= needed:
                return True
        raise NoValue("too many digits cancel")

    def _valueless(self, reason: str, *, agrees: bool = False) -> IdentityFinding:
        """Nothing could be compared, perhaps because a side is a constant without a value.

        Raises:
            Undefined: it is.
        """
        self._require_value(*(side for side in self._sides if not ordered_symbols(side)))
        return _unknown(reason, agrees=agrees)

    def _require_value(self, *constants: Node) -> None:
        """Refuse tan(pi/2).

        Raises:
            Undefined: one of the constants certainly has no value.
        """
        for constant in constants:
            with contextlib.suppress(NoValue):
                self._evaluation({}, PRECISIONS[0], real=False).value(constant)

    def _evaluation(self, values: Mapping[str, Ball], bits: int, *, real: bool) -> Evaluation:
        return Evaluation(self._work, values, self._known.setdefault((bits, real), {}), real=real, bits=bits)


MAX_COMPARISONS = 2_000
"""Comparisons of trees in one decision; one that takes more is UNDECIDED."""
MAX_IDENTITIES = 64
"""Pairs of formulas that one decision examines by numbers; each may take 5 ms, most take 50 us."""
MAX_PAIRS = 8
"""Pairs of trees that remain to be proven; an outcome with more of them stays undecided."""

Pair: TypeAlias = tuple[Node, Node]
"""Two trees of arithmetic that must be proven equal."""

_REAL_ELSEWHERE = IdentityFinding(
    identity=ExpressionRelation.DIFFERENT, reason="an absolute value extends where one side is real"
)
_TOO_MUCH = IdentityFinding(identity=ExpressionRelation.UNKNOWN, reason="too much to compare")
_RANK = {"": 0, "literal": 1, "rational": 2, "text": 3, "structure": 4, "identity": 5, "symbolic": 6}


# The outcome of comparing two trees, and the state of comparisons.


@dataclasses.dataclass(frozen=True, slots=True)
class MathOutcome:
    """Whether two trees are equal."""

    kind: Literal["equal", "different", "unknown"]
    """`unknown` is equal if each of `pairs` is, and undecided if there are none."""
    method: str = ""
    """The strongest means that were needed: "rational", "text", "structure", "identity"."""
    reason: str = ""
    """The reason, for people."""
    pairs: tuple[Pair, ...] = ()
    """The pairs that remain to be proven."""
    agrees: bool = False
    """Numbers agreed so far for every pair."""


def equal(method: str = "structure", reason: str = "") -> MathOutcome:
    """They are equal."""
    return MathOutcome("equal", method, reason)


def different(method: str = "structure", reason: str = "") -> MathOutcome:
    """They are not equal."""
    return MathOutcome("different", method, reason)


def unknown(reason: str, pairs: tuple[Pair, ...] = (), *, method: str = "", agrees: bool = False) -> MathOutcome:
    """It is unknown, or not yet known."""
    return MathOutcome("unknown", method, reason, pairs, agrees)


def all_of(outcomes: Iterable[MathOutcome], *, method: str = "structure") -> MathOutcome:
    """Equal if all are; the first difference ends it."""
    found: list[MathOutcome] = []
    for outcome in outcomes:
        if outcome.kind == "different":
            return outcome
        found.append(outcome)
    strongest = max((outcome.method for outcome in found), key=_rank, default=method)
    strongest = max(strongest, method, key=_rank)
    open_ones = [outcome for outcome in found if outcome.kind == "unknown"]
    if not open_ones:
        return equal(strongest)
    pairs = tuple(pair for outcome in open_ones for pair in outcome.pairs)
    if len(pairs) > MAX_PAIRS or not all(outcome.pairs for outcome in open_ones):
        pairs = ()
    return unknown(open_ones[0].reason, pairs, method=strongest, agrees=all(outcome.agrees for outcome in open_ones))


def any_of(outcomes: Iterable[MathOutcome]) -> MathOutcome:
    """Equal if one is; otherwise the first that is open, and the first difference if none is open."""
    first: MathOutcome | None = None
    for outcome in outcomes:
        if outcome.kind == "equal":
            return outcome
        if first is None or (first.kind == "different" and outcome.kind == "unknown"):
            first = outcome
    return first if first is not None else different()


@dataclasses.dataclass(slots=True)
class Scope:
    """The state that the comparisons of one decision share."""

    policy: MathPolicy
    """What counts as equivalent."""
    compare: Callable[[Node, Node, Scope], MathOutcome]
    """Compares two trees of any shape; comparisons of a shape use it for the parts."""
    comparisons: int = MAX_COMPARISONS
    """How many comparisons are left."""
    identities: int = MAX_IDENTITIES
    """How many pairs of formulas may still be examined."""
    sizes: dict[Node, float | None] = dataclasses.field(default_factory=dict)
    """Computed values of constants, for matching lists."""

    def charge(self) -> bool:
        """Count one comparison; False when none are left."""
        self.comparisons -= 1
        return self.comparisons >= 0

    def examine(self, left: Node, right: Node) -> IdentityFinding:
        """Examine two formulas by numbers; UNKNOWN after too many.

        For an absolute value, the real domain matters: ln x is real for half of the numbers for which ln|x| is real.
        """
        self.identities -= 1
        if self.identities < 0:
            return _TOO_MUCH
        if self.policy.log_abs_optional:
            left, right = _without_log_abs(left), _without_log_abs(right)
        finding = examine(left, right)
        return _REAL_ELSEWHERE if finding.one_sided and (_has_absolute(left) or _has_absolute(right)) else finding

    def each(self, lefts: Iterable[Node], rights: Iterable[Node]) -> Iterator[MathOutcome]:
        """Compare pairs lazily, one by one."""
        for left, right in zip(lefts, rights):
            yield self.compare(left, right, self)


def _has_absolute(node: Node) -> bool:
    return any(isinstance(part, FunctionCall) and part.function == "abs" for part in nodes_of(node))


def _without_log_abs(node: Node) -> Node:
    """The node with ln x for ln|x|."""
    match node:
        case FunctionCall("ln" | "log" as function, (FunctionCall("abs", (of,)), *base)):
            node = FunctionCall(function, (of, *base))
    return rebuilt(node, _without_log_abs)


def _rank(method: str) -> int:
    return _RANK.get(method, 0)
