"""Logs for the worker's operator."""
