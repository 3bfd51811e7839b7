"""A store that speaks S3, and a bucket of it, for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.object_store import Bucket, new_bucket, store_of_lakes


@pytest.fixture(scope="module")
def store() -> Iterator[tuple[str, Path]]:
    """The store and its log."""
    with store_of_lakes() as running:
        yield running


@pytest.fixture(scope="module")
def bucket_of_lake(store: tuple[str, Path]) -> Bucket:
    return new_bucket(store[0])
