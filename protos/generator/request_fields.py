"""The fields of an EvaluateRequest as typed keywords: `client/request_fields.py`."""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Iterator
from pathlib import Path

from generator.schema import Schema
from generator.sources import CLIENT, HEADER, Module, documented, imports_of

__all__ = ["make"]

REQUEST = "EvaluateRequest"
# What callers may give in place of the field's own type.
WIDER = {"model": "ModelLike", "evaluators": "EvaluatorsLike", "dataset": "DatasetLike"}


def make(schema: Schema, into: Path) -> dict[str, str]:
    """Write the module; its text by its name."""
    home = Module("crucible_bridge.types").home_of(REQUEST)
    fields = dict(_fields(home.class_named(REQUEST)))
    model = fields.pop("model")
    given = Module(f"{CLIENT}.given")
    classes = f'''class FieldsButModel(TypedDict, total=False):
    """The fields of an EvaluateRequest; the model's is not among them."""

{"".join(fields.values())}

class EvaluateFields(FieldsButModel, total=False):
    """The fields of an EvaluateRequest."""

{model}'''
    text = f'''{HEADER}
"""The fields of an EvaluateRequest as keywords, with the shorter forms that they may have."""

from __future__ import annotations

from typing import TypedDict
{imports_of(classes, home.names() | given.names())}

__all__ = ["EvaluateFields", "FieldsButModel"]


{classes}'''
    return {"request_fields.py": text}


def _fields(request: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Each field's name, and its lines in the TypedDict: its type, and what is said of it."""
    for node, following in itertools.pairwise([*request.body, None]):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
            wanted = WIDER.get(name) or ast.unparse(node.annotation)
            yield name, f"    {name}: {wanted}\n{documented(_text(following), '    ')}"


def _text(node: ast.stmt | None) -> str | None:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return inspect.cleandoc(node.value.value)
    return None
