"""Models of the Tinker service, and of servers that speak its API.

Nothing is imported here: settings need `services` alone, long before a model is asked for.
"""
