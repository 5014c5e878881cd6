"""The worker's calls as tools of a Snakepit pool: a stand-alone worker, and an adapter for Snakepit's own server."""

from pathlib import Path

__all__ = ["SCRIPT_PATH"]

SCRIPT_PATH = Path(__file__).with_name("grpc_server.py")
"""Snakepit's `script_path`. Snakepit recognises its processes by this file's name."""
