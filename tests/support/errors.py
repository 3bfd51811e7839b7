"""Errors by their facts: which there are, and that one is raised with those of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from inspect import getdoc
from typing import Any

import pytest

from streaming.base.errors import TidemarkError

_MODULES = ("streaming.base.errors", "quality.errors", "platform_assets.errors", "platform_assets.reports.errors")
"""Where the errors of each room are."""


@contextmanager
def refused(kind: type[TidemarkError], **facts: Any) -> Iterator[None]:
    """What is done inside raises an error of this class, and that has these facts."""
    with pytest.raises(kind) as raised:
        yield
    assert {name: getattr(raised.value, name) for name in facts} == facts, raised.value


def kinds() -> list[type[TidemarkError]]:
    """Every class of error, from the base on."""
    modules = [import_module(name) for name in _MODULES]
    found = [entry for module in modules for entry in vars(module).values() if isinstance(entry, type)]
    return list(dict.fromkeys(kind for kind in found if issubclass(kind, TidemarkError)))


def page() -> str:
    """The table of codes in the reference."""
    rows = sorted((kind.code, kind.__name__, (getdoc(kind) or "").partition("\n")[0]) for kind in kinds())
    return "\n".join(["| code | error | meaning |", "|---|---|---|", *(f"| `{c}` | `{k}` | {m} |" for c, k, m in rows)])
