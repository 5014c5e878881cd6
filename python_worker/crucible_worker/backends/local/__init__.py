"""Models on this machine, in a child process of the worker.

Importing it imports nothing: the child processes are packages below it, and need little of what the worker needs.
"""
