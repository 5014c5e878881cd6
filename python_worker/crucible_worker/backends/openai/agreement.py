"""Whether replicas of a server serve the same model, as far as their lists of models show it.

    {"data": [{"id": "m", "owned_by": "vllm", "root": "/models/m", "max_model_len": 4096}]}

No server shows its weights. What it shows tells a wrong checkpoint, another program, or a shorter context.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_worker.backends.openai.documents import InvalidAnswer, parse

__all__ = ["Shown", "difference", "refuse_difference", "shown_of"]

_FIELDS = ("owned_by", "root", "parent", "max_model_len", "meta")
"""Fields of a model that are the same at each replica; `created` and `permission` differ with every start."""

_MAX_CHARS = 80
"""Most characters of a value in an error."""

Shown = Mapping[str, Any]
"""What a list of models shows of one model, by field; empty if it has no such model."""


def shown_of(content: bytes, model: str) -> Shown | None:
    """What a list of models shows of a model; None if it is no list, or an empty one.

    Args:
        content: of the answer.
        model: its name.
    """
    try:
        listed = parse(content, 0).get("data")
    except InvalidAnswer:
        return None
    if not isinstance(listed, list) or not listed:
        return None
    for entry in listed:
        if isinstance(entry, dict) and entry.get("id") == model:
            return {"id": model, **{field: entry[field] for field in _FIELDS if field in entry}}
    return {}


def difference(one: Shown | None, other: Shown | None) -> str:
    """The first field that two replicas show differently; empty if there is none, or one of them shows nothing."""
    if one is None or other is None:
        return ""
    return next((field for field in ("id", *_FIELDS) if one.get(field) != other.get(field)), "")


def refuse_difference(shown: Mapping[str, Shown | None], server: str, model: str) -> Shown | None:
    """Refuse replicas that do not show the same.

    Args:
        shown: by the number of the replica.
        server: name of the server.
        model: name of the model.

    Returns:
        What they show; None if none of them shows anything.

    Raises:
        FailedPrecondition: two of them differ (REPLICAS_DIFFER).
    """
    telling = [(name, told) for name, told in shown.items() if told is not None]
    if not telling:
        return None
    (first, one), *others = telling
    for name, other in others:
        if field := difference(one, other):
            raise FailedPrecondition(
                f"the replicas of server {server!r} do not serve the same model {model!r}: "
                f"{_told(first, one, field)}, {_told(name, other, field)}; "
                "start all of them with the same model and options",
                reason=Reason.REPLICAS_DIFFER,
            )
    return one


def _told(name: str, shown: Shown, field: str) -> str:
    if field == "id":
        return f"replica {name} {'has it' if shown else 'does not list it'}"
    value = json.dumps(shown.get(field), ensure_ascii=False)
    return f"{field} is {value if len(value) <= _MAX_CHARS else value[: _MAX_CHARS - 1] + '…'} at replica {name}"
