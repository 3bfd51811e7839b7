"""Batches as objects of a store that speaks S3: whole, once, under names that only the batch decides."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from streaming import Lake
from streaming.base.errors import DeclarationError, SinkError
from streaming.sinks.objects import Objects
from streaming.sinks.sink import Delivered, NumberedBatch
from tests.streaming.sinks.contract import LAWS, Arrivals, batch, deliver
from tests.support.object_store import CREDENTIALS, SECRET, Bucket, Front, credentials, front

NOWHERE = Lake("/nowhere")


def numbers(bucket: Bucket) -> list[int]:
    """The numbers in all objects, in the order of their keys."""
    rows: list[dict[str, Any]] = []
    for key in bucket.names():
        content = bucket.content(key)
        if key.endswith(".parquet"):
            rows += pq.read_table(io.BytesIO(content)).to_pylist()
        else:
            rows += [json.loads(line) for line in content.splitlines()]
    return [row["number"] for row in rows]


def put(target: Objects, delivered: NumberedBatch) -> None:
    deliver(target.connect(NOWHERE, Delivered("numbers/all")), delivered)


@pytest.fixture
def refusing(bucket: Bucket) -> Iterator[Front]:
    """A front of the bucket's store."""
    with front(bucket.endpoint) as standing:
        yield standing


def behind(refusing: Front, bucket: Bucket) -> Objects:
    """The target by way of the front."""
    return Bucket(refusing.endpoint, bucket.name).objects()


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_objects_keep_the_contract_of_targets(kind: str, law: Callable[[Arrivals], None], bucket: Bucket) -> None:
    law(Arrivals(bucket.objects(format=kind), NOWHERE, lambda: numbers(bucket)))


def test_objects_lie_by_hour_and_none_is_larger_than_its_bound_says(bucket: Bucket) -> None:
    put(bucket.objects(by="hour", prefix="part-", bytes_per_file=20), batch(7, 1, 2, 2, 2))
    assert bucket.names() == [
        "2026-01-01--01/part-numbers-all-0-0000000007-0.json",
        "2026-01-01--02/part-numbers-all-0-0000000007-0.json",
        "2026-01-01--02/part-numbers-all-0-0000000007-1.json",
    ]
    assert [bucket.content(key).count(b"\n") for key in bucket.names()] == [1, 2, 1]
    assert json.loads(bucket.content("_delivered/numbers-all.json")) == {"generation": 0, "batch": 7, "identity": ""}


def test_a_bucket_that_is_not_there_is_waited_for_and_told(bucket: Bucket) -> None:
    missing = Bucket(bucket.endpoint, f"{bucket.name}-later")
    with pytest.raises(SinkError, match=rf"s3://{missing.name}/out: nothing can be put, .* Create it"):
        put(missing.objects(), batch(0, 1))
    missing.create()
    put(missing.objects(), batch(0, 1))
    assert numbers(missing) == [1]


def test_a_store_that_gives_no_permission_is_waited_for_and_told(bucket: Bucket, refusing: Front) -> None:
    refusing.answer = lambda request: (403, "AccessDenied", "Access Denied") if request.method == "PUT" else None
    with pytest.raises(SinkError, match=r"may not be put with these credentials \(AccessDenied: Access Denied\.\) Gra"):
        put(behind(refusing, bucket), batch(0, 1))
    refusing.answer = lambda request: None
    put(behind(refusing, bucket), batch(0, 1))
    assert numbers(bucket) == [1]


def test_a_store_that_goes_away_in_mid_batch_gets_the_rest_later_and_nothing_twice(
    bucket: Bucket, refusing: Front
) -> None:
    target = Bucket(refusing.endpoint, bucket.name).objects(by="hour")
    rows = batch(0, 1, 2, 27)
    refusing.answer = lambda request: (503, "SlowDown", "Slow.") if "--02/" in request.path else None
    with pytest.raises(SinkError, match=r"is away: SlowDown"):
        put(target, rows)
    assert numbers(bucket) == [1]
    refusing.answer = lambda request: None
    put(target, rows)
    assert numbers(bucket) == [1, 2, 27]


def test_a_store_that_nobody_answers_for_is_away(bucket: Bucket) -> None:
    with pytest.raises(SinkError, match=r"s3://b/out is away: .* The batch is sent again by itself\."):
        put(Bucket("http://127.0.0.1:1", "b").objects(), batch(0, 1))


def test_nothing_is_left_of_a_batch_that_was_given_up_or_cut_into_other_objects(
    bucket: Bucket, refusing: Front
) -> None:
    """The second object of a batch is not put, and the delivery is begun anew; then other folders are declared."""
    refusing.answer = lambda request: (503, "SlowDown", "Slow.") if "--02/" in request.path else None
    with pytest.raises(SinkError):
        put(Bucket(refusing.endpoint, bucket.name).objects(by="hour"), batch(0, 1, 2))
    assert numbers(bucket) == [1]
    put(bucket.objects(by="hour"), batch(0, 3, generation=1))
    assert numbers(bucket) == [3]
    put(bucket.objects(by="none"), batch(0, 3, generation=1))
    assert bucket.names() == ["numbers-all-1-0000000000-0.json"]


def test_a_process_that_slept_removes_nothing_of_the_one_that_took_over(bucket: Bucket) -> None:
    put(bucket.objects(), batch(0, 1))
    slept = bucket.objects(by="none").connect(NOWHERE, Delivered("numbers/all"))
    put(bucket.objects(), batch(1, 2))
    deliver(slept, batch(0, 1))
    assert sorted(numbers(bucket)) == [1, 1, 2], "its own batch, elsewhere, as its declaration says"
    assert json.loads(bucket.content("_delivered/numbers-all.json"))["batch"] == 1


def test_credentials_are_in_no_declaration_and_in_no_error(bucket: Bucket, refusing: Front) -> None:
    key, secret = credentials().values()
    target = behind(refusing, bucket)
    refusing.answer = lambda request: (403, "SignatureDoesNotMatch", "The signature does not match.")
    with pytest.raises(SinkError) as error:
        put(target, batch(0, 1))
    for text in (repr(target), target.address, str(error.value), str(error.value.__cause__)):
        assert secret not in text
        assert key not in text


def test_a_variable_that_is_not_set_is_told(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SECRET)
    with pytest.raises(SinkError, match=f"option 'secret_access_key' is to be in {SECRET}, which is not set; set it"):
        bucket.objects().connect(NOWHERE, Delivered("numbers/all"))


def test_an_option_that_no_store_knows_is_told(bucket: Bucket) -> None:
    with pytest.raises(SinkError, match=r"cannot be opened .* with the options .*colour.*; correct"):
        bucket.objects(options={"colour": "red"}).connect(NOWHERE, Delivered("numbers/all"))


def test_a_folder_is_a_store_as_well(tmp_path: Path) -> None:
    put(Objects(f"file://{tmp_path}/out", by="none"), batch(0, 1, 2))
    (path,) = Path(tmp_path, "out").glob("*.json")
    assert [json.loads(line)["number"] for line in path.read_text().splitlines()] == [1, 2]


def test_dagster_shows_whose_store_it_is() -> None:
    urls = ("s3://b/p", "gs://b/p", "abfss://container@account.dfs.core.windows.net/p")
    assert [Objects(url).kind for url in urls] == ["s3", "gcs", "azure"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"path": "exports/orders"}, "is no URL of an object store"),
        ({"path": "https://host/b"}, "'https://host/b' of Objects is no URL of an object store; write 's3://bucket"),
        ({"path": "s3:///prefix"}, "is no URL of an object store"),
        ({"path": "s3://me:hunter2@b/p"}, "has more in it than a place"),
        ({"path": "s3://b/p?token=hunter2"}, "has more in it than a place"),
        ({"path": "s3://me:hun/hunter2@b/p"}, "the URL 's3://b/p' of Objects has more in it than a place"),
        ({"path": "https://me:hun/hunter2@b/p"}, "'https://b/p' of Objects is no URL of an object store"),
        ({"endpoint": "http://me:hunter2@store"}, "the endpoint of Objects has a user or password in it"),
        ({"endpoint": "http://me:hun/hunter2@store"}, "the endpoint of Objects has a user or password in it"),
        ({"options": {"secret_access_key": "hunter2"}}, "option 'secret_access_key' of Objects is secret"),
        ({"options": {"aws_access_key_id": "hunter2"}}, "option 'aws_access_key_id' of Objects is secret"),
        ({"format": "orc"}, "format='orc' of Objects is none; use json, csv, parquet"),
        ({"by": "week"}, "by='week' is no way to sort files"),
    ],
)
def test_what_cannot_be_a_store_is_refused_and_no_secret_repeated(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(DeclarationError, match=reason) as error:
        Objects(**{"path": "s3://bucket/out", **given})
    assert "hunter2" not in str(error.value)


def test_a_store_that_the_environment_names_is_spoken_to_in_plain_http_only_where_that_is_allowed(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = Objects(f"s3://{bucket.name}/out", secret_options=CREDENTIALS)
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.endpoint)
    with pytest.raises(SinkError, match=r"plain HTTP, .* set AWS_ALLOW_HTTP=true"):
        named.open()
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    named.open().put("a", b"1")
    assert bucket.content("a") == b"1"
