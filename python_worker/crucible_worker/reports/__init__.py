"""Reports of evaluations, for people and for programs."""
