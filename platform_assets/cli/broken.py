"""The modules that cannot be used, named on the terminal: what they declare is missing from everything else."""

from __future__ import annotations

from collections.abc import Iterable

from platform_assets.cli.context import console
from streaming.base import BrokenModule


def print_broken(modules: Iterable[BrokenModule]) -> None:
    """One line for each."""
    for module in modules:
        console.print(str(module), soft_wrap=True)
