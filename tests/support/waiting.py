"""Waiting for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest


def until(condition: Callable[[], object], what: str, within: float = 20) -> None:
    """Back once the condition holds; the test fails where it does not in time."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not {what} after {within} s")
        time.sleep(0.02)
