"""The format of a table on disk: written when it is created, and refused where it is newer than what is known."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from quality.verdicts import write_rows
from streaming.base import DISTRIBUTION, RELEASE, FormatError
from streaming.tables import delta
from streaming.tables.delta import FORMAT, PROPERTY

ROWS = pa.table({"id": ["a"]})
NEXT = FORMAT + 1


def test_a_table_has_the_format_of_the_release_that_creates_it_and_keeps_it(tmp_path: Path) -> None:
    uri = str(tmp_path / "verdicts")
    for _ in range(2):
        write_deltalake(delta.opened_or_created(uri, ROWS.schema, description=""), ROWS, mode="overwrite")
    assert DeltaTable(uri).metadata().configuration[PROPERTY] == str(FORMAT)


def test_a_table_without_a_format_is_of_the_first_one_and_is_read(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), ROWS)
    assert delta.contents(delta.opened(str(tmp_path))) == ROWS


def test_tables_up_to_the_format_of_this_release_are_opened(tmp_path: Path) -> None:
    for number in range(1, FORMAT + 1):
        uri = str(tmp_path / str(number))
        delta.opened_or_created(uri, ROWS.schema, description="", properties={PROPERTY: str(number)})
        assert delta.opened(uri).version() == 0


@pytest.mark.parametrize("number", [str(NEXT), "next"])
@pytest.mark.parametrize(
    "use",
    [
        delta.opened,
        delta.open_table,
        delta.version_of,
        delta.schema_of,
        lambda uri: delta.note(uri, says={}, numbers={}),
        lambda uri: write_rows(uri, ROWS, "append", metadata={}, description=""),
    ],
)
def test_a_newer_format_is_refused_wherever_the_table_is_opened_and_nothing_is_changed(
    tmp_path: Path, use: Callable[[str], object], number: str
) -> None:
    uri = str(tmp_path / "orders" / "log")
    DeltaTable.create(uri, ROWS.schema, configuration={PROPERTY: number}, raise_if_key_not_exists=False)
    with pytest.raises(FormatError) as refused:
        use(uri)
    error = refused.value
    assert (error.table, error.value, error.known) == (uri, number, FORMAT)
    for part in (repr(uri), f"format {number}", f"Tidemark {RELEASE}", f"up to {FORMAT}", f"--upgrade {DISTRIBUTION}"):
        assert part in str(error)
    assert DeltaTable(uri).version() == 0
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
