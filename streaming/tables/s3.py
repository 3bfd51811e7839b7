"""The addresses that lie on S3, and where the store is, as the environment says.

Four libraries go there: Hadoop's client in Spark, delta-rs, Arrow and obstore. All of them find endpoint, region and
credentials in the variables `AWS_*` or by the identity of the machine; nothing here holds or hands on a credential.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyarrow import fs

from streaming.base import SettingsError, StoreError, needs

if TYPE_CHECKING:
    from obstore.store import ObjectStore

HADOOP_CLIENT = "org.apache.hadoop.fs.s3a.S3AFileSystem"
"""The class of Hadoop's client."""
_SCHEMES = ("s3", "s3a")
_SAID = re.compile(r"<Code>([^<]*)</Code>.*?<Message>([^<]*)</Message>", re.DOTALL)
_DRAWN = re.compile(r"\x1b\[[0-9;]*m|\u21b3")
_OF_SMALL_STORES = "us-east-1"
"""The region that stores of one's own expect of clients that must name one."""


def on_s3(uri: str) -> bool:
    """True if a path or URI lies on S3; `s3://` and Hadoop's `s3a://` are the same place."""
    return urlsplit(uri).scheme in _SCHEMES


def location(uri: str) -> str:
    """The URI as delta-rs, Arrow and obstore know it: Hadoop's name for S3 is another one."""
    return "s3://" + uri.removeprefix("s3a://") if uri.startswith("s3a://") else uri


def endpoint() -> str | None:
    """The address of the store, None for Amazon's own."""
    return os.environ.get("AWS_ENDPOINT_URL") or None


def check_endpoint() -> None:
    """Refuse an address that no client would take, or not every one.

    Raises:
        SettingsError: it is none, has a credential in it, or would be plain HTTP unasked.
    """
    given = endpoint()
    if given is None:
        return
    address = urlsplit(given)
    named = f"{address.scheme}://{address.netloc.rpartition('@')[2]}"
    if address.scheme not in ("http", "https") or not address.hostname or "@" in address.netloc:
        raise SettingsError(
            f"AWS_ENDPOINT_URL ({named}) is no address of a store; write https://host:port, and give credentials in "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    if address.scheme == "http" and os.environ.get("AWS_ALLOW_HTTP", "").lower() not in ("true", "1"):
        raise SettingsError(
            f"AWS_ENDPOINT_URL={named} is plain HTTP, which anybody on the way can read; use https://, or set "
            "AWS_ALLOW_HTTP=true where the network is your own."
        )


def region() -> str | None:
    """The region, None where the environment names none and the machine is asked for its own."""
    given = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return given or (_OF_SMALL_STORES if endpoint() else None)


def hadoop_settings() -> Mapping[str, str]:
    """The settings of the store for Spark; credentials reach it by the environment of its own processes alone."""
    where, place = endpoint(), region()
    settings = {
        "fs.s3.impl": HADOOP_CLIENT,
        "fs.AbstractFileSystem.s3.impl": HADOOP_CLIENT.removesuffix("FileSystem"),
        # Folders are no objects there: looking whether one is in the way of each new file doubles the requests.
        "fs.s3a.performance.flags": "create,mkdir,delete",
    }
    if where is not None:
        settings |= {"fs.s3a.endpoint": where, "fs.s3a.path.style.access": "true"}
    if place is not None:
        settings["fs.s3a.endpoint.region"] = place
    return {f"spark.hadoop.{name}": value for name, value in settings.items()}


def file_system() -> fs.FileSystem:
    """Arrow's client of the store.

    Raises:
        SettingsError: as `check_endpoint` says.
    """
    check_endpoint()
    return _client(endpoint(), region())


@cache
def _client(where: str | None, place: str | None) -> fs.FileSystem:
    # A small file is one request, not the three of an upload in parts.
    return fs.S3FileSystem(
        endpoint_override=where, region=place, allow_delayed_open=True, request_timeout=60, connect_timeout=5
    )


def object_store(uri: str) -> tuple[ObjectStore, str]:
    """A client that asks for single objects, for the bucket of a URI, and the object's key.

    Raises:
        SettingsError: as `check_endpoint` says.
    """
    check_endpoint()
    bucket, _, key = location(uri).removeprefix("s3://").partition("/")
    return _objects_of(bucket, endpoint(), region()), key


@cache
def _objects_of(bucket: str, where: str | None, place: str | None) -> ObjectStore:
    needs("obstore", "a lake on S3")
    from obstore.store import from_url

    given: dict[str, Any] = {"endpoint": where, "region": place}
    config: Any = {option: value for option, value in given.items() if value is not None}
    client: Any = {"timeout": "20 seconds", "connect_timeout": "5 seconds"}
    if where is not None and where.startswith("http://"):
        client["allow_http"] = True
    return from_url(f"s3://{bucket}", config=config, client_options=client)


def read_object(uri: str) -> tuple[bytes, str | None] | None:
    """The content of an object and how the store names that version of it, by one request; None where there is none.

    Raises:
        StoreError: the store is away, or refuses.
    """
    from obstore.exceptions import BaseError

    store, key = object_store(uri)
    try:
        response = store.get(key)
        return bytes(response.bytes()), response.meta["e_tag"]
    except FileNotFoundError:
        return None
    except BaseError as error:
        raise store_error(uri, error) from None


@contextmanager
def reaching(uri: str) -> Iterator[None]:
    """Turn what the body cannot do on S3 into a `StoreError` that says what to look at; elsewhere nothing changes.

    Raises:
        StoreError: the store is away, or refuses; a file that is not there is as before.
    """
    try:
        yield
    except (FileNotFoundError, StoreError):
        raise
    except OSError as error:
        if not on_s3(uri):
            raise
        raise store_error(uri, error) from None


def store_error(uri: str, error: Exception) -> StoreError:
    """The error for what the store, or a client of it, says of a request: without the request, which is signed."""
    text = _DRAWN.sub("", str(error))
    match = _SAID.search(text)
    # Behind it obstore prints the error as it is in its memory, whose last line is a bracket.
    text = text.partition("\n\nDebug source:")[0]
    last = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    why = f"{match[1]}: {match[2].rstrip('.')}" if match else re.sub(r"https?://\S+", "the store", last[-1])[:200]
    return StoreError(
        f"{uri} cannot be reached ({why}): check that the bucket is there, that AWS_REGION, AWS_ENDPOINT_URL and "
        "credentials are right, and that these may read and write there. Nothing was changed."
    )
