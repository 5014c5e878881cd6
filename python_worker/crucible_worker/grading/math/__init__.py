"""Whether two answers mean the same: parsing, comparing, and proving it."""
