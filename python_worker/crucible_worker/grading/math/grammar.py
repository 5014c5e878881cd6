"""The grammar of answers, put together from its parts: measures, names, expressions, operands, brackets, statements.

Each part uses those below it. Rules that it needs from those above it are in `GrammarRules`, which is filled in here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from crucible_worker.grading.math.brackets import Brackets
from crucible_worker.grading.math.cursor import Cursor, GrammarRules
from crucible_worker.grading.math.expression import Expressions
from crucible_worker.grading.math.names import Names
from crucible_worker.grading.math.operands import Operands
from crucible_worker.grading.math.statements import AnswerReader
from crucible_worker.grading.math.tree import Node

__all__ = ["answer"]


def _put_together() -> AnswerReader:
    rules = GrammarRules()
    names = Names(rules)
    expressions = Expressions(rules, names)
    operands = Operands(rules, names, expressions)
    brackets = Brackets(rules, expressions)
    statements = AnswerReader(expressions, operands, brackets)
    readers: Mapping[str, Callable[[Cursor], Node]] = {**operands.readers(), **brackets.readers()}

    def primary(cursor: Cursor) -> Node:
        read = readers.get(cursor.kinds[cursor.at])
        if read is None:
            cursor.fail()
        return read(cursor)

    rules.argument, rules.called, rules.primary = operands.argument, operands.called, primary
    rules.group, rules.items, rules.statement = brackets.group, statements.items, statements.statement
    return statements


answer: Callable[[Cursor], Node] = _put_together().answer
"""Read everything; raises `Unreadable` if it is not mathematics, or beyond a budget."""
