"""A whole lake on a store that speaks S3: tables, checkpoint, landing folder, lease and report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming import Files, Lake, Pipeline, drain, log
from streaming.audit.laws import audit
from streaming.base.errors import FencedError, SourceError
from streaming.declare.delivery import Delivery
from streaming.log.ingest import append_heartbeat, next_state
from streaming.operations.cuts import lake_as_of, recomputed
from streaming.operations.doctor import examine, heal
from streaming.operations.erasure.erasing import erase
from streaming.operations.erasure.proof import prove
from streaming.operations.erasure.rows import Person
from streaming.operations.maintenance import maintain
from streaming.operations.rebuild import rebuild
from streaming.operations.restore import fork, restore
from streaming.operations.savepoint import savepoint
from streaming.operations.undeclared import drop
from streaming.operators.runtime import runtime_of
from streaming.sinks.files import JsonLines
from streaming.spark.jars import S3, add_storage, jars_folder, jars_of
from streaming.tables import delta, storage
from tests.support.crash import crash
from tests.support.instants import NOW, at
from tests.support.object_store import SECRET_OF_LAKES, Bucket
from tests.support.runs import tuples
from tests.support.scenario import BY_ID, PIPELINE, run_scenario

LATER = NOW + timedelta(hours=1)
OUT = Delivery("out", PIPELINE.stream, JsonLines("exports/out"))
EVENING = 2
"""The files that land after the savepoint."""
FURTHER, MOST_REQUESTS_A_BATCH = 4, 400
"""Of a batch of a log, with its share of the start, of a step of a window and of one of sessions."""


@pytest.fixture(scope="module")
def session(spark: SparkSession, store: tuple[str, Path]) -> SparkSession:
    """The session of this process, which knows the store from now on; one of a lake there finds it by itself."""
    add_storage(spark, "s3://any")
    hadoop: Any = spark.sparkContext
    for name, variable in (("access", "AWS_ACCESS_KEY_ID"), ("secret", "AWS_SECRET_ACCESS_KEY")):
        hadoop._jsc.hadoopConfiguration().set(f"fs.s3a.{name}.key", os.environ[variable])
    return spark


@pytest.fixture(scope="module")
def died(bucket_of_lake: Bucket, tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, str]:
    """A lake on the store whose first stream process was killed in its first batch, and what that process said."""
    lake = Lake(f"s3://{bucket_of_lake.name}/lake")
    point = "after the log commit, before the checkpoint's"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TIDEMARK_HOME", lake.root)
        process = crash(tmp_path_factory.mktemp("died"), point, lake=lake.root)
    assert process.returncode == -signal.SIGKILL, process.stdout
    return lake, process.stdout


@pytest.fixture(scope="module")
def lake(session: SparkSession, died: tuple[Lake, str]) -> Lake:
    """The same lake once the scenario has come to its end, with a savepoint of its middle."""
    on_store, _ = died
    run_scenario(session, on_store, LATER, ("morning",))
    savepoint(on_store, PIPELINE, "middle", lambda: LATER)
    run_scenario(session, on_store, LATER)
    return on_store


def broken(spark: SparkSession, lake: Lake) -> list[str]:
    return [str(finding) for finding in audit(spark, lake, PIPELINE) if finding.broken]


def first_results(spark: SparkSession, lake: Lake) -> list[tuple[Any, ...]]:
    return tuples(runtime_of(BY_ID, lake).readable["first"](spark), "id", "window_start", "readings")


def arrive(lake: Lake, name: str, seconds: float) -> None:
    """Let a file with a reading land."""
    line = json.dumps({"id": "a", "at": at(seconds).isoformat(), "value": 1})
    storage.put_whole(f"{PIPELINE.stream.source.location(lake)}/{name}.json", line.encode())


@pytest.mark.long
@pytest.mark.processes
def test_a_lake_on_s3_whose_stream_was_killed_goes_on_and_keeps_every_law(
    session: SparkSession, lake: Lake, died: tuple[Lake, str], bucket_of_lake: Bucket, store: tuple[str, Path]
) -> None:
    assert broken(session, lake) == []
    asleep = log.head(lake, PIPELINE.stream)
    assert asleep is not None
    for number in range(FURTHER):
        arrive(lake, f"further-{number}", 50 + number)
    before = len(store[1].read_text())
    drain(session, lake, PIPELINE, now=lambda: LATER)
    further = store[1].read_text()[before:].count(" HTTP/1.1")
    assert 0 < further / FURTHER < MOST_REQUESTS_A_BATCH
    newest = log.head(lake, PIPELINE.stream)
    assert newest is not None and newest.number == asleep.number + FURTHER
    with pytest.raises(FencedError, match="another process has taken over"):
        append_heartbeat(session, lake, PIPELINE.stream, next_state(asleep), asleep, LATER)

    objects = b"".join(bucket_of_lake.content(key, "") for key in bucket_of_lake.names(""))
    assert SECRET_OF_LAKES not in died[1] and SECRET_OF_LAKES.encode() not in objects


@pytest.mark.long
def test_a_savepoint_there_is_read_restored_in_place_and_forked_to_any_storage(
    session: SparkSession, lake: Lake, bucket_of_lake: Bucket, tmp_path: Path
) -> None:
    then = lake_as_of(lake, PIPELINE, "middle")
    with recomputed(session, then, (BY_ID,)) as there:
        in_the_middle = first_results(session, there)
    for to in (Lake(f"s3://{bucket_of_lake.name}/forked"), Lake(str(tmp_path / "forked"))):
        assert fork(lake, PIPELINE, "middle", to).waiting["sensors"] >= EVENING
        assert first_results(session, to) == in_the_middle != []
        drain(session, to, PIPELINE, end_of_input=True, now=lambda: LATER)
        assert broken(session, to) == []
    restore(session, lake, PIPELINE, "middle", lambda: LATER)
    assert broken(session, lake) == []


@pytest.mark.long
def test_what_is_damaged_there_is_named_and_healed_and_a_person_is_erased(
    session: SparkSession, lake: Lake, bucket_of_lake: Bucket
) -> None:
    damaged, delivered = Lake(f"s3://{bucket_of_lake.name}/damaged"), replace(PIPELINE, deliveries=(OUT,))
    fork(lake, PIPELINE, "middle", damaged)
    assert examine(damaged, PIPELINE) == []
    storage.remove_folder(damaged.checkpoint(PIPELINE.stream, "log"))
    storage.replace_bytes(damaged.checkpoint(PIPELINE, "lease.json"), b"{", "")
    storage.replace_bytes(f"{damaged.log(PIPELINE.stream)}/_delta_log/_last_checkpoint", b'{"version": 99}', "")
    storage.put_whole(damaged.savepoint(PIPELINE, "half", "state", "part"), b"")
    view = delta.open_table(damaged.first(BY_ID))
    assert view is not None
    storage.remove(f"{damaged.first(BY_ID)}/{view.get_add_actions()['path'].to_pylist()[0]}")
    healed, left = heal(damaged, PIPELINE)
    assert {each.kind for each in healed} == {
        "checkpoint missing",
        "lease left behind",
        "checkpoint hint broken",
        "savepoint unfinished",
    }
    assert {each.kind for each in left} == {"data files missing"}

    rebuild(session, damaged, PIPELINE, BY_ID, now=lambda: LATER)
    drain(session, damaged, delivered, end_of_input=True, now=lambda: LATER)
    delivered_to = "damaged/exports/out/"
    files = [bucket_of_lake.content(name, delivered_to) for name in bucket_of_lake.names(delivered_to)]
    valid = log.read_log(session, damaged, PIPELINE.stream).where("_day is not null").count()
    assert sum(content.count(b"\n") for content in files) == valid
    erase(session, damaged, delivered, Person("id", "b"), now=lambda: LATER)
    maintain(damaged, delivered, retention=timedelta(0), entry_retention=timedelta(0))
    assert prove(damaged, delivered, Person("id", "b")).places == ()
    assert examine(damaged, delivered) == [] and broken(session, damaged) == []
    assert [table.name for table in drop(damaged, [replace(PIPELINE, operators=(BY_ID,))], "visits")] == [
        "visits",
        "visits_state",
    ]


WITHOUT_THE_CLIENT = """
import os
import sys
from dataclasses import replace
from pathlib import Path

from streaming import Files, Lake, Pipeline, drain, start_session
from tests.support.scenario import BY_ID, PIPELINE

spark = start_session()
kept = Path(sys.argv[1])
(Path(os.environ["TIDEMARK_JARS"]) / kept.name).symlink_to(kept)
stream = replace(PIPELINE.stream, source=Files(sys.argv[2]))
drain(spark, Lake(sys.argv[3]), Pipeline(stream, (replace(BY_ID, of=stream),)))
"""


@pytest.mark.long
@pytest.mark.processes
def test_a_session_that_was_started_without_the_client_of_the_store_takes_files_of_it(
    bucket_of_lake: Bucket, tmp_path: Path
) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    for jar in jars_folder().glob("*.jar"):
        (jars / jar.name).symlink_to(jar)
    (client,) = {path.parent for path in jars_of(S3)}
    bucket_of_lake.put("1.json", json.dumps({"id": "a", "at": at(0).isoformat(), "value": 1}).encode(), "late/")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_CLIENT, client, f"s3://{bucket_of_lake.name}/late", tmp_path / "lake"],
        env={**os.environ, "TIDEMARK_JARS": str(jars), "TIDEMARK_MASTER": "local[2]"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert DeltaTable(str(tmp_path / "lake/sensors/log")).to_pyarrow_table().num_rows == 1


@pytest.mark.long
def test_a_lake_on_a_disk_takes_files_of_the_store(
    session: SparkSession, bucket_of_lake: Bucket, tmp_path: Path
) -> None:
    source = Files(f"s3a://{bucket_of_lake.name}/elsewhere")
    stream = replace(PIPELINE.stream, source=source)
    here, pipeline = Lake(str(tmp_path / "lake")), Pipeline(stream, (replace(BY_ID, of=stream),))
    with pytest.raises(SourceError, match=r"landing folder 's3a://.*' does not exist"):
        drain(session, here, pipeline)
    for number in range(2):
        line = json.dumps({"id": "a", "at": at(number).isoformat(), "value": number}).encode()
        bucket_of_lake.put(f"{number} a+b.json", line, "elsewhere/")
        drain(session, here, pipeline, now=lambda: LATER)
    # The checkpoint is known by what the log holds, as one of files on this disk is.
    storage.remove_folder(here.checkpoint(stream, "log"))
    heal(here, pipeline)
    drain(session, here, pipeline, now=lambda: LATER)
    assert tuples(log.read_log(session, here, stream), "id", "value") == [("a", 0), ("a", 1)]
    assert [str(finding) for finding in audit(session, here, pipeline) if finding.broken] == []
