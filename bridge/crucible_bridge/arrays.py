"""Arrays on their way to the wire and back; see `crucible_bridge.types.arrays`."""

from crucible_bridge.types.arrays import MAX_DIMENSIONS, as_array, floats, from_tensor, stored_like, to_tensor

__all__ = ["MAX_DIMENSIONS", "as_array", "floats", "from_tensor", "stored_like", "to_tensor"]
