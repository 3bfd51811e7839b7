"""Killed while it asks a server that misbehaves, an enrichment asks again under the same key, and has each row once."""

from __future__ import annotations

import signal
from collections import defaultdict
from pathlib import Path
from threading import Event

import pytest
from pyspark.sql import SparkSession

from streaming import Lake, drain
from streaming.audit.laws import audit
from streaming.operators.runtime import runtime_of
from tests.support.crash import crash
from tests.support.feeds import land_all
from tests.support.http_server import RESET, Answer, Posted, http_server
from tests.support.instants import NOW, at
from tests.support.lookup_crash import POINTS, asked, events, pipeline
from tests.support.running import ingest
from tests.support.runs import tuples

pytestmark = pytest.mark.processes


def test_a4_what_was_asked_and_not_written_is_asked_once_more_with_its_key(spark: SparkSession, tmp_path: Path) -> None:
    lake, (point,), over, next_asked = Lake(str(tmp_path / "lake")), POINTS, Event(), Event()
    requests: dict[str, list[Posted]] = defaultdict(list)

    def answer(posted: Posted) -> Answer:
        id_ = posted.rows[0]["id"]
        requests[id_].append(posted)
        if id_ == "slow":
            next_asked.wait()
        if id_ == "b":
            next_asked.set()
        if id_ == "hangs" and len(requests[id_]) == 1:
            over.wait()
        if id_ == "resets" and len(requests[id_]) == 1:
            return RESET
        return 500 if id_ == "down" else 200

    with http_server() as server:
        server.answer = answer
        ids = ("a", "slow", "down", "hangs", "resets", "b")
        land_all(lake, events, [{"id": id_, "at": at(n).isoformat(), "url": server.url} for n, id_ in enumerate(ids)])
        ingest(spark, lake, pipeline)
        died = crash(tmp_path, point, "tests.support.lookup_crash", lent=spark)
        assert died.returncode == -signal.SIGKILL, died.stdout
        drain(spark, lake, pipeline, now=lambda: NOW)
        over.set()

    runtime = runtime_of(asked, lake)
    answered = tuples(runtime.readable["current"](spark), "id", "answer")
    assert answered == [(id_, "answer 200") for id_ in ("a", "b", "hangs", "resets", "slow")]
    assert tuples(runtime.readable["failed"](spark), "id", "kind", "attempts") == [("down", "error", 2)]
    assert all(finding.holds for finding in audit(spark, lake, pipeline))
    assert {id_: len({each.key for each in posted}) for id_, posted in requests.items()} == dict.fromkeys(ids, 1)
    assert len({posted[0].key for posted in requests.values()}) == len(ids)
    # One call more than without the crash, at most: those of `resets` and `down` failed once before.
    most = {"a": 2, "b": 2, "slow": 2, "hangs": 2, "resets": 3, "down": 3}
    assert all(len(posted) <= most[id_] for id_, posted in requests.items())
    assert len(requests["hangs"]) == 2
