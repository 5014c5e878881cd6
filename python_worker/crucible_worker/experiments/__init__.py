"""Experiments: what runs log is in the journal, and each logger of an experiment is fed from there by sequence."""
