"""The images of a worker, found by the names that callers give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from crucible_bridge.errors import InvalidField
from crucible_worker.grading.code.images import CodeImage

__all__ = ["HasImages"]


class HasImages:
    """What runs programs that may import images.

    Args:
        images: the images.
    """

    def __init__(self, images: Iterable[CodeImage]) -> None:
        self._images = {image.name: image for image in images}

    @property
    def images(self) -> Sequence[str]:
        """Names of the images."""
        return tuple(self._images)

    def image(self, name: str, field: str) -> CodeImage | None:
        """The image of a name; None for the empty name.

        Raises:
            InvalidField: it does not exist; the error is at `field`.
        """
        if name and name not in self._images:
            known = f"there are {', '.join(self._images)}" if self._images else "this worker has none (--code-image)"
            raise InvalidField(field, f"{name[:64]!r} is not an image of this worker; {known}")
        return self._images.get(name)
