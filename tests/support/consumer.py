"""Whoever reads the changes of a delivery, in plain Python."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from streaming.declare.operator import Operator
from streaming.lake.lake import Lake
from streaming.operators.runtime import runtime_of


class Consumer:
    """Plain Python, and no more than a reader of lines needs to know: the newest revision of a key counts."""

    def __init__(self, folder: Path, identity: tuple[str, ...]) -> None:
        self._folder = folder
        self._identity = identity

    def holds(self) -> set[str]:
        """The rows, each as JSON, whatever the order in which the files are read."""
        changes = [json.loads(line) for path in self._folder.glob("*.json") for line in path.read_text().splitlines()]
        random.shuffle(changes)
        newest: dict[tuple[Any, ...], dict[str, Any]] = {}
        for change in changes:
            key = tuple(change[name] for name in self._identity)
            if key not in newest or newest[key]["_revision"] < change["_revision"]:
                newest[key] = change
        held = [change for change in newest.values() if change["_change"] == "upsert"]
        return {json.dumps({n: v for n, v in row.items() if not n.startswith("_")}, sort_keys=True) for row in held}


def current_rows(spark: SparkSession, lake: Lake, operator: Operator, columns: tuple[str, ...]) -> set[str]:
    """What such a consumer should hold: the current results, each as JSON."""
    rows = runtime_of(operator, lake).readable["current"](spark).select(*columns).toArrow().to_pylist()
    plain = [
        {
            name: value.isoformat().replace("+00:00", "Z") if hasattr(value, "isoformat") else value
            for name, value in row.items()
        }
        for row in rows
    ]
    return {json.dumps(row, sort_keys=True) for row in plain}
