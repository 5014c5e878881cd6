"""What holds for every test."""

import os

from hypothesis import settings

# Time says nothing about correctness on a loaded machine.
settings.register_profile("house", deadline=None)
settings.load_profile("house")

# Workers in processes of their own grade no math unless a test is about that: each would load it anew, for seconds.
os.environ["CRUCIBLE_GRADING_PROCESSES"] = "0"
