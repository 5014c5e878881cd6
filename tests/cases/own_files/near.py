"""A grader: the last number of an answer is near a target."""

import re
from collections.abc import Sequence
from fractions import Fraction
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
    return bool(numbers) and any(abs(Fraction(numbers[-1]) - Fraction(each)) <= within for each in targets)
