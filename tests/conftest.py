"""What holds for every test."""

from hypothesis import settings

# Time says nothing about correctness on a loaded machine.
settings.register_profile("house", deadline=None)
settings.load_profile("house")
