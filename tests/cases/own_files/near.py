"""A grader: the last number of an answer is near a target."""

import re
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta


def near(response: str, targets: Sequence[str], *, within: Annotated[float, Meta(ge=0)] = 1) -> bool:
    """The last number of the response is near a target.

    Args:
        response: what the model said, without its reasoning.
        targets: what is right.
        within: the largest distance that counts.
    """
    numbers = re.findall(r"-?\d+(?:\.\d+)?", response)
    return bool(numbers) and any(abs(float(numbers[-1]) - float(target)) <= within for target in targets)
