"""Files that are counted for an answer are those of the tables that it names."""

from __future__ import annotations

import pytest

from streaming.provenance.log_rows import files_below


@pytest.mark.parametrize("root", ["/lake", "/lake/", "file:/lake", "file:///lake"])
@pytest.mark.parametrize("written", ["/lake", "file:/lake", "file:///lake"])
def test_files_of_other_tables_are_not_counted_however_the_address_is_written(root: str, written: str) -> None:
    paths = [f"{written}/{file}" for file in ("orders/day=1/a.parquet", "orders_old/b.parquet", "customers/c.parquet")]
    assert files_below([f"{root.rstrip('/')}/orders"], paths) == {"/lake/orders/day=1/a.parquet"}
    assert files_below([f"{root.rstrip('/')}/orders/"], paths) == {"/lake/orders/day=1/a.parquet"}


def test_a_file_is_counted_once_and_none_where_no_table_is_named() -> None:
    assert files_below(["/lake/t", "/lake"], ["file:/lake/t/a", "file:///lake/t/a"]) == {"/lake/t/a"}
    assert files_below([], ["file:/lake/t/a"]) == set()


def test_a_store_is_the_same_by_the_scheme_of_hadoop() -> None:
    assert files_below(["s3://bucket/t"], ["s3a://bucket/t/a", "s3a://bucket/u/a"]) == {"s3://bucket/t/a"}
