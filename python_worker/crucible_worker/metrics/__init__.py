"""Metrics: arrays in, frozen results out."""
