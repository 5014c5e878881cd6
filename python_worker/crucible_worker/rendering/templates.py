r"""Templates of prompts: text with the columns of a row in it.

    {question} (one of {choices})             names in braces, taken here
    {{ question | upper }}                    Jinja2, if the text has "{{", "{%" or "{#": run in a child process

A name in braces is an error if it looks like a column and is none; any other brace is text, as in \boxed{}. Only the
child processes import Jinja2.
"""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from crucible_bridge.types import Conversation, Datum, Sample

if TYPE_CHECKING:
    import jinja2

__all__ = ["MAX_PROMPT_CHARS", "BadTemplate", "columns_of", "fill", "is_jinja", "rendered"]


MAX_PROMPT_CHARS = 1_000_000
"""Characters that a template may make of a row."""

_JINJA = re.compile(r"\{[{%#]")
_NAME = re.compile(r"\{([^{}\n]{1,200})\}")
_LIKE_A_NAME = re.compile(r"[A-Za-z_][\w.]*")
_METADATA = "metadata."
_LETTERS = string.ascii_uppercase


class BadTemplate(ValueError):
    """A template cannot be used; the message continues a sentence about it."""


def is_jinja(template: str) -> bool:
    """Whether a template is in Jinja2, and not a text with names in braces."""
    return _JINJA.search(template) is not None


def columns_of(sample: Sample) -> dict[str, Any]:
    """The columns of a row that a template can name: its metadata by their keys, then those that every row has.

    A metadata entry with the name of a built-in column is only in `metadata`.

    Raises:
        BadTemplate: the row is tokens.
    """
    columns: dict[str, Any] = dict(sample.metadata)
    columns |= {
        "id": sample.id,
        "input": _question(sample.input),
        "targets": list(sample.targets),
        "choices": list(sample.choices),
        "metadata": dict(sample.metadata),
    }
    if sample.choice_labels:
        columns["choice_labels"] = list(sample.choice_labels)
    if sample.targets:
        columns["target"] = sample.targets[0]
    else:
        columns.pop("target", None)
    return columns


def fill(template: str, columns: Mapping[str, Any]) -> str:
    """Put columns into a text that has their names in braces; in linear time.

    Choices have their labels, else letters, a line each; targets are a line each.

    Raises:
        BadTemplate: a name is no column, or the text becomes too long.
    """

    def value(match: re.Match[str]) -> str:
        name = match[1]
        found = columns["metadata"].get(name.removeprefix(_METADATA)) if name.startswith(_METADATA) else None
        found = columns.get(name) if found is None and name != "metadata" else found
        if found is not None:
            return _choices_shown(found, columns) if found is columns["choices"] else _shown(found)
        if _LIKE_A_NAME.fullmatch(name):
            raise BadTemplate(
                f"names the column {name!r}, and the row has {_named(columns)}: for braces that are text, "
                "write the template in Jinja2, with {{ input }}"
            )
        return match[0]

    # The length is checked before the text is made: one column may be named many times.
    parts: list[str] = []
    length = end = 0
    for match in _NAME.finditer(template):
        parts += (template[end : match.start()], value(match))
        end = match.end()
        length += len(parts[-2]) + len(parts[-1])
        if length > MAX_PROMPT_CHARS:
            raise too_long()
    parts.append(template[end:])
    if length + len(parts[-1]) > MAX_PROMPT_CHARS:
        raise too_long()
    return "".join(parts)


def _named(columns: Mapping[str, Any]) -> str:
    """The names of the columns, and where that of the question is: it has lost its own name."""
    return f"{', '.join(sorted(columns))} (the column that is read as the question is input)"


def too_long() -> BadTemplate:
    """The error of a template that makes more than `MAX_PROMPT_CHARS`."""
    return BadTemplate(f"makes more than {MAX_PROMPT_CHARS:,} characters of the row")


def _shown(value: Any) -> str:
    return "\n".join(value) if isinstance(value, list) else value


def _choices_shown(choices: Sequence[str], columns: Mapping[str, Any]) -> str:
    """The choices with what a target names them by: the row's labels, else letters."""
    letters = (_LETTERS[index] if index < len(_LETTERS) else str(index + 1) for index in range(len(choices)))
    return "\n".join(f"{name}. {choice}" for name, choice in zip(columns.get("choice_labels", letters), choices))


def _question(input: str | Conversation | Datum) -> str:
    if isinstance(input, str):
        return input
    if isinstance(input, Datum):
        raise BadTemplate("is for text, and the row is tokens")
    return input.messages[-1].content if input.messages else ""


# Templates of Jinja2, in its sandbox: run in children that are killed if one takes too long, or too much memory.

_CACHED = 32  # compiled templates
_MAX_SHOWN_CHARS = 300


def rendered(item: tuple[str, Mapping[str, Any]]) -> tuple[bool, str]:
    """Fill a template with the columns of a row; returns whether that worked, and the text or the error.

    An undefined name is an error. Lines with only a block leave nothing, as in chat templates.
    """
    template, columns = item
    try:
        return True, _made(template, columns)
    except BadTemplate as error:
        return False, str(error)


def _made(template: str, columns: Mapping[str, Any]) -> str:
    import jinja2

    parts: list[str] = []
    length = 0
    try:
        for part in _compiled(template).generate(columns):
            length += len(part)
            if length > MAX_PROMPT_CHARS:
                raise too_long()
            parts.append(part)
        return "".join(parts)
    except (BadTemplate, MemoryError):
        raise
    except jinja2.TemplateSyntaxError as error:
        raise BadTemplate(f"is no template of Jinja2: line {error.lineno}: {_error_text(error)}") from error
    except jinja2.UndefinedError as error:
        raise BadTemplate(f"cannot be filled: {_error_text(error)}; the row has {_named(columns)}") from error
    except Exception as error:  # foreign code: any error concerns this row
        raise BadTemplate(f"cannot be filled: {type(error).__name__}: {_error_text(error)}") from error


@functools.lru_cache(maxsize=_CACHED)
def _compiled(template: str) -> jinja2.Template:
    import jinja2
    import jinja2.sandbox

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    return environment.from_string(template)


def _error_text(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}..."
