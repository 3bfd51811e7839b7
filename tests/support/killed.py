"""A process that dies between two commits, within the process of the test."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.table import TableAlterer


class Killed(BaseException):
    """The process dies here; nothing that catches exceptions goes on."""


class KilledInBatch(Exception):
    """The process dies here within a batch of Spark, which waits for ever for a function that does not come back."""


def killed_at(nth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process die before the nth commit from now on, of rows or of a table's properties."""
    commits = 0
    for owner, name in ((DeltaTable, "create_write_transaction"), (TableAlterer, "set_table_properties")):
        commit = getattr(owner, name)

        def dies(*args: Any, commit: Any = commit, **kwargs: Any) -> None:
            nonlocal commits
            commits += 1
            if commits == nth:
                raise Killed if threading.current_thread() is threading.main_thread() else KilledInBatch
            commit(*args, **kwargs)

        monkeypatch.setattr(owner, name, dies)
