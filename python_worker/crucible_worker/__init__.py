"""The worker: evaluates models, and reports the results.

`docs/how_it_works.md` of the repository leads through its packages: what each holds, and which may import which.

Types, events and errors are those of `crucible_bridge`.
"""
