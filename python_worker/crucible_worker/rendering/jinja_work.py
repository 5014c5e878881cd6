"""Templates of Jinja2, in its sandbox: run in children that are killed if one takes too long, or too much memory.

Only these children import Jinja2.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from crucible_worker.rendering.templates import MAX_PROMPT_CHARS, BadTemplate, too_long

if TYPE_CHECKING:
    import jinja2

__all__ = ["rendered"]

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
        raise BadTemplate(
            f"cannot be filled: {_error_text(error)}; the row has {', '.join(sorted(columns))}"
        ) from error
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
