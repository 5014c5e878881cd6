"""Places where models live."""
