"""What a store that speaks S3 does for a lake: commits and leases that exclude one another, and errors that help."""

from __future__ import annotations

import json
import tempfile
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql.types import LongType, StructField, StructType

from streaming import Lake
from streaming.base.errors import FencedError, LeaseError, SettingsError, StoreError
from streaming.lake import Settings
from streaming.service import lease as leases
from streaming.service.lease import TIMEOUT, holder_of, take_lease
from streaming.spark.session import spark_conf
from streaming.tables import delta, s3, storage
from streaming.tables.storage import ChangedMeanwhile, Snapshot, look, swap
from tests.support.object_store import SECRET_OF_LAKES, Bucket, Request, front
from tests.support.pipelines.beats import beats


@pytest.fixture
def on_store(bucket_of_lake: Bucket) -> Lake:
    """An empty lake."""
    return Lake(f"s3://{bucket_of_lake.name}/{uuid.uuid4().hex}")


def machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on this process is on another machine, as far as files are concerned."""
    folder.mkdir(exist_ok=True)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))


def test_of_two_commits_that_follow_the_same_version_one_is_refused(on_store: Lake) -> None:
    uri = on_store.path("raced")
    delta.create(uri, StructType([StructField("a", LongType())]), append_only=True, description="")
    both = threading.Barrier(2, timeout=30)

    def commit(number: int) -> str:
        looked: list[int] = []

        def fence(table: DeltaTable) -> None:
            if looked:
                raise FencedError(f"version {table.version()} is there")
            looked.append(table.version())
            both.wait()

        try:
            delta.note(uri, says={}, numbers={"writer": number}, fence=fence)
        except FencedError as error:
            return str(error)
        return "committed"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(commit, range(2))) == ["committed", "version 1 is there"]
    assert delta.version_of(uri) == 1


def test_a_lease_on_the_store_keeps_other_machines_of_any_name_out_until_its_holder_is_silent(
    on_store: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = on_store.checkpoint(beats, "lease.json")
    monkeypatch.setattr(leases, "_RENEWED_EVERY", 0.05)
    with ExitStack() as first, ExitStack() as second:
        machine(tmp_path / "a", monkeypatch)
        held = first.enter_context(take_lease(on_store, beats, "stream"))
        # Two containers are often called the same.
        machine(tmp_path / "b", monkeypatch)
        assert holder_of(on_store, beats) is not None
        with pytest.raises(LeaseError, match="already held by process"), take_lease(on_store, beats):
            pass

        # Silent for longer than the time-out: whoever looked then, and comes second, is refused.
        lease = look(record)
        assert lease.content is not None
        silent = json.loads(lease.content) | {"renewed": (datetime.now(UTC) - 2 * TIMEOUT).isoformat(), "token": "gone"}
        storage.replace_bytes(record, json.dumps(silent).encode(), "")
        stale = look(record)
        second.enter_context(take_lease(on_store, beats, "stream"))
        with pytest.raises(ChangedMeanwhile):
            swap(record, b"{}", stale, "late")
        assert held.lost.wait(10)
    assert storage.read_bytes(record) is None


def test_a_request_that_was_carried_out_though_its_answer_was_lost_is_known_again(
    on_store: Lake, store: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = on_store.path("noted")
    delta.create(uri, StructType([StructField("a", LongType())]), append_only=True, description="")
    lost: set[str] = set()

    def first_put(request: Request) -> bool:
        is_lost = request.method == "PUT" and request.path.endswith(".json") and request.path not in lost
        lost.add(request.path)
        return is_lost

    def fence(table: DeltaTable) -> None:
        assert table.version() == 0, "somebody else has committed"

    with front(store[0]) as cutting, monkeypatch.context() as environment:
        cutting.lost = first_put
        environment.setenv("AWS_ENDPOINT_URL", cutting.endpoint)
        delta.note(uri, says={}, numbers={"n": 1}, fence=fence)
        with take_lease(on_store, beats) as held:
            assert holder_of(on_store, beats) == held.holder
        lost.clear()
        with take_lease(on_store, beats):
            assert f"/{on_store.checkpoint(beats, 'lease.json').removeprefix('s3://')}" in lost
    assert delta.version_of(uri) == 1


def test_a_small_file_is_read_by_one_request_so_that_nobody_replaces_it_in_between(
    on_store: Lake, store: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = on_store.path("small")
    storage.replace_bytes(uri, b"content", "")
    with front(store[0]) as watching, monkeypatch.context() as environment:
        environment.setenv("AWS_ENDPOINT_URL", watching.endpoint)
        assert [storage.read_bytes(uri), storage.read_bytes(f"{uri}-not-there")] == [b"content", None]
    assert [request.method for request in watching.requests] == ["GET", "GET"]


def test_two_that_begin_at_once_do_not_both_get_the_lease(on_store: Lake) -> None:
    record = on_store.checkpoint(beats, "lease.json")
    snapshot = look(record)
    swap(record, b"first", snapshot, "")
    with pytest.raises(ChangedMeanwhile):
        swap(record, b"second", snapshot, "")
    swap(record, b"first again", look(record), "")
    assert look(record).content == b"first again"


def test_an_endpoint_in_plain_http_must_be_asked_for_and_one_with_a_password_is_not_repeated(
    store: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "false")
    with pytest.raises(SettingsError, match=r"plain HTTP, .* set AWS_ALLOW_HTTP=true"):
        s3.file_system()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"https://me:{SECRET_OF_LAKES}@store:9000")
    with pytest.raises(SettingsError, match="credentials in AWS_ACCESS_KEY_ID") as refused:
        s3.file_system()
    assert SECRET_OF_LAKES not in str(refused.value)


def test_a_bucket_that_is_not_there_is_told_with_what_to_do_and_without_the_request(store: tuple[str, Path]) -> None:
    uri = "s3://no-such-bucket/lake/lease.json"
    for ask in (lambda: delta.exists(uri), lambda: swap(uri, b"", Snapshot(None), "")):
        with pytest.raises(
            StoreError, match=r"lease\.json cannot be reached \(NoSuchBucket: .*check that the bucket"
        ) as error:
            ask()
        assert "http" not in str(error.value)


def test_spark_is_told_where_the_store_is_and_no_credential(store: tuple[str, Path]) -> None:
    configuration = spark_conf(Settings(home="s3://bucket/lake"))
    assert configuration["spark.hadoop.fs.s3a.endpoint"] == store[0]
    assert "hadoop-aws" in configuration["spark.jars"]
    assert SECRET_OF_LAKES not in str(configuration)
