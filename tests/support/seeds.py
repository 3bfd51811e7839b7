"""The seed from which the laws of the engine are drawn: another one in each run of pytest, and the same in its workers.

`TIDEMARK_LAW_SEED=<seed>` draws the laws of an earlier run again. Laws that hypothesis draws while they run go by a
database instead: what failed once is tried first in every later run (`tests/support/examples.py`). This module is a
pytest plugin that says the seed.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from itertools import count
from random import Random
from typing import TypeVar

import pytest

T = TypeVar("T")

SEED = "TIDEMARK_LAW_SEED"

_given = os.environ.setdefault(SEED, str(secrets.randbelow(1_000_000)))
# Set in the environment, from which workers have it: they have to collect the same tests.
if not _given.isdecimal():
    raise pytest.UsageError(f"{SEED}={_given!r} is no seed; give a whole number, such as {SEED}=42")
LAW_SEED = int(_given)


def draws(*of: str | int) -> Random:
    """A source of random numbers of its own for each thing that is drawn, by names and numbers of the caller's."""
    return Random("/".join(map(str, (LAW_SEED, *of))))


def eventful(drawn: Callable[[int], T], shows: Callable[[T], bool]) -> T:
    """The first of what `drawn` gives for 0, 1, 2, ... that shows what is tried; of a quiet feed every law holds."""
    return next(each for each in map(drawn, count()) if shows(each))


def pytest_report_header() -> str:
    return f"seed of the laws: {LAW_SEED} ({SEED}={LAW_SEED} draws them again)"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.line(f"Laws were drawn from the seed {LAW_SEED}: {SEED}={LAW_SEED} draws them again.")
