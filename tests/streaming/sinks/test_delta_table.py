"""Delta tables of others, on S3, and with somebody else at work in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from streaming import DeltaTable, Lake
from streaming.base.errors import DeclarationError, SinkError
from streaming.sinks.sink import REVISION, Delivered, NumberedBatch, RefusedRow
from streaming.sinks.table_rows import Bounds
from streaming.tables import delta, files_added
from tests.streaming.sinks.contract import LAWS, TRANSACTIONAL_LAWS, Arrivals, batch, deliver
from tests.support.object_store import Bucket
from tests.support.tables_of_files import DeltaPlace


@pytest.fixture
def place(lake: Lake) -> DeltaPlace:
    return DeltaPlace(lake)


def send(place: DeltaPlace, number: int, *given: dict[str, Any], key: tuple[str, ...] = ()) -> list[RefusedRow]:
    sink = place.target(key=key).connect(place.lake, Delivered("shop/all", "here", key))
    return deliver(sink, NumberedBatch("shop/all", 0, number, pa.Table.from_pylist(list(given))))


def row(id_: int, name: str, revision: int = 0) -> dict[str, Any]:
    return {"id": id_, "name": name, REVISION: revision}


@contextmanager
def on_store(endpoint: str) -> Iterator[None]:
    """This process knows the store as lakes do."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "AKIA-OF-THE-LAKE",
            "AWS_SECRET_ACCESS_KEY": "hunter2",
        }.items():
            environment.setenv(name, value)
        yield


@pytest.fixture
def stored(bucket: Bucket) -> Iterator[DeltaPlace]:
    """A table in a bucket."""
    with on_store(bucket.endpoint):
        yield DeltaPlace(Lake("/nowhere"), f"s3://{bucket.name}/numbers")


@pytest.mark.parametrize("law", [*LAWS, *TRANSACTIONAL_LAWS], ids=lambda law: law.__name__)
def test_tables_on_s3_keep_the_contract_of_targets(law: Callable[[Arrivals], None], stored: DeltaPlace) -> None:
    law(Arrivals(stored.target(key=("number",)), stored.lake, lambda: [row[0] for row in stored.rows("number")]))


def test_a_bucket_that_is_not_there_is_waited_for_and_told_without_what_is_secret(bucket: Bucket) -> None:
    later = Bucket(bucket.endpoint, f"{bucket.name}-later")
    place = DeltaPlace(Lake("/nowhere"), f"s3://{later.name}/numbers")
    with on_store(bucket.endpoint):
        with pytest.raises(SinkError, match=r"cannot be reached \(NoSuchBucket.* sent again by itself\.") as error:
            deliver(place.target().connect(place.lake, Delivered("numbers/all")), batch(0, 1))
        assert "AKIA" not in str(error.value)
        later.create()
        deliver(place.target().connect(place.lake, Delivered("numbers/all")), batch(0, 1))
        assert place.rows("number") == [(1,)]


def test_a_table_of_somebody_else_is_taken_where_it_fits_and_keeps_its_rows(place: DeltaPlace) -> None:
    there = pa.table({"name": ["x", "old"], "id": pa.array([1, 2], pa.int64()), "more": [0.5, 0.25]})
    deltalake.write_deltalake(place.lake.path(place.uri), there)
    send(place, 0, row(2, "new"), row(3, "new"), key=("id",))
    assert place.rows("id", "name", "more", REVISION) == [(1, "x", 0.5, None), (2, "new", None, 0), (3, "new", None, 0)]


def test_a_row_without_a_value_that_the_table_asks_for_is_put_aside_and_the_others_arrive(place: DeltaPlace) -> None:
    there = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string(), nullable=False)])
    deltalake.DeltaTable.create(place.lake.path(place.uri), there)
    nobody: dict[str, Any] = {"id": 2, "name": None, REVISION: 0}
    (refused,) = send(place, 0, row(1, "a"), nobody, row(3, "c"))
    assert (refused.position, "the column 'name' is null, and the table takes no null" in refused.error) == (1, True)
    assert place.rows("id", "name") == [(1, "a"), (3, "c")]


NAMES = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"partition_by": ["name"]}, "is partitioned by name, so rows cannot be written to it as they are here"),
        ({"configuration": {"delta.appendOnly": "true"}}, "has the property delta.appendOnly"),
        ({"configuration": {"delta.enableChangeDataFeed": "true"}}, "has the property delta.enableChangeDataFeed"),
        ({"configuration": {delta.PROPERTY: "1"}, "raise_if_key_not_exists": False}, "is a table of a lake"),
        ({"configuration": {"delta.enableDeletionVectors": "true"}}, "has the features deletionVectors"),
    ],
)
def test_a_table_that_rows_cannot_be_replaced_in_is_refused_in_words(
    given: dict[str, Any], reason: str, place: DeltaPlace
) -> None:
    table = deltalake.DeltaTable.create(place.lake.path(place.uri), NAMES, **given)
    with pytest.raises(SinkError, match=reason):
        send(place, 0, row(1, "a"), key=("id",))
    assert (place.open().version(), place.open().file_uris()) == (table.version(), [])


def test_a_table_with_a_constraint_is_refused_and_one_that_is_only_appended_to_is_appended_to(
    place: DeltaPlace,
) -> None:
    appended = DeltaPlace(place.lake, "out/appended")
    configuration = {"delta.appendOnly": "true"}
    deltalake.DeltaTable.create(place.lake.path(appended.uri), NAMES, configuration=configuration)
    send(appended, 0, row(1, "a"))
    assert appended.rows("id", "name") == [(1, "a")]
    deltalake.DeltaTable.create(place.lake.path(place.uri), NAMES).alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(SinkError, match=r"has the property delta\.constraints\.positive"):
        send(place, 0, row(-1, "a"))


def test_a_column_whose_name_delta_does_not_take_is_refused_in_words(place: DeltaPlace) -> None:
    with pytest.raises(SinkError, match=r"the column 'the name' has ' ' in its name, which Delta takes in none"):
        send(place, 0, {"the name": 1, REVISION: 0})
    send(place, 0, row(1, "a"))
    with pytest.raises(SinkError, match=r"the column 'the name' has ' ' in its name"):
        send(place, 1, {**row(1, "a"), "the name": 1})


def test_what_somebody_else_writes_meanwhile_is_replaced_too(place: DeltaPlace) -> None:
    """Between the look at the table and the commit, a row of the same key comes in, older or newer than the batch's."""
    send(place, 0, row(1, "first"), row(2, "first"), key=("id",))
    sink = place.target(key=("id",)).connect(place.lake, Delivered("shop/all", "here", ("id",)))
    looks = 0

    def meanwhile(refused: object) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            rows = pa.table(
                {"id": pa.array([3, 4], pa.int64()), "name": ["theirs"] * 2, REVISION: pa.array([0, 9], pa.int64())}
            )
            deltalake.write_deltalake(place.open(), rows, mode="append")

    rows = pa.Table.from_pylist([row(id_, "second", 1) for id_ in (2, 3, 4)])
    sink.deliver(NumberedBatch("shop/all", 0, 1, rows), meanwhile)
    assert place.rows("id", "name") == [(1, "first"), (2, "second"), (3, "second"), (4, "theirs")]
    assert looks == 2


@pytest.mark.parametrize("key", [(), ("id",)])
def test_of_two_processes_that_have_both_looked_the_second_leaves_the_batch_of_the_first(
    key: tuple[str, ...], place: DeltaPlace
) -> None:
    target = place.target(key=key)
    rows = NumberedBatch("shop/all", 0, 0, pa.Table.from_pylist([row(1, "a")]))
    delivered = Delivered("shop/all", "here", key)
    deliver(target.connect(place.lake, delivered), rows)
    follows = NumberedBatch("shop/all", 0, 1, pa.Table.from_pylist([row(2, "b")]))

    def meanwhile(refused: object) -> None:
        deliver(target.connect(place.lake, delivered), follows)

    target.connect(place.lake, delivered).deliver(follows, meanwhile)
    assert place.rows("id", "name") == [(1, "a"), (2, "b")]
    assert place.open().version() == 2


def test_files_without_a_key_of_the_batch_are_not_read(place: DeltaPlace) -> None:
    for number in range(3):
        send(place, number, row(10 * number, "a"), row(10 * number + 9, "b"), key=("id",))
    table = place.target().connect(place.lake, Delivered("shop/all", "here")).open()  # type: ignore[attr-defined]
    assert [len(table.files(Bounds("id", *ends))) for ends in ((0, 5), (9, 10), (30, 40), (-5, 40))] == [1, 2, 0, 3]
    assert len(table.files(Bounds("name", "c", "d"))) == 3, "nobody knows the bounds of what is no key"


def test_the_files_of_a_table_are_listed_once_for_a_batch(place: DeltaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.sinks.table_sink._MOST_SMALL", 1)
    listed = 0

    def noted(table: deltalake.DeltaTable) -> pa.Table:
        nonlocal listed
        listed += 1
        return files_added(table)

    monkeypatch.setattr("streaming.sinks.delta_table_sink.files_added", noted)
    for number in range(3):
        send(place, number, row(number, "a"), key=("id",))
    assert listed == 3


def test_each_commit_says_which_batch_it_is(place: DeltaPlace) -> None:
    send(place, 0, row(1, "a"))
    newest, *_ = place.open().history()
    assert newest["userMetadata"] == '{"delivery": "shop/all", "generation": 0, "batch": 0, "rows": 1}'
    assert place.open().transaction_version("tidemark:shop/all/0") == 0


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"uri": ""}, "uri='' of DeltaTable names no place"),
        ({"uri": "s3://key:secret@bucket/x"}, "the uri s3://bucket/x of DeltaTable has more in it than a place"),
        ({"uri": "s3://key:sec/ret@bucket/x"}, "the uri s3://bucket/x of DeltaTable has more in it than a place"),
        ({"uri": "s3://key:secret*@bucket/x"}, "the uri s3://bucket/x of DeltaTable has more in it than a place"),
        ({"uri": "s3://[bucket/x"}, r"uri='s3://\[bucket/x' of DeltaTable contains '\['"),
        ({"uri": "exports/100%"}, "uri='exports/100%' of DeltaTable contains '%'"),
        ({"mode": "merge"}, "mode='merge' of DeltaTable 'x' is unknown; use one of: 'upsert', 'append'"),
        ({"mode": "append", "key": ("id",)}, "asks for one row of a key, and mode='append' for every row"),
        ({"key": "id"}, "key of DeltaTable 'x' is 'id', a str; write a tuple of columns"),
    ],
)
def test_what_is_no_table_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(DeclarationError, match=reason) as error:
        DeltaTable(**{"uri": "x", **given})
    assert "secret" not in str(error.value) and "ret@" not in str(error.value)
