"""Samples of data sets: files, tables, the hub, and where they are kept."""
