"""Files that a queue tells of: which are found, when a message is deleted, and what a listing finds besides."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from docs.examples import late_counts
from streaming import Files, Lake, Pipeline, SqsQueue, drain
from streaming.base import StreamingError
from streaming.base.errors import DeclarationError, SourceError
from streaming.sources import sqs_queue
from streaming.sources.announced_files import AnnouncedBacklog, AnnouncedFiles
from streaming.sources.sqs_queue import StoredObject, objects_put
from streaming.spark import FileInfo, announced
from streaming.spark.jars import add_storage
from streaming.tables import storage
from tests.streaming.sources.contract import SourceCase, SourceContract
from tests.support.feeds import readings
from tests.support.instants import NOW
from tests.support.killed import Killed, killed_at
from tests.support.notified_bucket import NotifiedBucket, new_notified_bucket
from tests.support.seeds import draws
from tests.support.waiting import until


@pytest.fixture(scope="module")
def endpoint(object_store_running: str) -> Iterator[str]:
    """The endpoint of the store, which the environment tells to this process."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {
            "AWS_ENDPOINT_URL": object_store_running,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "AKIA-OF-THE-STREAM",
            "AWS_SECRET_ACCESS_KEY": "of-the-stream",
        }.items():
            environment.setenv(name, value)
        yield object_store_running


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """This store has one server, so nobody need wait until all of them were asked."""
    monkeypatch.setattr(sqs_queue, "_WAITS", 0)


@pytest.fixture
def notified(endpoint: str) -> NotifiedBucket:
    return new_notified_bucket(endpoint)


CREATED = {"bucket": {"name": "b"}, "object": {"key": "in/a+b%2B%C3%A9.json", "size": 3}}
REMOVED = {"bucket": {"name": "b"}, "object": {"key": "in/old.json"}}
EVENT = {
    "Records": [
        {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "s3": CREATED},
        {"eventSource": "aws:s3", "eventName": "ObjectRemoved:Delete", "s3": REMOVED},
    ]
}


@pytest.mark.parametrize(
    ("body", "put"),
    [
        (EVENT, [StoredObject("b", "in/a b+é.json")]),
        ({"Type": "Notification", "Message": json.dumps(EVENT)}, [StoredObject("b", "in/a b+é.json")]),
        ({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"}, []),
        ({"Records": [{"eventName": "s3:ObjectCreated:Copy", "s3": CREATED}]}, [StoredObject("b", "in/a b+é.json")]),
        ({"Records": []}, []),
        ({"order": 17}, None),
        ({"Records": [{"eventName": "ObjectCreated:Put"}]}, None),
        ([1], None),
        ("no JSON", None),
        ({"Type": "Notification", "Message": "hello"}, None),
    ],
)
def test_an_event_tells_the_objects_that_were_put_and_what_is_none_is_told_apart(
    body: Any, put: list[StoredObject] | None
) -> None:
    assert objects_put(body if isinstance(body, str) else json.dumps(body)) == put


class Query:
    """The checkpoint of a query, as Spark would write it, and the files that it is to take."""

    def __init__(self, notified: NotifiedBucket, checkpoint: Path, **declared: Any) -> None:
        self.landing = f"s3://{notified.bucket.name}/in"
        self.queue = SqsQueue(notified.url, **declared)
        self.now = NOW
        self._checkpoint = str(checkpoint)
        self._batch = 0
        self.start()

    def start(self) -> None:
        """A process begins; nothing is in its memory."""
        self.files = AnnouncedFiles(self.queue, self.landing, self._checkpoint, ("*.json",), lambda: self.now)
        self.files.begin()

    def waiting(self) -> list[str]:
        return sorted(file.path.removeprefix("/in/") for file in self.files.waiting())

    def plan(self, *names: str) -> None:
        """Spark plans a batch."""
        times = [info.mtime_ns // 10**9 * 1_000 for info in storage.below(self.landing).get_file_info([*names])]
        lines = [
            json.dumps({"path": f"{self.landing}/{name}", "timestamp": at, "batchId": self._batch})
            for name, at in zip(names, times, strict=True)
        ]
        self._write(f"sources/0/{self._batch}", "v1", *lines)
        self._write(f"offsets/{self._batch}", "v1", "{}", json.dumps({"logOffset": self._batch}))

    def commit(self) -> None:
        """Spark notes that the batch is done, which the log has by then."""
        self._write(f"commits/{self._batch}", "v1", "{}")
        self._batch += 1

    def take(self, *names: str) -> None:
        """A batch from its plan to its end."""
        self.plan(*names)
        self.files.commit(self._batch)
        self.commit()

    def backlog(self) -> int:
        return AnnouncedBacklog(self.queue, self.landing, self._checkpoint, ("*.json",)).count().items

    def _write(self, name: str, *lines: str) -> None:
        storage.put_whole(f"{self._checkpoint}/{name}", "\n".join(lines).encode())


def test_a_message_is_deleted_once_the_batch_with_its_file_is_done_and_not_before(
    notified: NotifiedBucket, tmp_path: Path
) -> None:
    query = Query(notified, tmp_path)
    assert query.waiting() == []
    notified.put("in/a.json", b"1")
    notified.put("in/b.json", b"1")
    assert (query.waiting(), notified.messages, query.backlog()) == (["a.json", "b.json"], 2, 2)
    query.plan("a.json")
    assert (query.waiting(), notified.messages) == (["b.json"], 2), "planned, and in no log yet"
    query.files.commit(0)
    assert (query.waiting(), notified.messages) == (["b.json"], 1)
    query.commit()
    query.take("b.json")
    assert (query.waiting(), notified.messages, query.backlog()) == ([], 0, 0)


def test_a_message_whose_process_died_comes_again_and_its_file_is_taken_once(endpoint: str, tmp_path: Path) -> None:
    # Messages are there for all again at once, as they are for others when a process has died for long.
    notified = new_notified_bucket(endpoint, hidden=0)
    query = Query(notified, tmp_path)
    query.waiting()
    notified.put("in/a.json", b"1")
    notified.put("in/b.json", b"1")
    assert query.waiting() == ["a.json", "b.json"]
    query.start()
    assert query.waiting() == ["a.json", "b.json"]
    query.plan("a.json")
    # Spark plans what is new before it repeats the batch that the process before had begun.
    query.start()
    assert (query.waiting(), notified.messages) == (["b.json"], 2)
    query.commit()
    # The log has the batch, and the process died before it deleted the message.
    query.start()
    assert (query.waiting(), notified.messages) == (["b.json"], 1)


def test_messages_that_come_twice_late_or_in_another_order_double_nothing(
    notified: NotifiedBucket, tmp_path: Path
) -> None:
    query = Query(notified, tmp_path)
    query.waiting()
    for name in ("b c+é.json", "a.json"):
        notified.put(f"in/{name}", b"1", told=False)
    notified.send(*(notified.created(quote_plus(f"in/{name}")) for name in ("b c+é.json", "a.json", "b c+é.json")))
    assert query.waiting() == ["a.json", "b c+é.json"]
    query.take("a.json", "b c+é.json")
    assert notified.messages == 0
    notified.send(notified.created("in/a.json"), notified.created("in/a.json"))
    assert (query.waiting(), notified.messages) == ([], 0), "of what was taken long ago"


def test_a_file_that_is_put_again_under_its_name_after_it_was_read_is_told_and_read_no_more(
    notified: NotifiedBucket, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(notified, tmp_path)
    query.waiting()
    notified.put("in/a.json", b"1")
    assert query.waiting() == ["a.json"]
    query.take("a.json")
    notified.send(notified.created("in/a.json"))
    assert (query.waiting(), caplog.messages) == ([], []), "the same message once more"
    began = time.time()
    # The store tells of whole seconds.
    until(lambda: time.time() > began + 1, "another second")
    notified.put("in/a.json", b"corrected")
    assert (query.waiting(), notified.messages) == ([], 0)
    assert "Changed, or delivered again under the same name, after it was read: a.json" in caplog.text


def test_a_file_that_no_message_has_named_is_found_by_the_next_listing(
    notified: NotifiedBucket, tmp_path: Path
) -> None:
    query = Query(notified, tmp_path, listed_every="1 hour")
    notified.put("in/before.json", b"1", told=False)
    assert query.backlog() == 1, "nobody has listed yet"
    assert query.waiting() == ["before.json"]
    query.take("before.json")
    notified.put("in/lost.json", b"1", told=False)
    notified.put("in/told.json", b"1")
    query.now += timedelta(minutes=59)
    assert query.waiting() == ["told.json"]
    query.start()
    query.now += timedelta(seconds=30)
    assert "lost.json" not in query.waiting(), "a process that begins lists no earlier"
    query.now += timedelta(seconds=30)
    assert "lost.json" in query.waiting()
    # A process that dies before all of a listing is in batches leaves it to the next one.
    query.start()
    query.now += timedelta(seconds=1)
    assert "lost.json" in query.waiting()
    query.take("lost.json", "told.json")
    query.start()
    notified.put("in/lost as well.json", b"1", told=False)
    assert query.waiting() == []
    query.now += timedelta(hours=1)
    assert query.waiting() == ["lost as well.json"]


def test_what_concerns_no_file_of_the_source_is_deleted_and_what_is_somebody_elses_is_not(
    notified: NotifiedBucket, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(notified, tmp_path)
    query.waiting()
    for key in ("in/a.txt", "in/_done/a.json", "in/sub/.a.json", "inn/a.json", "a.json", "in/gone.json", "in/sub/"):
        notified.put(key, b"1")
    notified.delete("in/gone.json")
    notified.send({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": notified.bucket.name})
    notified.put("in/sub/a.json", b"1")
    assert (query.waiting(), notified.messages) == (["sub/a.json"], 1)
    notified.send("an order", notified.created("in/a.json", bucket="another"))
    assert (query.waiting(), notified.messages) == (["sub/a.json"], 3)
    assert "2 messages of " in caplog.text and "begins with 'an order'" in caplog.text


def test_files_are_in_order_of_the_stores_seconds_wherever_they_are_known_from(
    notified: NotifiedBucket, tmp_path: Path
) -> None:
    notified.put("in/b.json", b"1", told=False)
    query = Query(notified, tmp_path)
    (listed,) = query.files.waiting()
    notified.send(notified.created("in/b.json"))
    other = Query(notified, tmp_path / "other")
    storage.put_whole(f"{tmp_path}/other/listed.json", json.dumps({"at": 4102444800000000}).encode())
    other.start()
    assert other.files.waiting() == [listed] and listed.modified % 1000 == 0


def test_a_queue_that_is_not_there_is_named_with_what_to_do(notified: NotifiedBucket, tmp_path: Path) -> None:
    notified.queue.delete_queue(QueueUrl=notified.url)
    with pytest.raises(SourceError, match=r"the queue http://\S+ does not answer .*may receive and delete messages"):
        Query(notified, tmp_path).waiting()


def test_what_cannot_be_told_by_a_queue_is_refused(endpoint: str, tmp_path: Path) -> None:
    queue = SqsQueue("https://sqs.eu-central-1.amazonaws.com/123456789012/orders")
    with pytest.raises(SourceError, match="lies on no store that tells a queue of its files"):
        AnnouncedFiles(queue, str(tmp_path), str(tmp_path))
    for wrong in ("orders", "https://key:secret@host/orders"):
        with pytest.raises(DeclarationError, match="of SqsQueue"):
            SqsQueue(wrong)
    with pytest.raises(DeclarationError, match="now and then"):
        SqsQueue(queue.url, listed_every="now and then")
    with pytest.raises(DeclarationError, match="notified_by of Files"):
        Files("landing", notified_by="orders")  # type: ignore[arg-type]


def test_spark_lists_what_it_is_given_in_order_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    names = ["b.json", "a b+é\n.json", "c.json", "unseen.json"]
    for name in names:
        (tmp_path / name).write_text(name)
    given = [FileInfo(f"{tmp_path}/{name}", 5, modified) for name, modified in zip(names, (2, 2, 1), strict=False)]
    uri = announced(spark, str(tmp_path), "test", lambda: given)
    context: Any = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(uri)
    listed = path.getFileSystem(context._jsc.hadoopConfiguration()).listStatus(path)
    assert [(status.getPath().getName(), status.getModificationTime()) for status in listed] == [
        ("c.json", 1),
        ("a b+é\n.json", 2),
        ("b.json", 2),
    ]


@pytest.fixture(scope="module")
def session(spark: SparkSession, endpoint: str) -> SparkSession:
    """The session of this process, which knows the store from now on."""
    add_storage(spark, "s3://any")
    hadoop: Any = spark.sparkContext
    for name, variable in (("access", "AWS_ACCESS_KEY_ID"), ("secret", "AWS_SECRET_ACCESS_KEY")):
        hadoop._jsc.hadoopConfiguration().set(f"fs.s3a.{name}.key", os.environ[variable])
    return spark


class NotifiedFilesCase(SourceCase):
    def __init__(self, notified: NotifiedBucket) -> None:
        path = f"s3://{notified.bucket.name}/in"
        self.source = Files(path, files_per_batch=2, notified_by=SqsQueue(notified.url))
        self.extracts = replace(self.source, files_per_batch=1)
        self._notified = notified
        self._number = 0

    def deliver(self, *payloads: bytes) -> str:
        self._number += 1
        # Of one second, in which the name orders them.
        name = f"{self._number:03}.txt"
        self._notified.put(f"in/{name}", b"".join(payload + b"\n" for payload in payloads))
        return name

    def change(self, name: str) -> None:
        self._notified.put(f"in/{name}", self._notified.bucket.content(f"in/{name}", "") + b"more\n")

    def lose(self, name: str) -> None:
        self._notified.delete(f"in/{name}")

    def remove(self) -> None:
        for key in self._notified.bucket.names(""):
            self._notified.delete(key)


@pytest.mark.long
class TestNotifiedFiles(SourceContract):
    @pytest.fixture
    def case(self, session: SparkSession, notified: NotifiedBucket) -> NotifiedFilesCase:
        return NotifiedFilesCase(notified)


def ids(lake: Lake, pipeline: Pipeline) -> list[str]:
    return sorted(DeltaTable(lake.log(pipeline.stream)).to_pyarrow_table()["id"].to_pylist())


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1])
def test_each_file_is_in_the_log_once_whatever_is_killed_lost_doubled_and_mixed_up(
    session: SparkSession, lake: Lake, endpoint: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = draws(f"notified files {seed}")
    notified = new_notified_bucket(endpoint, hidden=0)
    source = Files(
        f"s3://{notified.bucket.name}/in", files_per_batch=2, notified_by=SqsQueue(notified.url, "2 seconds")
    )
    stream = replace(late_counts.readings, source=source)
    pipeline = Pipeline(stream, (replace(late_counts.count_by_sensor, of=stream),))
    put: list[str] = []
    for _ in range(5):
        told = []
        for _ in range(3):
            name = f"f{len(put):02}"
            put.append(name)
            kind = chance.choice(("told", "told", "doubled", "lost"))
            content = json.dumps(readings(f"{name}@{len(put)}")[0]).encode()
            notified.put(f"in/{name}.json", content, told=kind == "told")
            told += [notified.created(f"in/{name}.json")] * (2 if kind == "doubled" else 0)
        chance.shuffle(told)
        notified.send(*told, notified.created(f"in/{chance.choice(put)}.json"))
        with monkeypatch.context() as patched, suppress(Killed, StreamingError):
            if chance.random() < 0.7:
                killed_at(chance.randint(1, 4), patched)
            drain(session, lake, pipeline, now=lambda: NOW)
    marker = f"{stream.source.checkpoint(lake.checkpoint(stream, 'log'), {})}/listed.json"
    storage.remove(marker)
    drain(session, lake, pipeline, now=lambda: NOW)
    assert ids(lake, pipeline) == put
    assert notified.messages == 0
    assert source.backlog(lake, lake.checkpoint(stream, "log"))({}).items == 0
