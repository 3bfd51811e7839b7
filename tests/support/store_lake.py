"""A lake on an object store: the scenario ended there and once more on a disk, compared, audited, and then counted.

`python -m tests.support.store_lake <folder> <lake>` prints one JSON document as its last line. What it asks of the
store for each further batch lies between requests for `BEGIN` and `END`, of which nobody knows anything.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import httpx

from streaming import Lake, drain, log, start_session
from streaming.audit.laws import audit
from streaming.base.errors import FencedError
from streaming.log.heartbeat import append_heartbeat
from streaming.log.ingest import next_state
from streaming.tables import storage
from tests.support.instants import NOW, at
from tests.support.left_behind import left
from tests.support.scenario import PIPELINE, run_scenario

FURTHER, BEGIN, END = 6, "begin-of-further-batches", "end-of-further-batches"
LATER = NOW + timedelta(hours=1)


def main() -> None:
    """Compare, audit, append as one that slept, and let further batches come."""
    folder, root = sys.argv[1:]
    disk, store = Lake(folder), Lake(root)
    spark = start_session()
    run_scenario(spark, store, LATER)
    run_scenario(spark, disk, NOW)
    there, here = asdict(left(spark, store)), asdict(left(spark, disk))
    found: dict[str, Any] = {
        "different": [name for name in here if _comparable(there[name]) != _comparable(here[name])],
        "broken": [str(finding) for finding in audit(spark, store, PIPELINE) if finding.broken],
    }

    asleep = log.head(store, PIPELINE.stream)
    assert asleep is not None
    for number in range(2):
        _land(store, f"woken-{number}", 40 + number)
        drain(spark, store, PIPELINE, now=lambda: LATER)
    try:
        append_heartbeat(spark, store, PIPELINE.stream, next_state(asleep), asleep, LATER)
    except FencedError as error:
        found["fenced"] = str(error)

    for number in range(FURTHER):
        _land(store, f"further-{number}", 50 + number)
    _mark(BEGIN)
    drain(spark, store, PIPELINE, now=lambda: LATER)
    _mark(END)
    newest = log.head(store, PIPELINE.stream)
    assert newest is not None
    found["batches"] = newest.number - asleep.number
    found["broken"] += [str(finding) for finding in audit(spark, store, PIPELINE) if finding.broken]
    spark.stop()
    print(json.dumps(found))


def _comparable(value: Any) -> Any:
    """Without the time at which files were landed, which a store sets itself."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        for row in value:
            if row.get("_origin"):
                row["_origin"].pop("modified", None)
        return sorted(value, key=repr)
    return value


def _land(lake: Lake, name: str, seconds: float) -> None:
    line = json.dumps({"id": "a", "at": at(seconds).isoformat(), "value": 1})
    storage.put_whole(f"{PIPELINE.stream.source.location(lake)}/{name}.json", line.encode())


def _mark(name: str) -> None:
    with suppress(httpx.HTTPError):
        httpx.get(f"{os.environ['AWS_ENDPOINT_URL']}/{name}/x")


if __name__ == "__main__":
    main()
