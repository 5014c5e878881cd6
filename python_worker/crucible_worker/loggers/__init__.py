"""Experiment trackers: each logger runs in a process of its own, and is fed from the journal by sequence."""
