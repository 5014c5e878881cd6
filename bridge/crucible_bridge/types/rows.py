r"""Rows of data sets in their usual shapes, and the samples made from them.

    {"input": "2+2=", "target": "4"}
    {"question": "2+2?", "answer": "Two and two.\n#### 4", "level": "easy"}
    {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}
    {"tokens": [1, 2], "target_tokens": [2, 3], "weights": [0.0, 1.0]}

A mapping says which column is what; without one, the row must have one of `SHAPES`. Every other column becomes
metadata, as text: numbers, lists and objects as JSON. A null counts as no value. As a target it is an error, because a
sample without a target would be measured in another way. Beside a conversation, `tools`, or `functions` in their
place, are the tools that the model may call, see `tools.py`. Other columns that trainers render with the messages
(`TEMPLATE_COLUMNS`) are refused: without them the prompt would be another.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from crucible_bridge.errors import InvalidField, clipped
from crucible_bridge.reasons import Reason
from crucible_bridge.types.bounds import SAMPLE_ID_MAX_BYTES
from crucible_bridge.types.columns import METADATA
from crucible_bridge.types.data import ChatMessage, Conversation, Datum, Sample
from crucible_bridge.types.messages import message_from_json
from crucible_bridge.types.row_choices import MalformedRow, RowChoices, kind_of, text_of
from crucible_bridge.types.row_datums import (
    LOSS_FN_INPUTS,
    MODEL_INPUT,
    TARGET_TOKENS,
    TOKENS,
    datum_columns,
    datum_of,
)
from crucible_bridge.types.tools import tools_from_json

__all__ = [
    "LATER_SHAPES",
    "MAX_MAP_ENTRIES",
    "SHAPES",
    "TEMPLATE_COLUMNS",
    "TOOL_COLUMNS",
    "MalformedRow",
    "RowReader",
    "Shape",
    "kind_of",
    "last_line_answer",
    "template_column",
]

MAX_MAP_ENTRIES = 10_000
"""Limit for one map: metadata of a sample, from a row or a request, labels, metrics of trajectories."""
_SHOWN_NAMES, _SHOWN_CHARS, _SHOWN_PATH = 10, 40, 80
"""The number of columns that an error names, and of characters of each; characters of a path within a column."""
_NEEDED = ("input", "target", "targets", "index", "labels")
"""The keys of a mapping whose columns every row must have."""
_OPTIONAL = frozenset({"input", "id", "choices", "metadata"})
"""The columns of a row that needs no target."""
_MARK = "####"
_TEXT = ".text"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A shape of rows, recognised by their columns."""

    input: str
    """The column of the input; required."""
    needs: str | None = None
    """Another required column."""
    targets: tuple[str, ...] = ()
    """Columns of targets; a row has at most one of them."""

    def fits(self, names: Mapping[str, Any]) -> bool:
        """Whether a row of these columns has this shape."""
        return self.input in names and (self.needs is None or self.needs in names)

    def __str__(self) -> str:
        targets = " | ".join(self.targets)
        further = targets or self.needs
        return f"{{{self.input}, {further}}}" if further else f"{{{self.input}}}"


SHAPES = (
    Shape(input="input", targets=("target", "output", "targets")),
    Shape(input="question", needs="answer", targets=("answer",)),
    Shape(input="prompt", needs="completion", targets=("completion",)),
    Shape(input="messages", targets=("target", "output", "targets", "answer", "completion")),
    Shape(input=MODEL_INPUT, needs=LOSS_FN_INPUTS),
    Shape(input=TOKENS, needs=TARGET_TOKENS),
)
"""A row may fit only one of them."""
LATER_SHAPES = (
    Shape(input="text"),
    Shape(input="prompt", needs="chosen"),
    Shape(input="chosen", needs="rejected"),
)
"""Used only if none of `SHAPES` fits: the first that does. Of a preference pair, what is no input becomes metadata."""
TOOL_COLUMNS = ("tools", "functions")
"""Columns of the tools of a conversation; a row has something in one of them."""
TEMPLATE_COLUMNS = ("documents", "chat_template_kwargs")
"""Further columns that trainers give to the chat template together with the messages."""
_EMPTY_TEXTS = ("", "null", "[]", "{}")
"""Texts of such a column that hold nothing: some files have its JSON as text."""
_ANSWER = "answer"
"""A column of targets whose last line may have the short answer."""


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


class RowReader:
    """Reads the rows of one data set, in order."""

    def __init__(self, columns: Mapping[str, str], *, field: str, cure: str, typed: bool = True) -> None:
        """Read them by a mapping, or, if that is empty, by the shape of the first row.

        Args:
            columns: which column is what: "input", "target", "metadata.level".
            field: of the request, which errors name.
            cure: what the user can do if columns fit two shapes, or none.
            typed: whether the source tells numbers from texts; CSV does not.
        """
        self._columns, self._field, self._cure, self._typed = columns, field, cure, typed
        self._shape: Shape | None = None
        self._target = ""
        self._unseen = dict(columns)
        self._seen: dict[str, None] = {}

    def sample(self, row: Mapping[str, Any], write: Callable[[Any], str] = _dumps) -> Sample:
        """The sample of a row; its id is empty if the row has none.

        Args:
            row: values by column, as JSON has them.
            write: JSON of a value that becomes text.

        Raises:
            MalformedRow: it is not a sample.
            InvalidField: its columns fit two shapes (AMBIGUOUS_COLUMNS), or it has messages and a column
                of `TEMPLATE_COLUMNS` (TOOLS_UNSUPPORTED): the whole data set is refused.
        """
        if self._columns:
            return self._mapped(row, write)
        shape = self._shape_of(row)
        given = [key for key in shape.targets if key in row]
        # Some columns are there only for other rows; the one with a value counts.
        given = [key for key in given if row[key] is not None] or given[:1]
        if len(given) > 1:
            raise MalformedRow(f'has both "{given[0]}" and "{given[1]}"')
        self._refuse_misspelt(row, given)
        choices = RowChoices.of(row.get("choices"), "choices", typed=self._typed)
        if not isinstance(row.get("metadata"), Mapping | None):
            raise MalformedRow(f'has "metadata" that is {kind_of(row["metadata"])}, not an object')
        arrays = datum_columns(row) if shape.input in (MODEL_INPUT, TOKENS) else ()
        asked = datum_of(row, arrays) if arrays else _asked(row[shape.input], shape.input)
        with_tools = _tool_columns(row) if isinstance(asked, Conversation) else ()
        metadata = _others(row, (shape.input, *shape.targets, *arrays, *with_tools, "choices", "id"), write)
        self._refuse_template_columns(row, asked)
        asked = _with_tools(asked, row)
        targets, labels = (), choices.labels
        if given:
            answer = row[given[0]]
            asked, targets, labels = _with_answer(asked, answer, given[0], choices)
            if given[0] == _ANSWER and isinstance(answer, str) and (short := last_line_answer(answer)) is not None:
                targets = (short,)
                metadata.setdefault(given[0], answer)
        return Sample(
            id=_identity(row.get("id")),
            input=asked,
            targets=targets,
            choices=choices.texts,
            choice_labels=labels,
            metadata=metadata,
        )

    def finish(self) -> None:
        """Refuse a mapping that names a column which no row had; without rows there is nothing to refuse.

        Raises:
            InvalidField: there is one (NO_SUCH_COLUMN).
        """
        for key, column in self._unseen.items() if self._seen else ():
            there = _named(self._seen)
            raise InvalidField(
                f'{self._field}.columns["{key}"]',
                f"is {clipped(column)}, which is not a column; there are {there}",
                reason=Reason.NO_SUCH_COLUMN,
            )

    def _shape_of(self, row: Mapping[str, Any]) -> Shape:
        fitting = [shape for shape in SHAPES if shape.fits(row)]
        if len(fitting) > 1:
            raise InvalidField(
                self._field,
                f"has rows of two shapes, {fitting[0]} and {fitting[1]}, with the columns {_named(row)}; {self._cure}",
                reason=Reason.AMBIGUOUS_COLUMNS,
            )
        if self._shape is None:
            later = [shape for shape in LATER_SHAPES if shape.fits(row)]
            if not fitting and not later:
                known = ", ".join(map(str, (*SHAPES, *LATER_SHAPES)))
                raise MalformedRow('has no "input"', f"found: {_named(row)}; known: {known}; {self._cure}")
            self._shape = (*fitting, *later)[0]
        if not self._shape.fits(row):
            missing = self._shape.input if self._shape.input not in row else self._shape.needs
            raise MalformedRow(f'has no "{missing}"', f"found: {_named(row)}; the rows before are {self._shape}")
        return self._shape

    def _refuse_misspelt(self, row: Mapping[str, Any], given: Sequence[str]) -> None:
        """Refuse a row with another column in place of the target, if the rows before it have targets."""
        self._target = self._target or (given[0] if given else "")
        if self._target and not given and not row.keys() <= _OPTIONAL:
            raise MalformedRow(f'has no "{self._target}", as rows before it have', f"found: {_named(row)}")

    def _mapped(self, row: Mapping[str, Any], write: Callable[[Any], str]) -> Sample:
        values: dict[str, Any] = {}
        for key, column in self._columns.items():
            found, value = _looked_up(row, column)
            if found:
                self._unseen.pop(key, None)
                values[key] = value
        if self._unseen:
            self._seen.update(dict.fromkeys(list(row)[:_SHOWN_NAMES]))
        if "input" not in self._columns:
            raise InvalidField(
                f"{self._field}.columns", f"names no column for the input; the columns are {_named(row)}"
            )
        for key in _NEEDED:
            if key in self._columns and key not in values:
                column = self._columns[key][:_SHOWN_CHARS]
                raise MalformedRow(f'has no column "{column}" for the {key}', f"found: {_named(row)}")
        used = {column if column in row else column.partition(".")[0] for column in self._columns.values()}
        asked = _asked(values["input"], self._columns["input"])
        rest = {key: row[key] for key in row.keys() - used}
        unmapped = isinstance(asked, Conversation) and "tools" not in values
        metadata = _others(row, (*used, *(_tool_columns(rest) if unmapped else ())), write)
        for key, value in values.items():
            if key.startswith(METADATA) and value is not None:
                metadata[key.removeprefix(METADATA)] = value if isinstance(value, str) else write(value)
        choices = self._labelled(row, values)
        self._refuse_template_columns(rest, asked)
        self._refuse_template_columns(self._next_to_input(row), asked)
        if "tools" not in values:
            asked = _with_tools(asked, {**self._next_to_input(row), **rest})
        elif isinstance(asked, Conversation):
            asked = _with_tools(asked, {self._columns["tools"]: values["tools"]}, (self._columns["tools"],))
        elif values["tools"]:
            column = self._columns["tools"][:_SHOWN_CHARS]
            raise MalformedRow(f'has tools in "{column}", and an input that is no list of messages')
        of_targets = next((key for key in ("index", "targets") if key in values), "target")
        targets, labels = (), choices.labels
        if of_targets in values:
            value, column = values[of_targets], self._columns[of_targets]
            if of_targets == "index":
                targets, labels = choices.indexed(value if isinstance(value, list) else [value], column)
            else:
                asked, targets, labels = _with_answer(asked, value, column, choices)
        return Sample(
            id=_identity(values.get("id")),
            input=asked,
            targets=targets,
            choices=choices.texts,
            choice_labels=labels,
            metadata=metadata,
        )

    def _refuse_template_columns(self, row: Mapping[str, Any], asked: str | Conversation | Datum) -> None:
        """Refuse messages whose chat template would need another column; a text has no such template."""
        if isinstance(asked, Conversation) and (name := template_column(row)):
            raise InvalidField(
                self._field,
                f'has rows with messages and the column "{name}", which is not rendered yet: the model would get '
                f"another prompt than in training. Leave the column out, or keep it as metadata alone: put it into an "
                f'object "metadata", or name the columns, with metadata.{name}={name}',
                reason=Reason.TOOLS_UNSUPPORTED,
            )

    def _next_to_input(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """The unmapped fields of the object that has the input, with their paths; none if the input is a column."""
        column = self._columns["input"]
        path = "" if column in row else column.rpartition(".")[0]
        _, fields = _looked_up(row, path) if path else (False, None)
        if not isinstance(fields, Mapping):
            return {}
        mapped = self._columns.values()
        return {key: value for key, value in fields.items() if f"{path}.{key}" not in mapped}

    def _labelled(self, row: Mapping[str, Any], values: Mapping[str, Any]) -> RowChoices:
        """The choices, with the labels of the mapping, or with those next to them: choices.label for choices.text."""
        column = self._columns.get("choices", "")
        labels, of_labels = values.get("labels"), self._columns.get("labels", "")
        if not of_labels and column.endswith(_TEXT) and column not in row:
            of_labels = f"{column.removesuffix(_TEXT)}.label"
            _, labels = _looked_up(row, of_labels)
        return RowChoices.of(values.get("choices"), column, labels, of_labels, typed=self._typed)


def template_column(row: Mapping[str, Any]) -> str | None:
    """The first of `TEMPLATE_COLUMNS` in which a row has something; None without one. `[]` is nothing, also as text."""
    return next((name for name in TEMPLATE_COLUMNS if _holds(row.get(name))), None)


def _tool_columns(row: Mapping[str, Any], names: Sequence[str] = TOOL_COLUMNS) -> list[str]:
    """The columns of tools in which a row has something."""
    return [name for name in names if _holds(row.get(name))]


def _holds(value: Any) -> bool:
    """Whether a column of a chat template has something."""
    return bool(value) and not (isinstance(value, str) and value.strip() in _EMPTY_TEXTS)


def last_line_answer(text: str) -> str | None:
    """The text after "####" in the last line of an answer with its reasoning, as in GSM8K; None without one."""
    before, mark, answer = text.rpartition(_MARK)
    answer = answer.strip()
    if not mark or not answer or "\n" in answer or (before and not before.endswith("\n")):
        return None
    return answer


def _looked_up(row: Mapping[str, Any], column: str) -> tuple[bool, Any]:
    """Whether a row has a column, or a field of one after a dot, and its value; a column's name may have a dot."""
    if column in row:
        return True, row[column]
    value: Any = row
    for part in column.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return False, None
        value = value[part]
    return True, value


def _others(row: Mapping[str, Any], used: Iterable[str], write: Callable[[Any], str]) -> dict[str, str]:
    """The columns that become metadata; the entries of an object called "metadata" become entries."""
    known = row.get("metadata")
    left_out = {*used, "metadata"} if isinstance(known, Mapping) else set(used)
    count = len(row.keys() - left_out) + (len(known) if isinstance(known, Mapping) else 0)
    if count > MAX_MAP_ENTRIES:
        raise MalformedRow(f"has {count:,} entries of metadata and other columns, at most {MAX_MAP_ENTRIES:,} are read")
    if isinstance(known, Mapping):
        metadata = {key: item if isinstance(item, str) else write(item) for key, item in known.items()}
    else:
        metadata = {}
    for key, item in row.items():
        if key in left_out or item is None:
            continue
        if key in metadata:
            raise MalformedRow(f'has "{key[:_SHOWN_CHARS]}" as a column and in "metadata"')
        metadata[key] = item if isinstance(item, str) else write(item)
    return metadata


def _identity(value: Any) -> str:
    if (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer()):
        value = text_of(value, "id")
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MalformedRow(f'has an "id" that is {kind_of(value)}, not text')
    if len(value.encode()) > SAMPLE_ID_MAX_BYTES:
        raise MalformedRow(f'has an "id" of more than {SAMPLE_ID_MAX_BYTES:,} bytes')
    return value


def _asked(value: Any, key: str) -> str | Conversation:
    if isinstance(value, str):
        return value
    article = "an" if key.startswith(tuple("aeiou")) else "a"
    if not isinstance(value, list):
        raise MalformedRow(f'has {article} "{key}" that is {kind_of(value)}, neither text nor a list of messages')
    messages = []
    for index, message in enumerate(value):
        try:
            messages.append(message_from_json(message))
        except InvalidField as error:
            where = f", at {error.field[:_SHOWN_CHARS]}," if error.field else ""
            raise MalformedRow(f'has {article} "{key}" whose message {index}{where} {error.message}') from error
    if not messages:
        raise MalformedRow(f'has {article} "{key}" without messages')
    return Conversation(tuple(messages))


def _with_tools(
    asked: str | Conversation | Datum, row: Mapping[str, Any], names: Sequence[str] = TOOL_COLUMNS
) -> str | Conversation | Datum:
    """A conversation with the tools of its row; another input as it is."""
    if not isinstance(asked, Conversation):
        return asked
    given = _tool_columns(row, names)
    if len(given) > 1:
        raise MalformedRow(f'has both "{given[0]}" and "{given[1]}"')
    if not given:
        return asked
    try:
        tools = tools_from_json(row[given[0]], given[0])
    except InvalidField as error:
        raise MalformedRow(f'has tools of which "{error.field[:_SHOWN_PATH]}" {error.message}') from error
    return dataclasses.replace(asked, tools=tools)


def _with_answer(
    asked: str | Conversation | Datum, value: Any, key: str, choices: RowChoices
) -> tuple[str | Conversation | Datum, tuple[str, ...], tuple[str, ...]]:
    """The input and the targets of a row with an answer, and the labels of its choices.

    An answer in messages is the target if it is one text of the assistant; else the conversation continues with it.
    """
    if not (isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value)):
        return (asked, *_targets(value, key, choices))
    answer = _asked(value, key)
    assert isinstance(answer, Conversation)
    first, *more = answer.messages
    if first == ChatMessage("assistant", first.content) and not more:
        return (asked, *choices.targets([first.content], key))
    if answer.messages[-1].role != "assistant":
        raise MalformedRow(f'has "{key}" that ends with a message of another role than "assistant"')
    if not isinstance(asked, Conversation):
        raise MalformedRow(f'has "{key}" of several messages, and an input that is text: the input must be messages')
    return dataclasses.replace(asked, messages=(*asked.messages, *answer.messages)), (), choices.labels


def _targets(value: Any, key: str, choices: RowChoices) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The targets, and the labels of the choices."""
    return choices.targets(value if isinstance(value, list) else [value], key)


def _named(names: Iterable[str]) -> str:
    known = [name[:_SHOWN_CHARS] for name in names]
    more = f" and {len(known) - _SHOWN_NAMES} more" if len(known) > _SHOWN_NAMES else ""
    return ", ".join(known[:_SHOWN_NAMES]) + more if known else "no column"
