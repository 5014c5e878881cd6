"""Models of the Tinker service, and of servers that speak its API.

Nothing is imported here: settings need only `services`, long before a model is used.
"""
