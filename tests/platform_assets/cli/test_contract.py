"""`tidemark contract`: a contract is written of what is declared, and tells what a changed one breaks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from platform_assets.cli import context
from streaming.lake import Lake
from tests.platform_assets.conftest import Tidemark, Typed
from tests.support.written_lake import write_flights

ORDERS = Path(__file__).parents[2] / "support" / "contracts" / "orders.odcs.yaml"
Document = dict[str, Any]


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "start_quietly", lambda **_: pytest.fail("Spark was started"))


@pytest.fixture
def exported(typed: Typed, tmp_path: Path) -> Callable[..., Path]:
    """Writes the contract of a stream or view to a file, with a change."""

    def export(name: str, change: Callable[[Document], object] = lambda _: None) -> Path:
        code, out, _ = typed(f"contract export {name}")
        assert code == 0
        document = yaml.safe_load(out)
        change(document)
        path = tmp_path / f"{name}.odcs.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    return export


def without_column(name: str) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        table = document["schema"][0]
        table["properties"] = [each for each in table["properties"] if each["name"] != name]
        table["quality"] = [each for each in table["quality"] if name not in each["query"]]

    return change


def test_a_contract_that_is_written_of_a_stream_asks_for_what_the_stream_does(
    tidemark: Tidemark, exported: Callable[..., Path]
) -> None:
    code, out = tidemark(f"contract check {exported('flights')} flights")
    assert code == 0
    assert "11 columns, 5 rules, 0 checks; against stream 'flights' of pipeline 'flights'" in out
    assert out.endswith("They ask for the same.")


def test_a_column_that_is_gone_ends_with_3_and_names_the_views_and_reports_that_read_it(
    tidemark: Tidemark, exported: Callable[..., Path]
) -> None:
    code, out = tidemark(f"contract check {exported('flights', without_column('dep_delay'))} flights")
    assert code == 3
    assert "breaks readers: column 'dep_delay' is gone" in out
    assert "view departures_by_origin of flights: " in out
    assert "report on_time_performance of flights: it reads 'departures_by_origin'" in out
    # Nobody reads this one, and whoever reads the log may.
    code, out = tidemark(f"contract check {exported('flights', without_column('air_time'))} flights")
    assert code == 3 and "column 'air_time' is gone" in out and "view" not in out


def test_what_is_new_and_may_be_null_breaks_nobody(tidemark: Tidemark, exported: Callable[..., Path]) -> None:
    note = {"name": "note", "logicalType": "string"}
    path = exported("flights", lambda document: document["schema"][0]["properties"].append(note))
    code, out = tidemark(f"contract check {path} flights")
    assert code == 0 and "breaks nobody: column 'note' string is new" in out


def test_two_files_are_compared_and_the_document_has_it_all(typed: Typed, tmp_path: Path) -> None:
    newer = tmp_path / "newer.odcs.yaml"
    newer.write_text(ORDERS.read_text().replace("value: 4", "value: 6").replace("version: 2.1.0", "version: 3.0.0"))
    code, out, _ = typed(f"contract check {newer} --against {ORDERS} --json")
    document = json.loads(out)
    assert code == 3
    assert (document["id"], document["version"], document["against"]) == ("orders", "3.0.0", str(ORDERS))
    assert not document["compatible"]
    assert document["differences"] == [
        {
            "breaks": "readers",
            "text": "the freshness is 6 hours, and was 4 hours",
            "column": None,
            "readers": [],
        }
    ]
    assert "price" in document["untaken"]


def test_a_file_alone_is_read_and_what_changes_nothing_is_told(tidemark: Tidemark) -> None:
    code, out = tidemark(f"contract check {ORDERS}")
    assert code == 0 and out.startswith("orders 2.1.0 (active): 8 columns, 7 rules, 3 checks")
    assert "changes nothing here: description.usage: a text that people read; domain;" in out


def test_a_view_is_written_with_the_types_of_its_table_and_what_is_not_there_is_told(
    typed: Typed, tidemark: Tidemark, lake: Lake, tmp_path: Path
) -> None:
    code, out = tidemark("contract export departures_by_origin")
    assert code == 1 and "whose type only its table tells" in out
    write_flights(lake)
    code, out, _ = typed("contract export departures_by_origin")
    (table,) = yaml.safe_load(out)["schema"]
    assert code == 0 and table["name"] == "departures_by_origin"
    types = {each["name"]: each["physicalType"] for each in table["properties"]}
    assert types["flights"] == "bigint" and types["mean_dep_delay"] == "double"
    code, out = tidemark("contract export nothing")
    assert code == 1 and "there is no view 'nothing'" in out
    code, out = tidemark(f"contract check {ORDERS} nothing")
    assert code == 1 and "there is no stream 'nothing'" in out and "flights/flights" in out
    assert tidemark("contract export flights --json")[0] == 2
