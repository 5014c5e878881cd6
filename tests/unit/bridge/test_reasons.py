"""The catalogue of reasons: each is written there and nowhere else, and each is used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from crucible_bridge import errors
from crucible_bridge.errors import BridgeError
from crucible_bridge.reasons import Code, Occurrence, Reason

ROOT = Path(__file__).parents[3]
CATALOGUE = ROOT / "bridge" / "crucible_bridge" / "reasons.py"
SOURCES = (ROOT / "bridge" / "crucible_bridge", ROOT / "python_worker" / "crucible_worker")
ELIXIR = ROOT / "elixir_client_example" / "lib" / "crucible_bridge"


def _modules() -> Iterator[tuple[str, ast.Module]]:
    """Every module that is written by hand or generated from our protos, but for protoc's."""
    for folder in SOURCES:
        for path in sorted(folder.rglob("*.py")):
            if path != CATALOGUE and not {"v1", "wire"} & set(path.relative_to(folder).parts):
                yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def _exported(module: ast.Module) -> set[int]:
    """Ids of the nodes in `__all__`: names, whatever they spell."""
    return {
        id(node)
        for statement in module.body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__"
        for node in ast.walk(statement.value)
    }


@pytest.mark.long
def test_a_reason_is_written_in_the_catalogue_alone():
    """No other string of the code equals one, and no argument `reason` of an error or problem is made of text."""
    written = []
    for name, module in _modules():
        exported = _exported(module)
        for node in ast.walk(module):
            match node:
                case ast.Constant(value=str(text)) if text in set(Reason) and id(node) not in exported:
                    written.append(f"{name}:{node.lineno}: {text!r}")
                case ast.Call(func=ast.Name(id=called), keywords=keywords) if called in _CARRIERS:
                    written += [
                        f"{name}:{keyword.value.lineno}: reason={ast.unparse(keyword.value)}"
                        for keyword in keywords
                        if keyword.arg == "reason" and isinstance(keyword.value, ast.Constant | ast.JoinedStr)
                    ]
                case _:
                    pass

    assert written == []


def test_every_reason_of_the_catalogue_is_used():
    """What neither the code nor the Elixir client raises any more leaves the catalogue."""
    named = {
        node.attr
        for _, module in _modules()
        for node in ast.walk(module)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "Reason"
    }

    assert {reason.name for reason in Reason} - named - _named_in_elixir() == set()


def test_an_error_is_raised_with_the_code_that_the_catalogue_says():
    """Where both stand in one expression: `NotFound(..., reason=Reason.UNKNOWN_PLAN)`."""
    wrong, seen = [], 0
    for name, module in _modules():
        for node in ast.walk(module):
            match node:
                case ast.Call(func=ast.Name(id=called), keywords=keywords) if called in _CODES:
                    given = {keyword.arg: keyword.value for keyword in keywords}
                    if "code" in given:
                        continue
                    match given.get("reason"):
                        case ast.Attribute(value=ast.Name(id="Reason"), attr=reason):
                            seen += 1
                            if _CODES[called] not in Reason[reason].codes:
                                wrong.append(f"{name}:{node.lineno}: {called} with {reason}")
                        case _:
                            pass
                case _:
                    pass

    assert wrong == []
    assert seen > 100


def test_every_class_of_errors_has_a_default_that_fits():
    """Its own reason is of its own code."""
    for kind in _classes():
        assert kind.default_code in Reason(kind.default_reason).codes, kind


def test_every_reason_is_described():
    """A sentence of one line, the name as its value, and a code where it occurs in a call's status."""
    for reason in Reason:
        assert reason.name == reason.value == str(reason)
        assert reason.places, reason
        assert re.fullmatch(r"[A-Za-z][^\n]{10,118}\.", reason.sentence), reason
        assert reason.codes or not reason.places & (Occurrence.CALL | Occurrence.CLIENT | Occurrence.START), reason
        assert all(isinstance(code, Code) for code in reason.codes)
    assert len({reason.sentence for reason in Reason}) == len(Reason)


def test_the_elixir_client_names_no_other_reasons():
    """Strings that stand where its code makes, or compares, a reason."""
    named = _named_in_elixir()

    assert len(named) > 5
    assert named - set(Reason) == set()


def test_the_documents_name_reasons_with_their_codes():
    """Where one stands with its code: "FAILED_PRECONDITION, reason NO_GRADING_POOL"."""
    pages = [
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "docs" / "design").glob("*.md")),
    ]
    told = [
        (page.name, code, name)
        for page in pages
        for code, name in re.findall(rf"\b({'|'.join(Code)}), (?:reason )?([A-Z]+_[A-Z_]+)\b", page.read_text())
    ]
    wrong = [each for each in told if each[2] not in set(Reason) or each[1] not in Reason(each[2]).codes]

    assert len(told) > 10
    assert wrong == []


def _named_in_elixir() -> set[str]:
    return {
        reason for path in ELIXIR.rglob("*.ex") for reason in re.findall(r'\breason: "([A-Z_]+)"', path.read_text())
    }


def _classes() -> list[type[BridgeError]]:
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, BridgeError)]
    return [kind for kind in found if kind is not BridgeError]


_CODES = {kind.__name__: kind.default_code for kind in _classes()}
_CARRIERS = {*_CODES, "Problem"}
